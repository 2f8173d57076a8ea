//! Loads the BPF programs into the kernel and reads their records. Recording ends when the recorder
//! is dropped or when its process is killed.

use std::fs;
use std::path::Path;

use crate::btf::Btf;
use crate::calls;
use crate::declined::Declined;
use crate::layout::Layout;
use crate::programs::{self, Context, Lost, Maps};
use crate::record::Record;
use crate::sys::{self, Attached, Ring};

/// File with the type information of the kernel.
const TYPES_PATH: &str = "/sys/kernel/btf/vmlinux";

/// Target of the link `/proc/self/ns/pid` in the initial PID namespace (`PROC_PID_INIT_INO`). The
/// BPF programs see the process ids of this namespace.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// What to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderSpec {
    /// Size of the ring buffer (bytes). It must be a power of two and at least the page size.
    pub buffer_bytes: u32,
    /// Whether the system calls, io_uring requests and page faults of watched processes are
    /// recorded.
    pub calls: bool,
    /// Whether requests of the block layer are recorded. They are recorded for all processes.
    pub devices: bool,
}

impl Default for RecorderSpec {
    fn default() -> RecorderSpec {
        RecorderSpec { buffer_bytes: 64 << 20, calls: true, devices: true }
    }
}

/// A position in the stream of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedEnd(u64);

/// A recording in progress. Dropping this value ends the recording.
#[derive(Debug)]
pub struct Recorder {
    ring: Ring,
    maps: Maps,
    _attached: Vec<Attached>,
    missing: Vec<&'static str>,
    unread: u64,
    /// Number of lost events for each cause before [`Recorder::start_over`]. These events are no
    /// longer reported.
    forgotten: [u64; Lost::ALL.len()],
}

impl Recorder {
    /// Starts recording. No process is watched yet.
    ///
    /// # Errors
    /// If permissions are missing, or the kernel lacks a required feature. The error contains the
    /// remedy.
    pub fn start(spec: &RecorderSpec) -> Result<Recorder, Declined> {
        check_namespace(spec)?;
        sys::allow_locked_memory();
        let layout = layout(Path::new(TYPES_PATH))?;
        let maps = Maps::new(&calls::all()).map_err(|e| Declined::bpf("creating BPF maps", &e))?;
        let ring = Ring::new(spec.buffer_bytes)
            .map_err(|e| Declined::bpf("creating the ring buffer", &e))?;
        let context = Context { layout: &layout, maps: &maps, ring: ring.descriptor() };
        let mut wanted = Vec::new();
        if spec.calls {
            wanted.extend(programs::of_processes(&context));
        }
        if spec.devices {
            wanted.extend(programs::of_devices(&context));
        }
        let attached = wanted
            .iter()
            .map(|program| sys::attach(&program.instructions, program.tracepoint))
            .collect::<Result<_, _>>()
            .map_err(|e| Declined::bpf("starting to record", &e))?;
        let missing = missing(&layout, spec);
        Ok(Recorder {
            ring,
            maps,
            _attached: attached,
            missing,
            unread: 0,
            forgotten: [0; Lost::ALL.len()],
        })
    }

    /// Watches a process, all its threads, and the processes that it creates from now on.
    ///
    /// # Errors
    /// If too many processes are watched.
    pub fn watch(&self, process: u32) -> Result<(), Declined> {
        self.set(process, programs::WATCHED)
    }

    /// Watches all processes except the calling process. Processes that a watched process creates
    /// later are watched too. Returns the ids of the processes that are watched now.
    ///
    /// # Errors
    /// If too many processes are watched, or if processes cannot be listed.
    pub fn watch_all(&self) -> Result<Vec<u32>, Declined> {
        let mut all = Vec::new();
        // A process that is not watched yet may create another process after the list was read. A
        // second pass finds such processes.
        for _ in 0..2 {
            let folder = fs::read_dir("/proc").map_err(|e| {
                let remedy = "mount a proc file system at /proc";
                Declined::new(format!("listing processes: {e}"), remedy)
            })?;
            let names = folder.flatten().map(|entry| entry.file_name());
            let ids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
            for process in ids.filter(|process| *process != std::process::id()) {
                if !all.contains(&process) {
                    self.watch(process)?;
                    all.push(process);
                }
            }
        }
        Ok(all)
    }

