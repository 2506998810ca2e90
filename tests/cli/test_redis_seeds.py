"""Seeds in a sorted set of a real Redis."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.redis_seeds import AT_ONCE
from outrider.cli.seeds import read_seeds
from outrider.crawler.plan import DATABASE, CrawlPlan
from outrider.model.errors import InvalidInput
from tests.cli.commands import free_port
from tests.cli.conftest import Outrider
from tests.redis_server import binary, redis_server

redis = pytest.importorskip("redis")
pytestmark = pytest.mark.skipif(binary() is None, reason="there is no Redis for this machine")

PASSWORD = "p@ss/word"
QUOTED = "p%40ss%2Fword"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with redis_server(password=PASSWORD) as address:
        yield address


@pytest.fixture
def client(server: str) -> Iterator[Any]:
    host, _, port = server.partition(":")
    with redis.Redis(host=host, port=int(port), db=3, password=PASSWORD) as connected:
        connected.flushall()
        yield connected


def plan(server: str, key: str = "start_urls") -> CrawlPlan:
    return CrawlPlan(seeds_file=f"redis://:{QUOTED}@{server}/3/{key}")


def test_members_are_seeds_and_scores_their_ranks(server: str, client: Any) -> None:
    client.zadd("start_urls", {"b.example": 2, "https://a.example/x": 1})
    found = list(read_seeds(plan(server)))
    assert [(seed.url, seed.rank) for seed in found] == [("https://a.example/x", 1), ("https://b.example/", 2)]


def test_a_set_larger_than_one_answer_is_read_whole_and_in_order(server: str, client: Any) -> None:
    number = 2 * AT_ONCE + 7
    client.zadd("start_urls", {f"d{rank}.example": rank for rank in range(1, number + 1)})
    assert [seed.rank for seed in read_seeds(plan(server))] == list(range(1, number + 1))


def test_a_key_may_have_slashes_and_escapes(server: str, client: Any) -> None:
    client.zadd("lists/2026 best", {"a.example": 1})
    assert [seed.url for seed in read_seeds(plan(server, "lists/2026%20best"))] == ["https://a.example/"]


def test_what_is_no_seed_is_refused_by_itself(server: str, client: Any) -> None:
    client.zadd("start_urls", {"a.example": 1, "b.example": 1.5, "c.example": -1, "mailto:me@d.example": 4, b"\xff": 5})
    seeds = read_seeds(plan(server))
    assert [seed.url for seed in seeds] == ["https://a.example/"]
    assert seeds.refused == 4
    assert "'b.example' has the score 1.5: ranks are whole numbers" in " ".join(map(str, seeds.refusals))


@pytest.mark.parametrize(
    ("key", "told"), [("nowhere", "there is no such key"), ("a_list", "it is a list, not a sorted set")]
)
def test_what_is_no_sorted_set_is_refused_before_a_crawl_begins(server: str, client: Any, key: str, told: str) -> None:
    client.lpush("a_list", "a.example")
    with pytest.raises(InvalidInput, match=told) as refused:
        read_seeds(plan(server, key))
    assert "word" not in str(refused.value)


@pytest.mark.parametrize("place", ["redis://host", "redis://host/key", "redis:///0/key", "redis://host/x/key"])
def test_an_address_without_database_or_key_is_refused(place: str) -> None:
    with pytest.raises(InvalidInput, match="names no sorted set: write redis://host/0/key"):
        read_seeds(CrawlPlan(seeds_file=place))


def test_a_server_out_of_reach_is_told_without_the_password() -> None:
    with pytest.raises(InvalidInput, match=r"cannot read the seeds in redis://127\.0\.0\.1") as refused:
        read_seeds(CrawlPlan(seeds_file=f"redis://me:{QUOTED}@127.0.0.1:{free_port()}/0/key"))
    assert "word" not in str(refused.value)


def test_a_crawl_keeps_rank_and_source_and_no_password(
    server: str, client: Any, outrider: Outrider, tmp_path: Path
) -> None:
    client.zadd("start_urls", {"a.invalid": 7})
    seeds = f"redis://:{QUOTED}@{server}/3/start_urls"
    outrider("crawl", "--seeds", seeds, "--data", tmp_path / "data", "--max-wait", "0", "--timeout", "2")
    with closing(sqlite3.connect(tmp_path / "data" / DATABASE)) as database:
        domains = database.execute("SELECT domain, source, seed_rank FROM domains").fetchall()
        [(settings,)] = database.execute("SELECT settings FROM crawl_runs").fetchall()
    assert domains == [("a.invalid", "redis:start_urls", 7)]
    assert "start_urls" in settings
    assert QUOTED not in settings
