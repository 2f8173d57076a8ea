//! Runs trials: prepares the target, runs the workload, meters the CPU, and judges the result.
//!
//! [`Lab`] holds what all trials share, such as the console, the clock and the CPU meter.

mod of_ranks;

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cpucost::{CpuMeter, CpuSample, HostMeter, Soaker, SoakerReading};
use ioengine::cgroup::{Groups, IoLimit};
use ioengine::clock::unix_ns;
use ioengine::device::{Device, DeviceCounters};
use ioengine::host::dirtied_bytes;
use ioengine::nvme_drive::{self, Health};
use ioengine::stripe::Layout;
use ioengine::target::{Coverage, Hint, Scrub};
use ioengine::{Caching, Clock, HostTarget, Monotonic, Target};
use workload::{Control, Progress, Sample, Workload, plan};

use crate::check::Check;
use crate::console::Console;
use crate::experiment::Blocks;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::peer::client::ServerWatch;
use crate::peer::counters::{Counters, ServerUsage};
use crate::point::{State, Trial};
use crate::point_key::{PointKey, Preparation};
use crate::rank_trial::{RankFiles, RankGroup};
use crate::ranks::Ranks;
use crate::record;
use crate::simulated::{self, Simulated};
use crate::simulated_target::SimulatedTarget;
use crate::verdict::{self, Circumstances, DriveHealth, Tail, Throttled};

/// How long the CPU use of other programs is measured before trials that use a soaker.
const BACKGROUND: Duration = Duration::from_millis(300);
/// The CPU use of other programs is measured again if the last measurement is older than this (ns).
const BACKGROUND_HOLDS_NS: u64 = 2_000_000_000;
/// Size of the requests that read a region into the page cache (bytes).
const WARM_UP_BYTES: u64 = 1 << 20;
/// Minimum length of a trial that is checked for drift and for too few requests (ns).
const LONG_TRIAL_NS: u64 = 1_000_000_000;

/// Runs trials, and holds the state that all trials share.
#[derive(Debug)]
pub struct Lab {
    /// Output to the terminal.
    pub console: Console,
    /// Whether the user has interrupted the program.
    pub interrupt: Interrupt,
    /// Monotonic clock.
    pub clock: Monotonic,
    meter: HostMeter,
    /// Connection to the other ranks of the run. None if this process measures alone.
    pub ranks: Option<Ranks>,
    /// Reads the counters of the `halfpower peer` before and after each trial. None without a peer.
    pub server: Option<ServerWatch>,
    cpus: u32,
    /// CPU quota of the control groups of this process. None without a quota.
    quota: Option<Quota>,
    soaker: RefCell<Option<ReadySoaker>>,
}

/// Readings from before a trial. A comparison with readings from after the trial shows whether
/// memory served direct requests, and whether the health of the drives changed.
struct Before {
    /// The devices that store the images of loop devices, each with its I/O counters.
    images: Vec<(Device, DeviceCounters)>,
    dirtied_bytes: Option<u64>,
    /// Health of the NVMe drives that store the targets. Empty if the health cannot be read.
    drives: Vec<(Device, Health)>,
}

impl Before {
    fn trial(targets: &[&HostTarget]) -> Before {
        let direct = targets.iter().filter(|t| t.kind().is_storage() && t.caching().is_direct());
        let mut devices: Vec<Device> =
            direct.clone().filter_map(|target| target.devices_of_images()).flatten().collect();
        devices.dedup();
        let counted = |device: Device| device.counters().map(|counters| (device, counters));
        Before {
            drives: health_of_drives(targets),
            images: devices.into_iter().filter_map(counted).collect(),
            dirtied_bytes: direct.clone().next().and_then(|_| dirtied_bytes()),
        }
    }

    fn beneath_images(&self) -> Option<DeviceCounters> {
        let since =
            |(device, before): &(Device, DeviceCounters)| Some(device.counters()?.since(before));
        self.images.iter().filter_map(since).reduce(|sum, counters| sum + counters)
    }

