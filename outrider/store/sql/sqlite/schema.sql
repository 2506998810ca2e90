PRAGMA application_id = 1330992210;
CREATE TABLE api_keys (
    key_id text PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('read', 'crawl', 'admin')),
    crawls text NOT NULL,
    digest text NOT NULL,
    created_at text NOT NULL,
    revoked_at text
, owner text NOT NULL DEFAULT '', max_active_jobs integer, max_pages_per_job integer, max_jobs_per_day integer);
CREATE TABLE backfilled_domains (
        backfill_id text NOT NULL REFERENCES backfills (backfill_id) ON DELETE CASCADE,
        domain text NOT NULL,
        pages_discovered bigint NOT NULL,
        pages_crawled bigint NOT NULL,
        images_found bigint NOT NULL,
        images_stored bigint NOT NULL,
        total_error_count bigint NOT NULL,
        PRIMARY KEY (backfill_id, domain)
    );
CREATE TABLE backfills (
        backfill_id text PRIMARY KEY,
        source text NOT NULL,
        kind text NOT NULL CHECK (kind IN ('crawl_log', 'scrapy', 'urlfrontier')),
        started_at text NOT NULL,
        updated_at text NOT NULL,
        finished_at text,
        position text,
        rows_read bigint NOT NULL DEFAULT 0,
        rows_refused bigint NOT NULL DEFAULT 0,
        domains_new bigint NOT NULL DEFAULT 0
    );
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
        failed INTEGER NOT NULL, images_found INTEGER NOT NULL DEFAULT 0, errors INTEGER NOT NULL DEFAULT 0, depth_reached INTEGER NOT NULL DEFAULT 0, changed_at INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (crawl_id, key, domain, kind, slot)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE crawl_jobs (
            id text PRIMARY KEY,
            crawl text NOT NULL,
            payload text NOT NULL,
            priority integer NOT NULL DEFAULT 0,
            status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'processing', 'completed', 'failed', 'cancelled', 'paused')),
            desired_state text NOT NULL DEFAULT 'run' CHECK (desired_state IN ('run', 'pause', 'cancel')),
            epoch integer NOT NULL DEFAULT 0,
            worker_id text,
            run_id text,
            progress_percentage integer NOT NULL DEFAULT 0 CHECK (progress_percentage BETWEEN 0 AND 100),
            progress text,
            created_at text NOT NULL,
            available_at text NOT NULL,
            started_at text,
            completed_at text,
            last_heartbeat text,
            retry_count integer NOT NULL DEFAULT 0,
            max_retries integer NOT NULL DEFAULT 3,
            error_message text,
            error_kind text,
            source_id text,
            user_id text,
            idempotency_key text
        , labels TEXT NOT NULL DEFAULT '{}', key_id text, webhook_url text, webhook_secret text, reason text, updated_at text NOT NULL DEFAULT '1970-01-01T00:00:00.000Z');
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
    , title TEXT, links_found INTEGER NOT NULL DEFAULT 0, noindex INTEGER NOT NULL DEFAULT 0, redirects TEXT, similarity INTEGER) STRICT
    ;
CREATE TABLE crawl_runs (
            id text PRIMARY KEY,
            crawl text NOT NULL,
            job_id text,
            kind text NOT NULL CHECK (kind IN ('crawl', 'job', 'refresh')),
            status text NOT NULL CHECK (status IN ('running', 'completed', 'stopped', 'failed')),
            reason text,
            settings text NOT NULL,
            started_at text NOT NULL,
            finished_at text
        );
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
    , conduct TEXT) STRICT
    ;
CREATE TABLE domain_history (
        history_id integer PRIMARY KEY AUTOINCREMENT,
        domain_id text NOT NULL REFERENCES domains (id) ON DELETE CASCADE,
        from_status text NOT NULL,
        to_status text NOT NULL,
        reason_code text,
        reason text,
        actor text NOT NULL,
        run_id text,
        at text NOT NULL,
        version integer NOT NULL
    );
CREATE TABLE domains (
            id text PRIMARY KEY,
            domain text NOT NULL UNIQUE CHECK (length(domain) <= 255),
            parent_domain text NOT NULL,
            status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'active', 'exhausted', 'blocked', 'unreachable')),
            block_reason text,
            block_reason_code text CHECK (length(block_reason_code) <= 50),
            first_blocked_at text,
            block_count integer NOT NULL DEFAULT 0,
            claimed_by text CHECK (length(claimed_by) <= 255),
            claim_expires_at text,
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
            priority_computed_at text,
            seed_rank integer,
            source text CHECK (length(source) <= 100),
            first_seen_at text NOT NULL,
            last_crawled_at text,
            next_crawl_after text,
            updated_at text NOT NULL,
            last_crawl_run_id text REFERENCES crawl_runs (id) ON DELETE SET NULL,
            frontier_checkpoint_id text CHECK (length(frontier_checkpoint_id) <= 100),
            frontier_size integer NOT NULL DEFAULT 0,
            frontier_updated_at text,
            woken_for text,
            claimable_at text GENERATED ALWAYS AS (
                nullif(max(coalesce(next_crawl_after, ''), coalesce(claim_expires_at, '')), '')) VIRTUAL,
            cooling integer GENERATED ALWAYS AS (
                claimable_at IS NOT NULL AND claimable_at IS NOT woken_for) VIRTUAL
        , claim_version INTEGER);
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
    , status TEXT NOT NULL DEFAULT 'pending', errors_in_row INTEGER NOT NULL DEFAULT 0, error_at INTEGER NOT NULL DEFAULT 0, own_band INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID
    ;
