"""Bodies that are encoded, wrongly encoded, explosive, of no text type, or in a charset that must be guessed."""

import functools
import gzip
import struct
import sys
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]

from outrider.demo.answer import HTML, Answer, Headers, Request, Step, html_page
from outrider.demo.odd.oddity import Oddity
from outrider.demo.options import SiteOptions

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

WESTERN = "Café Müller – “naïve” prices in €"
JAPANESE = "日本語のページ"
"""The titles of the pages in other charsets, after decoding."""

_MEGABYTE = 1024 * 1024
_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": functools.partial(gzip.compress, mtime=0),
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}


def _encoded(encoding: str) -> Callable[[Request, SiteOptions], Answer]:
    """A page in one encoding for clients that accept it, and plain for others."""

    def answer(request: Request, _options: SiteOptions) -> Answer:
        page = html_page(f"Encoded: {encoding}", "<p>Plain in the end.</p>" * 50)
        accepted = {each.partition(";")[0].strip() for each in request.headers.get("accept-encoding", "").split(",")}
        if encoding not in accepted:
            return Answer(headers=(HTML, ("Vary", "Accept-Encoding")), body=page.body)
        headers: Headers = (HTML, ("Content-Encoding", encoding), ("Vary", "Accept-Encoding"))
        return Answer(headers=headers, body=_ENCODERS[encoding](page.body))

    return answer


def _invalid_gzip(_request: Request, _options: SiteOptions) -> Answer:
    return Answer(headers=(HTML, ("Content-Encoding", "gzip")), body=b"<p>This was never compressed.</p>")


def _cut_gzip(_request: Request, _options: SiteOptions) -> Answer:
    whole = gzip.compress(html_page("Half", "<p>of it</p>" * 1_000).body, mtime=0)
    return Answer(headers=(HTML, ("Content-Encoding", "gzip")), body=whole[: len(whole) // 2])


def _unknown_encoding(_request: Request, _options: SiteOptions) -> Answer:
    return html_page("Unknown encoding", "", headers=(HTML, ("Content-Encoding", "x-unheard-of")))


def _gzip_bomb(_request: Request, options: SiteOptions) -> Answer:
    start, block, times, end = _gzip_bomb_parts(options.bomb_bytes)
    script = (Step(data=start), Step(data=block, times=times), Step(data=end))
    length = len(start) + len(block) * times + len(end)
    return Answer(headers=(HTML, ("Content-Encoding", "gzip")), script=script, declared_length=length)


@functools.cache
def _gzip_bomb_parts(size: int) -> tuple[bytes, bytes, int, bytes]:
    """A gzip file of `size` spaces, as its start, a block that repeats, how often it does, and its end.

    After a full flush a compressor forgets the past, so that the same input gives the same block again.
    """
    spaces, times = b" " * _MEGABYTE, size // _MEGABYTE
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = compressor.compress(spaces) + compressor.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for _ in range(times):
        checksum = zlib.crc32(spaces, checksum)
    start = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush() + struct.pack("<LL", checksum, times * _MEGABYTE % 2**32)
    return start, block, times, end


def _zstd_bomb(_request: Request, options: SiteOptions) -> Answer:
    return Answer(headers=(HTML, ("Content-Encoding", "zstd")), body=_zstd_bomb_body(options.bomb_bytes))


@functools.cache
def _zstd_bomb_body(size: int) -> bytes:
    compressor, spaces = zstd.ZstdCompressor(), b" " * _MEGABYTE
    return b"".join(compressor.compress(spaces) for _ in range(size // _MEGABYTE)) + compressor.flush()


def _in_charset(title: str, charset: str, *, header: str | None, meta: str | None) -> Callable[..., Answer]:
    """A page in a charset, and what its header and its markup say of that."""
    head = f'<meta charset="{meta}">' if meta else ""
    text = f"<!doctype html><html><head>{head}<title>{title}</title></head><body><p>{title}</p></body></html>\n"
    content_type = "text/html" + (f"; charset={header}" if header else "")
    answer = Answer(headers=(("Content-Type", content_type),), body=text.encode(charset))
    return lambda _request, _options: answer


def _of_type(content_type: str, body: bytes) -> Callable[[Request, SiteOptions], Answer]:
    headers: Headers = (("Content-Type", content_type),) if content_type else ()
    return lambda _request, _options: Answer(headers=headers, body=body)


def png(number: int) -> bytes:
    """A picture of one pixel, in a grey of its own."""

    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">L", len(data)) + name + data + struct.pack(">L", zlib.crc32(name + data))

    size = struct.pack(">LLBBBBB", 1, 1, 8, 0, 0, 0, 0)
    grey = zlib.compress(bytes([0, number % 256]))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", size) + part(b"IDAT", grey) + part(b"IEND", b"")


_PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
_PAGE = html_page("Looks like HTML", '<p><a href="/odd/">back</a></p>').body

_CHARSETS = {
    "windows-1252": _in_charset(WESTERN, "windows-1252", header="windows-1252", meta=None),
    "windows-1252-in-markup": _in_charset(WESTERN, "windows-1252", header=None, meta="windows-1252"),
    "windows-1252-as-latin-1": _in_charset(WESTERN, "windows-1252", header="iso-8859-1", meta=None),
    "windows-1252-unsaid": _in_charset(WESTERN, "windows-1252", header=None, meta=None),
    "shift_jis": _in_charset(JAPANESE, "shift_jis", header="Shift_JIS", meta=None),
    "shift_jis-in-markup": _in_charset(JAPANESE, "shift_jis", header=None, meta="shift_jis"),
    "utf-8-as-latin-1": _in_charset(JAPANESE, "utf-8", header="iso-8859-1", meta=None),
    "utf-8-unsaid": _in_charset(JAPANESE, "utf-8", header=None, meta=None),
    "utf-16": _in_charset(JAPANESE, "utf-16", header="utf-16", meta=None),
    "unheard-of": _in_charset(WESTERN, "utf-8", header="x-unheard-of", meta=None),
}
_TYPES = {
    "png": _of_type("image/png", png(0)),
    "pdf": _of_type("application/pdf", _PDF),
    "binary-as-html": _of_type("text/html", bytes(range(256)) * 64),
    "html-as-binary": _of_type("application/octet-stream", _PAGE),
    "none": _of_type("", _PAGE),
    "malformed": _of_type("text", _PAGE),
    "empty": _of_type("text/html", b""),
}

ODDITIES = (
    *(
        Oddity(path=f"/odd/encoded/{encoding}", about=f"encoded with {encoding}", answer=_encoded(encoding))
        for encoding in _ENCODERS
    ),
    Oddity(path="/odd/encoded/invalid-gzip", about="said to be gzip, and is not", answer=_invalid_gzip),
    Oddity(path="/odd/encoded/cut-gzip", about="half of a gzip file", answer=_cut_gzip),
    Oddity(path="/odd/encoded/unheard-of", about="an encoding nobody knows", answer=_unknown_encoding),
    Oddity(path="/odd/encoded/gzip-bomb", about="small gzip, vast contents", answer=_gzip_bomb),
    Oddity(path="/odd/encoded/zstd-bomb", about="small zstd, vast contents", answer=_zstd_bomb),
    *(
        Oddity(path=f"/odd/charset/{name}", about=f"charset: {name}", answer=answer)
        for name, answer in _CHARSETS.items()
    ),
    *(Oddity(path=f"/odd/type/{name}", about=f"type: {name}", answer=answer) for name, answer in _TYPES.items()),
)
