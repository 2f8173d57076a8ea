-- Views for people with the sqlite3 shell, pandas or a spreadsheet: names with units, no JSON to
-- take apart. Rates are medians over the trials without a soaker.

-- One line for each point of each run.
CREATE VIEW points AS
SELECT
    summary.run_id,
    datetime(run.started_unix_ns / 1000000000, 'unixepoch') AS run_started_utc,
    run.label AS run_label,
    json_extract(run.host_json, '$.name') AS host,
    json_extract(run.target_json, '$.name') AS target,
    summary.point_id,
    summary.rw,
    summary.operation,
    summary.pattern,
    summary.request_bytes,
    summary.depth,
    summary.threads,
    summary.ioengine,
    summary.caching,
    summary.read_percent,
    summary.trials,
    summary.throughput_median_bytes_per_s,
    summary.throughput_min_bytes_per_s,
    summary.throughput_max_bytes_per_s,
    -- Requests may have several sizes: the rate divided by their mean size.
    summary.throughput_median_bytes_per_s * (
        SELECT sum(trial.requests) * 1.0 / sum(trial.bytes)
        FROM trial
        WHERE trial.point_id = summary.point_id AND NOT trial.soaked
    ) AS requests_per_s,
    point.verdict
FROM point_summary AS summary
JOIN point ON point.id = summary.point_id
JOIN run ON run.id = summary.run_id
WHERE NOT summary.soaked;

-- One line for each trial, with its host and target.
CREATE VIEW trials AS
SELECT
    trial_summary.*,
    json_extract(run.host_json, '$.name') AS host,
    json_extract(run.target_json, '$.name') AS target
FROM trial_summary
JOIN run ON run.id = trial_summary.run_id;

-- Latency percentiles of each point and operation, over all its trials without a soaker. A
-- percentile is the upper end of its bucket.
CREATE VIEW latency_percentiles AS
WITH buckets AS (
    SELECT point_id, operation, high_ns, sum(count) AS count
    FROM latency
    JOIN trial ON trial.id = latency.trial_id
    WHERE NOT trial.soaked
    GROUP BY point_id, operation, high_ns
),
running AS (
    SELECT
        *,
        sum(count) OVER (PARTITION BY point_id, operation ORDER BY high_ns) AS up_to_here,
        sum(count) OVER (PARTITION BY point_id, operation) AS requests
    FROM buckets
)
SELECT
    point.run_id,
    running.point_id,
    running.operation,
    running.requests,
    min(CASE WHEN up_to_here >= 0.5 * requests THEN high_ns END) AS p50_ns,
    min(CASE WHEN up_to_here >= 0.9 * requests THEN high_ns END) AS p90_ns,
    min(CASE WHEN up_to_here >= 0.99 * requests THEN high_ns END) AS p99_ns,
    min(CASE WHEN up_to_here >= 0.999 * requests THEN high_ns END) AS p99_9_ns,
    max(high_ns) AS max_ns
FROM running
JOIN point ON point.id = running.point_id
GROUP BY running.point_id, running.operation;

-- One line for each host.
CREATE VIEW hosts AS
SELECT
    json_extract(host_json, '$.name') AS host,
    json_extract(host_json, '$.cpu') AS cpu,
    json_extract(host_json, '$.cpus') AS cpus,
    json_extract(host_json, '$.memory_bytes') AS memory_bytes,
    group_concat(DISTINCT json_extract(host_json, '$.kernel')) AS kernels,
    count(*) AS runs,
    datetime(min(started_unix_ns) / 1000000000, 'unixepoch') AS first_run_utc,
    datetime(max(started_unix_ns) / 1000000000, 'unixepoch') AS last_run_utc
FROM run
GROUP BY 1, 2, 3, 4;
