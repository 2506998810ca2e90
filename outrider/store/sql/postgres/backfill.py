"""The statements of backfills in PostgreSQL's dialect."""

from outrider.model.backfill import COUNTERS
from outrider.store.sql.postgres.control import moment
from outrider.store.sql.script import Catalogue, Sql

BACKFILL = """backfill_id, source, kind, started_at, updated_at, finished_at, position, rows_read, rows_refused,
    domains_new"""

LEDGER = ", ".join(COUNTERS)
ADDED_TO_LEDGER = ", ".join(f"{counter} = b.{counter} + excluded.{counter}" for counter in COUNTERS)

# Domains count their pages, and what was there before, as everybody reads them.
PAGES = """(d.pages_crawled + coalesce((SELECT sum(c.completed) FROM counts c
                  WHERE c.domain = d.domain AND c.key <> '' AND c.kind = 0), 0))"""


def moment_in(column: str) -> str:
    """Read a column as milliseconds, to the millisecond."""
    return (
        f"('epoch'::timestamptz + ({column} / 1000) * interval '1 second'"
        f" + ({column} % 1000) * interval '1 millisecond')"
    )


CATALOGUE: Catalogue = {
    "insert_backfill": Sql(f"""
        INSERT INTO backfills AS b (backfill_id, source, kind, started_at, updated_at)
        VALUES ($1, $2, $3, {moment(4)}, {moment(4)})
        ON CONFLICT (backfill_id) DO UPDATE
           SET source = excluded.source, updated_at = excluded.updated_at, finished_at = NULL,
               started_at = CASE WHEN b.finished_at IS NULL THEN b.started_at ELSE excluded.started_at END,
               position = CASE WHEN b.finished_at IS NULL THEN b.position END,
               rows_read = CASE WHEN b.finished_at IS NULL THEN b.rows_read ELSE 0 END,
               rows_refused = CASE WHEN b.finished_at IS NULL THEN b.rows_refused ELSE 0 END
        RETURNING {BACKFILL}"""),
    "backfill": Sql(f"SELECT {BACKFILL} FROM backfills WHERE backfill_id = $1"),
    "lock_backfill": Sql(f"SELECT {BACKFILL} FROM backfills WHERE backfill_id = $1 FOR NO KEY UPDATE"),
    "list_backfills": Sql(f"SELECT {BACKFILL} FROM backfills ORDER BY started_at, backfill_id"),
    "note_backfill": Sql(f"""
        UPDATE backfills
           SET updated_at = {moment(2)}, position = $3, rows_read = $4, rows_refused = $5,
               finished_at = CASE WHEN $6::int = 1 THEN {moment(2)} END
         WHERE backfill_id = $1 RETURNING {BACKFILL}"""),
    "count_backfilled": Sql(f"""
        UPDATE backfills
           SET updated_at = {moment(2)}, domains_new = domains_new + $3, position = coalesce($4::text, position)
         WHERE backfill_id = $1"""),
    "backfilled_domains": Sql(f"""
        SELECT b.domain, {LEDGER} FROM unnest($2::text[]) AS w (domain)
          JOIN backfilled_domains b ON b.backfill_id = $1 AND b.domain = w.domain"""),
    "known_domains": Sql("""
        SELECT d.domain FROM unnest($1::text[]) AS w (domain) JOIN domains d ON d.domain = w.domain"""),
    "fill_backfilled": Sql(f"""
        UPDATE domains d
           SET pages_discovered = d.pages_discovered + w.pages_discovered,
               pages_crawled = d.pages_crawled + w.pages_crawled,
               images_found = d.images_found + w.images_found,
               images_stored = d.images_stored + w.images_stored,
               total_error_count = least(d.total_error_count + w.total_error_count, 2147483647),
               crawl_depth_reached = greatest(d.crawl_depth_reached, w.depth),
               first_seen_at = least(d.first_seen_at, {moment_in("w.first_seen_at")}),
               last_crawled_at = greatest(d.last_crawled_at, {moment_in("w.last_crawled_at")})
          FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::int[],
                      $8::bigint[], $9::bigint[])
            AS w (domain, {LEDGER}, depth, first_seen_at, last_crawled_at)
         WHERE d.domain = w.domain RETURNING d.domain"""),
    "block_backfilled_gates": Sql("""
        UPDATE gates g SET blocked_until = w.until
          FROM unnest($1::text[], $2::bigint[]) AS w (domain, until) WHERE g.domain = w.domain"""),
    "begin_backfilled": Sql(f"""
        UPDATE domains d
           SET status = w.status::domain_status, block_reason = w.reason, block_reason_code = w.code,
               next_crawl_after = {moment_in("w.next_crawl_after")}, version = w.version,
               image_yield_rate = w.image_yield_rate, avg_images_per_page = w.avg_images_per_page,
               error_rate = w.error_rate,
               first_blocked_at = CASE WHEN w.status = 'blocked' THEN {moment(1)} END,
               block_count = CASE WHEN w.status = 'blocked' THEN 1 ELSE 0 END
          FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::int[], $8::float8[],
                      $9::float8[], $10::float8[])
            AS w (domain, status, reason, code, next_crawl_after, version, image_yield_rate, avg_images_per_page,
                  error_rate)
         WHERE d.domain = w.domain"""),
    "keep_backfilled": Sql(f"""
        INSERT INTO backfilled_domains AS b (backfill_id, domain, {LEDGER})
        SELECT $1, w.*
          FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) AS w
        ON CONFLICT (backfill_id, domain) DO UPDATE SET {ADDED_TO_LEDGER}"""),
    "count_domains": Sql("SELECT count(*) FROM domains"),
    # By a range and not by LIKE, so that the index on sources is of use.
    "backfill_figures": Sql(f"""
        SELECT status, count(*), avg(images_stored::float8 / pages) FILTER (WHERE pages > 0), avg(pages)::float8
          FROM (SELECT d.status, d.images_stored, {PAGES} AS pages FROM domains d
                 WHERE d.source >= 'backfill' AND d.source < 'backfilm') AS backfilled
         GROUP BY status ORDER BY status"""),
}
