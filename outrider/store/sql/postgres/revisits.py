"""The statements about revisits in PostgreSQL's dialect: part of the URL plane's catalogue."""

from outrider.model.task import NEVER
from outrider.store.sql.script import Catalogue, Sql

HISTORY = "visited_at, interval_ms, gap_ms, spread, changed_at, streak, visits, gone, changes, artifact_id"

REVISITS: Catalogue = {
    "revisits_of": Sql("""
        SELECT v.crawl_id, v.key, v.hash, v.visited_at, v.interval_ms, v.gap_ms, v.spread, v.changed_at, v.streak,
               v.visits, v.gone, v.changes, v.artifact_id
          FROM unnest($1::int[], $2::text[], $3::bytea[]) AS w (crawl_id, key, hash)
          JOIN revisits v ON v.crawl_id = w.crawl_id AND v.key = w.key AND v.hash = w.hash"""),
    "put_revisits": Sql(f"""
        INSERT INTO revisits (crawl_id, key, hash, domain, due_at, {HISTORY})
        SELECT * FROM unnest($1::int[], $2::text[], $3::bytea[], $4::text[], $5::bigint[], $6::bigint[],
                             $7::bigint[], $8::bigint[], $9::double precision[], $10::bigint[], $11::int[],
                             $12::int[], $13::int[], $14::int[], $15::bigint[])
            ON CONFLICT (crawl_id, key, hash) DO UPDATE
           SET due_at = excluded.due_at, visited_at = excluded.visited_at, interval_ms = excluded.interval_ms,
               gap_ms = excluded.gap_ms, spread = excluded.spread, changed_at = excluded.changed_at,
               streak = excluded.streak, visits = excluded.visits, gone = excluded.gone,
               changes = excluded.changes, artifact_id = excluded.artifact_id"""),
    "due_revisits": Sql("""
        SELECT key, hash FROM revisits WHERE crawl_id = $1 AND due_at <= $2 ORDER BY due_at LIMIT $3"""),
    "due_revisits_of_domain": Sql("""
        SELECT key, hash FROM revisits
         WHERE domain = $4 AND due_at <= $2 AND crawl_id = $1 ORDER BY due_at LIMIT $3"""),
    "reopen_tasks": Sql("""
        WITH locked AS (
            SELECT t.crawl_id, t.key, t.hash
              FROM (SELECT $1::int AS crawl_id, * FROM unnest($3::text[], $4::bytea[]) AS w (key, hash) OFFSET 0) w
              JOIN tasks t ON t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash AND t.state = 3
             ORDER BY t.key, t.hash FOR NO KEY UPDATE OF t)
        UPDATE tasks t SET state = 1, delayed = true, due_at = $2, failures = 0, deferrals = 0, expiries = 0
          FROM locked WHERE t.crawl_id = locked.crawl_id AND t.key = locked.key AND t.hash = locked.hash
        RETURNING t.key, t.kind, t.url"""),
    "postpone_revisits": Sql("""
        UPDATE revisits v SET due_at = $2
          FROM (SELECT $1::int AS crawl_id, * FROM unnest($3::text[], $4::bytea[]) AS w (key, hash) OFFSET 0) w
         WHERE v.crawl_id = w.crawl_id AND v.key = w.key AND v.hash = w.hash"""),
    "hasten_domain": Sql(f"""
        UPDATE revisits v SET due_at = $2
          FROM (SELECT crawl_id, key, hash FROM revisits
                 WHERE domain = $3 AND due_at > $2 AND due_at < {NEVER} AND crawl_id = $1
                 ORDER BY due_at LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED) w
         WHERE v.crawl_id = w.crawl_id AND v.key = w.key AND v.hash = w.hash RETURNING v.hash"""),
    "hasten_changed": Sql(f"""
        UPDATE revisits v SET due_at = $2
          FROM (SELECT $1::int AS crawl_id, *
                  FROM unnest($3::text[], $4::bytea[], $5::bigint[]) AS w (key, hash, changed_at) OFFSET 0) w
         WHERE v.crawl_id = w.crawl_id AND v.key = w.key AND v.hash = w.hash
           AND v.visited_at < w.changed_at AND v.due_at > $2 AND v.due_at < {NEVER}"""),
    "strangers": Sql("""
        SELECT t.key, t.hash, t.url, t.http_status, a.reported_at, a.artifact_id
          FROM (SELECT $1::int AS crawl_id, * FROM unnest($2::text[], $3::bytea[]) AS w (key, hash) OFFSET 0) w
          JOIN tasks t ON t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash
          JOIN crawl_log a ON a.artifact_id = t.artifact_id
         WHERE t.state = 3 AND NOT EXISTS (
            SELECT FROM revisits v WHERE v.crawl_id = t.crawl_id AND v.key = t.key AND v.hash = t.hash)"""),
    "is_refreshed": Sql("SELECT true FROM revisits WHERE crawl_id = $1 LIMIT 1"),
    "next_due_of_domains": Sql(f"""
        SELECT w.domain, v.due_at FROM unnest($1::text[]) AS w (domain)
         CROSS JOIN LATERAL (
            SELECT due_at FROM revisits WHERE domain = w.domain AND due_at < {NEVER} ORDER BY due_at LIMIT 1) v"""),
    "delete_revisits": Sql("""
        DELETE FROM revisits v
         USING (SELECT $1::int AS crawl_id, * FROM unnest($2::text[], $3::bytea[]) AS w (key, hash) OFFSET 0) w
         WHERE v.crawl_id = w.crawl_id AND v.key = w.key AND v.hash = w.hash"""),
    "delete_queue_revisits": Sql("DELETE FROM revisits WHERE crawl_id = $1 AND key = $2"),
    "delete_crawl_revisits": Sql("DELETE FROM revisits WHERE crawl_id = $1"),
}
