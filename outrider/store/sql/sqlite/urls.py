"""The statements of the URL plane in SQLite's dialect.

A transaction has the whole file to itself, so nothing here locks. Statements over many rows run once
per row: values first, then the row's.
"""

from outrider.model.task import NEVER
from outrider.store.sql.postgres.urls import CRAWL, GATE, HELD_LEASE, TASK
from outrider.store.sql.script import Catalogue, Mode, Sql
from outrider.store.sql.urls.waking import LIMITED

BANDS = "(VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15))"

HELD_LEASE_TABLES = """leases l
          JOIN crawls c ON c.crawl_id = l.crawl_id
          JOIN tasks t ON t.crawl_id = l.crawl_id AND t.key = l.key AND t.hash = l.hash"""

SUMS = """coalesce(sum(discovered), 0), coalesce(sum(pending), 0), coalesce(sum(assigned), 0),
               coalesce(sum(completed), 0), coalesce(sum(failed), 0)"""

MOMENT = "strftime('%Y-%m-%dT%H:%M:%fZ', ?1 / 1000.0, 'unixepoch')"

NOTHING = Sql("", Mode.NONE)

CATALOGUE: Catalogue = {
    # unixepoch('subsec') is NULL before SQLite 3.42.
    "clock": Sql("SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"),
    # ---------------------------------------------------------------- crawls
    "insert_crawl": Sql(f"""
        INSERT INTO crawls (name, key_rule, strip_tracking, sort_query, max_depth, max_pages,
                            max_pages_per_domain, delay_ms, concurrency, robots, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
        ON CONFLICT (name) DO NOTHING RETURNING {CRAWL}"""),
    "crawl_by_name": Sql(f"SELECT {CRAWL} FROM crawls WHERE name = ?1"),
    "crawl_for_write": Sql(f"SELECT {CRAWL} FROM crawls WHERE name = ?1"),
    "crawl_alone": Sql(f"SELECT {CRAWL} FROM crawls WHERE name = ?1"),
    "list_crawls": Sql(f"SELECT {CRAWL} FROM crawls ORDER BY name"),
    "set_crawl_state": Sql(f"UPDATE crawls SET state = ?2 WHERE name = ?1 RETURNING {CRAWL}"),
    "set_crawl_limits": Sql(f"""
        UPDATE crawls SET max_depth = ?2, max_pages = ?3, max_pages_per_domain = ?4, delay_ms = ?5,
                          concurrency = ?6, robots = ?7
         WHERE name = ?1 RETURNING {CRAWL}"""),
    "crawls_of_leases": Sql(
        f"SELECT {CRAWL} FROM crawls WHERE crawl_id = (SELECT crawl_id FROM leases WHERE token = ?1)", Mode.EACH
    ),
    "wake_limited": Sql(f"""
        UPDATE queues SET gate_opens_at = 0
         WHERE crawl_id = ?1 AND band IN {BANDS} AND ready_at = {LIMITED}"""),
    # ------------------------------------------------------------------- add
    "queue_domains": Sql(
        "SELECT crawl_id, key, domain FROM queues WHERE crawl_id = ?1 AND key = ?2", Mode.EACH
    ),
    "insert_domains": Sql(
        f"""
        INSERT INTO domains (id, domain, parent_domain, first_seen_at, updated_at)
        VALUES (?2, ?3, ?4, {MOMENT}, {MOMENT}) ON CONFLICT (domain) DO NOTHING""",
        Mode.MANY,
    ),
    "insert_gates": Sql(
        """
        INSERT INTO gates (domain, domain_id) SELECT domain, id FROM domains WHERE domain = ?1
            ON CONFLICT (domain) DO NOTHING""",
        Mode.MANY,
    ),
    "insert_queues": Sql(
        """
        INSERT INTO queues (crawl_id, key, domain, band, tasks_due_at, created_at)
        SELECT ?2, ?3, ?4, band, ?1, ?1 FROM gates WHERE domain = ?5""",
        Mode.MANY,
    ),
    "take_sequence": Sql("""
        UPDATE sequences SET value = value + 10000 * ?1 WHERE name = 'discovery'
        RETURNING value - 10000 * ?1"""),
    "insert_tasks": Sql(
        """
        INSERT INTO tasks (crawl_id, key, hash, url, kind, state, delayed, priority, depth, sequence, due_at,
                           discovered_at, discovery_type)
        VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?1, ?13)
            ON CONFLICT (crawl_id, key, hash) DO NOTHING RETURNING sequence""",
        Mode.EACH,
    ),
    "colliding_tasks": Sql(
        "SELECT ?5 FROM tasks WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3 AND url <> ?4", Mode.EACH
    ),
    "insert_metadata": Sql("INSERT INTO task_metadata VALUES (?1, ?2, ?3, ?4)", Mode.MANY),
    "queues_behind_gates": Sql(
        "SELECT crawl_id, key, domain FROM queues WHERE domain = ?1 AND gate_opens_at > ?2", Mode.EACH
    ),
    "wake_queues": Sql(
        """
        UPDATE queues
           SET tasks_due_at = min(tasks_due_at, ?3), domain = iif(?4, ?5, domain),
               gate_opens_at = min(gate_opens_at, coalesce(?6, gate_opens_at))
         WHERE crawl_id = ?1 AND key = ?2 AND (tasks_due_at > ?3 OR ?4 OR gate_opens_at > ?6)""",
        Mode.MANY,
    ),
    "add_counts": Sql(
        """
        INSERT INTO counts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
            ON CONFLICT (crawl_id, key, domain, kind, slot) DO UPDATE
           SET discovered = discovered + excluded.discovered, pending = pending + excluded.pending,
               assigned = assigned + excluded.assigned, completed = completed + excluded.completed,
               failed = failed + excluded.failed""",
        Mode.MANY,
    ),
    "add_run_counts": Sql(
        """
        INSERT INTO run_counts VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (run_id, domain, slot) DO UPDATE SET pages = pages + excluded.pages""",
        Mode.MANY,
    ),
    # ----------------------------------------------------------------- lease
    "lock_request": NOTHING,
    "leases_of_request": Sql("""
        SELECT l.token, c.name, l.key, t.url, l.domain, l.kind, t.depth, t.priority, l.attempt,
               t.discovery_type, l.expires_at, a.etag, a.last_modified, g.robots_version, m.metadata
          FROM leases l
          JOIN crawls c ON c.crawl_id = l.crawl_id
          JOIN tasks t ON t.crawl_id = l.crawl_id AND t.key = l.key AND t.hash = l.hash
          JOIN gates g ON g.domain = l.domain
          LEFT JOIN crawl_log a ON a.artifact_id = t.artifact_id
          LEFT JOIN task_metadata m ON m.crawl_id = l.crawl_id AND m.key = l.key AND m.hash = l.hash
         WHERE l.worker = ?1 AND l.request_id = ?2 AND l.expires_at > ?3 ORDER BY l.token"""),
    "ready_crawls": Sql(f"""
        SELECT {CRAWL} FROM crawls c
         WHERE c.state = 'running' AND EXISTS (
            SELECT 1 FROM {BANDS} b CROSS JOIN queues q
             WHERE q.crawl_id = c.crawl_id AND q.band = b.column1 AND q.ready_at <= ?1)
         ORDER BY c.turn, c.crawl_id LIMIT 64"""),
    "lock_crawl_limits": NOTHING,
    "pages_of_crawl": Sql("""
        SELECT coalesce(sum(completed + assigned), 0) FROM counts
         WHERE crawl_id = ?1 AND key = '' AND domain = '' AND kind = 0"""),
    "take_turns": Sql(
        "UPDATE crawls SET turn = (SELECT max(turn) + 1 FROM crawls) WHERE crawl_id = ?1", Mode.MANY
    ),
    "ready_queues": Sql(f"""
        SELECT q.key, q.domain, q.delay_ms, q.blocked_until, q.page_limit
          FROM {BANDS} b CROSS JOIN queues q
         WHERE q.crawl_id = ?1 AND q.band = b.column1 AND q.ready_at <= ?2
           AND q.key NOT IN (SELECT value FROM json_each(?4))
         ORDER BY b.column1, q.ready_at LIMIT ?3"""),
    "lock_free_gates": Sql(f"SELECT {GATE} FROM gates WHERE domain = ?1", Mode.EACH),
    "lock_gates": Sql(f"SELECT {GATE} FROM gates WHERE domain = ?1", Mode.EACH),
    "gate": Sql(f"SELECT {GATE} FROM gates WHERE domain = ?1"),
    "traffic": Sql(
        """
        SELECT domain, count(*), count(*) FILTER (WHERE kind = 1), min(expires_at)
          FROM leases WHERE domain = ?1 GROUP BY domain""",
        Mode.EACH,
    ),
    "pages_of_queues": Sql(
        """
        SELECT key, sum(completed + assigned) FROM counts
         WHERE crawl_id = ?1 AND key = ?2 AND kind = 0 GROUP BY key""",
        Mode.EACH,
    ),
    "pages_of_run": Sql(
        """
        SELECT ?2, coalesce((SELECT sum(pages) FROM run_counts WHERE run_id = ?1 AND domain = ?2), 0)
                   + (SELECT count(*) FROM leases WHERE domain = ?2 AND run_id = ?1 AND kind = 0)""",
        Mode.EACH,
    ),
    "wake_delayed": Sql(
        """
        UPDATE tasks SET delayed = 0
         WHERE crawl_id = ?1 AND key = ?3 AND hash IN (
            SELECT hash FROM tasks
             WHERE crawl_id = ?1 AND key = ?3 AND state = 1 AND delayed = 1 AND due_at <= ?2
             ORDER BY due_at LIMIT 1000)""",
        Mode.MANY,
    ),
    "ready_tasks": Sql(
        """
        SELECT t.key, t.hash, t.url, t.kind, t.priority, t.depth, t.attempt_count, t.discovery_type,
               a.etag, a.last_modified, m.metadata
          FROM (SELECT * FROM tasks
                 WHERE crawl_id = ?1 AND key = ?2 AND state = 1 AND delayed = 0
                 ORDER BY priority DESC, sequence LIMIT ?3) t
          LEFT JOIN crawl_log a ON a.artifact_id = t.artifact_id
          LEFT JOIN task_metadata m ON m.crawl_id = ?1 AND m.key = t.key AND m.hash = t.hash""",
        Mode.EACH,
    ),
    "robots_task": Sql("""
        SELECT state, due_at, attempt_count FROM tasks WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3"""),
    "arm_robots_task": Sql("""
        INSERT INTO tasks (crawl_id, key, hash, url, kind, state, delayed, priority, depth, sequence, due_at,
                           discovered_at, discovery_type)
        VALUES (?1, ?2, ?3, ?4, ?5, 1, 0, ?6, 0, ?7, ?8, ?8, ?9)
            ON CONFLICT (crawl_id, key, hash) DO UPDATE
           SET state = 1, delayed = 0, due_at = excluded.due_at, failures = 0, deferrals = 0, expiries = 0"""),
    "insert_leases": Sql(
        """
        INSERT INTO leases VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
            ON CONFLICT (url_hash) DO NOTHING RETURNING token""",
        Mode.EACH,
    ),
    "postpone_tasks": Sql(
        """
        UPDATE tasks SET delayed = 1, due_at = ?2
         WHERE crawl_id = ?1 AND key = ?3 AND hash = ?4 AND state = 1""",
        Mode.MANY,
    ),
    "assign_tasks": Sql(
        """
        UPDATE tasks SET state = 2, attempt_count = attempt_count + 1
         WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3 AND state = 1 RETURNING hash""",
        Mode.EACH,
    ),
    "update_gates": Sql(
        """
        UPDATE gates
           SET next_fetch_at = ?2, backoff_until = ?3, backoff_level = ?4, backoff_began_at = ?5,
               robots_delay_ms = ?6, robots_version = ?7, robots_expires_at = ?8
         WHERE domain = ?1""",
        Mode.MANY,
    ),
    "move_queues": Sql(
        """
        UPDATE queues SET gate_opens_at = ?4, last_served_at = iif(?5, ?2, last_served_at)
         WHERE crawl_id = ?1 AND key = ?3""",
        Mode.MANY,
    ),
    "rest_queues": Sql(
        f"""
        UPDATE queues SET tasks_due_at = iif(
            EXISTS (SELECT 1 FROM tasks WHERE crawl_id = ?1 AND key = ?3 AND state = 1 AND delayed = 0),
            min(tasks_due_at, ?2),
            coalesce((SELECT due_at FROM tasks WHERE crawl_id = ?1 AND key = ?3 AND state = 1 AND delayed = 1
                       ORDER BY due_at LIMIT 1), {NEVER}))
         WHERE crawl_id = ?1 AND key = ?3""",
        Mode.MANY,
    ),
    "next_ready_at": Sql(f"""
        SELECT min((SELECT ready_at FROM queues WHERE crawl_id = ?1 AND band = b.column1 ORDER BY ready_at LIMIT 1))
          FROM {BANDS} b"""),
    "next_ready_at_any": Sql(f"""
        SELECT min((SELECT ready_at FROM queues WHERE crawl_id = c.crawl_id AND band = b.column1
                     ORDER BY ready_at LIMIT 1))
          FROM crawls c CROSS JOIN {BANDS} b WHERE c.state = 'running'"""),
    # ---------------------------------------------------------------- report
    "lock_leases": Sql(f"SELECT {HELD_LEASE} FROM {HELD_LEASE_TABLES} WHERE l.token = ?1", Mode.EACH),
    "lock_leases_of_worker": Sql(f"""
        SELECT {HELD_LEASE} FROM {HELD_LEASE_TABLES} WHERE l.worker = ?1 ORDER BY l.token"""),
    "lock_expired_leases": Sql(f"""
        SELECT {HELD_LEASE} FROM {HELD_LEASE_TABLES}
         WHERE l.expires_at <= ?1 ORDER BY l.expires_at LIMIT ?2"""),
    "lock_lease_tokens": NOTHING,
    "renew_leases": Sql(
        """
        UPDATE leases SET last_heartbeat = ?1, expires_at = ?2 WHERE token = ?3 AND expires_at > ?1
        RETURNING token""",
        Mode.EACH,
    ),
    "earlier_answers": Sql("SELECT token, verdict, retry_at FROM crawl_log WHERE token = ?1", Mode.EACH),
    "insert_crawl_log": Sql(
        """
        INSERT INTO crawl_log (crawl, key, url, url_hash, token, attempt, domain, domain_id, kind, outcome, verdict,
                               retry_at, reason, http_status, images_found, digest, etag, last_modified,
                               content_type, body_bytes, content_location, discovery_type, depth, run_id,
                               leased_at, fetched_at, elapsed_ms, reported_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        RETURNING token, artifact_id""",
        Mode.EACH,
    ),
    "delete_leases": Sql("DELETE FROM leases WHERE token = ?1 RETURNING token", Mode.EACH),
    "end_tasks": Sql(
        """
        UPDATE tasks
           SET state = ?5, delayed = ?6, due_at = ?7, failures = ?8, deferrals = ?9, expiries = ?10,
               http_status = coalesce(?11, http_status), reason = ?12, artifact_id = coalesce(?13, artifact_id)
         WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3 AND state = 2 AND attempt_count = ?4
        RETURNING hash""",
        Mode.EACH,
    ),
    "put_robots": Sql("""
        INSERT INTO robots (domain, version, text, fetched_at) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (domain) DO UPDATE
           SET version = excluded.version, text = excluded.text, fetched_at = excluded.fetched_at"""),
    "robots_text": Sql("SELECT version, text FROM robots WHERE domain = ?1"),
    # ------------------------------------------------------ overrides, upkeep
    "configure_gate": Sql("""
        UPDATE gates SET delay_ms = ?2, concurrency = ?3, blocked_until = ?4, band = ?5 WHERE domain = ?1"""),
    "set_domain_band": Sql("UPDATE queues SET band = ?2 WHERE domain = ?1 AND priority IS NULL"),
    "configure_queue": Sql("""
        INSERT INTO queues (crawl_id, key, domain, band, tasks_due_at, created_at, delay_ms, blocked_until,
                            page_limit, priority)
        VALUES (?1, ?2, '', ?3, ?4, ?5, ?6, ?7, ?8, ?9)
            ON CONFLICT (crawl_id, key) DO UPDATE
           SET delay_ms = excluded.delay_ms, blocked_until = excluded.blocked_until,
               page_limit = excluded.page_limit, priority = excluded.priority, gate_opens_at = 0,
               band = CASE WHEN excluded.priority IS NULL
                           THEN coalesce((SELECT g.band FROM gates g WHERE g.domain = queues.domain), excluded.band)
                           ELSE excluded.band END"""),
    "promote_tasks": Sql("""
        UPDATE tasks SET state = 1, delayed = 1, due_at = max(due_at, ?3)
         WHERE (crawl_id, key, hash) IN (
            SELECT crawl_id, key, hash FROM tasks
             WHERE crawl_id = ?1 AND state = 0 AND depth <= ?2 ORDER BY depth LIMIT ?4)
        RETURNING key, kind, url"""),
    "retry_tasks": Sql("""
        UPDATE tasks SET state = 1, delayed = 1, due_at = ?5, failures = 0, deferrals = 0, expiries = 0
         WHERE (crawl_id, key, hash) IN (
            SELECT crawl_id, key, hash FROM tasks
             WHERE crawl_id = ?1 AND state = 4 AND (?2 IS NULL OR key = ?2) AND (?3 IS NULL OR kind = ?3)
               AND (?4 IS NULL OR instr(url, ?4) > 0) LIMIT ?6)
        RETURNING key, kind, url"""),
    "tasks_in_order": Sql("""
        SELECT key, hash, url, state, kind, discovered_at FROM tasks
         WHERE crawl_id = ?1 AND (?2 IS NULL OR key = ?2) AND (key, hash) > (?3, ?4)
         ORDER BY key, hash LIMIT ?5"""),
    "delete_tasks": Sql(
        "DELETE FROM tasks WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3 RETURNING hash", Mode.EACH
    ),
    "delete_metadata": Sql(
        "DELETE FROM task_metadata WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3", Mode.MANY
    ),
    "queue_totals": Sql("""
        SELECT kind, sum(discovered), sum(pending), sum(assigned), sum(completed), sum(failed)
          FROM counts WHERE crawl_id = ?1 AND key = ?2 GROUP BY kind"""),
    "delete_queue_leases": Sql("DELETE FROM leases WHERE crawl_id = ?1 AND key = ?2"),
    "delete_queue_tasks": Sql("DELETE FROM tasks WHERE crawl_id = ?1 AND key = ?2"),
    "delete_queue_metadata": Sql("DELETE FROM task_metadata WHERE crawl_id = ?1 AND key = ?2"),
    "delete_queue_counts": Sql("DELETE FROM counts WHERE crawl_id = ?1 AND key = ?2"),
    "delete_queue_row": Sql("DELETE FROM queues WHERE crawl_id = ?1 AND key = ?2"),
    "lock_queues_of_crawl": NOTHING,
    "delete_crawl_leases": Sql("DELETE FROM leases WHERE crawl_id = ?1"),
    "delete_crawl_tasks": Sql("DELETE FROM tasks WHERE crawl_id = ?1"),
    "delete_crawl_metadata": Sql("DELETE FROM task_metadata WHERE crawl_id = ?1"),
    "delete_crawl_counts": Sql("DELETE FROM counts WHERE crawl_id = ?1"),
    "delete_crawl_queues": Sql("DELETE FROM queues WHERE crawl_id = ?1"),
    "delete_crawl_row": Sql("DELETE FROM crawls WHERE crawl_id = ?1"),
    # ---------------------------------------------------------------- browse
    "list_tasks": Sql(f"""
        SELECT {TASK}, l.last_heartbeat FROM tasks t
          LEFT JOIN leases l ON l.crawl_id = t.crawl_id AND l.key = t.key AND l.hash = t.hash
         WHERE t.crawl_id = ?1 AND (t.key, t.hash) > (?2, ?3) AND (?4 IS NULL OR t.key = ?4)
           AND (?5 IS NULL OR t.state = ?5) AND (?6 IS NULL OR t.kind = ?6)
           AND (?7 IS NULL OR instr(t.url, ?7) > 0)
         ORDER BY t.key, t.hash LIMIT ?8"""),
    "task": Sql(f"""
        SELECT {TASK}, l.last_heartbeat FROM tasks t
          LEFT JOIN leases l ON l.crawl_id = t.crawl_id AND l.key = t.key AND l.hash = t.hash
         WHERE t.crawl_id = ?1 AND t.key = ?2 AND t.hash = ?3"""),
    "counts": Sql(f"SELECT {SUMS} FROM counts WHERE crawl_id = ?1 AND key = ?2"),
    "counts_by_kind": Sql(f"""
        SELECT kind, {SUMS} FROM counts WHERE crawl_id = ?1 AND key = '' GROUP BY kind ORDER BY kind"""),
    "list_queues": Sql("""
        SELECT q.key, q.domain, q.band, q.ready_at, q.last_served_at, q.delay_ms, q.blocked_until, q.page_limit,
               q.priority, coalesce(sum(n.discovered), 0), coalesce(sum(n.pending), 0),
               coalesce(sum(n.assigned), 0), coalesce(sum(n.completed), 0), coalesce(sum(n.failed), 0)
          FROM (SELECT * FROM queues WHERE crawl_id = ?1 AND key > ?2 ORDER BY key LIMIT ?3) q
          LEFT JOIN counts n ON n.crawl_id = ?1 AND n.key = q.key
         GROUP BY q.key ORDER BY q.key"""),
    "list_artifacts": Sql("""
        SELECT artifact_id, crawl, key, url, token, attempt, domain, domain_id, kind, outcome, reason,
               discovery_type, run_id, depth, leased_at, reported_at, http_status, fetched_at, elapsed_ms,
               content_type, body_bytes, images_found, digest, etag, last_modified, content_location
          FROM crawl_log WHERE crawl = ?1 AND artifact_id > ?2 ORDER BY artifact_id LIMIT ?3"""),
}
