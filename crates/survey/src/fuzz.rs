//! Fuzz targets for stored results. `survey` analyses and shows a survey with arbitrary numbers.
//! `database` opens a damaged or arbitrary database file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use analysis::histogram::Histogram;
use ioengine::{BufferPages, Caching};
use lab::fuzz::Bytes;
use lab::json::{self, PointDocument};
use lab::machine::Host;
use lab::point::{Direction, Point, State, Trial, Verdict};
use lab::point_key::PointKey;
use lab::record;
use lab::workload_document::WorkloadDocument;
use results::{LatencyRow, NewRun, Operation, RunKind, Seed, SeriesRow, Store};
use workload::{Arrival, Pattern, Workload};

use crate::document::{self, WroteDocument};
use crate::findings;
use crate::insight::Insight;
use crate::survey_data::SurveyData;
use crate::view;

/// Fuzzes the analysis and the page of a stored survey, with arbitrary numbers and texts.
pub fn survey(data: &[u8]) {
    let mut bytes = Bytes(data);
    let facts = bytes.text(512);
    let target = bytes.text(512);
    let started_unix_ns = bytes.number() as i64;
    let points = std::iter::from_fn(|| (!bytes.is_empty()).then(|| point(&mut bytes)));
    let points = points.take(24).collect();
    let target = serde_json::from_str(&target).unwrap_or_default();
    let facts = serde_json::from_str(&facts).unwrap_or_default();
    show(&SurveyData::new(Host::default(), target, points, facts, started_unix_ns));
}

/// Produces all output of a survey. Nothing may panic, and the page may not contain NaN or
/// infinity.
fn show(data: &SurveyData) {
    let insight = Insight::of(data);
    let html = view::html(data, &insight);
    for wrong in ["=\"NaN", "=\"inf", " NaN ", ",NaN", ",inf"] {
        assert!(!html.contains(wrong), "the page contains {wrong}");
    }
    let _ = findings::text(data, &insight, &[]);
    let _ = json::print(&document::of(data, &insight, WroteDocument::default()));
    for measured in &data.evidence.points {
        let _ = json::print(&PointDocument::from(&measured.point));
    }
}

fn point(bytes: &mut Bytes<'_>) -> Point {
    let operation = bytes.byte();
    let sizes = [4096, 64 << 10, 1 << 20, bytes.number() as u32];
    let workload = Workload {
        pattern: [Pattern::Sequential, Pattern::Random][usize::from(bytes.flag())],
        request_bytes: sizes[usize::from(bytes.byte() % 4)],
        depth: [1, 8, bytes.number() as u32][usize::from(bytes.byte() % 3)],
        threads: 1 + u32::from(bytes.byte()),
        region_bytes: bytes.number(),
        read_percent: [0, 100, operation % 101][usize::from(operation % 3)],
        arrival: if bytes.flag() {
            Arrival::Constant { requests_per_s: f64::from_bits(bytes.number()) }
        } else {
            Arrival::Closed
        },
        seed: bytes.number(),
        pages: [BufferPages::Huge, BufferPages::Small][usize::from(bytes.flag())],
        ..Workload::default()
    };
    let caching = Caching::ALL[usize::from(bytes.byte() % 4)];
    let key = PointKey { caching, ..PointKey::of(&workload) };
    let trials = 1 + bytes.byte() % 5;
    Point { key, trials: (0..trials).map(|ordinal| trial(bytes, ordinal)).collect() }
}

