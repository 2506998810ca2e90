"""What a domain is called: the rule table for hosts, and the registrable domain above it."""

from typing import Any

import can_ada
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.model.domain_name import domain_of, parent_domain, split_port
from outrider.model.task import Refusal
from outrider.model.url import UrlRefused, canonical_domain, locate

LABELS = st.sampled_from(
    ["www", "www", "a", "blog", "example", "co", "uk", "com", "ck", "kawasaki", "jp", "github", "io"]
)
HOSTS = st.builds(
    lambda labels, port: ".".join(labels) + port,
    st.lists(LABELS, min_size=1, max_size=6),
    st.sampled_from(["", ":80", ":443", ":8080", ":65535"]),
)
# fmt: off
FRAGMENTS = st.sampled_from([
    "http:", "https:", "ftp:", "//", "/", "\\", ":", "@", "?", "#", ".", "www.", "example.com",
    "Example.ORG.", "co.uk", "münchen.de", "xn--", "[", "]", "[::1]", "127.1", "0x7f", ":80", ":443",
    ":8080", ":99999", "80", "a", "B", "é", "。", "🚀", "%2e", "%41", "%", " ", "\t", "\n", "\0", "\x1f",
    "\xad", "\ud800", "ſ", "\u212a", "a" * 64,
])
# fmt: on
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=[])),
    st.builds("".join, st.lists(FRAGMENTS, max_size=8)),
    HOSTS,
)


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("example.com", "example.com"),
        ("blog.example.com", "blog.example.com"),
        ("localhost", "localhost"),
        ("xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
    ],
)
def test_a_plain_host_is_its_own_domain(host: str, domain: str) -> None:
    assert domain_of(host) == domain


@pytest.mark.parametrize("host", ["example.com:80", "example.com:443", "www.example.com:443"])
def test_a_default_port_of_either_scheme_is_stripped(host: str) -> None:
    assert domain_of(host) == "example.com"


@pytest.mark.parametrize("port", ["8080", "8443", "1", "65535", "4430", "180"])
def test_any_other_port_is_kept(port: str) -> None:
    assert domain_of(f"example.com:{port}") == f"example.com:{port}"
    assert domain_of(f"www.example.com:{port}") == f"example.com:{port}"


def test_a_trailing_dot_is_stripped() -> None:
    assert domain_of("example.com.") == "example.com"
    assert domain_of("www.example.com.:8080") == "example.com:8080"


@pytest.mark.parametrize("host", ["www.example.com", "www.example.co.uk", "www.city.kawasaki.jp", "www.a.b.unknown"])
def test_a_leading_www_is_stripped(host: str) -> None:
    assert domain_of(host) == host.removeprefix("www.")


@pytest.mark.parametrize(
    "host",
    [
        "www.com",
        "www.localhost",
        "www.ck",
        "www.ro",
        "www.co.uk",
        "www.foo.ck",
        "www.kobe.jp",
        "www.github.io",
        "www.com:8080",
    ],
)
def test_www_stays_where_the_rest_would_be_a_single_label_or_a_bare_suffix(host: str) -> None:
    assert domain_of(host) == host


@pytest.mark.parametrize("host", ["www.www.example.com", "www.www.www.example.com", "www.www.com"])
def test_www_stays_where_the_rest_has_one_too(host: str) -> None:
    assert domain_of(host) == host


@pytest.mark.parametrize("host", ["www2.example.com", "wwwexample.com", "blog.www.example.com", "www-example.com"])
def test_only_a_first_label_that_is_www_is_stripped(host: str) -> None:
    assert domain_of(host) == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "[2001:db8::80]"])
def test_an_address_is_kept_as_it_is(host: str) -> None:
    assert domain_of(host) == host


def test_an_address_loses_a_default_port_like_any_host() -> None:
    assert domain_of("[::1]:443") == "[::1]"
    assert domain_of("127.0.0.1:80") == "127.0.0.1"


@given(HOSTS)
def test_the_domain_of_a_domain_is_itself(host: str) -> None:
    domain = domain_of(host)
    assert domain_of(domain) == domain


@given(HOSTS)
def test_the_parent_of_a_parent_is_itself_and_a_domain(host: str) -> None:
    parent = parent_domain(domain_of(host))
    assert parent_domain(parent) == parent
    assert domain_of(parent) == parent


