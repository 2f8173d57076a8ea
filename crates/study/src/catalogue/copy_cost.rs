//! Study `copy-cost`: the cost of reading the same bytes through different paths. The paths are the
//! file itself, a bind mount of its directory, a loop device on the file, FUSE, and further targets
//! such as a network mount. The page cache and a memory copy are measured as well.
//!
//! The study does not write to the targets. The bind mount and the loop device disappear when the
//! process ends (`ioengine::layer`). A second process serves a file in memory over FUSE, and ends
//! together with this process (`lab::fuse_server`). Reads of this file need no storage, so their
//! latency is the overhead of FUSE.

use analysis::units;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ioengine::error::cause;
use ioengine::layer::{BindMount, LoopDevice};
use ioengine::mount;
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use lab::fuse_server::Served;
use report::model::{Cell as TableCell, Column, Table};
use report::units::Unit;
use survey::memory;

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::curve::{self, Comparison};
use crate::runner::StudyRunner;
use crate::target::{Kind, StudyTarget};

pub const STUDY: Study = Study {
    name: "copy-cost",
    papers: "Chung 2000, section 9: reading a file on a network share costs up to ten times the \
             CPU of reading a local file, and more with a drive letter than with a UNC name",
    needs: "root for the bind mount, the loop device and FUSE; a network mount as a second target",
    plan: include_str!("../../plans/copy-cost.toml"),
    claims: &[
        "C027", "C028", "C248", "C249", "C250", "C251", "C252", "C253", "C254", "C255", "C256",
        "C257", "C258", "C259", "C260", "C261", "C262", "C279", "C280",
    ],
    rules: &["mapped-share"],
    measure: Some(measure),
    analyse,
};

/// The part of the plan that reads the file itself. Its flags also apply to reads through the
/// layers.
const LOCAL: &str = "local";
/// The part of the plan that reads the file from the page cache.
const CACHED: &str = "page cache";
/// Name of the layer that serves a file in memory over FUSE.
const FUSE: &str = "FUSE alone";
/// Size of the file that is served over FUSE (bytes).
const FUSE_BYTES: u64 = 64 << 20;
/// Reason why claims about network shares are not testable.
const NO_SHARE: &str = "the claim compares a network share with a local file; specify a local \
                        directory and a mounted share (NFS, SMB) as two targets";

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let (study_targets, groups) = (runner.study_targets, runner.groups()?);
    if study_targets.is_empty() || !study_targets.iter().all(StudyTarget::is_real) {
        let reason = "a simulated system, a reference device or a network address has only one \
                      path to its bytes; specify several targets, such as sim:w2k-atlas10k \
                      sim:w2k-cifs-gigabit";
        runner.leave_out("layers", reason);
        return runner.measure();
    }
    let mut ready = Vec::new();
    for group in &groups {
        runner.prepare(group, study_targets, &mut ready)?;
    }
    let layers = layers(runner, study_targets[0].path());
    for layer in &layers {
        for group in groups.iter().filter(|group| group.part == LOCAL) {
            let mut group = group.clone();
            layer.name().clone_into(&mut group.part);
            let study_target = StudyTarget { name: layer.path.clone(), kind: Kind::Existing };
            runner.prepare(&group, &[study_target], &mut ready)?;
        }
    }
    let measured = if ready.is_empty() { Ok(()) } else { runner.run(&ready) };
    // Open files keep a layer busy, so they must be closed before the layer is removed.
    drop(ready);
    drop(layers);
    measured?;
    if !runner.evidence.targets.iter().any(|target| is_network(target.file_system.as_deref())) {
        runner.leave_out("network", NO_SHARE);
    }
    if let Some(rate) = memory::copy_bytes_per_s(runner.lab.clock) {
        runner.evidence.note("memory-copy", "bytes/s", &[], rate);
    }
    Ok(())
}

/// Checks whether a file system is a network file system, for example NFS or SMB.
pub fn is_network(file_system: Option<&str>) -> bool {
    file_system.is_some_and(mount::is_network)
}

/// A layer, such as a loop device, through which a file can be read. Dropping `held` removes the
/// layer.
struct Layer {
    path: PathBuf,
    held: Held,
}

