//! Measures the spots of a survey within its budget of time and bytes written.
//!
//! Rounds over the first grid come first, each in a random order, so that no spot is tied to a
//! moment; then trials go where they are needed most. Every finished trial is kept at once.

use ioengine::target::Coverage;
use ioengine::{BufferPages, Caching, Clock, EngineKind, HostTarget, Target, TargetKind};
use lab::failure::{Failure, Outcome};
use lab::machine::TargetFacts;
use lab::memory_limit;
use lab::point::{Point, State, Trial};
use lab::recorder::Recorder;
use lab::simulated;
use lab::simulated_target::SimulatedTarget;
use lab::trials::{Lab, Place, Setting};
use lab::verdict::Tail;
use workload::random::Stream;
use workload::{Pattern, Workload};

use crate::evidence::Facts;
use crate::grid::{self, Budget, GridPoint, Limits};
use crate::schedule::{self, Measured};
use crate::visits::{self, SecondVisit, Visits};

/// Trials chosen at a time, in random order, once the first grid is done.
const BATCH: usize = 12;
/// In the end so many trials are made of each spot on which conclusions rest, by turns ...
const LAST_ROUNDS: u64 = 8;
/// ... which may take this share of the time.
const LAST_ROUNDS_SHARE: f64 = 0.45;
/// A spot between measured ones gets so many trials at once.
const NEW_SPOT_TRIALS: usize = 3;
/// A single trial writes at least this much where the budget allows it (bytes).
const WRITE_MIN: u64 = 16 << 20;
/// A buffered write trial writes at the most so much: the flush is part of it (bytes).
const BUFFERED_WRITE_MAX: u64 = 128 << 20;
/// The share of a trial's length that a buffered write may plan to take at the rate seen so far.
const FLUSH_SHARE: f64 = 2.0;
/// A soaked trial is at least this long: the soaker is calibrated to a few percent only (ns).
const SOAKED_TRIAL_NS: u64 = 300_000_000;
/// Time kept back for the analysis and the page (ns).
const RESERVE_NS: u64 = 1_500_000_000;

/// What tells whether a second visit of the same blocks is faster.
const VISIT: GridPoint = GridPoint {
    write: false,
    pattern: Pattern::Sequential,
    caching: Caching::Direct,
    request_bytes: grid::OUT_OF_BOX_BYTES,
    depth: 1,
    pages: BufferPages::Huge,
};

/// The target of a survey in both caching modes.
#[derive(Debug)]
pub enum Modes {
    /// A file or device of this host.
    Host {
        /// Through the page cache.
        buffered: Box<HostTarget>,
        /// Past it, where that is offered.
        direct: Option<Box<HostTarget>>,
    },
    /// A simulated system.
    Simulated {
        /// Through its file-system cache.
        buffered: Box<SimulatedTarget>,
        /// Past it.
        direct: Box<SimulatedTarget>,
    },
}

/// What a survey is of.
#[derive(Debug)]
pub struct Subject {
    /// The target.
    pub modes: Modes,
    /// Region to work on (bytes).
    pub region_bytes: u64,
    /// What the target allows.
    pub limits: Limits,
    /// Holes and unwritten blocks, where the system tells.
    pub coverage: Option<Coverage>,
}

/// A survey in progress.
pub struct Survey<'a> {
    lab: &'a Lab,
    subject: &'a Subject,
    effort: Budget,
    recorder: &'a mut Recorder,
    pages: BufferPages,
    allow_holes: bool,
    seed: u64,
    stream: Stream,
    /// How requests are issued past the page cache, chosen once: to ask what the kernel offers
    /// takes a ring, which the kernel takes down in its own time.
    engine_kind: EngineKind,
    deadline_ns: u64,
    write_left: u64,
    write_rate: f64,
    soak: bool,
    spots: Vec<GridPoint>,
    points: Vec<Point>,
    planned_writes: u64,
    visits: Visits,
    second_visit: Option<SecondVisit>,
}