    fn dirtied_bytes(&self) -> Option<u64> {
        dirtied_bytes()?.checked_sub(self.dirtied_bytes?)
    }

    /// Returns the health of the drives before the trial and now.
    fn health(&self) -> Vec<DriveHealth> {
        let again = |(disk, before): &(Device, Health)| {
            let after = nvme_drive::health(disk)?.ok()?;
            Some(DriveHealth { name: disk.name(), before: *before, after })
        };
        self.drives.iter().filter_map(again).collect()
    }
}

/// The CPU quota of this process's control group.
#[derive(Debug)]
struct Quota {
    groups: Groups,
    cpus: f64,
    /// Time for which the quota throttled threads before the program started (ns).
    waited_before_ns: u64,
}

impl Quota {
    fn of_this_process() -> Option<Quota> {
        let groups = Groups::of_this_process();
        let limit = groups.cpu_limit();
        Some(Quota { cpus: limit.cpus?, waited_before_ns: limit.throttled_ns, groups })
    }

    fn waited_ns(&self) -> u64 {
        self.groups.cpu_limit().throttled_ns
    }

    fn since(&self, before_ns: u64) -> Throttled {
        let waited_ns = self.waited_ns().saturating_sub(before_ns);
        Throttled { cpus: self.cpus, waited_ns }
    }
}

/// Returns the control group's I/O limit. None if there is no limit or more than one target.
fn io_limit(targets: &[&HostTarget]) -> Option<IoLimit> {
    let [target] = targets else { return None };
    let device = Device::of(target.device_number()?)?;
    let whole = device.whole().unwrap_or(device);
    let limit = Groups::of_this_process().io_limit(whole.number()?);
    (!limit.is_none()).then_some(limit)
}

/// Reads the health of the NVMe drives below the targets.
fn health_of_drives(targets: &[&HostTarget]) -> Vec<(Device, Health)> {
    let mut disks: Vec<Device> = targets.iter().flat_map(|target| target.disks()).collect();
    disks.sort_by_key(Device::name);
    disks.dedup_by_key(|disk| disk.name());
    let known = |disk: Device| nvme_drive::health(&disk)?.ok().map(|health| (disk, health));
    disks.into_iter().filter_map(known).collect()
}

/// A calibrated soaker, and the CPU time that other programs take from it while no trial runs.
#[derive(Debug)]
struct ReadySoaker {
    soaker: Soaker,
    background_share: f64,
    background_at_ns: u64,
}

impl ReadySoaker {
    /// Measures how much CPU time other programs use while no trial runs.
    fn watch_background(&mut self, clock: &Monotonic) -> Result<(), cpucost::Declined> {
        let (sleep, now) = (|duration| clock.sleep(duration), || clock.now_ns());
        let background = self.soaker.background(BACKGROUND, &sleep, &now)?;
        self.background_share = background.lost_ns as f64 / background.elapsed_ns.max(1) as f64;
        self.background_at_ns = clock.now_ns();
        Ok(())
    }
}

/// Where a trial runs.
#[derive(Clone, Debug)]
pub enum Place<'a> {
    /// Targets of this host, all used at the same time.
    Host(Vec<&'a HostTarget>),
    /// A simulated system, in virtual time.
    Simulated(&'a SimulatedTarget),
}

impl Place<'_> {
    /// Returns the caching mode, which is the same for all targets.
    pub fn caching(&self) -> Caching {
        match self {
            Place::Host(targets) => targets[0].caching(),
            Place::Simulated(place) => place.caching,
        }
    }

    /// Returns the number of targets. The workload runs on each target.
    pub fn count(&self) -> usize {
        match self {
            Place::Host(targets) => targets.len(),
            Place::Simulated(place) => place.system.setup.files() as usize,
        }
    }

    /// Returns the layout of the stripe. None if the targets are not striped.
    fn layout(&self) -> Option<Layout> {
        match self {
            Place::Host(targets) => targets[0].layout(),
            Place::Simulated(_) => None,
        }
    }

    /// Checks that a workload fits the targets.
    ///
    /// # Errors
    /// The workload does not fit. The error contains the remedy.
    pub fn check_fit(&self, workload: &Workload) -> Outcome<()> {
        match self {
            Place::Host(targets) => Ok(plan::resolve(workload, targets[0]).map(drop)?),
            Place::Simulated(place) => simulated::check_fit(place, workload),
        }
    }
}

