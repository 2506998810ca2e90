"""The normal form of a URL, and what is refused instead."""

from itertools import product
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import can_ada
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.model.domain_name import MAX_DOMAIN_CHARACTERS, domain_of
from outrider.model.errors import OutriderError
from outrider.model.task import Refusal
from outrider.model.url import (
    MAX_URL_BYTES,
    TRACKING_PARAMETERS,
    Location,
    UrlRefused,
    locate,
    normalise,
    url_hash,
)

EVERY_OPTION = [{"strip_tracking": a, "sort_query": b} for a, b in product([False, True], repeat=2)]
options = pytest.mark.parametrize("options", EVERY_OPTION, ids=str)

# fmt: off
PORTS = [
    ("http://example.com:443/", "example.com:443", "example.com"),
    ("https://www.example.com:80/", "www.example.com:80", "example.com"),
    ("https://www.example.com:8443/", "www.example.com:8443", "example.com:8443"),
    ("http://[::1]:8080/", "[::1]:8080", "[::1]:8080"),
]
DOT_SEGMENTS = [
    ("/a/./b", "/a/b"), ("/a/../b", "/b"), ("/../../b", "/b"), ("/a/b/..", "/a/"), ("/a/%2e/b", "/a/b"),
    ("/a/%2E%2e/b", "/b"), ("/a/.%2e/b", "/b"), ("/a\\b", "/a/b"), ("/a//b/", "/a//b/"), ("/...", "/..."),
]
ESCAPES = [
    ("%c3%a9", "%C3%A9"), ("é", "%C3%A9"), ("%7Ejoe%41%2dz", "~joeA-z"), ("a%2Eb", "a.b"),
    ("%2f%3F%23%26%3d%2B%20", "%2F%3F%23%26%3D%2B%20"), ("%00", "%00"), ("%2541", "%2541"),
    ("%252e", "%252e"), ("%zz", "%zz"), ("%4", "%4"), ("%", "%"), ("100%", "100%"),
]
STRAY_PERCENT_SIGNS = [
    ("%%41", "%%41"), ("%%34%31", "%%341"), ("%4%31", "%4%31"), ("%2%65", "%2%65"), ("%%32%65", "%%32e"),
    ("%%%32e", "%%%32e"), ("%%7e", "%~"), ("%4%7e", "%4~"), ("%%c3", "%%C3"), ("%z%41", "%zA"),
]
TRACKING = [
    "utm_source", "utm_anything", "utm%5Fid", "gclid", "fbclid", "msclkid", "mc_eid", "yclid", "dclid",
    "gbraid", "wbraid", "igshid", "_ga",
]
NOT_TRACKING = ["utm=1", "xutm_source=1", "gclid2=1", "a=gclid", "GCLID=1", "q=utm_source=1"]
NOT_TEXT = [None, 7, True, 1.5, b"http://example.com/", ["http://example.com/"], object()]
NULS = ["\0", "http://a/\0", "\0http://a/", "http://a\0b/", "http://a/?\0#", "http://a/#\0"]
NOT_HTTP = [
    "", " ", "/a/b", "//example.com/", "a/b", "example.com", "?q", "://example.com", "javascript:alert(1)",
    " java\nscript:alert(1)", "mailto:me@example.com", "ftp://example.com/", "file:///etc/passwd",
    "data:text/html,x", "ws://example.com/", "httpſ://example.com/", "localhost:8080",
]
NO_HOST = ["http:", "HTTP://", "https:///", "http://?q", "http://#", "http://me@", "http://:80/"]
BAD_PORT = [
    "http://a:99999/", "http://a:65536/", "http://a:x/", "http://a:-1/", "http://a: 80/", "http://a:٨٠/",
    "http://a:b:80/", "http://me:secret@a:x/", "http://[::1]:x/",
]
BAD_HOST = [
    "http://[::1", "http://[::1/", "http://[]/", "http://[::g]/", "http://[fe80::1%25eth0]/", "http://a1]/",
    "http://a b/", "http://a<b/", "http://a|b/", "http://a^b:80/", "http://a%2fb/", "http://a%00b/",
    "http://a%b/", "http://256.1.1.1/", "http://1.2.3.4.5/", "http://a.1/", "http://xn--a/", "http://\xad/",
    "http://a b:99999/", "http://./", "http://../", "http://a../", "http://.a/", "http://a..b/",
    "http://a。。b/",
]
URL_FRAGMENTS = [
    "http://", "https://", "HTTP:", "javascript:", "//", "/", "\\", ":", "@", "?", "#", "&", "=", ";", ".",
    "..", "%2e", "%2E", "%25", "%41", "%4", "%", "1", "e", "7E", "%7e", "%c3%a9", "%zz", "[", "]", "[::1]",
    "127.1", "0x7f", "www.", "example.com", "EXAMPLE.org.", "co.uk", "münchen.de", "xn--", "xn--mnchen-3ya",
    ":80", ":443", ":8080", ":99999", "a", "b", "A", "B", "é", "ß", "。", "🚀", "utm_source=x", "gclid=1",
    "q=1", "|", "^", "`", "{", "}", "<", ">", '"', "'", " ", "\t", "\n", "\0", "\x1f", "\x7f", "\xad",
    "\ud800", "\u212a", "a" * 64,
]
# fmt: on

