//! I/O engines issue requests, each with a different kernel interface or protocol.
//!
//! All engines implement the trait [`Engine`]. In a measurement, workers call only
//! [`Engine::submit_and_wait`], which submits a batch and waits for a minimum number of completions
//! or a deadline. [`EngineKind`] lists the engines, and each engine is one file in `engine/`. The
//! enum [`HostEngine`] contains any engine and adds one predictable branch to each call.

mod delay;
mod faulty;
mod files;
mod libaio;
mod mmap;
#[cfg(feature = "network")]
mod network;
mod null;
mod nvme;
mod option;
mod striped;
mod sync;
mod threads;
mod uring;

use std::fmt;
use std::str::FromStr;

pub use delay::{Delay, DelayDevice, burn_cpu};
pub use faulty::Faulty;
pub use files::Files;
pub use libaio::Libaio;
pub use mmap::Mmap;
#[cfg(feature = "network")]
pub use network::Network;
pub use null::Null;
pub use nvme::Nvme;
pub(crate) use nvme::character_device;
pub(crate) use option::POLL_REMEDY;
pub use option::{EngineOption, EngineOptions, OptionAvailability};
pub use striped::{Striped, pieces_bits};
pub use sync::Sync;
pub use threads::Threads;
pub(crate) use uring::probe_polled_read;
pub use uring::{Uring, UringFeatures};

use crate::buffer::BufferPages;
use crate::error::{Error, ErrorKind};
use crate::fault::FaultPlan;
use crate::mode::Hint;
use crate::request::{Completion, Request};

/// Issues requests and reaps completions. Each worker thread creates its own engine.
pub trait Engine {
    /// Whether requests transfer data. If false, workers do not touch the buffers, because their
    /// content has no effect.
    const MOVES_DATA: bool = true;

    /// Returns the number of slots. Each request in flight uses one slot.
    fn slots(&self) -> u32;

    /// Returns the memory of a slot that is not in flight.
    ///
    /// # Panics
    /// If the slot is in flight.
    fn buffer(&mut self, slot: u32) -> &mut [u8];

    /// Returns the number of requests that were submitted but not yet reaped.
    fn in_flight(&self) -> u32;

    /// Returns the kernel features and the memory that the engine uses. This method is called once,
    /// after the measurement.
    fn setup(&self) -> Setup {
        Setup::default()
    }

    /// Returns true if the engine itself returns an error when a request does not complete in time.
    /// Otherwise the caller has to detect such requests.
    fn gives_up(&self) -> bool {
        false
    }

    /// If the engine has connections to a server, makes all writes of this engine durable and
    /// returns true. Other engines do nothing and return false, and the caller must then call
    /// [`crate::Target::sync`]. No request may be in flight.
    ///
    /// # Errors
    /// If the flush failed. In this case, earlier writes may not be durable.
    fn flush(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Submits the whole `batch`, then waits until at least `at_least` completions are ready or the
    /// clock reaches `until_ns`. If fewer requests are in flight than `at_least`, waits for all of
    /// them. If `at_least` is 0, only polls. Appends all completions that are ready to `done`, in
    /// order of completion.
    ///
    /// Interrupted waits are resumed. A failed request is reported as a completion with an error
    /// number. The function returns an error only if the I/O engine itself cannot continue.
    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error>;
}

/// The kernel features and the memory that an engine uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Setup {
    /// The kernel features in use, for example "DEFER_TASKRUN, registered buffers". Empty if there
    /// are none.
    pub features: String,
    /// The total size of the buffers (bytes).
    pub buffer_bytes: u64,
    /// The size of the part of the buffers that is on huge pages (bytes).
    pub huge_bytes: u64,
}

/// The parameters of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSpec {
    /// The I/O engine that issues the requests.
    pub engine_kind: EngineKind,
    /// The queue depth: the maximum number of outstanding requests.
    pub depth: u32,
    /// The size of each buffer slot, which is also the maximum request size (bytes).
    pub slot_bytes: u32,
    /// The type of memory pages for the buffers.
    pub pages: BufferPages,
    /// The options of the engine.
    pub options: EngineOptions,
}