/// What a survey measured.
#[derive(Debug)]
pub struct Surveyed {
    /// In the order in which they were planned.
    pub points: Vec<Point>,
    /// What is left of the bytes that may be written.
    pub write_left: u64,
    /// How much sequential trials went over.
    pub visits: Visits,
    /// Whether the device answers faster what it has just answered.
    pub second_visit: Option<SecondVisit>,
}

/// What bounds a survey.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// When it must be over [ns of the clock].
    pub deadline_ns: u64,
    /// Bytes that may still be written; u64::MAX where nothing is written in earnest.
    pub write_left: u64,
    /// The rate at which writing is known to go [bytes per second].
    pub write_rate: f64,
    /// Whether a soaker is ready.
    pub soak: bool,
    /// Every random choice comes from it.
    pub seed: u64,
    /// Holes are meant.
    pub allow_holes: bool,
    /// Pages behind the buffers.
    pub pages: BufferPages,
}

impl<'a> Survey<'a> {
    /// A survey of a subject.
    pub fn new(
        lab: &'a Lab,
        subject: &'a Subject,
        effort: Budget,
        bounds: &Bounds,
        recorder: &'a mut Recorder,
    ) -> Survey<'a> {
        Survey {
            lab,
            subject,
            effort,
            recorder,
            pages: bounds.pages,
            allow_holes: bounds.allow_holes,
            seed: bounds.seed,
            stream: Stream::new(bounds.seed),
            engine_kind: match subject.is_simulated() {
                true => EngineKind::IoUring,
                false => EngineKind::best(true),
            },
            deadline_ns: bounds.deadline_ns.saturating_sub(RESERVE_NS),
            write_left: bounds.write_left,
            write_rate: bounds.write_rate,
            soak: bounds.soak,
            spots: Vec::new(),
            points: Vec::new(),
            planned_writes: 0,
            visits: Visits::default(),
            second_visit: None,
        }
    }

    /// Measures until the budget ends or everything is settled.
    ///
    /// # Errors
    /// When a request fails or an I/O engine cannot go on.
    pub fn run(mut self) -> Outcome<Surveyed> {
        self.measure()?;
        let Survey { points, write_left, visits, second_visit, .. } = self;
        Ok(Surveyed { points, write_left, visits, second_visit })
    }

    fn measure(&mut self) -> Outcome<()> {
        let is_simulated = self.subject.is_simulated();
        for spot in grid::first(&self.effort, &self.subject.limits) {
            // Simulated memory has no pages to choose.
            if !is_simulated || spot.pages == BufferPages::Huge {
                self.add(spot)?;
            }
        }
        let writes = self.spots.iter().filter(|spot| spot.write).count() as u64;
        self.planned_writes = writes * u64::from(self.effort.rounds + 1);
        let total_ns = self.deadline_ns.saturating_sub(self.lab.clock.now_ns());
        // Virtual work is over when all is settled, long before the budget.
        let mut progress = match is_simulated {
            true => self.lab.console.open_progress(),
            false => self.lab.console.progress(total_ns),
        };
        self.visit_twice()?;
        for round in 0..self.effort.rounds {
            let mut order: Vec<(usize, bool)> =
                (0..self.spots.len()).map(|index| (index, false)).collect();
            if self.soak && round > 0 {
                let soaked = |(index, spot): (usize, &GridPoint)| {
                    grid::is_soaked(spot).then_some((index, true))
                };
                order.extend(self.spots.iter().enumerate().filter_map(soaked));
            }
            self.shuffle(&mut order);
            if !self.batch(&order, &mut progress)? {
                progress.finish();
                return Ok(());
            }
        }
        let end_ns = self.deadline_ns;
        self.deadline_ns = end_ns.saturating_sub(self.last_rounds_ns(total_ns));
        while let Some(order) = self.next_batch()? {
            let made = self.trials();
            // A batch without a trial would be offered again for ever.
            if !self.batch(&order, &mut progress)? || self.trials() == made {
                break;
            }
        }
        self.deadline_ns = end_ns;
        self.last_rounds(&mut progress)?;
        self.visit_late()?;
        progress.finish();
        Ok(())
    }

    /// Visits fresh blocks, and the same again at once: whether the device has a cache.
    fn visit_twice(&mut self) -> Outcome<()> {
        if self.subject.is_simulated() || !self.subject.limits.direct {
            return Ok(());
        }
        let mut seen = SecondVisit::default();
        for _ in 0..visits::PAIRS {
            let start = self.visits.start(VISIT.request_bytes.into());
            let (first, bytes) = self.visit(start, None)?;
            self.visits.went(start, bytes, false, false);
            let (second, _) = self.visit(start, Some(bytes))?;
            if self.lab.interrupt.is_set() {
                return Ok(());
            }
            seen.first.push(first);
            seen.second.push(second);
        }
        self.second_visit = Some(seen);
        Ok(())
    }

    /// Where the region was used up, visits what was visited longest ago.
    fn visit_late(&mut self) -> Outcome<()> {
        let is_used_up = self.visits.all_bytes() > self.subject.region_bytes;
        let Some(mut seen) = self.second_visit.take() else { return Ok(()) };
        for _ in 0..visits::PAIRS {
            if !is_used_up || self.lab.interrupt.is_set() {
                break;
            }
            let start = self.visits.start(VISIT.request_bytes.into());
            let (late, bytes) = self.visit(start, None)?;
            self.visits.went(start, bytes, false, false);
            seen.late.push(late);
        }
        self.second_visit = Some(seen);
        Ok(())
    }

    /// One trial that is no point: its rate [bytes per second] and its bytes.
    fn visit(&self, start: u64, bytes: Option<u64>) -> Outcome<(f64, u64)> {
        let mut setting = self.setting(&VISIT, false);
        setting.workload.start_bytes = start % self.region(&VISIT).max(1);
        if let Some(bytes) = bytes {
            setting.workload.limit_bytes = Some(bytes.max(VISIT.request_bytes.into()));
            // The same blocks, however slowly they come.
            setting.workload.limit_ns = Some(4 * self.effort.trial_ns);
        }
        let trial = self.lab.trial(&setting, &mut |_| {})?;
        Ok((trial.bytes_per_s(), trial.bytes()))
    }

    /// How long the last rounds will take (ns), of `total_ns` for the whole survey.
    fn last_rounds_ns(&self, total_ns: u64) -> u64 {
        let left_ns = self.deadline_ns.saturating_sub(self.lab.clock.now_ns());
        let trial_ns = total_ns.saturating_sub(left_ns) / (self.trials() as u64).max(1);
        let measured = self.measured();
        let spots = schedule::quoted(&measured, self.peaks(&measured)).len() as u64;
        (spots * LAST_ROUNDS * trial_ns).min((total_ns as f64 * LAST_ROUNDS_SHARE) as u64)
    }

    /// What the conclusions rest on, by turns. Virtual time has no noise to be rid of.
    fn last_rounds(&mut self, progress: &mut lab::console::Progress) -> Outcome<()> {
        if self.subject.is_simulated() {
            return Ok(());
        }
        for _ in 0..LAST_ROUNDS {
            let measured = self.measured();
            let quoted = schedule::quoted(&measured, self.peaks(&measured)).into_iter();
            let able = quoted.filter(|index| self.may_go_on(&self.spots[*index]));
            let mut order: Vec<(usize, bool)> = able.map(|index| (index, false)).collect();
            let writes = order.iter().filter(|(index, _)| self.spots[*index].write).count() as u64;
            self.planned_writes = writes * LAST_ROUNDS;
            self.shuffle(&mut order);
            if !self.batch(&order, progress)? {
                break;
            }
        }
        Ok(())
    }

    /// Trials made so far.
    fn trials(&self) -> usize {
        self.points.iter().map(|point| point.trials.len()).sum()
    }

    /// Adds a spot; gives back its place among them.
    fn add(&mut self, spot: GridPoint) -> Outcome<usize> {
        let index = self.spots.len();
        let key = self.setting(&spot, false).key();
        self.spots.push(spot);
        self.points.push(Point { key: key.clone(), trials: Vec::new() });
        self.recorder.add_point(&key)?;
        Ok(index)
    }

    fn shuffle(&mut self, order: &mut [(usize, bool)]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.stream.next_u64() as usize % (last + 1));
        }
    }

    /// What to measure next; None when all is settled.
    fn next_batch(&mut self) -> Outcome<Option<Vec<(usize, bool)>>> {
        let measured = self.measured();
        let peaks = self.peaks(&measured);
        let fresh = schedule::new_spots(&measured, peaks, &self.subject.limits);
        let mut order = Vec::new();
        for spot in fresh.into_iter().filter(|spot| self.may_go_on(spot)).collect::<Vec<_>>() {
            let index = self.add(spot)?;
            order.extend([(index, false); NEW_SPOT_TRIALS]);
        }
        if order.len() < BATCH {
            let needy = schedule::neediest(&measured, peaks, measured.len()).into_iter();
            let able = needy.filter(|index| self.may_go_on(&self.spots[*index]));
            order.extend(able.take(BATCH - order.len()).map(|index| (index, false)));
        }
        self.planned_writes = order.iter().filter(|(i, _)| self.spots[*i].write).count() as u64;
        self.shuffle(&mut order);
        Ok((!order.is_empty()).then_some(order))
    }

    fn measured(&self) -> Vec<Measured> {
        let rates = |point: &Point| {
            let plain = point.trials.iter().filter(|trial| !trial.soaked);
            plain.map(Trial::bytes_per_s).collect()
        };
        let pairs = self.spots.iter().zip(&self.points);
        pairs.map(|(spot, point)| Measured { spot: *spot, rates: rates(point) }).collect()
    }

    /// The highest rates seen, of reads and of writes.
    fn peaks(&self, measured: &[Measured]) -> [f64; 2] {
        [false, true].map(|write| {
            let same = measured.iter().filter(|m| m.spot.write == write);
            let rates = same.filter_map(|m| analysis::quantile::median(&m.rates));
            rates.fold(0.0, f64::max)
        })
    }

    /// Makes the trials of one order; false when the budget is over.
    fn batch(
        &mut self,
        order: &[(usize, bool)],
        progress: &mut lab::console::Progress,
    ) -> Outcome<bool> {
        for &(index, soaked) in order {
            if self.lab.interrupt.is_set() || self.lab.clock.now_ns() >= self.deadline_ns {
                return Ok(false);
            }
            let spot = self.spots[index];
            let label = self.points[index].key.describe();
            let mut setting = self.setting(&spot, soaked);
            // Each trial of each point has an order of its own, so that no cache learns one.
            let made = self.points[index].trials.len() as u64;
            let of_point = workload::random::mix(self.seed, index as u64);
            setting.workload.seed = workload::random::mix(of_point, made);
            let start = self.visits.start(spot.request_bytes.into());
            let goes_on = spot.pattern == Pattern::Sequential && !self.subject.is_simulated();
            if goes_on {
                setting.workload.start_bytes = start % self.region(&spot).max(1);
            }
            if spot.write {
                let Some(bytes) = self.write_share(&spot) else { continue };
                let limit = setting.workload.limit_bytes.unwrap_or(u64::MAX);
                setting.workload.limit_bytes = Some(limit.min(bytes));
            }
            let mut trial = self.lab.trial(&setting, &mut |_| progress.update(&label))?;
            if let Some(failure) = trial.failure() {
                return Err(Failure::failed(format!("{label}: {failure}")));
            }
            if self.lab.interrupt.is_set() {
                return Ok(false);
            }
            if goes_on {
                let buffered = !spot.caching.is_direct();
                self.visits.went(start, trial.bytes(), spot.write, buffered);
            }
            self.account(&spot, &trial);
            trial.ordinal = self.points[index].trials.len() as u32;
            self.recorder.add_trial(index, &trial)?;
            self.points[index].trials.push(trial);
        }
        Ok(true)
    }

    fn account(&mut self, spot: &GridPoint, trial: &Trial) {
        if spot.write {
            self.write_left = self.write_left.saturating_sub(trial.bytes());
            self.planned_writes = self.planned_writes.saturating_sub(1);
            if spot.caching == Caching::Buffered && trial.bytes() > 0 {
                // Slow flushes must not eat the budget: remember the slowest rate seen.
                self.write_rate = self.write_rate.min(trial.bytes_per_s().max(1e6));
            }
        }
    }

    /// Whether another trial may be made: one that writes needs a request of what is left.
    fn may_go_on(&self, spot: &GridPoint) -> bool {
        !spot.write || u64::from(spot.request_bytes) <= self.write_left
    }

    /// Bytes that the next write trial may write: its share of what is left. None when even one
    /// request is too much.
    fn write_share(&self, spot: &GridPoint) -> Option<u64> {
        let request = u64::from(spot.request_bytes);
        let share = self.write_left / (self.planned_writes + 1);
        let wanted = share.max(WRITE_MIN).max(4 * request * u64::from(spot.depth));
        let mut bytes = wanted.min(self.write_left);
        if spot.caching == Caching::Buffered {
            let flushed = self.write_rate * self.effort.trial_ns as f64 / 1e9 * FLUSH_SHARE;
            bytes = bytes.min(BUFFERED_WRITE_MAX).min((flushed as u64).max(request));
        }
        let whole = bytes / request * request;
        (whole > 0).then_some(whole)
    }

    fn setting(&self, spot: &GridPoint, soaked: bool) -> Setting<'a> {
        let subject: &'a Subject = self.subject;
        let place = subject.place(spot.caching.is_direct());
        let buffered = !place.caching().is_direct();
        let region = self.region(spot);
        let read = !spot.write;
        let workload = Workload {
            // A program that uses the page cache reads and writes one block at a time.
            engine_kind: if buffered { EngineKind::Sync } else { self.engine_kind },
            pattern: spot.pattern,
            read_percent: if spot.write { 0 } else { 100 },
            request_bytes: spot.request_bytes,
            depth: spot.depth,
            region_bytes: region,
            limit_ns: Some(if soaked {
                self.effort.trial_ns.max(SOAKED_TRIAL_NS)
            } else {
                self.effort.trial_ns
            }),
            // A second pass over a file in the page cache would measure memory.
            limit_bytes: (buffered && read).then_some(region),
            flush_at_end: buffered && spot.write,
            seed: self.seed,
            pages: if spot.pages == BufferPages::Small { spot.pages } else { self.pages },
            interval_ns: self.effort.trial_ns / 20,
            ..Workload::default()
        };
        Setting {
            scrub: buffered && read && !subject.is_simulated(),
            allow_holes: self.allow_holes,
            coverage: subject.coverage.filter(|_| read),
            soaked: soaked && self.soak,
            tail: Tail { trials: self.effort.rounds, ..Tail::default() },
            ..Setting::at(place, workload)
        }
    }

    /// Random requests go over everything, sequential ones too; whole requests only.
    fn region(&self, spot: &GridPoint) -> u64 {
        let request = u64::from(spot.request_bytes);
        self.subject.region_bytes / request * request
    }
}

