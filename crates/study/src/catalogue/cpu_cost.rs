//! Study `cpu-cost`: the CPU cost of requests, as a fixed cost per request and a cost per KiB.
//!
//! The costs are reported for each path: a combination of target, caching mode, I/O engine and
//! depth.
//!
//! The lower bound of a cost is the CPU time that the kernel charges to the process. The upper
//! bound is the CPU time that the soaker, a busy loop of the lowest priority, loses during the
//! requests. The upper bound includes kernel threads and interrupts.

use analysis::costmodel::CostModel;
use analysis::quantile::median;
use analysis::units;
use cpucost::CpuUsage;
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::Outcome;
use report::model::{Cell as TableCell, Column, Table};
use report::units::Unit;

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::curve;
use crate::runner::StudyRunner;

pub const STUDY: Study = Study {
    name: "cpu-cost",
    papers: "Riedel 1997, section 3 and Figure 4; Chung 2000, sections 3.5, 5, 6, 7.2 and 7.3, \
             Tables 7 and 11: without the page cache, a request costs the same CPU time at any \
             size; through the cache, each byte has a cost",
    needs: "",
    plan: include_str!("../../plans/cpu-cost.toml"),
    claims: &[
        "R040", "R043", "R044", "R045", "R055", "R056", "R057", "R058", "R062", "R063", "R069",
        "R070", "R074", "C063", "C064", "C065", "C122", "C140", "C143", "C201",
    ],
    rules: &["bypass-cache-cpu", "dma-not-pio"],
    measure: Some(measure),
    analyse,
};

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    runner.measure()?;
    let mut readings = Vec::new();
    for path in paths(&runner.evidence) {
        for (bound, model) in [("lower", path.lower()), ("upper", path.upper())] {
            let Some(model) = model else { continue };
            let labels =
                [("path", path.name.clone()), ("rw", path.rw.clone()), ("bound", bound.to_owned())];
            readings.push(("fixed", "ns", labels.clone(), model.fixed_ns.value));
            readings.push(("marginal", "ns/KiB", labels, model.marginal_ns_per_kib.value));
        }
    }
    for (quantity, unit, labels, value) in readings {
        runner.evidence.note(quantity, unit, &labels, value);
    }
    Ok(())
}

/// If a KiB of a direct request costs at least this share of the CPU time that a KiB of a buffered
/// request costs, the CPU seems to copy the data of direct requests.
const COPY_SHARE: f64 = 0.5;
/// Two costs are "about the same" (the words of a claim) if their ratio is at most this.
const ABOUT: f64 = 1.25;
/// Two CPU times are too close to be ranked if their ratio is at most this.
const CPU_ALIKE: f64 = 1.1;
/// Prefix of the kernel's names for transfer modes with programmed I/O, such as `PIO 4`.
const PROGRAMMED: &str = "PIO";
/// The request size that represents large requests (bytes).
const LARGE: u64 = 64 << 10;

/// The points of one path (caching mode, I/O engine, depth and target) in one direction.
struct Path<'a> {
    name: String,
    target: usize,
    rw: String,
    points: Vec<&'a MeasuredPoint>,
}

impl<'a> Path<'a> {
    fn at(&self, bytes: u64) -> Option<&'a MeasuredPoint> {
        self.points.iter().find(|point| point.bytes() == bytes).copied()
    }

    fn fit(&self, of: impl Fn(&MeasuredPoint) -> Option<f64>) -> Option<CostModel> {
        curve::cost_model(&self.points, of)
    }

    fn lower(&self) -> Option<CostModel> {
        self.fit(|point| point.cpu_ns())
    }

    fn upper(&self) -> Option<CostModel> {
        self.fit(|point| point.summary.cpu_upper_ns)
    }

    fn is_direct(&self) -> bool {
        self.points.first().is_some_and(|point| point.point.key.is_direct())
    }

    fn is_one_deep(&self) -> bool {
        self.points.first().is_some_and(|point| point.depth() == 1)
    }
}