/// The kind of an I/O engine: how it issues requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum EngineKind {
    /// Does no I/O: every request completes immediately. Measures halfpower's own overhead.
    Null,
    /// Does no I/O: requests complete after the time that a simulated reference device needs.
    Delay,
    /// Issues one blocking pread or pwrite at a time.
    Sync,
    /// Copies the data of one request at a time between its buffer and a shared mapping of the
    /// file.
    Mmap,
    /// Uses a pool of threads to keep `depth` blocking requests in flight.
    Threads,
    /// Uses the kernel's aio (io_submit, io_getevents).
    Libaio,
    /// Uses io_uring, and registers the ring, the files and the buffers if the kernel allows this.
    IoUring,
    /// Sends commands to an NVMe namespace through io_uring, without the block layer.
    Nvme,
    /// Sends messages to a server, for network targets.
    Network,
}

/// Whether an I/O engine can be used on this host, and with which features.
#[derive(Clone, Debug)]
pub struct Availability {
    /// The I/O engine.
    pub engine_kind: EngineKind,
    /// Whether the I/O engine can be used on this host.
    pub available: bool,
    /// The kernel features that the I/O engine uses. If it is unavailable, the reason and a remedy.
    pub detail: String,
}

impl EngineKind {
    /// All I/O engines.
    pub const ALL: [EngineKind; 9] = [
        EngineKind::Null,
        EngineKind::Delay,
        EngineKind::Sync,
        EngineKind::Mmap,
        EngineKind::Threads,
        EngineKind::Libaio,
        EngineKind::IoUring,
        EngineKind::Nvme,
        EngineKind::Network,
    ];

