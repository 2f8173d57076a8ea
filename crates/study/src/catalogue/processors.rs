//! Study `processors`: the gain from more CPUs, the effect of pinning threads, and the effect of
//! running on a CPU that serves the device's interrupts.
//!
//! The plan contains the workloads. The numbers of threads and the CPUs depend on the machine, so
//! this module adds them:
//!
//! - `free` and `cached` run with 1, 2, 4 ... threads.
//! - `pinned` runs with the same numbers of threads, each pinned to a different CPU.
//! - `near` runs on a CPU that serves the device's interrupts.
//! - `far` runs on a CPU that does not serve the device's interrupts.

use analysis::units;
use std::fs;
use std::path::Path;

use cpucost::affinity::allowed_cpus;
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::curve::{Comparison, compare};
use crate::plan::Group;
use crate::runner::StudyRunner;
use crate::target::StudyTarget;

pub const STUDY: Study = Study {
    name: "processors",
    papers: "Chung 2000, sections 3.4, 7.2 and 8: a second processor doubles the rate of cached \
             requests, but only one processor at a time completes the requests of an adapter",
    needs: "two CPUs",
    plan: include_str!("../../plans/processors.toml"),
    claims: &["C130", "C132"],
    rules: &[],
    measure: Some(measure),
    analyse,
};

/// The numbers of threads for simulated systems, which do not use the CPUs of this host.
const SIMULATED_THREADS: [usize; 3] = [1, 2, 4];
/// Rates that differ by less than this factor count as equal, even if the difference is not noise.
const WORTH: f64 = 1.05;
/// Why threads cannot be pinned to different CPUs.
const ONE_CPU: &str = "this process may use only one CPU; allow it more CPUs (taskset, cpuset)";

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let cpus = allowed_cpus();
    let simulated = runner.study_targets.iter().all(StudyTarget::is_simulated);
    let threads = if simulated { SIMULATED_THREADS.to_vec() } else { doublings(cpus.len()) };
    let sides = if simulated {
        Err("a simulated system does not use this host's CPUs; use a file or device".into())
    } else if cpus.len() < 2 {
        Err(ONE_CPU.to_owned())
    } else {
        sides(runner, &cpus)
    };
    let mut groups = Vec::new();
    for group in runner.groups()? {
        match group.part.as_str() {
            "pinned" if cpus.len() < 2 && !simulated => runner.leave_out("pinned", ONE_CPU),
            "pinned" => {
                groups.extend(threads.iter().map(|n| pinned(&with_threads(&group, *n), &cpus, *n)));
            }
            "near" | "far" => match &sides {
                Ok((near, far)) => {
                    let cpu = if group.part == "near" { near } else { far };
                    groups.push(pinned(&group, &[*cpu], 1));
                }
                Err(reason) => runner.leave_out(&group.part, reason),
            },
            _ => groups.extend(threads.iter().map(|n| with_threads(&group, *n))),
        }
    }
    runner.measure_groups(&groups)
}

/// Returns the powers of two below `cpus`, and `cpus` itself. For example, 6 CPUs give 1, 2, 4, 6.
fn doublings(cpus: usize) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|power| 1_usize << power);
    let mut counts: Vec<usize> = powers.take_while(|count| *count < cpus).collect();
    counts.push(cpus.max(1));
    counts
}

fn with_threads(group: &Group, threads: usize) -> Group {
    let mut group = group.clone();
    group.experiment.threads = vec![threads as u32];
    group
}

/// Returns a copy of the group with its threads pinned to the first `count` of the given CPUs.
fn pinned(group: &Group, cpus: &[usize], count: usize) -> Group {
    let cpus: Vec<usize> = cpus.iter().take(count).copied().collect();
    let names: Vec<String> = cpus.iter().map(usize::to_string).collect();
    let mut group = group.clone().note("cpus-allowed", names.join(","));
    group.experiment.cpus = cpus;
    group
}

