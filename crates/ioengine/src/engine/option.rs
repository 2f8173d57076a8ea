//! Options of I/O engines: submission by a kernel thread, polled completions, uncached buffered
//! I/O, writes that are durable when they complete, and appends to zones.

use std::path::Path;

use crate::engine::{EngineKind, EngineSpec, nvme, uring};
use crate::error::{Error, ErrorKind};
use crate::mode::Caching;
use crate::sys;

/// The requested options of an I/O engine. By default, no option is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineOptions {
    /// Whether [`EngineOption::SqPoll`] is requested.
    pub sq_poll: bool,
    /// Whether [`EngineOption::IoPoll`] is requested.
    pub io_poll: bool,
    /// Whether [`EngineOption::Uncached`] is requested.
    pub uncached: bool,
    /// Whether [`EngineOption::Fua`] is requested.
    pub fua: bool,
    /// Whether [`EngineOption::ZoneAppend`] is requested.
    pub zone_append: bool,
    /// Whether the engine may move between threads. If false, only the thread that created the
    /// engine may use it, which saves the kernel some work per io_uring request.
    pub any_thread: bool,
}

/// An option of an I/O engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineOption {
    /// With io_uring, a kernel thread polls the submission queue (IORING_SETUP_SQPOLL).
    SqPoll,
    /// With io_uring, the kernel polls the device for completions (IORING_SETUP_IOPOLL).
    IoPoll,
    /// Buffered requests do not leave their data in the page cache (RWF_DONTCACHE).
    Uncached,
    /// Each write is durable before it completes (RWF_DSYNC). On a device with a volatile cache,
    /// the kernel uses Forced Unit Access if the device supports it, otherwise a cache flush.
    Fua,
    /// With the engine `nvme`, each write is appended to the zone that contains its offset (Zone
    /// Append, NVMe Zoned Namespace Command Set). The drive chooses the block, so several writes to
    /// a zone can be in flight.
    ZoneAppend,
}

/// Whether an option is available on this host.
#[derive(Clone, Debug)]
pub struct OptionAvailability {
    /// The option.
    pub option: EngineOption,
    /// Whether the kernel offers the option. A target may still not support it.
    pub available: bool,
    /// Details about the option. If it is unavailable, the reason and a remedy.
    pub detail: String,
}

impl EngineOption {
    /// All options.
    pub const ALL: [EngineOption; 5] = [
        EngineOption::SqPoll,
        EngineOption::IoPoll,
        EngineOption::Uncached,
        EngineOption::Fua,
        EngineOption::ZoneAppend,
    ];

    /// Returns the name of the option. It is the same as in fio if fio has the option.
    pub fn name(self) -> &'static str {
        match self {
            EngineOption::SqPoll => "sqthread_poll",
            EngineOption::IoPoll => "hipri",
            EngineOption::Uncached => "uncached",
            EngineOption::Fua => "fua",
            EngineOption::ZoneAppend => "zone_append",
        }
    }

    fn quoted(self) -> String {
        format!("`{}`", self.name())
    }

    /// Describes the option in one line.
    pub fn summary(self) -> &'static str {
        match self {
            EngineOption::SqPoll => "a kernel thread polls io_uring's submission queue (SQPOLL)",
            EngineOption::IoPoll => "io_uring polls the device for completions (IOPOLL)",
            EngineOption::Uncached => {
                "buffered requests leave nothing in the page cache (RWF_DONTCACHE)"
            }
            EngineOption::Fua => "each write is durable before it completes (RWF_DSYNC)",
            EngineOption::ZoneAppend => {
                "each write is appended to a zone, at a block that the drive chooses (nvme)"
            }
        }
    }

    /// Checks whether this host supports the option.
    pub fn availability(self) -> OptionAvailability {
        let found = match self {
            EngineOption::SqPoll => {
                uring::probe_with(EngineOptions { sq_poll: true, ..EngineOptions::default() })
            }
            EngineOption::IoPoll => {
                uring::probe_with(EngineOptions { io_poll: true, ..EngineOptions::default() })
                    .map(|_| polled_devices(Path::new("/sys/block")))
            }
            EngineOption::Uncached => uncached_here(),
            EngineOption::Fua => Ok(String::new()),
            EngineOption::ZoneAppend => nvme::probe_appends(),
        };
        let available = found.is_ok();
        let detail = found.unwrap_or_else(|error| error.to_string());
        OptionAvailability { option: self, available, detail }
    }
}

/// Returns a text that lists the block devices with poll queues. If there are none, the text
/// explains how to enable poll queues.
fn polled_devices(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let polled = entries.filter(|entry| {
        let text = std::fs::read_to_string(entry.path().join("queue/io_poll"));
        text.is_ok_and(|text| text.trim() == "1")
    });
    let mut names: Vec<String> =
        polled.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if names.is_empty() {
        format!("no device of this host has poll queues; {POLL_REMEDY}")
    } else {
        format!("devices with poll queues: {}", names.join(", "))
    }
}

