//! Implements `--verify` for writes: records which blocks a run writes, reads these blocks back and
//! checks them, and marks the results as invalid if a block is damaged.

use analysis::units;
use std::sync::Arc;

use workload::spec::Content;
use workload::{Workload, Written, content};

use crate::bench::Bench;
use crate::check::Check;
use crate::failure::Outcome;
use crate::job::Job;
use crate::point::{Point, State};
use crate::rounds::{bytes_of, fail_on_errors, share_of};
use crate::trials::{Lab, Setting};

/// Makes the workloads record which blocks they write, and returns the record that they share. None
/// if no workload writes.
pub fn note_writes(settings: &mut [Setting<'_>]) -> Option<Arc<Written>> {
    let workload = &settings.iter().find(|setting| setting.workload.writes())?.workload;
    let block_bytes = content::block_bytes(workload.request_bytes)? as u64;
    let region = workload.region_offset..workload.region_offset + workload.region_bytes;
    let written = Arc::new(Written::new(block_bytes, region));
    for setting in settings.iter_mut() {
        setting.workload.written = Some(Arc::clone(&written));
    }
    Some(written)
}

/// Reads the blocks that were written with `--verify`, and checks their content.
///
/// # Errors
/// A block is damaged, or a request failed.
pub fn read_back(lab: &Lab, job: &Job, bench: &Bench, written: &Arc<Written>) -> Outcome<()> {
    let end = written.end_of_last_block();
    let whole = end > 0 && job.targets.does_io() && !lab.interrupt.is_set();
    let Some(axes) = job.axes.first().filter(|_| whole) else { return Ok(()) };
    let direct = bench.place().caching().is_direct();
    let of_writes = job.workload(axes, bench.region_bytes, direct);
    let (offset, request) = (of_writes.region_offset, u64::from(of_writes.request_bytes));
    let region = end.saturating_sub(offset).next_multiple_of(request);
    let region = region.min(bench.region_bytes / request * request);
    let workload = Workload {
        read_percent: 100,
        content: Content::Verified,
        written: Some(Arc::clone(written)),
        engine_kind: of_writes.engine_kind,
        options: of_writes.options,
        request_bytes: of_writes.request_bytes,
        depth: of_writes.depth,
        region_offset: offset,
        region_bytes: region,
        limit_bytes: Some(region),
        pages: of_writes.pages,
        ..Workload::default()
    };
    let setting = Setting {
        scrub: !direct && bench.can_scrub(),
        allow_holes: true,
        ..Setting::at(bench.place(), workload)
    };
    let mut progress = lab.console.open_progress();
    let bounds = (None, bytes_of(&setting), 0);
    let trial = lab.trial_alone(&setting, &mut |at| {
        progress.advance(Some(share_of(at, bounds)), "reading back");
    })?;
    progress.finish();
    fail_on_errors(&trial, "reading back")?;
    lab.console.say(format!("verified {}: every block is correct", units::size(trial.bytes())));
    Ok(())
}

/// In each point whose workload writes, marks the last trial as invalid, because verification
/// failed.
pub fn distrust(points: &mut [Point], why: &str) {
    let wrote = points.iter_mut().filter(|point| point.key.read_percent() < 100);
    for trial in wrote.filter_map(|point| point.trials.last_mut()) {
        trial.verdict.flag(State::Invalid, Check::Mismatch, why);
    }
}
