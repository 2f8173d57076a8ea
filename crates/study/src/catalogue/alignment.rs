//! Study `alignment`: the cost of requests that are not aligned to a sector, a page, a stripe
//! chunk, or another granule of the storage.
//!
//! Large requests are shifted from an aligned offset by powers of two. The granule is the smallest
//! shift at which requests take no longer than unshifted requests, although they take longer at all
//! smaller shifts. The study also measures small requests, and the case of the papers: 64 KiB
//! requests that start 12 KiB after a chunk boundary.
//!
//! Partitions and file placement can shift requests too. The study reads both shifts from the
//! operating system. On a test file, it measures the units in which the file system allocates and
//! frees space. It discards nothing on any device.

use analysis::units;
use std::path::Path;

use ioengine::allocation::{self, Units};
use ioengine::{Caching, HostTarget, Target};
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::{Failure, Outcome};
use lab::point::Trial;
use lab::scratch::Scratch;

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::curve::{self, Comparison};
use crate::runner::StudyRunner;
use crate::target::StudyTarget;

pub const STUDY: Study = Study {
    name: "alignment",
    papers: "Riedel 1997, section 5.5 and Figure 13: 64 KB requests that start 12 KB after a \
             chunk boundary lose 15% to 20% of the throughput, because each is split into two; \
             the allocation unit of the file system is 512 B to 4 KiB by default and up to 64 KiB \
             with an option (format /a:64k)",
    needs: "",
    plan: include_str!("../../plans/alignment.toml"),
    claims: &["R155", "R161", "R162", "R158", "R159"],
    rules: &["align"],
    measure: Some(measure),
    analyse,
};

/// A shifted request has a cost if it takes longer than an unshifted request by at least this
/// share.
const COST_MIN: f64 = 0.03;

/// Allocation unit that the papers recommend (bytes). It is as large as the chunk of a stripe.
const PAPERS_UNIT: u64 = 64 << 10;

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    for study_target in runner.study_targets {
        let name = study_target.name.display().to_string();
        if !study_target.is_real() {
            runner.leave_out(
                "position on the disk",
                &format!(
                    "{name} is not on a device of this host; specify a file, device or directory"
                ),
            );
            continue;
        }
        place(runner, &name, &study_target.open()?);
        match study_target.folder() {
            Some(folder) => allocation(runner, &name, folder),
            None => runner.leave_out("allocation unit", &no_file_of_its_own(study_target, &name)),
        }
    }
    runner.measure()
}

fn no_file_of_its_own(study_target: &StudyTarget, name: &str) -> String {
    let folder = study_target.path().parent().filter(|_| study_target.path().is_file());
    let folder = folder.map_or_else(|| "on a file system".into(), |one| one.display().to_string());
    format!(
        "the study needs a separate test file, so {name} is unsuitable; use a directory ({folder})"
    )
}

/// Records the position of a target on its disk, and the discard and alignment properties that the
/// device reports.
fn place(runner: &mut StudyRunner<'_>, name: &str, target: &HostTarget) {
    let beneath = || ioengine::host::device_of(target.path());
    let Some(device) = target.block_device().cloned().or_else(beneath) else {
        let reason =
            format!("the system reports no device below {name}; specify a file on a local disk");
        runner.leave_out("position on the disk", &reason);
        return;
    };
    let whole = device.whole().unwrap_or_else(|| device.clone());
    let labels = |of: &str| [("target", name.to_owned()), ("device", of.to_owned())];
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
    let (disk, own) = (labels(&whole.name()), labels(&device.name()));
    for (quantity, file) in [
        ("discard-granularity", "queue/discard_granularity"),
        ("discard-max", "queue/discard_max_bytes"),
        ("discard-offset", "discard_alignment"),
        ("preferred-unit", "queue/minimum_io_size"),
        ("optimal-size", "queue/optimal_io_size"),
        ("block", "queue/logical_block_size"),
    ] {
        if let Some(bytes) = number(whole.text(file)) {
            runner.evidence.note(quantity, "bytes", &disk, bytes as f64);
        }
    }
    if let Some(bytes) = number(device.text("alignment_offset")) {
        runner.evidence.note("alignment-offset", "bytes", &own, bytes as f64);
    }
    if let Some(sector) = device.whole().and_then(|_| number(device.text("start"))) {
        runner.evidence.note("partition-start", "bytes", &own, (sector * 512) as f64);
    }
    if !target.kind().is_storage() || target.mount().is_none() {
        return;
    }
    match target.extents() {
        Ok(extents) => {
            if let Some(granule) = extents.granule_bytes() {
                let evidence = &mut runner.evidence;
                evidence.note("pieces", "pieces", &disk, extents.extents.len() as f64);
                evidence.note("placement", "bytes", &disk, granule as f64);
            }
        }
        Err(error) => runner.leave_out("position on the disk", &Failure::from(error).message),
    }
}

