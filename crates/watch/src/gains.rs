//! Predicts how much faster a program would be after a change, such as larger requests. The
//! prediction uses Amdahl's law and a stored survey of the device.
//!
//! A program waits for a class of requests during a share p of its time. If the device is s times
//! as fast in another setting, the program is 1 / (1 - p + p / s) times as fast. This assumes that
//! the rest of the program's time does not change, and that the program could issue its requests in
//! that setting. The possible changes are those of the survey's advice.
//!
//! If the survey measured the program's setting, s is the survey's rate in the new setting divided
//! by the survey's rate in the program's setting. Other causes that make the program slower than
//! the survey, such as different buffers or the layout of its files, are assumed to slow down both
//! settings by the same factor. If the survey did not measure the program's setting, s is the rate
//! of the new setting divided by the rate of the program while it waits.

use analysis::units;
use ioengine::{Caching, Op};
use lab::evidence::MeasuredPoint;
use survey::advice::{GAIN_MIN, Rule, rules};
use survey::insight::{Insight, as_good};
use trace::Operation;

use crate::document::{DataDocument, GainDocument, PlaceDocument, TraceDocument, WaitDocument};

/// A change is reported only if its requests take at least this share of the program's time, and if
/// the program becomes faster by at least this share.
const SHARE_MIN: f64 = 0.05;
/// Buffered reads count as waiting for the device if the reads that waited took more than this
/// share of the time of all reads.
const WAITED_MIN: f64 = 0.5;
/// Request sizes are comparable up to this ratio.
const SIZES_APART: f64 = 4.0;
/// Depths count as equal up to this ratio.
const DEPTHS_APART: f64 = 1.5;
/// The prediction for fewer flushes assumes this many writes per flush.
const WRITES_PER_FLUSH: f64 = 8.0;
/// Minimum request size for which buffers on huge pages can be faster (bytes).
const HUGE_PAGES_MATTER_BYTES: u64 = 256 << 10;
/// Requests of less than this size may gain from the page cache, which can coalesce them. Larger
/// requests may gain from direct I/O (bytes).
const LARGE_BYTES: u64 = 64 << 10;

/// A class of requests that wait for the device.
struct Asked<'a> {
    wait: &'a WaitDocument,
    operation: Op,
    is_direct: bool,
    is_random: bool,
    /// Rate of the program while it waits (requests/s for random requests, otherwise bytes/s).
    own: f64,
}

impl Asked<'_> {
    fn rate(&self, point: &MeasuredPoint) -> f64 {
        if self.is_random { point.requests_per_s() } else { point.rate() }
    }

    fn name(&self) -> String {
        let order = if self.is_random { "random" } else { "sequential" };
        format!("{order} {}s of {}", self.operation, units::size(self.wait.bytes))
    }
}

/// Predicts the gain of each possible change. The greatest gains are first.
pub fn gains(document: &TraceDocument, insight: &Insight<'_>, target: &str) -> Vec<GainDocument> {
    let rules = rules();
    let mut found: Vec<GainDocument> = Vec::new();
    for asked in asked(document) {
        let options = [
            ("larger-requests", larger(&asked, insight)),
            ("deeper-requests", deeper(&asked, insight)),
            ("deeper-random", deeper_random(&asked, insight)),
            ("bypass-cache-large", bypass(&asked, insight)),
            ("buffer-small", buffer(&asked, insight)),
        ];
        let points = options.into_iter().filter_map(|(id, point)| Some((id, point?)));
        found.extend(points.filter_map(|(id, point)| {
            let rule = rules.iter().find(|rule| rule.id == id)?;
            gain(&asked, rule, point, &Survey { insight, target })
        }));
    }
    found.extend(flushes(document, &rules));
    found.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    found
}

