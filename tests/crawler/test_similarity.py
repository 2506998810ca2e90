"""Similarity: what counts as the same text, as a near one and as another."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.crawler import similarity
from outrider.crawler.main_text import main_words
from outrider.crawler.similarity import NEAR_WITHIN, SAME_WITHIN, distance, similarity_hash

SYLLABLES = ("ba", "der", "kin", "lo", "mar", "nes", "or", "pel", "qui", "ras", "ten", "ul", "vo", "wex", "y", "zan")


def sentences(seed: int, number: int) -> list[str]:
    chance = random.Random(seed)

    def word() -> str:
        return "".join(chance.choices(SYLLABLES, k=chance.randrange(1, 4)))

    return [" ".join(word() for _ in range(chance.randrange(8, 20))).capitalize() + "." for _ in range(number)]


def article(
    text: list[str],
    *,
    menu: tuple[str, ...] = ("Home", "News", "Sport", "Contact"),
    moment: str = "Published 12.03.2026, 14:05",
    advert: str = "Sale! Everything must go, today only, click here.",
    visitors: int = 18_213,
    session: str = "a91f0c3be2",
) -> str:
    links = "".join(f'<li><a href="/{item}?sid={session}">{item}</a></li>' for item in menu)
    paragraphs = "".join(f"<p>{' '.join(text[at : at + 4])}</p>" for at in range(0, len(text), 4))
    return f"""<!doctype html><html><head><title>News</title><script>track("{session}")</script></head><body>
        <header><a href="/">The Daily</a> <nav><ul>{links}</ul></nav></header>
        <div class="menu"><ul>{links}</ul></div><aside><h3>Advert</h3>{advert}</aside>
        <div class="article"><h1>{text[0]}</h1><time>{moment}</time>{paragraphs}</div>
        <p>{visitors} readers, order no. {session}</p>
        <footer>Copyright, imprint, all rights of {moment} reserved</footer><!-- {session} --></body></html>"""


def apart(one: str, other: str) -> int:
    first, second = similarity_hash(one), similarity_hash(other)
    assert first is not None
    assert second is not None
    return distance(first, second)


@pytest.mark.parametrize(
    "changed",
    [
        {"menu": ("Start", "Politics", "Culture", "Jobs", "Archive", "About us", "Help")},
        {"moment": "Published 13.03.2026, 09:41"},
        {"moment": "Updated 5 minutes ago"},
        {"advert": "Holidays in the sun, from tomorrow on, for everybody who books before the end of the week."},
        {"visitors": 99_999},
        {"session": "77be01cc4d"},
    ],
    ids=lambda changed: next(iter(changed)),
)
@pytest.mark.parametrize("seed", range(5))
def test_the_same_article_with_another_frame_is_the_same(seed: int, changed: dict[str, object]) -> None:
    text = sentences(seed, 40)
    assert apart(article(text), article(text, **changed)) <= SAME_WITHIN  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_an_article_with_another_sentence_is_near(seed: int) -> None:
    text = sentences(seed, 20)
    edited = [*text[:7], sentences(seed + 1_000, 1)[0], *text[8:]]
    assert 1 <= apart(article(text), article(edited)) <= NEAR_WITHIN


@pytest.mark.parametrize("seed", range(20))
def test_another_article_in_the_same_frame_is_far(seed: int) -> None:
    assert apart(article(sentences(seed, 40)), article(sentences(seed + 1_000, 40))) > NEAR_WITHIN + 4


def test_the_order_of_the_paragraphs_hardly_matters() -> None:
    text = sentences(3, 40)
    assert apart(article(text), article([text[0], *text[20:], *text[1:20]])) <= NEAR_WITHIN


def test_what_a_page_marks_as_its_content_is_all_that_counts() -> None:
    text = " ".join(sentences(1, 20))
    page = "<div>{}</div><main><article><header><h1>Owls</h1></header><p>{}</p></article></main><div>{}</div>"
    assert apart(page.format("one", text, "two"), page.format("else " * 50, text, "other " * 50)) == 0
    assert b"owls" in main_words(page.format("", text, ""))


def test_a_list_of_links_is_told_by_its_links() -> None:
    """A front page says nothing but where it leads: a new headline is a change."""
    page = "<ul>{}</ul>"
    items = [f'<li><a href="/{at}">{text}</a></li>' for at, text in enumerate(sentences(9, 30))]
    assert apart(page.format("".join(items)), page.format("".join(items))) == 0
    assert apart(page.format("".join(items[:20])), page.format("".join(items[10:]))) > SAME_WITHIN


def test_characters_count_where_words_are_not_parted() -> None:
    sentence = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗いじめじめした所で"
    assert len(main_words(f"<p>{sentence}</p>")) > 30
    assert apart(f"<p>{sentence * 2}</p>", f"<p>{sentence}ニャーニャー{sentence}</p>") <= NEAR_WITHIN


@pytest.mark.parametrize("html", ["", "<p>", "two words", "<script>one two three four</script>", "1 2 3 4 5", "<"])
def test_a_page_without_text_has_no_hash(html: str) -> None:
    assert similarity_hash(html) is None
    assert not similarity.says_the_same(None, None)


def test_two_hashes_say_the_same_up_to_the_threshold() -> None:
    assert similarity.says_the_same(0, 0b111)
    assert not similarity.says_the_same(0, 0b1111)


@given(st.text(max_size=300))
def test_any_text_has_a_hash_that_fits_its_column_or_none(html: str) -> None:
    hashed = similarity_hash(html)
    assert hashed is None or -(2**63) <= hashed < 2**63
    assert hashed == similarity_hash(html)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_distance_is_symmetric_and_zero_only_to_itself(one: int, other: int) -> None:
    assert distance(one, other) == distance(other, one)
    assert 0 <= distance(one, other) <= 64
    assert (distance(one, other) == 0) is (one == other)


@pytest.mark.parametrize(
    "part", ["<a ", "<div>", "a", "x='", "<nav>", "<!--", "&a", "<script>", "<a>", "a1", "<", "<main>", "</main>", "ü"]
)
def test_hostile_markup_takes_no_longer_than_its_length(part: str) -> None:
    started = time.process_time()
    similarity_hash(part * (200_000 // len(part)))
    assert time.process_time() - started < 3
