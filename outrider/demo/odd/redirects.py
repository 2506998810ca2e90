"""Redirects of every status, in chains and loops, and to where nobody should go."""

from collections.abc import Callable

from outrider.demo.answer import Answer, Request, html_page
from outrider.demo.odd.oddity import Oddity, name_of
from outrider.demo.options import SiteOptions

CHAIN = 5
LOOP = 3

_ELSEWHERE = {
    "relative": "landed/relative",
    "fragment": "/odd/redirect/landed/fragment#part-2",
    "not-ascii": "/odd/redirect/landed/caf\u00e9",
    "outside": "http://elsewhere.invalid/",
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "file": "file:///etc/hostname",
    "malformed": "http://[not-an-address/",
    "empty": "",
}


def _to(target: str, status: int = 302) -> Answer:
    return Answer(status=status, headers=(("Location", target), ("Content-Type", "text/plain")), body=b"moved\n")


def _with_status(status: int) -> Callable[[Request, SiteOptions], Answer]:
    return lambda _request, _options: _to(f"/odd/redirect/landed/{status}", status)


def _elsewhere(target: str) -> Callable[[Request, SiteOptions], Answer]:
    return lambda _request, _options: _to(target)


def _landed(request: Request, _options: SiteOptions) -> Answer | None:
    name = name_of(request).removeprefix("landed/")
    return html_page(f"Landed: {name}", "") if name_of(request).startswith("landed/") and name.isascii() else None


def _without_location(_request: Request, _options: SiteOptions) -> Answer:
    return Answer(status=302, headers=(("Content-Type", "text/plain"),), body=b"moved, nobody knows where to\n")


def _chain(request: Request, _options: SiteOptions) -> Answer | None:
    name = name_of(request)
    if not name.isdecimal() or int(name) > CHAIN:
        return None
    return _to(f"/odd/chain/{int(name) - 1}", 301) if int(name) else html_page("The end of the chain", "")


def _loop(request: Request, _options: SiteOptions) -> Answer | None:
    name = name_of(request)
    return _to(f"/odd/loop/{int(name) % LOOP + 1}") if name.isdecimal() and 1 <= int(name) <= LOOP else None


def _to_itself(request: Request, _options: SiteOptions) -> Answer:
    return _to(request.target)


def _for_ever(request: Request, _options: SiteOptions) -> Answer | None:
    name = name_of(request)
    return _to(f"/odd/for-ever/{int(name) + 1}") if name.isdecimal() and len(name) < 10 else None


ODDITIES = (
    *(
        Oddity(path=f"/odd/redirect/{status}", about=f"a redirect with status {status}", answer=_with_status(status))
        for status in (301, 302, 303, 307, 308)
    ),
    *(
        Oddity(path=f"/odd/redirect/{name}", about=f"a redirect: {name}", answer=_elsewhere(target))
        for name, target in _ELSEWHERE.items()
    ),
    Oddity(path="/odd/redirect/without-location", about="a redirect that says no place", answer=_without_location),
    Oddity(path="/odd/redirect/landed/here", about="where redirects land", answer=_landed, family=True),
    Oddity(path=f"/odd/chain/{CHAIN}", about="a chain of redirects", answer=_chain, family=True),
    Oddity(path="/odd/loop/1", about="redirects in a circle", answer=_loop, family=True),
    Oddity(path="/odd/itself", about="a redirect to itself", answer=_to_itself),
    Oddity(path="/odd/for-ever/1", about="redirects without end, each to a new place", answer=_for_ever, family=True),
)
