"""Lives of domains: their history, their counters beside the counts, and their status on the gates."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Counters of a domain stand with its counts, which every report writes anyway, and are summed up when read.
# What the gate knows of its domain spares whoever holds it the wide row.
COLUMNS = {
    "counts": {
        "images_found": "bigint NOT NULL DEFAULT 0",
        "errors": "bigint NOT NULL DEFAULT 0",
        "depth_reached": "integer NOT NULL DEFAULT 0",
        "changed_at": "bigint NOT NULL DEFAULT 0",
    },
    "gates": {
        "status": "{status} NOT NULL DEFAULT 'pending'",
        "errors_in_row": "integer NOT NULL DEFAULT 0",
        "error_at": "bigint NOT NULL DEFAULT 0",
        "own_band": "{boolean} NOT NULL DEFAULT {no}",
    },
    "leases": {"claim_version": "integer"},
    "domains": {"claim_version": "integer"},
}

HISTORY = """
    CREATE TABLE domain_history (
        history_id {identity},
        domain_id {uuid} NOT NULL REFERENCES domains (id) ON DELETE CASCADE,
        from_status text NOT NULL,
        to_status text NOT NULL,
        reason_code text,
        reason text,
        actor text NOT NULL,
        run_id {uuid},
        at {moment} NOT NULL,
        version integer NOT NULL
    )
"""

INDEXES = {
    "domain_history_domain": "domain_history (domain_id, history_id)",
    "domains_resting": "domains (next_crawl_after) WHERE status IN ('blocked', 'unreachable')",
}

SQLITE_TRIGGER = """
    CREATE TRIGGER domains_status_of_gate AFTER UPDATE OF status ON domains FOR EACH ROW
    WHEN NEW.status <> OLD.status
    BEGIN
        UPDATE gates
           SET status = NEW.status, errors_in_row = CASE NEW.status WHEN 'pending' THEN 0 ELSE errors_in_row END
         WHERE domain = NEW.domain;
    END
"""

POSTGRES_TRIGGER_FUNCTION = """
    CREATE FUNCTION set_status_of_gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE gates
           SET status = NEW.status, errors_in_row = CASE NEW.status WHEN 'pending' THEN 0 ELSE errors_in_row END
         WHERE domain = NEW.domain;
        RETURN NULL;
    END;
    $$
"""
POSTGRES_TRIGGER = """
    CREATE TRIGGER domains_status_of_gate AFTER UPDATE OF status ON domains
    FOR EACH ROW WHEN (NEW.status <> OLD.status) EXECUTE FUNCTION set_status_of_gate()
"""

# For those who speak SQL: a step as the stores take it. The gate comes first, in the order of all locks.
TRANSITION = """
    CREATE FUNCTION transition_domain_status(
        p_domain_id uuid, p_from_status domain_status, p_to_status domain_status, p_worker_id varchar,
        p_expected_version integer
    ) RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE
        v_version integer;
    BEGIN
        IF NOT (
            (p_from_status = 'pending' AND p_to_status IN ('active', 'unreachable')) OR
            (p_from_status = 'active' AND p_to_status IN ('active', 'exhausted', 'blocked', 'unreachable')) OR
            (p_from_status = 'exhausted' AND p_to_status IN ('pending', 'active')) OR
            (p_from_status = 'blocked' AND p_to_status IN ('pending', 'active')) OR
            (p_from_status = 'unreachable' AND p_to_status IN ('pending', 'active'))
        ) THEN
            RAISE EXCEPTION 'Invalid transition: % -> %', p_from_status, p_to_status;
        END IF;
        PERFORM FROM gates g JOIN domains d ON d.domain = g.domain WHERE d.id = p_domain_id FOR UPDATE OF g;
        UPDATE domains
           SET status = p_to_status, version = version + 1,
               claim_version = CASE WHEN p_worker_id IS NULL THEN claim_version ELSE version + 1 END,
               claimed_by = CASE WHEN p_worker_id IS NULL THEN NULL ELSE claimed_by END,
               claim_expires_at = CASE WHEN p_worker_id IS NULL THEN NULL ELSE claim_expires_at END,
               first_blocked_at = CASE WHEN p_to_status = 'blocked' THEN coalesce(first_blocked_at, clock_timestamp())
                                       ELSE first_blocked_at END,
               block_count = block_count + CASE WHEN p_to_status = 'blocked' THEN 1 ELSE 0 END
         WHERE id = p_domain_id AND status = p_from_status AND version = p_expected_version
           AND (p_worker_id IS NULL OR (claimed_by = p_worker_id AND claim_expires_at > clock_timestamp()))
        RETURNING version INTO v_version;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        INSERT INTO domain_history (domain_id, from_status, to_status, actor, at, version)
        VALUES (p_domain_id, p_from_status::text, p_to_status::text, coalesce(p_worker_id, 'sql'), clock_timestamp(),
                v_version);
        RETURN true;
    END;
    $$
