-- Units are in the names: _ns nanoseconds, _bytes bytes, _unix_ns nanoseconds since 1970-01-01 UTC.
-- Columns ending in _json hold JSON text. NULL means "not measured here", never zero.
-- Tables are not STRICT and views use no function newer than SQLite 3.25 (2018), so that the
-- tools of long-lived distributions can open the file.

CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, even when the run is deleted
    uuid TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,                    -- run, survey, sweep
    command_line TEXT NOT NULL,
    label TEXT,
    started_unix_ns INTEGER NOT NULL,
    finished_unix_ns INTEGER,              -- NULL while running and when interrupted by a crash
    state TEXT NOT NULL CHECK (state IN ('running', 'finished', 'interrupted', 'failed')),
    version TEXT NOT NULL,                 -- of the program
    schema INTEGER NOT NULL,               -- of the program's JSON output
    seed TEXT NOT NULL,                    -- decimal; unsigned 64-bit numbers do not fit INTEGER
    pid INTEGER NOT NULL,                  -- the process that measures, and the boot it lives in
    boot_id TEXT NOT NULL,
    host_json TEXT NOT NULL,
    target_json TEXT NOT NULL,
    settings_json TEXT NOT NULL,
    findings_json TEXT,
    verdict TEXT CHECK (verdict IN ('valid', 'suspect', 'invalid')),
    verdict_reasons_json TEXT NOT NULL DEFAULT '[]'
);

CREATE TABLE point (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    rw TEXT NOT NULL,                      -- as on the command line: read, randwrite, ...
    operation TEXT NOT NULL CHECK (operation IN ('read', 'write', 'mix')),
    pattern TEXT NOT NULL,
    request_bytes INTEGER NOT NULL,
    depth INTEGER NOT NULL,                -- requests outstanding per thread
    threads INTEGER NOT NULL,
    ioengine TEXT NOT NULL,
    caching TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,           -- the region of the target that is used
    read_percent INTEGER NOT NULL,
    rate_requests_per_s REAL,              -- NULL: closed loop
    seed TEXT NOT NULL,
    workload_json TEXT NOT NULL,
    UNIQUE (run_id, ordinal)
);

CREATE TABLE trial (
    id INTEGER PRIMARY KEY,
    point_id INTEGER NOT NULL REFERENCES point (id) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    started_unix_ns INTEGER NOT NULL,
    soaked INTEGER NOT NULL CHECK (soaked IN (0, 1)),
    bytes INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    short_transfers INTEGER NOT NULL,
    read_bytes INTEGER NOT NULL,
    read_requests INTEGER NOT NULL,
    write_bytes INTEGER NOT NULL,
    write_requests INTEGER NOT NULL,
    elapsed_ns INTEGER NOT NULL,
    accepted_ns INTEGER,                   -- buffered writes: until the last accepted write
    latency_mean_ns INTEGER NOT NULL,      -- latencies are 0 when no request completed
    latency_min_ns INTEGER NOT NULL,
    latency_p50_ns INTEGER NOT NULL,
    latency_p90_ns INTEGER NOT NULL,
    latency_p99_ns INTEGER NOT NULL,
    latency_p99_9_ns INTEGER NOT NULL,
    latency_max_ns INTEGER NOT NULL,
    submit_calls INTEGER NOT NULL,
    reap_calls INTEGER NOT NULL,
    cpu_process_ns INTEGER NOT NULL,       -- the lower bound of the CPU cost
    cpu_user_ns INTEGER NOT NULL,
    cpu_system_ns INTEGER NOT NULL,
    cpu_machine_ns INTEGER,                -- busy time of all CPUs
    cpu_soaker_ns INTEGER,                 -- the upper bound of the CPU cost; soaked trials only
    instructions INTEGER,
    cycles INTEGER,
    device_reads INTEGER,                  -- counters of the block device over the trial
    device_read_merges INTEGER,
    device_read_sectors INTEGER,           -- of 512 bytes
    device_writes INTEGER,
    device_write_merges INTEGER,
    device_write_sectors INTEGER,
    resident_before_bytes INTEGER,         -- of the target in the page cache
    resident_after_bytes INTEGER,
    verdict TEXT NOT NULL CHECK (verdict IN ('valid', 'suspect', 'invalid')),
    verdict_reasons_json TEXT NOT NULL,
    UNIQUE (point_id, ordinal)
);

