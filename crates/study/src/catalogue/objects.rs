//! Study `objects`: the latency, the rate and the CPU cost of requests for whole objects of an S3
//! bucket.
//!
//! The address contains a prefix. The study creates a unique folder below the prefix and removes
//! the folder at the end. First, the study measures PUT and GET in rounds, for several object sizes
//! and numbers of requests at a time. Then it measures LIST and DELETE of many small objects, and
//! uploads of a large object in parts.
//!
//! The CPU cost is the CPU time of the threads that make the requests, without interrupts. A GET
//! reads an object that was stored shortly before, so the server probably still has the object in
//! memory.

use analysis::costmodel::{self, CostModel, CostPoint};
use analysis::interval::Interval;
use analysis::{quantile, units};
use ioengine::network::{Address, Scheme};
use lab::evidence::{Evidence, Reading};
use lab::failure::Outcome;
use lab::target::TargetSpec;
use report::model::{Axis, Cell, Chart, Column, Kind, Point, Scale, Series, Table};
use report::units::Unit;

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::object_store::ObjectStore;
use crate::object_trials::{Extent, ObjectTrials, UPLOAD_PARALLEL, UPLOAD_PART};
use crate::runner::StudyRunner;

pub const STUDY: Study = Study {
    name: "objects",
    papers: "no such experiment; their programs read and write files, not objects",
    needs: "an S3 bucket, as s3://HOST[:PORT]/BUCKET/PREFIX; the study creates objects below the \
            prefix and removes them",
    plan: include_str!("../../plans/objects.toml"),
    claims: &[],
    rules: &[],
    measure: Some(measure),
    analyse,
};

/// The name under which the report lists targets that cannot be used.
const PART: &str = "objects";
/// The relative error that the cost model assumes for the CPU time of a trial.
const CPU_ERROR: f64 = 0.05;

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let mut addresses: Vec<(String, Box<Address>)> = Vec::new();
    for target in runner.study_targets {
        if let Ok(TargetSpec::Network(address)) = TargetSpec::of(&target.name)
            && address.scheme == Scheme::S3
        {
            addresses.push((target.name.display().to_string(), address));
        }
    }
    let several = addresses.len() > 1;
    if addresses.is_empty() {
        runner.skip(
            "the study measures object stores",
            "use a target such as s3://HOST/BUCKET/PREFIX",
        );
        return Ok(());
    }
    let extent = Extent::of(runner.quick);
    for (name, address) in addresses {
        let store = match ObjectStore::open(runner.lab, &address, extent.threads()) {
            Ok(store) => store,
            Err(failure) => {
                runner.refused = runner.refused.or(Some(failure.exit));
                if several {
                    runner.leave_out(PART, &failure.message);
                } else {
                    runner.skip("the object store cannot be used", failure.message);
                }
                continue;
            }
        };
        let folder = store.folder();
        runner
            .lab
            .console
            .say(format!("creating objects below {folder}; they are removed at the end"));
        let progress = runner.lab.console.open_progress();
        let mut trials = ObjectTrials { store, extent: &extent, name, progress };
        let measured = trials.measure(runner.lab.interrupt.flag(), &mut runner.evidence);
        trials.progress.finish();
        let removed = trials.store.remove();
        match (measured, removed) {
            (Err(failure), Err(left)) => {
                runner.lab.console.warn(left.message);
                return Err(failure);
            }
            (measured, removed) => measured.and(removed)?,
        }
    }
    Ok(())
}

/// The results for one operation, object size and number of requests at a time, with or without a
/// signed payload.
struct ObjectPoint {
    op: String,
    bytes: u64,
    parallel: u64,
    is_signed: bool,
    per_s: f64,
    /// The requests per second of each trial.
    trials_per_s: Vec<f64>,
    first_byte_ns: Option<f64>,
    median_ns: Option<f64>,
    tail_ns: Option<f64>,
    /// The CPU time per request in each trial (ns).
    cpu_ns: Vec<f64>,
}

