//! Simulates how Linux makes written pages durable: fsync, O_DSYNC, journal commits, and flushes of
//! device caches.
//!
//! An fsync call or a write with O_DSYNC starts a job. The job writes the dirty pages of the file
//! or of the written range, and waits until these writes complete. If metadata that the job must
//! make durable have changed, the job then waits for a commit of the journal. Otherwise the job
//! flushes the devices. A commit writes the log, flushes the devices, writes the commit record, and
//! flushes the devices again.
//!
//! A job that must wait for metadata while a commit is in progress is in one of three cases:
//! - If the metadata have changed since the start of the commit, the job waits for the next commit.
//! - If the commit contains the changes and still writes the log, the job ends with the commit.
//! - If the commit contains the changes and has begun to flush, the job flushes the devices after
//!   the commit.
//!
//! The rules are those of ext4 in ordered mode (`ext4_sync_file` in `fs/ext4/fsync.c`,
//! `jbd2_journal_commit_transaction` in `fs/jbd2/commit.c`, `jbd2_trans_will_send_data_barrier` in
//! `fs/jbd2/journal.c`, and `Documentation/filesystems/ext4/journal.rst`). In this model, the
//! journal is in the middle of each volume.

use ioengine::Op;

use super::{Event, Io, Machine, Mechanism, Origin, PageEvent, Slab};
use crate::system::Allocated;

/// Size of the journal (bytes). For a file system of 16 GiB or more, mke2fs chooses at least this
/// size.
const JOURNAL_BYTES: u64 = 256 << 20;
/// Interval at which the model checks whether a disk's cache is empty (ns).
const LOOK_NS: u64 = 100_000;

/// Which metadata of a file have changed.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    /// Whether the timestamps of the file have changed.
    times: bool,
    /// Whether the size or the blocks of the file have changed. Reads need these metadata to find
    /// the data, so even fdatasync commits them.
    needed: bool,
}

impl Changes {
    /// Whether any metadata have changed.
    fn any(self) -> bool {
        self.times || self.needed
    }

    /// Whether a job must wait until the changes are committed.
    fn concern(self, job: &Job) -> bool {
        self.needed || self.times && !job.data_only
    }
}

/// Changes to the metadata of a file that are not yet durable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Metadata {
    /// Changes since the start of the last commit. The next commit contains them.
    changes: Changes,
    /// Changes that the commit in progress contains.
    committing: Changes,
    /// Clock tick in which the timestamps last changed. None if they never changed.
    tick: Option<u64>,
}

/// The write or the call that waits for a job.
#[derive(Clone, Copy, Debug)]
enum Waiter {
    /// A write, identified by its request number, that completes when its data are durable.
    Request(u32),
    /// An fsync or fdatasync call for the whole file.
    File,
}

/// A task that makes a range of a file, or the whole file, durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    file: u32,
    waiter: Waiter,
    /// Number of this job's data writes that have not completed.
    left: u32,
    data_only: bool,
    /// Whether the devices have received the flush command.
    flushing: bool,
}

/// Steps of a commit, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    Log,
    LogFlush,
    Record,
    RecordFlush,
}

/// The jobs and the journal of a host.
#[derive(Default)]
pub(crate) struct Durable {
    jobs: Slab<Job>,
    /// The step of the commit in progress, and the file whose volume contains the journal. None if
    /// no commit is in progress.
    commit: Option<(Commit, u32)>,
    /// Jobs that end with the commit in progress.
    batch: Vec<u32>,
    /// Jobs that flush the devices after the commit in progress. The commit had begun to flush
    /// before the data of these jobs were written.
    late: Vec<u32>,
    /// Jobs that wait for the next commit.
    next: Vec<u32>,
    /// Whether the devices have received the commit's flush command.
    flushing: bool,
    /// Journal offset of the next write (bytes).
    written: u64,
    /// Whether a periodic commit is scheduled.
    scheduled: bool,
    /// The jobs of fsync and fdatasync calls in progress.
    whole: Vec<u32>,
}

impl Machine {
    fn durable(&mut self, file: u32) -> &mut Durable {
        let host = self.files[file as usize].host;
        &mut self.page_caches[host as usize].durable
    }

    /// Records that a write has changed the metadata of a file: the timestamps (at most once per
    /// clock tick), and the size if the file grows.
    pub(super) fn metadata_changed(&mut self, file: u32) {
        let grows = self.system.setup.allocation == Allocated::Extend;
        let Some(linux) = self.system.host.cache.linux.as_ref() else { return };
        let (interval_ns, tick_ns) = (linux.commit_interval.ns(), linux.timestamp_tick.ns().max(1));
        let now_ns = self.now_ns();
        let Some((cache, cached)) = self.page_cache(file) else { return };
        let metadata = &mut cached.metadata;
        let tick = Some(now_ns / tick_ns);
        metadata.changes.times |= metadata.tick != tick;
        metadata.tick = tick;
        metadata.changes.needed |= grows;
        let due = metadata.changes.any() && interval_ns > 0;
        if due && !std::mem::replace(&mut cache.durable.scheduled, true) {
            let host = self.files[file as usize].host;
            let commit = Event::Page(PageEvent::Commit(host));
            self.events.schedule(now_ns + interval_ns, commit);
        }
    }

