"""The statements of domains' priorities in PostgreSQL's dialect. Nothing here waits for anybody."""

from outrider.policy.domain_priority import Dialect, PriorityWeights, band_sql, score_sql
from outrider.store.sql.postgres.control import COLUMNS, COUNTS_OF_DOMAIN, moment
from outrider.store.sql.script import Catalogue, Sql


def catalogue(weights: PriorityWeights) -> Catalogue:
    """Write the statements for these weights."""
    score = score_sql(Dialect.POSTGRES, weights, now="$1::bigint", columns=COLUMNS)
    return {
        "domains_by_id": Sql("SELECT id, domain FROM domains WHERE id > $1 ORDER BY id LIMIT $2"),
        "domains_of_run": Sql("""
            SELECT DISTINCT domain FROM run_counts WHERE run_id = $1 AND domain > $2 ORDER BY domain LIMIT $3"""),
        # Scores that a crash of the server takes away are worked out again; not to wait for its disk saves a tenth.
        "commit_at_leisure": Sql("SELECT set_config('synchronous_commit', 'off', true)"),
        # Whose row somebody holds is left as it is: a score is advice, and there will be a next time.
        "recalculate": Sql(f"""
            WITH locked AS MATERIALIZED (
                SELECT d.id FROM domains d
                 WHERE d.domain = ANY ($2::text[]) AND d.status NOT IN ('blocked', 'unreachable')
                   FOR NO KEY UPDATE SKIP LOCKED),
            scored AS MATERIALIZED (
                SELECT d.id, {score} AS score, {COLUMNS.image_yield_rate} AS image_yield_rate,
                       {COLUMNS.avg_images_per_page} AS avg_images_per_page, {COLUMNS.error_rate} AS error_rate,
                       d.status = 'active' AND n.open = 0 AS idle
                  FROM domains d CROSS JOIN LATERAL ({COUNTS_OF_DOMAIN}) n
                 WHERE d.id = ANY (ARRAY (SELECT id FROM locked))),
            updated AS (
                UPDATE domains d
                   SET priority_score = s.score, priority_computed_at = {moment(1)},
                       image_yield_rate = s.image_yield_rate, avg_images_per_page = s.avg_images_per_page,
                       error_rate = s.error_rate
                  FROM scored s WHERE d.id = s.id RETURNING d.domain, s.idle)
            SELECT domain FROM updated WHERE idle"""),
        "active_and_idle": Sql(""),
        "move_gates": Sql(f"""
            WITH moving AS MATERIALIZED (
                SELECT g.domain, {band_sql("d.priority_score")} AS band
                  FROM gates g JOIN domains d ON d.domain = g.domain
                 WHERE g.domain = ANY ($1::text[]) AND NOT g.own_band AND g.band <> {band_sql("d.priority_score")}
                   FOR UPDATE OF g SKIP LOCKED)
            UPDATE gates g SET band = m.band FROM moving m WHERE g.domain = m.domain RETURNING g.domain, g.band"""),
        "move_queues_of_gates": Sql("""
            WITH locked AS MATERIALIZED (
                SELECT q.crawl_id, q.key, w.band FROM unnest($1::text[], $2::smallint[]) AS w (domain, band)
                  JOIN queues q ON q.domain = w.domain
                 WHERE q.priority IS NULL AND q.band <> w.band FOR NO KEY UPDATE OF q SKIP LOCKED)
            UPDATE queues q SET band = l.band FROM locked l WHERE q.crawl_id = l.crawl_id AND q.key = l.key"""),
    }