/// Returns the classes of requests that wait for the device for at least 5% of the time.
fn asked(document: &TraceDocument) -> Vec<Asked<'_>> {
    let of = |wait| {
        let (operation, name) = match wait_operation(wait)? {
            Operation::Read => (Op::Read, Operation::Read),
            Operation::Write => (Op::Write, Operation::Write),
            _ => return None,
        };
        let data = document.operation(name)?.data.as_ref()?;
        let is_direct = data.direct * 2 > data.count;
        if wait.share_of_time < SHARE_MIN || !asks_device(data, operation, is_direct) {
            return None;
        }
        let seconds = wait.outstanding_ns as f64 / 1e9;
        let is_random = wait.order == "random";
        let amount = if is_random { wait.count } else { wait.moved_bytes };
        Some(Asked { wait, operation, is_direct, is_random, own: amount as f64 / seconds })
    };
    document.waits.iter().filter_map(of).filter(|asked| asked.own > 0.0).collect()
}

fn wait_operation(wait: &WaitDocument) -> Option<Operation> {
    Operation::named(&wait.operation)
}

/// Checks whether requests wait for the device. Direct requests wait. Buffered reads wait if most
/// of their time is spent on page cache misses. Buffered writes do not wait; only their flushes
/// wait.
fn asks_device(data: &DataDocument, operation: Op, is_direct: bool) -> bool {
    is_direct || (operation == Op::Read && reads_wait(data))
}

/// Checks whether buffered reads spend most of their time waiting for the device. True if unknown.
pub fn reads_wait(reads: &DataDocument) -> bool {
    let is_known = reads.known_ns as f64 > WAITED_MIN * reads.busy_ns as f64;
    !is_known || reads.waited_ns as f64 > WAITED_MIN * reads.known_ns as f64
}

/// Returns the survey's sequential points with the program's caching mode. Empty for random
/// requests.
fn curve<'a>(asked: &Asked<'_>, insight: &Insight<'a>) -> Vec<&'a MeasuredPoint> {
    match asked.is_random {
        true => Vec::new(),
        false => insight.curve(asked.operation, asked.is_direct),
    }
}

/// Returns the measured depth that is nearest to the depth of the program.
fn nearest_depth(asked: &Asked<'_>, points: &[&MeasuredPoint]) -> Option<u32> {
    let apart = |depth: u32| (f64::from(depth).log2() - asked.wait.depth.max(1.0).log2()).abs();
    let depths = points.iter().map(|point| point.key().depth());
    depths.min_by(|a, b| apart(*a).total_cmp(&apart(*b)))
}

fn size_factor(asked: &Asked<'_>, point: &MeasuredPoint) -> f64 {
    let (own, theirs) = (asked.wait.bytes.max(1) as f64, point.key().request_bytes() as f64);
    (own / theirs).max(theirs / own)
}

/// Returns the points whose request size is nearest to that of the program.
fn of_nearest_size<'a>(
    asked: &Asked<'_>,
    points: Vec<&'a MeasuredPoint>,
) -> Vec<&'a MeasuredPoint> {
    let factors = points.iter().map(|point| size_factor(asked, point));
    let Some(least) = factors.min_by(f64::total_cmp) else { return points };
    points.into_iter().filter(|point| size_factor(asked, point) <= least * 1.001).collect()
}

fn larger<'a>(asked: &Asked<'_>, insight: &Insight<'a>) -> Option<&'a MeasuredPoint> {
    let mut points = curve(asked, insight);
    let depth = nearest_depth(asked, &points)?;
    points.retain(|point| {
        point.key().depth() == depth && point.key().request_bytes() > asked.wait.bytes
    });
    as_good(points).into_iter().min_by_key(|point| point.key().request_bytes())
}

fn deeper<'a>(asked: &Asked<'_>, insight: &Insight<'a>) -> Option<&'a MeasuredPoint> {
    let mut points = of_nearest_size(asked, curve(asked, insight));
    points.retain(|point| f64::from(point.key().depth()) > asked.wait.depth * 1.5);
    as_good(points).into_iter().min_by_key(|point| point.key().depth())
}

fn deeper_random<'a>(asked: &Asked<'_>, insight: &Insight<'a>) -> Option<&'a MeasuredPoint> {
    let mut points = if asked.is_random { insight.random(asked.operation) } else { return None };
    points.retain(|point| size_factor(asked, point) <= SIZES_APART);
    let mut points = of_nearest_size(asked, points);
    points.retain(|point| f64::from(point.key().depth()) > asked.wait.depth * 1.5);
    as_good(points).into_iter().min_by_key(|point| point.key().depth())
}

