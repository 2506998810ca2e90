"""Answers that come too slowly, too long, cut off, or not as HTTP at all."""

from outrider.demo.answer import HTML, Answer, Request, Step, html_page
from outrider.demo.odd.oddity import Oddity
from outrider.demo.options import SiteOptions

BLOCK = b"<p>" + b"more of the same, and " * 2_978 + b"</p>\n"
"""About 64 KiB of HTML."""

_START = b"<!doctype html><html><head><title>A long story</title></head><body>\n"


def _slow(_request: Request, options: SiteOptions) -> Answer:
    page = html_page("Slow", "<p>Sorry for the wait.</p>")
    return Answer(headers=page.headers, body=page.body, wait_s=options.slow_s)


def _trickling_head(_request: Request, options: SiteOptions) -> Answer:
    start = Step(data=b"HTTP/1.1 200 OK\r\nX-Patience: ")
    return Answer(raw=True, script=(start, Step(data=b"z", wait_s=options.slow_s, times=None)))


def _trickling_body(_request: Request, options: SiteOptions) -> Answer:
    return Answer(headers=(HTML,), script=(Step(data=_START), Step(data=b"z", wait_s=options.slow_s, times=None)))


def _endless(_request: Request, _options: SiteOptions) -> Answer:
    return Answer(headers=(HTML,), script=(Step(data=_START), Step(data=BLOCK, times=None)))


def _silent(_request: Request, _options: SiteOptions) -> Answer:
    return Answer(raw=True, script=(Step(wait_s=3_600, times=None),))


def _huge(_request: Request, options: SiteOptions) -> Answer:
    whole, rest = divmod(options.huge_bytes, len(BLOCK))
    script = (Step(data=BLOCK, times=whole), Step(data=BLOCK[:rest]))
    return Answer(headers=(HTML,), script=script, declared_length=options.huge_bytes)


def _truncated(_request: Request, _options: SiteOptions) -> Answer:
    return Answer(headers=(HTML,), script=(Step(data=_START),), declared_length=len(_START) + 10_000, cut=True)


def _truncated_chunks(_request: Request, _options: SiteOptions) -> Answer:
    return Answer(headers=(HTML,), script=(Step(data=_START),), cut=True)


def _dropped(_request: Request, _options: SiteOptions) -> Answer:
    return Answer(raw=True, cut=True)


def _not_http(_request: Request, _options: SiteOptions) -> Answer:
    return Answer(raw=True, script=(Step(data=b"\x15\x03\x01\x00\x02\x02\x16 this is no HTTP\r\n\r\n"),), cut=True)


def _two_lengths(_request: Request, _options: SiteOptions) -> Answer:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\n"
    return Answer(raw=True, script=(Step(data=head + b"hello"),), cut=True)


def _header_flood(_request: Request, options: SiteOptions) -> Answer:
    flood = tuple((f"X-Flood-{number}", "z" * 64) for number in range(options.flood_headers))
    return html_page("A flood of headers", "", headers=(HTML, *flood))


def _long_header(_request: Request, _options: SiteOptions) -> Answer:
    return html_page("A long header", "", headers=(HTML, ("X-Long", "z" * 1_000_000)))


ODDITIES = (
    Oddity(path="/odd/slow", about="waits before it answers", answer=_slow),
    Oddity(path="/odd/slow-head", about="sends its head byte by byte, for ever", answer=_trickling_head),
    Oddity(path="/odd/slow-body", about="sends its body byte by byte, for ever", answer=_trickling_body),
    Oddity(path="/odd/silent", about="takes the request and never answers", answer=_silent),
    Oddity(path="/odd/endless", about="a body without end, as fast as it can", answer=_endless),
    Oddity(path="/odd/huge", about="a huge body of known length", answer=_huge),
    Oddity(path="/odd/truncated", about="shorter than its Content-Length", answer=_truncated),
    Oddity(path="/odd/truncated-chunks", about="ends without its last chunk", answer=_truncated_chunks),
    Oddity(path="/odd/dropped", about="closes the connection without a byte", answer=_dropped),
    Oddity(path="/odd/not-http", about="answers something that is not HTTP", answer=_not_http),
    Oddity(path="/odd/two-lengths", about="two Content-Length headers that differ", answer=_two_lengths),
    Oddity(path="/odd/header-flood", about="thousands of headers", answer=_header_flood),
    Oddity(path="/odd/long-header", about="one header of a million characters", answer=_long_header),
)