ANY_TEXT = st.text(st.characters(exclude_categories=[]))
FRAGMENTS = st.sampled_from(URL_FRAGMENTS)
URLISH = st.builds(lambda start, parts: start + "".join(parts), FRAGMENTS, st.lists(FRAGMENTS, max_size=12))
HTTP_URLISH = st.builds(
    lambda start, host, lead, parts: start + host + lead + "".join(parts),
    st.sampled_from(["http://", "https://", "HTTPS://u:p@"]),
    st.sampled_from(["example.com", "www.Example.com.", "[::1]:8080", "münchen.de:443", "127.1"]),
    st.sampled_from(["", "/", "?", "/x?", "#"]),
    st.lists(FRAGMENTS),
)
LETTERS = st.characters(min_codepoint=0x80)
HOSTISH = st.builds("".join, st.lists(st.one_of(FRAGMENTS, LETTERS), min_size=1, max_size=6))


def reason_of(url: Any) -> Refusal:
    with pytest.raises(UrlRefused) as refused:
        locate(url)
    return refused.value.reason


def located(url: str, **options: bool) -> Location | None:
    try:
        return locate(url, **options)
    except UrlRefused:
        return None


class TestNormalForm:
    def test_a_clean_url_is_left_alone(self) -> None:
        url = "https://www.example.com/some/page.html?id=1&x=Y"
        assert locate(url) == Location(url, "www.example.com", "example.com")

    def test_the_fragment_is_dropped(self) -> None:
        assert normalise("http://example.com/a#b?c#d") == "http://example.com/a"
        assert normalise("http://example.com/a?#b") == "http://example.com/a"

    @pytest.mark.parametrize("user", ["me", "me:secret", ":secret", ":", "", "a@b", "a:b@c:d"])
    def test_the_user_is_dropped(self, user: str) -> None:
        assert normalise(f"http://{user}@example.com/") == "http://example.com/"

    def test_an_at_sign_in_the_path_is_kept(self) -> None:
        assert normalise("http://example.com/@me") == "http://example.com/@me"

    @pytest.mark.parametrize("url", ["http://a.com:80/", "https://a.com:443/", "http://a.com:/"])
    def test_a_default_port_is_dropped(self, url: str) -> None:
        assert normalise(url) == url.rpartition(":")[0] + "/"

    @pytest.mark.parametrize(("url", "host", "domain"), PORTS)
    def test_the_host_keeps_a_port_that_is_not_the_schemes_and_the_domain_one_that_is_no_default(
        self, url: str, host: str, domain: str
    ) -> None:
        assert locate(url) == Location(url, host, domain)

    def test_leading_zeros_of_a_port_are_dropped(self) -> None:
        assert normalise("http://example.com:0080/") == "http://example.com/"
        assert normalise("http://example.com:008080/") == "http://example.com:8080/"

    def test_scheme_and_host_are_lower_cased(self) -> None:
        assert normalise("HTTP://EXAMPLE.COM/") == "http://example.com/"

    def test_the_host_is_punycoded(self) -> None:
        expected = Location("http://xn--mnchen-3ya.de/", "xn--mnchen-3ya.de", "xn--mnchen-3ya.de")
        assert locate("http://MÜNCHEN.de/") == expected

    def test_a_trailing_dot_of_the_host_is_dropped(self) -> None:
        assert locate("http://www.example.com.:8080/a.") == Location(
            "http://www.example.com:8080/a.", "www.example.com:8080", "example.com:8080"
        )
        assert normalise("http://example.com。/") == "http://example.com/"

    @pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "127.0.0.1.", "0177.0.0.1"])
    def test_an_address_has_one_spelling(self, host: str) -> None:
        assert locate(f"http://{host}/").host == "127.0.0.1"
        assert locate("http://[0:0:0:0:0:0:0:1]/").host == "[::1]"

    def test_www_stays_in_the_url(self) -> None:
        assert normalise("http://www.example.com/") == "http://www.example.com/"

    @pytest.mark.parametrize(("path", "expected"), DOT_SEGMENTS)
    def test_dot_segments_are_resolved(self, path: str, expected: str) -> None:
        assert normalise(f"http://example.com{path}") == f"http://example.com{expected}"

    def test_an_empty_path_is_a_slash(self) -> None:
        assert normalise("http://example.com") == "http://example.com/"
        assert normalise("http://example.com?a") == "http://example.com/?a"

    def test_a_bare_question_mark_is_dropped(self) -> None:
        assert normalise("http://example.com/a?") == "http://example.com/a"
        assert normalise("http://example.com/a??") == "http://example.com/a??"

    def test_the_order_of_the_query_is_kept(self) -> None:
        url = "http://example.com/?b=2&a=1&b=1&&utm_source=x&"
        assert normalise(url) == url

    def test_spaces_around_and_line_ends_anywhere_are_dropped(self) -> None:
        assert normalise("  http://exa\nmple.com/a\tb \r\n") == "http://example.com/ab"

    def test_a_str_subclass_is_text_and_the_result_is_a_plain_str(self) -> None:
        class SmartString(str):
            pass

        assert type(normalise(SmartString("http://example.com/"))) is str


