"""The five steps of a rollout in one go: nothing is fetched twice, nothing stays claimed, and back is a flag away."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.model.domain import Domain
from outrider.model.machines import DomainStatus
from outrider.model.settings import Settings
from outrider.model.task import DEFAULT_CRAWL, Kind
from outrider.store.opening import Stores, open_store
from tests.conformance.backends import Place
from tests.conformance.conftest import backend, place
from tests.crawler.crawling import ENDS_S, ServedSite, serving_site

__all__ = ["backend", "place"]

HOSTS = [f"127.0.0.{number}" for number in range(1, 7)]
PAGES = 30
PHASE_C = {"ENABLE_SMART_SCHEDULING": "true", "ENABLE_CLAIM_PROTOCOL": "true"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedSite]:
    listen = [argument for host in HOSTS for argument in ("--host", host)]
    with serving_site(tmp_path, *listen, "--pages", PAGES, "--no-oddities") as site:
        yield site


class Installation:
    """A store, and crawls on it under the flags of the moment."""

    def __init__(self, folder: Path, store: str, served: ServedSite) -> None:
        self._folder = folder
        self._store = store
        seeds = folder / "seeds.txt"
        seeds.write_text("".join(f"{served.url('/', host)}\n" for host in HOSTS))
        self.seeds = ("--seeds", str(seeds))
        self.flags: dict[str, str] = {}

    def start(self, *arguments: str | int) -> "subprocess.Popen[str]":
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER_", "ENABLE_"))}
        command = [
            sys.executable, "-m", "outrider.cli.main", "crawl", *map(str, arguments), "--store", self._store,
            "--data", str(self._folder / "data"), "--delay", "0.01", "--allow-private", "--no-warc", "--no-sitemaps",
            "--concurrency", "4", "--progress", "none",
        ]  # fmt: skip
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**plain, **self.flags})

    def end(self, *processes: "subprocess.Popen[str]") -> set[int]:
        """Wait for processes; give their exit codes."""
        for process in processes:
            _, errors = process.communicate(timeout=ENDS_S)
            assert errors == "", errors
        return {process.returncode for process in processes}


async def domains(stores: Stores) -> list[Domain]:
    found = await stores.control.list_domains()
    assert len(found) == len(HOSTS)
    return found


async def check_no_page_twice(stores: Stores) -> None:
    artifacts = await stores.urls.artifacts(DEFAULT_CRAWL, limit=10_000)
    fetched = Counter(artifact.url for artifact in artifacts if artifact.kind is Kind.PAGE)
    assert max(fetched.values()) == 1


async def check_nothing_claimed(stores: Stores) -> None:
    overview = await stores.control.claims()
    assert (overview.workers, overview.expired) == ([], 0)
    assert await stores.control.list_workers() == []


async def test_all_phases_in_a_single_release(tmp_path: Path, place: Place, served: ServedSite) -> None:
    installation = Installation(tmp_path, place.dsn, served)
    start, end = installation.start, installation.end
    async with await open_store(place.dsn, Settings()) as stores:
        # 1. All code with its defaults: tracking and budgets are on, the rest is off.
        flags = {name: getattr(Settings(), name) for name in Settings.__struct_fields__ if name.startswith("enable_")}
        assert [name for name, is_on in flags.items() if is_on] == [
            "enable_domain_tracking",
            "enable_per_domain_budget",
        ]

        # 2. A small crawl fills the table.
        assert end(start(*installation.seeds, "--max-pages", 18)) == {10}
        assert all(domain.pages_crawled for domain in await domains(stores))
        assert {domain.status for domain in await domains(stores)} == {DomainStatus.ACTIVE}

        # 3. A larger one gives every domain about the same, and keeps what is left of each.
        assert end(start(*installation.seeds, "--max-pages", 60)) == {10}
        known = await domains(stores)
        assert max(each.pages_crawled for each in known) <= 2 * min(each.pages_crawled for each in known)
        assert all(each.frontier_checkpoint_id and each.frontier_size for each in known)

        # 4. One worker takes its work from the table, with claims, and leaves none behind.
        installation.flags = PHASE_C
        assert end(start("--max-pages", 90)) == {10}
        assert sum(domain.pages_crawled for domain in await domains(stores)) == 90
        await check_nothing_claimed(stores)

        # 5. Several at once do every page, each once.
        assert end(*(start() for _ in range(3))) == {0}
        assert sum(domain.pages_crawled for domain in await domains(stores)) == PAGES * len(HOSTS)
        assert {domain.status for domain in await domains(stores)} == {DomainStatus.EXHAUSTED}
        await check_no_page_twice(stores)
        await check_nothing_claimed(stores)

        # And back: a plain crawl finds everything as it was left.
        installation.flags = {}
        before = served.count()
        assert end(start(*installation.seeds)) == {0}
        assert served.count() == before
