"""From what travels over HTTP to what the frontier speaks, and back.

A record of the frontier has moments, one on the wire has durations.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from outrider.crawler.page_lines import utc_text
from outrider.model.artifact import Artifact
from outrider.model.lease import Lease, LeaseGrant, ReportAnswer
from outrider.model.task import NEVER, Outlook, Queue, Task
from outrider.service.http.wire import (
    DISCOVERIES,
    DISCOVERY_NAMES,
    KIND_NAMES,
    KINDS,
    ArtifactItem,
    LeaseAnswer,
    LeaseItem,
    OutlookAnswer,
    QueueBody,
    QueueItem,
    ReportReply,
    ReportResult,
    TaskItem,
)

FAR = NEVER - 1
"""From here on a moment stands for something that no clock ends."""


def now_ms() -> int:
    """Tell the time, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def until(moment: int | None, now: int) -> int | None:
    """Tell how long it is until a moment."""
    return None if moment is None else max(moment - now, 0)


def lease_answer(grant: LeaseGrant, waited_ms: int) -> LeaseAnswer:
    """Write down what was leased."""
    return LeaseAnswer(
        leases=[_lease_item(lease) for lease in grant.leases],
        next_ready_in_ms=until(grant.next_ready_at, now_ms()),
        no_work=grant.no_work,
        waited_ms=waited_ms,
    )


def _lease_item(lease: Lease) -> LeaseItem:
    fields = _fields(lease)
    fields["kind"] = KIND_NAMES[lease.kind]
    fields["discovery_type"] = DISCOVERY_NAMES[lease.discovery_type]
    return LeaseItem(**fields)


def grant_of(answer: LeaseAnswer) -> LeaseGrant:
    """Read what was leased, with moments of this machine's clock."""
    return LeaseGrant(
        leases=[_lease(item) for item in answer.leases],
        next_ready_at=None if answer.next_ready_in_ms is None else now_ms() + answer.next_ready_in_ms,
        no_work=answer.no_work,
    )


def _lease(item: LeaseItem) -> Lease:
    fields = _fields(item)
    fields["kind"] = KINDS[item.kind]
    fields["discovery_type"] = DISCOVERIES[item.discovery_type]
    return Lease(**fields)


def report_reply(answers: Sequence[ReportAnswer]) -> ReportReply:
    """Write down what the frontier made of reports."""
    now = now_ms()
    return ReportReply(
        results=[
            ReportResult(
                verdict=answer.verdict,
                retry_in_ms=until(answer.retry_at, now),
                refusal=answer.refusal,
                detail=answer.detail,
            )
            for answer in answers
        ]
    )


def report_answer(result: ReportResult) -> ReportAnswer:
    """Read what the frontier made of a report."""
    return ReportAnswer(
        verdict=result.verdict,
        retry_at=None if result.retry_in_ms is None else now_ms() + result.retry_in_ms,
        refusal=result.refusal,
        detail=result.detail,
    )


def outlook_answer(outlook: Outlook) -> OutlookAnswer:
    """Write down what a crawl has before it."""
    return OutlookAnswer(
        counts=outlook.counts, next_ready_in_ms=until(outlook.next_ready_at, now_ms()), limited=outlook.limited
    )


def outlook_of(answer: OutlookAnswer) -> Outlook:
    """Read what a crawl has before it."""
    waits = answer.next_ready_in_ms
    return Outlook(
        counts=answer.counts, next_ready_at=None if waits is None else now_ms() + waits, limited=answer.limited
    )


def queue_item(queue: Queue, now: int) -> QueueItem:
    """Write a queue down."""
    settings = queue.settings
    return QueueItem(
        key=queue.key,
        domain=queue.domain,
        band=queue.band,
        ready_in_ms=None if queue.ready_at >= FAR else until(queue.ready_at, now),
        served_ago_ms=None if queue.last_served_at is None else max(now - queue.last_served_at, 0),
        settings=QueueBody(
            delay_ms=settings.delay_ms,
            blocked_for_ms=until(settings.blocked_until, now),
            page_limit=settings.page_limit,
            priority=settings.priority,
        ),
        counts=queue.counts,
    )


def task_item(task: Task) -> TaskItem:
    """Write a task down, as `outrider export` does."""
    return TaskItem(
        url=task.url,
        state=task.state.lower(),  # type: ignore[arg-type]
        kind=KIND_NAMES[task.kind],
        status=task.http_status,
        depth=task.depth,
        priority=task.priority,
        attempts=task.attempt_count,
        failures=task.failures,
        deferrals=task.deferrals,
        reason=task.reason,
        discovered_by=DISCOVERY_NAMES[task.discovery_type],
        discovered_at=utc_text(task.discovered_at),
        due_at=utc_text(task.due_at),
        key=task.key,
        metadata=task.metadata,
    )


def artifact_item(artifact: Artifact) -> ArtifactItem:
    """Write down what was reported of one fetch; its token is nobody else's business."""
    return ArtifactItem(
        id=artifact.artifact_id,
        url=artifact.url,
        key=artifact.key,
        domain=artifact.domain,
        attempt=artifact.attempt,
        outcome=artifact.outcome,
        reason=artifact.reason,
        kind=KIND_NAMES[artifact.kind],
        depth=artifact.depth,
        run_id=artifact.run_id,
        leased_at=artifact.leased_at,
        reported_at=artifact.reported_at,
        fetch=artifact.fetch,
    )


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
