"""Crawl jobs: labels, keys and webhooks of jobs, quotas of keys, and how the workers of a crawl behave."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Moments have a default because SQLite adds no column without one that may not be NULL.
COLUMNS = {
    "crawls": {"conduct": "{json}"},
    "crawl_jobs": {
        "labels": "{json} NOT NULL DEFAULT '{{}}'",
        "key_id": "text",
        "webhook_url": "text",
        "webhook_secret": "text",
        "reason": "text",
        "updated_at": "{moment} NOT NULL DEFAULT '1970-01-01T00:00:00.000Z'",
    },
    "api_keys": {
        "owner": "text NOT NULL DEFAULT ''",
        "max_active_jobs": "integer",
        "max_pages_per_job": "integer",
        "max_jobs_per_day": "integer",
    },
}

INDEXES = {
    "crawl_jobs_rank": "((-priority), id)",
    "crawl_jobs_updated": "(updated_at, id)",
    "crawl_jobs_of_key": "(key_id, created_at) WHERE key_id IS NOT NULL",
    "crawl_jobs_live_of_key": "(key_id) WHERE key_id IS NOT NULL AND status IN ('pending', 'processing', 'paused')",
}

READY = "(crawl_id, band, ready_at)"
# With a condition that is always true, the index serves only who states it. While a new store has a few hundred queues,
# PostgreSQL would else look up each queue by its crawl alone, and go on so when there are thousands.
STATED = "WHERE band >= 0"


def upgrade() -> None:
    """Add the columns, and fill those that earlier rows have an answer for."""
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    words = {"json": "TEXT", "moment": "text"} if on_sqlite else {"json": "jsonb", "moment": "timestamptz"}
    for table, columns in COLUMNS.items():
        for name, kind in columns.items():
            op.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind.format(**words)}")
    op.execute("UPDATE crawl_jobs SET updated_at = coalesce(completed_at, last_heartbeat, created_at)")
    op.execute("UPDATE api_keys SET owner = name")
    for name, definition in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON crawl_jobs {definition}")
    if not on_sqlite:
        op.execute("DROP INDEX queues_ready")
        op.execute(f"CREATE INDEX queues_ready ON queues {READY} {STATED}")


def downgrade() -> None:
    """Drop them with what is in them."""
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP INDEX queues_ready")
        op.execute(f"CREATE INDEX queues_ready ON queues {READY}")
    for name in INDEXES:
        op.execute(f"DROP INDEX {name}")
    for table, columns in COLUMNS.items():
        for name in columns:
            op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
