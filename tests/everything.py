"""Every operation of the URL plane once, every one on jobs and on domains, with the answer that it must give."""

from outrider.model.artifact import Fetch
from outrider.model.backfill import BackfillKind, BackfillStep, DomainPast
from outrider.model.batch import KnownUrl, QueueChange, ServeRequest, UrlFilter
from outrider.model.domain import DomainChange, DomainSeed
from outrider.model.domain_view import DomainSort
from outrider.model.errors import JobConflict, JobUnfinished
from outrider.model.gate import GateSettings, Robots
from outrider.model.job import WEBHOOK_TOPIC, JobEnding, JobFilter, JobRequest, JobSort, RunKind, runner_name
from outrider.model.lease import Lease, LeaseRequest, Outcome, Renewal, Report, Verdict
from outrider.model.machines import DesiredState, DomainStatus, JobStatus, TaskState
from outrider.model.order import OrderLimits
from outrider.model.quota import JobQuota, QuotaExceeded
from outrider.model.task import Added, CrawlLimits, CrawlState, Discovered, Kind, QueueSettings, Restored, TaskFilter
from outrider.store.opening import Stores
from outrider.store.protocols import ControlStore, UrlStore

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
RUN_ID = "0190163d-8694-739b-aea5-966c26f8ad91"


async def use_every_operation(urls: UrlStore, name: str = "every") -> None:
    """Drive some crawls of one store through everything that it can do; clients with other names may too."""
    await _crawl(urls, name)
    await _politely(urls, f"{name}-polite")
    await _mixed(urls, f"{name}-mixed")
    await _in_batches(urls, f"{name}-batch")
    await _refreshed(urls, f"{name}-refreshed")
    assert await urls.delete_crawl(name) > 0
    assert {f"{name}-polite", f"{name}-mixed"} <= {crawl.name for crawl in await urls.list_crawls()}


def _done(lease: Lease, *links: Discovered) -> Report:
    fetch = Fetch(http_status=200, etag='"1"')
    return Report(token=lease.token, outcome=Outcome.DONE, fetch=fetch, links=list(links))