CREATE TABLE job_history (
            history_id integer PRIMARY KEY AUTOINCREMENT,
            job_id text NOT NULL REFERENCES crawl_jobs (id) ON DELETE CASCADE,
            from_status text,
            to_status text NOT NULL,
            epoch integer NOT NULL,
            actor text NOT NULL,
            note text,
            at text NOT NULL
        );
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
    , claim_version INTEGER) STRICT, WITHOUT ROWID
    ;
CREATE TABLE outbox (
            message_id integer PRIMARY KEY AUTOINCREMENT,
            id text NOT NULL UNIQUE,
            topic text NOT NULL,
            ordering_key text NOT NULL,
            payload text NOT NULL,
            created_at text NOT NULL,
            attempts integer NOT NULL DEFAULT 0,
            next_attempt_at text NOT NULL,
            last_error text,
            delivered_at text
        );
CREATE TABLE outrider_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT outrider_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "outrider_version" VALUES('0008');
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
    ;
CREATE TABLE revisits (
        crawl_id INTEGER NOT NULL,
        key TEXT NOT NULL,
        hash BLOB NOT NULL,
        domain TEXT NOT NULL,
        due_at INTEGER NOT NULL,
        visited_at INTEGER NOT NULL,
        interval_ms INTEGER NOT NULL,
        gap_ms INTEGER,
        spread REAL NOT NULL,
        changed_at INTEGER NOT NULL,
        streak INTEGER NOT NULL,
        visits INTEGER NOT NULL,
        gone INTEGER NOT NULL,
        changes INTEGER NOT NULL,
        artifact_id INTEGER,
        PRIMARY KEY (crawl_id, key, hash)
    ) STRICT, WITHOUT ROWID
;
CREATE TABLE robots (
        domain TEXT PRIMARY KEY,
        version TEXT NOT NULL,
        text TEXT NOT NULL,
        fetched_at INTEGER NOT NULL
    ) STRICT
    ;
