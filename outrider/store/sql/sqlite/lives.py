"""The statements of the lives of domains in SQLite's dialect."""

from outrider.store.sql.script import Catalogue, Sql
from outrider.store.sql.sqlite.control import NOW, moment

LIFE = """d.domain, d.id, d.status, d.version, d.block_count,
    CAST(round((julianday(d.next_crawl_after) - 2440587.5) * 86400000.0) AS INTEGER)"""

LIVES = Sql(f"SELECT {LIFE} FROM domains d WHERE d.domain IN (VALUES {{rows}})")

CATALOGUE: Catalogue = {
    "lock_lives": LIVES,
    "lives": LIVES,
    "lock_free_lives": LIVES,
    "lock_rested": Sql(f"""
        SELECT {LIFE} FROM domains d
         WHERE d.status IN ('blocked', 'unreachable') AND d.next_crawl_after <= {moment(1)}
         ORDER BY d.next_crawl_after LIMIT ?2"""),
    "lock_refreshable": Sql(f"""
        SELECT {LIFE} FROM domains d
         WHERE d.status = 'exhausted' AND d.next_crawl_after <= {moment(1)}
         ORDER BY d.next_crawl_after LIMIT ?2"""),
    "step_domains": Sql(f"""
        WITH w (domain, source, version, target, next_at, code, reason, run_id) AS (VALUES {{rows}})
        UPDATE domains AS d
           SET status = w.target, version = d.version + 1, updated_at = {NOW},
               next_crawl_after = strftime('%Y-%m-%dT%H:%M:%fZ', w.next_at / 1000.0, 'unixepoch'),
               block_reason_code = w.code,
               block_reason = iif(w.target IN ('blocked', 'unreachable'), w.reason, NULL),
               first_blocked_at = iif(w.target = 'blocked', coalesce(d.first_blocked_at, {moment(1)}),
                                      d.first_blocked_at),
               block_count = d.block_count + (w.target = 'blocked'),
               last_crawled_at = iif(w.target IN ('active', 'exhausted'), {moment(1)}, d.last_crawled_at),
               last_crawl_run_id = iif(w.target = 'active',
                                       coalesce((SELECT r.id FROM crawl_runs r WHERE r.id = w.run_id),
                                                d.last_crawl_run_id), d.last_crawl_run_id)
          FROM w WHERE d.domain = w.domain AND d.status = w.source AND d.version = w.version
        RETURNING domain"""),
    "insert_domain_history": Sql(f"""
        WITH w AS (VALUES {{rows}})
        INSERT INTO domain_history (domain_id, from_status, to_status, reason_code, reason, actor, run_id, version, at)
        SELECT *, {moment(1)} FROM w"""),
    "domain_history": Sql("""
        SELECT d.domain, h.history_id, h.from_status, h.to_status, h.reason_code, h.reason, h.actor, h.run_id, h.at,
               h.version
          FROM domains d CROSS JOIN domain_history h ON h.domain_id = d.id
         WHERE d.domain = ?1 AND h.history_id > ?2 ORDER BY h.history_id LIMIT ?3"""),
    "idle_queues": Sql("""
        WITH w (crawl_id, key) AS (VALUES {rows})
        SELECT w.key FROM w
         WHERE NOT EXISTS (SELECT 1 FROM tasks t INDEXED BY tasks_ready
                            WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.state = 1 AND t.delayed = 0)
           AND NOT EXISTS (SELECT 1 FROM tasks t INDEXED BY tasks_delayed
                            WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.state = 1 AND t.delayed = 1)"""),
    "idle_domains": Sql("""
        WITH w (domain) AS (VALUES {rows})
        SELECT w.domain FROM w
         WHERE coalesce((SELECT sum(c.pending + c.assigned) FROM counts c
                          WHERE c.domain = w.domain AND c.key <> ''), 0) = 0"""),
    "note_runs": Sql(f"""
        WITH w (domain, run_id) AS (VALUES {{rows}})
        UPDATE domains AS d SET last_crawled_at = {moment(1)}, last_crawl_run_id = r.id
          FROM w CROSS JOIN crawl_runs r ON r.id = w.run_id
         WHERE d.domain = w.domain AND d.last_crawl_run_id IS NOT r.id"""),
    "live_claims": Sql(f"""
        WITH w (domain, worker, version) AS (VALUES {{rows}})
        SELECT w.domain, w.worker, w.version FROM w CROSS JOIN domains d ON d.domain = w.domain
         WHERE d.claimed_by = w.worker AND d.claim_version = w.version AND d.claim_expires_at > {moment(1)}"""),
    "budgets_of_domains": Sql("""
        SELECT domain, max_pages_per_run FROM domains
         WHERE domain IN (VALUES {rows}) AND max_pages_per_run IS NOT NULL"""),
    "claimed_queues": Sql(f"""
        SELECT q.key, q.domain, q.delay_ms, q.blocked_until, q.page_limit, d.claim_version
          FROM domains d INDEXED BY domains_claims CROSS JOIN queues q INDEXED BY queues_domain ON q.domain = d.domain
         WHERE d.claimed_by = ?5 AND d.claim_expires_at > {moment(2)} AND q.crawl_id = ?1 AND q.ready_at <= ?2
           AND q.key NOT IN (SELECT value FROM json_each(?4))
         ORDER BY q.band, q.ready_at LIMIT ?3"""),
    "next_ready_at_claimed": Sql(f"""
        SELECT min(q.ready_at)
          FROM domains d INDEXED BY domains_claims CROSS JOIN queues q INDEXED BY queues_domain ON q.domain = d.domain
         CROSS JOIN crawls c ON c.crawl_id = q.crawl_id
         WHERE d.claimed_by = ?1 AND d.claim_expires_at > {moment(2)}
           AND iif(?3 IS NULL, c.state = 'running', c.crawl_id = ?3)"""),
    # What is counted of tasks that go away stays known of their domains.
    "keep_counts": Sql("""
        UPDATE domains AS d
           SET pages_discovered = d.pages_discovered + n.pages, pages_crawled = d.pages_crawled + n.pages,
               images_found = d.images_found + n.images, total_error_count = d.total_error_count + n.errors,
               crawl_depth_reached = max(d.crawl_depth_reached, n.depth)
          FROM (SELECT domain, coalesce(sum(completed) FILTER (WHERE kind = 0), 0) AS pages,
                       sum(images_found) AS images, sum(errors) AS errors, max(depth_reached) AS depth
                  FROM counts WHERE crawl_id = ?1 AND key <> '' AND (?2 IS NULL OR key = ?2) GROUP BY domain) AS n
         WHERE d.domain = n.domain AND (n.pages > 0 OR n.images > 0 OR n.errors > 0 OR n.depth > 0)"""),
    "keep_pages": Sql("""
        WITH w (domain, pages) AS (VALUES {rows})
        UPDATE domains AS d
           SET pages_discovered = d.pages_discovered + w.pages, pages_crawled = d.pages_crawled + w.pages
          FROM w WHERE d.domain = w.domain"""),
}