    /// Returns the name of the I/O engine, for example `io_uring`.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Null => "null",
            EngineKind::Delay => "delay",
            EngineKind::Sync => "sync",
            EngineKind::Mmap => "mmap",
            EngineKind::Threads => "threads",
            EngineKind::Libaio => "libaio",
            EngineKind::IoUring => "io_uring",
            EngineKind::Nvme => "nvme",
            EngineKind::Network => "network",
        }
    }

    /// Describes the I/O engine in one line.
    pub fn summary(self) -> &'static str {
        match self {
            EngineKind::Null => "no I/O: measures the overhead of halfpower itself",
            EngineKind::Delay => {
                "no I/O: simulates the completion times of a reference device (`truth`)"
            }
            EngineKind::Sync => "one blocking pread or pwrite at a time (depth 1)",
            EngineKind::Mmap => "copies data from or to a mapping of the file (buffered, depth 1)",
            EngineKind::Threads => "one blocking thread for each outstanding request",
            EngineKind::Libaio => "the kernel's aio, asynchronous only with direct I/O",
            EngineKind::IoUring => "io_uring, batched, with registered ring, file and buffers",
            EngineKind::Nvme => "sends commands to an NVMe drive, bypassing the block layer",
            EngineKind::Network => {
                "sends messages to a server (nbd://...), bypassing the kernel's clients"
            }
        }
    }

    /// Returns true if the I/O engine accesses open files or block devices of this host.
    pub fn takes_files(self) -> bool {
        self.does_io() && !matches!(self, EngineKind::Nvme | EngineKind::Network)
    }

    /// Returns true if the I/O engine does I/O. False for `null` and `delay`.
    pub fn does_io(self) -> bool {
        !matches!(self, EngineKind::Null | EngineKind::Delay)
    }

    /// Checks whether this host supports the I/O engine.
    pub fn availability(self) -> Availability {
        let found = match self {
            EngineKind::Null
            | EngineKind::Delay
            | EngineKind::Sync
            | EngineKind::Mmap
            | EngineKind::Threads
            | EngineKind::Network => Ok(String::new()),
            EngineKind::Libaio => libaio::probe(),
            EngineKind::IoUring => uring::probe(),
            EngineKind::Nvme => nvme::probe(),
        };
        let available = found.is_ok();
        let detail = found.unwrap_or_else(|error| error.to_string());
        Availability { engine_kind: self, available, detail }
    }

    /// Returns the best asynchronous I/O engine of this host: io_uring if available, otherwise
    /// libaio for direct I/O, otherwise a pool of threads.
    pub fn best(direct: bool) -> EngineKind {
        if EngineKind::IoUring.availability().available {
            EngineKind::IoUring
        } else if direct && EngineKind::Libaio.availability().available {
            EngineKind::Libaio
        } else {
            EngineKind::Threads
        }
    }

    /// Returns an error with a remedy if this I/O engine cannot keep `depth` requests outstanding.
    pub fn check_depth(self, depth: u32, direct: bool) -> Result<(), Error> {
        let usage = |what: String| Err(Error::new(ErrorKind::Usage, what));
        let remedy = "use `engine` io_uring (or threads)";
        match self {
            EngineKind::Sync | EngineKind::Mmap if depth > 1 => {
                usage(format!("`depth` {depth}: `engine` {self} sends only one request at a time"))
                    .map_err(|e: Error| e.with_remedy(format!("{remedy}, or `depth` 1")))
            }
            EngineKind::Libaio if depth > 1 && !direct => usage(format!(
                "`engine` libaio is synchronous on buffered files, so `depth` {depth} \
                 would not be reached"
            ))
            .map_err(|e: Error| e.with_remedy(format!("{remedy}, or `direct`"))),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EngineKind {
    type Err = Error;

    /// Parses the name of an I/O engine. Also accepts fio's names, for example `psync` for `sync`.
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "null" => Ok(EngineKind::Null),
            "delay" => Ok(EngineKind::Delay),
            "sync" | "psync" | "pvsync" => Ok(EngineKind::Sync),
            "mmap" => Ok(EngineKind::Mmap),
            "threads" | "posixaio" => Ok(EngineKind::Threads),
            "libaio" => Ok(EngineKind::Libaio),
            "io_uring" | "io-uring" | "uring" => Ok(EngineKind::IoUring),
            "nvme" | "io_uring_cmd" => Ok(EngineKind::Nvme),
            "network" => Ok(EngineKind::Network),
            _ => Err(Error::new(ErrorKind::Usage, format!("unknown I/O engine '{text}'"))
                .with_remedy(
                    "one of auto, null, delay, sync, mmap, threads, libaio, io_uring, nvme, \
                     network",
                )),
        }
    }
}

/// Any I/O engine of this host, or a wrapper around an engine.
#[derive(Debug)]
pub enum HostEngine {
    /// The I/O engine [`Null`].
    Null(Null),
    /// The I/O engine [`Delay`].
    Delay(Delay),
    /// The wrapper [`Faulty`].
    Faulty(Box<Faulty<HostEngine>>),
    /// The wrapper [`Striped`].
    Striped(Box<Striped<HostEngine>>),
    /// The I/O engine [`Sync`].
    Sync(Sync),
    /// The I/O engine [`Mmap`].
    Mmap(Mmap),
    /// The I/O engine [`Threads`].
    Threads(Threads),
    /// The I/O engine [`Libaio`].
    Libaio(Libaio),
    /// The I/O engine [`Uring`].
    Uring(Box<Uring>),
    /// The I/O engine [`Nvme`].
    Nvme(Box<Nvme>),
    /// The I/O engine [`Network`].
    #[cfg(feature = "network")]
    Network(Box<Network>),
}

