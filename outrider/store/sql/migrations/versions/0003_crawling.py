"""What a crawl command keeps: more of each page, and what widens a crawl's scope."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COLUMNS = {
    "title": "TEXT",
    "links_found": "INTEGER NOT NULL DEFAULT 0",
    "noindex": "{boolean} NOT NULL DEFAULT {no}",
    "redirects": "TEXT",
}

SQLITE_SCOPE_ROOTS = """
CREATE TABLE scope_roots (
    crawl_id INTEGER NOT NULL,
    url TEXT NOT NULL,
    PRIMARY KEY (crawl_id, url)
) STRICT, WITHOUT ROWID
"""

POSTGRES_SCOPE_ROOTS = """
CREATE TABLE scope_roots (
    crawl_id integer NOT NULL,
    url text COLLATE "C" NOT NULL,
    PRIMARY KEY (crawl_id, url)
)
"""


def upgrade() -> None:
    """Add the columns and the table."""
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    words = {"boolean": "INTEGER", "no": "0"} if on_sqlite else {"boolean": "boolean", "no": "false"}
    for name, kind in COLUMNS.items():
        op.execute(f"ALTER TABLE crawl_log ADD COLUMN {name} {kind.format(**words)}")
    op.execute(SQLITE_SCOPE_ROOTS if on_sqlite else POSTGRES_SCOPE_ROOTS)


def downgrade() -> None:
    """Drop them with what is in them."""
    op.execute("DROP TABLE scope_roots")
    for name in COLUMNS:
        op.execute(f"ALTER TABLE crawl_log DROP COLUMN {name}")
