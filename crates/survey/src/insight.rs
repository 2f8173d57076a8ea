//! Draws the conclusions of a survey: peaks, half-power points, CPU costs, the rate of each layer
//! from device to memory, the best settings and the verdict. The conclusions depend only on the
//! measurements. The module `findings` formats the conclusions as text.

use analysis::units;
use ioengine::{Caching, Op};
use std::cmp::Reverse;

use analysis::costmodel::CostModel;
use analysis::halfpower;
use analysis::ladder::{self, Binding, Rung};
use analysis::ties;
use lab::check::Check;
use lab::evidence::MeasuredPoint;
use lab::point::{State, Verdict};
use lab::resource_usage::BindingDocument;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::app::App;
use crate::grid;
use crate::half_power::{self, HalfPower};
use crate::survey_data::SurveyData;
use crate::visits::SecondVisit;

/// Request size of the out-of-box setting (bytes). In this setting, a program issues one buffered
/// request at a time.
pub const OUT_OF_BOX_BYTES: u64 = grid::OUT_OF_BOX_BYTES as u64;
/// A rate counts as equal to the fastest rate if the rate reaches a threshold. The threshold lies
/// in this range (shares of the fastest rate). [`ties::bar`] places the threshold in the widest gap
/// between the rates.
const AS_GOOD: (f64, f64) = (0.88, 0.97);
/// Minimum share of the direct points at which the rate must fall within a trial, so that the
/// verdict mentions the fall. At fewer points, the falls may be chance, because the test for a fall
/// has a small probability of a false alarm in each trial.
const FALLS_SHARE_MIN: f64 = 0.1;
/// Minimum rate of a setting that can count as equal to the fastest setting (share of the fastest
/// median rate). A slower setting never counts as equal, even if it was as fast as the fastest
/// setting in trials that ran at about the same time.
const MIN_SHARE: f64 = 0.8;
/// Maximum relative half width of the confidence interval of a figure in the results. A figure with
/// a wider interval is reported as noisy.
const SHOWN_NOISE: f64 = 0.3;
/// Of two equally fast settings, the cheaper setting is preferred only if its CPU cost is smaller
/// by more than this factor. The factor is large because the lower bounds of the CPU cost are
/// noisy.
const CHEAPER: f64 = 2.0;
/// The kernel's default read-ahead (bytes; read_ahead_kb of a block device).
const READ_AHEAD_BYTES: u64 = 128 << 10;
/// Maximum request size in a fit of CPU costs (bytes). The block layer splits larger requests.
const COST_BYTES_MAX: u64 = 1 << 20;

/// Returns the verdict on a point whose rate is shown in the results.
pub fn shown_verdict(point: &MeasuredPoint) -> Verdict {
    point.point.verdict(SHOWN_NOISE)
}

/// Returns how many bytes the setting keeps in flight. For buffered requests, this is at least the
/// kernel's read-ahead, even if the requests are smaller.
fn in_flight_bytes(point: &MeasuredPoint) -> u64 {
    let key = point.key();
    let requested = key.request_bytes().saturating_mul(u64::from(key.depth()));
    if key.is_direct() { requested } else { requested.max(READ_AHEAD_BYTES) }
}

/// Returns whether the point has the out-of-box setting: buffered sequential requests of 64 KiB,
/// one at a time.
fn is_out_of_box(point: &MeasuredPoint) -> bool {
    let key = point.key();
    let plain = key.caching == Caching::Buffered && key.depth() == 1 && !key.is_random();
    plain && key.request_bytes() == OUT_OF_BOX_BYTES
}

/// Serializes an operation as its name. `Op` does not implement `Serialize`, because `ioengine`
/// does not depend on serde.
fn text_of<S: Serializer>(operation: &Op, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(operation)
}

/// The peak rate of an operation (PAP).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Pap {
    /// The operation: read or write.
    #[serde(serialize_with = "text_of")]
    #[schemars(with = "String")]
    pub operation: Op,
    /// The peak rate [bytes per second].
    pub bytes_per_s: f64,
    /// Where the peak rate comes from, as text, for example "stated with --pap".
    pub source: String,
    /// Where the peak rate comes from.
    #[serde(skip)]
    pub basis: PapBasis,
}

/// Where a peak rate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PapBasis {
    /// The user stated the rate with --pap.
    Stated,
    /// The rate is the advertised rate of the slowest link between host and device.
    Advertised,
    /// The rate is the highest rate measured.
    Measured {
        /// Number of settings as good as the fastest, including the fastest.
        settings: usize,
    },
}