/// Returns the instructions per request, as the median of the trials. None if instructions were not
/// counted.
fn instructions(point: &MeasuredPoint) -> Option<f64> {
    let each = |trial: &&lab::point::Trial| {
        let requests = trial.requests();
        let count = trial.cpu.instructions.filter(|count| *count > 0)?;
        (requests > 0).then(|| count as f64 / requests as f64)
    };
    median(&point.point.unsoaked().iter().filter_map(each).collect::<Vec<f64>>())
}

/// Returns a CPU time per request (ns), as the median of the trials. `of` selects the kind of CPU
/// time.
fn per_request(point: &MeasuredPoint, of: fn(&CpuUsage) -> Option<u64>) -> Option<f64> {
    let each = |trial: &&lab::point::Trial| {
        let requests = trial.requests();
        (requests > 0).then_some(of(&trial.cpu)? as f64 / requests as f64)
    };
    median(&point.point.unsoaked().iter().filter_map(each).collect::<Vec<f64>>())
}

/// Returns the interrupt time of the whole machine per request (ns).
fn interrupt_ns(point: &MeasuredPoint) -> Option<f64> {
    per_request(point, |cpu| cpu.interrupt_ns)
}

/// Returns the CPU time of the whole machine per request (ns).
fn machine_ns(point: &MeasuredPoint) -> Option<f64> {
    per_request(point, |cpu| cpu.machine_ns)
}

/// Groups the points by path, in the order of the plan.
fn paths(evidence: &Evidence) -> Vec<Path<'_>> {
    let mut paths: Vec<Path<'_>> = Vec::new();
    for point in evidence.usable() {
        let key = &point.point.key;
        let mut name = format!("{}, {}", key.caching, key.ioengine());
        if key.depth() > 1 {
            name = format!("{name}, depth {}", key.depth());
        }
        if evidence.targets.len() > 1 {
            name = format!("{}: {name}", point.target);
        }
        let same = |path: &&mut Path<'_>| path.name == name && path.rw == key.rw();
        match paths.iter_mut().find(same) {
            // Two parts of the plan may measure the same path and size. The first point counts.
            Some(path) if path.at(point.bytes()).is_some() => {}
            Some(path) => path.points.push(point),
            None => paths.push(Path {
                name,
                target: point.target_index,
                rw: key.rw().to_owned(),
                points: vec![point],
            }),
        }
    }
    paths.iter_mut().for_each(|path| path.points.sort_by_key(|point| point.bytes()));
    paths
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let paths = paths(evidence);
    paths.iter().for_each(|path| describe(&mut found, path));
    for rw in ["read", "write"] {
        let side = |direct: bool| {
            let mut same = paths.iter().filter(|path| path.rw == rw && path.is_one_deep());
            same.find(|path| path.is_direct() == direct && path.target == 0)
        };
        if let (Some(direct), Some(buffered)) = (side(true), side(false)) {
            bypass(&mut found, direct, buffered);
            copying(&mut found, evidence, direct, buffered);
            if rw == "read" {
                read_claims(&mut found, direct, buffered);
            } else {
                let small = buffered.at(2 << 10).zip(buffered.at(LARGE));
                let times =
                    small.and_then(|(small, large)| Some(per_byte(small)? / per_byte(large)?));
                let what = "CPU per MiB of buffered 2 KiB writes compared with 64 KiB writes";
                found.gain("C122", times, what);
            }
        }
    }
    programmed(&mut found, evidence, &paths);
    found.tables.extend(table(&paths));
    found
}

