"""Scope: what belongs to a crawl."""

import time

import msgspec
import pytest

from outrider.model.errors import InvalidInput
from outrider.model.url import Location, UrlRefused, locate
from outrider.policy.scope import Scope, ScopeRule, scope_of


def reason(scope: Scope, url: str) -> str | None:
    return scope.judge(locate(url))


@pytest.mark.parametrize(
    ("rule", "seed", "inside", "outside"),
    [
        (
            ScopeRule.HOST, "https://www.example.org/a/b.html",
            ["http://example.org/", "https://www.example.org/c?d"],
            ["https://blog.example.org/", "https://example.org:8443/", "https://example.com/", "https://notexample.org"],
        ),
        (ScopeRule.HOST, "http://127.0.0.1:8000/", ["http://127.0.0.1:8000/a"], ["http://127.0.0.1:8001/a"]),
        (
            ScopeRule.DOMAIN, "https://blog.example.co.uk/",
            ["http://example.co.uk/", "https://shop.example.co.uk:8443/x"],
            ["https://other.co.uk/", "https://example.uk/"],
        ),
        (
            ScopeRule.PREFIX, "https://example.org/a/b.html?x=/c/",
            ["http://www.example.org/a/", "https://example.org/a/c/d"],
            ["https://example.org/a", "https://example.org/ab/", "https://example.com/a/", "https://example.org/?x=/a/"],
        ),
        (ScopeRule.PREFIX, "https://example.org/a/b/", ["https://example.org/a/b/c"], ["https://example.org/a/c"]),
        (ScopeRule.PREFIX, "https://example.org", ["https://example.org/a?b"], ["https://example.com/"]),
        (ScopeRule.ANY, "https://example.org/", ["https://example.com/"], []),
    ],
)  # fmt: skip
def test_each_rule_goes_as_far_from_the_seeds_as_its_name_says(
    rule: ScopeRule, seed: str, inside: list[str], outside: list[str]
) -> None:
    scope = scope_of([seed], rule)
    assert [url for url in [seed, *inside] if reason(scope, url)] == []
    assert [url for url in outside if not reason(scope, url)] == []


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (ScopeRule.HOST, "out of scope: host www.example.com is not among the seeds'"),
        (ScopeRule.DOMAIN, "out of scope: domain example.com is not among the seeds'"),
        (ScopeRule.PREFIX, "out of scope: not below the folder of a seed"),
    ],
)
def test_the_reason_is_for_people(rule: ScopeRule, expected: str) -> None:
    assert reason(scope_of(["https://example.org/"], rule), "https://www.example.com/x") == expected


def test_patterns_let_in_and_keep_out() -> None:
    scope = scope_of(["https://example.org/"], include=["/docs/", r"\.pdf$"], exclude=["draft", r"[?&]page="])
    assert reason(scope, "https://example.org/docs/a") is None
    assert reason(scope, "https://example.org/a.pdf") is None
    assert reason(scope, "https://example.org/a") == "not matched by --include"
    assert reason(scope, "https://example.org/docs/draft") == "excluded by --exclude 'draft'"
    assert reason(scope, "https://example.org/docs/?page=2") == "excluded by --exclude '[?&]page='"
    assert (reason(scope, "https://example.com/docs/") or "").startswith("out of scope")


def test_a_seed_is_in_scope_whatever_the_patterns_say() -> None:
    scope = scope_of(["https://example.org"], include=["/docs/"], exclude=["example"])
    assert reason(scope, "https://example.org/") is None


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "(?P<", "a{2,1}"])
@pytest.mark.parametrize("option", ["include", "exclude"])
def test_a_pattern_that_is_none_is_refused_by_name(pattern: str, option: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        scope_of([], **{option: [pattern]})  # type: ignore[arg-type]
    assert f"--{option} {pattern!r} is not a regular expression" in str(refused.value)


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_a_pattern_that_would_backtrack_for_ever_is_judged_at_once(option: str) -> None:
    scope = scope_of([], ScopeRule.ANY, **{option: ["^(([a-z0-9:/.])+)+!$"]})
    url = "https://example.org/aaaa"  # which alone takes Python's own expressions a second
    began = time.monotonic()
    reason(scope, url)
    assert time.monotonic() - began < 0.2
    assert reason(scope, f"{url}{'a' * 5_000}") == (None if option == "exclude" else "not matched by --include")


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@pytest.mark.parametrize(
    ("pattern", "matched", "unmatched"),
    [
        (r"(\w)\1\1", "aaa", "aab"),
        (r"org/(?!docs/)", "doc", "docs/"),
        (r"(?<=a)b", "ab", "cb"),
        (r"/a{,2}$", "aa", "a{,2}"),
        (r"/a{02}$", "aa", "a{02}"),
        (r"/[[:alpha:]]$", "p]", "b"),
        (r"/" + "(a)" * 12 + r"\12$", "a" * 13, "a" * 12),
        (r"/a\Z", "a", "ab"),
        (r"/\u0061$", "a", "u0061"),
        (r"/a++b?+$", "aab", "aabb"),
        (r"(?x) / a \d # a comment", "a1", "a 1"),
        (r"/a{1001}$", "a" * 1001, "a" * 1000),
        (r"(?i)/A\d+\b", "a12", "a12b"),
        (r"/\w{2}\.[^./]+$", "ab.c", "a-.c"),
        ("(?i)/ı$", "i", "j"),
    ],
)
def test_a_pattern_is_read_as_python_reads_it(pattern: str, matched: str, unmatched: str) -> None:
    scope = scope_of([], ScopeRule.ANY, exclude=[pattern])
    site = "https://example.org/"
    assert scope.judge(Location(f"{site}{matched}", "example.org", "example.org")) is not None
    assert scope.judge(Location(f"{site}{unmatched}", "example.org", "example.org")) is None


def test_a_pattern_for_python_alone_says_nothing_on_the_way(capfd: pytest.CaptureFixture[str]) -> None:
    scope_of([], exclude=["(?=a)(?!b)c"])
    assert capfd.readouterr() == ("", "")


def test_a_seed_that_is_no_url_is_refused() -> None:
    with pytest.raises(UrlRefused):
        scope_of(["nonsense"])


@pytest.mark.parametrize("rule", list(ScopeRule))
def test_a_redirect_of_a_seed_widens_the_scope(rule: ScopeRule) -> None:
    scope = scope_of(["https://example.org/"], rule, exclude=["landing"])
    wider = scope.extended("https://new.example.com/docs/landing")
    assert reason(wider, "https://new.example.com/docs/landing") is None
    assert reason(wider, "https://new.example.com/docs/a") is None
    assert reason(wider, "https://example.org/a") is None
    assert scope == scope_of(["https://example.org/"], rule, exclude=["landing"])
    assert wider.extended("https://new.example.com/docs/landing") == wider


def test_a_scope_can_be_kept_and_read_again() -> None:
    scope = scope_of(["https://example.org/a/", "https://example.com/"], ScopeRule.PREFIX, include=["x"], exclude=["y"])
    assert msgspec.json.decode(msgspec.json.encode(scope), type=Scope) == scope
    assert msgspec.convert(msgspec.to_builtins(scope), Scope) == scope


def test_without_seeds_only_any_lets_anything_in() -> None:
    assert [rule for rule in ScopeRule if reason(scope_of([], rule), "https://example.org/") is None] == [ScopeRule.ANY]