/// The remedy for a device without poll queues.
pub(crate) const POLL_REMEDY: &str = concat!(
    "load the device's driver with poll queues (nvme.poll_queues=2, virtio_blk.poll_queues=2 or ",
    "virtio_scsi.virtscsi_poll_queues=2)"
);

/// Checks whether the file system of the running executable supports uncached reads. The test reads
/// past the end of the executable, so it transfers no data.
fn uncached_here() -> Result<String, Error> {
    let itself = "/proc/self/exe";
    let file = std::fs::File::open(itself);
    let file = file.map_err(|e| Error::io(format!("opening {itself}"), e))?;
    match sys::reads_uncached(&file) {
        Ok(()) => {
            Ok("works on some file systems, including the file system of this executable"
                .to_owned())
        }
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let what = "the file system of this executable does not support RWF_DONTCACHE";
            Err(Error::new(ErrorKind::Unsupported, what)
                .with_remedy("with Linux 6.14 or later, other file systems may support it"))
        }
        Err(error) => Err(Error::io("testing an uncached read", error)),
    }
}

impl EngineOptions {
    /// Returns the requested options.
    pub fn chosen(self) -> impl Iterator<Item = EngineOption> {
        EngineOption::ALL.into_iter().filter(move |option| self.has(*option))
    }

    /// Returns true if the option is requested.
    pub fn has(self, option: EngineOption) -> bool {
        match option {
            EngineOption::SqPoll => self.sq_poll,
            EngineOption::IoPoll => self.io_poll,
            EngineOption::Uncached => self.uncached,
            EngineOption::Fua => self.fua,
            EngineOption::ZoneAppend => self.zone_append,
        }
    }

    /// Returns the flags for every read (preadv2(2)).
    #[inline]
    pub fn read_flags(self) -> i32 {
        if self.uncached { libc::RWF_DONTCACHE } else { 0 }
    }

    /// Returns the flags for every write (pwritev2(2)).
    #[inline]
    pub fn write_flags(self) -> i32 {
        self.read_flags() | if self.fua { libc::RWF_DSYNC } else { 0 }
    }

    /// Returns the names of the request flags, for [`crate::engine::Setup::features`].
    pub(crate) fn request_features(self) -> String {
        let names = [(self.uncached, "RWF_DONTCACHE"), (self.fua, "RWF_DSYNC on writes")];
        let names: Vec<&str> = names.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        names.join(", ")
    }

    /// Checks that the I/O engine supports all requested options, and that each option has an
    /// effect in this caching mode. For example, `uncached` has no effect with direct I/O.
    ///
    /// # Errors
    /// `ErrorKind::Usage` with a remedy.
    pub fn check(self, engine_kind: EngineKind, caching: Caching) -> Result<(), Error> {
        self.chosen().try_for_each(|option| check_one(option, engine_kind, caching))
    }
}

fn check_one(option: EngineOption, engine_kind: EngineKind, caching: Caching) -> Result<(), Error> {
    let flag = option.quoted();
    let refuse = |why: String, remedy: String| {
        Err(Error::new(ErrorKind::Usage, format!("{flag} {why}")).with_remedy(remedy))
    };
    let of_ring = matches!(option, EngineOption::SqPoll | EngineOption::IoPoll);
    let is_polled_nvme = engine_kind == EngineKind::Nvme && option == EngineOption::IoPoll;
    if of_ring && engine_kind != EngineKind::IoUring && !is_polled_nvme {
        let why = format!("is for io_uring, not {engine_kind}");
        return refuse(why, format!("use `engine` io_uring, or drop {flag}"));
    }
    if !engine_kind.does_io() || engine_kind == EngineKind::Mmap {
        let why = format!("needs read and write calls, which `engine` {engine_kind} does not make");
        return refuse(why, format!("use another `engine`, or drop {flag}"));
    }
    if option == EngineOption::ZoneAppend && engine_kind != EngineKind::Nvme {
        let why = format!("needs the NVMe command Zone Append, which {engine_kind} does not send");
        return refuse(why, format!("use `engine` nvme, or drop {flag}"));
    }
    if option == EngineOption::Uncached && engine_kind == EngineKind::Network {
        let why = "needs a file, because network targets do not use the page cache".to_owned();
        return refuse(why, format!("drop {flag}"));
    }
    match (option, caching) {
        (EngineOption::IoPoll, mode) if !mode.is_direct() => refuse(
            format!(
                "needs direct I/O, because {mode} requests use the page cache, which cannot be \
                 polled"
            ),
            "use `direct`".to_owned(),
        ),
        (EngineOption::Uncached, mode) if mode.is_direct() => refuse(
            "has an effect only on requests that use the page cache".to_owned(),
            format!("use `direct=false`, or drop {flag}"),
        ),
        (EngineOption::Fua, mode) if mode.is_write_through() => refuse(
            "and `write_through` both make each write durable".to_owned(),
            "drop one of them".to_owned(),
        ),
        _ => Ok(()),
    }
}