impl Subject {
    /// Opens a file or device in both modes.
    ///
    /// # Errors
    /// As for opening.
    pub fn open(path: &std::path::Path, write: bool, region: Option<u64>) -> Outcome<Subject> {
        let buffered = HostTarget::open(path, write, Caching::Buffered)?;
        let direct = ioengine::host::offers_direct(path)
            .then(|| HostTarget::open(path, write, Caching::Direct))
            .transpose()?;
        let whole = buffered.size_bytes();
        let region_bytes = region.unwrap_or(whole).min(whole);
        if region_bytes < 1 << 20 {
            return Err(Failure::usage(format!(
                "{} holds {}, too little for a survey; use a target of at least 1 MiB",
                path.display(),
                units::size(region_bytes)
            )));
        }
        let granule = direct.as_ref().map_or(1, |target| target.alignment().offset_bytes);
        let limits = Limits {
            request_bytes_min: granule.max(512),
            region_bytes,
            in_flight_bytes_max: in_flight_bytes_max(),
            direct: direct.is_some(),
            write,
        };
        let coverage = buffered.coverage(0, region_bytes);
        let (buffered, direct) = (Box::new(buffered), direct.map(Box::new));
        Ok(Subject { modes: Modes::Host { buffered, direct }, region_bytes, limits, coverage })
    }

