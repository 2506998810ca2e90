"""The statements of those who look after domains, in SQLite's dialect."""

from outrider.store.sql.script import Catalogue, Sql
from outrider.store.sql.sqlite.control import COUNTS_OF_DOMAIN, DOMAIN, moment

CRAWLED_MS = "CAST(strftime('%s', last_crawled_at) AS integer) * 1000 + CAST(substr(last_crawled_at, 21, 3) AS integer)"

ORDERS = {
    "priority": ("priority_score", "priority_score", "?2"),
    "yield": ("image_yield_rate", "image_yield_rate", "?2"),
    "crawled": ("last_crawled_at", CRAWLED_MS, moment(2)),
}
"""For each order the column that has an index, what of it a cursor keeps, and the same as the statement gets it."""


def ranked(column: str, kept: str, rank: str) -> str:
    """Write the statement that chooses domains by falling rank, and by id among equals."""
    return f"""
        SELECT domain, id, {kept} FROM domains
         WHERE (?1 IS NULL OR status = ?1)
           AND {column} <= {rank} AND ({column} < {rank} OR id > ?3)
         ORDER BY {column} DESC, id LIMIT ?4"""


def without_rank(column: str) -> str:
    """Write the statement that chooses domains that have no rank, by id."""
    return f"""
        SELECT domain, id, NULL FROM domains
         WHERE {column} IS NULL AND (?1 IS NULL OR status = ?1) AND id > ?2
         ORDER BY id LIMIT ?3"""


def either(which: str, column: str) -> str:
    """Choose the smaller or greater of two values, or the one that there is: SQLite makes nothing of the two then."""
    return f"coalesce({which}(k.{column}, o.{column}), k.{column}, o.{column})"


