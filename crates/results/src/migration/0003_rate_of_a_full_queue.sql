-- The part of a closed loop in which its queue was full: after the first requests have completed
-- (the queue fills) and before the last ones do (it drains). NULL where there is no such part, and
-- in trials that were stored before. Times count from the start of the trial.
ALTER TABLE trial ADD COLUMN full_queue_start_ns INTEGER;
ALTER TABLE trial ADD COLUMN full_queue_end_ns INTEGER;
ALTER TABLE trial ADD COLUMN full_queue_bytes_per_s REAL;
ALTER TABLE trial ADD COLUMN full_queue_requests_per_s REAL;

-- One line for each trial, with its workload and the derived rates. Division by zero gives NULL.
DROP VIEW trial_summary;
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
    coalesce(
        iif(trial.accepted_ns IS NULL, trial.full_queue_bytes_per_s, NULL),
        trial.bytes * 1e9 / trial.elapsed_ns
    ) AS throughput_bytes_per_s,
    coalesce(
        iif(trial.accepted_ns IS NULL, trial.full_queue_requests_per_s, NULL),
        trial.requests * 1e9 / trial.elapsed_ns
    ) AS requests_per_s,
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
