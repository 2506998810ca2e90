"""The statements of the control plane in PostgreSQL's dialect.

Lists of columns are those of the records, in their order. What locks several rows locks them in the
order of their keys, except claims, which use SKIP LOCKED. Names are locked in PostgreSQL's space of
two numbers, apart from the locks of the URL plane.

What a LIMIT has chosen is looked up with `= ANY (ARRAY (…))`: plans are made for any limit, and for a
join PostgreSQL would expect a tenth of the table and read all of it (339 ms for 10 of 1,000,000 domains).
"""

from outrider.policy.domain_priority import Columns
from outrider.store.sql.postgres.urls import HELD_LEASE
from outrider.store.sql.script import Catalogue, Sql

COLUMNS = Columns(
    pages_discovered="(d.pages_discovered + n.discovered)", pages_crawled="(d.pages_crawled + n.crawled)",
    images_found="(d.images_found + n.images)", images_stored="d.images_stored",
    total_error_count="(d.total_error_count + n.errors)", first_seen_at="d.first_seen_at",
    last_crawled_at="d.last_crawled_at", seed_rank="d.seed_rank",
)  # fmt: skip
"""What is known of a domain `d` with what is counted of it, `n`.

Purges and backfills leave their offsets in the domain's own columns; all else is in the counts.
"""


def domain_columns(greatest: str, changed_at: str) -> str:
    """List the columns of a domain `d` with its counts `n`, in one dialect's words."""
    return f"""CAST(d.id AS text), d.domain, d.parent_domain, d.status, d.block_reason, d.block_reason_code,
    d.first_blocked_at, d.block_count, d.claimed_by, d.claim_expires_at, d.version, {COLUMNS.images_found},
    d.images_stored, d.max_pages_per_run, {greatest}(d.crawl_depth_reached, n.depth), {COLUMNS.image_yield_rate},
    {COLUMNS.avg_images_per_page}, {COLUMNS.error_rate}, {COLUMNS.total_error_count},
    coalesce((SELECT g.errors_in_row FROM gates g WHERE g.domain = d.domain), 0), d.priority_score,
    d.priority_computed_at, d.seed_rank, d.source, d.first_seen_at, d.last_crawled_at, d.next_crawl_after,
    d.updated_at, CAST(d.last_crawl_run_id AS text),
    CASE WHEN n.changed_at > 0 THEN {changed_at} ELSE d.frontier_updated_at END,
    {COLUMNS.pages_discovered}, {COLUMNS.pages_crawled}, n.waiting,
    CASE WHEN n.waiting > 0 THEN 'urls:' || d.domain END"""


DOMAIN = domain_columns(
    "greatest",
    "greatest('epoch'::timestamptz + (n.changed_at / 1000) * interval '1 second'"
    " + (n.changed_at % 1000) * interval '1 millisecond', d.frontier_updated_at)",
)

COUNTS_OF_DOMAIN = """
            SELECT coalesce(sum(c.discovered + c.pending + c.assigned + c.completed + c.failed)
                            FILTER (WHERE c.kind = 0), 0)::bigint AS discovered,
                   coalesce(sum(c.completed) FILTER (WHERE c.kind = 0), 0)::bigint AS crawled,
                   coalesce(sum(c.discovered + c.pending + c.assigned), 0)::bigint AS waiting,
                   coalesce(sum(c.pending + c.assigned), 0)::bigint AS open,
                   coalesce(sum(c.images_found), 0)::bigint AS images, coalesce(sum(c.errors), 0)::bigint AS errors,
                   coalesce(max(c.depth_reached), 0) AS depth, coalesce(max(c.changed_at), 0) AS changed_at
              FROM counts c WHERE c.domain = d.domain AND c.key <> ''"""

JOB = """CAST(id AS text), crawl, payload, priority, status, desired_state, epoch, worker_id,
    CAST(run_id AS text), progress_percentage, progress, created_at, available_at, started_at, completed_at,
    last_heartbeat, retry_count, max_retries, error_message, error_kind, source_id, user_id, idempotency_key, labels,
    key_id, webhook_url, webhook_secret, reason, updated_at"""

