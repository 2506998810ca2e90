"""What `ControlStore` on SQL does for those who look after domains: checks what comes in, and runs the scripts."""

from outrider.model.domain import Domain
from outrider.model.domain_view import DomainAudit, DomainCensus, DomainPage, DomainSort, LoggedPages, StepsTaken
from outrider.model.errors import InvalidInput, shown
from outrider.model.machines import DomainStatus
from outrider.model.task import MAX_BATCH
from outrider.model.url import canonical_domain
from outrider.store.checks import check_choice, check_moment, check_name, check_number, check_text
from outrider.store.sql.control import domain_listing, domain_merge, domain_orders
from outrider.store.sql.job_store import PAGE, SqlJobStore

OPERATOR = "operator"
LAST_NUMBER = 2**63 - 1


class SqlDomainCare(SqlJobStore):
    """Domains on an SQL engine, as an operator sees and changes them."""

    async def sorted_domains(
        self,
        status: DomainStatus | None = None,
        *,
        sort: DomainSort = DomainSort.NAME,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> DomainPage:
        """List domains page by page; a cursor is good for the order that it came from."""
        chosen = None if status is None else check_choice(status, "status", DomainStatus)
        order = check_choice(sort, "sort", DomainSort)
        check_text(cursor, "cursor")
        check_number(limit, "limit", 1, MAX_BATCH)
        return await self._engine.read(lambda: domain_listing.listed(chosen, order, cursor, limit))

    async def top_domains(self, limit: int = PAGE) -> list[Domain]:
        """List the domains with the most images per page: stored first, and among equals found."""
        check_number(limit, "limit", 1, MAX_BATCH)
        return await self._engine.read(lambda: domain_listing.top(limit))

    async def reset_domain(
        self, domain: str, *, reason: str | None = None, actor: str = OPERATOR, now: int | None = None
    ) -> Domain:
        """Make a domain pending with a clean slate and open its gate."""
        canonical = canonical_domain(domain)
        check_text(reason, "reason")
        check_name(actor, "actor")
        return await self._engine.write(lambda: domain_orders.reset(canonical, reason, actor, now))

    async def block_domain(
        self, domain: str, *, until: int | None = None, reason: str | None = None, now: int | None = None
    ) -> Domain:
        """Close a domain's gate to every crawl until a moment or for good, also before its first URL."""
        canonical = canonical_domain(domain)
        check_text(reason, "reason")
        if until is not None:
            check_moment(until, "until")
        return await self._engine.write(lambda: domain_orders.block(canonical, until, reason, now))

    async def unblock_domain(
        self, domain: str, *, reason: str | None = None, actor: str = OPERATOR, now: int | None = None
    ) -> Domain:
        """Open a domain's gate; a blocked one is active again, an unreachable one pending."""
        canonical = canonical_domain(domain)
        check_text(reason, "reason")
        check_name(actor, "actor")
        return await self._engine.write(lambda: domain_orders.unblock(canonical, reason, actor, now))

    async def merge_domain(self, name: str, into: str) -> Domain:
        """Merge a domain, named exactly as it is stored, into another: the row that is older is kept."""
        check_name(name, "name")
        check_name(into, "into")
        if canonical_domain(into) != into:
            raise InvalidInput(f"{shown(into)} is no domain to merge into: its name would be {canonical_domain(into)}")
        plan = await self._engine.write(lambda: domain_merge.plan(name, into))
        moved = 0
        while moved < plan.log_end:
            after, moved = moved, min(moved + domain_merge.MOVED_AT_ONCE, plan.log_end)
            await self._move_log(plan, after, moved)
        return await self._engine.write(lambda: domain_merge.join(name, into, moved))

    async def _move_log(self, plan: domain_merge.Merge, after: int, until: int) -> None:
        await self._engine.write(lambda: domain_merge.move_log(plan, after, until))

    async def domain_census(self, *, now: int | None = None) -> DomainCensus:
        """Count domains by status and reason, and claims."""
        return await self._engine.read(lambda: domain_listing.census(now))

    async def domain_steps_since(self, after: int | None, *, now: int | None = None) -> StepsTaken:
        """Count the steps of all domains' lives since another such look, a few seconds late; None begins now."""
        if after is not None:
            check_number(after, "after", 0, LAST_NUMBER)
        return await self._engine.read(lambda: domain_listing.steps_since(after, now))

    async def audit_domains(self, *, now: int | None = None) -> DomainAudit:
        """Count what does not fit together."""
        return await self._engine.read(lambda: domain_listing.audit(now))

    async def logged_pages(self, *, after: int, until: int) -> list[LoggedPages]:
        """Count pages by domain in a range of the log, the first number excluded."""
        check_number(after, "after", 0, LAST_NUMBER)
        check_number(until, "until", 0, LAST_NUMBER)
        return await self._engine.read(lambda: domain_listing.logged_pages(after, until))