    /// A simulated system.
    pub fn simulated(place: &SimulatedTarget, region: Option<u64>) -> Subject {
        let region_bytes = region.unwrap_or(place.system.setup.file_size);
        let in_mode = |caching| Box::new(SimulatedTarget { caching, ..place.clone() });
        let modes = Modes::Simulated {
            buffered: in_mode(Caching::Buffered),
            direct: in_mode(Caching::Direct),
        };
        let limits = Limits {
            request_bytes_min: 512,
            region_bytes,
            in_flight_bytes_max: grid::IN_FLIGHT_BYTES_MAX,
            direct: true,
            write: true,
        };
        Subject { modes, region_bytes, limits, coverage: None }
    }

    /// Whether time is virtual.
    pub fn is_simulated(&self) -> bool {
        matches!(self.modes, Modes::Simulated { .. })
    }

    /// The target in a mode: direct where that is wanted and offered.
    fn place(&self, wants_direct: bool) -> Place<'_> {
        match &self.modes {
            Modes::Host { buffered, direct } => {
                let direct = direct.as_deref().filter(|_| wants_direct);
                Place::Host(vec![direct.unwrap_or(buffered)])
            }
            Modes::Simulated { direct, .. } if wants_direct => Place::Simulated(direct),
            Modes::Simulated { buffered, .. } => Place::Simulated(buffered),
        }
    }

    /// All that is open of it on this host.
    pub fn opened(&self) -> impl Iterator<Item = &HostTarget> {
        let (buffered, direct) = match &self.modes {
            Modes::Host { buffered, direct } => (Some(buffered.as_ref()), direct.as_deref()),
            Modes::Simulated { .. } => (None, None),
        };
        direct.into_iter().chain(buffered)
    }

    /// The target in its better mode, for the record.
    pub fn facts(&self) -> TargetFacts {
        match self.place(true) {
            Place::Host(targets) => TargetFacts::of(targets[0]),
            Place::Simulated(place) => simulated::facts(place),
        }
    }
}