/// Returns the point with the nearest size and depth in the given caching mode.
fn other_caching<'a>(
    asked: &Asked<'_>,
    insight: &Insight<'a>,
    caching: &Caching,
) -> Option<&'a MeasuredPoint> {
    let all = insight.sequential(asked.operation);
    let mut points: Vec<&MeasuredPoint> =
        all.filter(|point| point.key().caching == *caching).collect();
    let depth = nearest_depth(asked, &points)?;
    points.retain(|point| point.key().depth() == depth);
    of_nearest_size(asked, points).into_iter().next()
}

fn bypass<'a>(asked: &Asked<'_>, insight: &Insight<'a>) -> Option<&'a MeasuredPoint> {
    let is_large = asked.wait.bytes >= LARGE_BYTES && !asked.is_random && !asked.is_direct;
    is_large.then(|| other_caching(asked, insight, &Caching::Direct)).flatten()
}

fn buffer<'a>(asked: &Asked<'_>, insight: &Insight<'a>) -> Option<&'a MeasuredPoint> {
    let is_small = asked.wait.bytes < LARGE_BYTES && !asked.is_random && asked.is_direct;
    is_small.then(|| other_caching(asked, insight, &Caching::Buffered)).flatten()
}

/// Returns the speedup of a program by Amdahl's law, if requests that take the given share of its
/// time become `times` times as fast.
fn amdahl(share: f64, times: f64) -> f64 {
    1.0 / (1.0 - share + share / times)
}

/// Returns the rate that the survey measured in the program's setting, and a description of this
/// setting. Between two measured sizes, the time of a request is interpolated linearly.
fn surveyed(asked: &Asked<'_>, insight: &Insight<'_>) -> Option<(f64, String)> {
    let points = match asked.is_random {
        true => insight.random(asked.operation),
        false => curve(asked, insight),
    };
    let depth = nearest_depth(asked, &points)?;
    let apart = f64::from(depth) / asked.wait.depth.max(1.0);
    if apart.max(1.0 / apart) > DEPTHS_APART {
        return None;
    }
    let own_bytes = asked.wait.bytes.max(1) as f64;
    let mut points: Vec<&MeasuredPoint> = points
        .into_iter()
        .filter(|point| point.key().depth() == depth && point.requests_per_s() > 0.0)
        .collect();
    points.sort_by_key(|point| point.key().request_bytes());
    let of =
        |point: &MeasuredPoint| (point.key().request_bytes() as f64, 1.0 / point.requests_per_s());
    let above = points.iter().position(|point| of(point).0 >= own_bytes)?;
    let (bytes, time) = of(points[above]);
    let (time, setting) = match above.checked_sub(1).map(|below| of(points[below])) {
        Some((less, shorter)) if bytes > own_bytes => {
            let time = shorter + (time - shorter) * (own_bytes - less) / (bytes - less);
            (time, "interpolated between two sizes".to_owned())
        }
        _ => (time, points[above].setting()),
    };
    let is_near = bytes / own_bytes <= SIZES_APART;
    let rate = if asked.is_random { 1.0 / time } else { own_bytes / time };
    (is_near && time > 0.0).then_some((rate, setting))
}

struct Survey<'a, 'b> {
    insight: &'b Insight<'a>,
    target: &'b str,
}

