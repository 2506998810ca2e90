"""The control plane: domains, jobs and their history, runs, workers, outbox, and `crawl_states`."""

import sqlalchemy
from alembic import op

from outrider.model.domain_name import parent_domain

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

LIVE_JOB = "status IN ('pending', 'processing', 'paused')"

# total_pending is what the frontier still has to do: what waits and what is in flight (seed of the
# design: len(frontier)). It is a sum over the crawl's own count rows, so it is exact at every commit.
CRAWL_STATES = """
    CREATE VIEW crawl_states AS
    SELECT crawls.name AS crawl,
           crawls.state AS state,
           (SELECT crawl_jobs.id FROM crawl_jobs
             WHERE crawl_jobs.crawl = crawls.name
             ORDER BY crawl_jobs.created_at DESC, crawl_jobs.id DESC LIMIT 1) AS job_id,
           CAST(coalesce(sum(counts.discovered), 0) AS bigint) AS total_discovered,
           CAST(coalesce(sum(counts.pending + counts.assigned), 0) AS bigint) AS total_pending,
           CAST(coalesce(sum(counts.assigned), 0) AS bigint) AS total_assigned,
           CAST(coalesce(sum(counts.completed), 0) AS bigint) AS total_completed,
           CAST(coalesce(sum(counts.failed), 0) AS bigint) AS total_failed
      FROM crawls
      LEFT JOIN counts ON counts.crawl_id = crawls.crawl_id AND counts.key = ''
     GROUP BY crawls.crawl_id, crawls.name, crawls.state
"""

INDEXES = (
    "CREATE INDEX domains_status ON domains (status)",
    "CREATE INDEX domains_priority ON domains (priority_score DESC)",
    "CREATE INDEX domains_next_crawl ON domains (next_crawl_after) WHERE next_crawl_after IS NOT NULL",
    "CREATE INDEX domains_yield ON domains (image_yield_rate DESC)",
    "CREATE INDEX domains_last_crawled ON domains (last_crawled_at)",
    "CREATE INDEX domains_source ON domains (source)",
    "CREATE INDEX domains_parent ON domains (parent_domain)",
    # What may be claimed, in the order of claiming, and what has to wait, by when: a claim looks at no
    # domain that it does not take, however many better ones are cooling down.
    """CREATE INDEX domains_claimable ON domains
           ((status = 'pending'), priority_score DESC, last_crawled_at{nulls_first}, id)
       WHERE status IN ('pending', 'active') AND NOT cooling""",
    """CREATE INDEX domains_cooling ON domains (claimable_at)
       WHERE status IN ('pending', 'active') AND cooling""",
    """CREATE INDEX domains_refresh_candidates ON domains (status, next_crawl_after, image_yield_rate DESC)
       WHERE status = 'exhausted'""",
    "CREATE INDEX domains_claims ON domains (claimed_by, claim_expires_at) WHERE claimed_by IS NOT NULL",
    """CREATE INDEX crawl_jobs_claimable ON crawl_jobs (priority DESC, created_at, id)
       WHERE status = 'pending'""",
    "CREATE INDEX crawl_jobs_status ON crawl_jobs (status, priority DESC, created_at)",
    "CREATE INDEX crawl_jobs_beat ON crawl_jobs (last_heartbeat) WHERE status = 'processing'",
    f"CREATE UNIQUE INDEX crawl_jobs_live ON crawl_jobs (crawl) WHERE {LIVE_JOB}",
    "CREATE UNIQUE INDEX crawl_jobs_idempotency ON crawl_jobs (coalesce(user_id, ''), idempotency_key) "
    "WHERE idempotency_key IS NOT NULL",
    "CREATE INDEX job_history_job ON job_history (job_id, history_id)",
    "CREATE INDEX crawl_runs_crawl ON crawl_runs (crawl, started_at)",
    "CREATE INDEX workers_expiry ON workers (expires_at)",
    "CREATE INDEX outbox_undelivered ON outbox (topic, message_id) WHERE delivered_at IS NULL",
    "CREATE INDEX outbox_siblings ON outbox (topic, ordering_key, message_id) WHERE delivered_at IS NULL",
    "CREATE INDEX outbox_delivered ON outbox (delivered_at) WHERE delivered_at IS NOT NULL",
)

# A domain can be claimed when neither its pause nor somebody's claim lasts. `cooling` says that it may
# still have to wait: whoever finds that `claimable_at` has passed writes it into `woken_for`, and any new
# pause or claim makes the two differ again. So no writer can forget to keep `cooling`, and it needs no clock.
COOLING_POSTGRES = """
            woken_for timestamptz,
            claimable_at timestamptz GENERATED ALWAYS AS (GREATEST(next_crawl_after, claim_expires_at)) STORED,
            cooling boolean NOT NULL GENERATED ALWAYS AS (
                GREATEST(next_crawl_after, claim_expires_at) IS NOT NULL
                AND GREATEST(next_crawl_after, claim_expires_at) IS DISTINCT FROM woken_for) STORED"""