/// What a trial measures: a workload, its targets, and their preparation.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The targets.
    pub place: Place<'a>,
    /// The workload, which runs on each target.
    pub workload: Workload,
    /// Whether to evict the targets from the page cache before the trial.
    pub scrub: bool,
    /// Whether to read the region into the page cache before the trial.
    pub warm: bool,
    /// State of the file's blocks when the trial begins.
    pub blocks: Blocks,
    /// Access pattern announced to the kernel (fadvise).
    pub hint: Option<Hint>,
    /// Whether reads of holes and unwritten blocks are accepted.
    pub allow_holes: bool,
    /// Whether a soaker runs. The CPU time that it loses is an upper bound of the CPU cost.
    pub soaked: bool,
    /// How much of the regions is holes or unwritten blocks. None if unknown.
    pub coverage: Option<Coverage>,
    /// The highest percentile that is reported.
    pub tail: Tail,
    /// The ranks that measure together. None for one process.
    pub ranks: Option<RankGroup>,
}

/// Releases the blocks of the ranges in which the replayed program wrote new files, so that the
/// replay allocates them again. The permission to overwrite these ranges was checked earlier.
fn release_new_ranges(target: &HostTarget, workload: &Workload) -> Outcome<()> {
    let replay = workload.replay.as_ref().filter(|_| workload.writes());
    let ranges = replay.map_or(&[][..], |replay| &replay.new_ranges);
    for (offset, bytes) in ranges {
        target.release(workload.region_offset + offset, *bytes)?;
    }
    Ok(())
}

/// Adds up the scrub results of two targets.
fn sum_of(one: Scrub, two: Scrub) -> Scrub {
    let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
    Scrub {
        resident_before_bytes: sum(one.resident_before_bytes, two.resident_before_bytes),
        resident_after_bytes: sum(one.resident_after_bytes, two.resident_after_bytes),
        dropped_all_caches: one.dropped_all_caches || two.dropped_all_caches,
    }
}

