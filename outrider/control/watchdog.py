"""The watchdog: takes jobs from runners that fell silent. Any number may run at once; each job is found by one."""

import logging

from outrider.control.witness import Nobody, Witness
from outrider.model.job import Job, runner_name
from outrider.model.machines import JobStatus
from outrider.model.settings import Settings
from outrider.store.protocols import ControlStore

logger = logging.getLogger(__name__)


class Watchdog:
    """Looks for jobs that were not beaten for too long."""

    def __init__(self, control: ControlStore, settings: Settings, witness: Witness | None = None) -> None:
        self._control = control
        self._stale_after_ms = settings.stale_after_ms
        self._frees_claims = settings.enable_claim_protocol
        self._witness = witness or Nobody()

    async def look(self) -> list[Job]:
        """Recover what is stale now; give it as it was left."""
        recovered = await self._control.recover_stale_jobs(stale_after_ms=self._stale_after_ms)
        self._witness.recovered(recovered)
        for job in recovered:
            self._tell(job)
            if self._frees_claims:
                await self._control.release_all_claims(runner_name(job.id, job.epoch))
        return recovered

    def _tell(self, job: Job) -> None:
        told = {"job_id": job.id, "status": job.status.value}
        match job.status:
            case JobStatus.PENDING:
                logger.warning(
                    "Recovering stale job %s (Retry %d/%d)", job.id, job.retry_count, job.max_retries,
                    extra={"action": "recover_stale_job", **told},
                )  # fmt: skip
            case JobStatus.FAILED:
                logger.error("Job %s failed permanently", job.id, extra={"action": "fail_stale_job", **told})
            case _:
                logger.warning(
                    "Stale job %s is %s, as its user asked for", job.id, job.status,
                    extra={"action": "end_stale_job", **told},
                )  # fmt: skip