/// The instrument's own cost: a request on the null I/O engine with full statistics (ns).
pub fn floor_ns_per_request(lab: &Lab) -> Outcome<Option<f64>> {
    let null = HostTarget::null(1 << 30);
    let workload = Workload {
        engine_kind: EngineKind::Null,
        pattern: Pattern::Random,
        request_bytes: 4096,
        depth: 32,
        region_bytes: 1 << 30,
        limit_ns: Some(150_000_000),
        ..Workload::default()
    };
    debug_assert_eq!(null.kind(), TargetKind::Null);
    let trial = lab.trial(&Setting::new(&null, workload), &mut |_| {})?;
    let point = Point { key: Setting::new(&null, Workload::default()).key(), trials: vec![trial] };
    Ok(point.cpu_lower_ns().filter(|_| point.summary().verdict.state == State::Valid))
}

/// What all buffers in flight may take on this host (bytes): less where memory is limited.
pub fn in_flight_bytes_max() -> u64 {
    let limit = memory_limit::narrowest().map_or(u64::MAX, |limit| limit.of_series());
    grid::IN_FLIGHT_BYTES_MAX.min(limit)
}

/// Says that memory was limited, if it was.
fn narrowed(limits: &Limits) -> Option<String> {
    let limit = memory_limit::narrowest()?;
    let is_less = limits.in_flight_bytes_max < grid::IN_FLIGHT_BYTES_MAX;
    is_less.then(|| {
        let most = units::size(limits.in_flight_bytes_max);
        format!("more than {most} in flight: {} allows no more; raise it", limit.what)
    })
}

/// What a survey notes about how it was done.
pub fn notes(lab: &Lab, subject: &Subject, effort: &Budget, pap: Option<f64>) -> Facts {
    let mut missing = if subject.is_simulated() { Vec::new() } else { lab.missing() };
    missing.extend(narrowed(&subject.limits));
    Facts {
        pap_bytes_per_s: pap,
        missing,
        direct: subject.limits.direct,
        region_bytes: subject.region_bytes,
        app: effort.app,
        ..Facts::default()
    }
}
