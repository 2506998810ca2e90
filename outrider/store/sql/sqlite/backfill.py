"""The statements of backfills in SQLite's dialect."""

from outrider.store.sql.postgres.backfill import ADDED_TO_LEDGER, BACKFILL, LEDGER, PAGES
from outrider.store.sql.script import Catalogue, Sql
from outrider.store.sql.sqlite.control import moment


def moment_in(column: str) -> str:
    """Read a column as milliseconds; SQLite itself counts in whole ones."""
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch')"


FIRST_SEEN, LAST_CRAWLED = moment_in("w.first_seen_at"), moment_in("w.last_crawled_at")

CATALOGUE: Catalogue = {
    "insert_backfill": Sql(f"""
        INSERT INTO backfills AS b (backfill_id, source, kind, started_at, updated_at)
        VALUES (?1, ?2, ?3, {moment(4)}, {moment(4)})
        ON CONFLICT (backfill_id) DO UPDATE
           SET source = excluded.source, updated_at = excluded.updated_at, finished_at = NULL,
               started_at = iif(b.finished_at IS NULL, b.started_at, excluded.started_at),
               position = iif(b.finished_at IS NULL, b.position, NULL),
               rows_read = iif(b.finished_at IS NULL, b.rows_read, 0),
               rows_refused = iif(b.finished_at IS NULL, b.rows_refused, 0)
        RETURNING {BACKFILL}"""),
    "backfill": Sql(f"SELECT {BACKFILL} FROM backfills WHERE backfill_id = ?1"),
    "lock_backfill": Sql(f"SELECT {BACKFILL} FROM backfills WHERE backfill_id = ?1"),
    "list_backfills": Sql(f"SELECT {BACKFILL} FROM backfills ORDER BY started_at, backfill_id"),
    "note_backfill": Sql(f"""
        UPDATE backfills
           SET updated_at = {moment(2)}, position = ?3, rows_read = ?4, rows_refused = ?5,
               finished_at = iif(?6, {moment(2)}, NULL)
         WHERE backfill_id = ?1 RETURNING {BACKFILL}"""),
    "count_backfilled": Sql(f"""
        UPDATE backfills
           SET updated_at = {moment(2)}, domains_new = domains_new + ?3, position = coalesce(?4, position)
         WHERE backfill_id = ?1"""),
    "backfilled_domains": Sql(f"""
        SELECT domain, {LEDGER} FROM backfilled_domains WHERE backfill_id = ?1 AND domain IN (VALUES {{rows}})"""),
    "known_domains": Sql("SELECT domain FROM domains WHERE domain IN (VALUES {rows})"),
    "fill_backfilled": Sql(f"""
        WITH w (domain, {LEDGER}, depth, first_seen_at, last_crawled_at) AS (VALUES {{rows}})
        UPDATE domains AS d
           SET pages_discovered = d.pages_discovered + w.pages_discovered,
               pages_crawled = d.pages_crawled + w.pages_crawled,
               images_found = d.images_found + w.images_found,
               images_stored = d.images_stored + w.images_stored,
               total_error_count = min(d.total_error_count + w.total_error_count, 2147483647),
               crawl_depth_reached = max(d.crawl_depth_reached, w.depth),
               first_seen_at = min(d.first_seen_at, coalesce({FIRST_SEEN}, d.first_seen_at)),
               last_crawled_at = coalesce(max(d.last_crawled_at, {LAST_CRAWLED}), d.last_crawled_at, {LAST_CRAWLED})
          FROM w WHERE d.domain = w.domain RETURNING domain"""),
    "block_backfilled_gates": Sql("""
        WITH w (domain, until) AS (VALUES {rows})
        UPDATE gates SET blocked_until = w.until FROM w WHERE gates.domain = w.domain"""),
    "begin_backfilled": Sql(f"""
        WITH w (domain, status, reason, code, next_crawl_after, version, image_yield_rate, avg_images_per_page,
                error_rate) AS (VALUES {{rows}})
        UPDATE domains AS d
           SET status = w.status, block_reason = w.reason, block_reason_code = w.code,
               next_crawl_after = {moment_in("w.next_crawl_after")}, version = w.version,
               image_yield_rate = w.image_yield_rate, avg_images_per_page = w.avg_images_per_page,
               error_rate = w.error_rate, first_blocked_at = iif(w.status = 'blocked', {moment(1)}, NULL),
               block_count = (w.status = 'blocked')
          FROM w WHERE d.domain = w.domain"""),
    "keep_backfilled": Sql(f"""
        WITH w (domain, {LEDGER}) AS (VALUES {{rows}})
        INSERT INTO backfilled_domains AS b (backfill_id, domain, {LEDGER})
        SELECT ?1, w.* FROM w WHERE true
            ON CONFLICT (backfill_id, domain) DO UPDATE SET {ADDED_TO_LEDGER}"""),
    "count_domains": Sql("SELECT count(*) FROM domains"),
    "backfill_figures": Sql(f"""
        SELECT status, count(*), avg(CAST(images_stored AS real) / pages) FILTER (WHERE pages > 0), avg(pages)
          FROM (SELECT d.status, d.images_stored, {PAGES} AS pages FROM domains d
                 WHERE d.source >= 'backfill' AND d.source < 'backfilm')
         GROUP BY status ORDER BY status"""),
}
