"""`outrider crawl --claims`: each domain is one process's at a time, whatever happens to the processes."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from outrider.crawler.plan import DATABASE
from outrider.model.machines import TaskState
from outrider.model.settings import Settings
from outrider.store.opening import open_store
from tests.crawler.crawling import Crawl, Ended, Running, ServedSite, freeze, serving_site, wait_for

DOMAINS = 4
PAGES = 25
HOSTS = [f"127.0.0.{number}" for number in range(1, DOMAINS + 1)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedSite]:
    """One site under several addresses, each of which is a domain."""
    listen = [argument for host in HOSTS for argument in ("--host", host)]
    with serving_site(tmp_path, *listen, "--pages", PAGES, "--no-oddities") as site:
        yield site


def crawl_of(folder: Path, served: ServedSite, *more: str | int | float) -> Crawl:
    seeds = [served.url("/", host) for host in HOSTS]
    return Crawl(folder, *seeds, "--claims", "--delay", 0.02, "--concurrency", 8, "--no-sitemaps", *more)


def elsewhere(crawl: Crawl, folder: Path) -> Crawl:
    """The same crawl as another machine would run it: with the store in common, and nothing else."""
    store = f"sqlite:///{crawl.data / DATABASE}"
    return Crawl(folder, *crawl.arguments, "--store", store)


def claims(crawl: Crawl) -> dict[str, str]:
    return dict(crawl.query("SELECT domain, claimed_by FROM domains WHERE claimed_by IS NOT NULL"))


def execute(crawl: Crawl, statement: str) -> None:
    with closing(sqlite3.connect(crawl.data / DATABASE, isolation_level=None, timeout=30)) as database:
        database.execute(statement)


def half_an_hour_passes(crawl: Crawl) -> None:
    """Have the claims and leases of whoever does not renew them run out."""
    execute(crawl, "UPDATE domains SET claim_expires_at = '2020-01-01T00:00:00.000Z' WHERE claimed_by IS NOT NULL")
    execute(crawl, "UPDATE leases SET expires_at = 0")


def begun(crawl: Crawl, served: ServedSite, requests: int = 10) -> Running:
    running = crawl.start()
    wait_for(lambda: served.count() >= requests)
    return running


def check_whole(crawl: Crawl, served: ServedSite, ended: Ended, *, again: int = 0) -> None:
    """Every page once, but for those that were under way when something happened; nothing is left claimed."""
    assert ended.code == 0, ended.errors
    assert crawl.states() == {TaskState.COMPLETED: PAGES * DOMAINS}
    twice = "SELECT url FROM crawl_log WHERE kind = 0 AND verdict = 'completed' GROUP BY url HAVING count(*) > 1"
    assert crawl.query(twice) == []
    asked = [(request.host, request.path) for request in served.requests() if request.path != "/robots.txt"]
    assert len(asked) - len(set(asked)) <= again
    assert claims(crawl) == {}
    assert crawl.query("SELECT worker_id FROM workers") == []


def test_domains_are_claimed_while_they_are_crawled_and_free_afterwards(tmp_path: Path, served: ServedSite) -> None:
    crawl = crawl_of(tmp_path, served)
    running = begun(crawl, served)
    [(worker, mode)] = crawl.query("SELECT worker_id, mode FROM workers")
    assert mode == "claims"
    assert set(claims(crawl).values()) == {worker}
    check_whole(crawl, served, running.end())


def test_processes_share_the_domains_and_not_the_pages(tmp_path: Path, served: ServedSite) -> None:
    crawl = crawl_of(tmp_path, served)
    running = [crawl.start("--concurrency", 2), crawl.start("--concurrency", 2), crawl.start("--concurrency", 2)]
    codes = [each.end() for each in running]
    assert [ended.code for ended in codes] == [0, 0, 0]
    check_whole(crawl, served, codes[0])


def test_a_plain_process_is_refused_beside_one_that_claims_and_the_other_way_round(
    tmp_path: Path, served: ServedSite
) -> None:
    crawl = crawl_of(tmp_path, served, "--max-pages", 50)
    plain = Crawl(tmp_path, *(argument for argument in crawl.arguments if argument != "--claims"))
    for first, second, mode in ((crawl, plain, "claims"), (plain, crawl, "plain")):
        running = begun(first, served, served.count() + 5)
        freeze(running, first)
        refused = second.run()
        running.send(signal.SIGCONT)
        assert refused.code == 3
        assert f"live worker runs with mode {mode} on this store" in refused.errors
        running.send(signal.SIGINT)
        running.end()


# ------------------------------------------------------------ what can go wrong


def test_when_a_worker_of_this_machine_is_killed_its_domains_are_free_at_once(
    tmp_path: Path, served: ServedSite
) -> None:
    crawl = crawl_of(tmp_path, served)
    begun(crawl, served).kill()
    assert claims(crawl)
    check_whole(crawl, served, crawl.run(), again=8)


def test_when_a_worker_of_another_machine_is_killed_its_domains_are_free_when_its_claims_expire(
    tmp_path: Path, served: ServedSite
) -> None:
    crawl = crawl_of(tmp_path, served)
    other = elsewhere(crawl, tmp_path / "elsewhere")
    other.folder.mkdir()
    crawl.data.mkdir()
    begun(other, served).kill()
    running = crawl.start()
    wait_for(lambda: len(crawl.query("SELECT 1 FROM workers")) == 2)
    assert len(set(claims(crawl).values())) == 1, "nobody takes what is claimed"
    half_an_hour_passes(crawl)
    execute(crawl, "DELETE FROM workers WHERE last_beat_at = (SELECT min(last_beat_at) FROM workers)")
    check_whole(crawl, served, running.end(), again=8)


def test_a_worker_that_was_cut_off_abandons_its_work_when_it_comes_back(tmp_path: Path, served: ServedSite) -> None:
    crawl = crawl_of(tmp_path, served)
    other = elsewhere(crawl, tmp_path / "elsewhere")
    other.folder.mkdir()
    crawl.data.mkdir()
    frozen = begun(other, served)
    [was] = set(claims(crawl).values())
    freeze(frozen, crawl)
    running = crawl.start()
    wait_for(lambda: len(crawl.query("SELECT 1 FROM workers")) == 2)
    half_an_hour_passes(crawl)
    wait_for(lambda: {was}.isdisjoint(claims(crawl).values()) and len(claims(crawl)) == DOMAINS)
    frozen.send(signal.SIGCONT)
    assert frozen.end().code == 0
    check_whole(crawl, served, running.end(), again=8)


async def test_priorities_that_change_meanwhile_cost_nobody_a_claim(tmp_path: Path, served: ServedSite) -> None:
    crawl = crawl_of(tmp_path, served)
    running = begun(crawl, served)
    before = claims(crawl)
    async with await open_store(f"sqlite:///{crawl.data / DATABASE}", Settings()) as stores:
        for _ in range(5):
            await stores.control.recalculate_priorities()
    assert claims(crawl) == before
    check_whole(crawl, served, running.end())
    assert crawl.query("SELECT count(*) FROM domains WHERE priority_computed_at IS NULL") == [(0,)]


async def test_a_domain_that_an_operator_changes_meanwhile_is_claimed_again_and_finished(
    tmp_path: Path, served: ServedSite
) -> None:
    crawl = crawl_of(tmp_path, served)
    running = begun(crawl, served)
    async with await open_store(f"sqlite:///{crawl.data / DATABASE}", Settings()) as stores:
        for domain in claims(crawl):
            await stores.control.configure_domain(domain, max_pages_per_run=None)
    check_whole(crawl, served, running.end(), again=8)