impl ObjectPoint {
    fn all(evidence: &Evidence) -> Vec<ObjectPoint> {
        let point = |reading: &&Reading| {
            let labels: Vec<(&str, &str)> =
                reading.labels.iter().map(|(name, word)| (name.as_str(), word.as_str())).collect();
            let quantile = |quantity: &str, share: &str| {
                evidence.value(quantity, &[&labels[..], &[("quantile", share)]].concat())
            };
            let label = |name: &str| reading.labels.get(name);
            let of_trials = |quantity: &str| {
                evidence.read(quantity, &labels).iter().map(|one| one.value).collect()
            };
            Some(ObjectPoint {
                op: label("op")?.clone(),
                bytes: label("bytes")?.parse().ok()?,
                parallel: label("parallel")?.parse().ok()?,
                is_signed: label("payload")? == "signed",
                per_s: reading.value,
                trials_per_s: of_trials("object-requests-of-trial"),
                first_byte_ns: quantile("object-first-byte", "0.5"),
                median_ns: quantile("object-time", "0.5"),
                tail_ns: quantile("object-time", "0.99"),
                cpu_ns: of_trials("object-cpu"),
            })
        };
        evidence.read("object-requests", &[]).iter().filter_map(point).collect()
    }

    fn cpu(&self) -> Option<f64> {
        quantile::median(&self.cpu_ns)
    }

    /// Checks whether all trials of one point were faster than all trials of the other point.
    fn differs(&self, other: &ObjectPoint) -> bool {
        let all_below = |slow: &ObjectPoint, fast: &ObjectPoint| {
            let mut pairs = slow
                .trials_per_s
                .iter()
                .flat_map(|slow| fast.trials_per_s.iter().map(move |fast| slow < fast));
            pairs.all(|is_below| is_below)
        };
        all_below(self, other) || all_below(other, self)
    }

    fn bytes_per_s(&self) -> f64 {
        self.per_s * self.bytes as f64
    }
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let points = ObjectPoint::all(evidence);
    let plain: Vec<&ObjectPoint> = points.iter().filter(|point| !point.is_signed).collect();
    for op in ["PUT", "GET"] {
        let of_op: Vec<&ObjectPoint> =
            plain.iter().copied().filter(|point| point.op == op).collect();
        latency(&mut found, op, &of_op);
        rates(&mut found, op, &of_op);
        cost(&mut found, op, &of_op);
    }
    signed(&mut found, &points);
    upload(&mut found, evidence);
    list(&mut found, evidence);
    let deletes: Vec<&ObjectPoint> =
        plain.iter().copied().filter(|point| point.op == "DELETE").collect();
    latency(&mut found, "DELETE", &deletes);
    parallel(&mut found, "DELETE", &deletes);
    found.charts.extend(rate_chart(&plain));
    found.charts.extend(time_chart(&plain));
    found.tables.extend(table(&points));
    found
}