/// Returns a trial that is loaded from database rows with arbitrary 63-bit numbers.
fn trial(bytes: &mut Bytes<'_>, ordinal: u8) -> Trial {
    let mut trial = Trial { ordinal: u32::from(ordinal), ..Trial::default() };
    trial.elapsed_ns = bytes.number();
    trial.soaked = bytes.flag();
    trial.soaker_ns = bytes.flag().then(|| bytes.number());
    trial.cpu.process_ns = bytes.number();
    for direction in &mut trial.directions {
        *direction = Direction {
            bytes: bytes.number(),
            requests: bytes.number(),
            latency: Histogram::new(),
        };
    }
    if bytes.flag() {
        trial.verdict = Verdict { state: State::Invalid, reasons: vec!["holes".to_owned()] };
    }
    let (mut row, _, _) = record::trial_rows(&trial);
    row.device_reads = bytes.flag().then(|| bytes.number());
    row.device_read_sectors = Some(bytes.number());
    row.latency_min_ns = bytes.number();
    row.latency_max_ns = bytes.number();
    row.latency_mean_ns = bytes.number();
    let latency: Vec<LatencyRow> = (0..bytes.byte() % 4)
        .map(|_| LatencyRow {
            operation: if bytes.flag() { Operation::Read } else { Operation::Write },
            low_ns: bytes.number(),
            high_ns: bytes.number(),
            count: bytes.number(),
        })
        .collect();
    let series: Vec<SeriesRow> = (0..u32::from(bytes.byte() % 4))
        .map(|ordinal| SeriesRow {
            ordinal,
            start_ns: bytes.number(),
            length_ns: bytes.number(),
            bytes: bytes.number(),
            requests: bytes.number(),
        })
        .collect();
    record::trial_of(&row, &latency, &series)
}

/// Fuzzes the loading of a database file. If the first byte is odd, the rest of the input is the
/// file. Otherwise the file is a valid database in which some bytes are replaced. Each replacement
/// takes four bytes of the input: a 3-byte offset and the new value.
pub fn database(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let mut file = Vec::new();
    if kind % 2 == 1 {
        file.extend_from_slice(rest);
    } else {
        file.extend_from_slice(good_database());
        for change in rest.chunks_exact(4) {
            let place = usize::from(change[0]) << 16 | usize::from(change[1]) << 8;
            let length = file.len();
            file[(place | usize::from(change[2])) % length] = change[3];
        }
    }
    let path = own_file();
    fs::write(&path, &file).expect("the temporary directory is writable");
    if let Ok(data) = SurveyData::load(&path, "latest") {
        show(&data);
    }
    if kind & 2 != 0 {
        let _ = Store::open(&path).and_then(|mut store| {
            store.mark_interrupted_runs(|_, _| false)?;
            add_a_run(&mut store, "another")
        });
    }
    remove(&path);
}

/// Removes a database and SQLite's auxiliary files.
fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let _ = fs::remove_file(name);
    }
}

/// Returns a unique path in the temporary directory.
fn own_file() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("halfpower-fuzz-{}-{count}.db", std::process::id()))
}

/// Returns the bytes of a database that contains one survey of three points.
fn good_database() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = own_file();
        let made = Store::open(&path).and_then(|mut store| {
            add_a_run(&mut store, "first")?;
            store.close()
        });
        let file = made.map(|()| fs::read(&path));
        remove(&path);
        file.expect("a new database is stored").expect("the file was just written")
    })
}

fn add_a_run(store: &mut Store, uuid: &str) -> Result<(), results::Error> {
    let run = store.begin_run(&NewRun {
        uuid: uuid.to_owned(),
        kind: RunKind::Survey,
        command_line: "halfpower survey".to_owned(),
        label: None,
        started_unix_ns: 1,
        version: "0".to_owned(),
        schema: 1,
        seed: Seed(1),
        pid: 1,
        boot_id: "0".to_owned(),
        host_json: "{}".to_owned(),
        target_json: "{}".to_owned(),
        settings_json: "{}".to_owned(),
    })?;
    for ordinal in 0..3_u8 {
        let numbers: Vec<u8> = (0..200_u8).map(|n| n.wrapping_mul(ordinal + 1) % 64).collect();
        let point = point(&mut Bytes(&numbers));
        let id =
            store.add_point(run, &WorkloadDocument::from(&point.key).row(u32::from(ordinal)))?;
        for trial in &point.trials {
            let (row, latency, series) = record::trial_rows(trial);
            store.add_trial(id, &row, &latency, &series)?;
        }
    }
    Ok(())
}
