//! Measures the grid points of a survey within its budgets of time and of bytes written.
//!
//! A survey starts with rounds over the initial grid. Each round has a random order, so that drift
//! does not bias single points. Further trials measure the points with the widest intervals, and
//! new points where a curve bends. Every finished trial is stored at once.

use analysis::units;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use ioengine::zones::Zones;
use ioengine::{BufferPages, Caching, Clock, EngineKind, HostTarget, Target, TargetKind};
use lab::failure::{Failure, Outcome};
use lab::point::{Point, State, Trial};
use lab::recorder::Recorder;
use lab::simulated;
use lab::trials::{Lab, Place, Setting, simulated_trial};
use lab::verdict::Tail;
use workload::random::Stream;
use workload::{Pattern, Workload};

use crate::grid::{self, Budget, GridPoint};
use crate::schedule::{self, Measured};
use crate::subject::{Subject, narrowed, unordered_writes};
use crate::survey_data::Facts;
use crate::visits::{self, SecondVisit, Visits};

/// Minimum number of trials in a batch after the initial grid, if enough points need further
/// trials. Each batch runs in random order.
const BATCH: usize = 12;
/// Number of final rounds over the grid points on which conclusions depend.
const LAST_ROUNDS: u64 = 8;
/// Maximum share of the survey's duration that the final rounds may use.
const LAST_ROUNDS_SHARE: f64 = 0.45;
/// Number of initial trials of a grid point that is added between measured points.
const NEW_POINT_TRIALS: usize = 3;
/// Minimum number of bytes of a write trial, if the budget allows it.
const WRITE_MIN: u64 = 16 << 20;
/// Maximum number of bytes of a buffered write trial. The flush is part of the trial.
const BUFFERED_WRITE_MAX: u64 = 128 << 20;
/// Maximum expected duration of a buffered write trial with its flush (multiple of the usual trial
/// length). This duration and the lowest write rate so far limit the number of bytes that the trial
/// may write.
const FLUSH_SHARE: f64 = 2.0;
/// Maximum number of requests in a trial of a simulated system, summed over all files. Simulating
/// more requests of a fast device would take seconds of CPU time, and the conclusions do not need
/// that precision.
const SIMULATED_REQUESTS_MAX: u64 = 100_000;
/// Maximum number of bytes in a buffered trial of a simulated system, summed over all files. Large
/// requests consist of many pages, and simulating each page needs CPU time.
const SIMULATED_BUFFERED_BYTES_MAX: u64 = 32 << 30;
/// Minimum length of a trial in which the soaker measures the CPU time of the whole machine (ns).
/// Shorter trials would be too inaccurate, because the soaker is accurate to only a few percent.
const SOAKED_TRIAL_NS: u64 = 300_000_000;
/// Time at the end of the survey that is reserved for the analysis and the page (ns).
const RESERVE_NS: u64 = 1_500_000_000;

/// The workload of the test for a device cache. The test reads the same blocks twice.
const VISIT: GridPoint = GridPoint {
    write: false,
    pattern: Pattern::Sequential,
    caching: Caching::Direct,
    request_bytes: grid::OUT_OF_BOX_BYTES,
    depth: 1,
    pages: BufferPages::Huge,
};

/// A survey in progress.
pub struct Survey<'a> {
    lab: &'a Lab,
    subject: &'a Subject,
    budget: Budget,
    recorder: &'a mut Recorder,
    pages: BufferPages,
    allow_holes: bool,
    seed: u64,
    stream: Stream,
    /// The engine for direct I/O. It is chosen only once, because each probe creates an io_uring
    /// ring, which the kernel destroys asynchronously.
    engine_kind: EngineKind,
    /// When the last trial must end (ns, on the lab's clock). All ranks use the deadline of rank 0.
    deadline_ns: u64,
    /// Number of bytes that each rank may still write.
    write_left: u64,
    /// Number of bytes that all ranks together have written.
    written: u64,
    write_rate: f64,
    soak: bool,
    grid_points: Vec<GridPoint>,
    points: Vec<Point>,
    planned_writes: u64,
    visits: Visits,
    second_visit: Option<SecondVisit>,
}

/// The results of a survey's trials.
#[derive(Debug)]
pub struct Surveyed {
    /// All points, in the order in which they were added.
    pub points: Vec<Point>,
    /// Number of bytes that all ranks together wrote.
    pub written_bytes: u64,
    /// Numbers of bytes that sequential trials read and wrote.
    pub visits: Visits,
    /// Results of the test for a cache in the device. None if the test did not run.
    pub second_visit: Option<SecondVisit>,
}