class TestPercentEncoding:
    @pytest.mark.parametrize(("given_text", "expected"), ESCAPES)
    def test_an_escape_is_upper_case_and_only_where_needed(self, given_text: str, expected: str) -> None:
        assert normalise(f"http://example.com/x{given_text}") == f"http://example.com/x{expected}"
        assert normalise(f"http://example.com/?x{given_text}") == f"http://example.com/?x{expected}"

    @pytest.mark.parametrize(("given_text", "expected"), STRAY_PERCENT_SIGNS)
    def test_decoding_never_completes_a_stray_percent_sign(self, given_text: str, expected: str) -> None:
        assert normalise(f"http://example.com/{given_text}") == f"http://example.com/{expected}"
        assert normalise(f"http://example.com/{expected}") == f"http://example.com/{expected}"

    def test_every_byte_in_every_spelling_has_one_form(self) -> None:
        unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
        for byte in range(256):
            expected = chr(byte) if chr(byte) in unreserved else f"%{byte:02X}"
            for digits in (f"{byte:02x}", f"{byte:02X}", f"{byte:02X}".swapcase(), f"{byte:02x}".title()):
                assert normalise(f"http://example.com/x%{digits}") == f"http://example.com/x{expected}"

    @given(st.text("%24513eEzA./", max_size=12))
    def test_what_the_path_means_is_kept(self, path: str) -> None:
        url = f"http://example.com/{path}"
        before, after = can_ada.parse(url).pathname.split("/"), urlsplit(normalise(url)).path.split("/")
        assert list(map(unquote_to_bytes, before)) == list(map(unquote_to_bytes, after))


class TestTracking:
    @pytest.mark.parametrize("name", TRACKING)
    def test_a_tracking_parameter_is_removed(self, name: str) -> None:
        url = f"http://e.com/?a=1&{name}=x&b=2"
        assert normalise(url, strip_tracking=True) == "http://e.com/?a=1&b=2"
        assert normalise(url.replace("=x", ""), strip_tracking=True) == "http://e.com/?a=1&b=2"

    def test_the_others_are_kept_byte_for_byte_and_in_order(self) -> None:
        url = "http://e.com/?b=%20+&gclid=1&a&&=&x=é;"
        assert normalise(url, strip_tracking=True) == "http://e.com/?b=%20+&a&&=&x=%C3%A9;"

    def test_nothing_left_leaves_no_question_mark(self) -> None:
        assert normalise("http://e.com/?utm_source=x&gclid=y", strip_tracking=True) == "http://e.com/"

    @pytest.mark.parametrize("query", NOT_TRACKING)
    def test_what_only_looks_like_one_is_kept(self, query: str) -> None:
        assert normalise(f"http://e.com/?{query}", strip_tracking=True) == f"http://e.com/?{query}"

    def test_nothing_is_removed_unless_asked(self) -> None:
        url = "http://e.com/?" + "&".join(sorted(TRACKING_PARAMETERS))
        assert normalise(url) == url
        assert normalise(url, sort_query=True) == url
        assert normalise(url, strip_tracking=True) == "http://e.com/"