/// Judges the claims about Table 7 of the second paper, which compares DMA with programmed I/O
/// (PIO). With PIO, the CPU copies each word in interrupt handlers, whose time is not charged to
/// the process. Therefore, as in the paper, the CPU time of the whole machine is compared.
fn programmed(found: &mut Conclusion, evidence: &Evidence, paths: &[Path<'_>]) {
    let is_programmed = |path: &Path<'_>| {
        let device = evidence.targets.get(path.target)?.device.as_ref()?;
        Some(device.transfer_mode.as_ref()?.starts_with(PROGRAMMED))
    };
    let read_in = |wanted: bool| {
        let mut reads = paths.iter().filter(|path| path.rw == "read" && path.is_one_deep());
        reads.find(|path| path.is_direct() && is_programmed(path) == Some(wanted))
    };
    let Some(programmed) = read_in(true) else {
        let why = "no target is known to use programmed I/O; direct requests with almost no CPU \
                   cost per byte indicate DMA";
        return found.cannot(&["C063", "C064", "C065"], why);
    };
    let cpus = f64::from(evidence.host.cpus.max(1));
    let load = |point| Some(machine_ns(point)? * point.requests_per_s() / 1e9 / cpus);
    let what = "CPU time of 64 KiB reads with programmed I/O, as a share of all CPUs";
    found.loss("C065", programmed.at(LARGE).and_then(load), what);
    let Some(dma) = read_in(false) else {
        let why = "the claim compares programmed I/O with DMA; save the plan that halfpower study \
                   cpu-cost --show prints, add compares = true to the plan, and specify two \
                   targets: this drive and a drive that uses DMA";
        return found.cannot(&["C063", "C064"], why);
    };
    if let Some((one, other)) = programmed.at(LARGE).zip(dma.at(LARGE)) {
        let times = machine_ns(one).zip(machine_ns(other)).map(|(one, other)| one / other);
        found.gain("C063", times, "CPU time per 64 KiB read, programmed I/O compared with DMA");
        let lost = Some(1.0 - one.rate() / other.rate());
        found.loss(
            "C064",
            lost,
            "throughput that 64 KiB reads lose with programmed I/O, compared with DMA",
        );
    }
    let per_kib_ns = |path: &Path<'_>| {
        let model = path.fit(machine_ns)?;
        Some(model.marginal_ns_per_kib.value).filter(|ns| *ns > 0.0)
    };
    let Some((one, other)) = per_kib_ns(programmed).zip(per_kib_ns(dma)) else { return };
    found.find(
        "programmed-io",
        format!(
            "CPU time of the machine per KiB: {} with programmed I/O and {} with DMA: {}",
            units::time(one),
            units::time(other),
            words_of_times(one / other)
        ),
    );
}

/// Formats both bounds, such as "1.2 us to 3 us", or only the lower bound if the upper bound is at
/// most 1% larger.
fn bounds(lower: f64, upper: Option<f64>) -> String {
    match upper.filter(|upper| *upper > lower * 1.01) {
        Some(upper) => format!("{} to {}", units::time(lower), units::time(upper)),
        None => units::time(lower),
    }
}

fn describe(found: &mut Conclusion, path: &Path<'_>) {
    let Some(lower) = path.lower() else { return };
    let upper = path.upper();
    let each = if lower.marginal_ns_per_kib.low > 0.0 {
        let high = upper.as_ref().map(|upper| upper.marginal_ns_per_kib.value);
        format!("{} per KiB", bounds(lower.marginal_ns_per_kib.value, high))
    } else {
        let most = units::time(lower.marginal_ns_per_kib.high.max(0.0));
        format!("no measurable CPU time per KiB (at most {most})")
    };
    let fixed = if lower.fixed_ns.low > 0.0 {
        bounds(lower.fixed_ns.value, upper.as_ref().map(|upper| upper.fixed_ns.value))
    } else {
        format!("less than {}", units::time(lower.fixed_ns.high.max(0.0)))
    };
    let counted = path.fit(instructions).map(|model| {
        let per_byte = model.marginal_ns_per_kib.value.max(0.0) / 1024.0;
        format!(
            "; {} instructions per request and {per_byte:.2} per byte",
            units::count(model.fixed_ns.value.max(0.0))
        )
    });
    found.find(
        "cost",
        format!(
            "{}s, {}: {fixed} of CPU time per request and {each}{}",
            path.rw,
            path.name,
            counted.unwrap_or_default()
        ),
    );
}

