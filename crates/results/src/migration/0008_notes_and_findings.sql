-- The user's note on a run.
ALTER TABLE run ADD COLUMN note TEXT;

-- What surveys and studies conclude, one sentence a row.
CREATE VIEW findings AS
SELECT
    run.id AS run_id,
    datetime(run.started_unix_ns / 1000000000, 'unixepoch') AS run_started_utc,
    run.kind AS run_kind,
    run.label AS run_label,
    json_extract(run.settings_json, '$.study') AS study,
    json_extract(run.host_json, '$.name') AS host,
    json_extract(run.target_json, '$.name') AS target,
    finding.key AS finding_ordinal,
    json_extract(finding.value, '$.id') AS finding,
    json_extract(finding.value, '$.text') AS text
FROM run, json_each(run.findings_json, '$.findings') AS finding
WHERE run.findings_json IS NOT NULL;
