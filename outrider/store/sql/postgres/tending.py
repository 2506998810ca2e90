"""The statements that tend claims, in PostgreSQL's dialect.

None of them waits: a row that somebody holds is looked at again the next time.
"""

from outrider.store.sql.postgres.control import moment
from outrider.store.sql.script import Catalogue, Sql

CATALOGUE: Catalogue = {
    "release_idle_claims": Sql(f"""
        WITH idle AS (
            SELECT d.id FROM domains d
             WHERE d.claimed_by = $1 AND d.claim_expires_at > {moment(3)}
               AND NOT EXISTS (SELECT 1 FROM queues q
                                WHERE q.domain = d.domain AND q.crawl_id = $2 AND q.ready_at <= $4)
               AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.domain = d.domain AND l.worker = $1)
               FOR NO KEY UPDATE OF d SKIP LOCKED)
        UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL, version = version + 1
         WHERE id = ANY (ARRAY (SELECT id FROM idle))
        RETURNING domain"""),
    "prolong_claims": Sql(f"""
        WITH old AS (
            SELECT id FROM domains
             WHERE claimed_by = $1 AND claim_expires_at > {moment(2)} AND claim_expires_at < {moment(3)}
               FOR NO KEY UPDATE SKIP LOCKED)
        UPDATE domains SET claim_expires_at = {moment(4)}
         WHERE id = ANY (ARRAY (SELECT id FROM old))
        RETURNING domain"""),
    # The best of the first: a crawl may have very many queues that are ready. `band >= 0` names their index.
    "claim_ready_domains": Sql(f"""
        WITH ready AS (
            SELECT d.id, d.status, d.priority_score, d.last_crawled_at
              FROM generate_series(0, 15) AS b (band)
             CROSS JOIN LATERAL (
                SELECT f.id, f.status, f.priority_score, f.last_crawled_at
                  FROM queues q
                 CROSS JOIN LATERAL (
                    SELECT * FROM domains
                     WHERE domain = q.domain AND (claim_expires_at IS NULL OR claim_expires_at <= {moment(4)})
                     LIMIT 1) f
                 WHERE q.crawl_id = $2 AND q.band = b.band AND q.band >= 0 AND q.ready_at <= $4
                 ORDER BY q.ready_at LIMIT 10 * $3) d
             LIMIT 10 * $3),
        best AS (
            SELECT id FROM ready
             ORDER BY (status = 'pending'), priority_score DESC, last_crawled_at NULLS FIRST, id LIMIT $3),
        free AS (
            SELECT id FROM domains
             WHERE id = ANY (ARRAY (SELECT id FROM best))
               AND (claim_expires_at IS NULL OR claim_expires_at <= {moment(4)})
               FOR NO KEY UPDATE SKIP LOCKED)
        UPDATE domains
           SET claimed_by = $1, claim_expires_at = {moment(5)}, version = version + 1, claim_version = version + 1
         WHERE id = ANY (ARRAY (SELECT id FROM free))
        RETURNING domain"""),
    "count_claims_of": Sql(f"""
        SELECT count(*) FROM domains WHERE claimed_by = $1 AND claim_expires_at > {moment(2)}"""),
}