"""


def upgrade() -> None:
    """Add the columns, the history and what keeps the gates in step, and fill what is known already."""
    on_sqlite = _on_sqlite()
    words = (
        {
            "status": "TEXT",
            "boolean": "INTEGER",
            "no": "0",
            "uuid": "text",
            "moment": "text",
            "identity": "integer PRIMARY KEY AUTOINCREMENT",
        }
        if on_sqlite
        else {
            "status": "domain_status",
            "boolean": "boolean",
            "no": "false",
            "uuid": "uuid",
            "moment": "timestamptz",
            "identity": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        }
    )
    for table, columns in COLUMNS.items():
        for name, kind in columns.items():
            # A STRICT table knows INTEGER alone.
            plain = kind.replace("bigint", "INTEGER").replace("integer", "INTEGER") if on_sqlite else kind
            op.execute(f"ALTER TABLE {table} ADD COLUMN {name} {plain.format(**words)}")
    op.execute(HISTORY.format(**words))
    # What waits for a moment is now found by why it waits; one index less for each step to write.
    op.execute("DROP INDEX domains_next_crawl")
    for name, definition in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON {definition}")
    op.execute(
        "UPDATE gates SET status = d.status, errors_in_row = d.consecutive_error_count "
        "FROM domains AS d WHERE d.domain = gates.domain"
    )
    # Nothing but operators has set a band so far.
    op.execute(f"UPDATE gates SET own_band = {1 if on_sqlite else 'true'} WHERE band <> 8")
    op.execute("UPDATE domains SET claim_version = version WHERE claimed_by IS NOT NULL")
    for statement in (SQLITE_TRIGGER,) if on_sqlite else (POSTGRES_TRIGGER_FUNCTION, POSTGRES_TRIGGER, TRANSITION):
        op.execute(statement)


def downgrade() -> None:
    """Drop them; what was counted since stays, in the domains' own columns."""
    op.execute(
        "UPDATE domains SET images_found = domains.images_found + n.found, "
        "total_error_count = domains.total_error_count + n.errors "
        "FROM (SELECT domain, sum(images_found) AS found, sum(errors) AS errors FROM counts "
        "WHERE key <> '' GROUP BY domain) AS n WHERE n.domain = domains.domain"
    )
    op.execute(
        "UPDATE domains SET consecutive_error_count = g.errors_in_row FROM gates AS g WHERE g.domain = domains.domain"
    )
    op.execute("DROP TRIGGER domains_status_of_gate" + ("" if _on_sqlite() else " ON domains"))
    if not _on_sqlite():
        op.execute("DROP FUNCTION set_status_of_gate()")
        op.execute("DROP FUNCTION transition_domain_status(uuid, domain_status, domain_status, varchar, integer)")
    for name in INDEXES:
        op.execute(f"DROP INDEX {name}")
    op.execute("DROP TABLE domain_history")
    op.execute("CREATE INDEX domains_next_crawl ON domains (next_crawl_after) WHERE next_crawl_after IS NOT NULL")
    for table, columns in COLUMNS.items():
        for name in columns:
            op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")


def _on_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"