COOLING_SQLITE = """
            woken_for text,
            claimable_at text GENERATED ALWAYS AS (
                nullif(max(coalesce(next_crawl_after, ''), coalesce(claim_expires_at, '')), '')) VIRTUAL,
            cooling integer GENERATED ALWAYS AS (
                claimable_at IS NOT NULL AND claimable_at IS NOT woken_for) VIRTUAL"""


def tables(
    *,
    uuid: str,
    moment: str,
    json: str,
    name: str,
    identity: str,
    status: dict[str, str],
    cooling: str,
    options: str,
) -> list[str]:
    """Write the tables in one dialect's types; the columns are the same in both."""
    return [
        f"""
        CREATE TABLE crawl_runs (
            id {uuid} PRIMARY KEY,
            crawl {name} NOT NULL,
            job_id {uuid},
            kind text NOT NULL CHECK (kind IN ('crawl', 'job', 'refresh')),
            status text NOT NULL CHECK (status IN ('running', 'completed', 'stopped', 'failed')),
            reason text,
            settings {json} NOT NULL,
            started_at {moment} NOT NULL,
            finished_at {moment}
        ){options}
        """,
        f"""
        CREATE TABLE domains (
            id {uuid} PRIMARY KEY,
            domain {name} NOT NULL UNIQUE CHECK (length(domain) <= 255),
            parent_domain {name} NOT NULL,
            status {status["domain"]},
            block_reason text,
            block_reason_code text CHECK (length(block_reason_code) <= 50),
            first_blocked_at {moment},
            block_count integer NOT NULL DEFAULT 0,
            claimed_by text CHECK (length(claimed_by) <= 255),
            claim_expires_at {moment},
            version integer NOT NULL DEFAULT 0,
            pages_discovered bigint NOT NULL DEFAULT 0,
            pages_crawled bigint NOT NULL DEFAULT 0,
            images_found bigint NOT NULL DEFAULT 0,
            images_stored bigint NOT NULL DEFAULT 0,
            max_pages_per_run integer DEFAULT 1000,
            crawl_depth_reached integer NOT NULL DEFAULT 0,
            image_yield_rate double precision,
            avg_images_per_page double precision,
            error_rate double precision,
            total_error_count integer NOT NULL DEFAULT 0,
            consecutive_error_count integer NOT NULL DEFAULT 0,
            priority_score integer NOT NULL DEFAULT 0,
            priority_computed_at {moment},
            seed_rank integer,
            source text CHECK (length(source) <= 100),
            first_seen_at {moment} NOT NULL,
            last_crawled_at {moment},
            next_crawl_after {moment},
            updated_at {moment} NOT NULL,
            last_crawl_run_id {uuid} REFERENCES crawl_runs (id) ON DELETE SET NULL,
            frontier_checkpoint_id text CHECK (length(frontier_checkpoint_id) <= 100),
            frontier_size integer NOT NULL DEFAULT 0,
            frontier_updated_at {moment},{cooling}
        ){options}
        """,
        f"""
        CREATE TABLE crawl_jobs (
            id {uuid} PRIMARY KEY,
            crawl {name} NOT NULL,
            payload {json} NOT NULL,
            priority integer NOT NULL DEFAULT 0,
            status {status["job"]},
            desired_state {status["desired"]},
            epoch integer NOT NULL DEFAULT 0,
            worker_id text,
            run_id {uuid},
            progress_percentage integer NOT NULL DEFAULT 0 CHECK (progress_percentage BETWEEN 0 AND 100),
            progress {json},
            created_at {moment} NOT NULL,
            available_at {moment} NOT NULL,
            started_at {moment},
            completed_at {moment},
            last_heartbeat {moment},
            retry_count integer NOT NULL DEFAULT 0,
            max_retries integer NOT NULL DEFAULT 3,
            error_message text,
            error_kind text,
            source_id text,
            user_id text,
            idempotency_key text
        ){options}
        """,
        f"""
        CREATE TABLE job_history (
            history_id {identity},
            job_id {uuid} NOT NULL REFERENCES crawl_jobs (id) ON DELETE CASCADE,
            from_status text,
            to_status text NOT NULL,
            epoch integer NOT NULL,
            actor text NOT NULL,
            note text,
            at {moment} NOT NULL
        ){options}
        """,
        f"""
        CREATE TABLE workers (
            worker_id {name} PRIMARY KEY,
            kind text NOT NULL CHECK (kind IN ('worker', 'runner', 'supervisor')),
            mode text NOT NULL CHECK (mode IN ('plain', 'claims')),
            host text NOT NULL,
            process_id integer NOT NULL,
            lock_path text,
            started_at {moment} NOT NULL,
            last_beat_at {moment} NOT NULL,
            expires_at {moment} NOT NULL
        ){options}
        """,
        f"""
        CREATE TABLE outbox (
            message_id {identity},
            id {uuid} NOT NULL UNIQUE,
            topic {name} NOT NULL,
            ordering_key {name} NOT NULL,
            payload {json} NOT NULL,
            created_at {moment} NOT NULL,
            attempts integer NOT NULL DEFAULT 0,
            next_attempt_at {moment} NOT NULL,
            last_error text,
            delivered_at {moment}
        ){options}
        """,
    ]


