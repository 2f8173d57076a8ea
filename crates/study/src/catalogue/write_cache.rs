//! Study `write-cache`: measures the gain of a drive's write cache, and the cost of durable writes
//! with and without the cache. It reports whether a power failure can lose an acknowledged write.
//!
//! The study asks the drive for the state of its cache (SCSI and ATA caching page, NVMe feature).
//! For a virtio disk in a virtual machine, the study asks the host. The study does not rely on the
//! kernel, whose assumption about the drive may be wrong. The study switches the cache only with
//! `--toggle-write-cache`. The old state is stored in the journal first and restored at the end.

use analysis::units;
use std::path::Path;

use ioengine::device::Device;
use ioengine::write_cache::{BACK, Means, THROUGH};
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use lab::settings::{self, Changed, DRIVE_CACHE, HostSetting};

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::curve;
use crate::runner::StudyRunner;
use crate::target::StudyTarget;

pub const STUDY: Study = Study {
    name: "write-cache",
    papers: "Riedel 1997, sections 2 and 3, and the text box about the risk: the drive's write \
             cache makes small unbuffered writes ten times as fast and large buffered writes twice \
             as fast, but the data in the cache is lost when the power fails; Chung 2000, section \
             5: a larger queue depth replaces the write cache",
    needs: "permission to write; root and --toggle-write-cache to measure with cache on and off",
    plan: include_str!("../../plans/write-cache.toml"),
    claims: &["R030", "R041", "R065", "R066", "R081", "C084"],
    rules: &["write-cache"],
    measure: Some(measure),
    analyse,
};

/// The suffix of the parts of the plan that are measured again after the write cache was switched.
const SWITCHED: &str = ", cache switched";

// ---- measurement

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    if runner.study_targets.first().is_some_and(StudyTarget::is_simulated) {
        return both_in_a_model(runner);
    }
    let disk = runner.study_targets.first().filter(|study_target| study_target.is_real()).map(
        |study_target| {
            let path = study_target.path().to_path_buf();
            settings::disk_beneath(std::slice::from_ref(&path)).map(|disk| (path, disk))
        },
    );
    let switch = match disk {
        Some(Ok((path, disk))) => inspect_cache(runner, &disk).map(|setting| (path, setting)),
        Some(Err(failure)) => {
            note_not_switched(runner, &failure.message);
            None
        }
        None => {
            note_not_switched(runner, "the target is not a drive of this host");
            None
        }
    };
    runner.measure()?;
    let Some((path, setting)) = switch else { return Ok(()) };
    let mut groups = runner.groups()?;
    groups.iter_mut().for_each(|group| group.part.push_str(SWITCHED));
    match Changed::apply(&[path], &[setting]) {
        Ok(changed) => {
            let measured = runner.measure_groups(&groups);
            let whole = changed.is_none_or(Changed::restore);
            if !whole {
                runner.leave_out(
                    "restoring",
                    "the cache was not restored to its old state; run halfpower restore",
                );
            }
            measured
        }
        Err(failure) => {
            note_not_switched(runner, &failure.message);
            Ok(())
        }
    }
}

/// Measures a simulated drive with its write cache on and off.
fn both_in_a_model(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    note(runner, "means", "the model");
    note(runner, "drive-cache", BACK);
    for (state, suffix) in [("on", ""), ("off", SWITCHED)] {
        let mut groups = runner.groups()?;
        for group in &mut groups {
            group.part.push_str(suffix);
            group.changes = Some(format!("write_cache={state}"));
        }
        runner.measure_groups(&groups)?;
    }
    Ok(())
}

fn note(runner: &mut StudyRunner<'_>, quantity: &str, words: &str) {
    runner.evidence.note(quantity, "words", &[("is", words.to_owned())], 1.0);
}

fn note_not_switched(runner: &mut StudyRunner<'_>, why: &str) {
    note(runner, "not-switched", why);
}