    /// Flushes `files` concurrently: writes their dirty data to the devices, and advances the
    /// virtual time until the writes have completed. In a system with the Linux page cache, this is
    /// an fsync of each file (fdatasync if `data_only` is true). In other systems, the lazy writer
    /// writes the data.
    pub fn flush(&mut self, files: &[u32], data_only: bool) {
        for file in files {
            if self.files[*file as usize].linux.is_some() {
                self.begin_sync(*file, data_only);
            } else {
                self.begin_flush(*file);
            }
        }
        for file in files {
            if self.files[*file as usize].linux.is_some() {
                while self.job_of(*file).is_some() && self.advance(u64::MAX) {}
            } else {
                while !self.is_flushed(*file) && self.advance(u64::MAX) {}
            }
        }
    }

    /// Returns the job of the fsync or fdatasync call that is in progress for a file. None if no
    /// call is in progress.
    fn job_of(&mut self, file: u32) -> Option<u32> {
        let durable = self.durable(file);
        durable.whole.iter().copied().find(|job| durable.jobs[*job].file == file)
    }

    fn begin_sync(&mut self, file: u32, data_only: bool) {
        let job = Job { file, waiter: Waiter::File, left: 0, data_only, flushing: false };
        let durable = self.durable(file);
        let job = durable.jobs.insert(job);
        durable.whole.push(job);
        if let Some((_, cached)) = self.page_cache(file) {
            cached.dirty.urgent = cached.dirty.dirty() > 0;
        }
        self.run_flusher(file);
        self.data_stored(file, Origin::PageWrite);
    }

    /// Makes the pages of a write durable before the write completes.
    pub(super) fn write_through(&mut self, io: u32, pages: (u64, u64)) {
        let file = self.ios[io].file;
        let job =
            Job { file, waiter: Waiter::Request(io), left: 0, data_only: true, flushing: false };
        let job = self.durable(file).jobs.insert(job);
        let left = self.write_range(file, pages, job);
        self.durable(file).jobs[job].left = left;
        if left == 0 {
            // No page of the write is dirty.
            self.keep_metadata(job, file);
        }
    }

    /// Continues the jobs that wait for data of a file. Called whenever some of these data have
    /// been written.
    pub(super) fn data_stored(&mut self, file: u32, origin: Origin) {
        if let Origin::JobWrite(job) = origin {
            let entry = &mut self.durable(file).jobs[job];
            entry.left -= 1;
            if entry.left == 0 {
                self.keep_metadata(job, file);
            }
        }
        let Some(job) = self.job_of(file) else { return };
        let entry = self.durable(file).jobs[job];
        let clean = |machine: &mut Machine| {
            machine.page_cache(file).is_some_and(|(_, cached)| cached.dirty.is_clean())
        };
        // Setting `left` to 1 makes this check fail from now on, so the job passes it only once.
        if entry.left == 0 && clean(self) {
            self.durable(file).jobs[job].left = 1;
            self.keep_metadata(job, file);
        }
    }

    /// Continues a job after its data have been written. If metadata that the job must make durable
    /// have changed, the job waits for the commit that contains the changes. Otherwise the job
    /// flushes the devices.
    fn keep_metadata(&mut self, job: u32, file: u32) {
        let entry = self.durable(file).jobs[job];
        let has_journal = self.has_journal();
        let Some((_, cached)) = self.page_cache(file) else { return };
        let Metadata { changes, committing, .. } = cached.metadata;
        let durable = self.durable(file);
        if has_journal && changes.concern(&entry) {
            durable.next.push(job);
            self.begin_commit(file);
        } else if committing.concern(&entry) {
            match durable.commit {
                Some((Commit::Log, _)) => durable.batch.push(job),
                _ => durable.late.push(job),
            }
        } else {
            self.flush_devices(self.numbered(job, file));
        }
    }

    fn has_journal(&self) -> bool {
        let linux = self.system.host.cache.linux.as_ref();
        linux.is_some_and(|linux| linux.commit_interval.0 > 0.0)
    }

    /// Ends a commit interval: starts a commit if metadata of any file of the host have changed.
    pub(super) fn periodic_commit(&mut self, host: u32) {
        self.page_caches[host as usize].durable.scheduled = false;
        let changed = |file: &super::File| {
            let cached = file.linux.as_ref();
            file.host == host && cached.is_some_and(|cached| cached.metadata.changes.any())
        };
        if let Some(file) = self.files.iter().position(changed) {
            self.begin_commit(file as u32);
        }
    }

    /// Starts a commit for all waiting jobs, unless a commit is in progress.
    fn begin_commit(&mut self, file: u32) {
        let host = self.files[file as usize].host;
        let durable = self.durable(file);
        if durable.commit.is_some() {
            return;
        }
        durable.batch = std::mem::take(&mut durable.next);
        durable.commit = Some((Commit::Log, file));
        self.for_metadata(host, |metadata| {
            metadata.committing = std::mem::take(&mut metadata.changes);
        });
        let bytes = self.system.host.cache.linux.as_ref().map_or(0, |l| l.journal_write.bytes());
        self.write_journal(file, bytes);
    }

