//! Opens and checks the targets of a job. If a target is a directory, a test file is created in it.

use analysis::units;
use std::path::Path;

use ioengine::engine::pieces_bits;
use ioengine::host::{free_bytes_at, offers_direct};
use ioengine::network::Address;
use ioengine::stripe::Layout;
use ioengine::target::Coverage;
use ioengine::{Caching, HostTarget, Target, TargetKind};
use workload::{Workload, plan};

use crate::experiment::{Allocation, PageCache};
use crate::failure::{Failure, Outcome};
use crate::guard::{self, Consent, Permit};
use crate::job::{Axes, Job};
use crate::machine::TargetFacts;
use crate::memory_limit;
use crate::network_target;
use crate::rank_trial::{RankFiles, RankGroup};
use crate::ranks::Ranks;
use crate::ranks::share::{self, Share};
use crate::reference_device::{self, ReferenceDevice};
use crate::scratch::{self, Scratch};
use crate::simulated;
use crate::simulated_target::SimulatedTarget;
use crate::target::{self, JobTargets};
use crate::trials::{Lab, Place, Setting};
use crate::verdict::Tail;

/// Maximum default size of a test file (bytes). The default size is a tenth of the free space, but
/// at least 1 MiB and at most this size.
pub const TEST_FILE_BYTES: u64 = 1 << 30;
/// Memory that a thread needs in addition to its I/O buffers (bytes), for its stack, histograms,
/// the rounding to huge pages, and its share of the allocator's mappings.
const THREAD_BYTES: u64 = 6 << 20;

/// The open targets of a job. Dropping the value removes the test files.
#[derive(Debug)]
pub struct Bench {
    /// Opened targets, in the order of the command line. Empty if the target is a simulated system.
    pub targets: Vec<HostTarget>,
    /// The simulated system that is the target. None for all other targets.
    simulated: Option<SimulatedTarget>,
    /// Size of the accessed region, the same in every target (bytes).
    pub region_bytes: u64,
    /// Total size of the holes and unwritten blocks in the regions of all targets. None if the
    /// system does not report them.
    pub coverage: Option<Coverage>,
    /// The part of the targets that is assigned to this rank. None if there is only one process.
    share: Option<Share>,
    /// Test files, which are removed on drop, after the targets are closed.
    _scratches: Vec<Scratch>,
    /// Permissions to write. No other process can mount a device while its permit exists.
    _permits: Vec<Permit>,
}

/// The planned preparation of a job's targets.
#[derive(Debug, Default)]
pub struct Preparation {
    /// Description of the preparation, with one line for each target.
    pub lines: Vec<String>,
    /// Description of the data that will be destroyed, with one sentence for each device.
    pub destroys: Vec<String>,
    /// Amount of data that is written before the measurement (bytes).
    pub write_bytes: u64,
    /// Size of the region to access, the same in every target (bytes).
    pub region_bytes: u64,
}

/// Returns the default size of a test file in a directory (bytes).
pub fn default_size(folder: &Path) -> Outcome<u64> {
    let tenth = free_bytes_at(folder)? / 10;
    Ok(TEST_FILE_BYTES.min(tenth >> 20 << 20).max(1 << 20))
}

/// Checks whether a path can be a target. The error contains the remedy.
pub fn check_path(path: &Path, consent: &Consent) -> Outcome<()> {
    if network_target::is_network(path) {
        return network_target::parse(path).map(drop);
    }
    target::check_on_host(path)?;
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    if real.is_dir() && !consent.destroy_data_on.is_empty() {
        return Err(Failure::refused(format!(
            "{} is a directory, but --destroy-data-on is for block devices; use a device as the \
             target, or drop --destroy-data-on",
            path.display()
        )));
    }
    if real.is_dir() && real.starts_with("/dev") {
        return Err(Failure::refused(format!(
            "{} is a directory of devices, and halfpower creates no files there; use a block \
             device as the target (lsblk lists the devices)",
            path.display()
        )));
    }
    if is_fio_job(&real) {
        return Err(Failure::usage(format!(
            "{} is a fio job file, not a target; run its jobs with halfpower run, or specify the \
             file, directory or device to measure",
            path.display()
        )));
    }
    if !path.exists() {
        // Opening the missing path returns the best error message.
        HostTarget::open(path, false, Caching::Buffered)?;
    }
    Ok(())
}