impl<'a> Setting<'a> {
    /// Creates a setting for one target, with no scrub or other preparation.
    pub fn new(target: &'a HostTarget, workload: Workload) -> Setting<'a> {
        Setting::at(Place::Host(vec![target]), workload)
    }

    /// Creates a setting for a place, with no scrub or other preparation.
    pub fn at(place: Place<'a>, workload: Workload) -> Setting<'a> {
        Setting {
            place,
            workload,
            scrub: false,
            warm: false,
            blocks: Blocks::AsTheyAre,
            hint: None,
            allow_holes: false,
            soaked: false,
            coverage: None,
            tail: Tail::default(),
            ranks: None,
        }
    }

    /// Returns the key of the point that this setting measures.
    pub fn key(&self) -> PointKey {
        let key = PointKey::of(&self.workload);
        PointKey {
            targets: self.place.count() as u32,
            chunk_bytes: self.place.layout().map(|layout| layout.chunk_bytes()),
            caching: self.place.caching(),
            is_simulated: matches!(self.place, Place::Simulated(_)),
            preparation: Preparation {
                scrubbed: self.scrub,
                warmed: self.warm,
                hint: self.hint,
                blocks: self.blocks,
            },
            ranks: self.ranks,
            ..key
        }
    }
}

/// Runs one trial in a new simulated system, with the seed of the workload. Two trials with the
/// same seed are identical, because all times are simulated.
///
/// # Errors
/// The workload does not fit the system, or the rate exceeds a physical limit of the system.
pub fn simulated_trial(
    setting: &Setting<'_>,
    place: &SimulatedTarget,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Outcome<Trial> {
    let (system, workload) = (&place.system, &setting.workload);
    let simulated = simulated::simulate_until(system, workload, place.caching, stop, on_progress)?;
    let Simulated { sample, account } = simulated;
    let around = Circumstances {
        interrupted: sample.interrupted,
        became_steady: sample.became_steady,
        tail: setting.tail,
        long_trial: sample.elapsed_ns() >= LONG_TRIAL_NS,
        ..Circumstances::default()
    };
    let bounds = simulated::bounds_of(system, workload, place.caching, sample.bytes());
    let mut trial = record::trial(sample);
    simulated::check_bounds(system, &bounds, trial.whole_bytes_per_s())?;
    let live = trial.live_mut();
    (live.account, live.bounds) = (Some(account), bounds);
    live.simple = simulated::simple_model_of(system, workload, place.caching);
    trial.verdict = verdict::judge(&setting.key(), &trial, &around);
    Ok(trial)
}

/// Reads the CPU meter of the host and the soaker at the same time.
struct SoakedMeter<'a> {
    inner: &'a HostMeter,
    soaker: RefCell<&'a mut Soaker>,
    reading: RefCell<Option<SoakerReading>>,
}

impl CpuMeter for SoakedMeter<'_> {
    fn sample(&self, now_ns: u64) -> CpuSample {
        let mut soaker = self.soaker.borrow_mut();
        // Each call ends the interval of the previous call and begins a new one.
        *self.reading.borrow_mut() = soaker.end(now_ns).ok();
        let _ = soaker.begin(now_ns);
        self.inner.sample(now_ns)
    }
}

impl Lab {
    /// Creates a `Lab` on this host.
    pub fn new(console: Console, interrupt: Interrupt) -> Lab {
        Lab::of_rank(console, interrupt, None)
    }

    /// Creates a `Lab` on this host. If `ranks` is given, it measures together with these ranks.
    pub fn of_rank(console: Console, interrupt: Interrupt, ranks: Option<Ranks>) -> Lab {
        let (clock, meter) = (Monotonic::new(), HostMeter::new());
        let cpus = cpucost::affinity::allowed_cpus().len() as u32;
        let (quota, soaker) = (Quota::of_this_process(), RefCell::new(None));
        Lab { console, interrupt, clock, meter, ranks, server: None, cpus, quota, soaker }
    }

    /// Returns how long a CPU quota has throttled this program. None without a quota.
    pub fn throttled(&self) -> Option<Throttled> {
        self.quota.as_ref().map(|quota| quota.since(quota.waited_before_ns))
    }

    /// Returns one line for each missing CPU reading, with the cause and the remedy.
    pub fn missing(&self) -> Vec<String> {
        self.meter.missing()
    }

    /// Starts and calibrates a soaker, and measures the CPU use of other programs. This takes about
    /// a second. Later calls do nothing.
    ///
    /// # Errors
    /// No soaker can run. The message contains the reason and the remedy.
    pub fn prepare_soaker(&self) -> Result<(), String> {
        if self.soaker.borrow().is_some() {
            return Ok(());
        }
        let ready = self.start_soaker().map_err(|declined| {
            format!("no upper bound of the CPU cost: {}; {}", declined.reason, declined.remedy)
        })?;
        *self.soaker.borrow_mut() = Some(ready);
        Ok(())
    }

    fn start_soaker(&self) -> Result<ReadySoaker, cpucost::Declined> {
        let sleep = |duration| self.clock.sleep(duration);
        let now = || self.clock.now_ns();
        let mut soaker = Soaker::start()?;
        soaker.calibrate(&sleep, &now)?;
        let mut ready = ReadySoaker { soaker, background_share: 0.0, background_at_ns: 0 };
        ready.watch_background(&self.clock)?;
        Ok(ready)
    }