RUN = """CAST(id AS text), crawl, CAST(job_id AS text), kind, status, reason, settings, started_at,
    finished_at"""

WORKER = "worker_id, kind, mode, host, process_id, lock_path, started_at, last_beat_at, expires_at"

API_KEY = """key_id, name, role, crawls, digest, created_at, revoked_at, owner, max_active_jobs, max_pages_per_job,
    max_jobs_per_day"""

MESSAGE = """topic, ordering_key, payload, CAST(id AS text), message_id, created_at, attempts, next_attempt_at,
    last_error, delivered_at"""


SCHEDULE = "schedule_id, crawl, payload, every_ms, due_at, last_job_id, created_at"


def moment(number: int) -> str:
    """Read a parameter as milliseconds, to the millisecond.

    Intervals are multiplied as floating-point numbers: whole seconds stay exact up to the year 10000, a
    product in milliseconds only up to 2255.
    """
    return (
        f"('epoch'::timestamptz + (${number}::bigint / 1000) * interval '1 second'"
        f" + (${number}::bigint % 1000) * interval '1 millisecond')"
    )


CRAWL_OF_JOBS, WORKERS, TOPIC, ORDERING_KEY, KEY_OF_JOBS = range(1, 6)
ALL = "''"


def lock_name(space: int, name: str) -> str:
    """Lock a name until the transaction ends."""
    return f"pg_advisory_xact_lock({space}, hashtext({name}))"


JOB_NEWS = "outrider_jobs"
"""The channel of the hint that there may be something to do for a job."""

JOB_ORDERS = {
    "newest": ("$1::bigint IS NOT NULL AND id < $2", "crawl_jobs.id DESC"),
    "oldest": ("$1::bigint IS NOT NULL AND id > $2", "crawl_jobs.id"),
    "priority": ("((-priority), id) > ($1::bigint, $2)", "(-priority), crawl_jobs.id"),
    "updated": (f"(updated_at, id) < ({moment(1)}, $2)", "updated_at DESC, crawl_jobs.id DESC"),
}
"""For each order of jobs, what comes after the place of a rank and an id, and how it is sorted."""


def listing(order: tuple[str, str]) -> str:
    """Write the statement that lists jobs in an order, which is that of an index.

    `coalesce` hides from the planner that it compares: else it would expect next to nothing to fit, and
    collect and sort all jobs instead of reading the first ones.
    """
    after, sorting = order
    return f"""
        SELECT {JOB} FROM crawl_jobs
         WHERE {after} AND coalesce(status = $3::job_status, $3 IS NULL) AND coalesce(crawl = $4, $4 IS NULL)
           AND coalesce(user_id = $5, $5 IS NULL) AND coalesce(source_id = $6, $6 IS NULL)
           AND coalesce(labels ->> $7 = $8, $7 IS NULL)
         ORDER BY {sorting} LIMIT $9"""