enum Held {
    Bind(#[expect(dead_code, reason = "the mount is removed on drop")] BindMount),
    Loop(#[expect(dead_code, reason = "the device is removed on drop")] LoopDevice),
    Fuse(#[expect(dead_code, reason = "the mount is removed on drop")] Box<Served>),
}

impl Layer {
    fn name(&self) -> &'static str {
        match self.held {
            Held::Bind(_) => "bind mount",
            Held::Loop(_) => "loop device",
            Held::Fuse(_) => FUSE,
        }
    }
}

/// Creates a bind mount, a loop device and a FUSE mount. If a layer cannot be created, the layer is
/// left out, and the reason is recorded.
fn layers(runner: &mut StudyRunner<'_>, file: &Path) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (name, made) in
        [("bind mount", bind(file)), ("loop device", over(file)), (FUSE, fuse(runner))]
    {
        match made {
            Ok(layer) => layers.push(layer),
            Err(reason) => runner.leave_out(name, &reason),
        }
    }
    layers
}

fn bind(file: &Path) -> Result<Layer, String> {
    let not_a_file = || "only a file can be read through a bind mount; specify a file".to_owned();
    let real = file.canonicalize().map_err(|_| not_a_file())?;
    if !real.is_file() {
        return Err(not_a_file());
    }
    let folder = real.parent().ok_or_else(not_a_file)?;
    let name = real.file_name().and_then(|name| name.to_str()).ok_or_else(not_a_file)?;
    let mount = BindMount::of(folder)
        .map_err(|error| format!("cannot create a bind mount: {}; run as root", cause(&error)))?;
    Ok(Layer { path: mount.path(name), held: Held::Bind(mount) })
}

fn over(file: &Path) -> Result<Layer, String> {
    let device = File::open(file).and_then(|file| LoopDevice::over(&file)).map_err(|error| {
        format!(
            "cannot create a loop device: {}; run as root, and load the kernel module loop",
            cause(&error)
        )
    })?;
    Ok(Layer { path: device.path().to_path_buf(), held: Held::Loop(device) })
}

/// Creates a layer that serves a file over FUSE from the memory of another process.
fn fuse(runner: &StudyRunner<'_>) -> Result<Layer, String> {
    let failed = |cause: String| format!("cannot use FUSE: {cause}; run as root, or install fuse3");
    runner.lab.console.say("mounting an in-memory file over FUSE; it is unmounted afterwards");
    let served = Served::start("", FUSE_BYTES).map_err(|failure| failed(failure.message))?;
    let path = served.path().to_path_buf();
    let filled = File::options()
        .write(true)
        .open(&path)
        .and_then(|file| file.write_all_at(&vec![0x5a; FUSE_BYTES as usize], 0));
    filled.map_err(|error| failed(cause(&error)))?;
    Ok(Layer { path, held: Held::Fuse(Box::new(served)) })
}

/// The points of one path to the data: direct access, or access through a layer.
struct AccessPath<'a> {
    name: String,
    is_network: bool,
    points: Vec<&'a MeasuredPoint>,
}

impl<'a> AccessPath<'a> {
    fn at(&self, bytes: u64) -> Option<&'a MeasuredPoint> {
        self.points.iter().find(|point| point.bytes() == bytes).copied()
    }
}

/// Groups the points by path. Returns the direct path to the first target, and all other paths.
fn access_paths(evidence: &Evidence) -> Option<(AccessPath<'_>, Vec<AccessPath<'_>>)> {
    let mut paths: Vec<AccessPath<'_>> = Vec::new();
    for point in evidence.usable().filter(|point| point.part != CACHED) {
        let name = match (point.target_index, point.part.as_str()) {
            (0, part) => part.to_owned(),
            _ => point.target.clone(),
        };
        match paths.iter_mut().find(|path| path.name == name) {
            Some(path) => path.points.push(point),
            None => {
                let target = evidence.targets.get(point.target_index);
                let system = target.and_then(|target| target.file_system.as_deref());
                paths.push(AccessPath {
                    name,
                    is_network: is_network(system),
                    points: vec![point],
                });
            }
        }
    }
    let local = paths.iter().position(|path| path.name == LOCAL)?;
    Some((paths.remove(local), paths))
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    if let Some((local, others)) = access_paths(evidence) {
        others.iter().for_each(|path| layer(&mut found, &local, path));
        advise(&mut found, &local, &others);
        copies(&mut found, evidence, &local);
        found.tables.extend(table(&local, &others));
        share_claims(&mut found, &local, &others);
    }
    found.complete(STUDY.claims, NO_SHARE);
    found
}