/// Returns whether a file is a fio job file, which is a small text file that starts with a section.
pub fn is_fio_job(path: &Path) -> bool {
    const BYTES_MAX: u64 = 64 << 10;
    if !std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= BYTES_MAX) {
        return false;
    }
    let Ok(text) = std::fs::read_to_string(path) else { return false };
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let is_section = first.is_some_and(|line| line.starts_with('[') && line.ends_with(']'));
    is_section && lines.any(|line| line.contains('='))
}

/// Plans the preparation of a job's targets.
pub fn preparation(job: &Job) -> Outcome<Preparation> {
    let mut found = Preparation { region_bytes: u64::MAX, ..Preparation::default() };
    let paths = match &job.targets {
        JobTargets::Nothing => {
            found.region_bytes = job.size.unwrap_or(reference_device::SIZE_BYTES);
            found.lines.push("measure without a target; nothing is touched".to_owned());
            return Ok(found);
        }
        JobTargets::Reference(devices) => {
            found.region_bytes = reference_region(devices, job)?;
            let line =
                |device: &ReferenceDevice| format!("measure {}; nothing is touched", device.name);
            found.lines.extend(devices.iter().map(line));
            return Ok(found);
        }
        JobTargets::Simulated(system) => {
            found.region_bytes = simulated_region(system, job)?;
            let title = &system.system.title;
            found.lines.push(format!("simulate {}: {title}; nothing is touched", system.name));
            return Ok(found);
        }
        JobTargets::Network(addresses) => return prepare_network(addresses, job),
        JobTargets::Host(paths) => paths,
    };
    let mut smallest_bytes = u64::MAX;
    for path in paths {
        check_path(path, &job.consent)?;
        let (bytes, region_bytes) = if path.is_dir() {
            let bytes = file_bytes(path, job)?;
            scratch::check_room(path, bytes)?;
            if job.stripe.is_none() {
                check_fit(job, &yet_to_be_made(job, bytes), bytes - job.base.region_offset)?;
            }
            let (size, path) = (units::size(bytes), path.display());
            if needs_layout(job) {
                found.write_bytes += bytes;
                let line =
                    format!("lay out a test file of {size} in {path}, and remove it afterwards");
                found.lines.push(line);
            } else {
                found
                    .lines
                    .push(format!("create an empty test file in {path}, and remove it afterwards"));
            }
            (bytes, bytes - job.base.region_offset)
        } else {
            let (target, permit) = open(path, job)?;
            check_growth(&target, job)?;
            if job.stripe.is_none() {
                check_fit(job, &target, region(&target, job))?;
            }
            let verb = if job.writes() { "write to" } else { "read" };
            let (kind, name) = (target.kind().name(), path.display());
            found.lines.push(format!("{verb} the {kind} {name}"));
            found.destroys.extend(permit.and_then(|permit| permit.destroys));
            (target.size_bytes(), region(&target, job))
        };
        smallest_bytes = smallest_bytes.min(bytes);
        found.region_bytes = found.region_bytes.min(region_bytes);
    }
    if let Some(layout) = job.stripe {
        found.region_bytes = striped_region(job, &layout, smallest_bytes)?;
        let chunk = units::size(layout.chunk_bytes());
        found.lines.push(format!("combine the targets into a stripe with chunks of {chunk}"));
    }
    Ok(found)
}

/// Plans the preparation of network targets. Opens all of them to get their sizes.
fn prepare_network(addresses: &[Address], job: &Job) -> Outcome<Preparation> {
    let mut found = Preparation { region_bytes: u64::MAX, ..Preparation::default() };
    for target in striped(open_network(addresses, job)?, job)? {
        check_fit(job, &target, region(&target, job))?;
        let verb = if job.writes() { "write to" } else { "read" };
        let (name, size) = (target.name(), units::size(target.size_bytes()));
        found.lines.push(format!("{verb} {name} ({size}) over the network"));
        found.region_bytes = found.region_bytes.min(region(&target, job));
    }
    Ok(found)
}

