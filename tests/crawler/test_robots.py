"""Robots: who may fetch what, and which line says so."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protego import Protego

from outrider.crawler.robots import MAX_ROBOTS_BYTES, Judgement, RobotsCache, RobotsRules, product_token

SITE = "https://example.org"


def judge(text: str, path: str, agent: str = "outrider") -> Judgement:
    return RobotsRules(text, agent).judge(SITE + path)


def test_the_line_that_decides_is_named() -> None:
    text = "# hello\nUser-agent: *\nDisallow: /private/ # keep out\nAllow: /private/open\n"
    assert judge(text, "/private/a") == Judgement(allowed=False, rule="Disallow: /private/", line=3)
    assert judge(text, "/private/open/a") == Judgement(allowed=True, rule="Allow: /private/open", line=4)
    assert judge(text, "/public") == Judgement(allowed=True)


@pytest.mark.parametrize(
    ("rules", "path", "line"),
    [
        (["Disallow: /a", "Disallow: /a/b", "Disallow: /"], "/a/b/c", 3),
        (["Disallow: /a", "Allow: /a"], "/a", 3),
        (["Allow: /a", "Disallow: /a"], "/a", 2),
        (["Disallow: /*.pdf$", "Disallow: /x"], "/x/y.pdf", 2),
        (["Disallow: /*.pdf$"], "/y.pdf?x", None),
        (["Disallow: /*?sort="], "/a?sort=up", 2),
        (["Disallow: /caf%C3%A9"], "/caf%C3%A9/x", 2),
        (["Disallow: /café"], "/caf%C3%A9/x", 2),
        (["Disallow: /a%2Fb"], "/a%2Fb", 2),
        (["Disallow:"], "/a", None),
        (["Dissallow /a"], "/a", 2),
        (["Disallow: /"], "/robots.txt", None),
        (["Crawl-delay: 1", "Disallow: /a"], "/a", 3),
    ],
)
def test_the_longest_rule_that_matches_wins_and_allow_wins_ties(rules: list[str], path: str, line: int | None) -> None:
    assert judge("\n".join(("User-agent: *", *rules)), path).line == line


@pytest.mark.parametrize(
    ("agent", "allowed"), [("outrider", False), ("otherbot", True), ("thirdbot", True), ("nobody", False)]
)
def test_a_crawler_obeys_the_group_that_names_it_and_otherwise_that_for_all(agent: str, allowed: bool) -> None:
    text = """User-agent: *
        Disallow: /
        User-Agent: OtherBot
        User-agent: thirdbot
        Disallow: /elsewhere

        User-agent: Outrider
        Disallow: /b
        User-agent: otherbot
        Allow: /
        User-agent: outrider
        Disallow: /a"""
    assert judge(text, "/a", agent).allowed is allowed


def test_delay_and_sitemaps_are_read() -> None:
    rules = RobotsRules(
        "Sitemap: https://example.org/1.xml\nUser-agent: otherbot\nCrawl-delay: 9\nUser-agent: *\nCrawl-delay: 2.5\n"
        "sitemap: /2.xml\nDisallow: /x",
        "outrider",
    )
    assert (rules.crawl_delay, rules.sitemaps) == (2.5, ["https://example.org/1.xml", "/2.xml"])
    assert not rules.allows(f"{SITE}/x")
    assert RobotsRules("User-agent: *\nCrawl-delay: soon", "outrider").crawl_delay is None


def test_no_file_allows_everything_and_one_that_cannot_be_had_nothing() -> None:
    assert RobotsRules.allow_all().judge(f"{SITE}/a") == Judgement(allowed=True)
    assert not RobotsRules.disallow_all().allows(f"{SITE}/a")
    assert RobotsRules.of_body(b"", "outrider").allows(f"{SITE}/a")
    assert RobotsRules.of_body(b"<html>Not found: sorry</html>", "outrider").allows(f"{SITE}/a")


def test_a_byte_order_mark_and_broken_bytes_spoil_no_other_line() -> None:
    rules = RobotsRules.of_body(b"\xef\xbb\xbfUser-agent: *\nDisallow: /\xff\nDisallow: /a", "outrider")
    assert not rules.allows(f"{SITE}/a")
    assert rules.allows(f"{SITE}/b")


def test_half_a_line_at_the_limit_of_the_file_does_not_count() -> None:
    start = b"User-agent: *\nDisallow: /a\n"
    padding = b"#" * (MAX_ROBOTS_BYTES - len(start) - len("\nDisallow: /")) + b"\n"
    rules = RobotsRules.of_body(start + padding + b"Disallow: /b-folder\n", "outrider")
    assert not rules.allows(f"{SITE}/a")
    assert rules.allows(f"{SITE}/b-folder")
    assert rules.allows(f"{SITE}/c")


def test_many_groups_that_share_many_rules_are_not_multiplied() -> None:
    names = "".join(f"User-agent: bot{number}\n" for number in range(10_000))
    text = names + "".join(f"Allow: /{number}\n" for number in range(20_000))
    started = time.thread_time()
    assert RobotsRules(text, "outrider").allows(f"{SITE}/a")
    assert time.thread_time() - started < 2


LINE = st.builds(
    lambda field, value, comment: f"{field}{value}{comment}",
    st.sampled_from(
        ["User-agent: ", "user-agent:", "Useragent: ", "Allow: ", "allow:", "Disallow: ", "DISALLOW:", "Disalow: ",
         "Disallow ", "Crawl-delay: ", "Sitemap: ", "Host: ", "Noindex: ", "", "nonsense "]
    ),
    st.sampled_from(
        ["*", "outrider", "Outrider", "out", "otherbot", "outrider*", "", "/", "/a", "/a/", "/a/b", "/*", "/*b", "/a$",
         "/*/b$", "a", "/%61", "/A", "/a?x", "/é", "/%c3%a9", "/index.html", "*a", "2"]
    ),
    st.sampled_from(["", " # x", "  "]),
)  # fmt: skip


@settings(max_examples=400)
@given(
    st.lists(LINE, max_size=12).map("\n".join),
    st.sampled_from(["/", "/a", "/a/", "/a/b", "/a/b/c", "/b", "/a?x=1", "/%C3%A9", "/index.html", "/robots.txt"]),
    st.sampled_from(["outrider", "otherbot"]),
)
def test_protego_decides(text: str, path: str, agent: str) -> None:
    judgement = judge(text, path, agent)
    assert judgement.allowed is Protego.parse(text).can_fetch(SITE + path, agent)
    assert judgement.allowed is RobotsRules(text, agent).allows(SITE + path)
    if not judgement.allowed:
        assert judgement.line is not None
        assert "dis" in text.splitlines()[judgement.line - 1].lower()


@given(st.binary(max_size=200), st.text(max_size=20))
def test_no_bytes_whatsoever_make_a_file_that_cannot_be_read(body: bytes, path: str) -> None:
    RobotsRules.of_body(body, "outrider").judge(f"{SITE}/{path}")
    RobotsRules.of_body(b"User-agent: *\nDisallow: " + body, "outrider").judge(f"{SITE}/{path}")


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("Outrider/0.3 (+https://example.org/bot)", "outrider"), ("My-Bot_x 1", "my-bot_x"), ("bot", "bot"),
        ("", "outrider"), ("(none)", "outrider"),
    ],
)  # fmt: skip
def test_the_product_token_is_the_first_word_of_the_user_agent(user_agent: str, token: str) -> None:
    assert product_token(user_agent) == token


def test_a_cache_forgets_the_rules_that_were_longest_not_asked_for() -> None:
    cache = RobotsCache(most=2)
    rules = {name: RobotsRules("", "outrider") for name in "abc"}
    cache.put("a.example", "1", rules["a"])
    cache.put("b.example", "1", rules["b"])
    assert cache.get("a.example", "1") is rules["a"]
    cache.put("c.example", "1", rules["c"])
    assert (cache.get("a.example", "1"), cache.get("b.example", "1")) == (rules["a"], None)
    assert cache.get("a.example", "2") is None


def test_a_cache_is_bounded_by_the_size_of_the_files_too() -> None:
    cache = RobotsCache(most_characters=100)
    for version in "12345":
        cache.put("a.example", version, RobotsRules("#" * 40, "outrider"))
        cache.put("a.example", version, RobotsRules("#" * 40, "outrider"))
    assert len(cache) == 2
    assert cache.get("a.example", "5") is not None
