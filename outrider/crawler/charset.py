"""Character sets: from the bytes of a page to its text, as browsers do it and with a guess where they give up."""

import codecs
import re
from functools import lru_cache
from typing import Final

_SCANNED_BYTES: Final = 4_096
"""How far a declaration in the page is looked for; browsers stop after 1,024."""
_SAMPLED_BYTES: Final = 4_096
"""How much of a page is guessed from: 1 to 3 ms."""
_LONGEST_CHARACTER: Final = 4
_TOLERATED_SHARE: Final = 100
"""A declared charset holds if at most one character in so many is unreadable."""
_FALLBACK: Final = "cp1252"

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARATION = re.compile(
    rb"""<meta\s[^>]*?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]+)|<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z0-9_.:-]+)""",
    re.IGNORECASE,
)

# Browsers read these as what people meant by them (WHATWG Encoding Standard).
_READ_AS: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "cp950": "big5hkscs",
    "utf-16": "utf-16-le",
}
# fmt: off
_READABLE: Final = frozenset({
    "utf-8", "utf-16-le", "utf-16-be", "cp866", "cp874", "cp932", "cp949", "cp1250", "cp1251", "cp1252", "cp1253",
    "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "iso8859-2", "iso8859-3", "iso8859-4", "iso8859-5",
    "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-10", "iso8859-13", "iso8859-14", "iso8859-15", "iso8859-16",
    "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "gb18030", "big5hkscs", "euc_jp", "iso2022_jp",
})
"""The codecs of browsers; others that Python has, such as `utf-7` or `rot13`, could turn a page into another."""
_ALIASES: Final = {
    "x-sjis": "cp932", "windows-31j": "cp932", "x-gbk": "gb18030", "x-x-big5": "big5hkscs", "big5-hkscs": "big5hkscs",
    "x-euc-jp": "euc_jp", "ks_c_5601-1987": "cp949", "ksc5601": "cp949", "ksc_5601": "cp949", "dos-874": "cp874",
    "windows-874": "cp874", "windows-949": "cp949", "macintosh": "mac-roman", "mac": "mac-roman",
    "x-mac-roman": "mac-roman", "x-mac-cyrillic": "mac-cyrillic", "x-mac-ukrainian": "mac-cyrillic",
    "iso-8859-8-i": "iso8859-8", "iso-8859-8-e": "iso8859-8", "logical": "iso8859-8", "visual": "iso8859-8",
    "koi": "koi8-r", "koi8": "koi8-r", "koi8-ru": "koi8-u", "unicode": "utf-16-le", "ucs-2": "utf-16-le",
    "unicodefeff": "utf-16-le", "unicodefffe": "utf-16-be", "x-user-defined": "cp1252",
}
_LATIN: Final = frozenset({
    "cp1250", "cp1254", "cp1257", "cp1258", "mac-roman", "iso8859-2", "iso8859-3", "iso8859-4", "iso8859-10",
    "iso8859-13", "iso8859-14", "iso8859-15", "iso8859-16",
})
"""They differ from windows-1252 in a few letters, too little for a guess; it is what browsers take."""
# fmt: on


def decode(body: bytes, declared: str | None = None) -> tuple[str, str]:
    """Read a body as text and name the charset that it was read with; never raises.

    In this order: a byte order mark, the charset `declared` by the response, the page's own declaration,
    UTF-8, a guess, windows-1252. A charset that does not fit gives way to the next one.

    >>> decode("naïve".encode("latin-1"), "ISO-8859-1")
    ('naïve', 'cp1252')
    """
    codec = codec_of(declared) if declared else None
    if codec == "utf-8" and not body.startswith(_MARKS[0][0]):
        try:
            return body.decode(), "utf-8"
        except UnicodeDecodeError:
            pass
    for mark, marked in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(marked, "replace"), marked
    candidates = list(dict.fromkeys(name for name in (codec, _declared_inside(body), "utf-8") if name))
    for candidate in candidates:
        if (text := _strictly(body, candidate)) is not None:
            return text, candidate
    for candidate in candidates:
        if (text := _nearly(body, candidate)) is not None:
            return text, candidate
    guessed = _guess(body[:_SAMPLED_BYTES]) or _FALLBACK
    return body.decode(guessed, "replace"), guessed


@lru_cache(maxsize=1_024)
def codec_of(label: str) -> str | None:
    """Name Python's codec for a charset's label as browsers understand it; None where they know none.

    >>> codec_of("latin-1"), codec_of("GB2312"), codec_of("utf-7")
    ('cp1252', 'gb18030', None)
    """
    label = label.strip(" \t\r\n\f\"'").lower()
    codec = _ALIASES.get(label)
    if codec is None:
        try:
            codec = codecs.lookup(label).name
        except (LookupError, ValueError, UnicodeError):  # ValueError for NUL characters
            return None
        codec = _READ_AS.get(codec, codec)
    return codec if codec in _READABLE else None


def _declared_inside(body: bytes) -> str | None:
    declaration = _DECLARATION.search(body, 0, _SCANNED_BYTES)
    if declaration is None:
        return None
    codec = codec_of((declaration[1] or declaration[2]).decode("ascii"))
    # What could be read as ASCII up to here is not UTF-16, whatever it says.
    return "utf-8" if codec in ("utf-16-le", "utf-16-be") else codec


def _strictly(body: bytes, codec: str) -> str | None:
    """Decode without any fault, but for a last character that a limit on the body has cut."""
    try:
        return body.decode(codec)
    except UnicodeDecodeError as error:
        if error.start and len(body) - error.start < _LONGEST_CHARACTER:
            return body[: error.start].decode(codec, "replace")
    return None


def _nearly(body: bytes, codec: str) -> str | None:
    text = body.decode(codec, "replace")
    return text if text.count("\ufffd") * _TOLERATED_SHARE <= len(text) else None


def _guess(sample: bytes) -> str | None:
    # Loading it takes 50 ms, which a crawl of declared pages should not pay.
    from charset_normalizer import from_bytes

    best = from_bytes(sample, preemptive_behaviour=False).best()
    codec = None if best is None else codec_of(best.encoding)
    return _FALLBACK if codec in _LATIN else codec
