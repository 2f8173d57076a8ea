-- What the trials of a point say together. NULL while its run goes on, where its process died,
-- and where no trial came to its end.
ALTER TABLE point ADD COLUMN verdict TEXT CHECK (verdict IN ('valid', 'suspect', 'invalid'));
ALTER TABLE point ADD COLUMN verdict_reasons_json TEXT NOT NULL DEFAULT '[]';

-- One line for each point and each value of soaked (the soaker disturbs what it measures, so
-- its trials are not mixed with the others): how many trials, and the median, least and most.
DROP VIEW point_summary;
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
    ranked.run_id,
    run_uuid,
    run_kind,
    run_label,
    run_state,
    point_id,
    point_ordinal,
    ranked.rw,
    ranked.operation,
    ranked.pattern,
    ranked.request_bytes,
    ranked.depth,
    ranked.threads,
    ranked.ioengine,
    ranked.caching,
    ranked.size_bytes,
    ranked.read_percent,
    ranked.rate_requests_per_s,
    soaked,
    trials,
    sum(errors) AS errors,
    avg(CASE WHEN place IN ((trials + 1) / 2, (trials + 2) / 2) THEN throughput_bytes_per_s END)
        AS throughput_median_bytes_per_s,
    min(throughput_bytes_per_s) AS throughput_min_bytes_per_s,
    max(throughput_bytes_per_s) AS throughput_max_bytes_per_s,
    sum(ranked.verdict = 'valid') AS valid_trials,
    point.verdict,
    point.verdict_reasons_json
FROM ranked
JOIN point ON point.id = ranked.point_id
GROUP BY point_id, soaked;
