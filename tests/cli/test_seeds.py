import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.seeds import MOST_REFUSALS, Seed, Seeds, read_seeds
from outrider.crawler.plan import CrawlPlan
from outrider.model.errors import InvalidInput
from outrider.model.task import Refusal

ROOT = Path(__file__).parent.parent.parent


def typed(*texts: str) -> list[str]:
    return [seed.url for seed in read_seeds(CrawlPlan(seeds=texts))]


def read_file(path: Path, content: bytes) -> tuple[list[Seed], Seeds]:
    path.write_bytes(content)
    seeds = read_seeds(CrawlPlan(seeds_file=str(path)))
    return list(seeds), seeds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seeds.txt"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.org/a?b#c", "https://example.org/a?b"),
        ("HTTP://Example.ORG", "http://example.org/"),
        ("example.org", "https://example.org/"),
        (" example.org ", "https://example.org/"),
        ("example.org/path", "https://example.org/path"),
        ("example.org?q=a:b", "https://example.org/?q=a:b"),
        ("example.org:8080/x", "https://example.org:8080/x"),
        ("//example.org/x", "https://example.org/x"),
        ("münchen.de", "https://xn--mnchen-3ya.de/"),
        ("localhost", "http://localhost/"),
        ("localhost:8000", "http://localhost:8000/"),
        ("site.localhost:8000/x", "http://site.localhost:8000/x"),
        ("127.0.0.1:8000/x", "http://127.0.0.1:8000/x"),
        ("10.1.2.3", "http://10.1.2.3/"),
        ("[::1]:8000", "http://[::1]:8000/"),
    ],
)
def test_what_is_typed_becomes_a_url(text: str, url: str) -> None:
    assert typed(text) == [url]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Refusal.BAD_HOST),
        ("hello", Refusal.BAD_HOST),
        ("12", Refusal.BAD_HOST),
        ("not a url at all.", Refusal.BAD_HOST),
        ("/etc/passwd.txt", Refusal.BAD_HOST),
        ("me@example.org", Refusal.BAD_HOST),
        ("rank,domain.org", Refusal.BAD_HOST),
        ("example.org:99999", Refusal.BAD_PORT),
        ("mailto:me@example.org", Refusal.NOT_HTTP),
        ("ftp://example.org/", Refusal.NOT_HTTP),
        ("https://", Refusal.NO_HOST),
        ("example.org/\0", Refusal.BAD_TEXT),
        ("example.org/" + "x" * 9000, Refusal.TOO_LONG),
    ],
)
def test_what_is_no_seed_is_refused_for_itself_alone(text: str, reason: Refusal) -> None:
    seeds = read_seeds(CrawlPlan(seeds=(text, "example.org")))
    assert [seed.url for seed in seeds] == ["https://example.org/"]
    assert [(each.line, each.reason) for each in seeds.refusals] == [(None, reason)]
    assert seeds.refused == 1


def test_a_file_has_one_seed_per_line_with_blanks_comments_marks_and_any_line_ends(path: Path) -> None:
    content = b"\xef\xbb\xbfexample.org\r\n\r\n# a comment\n  https://example.com/a  \n\t\nexample.org\rlast.example"
    seeds, reading = read_file(path, content)
    assert [(seed.url, seed.line) for seed in seeds] == [
        ("https://example.org/", 1),
        ("https://example.com/a", 4),
        ("https://example.org/", 6),
        ("https://last.example/", 7),
    ]
    assert reading.refused == 0


def test_a_ranked_list_gives_ranks_and_each_line_is_looked_at_for_itself(path: Path) -> None:
    seeds, reading = read_file(path, b"1,google.com\r\n2, youtube.com\r\nexample.org\r\n30,127.0.0.1\r\n")
    assert [(seed.url, seed.rank) for seed in seeds] == [
        ("https://google.com/", 1),
        ("https://youtube.com/", 2),
        ("https://example.org/", None),
        ("http://127.0.0.1/", 30),
    ]
    assert reading.refusals == []


