//! Compares the throughput of a program with a stored survey of its device: how close the program
//! is to the best setting, and which change would help it most.
//!
//! The program is represented by its most common request size and its mean number of requests in
//! flight. It is compared with the most similar setting that the survey measured, and with the
//! fastest setting of the same access order.
//!
//! Reads that mostly came from the page cache are not compared. Buffered writes without a flush are
//! not compared, because they did not wait for the device. Reads or writes that take less than 5%
//! of the time are not compared. If no write was direct, the time of flushes counts as time of the
//! writes.

use analysis::units;
use ioengine::Op;
use lab::evidence::MeasuredPoint;
use survey::insight::Insight;
use survey::survey_data::SurveyData;
use trace::Operation;

use crate::document::percent;
use crate::document::{AgainstDocument, DataDocument, SettingDocument, TraceDocument};
use crate::gains;

/// Reads or writes are compared only if they take at least this share of the trace's duration.
const SHARE_MIN: f64 = 0.05;
/// Reads or writes are compared only if there are at least this many requests.
const REQUESTS_MIN: u64 = 20;

impl SettingDocument {
    fn of(point: &MeasuredPoint) -> SettingDocument {
        SettingDocument {
            setting: point.setting(),
            bytes_per_s: point.rate(),
            requests_per_s: point.requests_per_s(),
        }
    }
}

/// The reads or writes of a program, in terms of the parameters of a survey.
struct Asked {
    operation: Op,
    bytes: u64,
    depth: f64,
    is_random: bool,
    is_direct: bool,
    bytes_per_s: f64,
    requests_per_s: f64,
}

/// Compares a program with a survey. Adds to the document the throughput compared with the best
/// setting, the position of the program on the survey's curves, and the gain of possible changes.
pub fn explain(document: &mut TraceDocument, data: &SurveyData) {
    let insight = Insight::of(data);
    let target = data.evidence.targets.first().map_or("the target", |target| &target.name);
    document.against = against(document, data);
    document.share_of_device = share_of_device(document);
    document.places = gains::places(document, &insight);
    document.gains = gains::gains(document, &insight, target);
}

/// Returns the performance of the program as a share of the performance of the best setting: the
/// mean of the shares of reads and writes, weighted by the time that the program waits for each.
/// None if neither reads nor writes can be compared.
fn share_of_device(document: &TraceDocument) -> Option<f64> {
    let of = |one: &AgainstDocument| {
        let operation = Operation::named(&one.operation)?;
        Some((document.operation(operation)?.outstanding_ns as f64, one.share_of_best?))
    };
    let parts: Vec<(f64, f64)> = document.against.iter().filter_map(of).collect();
    let waited: f64 = parts.iter().map(|(ns, _)| ns).sum();
    let best: f64 = parts.iter().map(|(ns, share)| ns * share).sum();
    (waited > 0.0).then(|| best / waited)
}

/// Compares the reads and the writes of a program with a survey.
pub fn against(document: &TraceDocument, data: &SurveyData) -> Vec<AgainstDocument> {
    let insight = Insight::of(data);
    let target = data.evidence.targets.first().map_or("the target", |target| &target.name);
    let of = |(operation, op)| {
        let of = document.operation(operation)?;
        let requests = of.data.as_ref().filter(|data| data.count >= REQUESTS_MIN)?;
        if of.outstanding_ns == 0 {
            return None;
        }
        let mut seconds = of.outstanding_ns as f64 / 1e9;
        // Buffered writes reach the device only with a flush, so the flush time is added.
        if op == Op::Write && requests.direct == 0 {
            let flushes = document.operation(Operation::Flush)?;
            seconds += flushes.outstanding_ns as f64 / 1e9;
        }
        if seconds * 1e9 < SHARE_MIN * document.duration_ns as f64 {
            return None;
        }
        let asked = Asked {
            operation: op,
            bytes: requests.sizes.iter().max_by_key(|size| size.count)?.bytes,
            depth: (requests.busy_ns as f64 / of.outstanding_ns as f64).max(1.0),
            is_random: requests.random + requests.strided > requests.sequential + requests.repeated,
            is_direct: requests.direct * 2 > requests.count,
            bytes_per_s: requests.moved_bytes as f64 / seconds,
            requests_per_s: requests.count as f64 / seconds,
        };
        Some(compared(&asked, requests, &insight, target))
    };
    [(Operation::Read, Op::Read), (Operation::Write, Op::Write)]
        .into_iter()
        .filter_map(of)
        .collect()
}