    /// Watches the processes that a process creates from now on, but not the process itself. A
    /// command that this process starts is thus watched from its first instruction.
    ///
    /// # Errors
    /// If too many processes are watched.
    pub fn watch_children(&self, process: u32) -> Result<(), Declined> {
        self.set(process, programs::CHILDREN_WATCHED)
    }

    /// Stops watching a process. Its children stay watched.
    ///
    /// # Errors
    /// If the kernel refuses the change.
    pub fn ignore(&self, process: u32) -> Result<(), Declined> {
        self.set(process, programs::NOT_WATCHED)
    }

    fn set(&self, process: u32, value: u64) -> Result<(), Declined> {
        self.maps.watched.set(process, value).map_err(|e| Declined::bpf("watching a process", &e))
    }

    /// Reads up to `most` available records and calls `visit` with each. Returns the number of
    /// records.
    pub fn read(&mut self, most: usize, mut visit: impl FnMut(&Record<'_>)) -> usize {
        let unread = &mut self.unread;
        self.ring.read(most, |data| match Record::read(data) {
            Some(record) => visit(&record),
            None => *unread += 1,
        })
    }

    /// Returns the current end of the stream of records.
    pub fn end_so_far(&self) -> RecordedEnd {
        RecordedEnd(self.ring.written())
    }

    /// Checks whether all records up to `end` were read. Do not wait for an empty buffer instead,
    /// because other programs may add records all the time.
    pub fn has_read(&self, end: RecordedEnd) -> bool {
        self.ring.position() >= end.0
    }

    /// Discards the unread records and resets the numbers of lost events.
    pub fn start_over(&mut self) {
        self.ring.read(usize::MAX, |_| {});
        self.forgotten = Lost::ALL.map(|lost| self.maps.lost.get(lost as u32).unwrap_or(0));
        self.unread = 0;
    }

    /// Returns the number of lost events for each cause.
    pub fn lost(&self) -> Vec<(&'static str, u64)> {
        let of = |lost: Lost| {
            let count = self.maps.lost.get(lost as u32).unwrap_or(0);
            (lost.cause(), count.saturating_sub(self.forgotten[lost as usize]))
        };
        let mut all: Vec<_> = Lost::ALL.into_iter().map(of).collect();
        all.push(("records that could not be read", self.unread));
        all.retain(|(_, count)| *count > 0);
        all
    }

    /// Returns what this kernel cannot record.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }
}

fn missing(layout: &Layout, spec: &RecorderSpec) -> Vec<&'static str> {
    let parts = [
        (spec.calls && layout.uring.is_none(), "requests of io_uring (Linux 5.19 or later)"),
        (spec.calls && layout.fault.is_none(), "page faults in mapped files (Linux 6.12 or later)"),
        (spec.calls && layout.bio.is_none(), "which calls reach the device"),
        (spec.devices && layout.block.is_none(), "requests of the block layer"),
    ];
    parts.into_iter().filter(|(is_missing, _)| *is_missing).map(|(_, what)| what).collect()
}

/// Refuses to record calls in a container with a separate PID namespace. The process ids in the
/// container differ from the ids that the BPF programs see.
fn check_namespace(spec: &RecorderSpec) -> Result<(), Declined> {
    let namespace = fs::read_link("/proc/self/ns/pid");
    match namespace {
        Ok(namespace) if spec.calls && namespace != Path::new(FIRST_NAMESPACE) => {
            Err(Declined::of_rights(
                "halfpower is running in a container with separate process ids",
                "run halfpower on the host, where the processes of the container can be watched",
            ))
        }
        _ => Ok(()),
    }
}

fn layout(path: &Path) -> Result<Layout, Declined> {
    let remedy = "recording needs a kernel with type information (CONFIG_DEBUG_INFO_BTF)";
    let data = fs::read(path)
        .map_err(|error| Declined::new(format!("reading {}: {error}", path.display()), remedy))?;
    let unknown = || Declined::new(format!("{} has an unknown format", path.display()), remedy);
    let btf = Btf::parse(&data).ok_or_else(unknown)?;
    Layout::of(&btf).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_type_information_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vmlinux");
        assert!(layout(&path).unwrap_err().to_string().contains("CONFIG_DEBUG_INFO_BTF"));
        fs::write(&path, b"ELF").unwrap();
        assert!(layout(&path).unwrap_err().to_string().contains("unknown format"));
    }
}
