"""What the site is asked and what it answers, as values: the server does the sending and the waiting."""

from collections.abc import Mapping

import msgspec

Headers = tuple[tuple[str, str], ...]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, with all that an answer may depend on: the clock and the client's persistence too."""

    target: str
    """The path and the query, as sent."""
    method: str = "GET"
    headers: Mapping[str, str] = {}
    """By lower-case name."""
    host: str = "localhost"
    now: float = 0.0
    """Seconds since 1970."""
    visit: int = 1
    """How often this target was asked for, this time included; counted only where `Site.counts_visits`."""

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """What follows the first question mark."""
        return self.target.partition("?")[2]

    @property
    def origin(self) -> str:
        """What every address of this site begins with."""
        return f"http://{self.host}"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Wait, then send some bytes; as often as said."""

    data: bytes = b""
    wait_s: float = 0.0
    times: int | None = 1
    """None means for ever: until the client has had enough."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A response: either a whole body, or a script of steps for one that is sent in an awkward way."""

    status: int = 200
    headers: Headers = ()
    body: bytes = b""
    wait_s: float = 0.0
    """How long to wait before the first byte."""
    script: tuple[Step, ...] = ()
    """Sent in place of the body, in chunks unless a length is declared."""
    declared_length: int | None = None
    """The Content-Length of a script, true or not."""
    raw: bool = False
    """The script is all that is sent: the server adds no status line, no headers and no chunks."""
    cut: bool = False
    """The connection ends with the script, in the middle of whatever the client still expects."""

    @property
    def is_scripted(self) -> bool:
        """Whether it takes more than one write."""
        return bool(self.script) or self.raw or self.cut or self.wait_s > 0


HTML = ("Content-Type", "text/html; charset=utf-8")


def html_page(title: str, body: str, *, headers: Headers = (HTML,), head: str = "", status: int = 200) -> Answer:
    """A small page of HTML."""
    text = (
        f"<!doctype html><html><head><title>{title}</title>{head}</head><body><h1>{title}</h1>\n{body}</body></html>\n"
    )
    return Answer(status=status, headers=headers, body=text.encode())


def link_list(targets: Mapping[str, str]) -> str:
    """A list of links in HTML, by target and text."""
    return "<ul>\n" + "".join(f'<li><a href="{to}">{text}</a></li>\n' for to, text in targets.items()) + "</ul>\n"