def one_of(column: str, *values: str) -> str:
    """Write what SQLite has instead of an enum."""
    allowed = ", ".join(f"'{value}'" for value in values)
    return f"text NOT NULL DEFAULT '{values[0]}' CHECK ({column} IN ({allowed}))"


DOMAIN_STATUS = ("pending", "active", "exhausted", "blocked", "unreachable")
JOB_STATUS = ("pending", "processing", "completed", "failed", "cancelled", "paused")
DESIRED_STATE = ("run", "pause", "cancel")


def upgrade() -> None:
    """Create the tables, indexes, triggers and the view of the control plane."""
    if op.get_bind().dialect.name == "sqlite":
        upgrade_sqlite()
        fill_domains("strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")
    else:
        upgrade_postgres()
        fill_domains("CURRENT_TIMESTAMP")


def fill_domains(now: str) -> None:
    """Make a domain of every gate that is already there, under the id that the gate has for it."""
    connection = op.get_bind()
    gates = connection.execute(sqlalchemy.text("SELECT domain_id, domain FROM gates ORDER BY domain")).all()
    insert = sqlalchemy.text(
        "INSERT INTO domains (id, domain, parent_domain, first_seen_at, updated_at) "
        f"VALUES (:id, :domain, :parent, {now}, {now})"
    )
    for start in range(0, len(gates), 1000):
        chunk = gates[start : start + 1000]
        connection.execute(insert, [{"id": row[0], "domain": row[1], "parent": parent_domain(row[1])} for row in chunk])


def upgrade_sqlite() -> None:
    """Moments are ISO 8601 text in UTC with milliseconds: they sort, and people can read them."""
    for statement in tables(
        uuid="text",
        moment="text",
        json="text",
        name="text",
        identity="integer PRIMARY KEY AUTOINCREMENT",
        status={
            "domain": one_of("status", *DOMAIN_STATUS),
            "job": one_of("status", *JOB_STATUS),
            "desired": one_of("desired_state", *DESIRED_STATE),
        },
        cooling=COOLING_SQLITE,
        options="",
    ):
        op.execute(statement)
    for statement in INDEXES:
        op.execute(statement.replace("{nulls_first}", ""))  # SQLite's own order
    op.execute(
        """
        CREATE TRIGGER domains_updated_at AFTER UPDATE ON domains FOR EACH ROW
        WHEN NEW.updated_at = OLD.updated_at
        BEGIN
            UPDATE domains SET updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE id = NEW.id;
        END
        """
    )
    op.execute(CRAWL_STATES)


def upgrade_postgres() -> None:
    """Enums, and a trigger that no writer can forget."""
    for name, values in (
        ("domain_status", DOMAIN_STATUS),
        ("job_status", JOB_STATUS),
        ("desired_state", DESIRED_STATE),
    ):
        op.execute(f"CREATE TYPE {name} AS ENUM ({', '.join(repr(value) for value in values)})")
    for statement in tables(
        uuid="uuid",
        moment="timestamptz",
        json="jsonb",
        name='text COLLATE "C"',
        identity="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        status={
            "domain": "domain_status NOT NULL DEFAULT 'pending'",
            "job": "job_status NOT NULL DEFAULT 'pending'",
            "desired": "desired_state NOT NULL DEFAULT 'run'",
        },
        cooling=COOLING_POSTGRES,
        options=" WITH (fillfactor = 70)",
    ):
        op.execute(statement)
    for statement in INDEXES:
        op.execute(statement.replace("{nulls_first}", " NULLS FIRST"))
    op.execute(
        """
        CREATE FUNCTION set_domains_updated_at() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            NEW.updated_at := CURRENT_TIMESTAMP;
            RETURN NEW;
        END;
        $$
        """
    )
    op.execute(
        """
        CREATE TRIGGER domains_updated_at BEFORE UPDATE ON domains
        FOR EACH ROW EXECUTE FUNCTION set_domains_updated_at()
        """
    )
    op.execute(CRAWL_STATES)


def downgrade() -> None:
    """Drop them with everything in them; the URL plane stays as it is."""
    op.execute("DROP VIEW crawl_states")
    for table in ("outbox", "workers", "job_history", "crawl_jobs", "domains", "crawl_runs"):
        op.execute(f"DROP TABLE {table}")
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION set_domains_updated_at()")
        for name in ("desired_state", "job_status", "domain_status"):
            op.execute(f"DROP TYPE {name}")
