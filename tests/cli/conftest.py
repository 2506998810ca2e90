"""Fixtures of the command line: the program as a process, and a crawl to look at."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from outrider.cli import main
from outrider.cli.exits import ExitCode
from outrider.crawler.execution import Execution
from outrider.crawler.plan import CrawlPlan
from outrider.crawler.progress import CrawlEnding
from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions
from outrider.model.settings import Settings
from outrider.model.task import Discovered, DiscoveryType

ROOT = Path(__file__).parent.parent.parent
FAST = Settings(max_retries=2, max_deferrals=2, retry_base_ms=1, backoff_base_ms=1, backoff_cap_ms=2)
TOO_SLOW = "/odd/(slow|silent|endless|huge|header|long|for-ever|calendar|variants|sessions|recovers|encoded|links/)"


class CrawledSite(NamedTuple):
    """A small site that was crawled once, and is gone."""

    data: Path
    address: str
    exclude: str


class Ended(NamedTuple):
    """What a command left behind."""

    returncode: int | str | None
    stdout: str
    stderr: str


Outrider = Callable[..., Ended]


@pytest.fixture
def outrider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Outrider:
    """Run the program in this process, in a folder of its own, with nothing of Outrider's in the environment."""
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        monkeypatch.delenv(name)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(*arguments: str | Path, **more: str) -> Ended:
        capfd.readouterr()
        for name, value in more.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["outrider", *map(str, arguments)])
        with pytest.raises(SystemExit) as ending:
            main.main()
        return Ended(ending.value.code or ExitCode.OK, *capfd.readouterr())

    return run


def crawl_a_small_site(data: Path) -> CrawledSite:
    async def crawl() -> str:
        async with DemoServer(SiteOptions(pages=30)) as server:
            plan = CrawlPlan(
                seeds=(f"{server.base_url}/",), data=str(data), delay=0.0, per_domain=8, max_depth=2, timeout=2.0,
                exclude=(TOO_SLOW,),
            )  # fmt: skip
            seed = Discovered(url=plan.seeds[0], priority=950, discovery_type=DiscoveryType.SEED)
            async with Execution(plan, FAST) as execution:
                ending = await execution.run([seed], asyncio.Event(), lambda _: None)
                assert ending is CrawlEnding.DRAINED
            return server.base_url

    return CrawledSite(data, asyncio.run(crawl()), TOO_SLOW)


@pytest.fixture(scope="session")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> CrawledSite:
    """A crawl of a site with oddities, for tests that only look; nobody may change it."""
    return crawl_a_small_site(tmp_path_factory.mktemp("crawled"))