/// Returns a CPU that serves interrupts of the first target's device and a CPU that does not. Also
/// records the number of CPUs that serve the device.
///
/// # Errors
/// If the target has no block device, the interrupts of the device are unknown, or there is no such
/// pair of CPUs. The message contains the reason.
fn sides(runner: &mut StudyRunner<'_>, cpus: &[usize]) -> Result<(usize, usize), String> {
    let device = runner.evidence.targets.first().and_then(|target| target.device.as_ref());
    let Some(device) = device.map(|device| device.name.clone()) else {
        return Err("the target has no block device; use a file on a block device".to_owned());
    };
    let serving = interrupt_cpus(&device)?;
    runner.evidence.note(
        "interrupt-cpus",
        "CPUs",
        &[("device", device.clone())],
        serving.len() as f64,
    );
    let near = cpus.iter().copied().find(|cpu| serving.contains(cpu));
    let far = cpus.iter().copied().find(|cpu| !serving.contains(cpu));
    match (near, far) {
        (Some(near), Some(far)) => Ok((near, far)),
        (Some(_), None) => Err(format!(
            "every CPU serves interrupts of {device}, so there is no CPU to compare with; \
             use a device with fewer queues than CPUs"
        )),
        (None, _) => Err(format!(
            "no CPU of this process serves interrupts of {device}; allow this process more CPUs \
             (taskset)"
        )),
    }
}

/// Returns the CPUs that serve the interrupts of a block device or of its controller.
fn interrupt_cpus(device: &str) -> Result<Vec<usize>, String> {
    let unknown = |what: &str| format!("{what}; use a file on a local disk");
    let table = fs::read_to_string("/proc/interrupts")
        .map_err(|error| unknown(&format!("cannot read /proc/interrupts: {error}")))?;
    let mut cpus = Vec::new();
    for disk in disks_beneath(device) {
        for interrupt in interrupts_of(&Path::new("/sys/class/block").join(disk), &table) {
            let file = |name: &str| fs::read_to_string(format!("/proc/irq/{interrupt}/{name}"));
            let list = file("effective_affinity_list")
                .ok()
                .filter(|list| !list.trim().is_empty())
                .or_else(|| file("smp_affinity_list").ok());
            cpus.extend(list.as_deref().map(cpu_list).unwrap_or_default());
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    if cpus.is_empty() {
        Err(unknown(&format!("found no interrupts of {device}")))
    } else {
        Ok(cpus)
    }
}

/// Returns the disks that store the data of a block device: the disk of a partition, the member
/// disks of a volume, or the device itself.
fn disks_beneath(device: &str) -> Vec<String> {
    let path = Path::new("/sys/class/block").join(device);
    if path.join("partition").exists() {
        let disk = path.canonicalize().ok().and_then(|path| Some(path.parent()?.to_path_buf()));
        let name = disk.and_then(|disk| Some(disk.file_name()?.to_str()?.to_owned()));
        return name.into_iter().collect();
    }
    let members = fs::read_dir(path.join("slaves")).into_iter().flatten().flatten();
    let members: Vec<String> =
        members.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    if members.is_empty() {
        vec![device.to_owned()]
    } else {
        members.iter().flat_map(|member| disks_beneath(member)).collect()
    }
}

/// Returns the interrupt numbers of a disk, or of its nearest parent device in sysfs that has
/// interrupts. `table` is the text of `/proc/interrupts`.
fn interrupts_of(disk: &Path, table: &str) -> Vec<u32> {
    let Ok(path) = disk.join("device").canonicalize() else { return Vec::new() };
    for above in path.ancestors() {
        let name = above.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let named = interrupts_named(name, table);
        if !named.is_empty() {
            return named;
        }
        let messages = fs::read_dir(above.join("msi_irqs")).into_iter().flatten().flatten();
        let messages: Vec<u32> =
            messages.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        if !messages.is_empty() {
            return messages;
        }
    }
    Vec::new()
}

/// Returns the interrupt numbers of a device's request queues in `/proc/interrupts`, for example
/// `virtio1-req.0` or `nvme0q3`. Skips the queues for configuration (`-config`) and administration
/// (`q0`).
fn interrupts_named(device: &str, table: &str) -> Vec<u32> {
    if device.is_empty() {
        return Vec::new();
    }
    let number = |line: &str| {
        let (number, rest) = line.trim_start().split_once(':')?;
        let action = rest.split_whitespace().last()?;
        let queue = action.strip_prefix(device)?;
        let is_queue = queue.is_empty() || queue.starts_with(['-', 'q']);
        let is_other = queue == "-config" || queue == "q0";
        number.parse().ok().filter(|_| is_queue && !is_other)
    };
    table.lines().filter_map(number).collect()
}

/// Parses a CPU list such as `0,2-4`.
fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for (part, what) in [("free", "unpinned"), ("pinned", "pinned"), ("cached", "cached data")] {
        scaling(&mut found, evidence, part, what);
    }
    pinning(&mut found, evidence);
    for depth in ["1", "16"] {
        interrupt(&mut found, evidence, depth);
    }
    claims(&mut found, evidence);
    found
}

/// Returns the points of a part of the plan, sorted by the number of threads.
fn curve<'a>(evidence: &'a Evidence, part: &str) -> Vec<&'a MeasuredPoint> {
    let mut points = evidence.all(&[("part", part)]);
    points.sort_by_key(|point| point.point.key.threads());
    points
}

