"""The statements of the URL plane in PostgreSQL's dialect.

What locks several rows locks them in the order of their keys. `lease` alone uses SKIP LOCKED.

OFFSET 0 keeps the planner from moving a crawl's number out of a list of rows: it would then, where it has no
statistics, go through the crawl and look for each task in the list, and not the other way round.

`band >= 0` is true of every queue, and says that the index `queues_ready` may be used.
"""

from outrider.model.batch import BATCH_WORKER
from outrider.model.gate import UNREACHABLE_ROBOTS
from outrider.model.task import NEVER
from outrider.store.sql.postgres.revisits import REVISITS
from outrider.store.sql.script import Catalogue, Sql
from outrider.store.sql.urls.waking import LIMITED

CRAWL = """crawl_id, name, state, key_rule, strip_tracking, sort_query, max_depth, max_pages,
    max_pages_per_domain, delay_ms, concurrency, robots, created_at, limited_run, conduct"""

GATE = """domain, delay_ms, robots_delay_ms, concurrency, next_fetch_at, backoff_until, backoff_level,
    backoff_began_at, blocked_until, band, robots_version, robots_expires_at, domain_id, quiet_until,
    status, errors_in_row, error_at"""

HELD_LEASE = """l.token, l.crawl_id, c.name, l.key, l.hash, l.domain, l.kind, l.run_id, l.attempt, l.delay_ms,
    l.gate_was, l.granted_at, l.expires_at, t.url, l.url_hash, t.depth, t.discovery_type, t.failures,
    t.deferrals, t.expiries, l.worker, l.claim_version"""

ARTIFACT = """artifact_id, crawl, key, url, token, attempt, domain, domain_id, kind, outcome, reason, discovery_type,
    run_id, depth, leased_at, reported_at, http_status, fetched_at, elapsed_ms, content_type, body_bytes,
    images_found, digest, etag, last_modified, content_location, title, links_found, noindex,
    redirects, similarity"""

TASK = """t.key, t.hash, t.url, t.kind, t.state, t.priority, t.depth, t.attempt_count, t.failures, t.deferrals,
    t.expiries, t.discovered_at, t.due_at, t.discovery_type, t.http_status, t.reason"""

NEW_TASKS = "$8::int[], $9::text[], $10::bytea[], $11::text[], $12::bigint[], $13::int[]"

INSERT_TASKS = """INSERT INTO tasks (crawl_id, key, hash, url, sequence, discovered_at, kind, state, priority, depth,
                               due_at, discovery_type, delayed)
            SELECT w.crawl_id, w.key, w.hash, w.url, w.sequence, $1::bigint, ($2::smallint[])[w.facts + 1],
                   ($3::smallint[])[w.facts + 1], ($4::int[])[w.facts + 1], ($5::int[])[w.facts + 1],
                   ($6::bigint[])[w.facts + 1], ($7::smallint[])[w.facts + 1],
                   ($6::bigint[])[w.facts + 1] > $1::bigint"""

DRAINED_LOOK_MS = 1_000
"""When to look again at a queue that seems to be empty; see `rest_queues`."""

