"""The statements of domains' priorities in SQLite's dialect."""

from outrider.policy.domain_priority import Dialect, PriorityWeights, band_sql, score_sql
from outrider.store.sql.postgres.control import COLUMNS
from outrider.store.sql.script import Catalogue, Sql
from outrider.store.sql.sqlite.control import COUNTS_OF_DOMAIN, moment


def catalogue(weights: PriorityWeights) -> Catalogue:
    """Write the statements for these weights."""
    score = score_sql(Dialect.SQLITE, weights, now="?1", columns=COLUMNS)
    page = """page AS (SELECT id, domain FROM domains
                        WHERE domain IN (VALUES {rows}) AND status NOT IN ('blocked', 'unreachable'))"""
    return {
        "domains_by_id": Sql("SELECT id, domain FROM domains WHERE id > ?1 ORDER BY id LIMIT ?2"),
        "domains_of_run": Sql("""
            SELECT DISTINCT domain FROM run_counts WHERE run_id = ?1 AND domain > ?2 ORDER BY domain LIMIT ?3"""),
        "commit_at_leisure": Sql(""),
        # The time of the update is set here too: what sets it for others would write each row twice.
        "recalculate": Sql(f"""
            WITH {page}
            UPDATE domains
               SET priority_score = s.score, priority_computed_at = {moment(1)}, updated_at = {moment(1)},
                   image_yield_rate = s.image_yield_rate, avg_images_per_page = s.avg_images_per_page,
                   error_rate = s.error_rate
              FROM (SELECT d.id, {score} AS score, {COLUMNS.image_yield_rate} AS image_yield_rate,
                           {COLUMNS.avg_images_per_page} AS avg_images_per_page, {COLUMNS.error_rate} AS error_rate
                      FROM ({COUNTS_OF_DOMAIN}) n CROSS JOIN domains d ON d.id = n.id) AS s
             WHERE domains.id = s.id"""),
        "active_and_idle": Sql("""
            SELECT d.domain FROM domains d
             WHERE d.domain IN (VALUES {rows}) AND d.status = 'active'
               AND coalesce((SELECT sum(c.pending + c.assigned) FROM counts c
                              WHERE c.domain = d.domain AND c.key <> ''), 0) = 0"""),
        "move_gates": Sql(f"""
            UPDATE gates SET band = {band_sql("d.priority_score")}
              FROM domains AS d
             WHERE gates.domain IN (VALUES {{rows}}) AND d.domain = gates.domain AND NOT gates.own_band
               AND gates.band <> {band_sql("d.priority_score")}
            RETURNING domain, band"""),
        "move_queues_of_gates": Sql("""
            WITH w (domain, band) AS (VALUES {rows})
            UPDATE queues AS q SET band = w.band
              FROM w WHERE q.domain = w.domain AND q.priority IS NULL AND q.band <> w.band"""),
    }
