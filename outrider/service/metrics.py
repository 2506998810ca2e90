"""Metrics for Prometheus: what the service did, how long it took, and how the frontier stands.

No label grows with URLs, domains, crawls or keys.
"""

import time
from collections import Counter as Tally
from collections.abc import Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from outrider.model.job import Job
from outrider.model.lease import LeaseGrant, ReportAnswer
from outrider.model.machines import JobStatus
from outrider.model.quota import Quota
from outrider.model.task import AddResult, Counts, CrawlState
from outrider.service.domain_metrics import DomainMetrics
from outrider.store.opening import Stores
from outrider.store.protocols import ControlStore, UrlStore

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
FRESH_S: Final = 5.0
"""How long the counts of all crawls are good for; they are read for no one but a scraper."""


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        registry = self._registry
        self._added = Counter("outrider_added", "URLs offered, by what became of them.", ["outcome"], registry=registry)
        self._leased = Counter("outrider_leased", "Leases granted.", registry=registry)
        self._reported = Counter("outrider_reported", "Reports, by verdict.", ["verdict"], registry=registry)
        self._requests = Counter(
            "outrider_requests", "Requests, by endpoint and status.", ["endpoint", "status"], registry=registry
        )
        self._seconds = Histogram(
            "outrider_request_seconds",
            "Time to answer, waiting for work included.",
            ["endpoint"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._tasks = Gauge("outrider_tasks", "Tasks of all crawls, by state.", ["state"], registry=registry)
        self._crawls = Gauge("outrider_crawls", "Crawls, by state.", ["state"], registry=registry)
        self._overdue = Gauge(
            "outrider_ready_age_seconds", "How long the longest waiting queue has been ready.", registry=registry
        )
        self._jobs = Gauge("outrider_jobs", "Jobs, by status.", ["status"], registry=registry)
        self._job_urls = Gauge(
            "outrider_job_urls",
            "URLs that live jobs have before them.",
            ["state"],
            registry=registry,
        )
        self._submitted = Counter("outrider_jobs_submitted", "Jobs submitted.", registry=registry)
        self._over_quota = Counter("outrider_jobs_over_quota", "Jobs refused, by quota.", ["quota"], registry=registry)
        self._recovered = Counter(
            "outrider_jobs_recovered",
            "Jobs taken from silent runners, by new status.",
            ["status"],
            registry=registry,
        )
        self._left = Counter(
            "outrider_jobs_left", "Jobs that this process has run, by how it left them.", ["status"], registry=registry
        )
        self._runner_failures = Counter(
            "outrider_runner_failures", "Runners that were no good, by kind of error.", ["kind"], registry=registry
        )
        self._domains = DomainMetrics(registry)
        self._read_at = -FRESH_S

    def added(self, results: Sequence[AddResult]) -> None:
        """Count discoveries."""
        for outcome, number in Tally(result.outcome for result in results).items():
            self._added.labels(outcome).inc(number)

    def leased(self, grant: LeaseGrant) -> None:
        """Count leases."""
        self._leased.inc(len(grant.leases))

    def reported(self, answers: Sequence[ReportAnswer]) -> None:
        """Count reports."""
        for verdict, number in Tally(answer.verdict for answer in answers).items():
            self._reported.labels(verdict).inc(number)

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def submitted(self) -> None:
        """Count a job."""
        self._submitted.inc()

    def over_quota(self, quota: Quota) -> None:
        """Count a job that a quota forbids."""
        self._over_quota.labels(quota).inc()

    def recovered(self, jobs: Sequence[Job]) -> None:
        """Count what a watchdog of this process has recovered."""
        for status, number in Tally(job.status for job in jobs).items():
            self._recovered.labels(status).inc(number)

    def left(self, status: str) -> None:
        """Count a job that a supervisor of this process has out of hand."""
        self._left.labels(status).inc()

    def runner_failed(self, kind: str) -> None:
        """Count a runner that was no good."""
        self._runner_failures.labels(kind).inc()

    async def exposition(self, stores: Stores) -> bytes:
        """Write all of it down for a scraper."""
        if time.monotonic() - self._read_at > FRESH_S:
            await self._read_jobs(stores.control)
            await self._read_crawls(stores.urls)
            await self._domains.read(stores.control)
            self._read_at = time.monotonic()
        return generate_latest(self._registry)

    async def _read_jobs(self, control: ControlStore) -> None:
        work = await control.pending_work()
        for status in JobStatus:
            self._jobs.labels(status).set(work.jobs.get(status, 0))
        self._job_urls.labels("pending").set(work.total_pending - work.total_assigned)
        self._job_urls.labels("assigned").set(work.total_assigned)

    async def _read_crawls(self, urls: UrlStore) -> None:
        crawls = await urls.list_crawls()
        totals: Tally[str] = Tally()
        earliest: int | None = None
        for crawl in crawls:
            outlook = await urls.outlook(crawl.name)
            for state in Counts.__struct_fields__:
                totals[state] += getattr(outlook.counts, state)
            ready = outlook.next_ready_at
            if ready is not None and crawl.state is CrawlState.RUNNING:
                earliest = ready if earliest is None else min(earliest, ready)
        for state in Counts.__struct_fields__:
            self._tasks.labels(state).set(totals[state])
        states = Tally(crawl.state for crawl in crawls)
        for crawl_state in CrawlState:
            self._crawls.labels(crawl_state).set(states[crawl_state])
        self._overdue.set(0 if earliest is None else max(time.time() - earliest / 1000, 0))