class TestSorting:
    def test_parameters_are_sorted_by_name_then_value(self) -> None:
        url = "http://e.com/?b=1&a=2&B=3&a=10&a"
        assert normalise(url, sort_query=True) == "http://e.com/?B=3&a&a=10&a=2&b=1"

    def test_a_name_sorts_before_a_longer_one(self) -> None:
        assert normalise("http://e.com/?a!=1&a=2", sort_query=True) == "http://e.com/?a=2&a!=1"

    def test_equal_parameters_keep_their_order(self) -> None:
        assert normalise("http://e.com/?a=&a", sort_query=True) == "http://e.com/?a=&a"
        assert normalise("http://e.com/?a&a=", sort_query=True) == "http://e.com/?a&a="

    def test_both_options_work_together(self) -> None:
        url = "http://e.com/?b&utm_id=1&a"
        assert normalise(url, strip_tracking=True, sort_query=True) == "http://e.com/?a&b"


class TestRefusals:
    @pytest.mark.parametrize("url", NOT_TEXT)
    def test_what_is_not_text(self, url: object) -> None:
        assert reason_of(url) is Refusal.BAD_TEXT

    def test_what_is_not_text_and_too_large_to_show(self) -> None:
        for url in (10**5000, b"http://" * 1_000_000, ["http://example.com/"] * 10_000):
            assert reason_of(url) is Refusal.BAD_TEXT

    @pytest.mark.parametrize("url", NULS)
    def test_a_nul_character(self, url: str) -> None:
        assert reason_of(url) is Refusal.BAD_TEXT

    @pytest.mark.parametrize("url", ["\ud800", "http://example.com/\udfff", "http://\ud83d\ude00.com/"])
    def test_a_lone_surrogate(self, url: str) -> None:
        assert reason_of(url) is Refusal.BAD_TEXT

    @pytest.mark.parametrize("url", NOT_HTTP)
    def test_what_is_not_http(self, url: str) -> None:
        assert reason_of(url) is Refusal.NOT_HTTP

    @pytest.mark.parametrize("url", NO_HOST)
    def test_a_missing_host(self, url: str) -> None:
        assert reason_of(url) is Refusal.NO_HOST

    @pytest.mark.parametrize("url", BAD_PORT)
    def test_a_bad_port(self, url: str) -> None:
        assert reason_of(url) is Refusal.BAD_PORT

    def test_a_port_of_too_many_digits_to_be_a_number(self) -> None:
        assert reason_of("http://a:" + "9" * 5000) is Refusal.BAD_PORT
        assert locate("http://a:" + "0" * 5000 + "81").host == "a:81"

    @pytest.mark.parametrize("url", BAD_HOST)
    def test_a_bad_host(self, url: str) -> None:
        assert reason_of(url) is Refusal.BAD_HOST

    def test_more_bytes_than_the_limit(self) -> None:
        fits = "http://example.com/".ljust(MAX_URL_BYTES, "a")
        assert locate(fits).url == fits
        assert reason_of(fits + "a") is Refusal.TOO_LONG
        assert reason_of(fits + "#") is Refusal.TOO_LONG

    def test_bytes_are_counted_not_characters(self) -> None:
        fragment = "#" + "🚀" * (MAX_URL_BYTES // 4 - 5)
        assert locate("http://e.com/" + fragment).url == "http://e.com/"
        assert reason_of("http://e.com/" + fragment + "🚀🚀") is Refusal.TOO_LONG

    def test_a_url_that_only_its_encoding_makes_too_long(self) -> None:
        assert reason_of("http://example.com/" + '"' * 3000) is Refusal.TOO_LONG

    @pytest.mark.parametrize("character", ["a", "/", "%", "[", "@", ":", "é", "\0", "\ud800", "../"])
    def test_a_megabyte(self, character: str) -> None:
        assert reason_of("http://" + character * 1_000_000) is Refusal.TOO_LONG

    def test_the_message_says_what_was_wrong_with_which_url(self) -> None:
        with pytest.raises(UrlRefused, match=r"neither http nor https: 'ftp://example\.com/'"):
            locate("ftp://example.com/")

    def test_the_message_shows_at_most_200_characters_of_the_url_and_can_always_be_printed(self) -> None:
        with pytest.raises(UrlRefused) as refused:
            locate("http://\ud800" + "y" * 5000)
        message = str(refused.value)
        assert message.count("y") == 192
        message.encode()

    def test_a_refusal_is_in_the_one_exception_tree(self) -> None:
        assert issubclass(UrlRefused, OutriderError)


class TestProperties:
    @options
    @given(url=st.one_of(ANY_TEXT, URLISH, HTTP_URLISH))
    @example(url="http://a/%%34%31")
    @example(url="http://a/?&utm_source&")
    def test_normalising_twice_changes_nothing_and_only_refusals_are_raised(
        self, options: dict[str, bool], url: str
    ) -> None:
        location = located(url, **options)
        if location is not None:
            assert locate(location.url, **options) == location

    @options
    @given(host=HOSTISH)
    def test_hosts_of_every_script_are_stable(self, options: dict[str, bool], host: str) -> None:
        location = located(f"http://{host}/", **options)
        if location is not None:
            assert locate(location.url, **options) == location
            assert location.host.isascii()

    @given(url=HTTP_URLISH)
    def test_the_result_is_ascii_within_the_limits_and_has_no_user_or_fragment(self, url: str) -> None:
        location = located(url)
        if location is not None:
            assert location.url.isascii()
            assert len(location.url) <= MAX_URL_BYTES
            assert len(location.domain) <= MAX_DOMAIN_CHARACTERS
            assert "#" not in location.url
            assert urlsplit(location.url).username is None

    @given(url=st.one_of(URLISH, HTTP_URLISH))
    def test_the_host_is_the_one_that_browsers_see(self, url: str) -> None:
        location = located(url)
        if location is not None:
            seen, again = can_ada.parse(url), can_ada.parse(location.url)
            assert location.host == again.host
            assert again.hostname == seen.hostname.removesuffix(".")
            assert (again.protocol, again.port) == (seen.protocol, seen.port)
            assert location.domain == domain_of(location.host)

    @given(url=st.one_of(URLISH, HTTP_URLISH))
    def test_the_reason_never_blames_what_browsers_accept(self, url: str) -> None:
        encodable = "\ud800" not in url
        opens = encodable and can_ada.can_parse(url) and can_ada.parse(url).protocol.startswith("http")
        if opens and located(url) is None:
            assert reason_of(url) in (Refusal.BAD_HOST, Refusal.BAD_TEXT, Refusal.TOO_LONG)

    @given(st.text("abcXYZ019-_~", min_size=1), st.text("abcXYZ019-_~=&", min_size=1))
    def test_case_is_kept_in_path_and_query(self, path: str, query: str) -> None:
        assert normalise(f"HTTP://EXAMPLE.com/{path}?{query}") == f"http://example.com/{path}?{query}"

    @given(st.lists(st.sampled_from(["a", "b=1", "b=2", "", "utm_x=1", "gclid", "A=%41", "c=&", "d"])))
    def test_sorting_makes_every_order_of_distinct_parameters_one_url(self, parameters: list[str]) -> None:
        parameters = sorted(set(parameters))
        urls = {
            normalise("http://example.com/?" + "&".join(order), sort_query=True)
            for order in (parameters, parameters[::-1])
        }
        assert len(urls) == 1

    @given(st.lists(st.sampled_from(["a", "b=1", "", "utm_x=1", "gclid", "c=%20", "="]), max_size=6))
    def test_stripping_removes_tracking_and_nothing_else(self, parameters: list[str]) -> None:
        kept = [parameter for parameter in parameters if parameter not in ("utm_x=1", "gclid")]
        expected = "?" + "&".join(kept) if any(kept) or len(kept) > 1 else ""
        url = "http://example.com/?" + "&".join(parameters)
        assert normalise(url, strip_tracking=True) == f"http://example.com/{expected}"


class TestHash:
    def test_it_is_the_128_bit_xxh3_of_the_text(self) -> None:
        assert url_hash("http://example.com/") == xxhash.xxh3_128(b"http://example.com/").digest()
        assert len(url_hash("")) == 16

    def test_each_probe_gives_another_hash(self) -> None:
        assert len({url_hash("http://example.com/", probe) for probe in range(10)}) == 10
        assert url_hash("http://example.com/", 0) == url_hash("http://example.com/")