fn per_byte(point: &MeasuredPoint) -> Option<f64> {
    Some(point.cpu_ns()? / point.bytes() as f64)
}

/// Returns the CPU cost of path `of` divided by the CPU cost of path `over`, at one request size.
fn times_at(of: &Path<'_>, over: &Path<'_>, bytes: u64) -> Option<f64> {
    Some(of.at(bytes)?.cpu_ns()? / over.at(bytes)?.cpu_ns().filter(|ns| *ns > 0.0)?)
}

/// Reports the smallest size at and above which direct requests cost less CPU than buffered
/// requests, and advises to use direct requests.
fn bypass(found: &mut Conclusion, direct: &Path<'_>, buffered: &Path<'_>) {
    let rw = &direct.rw;
    if let Some(bytes) = break_even(direct, buffered) {
        found.find(
            "break-even",
            format!(
                "at {} and above, direct {rw}s cost less CPU than buffered {rw}s",
                units::size(bytes)
            ),
        );
    }
    let Some(times) = times_at(buffered, direct, LARGE) else { return };
    let cost = |path: &Path<'_>| path.at(LARGE).and_then(MeasuredPoint::cpu_ns).map(units::time);
    found.advise_in(
        "CPU",
        "bypass-cache-cpu",
        times,
        &format!("{rw}s of {} and larger", units::size(LARGE)),
        format!(
            "CPU time per {} {rw}: {} buffered, {} direct",
            units::size(LARGE),
            cost(buffered).unwrap_or_default(),
            cost(direct).unwrap_or_default()
        ),
    );
}

/// Returns the smallest measured size at and above which direct requests cost less CPU than
/// buffered requests. None if direct requests do not cost less at the largest size.
fn break_even(direct: &Path<'_>, buffered: &Path<'_>) -> Option<u64> {
    let shared = direct.points.iter().map(|point| point.bytes());
    let mut cheaper = None;
    for bytes in shared {
        let Some(times) = times_at(buffered, direct, bytes) else { continue };
        cheaper = if times > 1.0 { cheaper.or(Some(bytes)) } else { None };
    }
    cheaper
}

/// Advises to use DMA if the CPU seems to copy the data of direct requests. See [`COPY_SHARE`].
fn copying(found: &mut Conclusion, evidence: &Evidence, direct: &Path<'_>, buffered: &Path<'_>) {
    let has_device = evidence.targets.first().is_some_and(|target| target.device.is_some());
    let (Some(past), Some(through)) = (direct.lower(), buffered.lower()) else { return };
    let share = past.marginal_ns_per_kib.low / through.marginal_ns_per_kib.value;
    if !has_device || !share.is_finite() || share < COPY_SHARE {
        return;
    }
    let at = |model: &CostModel| {
        model.fixed_ns.value + model.marginal_ns_per_kib.value * (LARGE >> 10) as f64
    };
    found.advise_in(
        "CPU",
        "dma-not-pio",
        at(&past) / past.fixed_ns.value.max(1.0),
        "",
        format!(
            "CPU time per KiB: {} direct, {} buffered",
            units::time(past.marginal_ns_per_kib.value),
            units::time(through.marginal_ns_per_kib.value)
        ),
    );
}