impl EngineSpec {
    /// Checks that the engine, depth and options can be combined with each other and with this
    /// caching mode.
    ///
    /// # Errors
    /// `ErrorKind::Usage` with a remedy.
    pub fn check(&self, caching: Caching) -> Result<(), Error> {
        let EngineSpec { engine_kind, depth, options, .. } = *self;
        engine_kind.check_depth(depth, caching.is_direct())?;
        if engine_kind == EngineKind::Mmap {
            check_mapping(caching)?;
        }
        if engine_kind == EngineKind::Nvme && !caching.is_direct() {
            let what = "`engine` nvme bypasses the page cache, so it needs direct I/O";
            return Err(Error::new(ErrorKind::Usage, what).with_remedy("use `direct`"));
        }
        if options.sq_poll && depth > uring::SQ_POLL_DEPTH_MAX {
            let what = format!("`depth` {depth} is too large for `sqthread_poll`");
            let remedy = format!("use a `depth` of at most {}", uring::SQ_POLL_DEPTH_MAX);
            return Err(Error::new(ErrorKind::Usage, what).with_remedy(remedy));
        }
        options.check(engine_kind, caching)
    }
}

fn check_mapping(caching: Caching) -> Result<(), Error> {
    let usage =
        |what: &str, remedy: &str| Err(Error::new(ErrorKind::Usage, what).with_remedy(remedy));
    if caching.is_direct() {
        return usage("`engine` mmap always uses the page cache", "use `direct=false`");
    }
    if caching.is_write_through() {
        return usage(
            "`engine` mmap writes to memory, and `write_through` does not make such writes durable",
            "use `fsync` 1, or another `engine`",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(option: EngineOption) -> EngineOptions {
        EngineOptions {
            sq_poll: option == EngineOption::SqPoll,
            io_poll: option == EngineOption::IoPoll,
            uncached: option == EngineOption::Uncached,
            fua: option == EngineOption::Fua,
            zone_append: option == EngineOption::ZoneAppend,
            any_thread: false,
        }
    }

    #[test]
    fn an_option_without_effect_is_refused_with_a_remedy() {
        let refused = |option, engine_kind, caching| {
            let error = asked(option).check(engine_kind, caching).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            error.to_string()
        };
        use Caching::{Buffered, Direct, DirectWriteThrough};
        for option in EngineOption::ALL {
            for engine_kind in [EngineKind::Null, EngineKind::Delay, EngineKind::Mmap] {
                let text = refused(option, engine_kind, Buffered);
                assert!(text.contains(&option.quoted()), "{text}");
            }
        }
        let text = refused(EngineOption::SqPoll, EngineKind::Sync, Direct);
        assert!(text.contains("; use `engine` io_uring"), "{text}");
        let text = refused(EngineOption::IoPoll, EngineKind::IoUring, Buffered);
        assert!(text.contains("; use `direct`"), "{text}");
        let text = refused(EngineOption::Uncached, EngineKind::Sync, Direct);
        assert!(text.contains("; use `direct=false`"), "{text}");
        let text = refused(EngineOption::ZoneAppend, EngineKind::IoUring, Direct);
        assert!(text.contains("; use `engine` nvme"), "{text}");
        let text = refused(EngineOption::Fua, EngineKind::Libaio, DirectWriteThrough);
        assert!(text.contains("; drop one"), "{text}");
    }

    #[test]
    fn each_option_is_accepted_where_it_has_an_effect() {
        for (option, engine_kind, caching) in [
            (EngineOption::SqPoll, EngineKind::IoUring, Caching::Buffered),
            (EngineOption::IoPoll, EngineKind::IoUring, Caching::Direct),
            (EngineOption::Uncached, EngineKind::Threads, Caching::WriteThrough),
            (EngineOption::Fua, EngineKind::Libaio, Caching::Direct),
            (EngineOption::ZoneAppend, EngineKind::Nvme, Caching::Direct),
        ] {
            asked(option).check(engine_kind, caching).unwrap();
            assert_eq!(asked(option).chosen().collect::<Vec<_>>(), [option]);
        }
        assert_eq!(EngineOptions::default().chosen().count(), 0);
    }

    #[test]
    fn only_writes_are_made_durable() {
        let options = EngineOptions { uncached: true, fua: true, ..EngineOptions::default() };
        assert_eq!(options.read_flags(), libc::RWF_DONTCACHE);
        assert_eq!(options.write_flags(), libc::RWF_DONTCACHE | libc::RWF_DSYNC);
        assert_eq!(EngineOptions::default().write_flags(), 0);
    }

    #[test]
    fn devices_with_poll_queues_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in [("nvme1n1", "1\n"), ("vda", "0\n"), ("nvme0n1", "1\n")] {
            let queue = folder.path().join(name).join("queue");
            std::fs::create_dir_all(&queue).unwrap();
            std::fs::write(queue.join("io_poll"), value).unwrap();
        }
        assert_eq!(polled_devices(folder.path()), "devices with poll queues: nvme0n1, nvme1n1");
        assert!(polled_devices(Path::new("/nowhere")).contains("poll_queues=2"));
    }
}