/// Records the units in which the file system of a directory allocates and frees space.
fn allocation(runner: &mut StudyRunner<'_>, name: &str, folder: &Path) {
    let units = match units_in(folder) {
        Ok(units) => units,
        Err(failure) => return runner.leave_out("allocation unit", &failure.message),
    };
    let labels = [("target", name.to_owned())];
    for (quantity, bytes) in [
        ("file-system-block", units.told_bytes),
        ("allocation-unit", units.given_bytes),
        ("hole-unit", units.taken_bytes),
    ] {
        match bytes {
            Some(bytes) => runner.evidence.note(quantity, "bytes", &labels, bytes as f64),
            None => runner.leave_out(
                &quantity.replace('-', " "),
                &format!(
                    "the unit size cannot be derived from the space that a file in {name} uses; \
                     use a directory on ext4, xfs, btrfs or tmpfs"
                ),
            ),
        }
    }
}

fn units_in(folder: &Path) -> Outcome<Units> {
    let scratch = Scratch::make(folder, allocation::NEEDS_BYTES)?;
    let failed = |error: std::io::Error| {
        let (folder, cause) = (folder.display(), ioengine::error::cause(&error));
        Failure::failed(format!("cannot use a file in {folder}: {cause}; use another directory"))
    };
    let target = scratch.open(true, Caching::Buffered)?;
    target.file().map_or(Ok(Units::default()), allocation::units_of).map_err(failed)
}

/// How the time of one kind of request depends on the shift.
#[derive(Debug, PartialEq)]
enum Granule {
    /// Requests are equally fast at every shift.
    None,
    /// Requests take up to `cost` longer (share of the time) unless their shift is a multiple of
    /// `bytes`.
    Found { bytes: u64, cost: f64 },
    /// Requests are slower at all measured shifts. `bytes` is the largest of these shifts.
    Beyond { bytes: u64, cost: f64 },
    /// Requests are slower at some shifts, but without a pattern.
    Unclear { cost: f64 },
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for part in ["large", "small", "page cache"] {
        for rw in ["read", "write", "randread", "randwrite"] {
            if let Some(granule) = granule(&shifts(evidence, part, rw)) {
                say(&mut found, part, rw, &granule);
            }
        }
    }
    for rw in ["read", "write"] {
        off_the_chunk(&mut found, evidence, rw);
    }
    reported(&mut found, evidence);
    partition(&mut found, evidence);
    placement(&mut found, evidence);
    space(&mut found, evidence);
    discard(&mut found, evidence);
    preferred(&mut found, evidence);
    claims(&mut found, evidence);
    found
}

/// Returns the points of one part of the plan with one value of `rw`, sorted by shift. The first
/// point is the one without a shift.
fn shifts<'a>(evidence: &'a Evidence, part: &str, rw: &str) -> Vec<&'a MeasuredPoint> {
    let mut points = evidence.all(&[("part", part), ("rw", rw)]);
    points.sort_by(|a, b| shift_of(a).total_cmp(&shift_of(b)));
    points
}

fn shift_of(point: &MeasuredPoint) -> f64 {
    point.number("offset").unwrap_or_default()
}