CREATE TABLE run_counts (
        run_id TEXT NOT NULL,
        domain TEXT NOT NULL,
        slot INTEGER NOT NULL,
        pages INTEGER NOT NULL,
        PRIMARY KEY (run_id, domain, slot)
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE schedules (
        schedule_id text PRIMARY KEY,
        crawl text NOT NULL,
        payload text NOT NULL,
        every_ms bigint NOT NULL CHECK (every_ms > 0),
        due_at bigint NOT NULL,
        last_job_id text,
        created_at bigint NOT NULL
    );
CREATE TABLE scope_roots (
    crawl_id INTEGER NOT NULL,
    url TEXT NOT NULL,
    PRIMARY KEY (crawl_id, url)
) STRICT, WITHOUT ROWID
;
CREATE TABLE sequences (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID
    ;
INSERT INTO "sequences" VALUES('discovery',0);
INSERT INTO "sequences" VALUES('turn',0);
CREATE TABLE task_metadata (
        crawl_id INTEGER NOT NULL,
        key TEXT NOT NULL,
        hash BLOB NOT NULL,
        metadata TEXT NOT NULL,
        PRIMARY KEY (crawl_id, key, hash)
    ) STRICT, WITHOUT ROWID
    ;
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
    ;
CREATE TABLE workers (
            worker_id text PRIMARY KEY,
            kind text NOT NULL CHECK (kind IN ('worker', 'runner', 'supervisor')),
            mode text NOT NULL CHECK (mode IN ('plain', 'claims')),
            host text NOT NULL,
            process_id integer NOT NULL,
            lock_path text,
            started_at text NOT NULL,
            last_beat_at text NOT NULL,
            expires_at text NOT NULL
        );
CREATE INDEX crawls_turn ON crawls (turn) WHERE state = 'running';
CREATE INDEX queues_ready ON queues (crawl_id, band, ready_at);
CREATE INDEX queues_domain ON queues (domain);
CREATE INDEX tasks_ready ON tasks (crawl_id, key, priority DESC, sequence) WHERE state = 1 AND delayed = 0;
CREATE INDEX tasks_delayed ON tasks (crawl_id, key, due_at) WHERE state = 1 AND delayed = 1;
CREATE INDEX tasks_discovered ON tasks (crawl_id, depth) WHERE state = 0;
CREATE INDEX tasks_failed ON tasks (crawl_id, key) WHERE state = 4;
CREATE INDEX leases_domain ON leases (domain, run_id);
CREATE INDEX leases_expiry ON leases (expires_at);
CREATE INDEX leases_request ON leases (worker, request_id);
CREATE INDEX leases_task ON leases (crawl_id, key, hash);
CREATE INDEX counts_domain ON counts (domain) WHERE key <> '';
CREATE INDEX crawl_log_url ON crawl_log (url_hash, artifact_id);
CREATE INDEX domains_status ON domains (status);
CREATE INDEX domains_priority ON domains (priority_score DESC);
CREATE INDEX domains_yield ON domains (image_yield_rate DESC);
CREATE INDEX domains_last_crawled ON domains (last_crawled_at);
CREATE INDEX domains_source ON domains (source);
CREATE INDEX domains_parent ON domains (parent_domain);
CREATE INDEX domains_claimable ON domains
           ((status = 'pending'), priority_score DESC, last_crawled_at, id)
       WHERE status IN ('pending', 'active') AND NOT cooling;
CREATE INDEX domains_cooling ON domains (claimable_at)
       WHERE status IN ('pending', 'active') AND cooling;
CREATE INDEX domains_refresh_candidates ON domains (status, next_crawl_after, image_yield_rate DESC)
       WHERE status = 'exhausted';
CREATE INDEX domains_claims ON domains (claimed_by, claim_expires_at) WHERE claimed_by IS NOT NULL;
CREATE INDEX crawl_jobs_claimable ON crawl_jobs (priority DESC, created_at, id)
       WHERE status = 'pending';
CREATE INDEX crawl_jobs_status ON crawl_jobs (status, priority DESC, created_at);
CREATE INDEX crawl_jobs_beat ON crawl_jobs (last_heartbeat) WHERE status = 'processing';
CREATE UNIQUE INDEX crawl_jobs_live ON crawl_jobs (crawl) WHERE status IN ('pending', 'processing', 'paused');
CREATE UNIQUE INDEX crawl_jobs_idempotency ON crawl_jobs (coalesce(user_id, ''), idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX job_history_job ON job_history (job_id, history_id);
CREATE INDEX crawl_runs_crawl ON crawl_runs (crawl, started_at);
CREATE INDEX workers_expiry ON workers (expires_at);
CREATE INDEX outbox_undelivered ON outbox (topic, message_id) WHERE delivered_at IS NULL;
CREATE INDEX outbox_siblings ON outbox (topic, ordering_key, message_id) WHERE delivered_at IS NULL;
CREATE INDEX outbox_delivered ON outbox (delivered_at) WHERE delivered_at IS NOT NULL;
CREATE TRIGGER domains_updated_at AFTER UPDATE ON domains FOR EACH ROW
        WHEN NEW.updated_at = OLD.updated_at
        BEGIN
            UPDATE domains SET updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE id = NEW.id;
        END;
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
     GROUP BY crawls.crawl_id, crawls.name, crawls.state;
CREATE INDEX crawl_jobs_rank ON crawl_jobs ((-priority), id);
CREATE INDEX crawl_jobs_updated ON crawl_jobs (updated_at, id);
CREATE INDEX crawl_jobs_of_key ON crawl_jobs (key_id, created_at) WHERE key_id IS NOT NULL;
CREATE INDEX crawl_jobs_live_of_key ON crawl_jobs (key_id) WHERE key_id IS NOT NULL AND status IN ('pending', 'processing', 'paused');
CREATE INDEX domain_history_domain ON domain_history (domain_id, history_id);
CREATE INDEX domains_resting ON domains (next_crawl_after) WHERE status IN ('blocked', 'unreachable');
CREATE TRIGGER domains_status_of_gate AFTER UPDATE OF status ON domains FOR EACH ROW
    WHEN NEW.status <> OLD.status
    BEGIN
        UPDATE gates
           SET status = NEW.status, errors_in_row = CASE NEW.status WHEN 'pending' THEN 0 ELSE errors_in_row END
         WHERE domain = NEW.domain;
    END;
CREATE INDEX revisits_due ON revisits (crawl_id, due_at);
CREATE INDEX revisits_domain ON revisits (domain, due_at);
CREATE INDEX domains_woken ON domains (domain) WHERE status = 'pending' AND last_crawled_at IS NOT NULL;
CREATE INDEX schedules_due ON schedules (due_at);
CREATE UNIQUE INDEX schedules_crawl ON schedules (crawl);
DELETE FROM "sqlite_sequence";
