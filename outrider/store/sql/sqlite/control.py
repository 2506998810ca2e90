"""The statements of the control plane in SQLite's dialect.

A transaction has the whole file to itself, so nothing here locks. `{rows}` stands for a VALUES list.
"""

from outrider.store.sql.postgres.control import API_KEY, JOB, MESSAGE, RUN, SCHEDULE, WORKER, domain_columns
from outrider.store.sql.postgres.urls import HELD_LEASE
from outrider.store.sql.script import Catalogue, Sql
from outrider.store.sql.sqlite.urls import HELD_LEASE_TABLES, NOTHING

NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"

DOMAIN = domain_columns(
    "max",
    "max(strftime('%Y-%m-%dT%H:%M:%fZ', n.changed_at / 1000.0, 'unixepoch'), coalesce(d.frontier_updated_at, ''))",
)

COUNTS_OF_DOMAIN = """
            SELECT p.id, coalesce(sum(c.discovered + c.pending + c.assigned + c.completed + c.failed)
                                  FILTER (WHERE c.kind = 0), 0) AS discovered,
                   coalesce(sum(c.completed) FILTER (WHERE c.kind = 0), 0) AS crawled,
                   coalesce(sum(c.discovered + c.pending + c.assigned), 0) AS waiting,
                   coalesce(sum(c.pending + c.assigned), 0) AS open,
                   coalesce(sum(c.images_found), 0) AS images, coalesce(sum(c.errors), 0) AS errors,
                   coalesce(max(c.depth_reached), 0) AS depth, coalesce(max(c.changed_at), 0) AS changed_at
              FROM page p LEFT JOIN counts c ON c.domain = p.domain AND c.key <> '' GROUP BY p.id"""


def moment(number: int) -> str:
    """Read a parameter as milliseconds; SQLite itself counts in whole ones."""
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', ?{number} / 1000.0, 'unixepoch')"


LIVE_CLAIM = f"d.claim_version = w.version AND d.claimed_by = ?1 AND d.claim_expires_at > {moment(2)}"

JOB_ORDERS = {
    "newest": ("?1 IS NOT NULL AND id < ?2", "id DESC"),
    "oldest": ("?1 IS NOT NULL AND id > ?2", "id"),
    "priority": ("((-priority), id) > (?1, ?2)", "(-priority), id"),
    "updated": (f"(updated_at, id) < ({moment(1)}, ?2)", "updated_at DESC, id DESC"),
}


def listing(order: tuple[str, str]) -> str:
    """Write the statement that lists jobs in an order, which is that of an index."""
    after, sorting = order
    return f"""
        SELECT {JOB} FROM crawl_jobs
         WHERE {after} AND (?3 IS NULL OR status = ?3) AND (?4 IS NULL OR crawl = ?4)
           AND (?5 IS NULL OR user_id = ?5) AND (?6 IS NULL OR source_id = ?6)
           AND (?7 IS NULL OR EXISTS (SELECT 1 FROM json_each(labels) l WHERE l.key = ?7 AND l.value = ?8))
         ORDER BY {sorting} LIMIT ?9"""


