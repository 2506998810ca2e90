"""Comparing a store with the model: every count, every queue, every task, every artifact, every gate."""

import msgspec

from outrider.model.lease import Token
from outrider.model.task import Counts, Kind, Task, TaskFilter
from outrider.store.protocols import UrlStore
from tests.conformance.reference import Model, ModelTask


async def check_everything(store: UrlStore, model: Model) -> None:
    """Compare all that can be read."""
    for crawl in model.crawls:
        await _check_counts(store, model, crawl)
        await check_queues(store, model, crawl)
        await _check_tasks(store, model, crawl)
        await _check_artifacts(store, model, crawl)
    for domain in model.gates:
        await _check_gate(store, model, domain)


async def _check_counts(store: UrlStore, model: Model, crawl: str) -> None:
    assert await store.counts(crawl) == model.counts(crawl)
    by_kind = await store.counts_by_kind(crawl)
    for kind in Kind:
        assert by_kind.get(kind, Counts()) == model.counts(crawl, kind=kind), kind


async def check_queues(store: UrlStore, model: Model, crawl: str) -> None:
    """Compare the queues of a crawl with their counts, overrides and bands."""
    known = model.crawls[crawl].queues
    queues = await store.list_queues(crawl)
    assert [queue.key for queue in queues] == sorted(known)
    for queue in queues:
        expected = known[queue.key]
        assert queue.counts == model.counts(crawl, queue.key), queue
        assert queue.settings == expected.settings, queue
        assert (queue.domain, queue.last_served_at) == (expected.domain, expected.last_served_at), queue
        assert expected.band in (None, queue.band), queue


async def _check_tasks(store: UrlStore, model: Model, crawl: str) -> None:
    tasks = await listed(store, crawl, TaskFilter(), 100)
    known = model.crawls[crawl].tasks
    assert len(tasks) == len(known)
    for place, task in tasks.items():
        check_task(model, known.get(place), task)


def check_task(model: Model, known: ModelTask | None, task: Task | None) -> None:
    """Compare one task, field by field."""
    if known is None or task is None:
        assert known is None
        assert task is None
        return
    lease = model.lease_of(known)
    assert task == Task(
        crawl=known.crawl,
        key=known.key,
        url=known.url,
        kind=known.kind,
        state=known.state,
        priority=known.priority,
        depth=known.depth,
        attempt_count=known.attempt_count,
        failures=known.failures,
        deferrals=known.deferrals,
        expiries=known.expiries,
        discovered_at=known.discovered_at,
        due_at=task.due_at if known.was_passed_over else known.due_at,
        discovery_type=known.discovery_type,
        last_heartbeat=None if lease is None else lease.last_heartbeat,
        http_status=known.http_status,
        reason=known.reason,
        metadata=known.metadata,
    )


async def _check_artifacts(store: UrlStore, model: Model, crawl: str) -> None:
    artifacts = await store.artifacts(crawl)
    known = {artifact.token: artifact for artifact in model.artifacts.get(crawl, [])}
    assert len(artifacts) == len(known)
    for artifact in artifacts:
        fields = msgspec.structs.asdict(artifact)
        assert fields == fields | vars(known[Token(artifact.token)])


async def _check_gate(store: UrlStore, model: Model, domain: str) -> None:
    gate, known = await store.get_gate(domain), model.gates[domain]
    assert gate is not None
    assert gate == known.as_record(domain, gate.robots_version)
    assert (gate.robots_version is None) == (known.robots_text is None)
    if gate.robots_version is not None:
        assert await store.robots_text(domain) == (gate.robots_version, known.robots_text)


async def listed(store: UrlStore, crawl: str, which: TaskFilter, limit: int) -> dict[tuple[str, str], Task]:
    """List tasks page by page: nothing comes twice, and no page is longer than was asked for."""
    tasks: list[Task] = []
    cursor: str | None = None
    while True:
        page = await store.list_tasks(crawl, which, cursor=cursor, limit=limit)
        assert len(page.tasks) <= limit
        tasks += page.tasks
        cursor = page.next_cursor
        if cursor is None:
            break
    by_place = {(task.key, task.url): task for task in tasks}
    assert len(by_place) == len(tasks)
    return by_place
