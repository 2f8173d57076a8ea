-- Where an imported run came from. The document is the tool's own output, so that an export in the
-- same format loses nothing.
CREATE TABLE origin (
    run_id INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
    tool TEXT NOT NULL,                    -- with its version: fio-3.33
    format TEXT NOT NULL,                  -- of the document: fio-json, diskspd-xml, ...
    file TEXT NOT NULL,                    -- as named on the command line
    missing_json TEXT NOT NULL,            -- what the tool did not report, as a list of strings
    document TEXT NOT NULL
);

-- The intervals of the trials, with their workload.
CREATE VIEW intervals AS
SELECT
    trials.run_id,
    trials.point_id,
    trials.trial_id,
    trials.trial_ordinal,
    trials.host,
    trials.target,
    trials.rw,
    trials.operation,
    trials.request_bytes,
    trials.depth,
    trials.threads,
    trials.ioengine,
    trials.caching,
    series.ordinal AS interval_ordinal,
    series.start_ns,
    series.length_ns,
    series.bytes,
    series.requests,
    series.bytes * 1e9 / series.length_ns AS throughput_bytes_per_s,
    series.requests * 1e9 / series.length_ns AS requests_per_s
FROM trials
JOIN series ON series.trial_id = trials.trial_id;

-- The latency histograms of the trials, with their workload.
CREATE VIEW latency_buckets AS
SELECT
    trials.run_id,
    trials.point_id,
    trials.trial_id,
    trials.trial_ordinal,
    trials.host,
    trials.target,
    trials.rw,
    trials.request_bytes,
    trials.depth,
    trials.threads,
    trials.ioengine,
    trials.caching,
    latency.operation,
    latency.low_ns,
    latency.high_ns,
    latency.count
FROM trials
JOIN latency ON latency.trial_id = trials.trial_id;
