"""The statements about revisits in SQLite's dialect: part of the URL plane's catalogue."""

from outrider.model.task import NEVER
from outrider.store.sql.postgres.revisits import HISTORY
from outrider.store.sql.script import Catalogue, Sql

REVISITS: Catalogue = {
    "revisits_of": Sql("""
        WITH w (crawl_id, key, hash) AS (VALUES {rows})
        SELECT v.crawl_id, v.key, v.hash, v.visited_at, v.interval_ms, v.gap_ms, v.spread, v.changed_at, v.streak,
               v.visits, v.gone, v.changes, v.artifact_id
          FROM w CROSS JOIN revisits v ON v.crawl_id = w.crawl_id AND v.key = w.key AND v.hash = w.hash"""),
    "put_revisits": Sql(f"""
        WITH w AS (VALUES {{rows}})
        INSERT INTO revisits (crawl_id, key, hash, domain, due_at, {HISTORY}) SELECT * FROM w WHERE true
            ON CONFLICT (crawl_id, key, hash) DO UPDATE
           SET due_at = excluded.due_at, visited_at = excluded.visited_at, interval_ms = excluded.interval_ms,
               gap_ms = excluded.gap_ms, spread = excluded.spread, changed_at = excluded.changed_at,
               streak = excluded.streak, visits = excluded.visits, gone = excluded.gone,
               changes = excluded.changes, artifact_id = excluded.artifact_id"""),
    "due_revisits": Sql("""
        SELECT key, hash FROM revisits INDEXED BY revisits_due
         WHERE crawl_id = ?1 AND due_at <= ?2 ORDER BY due_at LIMIT ?3"""),
    "due_revisits_of_domain": Sql("""
        SELECT key, hash FROM revisits INDEXED BY revisits_domain
         WHERE domain = ?4 AND due_at <= ?2 AND crawl_id = ?1 ORDER BY due_at LIMIT ?3"""),
    "reopen_tasks": Sql("""
        WITH w (key, hash) AS (VALUES {rows})
        UPDATE tasks AS t SET state = 1, delayed = 1, due_at = ?2, failures = 0, deferrals = 0, expiries = 0
          FROM w WHERE t.crawl_id = ?1 AND t.key = w.key AND t.hash = w.hash AND t.state = 3
        RETURNING key, kind, url"""),
    "postpone_revisits": Sql("""
        WITH w (key, hash) AS (VALUES {rows})
        UPDATE revisits AS v SET due_at = ?2
          FROM w WHERE v.crawl_id = ?1 AND v.key = w.key AND v.hash = w.hash"""),
    "hasten_domain": Sql(f"""
        UPDATE revisits AS v SET due_at = ?2
          FROM (SELECT crawl_id, key, hash FROM revisits INDEXED BY revisits_domain
                 WHERE domain = ?3 AND due_at > ?2 AND due_at < {NEVER} AND crawl_id = ?1
                 ORDER BY due_at LIMIT ?4) AS w
         WHERE v.crawl_id = w.crawl_id AND v.key = w.key AND v.hash = w.hash RETURNING hash"""),
    "hasten_changed": Sql(f"""
        WITH w (key, hash, changed_at) AS (VALUES {{rows}})
        UPDATE revisits AS v SET due_at = ?2
          FROM w WHERE v.crawl_id = ?1 AND v.key = w.key AND v.hash = w.hash
           AND v.visited_at < w.changed_at AND v.due_at > ?2 AND v.due_at < {NEVER}"""),
    "strangers": Sql("""
        WITH w (key, hash) AS (VALUES {rows})
        SELECT t.key, t.hash, t.url, t.http_status, a.reported_at, a.artifact_id
          FROM w CROSS JOIN tasks t ON t.crawl_id = ?1 AND t.key = w.key AND t.hash = w.hash
          CROSS JOIN crawl_log a ON a.artifact_id = t.artifact_id
         WHERE t.state = 3 AND NOT EXISTS (
            SELECT 1 FROM revisits v WHERE v.crawl_id = t.crawl_id AND v.key = t.key AND v.hash = t.hash)"""),
    "is_refreshed": Sql("SELECT 1 FROM revisits WHERE crawl_id = ?1 LIMIT 1"),
    "next_due_of_domains": Sql(f"""
        WITH w (domain) AS (VALUES {{rows}})
        SELECT w.domain, min(v.due_at) FROM w CROSS JOIN revisits v INDEXED BY revisits_domain ON v.domain = w.domain
         WHERE v.due_at < {NEVER} GROUP BY w.domain"""),
    # Row by row: with a list of pairs, SQLite would go through the whole crawl.
    "delete_revisits": Sql("DELETE FROM revisits WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3"),
    "delete_queue_revisits": Sql("DELETE FROM revisits WHERE crawl_id = ?1 AND key = ?2"),
    "delete_crawl_revisits": Sql("DELETE FROM revisits WHERE crawl_id = ?1"),
}