async def _crawl(urls: UrlStore, name: str) -> None:
    """A crawl without robots.txt and delays."""

    def site(number: int) -> str:
        return f"https://{name}{number}.example/"

    open_limits = CrawlLimits(delay_ms=0, concurrency=3, robots=False, max_depth=1)
    await urls.create_crawl(name, limits=open_limits, now=NOW)
    seeds = [Discovered(url=site(n), metadata={"n": n}) for n in range(5)]
    assert {result.outcome for result in await urls.add(name, seeds, now=NOW)} == {Added.NEW}
    assert {result.outcome for result in await urls.add(name, seeds, now=NOW)} == {Added.KNOWN}

    request = LeaseRequest(worker=name, request_id="1", slots=10, crawl=name, lease_ms=1000)
    leases = (await urls.lease(request, now=NOW)).leases
    assert (await urls.lease(request, now=NOW)).leases == leases
    assert sorted(lease.url for lease in leases) == [seed.url for seed in seeds]
    assert {str(lease.metadata) for lease in leases} == {str({"n": n}) for n in range(5)}
    first, second, third, fourth, fifth = (lease.token for lease in leases)

    links = [Discovered(url=site(7), depth=1), Discovered(url=site(8), depth=2)]
    reports = [
        _done(leases[0], *links),
        Report(token=second, outcome=Outcome.FAILED, reason="timeout"),
        Report(token=third, outcome=Outcome.REFUSED, reason="robots", block_code="robots_denied"),
    ]
    answers = await urls.report(reports, now=NOW + 1)
    assert [answer.verdict for answer in answers] == [Verdict.COMPLETED, Verdict.RETRY_AT, Verdict.FAILED]
    assert await urls.report(reports, now=NOW + 2) == answers
    assert await urls.renew([fourth, first], now=NOW + 2) == [Renewal.OK, Renewal.LEASE_LOST]
    assert await urls.renew([first]) == [Renewal.LEASE_LOST]
    assert await urls.release([fourth], now=NOW + 3) == [fourth]
    holder = await urls.find_holder(name, leases[4].url)
    assert holder is not None
    assert (holder.worker, holder.expires_at) == (name, NOW + 1000)
    assert await urls.find_holder(name, leases[0].url) is None
    assert await urls.reap(worker="somebody else", now=NOW + 4) == []
    assert await urls.reap(now=NOW + 1000) == [fifth]
    assert await urls.release(worker=name, now=NOW + 1000) == []

    counts = await urls.counts(name)
    assert (counts.discovered, counts.pending, counts.completed, counts.failed) == (1, 4, 1, 1)
    assert await urls.counts_by_kind(name) == {Kind.PAGE: counts}
    assert (await urls.counts(name, f"{name}8.example")).discovered == 1
    await urls.set_crawl_limits(name, CrawlLimits(delay_ms=0, robots=False))
    assert await urls.promote(name, now=NOW + 1000) == 1
    assert await urls.retry_failed(name, now=NOW + 1000) == 1
    task = await urls.find_task(name, site(0))
    assert task is not None
    assert task.state is TaskState.COMPLETED
    assert len((await urls.list_tasks(name, TaskFilter(state=TaskState.PENDING))).tasks) == 6
    assert len(await urls.list_queues(name)) == 7
    assert [artifact.outcome for artifact in await urls.artifacts(name)] == ["done", "failed", "refused"]
    (artifact,) = await urls.artifacts_of(name, site(0))
    assert (artifact.outcome, artifact.fetch) == ("done", Fetch(http_status=200, etag='"1"'))
    assert (await urls.artifact_horizon()).last_id >= artifact.artifact_id
    outlook = await urls.outlook(name)
    assert (outlook.counts, outlook.limited) == (await urls.counts(name), False)
    await urls.widen_scope(name, [site(9), site(9)])
    assert await urls.scope_roots(name) == [site(9)]
    assert (await urls.set_conduct(name, {"sitemaps": False})).conduct == {"sitemaps": False}
    await urls.set_crawl_state(name, CrawlState.PAUSED)
    assert (await urls.get_crawl(name)).state is CrawlState.PAUSED
    assert await urls.delete_queue(name, f"{name}7.example") == 1
    assert await urls.purge(name, before=NOW + 1, key=f"{name}1.example") == 1
    assert await urls.purge(name, before=NOW + 1, key=f"{name}0.example") == 1
    assert (await urls.counts(name)).total == 4