/// Connects to all network targets.
fn open_network(addresses: &[Address], job: &Job) -> Outcome<Vec<HostTarget>> {
    let open =
        |address| network_target::open(address, job.writes(), job.write_through, &job.consent);
    addresses.iter().map(open).collect()
}

/// Returns the size of the region of a stripe (bytes). `smallest_bytes` is the size of the smallest
/// target in the stripe.
fn striped_region(job: &Job, layout: &Layout, smallest_bytes: u64) -> Outcome<u64> {
    let bytes = layout.bytes(smallest_bytes);
    let region_bytes = job.size.unwrap_or(bytes.saturating_sub(job.base.region_offset));
    check_fit(job, &yet_to_be_made(job, bytes), region_bytes)?;
    for axes in &job.axes {
        pieces_bits(layout, axes.depth, axes.request_bytes)?;
    }
    Ok(region_bytes)
}

/// Returns the size of the region of reference devices (bytes).
fn reference_region(devices: &[ReferenceDevice], job: &Job) -> Outcome<u64> {
    let all = || reference_device::region_bytes(devices, job.base.region_offset);
    job.size.map_or_else(all, Ok)
}

/// Returns a target of `bytes` bytes in place of a test file that does not exist yet.
fn yet_to_be_made(job: &Job, bytes: u64) -> HostTarget {
    let caching = Caching::of(job.direct.unwrap_or(true), job.write_through);
    HostTarget::null(bytes).in_mode(caching)
}

/// Returns the size of the test file to create in a directory (bytes). In a stripe, each member has
/// a test file of this size.
fn file_bytes(folder: &Path, job: &Job) -> Outcome<u64> {
    let Some(size) = job.size else { return Ok(default_size(folder)? + job.base.region_offset) };
    let bytes = size.saturating_add(job.base.region_offset);
    Ok(job.stripe.map_or(bytes, |layout| layout.member_bytes(bytes)))
}

/// Returns the size of the region of a simulated file (bytes). Checks that all workloads fit into
/// the file.
fn simulated_region(place: &SimulatedTarget, job: &Job) -> Outcome<u64> {
    let file_bytes = place.system.setup.file_size;
    let region_bytes = job.size.unwrap_or(file_bytes.saturating_sub(job.base.region_offset));
    if region_bytes == 0 {
        return Err(Failure::usage(format!(
            "--offset {} is at or beyond the end of {}; use a smaller --offset, or enlarge the \
             simulated file with --size",
            job.base.region_offset, place.name
        )));
    }
    for axes in &job.axes {
        let workload = job.workload(axes, region_bytes, place.caching.is_direct());
        simulated::check_fit(place, &workload)?;
        // Simulated requests move no data, so they need no buffers.
        check_memory(&workload, 0, place.system.setup.files() as usize)?;
    }
    Ok(region_bytes)
}

/// Refuses a workload that does not fit its target. Must be called before a file is created or
/// truncated.
fn check_fit(job: &Job, target: &HostTarget, region_bytes: u64) -> Outcome<()> {
    if region_bytes == 0 && target.size_bytes() > 0 {
        return Err(Failure::usage(format!(
            "--offset {} is at or beyond the end of {}; use a smaller --offset",
            job.base.region_offset,
            target.name()
        )));
    }
    if region_bytes == 0 {
        return Err(Failure::usage(format!(
            "{} is empty; use a file with content, or a directory, in which a test file is created",
            target.name()
        )));
    }
    let direct = match target.kind() {
        kind if kind.is_storage() => target.caching().is_direct(),
        _ => job.direct.unwrap_or(true),
    };
    if let Some(wanted) = job.page_cache.filter(|_| direct && job.targets.does_io()) {
        return Err(Failure::usage(format!(
            "--page-cache {} needs buffered requests, but the requests are direct; add --direct=0",
            wanted.name(),
        )));
    }
    for axes in &job.axes {
        let workload = job.workload(axes, region_bytes, direct);
        plan::resolve(&workload, target)?;
        let buffer_bytes = u64::from(workload.depth) * u64::from(workload.request_bytes);
        check_memory(&workload, buffer_bytes, job.targets.count())?;
    }
    Ok(())
}