/// Compares the rate of `other` with the rate of `one`. Rates within a factor of [`WORTH`] count as
/// equal.
fn step(one: &MeasuredPoint, other: &MeasuredPoint) -> Comparison {
    match compare(other, one) {
        Comparison::Times(times) if (1.0 / WORTH..WORTH).contains(&times) => Comparison::Same,
        other => other,
    }
}

/// Formats the comparison of two rates.
fn words_of(step: Comparison) -> String {
    match step {
        Comparison::Times(times) => format!("{} the requests", words_of_times(times)),
        other => other.words(),
    }
}

fn cpu(point: &MeasuredPoint) -> String {
    point.cpu_ns().map_or_else(|| "-".to_owned(), units::time)
}

fn scaling(found: &mut Conclusion, evidence: &Evidence, part: &str, what: &str) {
    let points = curve(evidence, part);
    let ([first, .., _], Some(best)) =
        (points.as_slice(), points.iter().max_by(|a, b| a.rate().total_cmp(&b.rate())))
    else {
        return;
    };
    let last = points[points.len() - 1];
    let threads = |point: &MeasuredPoint| point.point.key.threads();
    let peak = match step(last, best) {
        Comparison::Times(_) => {
            let rate = units::count(best.requests_per_s());
            format!("; {} threads were the fastest ({rate}/s)", threads(best))
        }
        _ => String::new(),
    };
    found.find(
        "scaling",
        format!(
            "{} of {}, {what}: {} threads compared with one: {} ({}/s and {}/s), CPU per request \
             {} instead of {}{peak}",
            last.word("rw"),
            units::size(last.bytes()),
            threads(last),
            words_of(step(first, last)),
            units::count(last.requests_per_s()),
            units::count(first.requests_per_s()),
            cpu(last),
            cpu(first),
        ),
    );
}

fn pinning(found: &mut Conclusion, evidence: &Evidence) {
    let (free, pinned) = (curve(evidence, "free"), curve(evidence, "pinned"));
    let (Some(free), Some(pinned)) = (free.last(), pinned.last()) else { return };
    let change = match step(free, pinned) {
        Comparison::Unclear(_) => "measure for longer (--runtime, --trials)",
        Comparison::Same => "leave the threads where the kernel puts them",
        Comparison::Times(times) if times > 1.0 => "pin the threads (taskset, --cpus-allowed)",
        Comparison::Times(_) => "do not pin the threads",
    };
    found.find(
        "pinning",
        format!(
            "{} threads, each pinned to a CPU, compared with unpinned threads: {}; {change}",
            pinned.point.key.threads(),
            words_of(step(free, pinned))
        ),
    );
}

fn interrupt(found: &mut Conclusion, evidence: &Evidence, depth: &str) {
    let at = |part: &str| evidence.find(&[("part", part), ("iodepth", depth)]);
    let (Some(near), Some(far)) = (at("near"), at("far")) else { return };
    let latency =
        |point: &MeasuredPoint| point.latency_ns(0.5).map_or_else(|| "-".to_owned(), units::time);
    let change = match step(far, near) {
        Comparison::Unclear(_) => "measure for longer (--runtime, --trials)",
        Comparison::Same => "run the thread on any CPU",
        Comparison::Times(times) if times > 1.0 => {
            "keep the thread on a CPU that serves the interrupts"
        }
        Comparison::Times(_) => "keep the thread off the CPUs that serve the interrupts",
    };
    found.find(
        "interrupt",
        format!(
            "one thread at depth {depth} on CPU {}, which serves the device's interrupts, compared \
             with CPU {}, which does not: {} (median latency {} instead of {}, CPU time per \
             request {} instead of {}); {change}",
            near.word("cpus-allowed"),
            far.word("cpus-allowed"),
            words_of(step(far, near)),
            latency(near),
            latency(far),
            cpu(near),
            cpu(far)
        ),
    );
}

