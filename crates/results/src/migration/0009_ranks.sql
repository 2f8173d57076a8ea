-- The share of each rank in a trial of several processes, as a JSON list; NULL for one process.
ALTER TABLE trial ADD COLUMN ranks_json TEXT;

-- One line for each rank of each trial. A lost rank has no counts, and the reason in `lost`.
CREATE VIEW rank_trials AS
SELECT
    run.id AS run_id,
    run.label AS run_label,
    point.id AS point_id,
    trial.id AS trial_id,
    trial.ordinal AS trial_ordinal,
    json_extract(rank.value, '$.rank') AS rank,
    json_extract(rank.value, '$.host') AS host,
    json_extract(rank.value, '$.start_ns') AS start_ns,
    json_extract(rank.value, '$.elapsed_ns') AS elapsed_ns,
    json_extract(rank.value, '$.bytes') AS bytes,
    json_extract(rank.value, '$.requests') AS requests,
    json_extract(rank.value, '$.errors') AS errors,
    json_extract(rank.value, '$.bytes') * 1e9 / nullif(json_extract(rank.value, '$.elapsed_ns'), 0)
        AS throughput_bytes_per_s,
    json_extract(rank.value, '$.latency_p50_ns') AS latency_p50_ns,
    json_extract(rank.value, '$.latency_p99_ns') AS latency_p99_ns,
    json_extract(rank.value, '$.cpu_process_ns') AS cpu_process_ns,
    json_extract(rank.value, '$.lost') AS lost
FROM trial
JOIN point ON point.id = trial.point_id
JOIN run ON run.id = point.run_id,
json_each(trial.ranks_json) AS rank
WHERE trial.ranks_json IS NOT NULL;