/// Refuses a workload whose threads need more memory than this process may use. Each thread has
/// `buffer_bytes` of buffers. Without this check, the kernel could kill the program without an
/// error message.
fn check_memory(workload: &Workload, buffer_bytes: u64, targets: usize) -> Outcome<()> {
    let Some(limit) = memory_limit::narrowest() else { return Ok(()) };
    let threads = u64::from(workload.threads) * targets.max(1) as u64;
    let wanted = threads.saturating_mul(buffer_bytes.saturating_add(THREAD_BYTES));
    if wanted <= limit.bytes {
        return Ok(());
    }
    let threads = units::counted(threads, "thread");
    Err(Failure::usage(format!(
        "the buffers of {threads} ({} for each thread) need too much memory: {} leaves only {} \
         for buffers; raise that limit, or use a smaller --bs, --iodepth or --numjobs",
        units::size(buffer_bytes),
        limit.what,
        units::size(limit.bytes)
    )))
}

/// Refuses a `--size` if the target would grow beyond the free space of its file system.
fn check_growth(target: &HostTarget, job: &Job) -> Outcome<()> {
    let (Some(free), Some(size)) = (target.free_bytes(), job.size) else { return Ok(()) };
    let wanted = size.saturating_add(job.base.region_offset);
    let wanted = job.stripe.map_or(wanted, |layout| layout.member_bytes(wanted));
    let room = free.saturating_add(target.size_bytes());
    if job.allocation.grows() && target.kind() == TargetKind::File && wanted > room {
        return Err(Failure::failed(format!(
            "{} would grow to {}, but there is space for only {}; use a smaller --size",
            target.name(),
            units::size(wanted),
            units::size(room)
        )));
    }
    Ok(())
}

fn needs_layout(job: &Job) -> bool {
    matches!(job.allocation, Allocation::Existing | Allocation::Truncate)
}

/// Returns the size of the region of an existing target (bytes). The default is the rest of the
/// target after the offset, or 1 GiB with `--allocation` extend, fallocate or last-block.
fn region(target: &HostTarget, job: &Job) -> u64 {
    let rest = target.size_bytes().saturating_sub(job.base.region_offset);
    match job.allocation {
        Allocation::Existing | Allocation::Truncate => job.size.unwrap_or(rest),
        Allocation::Extend | Allocation::Reserve | Allocation::LastBlock => {
            job.size.unwrap_or(TEST_FILE_BYTES)
        }
    }
}

/// Returns the requested caching mode. By default, I/O is direct if the path supports direct I/O.
pub fn caching(path: &Path, direct: Option<bool>, write_through: bool) -> Caching {
    Caching::of(direct.unwrap_or_else(|| offers_direct(path)), write_through)
}

/// Opens one existing file or device and checks the permission to write.
fn open(path: &Path, job: &Job) -> Outcome<(HostTarget, Option<Permit>)> {
    let mode = caching(path, job.direct, job.write_through);
    let target = match HostTarget::open(path, job.writes(), mode) {
        Err(error) if job.writes() => {
            // Some systems refuse to open a device for writing while the device is in use. The
            // check for consent then returns a better message, which states what uses the device.
            if let Ok(readable) = HostTarget::open(path, false, Caching::Buffered) {
                guard::check_writable(&readable, path, &job.consent)?;
            }
            return Err(error.into());
        }
        opened => opened?,
    };
    let permit =
        if job.writes() { guard::check_writable(&target, path, &job.consent)? } else { None };
    Ok((target, permit))
}

/// Checks that all targets have the same caching mode.
fn check_alike(targets: &[HostTarget]) -> Outcome<()> {
    let first = &targets[0];
    match targets.iter().find(|target| target.caching() != first.caching()) {
        Some(other) => Err(Failure::usage(format!(
            "the targets of one run need the same caching mode, but {} would be {} and {} would \
             be {}; use --direct=0, or measure the targets one by one",
            first.name(),
            first.caching(),
            other.name(),
            other.caching()
        ))),
        None => Ok(()),
    }
}