    /// Runs one trial, together with the other ranks if there are any.
    ///
    /// # Errors
    /// The workload does not fit the target, an I/O engine fails, or ranks cannot start together.
    /// Failed requests are not errors: they are counted in the trial and make it invalid.
    pub fn trial(
        &self,
        setting: &Setting<'_>,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Outcome<Trial> {
        self.one_trial(setting, on_progress, self.ranks.as_ref())
    }

    /// Runs one trial on this rank only, for example to write its test file.
    ///
    /// # Errors
    /// The errors of [`Lab::trial`].
    pub fn trial_alone(
        &self,
        setting: &Setting<'_>,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Outcome<Trial> {
        self.one_trial(setting, on_progress, None)
    }

    fn one_trial(
        &self,
        setting: &Setting<'_>,
        on_progress: &mut dyn FnMut(Progress),
        ranks: Option<&Ranks>,
    ) -> Outcome<Trial> {
        let targets = match &setting.place {
            Place::Host(targets) => targets,
            Place::Simulated(place) => {
                return simulated_trial(setting, place, self.interrupt.flag(), on_progress);
            }
        };
        let scrubbed = self.prepare(targets, setting)?;
        let seed = match ranks {
            None => setting.workload.seed,
            Some(_) => self.seed_of_rank(setting.workload.seed),
        };
        let planned = plan::resolve(&Workload { seed, ..setting.workload.clone() }, targets[0])?;
        let waited_ns = self.quota.as_ref().map(Quota::waited_ns);
        let before = Before::trial(targets);
        let (started_unix_ns, clocks) = (unix_ns(), self.clock.clocks());
        let server = self.server_before(setting);
        let (sample, soaked) = self.run(targets, &planned, setting, on_progress, ranks)?;
        let server = server.and_then(|before| self.server_since(&before));
        let around = Circumstances {
            drives: before.health(),
            clocks: self.clock.clocks().since(&clocks),
            beneath_images: before.beneath_images(),
            dirtied_bytes: before.dirtied_bytes(),
            unseen_image: targets.iter().find_map(|target| target.unseen_image()),
            in_memory: targets.iter().any(|target| target.is_in_memory()),
            io_limit: io_limit(targets),
            throttled: self.quota.as_ref().zip(waited_ns).map(|(quota, ns)| quota.since(ns)),
            ..self.circumstances(setting, scrubbed.is_some())
        };
        let judged = |sample: Sample, key: &PointKey| {
            let around = Circumstances {
                became_steady: sample.became_steady,
                interrupted: sample.interrupted,
                counted: sample.device.is_some(),
                long_trial: sample.elapsed_ns() >= LONG_TRIAL_NS,
                ..around.clone()
            };
            let mut trial = record::trial(sample);
            trial.soaked = setting.soaked;
            trial.scrub = scrubbed;
            trial.verdict = verdict::judge(key, &trial, &around);
            trial
        };
        let key = setting.key();
        let mut trial = match ranks {
            None => judged(sample, &key),
            Some(ranks) => self.merged(ranks, sample, (targets, &clocks), &key, &judged)?,
        };
        trial.started_unix_ns = started_unix_ns;
        trial.soaker_ns = soaked.as_ref().ok().copied().flatten();
        trial.live_mut().server = server;
        if targets.iter().any(|target| target.has_faults()) {
            trial.verdict.flag(
                State::Suspect,
                Check::InjectedFaults,
                "the results do not represent the performance of the target",
            );
        }
        if let Err(doubt) = soaked {
            trial.verdict.flag(State::Suspect, Check::NoUpperBound, doubt);
        }
        Ok(trial)
    }

    /// Reads the counters of the server and of this process before a trial. None if a soaker runs,
    /// because a server on this machine would then seem to use the soaker's CPU time.
    fn server_before(&self, setting: &Setting<'_>) -> Option<(Counters, CpuSample)> {
        let watch = self.server.as_ref().filter(|_| !setting.soaked)?;
        Some((watch.counters()?, self.meter.sample(self.clock.now_ns())))
    }

