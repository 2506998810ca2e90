"""What a synthetic site is made of."""

import msgspec

MOST_PAGES = 100_000_000


class SiteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The size, the seed and the temper of a site; the same options give the same site, byte for byte.

    Raises `ValueError` where a number makes no sense.
    """

    pages: int = 2_000
    links_per_page: int = 20
    seed: int = 1
    page_bytes: int = 2_048
    """About how long a page is; its links are never cut for it."""
    oddities: bool = True
    """Whether the site has more than plain pages and a robots.txt: everything below `/odd/`, sitemaps,
    feeds, images, and the markup that leads to them."""
    robots_status: int = 200
    robots_delay_s: float | None = None
    """The Crawl-delay of robots.txt."""
    slow_s: float = 1.0
    """How long a slow page waits before it answers, and a trickling one between two bytes."""
    retry_after_s: int = 1
    """What a 429 or 503 asks for."""
    failures: int = 2
    """How often a page that recovers fails before it does."""
    huge_bytes: int = 32 * 1024 * 1024
    """The length of a huge body, as sent."""
    bomb_bytes: int = 256 * 1024 * 1024
    """The length of a compression bomb, once decompressed."""
    many_links: int = 5_000
    """How many different links the page with very many has."""
    flood_headers: int = 5_000

    def __post_init__(self) -> None:
        """Refuse what cannot be served."""
        if not 1 <= self.pages <= MOST_PAGES:
            raise ValueError(f"pages must be between 1 and {MOST_PAGES:,}, not {self.pages}")
        if self.links_per_page < 2:
            raise ValueError(
                f"links_per_page must be at least 2, not {self.links_per_page}: some page would be far away"
            )
        if self.robots_delay_s is not None and self.robots_delay_s < 0:
            raise ValueError(f"robots_delay_s must not be negative, not {self.robots_delay_s}")
        for name in ("page_bytes", "slow_s", "failures", "retry_after_s", "huge_bytes", "bomb_bytes", "many_links"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")
