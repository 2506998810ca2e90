"""Traps: URLs that a site could make for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.policy.traps import QueryVariants, Trap, trap_in

SITE = "https://example.org"
YEAR = 2026


@pytest.mark.parametrize(
    ("path", "trap"),
    [
        ("/a/a/a", Trap.REPEATED_PATH), ("/a/a/a/", Trap.REPEATED_PATH), ("/x/a/b/a/b/a/b", Trap.REPEATED_PATH),
        ("/a/b/c/a/b/c/a/b/c/d", Trap.REPEATED_PATH), ("/a/1/a/2/a/3/a/4/a/5", Trap.REPEATED_PATH),
        ("/x/x/x?q", Trap.REPEATED_PATH), ("/" + "/".join("abcdefghijklmnopqrstu"), Trap.DEEP_PATH),
        ("/a?" + "&".join(f"p{number}=1" for number in range(21)), Trap.MANY_PARAMETERS),
        ("/a;jsessionid=0A1B", Trap.SESSION_ID), ("/a?PHPSESSID=abc", Trap.SESSION_ID),
        ("/a?x=1&sid=0123456789abcdef", Trap.SESSION_ID), ("/(S(0123456789abcdefghij))/a.aspx", Trap.SESSION_ID),
        ("/calendar/2031/07", Trap.CALENDAR), ("/events/2029-1-15/", Trap.CALENDAR),
        ("/a?month=9999-12", Trap.CALENDAR),
        ("/a?year=2031&month=7", Trap.CALENDAR), ("/calendar/1931/07", Trap.CALENDAR),
    ],
)  # fmt: skip
def test_what_could_go_on_for_ever_is_a_trap(path: str, trap: Trap) -> None:
    assert trap_in(SITE + path, year=YEAR) is trap


@pytest.mark.parametrize(
    "path",
    [
        "/", "/a/b/c/d/e", "/a/a", "/a/a/", "/en/a/b/en/a/c", "/a/b/a/b", "/a//b", "/a/b/c/d/e/f/g/a",
        "/" + "/".join("abcdefghijklmnopqrst"), "/a?x=1&y=2&z=3", "/a?" + "&".join(f"p{i}=1" for i in range(20)),
        "/a?sid=12", "/a?president=0123456789abcdef", "/2024/05/12/title", "/2028/01/", "/history/1945/05/08",
        "/order/20310712", "/a/3000-15-x", "/a?price=3000-4000", "/x-2031-99", "/wiki/Foo_(bar)",
    ],
)  # fmt: skip
def test_ordinary_urls_are_no_traps(path: str) -> None:
    assert trap_in(SITE + path, year=YEAR) is None


@given(st.text(alphabet="ab/?=&1", max_size=60))
def test_any_url_can_be_judged(path: str) -> None:
    trap_in(f"{SITE}/{path}", year=YEAR)


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=4), st.integers(3, 6))
def test_any_sequence_three_times_in_a_row_is_a_trap(sequence: list[str], times: int) -> None:
    assert trap_in(f"{SITE}/{'/'.join(sequence * times)}", year=YEAR) in (Trap.REPEATED_PATH, Trap.DEEP_PATH)


def test_a_path_has_only_so_many_queries() -> None:
    variants = QueryVariants(limit=2)
    assert [variants.allows(f"{SITE}/a?{query}") for query in ("x", "y", "x", "z", "y")] == [
        True, True, True, False, True,
    ]  # fmt: skip
    assert variants.allows(f"{SITE}/b?z")
    assert variants.allows(f"{SITE}/a")


def test_what_is_remembered_of_queries_is_bounded_and_the_oldest_path_goes_first() -> None:
    variants = QueryVariants(limit=1, remembered=2)
    for path in ("a", "b"):
        variants.allows(f"{SITE}/{path}?1")
    assert not variants.allows(f"{SITE}/a?2")
    assert variants.allows(f"{SITE}/c?1")
    assert not variants.allows(f"{SITE}/a?2")
    assert variants.allows(f"{SITE}/b?2")
