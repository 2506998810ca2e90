"""The statements of the lives of domains in PostgreSQL's dialect."""

from outrider.store.sql.postgres.control import moment
from outrider.store.sql.script import Catalogue, Sql

LIFE = """d.domain, d.id, d.status, d.version, d.block_count,
    (extract(epoch FROM d.next_crawl_after) * 1000)::bigint"""


def later(number: str) -> str:
    """Read a column as milliseconds, as `moment` reads a parameter."""
    return (
        f"('epoch'::timestamptz + ({number} / 1000) * interval '1 second'"
        f" + ({number} % 1000) * interval '1 millisecond')"
    )


def rested(condition: str) -> str:
    """Write the statement that locks domains whose time has come.

    Their gates as well, which a step writes to; and without waiting, since the order is not that of the names.
    """
    return f"""
        WITH due AS (
            SELECT id FROM domains WHERE {condition} AND next_crawl_after <= {moment(1)}
             ORDER BY next_crawl_after LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
        SELECT {LIFE} FROM domains d JOIN gates g ON g.domain = d.domain
         WHERE d.id = ANY (ARRAY (SELECT id FROM due)) FOR UPDATE OF g SKIP LOCKED"""


CATALOGUE: Catalogue = {
    "lock_lives": Sql(f"""
        SELECT {LIFE} FROM domains d WHERE d.domain = ANY ($1::text[]) ORDER BY d.domain FOR NO KEY UPDATE"""),
    "lives": Sql(f"SELECT {LIFE} FROM domains d WHERE d.domain = ANY ($1::text[])"),
    "lock_free_lives": Sql(f"""
        SELECT {LIFE} FROM domains d WHERE d.domain = ANY ($1::text[]) FOR NO KEY UPDATE SKIP LOCKED"""),
    "lock_rested": Sql(rested("status IN ('blocked', 'unreachable')")),
    "lock_refreshable": Sql(rested("status = 'exhausted'")),
    "step_domains": Sql(f"""
        UPDATE domains d
           SET status = w.target::domain_status, version = d.version + 1, next_crawl_after = {later("w.next_at")},
               block_reason_code = w.code,
               block_reason = CASE WHEN w.target IN ('blocked', 'unreachable') THEN w.reason END,
               first_blocked_at = CASE WHEN w.target = 'blocked' THEN coalesce(d.first_blocked_at, {moment(1)})
                                       ELSE d.first_blocked_at END,
               block_count = d.block_count + CASE WHEN w.target = 'blocked' THEN 1 ELSE 0 END,
               last_crawled_at = CASE WHEN w.target IN ('active', 'exhausted') THEN {moment(1)}
                                      ELSE d.last_crawled_at END,
               last_crawl_run_id = CASE WHEN w.target = 'active'
                                        THEN coalesce((SELECT r.id FROM crawl_runs r WHERE r.id = w.run_id),
                                                      d.last_crawl_run_id)
                                        ELSE d.last_crawl_run_id END
          FROM unnest($2::text[], $3::text[], $4::int[], $5::text[], $6::bigint[], $7::text[], $8::text[],
                      $9::uuid[]) AS w (domain, source, version, target, next_at, code, reason, run_id)
         WHERE d.domain = w.domain AND d.status = w.source::domain_status AND d.version = w.version
        RETURNING d.domain"""),
    "insert_domain_history": Sql(f"""
        INSERT INTO domain_history (domain_id, from_status, to_status, reason_code, reason, actor, run_id, version, at)
        SELECT w.*, {moment(1)} FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                                            $8::uuid[], $9::int[]) AS w"""),
    "domain_history": Sql("""
        SELECT $1, h.history_id, h.from_status, h.to_status, h.reason_code, h.reason, h.actor,
               CAST(h.run_id AS text), h.at, h.version
          FROM domain_history h
         WHERE h.domain_id = (SELECT id FROM domains WHERE domain = $1) AND h.history_id > $2
         ORDER BY h.history_id LIMIT $3"""),
    # Each as a subquery of its own: as anti-joins they would be planned as a walk over all tasks that wait.
    "idle_queues": Sql("""
        SELECT w.key FROM unnest($1::int[], $2::text[]) AS w (crawl_id, key)
         WHERE (SELECT true FROM tasks t
                 WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.state = 1 AND NOT t.delayed LIMIT 1) IS NULL
           AND (SELECT true FROM tasks t
                 WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.state = 1 AND t.delayed LIMIT 1) IS NULL"""),
    "idle_domains": Sql("""
        SELECT w.domain FROM unnest($1::text[]) AS w (domain)
         WHERE coalesce((SELECT sum(c.pending + c.assigned) FROM counts c
                          WHERE c.domain = w.domain AND c.key <> ''), 0) = 0"""),
    "note_runs": Sql(f"""
        UPDATE domains d SET last_crawled_at = {moment(1)}, last_crawl_run_id = r.id
          FROM unnest($2::text[], $3::uuid[]) AS w (domain, run_id) JOIN crawl_runs r ON r.id = w.run_id
         WHERE d.domain = w.domain AND d.last_crawl_run_id IS DISTINCT FROM r.id"""),
    "live_claims": Sql(f"""
        SELECT w.domain, w.worker, w.version
          FROM unnest($2::text[], $3::text[], $4::int[]) AS w (domain, worker, version)
          JOIN domains d ON d.domain = w.domain
         WHERE d.claimed_by = w.worker AND d.claim_version = w.version AND d.claim_expires_at > {moment(1)}"""),
    "budgets_of_domains": Sql("""
        SELECT domain, max_pages_per_run FROM domains
         WHERE domain = ANY ($1::text[]) AND max_pages_per_run IS NOT NULL"""),
    "claimed_queues": Sql(f"""
        SELECT q.key, q.domain, q.delay_ms, q.blocked_until, q.page_limit, d.claim_version
          FROM domains d JOIN queues q ON q.domain = d.domain
         WHERE d.claimed_by = $5 AND d.claim_expires_at > {moment(2)} AND q.crawl_id = $1 AND q.ready_at <= $2
           AND q.key <> ALL ($4::text[])
         ORDER BY q.band, q.ready_at LIMIT $3 FOR NO KEY UPDATE OF q SKIP LOCKED"""),
    "next_ready_at_claimed": Sql(f"""
        SELECT min(q.ready_at) FROM domains d JOIN queues q ON q.domain = d.domain
          JOIN crawls c ON c.crawl_id = q.crawl_id
         WHERE d.claimed_by = $1 AND d.claim_expires_at > {moment(2)}
           AND CASE WHEN $3::int IS NULL THEN c.state = 'running' ELSE c.crawl_id = $3 END"""),
    # What is counted of tasks that go away stays known of their domains.
    "keep_counts": Sql("""
        WITH n AS MATERIALIZED (
            SELECT domain, coalesce(sum(completed) FILTER (WHERE kind = 0), 0) AS pages, sum(images_found) AS images,
                   sum(errors) AS errors, max(depth_reached) AS depth
              FROM counts WHERE crawl_id = $1 AND key <> '' AND ($2::text IS NULL OR key = $2) GROUP BY domain),
        locked AS (
            SELECT d.id, n.* FROM n JOIN domains d ON d.domain = n.domain
             WHERE n.pages > 0 OR n.images > 0 OR n.errors > 0 OR n.depth > 0
             ORDER BY d.domain FOR NO KEY UPDATE OF d)
        UPDATE domains d
           SET pages_discovered = d.pages_discovered + n.pages, pages_crawled = d.pages_crawled + n.pages,
               images_found = d.images_found + n.images, total_error_count = d.total_error_count + n.errors,
               crawl_depth_reached = greatest(d.crawl_depth_reached, n.depth)
          FROM locked n WHERE d.id = n.id"""),
    "keep_pages": Sql("""
        WITH locked AS (
            SELECT d.id, w.pages FROM unnest($1::text[], $2::bigint[]) AS w (domain, pages)
              JOIN domains d ON d.domain = w.domain ORDER BY d.domain FOR NO KEY UPDATE OF d)
        UPDATE domains d SET pages_discovered = d.pages_discovered + w.pages, pages_crawled = d.pages_crawled + w.pages
          FROM locked w WHERE d.id = w.id"""),
}
