//! Fuzz target for the parsers of other tools' results. Any text must yield runs that can be
//! exported again, or an error of one line.

use std::path::Path;

use lab::failure::Failure;

use crate::import;
use crate::imported::Imported;
use crate::{fio, openmetrics, sqlio};

/// Imports an arbitrary text, and exports the runs if there are any.
///
/// # Panics
/// If an error has several lines or no remedy, or if an imported run cannot be exported.
pub fn imports(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // fio's logs are recognised by their file name, so the text is imported under several names.
    for name in ["a.txt", "a_bw.1.log", "a_lat.log"] {
        match import::read_text(name, &text) {
            Ok(runs) => can_be_exported(runs),
            Err(failure) => check(&failure),
        }
    }
    assert!(!import::is_foreign(Path::new("/none/such")));
}

fn can_be_exported(runs: Vec<Imported>) {
    for run in runs {
        assert!(!run.points.is_empty() && !run.missing.is_empty(), "{}", run.describe());
        for point in &run.points {
            assert!(!point.trials.is_empty());
            let summary = point.summary();
            assert!(summary.bytes_per_s.value.is_finite());
        }
        let trace = sqlio::trace(&run.points, None);
        assert!(trace.lines().count() > run.points.len());
        let named: Vec<_> = run.points.iter().map(|point| (None, point.clone())).collect();
        let output = fio::export::output("1.0", run.started_unix_ns, &named);
        let json = serde_json::to_string(&output).unwrap_or_default();
        assert!(fio::output::parse(&json).is_ok(), "{json}");
        let metrics = openmetrics::Run {
            label: None,
            started_unix_ns: run.started_unix_ns,
            host: run.host,
            target: run.target,
            points: run.points,
        };
        assert!(openmetrics::text(&[metrics]).ends_with("# EOF\n"));
    }
}

fn check(failure: &Failure) {
    assert!(failure.message.contains([';', ':']), "no remedy: {failure}");
    assert!(!failure.message.contains('\n'), "not one line: {failure}");
}
