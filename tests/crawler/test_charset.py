"""Character sets: bytes become text, and the right one where anything says which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.crawler.charset import codec_of, decode

RUSSIAN = "Съешь ещё этих мягких французских булок, да выпей чаю. " * 20
JAPANESE = "東京は日本の首都です。天気は晴れです。" * 20


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("utf8", "utf-8"), (" UTF-8 ", "utf-8"), ("'utf-8'", "utf-8"), ("latin-1", "cp1252"), ("iso-8859-1", "cp1252"),
        ("us-ascii", "cp1252"), ("gb2312", "gb18030"), ("GBK", "gb18030"), ("shift_jis", "cp932"), ("x-sjis", "cp932"),
        ("windows-31j", "cp932"), ("euc-kr", "cp949"), ("big5", "big5hkscs"), ("windows-874", "cp874"),
        ("iso-8859-9", "cp1254"), ("koi8-u", "koi8-u"), ("iso-8859-8-i", "iso8859-8"), ("utf-16", "utf-16-le"),
    ],
)  # fmt: skip
def test_labels_mean_what_browsers_take_them_for(label: str, codec: str) -> None:
    assert codec_of(label) == codec


@pytest.mark.parametrize("label", ["utf-7", "base64", "rot13", "idna", "unicode_escape", "nonsense", "", "a\0b", "é"])
def test_what_no_browser_reads_is_no_charset(label: str) -> None:
    assert codec_of(label) is None
    assert decode("é".encode(), label) == ("é", "utf-8")


def test_a_byte_order_mark_wins_over_every_declaration() -> None:
    assert decode(b"\xef\xbb\xbf<meta charset=koi8-r>\xc3\xa9", "latin-1") == ("<meta charset=koi8-r>é", "utf-8")
    assert decode(b"\xff\xfe" + "é".encode("utf-16-le"), "utf-8") == ("é", "utf-16-le")
    assert decode(b"\xfe\xff" + "é".encode("utf-16-be")) == ("é", "utf-16-be")


def test_the_responses_charset_wins_over_the_pages() -> None:
    body = f"<meta charset=utf-8>{RUSSIAN}".encode("cp1251")
    assert decode(body, "windows-1251") == (f"<meta charset=utf-8>{RUSSIAN}", "cp1251")


@pytest.mark.parametrize(
    "declaration",
    [
        '<meta charset="windows-1251">',
        "<META CHARSET=windows-1251>",
        '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
        '<?xml version="1.0" encoding="windows-1251"?>',
    ],
)
def test_a_page_may_declare_its_charset_itself(declaration: str) -> None:
    assert decode((declaration + RUSSIAN).encode("cp1251")) == (declaration + RUSSIAN, "cp1251")


def test_a_page_that_calls_itself_utf_16_in_ascii_is_utf_8() -> None:
    assert decode("<meta charset=utf-16>é".encode()) == ("<meta charset=utf-16>é", "utf-8")


def test_a_declared_charset_that_does_not_fit_gives_way() -> None:
    assert decode(JAPANESE.encode(), "shift_jis") == (JAPANESE, "utf-8")
    assert decode(f"<meta charset=cp932>{JAPANESE}".encode("cp932"), "utf-8")[1] == "cp932"


def test_one_unreadable_character_does_not_overthrow_what_was_declared() -> None:
    text, charset = decode(RUSSIAN.encode() + b"\xff" + RUSSIAN.encode(), "utf-8")
    assert (text, charset) == (f"{RUSSIAN}\ufffd{RUSSIAN}", "utf-8")


def test_a_character_that_the_end_of_the_body_cuts_is_left_out() -> None:
    assert decode("aé".encode()[:-1], "utf-8") == ("a", "utf-8")
    assert decode("京".encode("cp932") * 3 + "京".encode("cp932")[:1], "shift_jis") == ("京京京", "cp932")


@pytest.mark.parametrize(("text", "codec"), [(RUSSIAN, "cp1251"), (JAPANESE, "cp932")])
def test_a_charset_that_nobody_declares_is_guessed(text: str, codec: str) -> None:
    assert decode(text.encode(codec)) == (text, codec)


def test_a_guess_does_not_tell_latin_charsets_apart() -> None:
    text = "<title>Café Müller – “naïve” prices in €</title>"
    assert decode(text.encode("cp1252")) == (text, "cp1252")


def test_windows_1252_is_the_last_resort() -> None:
    text, charset = decode(bytes(range(256)) * 4)
    assert charset == "cp1252"
    assert "é" in text


@given(st.binary(max_size=300), st.none() | st.text(max_size=12) | st.sampled_from(["utf-8", "gb18030", "iso-2022-jp"]))
def test_any_bytes_become_text_that_can_be_encoded(body: bytes, declared: str | None) -> None:
    text, charset = decode(body, declared)
    text.encode()
    assert codec_of(charset) is not None
