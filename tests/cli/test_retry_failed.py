import json
import shutil
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from tests.cli.conftest import CrawledSite, Outrider


@pytest.fixture
def own(crawled: CrawledSite, tmp_path: Path) -> CrawledSite:
    """A copy that may be changed."""
    copy = tmp_path / "own"
    shutil.copytree(crawled.data, copy)
    return crawled._replace(data=copy)


def pages(outrider: Outrider, data: Path) -> dict[str, int]:
    told: dict[str, dict[str, int]] = json.loads(outrider("status", "--data", data, "--json").stdout)
    return told["pages"]


def test_what_failed_goes_back_to_pending(own: CrawledSite, outrider: Outrider) -> None:
    before = pages(outrider, own.data)
    answer = outrider("retry-failed", "--data", own.data)
    assert (answer.returncode, answer.stderr) == (ExitCode.OK, "")
    first, second = answer.stdout.splitlines()
    assert first == f"{before['failed']:,} failed URLs of crawl DEFAULT will be tried again"
    assert second.startswith(f"next: outrider crawl --data {own.data} {own.address}/ ")
    assert "--max-depth 2" in second
    assert "--exclude '/odd/(slow" in second
    after = pages(outrider, own.data)
    assert (after["failed"], after["pending"]) == (0, before["failed"])
    assert outrider("retry-failed", "--data", own.data).stdout == "nothing has failed\n"


def test_only_what_the_filters_say(own: CrawledSite, outrider: Outrider) -> None:
    before = pages(outrider, own.data)
    nothing = outrider("retry-failed", "--data", own.data, "--domain", "example.org")
    assert nothing.stdout == "nothing that failed is like that\n"
    answer = outrider("retry-failed", "--data", own.data, "--filter", "/always/500", "--kind", "page", "--json")
    assert json.loads(answer.stdout) == {"crawl": "DEFAULT", "retried": 1}
    assert pages(outrider, own.data)["failed"] == before["failed"] - 1
