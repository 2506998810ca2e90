"""Quotas: what a key has already, counted while nobody else can add to it."""

from outrider.model.quota import JobQuota, Quota, QuotaExceeded
from outrider.store.sql.control.rows import moment_of
from outrider.store.sql.script import Call, Script

DAY_MS = 24 * 3_600_000


def lock(key_id: str | None, quota: JobQuota | None) -> Script[None]:
    """Have the jobs of a key counted by one transaction at a time, where there is something to count."""
    if key_id is not None and quota is not None:
        yield Call("lock_key_of_jobs", (key_id,))


def check_active(key_id: str | None, quota: JobQuota | None) -> Script[None]:
    """Refuse one more active job than a key may have."""
    if key_id is None or quota is None or quota.max_active_jobs is None:
        return
    rows = yield Call("active_jobs_of_key", (key_id,))
    if rows[0][0] >= quota.max_active_jobs:
        raise QuotaExceeded(Quota.ACTIVE_JOBS, quota.max_active_jobs)


def check_daily(key_id: str | None, quota: JobQuota | None, now: int) -> Script[None]:
    """Refuse one more job than a key may submit in a day; say when the earliest of them is a day old."""
    if key_id is None or quota is None or quota.max_jobs_per_day is None:
        return
    most = quota.max_jobs_per_day
    if most == 0:
        raise QuotaExceeded(Quota.JOBS_PER_DAY, most)
    rows = yield Call("daily_job_of_key", (key_id, now - DAY_MS, most - 1))
    if rows:
        raise QuotaExceeded(Quota.JOBS_PER_DAY, most, moment_of(int(rows[0][0]) + DAY_MS))
