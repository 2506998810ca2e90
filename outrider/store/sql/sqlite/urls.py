"""The statements of the URL plane in SQLite's dialect.

A transaction has the whole file to itself, so nothing here locks. `{rows}` stands for a VALUES list; CROSS
JOIN keeps SQLite to looking up each of its rows in turn.
"""

from outrider.model.batch import BATCH_WORKER
from outrider.model.gate import UNREACHABLE_ROBOTS
from outrider.model.task import NEVER
from outrider.store.sql.postgres.urls import ARTIFACT, CRAWL, GATE, HELD_LEASE, TASK
from outrider.store.sql.script import Catalogue, Sql
from outrider.store.sql.sqlite.revisits import REVISITS
from outrider.store.sql.urls.waking import LIMITED

BANDS = "(VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15))"

HELD_LEASE_TABLES = """leases l
          JOIN crawls c ON c.crawl_id = l.crawl_id
          JOIN tasks t ON t.crawl_id = l.crawl_id AND t.key = l.key AND t.hash = l.hash"""

SUMS = """coalesce(sum(discovered), 0), coalesce(sum(pending), 0), coalesce(sum(assigned), 0),
               coalesce(sum(completed), 0), coalesce(sum(failed), 0)"""

MOMENT = "strftime('%Y-%m-%dT%H:%M:%fZ', ?1 / 1000.0, 'unixepoch')"

NOTHING = Sql("")
"""A transaction has the file to itself."""

INSERT_TASKS = Sql("""
    WITH w (crawl_id, key, hash, url, sequence, facts) AS (VALUES {rows}),
    f (place, kind, state, priority, depth, due_at, discovery_type) AS MATERIALIZED (
        SELECT key, value, json_extract(?3, fullkey), json_extract(?4, fullkey),
               json_extract(?5, fullkey), json_extract(?6, fullkey), json_extract(?7, fullkey)
          FROM json_each(?2))
    INSERT INTO tasks (crawl_id, key, hash, url, sequence, discovered_at, kind, state, priority, depth, due_at,
                       discovery_type, delayed)
    SELECT w.crawl_id, w.key, w.hash, w.url, w.sequence, ?1, f.kind, f.state, f.priority, f.depth, f.due_at,
           f.discovery_type, f.due_at > ?1
      FROM w CROSS JOIN f ON f.place = w.facts""")