/// Combines the targets into one stripe if the job specifies a stripe.
fn striped(targets: Vec<HostTarget>, job: &Job) -> Outcome<Vec<HostTarget>> {
    match job.stripe {
        Some(layout) => Ok(vec![HostTarget::striped(targets, layout.chunk_bytes())?]),
        None => Ok(targets),
    }
}

/// Returns the total size of the holes and unwritten blocks in the regions of all targets, or None
/// if the system does not report them.
fn coverage_of(targets: &[HostTarget], offset: u64, length: u64) -> Option<Coverage> {
    targets.iter().map(|target| target.coverage(offset, length)).sum()
}

impl Bench {
    /// Opens the job's targets, and creates test files in directories.
    ///
    /// # Errors
    ///
    /// If a target cannot be opened, there is too little space for a test file, or the user did not
    /// allow writing to a target.
    pub fn ready(job: &Job, lab: &Lab) -> Outcome<Bench> {
        let region_bytes = preparation(job)?.region_bytes;
        if let Some(share) = share_of(job, lab) {
            for axes in &job.axes {
                share.check(region_bytes, &job.workload(axes, region_bytes, true))?;
            }
        }
        let bench = |targets: Vec<HostTarget>, simulated| {
            let with_faults = |target: HostTarget| target.with_faults(job.faults.clone());
            Bench {
                targets: targets.into_iter().map(with_faults).collect(),
                simulated,
                region_bytes,
                coverage: None,
                share: share_of(job, lab),
                _scratches: Vec::new(),
                _permits: Vec::new(),
            }
        };
        let end_bytes = region_bytes.saturating_add(job.base.region_offset);
        let paths = match &job.targets {
            JobTargets::Nothing => return Ok(bench(vec![HostTarget::null(end_bytes)], None)),
            JobTargets::Simulated(system) => {
                return Ok(bench(Vec::new(), Some((**system).clone())));
            }
            JobTargets::Reference(devices) => {
                let member_bytes =
                    job.stripe.map_or(end_bytes, |layout| layout.member_bytes(end_bytes));
                let opened = devices.iter().map(|device| device.open(member_bytes)).collect();
                return Ok(bench(striped(opened, job)?, None));
            }
            JobTargets::Network(addresses) => {
                let opened = open_network(addresses, job)?;
                if let Some(ranks) = &lab.ranks {
                    check_sharing(ranks, job, &opened)?;
                }
                return Ok(bench(striped(opened, job)?, None));
            }
            JobTargets::Host(paths) => paths,
        };
        let (mut targets, mut scratches, mut permits) = (Vec::new(), Vec::new(), Vec::new());
        for path in paths {
            if path.is_dir() {
                let end = region_bytes + job.base.region_offset;
                let bytes = job.stripe.map_or(end, |layout| layout.member_bytes(end));
                let (target, scratch) = test_file(path, job, bytes, lab)?;
                targets.push(target);
                scratches.extend(scratch);
            } else {
                let (target, permit) = open(path, job)?;
                targets.push(target);
                permits.extend(permit);
            }
        }
        check_alike(&targets)?;
        if let Some(ranks) = &lab.ranks {
            check_sharing(ranks, job, &targets)?;
        }
        let targets = striped(targets, job)?;
        if job.stripe.is_some() {
            check_fit(job, &targets[0], region_bytes)?;
        }
        let bench = bench(targets, None);
        let coverage = coverage_of(&bench.targets, job.base.region_offset, region_bytes);
        Ok(Bench { coverage, _scratches: scratches, _permits: permits, ..bench })
    }