fn read_claims(found: &mut Conclusion, direct: &Path<'_>, buffered: &Path<'_>) {
    let costlier = |bytes: u64| times_at(buffered, direct, bytes);
    let at_64 = costlier(LARGE);
    let largest = direct.points.iter().rev().find_map(|point| costlier(point.bytes()));
    found.gain("R043", at_64, "CPU time of a buffered 64 KiB read compared with a direct one");
    found.gain(
        "R062",
        costlier(16 << 10),
        "CPU time of a buffered 16 KiB read compared with a direct one",
    );
    found.gain("C143", largest, "CPU time of the largest reads, buffered compared with direct");
    found.claim_if(
        "R069",
        at_64.map(|times| {
            (
                times >= 2.0,
                format!(
                    "buffered 64 KiB reads take {} the CPU time of direct reads",
                    words_of_times(times)
                ),
            )
        }),
    );
    let small = direct.at(2 << 10).zip(direct.at(16 << 10));
    let times = small.and_then(|(small, large)| Some(per_byte(small)? / per_byte(large)?));
    found.gain("R055", times, "CPU time per MiB, direct 2 KiB reads compared with 16 KiB reads");
    let times = small.and_then(|(small, large)| Some(large.cpu_ns()? / small.cpu_ns()?));
    found.claim_if(
        "R056",
        times.map(|times| {
            let words = words_of_times(times);
            (
                times <= ABOUT,
                format!("a direct 16 KiB read takes {words} the CPU time of a 2 KiB read"),
            )
        }),
    );
    rate_claims(found, direct, buffered);
    model_claims(found, direct, buffered);
}

/// Judges the claims that name a request size.
fn rate_claims(found: &mut Conclusion, direct: &Path<'_>, buffered: &Path<'_>) {
    cheapest_size(found, buffered);
    let beyond = 256 << 10;
    let pair = direct.at(beyond).zip(buffered.at(beyond));
    if let Some(((past, with), cpu)) = pair.zip(times_at(buffered, direct, beyond)) {
        let comparison = curve::compare(past, with);
        let words = format!(
            "direct 256 KiB reads compared with buffered ones: rate {}; CPU time {}",
            comparison.words(),
            words_of_times(1.0 / cpu)
        );
        match comparison.noise() {
            Some(why) => found.cannot(&["R063"], &why),
            None => {
                let faster = comparison.times().is_some_and(|times| times > 1.0);
                found.claim("R063", faster && cpu > 1.0, words);
            }
        }
    }
    let load = |point: &MeasuredPoint| Some(point.cpu_ns()? * point.requests_per_s() / 1e9);
    // The claim says that 64 KiB is the smallest request size with a CPU load below 5%. Only the
    // load at 64 KiB is tested.
    found.claim_if(
        "R074",
        direct.at(LARGE).and_then(load).map(|load| {
            (load < 0.05, format!("direct 64 KiB reads use {:.0}% of one CPU", 100.0 * load))
        }),
    );
    let measured = direct.at(2 << 10).is_some() && buffered.at(2 << 10).is_some();
    let even = break_even(direct, buffered);
    let close = even
        .filter(|bytes| times_at(buffered, direct, *bytes).is_some_and(|times| alike(times, 1.0)));
    if let Some(bytes) = close {
        let size = units::size(bytes);
        let why = format!("CPU times of direct and buffered {size} reads differ by at most 10%");
        found.cannot(&["C201"], &why);
        return;
    }
    found.claim_if(
        "C201",
        measured.then(|| match even {
            // The exact break-even size lies between two measured sizes: `bytes`, and the next
            // smaller size.
            Some(bytes) => {
                let holds = (8 << 10..=16 << 10).contains(&bytes);
                (holds, format!("direct reads cost less CPU at {} and above", units::size(bytes)))
            }
            None => (false, "the largest direct reads do not cost less CPU".to_owned()),
        }),
    );
}