"""SQLite has one writer: what was not there when it looked is not there."""

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
    "set_conduct": Sql(f"UPDATE crawls SET conduct = ?2 WHERE name = ?1 RETURNING {CRAWL}"),
    "crawls_of_leases": Sql(f"""
        SELECT DISTINCT {CRAWL} FROM crawls
         WHERE crawl_id IN (SELECT crawl_id FROM leases WHERE token IN (VALUES {{rows}})) ORDER BY crawl_id"""),
    "wake_crawl": Sql("UPDATE queues SET gate_opens_at = 0 WHERE crawl_id = ?1 AND gate_opens_at > 0"),
    "wake_limited": Sql(f"""
        UPDATE queues INDEXED BY queues_ready SET gate_opens_at = 0
         WHERE crawl_id = ?1 AND band IN {BANDS} AND ready_at = {LIMITED}"""),
    # ------------------------------------------------------------------- add
    "queue_domains": Sql("""
        WITH w (crawl_id, key) AS (VALUES {rows})
        SELECT q.crawl_id, q.key, q.domain
          FROM w CROSS JOIN queues q ON q.crawl_id = w.crawl_id AND q.key = w.key"""),
    "insert_domains": Sql(f"""
        WITH w (id, domain, parent) AS (VALUES {{rows}})
        INSERT INTO domains (id, domain, parent_domain, first_seen_at, updated_at)
        SELECT id, domain, parent, {MOMENT}, {MOMENT} FROM w WHERE true ON CONFLICT (domain) DO NOTHING"""),
    "insert_gates": Sql("""
        INSERT INTO gates (domain, domain_id, status)
        SELECT domain, id, status FROM domains WHERE domain IN (VALUES {rows}) ON CONFLICT (domain) DO NOTHING"""),
    "insert_queues": Sql("""
        WITH w (crawl_id, key, domain, gate) AS (VALUES {rows})
        INSERT INTO queues (crawl_id, key, domain, band, tasks_due_at, created_at)
        SELECT w.crawl_id, w.key, w.domain, g.band, ?1, ?1 FROM w CROSS JOIN gates g ON g.domain = w.gate
         WHERE true RETURNING crawl_id, key"""),
    "take_sequence": Sql("""
        UPDATE sequences SET value = value + 10000 * ?1 WHERE name = 'discovery'
        RETURNING value - 10000 * ?1"""),
    "known_tasks": Sql("""
        WITH w (crawl_id, key, hash, url, sequence) AS (VALUES {rows})
        SELECT json_group_array(w.sequence) FILTER (WHERE t.url = w.url),
               json_group_array(w.sequence) FILTER (WHERE t.url <> w.url)
          FROM w CROSS JOIN tasks t ON t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash"""),
    "colliding_tasks": NOTHING,
    "insert_new_tasks": INSERT_TASKS,
    "insert_tasks": INSERT_TASKS,
    "queues_to_tend": Sql("""
        WITH w (crawl_id, key, domain, due_at) AS (VALUES {rows})
        SELECT w.crawl_id, w.key, q.key IS NOT NULL, q.domain
          FROM w LEFT JOIN queues q ON q.crawl_id = w.crawl_id AND q.key = w.key
         WHERE (q.domain = w.domain) IS NOT TRUE OR q.tasks_due_at > w.due_at"""),
    "insert_metadata": Sql("INSERT INTO task_metadata (crawl_id, key, hash, metadata) VALUES {rows}"),
    "queues_behind_gates": Sql("""
        WITH w (domain, opens_at) AS (VALUES {rows})
        SELECT q.crawl_id, q.key, q.domain
          FROM w CROSS JOIN queues q ON q.domain = w.domain AND q.gate_opens_at > w.opens_at"""),
    "mixed_at_limit": Sql(f"""
        WITH w (crawl_id, key) AS (VALUES {{rows}})
        SELECT q.crawl_id, q.key FROM w CROSS JOIN queues q ON q.crawl_id = w.crawl_id AND q.key = w.key
         WHERE q.domain IS NULL AND q.gate_opens_at >= {LIMITED}"""),
    "wake_queues": Sql("""
        WITH w (crawl_id, key, due_at, renamed, domain, opens_at) AS (VALUES {rows})
        UPDATE queues AS q
           SET tasks_due_at = min(q.tasks_due_at, w.due_at), domain = iif(w.renamed, w.domain, q.domain),
               band = iif(w.renamed AND q.domain = '' AND q.priority IS NULL,
                          coalesce((SELECT g.band FROM gates g WHERE g.domain = w.domain), q.band), q.band),
               gate_opens_at = min(q.gate_opens_at, coalesce(w.opens_at, q.gate_opens_at))
          FROM w
         WHERE q.crawl_id = w.crawl_id AND q.key = w.key
           AND (q.tasks_due_at > w.due_at OR w.renamed OR q.gate_opens_at > w.opens_at)"""),
    "add_counts": Sql("""
        WITH w AS (VALUES {rows})
        INSERT INTO counts (crawl_id, key, domain, kind, slot, discovered, pending, assigned, completed, failed,
                            images_found, errors, depth_reached, changed_at)
        SELECT * FROM w WHERE true
            ON CONFLICT (crawl_id, key, domain, kind, slot) DO UPDATE
           SET discovered = discovered + excluded.discovered, pending = pending + excluded.pending,
               assigned = assigned + excluded.assigned, completed = completed + excluded.completed,
               failed = failed + excluded.failed, images_found = images_found + excluded.images_found,
               errors = errors + excluded.errors, depth_reached = max(depth_reached, excluded.depth_reached),
               changed_at = max(changed_at, excluded.changed_at)"""),
    "add_run_counts": Sql("""
        WITH w AS (VALUES {rows})
        INSERT INTO run_counts SELECT * FROM w WHERE true
            ON CONFLICT (run_id, domain, slot) DO UPDATE SET pages = pages + excluded.pages
        RETURNING run_id, domain, pages"""),
    # ----------------------------------------------------------------- lease
    "lock_request": NOTHING,
    "leases_of_request": Sql("""
        SELECT l.token, c.name, l.key, t.url, l.domain, l.kind, t.depth, t.priority, l.attempt,
               t.discovery_type, l.expires_at, a.etag, a.last_modified, g.robots_version, m.metadata, a.digest,
               a.similarity
          FROM leases l
          JOIN crawls c ON c.crawl_id = l.crawl_id
          JOIN tasks t ON t.crawl_id = l.crawl_id AND t.key = l.key AND t.hash = l.hash
          JOIN gates g ON g.domain = l.domain
          LEFT JOIN revisits v ON v.crawl_id = l.crawl_id AND v.key = l.key AND v.hash = l.hash
          LEFT JOIN crawl_log a ON a.artifact_id = coalesce(v.artifact_id, t.artifact_id)
          LEFT JOIN task_metadata m ON m.crawl_id = l.crawl_id AND m.key = l.key AND m.hash = l.hash
         WHERE l.worker = ?1 AND l.request_id = ?2 AND l.expires_at > ?3 ORDER BY l.token"""),
    "ready_crawls": Sql(f"""
        SELECT {CRAWL} FROM crawls c
         WHERE c.state = 'running' AND (
            ((?3 OR c.max_pages_per_domain IS NOT NULL) AND c.limited_run IS NOT ?2)
            OR EXISTS (
                SELECT 1 FROM {BANDS} b CROSS JOIN queues q
                 WHERE q.crawl_id = c.crawl_id AND q.band = b.column1 AND q.ready_at <= ?1))
         ORDER BY c.turn, c.crawl_id LIMIT 64"""),
    "set_limited_run": Sql("UPDATE crawls SET limited_run = ?2 WHERE crawl_id = ?1"),
    "lock_crawl_limits": NOTHING,
    "pages_of_crawl": Sql("""
        SELECT coalesce(sum(completed + assigned), 0) FROM counts
         WHERE crawl_id = ?1 AND key = '' AND domain = '' AND kind = 0"""),
    "take_turns": Sql("""
        WITH w (crawl_id) AS (VALUES {rows})
        UPDATE crawls SET turn = (SELECT max(c.turn) + 1 FROM crawls c) FROM w WHERE crawls.crawl_id = w.crawl_id"""),
    # Band by band, and in each by the index: in this order already. ORDER BY would sort all that is ready.
    "ready_queues": Sql(f"""
        SELECT q.key, q.domain, q.delay_ms, q.blocked_until, q.page_limit
          FROM {BANDS} b CROSS JOIN queues q
         WHERE q.crawl_id = ?1 AND q.band = b.column1 AND q.ready_at <= ?2
           AND q.key NOT IN (SELECT value FROM json_each(?4))
         LIMIT ?3"""),
    "lock_free_gates": Sql(f"SELECT {GATE} FROM gates WHERE domain IN (VALUES {{rows}})"),
    "lock_gates": Sql(f"SELECT {GATE} FROM gates WHERE domain IN (VALUES {{rows}})"),
    "gate": Sql(f"SELECT {GATE} FROM gates WHERE domain = ?1"),
    "traffic": Sql("""
        SELECT domain, count(*), count(*) FILTER (WHERE kind = 1), min(expires_at)
          FROM leases WHERE domain IN (VALUES {rows}) GROUP BY domain"""),
    "pages_of_queues": Sql("""
        SELECT key, sum(completed + assigned) FROM counts
         WHERE crawl_id = ?1 AND key IN (VALUES {rows}) AND kind = 0 GROUP BY key"""),
    "pages_of_run": Sql("""
        WITH w (domain) AS (VALUES {rows})
        SELECT w.domain,
               coalesce((SELECT sum(r.pages) FROM run_counts r WHERE r.run_id = ?1 AND r.domain = w.domain), 0)
               + (SELECT count(*) FROM leases l WHERE l.domain = w.domain AND l.run_id = ?1 AND l.kind = 0)
          FROM w"""),
    # Queues that have something to give soon, or something in flight that may bring more, by the pages they have had.
    "queues_by_pages": Sql(f"""
        SELECT pages, count(*) FROM (
            SELECT (SELECT coalesce(sum(c.completed + c.assigned), 0) FROM counts c
                     WHERE c.crawl_id = ?1 AND c.key = w.key AND c.kind = 0) AS pages
              FROM (SELECT * FROM (SELECT q.key FROM {BANDS} b CROSS JOIN queues q
                                    WHERE q.crawl_id = ?1 AND q.band = b.column1 AND q.ready_at <= ?2 LIMIT ?3)
                     UNION SELECT * FROM (SELECT DISTINCT key FROM leases WHERE crawl_id = ?1 LIMIT ?3)) AS w)
         GROUP BY pages"""),
    "wake_delayed": Sql("""
        WITH w (key) AS (VALUES {rows})
        UPDATE tasks AS t SET delayed = 0
          FROM (SELECT d.crawl_id, d.key, d.hash FROM w CROSS JOIN tasks d
                 WHERE d.crawl_id = ?1 AND d.key = w.key AND d.state = 1 AND d.delayed = 1 AND d.due_at <= ?2
                 ORDER BY d.due_at LIMIT 1000) AS due
         WHERE t.crawl_id = due.crawl_id AND t.key = due.key AND t.hash = due.hash"""),
    "ready_tasks": Sql("""
        WITH w (key) AS (VALUES {rows})
        SELECT t.key, t.hash, t.url, t.kind, t.priority, t.depth, t.attempt_count, t.discovery_type,
               a.etag, a.last_modified, m.metadata, a.digest, a.similarity
          FROM w CROSS JOIN tasks t
          LEFT JOIN revisits v ON v.crawl_id = ?1 AND v.key = t.key AND v.hash = t.hash
          LEFT JOIN crawl_log a ON a.artifact_id = coalesce(v.artifact_id, t.artifact_id)
          LEFT JOIN task_metadata m ON m.crawl_id = ?1 AND m.key = t.key AND m.hash = t.hash
         WHERE t.crawl_id = ?1 AND t.key = w.key AND t.hash IN (
            SELECT h.hash FROM tasks h
             WHERE h.crawl_id = ?1 AND h.key = w.key AND h.state = 1 AND h.delayed = 0
             ORDER BY h.priority DESC, h.sequence LIMIT ?2)
         ORDER BY t.key, t.priority DESC, t.sequence"""),
    "lock_robots_urls": NOTHING,
    "try_robots_url": Sql("SELECT 1 WHERE ?1 IS NOT NULL"),
    "lock_robots_task": Sql("""
        SELECT t.state, t.due_at, t.attempt_count, t.kind, t.depth, t.discovery_type, a.etag, a.last_modified,
               m.metadata
          FROM tasks t LEFT JOIN crawl_log a ON a.artifact_id = t.artifact_id
          LEFT JOIN task_metadata m ON m.crawl_id = t.crawl_id AND m.key = t.key AND m.hash = t.hash
         WHERE t.crawl_id = ?1 AND t.key = ?2 AND t.hash = ?3"""),
    "robots_task_exists": Sql("SELECT 1 FROM tasks WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3"),
    "arm_robots_task": Sql("""
        INSERT INTO tasks (crawl_id, key, hash, url, kind, state, delayed, priority, depth, sequence, due_at,
                           discovered_at, discovery_type)
        VALUES (?1, ?2, ?3, ?4, ?5, 1, 0, ?6, 0, ?7, ?8, ?8, ?9)
            ON CONFLICT (crawl_id, key, hash) DO UPDATE
           SET state = 1, delayed = 0, due_at = excluded.due_at, failures = 0, deferrals = 0, expiries = 0,
               kind = excluded.kind, priority = excluded.priority"""),
    "insert_leases": Sql("""
        WITH w AS (VALUES {rows})
        INSERT INTO leases (token, crawl_id, key, hash, url_hash, domain, kind, worker, request_id, run_id,
                            attempt, delay_ms, gate_was, granted_at, last_heartbeat, expires_at, claim_version)
        SELECT * FROM w WHERE true ON CONFLICT (url_hash) DO NOTHING RETURNING token"""),
    "postpone_tasks": Sql("""
        WITH w (key, hash) AS (VALUES {rows})
        UPDATE tasks AS t SET delayed = 1, due_at = ?2
          FROM w WHERE t.crawl_id = ?1 AND t.key = w.key AND t.hash = w.hash AND t.state = 1"""),
    "assign_tasks": Sql("""
        WITH w (key, hash) AS (VALUES {rows})
        UPDATE tasks AS t SET state = 2, attempt_count = t.attempt_count + 1
          FROM w WHERE t.crawl_id = ?1 AND t.key = w.key AND t.hash = w.hash AND t.state = 1
        RETURNING hash"""),
    "update_gates": Sql("""
        WITH w (domain, next_fetch_at, backoff_until, backoff_level, backoff_began_at, robots_delay_ms,
                robots_version, robots_expires_at, quiet_until, blocked_until, errors_in_row, error_at)
             AS (VALUES {rows})
        UPDATE gates AS g
           SET next_fetch_at = w.next_fetch_at, backoff_until = w.backoff_until, backoff_level = w.backoff_level,
               backoff_began_at = w.backoff_began_at, robots_delay_ms = w.robots_delay_ms,
               robots_version = w.robots_version, robots_expires_at = w.robots_expires_at,
               quiet_until = w.quiet_until, blocked_until = w.blocked_until, errors_in_row = w.errors_in_row,
               error_at = w.error_at
          FROM w WHERE g.domain = w.domain"""),
    "move_queues": Sql("""
        WITH w (key, opens_at, served) AS (VALUES {rows})
        UPDATE queues AS q SET gate_opens_at = w.opens_at, last_served_at = iif(w.served, ?2, q.last_served_at)
          FROM w WHERE q.crawl_id = ?1 AND q.key = w.key"""),
    "rest_queues": Sql(f"""
        WITH w (key) AS (VALUES {{rows}})
        UPDATE queues AS q SET tasks_due_at = iif(
            EXISTS (SELECT 1 FROM tasks t INDEXED BY tasks_ready
                     WHERE t.crawl_id = ?1 AND t.key = q.key AND t.state = 1 AND t.delayed = 0),
            min(q.tasks_due_at, ?2),
            coalesce((SELECT t.due_at FROM tasks t
                       WHERE t.crawl_id = ?1 AND t.key = q.key AND t.state = 1 AND t.delayed = 1
                       ORDER BY t.due_at LIMIT 1), {NEVER}))
          FROM w WHERE q.crawl_id = ?1 AND q.key = w.key"""),
    "next_ready_at": Sql(f"""
        SELECT min((SELECT ready_at FROM queues WHERE crawl_id = ?1 AND band = b.column1 ORDER BY ready_at LIMIT 1))
          FROM {BANDS} b"""),
    "next_ready_at_any": Sql(f"""
        SELECT min((SELECT ready_at FROM queues WHERE crawl_id = c.crawl_id AND band = b.column1
                     ORDER BY ready_at LIMIT 1))
          FROM crawls c CROSS JOIN {BANDS} b WHERE c.state = 'running'"""),
    # ---------------------------------------------------------------- report
    "lock_leases": Sql(f"SELECT {HELD_LEASE} FROM {HELD_LEASE_TABLES} WHERE l.token IN (VALUES {{rows}})"),
    "crawls_of_worker": Sql("SELECT DISTINCT crawl_id FROM leases WHERE worker = ?1"),
    "lock_leases_of_worker": Sql(f"""
        SELECT {HELD_LEASE} FROM {HELD_LEASE_TABLES}
         WHERE l.worker = ?1 AND ?2 IS NOT NULL ORDER BY l.token"""),
    "crawls_of_expired_leases": Sql("""
        SELECT DISTINCT crawl_id FROM (
            SELECT crawl_id FROM leases WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)"""),
    "lock_expired_leases": Sql(f"""
        SELECT {HELD_LEASE} FROM {HELD_LEASE_TABLES}
         WHERE l.expires_at <= ?1 AND ?3 IS NOT NULL ORDER BY l.expires_at LIMIT ?2"""),
    "lock_lease_tokens": NOTHING,
    "renew_leases": Sql("""
        UPDATE leases SET last_heartbeat = ?1, expires_at = ?2
         WHERE token IN (VALUES {rows}) AND expires_at > ?1 RETURNING token"""),
    "earlier_answers": Sql("SELECT token, verdict, retry_at FROM crawl_log WHERE token IN (VALUES {rows})"),
    "insert_crawl_log": Sql("""
        INSERT INTO crawl_log (crawl, key, url, url_hash, token, attempt, domain, domain_id, kind, outcome, verdict,
                               retry_at, reason, http_status, images_found, digest, etag, last_modified,
                               content_type, body_bytes, content_location, discovery_type, depth, run_id,
                               leased_at, fetched_at, elapsed_ms, reported_at, title, links_found, noindex, redirects,
                               similarity)
        VALUES {rows} RETURNING token, artifact_id"""),
    "delete_leases": Sql("DELETE FROM leases WHERE token IN (VALUES {rows}) RETURNING token"),
    "end_tasks": Sql("""
        WITH w (crawl_id, key, hash, attempt, state, delayed, due_at, failures, deferrals, expiries, http_status,
                reason, artifact_id) AS (VALUES {rows})
        UPDATE tasks AS t
           SET state = w.state, delayed = w.delayed, due_at = w.due_at, failures = w.failures,
               deferrals = w.deferrals, expiries = w.expiries,
               http_status = coalesce(w.http_status, t.http_status), reason = w.reason,
               artifact_id = coalesce(w.artifact_id, t.artifact_id)
          FROM w
         WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash AND t.state = 2
           AND t.attempt_count = w.attempt
        RETURNING hash"""),
    "put_robots": Sql("""
        INSERT INTO robots (domain, version, text, fetched_at) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (domain) DO UPDATE
           SET version = excluded.version, text = excluded.text, fetched_at = excluded.fetched_at"""),
    "robots_text": Sql("SELECT version, text FROM robots WHERE domain = ?1"),
    "forget_robots_trouble": Sql(f"""
        UPDATE gates SET robots_expires_at = min(robots_expires_at, ?1)
         WHERE domain IN (VALUES {{rows}}) AND robots_version = '{UNREACHABLE_ROBOTS}'"""),
    # ------------------------------------------------------ overrides, upkeep
    "configure_gate": Sql("""
        UPDATE gates SET delay_ms = ?2, concurrency = ?3, blocked_until = ?4, band = ?5, own_band = own_band OR ?6
         WHERE domain = ?1"""),
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
        UPDATE tasks AS t SET state = 1, delayed = 1, due_at = max(t.due_at, ?3)
          FROM (SELECT crawl_id, key, hash FROM tasks
                 WHERE crawl_id = ?1 AND state = 0 AND depth <= ?2 ORDER BY depth LIMIT ?4) AS chosen
         WHERE t.crawl_id = chosen.crawl_id AND t.key = chosen.key AND t.hash = chosen.hash
        RETURNING key, kind, url"""),
    "retry_tasks": Sql("""
        UPDATE tasks AS t SET state = 1, delayed = 1, due_at = ?5, failures = 0, deferrals = 0, expiries = 0
          FROM (SELECT crawl_id, key, hash FROM tasks INDEXED BY tasks_failed
                 WHERE crawl_id = ?1 AND state = 4 AND (?2 IS NULL OR key = ?2) AND (?3 IS NULL OR kind = ?3)
                   AND (?4 IS NULL OR instr(url, ?4) > 0) LIMIT ?6) AS chosen
         WHERE t.crawl_id = chosen.crawl_id AND t.key = chosen.key AND t.hash = chosen.hash
        RETURNING key, kind, url"""),
    "tasks_in_order": Sql("""
        SELECT key, hash, url, state, kind, discovered_at FROM tasks
         WHERE crawl_id = ?1 AND (?2 IS NULL OR key = ?2) AND (key, hash) > (?3, ?4)
         ORDER BY key, hash LIMIT ?5"""),
    # Row by row: with a list of pairs, SQLite would go through the whole crawl.
    "delete_tasks": Sql("DELETE FROM tasks WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3 RETURNING hash"),
    "delete_metadata": Sql("DELETE FROM task_metadata WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3"),
    "queue_totals": Sql("""
        SELECT kind, sum(discovered), sum(pending), sum(assigned), sum(completed), sum(failed)
          FROM counts WHERE crawl_id = ?1 AND key = ?2 GROUP BY kind"""),
    "delete_queue_leases": Sql("DELETE FROM leases WHERE crawl_id = ?1 AND key = ?2 RETURNING domain"),
    "delete_queue_tasks": Sql("DELETE FROM tasks WHERE crawl_id = ?1 AND key = ?2"),
    "delete_queue_metadata": Sql("DELETE FROM task_metadata WHERE crawl_id = ?1 AND key = ?2"),
    "delete_queue_counts": Sql("DELETE FROM counts WHERE crawl_id = ?1 AND key = ?2"),
    "delete_queue_row": Sql("DELETE FROM queues WHERE crawl_id = ?1 AND key = ?2"),
    "lock_queues_of_crawl": NOTHING,
    "delete_crawl_leases": Sql("DELETE FROM leases WHERE crawl_id = ?1 RETURNING domain"),
    "delete_crawl_tasks": Sql("DELETE FROM tasks WHERE crawl_id = ?1"),
    "delete_crawl_metadata": Sql("DELETE FROM task_metadata WHERE crawl_id = ?1"),
    "delete_crawl_counts": Sql("DELETE FROM counts WHERE crawl_id = ?1"),
    "delete_crawl_queues": Sql("DELETE FROM queues WHERE crawl_id = ?1"),
    "delete_crawl_scope": Sql("DELETE FROM scope_roots WHERE crawl_id = ?1"),
    "delete_crawl_row": Sql("DELETE FROM crawls WHERE crawl_id = ?1"),
    # ---------------------------------------------------------------- browse
    "list_tasks": Sql(f"""
        SELECT {TASK}, l.last_heartbeat, m.metadata FROM tasks t
          LEFT JOIN leases l ON l.crawl_id = t.crawl_id AND l.key = t.key AND l.hash = t.hash
          LEFT JOIN task_metadata m ON m.crawl_id = t.crawl_id AND m.key = t.key AND m.hash = t.hash
         WHERE t.crawl_id = ?1 AND (t.key, t.hash) > (?2, ?3) AND (?4 IS NULL OR t.key = ?4)
           AND (?5 IS NULL OR t.state = ?5) AND (?6 IS NULL OR t.kind = ?6)
           AND (?7 IS NULL OR instr(t.url, ?7) > 0)
         ORDER BY t.key, t.hash LIMIT ?8"""),
    "task": Sql(f"""
        SELECT {TASK}, l.last_heartbeat, m.metadata FROM tasks t
          LEFT JOIN leases l ON l.crawl_id = t.crawl_id AND l.key = t.key AND l.hash = t.hash
          LEFT JOIN task_metadata m ON m.crawl_id = t.crawl_id AND m.key = t.key AND m.hash = t.hash
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
    "list_artifacts": Sql(f"""
        SELECT {ARTIFACT} FROM crawl_log WHERE crawl = ?1 AND artifact_id > ?2 ORDER BY artifact_id LIMIT ?3"""),
    "artifacts_of_url": Sql(f"""
        SELECT {ARTIFACT} FROM crawl_log
         WHERE url_hash = ?2 AND crawl = ?1 AND url = ?3 ORDER BY artifact_id DESC LIMIT ?4"""),
    "artifact_horizon": Sql("SELECT coalesce(max(artifact_id), 0), 0, 0 FROM crawl_log"),
    "holder": Sql("""
        SELECT worker, granted_at, last_heartbeat, expires_at FROM leases
         WHERE crawl_id = ?1 AND key = ?2 AND hash = ?3"""),
    "outlook": Sql(f"""
        SELECT {SUMS},
               (SELECT min((SELECT ready_at FROM queues WHERE crawl_id = ?1 AND band = b.column1
                             ORDER BY ready_at LIMIT 1)) FROM {BANDS} b),
               EXISTS (SELECT 1 FROM {BANDS} b
                        WHERE EXISTS (SELECT 1 FROM queues INDEXED BY queues_ready
                                       WHERE crawl_id = ?1 AND band = b.column1 AND ready_at = {LIMITED}))
          FROM counts WHERE crawl_id = ?1 AND key = ''"""),
    # A drained queue is not among them: nothing of it waits.
    "waiting_queues": Sql(f"""
        SELECT q.key, q.domain, q.ready_at,
               (SELECT coalesce(sum(n.pending), 0) FROM counts n WHERE n.crawl_id = ?1 AND n.key = q.key),
               coalesce(g.backoff_until, 0), coalesce(g.blocked_until, 0),
               iif(g.robots_version = '{UNREACHABLE_ROBOTS}', g.robots_expires_at, 0)
          FROM {BANDS} b CROSS JOIN queues q LEFT JOIN gates g ON g.domain = q.domain
         WHERE q.crawl_id = ?1 AND q.band = b.column1 AND q.ready_at > ?2 AND q.ready_at < {LIMITED}
         ORDER BY q.ready_at DESC LIMIT ?3"""),
    "widen_scope": Sql("INSERT INTO scope_roots (crawl_id, url) VALUES {rows} ON CONFLICT DO NOTHING"),
    "scope_roots": Sql("SELECT url FROM scope_roots WHERE crawl_id = ?1 ORDER BY url"),
    # ------------------------------------------------------------ batch mode
    "queue_block": Sql("SELECT blocked_until FROM queues WHERE crawl_id = ?1 AND key = ?2"),
    "change_queue": Sql("""
        INSERT INTO queues (crawl_id, key, domain, band, tasks_due_at, created_at, delay_ms, blocked_until, page_limit)
        VALUES (?1, ?2, '', ?3, ?4, ?5, ?7, coalesce(?9, 0), ?11)
            ON CONFLICT (crawl_id, key) DO UPDATE
           SET delay_ms = iif(?6, excluded.delay_ms, delay_ms), gate_opens_at = 0,
               blocked_until = iif(?8, excluded.blocked_until, blocked_until),
               page_limit = iif(?10, excluded.page_limit, page_limit)"""),
    "crawls_with_queue": Sql(f"""
        SELECT {CRAWL} FROM crawls c
         WHERE c.state = 'running'
           AND EXISTS (SELECT 1 FROM queues q WHERE q.crawl_id = c.crawl_id AND q.key = ?1)
         ORDER BY c.turn, c.crawl_id LIMIT 64"""),
    "serveable_queues": Sql(f"""
        SELECT q.key, q.domain, q.delay_ms, q.blocked_until, q.page_limit, q.last_served_at
          FROM {BANDS} b CROSS JOIN queues q
         WHERE q.crawl_id = ?1 AND q.band = b.column1 AND q.ready_at <= ?2
           AND q.key NOT IN (SELECT value FROM json_each(?4))
         LIMIT ?3"""),
    "serveable_queue": Sql("""
        SELECT key, domain, delay_ms, blocked_until, page_limit, last_served_at FROM queues
         WHERE crawl_id = ?1 AND key = ?2"""),
    "completed_of_queues": Sql("""
        SELECT key, sum(completed) FROM counts WHERE crawl_id = ?1 AND key IN (VALUES {rows}) GROUP BY key"""),
    "in_flight_of_queues": Sql("""
        WITH w (key) AS (VALUES {rows})
        SELECT l.key, count(*), min(l.expires_at)
          FROM w CROSS JOIN leases l INDEXED BY leases_task ON l.crawl_id = ?1 AND l.key = w.key
         WHERE l.expires_at > ?2 GROUP BY l.key"""),
    "ready_heads": Sql("""
        WITH w (key) AS (VALUES {rows})
        SELECT t.key, t.hash, t.url, t.kind, t.priority, t.sequence, t.attempt_count, m.metadata
          FROM w CROSS JOIN tasks t
          LEFT JOIN task_metadata m ON m.crawl_id = ?1 AND m.key = t.key AND m.hash = t.hash
         WHERE t.crawl_id = ?1 AND t.key = w.key AND t.hash IN (
            SELECT h.hash FROM tasks h
             WHERE h.crawl_id = ?1 AND h.key = w.key AND h.state = 1 AND h.delayed = 0
             ORDER BY h.priority DESC, h.sequence LIMIT ?2)"""),
    "due_heads": Sql("""
        WITH w (key) AS (VALUES {rows})
        SELECT t.key, t.hash, t.url, t.kind, t.priority, t.sequence, t.attempt_count, m.metadata
          FROM w CROSS JOIN tasks t
          LEFT JOIN task_metadata m ON m.crawl_id = ?1 AND m.key = t.key AND m.hash = t.hash
         WHERE t.crawl_id = ?1 AND t.key = w.key AND t.hash IN (
            SELECT d.hash FROM tasks d
             WHERE d.crawl_id = ?1 AND d.key = w.key AND d.state = 1 AND d.delayed = 1 AND d.due_at <= ?3
             ORDER BY d.due_at, d.sequence LIMIT ?2)"""),
    "tasks_by_url": Sql("""
        WITH w (position, key, hash, url) AS (VALUES {rows})
        SELECT w.position, t.hash, t.state, t.kind
          FROM w CROSS JOIN tasks t ON t.crawl_id = ?1 AND t.key = w.key AND t.hash = w.hash
         WHERE t.url = w.url"""),
    "leases_of_tasks": Sql("""
        WITH w (key, hash) AS (VALUES {rows})
        SELECT l.token, l.domain
          FROM w CROSS JOIN leases l ON l.crawl_id = ?1 AND l.key = w.key AND l.hash = w.hash"""),
    "set_tasks": Sql("""
        WITH w (key, hash, state, delayed, due_at, priority) AS (VALUES {rows})
        UPDATE tasks AS t
           SET state = w.state, delayed = w.delayed, due_at = w.due_at, priority = w.priority, failures = 0,
               deferrals = 0, expiries = 0, http_status = NULL, reason = NULL
          FROM w WHERE t.crawl_id = ?1 AND t.key = w.key AND t.hash = w.hash"""),
    "restore_tasks": Sql("""
        WITH w (key, hash, state, delayed, due_at, discovered_at, attempt_count, failures, deferrals, http_status,
                reason) AS (VALUES {rows})
        UPDATE tasks AS t
           SET state = w.state, delayed = w.delayed, due_at = w.due_at, discovered_at = w.discovered_at,
               attempt_count = w.attempt_count, failures = w.failures, deferrals = w.deferrals,
               http_status = w.http_status, reason = w.reason
          FROM w WHERE t.crawl_id = ?1 AND t.key = w.key AND t.hash = w.hash"""),
    "put_metadata": Sql("""
        WITH w (crawl_id, key, hash, metadata) AS (VALUES {rows})
        INSERT INTO task_metadata SELECT * FROM w WHERE true
            ON CONFLICT (crawl_id, key, hash) DO UPDATE SET metadata = excluded.metadata"""),
    "crawls_of_batch_leases": Sql(f"""
        SELECT DISTINCT crawl_id FROM (
            SELECT crawl_id FROM leases WHERE worker = '{BATCH_WORKER}' AND request_id <= ?1
             ORDER BY request_id LIMIT ?2)"""),
    "lock_batch_leases": Sql(f"""
        SELECT l.token, l.crawl_id, l.key, l.hash, l.domain, l.kind, t.due_at
          FROM leases l INDEXED BY leases_request
          CROSS JOIN tasks t ON t.crawl_id = l.crawl_id AND t.key = l.key AND t.hash = l.hash
         WHERE l.worker = '{BATCH_WORKER}' AND l.request_id <= ?1 AND ?3 IS NOT NULL
         ORDER BY l.request_id LIMIT ?2"""),
    "return_tasks": Sql("""
        WITH w (crawl_id, key, hash) AS (VALUES {rows})
        UPDATE tasks AS t SET state = 1, delayed = 1
          FROM w WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash AND t.state = 2"""),
    "expired_of_crawl": Sql("""
        SELECT count(*) FROM leases INDEXED BY leases_expiry
         WHERE expires_at <= ?2 AND crawl_id = ?1 AND (?3 IS NULL OR key = ?3)"""),
    "count_queues": Sql("""
        SELECT count(*), coalesce(sum(active > 0), 0), max(key) FROM (
            SELECT q.key, (SELECT sum(n.discovered + n.pending + n.assigned) FROM counts n
                            WHERE n.crawl_id = ?1 AND n.key = q.key) AS active
              FROM queues q WHERE q.crawl_id = ?1 AND q.key > ?2 AND q.domain IS NOT '' ORDER BY q.key LIMIT ?3)"""),
    "queue_keys": Sql("""
        SELECT q.key FROM queues q
         WHERE q.crawl_id = ?1 AND q.key > ?2 AND q.domain IS NOT ''
           AND (?3 OR (q.blocked_until <= ?4
                       AND (SELECT sum(n.discovered + n.pending + n.assigned) FROM counts n
                             WHERE n.crawl_id = ?1 AND n.key = q.key) > 0))
         ORDER BY q.key LIMIT ?5"""),
    "url_by_hash": Sql("""
        SELECT t.key, t.hash, t.url, t.state, t.due_at, t.discovered_at, m.metadata FROM tasks t
          LEFT JOIN task_metadata m ON m.crawl_id = t.crawl_id AND m.key = t.key AND m.hash = t.hash
         WHERE t.crawl_id = ?1 AND t.key = ?2 AND t.hash = ?3"""),
    "end_of_urls": Sql("""
        SELECT key, hash FROM tasks WHERE crawl_id = ?1 AND (key, hash) > (?2, ?3) AND key <= ?4
         ORDER BY key, hash LIMIT 1 OFFSET ?5"""),
    "list_urls": Sql("""
        SELECT t.key, t.hash, t.url, t.state, t.due_at, t.discovered_at, m.metadata
          FROM (SELECT * FROM tasks WHERE crawl_id = ?1 AND (key, hash) > (?2, ?3) AND key <= ?4
                 ORDER BY key, hash LIMIT ?5) t
          LEFT JOIN task_metadata m ON m.crawl_id = ?1 AND m.key = t.key AND m.hash = t.hash
         WHERE ?6 IS NULL OR instr(iif(?7, lower(t.url), t.url), iif(?7, lower(?6), ?6)) > 0
         ORDER BY t.key, t.hash"""),
    "count_urls": Sql("""
        SELECT count(*)
          FROM (SELECT url FROM tasks WHERE crawl_id = ?1 AND (key, hash) > (?2, ?3) AND key <= ?4
                 ORDER BY key, hash LIMIT ?5) t
         WHERE ?6 IS NULL OR instr(iif(?7, lower(t.url), t.url), iif(?7, lower(?6), ?6)) > 0"""),
    **REVISITS,
}