-- The non-empty buckets of the latency histogram; both ends belong to the bucket.
CREATE TABLE latency (
    trial_id INTEGER NOT NULL REFERENCES trial (id) ON DELETE CASCADE,
    operation TEXT NOT NULL CHECK (operation IN ('read', 'write')),
    low_ns INTEGER NOT NULL,
    high_ns INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (trial_id, operation, low_ns)
) WITHOUT ROWID;

-- What was completed in each interval of a trial; start_ns counts from the start of the trial.
CREATE TABLE series (
    trial_id INTEGER NOT NULL REFERENCES trial (id) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    length_ns INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    PRIMARY KEY (trial_id, ordinal)
) WITHOUT ROWID;

-- One line for each trial, with its workload and the derived rates. Division by zero gives NULL.
CREATE VIEW trial_summary AS
SELECT
    run.id AS run_id,
    run.uuid AS run_uuid,
    run.kind AS run_kind,
    run.label AS run_label,
    run.state AS run_state,
    point.id AS point_id,
    point.ordinal AS point_ordinal,
    trial.id AS trial_id,
    trial.ordinal AS trial_ordinal,
    trial.started_unix_ns,
    datetime(trial.started_unix_ns / 1000000000, 'unixepoch') AS started_utc,
    point.rw,
    point.operation,
    point.pattern,
    point.request_bytes,
    point.depth,
    point.threads,
    point.ioengine,
    point.caching,
    point.size_bytes,
    point.read_percent,
    point.rate_requests_per_s,
    trial.soaked,
    trial.bytes,
    trial.requests,
    trial.errors,
    trial.elapsed_ns,
    trial.bytes * 1e9 / trial.elapsed_ns AS throughput_bytes_per_s,
    trial.requests * 1e9 / trial.elapsed_ns AS requests_per_s,
    trial.latency_mean_ns,
    trial.latency_p50_ns,
    trial.latency_p99_ns,
    trial.latency_p99_9_ns,
    trial.latency_max_ns,
    trial.cpu_process_ns * 1.0 / trial.requests AS cpu_ns_per_request,
    trial.cpu_process_ns * 1.0 / trial.bytes AS cpu_ns_per_byte,
    trial.verdict,
    trial.verdict_reasons_json
FROM trial
JOIN point ON point.id = trial.point_id
JOIN run ON run.id = point.run_id;

-- One line for each point and each value of soaked (the soaker disturbs what it measures, so
-- its trials are not mixed with the others): how many trials, and the median, least and most.
CREATE VIEW point_summary AS
WITH ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY point_id, soaked ORDER BY throughput_bytes_per_s
        ) AS place,
        count(*) OVER (PARTITION BY point_id, soaked) AS trials
    FROM trial_summary
    WHERE throughput_bytes_per_s IS NOT NULL
)
SELECT
    run_id,
    run_uuid,
    run_kind,
    run_label,
    run_state,
    point_id,
    point_ordinal,
    rw,
    operation,
    pattern,
    request_bytes,
    depth,
    threads,
    ioengine,
    caching,
    size_bytes,
    read_percent,
    rate_requests_per_s,
    soaked,
    trials,
    sum(errors) AS errors,
    avg(CASE WHEN place IN ((trials + 1) / 2, (trials + 2) / 2) THEN throughput_bytes_per_s END)
        AS throughput_median_bytes_per_s,
    min(throughput_bytes_per_s) AS throughput_min_bytes_per_s,
    max(throughput_bytes_per_s) AS throughput_max_bytes_per_s,
    sum(verdict = 'valid') AS valid_trials
FROM ranked
GROUP BY point_id, soaked;

-- The latency distribution of each trial: the share of requests that took high_ns or less.
CREATE VIEW latency_cumulative AS
SELECT
    trial_id,
    operation,
    low_ns,
    high_ns,
    count,
    sum(count) OVER up_to_here AS cumulative_count,
    sum(count) OVER up_to_here * 1.0 / sum(count) OVER (PARTITION BY trial_id, operation)
        AS cumulative_share
FROM latency
WINDOW up_to_here AS (PARTITION BY trial_id, operation ORDER BY low_ns);

-- The rates of each interval of a trial.
CREATE VIEW series_rate AS
SELECT
    trial_id,
    ordinal,
    start_ns,
    length_ns,
    bytes * 1e9 / length_ns AS throughput_bytes_per_s,
    requests * 1e9 / length_ns AS requests_per_s
FROM series;