/// Reports the latency of requests for the smallest and for the largest object, with one request
/// at a time.
fn latency(found: &mut Conclusion, op: &str, points: &[&ObjectPoint]) {
    let one: Vec<_> = points.iter().filter(|point| point.parallel == 1).collect();
    let size = |point: &&&ObjectPoint| point.bytes;
    let ends = [one.iter().min_by_key(|one| size(one)), one.iter().max_by_key(|one| size(one))];
    let mut parts: Vec<String> = Vec::new();
    for point in ends.into_iter().flatten() {
        let (Some(median), Some(tail)) = (point.median_ns, point.tail_ns) else { continue };
        let first = point.first_byte_ns.filter(|_| op == "GET");
        let first = first.map(|ns| format!(", first byte after {}", units::time(ns)));
        let part = format!(
            "of {} takes {} (99th percentile {}{})",
            units::size(point.bytes),
            units::time(median),
            units::time(tail),
            first.unwrap_or_default()
        );
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    if !parts.is_empty() {
        found.find("latency", format!("a {op} {}", parts.join(" and one ")));
    }
}

/// Reports the highest request rate, the highest throughput, and the gain of several requests at a
/// time.
fn rates(found: &mut Conclusion, op: &str, points: &[&ObjectPoint]) {
    let most =
        |of: fn(&ObjectPoint) -> f64| points.iter().copied().max_by(|a, b| of(a).total_cmp(&of(b)));
    let Some((requests, bytes)) = most(|one| one.per_s).zip(most(ObjectPoint::bytes_per_s)) else {
        return;
    };
    let setting = |one: &ObjectPoint| {
        format!("objects of {}, {} at a time", units::size(one.bytes), one.parallel)
    };
    found.find(
        "ceiling",
        format!(
            "{op} reaches {} requests per second ({}) and {} ({})",
            units::count(requests.per_s),
            setting(requests),
            units::rate_mib(bytes.bytes_per_s()),
            setting(bytes)
        ),
    );
    parallel(found, op, points);
}

/// Reports the gain of several requests at a time over one request, for each object size.
fn parallel(found: &mut Conclusion, op: &str, points: &[&ObjectPoint]) {
    let mut gains = Vec::new();
    for one in points.iter().filter(|one| one.parallel == 1 && one.per_s > 0.0) {
        let same = points.iter().filter(|other| other.bytes == one.bytes && other.parallel > 1);
        let Some(best) = same.max_by(|a, b| a.per_s.total_cmp(&b.per_s)) else { continue };
        let size = units::size(one.bytes);
        if !best.differs(one) {
            gains.push(format!("no measurable difference with {size}"));
            continue;
        }
        let times = words_of_times(best.per_s / one.per_s);
        gains.push(format!("{times} the rate with {size} ({} at a time)", best.parallel));
    }
    if !gains.is_empty() {
        let gains = gains.join(", ");
        let lead = format!("{op}, several requests at a time compared with one");
        found.find("parallel", format!("{lead}: {gains}"));
    }
}

/// Fits a fixed CPU cost per request and a CPU cost per KiB. Only requests that run one at a time
/// are used.
fn cost_model(points: &[&ObjectPoint]) -> Option<CostModel> {
    let mut costs = Vec::new();
    for point in points.iter().filter(|point| point.parallel == 1) {
        costs.extend(point.cpu_ns.iter().map(|cpu_ns| CostPoint {
            request_bytes: point.bytes,
            cpu_ns: *cpu_ns,
            relative_error: CPU_ERROR,
        }));
    }
    costmodel::fit(&costs).ok()
}

fn cost(found: &mut Conclusion, op: &str, points: &[&ObjectPoint]) {
    let Some(model) = cost_model(points) else { return };
    let words = |of: Interval, scale: f64| {
        let [value, low, high] =
            [of.value, of.low, of.high].map(|ns| units::time((ns * scale).max(0.0)));
        format!("{value} ({low} to {high})")
    };
    let (fixed, marginal) = (words(model.fixed_ns, 1.0), words(model.marginal_ns_per_kib, 1024.0));
    found.find("cost", format!("a {op} costs this host {fixed} of CPU plus {marginal} per MiB"));
}

/// Reports the CPU cost of signing the payload of a request.
fn signed(found: &mut Conclusion, points: &[ObjectPoint]) {
    for signed in points.iter().filter(|point| point.is_signed) {
        let is_same = |one: &&ObjectPoint| {
            let (ours, theirs) = ((&signed.op, signed.bytes), (&one.op, one.bytes));
            !one.is_signed && one.parallel == signed.parallel && ours == theirs
        };
        let plain = points.iter().find(is_same).and_then(ObjectPoint::cpu);
        let Some((with, without)) = signed.cpu().zip(plain) else { continue };
        found.find(
            "signature",
            format!(
                "a {} of {} costs {} of CPU with a signed payload and {} with an unsigned one",
                signed.op,
                units::size(signed.bytes),
                units::time(with),
                units::time(without)
            ),
        );
    }
}

fn median(evidence: &Evidence, quantity: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let all: Vec<f64> = evidence.read(quantity, labels).iter().map(|one| one.value).collect();
    quantile::median(&all)
}

/// Compares the upload of a large object in one PUT with uploads in parts.
fn upload(found: &mut Conclusion, evidence: &Evidence) {
    let took = |how: &str| median(evidence, "object-upload", &[("parallel", how)]);
    let reading = evidence.read("object-upload", &[]).into_iter().next();
    let bytes = reading.and_then(|reading| reading.labels.get("bytes")?.parse().ok());
    let (Some(bytes), Some(one)) = (bytes, took("one PUT")) else { return };
    let mut words =
        format!("an upload of {} takes {} in one PUT", units::size(bytes), units::time(one));
    for parallel in UPLOAD_PARALLEL {
        if let Some(ns) = took(&parallel.to_string()) {
            let size = units::size(UPLOAD_PART);
            words += &format!("; {} in parts of {size}, {parallel} at a time", units::time(ns));
        }
    }
    found.find("multipart", words);
}

fn list(found: &mut Conclusion, evidence: &Evidence) {
    let reading = evidence.read("object-list", &[]).into_iter().next();
    let objects = reading.and_then(|reading| reading.labels.get("objects")?.parse::<f64>().ok());
    let of = |quantity: &str| median(evidence, quantity, &[]);
    let (Some(objects), Some(all), Some(first), Some(pages)) =
        (objects, of("object-list"), of("object-list-page"), of("object-list-pages"))
    else {
        return;
    };
    found.find(
        "list",
        format!(
            "a LIST of {objects} objects takes {} in {} ({} objects per second); the first page \
             takes {}",
            units::time(all),
            units::counted(pages as u64, "page"),
            units::count(objects * 1e9 / all.max(1.0)),
            units::time(first)
        ),
    );
}

fn chart(id: &str, title: &str, summary: &str, unit: Unit, series: Vec<Series>) -> Option<Chart> {
    let axis = |label: &str, unit, scale| Axis { label: label.to_owned(), unit, scale };
    (!series.is_empty()).then(|| Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        summary: summary.to_owned(),
        x: axis("Object size", Unit::Bytes, Scale::Log2),
        y: axis(if unit == Unit::Nanoseconds { "Time" } else { "Rate" }, unit, Scale::Log10),
        series,
        guides: Vec::new(),
        kind: Kind::Lines,
    })
}

