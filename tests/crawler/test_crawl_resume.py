"""`outrider crawl` stopped, limited and finished, and the same command again."""

import asyncio
import signal
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from outrider.model.machines import TaskState
from outrider.model.task import Kind
from tests.crawler.crawling import Crawl, machine_is_overloaded, serving_site, wait_for
from tests.crawler.raw_server import Exchange, page, serving

GRACE_S = 5.0
SLACK_S = 3.0
"""For a slow machine to wind up."""

HTML = "Content-Type: text/html"
FAST = ("--delay", 0, "--per-domain", 8, "--concurrency", 8)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_crawl_in_order_and_the_same_command_finishes_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    with serving_site(tmp_path, "--pages", 600, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), *FAST)
        running = crawl.start()
        wait_for(lambda: served.count() > 50)
        running.send(number)
        ended = running.end(GRACE_S + SLACK_S)
        assert ended.code == ExitCode.STOPPED, ended.errors
        states = crawl.states()
        assert states[TaskState.ASSIGNED] == 0
        assert states[TaskState.PENDING] > 0
        assert len(crawl.lines()) == states[TaskState.COMPLETED], "what was done is in the output"
        assert crawl.runs() == [("stopped", "stopped")]

        assert crawl.run().code == ExitCode.OK
        assert served.paths().total() == 601, "nothing was fetched twice"
    assert len(set(crawl.paths())) == len(crawl.paths()) == 600


def test_what_does_not_finish_within_the_grace_is_given_back_uncharged(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 10) as served:
        crawl = Crawl(tmp_path, served.url("/odd/silent"), *FAST, "--no-sitemaps")
        running = crawl.start()
        wait_for(lambda: served.paths()["/odd/silent"])
        running.send(signal.SIGINT)
        ended = running.end()
        assert ended.code == ExitCode.STOPPED
        assert ended.took_s >= GRACE_S
    tasks = crawl.query("SELECT state, failures, deferrals FROM tasks WHERE kind = 0")
    assert tasks == [(1, 0, 1)]


def test_a_second_signal_stops_at_once_and_what_was_held_is_not_lost(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 10) as served:
        crawl = Crawl(tmp_path, served.url("/odd/silent"), *FAST, "--no-sitemaps", retry_base_ms=10)
        running = crawl.start()
        wait_for(lambda: served.paths()["/odd/silent"])
        running.send(signal.SIGINT)
        running.wait_for_line("stopping")
        running.send(signal.SIGINT)
        ended = running.end(GRACE_S / 2)
        assert ended.code == ExitCode.INTERRUPTED

        ended = crawl.run("--timeout", 0.2)
        assert ended.code == ExitCode.NOTHING_FETCHED, ended.errors
        assert ended.took_s < 2 * GRACE_S, "the lease of the process that is gone was returned at once"
    assert crawl.runs()[0] == ("failed", "killed")


def test_a_limit_on_pages_can_be_raised_until_all_are_there(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 60, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), *FAST)
        assert crawl.run("--max-pages", 20).code == ExitCode.LIMIT
        assert len(crawl.lines()) == 20
        assert crawl.run("--max-pages", 50).code == ExitCode.LIMIT
        assert len(crawl.lines()) == 50
        assert crawl.run().code == ExitCode.OK
        assert len(crawl.lines()) == 60
        assert served.paths().total() == 61


def test_sitemaps_and_robots_txt_do_not_count_as_pages(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 60) as served:
        crawl = Crawl(tmp_path, served.url(), *FAST)
        assert crawl.run("--max-pages", 5).code == ExitCode.LIMIT
    assert len(crawl.lines()) == 5
    assert crawl.states(Kind.SITEMAP) == {TaskState.COMPLETED: 2}


def test_a_raised_depth_promotes_what_was_found_below(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 60, "--links", 2, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), *FAST)
        assert crawl.run("--max-depth", 1).code == ExitCode.OK
        assert {line["depth"] for line in crawl.lines()} == {0, 1}
        assert crawl.states()[TaskState.DISCOVERED] > 0
        assert crawl.run("--max-depth", 3).code == ExitCode.OK
        assert {line["depth"] for line in crawl.lines()} == {0, 1, 2, 3}
        assert crawl.run().code == ExitCode.OK
        assert len(crawl.lines()) == 60


def test_each_domain_may_have_a_limit_of_its_own(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--host", "127.0.0.1", "--host", "127.0.0.2", "--no-oddities") as served:
        seeds = (served.url("/", "127.0.0.1"), served.url("/", "127.0.0.2"))
        crawl = Crawl(tmp_path, *seeds, *FAST, "--max-pages-per-domain", 7)
        assert crawl.run().code == ExitCode.LIMIT
    hosts = [line["url"].split("/")[2].partition(":")[0] for line in crawl.lines()]
    assert sorted(hosts) == ["127.0.0.1"] * 7 + ["127.0.0.2"] * 7


def test_a_finished_crawl_says_so_at_once_and_asks_nobody(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 20, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), *FAST)
        assert crawl.run().code == ExitCode.OK
        before = served.count()
        ended = crawl.run()
        assert ended.code == ExitCode.OK
        assert ended.took_s < 2 or machine_is_overloaded()
        assert "crawl DEFAULT is finished, with 20 pages" in ended.errors
        assert served.count() == before