    /// Returns the target of the trials, which is the same for all combinations of the axes.
    pub fn place(&self) -> Place<'_> {
        match &self.simulated {
            Some(place) => Place::Simulated(place),
            None => Place::Host(self.targets.iter().collect()),
        }
    }

    /// Returns the inputs of the trials for one combination of the axes.
    pub fn setting(&self, job: &Job, axes: &Axes) -> Setting<'_> {
        let place = self.place();
        let caching = place.caching();
        let reads = axes.read_percent > 0;
        let cold = match job.page_cache {
            Some(wanted) => wanted == PageCache::Cold,
            None => job.invalidate && reads,
        };
        let cached = !caching.is_direct() && self.can_scrub();
        let workload = match &self.share {
            None => job.workload(axes, self.region_bytes, caching.is_direct()),
            Some(share) => {
                let region_bytes = share.bytes(self.region_bytes, axes.request_bytes);
                share.place(job.workload(axes, region_bytes, caching.is_direct()))
            }
        };
        Setting {
            place,
            workload,
            ranks: self.share.map(|share| share.group),
            scrub: cold && cached,
            warm: job.page_cache == Some(PageCache::Warm) && cached,
            blocks: job.allocation.blocks(),
            hint: job.hint,
            allow_holes: job.allow_holes || job.allocation.grows(),
            soaked: false,
            coverage: self.coverage,
            tail: Tail {
                percentile: job.percentiles().last().copied().unwrap_or(99.0),
                trials: job.trials,
                asked: job.percentiles.is_some(),
            },
        }
    }

    /// Describes the open targets. The description is stored with the run.
    pub fn facts(&self) -> Vec<TargetFacts> {
        match &self.simulated {
            Some(place) => vec![simulated::facts(place)],
            None => self.targets.iter().map(TargetFacts::of).collect(),
        }
    }

    /// Returns whether the targets' data can be evicted from the page cache. Returns false for a
    /// simulated system, because it always starts with an empty page cache.
    pub fn can_scrub(&self) -> bool {
        self.simulated.is_none() && self.targets.iter().all(|target| target.kind().is_storage())
    }
}

/// Returns the part of the targets that this rank uses, or None if there is only one process.
fn share_of(job: &Job, lab: &Lab) -> Option<Share> {
    let ranks = lab.ranks.as_ref()?;
    let group = RankGroup { count: ranks.count(), files: job.rank_files };
    Some(Share { group, number: share::shifted(ranks.rank, job.rank_shift, ranks.count()) })
}

/// A target that a rank uses: whether it is on a server, and its [`HostTarget::identity`].
type UsedTarget = (bool, (u64, u64));

/// Returns the first other rank that uses one of these targets. A file or device counts only if
/// both ranks are on the same host. A target on a server counts only if both ranks write to it,
/// because several ranks may read it. All ranks must call this function.
fn other_user<'a>(
    ranks: &Ranks,
    targets: impl Iterator<Item = &'a HostTarget>,
) -> Outcome<Option<u32>> {
    let is_remote = |target: &HostTarget| target.kind() == TargetKind::Network;
    let own = targets.filter(|target| !is_remote(target) || target.writes_to_server());
    let mine: Vec<UsedTarget> = own.map(|target| (is_remote(target), target.identity())).collect();
    let all = ranks.gather(&mine)?;
    let own_host = &ranks.hosts[ranks.rank as usize];
    let is_same = |(other, theirs): &(u32, &Vec<UsedTarget>)| {
        let is_here = ranks.hosts[*other as usize] == *own_host;
        let is_mine = |one: &&UsedTarget| mine.contains(*one);
        let mut common = theirs.iter().filter(is_mine);
        *other != ranks.rank && common.any(|(is_remote, _)| *is_remote || is_here)
    };
    Ok((0..).zip(&all).find(is_same).map(|(other, _)| other))
}

/// Refuses targets that another rank uses too. All ranks must call this function.
///
/// # Errors
/// If another rank uses one of the targets. The usage error ends with `remedy`.
pub fn check_own<'a>(
    ranks: &Ranks,
    name: &str,
    targets: impl Iterator<Item = &'a HostTarget>,
    remedy: &str,
) -> Outcome<()> {
    let Some(other) = other_user(ranks, targets)? else { return Ok(()) };
    let (host, theirs) = (&ranks.hosts[ranks.rank as usize], &ranks.hosts[other as usize]);
    let of = if host == theirs { format!(" of {host}") } else { String::new() };
    Err(Failure::usage(format!(
        "ranks {} and {other}{of} would both use {name}; use {{rank}} in the target's name, \
         {remedy}",
        ranks.rank
    )))
}