/// Limits and options of a survey.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// When the survey must end (ns, on the lab's clock).
    pub deadline_ns: u64,
    /// The engine for direct I/O.
    pub engine_kind: EngineKind,
    /// Number of bytes that each rank may still write. u64::MAX for a simulated system.
    pub write_left: u64,
    /// Initial estimate of the write rate [bytes per second].
    pub write_rate: f64,
    /// Whether the soaker, which measures the CPU time of the whole machine, is ready.
    pub soak: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// Whether reads of holes in the file are allowed. Otherwise they make a result invalid.
    pub allow_holes: bool,
    /// Page size of the buffers.
    pub pages: BufferPages,
}

impl<'a> Survey<'a> {
    /// Prepares a survey.
    pub fn new(
        lab: &'a Lab,
        subject: &'a Subject,
        budget: Budget,
        bounds: &Bounds,
        recorder: &'a mut Recorder,
    ) -> Survey<'a> {
        Survey {
            lab,
            subject,
            budget,
            recorder,
            pages: bounds.pages,
            allow_holes: bounds.allow_holes,
            seed: bounds.seed,
            stream: Stream::new(bounds.seed),
            engine_kind: bounds.engine_kind,
            deadline_ns: bounds.deadline_ns.saturating_sub(RESERVE_NS),
            write_left: bounds.write_left,
            written: 0,
            write_rate: bounds.write_rate,
            soak: bounds.soak,
            grid_points: Vec::new(),
            points: Vec::new(),
            planned_writes: 0,
            visits: Visits::default(),
            second_visit: None,
        }
    }

    /// Measures until the budget is used up or all intervals are narrow enough.
    ///
    /// # Errors
    /// If a request or an I/O engine fails.
    pub fn run(mut self) -> Outcome<Surveyed> {
        let measured = self.measure();
        // If a rank was lost, the resulting error is ignored, so that the earlier trials are kept.
        if self.lab.check_ranks().is_ok() {
            measured?;
        }
        let Survey { points, written, visits, second_visit, .. } = self;
        Ok(Surveyed { points, written_bytes: written, visits, second_visit })
    }

    fn measure(&mut self) -> Outcome<()> {
        let is_simulated = self.subject.is_simulated();
        for grid_point in grid::first(&self.budget, &self.subject.limits) {
            // Simulated memory has no page sizes, so points on small pages are left out.
            if !is_simulated || grid_point.pages == BufferPages::Huge {
                self.add(grid_point)?;
            }
        }
        let writes = self.grid_points.iter().filter(|grid_point| grid_point.write).count() as u64;
        self.planned_writes = writes * u64::from(self.budget.rounds + 1);
        let total_ns = self.deadline_ns.saturating_sub(self.lab.clock.now_ns());
        // A simulated survey usually ends long before its budget is used up, so the progress
        // display cannot show the remaining time.
        let mut progress = if is_simulated {
            self.lab.console.open_progress()
        } else {
            self.lab.console.progress(total_ns)
        };
        self.visit_twice()?;
        for round in 0..self.budget.rounds {
            let mut order: Vec<(usize, bool)> =
                (0..self.grid_points.len()).map(|index| (index, false)).collect();
            if self.soak && round > 0 {
                let soaked = |(index, grid_point): (usize, &GridPoint)| {
                    grid::is_soaked(grid_point).then_some((index, true))
                };
                order.extend(self.grid_points.iter().enumerate().filter_map(soaked));
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
            // If a batch added no trial, all further batches would be the same, and the loop would
            // not end.
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

    /// Reads fresh blocks twice in a row, to detect a cache in the device.
    fn visit_twice(&mut self) -> Outcome<()> {
        if self.subject.is_simulated() || !self.subject.limits.direct {
            return Ok(());
        }
        let mut seen = SecondVisit::default();
        for _ in 0..visits::PAIRS {
            let start = self.visits.start(VISIT.request_bytes.into());
            let (first, (least, most)) = self.visit(start, None)?;
            self.visits.went(start, most, false, false);
            let (second, _) = self.visit(start, Some(least))?;
            if self.lab.must_stop()? {
                return Ok(());
            }
            seen.first.push(first);
            seen.second.push(second);
        }
        self.second_visit = Some(seen);
        Ok(())
    }

    /// Reads the least recently accessed blocks again, to detect a cache as large as the region.
    /// Does nothing if the trials did not access the whole region.
    fn visit_late(&mut self) -> Outcome<()> {
        let is_used_up = self.visits.all_bytes() > self.subject.region_bytes;
        let Some(mut seen) = self.second_visit.take() else { return Ok(()) };
        for _ in 0..visits::PAIRS {
            if !is_used_up || self.lab.must_stop()? {
                break;
            }
            let start = self.visits.start(VISIT.request_bytes.into());
            let (late, (_, most)) = self.visit(start, None)?;
            self.visits.went(start, most, false, false);
            seen.late.push(late);
        }
        self.second_visit = Some(seen);
        Ok(())
    }

    /// Runs a read trial of the cache test. The trial is not stored. Returns the rate [bytes per
    /// second], and the smallest and the largest number of bytes that any rank read.
    fn visit(&self, start: u64, bytes: Option<u64>) -> Outcome<(f64, (u64, u64))> {
        let mut setting = self.setting(&VISIT, false);
        setting.workload.start_bytes = start % self.region(&VISIT).max(1);
        if let Some(bytes) = bytes {
            setting.workload.limit_bytes = Some(bytes.max(VISIT.request_bytes.into()));
            // The second trial must read the same blocks as the first trial. The longer time limit
            // lets the second trial finish even if it is slower.
            setting.workload.limit_ns = Some(4 * self.budget.trial_ns);
        }
        let trial = self.lab.trial(&setting, &mut |_| {})?;
        Ok((trial.bytes_per_s(), trial.bytes_of_a_rank()))
    }

    /// Returns how much time to reserve for the final rounds (ns). `total_ns` is the time for the
    /// whole survey.
    fn last_rounds_ns(&self, total_ns: u64) -> u64 {
        let left_ns = self.deadline_ns.saturating_sub(self.lab.clock.now_ns());
        let trial_ns = total_ns.saturating_sub(left_ns) / (self.trials() as u64).max(1);
        let measured = self.measured();
        let grid_points = schedule::quoted(&measured, self.peaks(&measured)).len() as u64;
        (grid_points * LAST_ROUNDS * trial_ns).min((total_ns as f64 * LAST_ROUNDS_SHARE) as u64)
    }

    /// Runs final rounds over the points on which conclusions depend. Simulated points have no
    /// noise, so they need no final rounds.
    fn last_rounds(&mut self, progress: &mut lab::console::Progress) -> Outcome<()> {
        if self.subject.is_simulated() {
            return Ok(());
        }
        for _ in 0..LAST_ROUNDS {
            let measured = self.measured();
            let quoted = self.lab.agree(schedule::quoted(&measured, self.peaks(&measured)))?;
            let able = quoted.into_iter().filter(|index| self.may_go_on(&self.grid_points[*index]));
            let mut order: Vec<(usize, bool)> = able.map(|index| (index, false)).collect();
            let writes =
                order.iter().filter(|(index, _)| self.grid_points[*index].write).count() as u64;
            self.planned_writes = writes * LAST_ROUNDS;
            self.shuffle(&mut order);
            if !self.batch(&order, progress)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the number of stored trials of all points.
    fn trials(&self) -> usize {
        self.points.iter().map(|point| point.trials.len()).sum()
    }

    /// Adds a grid point and returns its index.
    fn add(&mut self, grid_point: GridPoint) -> Outcome<usize> {
        let index = self.grid_points.len();
        let key = self.setting(&grid_point, false).key();
        self.grid_points.push(grid_point);
        self.points.push(Point { key: key.clone(), trials: Vec::new() });
        self.recorder.add_point(&key)?;
        Ok(index)
    }

    fn shuffle(&mut self, order: &mut [(usize, bool)]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.stream.next_u64() as usize % (last + 1));
        }
    }

    /// Returns the next trials, each as the index of its grid point and whether the soaker runs
    /// during the trial. None if no point needs more trials.
    fn next_batch(&mut self) -> Outcome<Option<Vec<(usize, bool)>>> {
        let measured = self.measured();
        let peaks = self.peaks(&measured);
        let fresh = schedule::new_spots(&measured, peaks, &self.subject.limits);
        let needy = schedule::neediest(&measured, peaks, measured.len());
        // Floating-point results may differ between the CPUs of the ranks, so all ranks use the
        // choice of one rank.
        let (fresh, needy) = self.lab.agree((fresh, needy))?;
        let mut order = Vec::new();
        for grid_point in fresh.into_iter().filter(|new| self.may_go_on(new)).collect::<Vec<_>>() {
            let index = self.add(grid_point)?;
            let trials = if self.budget.repeats() { NEW_POINT_TRIALS } else { 1 };
            order.extend(std::iter::repeat_n((index, false), trials));
        }
        if order.len() < BATCH && self.budget.repeats() {
            let able = needy.into_iter().filter(|index| self.may_go_on(&self.grid_points[*index]));
            order.extend(able.take(BATCH - order.len()).map(|index| (index, false)));
        }
        self.planned_writes =
            order.iter().filter(|(i, _)| self.grid_points[*i].write).count() as u64;
        self.shuffle(&mut order);
        Ok((!order.is_empty()).then_some(order))
    }

    fn measured(&self) -> Vec<Measured> {
        let rates = |point: &Point| {
            let plain = point.trials.iter().filter(|trial| !trial.soaked);
            plain.map(Trial::bytes_per_s).collect()
        };
        let pairs = self.grid_points.iter().zip(&self.points);
        pairs
            .map(|(grid_point, point)| Measured { spot: *grid_point, rates: rates(point) })
            .collect()
    }

    /// Returns the highest median rate of reads and of writes [bytes per second].
    fn peaks(&self, measured: &[Measured]) -> [f64; 2] {
        [false, true].map(|write| {
            let same = measured.iter().filter(|m| m.spot.write == write);
            let rates = same.filter_map(|m| analysis::quantile::median(&m.rates));
            rates.fold(0.0, f64::max)
        })
    }

    /// Runs trials in the given order. Returns false if time is up, the user interrupted, or a rank
    /// was lost.
    fn batch(
        &mut self,
        order: &[(usize, bool)],
        progress: &mut lab::console::Progress,
    ) -> Outcome<bool> {
        if self.subject.is_simulated() {
            return self.batch_in_virtual_time(order, progress);
        }
        for &(index, soaked) in order {
            if self.is_over()? {
                return Ok(false);
            }
            let (grid_point, made) = (self.grid_points[index], self.points[index].trials.len());
            let Some(mut setting) = self.trial_setting(index, made, soaked) else { continue };
            let label = self.points[index].key.describe();
            let start = self.visits.start(grid_point.request_bytes.into());
            let goes_on = grid_point.pattern == Pattern::Sequential
                && self.zones_written(&grid_point).is_none();
            if goes_on {
                setting.workload.start_bytes = start % self.region(&grid_point).max(1);
            }
            let outstanding = self.points[index].key.outstanding();
            let trial = self.lab.trial(&setting, &mut |at| {
                progress.observe(at, outstanding);
                progress.update(&label);
            })?;
            if goes_on {
                let buffered = !grid_point.caching.is_direct();
                let (_, most) = trial.bytes_of_a_rank();
                self.visits.went(start, most, grid_point.write, buffered);
            }
            if self.lab.must_stop()? {
                return Ok(false);
            }
            self.keep(index, trial)?;
            progress.so_far(&self.best_so_far());
        }
        Ok(true)
    }

    /// Formats the fastest reads and writes so far, for the live view.
    fn best_so_far(&self) -> String {
        let best = |write: bool| {
            let same = self.grid_points.iter().zip(&self.points);
            let same = same.filter(|(grid_point, _)| grid_point.write == write);
            let rates = same.filter_map(|(_, point)| {
                let plain = point.trials.iter().filter(|trial| !trial.soaked);
                Some((plain.map(Trial::bytes_per_s).max_by(f64::total_cmp)?, point))
            });
            let (rate, point) = rates.max_by(|a, b| a.0.total_cmp(&b.0))?;
            Some(format!("{} {}", units::rate_mib(rate), point.key.describe()))
        };
        let both: Vec<String> = [false, true].into_iter().filter_map(best).collect();
        both.join("; ")
    }

    /// Runs the trials of a simulated system on all cores. The trials are stored in the given
    /// order, so the result does not depend on the number of cores.
    fn batch_in_virtual_time(
        &mut self,
        order: &[(usize, bool)],
        progress: &mut lab::console::Progress,
    ) -> Outcome<bool> {
        if self.is_over()? {
            return Ok(false);
        }
        let mut made: Vec<usize> = self.points.iter().map(|point| point.trials.len()).collect();
        let mut inputs = Vec::new();
        for &(index, soaked) in order {
            if let Some(setting) = self.trial_setting(index, made[index], soaked) {
                inputs.push((index, setting, self.points[index].key.describe()));
                made[index] += 1;
            }
        }
        let (stop, progress) = (self.lab.interrupt.flag(), Mutex::new(progress));
        let trials = simulated::on_all_cores(&inputs, |(_, setting, label)| {
            let Place::Simulated(place) = setting.place else { return None };
            let trial = simulated_trial(setting, place, stop, &mut |_| {
                if let Ok(mut progress) = progress.try_lock() {
                    progress.update(label);
                }
            });
            // Only the trials that ended before the user interrupted are kept.
            (!stop.load(Ordering::Relaxed)).then_some(trial)
        });
        let indices: Vec<usize> = inputs.iter().map(|(index, ..)| *index).collect();
        for (index, trial) in indices.into_iter().zip(trials) {
            if let Some(trial) = trial {
                self.keep(index, trial?)?;
            }
        }
        Ok(!self.lab.interrupt.is_set())
    }

    /// Returns whether time is up, the user interrupted, or a rank was lost. The answer is the same
    /// on all ranks.
    fn is_over(&self) -> Outcome<bool> {
        let is_late = self.lab.clock.now_ns() >= self.deadline_ns;
        Ok(self.lab.agree(is_late)? || self.lab.must_stop()?)
    }

    /// Returns the setting of the next trial of a point that already has `made` trials. None for a
    /// write trial if the budget of bytes to write is used up.
    fn trial_setting(&self, index: usize, made: usize, soaked: bool) -> Option<Setting<'a>> {
        let grid_point = self.grid_points[index];
        let mut setting = self.setting(&grid_point, soaked);
        // Each trial has a different seed, so that no cache can adapt to a repeated order.
        let of_point = workload::random::mix(self.seed, index as u64);
        setting.workload.seed = workload::random::mix(of_point, made as u64);
        if grid_point.write {
            let bytes = self.write_share(&grid_point)?;
            let limit = setting.workload.limit_bytes.unwrap_or(u64::MAX);
            setting.workload.limit_bytes = Some(limit.min(bytes));
        }
        Some(setting)
    }

    /// Stores a trial. Returns an error if the trial failed.
    fn keep(&mut self, index: usize, mut trial: Trial) -> Outcome<()> {
        if let Some(failure) = trial.failure() {
            let label = self.points[index].key.describe();
            return Err(Failure::failed(format!("{label}: {failure}")));
        }
        let grid_point = self.grid_points[index];
        self.account(&grid_point, &trial);
        trial.ordinal = self.points[index].trials.len() as u32;
        self.recorder.add_trial(index, &trial)?;
        self.points[index].trials.push(trial);
        Ok(())
    }

    fn account(&mut self, grid_point: &GridPoint, trial: &Trial) {
        if grid_point.write {
            let (_, most) = trial.bytes_of_a_rank();
            self.written = self.written.saturating_add(trial.bytes());
            self.write_left = self.write_left.saturating_sub(most);
            self.planned_writes = self.planned_writes.saturating_sub(1);
            if grid_point.caching == Caching::Buffered && trial.bytes() > 0 {
                // The lowest write rate so far limits the size of the next trials, so that slow
                // flushes do not use up the time budget.
                let ranks = f64::from(self.lab.rank_group().map_or(1, |group| group.count));
                self.write_rate = self.write_rate.min((trial.bytes_per_s() / ranks).max(1e6));
            }
        }
    }

    /// Returns whether another trial of the point fits into the budget of bytes to write. Reads
    /// always fit. A write trial needs room for at least one request.
    fn may_go_on(&self, grid_point: &GridPoint) -> bool {
        !grid_point.write || u64::from(grid_point.request_bytes) <= self.write_left
    }

    /// Returns how many bytes the next write trial may write, in whole requests. Each planned write
    /// trial gets the same share of the remaining budget. None if less than one request remains.
    fn write_share(&self, grid_point: &GridPoint) -> Option<u64> {
        let request = u64::from(grid_point.request_bytes);
        let share = self.write_left / (self.planned_writes + 1);
        let wanted = share.max(WRITE_MIN).max(4 * request * u64::from(grid_point.depth));
        let mut bytes = wanted.min(self.write_left);
        if grid_point.caching == Caching::Buffered {
            let flushed = self.write_rate * self.budget.trial_ns as f64 / 1e9 * FLUSH_SHARE;
            bytes = bytes.min(BUFFERED_WRITE_MAX).min((flushed as u64).max(request));
        }
        let whole = bytes / request * request;
        (whole > 0).then_some(whole)
    }

    fn setting(&self, grid_point: &GridPoint, soaked: bool) -> Setting<'a> {
        let subject: &'a Subject = self.subject;
        let place = subject.place(grid_point.caching.is_direct());
        let buffered = !place.caching().is_direct();
        let region = self.region(grid_point);
        let read = !grid_point.write;
        let enough = subject.simulated_files().map(|files| {
            let request = u64::from(grid_point.request_bytes);
            let bytes = if buffered { SIMULATED_BUFFERED_BYTES_MAX / files } else { u64::MAX };
            let requests = (SIMULATED_REQUESTS_MAX / files).min(bytes / request);
            requests.max(4 * u64::from(grid_point.depth)) * request
        });
        let workload = Workload {
            // Buffered points model a program that issues one synchronous request at a time.
            engine_kind: if buffered { EngineKind::Sync } else { self.engine_kind },
            pattern: grid_point.pattern,
            read_percent: if grid_point.write { 0 } else { 100 },
            request_bytes: grid_point.request_bytes,
            depth: grid_point.depth,
            region_offset: self.zones_written(grid_point).map_or(0, |z| z.sequential_from_bytes),
            region_bytes: region,
            limit_ns: Some(if soaked {
                self.budget.trial_ns.max(SOAKED_TRIAL_NS)
            } else {
                self.budget.trial_ns
            }),
            // A buffered read trial ends after one pass over the region. A second pass would be
            // served from the page cache, and would measure memory.
            limit_bytes: (buffered && read).then_some(region).into_iter().chain(enough).min(),
            flush_at_end: buffered && grid_point.write,
            seed: self.seed,
            pages: if grid_point.pages == BufferPages::Small {
                grid_point.pages
            } else {
                self.pages
            },
            interval_ns: self.budget.trial_ns / 20,
            ..Workload::default()
        };
        Setting {
            scrub: buffered && read && !subject.is_simulated(),
            allow_holes: self.allow_holes,
            coverage: subject.coverage.filter(|_| read),
            soaked: soaked && self.soak,
            ranks: self.lab.rank_group(),
            tail: Tail { trials: self.budget.rounds, ..Tail::default() },
            ..Setting::at(place, workload)
        }
    }

    /// Returns the size of the region that a point accesses (bytes). The size is rounded down to
    /// whole requests, or to whole zones if the point must write zones in order.
    fn region(&self, grid_point: &GridPoint) -> u64 {
        let all = self.subject.region_bytes;
        let (from, unit) = match self.zones_written(grid_point) {
            Some(zones) => (zones.sequential_from_bytes, zones.zone_bytes),
            None => (0, u64::from(grid_point.request_bytes)),
        };
        (all - from) / unit * unit
    }

    /// Returns the zones that a point must write in order. None if the point reads, or if the
    /// target has no such zones.
    fn zones_written(&self, grid_point: &GridPoint) -> Option<Zones> {
        self.subject.limits.zones.filter(|_| grid_point.write)
    }
}

/// Measures how much CPU time halfpower itself needs per request, with full statistics (ns). Uses
/// the null I/O engine, which does no I/O. None if the measurement is not valid.
///
/// # Errors
/// If the trial fails.
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
    let trial = lab.trial_alone(&Setting::new(&null, workload), &mut |_| {})?;
    let point = Point { key: Setting::new(&null, Workload::default()).key(), trials: vec![trial] };
    Ok(point.cpu_lower_ns().filter(|_| point.summary().verdict.state == State::Valid))
}

/// Returns the facts that are known before the first trial: the region, PAP, --app, and the
/// measurements that this host does not allow.
pub fn notes(lab: &Lab, subject: &Subject, budget: &Budget, pap: Option<f64>) -> Facts {
    let mut missing = if subject.is_simulated() { Vec::new() } else { lab.missing() };
    missing.extend(narrowed(&subject.limits));
    Facts {
        pap_bytes_per_s: pap,
        unordered_writes: unordered_writes(&subject.limits),
        missing,
        direct: subject.limits.direct,
        region_bytes: subject.region_bytes,
        app: budget.app,
        ..Facts::default()
    }
}