/// Adds a point to the series of this name. Creates the series if it does not exist.
fn plot(series: &mut Vec<Series>, name: String, bytes: u64, y: f64) {
    let point = Point { x: bytes as f64, y, ..Point::default() };
    match series.iter_mut().find(|one| one.name == name) {
        Some(one) => one.points.push(point),
        None => series.push(Series { name, points: vec![point], dashed: false, hue: None }),
    }
}

fn rate_chart(points: &[&ObjectPoint]) -> Option<Chart> {
    let mut series = Vec::new();
    for point in points.iter().filter(|point| point.op != "DELETE") {
        let name = format!("{}, {} at a time", point.op, point.parallel);
        plot(&mut series, name, point.bytes, point.bytes_per_s());
    }
    let (title, summary) = ("Throughput by object size", "Each point is the median of all rounds.");
    chart("object-rate", title, summary, Unit::BytesPerSecond, series)
}

fn time_chart(points: &[&ObjectPoint]) -> Option<Chart> {
    let mut series = Vec::new();
    for point in points.iter().filter(|point| point.op != "DELETE" && point.parallel == 1) {
        for (what, ns) in [("whole", point.median_ns), ("first byte", point.first_byte_ns)] {
            if let Some(ns) = ns {
                plot(&mut series, format!("{}, {what}", point.op), point.bytes, ns);
            }
        }
    }
    let title = "Time of a request by object size, one request at a time";
    let summary = "Median times until the first and until the last byte of the response.";
    chart("object-time", title, summary, Unit::Nanoseconds, series)
}