/// Notes the state of a disk's write cache. Returns the setting that switches the cache to its
/// other state. None if switching was not requested or is not possible.
fn inspect_cache(runner: &mut StudyRunner<'_>, disk: &Path) -> Option<HostSetting> {
    let text = |name: &str| std::fs::read_to_string(disk.join("queue").join(name));
    for (quantity, name) in [("kernel-believes", "write_cache"), ("fua-flag", "fua")] {
        if let Ok(text) = text(name) {
            note(runner, quantity, text.trim());
        }
    }
    let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let device = Device::numbered(&std::fs::read_to_string(disk.join("dev")).ok()?);
    if device.is_some_and(|device| device.text("loop/backing_file").is_some()) {
        note(runner, "beneath", "a loop device whose image is on a disk with a separate cache");
    }
    let Some(means) = Means::of(disk) else {
        let why = format!(
            "{name} is not a SCSI, ATA, NVMe or virtio disk, so its cache state is unknown"
        );
        note_not_switched(runner, &format!("{why}; use a file or partition on such a disk"));
        return None;
    };
    note(runner, "means", means.words());
    if matches!(means, Means::Guest(_)) {
        note(runner, "beneath", "a disk of the host, with a cache that this guest cannot see");
    }
    let state = match means.state() {
        Ok(state) => state,
        Err(error) => {
            let cause = ioengine::error::cause(&error);
            note_not_switched(
                runner,
                &format!("{name} does not report the state of its cache: {cause}; run as root"),
            );
            return None;
        }
    };
    note(runner, "drive-cache", &state);
    match (means.fixed(), runner.toggle_write_cache) {
        (Some(why), _) => note_not_switched(runner, why),
        (None, false) => {
            note_not_switched(
                runner,
                "switching was not requested; use --toggle-write-cache as root",
            );
        }
        (None, true) => {
            let value = if state == BACK { THROUGH } else { BACK }.to_owned();
            return Some(HostSetting { name: DRIVE_CACHE, value });
        }
    }
    None
}

// ---- analysis

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    state(&mut found, evidence);
    loss(&mut found, evidence);
    for suffix in ["", SWITCHED] {
        durability(&mut found, evidence, suffix);
        flush(&mut found, evidence, suffix);
    }
    gain(&mut found, evidence);
    claims(&mut found, evidence);
    found
}

/// Returns the text that `note` stored for a quantity.
fn word<'a>(evidence: &'a Evidence, quantity: &str) -> Option<&'a str> {
    let reading = evidence.read(quantity, &[]).into_iter().next()?;
    reading.labels.get("is").map(String::as_str)
}

fn state(found: &mut Conclusion, evidence: &Evidence) {
    if let Some((state, means)) = word(evidence, "drive-cache").zip(word(evidence, "means")) {
        found.find("state", format!("the write cache is set to {state}, according to {means}"));
    }
    if let Some(why) = word(evidence, "not-switched") {
        found.find("not-switched", format!("the cache was not switched: {why}"));
    }
}

/// Reports whether an acknowledged write can be lost.
fn loss(found: &mut Conclusion, evidence: &Evidence) {
    let known = evidence.targets.first().is_some_and(|target| target.kind == "delay");
    if evidence.is_simulated() || known || evidence.usable().next().is_none() {
        return;
    }
    let believes = word(evidence, "kernel-believes");
    let text = match (word(evidence, "drive-cache"), believes) {
        (Some(BACK), Some(THROUGH)) => {
            "an acknowledged write can be lost, even after fsync: the drive caches writes, but \
             the kernel assumes no cache and sends no flushes; write `write back` to \
             /sys/block/DEVICE/queue/write_cache"
                .to_owned()
        }
        (Some(BACK), _) => format!(
            "an acknowledged write can be lost until it is flushed: the drive caches writes; \
             fsync, O_DSYNC or --fua ({}) make it durable",
            match word(evidence, "fua-flag") {
                Some("1") => "one request, because the device supports FUA",
                _ => "a write and a flush, because the device has no FUA",
            }
        ),
        (Some(THROUGH), _) => {
            "according to the drive, its cache is write-through, so an acknowledged direct write \
             is on the medium"
                .to_owned()
        }
        (_, Some(BACK)) => {
            "the drive does not report its cache state, but the kernel sends flushes: a write is \
             safe only after fsync"
                .to_owned()
        }
        (_, Some(THROUGH)) => {
            "the drive does not report its cache state, and the kernel sends no flushes: whether \
             an acknowledged write survives a power failure is unknown"
                .to_owned()
        }
        _ => "neither drive nor kernel reports a write cache: whether an acknowledged write \
              survives a power failure is unknown"
            .to_owned(),
    };
    let beneath = match word(evidence, "beneath") {
        Some(beneath) => {
            let unknown = "It is unknown whether that cache loses writes in a power failure";
            format!(". The data is on {beneath}. {unknown}")
        }
        None => String::new(),
    };
    found.find("loss", format!("{text}{beneath}"));
}