@pytest.mark.parametrize("header", ["rank,domain", '"Rank", "Domain"', "GlobalRank,Site"])
def test_a_ranked_list_may_have_a_header_and_quotes(path: Path, header: str) -> None:
    content = f"""{header}\n1,"example.org"\n"2", "example.com"\n3,"broken\n"""
    seeds, reading = read_file(path, content.encode())
    assert [(seed.url, seed.rank) for seed in seeds] == [("https://example.org/", 1), ("https://example.com/", 2)]
    assert [each.line for each in reading.refusals] == [4]


def test_a_header_is_looked_for_in_the_first_line_alone(path: Path) -> None:
    _, reading = read_file(path, b"1,example.org\nrank,domain\n")
    assert [each.line for each in reading.refusals] == [2]


def test_a_bad_line_is_refused_with_its_number_and_the_rest_is_read(path: Path) -> None:
    seeds, reading = read_file(path, b"a.example\nGarbage\n\xff\xfe.example\n3,b.example,more\nb.example\n")
    assert [seed.line for seed in seeds] == [1, 5]
    assert [(each.line, each.reason) for each in reading.refusals] == [
        (2, Refusal.BAD_HOST), (3, Refusal.BAD_TEXT), (4, Refusal.BAD_HOST),
    ]  # fmt: skip
    assert str(reading.refusals[0]).startswith("line 2: this is neither a URL nor a domain")


def test_a_line_without_an_end_is_refused_and_not_kept_in_memory(path: Path) -> None:
    seeds, reading = read_file(path, b"a.example\n" + b"x" * 1_000_000 + b"\nb.example\n")
    assert [seed.line for seed in seeds] == [1, 3]
    assert [(each.line, each.reason) for each in reading.refusals] == [(2, Refusal.TOO_LONG)]
    assert len(str(reading.refusals[0])) < 500


def test_all_refusals_are_counted_and_the_first_are_kept(path: Path) -> None:
    seeds, reading = read_file(path, b"garbage\n" * (MOST_REFUSALS + 5))
    assert seeds == []
    assert (reading.refused, len(reading.refusals)) == (MOST_REFUSALS + 5, MOST_REFUSALS)


def test_what_was_typed_comes_before_the_file(path: Path) -> None:
    path.write_text("b.example\n")
    seeds = read_seeds(CrawlPlan(seeds=("a.example",), seeds_file=str(path)))
    assert [(seed.url, seed.line) for seed in seeds] == [("https://a.example/", None), ("https://b.example/", 1)]


def test_a_file_that_is_missing_or_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.txt: No such file or directory"):
        read_seeds(CrawlPlan(seeds_file=str(tmp_path / "nowhere.txt")))
    with pytest.raises(InvalidInput, match="Is a directory"):
        read_seeds(CrawlPlan(seeds_file=str(tmp_path)))


@pytest.mark.parametrize("content", [b"PK\x03\x04 and more", b"\x1f\x8b and more"])
def test_an_archive_is_refused_as_such(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="unpack it first"):
        read_seeds(CrawlPlan(seeds_file=str(path)))


def test_a_file_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # The first line is there, and the end of the file is not before `cat` has ended.
    program = f"(echo a.example; exec cat) > {pipe}"
    with subprocess.Popen(["/bin/sh", "-c", program], stdin=subprocess.PIPE) as writer:
        seeds = iter(read_seeds(CrawlPlan(seeds_file=str(pipe))))
        assert next(seeds).url == "https://a.example/"
        assert writer.stdin is not None
        writer.stdin.close()


def test_a_dash_is_standard_input() -> None:
    program = (
        "import json; from outrider.cli.seeds import read_seeds; from outrider.crawler.plan import CrawlPlan\n"
        "print(json.dumps([[s.url, s.line] for s in read_seeds(CrawlPlan(seeds_file='-'))]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        input="a.example\n5,b.example\n", capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert json.loads(answer.stdout) == [["https://a.example/", 1], ["https://b.example/", 2]]


@given(st.lists(st.text(max_size=30), max_size=5))
def test_any_text_is_a_seed_or_a_refusal(texts: list[str]) -> None:
    seeds = read_seeds(CrawlPlan(seeds=tuple(texts)))
    assert len(list(seeds)) + seeds.refused == len(texts)
