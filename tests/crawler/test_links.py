"""Which addresses are followed, and what is counted of the others."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from outrider.crawler.links import MAX_HOPS, MAX_SITEMAP_LEVELS, Known, Links
from outrider.crawler.page import read_page
from outrider.crawler.progress import Progress
from outrider.crawler.sitemap import read_sitemap
from outrider.model.lease import Lease, Token
from outrider.model.task import CrawlRules, Discovered, DiscoveryType, Kind
from outrider.policy.scope import scope_of

HOME = "https://site.example/"


def links(*, ignore_nofollow: bool = False, sitemaps: bool = True) -> Links:
    return Links(scope_of([HOME]), CrawlRules(), Progress(), ignore_nofollow=ignore_nofollow, sitemaps=sitemaps)


def skipped(links: Links) -> dict[str, int]:
    return dict(links._progress.skipped)


def lease(url: str = HOME, *, kind: DiscoveryType = DiscoveryType.LINK, **metadata: object) -> Lease:
    return Lease(
        token=Token("0" * 32),
        crawl="c",
        key="site.example",
        url=url,
        domain="site.example",
        kind=Kind.PAGE,
        depth=2,
        priority=9,
        attempt=1,
        discovery_type=kind,
        lease_ms=1_000,
        metadata=metadata or None,
    )


def followed(links: Links, markup: str, *, nofollow: bool = False) -> list[str]:
    page = read_page(markup.encode(), url=HOME)
    return [found.url for found in links.of_page(page, lease(), nofollow=nofollow)]


# ------------------------------------------------------------------------- pages


def test_links_lead_one_deeper_whatever_they_call_themselves() -> None:
    markup = '<link rel="canonical" href="/same"><a href="/next">x</a>'
    found = links().of_page(read_page(markup.encode(), url=HOME), lease(), nofollow=False)
    assert {each.url.removeprefix(HOME): each.depth for each in found} == {"same": 3, "next": 3}


def test_links_out_of_scope_and_into_traps_are_counted_and_not_followed() -> None:
    ours = links()
    markup = '<a href="https://other.example/">x</a><a href="/a/a/a/a">x</a><a href="/fine">x</a>'
    assert followed(ours, markup) == [f"{HOME}fine"]
    assert skipped(ours) == {"out of scope": 1, "trap_repeated_path": 1}


def test_nofollow_is_obeyed_unless_it_is_to_be_ignored() -> None:
    markup = '<a rel="nofollow" href="/1">x</a><a href="/2">x</a>'
    ours = links()
    assert followed(ours, markup) == [f"{HOME}2"]
    assert followed(ours, markup, nofollow=True) == []
    assert skipped(ours) == {"nofollow": 3}
    assert len(followed(links(ignore_nofollow=True), markup, nofollow=True)) == 2


def test_what_the_frontier_has_is_not_offered_again() -> None:
    ours = links()
    ours.known.update([f"{HOME}1"])
    assert followed(ours, '<a href="/1">x</a><a href="/./1">x</a><a href="/2">x</a>') == [f"{HOME}2"]


def test_known_urls_are_forgotten_before_they_fill_the_memory() -> None:
    known = Known(remembered=10)
    for number in range(100):
        known.update([str(number)])
    assert "99" in known
    assert "90" in known
    assert "0" not in known


# --------------------------------------------------------------------- redirects


def redirected(lease: Lease, target: str) -> Discovered | str:
    return links().of_redirect(lease, target)


def test_the_target_of_a_redirect_is_a_task_of_the_same_depth_that_knows_its_way() -> None:
    found = redirected(lease(f"{HOME}b", redirects=[f"{HOME}a"]), "c")
    assert isinstance(found, Discovered)
    assert (found.url, found.depth, found.priority) == (f"{HOME}c", 2, 9)
    assert found.discovery_type is DiscoveryType.REDIRECT
    assert found.metadata == {"redirects": [f"{HOME}a", f"{HOME}b"]}


def test_five_redirects_are_followed_and_no_more() -> None:
    chain = [f"{HOME}{number}" for number in range(MAX_HOPS - 1)]
    assert isinstance(redirected(lease(f"{HOME}x", redirects=chain), "/on"), Discovered)
    chain.append(f"{HOME}y")
    assert redirected(lease(f"{HOME}x", redirects=chain), "/on") == "redirected more than 5 times"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("", "redirects to itself"),
        ("/#part", "redirects to itself"),
        ("/first", "redirects in a circle"),
        ("https://other.example/", "redirects out of scope: host other.example is not among the seeds'"),
        ("mailto:a@b.example", "redirects to an address that is refused: "),
        ("http://[::1", "redirects to an address that is refused: "),
    ],
)
def test_what_is_not_followed_has_its_reason(target: str, why: str) -> None:
    found = redirected(lease(redirects=[f"{HOME}first"]), target)
    assert isinstance(found, str)
    assert found.startswith(why)


def test_a_seed_may_lead_out_of_scope_and_so_may_what_it_leads_to() -> None:
    first = redirected(lease(kind=DiscoveryType.SEED), "https://other.example/")
    assert isinstance(first, Discovered)
    assert first.metadata is not None
    assert first.metadata["seed"]
    further = redirected(lease("https://other.example/", seed=True), "https://third.example/")
    assert isinstance(further, Discovered)


def test_a_way_that_is_too_long_to_be_kept_is_not_followed() -> None:
    chain = [f"{HOME}{number}?{'x' * 5_000}" for number in range(3)]
    assert redirected(lease(redirects=chain[:2]), "/on") != redirected(lease(redirects=chain), "/on")
    assert redirected(lease(f"{HOME}?{'y' * 2_000}", redirects=chain), "/on") == (
        "redirected through addresses that are too long to be kept"
    )


# ---------------------------------------------------------------------- sitemaps


def test_a_sitemap_may_lie_anywhere_but_its_pages_must_be_in_scope() -> None:
    ours = links()
    [named] = ours.of_sitemaps(["https://maps.example/sitemap.xml"])
    assert (named.kind, named.url) == (Kind.SITEMAP, "https://maps.example/sitemap.xml")
    body = b"<urlset><url><loc>https://site.example/1</loc></url><url><loc>https://other.example/</loc></url></urlset>"
    found = ours.of_sitemap(read_sitemap(body, url=named.url), now_ms=0)
    assert [each.url for each in found] == [f"{HOME}1"]


def test_a_sitemap_that_cannot_be_one_is_counted_once_however_many_pages_lead_to_it() -> None:
    ours = links()
    for _ in range(5):
        assert ours.of_sitemaps(["/relative.xml"]) == []
    assert skipped(ours) == {"not_http": 1}


def test_sitemaps_name_sitemaps_but_not_without_end() -> None:
    ours = links()
    names = [ours.of_sitemaps([f"{HOME}{level}.xml"], level) for level in range(MAX_SITEMAP_LEVELS + 2)]
    assert [len(named) for named in names] == [1] * (MAX_SITEMAP_LEVELS + 1) + [0]
    assert skipped(ours) == {"nested sitemaps": 1}


def test_sitemaps_are_left_where_they_are_not_wanted() -> None:
    assert links(sitemaps=False).of_sitemaps([f"{HOME}sitemap.xml"]) == []


# ----------------------------------------------------------------------- threads


class HesitantCounter(Counter[str]):
    """Lets another thread go first between the reading of a number and the writing of the next."""

    def __getitem__(self, key: str) -> int:
        number = super().__getitem__(key)
        time.sleep(0.001)
        return number


def test_long_pages_that_are_judged_side_by_side_are_counted_exactly() -> None:
    ours = links()
    ours._progress.skipped = HesitantCounter()
    page = read_page("".join(f'<a href="https://b.example/{n}">x</a>' for n in range(20)).encode(), url=HOME)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: ours.of_page(page, lease(), nofollow=False), range(4)))
    assert skipped(ours) == {"out of scope": 80}