/// Returns the shortest and the longest time per request among the trials of a point (ns). The time
/// of a trial is its median latency or, without latencies, its mean time per request.
fn times_of(point: &MeasuredPoint) -> (f64, f64) {
    let time = |trial: &Trial| match trial.latency().quantile(0.5) {
        Some(ns) => ns as f64,
        None => point.bytes() as f64 * 1e9 / trial.bytes_per_s().max(1.0),
    };
    let times = point.point.unsoaked().into_iter().map(time);
    times.fold((f64::MAX, 0.0), |(low, high), ns| (low.min(ns), high.max(ns)))
}

/// Returns how much longer shifted requests take (share of the time of unshifted requests). `None`
/// unless all shifted trials are slower than all unshifted trials, by at least `COST_MIN`.
fn cost(point: &MeasuredPoint, plain: &MeasuredPoint) -> Option<f64> {
    let ((low, high), (_, plain_high)) = (times_of(point), times_of(plain));
    let (plain_low, _) = times_of(plain);
    let cost = (low + high) / (plain_low + plain_high) - 1.0;
    (low > plain_high && cost >= COST_MIN).then_some(cost)
}

fn granule(points: &[&MeasuredPoint]) -> Option<Granule> {
    let (plain, shifted) = points.split_first()?;
    if shift_of(plain) != 0.0 || shifted.is_empty() {
        return None;
    }
    let costs: Vec<Option<f64>> = shifted.iter().map(|point| cost(point, plain)).collect();
    let most = costs.iter().flatten().copied().fold(0.0, f64::max);
    let first_free = costs.iter().position(Option::is_none);
    let bytes = |index: usize| shift_of(shifted[index]) as u64;
    Some(match first_free {
        None => Granule::Beyond { bytes: bytes(shifted.len() - 1), cost: most },
        Some(free) if costs[free..].iter().any(Option::is_some) => Granule::Unclear { cost: most },
        Some(0) => Granule::None,
        Some(free) => Granule::Found { bytes: bytes(free), cost: most },
    })
}

fn say(found: &mut Conclusion, part: &str, rw: &str, granule: &Granule) {
    let requests = match part {
        "large" => format!("{rw}s of 1 MiB"),
        "page cache" => "buffered random writes of 4 KiB".to_owned(),
        _ => format!("{rw}s of 4 KiB"),
    };
    let percent = |cost: &f64| format!("{:.0}%", 100.0 * cost);
    match granule {
        Granule::None => {
            found.find(
                "aligned",
                format!("{requests}: misalignment has no measurable cost at any offset tested"),
            );
        }
        Granule::Found { bytes, cost } => {
            let (size, cost_words) = (units::size(*bytes), percent(cost));
            found.find(
                "granule",
                format!(
                    "{requests} should be aligned to a granule of {size}: misaligned requests \
                     take up to {cost_words} longer"
                ),
            );
            let evidence = format!("misaligned requests take up to {cost_words} longer");
            found.advise(
                "align",
                1.0 + cost,
                &format!("{requests}, to multiples of {size}"),
                evidence,
            );
        }
        Granule::Beyond { bytes, cost } => found.find(
            "granule-beyond",
            format!(
                "{requests} take longer at every tested offset (up to {}), so the granule is \
                 larger than the largest tested offset ({})",
                percent(cost),
                units::size(*bytes)
            ),
        ),
        Granule::Unclear { cost } => found.find(
            "granule-unclear",
            format!(
                "{requests} show no clear granule: they take up to {} longer at some offsets, but \
                 without a pattern",
                percent(cost)
            ),
        ),
    }
}