fn at<'a>(evidence: &'a Evidence, part: &str, bs: &str, depth: &str) -> Option<&'a MeasuredPoint> {
    evidence.find(&[("part", part), ("bs", bs), ("iodepth", depth)])
}

/// Reports the cost of durable writes in one state of the cache, which `suffix` selects.
fn durability(found: &mut Conclusion, evidence: &Evidence, suffix: &str) {
    for bs in ["4k", "64k"] {
        let of = |part: &str| at(evidence, &format!("{part}{suffix}"), bs, "1");
        let Some(plain) = of("plain") else { continue };
        let costs: Vec<String> = ["each durable (FUA)", "flushed after each", "flushed after 32"]
            .iter()
            .filter_map(|part| {
                let durable = of(part)?;
                let times = plain.rate() / durable.rate().max(1.0);
                Some(if curve::differ(plain, durable) {
                    format!("{part}: {} ({})", units::rate(durable.rate()), cost(times))
                } else {
                    format!("{part}: the same rate, within noise")
                })
            })
            .collect();
        if !costs.is_empty() {
            let (size, rate) = (units::size(plain.bytes()), units::rate(plain.rate()));
            let text = format!(
                "direct writes of {size}, one at a time{suffix}: plain writes (neither FUA nor \
                 flush) reach {rate}; {}",
                costs.join("; ")
            );
            found.find("durability", text);
        }
    }
}

fn cost(times: f64) -> String {
    if times >= 1.0 {
        format!("plain writes are {} as fast", words_of_times(times))
    } else {
        format!("{} the rate of plain writes", words_of_times(1.0 / times))
    }
}

fn flush(found: &mut Conclusion, evidence: &Evidence, suffix: &str) {
    let part = format!("flushed after each{suffix}");
    let Some(point) = at(evidence, &part, "4k", "1") else { return };
    if let Some(median_ns) = median_flush_ns(point) {
        let time = units::time(median_ns);
        let text = format!("median flush time after one direct 4 KiB write{suffix}: {time}");
        found.find("flush", text);
    }
}

/// Computes the median flush time of each trial, and returns the median of all trials (ns).
fn median_flush_ns(point: &MeasuredPoint) -> Option<f64> {
    let trials = point.point.trials.iter();
    let mut medians: Vec<u64> =
        trials.filter_map(|trial| trial.live.as_ref()?.flushes.quantile(0.5)).collect();
    medians.sort_unstable();
    medians.get(medians.len() / 2).map(|ns| *ns as f64)
}

/// Returns the point with the write cache on, and the point with the cache off. None if only one
/// state was measured.
fn both<'a>(
    evidence: &'a Evidence,
    part: &str,
    bs: &str,
    depth: &str,
) -> Option<[&'a MeasuredPoint; 2]> {
    let found = at(evidence, part, bs, depth)?;
    let switched = at(evidence, &format!("{part}{SWITCHED}"), bs, depth)?;
    match word(evidence, "drive-cache")? {
        BACK => Some([found, switched]),
        _ => Some([switched, found]),
    }
}

