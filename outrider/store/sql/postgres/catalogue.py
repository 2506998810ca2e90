"""All statements in PostgreSQL's dialect."""

from outrider.policy.domain_priority import PriorityWeights
from outrider.store.sql.postgres import backfill, control, lives, priorities, urls
from outrider.store.sql.script import Catalogue


def catalogue(weights: PriorityWeights) -> Catalogue:
    """Put them together, those of priorities for these weights."""
    fixed = {**urls.CATALOGUE, **control.CATALOGUE, **lives.CATALOGUE, **backfill.CATALOGUE}
    return {**fixed, **priorities.catalogue(weights)}