CATALOGUE: Catalogue = {
    # --------------------------------------------------------------- listing
    **{f"domains_by_{sort}": Sql(ranked(*order)) for sort, order in ORDERS.items()},
    "domains_without_yield": Sql(without_rank("image_yield_rate")),
    "domains_without_crawled": Sql(without_rank("last_crawled_at")),
    "domains_named": Sql(f"""
        WITH w (domain) AS (VALUES {{rows}}),
             page AS (SELECT d.id, d.domain FROM w CROSS JOIN domains d ON d.domain = w.domain)
        SELECT {DOMAIN} FROM ({COUNTS_OF_DOMAIN}) n JOIN domains d ON d.id = n.id"""),
    "top_domains": Sql("""
        SELECT domain FROM domains WHERE image_yield_rate IS NOT NULL
         ORDER BY image_yield_rate DESC, avg_images_per_page DESC NULLS LAST, id LIMIT ?1"""),
    # --------------------------------------------------------------- numbers
    "domain_counts": Sql("SELECT status, count(*) FROM domains GROUP BY status"),
    "blocked_counts": Sql("""
        SELECT coalesce(block_reason_code, ''), count(*) FROM domains
         WHERE status IN ('blocked', 'unreachable') GROUP BY block_reason_code"""),
    "claim_counts": Sql(f"""
        SELECT count(*) FILTER (WHERE claim_expires_at > {moment(1)}),
               count(*) FILTER (WHERE claim_expires_at <= {moment(1)})
          FROM domains WHERE claimed_by IS NOT NULL"""),
    "last_step": Sql("SELECT coalesce(max(history_id), 0) FROM domain_history"),
    "last_settled_step": Sql(f"""
        SELECT coalesce((SELECT min(history_id) - 1 FROM domain_history WHERE history_id > ?1 AND at > {moment(2)}),
                        (SELECT max(history_id) FROM domain_history), 0)"""),
    "step_counts": Sql("""
        SELECT from_status, to_status, reason_code, count(*) FROM domain_history
         WHERE history_id > ?1 AND history_id <= ?2 GROUP BY from_status, to_status, reason_code"""),
    # ---------------------------------------------------------------- audits
    "audit_gates": Sql(f"""
        SELECT count(*) FILTER (WHERE g.domain IS NULL), count(*) FILTER (WHERE g.status <> d.status),
               count(*) FILTER (WHERE d.status IN ('blocked', 'unreachable') AND d.next_crawl_after > {moment(1)}
                                  AND g.blocked_until < CAST(strftime('%s', d.next_crawl_after) AS integer) * 1000)
          FROM domains d LEFT JOIN gates g ON g.domain = d.domain"""),
    "audit_counted": Sql("""
        SELECT count(DISTINCT c.domain) FROM counts c
         WHERE c.key <> '' AND c.discovered + c.pending + c.assigned + c.completed + c.failed > 0
           AND NOT EXISTS (SELECT 1 FROM domains d WHERE d.domain = c.domain)"""),
    "audit_exhausted": Sql("""
        SELECT count(*) FROM domains WHERE status = 'exhausted' AND next_crawl_after IS NULL"""),
    "audit_claims": Sql(f"""
        SELECT count(*) FROM domains d
         WHERE d.claimed_by IS NOT NULL AND d.claim_expires_at > {moment(1)}
           AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.worker_id = d.claimed_by AND w.expires_at > {moment(1)})"""),
    "audit_fetched_twice": Sql("""
        SELECT count(*) FROM (
            SELECT 1 FROM crawl_log
             WHERE artifact_id > (SELECT max(artifact_id) FROM crawl_log) - ?1
               AND kind = 0 AND verdict = 'completed' AND discovery_type <> 5 AND run_id IS NOT NULL
             GROUP BY run_id, crawl, url_hash HAVING count(*) > 1) twice"""),
    "audit_steps": Sql("""
        SELECT from_status, to_status, count(*) FROM domain_history
         WHERE history_id > (SELECT max(history_id) FROM domain_history) - ?1
         GROUP BY from_status, to_status"""),
    "logged_pages": Sql("""
        SELECT domain, count(*) FILTER (WHERE kind = 0 AND verdict = 'completed' AND discovery_type <> 5),
               count(*) FILTER (WHERE discovery_type = 5)
          FROM crawl_log WHERE artifact_id > ?1 AND artifact_id <= ?2 GROUP BY domain"""),
    # ---------------------------------------------------------------- orders
    "forgive_gate": Sql("UPDATE gates SET errors_in_row = 0 WHERE domain = ?1 AND errors_in_row <> 0"),
    "forgive_domain": Sql("""
        UPDATE domains
           SET block_reason = NULL, block_reason_code = NULL, consecutive_error_count = 0,
               next_crawl_after = CASE WHEN status IN ('pending', 'active') THEN NULL ELSE next_crawl_after END,
               block_count = CASE WHEN ?2 THEN 0 ELSE block_count END,
               first_blocked_at = CASE WHEN ?2 THEN NULL ELSE first_blocked_at END,
               version = version + 1, claimed_by = NULL, claim_expires_at = NULL, claim_version = NULL
         WHERE domain = ?1"""),
    "note_block": Sql("""
        UPDATE domains
           SET block_reason = ?2, block_reason_code = ?3,
               version = version + 1, claimed_by = NULL, claim_expires_at = NULL, claim_version = NULL
         WHERE domain = ?1"""),
    # ----------------------------------------------------------------- merge
    "tasks_of_domain": Sql("""
        SELECT coalesce(sum(discovered + pending + assigned + completed + failed), 0) FROM counts
         WHERE domain = ?1 AND key <> ''"""),
    "log_end": Sql("SELECT coalesce(max(artifact_id), 0) FROM crawl_log"),
    "move_log": Sql("""
        UPDATE crawl_log SET domain = ?2, domain_id = ?3
         WHERE artifact_id > ?4 AND artifact_id <= ?5
           AND (domain = ?1 OR (domain = ?2 AND domain_id IS NOT ?3))"""),
    "sum_domains": Sql(f"""
        UPDATE domains AS k
           SET status = t.status, block_reason = t.block_reason, block_reason_code = t.block_reason_code,
               first_blocked_at = {either("min", "first_blocked_at")},
               block_count = k.block_count + o.block_count,
               claimed_by = NULL, claim_expires_at = NULL, claim_version = NULL,
               version = max(k.version, o.version) + 1,
               pages_discovered = k.pages_discovered + o.pages_discovered,
               pages_crawled = k.pages_crawled + o.pages_crawled,
               images_found = k.images_found + o.images_found, images_stored = k.images_stored + o.images_stored,
               total_error_count = k.total_error_count + o.total_error_count,
               consecutive_error_count = t.consecutive_error_count,
               crawl_depth_reached = max(k.crawl_depth_reached, o.crawl_depth_reached),
               max_pages_per_run = t.max_pages_per_run,
               image_yield_rate = NULL, avg_images_per_page = NULL, error_rate = NULL,
               priority_score = t.priority_score, priority_computed_at = NULL,
               seed_rank = {either("min", "seed_rank")}, source = coalesce(k.source, o.source),
               last_crawled_at = {either("max", "last_crawled_at")},
               last_crawl_run_id = CASE WHEN coalesce(o.last_crawled_at > k.last_crawled_at, k.last_crawled_at IS NULL)
                                        THEN o.last_crawl_run_id ELSE k.last_crawl_run_id END,
               next_crawl_after = t.next_crawl_after, woken_for = t.woken_for,
               frontier_updated_at = {either("max", "frontier_updated_at")}
          FROM domains o, domains t
         WHERE k.id = ?1 AND o.id = ?2 AND t.id = ?3"""),
    "move_domain_history": Sql("UPDATE domain_history SET domain_id = ?2 WHERE domain_id = ?1"),
    "drop_domain": Sql("DELETE FROM domains WHERE id = ?1"),
    "rename_domain": Sql("""
        UPDATE domains SET domain = ?2, parent_domain = ?3 WHERE id = ?1 AND domain <> ?2"""),
    "join_gates": Sql("""
        UPDATE gates
           SET domain_id = ?3,
               next_fetch_at = max(next_fetch_at, coalesce((SELECT next_fetch_at FROM gates WHERE domain = ?1), 0)),
               quiet_until = max(quiet_until, coalesce((SELECT quiet_until FROM gates WHERE domain = ?1), 0))
         WHERE domain = ?2"""),
    "move_queues_of_domain": Sql("UPDATE queues SET domain = ?2 WHERE domain = ?1"),
    "drop_gate": Sql("DELETE FROM gates WHERE domain = ?1"),
    "drop_robots": Sql("DELETE FROM robots WHERE domain = ?1"),
}