/// Returns the mean time per request (ns). The point must have depth 1.
fn each_ns(point: &MeasuredPoint) -> f64 {
    1e9 / point.requests_per_s().max(1e-9)
}

fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "-" } else { "+" }, units::time(ns.abs()))
}

/// Reports how much time a layer adds to the smallest and to the largest requests.
fn layer(found: &mut Conclusion, local: &AccessPath<'_>, path: &AccessPath<'_>) {
    let shared = || local.points.iter().filter_map(|point| Some((*point, path.at(point.bytes())?)));
    let (Some(small), Some(large)) =
        (shared().min_by_key(|pair| pair.0.bytes()), shared().max_by_key(|pair| pair.0.bytes()))
    else {
        return;
    };
    let cpu = |(plain, layered): (&MeasuredPoint, &MeasuredPoint)| {
        let more = layered.cpu_ns().zip(plain.cpu_ns()).map(|(with, without)| with - without);
        more.map(|ns| format!(", CPU {}", signed(ns))).unwrap_or_default()
    };
    let words = |pair: (&MeasuredPoint, &MeasuredPoint)| {
        let size = units::size(pair.0.bytes());
        if path.name == FUSE {
            return format!("{} for {size}", units::time(each_ns(pair.1)));
        }
        // The depth is 1, so a comparison of rates is also a comparison of latencies.
        match curve::compare(pair.1, pair.0) {
            Comparison::Times(_) => {
                let more = signed(each_ns(pair.1) - each_ns(pair.0));
                format!("{more} for {size} (total {}{})", units::time(each_ns(pair.1)), cpu(pair))
            }
            alike => format!("{} for {size}", alike.words()),
        }
    };
    let lead = if path.name == FUSE {
        "FUSE overhead per request, measured on a file in memory".to_owned()
    } else {
        format!("{} compared with the file itself", path.name)
    };
    found.find("layer", format!("{lead}: {}, {}", words(small), words(large)));
}

/// Advises to avoid the path whose small reads are the slowest.
fn advise(found: &mut Conclusion, local: &AccessPath<'_>, others: &[AccessPath<'_>]) {
    let loss = |path: &AccessPath<'_>| {
        let plain = local.points.iter().min_by_key(|point| point.bytes())?;
        let layered = path.at(plain.bytes()).filter(|point| curve::differ(plain, point))?;
        Some((plain.requests_per_s() / layered.requests_per_s(), plain.bytes(), path.name.clone()))
    };
    // FUSE was measured on a file in memory, so its rate says nothing about this file.
    let losses = others.iter().filter(|path| path.name != FUSE).filter_map(loss);
    let Some((gain, bytes, name)) = losses.max_by(|a, b| a.0.total_cmp(&b.0)) else { return };
    let times = words_of_times(gain);
    let size = units::size(bytes);
    let evidence = format!("{size} reads of the file are {times} as fast as through the {name}");
    found.advise("mapped-share", gain, &format!("the file itself, not the {name}"), evidence);
}

/// Compares reads from the page cache with a memory copy and with direct reads.
fn copies(found: &mut Conclusion, evidence: &Evidence, local: &AccessPath<'_>) {
    let cached = evidence.all(&[("part", CACHED)]);
    let mut cached = cached.into_iter().filter(|point| point.target_index == 0);
    let large = 1 << 20;
    let Some(point) = cached.find(|point| point.bytes() == large) else { return };
    let copy = evidence.value("memory-copy", &[]);
    let memory = copy.map(|rate| {
        let share = 100.0 * point.rate() / rate;
        format!(
            ", {share:.0}% of the rate of a memory copy that does not fit the CPU caches ({})",
            units::rate_mib(rate)
        )
    });
    let device = local.at(large).map(|local| {
        let times = words_of_times(point.rate() / local.rate().max(1.0));
        format!("; this is {times} the rate of direct reads at depth 1")
    });
    found.find(
        "copies",
        format!(
            "1 MiB reads from the page cache: {}{}{}",
            units::rate_mib(point.rate()),
            memory.unwrap_or_default(),
            device.unwrap_or_default()
        ),
    );
}

/// Judges the claims about network shares, if one of the targets is on a network file system.
fn share_claims(found: &mut Conclusion, local: &AccessPath<'_>, others: &[AccessPath<'_>]) {
    let Some(share) = others.iter().find(|path| path.is_network) else { return };
    let large =
        local.points.iter().rev().find_map(|point| Some((*point, share.at(point.bytes())?)));
    found.value_if(
        "C254",
        large.and_then(|(plain, shared)| Some(shared.cpu_ns()? / plain.cpu_ns()?)).map(|times| {
            let words = words_of_times(times);
            (times, format!("a read of the share uses {words} the CPU time of a local read"))
        }),
    );
}