CATALOGUE: Catalogue = {
    "clock": Sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"),
    # ---------------------------------------------------------------- crawls
    "insert_crawl": Sql(f"""
        INSERT INTO crawls (name, key_rule, strip_tracking, sort_query, max_depth, max_pages,
                            max_pages_per_domain, delay_ms, concurrency, robots, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        ON CONFLICT (name) DO NOTHING RETURNING {CRAWL}"""),
    "crawl_by_name": Sql(f"SELECT {CRAWL} FROM crawls WHERE name = $1"),
    "crawl_for_write": Sql(f"SELECT {CRAWL} FROM crawls WHERE name = $1 FOR KEY SHARE"),
    "crawl_alone": Sql(f"SELECT {CRAWL} FROM crawls WHERE name = $1 FOR UPDATE"),
    "list_crawls": Sql(f"SELECT {CRAWL} FROM crawls ORDER BY name"),
    "set_crawl_state": Sql(f"UPDATE crawls SET state = $2 WHERE name = $1 RETURNING {CRAWL}"),
    "set_crawl_limits": Sql(f"""
        UPDATE crawls SET max_depth = $2, max_pages = $3, max_pages_per_domain = $4, delay_ms = $5,
                          concurrency = $6, robots = $7
         WHERE name = $1 RETURNING {CRAWL}"""),
    "set_conduct": Sql(f"UPDATE crawls SET conduct = $2 WHERE name = $1 RETURNING {CRAWL}"),
    "crawls_of_leases": Sql(f"""
        SELECT {CRAWL} FROM crawls
         WHERE crawl_id IN (SELECT crawl_id FROM leases WHERE token = ANY ($1::bytea[]))
         ORDER BY crawl_id FOR KEY SHARE"""),
    "wake_crawl": Sql("""
        WITH locked AS (
            SELECT q.crawl_id, q.key FROM queues q WHERE q.crawl_id = $1 AND q.gate_opens_at > 0
             ORDER BY q.key FOR NO KEY UPDATE)
        UPDATE queues q SET gate_opens_at = 0
          FROM locked WHERE q.crawl_id = locked.crawl_id AND q.key = locked.key"""),
    "wake_limited": Sql(f"""
        WITH locked AS (
            SELECT q.crawl_id, q.key FROM queues q
             WHERE q.crawl_id = $1 AND q.ready_at = {LIMITED}
               AND q.band = ANY ('{{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}}'::smallint[])
             ORDER BY q.key FOR NO KEY UPDATE)
        UPDATE queues q SET gate_opens_at = 0
          FROM locked WHERE q.crawl_id = locked.crawl_id AND q.key = locked.key"""),
    # ------------------------------------------------------------------- add
    "queue_domains": Sql("""
        SELECT q.crawl_id, q.key, q.domain
          FROM unnest($1::int[], $2::text[]) AS w (crawl_id, key)
          JOIN queues q ON q.crawl_id = w.crawl_id AND q.key = w.key"""),
    # Makes the gates of new domains as well; gives those that it made.
    "insert_domains": Sql("""
        WITH made AS (
            INSERT INTO domains (id, domain, parent_domain, first_seen_at, updated_at)
            SELECT w.id, w.domain, w.parent, to_timestamp($1::bigint / 1000.0), to_timestamp($1::bigint / 1000.0)
              FROM unnest($2::uuid[], $3::text[], $4::text[]) WITH ORDINALITY AS w (id, domain, parent, place)
             WHERE NOT EXISTS (SELECT FROM gates g WHERE g.domain = w.domain)
             ORDER BY w.place ON CONFLICT (domain) DO NOTHING RETURNING domain, id)
        INSERT INTO gates (domain, domain_id) SELECT domain, id FROM made
            ON CONFLICT (domain) DO NOTHING RETURNING domain"""),
    "insert_gates": Sql("""
        INSERT INTO gates (domain, domain_id, status)
        SELECT d.domain, d.id, d.status FROM unnest($1::text[]) WITH ORDINALITY AS w (domain, place)
          JOIN domains d ON d.domain = w.domain
         WHERE NOT EXISTS (SELECT FROM gates g WHERE g.domain = w.domain)
         ORDER BY w.place ON CONFLICT (domain) DO NOTHING"""),
    "insert_queues": Sql("""
        INSERT INTO queues (crawl_id, key, domain, band, tasks_due_at, created_at)
        SELECT w.crawl_id, w.key, w.domain, g.band, $1::bigint, $1::bigint
          FROM unnest($2::int[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
            AS w (crawl_id, key, domain, gate, place)
          JOIN gates g ON g.domain = w.gate
         ORDER BY w.crawl_id, w.key ON CONFLICT (crawl_id, key) DO NOTHING RETURNING crawl_id, key"""),
    "take_sequence": Sql("SELECT nextval('discovery_sequence') FROM generate_series(1, $1::int)"),
    "known_tasks": Sql(""),
    # Looks, inserts what is not there, and gives the numbers of what is: of the same URL, and of another one with its
    # hash. What many rows have in common stands in arrays beside them. Without ON CONFLICT a row costs a sixth less,
    # but one that somebody inserts at the same moment fails the transaction.
    "insert_new_tasks": Sql(f"""
        WITH offered AS MATERIALIZED (
            SELECT w.*, t.url = w.url AS known
              FROM unnest({NEW_TASKS}) AS w (crawl_id, key, hash, url, sequence, facts)
              LEFT JOIN tasks t ON t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash),
        inserted AS (
            {INSERT_TASKS} FROM offered w WHERE w.known IS NULL)
        SELECT array_agg(sequence) FILTER (WHERE known), array_agg(sequence) FILTER (WHERE NOT known)
          FROM offered WHERE known IS NOT NULL"""),
    # Gives the numbers of the rows that were not there; `colliding_tasks` compares the others.
    "insert_tasks": Sql(f"""
        WITH inserted AS (
            {INSERT_TASKS} FROM unnest({NEW_TASKS}) AS w (crawl_id, key, hash, url, sequence, facts)
                ON CONFLICT (crawl_id, key, hash) DO NOTHING RETURNING sequence)
        SELECT array_agg(sequence) FROM inserted"""),
    "colliding_tasks": Sql("""
        SELECT w.sequence
          FROM unnest($1::int[], $2::text[], $3::bytea[], $4::text[], $5::bigint[])
            AS w (crawl_id, key, hash, url, sequence)
          JOIN tasks t ON t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash
         WHERE t.url <> w.url"""),
    # Asked after the tasks were inserted: see `rest_queues`.
    "queues_to_tend": Sql(f"""
        SELECT w.crawl_id, w.key, q.key IS NOT NULL, q.domain
          FROM unnest($1::int[], $2::text[], $3::text[], $4::bigint[]) AS w (crawl_id, key, domain, due_at)
          LEFT JOIN queues q ON q.crawl_id = w.crawl_id AND q.key = w.key
         WHERE (q.domain = w.domain) IS NOT TRUE OR q.tasks_due_at > w.due_at
            OR (q.drained_xid IS NOT NULL AND w.due_at < {NEVER})"""),
    "insert_metadata": Sql("""
        INSERT INTO task_metadata (crawl_id, key, hash, metadata)
        SELECT * FROM unnest($1::int[], $2::text[], $3::bytea[], $4::text[])"""),
    "queues_behind_gates": Sql("""
        SELECT q.crawl_id, q.key, q.domain
          FROM unnest($1::text[], $2::bigint[]) AS w (domain, opens_at)
          JOIN queues q ON q.domain = w.domain AND q.gate_opens_at > w.opens_at"""),
    "mixed_at_limit": Sql(f"""
        SELECT q.crawl_id, q.key FROM unnest($1::int[], $2::text[]) AS w (crawl_id, key)
          JOIN queues q ON q.crawl_id = w.crawl_id AND q.key = w.key
         WHERE q.domain IS NULL AND q.gate_opens_at >= {LIMITED}"""),
    # An adder whose tasks a lease could not see yet clears the mark that the lease left (`rest_queues`).
    "wake_queues": Sql(f"""
        WITH locked AS (
            SELECT q.crawl_id, q.key, w.due_at, w.renamed, w.domain, w.opens_at
              FROM unnest($1::int[], $2::text[], $3::bigint[], $4::boolean[], $5::text[], $6::bigint[])
                AS w (crawl_id, key, due_at, renamed, domain, opens_at)
              JOIN queues q ON q.crawl_id = w.crawl_id AND q.key = w.key
             WHERE q.tasks_due_at > w.due_at OR (q.drained_xid IS NOT NULL AND w.due_at < {NEVER})
                OR w.renamed OR q.gate_opens_at > w.opens_at
             ORDER BY q.crawl_id, q.key FOR NO KEY UPDATE OF q)
        UPDATE queues q
           SET tasks_due_at = LEAST(q.tasks_due_at, locked.due_at),
               drained_xid = CASE WHEN locked.due_at < {NEVER} THEN NULL ELSE q.drained_xid END,
               domain = CASE WHEN NOT locked.renamed OR q.domain = locked.domain THEN q.domain
                             WHEN q.domain = '' THEN locked.domain END,
               band = CASE WHEN locked.renamed AND q.domain = '' AND q.priority IS NULL
                           THEN coalesce((SELECT g.band FROM gates g WHERE g.domain = locked.domain), q.band)
                           ELSE q.band END,
               gate_opens_at = LEAST(q.gate_opens_at, locked.opens_at)
          FROM locked WHERE q.crawl_id = locked.crawl_id AND q.key = locked.key"""),
    "add_counts": Sql("""
        INSERT INTO counts (crawl_id, key, domain, kind, slot, discovered, pending, assigned, completed, failed,
                            images_found, errors, depth_reached, changed_at)
        SELECT * FROM unnest($1::int[], $2::text[], $3::text[], $4::smallint[], $5::smallint[], $6::bigint[],
                             $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
                             $13::int[], $14::bigint[])
            ON CONFLICT (crawl_id, key, domain, kind, slot) DO UPDATE
           SET discovered = counts.discovered + excluded.discovered,
               pending = counts.pending + excluded.pending,
               assigned = counts.assigned + excluded.assigned,
               completed = counts.completed + excluded.completed,
               failed = counts.failed + excluded.failed,
               images_found = counts.images_found + excluded.images_found,
               errors = counts.errors + excluded.errors,
               depth_reached = greatest(counts.depth_reached, excluded.depth_reached),
               changed_at = greatest(counts.changed_at, excluded.changed_at)"""),
    "add_run_counts": Sql("""
        INSERT INTO run_counts (run_id, domain, slot, pages)
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::smallint[], $4::bigint[])
            ON CONFLICT (run_id, domain, slot) DO UPDATE SET pages = run_counts.pages + excluded.pages
        RETURNING run_id, domain, pages"""),
    # ----------------------------------------------------------------- lease
    "lock_request": Sql("SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(31) || $2, 0))"),
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
         WHERE l.worker = $1 AND l.request_id = $2 AND l.expires_at > $3 ORDER BY l.token"""),
    "ready_crawls": Sql(f"""
        SELECT {CRAWL} FROM crawls c
         WHERE c.state = 'running' AND (
            (($3::boolean OR c.max_pages_per_domain IS NOT NULL) AND c.limited_run IS DISTINCT FROM $2)
            OR EXISTS (
                SELECT FROM generate_series(0, 15) AS b (band)
                 WHERE EXISTS (SELECT FROM queues q
                                WHERE q.crawl_id = c.crawl_id AND q.band = b.band AND q.band >= 0
                                  AND q.ready_at <= $1)))
         ORDER BY c.turn, c.crawl_id LIMIT 64 FOR KEY SHARE"""),
    "set_limited_run": Sql("UPDATE crawls SET limited_run = $2 WHERE crawl_id = $1"),
    "lock_crawl_limits": Sql("""
        SELECT crawl_id FROM crawls WHERE crawl_id = ANY ($1::int[]) ORDER BY crawl_id FOR NO KEY UPDATE"""),
    "pages_of_crawl": Sql("""
        SELECT coalesce(sum(completed + assigned), 0)::bigint FROM counts
         WHERE crawl_id = $1 AND key = '' AND domain = '' AND kind = 0"""),
    "take_turns": Sql("""
        WITH free AS (
            SELECT crawl_id FROM crawls WHERE crawl_id = ANY ($1::int[])
             ORDER BY crawl_id FOR NO KEY UPDATE SKIP LOCKED)
        UPDATE crawls SET turn = nextval('turn_sequence') FROM free WHERE crawls.crawl_id = free.crawl_id"""),
    "ready_queues": Sql("""
        SELECT q.key, q.domain, q.delay_ms, q.blocked_until, q.page_limit
          FROM generate_series(0, 15) AS b (band)
         CROSS JOIN LATERAL (
            SELECT * FROM queues
             WHERE crawl_id = $1 AND band = b.band AND band >= 0 AND ready_at <= $2 AND key <> ALL ($4::text[])
             ORDER BY ready_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED) q
         LIMIT $3"""),
    "lock_free_gates": Sql(f"""
        SELECT {GATE} FROM gates WHERE domain = ANY ($1::text[]) FOR UPDATE SKIP LOCKED"""),
    "lock_gates": Sql(f"SELECT {GATE} FROM gates WHERE domain = ANY ($1::text[]) ORDER BY domain FOR UPDATE"),
    "gate": Sql(f"SELECT {GATE} FROM gates WHERE domain = $1"),
    "traffic": Sql("""
        SELECT domain, count(*), count(*) FILTER (WHERE kind = 1), min(expires_at)
          FROM leases WHERE domain = ANY ($1::text[]) GROUP BY domain"""),
    "pages_of_queues": Sql("""
        SELECT key, sum(completed + assigned)::bigint FROM counts
         WHERE crawl_id = $1 AND key = ANY ($2::text[]) AND kind = 0 GROUP BY key"""),
    "pages_of_run": Sql("""
        SELECT w.domain,
               coalesce((SELECT sum(r.pages) FROM run_counts r
                          WHERE r.run_id = $1::uuid AND r.domain = w.domain), 0)::bigint
               + (SELECT count(*) FROM leases l
                   WHERE l.domain = w.domain AND l.run_id = $1::uuid AND l.kind = 0)
          FROM unnest($2::text[]) AS w (domain)"""),
    # Queues that have something to give soon, or something in flight that may bring more, by the pages they have had.
    "queues_by_pages": Sql("""
        SELECT n.pages, count(*)
          FROM (SELECT q.key FROM generate_series(0, 15) AS b (band)
                 CROSS JOIN LATERAL (SELECT key FROM queues
                                      WHERE crawl_id = $1 AND band = b.band AND band >= 0 AND ready_at <= $2
                                      ORDER BY ready_at LIMIT $3) q
                 UNION SELECT key FROM (SELECT DISTINCT key FROM leases WHERE crawl_id = $1 LIMIT $3) l) w
         CROSS JOIN LATERAL (SELECT coalesce(sum(completed + assigned), 0)::bigint AS pages FROM counts c
                              WHERE c.crawl_id = $1 AND c.key = w.key AND c.kind = 0) n
         GROUP BY n.pages"""),
    "wake_delayed": Sql("""
        UPDATE tasks t SET delayed = false
          FROM unnest($3::text[]) AS w (key)
         CROSS JOIN LATERAL (
            SELECT d.crawl_id, d.key, d.hash FROM tasks d
             WHERE d.crawl_id = $1 AND d.key = w.key AND d.state = 1 AND d.delayed AND d.due_at <= $2
             ORDER BY d.due_at LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED) due
         WHERE t.crawl_id = due.crawl_id AND t.key = due.key AND t.hash = due.hash AND t.state = 1"""),
    "ready_tasks": Sql("""
        SELECT h.key, h.hash, h.url, h.kind, h.priority, h.depth, h.attempt_count, h.discovery_type,
               a.etag, a.last_modified, m.metadata, a.digest, a.similarity
          FROM unnest($3::text[]) AS w (key)
         CROSS JOIN LATERAL (
            SELECT * FROM tasks t
             WHERE t.crawl_id = $1 AND t.key = w.key AND t.state = 1 AND NOT t.delayed
             ORDER BY t.priority DESC, t.sequence LIMIT $2) h
          LEFT JOIN revisits v ON v.crawl_id = $1 AND v.key = h.key AND v.hash = h.hash
          LEFT JOIN crawl_log a ON a.artifact_id = coalesce(v.artifact_id, h.artifact_id)
          LEFT JOIN task_metadata m ON m.crawl_id = $1 AND m.key = h.key AND m.hash = h.hash
         ORDER BY h.key, h.priority DESC, h.sequence"""),
    # A lease may have to insert a robots task, and must not wait for an adder of the same URL, who may be
    # waiting for the lease: hence a lock of its own that the lease only tries.
    "lock_robots_urls": Sql("""
        SELECT pg_advisory_xact_lock(hashtextextended(encode(w.hash, 'hex'), 1))
          FROM unnest($1::bytea[]) AS w (hash)"""),
    "try_robots_url": Sql("""
        SELECT true WHERE pg_try_advisory_xact_lock(hashtextextended(encode($1::bytea, 'hex'), 1))"""),
    "lock_robots_task": Sql("""
        SELECT t.state, t.due_at, t.attempt_count, t.kind, t.depth, t.discovery_type, a.etag, a.last_modified,
               m.metadata
          FROM tasks t LEFT JOIN crawl_log a ON a.artifact_id = t.artifact_id
          LEFT JOIN task_metadata m ON m.crawl_id = t.crawl_id AND m.key = t.key AND m.hash = t.hash
         WHERE t.crawl_id = $1 AND t.key = $2 AND t.hash = $3
           FOR NO KEY UPDATE OF t SKIP LOCKED"""),
    "robots_task_exists": Sql("SELECT true FROM tasks WHERE crawl_id = $1 AND key = $2 AND hash = $3"),
    "arm_robots_task": Sql("""
        INSERT INTO tasks (crawl_id, key, hash, url, kind, state, delayed, priority, depth, sequence, due_at,
                           discovered_at, discovery_type)
        VALUES ($1, $2, $3, $4, $5, 1, false, $6, 0, $7, $8, $8, $9)
            ON CONFLICT (crawl_id, key, hash) DO UPDATE
           SET state = 1, delayed = false, due_at = excluded.due_at, failures = 0, deferrals = 0, expiries = 0,
               kind = excluded.kind, priority = excluded.priority"""),
    "insert_leases": Sql("""
        INSERT INTO leases (token, crawl_id, key, hash, url_hash, domain, kind, worker, request_id, run_id,
                            attempt, delay_ms, gate_was, granted_at, last_heartbeat, expires_at, claim_version)
        SELECT * FROM unnest($1::bytea[], $2::int[], $3::text[], $4::bytea[], $5::bytea[], $6::text[],
                             $7::smallint[], $8::text[], $9::text[], $10::uuid[], $11::int[], $12::bigint[],
                             $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::int[])
            ON CONFLICT (url_hash) DO NOTHING RETURNING token"""),
    "postpone_tasks": Sql("""
        UPDATE tasks t SET delayed = true, due_at = $2
          FROM (SELECT $1::int AS crawl_id, * FROM unnest($3::text[], $4::bytea[]) AS w (key, hash) OFFSET 0) w
         WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash AND t.state = 1"""),
    "assign_tasks": Sql("""
        UPDATE tasks t SET state = 2, attempt_count = t.attempt_count + 1
          FROM (SELECT $1::int AS crawl_id, * FROM unnest($2::text[], $3::bytea[]) AS w (key, hash) OFFSET 0) w
         WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash AND t.state = 1
        RETURNING t.hash"""),
    "update_gates": Sql("""
        UPDATE gates g
           SET next_fetch_at = w.next_fetch_at, backoff_until = w.backoff_until, backoff_level = w.backoff_level,
               backoff_began_at = w.backoff_began_at, robots_delay_ms = w.robots_delay_ms,
               robots_version = w.robots_version, robots_expires_at = w.robots_expires_at,
               quiet_until = w.quiet_until, blocked_until = w.blocked_until, errors_in_row = w.errors_in_row,
               error_at = w.error_at
          FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[], $5::bigint[], $6::bigint[], $7::text[],
                      $8::bigint[], $9::bigint[], $10::bigint[], $11::int[], $12::bigint[])
            AS w (domain, next_fetch_at, backoff_until, backoff_level, backoff_began_at, robots_delay_ms,
                  robots_version, robots_expires_at, quiet_until, blocked_until, errors_in_row, error_at)
         WHERE g.domain = w.domain"""),
    "move_queues": Sql("""
        UPDATE queues q
           SET gate_opens_at = w.opens_at, last_served_at = CASE WHEN w.served THEN $2 ELSE q.last_served_at END
          FROM (SELECT $1::int AS crawl_id, *
                  FROM unnest($3::text[], $4::bigint[], $5::boolean[]) AS w (key, opens_at, served) OFFSET 0) w
         WHERE q.crawl_id = w.crawl_id AND q.key = w.key"""),
    # A queue that seems empty may have tasks in a transaction that has not committed, and whose adder
    # saw no need to wake it. So it sleeps in three looks: the first leaves a mark that adders clear, the
    # second notes the transactions then running, the third comes after all of them have ended.
    "rest_queues": Sql(f"""
        UPDATE queues q
           SET tasks_due_at = CASE WHEN r.ready THEN LEAST(q.tasks_due_at, $2::bigint)
                                   WHEN q.drained_xid BETWEEN 1 AND r.oldest_running THEN r.next_due_at
                                   ELSE LEAST(r.next_due_at, $2::bigint + {DRAINED_LOOK_MS}) END,
               drained_xid = CASE WHEN r.ready THEN NULL
                                  WHEN q.drained_xid IS NULL THEN 0
                                  WHEN q.drained_xid = 0 THEN r.next_to_run
                                  WHEN q.drained_xid <= r.oldest_running THEN NULL
                                  ELSE q.drained_xid END
          FROM (SELECT $1::int AS crawl_id, w.key,
                       EXISTS (SELECT FROM tasks t WHERE t.crawl_id = $1 AND t.key = w.key AND t.state = 1
                                  AND NOT t.delayed) AS ready,
                       coalesce((SELECT min(t.due_at) FROM tasks t WHERE t.crawl_id = $1 AND t.key = w.key
                                    AND t.state = 1 AND t.delayed), {NEVER}) AS next_due_at,
                       pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest_running,
                       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_to_run
                  FROM unnest($3::text[]) AS w (key) OFFSET 0) r
         WHERE q.crawl_id = r.crawl_id AND q.key = r.key"""),
    "next_ready_at": Sql("""
        SELECT min(q.ready_at) FROM generate_series(0, 15) AS b (band)
         CROSS JOIN LATERAL (SELECT ready_at FROM queues WHERE crawl_id = $1 AND band = b.band AND band >= 0
                              ORDER BY ready_at LIMIT 1) q"""),
    "next_ready_at_any": Sql("""
        SELECT min(q.ready_at) FROM crawls c CROSS JOIN generate_series(0, 15) AS b (band)
         CROSS JOIN LATERAL (SELECT ready_at FROM queues WHERE crawl_id = c.crawl_id AND band = b.band AND band >= 0
                              ORDER BY ready_at LIMIT 1) q
         WHERE c.state = 'running'"""),
    # ---------------------------------------------------------------- report
    "lock_leases": Sql(f"""
        SELECT {HELD_LEASE} FROM leases l
          JOIN crawls c ON c.crawl_id = l.crawl_id
          JOIN tasks t ON t.crawl_id = l.crawl_id AND t.key = l.key AND t.hash = l.hash
         WHERE l.token = ANY ($1::bytea[]) ORDER BY l.token FOR UPDATE OF l"""),
    "crawls_of_worker": Sql("""
        SELECT crawl_id FROM crawls WHERE crawl_id IN (SELECT crawl_id FROM leases WHERE worker = $1)
         ORDER BY crawl_id FOR KEY SHARE"""),
    "lock_leases_of_worker": Sql(f"""
        SELECT {HELD_LEASE} FROM leases l
          JOIN crawls c ON c.crawl_id = l.crawl_id
          JOIN tasks t ON t.crawl_id = l.crawl_id AND t.key = l.key AND t.hash = l.hash
         WHERE l.worker = $1 AND l.crawl_id = ANY ($2::int[]) ORDER BY l.token FOR UPDATE OF l"""),
    "crawls_of_expired_leases": Sql("""
        SELECT crawl_id FROM crawls
         WHERE crawl_id IN (SELECT crawl_id FROM (
            SELECT crawl_id FROM leases WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2) AS expired)
         ORDER BY crawl_id FOR KEY SHARE"""),
    "lock_expired_leases": Sql(f"""
        WITH l AS (
            SELECT * FROM leases WHERE expires_at <= $1 AND crawl_id = ANY ($3::int[])
             ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)
        SELECT {HELD_LEASE} FROM l
          JOIN crawls c ON c.crawl_id = l.crawl_id
          JOIN tasks t ON t.crawl_id = l.crawl_id AND t.key = l.key AND t.hash = l.hash"""),
    "lock_lease_tokens": Sql("""
        SELECT token FROM leases WHERE token = ANY ($1::bytea[]) ORDER BY token FOR NO KEY UPDATE"""),
    "renew_leases": Sql("""
        UPDATE leases SET last_heartbeat = $1, expires_at = $2
         WHERE token = ANY ($3::bytea[]) AND expires_at > $1 RETURNING token"""),
    "earlier_answers": Sql("""
        SELECT token, verdict, retry_at FROM crawl_log WHERE token = ANY ($1::bytea[])"""),
    "insert_crawl_log": Sql("""
        INSERT INTO crawl_log (crawl, key, url, url_hash, token, attempt, domain, domain_id, kind, outcome, verdict,
                               retry_at, reason, http_status, images_found, digest, etag, last_modified,
                               content_type, body_bytes, content_location, discovery_type, depth, run_id,
                               leased_at, fetched_at, elapsed_ms, reported_at, title, links_found, noindex, redirects,
                               similarity)
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::int[], $7::text[],
                             $8::uuid[], $9::smallint[], $10::text[], $11::text[], $12::bigint[], $13::text[],
                             $14::int[], $15::int[], $16::text[], $17::text[], $18::text[], $19::text[],
                             $20::bigint[], $21::text[], $22::smallint[], $23::int[], $24::uuid[], $25::bigint[],
                             $26::bigint[], $27::int[], $28::bigint[], $29::text[], $30::int[], $31::boolean[],
                             $32::text[], $33::bigint[])
        RETURNING token, artifact_id"""),
    "delete_leases": Sql("DELETE FROM leases WHERE token = ANY ($1::bytea[]) RETURNING token"),
    "end_tasks": Sql("""
        UPDATE tasks t
           SET state = w.state, delayed = w.delayed, due_at = w.due_at, failures = w.failures,
               deferrals = w.deferrals, expiries = w.expiries,
               http_status = coalesce(w.http_status, t.http_status), reason = w.reason,
               artifact_id = coalesce(w.artifact_id, t.artifact_id)
          FROM unnest($1::int[], $2::text[], $3::bytea[], $4::int[], $5::smallint[], $6::boolean[], $7::bigint[],
                      $8::int[], $9::int[], $10::int[], $11::int[], $12::text[], $13::bigint[])
            AS w (crawl_id, key, hash, attempt, state, delayed, due_at, failures, deferrals, expiries, http_status,
                  reason, artifact_id)
         WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash AND t.state = 2
           AND t.attempt_count = w.attempt
        RETURNING t.hash"""),
    "put_robots": Sql("""
        INSERT INTO robots (domain, version, text, fetched_at) VALUES ($1, $2, $3, $4)
            ON CONFLICT (domain) DO UPDATE
           SET version = excluded.version, text = excluded.text, fetched_at = excluded.fetched_at"""),
    "robots_text": Sql("SELECT version, text FROM robots WHERE domain = $1"),
    "forget_robots_trouble": Sql(f"""
        WITH locked AS (
            SELECT domain FROM gates WHERE domain = ANY ($2::text[]) AND robots_version = '{UNREACHABLE_ROBOTS}'
             ORDER BY domain FOR UPDATE)
        UPDATE gates g SET robots_expires_at = least(robots_expires_at, $1) FROM locked w WHERE g.domain = w.domain"""),
    # ------------------------------------------------------ overrides, upkeep
    "configure_gate": Sql("""
        UPDATE gates SET delay_ms = $2, concurrency = $3, blocked_until = $4, band = $5, own_band = own_band OR $6
         WHERE domain = $1"""),
    "set_domain_band": Sql("""
        WITH locked AS (
            SELECT crawl_id, key FROM queues WHERE domain = $1 AND priority IS NULL
             ORDER BY crawl_id, key FOR NO KEY UPDATE)
        UPDATE queues q SET band = $2 FROM locked WHERE q.crawl_id = locked.crawl_id AND q.key = locked.key"""),
    "configure_queue": Sql("""
        INSERT INTO queues (crawl_id, key, domain, band, tasks_due_at, created_at, delay_ms, blocked_until,
                            page_limit, priority)
        VALUES ($1, $2, '', $3, $4, $5, $6, $7, $8, $9)
            ON CONFLICT (crawl_id, key) DO UPDATE
           SET delay_ms = excluded.delay_ms, blocked_until = excluded.blocked_until,
               page_limit = excluded.page_limit, priority = excluded.priority, gate_opens_at = 0,
               band = CASE WHEN excluded.priority IS NULL
                           THEN coalesce((SELECT g.band FROM gates g WHERE g.domain = queues.domain), excluded.band)
                           ELSE excluded.band END"""),
    "promote_tasks": Sql("""
        WITH chosen AS (
            SELECT crawl_id, key, hash FROM tasks
             WHERE crawl_id = $1 AND state = 0 AND depth <= $2 ORDER BY depth LIMIT $4 FOR UPDATE SKIP LOCKED)
        UPDATE tasks t SET state = 1, delayed = true, due_at = GREATEST(t.due_at, $3) FROM chosen c
         WHERE t.crawl_id = c.crawl_id AND t.key = c.key AND t.hash = c.hash
        RETURNING t.key, t.kind, t.url"""),
    "retry_tasks": Sql("""
        WITH chosen AS (
            SELECT crawl_id, key, hash FROM tasks
             WHERE crawl_id = $1 AND state = 4 AND ($2::text IS NULL OR key = $2) AND ($3::int IS NULL OR kind = $3)
               AND ($4::text IS NULL OR strpos(url, $4) > 0)
             LIMIT $6 FOR UPDATE SKIP LOCKED)
        UPDATE tasks t SET state = 1, delayed = true, due_at = $5, failures = 0, deferrals = 0, expiries = 0
          FROM chosen c WHERE t.crawl_id = c.crawl_id AND t.key = c.key AND t.hash = c.hash
        RETURNING t.key, t.kind, t.url"""),
    "tasks_in_order": Sql("""
        SELECT key, hash, url, state, kind, discovered_at FROM tasks
         WHERE crawl_id = $1 AND ($2::text IS NULL OR key = $2) AND (key, hash) > ($3, $4)
         ORDER BY key, hash LIMIT $5"""),
    "delete_tasks": Sql("""
        DELETE FROM tasks t
         USING (SELECT $1::int AS crawl_id, * FROM unnest($2::text[], $3::bytea[]) AS w (key, hash) OFFSET 0) w
         WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash RETURNING t.hash"""),
    "delete_metadata": Sql("""
        DELETE FROM task_metadata m
         USING (SELECT $1::int AS crawl_id, * FROM unnest($2::text[], $3::bytea[]) AS w (key, hash) OFFSET 0) w
         WHERE m.crawl_id = w.crawl_id AND m.key = w.key AND m.hash = w.hash"""),
    "queue_totals": Sql("""
        SELECT kind, sum(discovered)::bigint, sum(pending)::bigint, sum(assigned)::bigint, sum(completed)::bigint,
               sum(failed)::bigint
          FROM counts WHERE crawl_id = $1 AND key = $2 GROUP BY kind"""),
    "delete_queue_leases": Sql("DELETE FROM leases WHERE crawl_id = $1 AND key = $2 RETURNING domain"),
    "delete_queue_tasks": Sql("DELETE FROM tasks WHERE crawl_id = $1 AND key = $2"),
    "delete_queue_metadata": Sql("DELETE FROM task_metadata WHERE crawl_id = $1 AND key = $2"),
    "delete_queue_counts": Sql("DELETE FROM counts WHERE crawl_id = $1 AND key = $2"),
    "delete_queue_row": Sql("DELETE FROM queues WHERE crawl_id = $1 AND key = $2"),
    "lock_queues_of_crawl": Sql("""
        SELECT count(*) FROM (
            SELECT FROM queues WHERE crawl_id = $1 ORDER BY key FOR UPDATE) locked"""),
    "delete_crawl_leases": Sql("DELETE FROM leases WHERE crawl_id = $1 RETURNING domain"),
    "delete_crawl_tasks": Sql("DELETE FROM tasks WHERE crawl_id = $1"),
    "delete_crawl_metadata": Sql("DELETE FROM task_metadata WHERE crawl_id = $1"),
    "delete_crawl_counts": Sql("DELETE FROM counts WHERE crawl_id = $1"),
    "delete_crawl_queues": Sql("DELETE FROM queues WHERE crawl_id = $1"),
    "delete_crawl_scope": Sql("DELETE FROM scope_roots WHERE crawl_id = $1"),
    "delete_crawl_row": Sql("DELETE FROM crawls WHERE crawl_id = $1"),
    # ---------------------------------------------------------------- browse
    "list_tasks": Sql(f"""
        SELECT {TASK}, l.last_heartbeat, m.metadata FROM tasks t
          LEFT JOIN leases l ON l.crawl_id = t.crawl_id AND l.key = t.key AND l.hash = t.hash
          LEFT JOIN task_metadata m ON m.crawl_id = t.crawl_id AND m.key = t.key AND m.hash = t.hash
         WHERE t.crawl_id = $1 AND (t.key, t.hash) > ($2, $3) AND ($4::text IS NULL OR t.key = $4)
           AND ($5::int IS NULL OR t.state = $5) AND ($6::int IS NULL OR t.kind = $6)
           AND ($7::text IS NULL OR strpos(t.url, $7) > 0)
         ORDER BY t.key, t.hash LIMIT $8"""),
    "task": Sql(f"""
        SELECT {TASK}, l.last_heartbeat, m.metadata FROM tasks t
          LEFT JOIN leases l ON l.crawl_id = t.crawl_id AND l.key = t.key AND l.hash = t.hash
          LEFT JOIN task_metadata m ON m.crawl_id = t.crawl_id AND m.key = t.key AND m.hash = t.hash
         WHERE t.crawl_id = $1 AND t.key = $2 AND t.hash = $3"""),
    "counts": Sql("""
        SELECT coalesce(sum(discovered), 0)::bigint, coalesce(sum(pending), 0)::bigint,
               coalesce(sum(assigned), 0)::bigint, coalesce(sum(completed), 0)::bigint,
               coalesce(sum(failed), 0)::bigint
          FROM counts WHERE crawl_id = $1 AND key = $2"""),
    "counts_by_kind": Sql("""
        SELECT kind, sum(discovered)::bigint, sum(pending)::bigint, sum(assigned)::bigint, sum(completed)::bigint,
               sum(failed)::bigint
          FROM counts WHERE crawl_id = $1 AND key = '' GROUP BY kind ORDER BY kind"""),
    "list_queues": Sql("""
        SELECT q.key, q.domain, q.band, q.ready_at, q.last_served_at, q.delay_ms, q.blocked_until, q.page_limit,
               q.priority, n.discovered, n.pending, n.assigned, n.completed, n.failed
          FROM (SELECT * FROM queues WHERE crawl_id = $1 AND key > $2 ORDER BY key LIMIT $3) q
         CROSS JOIN LATERAL (
            SELECT coalesce(sum(discovered), 0)::bigint AS discovered, coalesce(sum(pending), 0)::bigint AS pending,
                   coalesce(sum(assigned), 0)::bigint AS assigned,
                   coalesce(sum(completed), 0)::bigint AS completed, coalesce(sum(failed), 0)::bigint AS failed
              FROM counts WHERE counts.crawl_id = $1 AND counts.key = q.key) n
         ORDER BY q.key"""),
    "list_artifacts": Sql(f"""
        SELECT {ARTIFACT} FROM crawl_log WHERE crawl = $1 AND artifact_id > $2 ORDER BY artifact_id LIMIT $3"""),
    "artifacts_of_url": Sql(f"""
        SELECT {ARTIFACT} FROM crawl_log
         WHERE url_hash = $2 AND crawl = $1 AND url = $3 ORDER BY artifact_id DESC LIMIT $4"""),
    # Whoever reports has locked its leases before it takes a number, so that it is among the writers by then. The upper
    # end of a snapshot would leave out the newest writer, hence a number of our own, taken after the sequence was read.
    "artifact_horizon": Sql("""
        SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('crawl_log', 'artifact_id')), 0),
               pg_current_xact_id()::text::bigint,
               pg_snapshot_xmin(pg_current_snapshot())::text::bigint"""),
    "holder": Sql("""
        SELECT worker, granted_at, last_heartbeat, expires_at FROM leases
         WHERE crawl_id = $1 AND key = $2 AND hash = $3"""),
    "outlook": Sql(f"""
        SELECT coalesce(sum(discovered), 0)::bigint, coalesce(sum(pending), 0)::bigint,
               coalesce(sum(assigned), 0)::bigint, coalesce(sum(completed), 0)::bigint,
               coalesce(sum(failed), 0)::bigint,
               (SELECT min(q.ready_at) FROM generate_series(0, 15) AS b (band)
                 CROSS JOIN LATERAL (SELECT ready_at FROM queues WHERE crawl_id = $1 AND band = b.band AND band >= 0
                                      ORDER BY ready_at LIMIT 1) q),
               EXISTS (SELECT FROM generate_series(0, 15) AS b (band)
                        WHERE EXISTS (SELECT FROM queues
                                       WHERE crawl_id = $1 AND band = b.band AND band >= 0 AND ready_at = {LIMITED}))
          FROM counts WHERE crawl_id = $1 AND key = ''"""),
    # A drained queue is not among them: nothing of it waits.
    "waiting_queues": Sql(f"""
        SELECT q.key, q.domain, q.ready_at,
               (SELECT coalesce(sum(n.pending), 0)::bigint FROM counts n WHERE n.crawl_id = $1 AND n.key = q.key),
               coalesce(g.backoff_until, 0), coalesce(g.blocked_until, 0),
               CASE WHEN g.robots_version = '{UNREACHABLE_ROBOTS}' THEN g.robots_expires_at ELSE 0 END
          FROM generate_series(0, 15) AS b (band)
         CROSS JOIN LATERAL (
            SELECT key, domain, ready_at FROM queues
             WHERE crawl_id = $1 AND band = b.band AND band >= 0 AND ready_at > $2 AND ready_at < {LIMITED}
             ORDER BY ready_at DESC LIMIT $3) q
          LEFT JOIN gates g ON g.domain = q.domain
         ORDER BY q.ready_at DESC LIMIT $3"""),
    "widen_scope": Sql("""
        INSERT INTO scope_roots (crawl_id, url) SELECT * FROM unnest($1::int[], $2::text[]) ON CONFLICT DO NOTHING"""),
    "scope_roots": Sql("SELECT url FROM scope_roots WHERE crawl_id = $1 ORDER BY url"),
    # ------------------------------------------------------------ batch mode
    "queue_block": Sql("SELECT blocked_until FROM queues WHERE crawl_id = $1 AND key = $2"),
    "change_queue": Sql("""
        INSERT INTO queues (crawl_id, key, domain, band, tasks_due_at, created_at, delay_ms, blocked_until, page_limit)
        VALUES ($1, $2, '', $3, $4, $5, $7, coalesce($9, 0::bigint), $11)
            ON CONFLICT (crawl_id, key) DO UPDATE
           SET delay_ms = CASE WHEN $6::boolean THEN excluded.delay_ms ELSE queues.delay_ms END, gate_opens_at = 0,
               blocked_until = CASE WHEN $8::boolean THEN excluded.blocked_until ELSE queues.blocked_until END,
               page_limit = CASE WHEN $10::boolean THEN excluded.page_limit ELSE queues.page_limit END"""),
    "crawls_with_queue": Sql(f"""
        SELECT {CRAWL} FROM crawls c
         WHERE c.state = 'running'
           AND EXISTS (SELECT FROM queues q WHERE q.crawl_id = c.crawl_id AND q.key = $1)
         ORDER BY c.turn, c.crawl_id LIMIT 64 FOR KEY SHARE"""),
    "serveable_queues": Sql("""
        SELECT q.key, q.domain, q.delay_ms, q.blocked_until, q.page_limit, q.last_served_at
          FROM generate_series(0, 15) AS b (band)
         CROSS JOIN LATERAL (
            SELECT * FROM queues
             WHERE crawl_id = $1 AND band = b.band AND band >= 0 AND ready_at <= $2 AND key <> ALL ($4::text[])
             ORDER BY ready_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED) q
         LIMIT $3"""),
    "serveable_queue": Sql("""
        SELECT key, domain, delay_ms, blocked_until, page_limit, last_served_at FROM queues
         WHERE crawl_id = $1 AND key = $2 FOR NO KEY UPDATE SKIP LOCKED"""),
    "completed_of_queues": Sql("""
        SELECT key, sum(completed)::bigint FROM counts
         WHERE crawl_id = $1 AND key = ANY ($2::text[]) GROUP BY key"""),
    "in_flight_of_queues": Sql("""
        SELECT w.key, l.number, l.first_expiry FROM unnest($3::text[]) AS w (key)
         CROSS JOIN LATERAL (
            SELECT count(*) AS number, min(expires_at) AS first_expiry FROM leases
             WHERE crawl_id = $1 AND key = w.key AND expires_at > $2) l
         WHERE l.number > 0"""),
    "ready_heads": Sql("""
        SELECT h.key, h.hash, h.url, h.kind, h.priority, h.sequence, h.attempt_count, m.metadata
          FROM unnest($3::text[]) AS w (key)
         CROSS JOIN LATERAL (
            SELECT * FROM tasks t
             WHERE t.crawl_id = $1 AND t.key = w.key AND t.state = 1 AND NOT t.delayed
             ORDER BY t.priority DESC, t.sequence LIMIT $2) h
          LEFT JOIN task_metadata m ON m.crawl_id = $1 AND m.key = h.key AND m.hash = h.hash"""),
    "due_heads": Sql("""
        SELECT h.key, h.hash, h.url, h.kind, h.priority, h.sequence, h.attempt_count, m.metadata
          FROM unnest($4::text[]) AS w (key)
         CROSS JOIN LATERAL (
            SELECT * FROM tasks t
             WHERE t.crawl_id = $1 AND t.key = w.key AND t.state = 1 AND t.delayed AND t.due_at <= $3
             ORDER BY t.due_at, t.sequence LIMIT $2) h
          LEFT JOIN task_metadata m ON m.crawl_id = $1 AND m.key = h.key AND m.hash = h.hash"""),
    "tasks_by_url": Sql("""
        SELECT w.position, t.hash, t.state, t.kind
          FROM (SELECT $1::int AS crawl_id, *
                  FROM unnest($2::int[], $3::text[], $4::bytea[], $5::text[]) AS w (position, key, hash, url)
                OFFSET 0) w
          JOIN tasks t ON t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash AND t.url = w.url
         ORDER BY t.key, t.hash FOR NO KEY UPDATE OF t"""),
    "leases_of_tasks": Sql("""
        SELECT l.token, l.domain
          FROM (SELECT $1::int AS crawl_id, * FROM unnest($2::text[], $3::bytea[]) AS w (key, hash) OFFSET 0) w
          JOIN leases l ON l.crawl_id = w.crawl_id AND l.key = w.key AND l.hash = w.hash
           FOR UPDATE OF l SKIP LOCKED"""),
    "set_tasks": Sql("""
        UPDATE tasks t
           SET state = w.state, delayed = w.delayed, due_at = w.due_at, priority = w.priority, failures = 0,
               deferrals = 0, expiries = 0, http_status = NULL, reason = NULL
          FROM (SELECT $1::int AS crawl_id, *
                  FROM unnest($2::text[], $3::bytea[], $4::smallint[], $5::boolean[], $6::bigint[], $7::int[])
                    AS w (key, hash, state, delayed, due_at, priority) OFFSET 0) w
         WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash"""),
    "restore_tasks": Sql("""
        UPDATE tasks t
           SET state = w.state, delayed = w.delayed, due_at = w.due_at, discovered_at = w.discovered_at,
               attempt_count = w.attempt_count, failures = w.failures, deferrals = w.deferrals,
               http_status = w.http_status, reason = w.reason
          FROM (SELECT $1::int AS crawl_id, *
                  FROM unnest($2::text[], $3::bytea[], $4::smallint[], $5::boolean[], $6::bigint[], $7::bigint[],
                              $8::int[], $9::int[], $10::int[], $11::int[], $12::text[])
                    AS w (key, hash, state, delayed, due_at, discovered_at, attempt_count, failures, deferrals,
                          http_status, reason) OFFSET 0) w
         WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash"""),
    "put_metadata": Sql("""
        INSERT INTO task_metadata (crawl_id, key, hash, metadata)
        SELECT * FROM unnest($1::int[], $2::text[], $3::bytea[], $4::text[])
            ON CONFLICT (crawl_id, key, hash) DO UPDATE SET metadata = excluded.metadata"""),
    "crawls_of_batch_leases": Sql(f"""
        SELECT crawl_id FROM crawls
         WHERE crawl_id IN (SELECT crawl_id FROM (
            SELECT crawl_id FROM leases WHERE worker = '{BATCH_WORKER}' AND request_id <= $1
             ORDER BY request_id LIMIT $2) AS expired)
         ORDER BY crawl_id FOR KEY SHARE"""),
    "lock_batch_leases": Sql(f"""
        WITH l AS (
            SELECT * FROM leases
             WHERE worker = '{BATCH_WORKER}' AND request_id <= $1 AND crawl_id = ANY ($3::int[])
             ORDER BY request_id LIMIT $2 FOR UPDATE SKIP LOCKED)
        SELECT l.token, l.crawl_id, l.key, l.hash, l.domain, l.kind, t.due_at FROM l
          JOIN tasks t ON t.crawl_id = l.crawl_id AND t.key = l.key AND t.hash = l.hash"""),
    "return_tasks": Sql("""
        UPDATE tasks t SET state = 1, delayed = true
          FROM unnest($1::int[], $2::text[], $3::bytea[]) AS w (crawl_id, key, hash)
         WHERE t.crawl_id = w.crawl_id AND t.key = w.key AND t.hash = w.hash AND t.state = 2"""),
    "expired_of_crawl": Sql("""
        SELECT count(*) FROM (SELECT crawl_id, key FROM leases WHERE expires_at <= $2 OFFSET 0) l
         WHERE l.crawl_id = $1 AND ($3::text IS NULL OR l.key = $3)"""),
    "count_queues": Sql("""
        SELECT count(*), count(*) FILTER (WHERE active > 0), max(key) FROM (
            SELECT q.key, (SELECT sum(n.discovered + n.pending + n.assigned) FROM counts n
                            WHERE n.crawl_id = $1 AND n.key = q.key) AS active
              FROM queues q WHERE q.crawl_id = $1 AND q.key > $2 AND q.domain IS DISTINCT FROM ''
             ORDER BY q.key LIMIT $3) AS part"""),
    "queue_keys": Sql("""
        SELECT q.key FROM queues q
         WHERE q.crawl_id = $1 AND q.key > $2 AND q.domain IS DISTINCT FROM ''
           AND ($3::boolean OR (q.blocked_until <= $4
                                AND (SELECT sum(n.discovered + n.pending + n.assigned) FROM counts n
                                      WHERE n.crawl_id = $1 AND n.key = q.key) > 0))
         ORDER BY q.key LIMIT $5"""),
    "url_by_hash": Sql("""
        SELECT t.key, t.hash, t.url, t.state, t.due_at, t.discovered_at, m.metadata FROM tasks t
          LEFT JOIN task_metadata m ON m.crawl_id = t.crawl_id AND m.key = t.key AND m.hash = t.hash
         WHERE t.crawl_id = $1 AND t.key = $2 AND t.hash = $3"""),
    "end_of_urls": Sql("""
        SELECT key, hash FROM tasks WHERE crawl_id = $1 AND (key, hash) > ($2, $3) AND key <= $4
         ORDER BY key, hash LIMIT 1 OFFSET $5"""),
    "list_urls": Sql("""
        SELECT t.key, t.hash, t.url, t.state, t.due_at, t.discovered_at, m.metadata
          FROM (SELECT * FROM tasks WHERE crawl_id = $1 AND (key, hash) > ($2, $3) AND key <= $4
                 ORDER BY key, hash LIMIT $5) t
          LEFT JOIN task_metadata m ON m.crawl_id = $1 AND m.key = t.key AND m.hash = t.hash
         WHERE $6::text IS NULL
            OR strpos(CASE WHEN $7::boolean THEN lower(t.url) ELSE t.url END,
                      CASE WHEN $7::boolean THEN lower($6) ELSE $6 END) > 0
         ORDER BY t.key, t.hash"""),
    "count_urls": Sql("""
        SELECT count(*)
          FROM (SELECT url FROM tasks WHERE crawl_id = $1 AND (key, hash) > ($2, $3) AND key <= $4
                 ORDER BY key, hash LIMIT $5) t
         WHERE $6::text IS NULL
            OR strpos(CASE WHEN $7::boolean THEN lower(t.url) ELSE t.url END,
                      CASE WHEN $7::boolean THEN lower($6) ELSE $6 END) > 0"""),
    **REVISITS,
}