impl HostEngine {
    /// Creates the I/O engine of `spec` on open files. `hint` is the access hint that the kernel
    /// was given for these files. Must be called by the thread that will use the engine.
    ///
    /// # Errors
    /// If the engine does not work on files, or this host lacks a feature that the engine needs.
    pub fn on_files(
        files: impl Into<Files>,
        spec: &EngineSpec,
        hint: Hint,
    ) -> Result<HostEngine, Error> {
        let files = files.into();
        Ok(match spec.engine_kind {
            EngineKind::Null | EngineKind::Delay => {
                let what = format!("`engine` {} does not use files", spec.engine_kind);
                return Err(Error::new(ErrorKind::Usage, what).with_remedy("drop the target"));
            }
            EngineKind::Sync => HostEngine::Sync(Sync::new(files, spec)?),
            EngineKind::Mmap => HostEngine::Mmap(Mmap::new(files.only()?, spec, hint)?),
            EngineKind::Threads => HostEngine::Threads(Threads::new(files, spec)?),
            EngineKind::Libaio => HostEngine::Libaio(Libaio::new(files, spec)?),
            EngineKind::IoUring => HostEngine::Uring(Box::new(Uring::new(files, spec)?)),
            EngineKind::Nvme => {
                let what = "`engine` nvme accesses only whole NVMe namespaces";
                return Err(Error::new(ErrorKind::Usage, what).with_remedy("use `engine` io_uring"));
            }
            EngineKind::Network => {
                let what = "`engine` network accesses only network targets, not files";
                return Err(Error::new(ErrorKind::Usage, what).with_remedy("use another `engine`"));
            }
        })
    }

    /// Returns an engine that injects the faults of a plan into the requests of this engine. If the
    /// plan is empty, returns this engine.
    #[must_use]
    pub fn suffering(self, plan: &FaultPlan) -> HostEngine {
        if plan.rules.is_empty() {
            return self;
        }
        HostEngine::Faulty(Box::new(Faulty::following(self, plan)))
    }
}

macro_rules! each {
    ($self:ident, $engine:ident => $call:expr) => {
        match $self {
            HostEngine::Null($engine) => $call,
            HostEngine::Delay($engine) => $call,
            HostEngine::Faulty($engine) => $call,
            HostEngine::Striped($engine) => $call,
            HostEngine::Sync($engine) => $call,
            HostEngine::Mmap($engine) => $call,
            HostEngine::Threads($engine) => $call,
            HostEngine::Libaio($engine) => $call,
            HostEngine::Uring($engine) => $call,
            HostEngine::Nvme($engine) => $call,
            #[cfg(feature = "network")]
            HostEngine::Network($engine) => $call,
        }
    };
}

impl Engine for HostEngine {
    fn slots(&self) -> u32 {
        each!(self, engine => engine.slots())
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        each!(self, engine => engine.buffer(slot))
    }

    fn setup(&self) -> Setup {
        each!(self, engine => engine.setup())
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        each!(self, engine => engine.in_flight())
    }

    fn gives_up(&self) -> bool {
        each!(self, engine => engine.gives_up())
    }

    fn flush(&mut self) -> Result<bool, Error> {
        each!(self, engine => engine.flush())
    }

    #[inline]
    fn submit_and_wait(
        &mut self,
        batch: &[Request],
        at_least: u32,
        until_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        each!(self, engine => engine.submit_and_wait(batch, at_least, until_ns, done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_send_and_sync() {
        fn is_send_and_sync<T: Send + std::marker::Sync>() {}
        is_send_and_sync::<HostEngine>();
    }

    #[test]
    fn names_round_trip_and_fio_names_are_understood() {
        for engine_kind in EngineKind::ALL {
            assert_eq!(engine_kind.name().parse::<EngineKind>().unwrap(), engine_kind);
        }
        assert_eq!("psync".parse::<EngineKind>().unwrap(), EngineKind::Sync);
        assert!("spdk".parse::<EngineKind>().unwrap_err().to_string().contains("io_uring"));
    }

    #[test]
    fn depth_on_a_synchronous_engine_is_an_error_with_a_remedy() {
        let error = EngineKind::Sync.check_depth(8, true).unwrap_err().to_string();
        assert!(error.contains("`depth` 8") && error.contains("io_uring"), "{error}");
        assert!(EngineKind::Libaio.check_depth(8, false).is_err());
        assert!(EngineKind::Libaio.check_depth(8, true).is_ok());
    }
}
