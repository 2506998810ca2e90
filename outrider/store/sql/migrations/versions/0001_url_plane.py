"""The URL plane: crawls, queues, gates, tasks, leases, counts, crawl_log."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# 'OUTR' in ASCII: how a SQLite file says that it is ours.
SQLITE_APPLICATION_ID = 0x4F555452

SQLITE = (
    f"PRAGMA application_id = {SQLITE_APPLICATION_ID}",
    """
    CREATE TABLE sequences (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID
    """,
    "INSERT INTO sequences (name, value) VALUES ('discovery', 0), ('turn', 0)",
    """
    CREATE TABLE crawls (
        crawl_id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused', 'cancelled')),
        key_rule TEXT NOT NULL CHECK (key_rule IN ('domain', 'host', 'parent_domain')),
        strip_tracking INTEGER NOT NULL,
        sort_query INTEGER NOT NULL,
        max_depth INTEGER,
        max_pages INTEGER,
        max_pages_per_domain INTEGER,
        delay_ms INTEGER NOT NULL,
        concurrency INTEGER NOT NULL,
        robots INTEGER NOT NULL,
        turn INTEGER NOT NULL DEFAULT 0,
        limited_run TEXT,
        created_at INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX crawls_turn ON crawls (turn) WHERE state = 'running'",
    """
    CREATE TABLE queues (
        crawl_id INTEGER NOT NULL,
        key TEXT NOT NULL,
        domain TEXT,
        band INTEGER NOT NULL,
        tasks_due_at INTEGER NOT NULL,
        gate_opens_at INTEGER NOT NULL DEFAULT 0,
        ready_at INTEGER NOT NULL GENERATED ALWAYS AS (max(tasks_due_at, gate_opens_at)) STORED,
        delay_ms INTEGER,
        blocked_until INTEGER NOT NULL DEFAULT 0,
        page_limit INTEGER,
        priority INTEGER,
        last_served_at INTEGER,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (crawl_id, key)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX queues_ready ON queues (crawl_id, band, ready_at)",
    "CREATE INDEX queues_domain ON queues (domain)",
    """
    CREATE TABLE gates (
        domain TEXT PRIMARY KEY,
        domain_id TEXT NOT NULL,
        delay_ms INTEGER,
        robots_delay_ms INTEGER,
        concurrency INTEGER,
        next_fetch_at INTEGER NOT NULL DEFAULT 0,
        quiet_until INTEGER NOT NULL DEFAULT 0,
        backoff_until INTEGER NOT NULL DEFAULT 0,
        backoff_level INTEGER NOT NULL DEFAULT 0,
        backoff_began_at INTEGER NOT NULL DEFAULT 0,
        blocked_until INTEGER NOT NULL DEFAULT 0,
        band INTEGER NOT NULL DEFAULT 8,
        robots_version TEXT,
        robots_expires_at INTEGER
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE robots (
        domain TEXT PRIMARY KEY,
        version TEXT NOT NULL,
        text TEXT NOT NULL,
        fetched_at INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE tasks (
        crawl_id INTEGER NOT NULL,
        key TEXT NOT NULL,
        hash BLOB NOT NULL,
        url TEXT NOT NULL,
        kind INTEGER NOT NULL,
        state INTEGER NOT NULL,
        delayed INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        depth INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        due_at INTEGER NOT NULL,
        discovered_at INTEGER NOT NULL,
        discovery_type INTEGER NOT NULL,
        attempt_count INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0,
        deferrals INTEGER NOT NULL DEFAULT 0,
        expiries INTEGER NOT NULL DEFAULT 0,
        http_status INTEGER,
        reason TEXT,
        artifact_id INTEGER,
        PRIMARY KEY (crawl_id, key, hash)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX tasks_ready ON tasks (crawl_id, key, priority DESC, sequence) WHERE state = 1 AND delayed = 0",
    "CREATE INDEX tasks_delayed ON tasks (crawl_id, key, due_at) WHERE state = 1 AND delayed = 1",
    "CREATE INDEX tasks_discovered ON tasks (crawl_id, depth) WHERE state = 0",
    "CREATE INDEX tasks_failed ON tasks (crawl_id, key) WHERE state = 4",
    """
    CREATE TABLE task_metadata (
        crawl_id INTEGER NOT NULL,
        key TEXT NOT NULL,
        hash BLOB NOT NULL,
        metadata TEXT NOT NULL,
        PRIMARY KEY (crawl_id, key, hash)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE leases (
        token BLOB PRIMARY KEY,
        crawl_id INTEGER NOT NULL,
        key TEXT NOT NULL,
        hash BLOB NOT NULL,
        url_hash BLOB NOT NULL UNIQUE,
        domain TEXT NOT NULL,
        kind INTEGER NOT NULL,
        worker TEXT NOT NULL,
        request_id TEXT NOT NULL,
        run_id TEXT,
        attempt INTEGER NOT NULL,
        delay_ms INTEGER NOT NULL,
        gate_was INTEGER NOT NULL,
        granted_at INTEGER NOT NULL,
        last_heartbeat INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX leases_domain ON leases (domain, run_id)",
    "CREATE INDEX leases_expiry ON leases (expires_at)",
    "CREATE INDEX leases_request ON leases (worker, request_id)",
    "CREATE INDEX leases_task ON leases (crawl_id, key, hash)",
    """
    CREATE TABLE counts (
        crawl_id INTEGER NOT NULL,
        key TEXT NOT NULL,
        domain TEXT NOT NULL,
        kind INTEGER NOT NULL,
        slot INTEGER NOT NULL,
        discovered INTEGER NOT NULL,
        pending INTEGER NOT NULL,
        assigned INTEGER NOT NULL,
        completed INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        PRIMARY KEY (crawl_id, key, domain, kind, slot)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX counts_domain ON counts (domain) WHERE key <> ''",
    """
    CREATE TABLE run_counts (
        run_id TEXT NOT NULL,
        domain TEXT NOT NULL,
        slot INTEGER NOT NULL,
        pages INTEGER NOT NULL,
        PRIMARY KEY (run_id, domain, slot)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE crawl_log (
        artifact_id INTEGER PRIMARY KEY AUTOINCREMENT,
        crawl TEXT NOT NULL,
        key TEXT NOT NULL,
        url TEXT NOT NULL,
        url_hash BLOB NOT NULL,
        token BLOB NOT NULL UNIQUE,
        attempt INTEGER NOT NULL,
        domain TEXT NOT NULL,
        domain_id TEXT,
        kind INTEGER NOT NULL,
        outcome TEXT NOT NULL CHECK (outcome IN ('done', 'failed', 'deferred', 'refused')),
        verdict TEXT NOT NULL CHECK (verdict IN ('completed', 'retry_at', 'failed')),
        retry_at INTEGER,
        reason TEXT,
        http_status INTEGER NOT NULL,
        images_found INTEGER NOT NULL,
        digest TEXT,
        etag TEXT,
        last_modified TEXT,
        content_type TEXT,
        body_bytes INTEGER,
        content_location TEXT,
        discovery_type INTEGER NOT NULL,
        depth INTEGER NOT NULL,
        run_id TEXT,
        leased_at INTEGER NOT NULL,
        fetched_at INTEGER,
        elapsed_ms INTEGER,
        reported_at INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX crawl_log_url ON crawl_log (url_hash, artifact_id)",
)

HOT = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0"

POSTGRES = (
    # A batch takes one block of numbers: one nextval for up to 10,000 tasks.
    "CREATE SEQUENCE discovery_sequence AS bigint INCREMENT BY 10000 MINVALUE 0 START WITH 0",
    "CREATE SEQUENCE turn_sequence AS bigint",
    """
    CREATE TABLE crawls (
        crawl_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused', 'cancelled')),
        key_rule text NOT NULL CHECK (key_rule IN ('domain', 'host', 'parent_domain')),
        strip_tracking boolean NOT NULL,
        sort_query boolean NOT NULL,
        max_depth integer,
        max_pages bigint,
        max_pages_per_domain bigint,
        delay_ms bigint NOT NULL,
        concurrency integer NOT NULL,
        robots boolean NOT NULL,
        turn bigint NOT NULL DEFAULT 0,
        limited_run uuid,
        created_at bigint NOT NULL
    ) WITH (fillfactor = 50)
    """,
    f"""
    CREATE TABLE queues (
        crawl_id integer NOT NULL,
        key text COLLATE "C" NOT NULL,
        domain text COLLATE "C",
        band smallint NOT NULL,
        tasks_due_at bigint NOT NULL,
        gate_opens_at bigint NOT NULL DEFAULT 0,
        ready_at bigint NOT NULL GENERATED ALWAYS AS (GREATEST(tasks_due_at, gate_opens_at)) STORED,
        drained_xid bigint,
        delay_ms bigint,
        blocked_until bigint NOT NULL DEFAULT 0,
        page_limit bigint,
        priority integer,
        last_served_at bigint,
        created_at bigint NOT NULL,
        PRIMARY KEY (crawl_id, key)
    ) WITH (fillfactor = 70, {HOT})
    """,
    "CREATE INDEX queues_ready ON queues (crawl_id, band, ready_at)",
    "CREATE INDEX queues_domain ON queues (domain)",
    f"""
    CREATE TABLE gates (
        domain text COLLATE "C" PRIMARY KEY,
        domain_id uuid NOT NULL,
        delay_ms bigint,
        robots_delay_ms bigint,
        concurrency integer,
        next_fetch_at bigint NOT NULL DEFAULT 0,
        quiet_until bigint NOT NULL DEFAULT 0,
        backoff_until bigint NOT NULL DEFAULT 0,
        backoff_level integer NOT NULL DEFAULT 0,
        backoff_began_at bigint NOT NULL DEFAULT 0,
        blocked_until bigint NOT NULL DEFAULT 0,
        band smallint NOT NULL DEFAULT 8,
        robots_version text,
        robots_expires_at bigint
    ) WITH (fillfactor = 70, {HOT})
    """,
    """
    CREATE TABLE robots (
        domain text COLLATE "C" PRIMARY KEY,
        version text NOT NULL,
        text text NOT NULL,
        fetched_at bigint NOT NULL
    )
    """,
    """
    CREATE TABLE tasks (
        crawl_id integer NOT NULL,
        key text COLLATE "C" NOT NULL,
        hash bytea NOT NULL,
        url text COLLATE "C" NOT NULL,
        kind smallint NOT NULL,
        state smallint NOT NULL,
        delayed boolean NOT NULL,
        priority integer NOT NULL,
        depth integer NOT NULL,
        sequence bigint NOT NULL,
        due_at bigint NOT NULL,
        discovered_at bigint NOT NULL,
        discovery_type smallint NOT NULL,
        attempt_count integer NOT NULL DEFAULT 0,
        failures integer NOT NULL DEFAULT 0,
        deferrals integer NOT NULL DEFAULT 0,
        expiries integer NOT NULL DEFAULT 0,
        http_status integer,
        reason text,
        artifact_id bigint,
        PRIMARY KEY (crawl_id, key, hash)
    ) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)
    """,
    "CREATE INDEX tasks_ready ON tasks (crawl_id, key, priority DESC, sequence) WHERE state = 1 AND NOT delayed",
    "CREATE INDEX tasks_delayed ON tasks (crawl_id, key, due_at) WHERE state = 1 AND delayed",
    "CREATE INDEX tasks_discovered ON tasks (crawl_id, depth) WHERE state = 0",
    "CREATE INDEX tasks_failed ON tasks (crawl_id, key) WHERE state = 4",
    """
    CREATE TABLE task_metadata (
        crawl_id integer NOT NULL,
        key text COLLATE "C" NOT NULL,
        hash bytea NOT NULL,
        metadata text NOT NULL,
        PRIMARY KEY (crawl_id, key, hash)
    )
    """,
    f"""
    CREATE TABLE leases (
        token bytea PRIMARY KEY,
        crawl_id integer NOT NULL,
        key text COLLATE "C" NOT NULL,
        hash bytea NOT NULL,
        url_hash bytea NOT NULL UNIQUE,
        domain text COLLATE "C" NOT NULL,
        kind smallint NOT NULL,
        worker text COLLATE "C" NOT NULL,
        request_id text COLLATE "C" NOT NULL,
        run_id uuid,
        attempt integer NOT NULL,
        delay_ms bigint NOT NULL,
        gate_was bigint NOT NULL,
        granted_at bigint NOT NULL,
        last_heartbeat bigint NOT NULL,
        expires_at bigint NOT NULL
    ) WITH (fillfactor = 70, {HOT})
    """,
    "CREATE INDEX leases_domain ON leases (domain, run_id)",
    "CREATE INDEX leases_expiry ON leases (expires_at)",
    "CREATE INDEX leases_request ON leases (worker, request_id)",
    "CREATE INDEX leases_task ON leases (crawl_id, key, hash)",
    f"""
    CREATE TABLE counts (
        crawl_id integer NOT NULL,
        key text COLLATE "C" NOT NULL,
        domain text COLLATE "C" NOT NULL,
        kind smallint NOT NULL,
        slot smallint NOT NULL,
        discovered bigint NOT NULL,
        pending bigint NOT NULL,
        assigned bigint NOT NULL,
        completed bigint NOT NULL,
        failed bigint NOT NULL,
        PRIMARY KEY (crawl_id, key, domain, kind, slot)
    ) WITH (fillfactor = 50, {HOT})
    """,
    "CREATE INDEX counts_domain ON counts (domain) WHERE key <> ''",
    f"""
    CREATE TABLE run_counts (
        run_id uuid NOT NULL,
        domain text COLLATE "C" NOT NULL,
        slot smallint NOT NULL,
        pages bigint NOT NULL,
        PRIMARY KEY (run_id, domain, slot)
    ) WITH (fillfactor = 70, {HOT})
    """,
    """
    CREATE TABLE crawl_log (
        artifact_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        crawl text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        url text COLLATE "C" NOT NULL,
        url_hash bytea NOT NULL,
        token bytea NOT NULL UNIQUE,
        attempt integer NOT NULL,
        domain text COLLATE "C" NOT NULL,
        domain_id uuid,
        kind smallint NOT NULL,
        outcome text NOT NULL CHECK (outcome IN ('done', 'failed', 'deferred', 'refused')),
        verdict text NOT NULL CHECK (verdict IN ('completed', 'retry_at', 'failed')),
        retry_at bigint,
        reason text,
        http_status integer NOT NULL,
        images_found integer NOT NULL,
        digest text,
        etag text,
        last_modified text,
        content_type text,
        body_bytes bigint,
        content_location text,
        discovery_type smallint NOT NULL,
        depth integer NOT NULL,
        run_id uuid,
        leased_at bigint NOT NULL,
        fetched_at bigint,
        elapsed_ms integer,
        reported_at bigint NOT NULL
    )
    """,
    "CREATE INDEX crawl_log_url ON crawl_log (url_hash, artifact_id)",
)

TABLES = (
    "crawl_log", "run_counts", "counts", "leases", "task_metadata", "tasks", "robots", "gates", "queues", "crawls",
)  # fmt: skip


def upgrade() -> None:
    """Create the tables of the URL plane."""
    for statement in SQLITE if op.get_bind().dialect.name == "sqlite" else POSTGRES:
        op.execute(statement)


def downgrade() -> None:
    """Drop them with everything in them."""
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE sequences")
    else:
        op.execute("DROP SEQUENCE discovery_sequence")
        op.execute("DROP SEQUENCE turn_sequence")