/// The queue depth at which the rate of sequential direct requests of one size exceeds half of the
/// peak.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HalfPowerDepth {
    /// The operation: read or write.
    #[serde(serialize_with = "text_of")]
    #[schemars(with = "String")]
    pub operation: Op,
    /// Request size (bytes).
    pub request_bytes: u64,
    /// Smallest measured depth with a rate above half of the peak. Null if there is no such depth.
    #[serde(rename = "depth_measured")]
    pub depth: Option<u32>,
}

/// The CPU cost of one operation in one caching mode.
#[derive(Clone, Debug)]
pub struct Cost {
    /// The operation: read or write.
    pub operation: Op,
    /// Caching mode.
    pub caching: Caching,
    /// Fixed cost per request and cost per KiB. The fit uses the lower bounds of the CPU time.
    pub model: CostModel,
}

/// The conclusions of a survey.
#[derive(Clone, Debug)]
pub struct Insight<'a> {
    /// Every measured point.
    pub seen: &'a [MeasuredPoint],
    /// Peak rates of the measured operations, reads before writes.
    pub pap: Vec<Pap>,
    /// Half-power size of each curve of sequential requests.
    pub half_power: Vec<HalfPower>,
    /// Half-power depths of direct sequential requests, for each request size that was measured at
    /// several depths.
    pub half_power_depth: Vec<HalfPowerDepth>,
    /// CPU costs, for each operation and caching mode for which the fit succeeded.
    pub costs: Vec<Cost>,
    /// The bottleneck ladder: the components between memory and device, with their rates.
    pub rungs: Vec<Rung>,
    /// The component that limits the fastest reads. None if unknown.
    pub binding: Option<Binding>,
    /// The resource that limits the fastest reads of a simulated system, in the same form as in the
    /// output of `simulate`. None for other targets.
    pub simulated_limit: Option<&'a BindingDocument>,
    /// CPU quota of the control group (CPUs). None unless the quota throttled the survey.
    pub cpu_quota: Option<f64>,
    /// The requests that the user's program issues today. None without --app.
    pub app: Option<App>,
    /// The verdict on the survey.
    pub verdict: Verdict,
}

impl<'a> Insight<'a> {
    /// Draws the conclusions from the data of a survey.
    pub fn of(data: &'a SurveyData) -> Insight<'a> {
        let mut insight = Insight {
            seen: &data.evidence.points,
            pap: Vec::new(),
            half_power: Vec::new(),
            half_power_depth: Vec::new(),
            costs: Vec::new(),
            rungs: Vec::new(),
            binding: None,
            simulated_limit: None,
            cpu_quota: data.facts.cpu_quota,
            app: data.facts.app,
            verdict: Verdict::default(),
        };
        insight.pap = Op::ALL.into_iter().filter_map(|op| insight.find_pap(data, op)).collect();
        insight.half_power = insight.find_half_power();
        insight.half_power_depth = insight.find_half_power_depth();
        insight.costs = insight.find_costs();
        insight.rungs = insight.find_rungs(data);
        insight.simulated_limit = insight
            .fastest(Op::Read)
            .and_then(|read| data.facts.simulated_limits.get(&read.key().describe()));
        insight.binding = insight.find_binding();
        insight.verdict = insight.judge(data);
        insight
    }

    /// Returns the points that conclusions may use. Excludes invalid points. Also excludes points
    /// whose buffers are on small pages, because these were measured only for a comparison.
    fn usable(&self) -> impl Iterator<Item = &'a MeasuredPoint> {
        self.seen.iter().filter(|point| {
            point.summary.verdict.state != State::Invalid && !point.key().has_small_pages()
        })
    }