/// Adds a finding about the case of the papers: requests of 64 KiB that start 12 KiB after a chunk
/// boundary of a stripe.
fn off_the_chunk(found: &mut Conclusion, evidence: &Evidence, rw: &str) {
    let points = shifts(evidence, "chunk", rw);
    let [plain, shifted] = points[..] else { return };
    let (aligned, off) = (units::rate(plain.rate()), units::rate(shifted.rate()));
    let words = match curve::compare(shifted, plain) {
        Comparison::Times(times) => format!("{:+.0}%", 100.0 * (times - 1.0)),
        other => other.words(),
    };
    found.find(
        "chunk",
        format!(
            "{rw}s of 64 KiB at depth {}: {aligned} if aligned, {off} at an offset of 12 KiB \
             ({words})",
            plain.depth()
        ),
    );
}

/// Adds a finding about the block sizes that each device reports.
fn reported(found: &mut Conclusion, evidence: &Evidence) {
    for facts in &evidence.targets {
        let Some(device) = &facts.device else { continue };
        if device.logical_block_bytes.is_none() && device.physical_block_bytes.is_none() {
            continue;
        }
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), units::size);
        found.find(
            "reported",
            format!(
                "{} reports: logical block size {}, physical block size {}",
                device.name,
                size(device.logical_block_bytes),
                size(device.physical_block_bytes)
            ),
        );
    }
}

/// Returns the first reading of a quantity in bytes, and the device that the reading describes.
fn size_of<'a>(evidence: &'a Evidence, quantity: &str) -> Option<(u64, &'a str)> {
    let reading = evidence.read(quantity, &[]).into_iter().next()?;
    let device = reading.labels.get("device").map_or("", String::as_str);
    Some((reading.value as u64, device))
}

/// Adds a finding about whether a partition starts at a physical block boundary of its disk.
fn partition(found: &mut Conclusion, evidence: &Evidence) {
    let physical = evidence.device().and_then(|device| device.physical_block_bytes);
    let start = size_of(evidence, "partition-start");
    let off = size_of(evidence, "alignment-offset").filter(|(bytes, _)| *bytes > 0);
    let within = start.zip(physical).map(|((start, name), block)| (start % block.max(1), name));
    if let Some((off, name)) = off.or(within.filter(|(off, _)| *off > 0)) {
        found.find(
            "partition-off",
            format!(
                "{name} starts {} past a physical block boundary of its disk, so requests that are \
                 aligned in the partition are misaligned on the disk; recreate the partition with \
                 a start at a multiple of 1 MiB",
                units::size(off)
            ),
        );
        return;
    }
    if let (Some((start, name)), Some(block)) = (start, physical) {
        let (start, block) = (units::size(start), units::size(block));
        found.find(
            "partition",
            format!(
                "{name} begins at {start} on its disk, a multiple of the physical block size \
                 ({block})"
            ),
        );
    }
}

/// Adds a finding about whether requests that are aligned in the file are also aligned on the disk.
fn placement(found: &mut Conclusion, evidence: &Evidence) {
    let Some((granule, disk)) = size_of(evidence, "placement") else { return };
    let pieces = size_of(evidence, "pieces").map_or(0, |(pieces, _)| pieces);
    let lies = match pieces {
        1 => format!("the file lies on {disk} in one piece"),
        pieces => format!("the file lies on {disk} in {pieces} pieces"),
    };
    let size = units::size(granule.min(1 << 30));
    let text = if granule >= PAPERS_UNIT {
        format!(
            "{lies}: requests aligned to {size} or less in the file are also aligned on the disk"
        )
    } else {
        format!(
            "{lies} with an alignment of only {size}: a 64 KiB request that is aligned in the file \
             may span two 64 KiB chunks or blocks of the disk; to avoid this, use an allocation \
             unit of 64 KiB (mkfs.ext4 -O bigalloc -C 65536; xfs_io -c 'extsize 64k')"
        )
    };
    found.find("placement", text);
}