fn compared(
    asked: &Asked,
    requests: &DataDocument,
    insight: &Insight<'_>,
    target: &str,
) -> AgainstDocument {
    let points: Vec<&MeasuredPoint> = match asked.is_random {
        true => insight.random(asked.operation),
        false => insight.sequential(asked.operation).collect(),
    };
    let nearest = points.iter().min_by(|a, b| distance(asked, a).total_cmp(&distance(asked, b)));
    let rate = |point: &MeasuredPoint| match asked.is_random {
        true => point.requests_per_s(),
        false => point.rate(),
    };
    let best = points.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let own = if asked.is_random { asked.requests_per_s } else { asked.bytes_per_s };
    let is_cached = asked.operation == Op::Read && !asked.is_direct && !gains::reads_wait(requests);
    let share = best.map(|best| own / rate(best).max(1.0)).filter(|_| !is_cached);
    let text = match (best, share) {
        _ if is_cached => format!(
            "{} of the reads came from the page cache; the other reads took {} of the read time, \
             which is too little for a comparison with {target}",
            percent(requests.in_memory as f64 / requests.with_device_bytes.max(1) as f64),
            percent(requests.waited_ns as f64 / requests.known_ns.max(1) as f64)
        ),
        (Some(best), Some(share)) => sentence(asked, best, share, target),
        _ => format!("the survey of {target} measured no {}", name(asked)),
    };
    AgainstDocument {
        operation: if asked.operation == Op::Read { "read" } else { "write" }.to_owned(),
        target: target.to_owned(),
        bytes_per_s: asked.bytes_per_s,
        requests_per_s: asked.requests_per_s,
        nearest: nearest.map(|point| SettingDocument::of(point)),
        best: best.map(|point| SettingDocument::of(point)),
        share_of_best: share,
        text,
    }
}

/// Returns the distance of a measured setting from the requests: the difference in log2(size), plus
/// the difference in log2(depth), plus 4 if the caching mode differs.
fn distance(asked: &Asked, point: &MeasuredPoint) -> f64 {
    let key = point.key();
    let factor = |one: f64, other: f64| (one.max(1.0) / other.max(1.0)).log2().abs();
    let caching = if key.is_direct() == asked.is_direct { 0.0 } else { 4.0 };
    let size = factor(asked.bytes as f64, key.request_bytes() as f64);
    caching + size + factor(asked.depth, f64::from(key.depth()))
}

fn name(asked: &Asked) -> &'static str {
    match (asked.operation, asked.is_random) {
        (Op::Read, true) => "random reads",
        (Op::Read, false) => "sequential reads",
        (Op::Write, true) => "random writes",
        (Op::Write, false) => "sequential writes",
    }
}