fn claims(found: &mut Conclusion, evidence: &Evidence) {
    if evidence.points.is_empty() {
        return;
    }
    found.cannot(&["C130"], "the claim is about the absolute rate of processors of the year 2000");
    found.cannot(
        &["C132"],
        "buffered writes include their flush, which runs at the rate of the disk",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};

    const TABLE: &str = "           CPU0       CPU1
 35:          0          1 PCI-MSIX-0000:00:02.0   0-edge      virtio1-config
 36:          0   43095006 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio10-req.0
 50:          0          0 PCI-MSIX-0000:00:04.0   0-edge      nvme0q0
 51:          0          0 PCI-MSIX-0000:00:04.0   1-edge      nvme0q1
 52:          0          0 PCI-MSIX-0000:00:04.0   2-edge      nvme0q12
NMI:      25267      17825   Non-maskable interrupts";

    fn found(part: &str, threads: &str, cpus: &str, requests: u64) -> MeasuredPoint {
        let flags = [
            ("part", part),
            ("rw", "randread"),
            ("bs", "4k"),
            ("iodepth", "1"),
            ("numjobs", threads),
            ("cpus-allowed", cpus),
        ];
        cell(requests * 4096, &flags)
    }

    fn words(found: &Conclusion, id: &str) -> String {
        let found = found.findings.iter().find(|finding| finding.id == id);
        found.map(|finding| finding.headline.clone()).unwrap_or_default()
    }

    #[test]
    fn the_queues_of_a_device_are_its_interrupts_and_its_configuration_is_not() {
        assert_eq!(interrupts_named("virtio1", TABLE), [36]);
        assert_eq!(interrupts_named("nvme0", TABLE), [51, 52]);
        assert_eq!(interrupts_named("nvme1", TABLE), [0; 0]);
        assert_eq!(interrupts_named("", TABLE), [0; 0]);
    }

    #[test]
    fn a_list_of_cpus_is_read_as_the_kernel_writes_it() {
        assert_eq!(cpu_list("0,2-4\n"), [0, 2, 3, 4]);
        assert_eq!(cpu_list("\n"), [0; 0]);
    }

    #[test]
    fn threads_double_up_to_all_cpus() {
        assert_eq!(doublings(1), [1]);
        assert_eq!(doublings(2), [1, 2]);
        assert_eq!(doublings(6), [1, 2, 4, 6]);
    }

    #[test]
    fn the_gain_of_more_cpus_is_reported_and_noise_is_not_advice() {
        let scaled = analyse(&evidence(vec![
            found("free", "1", "", 50_000),
            found("free", "2", "", 95_000),
            found("pinned", "1", "0", 50_000),
            found("pinned", "2", "0,1", 95_100),
        ]));
        let text = words(&scaled, "scaling");
        assert!(
            text.contains("2 threads compared with one: 1.90 times the requests (95k/s"),
            "{text}"
        );
        let text = words(&scaled, "pinning");
        assert!(text.contains("the same within 10%") && text.contains("leave"), "{text}");
    }

    #[test]
    fn noise_gives_no_advice() {
        let mut points = vec![
            found("free", "1", "", 50_000),
            found("free", "2", "", 95_000),
            found("pinned", "2", "0,1", 80_000),
        ];
        points[2].summary.bytes_per_s.high *= 2.0;
        let text = words(&analyse(&evidence(points)), "pinning");
        assert!(text.contains("no measurable difference"), "{text}");
        assert!(text.ends_with("measure for longer (--runtime, --trials)"), "{text}");
    }

    #[test]
    fn near_and_far_are_compared() {
        let found = analyse(&evidence(vec![
            found("near", "1", "1", 12_000),
            found("far", "1", "0", 10_000),
        ]));
        let text = words(&found, "interrupt");
        assert!(text.contains("on CPU 1, which serves") && text.contains("1.20 times"), "{text}");
        assert!(text.ends_with("keep the thread on a CPU that serves the interrupts"), "{text}");
    }

    #[test]
    fn rates_of_the_papers_processors_are_not_testable() {
        let points = vec![found("cached", "1", "", 10_000), found("cached", "2", "", 19_000)];
        let found = analyse(&evidence(points));
        assert!(found.claims.iter().all(|claim| claim.verdict == Verdict::CannotBeTried));
    }
}