    /// Returns the resources that the server and this process used since the given readings.
    fn server_since(&self, (before, own): &(Counters, CpuSample)) -> Option<ServerUsage> {
        let client = self.meter.sample(self.clock.now_ns()).since(own);
        let after = self.server.as_ref()?.counters()?;
        Some(ServerUsage { client_ns: client.process_ns, ..after.since(before) })
    }

    /// Runs the workload, with a soaker if the setting requests one. All ranks start together.
    fn run(
        &self,
        targets: &[&HostTarget],
        planned: &workload::Plan,
        setting: &Setting<'_>,
        on_progress: &mut dyn FnMut(Progress),
        ranks: Option<&Ranks>,
    ) -> Outcome<(Sample, Result<Option<u64>, String>)> {
        let what = setting.key().describe();
        let failure = RefCell::new(None);
        let mut start = ranks.map(|ranks| {
            let failure = &failure;
            let what = &what;
            move || {
                ranks.start_together(what).map_err(|why| {
                    let text = why.message.clone();
                    failure.replace(Some(why));
                    workload::Error::Start(text)
                })
            }
        });
        let start = start.as_mut().map(|start| start as &mut dyn FnMut() -> _);
        let mut control = Control { stop: self.interrupt.flag(), on_progress, start };
        let measured = if setting.soaked {
            self.run_soaked(targets, planned, &mut control)
        } else {
            let sample = workload::run(targets, planned, self.clock, &self.meter, &mut control);
            sample.map(|sample| (sample, Ok(None))).map_err(Failure::from)
        };
        match failure.into_inner() {
            Some(failure) => Err(failure),
            None => measured,
        }
    }

    /// Prepares the targets as the setting requires. Returns the result of the scrub, if any.
    fn prepare(&self, targets: &[&HostTarget], setting: &Setting<'_>) -> Outcome<Option<Scrub>> {
        let mut scrubbed: Option<Scrub> = None;
        for target in targets {
            if target.kind().is_storage() {
                self.lay_blocks(target, setting)?;
            }
            self.empty_zones(target, &setting.workload)?;
            release_new_ranges(target, &setting.workload)?;
            if setting.scrub && target.kind().is_storage() {
                let scrub = target.scrub()?;
                scrubbed = Some(scrubbed.map_or(scrub, |sum| sum_of(sum, scrub)));
            }
            if setting.warm && target.kind().is_storage() {
                self.warm_up(target, &setting.workload)?;
            }
            if let Some(hint) = setting.hint {
                target.advise(hint, 0, 0)?;
            }
        }
        Ok(scrubbed)
    }

    /// Resets the zones that a workload writes. The permission to destroy their data was checked
    /// earlier.
    fn empty_zones(&self, target: &HostTarget, workload: &Workload) -> Outcome<()> {
        let Some(zones) = target.zones().filter(|_| workload.writes()) else { return Ok(()) };
        let Workload { region_offset, region_bytes, .. } = *workload;
        if region_offset < zones.sequential_from_bytes {
            return Ok(());
        }
        Ok(target.reset_zones(region_offset, region_bytes / zones.zone_bytes * zones.zone_bytes)?)
    }

    /// Brings the blocks of a file into the state that a trial needs.
    fn lay_blocks(&self, target: &HostTarget, setting: &Setting<'_>) -> Outcome<()> {
        if setting.blocks == Blocks::AsTheyAre {
            return Ok(());
        }
        target.truncate(0)?;
        // The truncation has removed the blocks that earlier trials wrote.
        setting.workload.written.iter().for_each(|written| written.clear());
        let Workload { region_offset, region_bytes, request_bytes, .. } = setting.workload;
        match setting.blocks {
            Blocks::AsTheyAre | Blocks::None => {}
            Blocks::Reserved => target.reserve(region_offset, region_bytes)?,
            Blocks::Last => {
                let whole = region_bytes / u64::from(request_bytes) * u64::from(request_bytes);
                let last = Workload {
                    engine_kind: setting.workload.engine_kind,
                    read_percent: 0,
                    request_bytes,
                    region_offset: region_offset + whole.saturating_sub(request_bytes.into()),
                    region_bytes: request_bytes.into(),
                    limit_bytes: Some(request_bytes.into()),
                    may_extend: true,
                    ..Workload::default()
                };
                self.on_the_side(target, &last)?;
            }
        }
        Ok(target.sync()?)
    }