/// Judges claim R040: the CPU cost per byte is lowest for requests of 16 KiB to 64 KiB. The claim
/// is not testable if the best size in this range costs about as much as the best size outside this
/// range.
fn cheapest_size(found: &mut Conclusion, buffered: &Path<'_>) {
    let lean = buffered.points.iter().filter_map(|point| Some((per_byte(point)?, point.bytes())));
    let claimed = |bytes: u64| (16 << 10..=64 << 10).contains(&bytes);
    let (inside, outside): (Vec<_>, Vec<_>) = lean.partition(|(_, bytes)| claimed(*bytes));
    let least = |of: &[(f64, u64)]| of.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0));
    let Some((within, beyond)) = least(&inside).zip(least(&outside)) else { return };
    let best = if within.0 < beyond.0 { within } else { beyond };
    let seen = format!("buffered reads of {} need the least CPU per MiB", units::size(best.1));
    if alike(within.0, beyond.0) {
        let other = if best == within { beyond } else { within };
        let size = units::size(other.1);
        found.cannot(
            &["R040"],
            &format!("no clear best size: {seen}, but reads of {size} need at most 10% more"),
        );
    } else {
        found.claim("R040", best == within, seen);
    }
}

/// Checks whether two CPU times are too close to be ranked.
fn alike(one: f64, other: f64) -> bool {
    one.max(other) <= one.min(other) * CPU_ALIKE
}

/// Judges the claims about the fixed cost and the cost per KiB.
fn model_claims(found: &mut Conclusion, direct: &Path<'_>, buffered: &Path<'_>) {
    if let Some(past) = direct.lower() {
        let each = past.marginal_ns_per_kib;
        let most = units::time(each.high.max(0.0));
        if each.low > 0.0 {
            let here = format!("CPU time per KiB of a direct read: {}", units::time(each.value));
            found.value("C140", Some(each.value / 1e3), here);
        } else {
            let why = format!("a direct read has no measurable CPU cost per KiB (at most {most})");
            found.cannot(&["C140"], &why);
        }
    }
    let (past, through) = (direct.fit(instructions), buffered.fit(instructions));
    let byte = |model: &CostModel| model.marginal_ns_per_kib.value / 1024.0;
    let whole = |path: &Path<'_>| path.at(LARGE).and_then(instructions);
    for (id, path) in [("R044", buffered), ("R045", direct)] {
        found.value_if(
            id,
            whole(path).map(|count| {
                let each = count / LARGE as f64;
                (each, format!("{each:.2} instructions per byte of a 64 KiB read"))
            }),
        );
    }
    for id in ["R057", "R070"] {
        found.value_if(
            id,
            past.as_ref().map(|model| {
                let each = model.fixed_ns.value;
                let count = units::count(each.max(0.0));
                (each, format!("{count} instructions per direct read"))
            }),
        );
    }
    found.value_if(
        "R058",
        past.as_ref().zip(through.as_ref()).map(|(past, through)| {
            let more = byte(through) - byte(past);
            (
                more,
                format!(
                    "buffered reads need {more:.2} more instructions per byte than direct reads"
                ),
            )
        }),
    );
}