fn gain(
    asked: &Asked<'_>,
    rule: &Rule,
    to: &MeasuredPoint,
    survey: &Survey<'_, '_>,
) -> Option<GainDocument> {
    let surveyed = surveyed(asked, survey.insight);
    let times = asked.rate(to) / surveyed.as_ref().map_or(asked.own, |(rate, _)| *rate);
    let share = asked.wait.share_of_time.min(1.0);
    let gain = amdahl(share, times);
    if times < GAIN_MIN || gain < 1.0 + SHARE_MIN {
        return None;
    }
    let (setting, percent, target) = (to.setting(), share * 100.0, survey.target);
    let rate = |rate: f64| match asked.is_random {
        true => format!("{} requests/s", units::count(rate)),
        false => units::rate_mib(rate),
    };
    let own = rate(asked.own);
    let pages = huge_pages(asked, to, survey.insight);
    let base = match surveyed {
        Some((same, at)) => {
            format!(
                " as with the program's request size and depth (survey: {}, {at}; program: {own})",
                rate(same)
            )
        }
        None => format!(" as the program is now ({own})"),
    };
    let text = format!(
        "{}: the program would be {gain:.1} times as fast. It waits {percent:.0}% of the time for \
         {}, with {:.1} requests outstanding on average. In the proposed setting \
         ({setting}{pages}), {target} is {times:.1} times as fast{base}",
        rule.text,
        asked.name(),
        asked.wait.depth
    );
    Some(document_of(rule, text, share, times))
}

/// Returns a note if a setting is fast only because surveys use buffers on huge pages. Otherwise,
/// returns an empty string.
fn huge_pages(asked: &Asked<'_>, to: &MeasuredPoint, insight: &Insight<'_>) -> &'static str {
    let is_large = to.key().is_direct() && to.key().request_bytes() >= HUGE_PAGES_MATTER_BYTES;
    let is_small = |point: &&MeasuredPoint| {
        point.key().has_small_pages() && point.key().op() == Some(asked.operation)
    };
    let small = insight.seen.iter().find(is_small).filter(|_| is_large);
    let matters = small.is_some_and(|small| {
        let key = small.key();
        let huge = insight.at(asked.operation, key.caching, key.request_bytes(), key.depth());
        huge.is_some_and(|huge| huge.rate() > small.rate() * GAIN_MIN)
    });
    if matters { " with buffers on huge pages" } else { "" }
}

/// Formats the gain of a rule that makes requests `times` times as fast. The requests take `share`
/// of the program's time.
fn document_of(rule: &Rule, text: String, share: f64, times: f64) -> GainDocument {
    GainDocument {
        rule: rule.id.clone(),
        text,
        how: rule.how.clone(),
        share_of_time: share,
        times,
        gain: amdahl(share, times),
        computed: format!("1 / ({:.2} + {share:.2} / {times:.1})", 1.0 - share),
    }
}

/// Predicts the gain if the program flushes only once per [`WRITES_PER_FLUSH`] writes.
fn flushes(document: &TraceDocument, rules: &[Rule]) -> Option<GainDocument> {
    let rule = rules.iter().find(|rule| rule.id == "avoid-write-through")?;
    let wait = document.waits.iter().find(|wait| wait.operation == "flush")?;
    let writes = document.operation(Operation::Write)?.data.as_ref()?.count as f64;
    let each = writes / wait.count.max(1) as f64;
    let times = WRITES_PER_FLUSH / each.max(1.0);
    let share = wait.share_of_time.min(1.0);
    let gain = amdahl(share, times);
    if share < SHARE_MIN || times < GAIN_MIN || gain < 1.0 + SHARE_MIN {
        return None;
    }
    let text = format!(
        "{}: with one flush per {WRITES_PER_FLUSH:.0} writes, the program would be {gain:.1} times \
         as fast. It now flushes once per {each:.1} writes and waits {:.0}% of the time for its {} \
         flushes",
        rule.text,
        share * 100.0,
        units::count(wait.count as f64)
    );
    Some(document_of(rule, text, share, times))
}

/// Compares the size and depth of the program's sequential reads and writes with the half-power
/// points of the survey. For each operation, only the class that takes the most time is compared.
pub fn places(document: &TraceDocument, insight: &Insight<'_>) -> Vec<PlaceDocument> {
    let mut places: Vec<PlaceDocument> = Vec::new();
    for asked in asked(document).iter().filter(|asked| !asked.is_random) {
        // The classes are sorted by time, so the first class of an operation takes the most time.
        let operation = asked.operation.to_string();
        if !places.iter().any(|place| place.operation == operation) {
            places.extend(place(asked, insight));
        }
    }
    places
}