CATALOGUE: Catalogue = {
    # --------------------------------------------------------------- domains
    "insert_seeds": Sql(f"""
        WITH w (id, domain, parent, source, seed_rank) AS (VALUES {{rows}})
        INSERT INTO domains (id, domain, parent_domain, source, seed_rank, first_seen_at, updated_at)
        SELECT id, domain, parent, source, seed_rank, {moment(1)}, {moment(1)} FROM w WHERE true
            ON CONFLICT (domain) DO NOTHING RETURNING domain"""),
    "fill_seeds": Sql("""
        WITH w (domain, source, seed_rank) AS (VALUES {rows})
        UPDATE domains AS d SET source = coalesce(d.source, w.source), seed_rank = coalesce(d.seed_rank, w.seed_rank)
          FROM w
         WHERE d.domain = w.domain AND ((d.source IS NULL AND w.source IS NOT NULL)
                                        OR (d.seed_rank IS NULL AND w.seed_rank IS NOT NULL))"""),
    "domain": Sql(f"""
        WITH page AS (SELECT id, domain FROM domains WHERE domain = ?1)
        SELECT {DOMAIN} FROM domains d CROSS JOIN ({COUNTS_OF_DOMAIN}) n
         WHERE d.domain = ?1"""),
    "list_domains": Sql(f"""
        WITH page AS (SELECT id, domain FROM domains WHERE domain > ?2 AND (?1 IS NULL OR status = ?1)
                       ORDER BY domain LIMIT ?3)
        SELECT {DOMAIN} FROM ({COUNTS_OF_DOMAIN}) n JOIN domains d ON d.id = n.id
         ORDER BY d.domain"""),
    "lock_domains": NOTHING,
    "transition_domain": Sql(f"""
        UPDATE domains
           SET status = ?6, version = version + 1, claim_version = iif(?4 IS NULL, claim_version, version + 1),
               block_reason = ?7, block_reason_code = ?8,
               next_crawl_after = {moment(9)},
               claimed_by = iif(?4 IS NULL, NULL, claimed_by),
               claim_expires_at = iif(?4 IS NULL, NULL, claim_expires_at),
               first_blocked_at = iif(?6 = 'blocked', coalesce(first_blocked_at, {moment(5)}), first_blocked_at),
               block_count = block_count + (?6 = 'blocked'),
               last_crawled_at = iif(?6 = 'active' AND ?2 IN ('pending', 'active'), {moment(5)}, last_crawled_at),
               last_crawl_run_id = iif(?6 = 'active' AND ?2 IN ('pending', 'active'),
                                       coalesce(?10, last_crawl_run_id), last_crawl_run_id)
         WHERE domain = ?1 AND status = ?2 AND version = ?3
           AND (?4 IS NULL OR (claimed_by = ?4 AND claim_expires_at > {moment(5)}))
        RETURNING version"""),
    "configure_domain": Sql("""
        UPDATE domains SET max_pages_per_run = ?2, version = version + 1, claimed_by = NULL, claim_expires_at = NULL
         WHERE domain = ?1"""),
    # ---------------------------------------------------------------- claims
    "wake_domains": Sql(f"""
        UPDATE domains SET woken_for = claimable_at
         WHERE id IN (
            SELECT id FROM domains
             WHERE status IN ('pending', 'active') AND cooling AND claimable_at <= {moment(1)}
             ORDER BY claimable_at LIMIT ?2)"""),
    "claim_domains": Sql(f"""
        UPDATE domains SET claimed_by = ?1, claim_expires_at = {moment(4)}, version = version + 1,
                           claim_version = version + 1
         WHERE id IN (
            SELECT id FROM domains
             WHERE status IN ('pending', 'active') AND NOT cooling
               AND (claimable_at IS NULL OR claimable_at <= {moment(3)})
             ORDER BY (status = 'pending'), priority_score DESC, last_crawled_at, id
             LIMIT ?2)
        RETURNING domain, id, version, status, priority_score, last_crawled_at"""),
    "held_claims": Sql(f"""
        WITH w (domain, version) AS (VALUES {{rows}})
        SELECT d.domain FROM w CROSS JOIN domains d ON d.domain = w.domain WHERE {LIVE_CLAIM}"""),
    "renew_claims": Sql(f"""
        WITH w (domain, version) AS (VALUES {{rows}})
        UPDATE domains AS d SET claim_expires_at = {moment(3)}
          FROM w WHERE d.domain = w.domain AND {LIVE_CLAIM} RETURNING domain, id, claim_version"""),
    "release_claims": Sql(f"""
        WITH w (domain, version) AS (VALUES {{rows}})
        UPDATE domains AS d SET claimed_by = NULL, claim_expires_at = NULL, version = d.version + 1
          FROM w WHERE d.domain = w.domain AND {LIVE_CLAIM} RETURNING domain, claim_version"""),
    "release_all_claims": Sql("""
        UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL, version = version + 1
         WHERE id IN (SELECT id FROM domains WHERE claimed_by IS NOT NULL AND (?1 IS NULL OR claimed_by = ?1)
                       LIMIT ?2)
        RETURNING domain"""),
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
    "lock_crawl_of_jobs": NOTHING,
    "insert_schedule": Sql(f"""
        INSERT INTO schedules (schedule_id, crawl, payload, every_ms, due_at, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?5) ON CONFLICT DO NOTHING RETURNING {SCHEDULE}"""),
    "schedule_of_crawl": Sql(f"SELECT {SCHEDULE} FROM schedules WHERE crawl = ?1"),
    "list_schedules": Sql(f"SELECT {SCHEDULE} FROM schedules ORDER BY crawl"),
    "delete_schedule": Sql("DELETE FROM schedules WHERE schedule_id = ?1 RETURNING schedule_id"),
    "due_schedules": Sql(f"""
        SELECT {SCHEDULE} FROM schedules WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2"""),
    "advance_schedule": Sql("""
        UPDATE schedules SET due_at = ?2, last_job_id = coalesce(?3, last_job_id) WHERE schedule_id = ?1"""),
    # Who wakes domains has made those pending that were exhausted: they are still to be refreshed.
    "refresh_candidates": Sql(f"""
        SELECT domain FROM (
            SELECT domain, image_yield_rate, last_crawled_at FROM domains
             WHERE status = 'exhausted' AND next_crawl_after <= {moment(1)}
             UNION ALL
            SELECT domain, image_yield_rate, last_crawled_at FROM domains
             WHERE status = 'pending' AND last_crawled_at IS NOT NULL) AS due
         ORDER BY image_yield_rate DESC NULLS LAST, last_crawled_at LIMIT ?2"""),
    "insert_job": Sql(f"""
        INSERT INTO crawl_jobs (id, crawl, payload, priority, created_at, available_at, max_retries, source_id,
                                user_id, idempotency_key, labels, key_id, webhook_url, webhook_secret, updated_at)
        VALUES (?1, ?2, ?3, ?4, {moment(5)}, {moment(6)}, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
                {moment(5)})
        ON CONFLICT DO NOTHING RETURNING {JOB}"""),
    "earlier_job": Sql(f"""
        SELECT {JOB} FROM crawl_jobs
         WHERE id = ?1 OR (coalesce(user_id, '') = coalesce(?2, '') AND idempotency_key = ?3)"""),
    "live_job": Sql(f"""
        SELECT {JOB} FROM crawl_jobs WHERE crawl = ?1 AND status IN ('pending', 'processing', 'paused')"""),
    "job": Sql(f"SELECT {JOB} FROM crawl_jobs WHERE id = ?1"),
    "lock_job": Sql(f"SELECT {JOB} FROM crawl_jobs WHERE id = ?1"),
    **{f"list_jobs_{sort}": Sql(listing(order)) for sort, order in JOB_ORDERS.items()},
    "claim_job": Sql(f"""
        UPDATE crawl_jobs
           SET status = 'processing', worker_id = ?1, started_at = coalesce(started_at, {moment(2)}),
               last_heartbeat = {moment(2)}, epoch = epoch + 1, updated_at = {moment(2)}
         WHERE id = (
            SELECT id FROM crawl_jobs INDEXED BY crawl_jobs_claimable
             WHERE status = 'pending' AND desired_state = 'run' AND available_at <= {moment(2)}
             ORDER BY priority DESC, created_at, id LIMIT 1)
        RETURNING {JOB}"""),
    "beat_job": Sql(f"""
        UPDATE crawl_jobs
           SET last_heartbeat = coalesce({moment(5)}, {NOW}),
               progress_percentage = coalesce(?3, progress_percentage), progress = coalesce(?4, progress)
         WHERE id = ?1 AND epoch = ?2 AND status = 'processing' RETURNING desired_state"""),
    "move_job": Sql(f"""
        UPDATE crawl_jobs
           SET status = ?4, desired_state = ?5, worker_id = ?6, available_at = {moment(7)},
               completed_at = {moment(8)}, retry_count = ?9, error_kind = ?10, error_message = ?11,
               progress_percentage = ?12, reason = ?13, updated_at = {moment(14)}
         WHERE id = ?1 AND status = ?2 AND epoch = ?3 RETURNING id"""),
    "set_desired_state": Sql(f"""
        UPDATE crawl_jobs SET desired_state = ?2, updated_at = {moment(3)} WHERE id = ?1"""),
    "amend_job": Sql(f"UPDATE crawl_jobs SET priority = ?2, payload = ?3, updated_at = {moment(4)} WHERE id = ?1"),
    "lock_stale_jobs": Sql(f"""
        SELECT {JOB} FROM crawl_jobs
         WHERE status = 'processing' AND last_heartbeat < {moment(1)} ORDER BY last_heartbeat LIMIT ?2"""),
    "insert_job_history": Sql(f"""
        INSERT INTO job_history (job_id, from_status, to_status, epoch, actor, note, at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, {moment(7)})"""),
    "endings_of_job": Sql("""
        SELECT to_status FROM job_history
         WHERE job_id = ?1 AND epoch = ?2 AND from_status = 'processing' AND actor <> ?3"""),
    "job_history": Sql("""
        SELECT job_id, history_id, from_status, to_status, epoch, actor, note, at FROM job_history
         WHERE job_id = ?1 AND history_id > ?2 ORDER BY history_id LIMIT ?3"""),
    "job_counts": Sql("SELECT status, count(*) FROM crawl_jobs GROUP BY status"),
    "work_of_jobs": Sql("""
        SELECT coalesce(sum(n.pending + n.assigned), 0), coalesce(sum(n.assigned), 0)
          FROM crawl_jobs j JOIN crawls c ON c.name = j.crawl JOIN counts n ON n.crawl_id = c.crawl_id AND n.key = ''
         WHERE j.status IN ('pending', 'processing', 'paused')"""),
    "desired_states": Sql("""
        WITH w (id, epoch) AS (VALUES {rows})
        SELECT j.id, j.desired_state FROM w CROSS JOIN crawl_jobs j
         WHERE j.id = w.id AND j.epoch = w.epoch AND j.status = 'processing'"""),
    "tell_of_jobs": NOTHING,
    "lock_key_of_jobs": NOTHING,
    "active_jobs_of_key": Sql("""
        SELECT count(*) FROM crawl_jobs
         WHERE key_id = ?1 AND status IN ('pending', 'processing', 'paused')"""),
    "daily_job_of_key": Sql(f"""
        SELECT CAST(round((julianday(created_at) - 2440587.5) * 86400000.0) AS INTEGER) FROM crawl_jobs
         WHERE key_id = ?1 AND created_at > {moment(2)} ORDER BY created_at DESC LIMIT 1 OFFSET ?3"""),
    "lock_leases_of_crawl": Sql(f"""
        SELECT {HELD_LEASE} FROM {HELD_LEASE_TABLES} WHERE l.crawl_id = ?1 ORDER BY l.token"""),
    # ------------------------------------------------------------------ runs
    "job_is_run": Sql("SELECT 1 FROM crawl_jobs WHERE id = ?1 AND epoch = ?2 AND status = 'processing'"),
    "lock_processing_job": Sql("""
        SELECT id FROM crawl_jobs WHERE id = ?1 AND epoch = ?2 AND status = 'processing'"""),
    "open_run_of_job": Sql(f"""
        SELECT {RUN} FROM crawl_runs
         WHERE id = (SELECT j.run_id FROM crawl_jobs j WHERE j.id = ?1) AND status = 'running'"""),
    "set_run_of_job": Sql("UPDATE crawl_jobs SET run_id = ?2 WHERE id = ?1"),
    "insert_run": Sql(f"""
        INSERT INTO crawl_runs (id, crawl, job_id, kind, status, settings, started_at)
        VALUES (?1, ?2, ?3, ?4, 'running', ?5, {moment(6)}) ON CONFLICT (id) DO NOTHING RETURNING {RUN}"""),
    "close_run": Sql(f"""
        UPDATE crawl_runs SET status = ?2, reason = ?3, finished_at = {moment(4)}
         WHERE id = ?1 AND status = 'running' RETURNING {RUN}"""),
    "run": Sql(f"SELECT {RUN} FROM crawl_runs WHERE id = ?1"),
    "list_runs": Sql(f"""
        SELECT {RUN} FROM crawl_runs
         WHERE (?1 IS NULL OR crawl = ?1) AND (?2 IS NULL OR id < ?2)
         ORDER BY crawl_runs.id DESC LIMIT ?3"""),
    "crawl_state": Sql("""
        SELECT crawl, state, job_id, total_discovered, total_pending, total_assigned, total_completed,
               total_failed
          FROM crawl_states WHERE crawl = ?1"""),
    # --------------------------------------------------------------- workers
    "lock_workers": NOTHING,
    "workers_in_other_mode": Sql(f"""
        SELECT min(worker_id), mode, count(*) FROM workers
         WHERE worker_id <> ?1 AND mode <> ?2 AND kind IN ('worker', 'runner') AND expires_at > {moment(3)}
         GROUP BY mode"""),
    "register_worker": Sql(f"""
        INSERT INTO workers (worker_id, kind, mode, host, process_id, lock_path, started_at, last_beat_at, expires_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, {moment(7)}, {moment(7)}, {moment(8)})
            ON CONFLICT (worker_id) DO UPDATE
           SET kind = excluded.kind, mode = excluded.mode, host = excluded.host, process_id = excluded.process_id,
               lock_path = excluded.lock_path, started_at = excluded.started_at,
               last_beat_at = excluded.last_beat_at, expires_at = excluded.expires_at
        RETURNING {WORKER}"""),
    "beat_worker": Sql(f"""
        UPDATE workers SET last_beat_at = {moment(2)}, expires_at = {moment(3)}
         WHERE worker_id = ?1 AND expires_at > {moment(2)} RETURNING worker_id"""),
    "remove_worker": Sql("DELETE FROM workers WHERE worker_id = ?1 RETURNING worker_id"),
    "list_workers": Sql(f"SELECT {WORKER} FROM workers ORDER BY worker_id"),
    "expired_workers": Sql(f"""
        SELECT {WORKER} FROM workers WHERE expires_at <= {moment(1)} ORDER BY expires_at, worker_id"""),
    # -------------------------------------------------------------- API keys
    "insert_key": Sql(f"""
        INSERT INTO api_keys (key_id, name, role, crawls, digest, created_at, owner, max_active_jobs,
                              max_pages_per_job, max_jobs_per_day)
        VALUES (?1, ?2, ?3, ?4, ?5, {moment(6)}, ?7, ?8, ?9, ?10)
            ON CONFLICT (key_id) DO NOTHING"""),
    "api_key": Sql(f"SELECT {API_KEY} FROM api_keys WHERE key_id = ?1"),
    "list_keys": Sql(f"SELECT {API_KEY} FROM api_keys ORDER BY created_at, key_id"),
    "revoke_key": Sql(f"UPDATE api_keys SET revoked_at = {moment(2)} WHERE key_id = ?1 AND revoked_at IS NULL"),
    # ---------------------------------------------------------------- outbox
    "lock_ordering_keys": NOTHING,
    "insert_messages": Sql(f"""
        WITH w (id, topic, ordering_key, payload) AS (VALUES {{rows}})
        INSERT INTO outbox (id, topic, ordering_key, payload, created_at, next_attempt_at)
        SELECT id, topic, ordering_key, payload, {moment(1)}, {moment(1)} FROM w WHERE true
            ON CONFLICT (id) DO NOTHING"""),
    "lock_topic": NOTHING,
    "take_messages": Sql(f"""
        UPDATE outbox SET attempts = attempts + 1, next_attempt_at = {moment(4)}
         WHERE message_id IN (
            SELECT o.message_id FROM outbox o
             WHERE o.topic = ?1 AND o.delivered_at IS NULL AND o.next_attempt_at <= {moment(2)}
               AND NOT EXISTS (
                SELECT 1 FROM outbox e
                 WHERE e.topic = ?1 AND e.ordering_key = o.ordering_key AND e.delivered_at IS NULL
                   AND e.message_id < o.message_id AND e.next_attempt_at > {moment(2)})
             ORDER BY o.message_id LIMIT ?3)
        RETURNING {MESSAGE}"""),
    "mark_delivered": Sql(f"""
        UPDATE outbox SET delivered_at = {moment(1)}, last_error = NULL
         WHERE id IN (VALUES {{rows}}) AND delivered_at IS NULL RETURNING message_id"""),
    "mark_failed": Sql(f"""
        UPDATE outbox SET last_error = ?2, next_attempt_at = {moment(3)}
         WHERE id = ?1 AND delivered_at IS NULL RETURNING message_id"""),
    "outbox_backlog": Sql("""
        SELECT topic, count(*), count(last_error), min(created_at) FROM outbox
         WHERE delivered_at IS NULL GROUP BY topic ORDER BY topic"""),
    "prune_outbox": Sql(f"""
        DELETE FROM outbox WHERE message_id IN (
            SELECT message_id FROM outbox WHERE delivered_at < {moment(1)} ORDER BY message_id LIMIT ?2)
        RETURNING message_id"""),
}
