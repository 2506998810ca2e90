"""Runs of the same crawl after each other: what a domain's state makes of the next one."""

import signal
import socket
from collections import Counter
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from outrider.model.machines import TaskState
from tests.crawler.crawling import Crawl, ServedSite, serving_site, wait_for

PLAIN_SITE = ("--no-oddities",)
ONE_IS_ENOUGH = {"max_domain_errors": 1}
"""The first trouble with a site ends the patience with it."""


def site(stack: ExitStack, folder: Path, name: str, *arguments: str | int) -> ServedSite:
    own = folder / name
    own.mkdir()
    return stack.enter_context(serving_site(own, *PLAIN_SITE, *arguments))


def domain_of(served: ServedSite) -> str:
    return f"127.0.0.1:{served.port}"


def statuses(crawl: Crawl) -> dict[str, str]:
    return dict(crawl.query("SELECT domain, status FROM domains"))


def row(crawl: Crawl, domain: str, columns: str) -> tuple[Any, ...]:
    return crawl.query(f"SELECT {columns} FROM domains WHERE domain = '{domain}'")[0]


def pages(served: ServedSite) -> Counter[str]:
    return Counter({path: number for path, number in served.paths().items() if path != "/robots.txt"})


def test_what_a_stop_leaves_is_gone_on_with_and_what_is_over_is_left_alone(tmp_path: Path) -> None:
    with ExitStack() as stack:
        large = site(stack, tmp_path, "large", "--pages", 60)
        small = site(stack, tmp_path, "small", "--pages", 5)
        failing = site(stack, tmp_path, "failing", "--robots-status", 503)
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # takes a connection, and says nothing
        silent_domain = f"127.0.0.1:{silent.getsockname()[1]}"
        seeds = (large.url(), small.url(), failing.url(), f"http://{silent_domain}/")
        crawl = Crawl(tmp_path, *seeds, "--delay", 0.1, "--max-wait", 5, **ONE_IS_ENOUGH)

        running = crawl.start()
        large_one, small_one, failing_one = map(domain_of, (large, small, failing))
        settled = {small_one: "exhausted", failing_one: "blocked", large_one: "active"}
        wait_for(lambda: large.count() >= 10 and settled.items() <= statuses(crawl).items())
        running.send(signal.SIGINT)
        running.end()

        assert statuses(crawl) == settled | {silent_domain: "pending"}
        until, code = row(crawl, failing_one, "next_crawl_after, block_reason_code")
        assert code == "server_error"
        rest = datetime.fromisoformat(until) - datetime.now(tz=datetime.fromisoformat(until).tzinfo)
        assert timedelta(hours=23) < rest <= timedelta(days=1)
        first = pages(large)
        assert 0 < first.total() < 60
        before = small.count(), failing.count()

        silent.close()
        begun = site(stack, tmp_path, "begun", "--pages", 4, "--port", silent_domain.partition(":")[2])
        crawl.run()

        assert pages(large) == Counter(dict.fromkeys(pages(large), 1)), "what was fetched is not fetched again"
        assert pages(large).total() == 60
        assert pages(begun).total() == 4
        assert (small.count(), failing.count()) == before
        assert statuses(crawl) == {**settled, large_one: "exhausted", silent_domain: "exhausted"}


def test_reruns_go_on_with_what_is_active_and_take_in_what_is_new(tmp_path: Path) -> None:
    with ExitStack() as stack:
        large = site(stack, tmp_path, "large", "--pages", 30)
        small = site(stack, tmp_path, "small", "--pages", 3)
        failing = site(stack, tmp_path, "failing", "--robots-status", 503)
        added = site(stack, tmp_path, "added", "--pages", 2)
        large_one, small_one, failing_one, added_one = map(domain_of, (large, small, failing, added))
        crawl = Crawl(tmp_path, large.url(), small.url(), failing.url(), "--delay", 0, "--max-wait", 5, **ONE_IS_ENOUGH)

        crawl.run("--max-pages-per-domain", 5)
        settled = {large_one: "active", small_one: "exhausted", failing_one: "blocked"}
        assert statuses(crawl) == settled
        before = small.count(), failing.count()

        crawl.run("--max-pages-per-domain", 5)  # the same seeds with the same budget
        assert pages(large).total() == 10

        crawl.run("--max-pages-per-domain", 12)  # the same seeds with a larger one
        assert pages(large).total() == 22

        crawl.run(added.url(), "--max-pages-per-domain", 5)  # new seeds
        assert pages(added).total() == 2
        assert pages(large).total() == 27
        assert statuses(crawl) == settled | {added_one: "exhausted"}
        assert (small.count(), failing.count()) == before, "exhausted and blocked ones are skipped in all of them"
        assert crawl.states()[TaskState.COMPLETED] == 27 + 3 + 2


def test_a_domain_that_rests_is_not_crawled_for_another_crawl_either_where_runs_are_scheduled_from_the_table(
    tmp_path: Path,
) -> None:
    with serving_site(tmp_path, *PLAIN_SITE, "--pages", 3) as served:
        crawl = Crawl(tmp_path, served.url(), "--delay", 0, enable_smart_scheduling="true")
        crawl.run()
        assert statuses(crawl) == {domain_of(served): "exhausted"}
        before = served.count()
        crawl.run("--crawl", "another")
        assert served.count() == before
        assert crawl.query("SELECT count(*) FROM tasks") == [(4,)], "three pages and robots.txt of the first crawl"


def test_seeds_of_a_list_are_in_the_domains_table_with_their_rank_and_source(tmp_path: Path) -> None:
    with serving_site(tmp_path, *PLAIN_SITE, "--pages", 1) as served:
        seeds = tmp_path / "tranco_20260205.csv"
        seeds.write_text("1,a.invalid\n2,b.invalid\n")
        crawl = Crawl(tmp_path, served.url(), "--delay", 0, "--max-pages", 1, "--max-wait", 0)
        crawl.run("--seeds", str(seeds))
        assert row(crawl, "b.invalid", "source, seed_rank") == ("tranco_20260205", 2)
        seeds.write_text("9,b.invalid\n3,c.invalid\n")
        crawl.run("--seeds", str(seeds), "--seeds-source", "another")
        assert row(crawl, "b.invalid", "source, seed_rank") == ("tranco_20260205", 2), "who knows better keeps it"
        assert row(crawl, "c.invalid", "source, seed_rank") == ("another", 3)