/// Builds a table with the lower and the upper bound of the CPU cost. Each row is a path.
fn table(paths: &[Path<'_>]) -> Option<Table> {
    let row = |path: &Path<'_>| {
        let (lower, upper) = (path.lower()?, path.upper());
        let counted = path.fit(instructions);
        let last = *path.points.last()?;
        let of = |model: &Option<CostModel>, of: fn(&CostModel) -> f64| -> TableCell {
            model.as_ref().map(of).into()
        };
        Some(vec![
            TableCell::Text(path.name.clone()),
            TableCell::Text(path.rw.clone()),
            TableCell::Number(lower.fixed_ns.value),
            TableCell::Number(lower.marginal_ns_per_kib.value),
            of(&upper, |model| model.fixed_ns.value),
            of(&upper, |model| model.marginal_ns_per_kib.value),
            TableCell::Number(lower.r2),
            of(&counted, |model| model.fixed_ns.value),
            of(&counted, |model| model.marginal_ns_per_kib.value / 1024.0),
            interrupt_ns(last).into(),
        ])
    };
    let rows: Vec<Vec<TableCell>> = paths.iter().filter_map(row).collect();
    let column = |(label, unit): (&str, Unit)| Column { label: label.to_owned(), unit: Some(unit) };
    let text = |label: &str| Column { label: label.to_owned(), unit: None };
    let numbers = [
        ("CPU per request, lower bound", Unit::Nanoseconds),
        ("CPU per KiB, lower bound", Unit::Nanoseconds),
        ("CPU per request, upper bound", Unit::Nanoseconds),
        ("CPU per KiB, upper bound", Unit::Nanoseconds),
        ("R\u{b2}", Unit::Count),
        ("Instructions per request", Unit::Count),
        ("Instructions per byte", Unit::Count),
        ("Interrupt time per request, largest size", Unit::Nanoseconds),
    ];
    (!rows.is_empty()).then(|| Table {
        id: "cpu-cost-paths".to_owned(),
        caption: "CPU time per request and per KiB. The lower bound is the time charged to the \
                  process. The upper bound is the CPU time lost by the soaker, which runs at idle \
                  priority on every CPU"
            .to_owned(),
        columns: [text("Path"), text("Direction")].into_iter().chain(numbers.map(column)).collect(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};
    use lab::machine::{DeviceFacts, TargetFacts};

    /// Builds a point with the given CPU time and number of instructions per request.
    fn point(caching: &str, rw: &str, bs: &str, cpu_ns: f64, instructions: u64) -> MeasuredPoint {
        let mut point = cell(
            1 << 30,
            &[("part", caching), ("caching", caching), ("rw", rw), ("bs", bs), ("iodepth", "1")],
        );
        let requests = (1 << 30) / point.bytes();
        for trial in &mut point.point.trials {
            trial.cpu.process_ns = (cpu_ns * requests as f64) as u64;
            trial.cpu.machine_ns = Some(trial.cpu.process_ns);
            trial.cpu.instructions = (instructions > 0).then_some(instructions * requests);
        }
        point.summary = point.point.summary();
        point
    }

    /// Builds the points of direct and of buffered reads. `direct` and `buffered` are each the CPU
    /// cost per request and per KiB (ns).
    fn machine(direct: (f64, f64), buffered: (f64, f64), instructions: bool) -> Evidence {
        let mut points = Vec::new();
        for (caching, (fixed, each)) in [("direct", direct), ("buffered", buffered)] {
            for kib in [2_u64, 16, 64, 256] {
                let cpu_ns = fixed + each * kib as f64;
                let count = if instructions { cpu_ns as u64 } else { 0 };
                points.push(point(caching, "read", &format!("{kib}k"), cpu_ns, count));
            }
        }
        let device = Some(DeviceFacts::default());
        Evidence {
            targets: vec![TargetFacts { device, ..TargetFacts::default() }],
            ..evidence(points)
        }
    }

    fn verdict(found: &Conclusion, id: &str) -> Option<Verdict> {
        found.claims.iter().find(|claim| claim.id == id).map(|claim| claim.verdict)
    }

    #[test]
    fn on_the_papers_machine_only_the_cache_has_a_cost_per_byte() {
        let found = analyse(&machine((120_000.0, 0.0), (20_000.0, 16_000.0), false));
        let text = &found.findings[0].headline;
        assert!(text.contains("120 us of CPU time per request") && text.contains("no measurable"));
        for id in ["R043", "R055", "R056", "R062", "R069", "C201"] {
            assert_eq!(verdict(&found, id), Some(Verdict::Holds), "{id}");
        }
        assert_eq!(verdict(&found, "C140"), Some(Verdict::CannotBeTried), "no cost per KiB");
        assert_eq!(verdict(&found, "C063"), Some(Verdict::CannotBeTried));
        assert_eq!(verdict(&found, "R057"), None, "no instructions were counted");
        let ids: Vec<&str> = found.advice.iter().map(|advice| advice.id.as_str()).collect();
        assert_eq!(ids, ["bypass-cache-cpu"]);
        assert_eq!(found.advice[0].gain_in, "CPU");
    }

    #[test]
    fn a_cost_of_the_papers_machine_says_nothing_about_another_one() {
        let found = analyse(&machine((1_000.0, 480.0), (20_000.0, 16_000.0), false));
        let cost = found.claims.iter().find(|claim| claim.id == "C140").unwrap();
        assert_eq!(cost.verdict, Verdict::CannotBeTried);
        // The unit of the claim is us/KB.
        assert!((cost.value.unwrap() / 0.48 - 1.0).abs() < 0.05, "{cost:?}");
    }

    #[test]
    fn sizes_that_cost_alike_are_not_ranked() {
        let found = analyse(&machine((120_000.0, 0.0), (20_000.0, 16_000.0), false));
        assert_eq!(verdict(&found, "R040"), Some(Verdict::CannotBeTried));
        let found = analyse(&machine((120_000.0, 0.0), (200_000.0, 1_000.0), false));
        assert_eq!(verdict(&found, "R040"), Some(Verdict::DoesNotHold));
    }

    #[test]
    fn each_claim_is_tested_by_one_study_only() {
        let mut owners = std::collections::BTreeMap::new();
        for study in crate::catalogue::ALL {
            for id in study.claims {
                let before = owners.insert(*id, study.name);
                assert_eq!(before, None, "{id} is tested by {} too", study.name);
            }
        }
    }

    #[test]
    fn a_device_that_copies_is_distinguished_from_dma() {
        let advice = |each| {
            let found = analyse(&machine((5_000.0, each), (2_000.0, 150.0), false));
            found.advice.iter().any(|advice| advice.id == "dma-not-pio")
        };
        assert!(advice(140.0) && !advice(10.0));
    }

    #[test]
    fn programmed_io_is_held_against_dma() {
        let mut machine = machine((5_000.0, 100.0), (2_000.0, 150.0), false);
        for (bytes, cpu_ns) in [("16k", 5_160.0), ("64k", 5_640.0), ("256k", 7_560.0)] {
            let mut dma = point("direct", "read", bytes, cpu_ns, 0);
            (dma.target, dma.target_index) = ("sdb".to_owned(), 1);
            machine.points.push(dma);
        }
        machine.targets.push(machine.targets[0].clone());
        for (target, mode) in machine.targets.iter_mut().zip(["PIO 4", "UDMA 5"]) {
            target.device.as_mut().unwrap().transfer_mode = Some(mode.to_owned());
        }
        let found = analyse(&machine);
        let cost = found.claims.iter().find(|claim| claim.id == "C063").unwrap();
        assert!((cost.value.unwrap() - 11_400.0 / 5_640.0).abs() < 0.01, "{cost:?}");
        let finding = found.findings.iter().find(|finding| finding.id == "programmed-io").unwrap();
        assert!(finding.headline.contains("with programmed I/O and 10 ns with DMA: 10"));

        machine.targets[1].device.as_mut().unwrap().transfer_mode = None;
        let found = analyse(&machine);
        assert_eq!(verdict(&found, "C063"), Some(Verdict::CannotBeTried), "mode unknown");
    }

    #[test]
    fn claims_about_instructions_need_counters() {
        let found = analyse(&machine((10_000.0, 102.0), (10_000.0, 2_048.0), true));
        for id in ["R057", "R058"] {
            let counted = found.claims.iter().find(|claim| claim.id == id).unwrap();
            assert!(counted.value.is_some(), "{counted:?}");
            assert_eq!(counted.verdict, Verdict::CannotBeTried, "the value is absolute");
        }
        assert!(
            found.findings[0].headline.contains("instructions per request and 0.10 per byte"),
            "{:?}",
            found.findings[0]
        );
    }

    #[test]
    fn the_break_even_is_where_the_direct_path_stays_cheaper() {
        let evidence = machine((30_000.0, 0.0), (1_000.0, 1_000.0), false);
        let paths = paths(&evidence);
        assert_eq!(break_even(&paths[0], &paths[1]), Some(64 << 10));
        assert_eq!(break_even(&paths[1], &paths[0]), None);
    }
}