    /// Reads the region of a workload into the page cache.
    fn warm_up(&self, target: &HostTarget, workload: &Workload) -> Outcome<()> {
        let region_bytes = workload.region_bytes;
        let request_bytes = region_bytes.min(WARM_UP_BYTES);
        let reading = Workload {
            engine_kind: workload.engine_kind,
            request_bytes: request_bytes as u32,
            region_offset: workload.region_offset,
            region_bytes,
            limit_bytes: Some(region_bytes / request_bytes * request_bytes),
            ..Workload::default()
        };
        self.on_the_side(target, &reading)
    }

    /// Runs a workload without measuring it.
    fn on_the_side(&self, target: &HostTarget, workload: &Workload) -> Outcome<()> {
        let mut control =
            Control { stop: self.interrupt.flag(), on_progress: &mut |_| {}, start: None };
        let planned = plan::resolve(workload, target)?;
        workload::run(&[target], &planned, self.clock, &self.meter, &mut control)?;
        Ok(())
    }

    fn run_soaked(
        &self,
        targets: &[&HostTarget],
        planned: &workload::Plan,
        control: &mut Control<'_>,
    ) -> Outcome<(Sample, Result<Option<u64>, String>)> {
        let mut ready = self.soaker.borrow_mut();
        let Some(ready) = ready.as_mut() else {
            let sample = workload::run(targets, planned, self.clock, &self.meter, control)?;
            return Ok((sample, Ok(None)));
        };
        if self.clock.now_ns() > ready.background_at_ns + BACKGROUND_HOLDS_NS {
            // If this fails, the previous background load stays in use. The next reading of the
            // soaker reports the reason.
            let _ = ready.watch_background(&self.clock);
        }
        let ReadySoaker { soaker, background_share, .. } = ready;
        let meter = SoakedMeter {
            inner: &self.meter,
            soaker: RefCell::new(soaker),
            reading: RefCell::new(None),
        };
        let sample = workload::run(targets, planned, self.clock, &meter, control);
        let reading = meter.reading.into_inner();
        // The last reading of the meter began another interval, which ends here.
        let _ = meter.soaker.into_inner().end(self.clock.now_ns());
        let lost = match reading {
            Some(SoakerReading { suspect: Some(doubt), .. }) => Err(doubt),
            Some(reading) => {
                let background = reading.elapsed_ns as f64 * *background_share;
                let lost_at_most = reading.lost_ns as f64 + reading.hidden_ns();
                Ok(Some((lost_at_most - background).max(0.0) as u64))
            }
            None => Ok(None),
        };
        Ok((sample?, lost))
    }

    /// Returns the conditions that are known before the trial runs.
    fn circumstances(&self, setting: &Setting<'_>, scrubbed: bool) -> Circumstances {
        let targets = setting.place.count() as u64;
        // Strided ranks share one region. With other `RankFiles`, each rank has a separate region.
        let apart = setting.ranks.filter(|ranks| ranks.files != RankFiles::Strided);
        let ranks = u64::from(apart.map_or(1, |ranks| ranks.count));
        Circumstances {
            coverage: setting.coverage,
            target_bytes: setting.workload.region_bytes * targets * ranks,
            page_cache_bytes: ioengine::cgroup::memory_limit_bytes(),
            allow_holes: setting.allow_holes,
            cold: verdict::is_cold(setting.place.caching(), scrubbed),
            cpus: self.cpus,
            tail: setting.tail,
            ..Circumstances::default()
        }
    }
}