async def _politely(urls: UrlStore, name: str) -> None:
    """A crawl with robots.txt and every limit that there is."""
    domain = f"{name}.example"
    limits = CrawlLimits(delay_ms=1000, max_pages=100, max_pages_per_domain=50)
    await urls.create_crawl(name, limits=limits, now=NOW)
    gate = await urls.configure_gate(domain, GateSettings(concurrency=2, band=3), now=NOW)
    assert await urls.get_gate(domain) == gate
    await urls.configure_queue(name, domain, QueueSettings(page_limit=10), now=NOW)
    await urls.add(name, [Discovered(url=f"https://{domain}/{n}", due_in_ms=n) for n in range(3)], now=NOW)

    def request(number: int) -> LeaseRequest:
        return LeaseRequest(
            worker=name, request_id=str(number), slots=1, crawl=name, run_id=RUN_ID,
            scheduled=True, fair=True,
        )  # fmt: skip

    unclaimed = LeaseRequest(worker=name, request_id="0", slots=1, crawl=name, claims=True)
    assert (await urls.lease(unclaimed, now=NOW)).next_ready_at is None
    (robots,) = (await urls.lease(request(1), now=NOW)).leases
    assert robots.kind is Kind.ROBOTS
    said = Report(
        token=robots.token, outcome=Outcome.DONE, fetch=Fetch(http_status=200),
        robots=Robots(text="Crawl-delay: 2", expires_in_ms=HOUR_MS, crawl_delay_ms=2000),
    )  # fmt: skip
    assert [answer.verdict for answer in await urls.report([said], now=NOW + 10)] == [Verdict.COMPLETED]
    text = await urls.robots_text(domain)
    assert text is not None
    assert text[1] == "Crawl-delay: 2"
    assert not (await urls.lease(request(2), now=NOW + 999)).leases
    (page,) = (await urls.lease(request(3), now=NOW + 2000)).leases
    assert (page.kind, page.robots_version) == (Kind.PAGE, text[0])
    assert [answer.verdict for answer in await urls.report([_done(page)], now=NOW + 2010)] == [Verdict.COMPLETED]
    assert (await urls.lease(request(4), now=NOW + 2020)).next_ready_at == NOW + 4000
    (waiting,) = await urls.waiting_queues(name, after=NOW + 2020)
    assert (waiting.domain, waiting.ready_at, waiting.pending) == (domain, NOW + 4000, 2)
    await urls.configure_gate(domain, GateSettings(band=9), now=NOW)
    (robots,) = (await urls.lease(request(5), now=NOW + HOUR_MS + 10)).leases
    away = Robots(text="# unreachable: dns", expires_in_ms=HOUR_MS, unreachable=True)
    lost = Report(token=robots.token, outcome=Outcome.REFUSED, robots=away)
    assert [answer.verdict for answer in await urls.report([lost], now=NOW + HOUR_MS + 20)] == [Verdict.FAILED]
    assert (await urls.lease(request(6), now=NOW + HOUR_MS + 5000)).next_ready_at == NOW + 2 * HOUR_MS + 20
    assert await urls.retry_failed(name, now=NOW + HOUR_MS + 5000) == 1


async def _refreshed(urls: UrlStore, name: str) -> None:
    """A page that is fetched again, with a sitemap that tells of its change; the store may refresh or not."""
    page, sitemap = f"https://{name}.example/", f"https://{name}.example/sitemap.xml"
    await urls.create_crawl(name, limits=CrawlLimits(delay_ms=0, robots=False), now=NOW)
    for number, url in enumerate((page, sitemap)):
        kind = Kind.SITEMAP if number else Kind.PAGE
        await urls.add(name, [Discovered(url=url, kind=kind)], now=NOW + number)
        request = LeaseRequest(worker=name, request_id=str(number), slots=1, crawl=name)
        (lease,) = (await urls.lease(request, now=NOW + number)).leases
        links = [Discovered(url=page, changed_at=NOW + 1)] if number else []
        await urls.report([_done(lease, *links)], now=NOW + number)
    assert await urls.enrol(name) in (0, 2)
    assert await urls.is_refreshed(name)
    assert await urls.reopen(name, domain=f"{name}.example", everything=True, now=NOW + 1000) == 2
    assert await urls.reopen(name, now=NOW + 1000) == 0
    assert (await urls.counts(name)).pending == 2


async def _mixed(urls: UrlStore, name: str) -> None:
    """A queue that a client named for two domains, and a lease from whatever crawl is ready."""
    open_limits = CrawlLimits(delay_ms=0, concurrency=3, robots=False)
    await urls.create_crawl(name, limits=open_limits, now=NOW)
    items = [Discovered(url=f"https://{name}{n}.example/", key=name) for n in range(2)]
    await urls.add(name, items, now=NOW)
    (queue,) = await urls.list_queues(name)
    assert queue.domain is None
    other = f"{name}-other"
    await urls.create_crawl(other, limits=open_limits, now=NOW)
    await urls.add(other, [Discovered(url=items[0].url)], now=NOW)
    any_crawl = LeaseRequest(worker=name, request_id="any", slots=10_000)
    leased = [lease.url for lease in (await urls.lease(any_crawl, now=NOW)).leases if lease.url in str(items)]
    assert sorted(leased) == [item.url for item in items], "each URL once, over all crawls"
    assert len(await urls.release(worker=name, now=NOW + 1)) >= 2