    /// Applies `change` to the metadata of each file of a host.
    fn for_metadata(&mut self, host: u32, change: impl Fn(&mut Metadata)) {
        for file in self.files.iter_mut().filter(|file| file.host == host) {
            if let Some(cached) = &mut file.linux {
                change(&mut cached.metadata);
            }
        }
    }

    /// Writes `bytes` bytes at the next position of the journal.
    fn write_journal(&mut self, file: u32, bytes: u64) {
        let page_bytes = self.page_bytes();
        let volume = self.files[file as usize].volume.bytes();
        let journal = JOURNAL_BYTES.min(volume / 4).max(4 * page_bytes);
        let middle = volume / 2 / page_bytes;
        let pages = bytes.div_ceil(page_bytes).clamp(1, journal / 4 / page_bytes);
        let durable = self.durable(file);
        let at = durable.written;
        durable.written = (at + pages * page_bytes) % (journal - journal / 4);
        let from = middle + at / page_bytes;
        self.page_transfer(file, Op::Write, (from, from + pages), Origin::Journal);
    }

    /// Flushes the devices after a journal write has completed.
    pub(super) fn journal_written(&mut self, io: u32) {
        let Io { file, .. } = self.ios[io];
        self.ios.release(io);
        let durable = self.durable(file);
        if let Some((step, _)) = &mut durable.commit {
            *step = if *step == Commit::Log { Commit::LogFlush } else { Commit::RecordFlush };
        }
        self.flush_commit(self.files[file as usize].host);
    }

    /// Continues the commit of a host if the devices have flushed their caches.
    pub(super) fn flush_commit(&mut self, host: u32) {
        let Some((step, file)) = self.page_caches[host as usize].durable.commit else { return };
        let durable = &mut self.page_caches[host as usize].durable;
        let told = std::mem::replace(&mut durable.flushing, true);
        if !self.is_safe(file, told, Event::Page(PageEvent::CommitFlush(host))) {
            return;
        }
        self.page_caches[host as usize].durable.flushing = false;
        let page_bytes = self.page_bytes();
        if step == Commit::LogFlush {
            self.durable(file).commit = Some((Commit::Record, file));
            return self.write_journal(file, page_bytes);
        }
        self.for_metadata(host, |metadata| metadata.committing = Changes::default());
        let durable = self.durable(file);
        durable.commit = None;
        let batch = std::mem::take(&mut durable.batch);
        let late = std::mem::take(&mut durable.late);
        if !durable.next.is_empty() {
            self.begin_commit(file);
        }
        for job in batch {
            self.end_job(job, file);
        }
        for job in late {
            self.flush_devices(self.numbered(job, file));
        }
    }

    /// Returns a number that encodes a job and its host, for use in events.
    fn numbered(&self, job: u32, file: u32) -> u32 {
        let hosts = self.page_caches.len() as u32;
        job * hosts + self.files[file as usize].host
    }

    /// Ends a job if the devices have flushed their caches.
    pub(super) fn flush_devices(&mut self, numbered: u32) {
        let hosts = self.page_caches.len() as u32;
        let (job, host) = (numbered / hosts, numbered % hosts);
        let entry = &mut self.page_caches[host as usize].durable.jobs[job];
        let (file, told) = (entry.file, std::mem::replace(&mut entry.flushing, true));
        if self.is_safe(file, told, Event::Page(PageEvent::Flush(numbered))) {
            self.end_job(job, file);
        }
    }

    /// Checks whether the devices of a file have flushed their caches. If not, schedules the event
    /// `again` for the next check. `told` is true if an earlier call has already sent the flush
    /// command to the devices.
    fn is_safe(&mut self, file: u32, told: bool, again: Event) -> bool {
        if !self.system.setup.write_cache {
            return true;
        }
        let now_ns = self.now_ns();
        let linux = self.system.host.cache.linux.as_ref();
        let flush_ns = linux.map_or(0, |linux| linux.flush.ns());
        let first = self.files[file as usize].volume.home();
        let all = first..first + self.system.setup.volume_disks();
        let drained = |device: u32| match &self.devices[device as usize].mechanism {
            // Data that arrive after the flush command do not delay the flush.
            Mechanism::Flash(_) if told => now_ns,
            Mechanism::Flash(flash) => flash.drained_ns(now_ns),
            Mechanism::Disk(disk) if disk.holds_writes() => now_ns + LOOK_NS,
            Mechanism::Disk(_) => now_ns,
        };
        let empty_ns = all.map(drained).max().unwrap_or(now_ns);
        let at_ns = if told { empty_ns } else { empty_ns + flush_ns };
        if at_ns > now_ns {
            self.events.schedule(at_ns, again);
        }
        at_ns <= now_ns
    }

    fn end_job(&mut self, job: u32, file: u32) {
        let durable = self.durable(file);
        let waiter = durable.jobs[job].waiter;
        durable.jobs.release(job);
        match waiter {
            Waiter::Request(io) => self.completed(io),
            Waiter::File => durable.whole.retain(|other| *other != job),
        }
    }
}
