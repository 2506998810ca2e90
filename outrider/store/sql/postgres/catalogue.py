"""All statements in PostgreSQL's dialect."""

from outrider.policy.domain_priority import PriorityWeights
from outrider.store.sql.postgres import backfill, control, domain_care, lives, priorities, tending, urls
from outrider.store.sql.script import Catalogue


def catalogue(weights: PriorityWeights) -> Catalogue:
    """Put them together, those of priorities for these weights."""
    return {
        **urls.CATALOGUE,
        **control.CATALOGUE,
        **lives.CATALOGUE,
        **tending.CATALOGUE,
        **domain_care.CATALOGUE,
        **backfill.CATALOGUE,
        **priorities.catalogue(weights),
    }