fn place(asked: &Asked<'_>, insight: &Insight<'_>) -> Option<PlaceDocument> {
    let curves = insight.half_power.iter().filter(|half| {
        half.operation == asked.operation && (half.caching == Caching::Direct) == asked.is_direct
    });
    let apart = |depth: u32| (f64::from(depth).log2() - asked.wait.depth.max(1.0).log2()).abs();
    let half = curves.min_by(|a, b| apart(a.depth).total_cmp(&apart(b.depth)))?;
    let depths = insight.half_power_depth.iter().filter(|of| {
        asked.is_direct && of.operation == asked.operation && of.request_bytes == asked.wait.bytes
    });
    let depth = depths.filter_map(|of| of.depth).next();
    let size = match half.measured {
        Some(bytes) => format!("with requests of {} or more", units::size(bytes)),
        None => "with no measured request size".to_owned(),
    };
    let by_depth = depth.map_or(String::new(), |depth| {
        format!(
            "; requests of {} reach half of the peak at depth {depth}",
            units::size(asked.wait.bytes)
        )
    });
    let text = format!(
        "Sequential {}s ({}, depth {}) reach half of the peak throughput {size}{by_depth}. The \
         program issues requests of {}, with {:.1} outstanding on average",
        asked.operation,
        half.caching,
        half.depth,
        units::size(asked.wait.bytes),
        asked.wait.depth
    );
    Some(PlaceDocument {
        operation: asked.operation.to_string(),
        request_bytes: asked.wait.bytes,
        depth: asked.wait.depth,
        half_power_bytes: half.measured,
        half_power_depth: depth,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::against;
    use crate::summary::Summary;
    use lab::evidence::testing::cell;
    use lab::machine::{Host, TargetFacts};
    use survey::survey_data::{Facts, SurveyData};
    use trace::{Call, FileId, Header, Request};

    /// Rate of the random reads of `reader`, each of which takes 810 us (requests/s).
    const OWN: f64 = 1e9 / 810_000.0;

    fn request(start_ns: u64, latency_ns: u64, operation: Operation, offset: u64) -> Request {
        let bytes = if operation.moves_data() { 8192 } else { 0 };
        Request {
            start_ns,
            latency_ns: Some(latency_ns),
            process: 1,
            thread: 1,
            call: Call::named("pread64").unwrap(),
            operation,
            file: FileId(0),
            offset: operation.moves_data().then_some(offset),
            bytes,
            result: Some(bytes as i64),
            direct: true,
            durable: false,
            device_bytes: None,
            sleeps: None,
        }
    }

    fn explained(requests: &[Request], points: &[(f64, &str, &str, &str)]) -> TraceDocument {
        let mut summary = Summary::default();
        requests.iter().for_each(|request| summary.take(request));
        let end = requests.last().and_then(|last| last.end_ns()).unwrap();
        // Like each request of `reader`, the last request is followed by a pause.
        let watched_ns = Some(end.next_multiple_of(1_000_000));
        let header = Header { watched_ns, ..Header::default() };
        let mut document = TraceDocument::of(&summary, &header, String::new());
        let point = |(rate, rw, bs, depth): &(f64, &str, &str, &str)| {
            let flags = [("rw", *rw), ("bs", *bs), ("iodepth", *depth), ("caching", "direct")];
            cell(*rate as u64, &flags).point
        };
        let points = points.iter().map(point).collect();
        let target = TargetFacts { name: "/data".to_owned(), ..TargetFacts::default() };
        let data = SurveyData::new(Host::default(), target, points, Facts::default(), 0);
        against::explain(&mut document, &data);
        document
    }

    /// Generates random reads of 8 KiB, one at a time: each read takes 810 us and is followed by a
    /// pause of 190 us.
    fn reader() -> Vec<Request> {
        let offset = |n: u64| (n * 613 % 977 + 1) * 65536;
        let read = |n| request((n - 1) * 1_000_000, 810_000, Operation::Read, offset(n));
        (1..=1000).map(read).collect()
    }

    #[test]
    fn random_reads_one_at_a_time_gain_by_depth_what_amdahls_law_says() {
        let rate = |times: f64| OWN * times * 8192.0;
        let points = [(rate(1.0), "randread", "8k", "1"), (rate(4.1), "randread", "8k", "8")];
        let document = explained(&reader(), &points);
        let [wait] = &document.waits[..] else { panic!("{:?}", document.waits) };
        assert_eq!((wait.order.as_str(), wait.bytes, wait.count), ("random", 8192, 1000));
        assert!((wait.share_of_time - 0.81).abs() < 0.001 && (wait.depth - 1.0).abs() < 1e-9);
        let [gain] = &document.gains[..] else { panic!("{:?}", document.gains) };
        assert_eq!(gain.rule, "deeper-random");
        let expected = 1.0 / (0.19 + 0.81 / 4.1);
        assert!((gain.gain / expected - 1.0).abs() < 0.01, "{gain:?}");
        assert_eq!(gain.computed, "1 / (0.19 + 0.81 / 4.1)");
        for part in [
            "It waits 81% of the time for random reads of 8 KiB, with 1.0",
            "In the proposed setting (direct, 8 KiB x depth 8), /data is 4.1 times as fast",
        ] {
            assert!(gain.text.contains(part), "{gain:?}");
        }
        let share = document.share_of_device.unwrap();
        assert!((share * 4.1 - 1.0).abs() < 0.01, "{share}");
        let text = crate::text::lines(&document).join(" ");
        for part in [
            "waits for storage, it gets 24% of the device's best performance",
            "[deeper-random]",
            "how: use io_uring",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn a_program_slower_than_the_survey_gains_what_the_survey_gained() {
        // At depth 1, the surveyed rate is 1.5 times the rate of the program. At depth 8, the
        // surveyed rate is 4.1 times the surveyed rate at depth 1.
        let rate = |times: f64| OWN * times * 8192.0;
        let points = [(rate(1.5), "randread", "8k", "1"), (rate(1.5 * 4.1), "randread", "8k", "8")];
        let document = explained(&reader(), &points);
        let [gain] = &document.gains[..] else { panic!("{:?}", document.gains) };
        assert!((gain.times / 4.1 - 1.0).abs() < 0.001, "{gain:?}");
        assert!(gain.text.contains("; program: 1235 requests/s)"), "{gain:?}");
    }

    #[test]
    fn a_rate_between_two_measured_sizes_follows_the_time_of_a_request() {
        // Reads take 100 us for 4 KiB and 130 us for 16 KiB, so 8 KiB take 110 us by interpolation.
        // At 1 MiB, the rate is 9.4 times as high.
        let requests: Vec<Request> =
            (0..1000).map(|n| request(n * 200_000, 200_000, Operation::Read, n * 8192)).collect();
        let points = [
            (4096.0 / 100e-6, "read", "4k", "1"),
            (16384.0 / 130e-6, "read", "16k", "1"),
            (1048576.0 / 1500e-6, "read", "1m", "1"),
        ];
        let document = explained(&requests, &points);
        let gain = document.gains.iter().find(|gain| gain.rule == "larger-requests").unwrap();
        let expected = (1048576.0 / 1500e-6) / (8192.0 / 110e-6);
        assert!((gain.times / expected - 1.0).abs() < 0.001, "{gain:?}");
    }

    #[test]
    fn a_program_that_gets_what_the_device_gives_has_nothing_to_gain() {
        let points = [(OWN * 8192.0, "randread", "8k", "1"), (OWN * 8192.0, "randread", "8k", "8")];
        let document = explained(&reader(), &points);
        assert_eq!(document.gains, []);
        assert!((document.share_of_device.unwrap() - 1.0).abs() < 0.01);
    }

    #[test]
    fn waits_that_are_a_small_part_of_the_time_gain_little() {
        let requests: Vec<Request> = (0..100)
            .map(|n| request(n * 1_000_000, 30_000, Operation::Read, n * n % 97 * 65536))
            .collect();
        let points = [(1e6, "randread", "8k", "1"), (1e12, "randread", "8k", "8")];
        assert_eq!(explained(&requests, &points).gains, []);
    }

    #[test]
    fn flushes_after_each_write_are_priced_by_their_share_of_the_time() {
        // In each millisecond, a write takes 200 us and a flush takes 380 us.
        let mut requests = Vec::new();
        for n in 0..1000_u64 {
            let write = request(n * 1_000_000, 200_000, Operation::Write, n * 8192);
            requests.push(Request { direct: false, ..write });
            requests.push(request(n * 1_000_000 + 200_000, 380_000, Operation::Flush, 0));
        }
        let document = explained(&requests, &[(1e9, "write", "8k", "1")]);
        let gain = document.gains.iter().find(|gain| gain.rule == "avoid-write-through");
        let gain = gain.unwrap_or_else(|| panic!("{:?}", document.gains));
        assert!((gain.share_of_time - 0.38).abs() < 0.001, "{gain:?}");
        assert!((gain.gain / (1.0 / (0.62 + 0.38 / 8.0)) - 1.0).abs() < 0.01, "{gain:?}");
        let part = "flushes once per 1.0 writes and waits 38% of the time for its 1000 flushes";
        assert!(gain.text.contains(part), "{gain:?}");
    }

    #[test]
    fn small_sequential_reads_are_placed_on_the_curve_of_the_device() {
        let requests: Vec<Request> =
            (0..1000).map(|n| request(n * 100_000, 100_000, Operation::Read, n * 8192)).collect();
        // The program reaches 82 MB/s. The device reaches 80 MB/s with requests of 8 KiB, and 500
        // MB/s with requests of 1 MiB.
        let points = [
            (80e6, "read", "8k", "1"),
            (200e6, "read", "32k", "1"),
            (320e6, "read", "128k", "1"),
            (500e6, "read", "1m", "1"),
            (160e6, "read", "8k", "4"),
        ];
        let document = explained(&requests, &points);
        let [place] = &document.places[..] else { panic!("{:?}", document.places) };
        assert_eq!(place.half_power_bytes, Some(128 << 10), "{place:?}");
        assert!(place.text.contains("peak throughput with requests of 128 KiB"), "{place:?}");
        assert!(place.text.contains("issues requests of 8 KiB, with 1.0 outstanding"), "{place:?}");
        let rules: Vec<&str> = document.gains.iter().map(|gain| gain.rule.as_str()).collect();
        assert_eq!(rules, ["larger-requests", "deeper-requests"], "{:?}", document.gains);
        assert!((document.gains[0].gain / (500.0 / 80.0) - 1.0).abs() < 0.01);
    }

    #[test]
    fn bytes_are_told_at_each_level_if_the_trace_has_both() {
        let mut requests = reader();
        // During each read of the program, the device moves 12 KiB. The requests of the block layer
        // move 16 KiB, because they include requests of other programs.
        requests.iter_mut().for_each(|request| {
            (request.direct, request.device_bytes) = (false, Some(12288));
        });
        let points = [(OWN * 8192.0, "randread", "8k", "1")];
        assert_eq!(explained(&requests, &points).amplification, []);
        let block = |n: u64| Request {
            call: Call::BLOCK,
            file: FileId(9),
            bytes: 16384,
            result: Some(16384),
            ..request(n * 1_000_000, 700_000, Operation::Read, n * 16384)
        };
        requests.extend((0..1000).map(block));
        requests.sort_by_key(|request| request.start_ns);
        let document = explained(&requests, &points);
        let [reads] = &document.amplification[..] else { panic!("{:?}", document.amplification) };
        assert_eq!((reads.program_bytes, reads.cache_bytes), (8_192_000, 8_192_000));
        assert_eq!((reads.device_bytes, reads.factor), (16_384_000, 2.0));
        let text = crate::text::lines(&document).join(" ");
        let words: Vec<&str> = text.split_whitespace().collect();
        let part = "devices read 15.6 MiB for all programs, of which 11.7 MiB during the";
        assert!(words.join(" ").contains(part), "{text}");
    }
}
