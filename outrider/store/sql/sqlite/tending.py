"""The statements that tend claims, in SQLite's dialect."""

from outrider.store.sql.script import Catalogue, Sql
from outrider.store.sql.sqlite.control import moment
from outrider.store.sql.sqlite.urls import BANDS

CATALOGUE: Catalogue = {
    "release_idle_claims": Sql(f"""
        UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL, version = version + 1
         WHERE claimed_by = ?1 AND claim_expires_at > {moment(3)}
           AND NOT EXISTS (SELECT 1 FROM queues q
                            WHERE q.domain = domains.domain AND q.crawl_id = ?2 AND q.ready_at <= ?4)
           AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.domain = domains.domain AND l.worker = ?1)
        RETURNING domain"""),
    "prolong_claims": Sql(f"""
        UPDATE domains SET claim_expires_at = {moment(4)}
         WHERE claimed_by = ?1 AND claim_expires_at > {moment(2)} AND claim_expires_at < {moment(3)}
        RETURNING domain"""),
    # The best of the first: a crawl may have very many queues that are ready.
    "claim_ready_domains": Sql(f"""
        UPDATE domains
           SET claimed_by = ?1, claim_expires_at = {moment(5)}, version = version + 1, claim_version = version + 1
         WHERE id IN (
            SELECT id FROM (
                SELECT d.id, d.status, d.priority_score, d.last_crawled_at
                  FROM {BANDS} b CROSS JOIN queues q CROSS JOIN domains d ON d.domain = q.domain
                 WHERE q.crawl_id = ?2 AND q.band = b.column1 AND q.ready_at <= ?4
                   AND (d.claim_expires_at IS NULL OR d.claim_expires_at <= {moment(4)})
                 LIMIT 10 * ?3)
             ORDER BY (status = 'pending'), priority_score DESC, last_crawled_at, id
             LIMIT ?3)
        RETURNING domain"""),
    "count_claims_of": Sql(f"""
        SELECT count(*) FROM domains WHERE claimed_by = ?1 AND claim_expires_at > {moment(2)}"""),
}