/// Builds a table with a row for every setting.
fn table(points: &[ObjectPoint]) -> Option<Table> {
    let row = |point: &ObjectPoint| {
        let per_mib = |ns: f64| ns * f64::from(1 << 20) / point.bytes as f64;
        vec![
            Cell::Text(point.op.clone()),
            Cell::Text(if point.is_signed { "signed" } else { "unsigned" }.to_owned()),
            Cell::Number(point.bytes as f64),
            Cell::Number(point.parallel as f64),
            Cell::Number(point.per_s),
            Cell::Number(point.bytes_per_s()),
            point.first_byte_ns.into(),
            point.median_ns.into(),
            point.tail_ns.into(),
            point.cpu().into(),
            point.cpu().map(per_mib).into(),
        ]
    };
    let text = |label: &str| Column { label: label.to_owned(), unit: None };
    let numbers = [
        ("Object size", Unit::Bytes),
        ("Requests at a time", Unit::Count),
        ("Requests", Unit::PerSecond),
        ("Throughput", Unit::BytesPerSecond),
        ("First byte, median", Unit::Nanoseconds),
        ("Whole object, median", Unit::Nanoseconds),
        ("Whole object, 99th percentile", Unit::Nanoseconds),
        ("CPU per request", Unit::Nanoseconds),
        ("CPU per MiB", Unit::Nanoseconds),
    ];
    let numbers = numbers.map(|(label, unit)| Column { label: label.to_owned(), unit: Some(unit) });
    (!points.is_empty()).then(|| Table {
        id: "object-requests".to_owned(),
        caption: "Requests for whole objects, by object size and number of requests at a time"
            .to_owned(),
        columns: [text("Request"), text("Payload")].into_iter().chain(numbers).collect(),
        rows: points.iter().map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Labels = Vec<(&'static str, String)>;

    fn labels(op: &str, bytes: u64, parallel: u64, payload: &str) -> Labels {
        vec![
            ("op", op.to_owned()),
            ("bytes", bytes.to_string()),
            ("parallel", parallel.to_string()),
            ("payload", payload.to_owned()),
        ]
    }

    /// Adds readings of requests that take 1 ms plus 10 ns per byte, and 50 us of CPU plus 1 ns per
    /// byte. Signing costs another 3 ns of CPU per byte.
    fn note(evidence: &mut Evidence, op: &str, bytes: u64, parallel: u64, payload: &str) {
        let labels = labels(op, bytes, parallel, payload);
        let ns = 1e6 + 10.0 * bytes as f64;
        let per_byte = if payload == "signed" { 4.0 } else { 1.0 };
        evidence.note("object-requests", "1/s", &labels, parallel as f64 * 1e9 / ns);
        for (quantile, factor) in [("0.5", 1.0), ("0.99", 2.0)] {
            let labels = [&labels[..], &[("quantile", quantile.to_owned())]].concat();
            evidence.note("object-first-byte", "ns", &labels, 500_000.0);
            evidence.note("object-time", "ns", &labels, factor * ns);
        }
        for trial in [0, 1] {
            let labels = [&labels[..], &[("trial", trial.to_string())]].concat();
            // The second trial is three times as fast as the first, so a gain of 2 from two
            // requests at a time is not distinguishable from noise.
            let rate = parallel as f64 * 1e9 / ns * (1.0 + 2.0 * f64::from(trial));
            evidence.note("object-requests-of-trial", "1/s", &labels, rate);
            evidence.note("object-cpu", "ns", &labels, 50_000.0 + per_byte * bytes as f64);
        }
    }

    fn evidence() -> Evidence {
        let mut evidence = Evidence::default();
        for bytes in [4 << 10, 1 << 20] {
            for parallel in [1, 8] {
                note(&mut evidence, "PUT", bytes, parallel, "unsigned");
                note(&mut evidence, "GET", bytes, parallel, "unsigned");
            }
            note(&mut evidence, "PUT", bytes, 1, "signed");
        }
        note(&mut evidence, "DELETE", 4 << 10, 1, "unsigned");
        for (how, ns) in [("one PUT", 200e6), ("1", 300e6), ("4", 100e6)] {
            let labels = [("bytes", (32 << 20).to_string()), ("parallel", how.to_owned())];
            evidence.note("object-upload", "ns", &labels, ns);
        }
        let objects = [("objects", "1100".to_owned())];
        for (quantity, value) in
            [("object-list", 55e6), ("object-list-page", 50e6), ("object-list-pages", 2.0)]
        {
            evidence.note(quantity, "ns", &objects, value);
        }
        evidence
    }

    fn text(found: &Conclusion, id: &str) -> String {
        let texts = found.findings.iter().filter(|finding| finding.id == id);
        texts.map(|finding| finding.headline.clone()).collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    fn says(found: &Conclusion, id: &str, words: &[&str]) {
        let text = text(found, id);
        for words in words {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn times_and_rates_are_those_of_their_settings() {
        let found = analyse(&evidence());
        let put = "a PUT of 4 KiB takes 1.04 ms (99th percentile 2.08 ms)";
        let get = "a GET of 4 KiB takes 1.04 ms (99th percentile 2.08 ms, first byte after 500 us)";
        says(
            &found,
            "latency",
            &[put, get, " and one of 1 MiB takes 11.5 ms", "a DELETE of 4 KiB"],
        );
        let most = "PUT reaches 7685 requests per second (objects of 4 KiB, 8 at a time) and \
                    697 MiB/s";
        says(&found, "ceiling", &[most]);
        let gain = "several requests at a time compared with one: 8.00 times the rate with 4 KiB";
        says(&found, "parallel", &[gain]);
    }

    #[test]
    fn fixed_and_marginal_costs_are_separated() {
        let found = analyse(&evidence());
        says(&found, "cost", &["a PUT costs this host 50 us (", "plus 1.05 ms (", "a GET costs"]);
        let signed = "a PUT of 1 MiB costs 4.24 ms of CPU with a signed payload and 1.1 ms \
                      with an unsigned one";
        says(&found, "signature", &[signed, "a PUT of 4 KiB costs 66.4 us"]);
    }

    #[test]
    fn uploads_and_lists_are_compared() {
        let found = analyse(&evidence());
        let upload = "an upload of 32 MiB takes 200 ms in one PUT; 300 ms in parts of 8 MiB, 1 at \
                      a time; 100 ms in parts of 8 MiB, 4 at a time";
        says(&found, "multipart", &[upload]);
        let list = "a LIST of 1100 objects takes 55 ms in 2 pages (20k objects per second); the \
                    first page takes 50 ms";
        says(&found, "list", &[list]);
    }

    #[test]
    fn table_and_charts_have_every_setting() {
        let found = analyse(&evidence());
        assert_eq!((found.tables.len(), found.charts.len()), (1, 2));
        assert_eq!(found.tables[0].rows.len(), 11);
        assert_eq!(found.charts[0].series.len(), 4);
        assert!(found.charts[0].series.iter().all(|series| series.points.len() == 2));
    }

    #[test]
    fn a_gain_within_the_noise_is_none() {
        let mut evidence = Evidence::default();
        for parallel in [1, 2] {
            note(&mut evidence, "GET", 4 << 10, parallel, "unsigned");
        }
        let found = analyse(&evidence);
        says(&found, "parallel", &["compared with one: no measurable difference with 4 KiB"]);
    }

    #[test]
    fn what_an_interrupt_left_out_is_not_claimed() {
        let mut evidence = Evidence::default();
        note(&mut evidence, "PUT", 4 << 10, 1, "unsigned");
        let found = analyse(&evidence);
        let ids: Vec<&str> = found.findings.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids, ["latency", "ceiling"]);
    }
}