fn sentence(asked: &Asked, best: &MeasuredPoint, share: f64, target: &str) -> String {
    let (own, theirs) = match asked.is_random {
        true => (
            format!("{} requests/s", units::count(asked.requests_per_s)),
            format!("{} requests/s", units::count(best.requests_per_s())),
        ),
        false => (units::rate_mib(asked.bytes_per_s), units::rate_mib(best.rate())),
    };
    let setting = best.setting();
    let gain = if share < 1.0 / 1.1 {
        format!("; this setting would be {:.1} times as fast as the program", 1.0 / share)
    } else {
        String::new()
    };
    format!(
        "{} of {}, with {:.1} requests outstanding on average: while the program waits for these \
         requests, the program gets {own}, which is {} of the {theirs} that {target} reaches in \
         its best setting ({setting}){gain}",
        name(asked),
        units::size(asked.bytes),
        asked.depth,
        percent(share)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::SizeDocument;
    use crate::summary::Summary;
    use lab::evidence::testing::cell;
    use lab::machine::{Host, TargetFacts};
    use survey::survey_data::Facts;
    use trace::Header;

    /// Returns the survey of a device with 40 MB/s for random direct reads of 8 KiB at depth 1, 160
    /// MB/s at depth 8, and 200 MB/s for sequential direct reads of 1 MiB.
    fn survey() -> SurveyData {
        let point = |rate, rw, bs, depth| {
            cell(rate, &[("rw", rw), ("bs", bs), ("iodepth", depth), ("caching", "direct")]).point
        };
        let points = vec![
            point(40_000_000, "randread", "8k", "1"),
            point(160_000_000, "randread", "8k", "8"),
            point(200_000_000, "read", "1m", "1"),
        ];
        let target = TargetFacts { name: "/data".to_owned(), ..TargetFacts::default() };
        SurveyData::new(Host::default(), target, points, Facts::default(), 0)
    }

    /// Returns the trace of a program that makes 1000 reads of 8 KiB, one at a time, in one second.
    fn program(sequential: u64, in_memory: u64) -> TraceDocument {
        let mut document =
            TraceDocument::of(&Summary::default(), &Header::default(), String::new());
        let mut summary = Summary::default();
        let request = trace::Request {
            start_ns: 0,
            latency_ns: Some(1_000_000_000),
            process: 1,
            thread: 1,
            call: trace::Call::named("read").unwrap(),
            operation: Operation::Read,
            file: trace::FileId(0),
            offset: Some(0),
            bytes: 8192,
            result: Some(8192),
            direct: false,
            durable: false,
            device_bytes: Some(0),
            sleeps: Some(0),
        };
        summary.take(&request);
        document.operations =
            TraceDocument::of(&summary, &Header::default(), String::new()).operations;
        let data = document.operations[0].data.as_mut().unwrap();
        data.count = 1000;
        data.moved_bytes = 8_192_000;
        data.sizes = vec![SizeDocument { bytes: 8192, count: 1000 }];
        (data.sequential, data.random) = (sequential, 999 - sequential);
        (data.with_device_bytes, data.in_memory) = (1000, in_memory);
        // All reads take equally long.
        data.known_ns = data.busy_ns;
        data.waited_ns = data.busy_ns / 1000 * (1000 - in_memory);
        document
    }

    #[test]
    fn random_reads_one_at_a_time_are_far_from_what_the_device_gives_at_depth() {
        let [reads] = &against(&program(0, 0), &survey())[..] else { panic!() };
        // 160 MB/s are 19531 requests/s of 8 KiB.
        assert!((reads.share_of_best.unwrap() - 1000.0 / 19531.0).abs() < 0.002, "{reads:?}");
        assert!(reads.nearest.as_ref().unwrap().setting.contains("depth 1"), "{reads:?}");
        assert!(reads.text.contains("5% of the 19.5k requests/s that /data reaches"), "{reads:?}");
        assert!(reads.text.contains("; this setting would be 19.5 times as fast"), "{reads:?}");
    }

    #[test]
    fn sequential_reads_are_compared_in_bytes() {
        let [reads] = &against(&program(999, 100), &survey())[..] else { panic!() };
        assert!((reads.share_of_best.unwrap() - 8.192 / 200.0).abs() < 0.001, "{reads:?}");
    }

    #[test]
    fn reads_from_the_page_cache_are_not_compared() {
        let [reads] = &against(&program(999, 900), &survey())[..] else { panic!() };
        assert_eq!(reads.share_of_best, None);
        let expected = "90% of the reads came from the page cache; the other reads took 10%";
        assert!(reads.text.starts_with(expected), "{reads:?}");
    }
}
