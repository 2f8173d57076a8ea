//! Rows for tests. Every field has a different value, so that tests notice swapped columns.

use std::fs;
use std::path::{Path, PathBuf};

use crate::row::{
    LatencyRow, NewRun, Operation, PointRow, RunEnd, RunKind, RunState, Seed, SeriesRow, TrialRow,
    Verdict,
};

/// Returns a run that begins at `started_unix_ns`.
pub(crate) fn sample_run(uuid: &str, started_unix_ns: i64) -> NewRun {
    NewRun {
        uuid: uuid.into(),
        kind: RunKind::Survey,
        command_line: "halfpower survey /data".into(),
        label: Some("before, \"quoted\"\nand after".into()),
        started_unix_ns,
        version: "0.1.0".into(),
        schema: 1,
        seed: Seed(u64::MAX),
        pid: 4242,
        boot_id: "boot-1".into(),
        host_json: r#"{"kernel":"6.1"}"#.into(),
        target_json: r#"{"path":"/data"}"#.into(),
        settings_json: r#"{"budget_ns":1}"#.into(),
    }
}

pub(crate) fn a_point(ordinal: u32) -> PointRow {
    PointRow {
        ordinal,
        rw: "randrw".into(),
        operation: Operation::Mix,
        pattern: "random".into(),
        request_bytes: 4096,
        depth: 32,
        threads: 2,
        ioengine: "io_uring".into(),
        caching: "direct".into(),
        size_bytes: 1 << 30,
        read_percent: 70,
        rate_requests_per_s: Some(1234.5),
        seed: Seed(1 << 63),
        workload_json: r#"{"rw":"randrw"}"#.into(),
    }
}

pub(crate) fn sample_trial(ordinal: u32) -> TrialRow {
    TrialRow {
        ordinal,
        started_unix_ns: 1_700_000_000_000_000_000,
        soaked: ordinal % 2 == 1,
        bytes: 16_384_000,
        requests: 4000,
        errors: 3,
        short_transfers: 4,
        read_bytes: 12_288_000,
        read_requests: 3000,
        write_bytes: 4_096_000,
        write_requests: 1000,
        elapsed_ns: 500_000_000,
        accepted_ns: Some(400_000_000),
        full_queue_start_ns: None,
        full_queue_end_ns: None,
        full_queue_bytes_per_s: None,
        full_queue_requests_per_s: None,
        latency_mean_ns: 101,
        latency_min_ns: 102,
        latency_p50_ns: 103,
        latency_p90_ns: 104,
        latency_p99_ns: 105,
        latency_p99_9_ns: 106,
        latency_max_ns: 107,
        submit_calls: 201,
        reap_calls: 202,
        cpu_process_ns: 2_000_000,
        cpu_user_ns: 500_000,
        cpu_system_ns: 1_500_000,
        cpu_machine_ns: Some(301),
        cpu_soaker_ns: Some(302),
        instructions: Some(303),
        cycles: Some(304),
        device_reads: Some(401),
        device_read_merges: Some(402),
        device_read_sectors: Some(403),
        device_writes: Some(404),
        device_write_merges: Some(405),
        device_write_sectors: Some(406),
        resident_before_bytes: Some(501),
        resident_after_bytes: Some(502),
        verdict: Verdict::Suspect,
        verdict_reasons_json: r#"["drift"]"#.into(),
        ranks_json: Some("[]".into()),
    }
}

/// Returns `buckets` latency buckets that contain 1, 2, 3 ... reads.
pub(crate) fn sample_histogram(buckets: u64) -> Vec<LatencyRow> {
    (0..buckets)
        .map(|i| LatencyRow {
            operation: Operation::Read,
            low_ns: i * 10,
            high_ns: i * 10 + 9,
            count: i + 1,
        })
        .collect()
}

pub(crate) fn a_series(intervals: u32) -> Vec<SeriesRow> {
    (0..intervals)
        .map(|ordinal| SeriesRow {
            ordinal,
            start_ns: u64::from(ordinal) * 100,
            length_ns: 100,
            bytes: 8192,
            requests: 2,
        })
        .collect()
}

pub(crate) fn an_end() -> RunEnd {
    RunEnd {
        state: RunState::Finished,
        finished_unix_ns: 99,
        findings_json: Some(r#"{"advice":[]}"#.into()),
        verdict: Some(Verdict::Valid),
        verdict_reasons_json: r#"["steady"]"#.into(),
    }
}

/// Creates a temporary folder, and returns it with a path for a new database in the folder.
pub(crate) fn temp_database() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("halfpower.db");
    (folder, path)
}

/// Returns the names of the files in `folder`, sorted.
pub(crate) fn files_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
