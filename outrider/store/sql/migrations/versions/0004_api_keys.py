"""API keys: who may ask a service for what."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLE = """
CREATE TABLE api_keys (
    key_id {name} PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('read', 'crawl', 'admin')),
    crawls text NOT NULL,
    digest text NOT NULL,
    created_at {moment} NOT NULL,
    revoked_at {moment}
)
"""


def upgrade() -> None:
    """Add the table."""
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    words = ("text", "text") if on_sqlite else ('text COLLATE "C"', "timestamptz")
    op.execute(TABLE.format(name=words[0], moment=words[1]))


def downgrade() -> None:
    """Drop it: every key is void then."""
    op.execute("DROP TABLE api_keys")