fn gain(found: &mut Conclusion, evidence: &Evidence) {
    for (part, bs, depth) in [("plain", "4k", "1"), ("plain", "64k", "1"), ("buffered", "64k", "1")]
    {
        let Some([on, off]) = both(evidence, part, bs, depth) else { continue };
        let times = on.rate() / off.rate().max(1.0);
        let (size, rates) = (units::size(on.bytes()), (on.rate(), off.rate()));
        let text = format!(
            "{part} writes of {size}: {} with the cache, {} without; rate with the cache compared \
             with the rate without: {}",
            units::rate(rates.0),
            units::rate(rates.1),
            curve::compare(on, off).words()
        );
        if curve::differ(on, off) {
            let setting = format!("{part} writes of {size}");
            found.advise("write-cache", times, &setting, text.clone());
        }
        found.find("gain", text);
    }
}

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    let times = |part: &str, bs: &str| {
        let [on, off] = both(evidence, part, bs, "1")?;
        Some(on.rate() / off.rate().max(1.0))
    };
    let what = "4 KiB direct writes, write cache on compared with off";
    found.gain("R065", times("plain", "4k"), what);
    for id in ["R030", "R041", "R066"] {
        let what = "64 KiB buffered writes, write cache on compared with off";
        found.gain(id, times("buffered", "64k"), what);
    }
    // These claims say that queue depth can replace the cache. Therefore depth 3 without the cache
    // is compared with depth 1 with the cache.
    for (id, bs) in [("R081", "16k"), ("C084", "32k")] {
        let points = both(evidence, "plain", bs, "1").zip(both(evidence, "plain", bs, "3"));
        found.claim_if(
            id,
            points.map(|([on, _], [_, deep])| {
                let share = deep.rate() / on.rate().max(1.0);
                let text = format!(
                    "without the cache at depth 3, the rate is {:.0}% of the rate with the cache \
                     at depth 1",
                    100.0 * share
                );
                (share >= 0.9, text)
            }),
        );
    }
    if let Some(why) = word(evidence, "not-switched") {
        let silent: Vec<&'static str> = STUDY
            .claims
            .iter()
            .filter(|id| found.claims.iter().all(|tried| tried.id != **id))
            .copied()
            .collect();
        found.cannot(&silent, &format!("the claim needs both states of the cache: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};

    fn said(evidence: &mut Evidence, quantity: &str, words: &str) {
        evidence.note(quantity, "words", &[("is", words.to_owned())], 1.0);
    }

    fn write(part: &str, bs: &str, depth: &str, rate: u64) -> MeasuredPoint {
        cell(rate, &[("part", part), ("rw", "write"), ("bs", bs), ("iodepth", depth)])
    }

    fn text<'a>(found: &'a Conclusion, id: &str) -> &'a str {
        &found.findings.iter().find(|finding| finding.id == id).unwrap().headline
    }

    #[test]
    fn the_gain_does_not_depend_on_the_initial_state() {
        for (state, found_rate, switched_rate) in
            [(BACK, 100 << 20, 10 << 20), (THROUGH, 10 << 20, 100 << 20)]
        {
            let mut evidence = evidence(vec![
                write("plain", "4k", "1", found_rate),
                write("plain, cache switched", "4k", "1", switched_rate),
            ]);
            said(&mut evidence, "drive-cache", state);
            let found = analyse(&evidence);
            let claim = found.claims.iter().find(|claim| claim.id == "R065").unwrap();
            assert_eq!(claim.verdict, Verdict::Holds, "{claim:?}");
            assert!(text(&found, "gain").ends_with("10 times"), "{found:?}");
            assert_eq!(found.advice[0].id, "write-cache");
        }
    }

    #[test]
    fn the_reason_for_not_switching_is_a_finding_and_decides_the_claims() {
        let mut evidence = evidence(vec![write("plain", "4k", "1", 1 << 20)]);
        said(&mut evidence, "not-switched", "the host does not offer it; switch it there");
        let found = analyse(&evidence);
        assert!(text(&found, "not-switched").contains("the host does not offer it"));
        assert_eq!(found.claims.len(), STUDY.claims.len());
        let cannot = |claim: &crate::conclusion::ClaimResult| {
            claim.verdict == Verdict::CannotBeTried && claim.here.contains("the host does not")
        };
        assert!(found.claims.iter().all(cannot));
    }

    #[test]
    fn the_risk_of_loss_follows_from_the_states_of_drive_and_kernel() {
        for (drive, kernel, words) in [
            (Some(BACK), BACK, "can be lost until it is flushed"),
            (Some(BACK), THROUGH, "even after fsync"),
            (Some(THROUGH), THROUGH, "is on the medium"),
            (None, BACK, "safe only after fsync"),
            (None, THROUGH, "is unknown"),
        ] {
            let mut evidence = evidence(vec![write("plain", "4k", "1", 1 << 20)]);
            drive.into_iter().for_each(|state| said(&mut evidence, "drive-cache", state));
            said(&mut evidence, "kernel-believes", kernel);
            assert!(text(&analyse(&evidence), "loss").contains(words), "{drive:?} {kernel}");
        }
    }
}