@pytest.mark.parametrize(
    ("domain", "parent"),
    [
        ("example.com", "example.com"),
        ("blog.example.com", "example.com"),
        ("a.b.c.example.com", "example.com"),
        ("blog.example.co.uk", "example.co.uk"),
        ("x.someone.github.io", "someone.github.io"),
        ("x.city.kawasaki.jp", "city.kawasaki.jp"),
        ("a.b.foo.ck", "b.foo.ck"),
        ("a.xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
        ("shop.xn--55qx5d.cn", "shop.xn--55qx5d.cn"),
    ],
)
def test_the_parent_is_the_public_suffix_and_one_label(domain: str, parent: str) -> None:
    assert parent_domain(domain) == parent


def test_an_unknown_suffix_counts_as_a_suffix_of_one_label() -> None:
    assert parent_domain("a.b.intranet-zone") == "b.intranet-zone"


def test_the_parent_has_no_port() -> None:
    assert parent_domain("blog.example.com:8080") == "example.com"
    assert parent_domain("localhost:8080") == "localhost"
    assert parent_domain("127.0.0.1:8080") == "127.0.0.1"
    assert parent_domain("[::1]:8080") == "[::1]"


@pytest.mark.parametrize("domain", ["127.0.0.1", "[::1]", "localhost", "com", "co.uk", "github.io", "www.com"])
def test_what_has_no_parent_is_its_own(domain: str) -> None:
    assert parent_domain(domain) == domain


@given(st.ip_addresses(), st.sampled_from([None, 1, 8080]))
def test_every_address_is_its_own_parent(address: object, port: int | None) -> None:
    host = f"[{address}]" if ":" in str(address) else str(address)
    name = can_ada.parse(f"http://{host}/").host
    domain = name if port is None else f"{name}:{port}"
    assert domain_of(domain) == domain
    assert parent_domain(domain) == name
    assert split_port(domain) == (name, "" if port is None else str(port))


def reason_of(url: str) -> Refusal:
    with pytest.raises(UrlRefused) as refused:
        locate(url)
    return refused.value.reason


class TestLengthOfNames:
    def test_a_label_of_more_than_63_characters(self) -> None:
        assert locate(f"http://{'a' * 63}.com/").host == f"{'a' * 63}.com"
        assert reason_of(f"http://{'a' * 64}.com/") is Refusal.BAD_HOST
        assert reason_of(f"http://{'é' * 60}.com/") is Refusal.BAD_HOST

    def test_a_host_of_more_than_253_characters(self) -> None:
        longest = ".".join(["a" * 63] * 3 + ["b" * 61])
        assert locate(f"http://{longest}./").host == longest
        assert reason_of(f"http://{longest}b/") is Refusal.BAD_HOST

    def test_a_host_that_is_too_long_with_its_port_to_be_a_domain(self) -> None:
        longest = ".".join(["a" * 63] * 3 + ["b" * 61])
        assert locate(f"http://{longest}:80/").host == longest
        assert reason_of(f"http://{longest}:8080/") is Refusal.BAD_HOST

    def test_a_bad_host_is_refused_every_time(self) -> None:
        assert reason_of("http://again..example/") is reason_of("http://again..example/") is Refusal.BAD_HOST


class TestCanonicalDomain:
    @pytest.mark.parametrize(
        ("text", "domain"),
        [
            ("Example.COM.", "example.com"),
            ("münchen.de", "xn--mnchen-3ya.de"),
            ("www.example.com:443", "example.com"),
            ("example.com:80", "example.com"),
            ("example.com:8080", "example.com:8080"),
            ("example.com:", "example.com"),
            ("https://blog.example.com/x", "blog.example.com"),
            ("HTTP://me:secret@WWW.Example.com:8080/?q#f", "example.com:8080"),
            ("http:example.com", "example.com"),
            ("ht\ttps://example.com", "example.com"),
            (" example.com/a?b=http://other.example/\n", "example.com"),
            ("localhost:8080/x", "localhost:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("[0:0::1]", "[::1]"),
            ("127.1", "127.0.0.1"),
            ("www.co.uk", "www.co.uk"),
        ],
    )
    def test_a_url_or_a_bare_domain_names_its_domain(self, text: str, domain: str) -> None:
        assert canonical_domain(text) == domain

    @pytest.mark.parametrize(
        ("text", "domain"),
        [
            ("blog.example.com", "example.com"),
            ("https://a.b.example.co.uk:8443/x", "example.co.uk"),
            ("www.example.com", "example.com"),
            ("[::1]:8080", "[::1]"),
            ("co.uk", "co.uk"),
            ("localhost", "localhost"),
        ],
    )
    def test_collapsing_gives_the_registrable_domain(self, text: str, domain: str) -> None:
        assert canonical_domain(text, collapse=True) == domain

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", Refusal.NO_HOST),
            (":80", Refusal.NO_HOST),
            ("/path", Refusal.NO_HOST),
            ("//example.com", Refusal.NO_HOST),
            ("http://", Refusal.NO_HOST),
            ("a b", Refusal.BAD_HOST),
            ("a..b", Refusal.BAD_HOST),
            ("[::1", Refusal.BAD_HOST),
            ("me@example.com", Refusal.BAD_HOST),
            ("example.com:99999", Refusal.BAD_PORT),
            ("mailto:me@example.com", Refusal.NOT_HTTP),
            ("javascript:alert(1)", Refusal.NOT_HTTP),
            ("ftp://example.com", Refusal.NOT_HTTP),
            ("example.com\0", Refusal.BAD_TEXT),
            ("\ud800.com", Refusal.BAD_TEXT),
            (None, Refusal.BAD_TEXT),
            (b"example.com", Refusal.BAD_TEXT),
        ],
    )
    def test_what_names_no_domain_is_refused(self, text: Any, reason: Refusal) -> None:
        with pytest.raises(UrlRefused) as refused:
            canonical_domain(text)
        assert refused.value.reason is reason

    def test_a_megabyte_is_refused(self) -> None:
        with pytest.raises(UrlRefused) as refused:
            canonical_domain("a" * 1_000_000)
        assert refused.value.reason is Refusal.TOO_LONG

    @pytest.mark.parametrize("collapse", [False, True])
    @given(text=TEXTS)
    @example(text="www.www.example.com")
    def test_the_domain_of_a_domain_is_itself_and_only_refusals_are_raised(self, collapse: bool, text: str) -> None:
        try:
            domain = canonical_domain(text, collapse=collapse)
        except UrlRefused:
            return
        assert canonical_domain(domain, collapse=collapse) == domain

    @given(host=HOSTS, scheme=st.sampled_from(["http", "https"]))
    def test_it_agrees_with_locate(self, host: str, scheme: str) -> None:
        location = locate(f"{scheme}://{host}/x")
        assert canonical_domain(location.url) == location.domain == canonical_domain(location.host)
