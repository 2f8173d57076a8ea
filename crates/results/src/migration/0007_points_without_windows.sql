-- The rates of a point by subqueries instead of window functions, so that a query of one run reads
-- the trials of that run only.
DROP VIEW points;
CREATE VIEW points AS
WITH counted AS (
    SELECT
        point.*,
        (
            SELECT count(*) FROM trial
            WHERE trial.point_id = point.id AND NOT trial.soaked
              AND (trial.elapsed_ns > 0 OR trial.full_queue_bytes_per_s IS NOT NULL)
        ) AS trials
    FROM point
),
measured AS (
    SELECT
        counted.*,
        (
            -- The mean of the one or two values in the middle.
            SELECT avg(rate) FROM (
                SELECT
                    rate,
                    row_number() OVER (ORDER BY rate) AS place
                FROM (
                    SELECT coalesce(
                    iif(trial.accepted_ns IS NULL, trial.full_queue_bytes_per_s, NULL),
                    trial.bytes * 1e9 / trial.elapsed_ns
                ) AS rate
                    FROM trial
                    WHERE trial.point_id = counted.id AND NOT trial.soaked
                )
                WHERE rate IS NOT NULL
            )
            WHERE place IN ((counted.trials + 1) / 2, (counted.trials + 2) / 2)
        ) AS throughput_median_bytes_per_s
    FROM counted
    WHERE trials > 0
)
SELECT
    measured.run_id,
    datetime(run.started_unix_ns / 1000000000, 'unixepoch') AS run_started_utc,
    run.label AS run_label,
    json_extract(run.host_json, '$.name') AS host,
    json_extract(run.target_json, '$.name') AS target,
    measured.id AS point_id,
    measured.rw,
    measured.operation,
    measured.pattern,
    measured.request_bytes,
    measured.depth,
    measured.threads,
    measured.ioengine,
    measured.caching,
    measured.read_percent,
    measured.trials,
    measured.throughput_median_bytes_per_s,
    (
        SELECT min(coalesce(
                    iif(trial.accepted_ns IS NULL, trial.full_queue_bytes_per_s, NULL),
                    trial.bytes * 1e9 / trial.elapsed_ns
                ))
        FROM trial WHERE trial.point_id = measured.id AND NOT trial.soaked
    ) AS throughput_min_bytes_per_s,
    (
        SELECT max(coalesce(
                    iif(trial.accepted_ns IS NULL, trial.full_queue_bytes_per_s, NULL),
                    trial.bytes * 1e9 / trial.elapsed_ns
                ))
        FROM trial WHERE trial.point_id = measured.id AND NOT trial.soaked
    ) AS throughput_max_bytes_per_s,
    -- Requests may have several sizes: the rate divided by their mean size.
    measured.throughput_median_bytes_per_s * (
        SELECT sum(trial.requests) * 1.0 / sum(trial.bytes)
        FROM trial WHERE trial.point_id = measured.id AND NOT trial.soaked
    ) AS requests_per_s,
    measured.verdict
FROM measured
JOIN run ON run.id = measured.run_id;