def test_fresh_begins_anew_with_an_output_of_its_own(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 20, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), *FAST)
        assert crawl.run().code == ExitCode.OK
        assert crawl.run("--fresh").code == ExitCode.OK
        asked = served.paths()
    assert {number for path, number in asked.items() if path != "/robots.txt"} == {2}
    assert asked["/robots.txt"] == 1, "what is known of a site outlives the crawl"
    assert len(set(crawl.paths())) == len(crawl.paths()) == 20
    assert len(crawl.output.with_name(f"{crawl.output.name}.old").read_text().splitlines()) == 20


def test_fresh_is_refused_while_another_process_is_at_work(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 300, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), "--delay", 0.05)
        running = crawl.start()
        wait_for(lambda: served.count() > 2)
        ended = crawl.run("--fresh")
        assert ended.code == ExitCode.REFUSED
        assert "another process is at work" in ended.errors
        running.send(signal.SIGINT)
        assert running.end().code == ExitCode.STOPPED
        assert crawl.run("--fresh", "--max-pages", 3).code == ExitCode.LIMIT


def test_other_seeds_in_the_same_folder_leave_nothing_of_the_first_behind(tmp_path: Path) -> None:
    hosts = ("--host", "127.0.0.1", "--host", "127.0.0.2")
    with serving_site(tmp_path, *hosts, "--pages", 40, "--links", 2, "--no-oddities") as served:
        first, second = (Crawl(tmp_path, served.url("/", host), *FAST) for host in hosts[1::2])
        assert first.run("--max-pages", 5).code == ExitCode.LIMIT
        assert second.run().code == ExitCode.OK
        assert first.run().code == ExitCode.OK
    urls = [line["url"] for line in first.lines()]
    assert len(urls) == len(set(urls)) == 80


@pytest.mark.parametrize(
    ("narrowed", "reason"), [(("--max-depth", 0), "beyond --max-depth 0"), (("--exclude", "[02468]$"), "--exclude")]
)
def test_a_plan_that_is_narrowed_holds_for_what_was_found_before(
    narrowed: tuple[str | int, ...], reason: str, tmp_path: Path
) -> None:
    with serving_site(tmp_path, "--pages", 60, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), *FAST)
        assert crawl.run("--max-pages", 3).code == ExitCode.LIMIT
        before = len(crawl.lines())
        assert crawl.run(*narrowed).code == ExitCode.OK
        unwanted = crawl.query(f"SELECT count(*) FROM tasks WHERE state = 4 AND reason LIKE '%{reason}%'")[0][0]
        assert unwanted > 0
        if "--max-depth" in narrowed:
            assert len(crawl.lines()) == before


def test_two_processes_at_once_share_a_crawl_and_its_output(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 800, "--no-oddities") as served:
        crawl = Crawl(tmp_path, served.url(), "--delay", 0, "--per-domain", 32, "--concurrency", 8)
        both = [crawl.start(), crawl.start()]
        for running in both:
            ended = running.end()
            assert ended.code == ExitCode.OK, ended.errors
        assert served.paths().total() == 801, "no page twice"
    assert len(crawl.paths()) == len(set(crawl.paths())) == 800
    assert crawl.runs() == [("completed", "drained")] * 2
    workers = crawl.query("SELECT count(*) FROM crawl_log GROUP BY run_id")
    assert len(workers) == 2, "both took part"


async def test_a_process_under_way_learns_where_the_seeds_have_led_another(tmp_path: Path) -> None:
    """The target of a seed's redirect widens the scope for every process of the crawl."""
    redirected, killed = asyncio.Event(), asyncio.Event()

    async def redirect(exchange: Exchange) -> None:
        await redirected.wait()
        await exchange.send(page(b"", f"Location: {target.url('/')}", status="302 Found"))

    async def home(exchange: Exchange) -> None:
        await killed.wait()
        await exchange.send(page(b'<a href="/1">on</a>', HTML))

    rest = {f"/{number}": page(f'<a href="/{number + 1}">on</a>'.encode(), HTML) for number in range(1, 6)}
    missing = page(b"", status="404 Not Found")
    async with (
        serving({"/": home, "/6": page(), "/robots.txt": missing, **rest}) as target,
        serving({"/": redirect, "/robots.txt": missing}) as first,
    ):
        crawl = Crawl(tmp_path, first.url("/"), *FAST, "--allow-private")
        one = crawl.start()
        await asyncio.to_thread(wait_for, lambda: any(b"GET / " in head for head in first.heads))
        other = crawl.start()
        await asyncio.to_thread(other.wait_for_line, "in flight")
        redirected.set()
        await asyncio.to_thread(wait_for, lambda: any(b"GET / " in head for head in target.heads))
        one.kill()
        killed.set()
        assert (await asyncio.to_thread(other.end)).code == ExitCode.OK
    assert {"/", "/1", "/2", "/3", "/4", "/5", "/6"} <= set(crawl.paths())