async def _in_batches(urls: UrlStore, name: str) -> None:
    """What URLFrontier's clients do: take batches, and say what they know."""
    await urls.create_crawl(name, limits=CrawlLimits(delay_ms=1000, robots=False), now=NOW)
    key, other = f"{name}.example", f"{name}-other.example"
    pages = [f"https://{key}/{n}" for n in range(3)]
    await urls.change_queue(name, key, QueueChange(page_limit=5), now=NOW)
    await urls.add(name, [Discovered(url=pages[0], metadata={"n": ["0"]}), Discovered(url=pages[1])], now=NOW)
    known = [
        KnownUrl(url=pages[2], due_at=5_000, metadata={"n": ["2"]}),
        KnownUrl(url=f"https://{other}/", due_at=NOW + HOUR_MS),
        KnownUrl(url=f"https://{other}/done", due_at=None),
    ]
    assert {result.outcome for result in await urls.put_known(name, known, now=NOW)} == {Added.NEW}

    request = ServeRequest(crawl=name, max_urls_per_queue=2, max_queues=5)
    await urls.set_active(False, now=NOW)
    assert not await urls.is_active()
    assert await urls.serve(request, now=NOW) == []
    await urls.set_active(True, now=NOW)
    served = await urls.serve(request, now=NOW)
    assert [(each.url, each.metadata) for each in served] == [(pages[2], {"n": ["2"]}), (pages[0], {"n": ["0"]})]
    of_queue = ServeRequest(key=key, max_urls=1)
    assert await urls.serve(of_queue, now=NOW + 999) == []
    assert [each.url for each in await urls.serve(of_queue, now=NOW + 1000)] == [pages[1]]
    assert await urls.serve(ServeRequest(crawl=name, key=other, max_urls_per_queue=2), now=NOW) == []

    assert (await urls.statistics(name, key, now=NOW + 1000)).in_process == 3
    await urls.put_known(name, [KnownUrl(url=pages[0], due_at=None), KnownUrl(url=pages[2], due_at=9_000)], now=NOW)
    assert len(await urls.reap(now=NOW + HOUR_MS)) >= 1
    found = await urls.find_url(name, pages[2])
    assert found is not None
    assert (found.due_at, found.metadata) == (9_000, None)
    statistics = await urls.statistics(name, now=NOW + HOUR_MS)
    assert (statistics.counts.pending, statistics.counts.completed, statistics.in_process) == (3, 2, 0)
    assert (statistics.queues, statistics.active_queues) == (2, 2)
    assert (await urls.queue_names(name, start=1, size=5, now=NOW)).keys == [key]
    assert len((await urls.list_urls(name, UrlFilter(key=key))).urls) == 3
    assert await urls.count_urls(name, UrlFilter(contains="/DONE", ignore_case=True)) == 1
    restored = Restored(url=f"https://{other}/old", state=TaskState.FAILED, reason="gone", metadata={"n": ["3"]})
    assert {result.outcome for result in await urls.restore(name, [restored], now=NOW)} == {Added.NEW}
    (failed,) = (await urls.list_tasks(name, TaskFilter(state=TaskState.FAILED))).tasks
    assert (failed.reason, failed.metadata) == ("gone", {"n": ["3"]})


