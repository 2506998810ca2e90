"""Refresh: what is remembered of each page's changes, and jobs that are submitted again and again."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Beside the tasks, since only those that were completed have it, and only where pages are refreshed.
SQLITE_REVISITS = """
    CREATE TABLE revisits (
        crawl_id INTEGER NOT NULL,
        key TEXT NOT NULL,
        hash BLOB NOT NULL,
        domain TEXT NOT NULL,
        due_at INTEGER NOT NULL,
        visited_at INTEGER NOT NULL,
        interval_ms INTEGER NOT NULL,
        gap_ms INTEGER,
        spread REAL NOT NULL,
        changed_at INTEGER NOT NULL,
        streak INTEGER NOT NULL,
        visits INTEGER NOT NULL,
        gone INTEGER NOT NULL,
        changes INTEGER NOT NULL,
        artifact_id INTEGER,
        PRIMARY KEY (crawl_id, key, hash)
    ) STRICT, WITHOUT ROWID
"""

POSTGRES_REVISITS = """
    CREATE TABLE revisits (
        crawl_id integer NOT NULL,
        key text COLLATE "C" NOT NULL,
        hash bytea NOT NULL,
        domain text COLLATE "C" NOT NULL,
        due_at bigint NOT NULL,
        visited_at bigint NOT NULL,
        interval_ms bigint NOT NULL,
        gap_ms bigint,
        spread double precision NOT NULL,
        changed_at bigint NOT NULL,
        streak integer NOT NULL,
        visits integer NOT NULL,
        gone integer NOT NULL,
        changes integer NOT NULL,
        artifact_id bigint,
        PRIMARY KEY (crawl_id, key, hash)
    ) WITH (fillfactor = 80)
"""

SCHEDULES = """
    CREATE TABLE schedules (
        schedule_id {uuid} PRIMARY KEY,
        crawl text NOT NULL,
        payload {json} NOT NULL,
        every_ms bigint NOT NULL CHECK (every_ms > 0),
        due_at bigint NOT NULL,
        last_job_id {uuid},
        created_at bigint NOT NULL
    )
"""

INDEXES = {
    "revisits_due": "revisits (crawl_id, due_at)",
    "revisits_domain": "revisits (domain, due_at)",
    "domains_woken": "domains (domain) WHERE status = 'pending' AND last_crawled_at IS NOT NULL",
    "schedules_due": "schedules (due_at)",
    "schedules_crawl": "schedules (crawl)",
}


def upgrade() -> None:
    """Add the tables, and the similarity hash to what is kept of a fetch."""
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    op.execute(SQLITE_REVISITS if on_sqlite else POSTGRES_REVISITS)
    words = {"uuid": "text", "json": "text"} if on_sqlite else {"uuid": "uuid", "json": "jsonb"}
    op.execute(SCHEDULES.format(**words))
    for name, definition in INDEXES.items():
        op.execute(f"CREATE {'UNIQUE ' if name == 'schedules_crawl' else ''}INDEX {name} ON {definition}")
    op.execute(f"ALTER TABLE crawl_log ADD COLUMN similarity {'INTEGER' if on_sqlite else 'bigint'}")


def downgrade() -> None:
    """Drop them with what is in them."""
    op.execute("ALTER TABLE crawl_log DROP COLUMN similarity")
    op.execute("DROP INDEX domains_woken")
    op.execute("DROP TABLE schedules")
    op.execute("DROP TABLE revisits")
