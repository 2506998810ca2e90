"""Backfills: a ledger of what was taken over from where, so that nothing is taken over twice."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# The ledger goes by the names of domains and not by their ids: what was merged into another domain has been
# taken over all the same.
TABLES = (
    """
    CREATE TABLE backfills (
        backfill_id {name} PRIMARY KEY,
        source text NOT NULL,
        kind text NOT NULL CHECK (kind IN ('crawl_log', 'scrapy', 'urlfrontier')),
        started_at {moment} NOT NULL,
        updated_at {moment} NOT NULL,
        finished_at {moment},
        position text,
        rows_read bigint NOT NULL DEFAULT 0,
        rows_refused bigint NOT NULL DEFAULT 0,
        domains_new bigint NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE TABLE backfilled_domains (
        backfill_id {name} NOT NULL REFERENCES backfills (backfill_id) ON DELETE CASCADE,
        domain {name} NOT NULL,
        pages_discovered bigint NOT NULL,
        pages_crawled bigint NOT NULL,
        images_found bigint NOT NULL,
        images_stored bigint NOT NULL,
        total_error_count bigint NOT NULL,
        PRIMARY KEY (backfill_id, domain)
    )
    """,
)


def upgrade() -> None:
    """Create the ledger."""
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    words = {"name": "text", "moment": "text"} if on_sqlite else {"name": 'text COLLATE "C"', "moment": "timestamptz"}
    for table in TABLES:
        op.execute(table.format(**words))


def downgrade() -> None:
    """Drop the ledger; what was taken over stays, and would be taken over again."""
    op.execute("DROP TABLE backfilled_domains")
    op.execute("DROP TABLE backfills")