/// Adds findings about the units in which the file system allocates and frees space.
fn space(found: &mut Conclusion, evidence: &Evidence) {
    let size = |quantity| size_of(evidence, quantity).map(|(bytes, _)| bytes);
    if let Some(unit) = size("allocation-unit") {
        let reported = size("file-system-block").map_or_else(String::new, |reported| {
            if reported == unit {
                ", which is the block size that it reports".to_owned()
            } else {
                format!(", though it reports a block size of {}", units::size(reported))
            }
        });
        let words = units::size(unit);
        let advice = if unit >= PAPERS_UNIT {
            "each small file or scattered write occupies a whole unit"
        } else {
            "blocks written out of order may be scattered on the disk, so preallocate files"
        };
        found.find(
            "allocation-unit",
            format!(
                "the file system allocates space in units of {words}{reported} (measured by \
                 writing one byte into a hole); {advice}"
            ),
        );
        let here = format!("the file system allocates space in units of {words}");
        found.claim("R159", (512..=4096).contains(&unit), here);
    }
    if let Some(unit) = size("hole-unit") {
        let words = units::size(unit);
        found.find(
            "hole-unit",
            format!(
                "punching holes frees space in units of {words} (measured); align holes to \
                 {words}, because a partly punched unit stays allocated"
            ),
        );
    }
}

/// Adds a finding about the discard granularity that the device reports.
fn discard(found: &mut Conclusion, evidence: &Evidence) {
    let Some((granularity, device)) = size_of(evidence, "discard-granularity") else { return };
    let most = size_of(evidence, "discard-max").map_or(granularity, |(bytes, _)| bytes);
    if granularity == 0 || most == 0 {
        let text =
            format!("{device} does not support discard, so it never learns which space was freed");
        found.find("discard", text);
        return;
    }
    let size = units::size(granularity);
    let offset = size_of(evidence, "discard-offset").filter(|(offset, _)| *offset > 0);
    let offset = offset.map_or_else(String::new, |(bytes, _)| {
        format!(", counted from offset {}", units::size(bytes))
    });
    let unit = size_of(evidence, "allocation-unit").filter(|(unit, _)| *unit < granularity);
    let advice = unit.map_or_else(String::new, |(unit, _)| {
        format!(
            "; the file system frees units of {}, but the device ignores discards below its \
             granularity: use fstrim instead of mount -o discard",
            units::size(unit)
        )
    });
    found.find(
        "discard",
        format!("discard granularity: {size} (reported by {device}){offset}{advice}"),
    );
}

/// Adds a finding about the write sizes that a device prefers: NPWG and NOWS of an NVMe drive,
/// chunk and stripe of an array. Linux reports these sizes as minimum_io_size and optimal_io_size
/// (Documentation/ABI/stable/sysfs-block).
fn preferred(found: &mut Conclusion, evidence: &Evidence) {
    let Some((unit, device)) = size_of(evidence, "preferred-unit") else { return };
    let block = size_of(evidence, "block").map_or(0, |(bytes, _)| bytes);
    let optimal = size_of(evidence, "optimal-size").filter(|(bytes, _)| *bytes > 0);
    if unit <= block && optimal.is_none() {
        return;
    }
    let optimal = optimal.map_or_else(String::new, |(bytes, _)| {
        format!(" and is fastest with writes of {}", units::size(bytes))
    });
    let unit = units::size(unit);
    let text = format!("{device} reports that it prefers writes in units of {unit}{optimal}");
    found.find("preferred-sizes", text);
}

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    let at = |rw: &str, offset: &str| {
        evidence.find(&[("part", "chunk"), ("rw", rw), ("offset", offset)])
    };
    for (id, rw) in [("R155", "read"), ("R161", "read"), ("R162", "write")] {
        let comparison = at(rw, "12k").zip(at(rw, "0")).map(|(off, on)| curve::compare(off, on));
        if let Some(why) = comparison.and_then(Comparison::noise) {
            found.cannot(&[id], &why);
        }
        let lost = comparison.and_then(Comparison::times).map(|times| 1.0 - times);
        let what = format!("rate lost by 64 KiB {rw}s that start 12 KiB after a chunk boundary");
        found.loss(id, lost, &what);
    }
    found.claim_if("R158", split(at("read", "12k"), at("read", "0")));
}

