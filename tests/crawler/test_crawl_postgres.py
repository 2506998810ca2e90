"""`outrider crawl` on PostgreSQL: the same promises."""

from pathlib import Path

from outrider.cli.exits import ExitCode
from outrider.store.sql import migrate
from tests.crawler.crawling import Crawl, serving_site, wait_for

PAGES = 500


def test_two_processes_of_which_one_is_killed_finish_a_crawl_with_every_page_once(
    tmp_path: Path, postgres_database: str
) -> None:
    migrate.upgrade(postgres_database)
    with serving_site(tmp_path, "--pages", PAGES, "--no-oddities") as served:
        crawl = Crawl(
            tmp_path, served.url(), "--store", postgres_database,
            "--delay", 0, "--per-domain", 16, "--concurrency", 8,
        )  # fmt: skip
        victim, survivor = crawl.start(), crawl.start()
        wait_for(lambda: served.count() > PAGES // 4)
        victim.kill()
        joined = crawl.start()
        for running in (survivor, joined):
            ended = running.end()
            assert ended.code == ExitCode.OK, ended.errors
        asked = served.paths()
    assert len(crawl.paths()) == len(set(crawl.paths())) == PAGES
    assert asked.total() - len(asked) <= 8, "at most what the killed one had in flight"