/// If each rank must have its own target (`--rank-files own`), refuses targets that several ranks
/// use. Otherwise refuses a device, or a target on a server, if several ranks would write to it.
fn check_sharing(ranks: &Ranks, job: &Job, targets: &[HostTarget]) -> Outcome<()> {
    let name = targets[0].name();
    let is_remote = targets.iter().any(|target| target.kind() == TargetKind::Network);
    if job.rank_files == RankFiles::Own {
        let remedy = if is_remote {
            "or measure with one rank and --numjobs"
        } else {
            "use a directory, or share the target with --rank-files segmented"
        };
        return check_own(ranks, name, targets.iter(), remedy);
    }
    let is_shared = other_user(ranks, targets.iter())?.is_some();
    let is_device = targets.iter().any(|target| target.kind() == TargetKind::BlockDevice);
    if is_shared && is_remote {
        return Err(Failure::usage(format!(
            "only one rank may write to {name}; use {{rank}} in the target's name, or measure \
             with one rank and --numjobs"
        )));
    }
    if is_shared && is_device && job.writes() {
        return Err(Failure::usage(format!(
            "only one rank of host {} may write to the device {name}; start one rank on each host \
             and use --numjobs",
            ranks.hosts[ranks.rank as usize]
        )));
    }
    Ok(())
}

/// Opens the test file that this rank uses in a directory. The file belongs to this rank, to
/// another rank (`--rank-shift`), or to all ranks (`--rank-files`). If this rank must create a
/// file, the file is removed when the returned `Scratch` is dropped.
fn test_file(
    folder: &Path,
    job: &Job,
    bytes: u64,
    lab: &Lab,
) -> Outcome<(HostTarget, Option<Scratch>)> {
    let shares = job.rank_files != RankFiles::Own;
    let ranks = lab.ranks.as_ref().filter(|_| shares || job.rank_shift > 0);
    let makes = ranks.is_none_or(|ranks| !shares || ranks.is_first());
    let scratch = makes.then(|| lay_out(folder, job, bytes, lab)).transpose()?;
    let path = match (ranks, &scratch) {
        (None, None) => folder.to_path_buf(),
        (None, Some(scratch)) => scratch.path().to_path_buf(),
        (Some(ranks), _) => {
            let made = scratch.as_ref().map(|scratch| scratch.path().to_path_buf());
            let paths = ranks.gather(&made)?;
            let shifted = share::shifted(ranks.rank, job.rank_shift, ranks.count());
            let maker = if shares { 0 } else { shifted };
            let path = paths.into_iter().nth(maker as usize).flatten();
            path.ok_or_else(|| Failure::failed(format!("rank {maker} created no test file")))?
        }
    };
    let mode = caching(&path, job.direct, job.write_through);
    let target = match &scratch {
        Some(scratch) if scratch.path() == path => scratch.open(job.writes(), mode)?,
        _ => HostTarget::open(&path, job.writes(), mode).map_err(|error| {
            Failure::failed(format!(
                "{error}: ranks can share files only in a directory that all hosts mount"
            ))
        })?,
    };
    Ok((target, scratch))
}

fn lay_out(folder: &Path, job: &Job, bytes: u64, lab: &Lab) -> Outcome<Scratch> {
    let scratch = Scratch::make(folder, bytes)?;
    // Before the file is written, this code checks that the workload fits. The check needs an open
    // file, because it uses properties of the file such as the alignment.
    let mode = caching(scratch.path(), job.direct, job.write_through);
    let empty = scratch.open(true, mode)?;
    // The workload of a stripe spans all members, so it is checked after all members are open.
    for axes in job.axes.iter().filter(|_| job.stripe.is_none()) {
        let workload = job.workload(axes, bytes - job.base.region_offset, mode.is_direct());
        plan::resolve(&Workload { may_extend: true, ..workload }, &empty)?;
    }
    if needs_layout(job) {
        scratch.lay_out(lab, bytes, lab.seed_of_rank(job.base.seed), None)?;
    }
    Ok(scratch)
}