/// Returns whether a misaligned request becomes two device requests (1.5 or more on average). The
/// text contains the measured number of device requests per misaligned request.
fn split(off: Option<&MeasuredPoint>, on: Option<&MeasuredPoint>) -> Option<(bool, String)> {
    let (off, on) = (off?.device_request_bytes()?, on?.device_request_bytes()?);
    let times = on / off;
    Some((times >= 1.5, format!("{times:.2} device requests for each misaligned request")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};
    use lab::machine::{DeviceFacts, TargetFacts};

    /// Returns evidence of writes at these shifts. `times` maps a shift to the time of a write, as
    /// a multiple of the time of an unshifted write.
    fn scan(part: &str, shifts: &[u64], times: impl Fn(u64) -> f64) -> Evidence {
        let at = |shift: &u64| {
            let offset = shift.to_string();
            let rate = (1e9 / times(*shift)) as u64;
            cell(rate, &[("part", part), ("rw", "write"), ("bs", "1m"), ("offset", &offset)])
        };
        evidence(shifts.iter().map(at).collect())
    }

    const SHIFTS: [u64; 8] = [0, 512, 1024, 2048, 4096, 8192, 16384, 32768];

    fn granule_of(evidence: &Evidence) -> Granule {
        granule(&shifts(evidence, "large", "write")).unwrap()
    }

    #[test]
    fn a_granule_is_the_smallest_shift_that_costs_nothing() {
        for bytes in [1024_u64, 4096, 16384] {
            let at = |shift: u64| if shift.is_multiple_of(bytes) { 1.0 } else { 1.4 };
            let Granule::Found { bytes: found, cost } = granule_of(&scan("large", &SHIFTS, at))
            else {
                panic!("{bytes}");
            };
            assert!(found == bytes && (cost - 0.4).abs() < 0.01, "{found} {cost}");
        }
    }

    #[test]
    fn the_papers_case_off_the_chunk_is_reported() {
        let evidence = scan("chunk", &[0, 12288], |shift| if shift == 0 { 1.0 } else { 1.25 });
        let found = analyse(&evidence);
        let text = &found.findings.iter().find(|found| found.id == "chunk").unwrap().headline;
        assert!(text.ends_with("at an offset of 12 KiB (-20%)"), "{text}");
    }

    #[test]
    fn equal_costs_have_no_granule_and_disorder_is_unclear() {
        assert_eq!(granule_of(&scan("large", &SHIFTS, |_| 1.0)), Granule::None);
        let off = |shift: u64| if shift == 0 { 1.0 } else { 1.5 };
        assert!(matches!(granule_of(&scan("large", &SHIFTS, off)), Granule::Beyond { .. }));
        let wild = |shift: u64| if shift == 4096 { 1.5 } else { 1.0 };
        assert!(matches!(granule_of(&scan("large", &SHIFTS, wild)), Granule::Unclear { .. }));
    }

    #[test]
    fn a_loss_hidden_by_noise_is_not_testable() {
        let chunk = |rw: &str, offset: &str, rate| {
            cell(rate, &[("part", "chunk"), ("rw", rw), ("bs", "64k"), ("offset", offset)])
        };
        let mut points = vec![
            chunk("read", "0", 1000),
            chunk("read", "12k", 800),
            chunk("write", "0", 1000),
            chunk("write", "12k", 800),
        ];
        points[3].summary.bytes_per_s.high = 1200.0;
        let found = analyse(&evidence(points));
        let verdicts: Vec<_> = found.claims.iter().map(|one| (one.id, one.verdict)).collect();
        assert!(verdicts.contains(&("R155", Verdict::Holds)), "{verdicts:?}");
        assert!(verdicts.contains(&("R162", Verdict::CannotBeTried)), "{verdicts:?}");
    }

    /// Returns evidence of these sizes on a device with physical blocks of 4 KiB.
    fn sizes(sizes: &[(&str, u64)]) -> Evidence {
        let mut evidence = Evidence::default();
        for (quantity, bytes) in sizes {
            let labels = [("target", "t".to_owned()), ("device", "sda1".to_owned())];
            evidence.note(quantity, "bytes", &labels, *bytes as f64);
        }
        let device = DeviceFacts { physical_block_bytes: Some(4096), ..DeviceFacts::default() };
        evidence.targets.push(TargetFacts { device: Some(device), ..TargetFacts::default() });
        evidence
    }

    fn text_of(evidence: &Evidence, id: &str) -> String {
        let found = analyse(evidence);
        let finding = found.findings.iter().find(|finding| finding.id == id);
        finding.map_or_else(|| panic!("{:?}", found.findings), |finding| finding.headline.clone())
    }

    #[test]
    fn a_partition_off_the_physical_blocks_should_be_recreated() {
        let off = text_of(&sizes(&[("partition-start", 63 * 512)]), "partition-off");
        assert!(off.contains("3.5 KiB past") && off.contains("recreate the partition"), "{off}");
        let said = sizes(&[("partition-start", 1 << 20), ("alignment-offset", 512)]);
        assert!(text_of(&said, "partition-off").contains("512 B past"));
        let well = text_of(&sizes(&[("partition-start", 1 << 20)]), "partition");
        assert!(well.contains("1 MiB") && well.contains("4 KiB"), "{well}");
    }

    #[test]
    fn a_file_is_aligned_as_far_as_its_pieces_are() {
        let placed =
            |granule| text_of(&sizes(&[("pieces", 3), ("placement", granule)]), "placement");
        assert!(placed(4096).contains("in 3 pieces with an alignment of only 4 KiB"));
        assert!(placed(1 << 20).contains("aligned to 1 MiB or less in the file"));
    }

    #[test]
    fn the_allocation_unit_is_compared_with_the_reported_block_size() {
        let unit = |unit, block| sizes(&[("allocation-unit", unit), ("file-system-block", block)]);
        assert!(
            text_of(&unit(4096, 4096), "allocation-unit")
                .contains("4 KiB, which is the block size that it reports")
        );
        let large = text_of(&unit(65536, 4096), "allocation-unit");
        assert!(large.contains("64 KiB, though it reports a block size of 4 KiB"), "{large}");
        let verdict = |evidence: &Evidence| analyse(evidence).claims[0].verdict;
        assert_eq!(verdict(&unit(4096, 4096)), Verdict::Holds);
        assert_eq!(verdict(&unit(65536, 4096)), Verdict::DoesNotHold);
    }

    #[test]
    fn fstrim_is_advised_if_units_are_below_the_discard_granularity() {
        let large = [("discard-granularity", 1 << 20), ("allocation-unit", 4096)];
        assert!(text_of(&sizes(&large), "discard").contains("fstrim"));
        let small = text_of(&sizes(&[("discard-granularity", 4096)]), "discard");
        assert_eq!(small, "discard granularity: 4 KiB (reported by sda1)");
        assert!(
            text_of(&sizes(&[("discard-granularity", 0)]), "discard").contains("does not support")
        );
    }

    #[test]
    fn sizes_that_the_device_prefers_are_named_if_they_are_more_than_a_block() {
        let array = [("preferred-unit", 65536), ("optimal-size", 131_072), ("block", 512)];
        assert_eq!(
            text_of(&sizes(&array), "preferred-sizes"),
            "sda1 reports that it prefers writes in units of 64 KiB and is fastest with writes of \
             128 KiB"
        );
        let plain = sizes(&[("preferred-unit", 512), ("optimal-size", 0), ("block", 512)]);
        assert!(analyse(&plain).findings.iter().all(|finding| finding.id != "preferred-sizes"));
    }

    #[test]
    fn a_granule_is_advised_with_its_cost() {
        let at = |shift: u64| if shift.is_multiple_of(4096) { 1.0 } else { 2.0 };
        let found = analyse(&scan("large", &SHIFTS, at));
        assert!(found.findings[0].headline.contains("granule of 4 KiB"), "{:?}", found.findings);
        assert_eq!(found.advice[0].id, "align");
    }
}
