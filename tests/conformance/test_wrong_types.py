"""Arguments of a wrong type: every operation of both planes refuses them in words, and none breaks."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from outrider.model.backfill import BackfillKind
from outrider.model.batch import KnownUrl, QueueChange, ServeRequest
from outrider.model.domain import DomainChange, DomainSeed
from outrider.model.errors import InvalidInput, OutriderError
from outrider.model.gate import GateSettings
from outrider.model.job import JobEnding, JobRequest, RunKind, RunStatus, WorkerIdentity, WorkerKind, WorkerMode
from outrider.model.lease import LeaseRequest
from outrider.model.machines import DesiredState, DomainStatus, JobStatus
from outrider.model.task import Added, CrawlLimits, CrawlRules, CrawlState, Discovered, QueueSettings, Restored
from outrider.store.opening import Stores
from outrider.store.protocols import ControlStore, UrlStore
from tests.conformance.backends import Place
from tests.recount import check_counts

NOW = 1_700_000_000_000
ID = "0190163d-8694-739b-aea5-966c26f8ad91"
JUNK: list[Any] = [
    object(),
    None,
    5,
    -1,
    2**70,
    1.5,
    "text",
    "\0",
    b"bytes",
    True,
    {},
    {"a": 1},
    [object()],
    [None],
    {5},
]
GOOD: dict[str, Any] = {
    "name": "c", "crawl": "c", "rules": CrawlRules(), "limits": CrawlLimits(), "state": CrawlState.RUNNING,
    "request": LeaseRequest(worker="w", request_id="r", slots=1), "tokens": [], "reports": [], "url": "https://a.org/",
    "after": 0, "roots": [], "key": "a.org", "domain": "a.org", "before": 0, "items": [], "active": True, "seeds": [],
    "change": QueueChange(), "worker": "w", "number": 1, "held": [], "job_id": ID, "epoch": 1, "desired": "pause",
    "kind": RunKind.CRAWL, "run_id": ID, "status": RunStatus.COMPLETED, "ttl_ms": 1_000, "worker_id": "w", "wanted": 1,
    "key_id": "k", "messages": [], "ids": [], "message": ID, "error": "e", "retry_in_ms": 1, "topic": "t", "most": 1,
    "max_pages_per_run": 1, "digest": "d" * 64, "role": "read", "crawls": (), "settings": QueueSettings(),
    "backfill_id": "b", "source": "s", "pasts": [], "position": None, "rows_read": 0, "rows_refused": 0,
    "identity": WorkerIdentity(
        worker_id="w", kind=WorkerKind.WORKER, mode=WorkerMode.PLAIN, host="h", process_id=1, lock_path=None
    ),
    "conduct": {}, "jobs": [], "until": 1, "into": "b.org", "every_ms": 1_000, "schedule_id": ID,
    "ending": JobEnding(outcome=JobStatus.COMPLETED),
}  # fmt: skip
OF_METHOD: dict[str, dict[str, Any]] = {
    "configure_gate": {"settings": GateSettings()},
    "serve": {"request": ServeRequest()},
    "list_queues": {"after": ""},
    "list_domains": {"after": "", "status": DomainStatus.ACTIVE},
    "transition_domain": {
        "change": DomainChange(source=DomainStatus.PENDING, target=DomainStatus.ACTIVE, expected_version=0)
    },
    "submit_job": {"request": JobRequest(payload={})},
    "put_schedule": {"request": JobRequest(payload={})},
    "set_desired_state": {"desired": DesiredState.PAUSE},
    "open_run": {"settings": {}},
    "begin_backfill": {"kind": BackfillKind.SCRAPY},
}


def operations(protocol: type) -> list[str]:
    # One ends everything, the other waits for as long as it is told.
    left_out = ("close", "job_news")
    return [name for name, _ in inspect.getmembers(protocol, inspect.iscoroutinefunction) if name not in left_out]


async def complaints(plane: object, name: str) -> list[str]:
    """Call an operation with junk for each of its arguments in turn; tell what was not refused in words."""
    method: Callable[..., Any] = getattr(plane, name)
    parameters = inspect.signature(method).parameters
    good = {each: value for each, value in {**GOOD, **OF_METHOD.get(name, {})}.items() if each in parameters}
    missing = {each for each, about in parameters.items() if about.default is about.empty} - good.keys()
    found = [f"{name}: no good value is known for {each}" for each in missing]
    for parameter in parameters:
        for junk in JUNK:
            try:
                await method(**{**good, parameter: junk})
            except OutriderError:
                continue
            except Exception as error:
                found.append(f"{name}({parameter}={junk!r}): {error!r}")
    return found


async def test_no_argument_breaks_the_url_plane(place: Place, stores: Stores) -> None:
    found = []
    for name in operations(UrlStore):
        await stores.urls.create_crawl("c", now=NOW)
        found += await complaints(stores.urls, name)
    assert found == []
    await check_counts(place)


async def test_no_argument_breaks_the_control_plane(stores: Stores) -> None:
    await stores.urls.create_crawl("c", now=NOW)
    found = []
    for name in operations(ControlStore):
        found += await complaints(stores.control, name)
    assert found == []


async def test_a_moment_that_is_none_is_refused_and_nothing_is_done(stores: Stores) -> None:
    await stores.urls.create_crawl("c")
    odd: list[Any] = [-1, 2**62, 10**30, 1.0, "1", True, object()]
    for now in odd:
        with pytest.raises(InvalidInput, match="now must be a whole number"):
            await stores.urls.add("c", [Discovered(url="https://a.org/")], now=now)
        with pytest.raises(InvalidInput, match="now must be a whole number"):
            await stores.control.open_run("c", RunKind.CRAWL, now=now)
    assert (await stores.urls.counts("c")).total == 0
    assert await stores.control.list_runs("c") == []


async def test_a_batch_that_is_no_list_is_refused(stores: Stores) -> None:
    await stores.urls.create_crawl("c")
    odd: list[Any] = [5, None, "https://a.org/", {"url": 1}, object()]
    for items in odd:
        for put in (stores.urls.add, stores.urls.put_known, stores.urls.restore):
            with pytest.raises(InvalidInput, match="URLs must be a list"):
                await put("c", items)


async def test_what_is_no_item_is_refused_alone(place: Place, stores: Stores) -> None:
    urls = stores.urls
    await urls.create_crawl("c")
    odd: list[Any] = [5, None, "https://a.org/", object()]
    batches: list[tuple[Any, Any]] = [
        (urls.add, Discovered(url="https://a.org/1")),
        (urls.put_known, KnownUrl(url="https://a.org/2", due_at=None)),
        (urls.restore, Restored(url="https://a.org/3")),
        (stores.control.remember_domains, DomainSeed(domain="b.org")),
    ]
    for put, good in batches:
        arguments = [[*odd, good]] if put == stores.control.remember_domains else ["c", [*odd, good]]
        outcomes = [result.outcome for result in await put(*arguments)]
        assert outcomes == [Added.REJECTED] * len(odd) + [Added.NEW]
    await check_counts(place)