    /// Returns the sequential points of an operation, without invalid points.
    pub fn sequential(&self, operation: Op) -> impl Iterator<Item = &'a MeasuredPoint> {
        self.usable()
            .filter(move |point| point.key().op() == Some(operation) && !point.key().is_random())
    }

    /// Returns the random points of an operation, without invalid points, in ascending order of
    /// depth.
    pub fn random(&self, operation: Op) -> Vec<&'a MeasuredPoint> {
        let mut found: Vec<_> = self
            .usable()
            .filter(|s| s.key().op() == Some(operation) && s.key().is_random())
            .collect();
        found.sort_by_key(|point| point.key().depth());
        found
    }

    /// Returns the sequential point with this setting. None if it was not measured or is invalid.
    pub fn at(
        &self,
        operation: Op,
        caching: Caching,
        bytes: u64,
        depth: u32,
    ) -> Option<&'a MeasuredPoint> {
        self.sequential(operation).find(|point| {
            let key = point.key();
            key.caching == caching && key.request_bytes() == bytes && key.depth() == depth
        })
    }

    /// Returns the out-of-box point: buffered requests of 64 KiB, one at a time. None if it was not
    /// measured or is invalid.
    pub fn out_of_box(&self, operation: Op) -> Option<&'a MeasuredPoint> {
        self.at(operation, Caching::Buffered, OUT_OF_BOX_BYTES, 1)
    }

    /// Returns the fastest sequential point of an operation. Invalid points are excluded.
    pub fn fastest(&self, operation: Op) -> Option<&'a MeasuredPoint> {
        self.sequential(operation).max_by(|a, b| a.rate().total_cmp(&b.rate()))
    }

    /// Returns the sequential points whose rates count as equal to the fastest rate, in ascending
    /// order of data in flight.
    pub fn as_good(&self, operation: Op) -> Vec<&'a MeasuredPoint> {
        let mut good = as_good(self.sequential(operation).collect());
        good.sort_by_key(|s| {
            let key = s.key();
            (in_flight_bytes(s), Reverse(key.request_bytes()), key.depth(), key.caching.name())
        });
        good
    }

    /// Returns the best setting. Of all settings that count as equally fast as the fastest, it is
    /// the setting with the least data in flight. If several settings have equally little data in
    /// flight, a setting with a clearly lower CPU cost is preferred.
    pub fn best(&self, operation: Op) -> Option<&'a MeasuredPoint> {
        let good = self.as_good(operation);
        let first = *good.first()?;
        let cost = |s: &MeasuredPoint| {
            let of_request = s.summary.cpu_lower_ns.unwrap_or(f64::MAX);
            of_request / s.key().request_bytes() as f64
        };
        let equal = good.iter().filter(|s| in_flight_bytes(s) == in_flight_bytes(first));
        let cheapest = equal.min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
        Some(if cost(cheapest) * CHEAPER < cost(first) { cheapest } else { first })
    }

    /// Returns the sequential points of an operation with direct I/O or with buffered I/O, without
    /// invalid points.
    pub fn curve(&self, operation: Op, direct: bool) -> Vec<&'a MeasuredPoint> {
        self.sequential(operation).filter(|point| point.key().is_direct() == direct).collect()
    }

    /// Returns the point that has the setting of the user's program (--app). Without --app, returns
    /// the out-of-box point.
    pub fn today(&self, operation: Op) -> Option<&'a MeasuredPoint> {
        let Some(app) = &self.app else { return self.out_of_box(operation) };
        let caching = Caching::of(app.direct, false);
        self.at(operation, caching, app.request_bytes.into(), app.depth)
    }

    fn find_pap(&self, data: &SurveyData, operation: Op) -> Option<Pap> {
        let highest = self.fastest(operation)?.rate();
        let highest_source = match self.as_good(operation).len() {
            0 | 1 => "one measurement that no other setting confirms".to_owned(),
            several => format!("the highest rate measured, confirmed by {several} settings"),
        };
        let measured = PapBasis::Measured { settings: self.as_good(operation).len() };
        let (bytes_per_s, source, basis) = if let Some(stated) = data.evidence.pap_bytes_per_s {
            (stated, "stated with --pap".to_owned(), PapBasis::Stated)
        } else if let Some((name, link)) = slowest_link(data) {
            if link >= highest {
                (link, format!("the advertised rate of {name}"), PapBasis::Advertised)
            } else {
                (
                    highest,
                    format!("{highest_source}, and above the advertised rate of {name}"),
                    measured,
                )
            }
        } else {
            (highest, highest_source, measured)
        };
        Some(Pap { operation, bytes_per_s, source, basis })
    }

    /// Returns the peak rate of an operation [bytes per second].
    pub fn pap_of(&self, operation: Op) -> Option<f64> {
        self.pap.iter().find(|pap| pap.operation == operation).map(|pap| pap.bytes_per_s)
    }

    /// Groups the sequential points by caching mode and depth. Each group is sorted by size.
    fn curves(&self, operation: Op) -> Vec<(Caching, u32, Vec<&'a MeasuredPoint>)> {
        let mut curves: Vec<(Caching, u32, Vec<&'a MeasuredPoint>)> = Vec::new();
        for point in self.sequential(operation) {
            let key = point.key();
            let place = curves.iter_mut().find(|c| c.0 == key.caching && c.1 == key.depth());
            match place {
                Some(curve) => curve.2.push(point),
                None => curves.push((key.caching, key.depth(), vec![point])),
            }
        }
        for curve in &mut curves {
            curve.2.sort_by_key(|point| point.key().request_bytes());
        }
        curves.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        curves
    }

    fn find_half_power(&self) -> Vec<HalfPower> {
        let mut found = Vec::new();
        for operation in Op::ALL {
            let Some(pap) = self.pap_of(operation) else { continue };
            let curves = self.curves(operation).into_iter();
            found.extend(curves.map(|(caching, depth, points)| {
                HalfPower::of(operation, caching, depth, &points, pap)
            }));
        }
        found
    }

    fn find_half_power_depth(&self) -> Vec<HalfPowerDepth> {
        let mut found = Vec::new();
        for operation in Op::ALL {
            let Some(pap) = self.pap_of(operation) else { continue };
            let direct = || self.sequential(operation).filter(|s| s.key().is_direct());
            let mut sizes: Vec<u64> = direct().map(|s| s.key().request_bytes()).collect();
            sizes.sort_unstable();
            sizes.dedup();
            for request_bytes in sizes {
                let same = direct().filter(|s| s.key().request_bytes() == request_bytes);
                let rates: Vec<(u64, f64)> =
                    same.map(|s| (u64::from(s.key().depth()), s.rate())).collect();
                if rates.len() > 1 {
                    let depth = halfpower::measured(&rates, pap).map(|depth| depth as u32);
                    found.push(HalfPowerDepth { operation, request_bytes, depth });
                }
            }
        }
        found
    }

    /// Fits CPU costs at depth 1, which is the only depth at which buffered requests are measured.
    fn find_costs(&self) -> Vec<Cost> {
        let mut found = Vec::new();
        for operation in Op::ALL {
            for (caching, _, mut points) in
                self.curves(operation).into_iter().filter(|curve| curve.1 == 1)
            {
                points.retain(|point| point.bytes() <= COST_BYTES_MAX);
                let model = half_power::cost_model(&points);
                found.extend(model.map(|model| Cost { operation, caching, model }));
            }
        }
        found
    }

    fn find_rungs(&self, data: &SurveyData) -> Vec<Rung> {
        let mut rungs = Vec::new();
        let mut add = |component: String, pap_bytes_per_s, rap_bytes_per_s| {
            rungs.push(Rung { component, pap_bytes_per_s, rap_bytes_per_s });
        };
        if let Some(rate) = data.facts.memory_copy_bytes_per_s {
            add("memory copy".to_owned(), None, Some(rate));
        }
        for link in data.target().links.iter().rev() {
            add(link.component.clone(), Some(link.bytes_per_s), None);
        }
        let stated = data.evidence.pap_bytes_per_s;
        for operation in Op::ALL {
            let best = |direct: bool| {
                let same = self.sequential(operation).filter(|s| s.key().is_direct() == direct);
                same.map(MeasuredPoint::rate).reduce(f64::max)
            };
            if let Some(rate) = best(true) {
                add(format!("device, {operation}s"), stated, Some(rate));
            }
            if let Some(rate) = best(false) {
                add(format!("file system cache, {operation}s"), None, Some(rate));
            }
        }
        rungs
    }

    /// Finds the component that limits the fastest reads. This is the component whose rate the
    /// reads nearly reach. If there is none, and if several settings are equally fast, it is the
    /// device.
    fn find_binding(&self) -> Option<Binding> {
        let delivered = self.fastest(Op::Read)?.rate();
        if let Some(limit) = self.simulated_limit {
            return self.rung_of(limit, delivered);
        }
        let above = |rung: &Rung| !rung.component.contains("reads");
        let others: Vec<Rung> = self
            .rungs
            .iter()
            .map(|rung| {
                if above(rung) && !rung.component.contains("writes") {
                    rung.clone()
                } else {
                    Rung { pap_bytes_per_s: None, rap_bytes_per_s: None, ..rung.clone() }
                }
            })
            .collect();
        if let Some(binding) = ladder::binding(&others, delivered) {
            return Some(binding);
        }
        // If only one setting is this fast, larger requests or a larger depth may be even faster,
        // so the device may not be the limit.
        if self.as_good(Op::Read).len() < 2 {
            return None;
        }
        let index = self.rungs.iter().position(|rung| rung.component == "device, reads")?;
        let own = self.rungs[index].rap_bytes_per_s?;
        Some(Binding { index, reason: ladder::Reason::NearMeasured { share: delivered / own } })
    }

    /// Returns the component of the ladder that limits a simulated system. None if the ladder does
    /// not contain the limiting resource.
    fn rung_of(&self, limit: &BindingDocument, delivered: f64) -> Option<Binding> {
        let is_limit = |rung: &Rung| match limit.resource.as_str() {
            "media" | "drive controller" => rung.component == "device, reads",
            name => rung.component == name,
        };
        let index = self.rungs.iter().position(is_limit)?;
        let rung = &self.rungs[index];
        let share = delivered / rung.rap_bytes_per_s.or(rung.pap_bytes_per_s)?;
        let reason = match rung.rap_bytes_per_s {
            Some(_) => ladder::Reason::NearMeasured { share },
            None => ladder::Reason::NearAdvertised { share },
        };
        Some(Binding { index, reason })
    }

    /// Returns the points that users are likely to quote, with their names: the out-of-box points
    /// and the best points. An out-of-box point is included even if it is invalid.
    fn quoted(&self) -> Vec<(String, &'a MeasuredPoint)> {
        let mut found: Vec<(String, &'a MeasuredPoint)> = Vec::new();
        for operation in Op::ALL {
            let plain = self.seen.iter().find(|point| {
                point.key().op() == Some(operation)
                    && is_out_of_box(point)
                    && !point.key().has_small_pages()
            });
            found.extend(plain.map(|point| (format!("out-of-box {operation}s"), point)));
            let best = self
                .best(operation)
                .filter(|best| plain.is_none_or(|plain| !std::ptr::eq(plain, *best)));
            found.extend(best.map(|point| (format!("best {operation}s"), point)));
        }
        found
    }

    /// Returns the number of suspect points, of invalid points, and of all points.
    pub fn doubtful(&self) -> (usize, usize, usize) {
        let of = |state| self.seen.iter().filter(|s| s.summary.verdict.state == state).count();
        (of(State::Suspect), of(State::Invalid), self.seen.len())
    }

    /// Flags the survey as suspect if the rate fell within a trial at many direct points. The cause
    /// may be a spent burst credit or throttling. The trials of a survey are short and may end
    /// before the rate falls, so the figures shown may be too high for a sustained load.
    fn judge_falls(&self, verdict: &mut Verdict) {
        let direct = || self.seen.iter().filter(|point| point.key().is_direct());
        let mut falls = direct().filter_map(|point| {
            let text = lab::verdict::fall(&point.summary.verdict)?;
            Some((point, text.split(": ").next().unwrap_or(text)))
        });
        let Some((point, text)) = falls.next() else { return };
        let (count, all) = (1 + falls.count(), direct().count());
        if count as f64 >= FALLS_SHARE_MIN * all as f64 {
            let text = format!(
                "the rate fell within a trial at {count} of {all} direct points (for example {} \
                 {}: {text}); under a sustained load, the rates are lower than in this survey; to \
                 measure a sustained load, run halfpower study burst",
                point.key().rw(),
                point.setting()
            );
            verdict.flag(State::Suspect, Check::RateChange, text);
        }
    }

    /// Returns the verdict on the survey. It depends mainly on the points that the results show,
    /// not on every point.
    fn judge(&self, data: &SurveyData) -> Verdict {
        let mut verdict = Verdict::default();
        if self.seen.is_empty() {
            verdict.flag(State::Invalid, Check::NoValidPoints, "nothing was measured");
            return verdict;
        }
        for operation in Op::ALL {
            let mut all = self.seen.iter().map(|point| point.key());
            let was_measured = all.any(|key| key.op() == Some(operation) && !key.is_random());
            if was_measured && self.fastest(operation).is_none() {
                let text = format!("no sequential {operation} has a valid result");
                verdict.flag(State::Invalid, Check::NoValidPoints, text);
            } else if !was_measured && operation == Op::Read {
                verdict.flag(State::Invalid, Check::NoValidPoints, "no read was measured");
            }
        }
        for (name, point) in self.quoted() {
            let found = shown_verdict(point);
            for reason in &found.reasons {
                verdict.add(found.state, format!("{name} ({}): {reason}", point.setting()));
            }
        }
        self.judge_falls(&mut verdict);
        let (_, invalid, all) = self.doubtful();
        if invalid * 2 > all {
            let text = format!("{invalid} of {all} points are invalid");
            verdict.flag(State::Invalid, Check::NoValidPoints, text);
        }
        if data.facts.interrupted {
            verdict.flag(State::Suspect, Check::Interrupted, "these are partial results");
        }
        let facts = &data.facts;
        if let Some(lost) = &facts.lost {
            let text = format!("these are partial results: {lost}");
            verdict.flag(State::Suspect, Check::LostRank, text);
        }
        let late = facts.second_visit.as_ref().and_then(SecondVisit::times_faster_late);
        if let Some(times) = late {
            let text = format!(
                "a cache of the device holds the whole region of {}: reading the region again at \
                 the end was {times:.1} times as fast as at first; use a larger --size",
                units::size(facts.region_bytes)
            );
            verdict.flag(State::Suspect, Check::RegionCached, text);
        }
        if let Some(cpus) = self.cpu_quota {
            let text =
                format!("the CPU quota of the control group ({cpus:.2} CPUs) limited the survey");
            verdict.flag(State::Suspect, Check::CpuQuota, text);
        }
        verdict
    }
}

/// Returns the points whose rates count as equal to the rate of the fastest of `points`.
pub fn as_good(points: Vec<&MeasuredPoint>) -> Vec<&MeasuredPoint> {
    let fastest = points.iter().max_by(|a, b| a.rate().total_cmp(&b.rate()));
    let Some(top) = fastest.copied() else { return Vec::new() };
    let share = |point: &&MeasuredPoint| {
        let median = point.rate() / top.rate().max(1.0);
        if median < MIN_SHARE { median } else { point.times(top).value.min(1.0) }
    };
    let shares: Vec<f64> = points.iter().map(share).collect();
    let bar = ties::bar(&shares, AS_GOOD);
    points
        .into_iter()
        .zip(shares)
        .filter(|(_, share)| *share >= bar)
        .map(|(point, _)| point)
        .collect()
}

/// Returns the name and the rate of the slowest known link below the target.
fn slowest_link(data: &SurveyData) -> Option<(String, f64)> {
    let links = data.target().links.iter().map(|l| (l.component.clone(), l.bytes_per_s));
    links.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Tests of this module. Tests of other modules also use the example survey.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lab::point::Point;
    use lab::point::testing::point;

    /// Returns a point with three trials at about `rate` and a CPU time of `cpu_ns` per request.
    pub(crate) fn point_of(
        operation: Op,
        caching: Caching,
        request_bytes: u64,
        depth: u32,
        (rate, cpu_ns): (f64, f64),
    ) -> Point {
        let mut made = point(&[0, 0, 0]);
        made.key.workload.read_percent = if operation == Op::Read { 100 } else { 0 };
        made.key.caching = caching;
        made.key.workload.request_bytes = request_bytes as u32;
        made.key.workload.depth = depth;
        for (trial, noise) in made.trials.iter_mut().zip([0.995, 1.0, 1.005]) {
            let requests = (rate * noise * 100.0 / request_bytes as f64).round() as u64;
            let direction = &mut trial.directions[usize::from(operation != Op::Read)];
            direction.requests = requests;
            direction.bytes = requests * request_bytes;
            direction.latency.record_n((1e9 * request_bytes as f64 / rate) as u64, requests);
            trial.elapsed_ns = 100_000_000_000;
            trial.cpu.process_ns = (requests as f64 * cpu_ns) as u64;
        }
        made
    }

    /// Returns the survey of an example device. At depth 1, a direct request takes 100 us plus 1 ns
    /// per byte. At depth 8, requests overlap, with a total of up to 1 GB/s. Buffered requests
    /// reach 600 MB/s, and their CPU time per byte is fifty times as high.
    pub(crate) fn data() -> SurveyData {
        let mut points = Vec::new();
        for size in [4_u64 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
            let bytes = size as f64;
            for operation in Op::ALL {
                let one = bytes / (100e-6 + bytes / 1e9);
                let eight = (8.0 * one).min(1e9);
                let direct_cpu = 5_000.0 + 2.0 * bytes / 1024.0;
                let buffered_cpu = 1_000.0 + 100.0 * bytes / 1024.0;
                points.push(point_of(operation, Caching::Direct, size, 1, (one, direct_cpu)));
                points.push(point_of(operation, Caching::Direct, size, 8, (eight, direct_cpu)));
                points.push(point_of(operation, Caching::Buffered, size, 1, (6e8, buffered_cpu)));
            }
        }
        let facts = crate::survey_data::Facts {
            memory_copy_bytes_per_s: Some(1e10),
            direct: true,
            ..Default::default()
        };
        let (host, target) = (lab::machine::Host::default(), lab::machine::TargetFacts::default());
        SurveyData::new(host, target, points, facts, 0)
    }

    #[test]
    fn the_half_power_size_of_a_known_device_is_found_by_data_and_by_fit() {
        let data = data();
        let insight = Insight::of(&data);
        let pap = insight.pap_of(Op::Read).unwrap();
        assert!((pap / 1e9 - 1.0).abs() < 0.03, "{pap}");
        let curve = |depth| {
            let found = insight.half_power.iter().find(|h| {
                h.operation == Op::Read && h.caching == Caching::Direct && h.depth == depth
            });
            found.unwrap()
        };
        // The half-power size is 100 us divided by 1 ns per byte, which is 100,000 bytes. The next
        // larger measured size is 256 KiB.
        assert_eq!(curve(1).measured, Some(256 << 10));
        let fitted = curve(1).fitted.unwrap();
        assert!((fitted / 100_000.0 - 1.0).abs() < 0.05, "{fitted}");
        assert_eq!(curve(8).measured, Some(16 << 10));
    }

    #[test]
    fn buffered_and_direct_requests_have_different_cost_models() {
        let data = data();
        let insight = Insight::of(&data);
        let cost = |caching| {
            let found =
                insight.costs.iter().find(|c| c.operation == Op::Read && c.caching == caching);
            &found.unwrap().model
        };
        assert!((cost(Caching::Direct).fixed_ns.value / 5000.0 - 1.0).abs() < 0.02);
        assert!((cost(Caching::Direct).marginal_ns_per_kib.value / 2.0 - 1.0).abs() < 0.05);
        assert!((cost(Caching::Buffered).marginal_ns_per_kib.value / 100.0 - 1.0).abs() < 0.02);
    }

    #[test]
    fn the_best_setting_is_the_smallest_that_is_as_good() {
        let data = data();
        let insight = Insight::of(&data);
        let best = insight.best(Op::Read).unwrap();
        // At depth 8 the device delivers 1 GB/s with requests of 16 KiB or more.
        assert_eq!((best.key().request_bytes(), best.key().depth()), (16 << 10, 8));
    }

    #[test]
    fn a_device_whose_rate_has_stopped_rising_is_the_limit() {
        let data = data();
        let insight = Insight::of(&data);
        let binding = insight.binding.unwrap();
        assert_eq!(insight.rungs[binding.index].component, "device, reads");
    }

    #[test]
    fn a_stated_peak_takes_precedence_and_an_unreached_half_has_a_reason() {
        let mut data = data();
        data.evidence.pap_bytes_per_s = Some(1e10);
        data.evidence.summarise();
        let insight = Insight::of(&data);
        assert!(insight.pap[0].source.contains("--pap"));
        assert!(insight.half_power.iter().all(|h| h.measured.is_none() && h.reason.is_some()));
    }

    #[test]
    fn an_invalid_quoted_figure_makes_the_survey_invalid_and_comes_first() {
        for (operation, caching, why) in [
            (Op::Read, Caching::Buffered, "out-of-box reads (buffered, 64 KiB x depth 1)"),
            (Op::Write, Caching::Buffered, "out-of-box writes (buffered, 64 KiB x depth 1)"),
        ] {
            let mut data = data();
            let mut all = data.points().into_iter();
            let plain = all.find(|point| {
                let key = &point.key;
                (key.op(), key.caching) == (Some(operation), caching)
                    && key.request_bytes() == OUT_OF_BOX_BYTES
            });
            plain.unwrap().trials[0].verdict.add(State::Invalid, "4 MiB stayed in the cache");
            data.evidence.summarise();
            let verdict = Insight::of(&data).verdict;
            assert_eq!(verdict.state, State::Invalid, "{verdict:?}");
            assert!(verdict.reasons[0].contains(why), "{verdict:?}");
            assert!(verdict.reasons[0].contains("stayed in the cache"), "{verdict:?}");
        }
    }

    #[test]
    fn rates_that_fall_at_many_points_make_the_survey_suspect() {
        let judged = |points: usize| {
            let mut data = data();
            let direct = data.points().into_iter().filter(|point| point.key.is_direct());
            // The verdict also judges the best reads (16 KiB, depth 8), so these must not be among
            // the changed points.
            for point in direct.skip(2).take(points) {
                let text = "the rate fell from 250 MB/s to 125 MB/s after 1 s: throttled";
                point.trials[0].verdict.flag(State::Suspect, Check::RateChange, text);
            }
            data.evidence.summarise();
            Insight::of(&data).verdict
        };
        let says = |verdict: &Verdict| verdict.reasons.concat().contains("study burst");
        let many = judged(3);
        assert!(many.state == State::Suspect && says(&many), "{many:?}");
        let text = "rate-change: the rate fell within a trial at 3 of 24 direct points (for";
        assert!(many.reasons.concat().contains(text), "{many:?}");
        assert!(many.reasons.concat().contains("to 125 MB/s after 1 s); under"), "{many:?}");
        assert!(!says(&judged(1)), "{:?}", judged(1));
    }

    #[test]
    fn a_moderately_noisy_point_is_suspect_but_not_the_survey() {
        let rates = |data: &mut SurveyData, noise: [f64; 3]| {
            let mut all = data.points().into_iter();
            let best = all.find(|point| {
                (point.key.op(), point.key.request_bytes(), point.key.depth())
                    == (Some(Op::Read), 16 << 10, 8)
            });
            for (trial, noise) in best.unwrap().trials.iter_mut().zip(noise) {
                trial.directions[0].bytes = (1e11 * noise) as u64;
            }
        };
        let mut data = data();
        rates(&mut data, [0.8, 1.01, 1.2]);
        data.evidence.summarise();
        let insight = Insight::of(&data);
        assert_eq!(insight.doubtful().0, 1);
        assert_eq!(insight.verdict, Verdict::default());
        let contradictions = crate::consistency::contradictions(&data, &insight);
        assert_eq!(contradictions, [""; 0]);
        rates(&mut data, [0.6, 1.01, 1.4]);
        data.evidence.summarise();
        let verdict = Insight::of(&data).verdict;
        assert!(verdict.reasons[0].contains("noisy"), "{verdict:?}");
    }

    #[test]
    fn a_slow_period_of_the_machine_does_not_change_ratios() {
        let mut data = data();
        let ns = 1_000_000_000;
        for point in data.points() {
            let key = point.key.clone();
            if (key.op(), key.depth()) != (Some(Op::Read), 8) {
                continue;
            }
            // After 100 s, the device is half as fast. Most trials of 16 KiB and all trials of
            // 64 KiB run after this time. Most trials of the other sizes run before.
            let starts = match key.request_bytes() >> 10 {
                16 => [0, 100, 101],
                64 => [100, 101, 102],
                _ => [0, 1, 100],
            };
            for (trial, start) in point.trials.iter_mut().zip(starts) {
                trial.started_unix_ns = start * ns;
                if start >= 100 {
                    trial.directions[0].bytes /= 2;
                }
            }
        }
        data.evidence.summarise();
        let insight = Insight::of(&data);
        let find = |kib: u64| insight.at(Op::Read, Caching::Direct, kib << 10, 8).unwrap();
        let times = find(16).times(find(1024)).value;
        assert!((times - 1.0).abs() < 0.02, "{times}");
        assert!(find(16).rate() < 0.6 * find(1024).rate());
    }

    #[test]
    fn suspect_points_that_are_not_shown_do_not_change_the_verdict() {
        let mut data = data();
        data.evidence.points[0].point.trials[0].verdict.add(State::Invalid, "a hit");
        data.evidence.points[1].point.trials[0].verdict.add(State::Suspect, "drift");
        data.evidence.summarise();
        let insight = Insight::of(&data);
        assert_eq!(insight.verdict, Verdict::default());
        assert_eq!(insight.doubtful(), (1, 1, data.evidence.points.len()));
    }

    #[test]
    fn a_suspect_figure_is_reported_with_its_point() {
        let mut data = data();
        let best = data.points().into_iter().find(|point| {
            (point.key.op(), point.key.request_bytes(), point.key.depth())
                == (Some(Op::Read), 16 << 10, 8)
        });
        best.unwrap().trials[0].verdict.add(State::Suspect, "drift");
        data.evidence.summarise();
        let verdict = Insight::of(&data).verdict;
        let wanted = "best reads (direct, 16 KiB x depth 8): drift";
        assert_eq!((verdict.state, verdict.reasons), (State::Suspect, vec![wanted.to_owned()]));
    }

    #[test]
    fn nothing_that_was_measured_exceeds_the_measured_peak() {
        let data = data();
        let insight = Insight::of(&data);
        for operation in Op::ALL {
            let pap = insight.pap_of(operation).unwrap();
            assert!(insight.sequential(operation).all(|point| point.rate() <= pap));
        }
    }

    #[test]
    fn a_survey_without_valid_writes_is_invalid() {
        let mut data = data();
        let writes = data.points().into_iter().filter(|point| point.key.op() == Some(Op::Write));
        writes.for_each(|point| point.trials[0].verdict.add(State::Invalid, "wrong"));
        data.evidence.summarise();
        let verdict = Insight::of(&data).verdict;
        assert!(verdict.reasons[0].contains("no sequential write"), "{verdict:?}");
    }

    #[test]
    fn mostly_invalid_points_make_the_survey_invalid() {
        let mut data = data();
        for point in data.points() {
            point.trials[0].verdict.add(State::Invalid, "holes");
        }
        data.evidence.summarise();
        assert_eq!(Insight::of(&data).verdict.state, State::Invalid);
    }
}