CATALOGUE: Catalogue = {
    # --------------------------------------------------------------- domains
    "insert_seeds": Sql(f"""
        INSERT INTO domains (id, domain, parent_domain, source, seed_rank, first_seen_at, updated_at)
        SELECT w.id, w.domain, w.parent, w.source, w.seed_rank, {moment(1)}, {moment(1)}
          FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::int[]) WITH ORDINALITY
            AS w (id, domain, parent, source, seed_rank, place)
         ORDER BY w.place ON CONFLICT (domain) DO NOTHING RETURNING domain"""),
    "fill_seeds": Sql("""
        WITH lacking AS (
            SELECT d.id, w.source, w.seed_rank
              FROM unnest($1::text[], $2::text[], $3::int[]) AS w (domain, source, seed_rank)
              JOIN domains d ON d.domain = w.domain
             WHERE (d.source IS NULL AND w.source IS NOT NULL)
                OR (d.seed_rank IS NULL AND w.seed_rank IS NOT NULL)
             ORDER BY d.domain FOR NO KEY UPDATE OF d)
        UPDATE domains d
           SET source = coalesce(d.source, lacking.source), seed_rank = coalesce(d.seed_rank, lacking.seed_rank)
          FROM lacking WHERE d.id = lacking.id"""),
    "domain": Sql(f"""
        SELECT {DOMAIN} FROM domains d CROSS JOIN LATERAL ({COUNTS_OF_DOMAIN}) n
         WHERE d.domain = $1"""),
    "list_domains": Sql(f"""
        SELECT {DOMAIN}
          FROM (SELECT * FROM domains WHERE domain > $2 AND ($1::domain_status IS NULL OR status = $1)
                 ORDER BY domain LIMIT $3) d
         CROSS JOIN LATERAL ({COUNTS_OF_DOMAIN}) n ORDER BY d.domain"""),
    "lock_domains": Sql("""
        SELECT domain FROM domains WHERE domain = ANY ($1::text[]) ORDER BY domain FOR NO KEY UPDATE"""),
    "transition_domain": Sql(f"""
        UPDATE domains
           SET status = $6::domain_status, version = version + 1,
               claim_version = CASE WHEN $4::text IS NULL THEN claim_version ELSE version + 1 END,
               block_reason = $7, block_reason_code = $8,
               next_crawl_after = {moment(9)},
               claimed_by = CASE WHEN $4::text IS NULL THEN NULL ELSE claimed_by END,
               claim_expires_at = CASE WHEN $4::text IS NULL THEN NULL ELSE claim_expires_at END,
               first_blocked_at = CASE WHEN $6 = 'blocked' THEN coalesce(first_blocked_at, {moment(5)})
                                       ELSE first_blocked_at END,
               block_count = block_count + CASE WHEN $6 = 'blocked' THEN 1 ELSE 0 END,
               last_crawled_at = CASE WHEN $6 = 'active' AND $2::domain_status IN ('pending', 'active') THEN {moment(5)}
                                      ELSE last_crawled_at END,
               last_crawl_run_id = CASE WHEN $6 = 'active' AND $2::domain_status IN ('pending', 'active')
                                        THEN coalesce($10::uuid, last_crawl_run_id) ELSE last_crawl_run_id END
         WHERE domain = $1 AND status = $2::domain_status AND version = $3
           AND ($4::text IS NULL OR (claimed_by = $4 AND claim_expires_at > {moment(5)}))
        RETURNING version"""),
    "configure_domain": Sql("""
        UPDATE domains SET max_pages_per_run = $2, version = version + 1, claimed_by = NULL, claim_expires_at = NULL
         WHERE domain = $1"""),
    # ---------------------------------------------------------------- claims
    "wake_domains": Sql(f"""
        WITH due AS (
            SELECT id FROM domains
             WHERE status IN ('pending', 'active') AND cooling AND claimable_at <= {moment(1)}
             ORDER BY claimable_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
        UPDATE domains SET woken_for = claimable_at WHERE id = ANY (ARRAY (SELECT id FROM due))"""),
    # NOT cooling already says what follows it, unless somebody's clock runs backwards.
    "claim_domains": Sql(f"""
        WITH chosen AS (
            SELECT id FROM domains
             WHERE status IN ('pending', 'active') AND NOT cooling
               AND (claimable_at IS NULL OR claimable_at <= {moment(3)})
             ORDER BY (status = 'pending'), priority_score DESC, last_crawled_at NULLS FIRST, id
             LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
        UPDATE domains SET claimed_by = $1, claim_expires_at = {moment(4)}, version = version + 1,
                           claim_version = version + 1
         WHERE id = ANY (ARRAY (SELECT id FROM chosen))
        RETURNING domain, CAST(id AS text), version, status, priority_score, last_crawled_at"""),
    "held_claims": Sql(f"""
        SELECT d.domain FROM unnest($3::text[], $4::int[]) AS w (domain, version)
          JOIN domains d ON d.domain = w.domain AND d.claim_version = w.version
         WHERE d.claimed_by = $1 AND d.claim_expires_at > {moment(2)}"""),
    "renew_claims": Sql(f"""
        UPDATE domains d SET claim_expires_at = {moment(3)}
          FROM unnest($4::text[], $5::int[]) AS w (domain, version)
         WHERE d.domain = w.domain AND d.claim_version = w.version AND d.claimed_by = $1
           AND d.claim_expires_at > {moment(2)}
        RETURNING d.domain, CAST(d.id AS text), w.version"""),
    "release_claims": Sql(f"""
        UPDATE domains d SET claimed_by = NULL, claim_expires_at = NULL, version = d.version + 1
          FROM unnest($3::text[], $4::int[]) AS w (domain, version)
         WHERE d.domain = w.domain AND d.claim_version = w.version AND d.claimed_by = $1
           AND d.claim_expires_at > {moment(2)}
        RETURNING d.domain, w.version"""),
    "release_all_claims": Sql("""
        WITH held AS (
            SELECT id FROM domains WHERE claimed_by IS NOT NULL AND ($1::text IS NULL OR claimed_by = $1)
             ORDER BY domain LIMIT $2 FOR NO KEY UPDATE)
        UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL, version = version + 1
         WHERE id = ANY (ARRAY (SELECT id FROM held)) RETURNING domain"""),
    "claims_by_worker": Sql(f"""
        SELECT claimed_by, count(*), min(claim_expires_at) FROM domains
         WHERE claimed_by IS NOT NULL AND claim_expires_at > {moment(1)}
         GROUP BY claimed_by ORDER BY claimed_by"""),
    "count_expired_claims": Sql(f"""
        SELECT count(*) FROM domains WHERE claimed_by IS NOT NULL AND claim_expires_at <= {moment(1)}"""),
    "count_unclaimed": Sql(f"""
        SELECT status, count(*) FROM domains
         WHERE status IN ('pending', 'active')
           AND (claim_expires_at IS NULL OR claim_expires_at <= {moment(1)})
         GROUP BY status ORDER BY status"""),
    # ------------------------------------------------------------------ jobs
    "lock_crawl_of_jobs": Sql(f"SELECT {lock_name(CRAWL_OF_JOBS, '$1')}"),
    "insert_schedule": Sql(f"""
        INSERT INTO schedules (schedule_id, crawl, payload, every_ms, due_at, created_at)
        VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT DO NOTHING RETURNING {SCHEDULE}"""),
    "schedule_of_crawl": Sql(f"SELECT {SCHEDULE} FROM schedules WHERE crawl = $1"),
    "list_schedules": Sql(f"SELECT {SCHEDULE} FROM schedules ORDER BY crawl"),
    "delete_schedule": Sql("DELETE FROM schedules WHERE schedule_id = $1 RETURNING schedule_id"),
    "due_schedules": Sql(f"""
        SELECT {SCHEDULE} FROM schedules WHERE due_at <= $1 ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED"""),
    "advance_schedule": Sql("""
        UPDATE schedules SET due_at = $2, last_job_id = coalesce($3, last_job_id) WHERE schedule_id = $1"""),
    # Who wakes domains has made those pending that were exhausted: they are still to be refreshed.
    "refresh_candidates": Sql(f"""
        SELECT domain FROM (
            SELECT domain, image_yield_rate, last_crawled_at FROM domains
             WHERE status = 'exhausted' AND next_crawl_after <= {moment(1)}
             UNION ALL
            SELECT domain, image_yield_rate, last_crawled_at FROM domains
             WHERE status = 'pending' AND last_crawled_at IS NOT NULL) AS due
         ORDER BY image_yield_rate DESC NULLS LAST, last_crawled_at LIMIT $2"""),
    "insert_job": Sql(f"""
        INSERT INTO crawl_jobs (id, crawl, payload, priority, created_at, available_at, max_retries, source_id,
                                user_id, idempotency_key, labels, key_id, webhook_url, webhook_secret, updated_at)
        VALUES ($1, $2, $3, $4, {moment(5)}, {moment(6)}, $7, $8, $9, $10, $11, $12, $13, $14,
                {moment(5)})
        ON CONFLICT DO NOTHING RETURNING {JOB}"""),
    "earlier_job": Sql(f"""
        SELECT {JOB} FROM crawl_jobs
         WHERE id = $1 OR (coalesce(user_id, '') = coalesce($2, '') AND idempotency_key = $3)"""),
    "live_job": Sql(f"""
        SELECT {JOB} FROM crawl_jobs WHERE crawl = $1 AND status IN ('pending', 'processing', 'paused')"""),
    "job": Sql(f"SELECT {JOB} FROM crawl_jobs WHERE id = $1"),
    "lock_job": Sql(f"SELECT {JOB} FROM crawl_jobs WHERE id = $1 FOR NO KEY UPDATE"),
    **{f"list_jobs_{sort}": Sql(listing(order)) for sort, order in JOB_ORDERS.items()},
    # coalesce hides what is compared: without statistics the planner would expect one job to fit, and sort all.
    "claim_job": Sql(f"""
        UPDATE crawl_jobs
           SET status = 'processing', worker_id = $1, started_at = coalesce(started_at, {moment(2)}),
               last_heartbeat = {moment(2)}, epoch = epoch + 1, updated_at = {moment(2)}
         WHERE id = (
            SELECT id FROM crawl_jobs
             WHERE status = 'pending' AND coalesce(desired_state = 'run' AND available_at <= {moment(2)}, false)
             ORDER BY priority DESC, created_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
        RETURNING {JOB}"""),
    "beat_job": Sql(f"""
        UPDATE crawl_jobs
           SET last_heartbeat = coalesce({moment(5)}, date_trunc('milliseconds', clock_timestamp())),
               progress_percentage = coalesce($3::int, progress_percentage),
               progress = coalesce($4::jsonb, progress)
         WHERE id = $1 AND epoch = $2 AND status = 'processing' RETURNING desired_state"""),
    "move_job": Sql(f"""
        UPDATE crawl_jobs
           SET status = $4::job_status, desired_state = $5::desired_state, worker_id = $6,
               available_at = {moment(7)}, completed_at = {moment(8)}, retry_count = $9, error_kind = $10,
               error_message = $11, progress_percentage = $12, reason = $13, updated_at = {moment(14)}
         WHERE id = $1 AND status = $2::job_status AND epoch = $3 RETURNING id"""),
    "set_desired_state": Sql(f"""
        UPDATE crawl_jobs SET desired_state = $2::desired_state, updated_at = {moment(3)} WHERE id = $1"""),
    "amend_job": Sql(f"UPDATE crawl_jobs SET priority = $2, payload = $3, updated_at = {moment(4)} WHERE id = $1"),
    "lock_stale_jobs": Sql(f"""
        SELECT {JOB} FROM crawl_jobs
         WHERE status = 'processing' AND last_heartbeat < {moment(1)}
         ORDER BY last_heartbeat LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED"""),
    "insert_job_history": Sql(f"""
        INSERT INTO job_history (job_id, from_status, to_status, epoch, actor, note, at)
        VALUES ($1, $2, $3, $4, $5, $6, {moment(7)})"""),
    "endings_of_job": Sql("""
        SELECT to_status FROM job_history
         WHERE job_id = $1 AND epoch = $2 AND from_status = 'processing' AND actor <> $3"""),
    "job_history": Sql("""
        SELECT CAST(job_id AS text), history_id, from_status, to_status, epoch, actor, note, at FROM job_history
         WHERE job_id = $1 AND history_id > $2 ORDER BY history_id LIMIT $3"""),
    "job_counts": Sql("SELECT status, count(*) FROM crawl_jobs GROUP BY status"),
    "work_of_jobs": Sql("""
        SELECT coalesce(sum(n.pending + n.assigned), 0)::bigint, coalesce(sum(n.assigned), 0)::bigint
          FROM crawl_jobs j JOIN crawls c ON c.name = j.crawl JOIN counts n ON n.crawl_id = c.crawl_id AND n.key = ''
         WHERE j.status IN ('pending', 'processing', 'paused')"""),
    "desired_states": Sql("""
        SELECT CAST(j.id AS text), j.desired_state FROM unnest($1::uuid[], $2::int[]) AS w (id, epoch)
          JOIN crawl_jobs j ON j.id = w.id AND j.epoch = w.epoch WHERE j.status = 'processing'"""),
    "tell_of_jobs": Sql(f"SELECT pg_notify('{JOB_NEWS}', $1)"),
    "lock_key_of_jobs": Sql(f"SELECT {lock_name(KEY_OF_JOBS, '$1')}"),
    "active_jobs_of_key": Sql("""
        SELECT count(*) FROM crawl_jobs
         WHERE key_id = $1 AND status IN ('pending', 'processing', 'paused')"""),
    "daily_job_of_key": Sql(f"""
        SELECT (extract(epoch FROM created_at) * 1000)::bigint FROM crawl_jobs
         WHERE key_id = $1 AND created_at > {moment(2)} ORDER BY created_at DESC LIMIT 1 OFFSET $3"""),
    "lock_leases_of_crawl": Sql(f"""
        SELECT {HELD_LEASE} FROM leases l
          JOIN crawls c ON c.crawl_id = l.crawl_id
          JOIN tasks t ON t.crawl_id = l.crawl_id AND t.key = l.key AND t.hash = l.hash
         WHERE l.crawl_id = $1 ORDER BY l.token FOR UPDATE OF l"""),
    # ------------------------------------------------------------------ runs
    "job_is_run": Sql("SELECT 1 FROM crawl_jobs WHERE id = $1 AND epoch = $2 AND status = 'processing'"),
    "lock_processing_job": Sql("""
        SELECT id FROM crawl_jobs WHERE id = $1 AND epoch = $2 AND status = 'processing' FOR NO KEY UPDATE"""),
    "open_run_of_job": Sql(f"""
        SELECT {RUN} FROM crawl_runs
         WHERE id = (SELECT j.run_id FROM crawl_jobs j WHERE j.id = $1) AND status = 'running'"""),
    "set_run_of_job": Sql("UPDATE crawl_jobs SET run_id = $2 WHERE id = $1"),
    "insert_run": Sql(f"""
        INSERT INTO crawl_runs (id, crawl, job_id, kind, status, settings, started_at)
        VALUES ($1, $2, $3, $4, 'running', $5, {moment(6)}) ON CONFLICT (id) DO NOTHING RETURNING {RUN}"""),
    "close_run": Sql(f"""
        UPDATE crawl_runs SET status = $2, reason = $3, finished_at = {moment(4)}
         WHERE id = $1 AND status = 'running' RETURNING {RUN}"""),
    "run": Sql(f"SELECT {RUN} FROM crawl_runs WHERE id = $1"),
    "list_runs": Sql(f"""
        SELECT {RUN} FROM crawl_runs
         WHERE ($1::text IS NULL OR crawl = $1) AND ($2::uuid IS NULL OR id < $2)
         ORDER BY crawl_runs.id DESC LIMIT $3"""),
    "crawl_state": Sql("""
        SELECT crawl, state, CAST(job_id AS text), total_discovered, total_pending, total_assigned,
               total_completed, total_failed
          FROM crawl_states WHERE crawl = $1"""),
    # --------------------------------------------------------------- workers
    "lock_workers": Sql(f"SELECT {lock_name(WORKERS, ALL)}"),
    "workers_in_other_mode": Sql(f"""
        SELECT min(worker_id), mode, count(*) FROM workers
         WHERE worker_id <> $1 AND mode <> $2 AND kind IN ('worker', 'runner') AND expires_at > {moment(3)}
         GROUP BY mode"""),
    "register_worker": Sql(f"""
        INSERT INTO workers (worker_id, kind, mode, host, process_id, lock_path, started_at, last_beat_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, {moment(7)}, {moment(7)}, {moment(8)})
            ON CONFLICT (worker_id) DO UPDATE
           SET kind = excluded.kind, mode = excluded.mode, host = excluded.host, process_id = excluded.process_id,
               lock_path = excluded.lock_path, started_at = excluded.started_at,
               last_beat_at = excluded.last_beat_at, expires_at = excluded.expires_at
        RETURNING {WORKER}"""),
    "beat_worker": Sql(f"""
        UPDATE workers SET last_beat_at = {moment(2)}, expires_at = {moment(3)}
         WHERE worker_id = $1 AND expires_at > {moment(2)} RETURNING worker_id"""),
    "remove_worker": Sql("DELETE FROM workers WHERE worker_id = $1 RETURNING worker_id"),
    "list_workers": Sql(f"SELECT {WORKER} FROM workers ORDER BY worker_id"),
    "expired_workers": Sql(f"""
        SELECT {WORKER} FROM workers WHERE expires_at <= {moment(1)} ORDER BY expires_at, worker_id"""),
    # -------------------------------------------------------------- API keys
    "insert_key": Sql(f"""
        INSERT INTO api_keys (key_id, name, role, crawls, digest, created_at, owner, max_active_jobs,
                              max_pages_per_job, max_jobs_per_day)
        VALUES ($1, $2, $3, $4, $5, {moment(6)}, $7, $8, $9, $10)
            ON CONFLICT (key_id) DO NOTHING"""),
    "api_key": Sql(f"SELECT {API_KEY} FROM api_keys WHERE key_id = $1"),
    "list_keys": Sql(f"SELECT {API_KEY} FROM api_keys ORDER BY created_at, key_id"),
    "revoke_key": Sql(f"UPDATE api_keys SET revoked_at = {moment(2)} WHERE key_id = $1 AND revoked_at IS NULL"),
    # ---------------------------------------------------------------- outbox
    "lock_ordering_keys": Sql(f"""
        SELECT {lock_name(ORDERING_KEY, "w.topic || chr(31) || w.ordering_key")}
          FROM unnest($1::text[], $2::text[]) AS w (topic, ordering_key)"""),
    "insert_messages": Sql(f"""
        INSERT INTO outbox (id, topic, ordering_key, payload, created_at, next_attempt_at)
        SELECT w.id, w.topic, w.ordering_key, w.payload::jsonb, {moment(1)}, {moment(1)}
          FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
            AS w (id, topic, ordering_key, payload, place)
         ORDER BY w.place ON CONFLICT (id) DO NOTHING"""),
    "lock_topic": Sql(f"SELECT {lock_name(TOPIC, '$1')}"),
    "take_messages": Sql(f"""
        UPDATE outbox SET attempts = attempts + 1, next_attempt_at = {moment(4)}
         WHERE delivered_at IS NULL AND message_id = ANY (ARRAY (
            SELECT o.message_id FROM outbox o
             WHERE o.topic = $1 AND o.delivered_at IS NULL AND o.next_attempt_at <= {moment(2)}
               AND NOT EXISTS (
                SELECT FROM outbox e
                 WHERE e.topic = $1 AND e.ordering_key = o.ordering_key AND e.delivered_at IS NULL
                   AND e.message_id < o.message_id AND e.next_attempt_at > {moment(2)})
             ORDER BY o.message_id LIMIT $3))
        RETURNING {MESSAGE}"""),
    "mark_delivered": Sql(f"""
        WITH chosen AS (
            SELECT message_id FROM outbox WHERE id = ANY ($2::uuid[]) AND delivered_at IS NULL
             ORDER BY message_id FOR NO KEY UPDATE)
        UPDATE outbox SET delivered_at = {moment(1)}, last_error = NULL
         WHERE message_id = ANY (ARRAY (SELECT message_id FROM chosen)) RETURNING message_id"""),
    "mark_failed": Sql(f"""
        UPDATE outbox SET last_error = $2, next_attempt_at = {moment(3)}
         WHERE id = $1 AND delivered_at IS NULL RETURNING message_id"""),
    "outbox_backlog": Sql("""
        SELECT topic, count(*), count(last_error), min(created_at) FROM outbox
         WHERE delivered_at IS NULL GROUP BY topic ORDER BY topic"""),
    "prune_outbox": Sql(f"""
        WITH old AS (
            SELECT message_id FROM outbox WHERE delivered_at < {moment(1)}
             ORDER BY message_id LIMIT $2 FOR UPDATE)
        DELETE FROM outbox WHERE message_id = ANY (ARRAY (SELECT message_id FROM old)) RETURNING message_id"""),
}