async def use_every_job_operation(stores: Stores, name: str = "jobs") -> None:
    """Drive some jobs of one store through everything that can be done with them."""
    urls, control = stores.urls, stores.control
    limits = CrawlLimits(delay_ms=0, concurrency=3, robots=False, max_depth=0, max_pages=5)
    await urls.create_crawl(name, limits=limits, now=NOW)
    pages = [Discovered(url=f"https://{name}.example/{n}", depth=n // 2) for n in range(4)]
    await urls.add(name, pages, now=NOW)
    quota = JobQuota(max_active_jobs=9, max_jobs_per_day=9)
    request = JobRequest(
        payload={"seeds": []}, crawl=name, labels={"n": "1"}, key_id=name, idempotency_key=name,
        webhook_url="https://hooks.example/",
    )  # fmt: skip
    job = await control.submit_job(request, quota=quota, now=NOW)
    assert await control.submit_job(request, quota=quota, now=NOW) == job
    await _refused_twice(control, name)
    for sort in JobSort:
        assert (await control.list_jobs(JobFilter(label=("n", "1")), sort=sort)).jobs == [job]
    await control.set_desired_state(job.id, DesiredState.PAUSE, now=NOW)
    await control.set_desired_state(job.id, DesiredState.RUN, now=NOW)
    claimed = await control.claim_job(name, now=NOW)
    assert claimed is not None
    assert claimed.id == job.id
    assert await control.beat_job(job.id, 1, percentage=1, progress={}, now=NOW) is DesiredState.RUN
    assert await control.desired_states([(job.id, 1)]) == {job.id: DesiredState.RUN}
    assert await control.forget_tasks(job.id, 1, now=NOW) == 4
    await urls.add(name, pages, now=NOW)
    run = await control.open_run(name, RunKind.JOB, job_id=job.id, epoch=1, now=NOW)
    assert (await control.open_run(name, RunKind.JOB, job_id=job.id, epoch=1, now=NOW)).id == run.id
    assert await _lease_as(runner_name(job.id, 1), urls, name) == 2
    try:
        await control.finish_job(job.id, 1, JobEnding(outcome=JobStatus.COMPLETED), now=NOW)
    except JobUnfinished:
        pass
    else:
        raise AssertionError("two pages are in flight")
    await control.amend_job(job.id, priority=1, limits=OrderLimits(max_depth=1), now=NOW)
    work = await control.pending_work()
    assert (work.total_pending, work.total_assigned, work.jobs[JobStatus.PROCESSING]) == (4, 2, 1)
    [recovered] = await control.recover_stale_jobs(now=NOW + HOUR_MS)
    assert recovered.status is JobStatus.PENDING
    assert await control.claim_job(name, now=NOW + HOUR_MS) is not None
    failed = await control.finish_job(job.id, 2, JobEnding(outcome=JobStatus.FAILED), now=NOW)
    assert await control.finish_job(job.id, 2, JobEnding(outcome=JobStatus.FAILED), now=NOW) == failed
    await control.retry_job(job.id, fresh=True, quota=quota, now=NOW)
    assert await control.claim_job(name, now=NOW) is not None
    assert await _lease_as("joined", urls, name, NOW + HOUR_MS) > 0
    await control.set_desired_state(job.id, DesiredState.CANCEL, now=NOW)
    ended = await control.finish_job(job.id, 3, JobEnding(outcome=JobStatus.CANCELLED), now=NOW)
    assert await control.get_job(job.id) == ended
    assert [event.to_status for event in await control.job_events(job.id, after=0)][-1] is JobStatus.CANCELLED
    assert (await control.job_counts())[JobStatus.CANCELLED] == 1
    assert len(await control.take_messages(WEBHOOK_TOPIC, now=NOW + HOUR_MS)) == 2
    assert await control.job_news(0) is False


async def _refused_twice(control: ControlStore, name: str) -> None:
    """A second job on the crawl, and one past the quota."""
    for quota, error in ((None, JobConflict), (JobQuota(max_jobs_per_day=1), QuotaExceeded)):
        try:
            await control.submit_job(JobRequest(payload={}, crawl=name, key_id=name), quota=quota, now=NOW)
        except error:
            continue
        raise AssertionError(f"{error.__name__} was to be raised")


async def _lease_as(worker: str, urls: UrlStore, name: str, now: int = NOW) -> int:
    request = LeaseRequest(worker=worker, request_id=worker, slots=9, crawl=name, lease_ms=2 * HOUR_MS)
    return len((await urls.lease(request, now=now)).leases)


async def use_every_domain_operation(stores: Stores, name: str = "domains") -> None:
    """Drive some domains of one store through everything that those who look after them can do."""
    control = stores.control
    kept, merged = f"{name}.example", f"{name}-merged.example"
    await control.remember_domains([DomainSeed(domain=kept), DomainSeed(domain=merged)], now=NOW)
    for sort in DomainSort:
        assert len((await control.sorted_domains(sort=sort)).domains) >= 2
    assert await control.top_domains() == []
    assert (await control.block_domain(kept, until=NOW + HOUR_MS, reason="wait", now=NOW)).block_reason == "wait"
    assert (await control.unblock_domain(kept, now=NOW)).block_reason is None
    found = await control.get_domain(kept)
    assert found is not None
    away = DomainChange(source=found.status, target=DomainStatus.UNREACHABLE, expected_version=found.version)
    await control.transition_domain(kept, away, now=NOW)
    assert (await control.reset_domain(kept, reason="again", now=NOW)).block_count == 0
    assert (await control.merge_domain(merged, kept)).domain == kept
    assert await control.get_domain(merged) is None
    assert sum((await control.domain_census(now=NOW)).by_status.values()) >= 1
    began = (await control.domain_steps_since(None)).last_id
    assert (await control.domain_steps_since(max(began - 1, 0), now=NOW + HOUR_MS)).last_id >= began
    assert (await control.audit_domains(now=NOW)).without_gate == 0
    assert await control.logged_pages(after=0, until=1) == []


async def use_every_backfill_operation(stores: Stores, name: str = "backfill") -> None:
    """Take over the past of some domains, twice."""
    control = stores.control
    await control.begin_backfill(name, "a crawl log", BackfillKind.CRAWL_LOG, now=NOW)
    pasts = [
        DomainPast(domain=f"{name}.example", pages_discovered=2, pages_crawled=2, images_stored=1, last_crawled_at=NOW),
        DomainPast(domain=f"{name}-blocked.example", pages_discovered=1, total_error_count=1, first_seen_at=NOW - 1),
    ]
    assert await control.preview_backfill(name, pasts) == BackfillStep(new=2)
    assert await control.backfill_domains(name, pasts, now=NOW) == BackfillStep(new=2)
    assert await control.backfill_domains(name, pasts, now=NOW) == BackfillStep(unchanged=2)
    noted = await control.note_backfill(name, position=None, rows_read=3, rows_refused=0, finished=True, now=NOW)
    assert await control.get_backfill(name) == noted
    assert noted in await control.list_backfills()
    assert (await control.backfill_figures()).backfilled_domains >= 2


async def use_every_step_of_domains(stores: Stores, name: str = "lives") -> None:
    """Drive some domains of one store through everything that their lives and priorities are made of."""
    urls, control = stores.urls, stores.control
    await urls.create_crawl(name, limits=CrawlLimits(delay_ms=0, concurrency=3, robots=False), now=NOW)
    await urls.add(name, [Discovered(url=f"https://{name}{n}.example/") for n in range(2)], now=NOW)
    run = await control.open_run(name, RunKind.CRAWL, now=NOW)
    assert len(await control.claim_domains(name, 2, now=NOW)) == 2
    request = LeaseRequest(worker=name, request_id="1", slots=2, crawl=name, run_id=run.id, claims=True)
    first, second = (await urls.lease(request, now=NOW)).leases
    refused = Report(token=second.token, outcome=Outcome.REFUSED, block_code="robots_denied")
    answers = await urls.report([_done(first), refused], now=NOW + 1)
    assert [answer.verdict for answer in answers] == [Verdict.COMPLETED, Verdict.FAILED]
    assert [step.to_status for step in await control.domain_history(second.domain)] == ["active", "blocked"]
    assert await control.recalculate_run(run.id, now=NOW + 2) == 1
    assert (await control.recalculate_priorities(now=NOW + 3)).after is None
    assert await control.wake_domains(now=NOW + 365 * 24 * HOUR_MS) == 2