/// Builds a table with a row for every path and size.
fn table(local: &AccessPath<'_>, others: &[AccessPath<'_>]) -> Option<Table> {
    let mut rows = Vec::new();
    for path in std::iter::once(local).chain(others) {
        for point in &path.points {
            let plain = local.at(point.bytes());
            let added = plain.map(|plain| each_ns(point) - each_ns(plain));
            let cpu = plain.and_then(|plain| Some(point.cpu_ns()? - plain.cpu_ns()?));
            rows.push(vec![
                TableCell::Text(path.name.clone()),
                TableCell::Number(point.bytes() as f64),
                TableCell::Number(point.rate()),
                TableCell::Number(each_ns(point)),
                added.into(),
                point.cpu_ns().into(),
                cpu.into(),
            ]);
        }
    }
    let column = |(label, unit): (&str, Option<Unit>)| Column { label: label.to_owned(), unit };
    (!others.is_empty()).then(|| Table {
        id: "copy-cost-paths".to_owned(),
        caption: "Reads of the same bytes through each path, at depth 1".to_owned(),
        columns: [
            ("Path", None),
            ("Request size", Some(Unit::Bytes)),
            ("Throughput", Some(Unit::BytesPerSecond)),
            ("Time per request", Some(Unit::Nanoseconds)),
            ("Added time", Some(Unit::Nanoseconds)),
            ("CPU per request", Some(Unit::Nanoseconds)),
            ("Added CPU per request", Some(Unit::Nanoseconds)),
        ]
        .map(column)
        .into(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};
    use lab::machine::TargetFacts;

    /// Returns a point of 4 KiB reads through a path, at this many requests per second.
    fn reads_by(part: &str, requests: u64) -> MeasuredPoint {
        cell(requests * 4096, &[("part", part), ("rw", "randread"), ("bs", "4k")])
    }

    fn layers(found: &Conclusion) -> Vec<&str> {
        let layers = found.findings.iter().filter(|finding| finding.id == "layer");
        layers.map(|finding| finding.headline.as_str()).collect()
    }

    #[test]
    fn the_cost_of_a_layer_is_reported_unless_it_is_noise() {
        let found = analyse(&evidence(vec![
            reads_by("local", 10_000),
            reads_by("bind mount", 10_000),
            reads_by("loop device", 5_000),
        ]));
        let layers = layers(&found);
        assert!(layers[0].contains("bind mount") && layers[0].contains("the same within 10%"));
        assert!(layers[1].contains("loop device compared with the file itself: +100 us for 4 KiB"));
        assert_eq!(found.advice[0].id, "mapped-share");
        assert!(found.advice[0].text.ends_with("the file itself, not the loop device"));
        assert!(found.claims.iter().all(|claim| claim.verdict == Verdict::CannotBeTried));
    }

    #[test]
    fn fuse_is_never_compared_with_the_file() {
        let found = analyse(&evidence(vec![reads_by("local", 10_000), reads_by(FUSE, 20_000)]));
        assert!(layers(&found)[0].contains("50 us for 4 KiB"), "{:?}", layers(&found));
        assert!(found.advice.is_empty());
    }

    #[test]
    fn a_network_share_decides_the_claim_about_its_cpu() {
        let costing = |mut point: MeasuredPoint, ns: u64| {
            let requests = point.requests_per_s() as u64;
            point.point.trials.iter_mut().for_each(|trial| trial.cpu.process_ns = ns * requests);
            point.summary = point.point.summary();
            point
        };
        let mut share = costing(reads_by("local", 1_000), 60_000);
        (share.target, share.target_index) = ("/mnt/share".to_owned(), 1);
        let nfs = TargetFacts { file_system: Some("nfs4".to_owned()), ..TargetFacts::default() };
        let found = analyse(&Evidence {
            targets: vec![TargetFacts::default(), nfs],
            ..evidence(vec![costing(reads_by("local", 10_000), 10_000), share])
        });
        let claim = found.claims.iter().find(|claim| claim.id == "C254").unwrap();
        assert_eq!(claim.verdict, Verdict::Holds, "{}", claim.here);
        assert!(claim.here.contains("6.00 times"), "{}", claim.here);
    }
}
