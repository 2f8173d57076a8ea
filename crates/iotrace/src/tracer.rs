//! Records a trace. While the trace runs, a separate thread copies the pages of the kernel's ring
//! buffers to memory before the buffers overrun. The pages are decoded after the end of the trace.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::declined::Declined;
use crate::event::{Decoders, Event, TRACEPOINTS, Tracepoint, kernel_dev};
use crate::format::{Format, PageLayout};
use crate::page;
use crate::tracefs::Instance;

/// Interval at which the reader thread empties the kernel's buffers.
const POLL_INTERVAL: Duration = Duration::from_millis(30);
/// Default total size of the kernel's buffers of all CPUs (bytes).
const BUFFERS_BYTES: u64 = 256 << 20;
/// Minimum and maximum of the default buffer size of one CPU (bytes).
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 20;
/// Default of [`TraceSpec::kept_bytes`] (bytes).
const KEPT_BYTES: u64 = 2 << 30;

/// The parameters of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpec {
    /// Device number (major, minor) of the whole disk. For a request to a partition, the kernel
    /// reports the device number of the whole disk.
    pub disk: (u32, u32),
    /// Whether the load uses io_uring.
    pub uring: bool,
    /// Name of the load's threads. Wake-ups of these threads are traced. `*` is a wildcard, for
    /// example in `worker-*`. None if wake-ups are not traced. The phases completion and wake-up
    /// can then be separated only for a load that uses io_uring.
    pub threads: Option<String>,
    /// Size of the kernel's buffer for each CPU (bytes). None for the default: 256 MiB divided by
    /// the number of CPUs, but at least 1 MiB and at most 16 MiB.
    pub buffer_bytes: Option<u64>,
    /// Maximum amount of trace data in memory (bytes). Events that exceed this limit are dropped,
    /// and counted in [`Lost`].
    pub kept_bytes: u64,
}

impl TraceSpec {
    /// Returns the parameters of a trace with default buffer sizes.
    pub fn new(disk: (u32, u32), uring: bool, threads: Option<&str>) -> TraceSpec {
        let threads = threads.map(str::to_owned);
        TraceSpec { disk, uring, threads, buffer_bytes: None, kept_bytes: KEPT_BYTES }
    }

    fn wants(&self, tracepoint: &Tracepoint) -> bool {
        match tracepoint.group {
            "io_uring" => self.uring,
            "sched" => self.threads.is_some(),
            _ => true,
        }
    }

    /// Returns the filter that the kernel applies to events of a tracepoint, or None if all events
    /// are recorded.
    fn filter(&self, tracepoint: &Tracepoint) -> Option<String> {
        match tracepoint.group {
            "block" => Some(format!("dev == {}", kernel_dev(self.disk))),
            "sched" => self.threads.as_ref().map(|name| format!("comm ~ \"{name}\"")),
            _ => None,
        }
    }

    fn check(&self) -> Result<(), Declined> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/*".contains(c);
        match &self.threads {
            Some(name) if name.is_empty() || !name.chars().all(plain) => {
                let what = format!("`{name}` is not a valid thread name");
                Err(Declined::new(what, "use letters, digits, - _ . : / and the wildcard *"))
            }
            _ => Ok(()),
        }
    }
}

/// Numbers of events that occurred but are not in the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Number of events that were overwritten before they were read.
    pub overwritten: u64,
    /// Number of events that were not recorded or not read because a buffer was full.
    pub dropped: u64,
    /// Number of pages with unreadable records.
    pub damaged_pages: u64,
}

impl Lost {
    /// Returns the number of lost events. A damaged page counts as one event.
    pub fn total(&self) -> u64 {
        self.overwritten + self.dropped + self.damaged_pages
    }
}

/// A complete trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The events, in order of time.
    pub events: Vec<Event>,
    /// Numbers of events that were lost.
    pub lost: Lost,
    /// Whether io_uring was traced.
    pub uring: bool,
    /// Size of the trace data (bytes).
    pub bytes: u64,
}

/// A trace in progress. Dropping the value ends the trace and removes its tracefs instance.
#[derive(Debug)]
pub struct Tracer {
    // The order of the fields matters, because the reader's files must be closed before the
    // instance can be removed.
    reader: Reader,
    instance: Instance,
    decoders: Decoders,
    layout: PageLayout,
    uring: bool,
}

impl Tracer {
    /// Starts a trace.
    ///
    /// # Errors
    /// If the process is not root, or if tracefs or a required tracepoint is missing. The error
    /// contains the remedy.
    pub fn start(spec: &TraceSpec) -> Result<Tracer, Declined> {
        spec.check()?;
        let instance = Instance::new()?;
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", "mono")?;
        let layout = PageLayout::parse(&instance.text("events/header_page")?).ok_or_else(|| {
            Declined::new("this kernel's trace pages have an unknown format", "run without tracing")
        })?;
        let cpus = instance.cpus()?;
        let buffer_bytes = spec.buffer_bytes.unwrap_or_else(|| {
            let fair = BUFFERS_BYTES / cpus.len().max(1) as u64;
            fair.clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end())
        });
        instance.write("buffer_size_kb", &(buffer_bytes >> 10).max(1).to_string())?;
        let decoders = enable_tracepoints(&instance, spec)?;
        let pages =
            cpus.iter().map(|cpu| CpuPages::open(&instance, *cpu)).collect::<Result<_, _>>();
        instance.write("tracing_on", "1")?;
        let reader = Reader::start(pages?, layout, spec.kept_bytes)?;
        Ok(Tracer { reader, instance, decoders, layout, uring: spec.uring })
    }

    /// Ends the trace and decodes its events.
    ///
    /// # Errors
    /// If the kernel's pages or counters cannot be read.
    pub fn stop(mut self) -> Result<Trace, Declined> {
        self.instance.write("tracing_on", "0")?;
        let cpus = self.reader.end()?;
        let mut trace = Trace { uring: self.uring, ..Trace::default() };
        for cpu in &cpus {
            let stats = self.instance.text(&format!("per_cpu/cpu{}/stats", cpu.cpu))?;
            count_lost(&stats, &mut trace.lost);
            trace.bytes += cpu.bytes.len() as u64;
            cpu.read_events(&self.layout, &self.decoders, &mut trace);
        }
        // The events of each CPU are already sorted. A stable sort is fast if the data consist of a
        // few sorted parts.
        trace.events.sort_by_key(|event| event.at_ns);
        Ok(trace)
    }
}

/// Enables the tracepoints that a trace needs, and reads their formats.
fn enable_tracepoints(instance: &Instance, spec: &TraceSpec) -> Result<Decoders, Declined> {
    let mut decoders = Decoders::default();
    for tracepoint in TRACEPOINTS.iter().filter(|tracepoint| spec.wants(tracepoint)) {
        let folder = |name: &&str| format!("events/{}/{name}", tracepoint.group);
        let folders = tracepoint.names.iter().map(folder);
        let found = folders.clone().find(|f| instance.path(&format!("{f}/format")).exists());
        let known = match &found {
            Some(f) => {
                decoders.learn(tracepoint, &Format::parse(&instance.text(&format!("{f}/format"))?))
            }
            None => false,
        };
        match found.filter(|_| known) {
            Some(f) => {
                if let Some(filter) = spec.filter(tracepoint) {
                    instance.write(&format!("{f}/filter"), &filter)?;
                }
                instance.write(&format!("{f}/enable"), "1")?;
            }
            None if tracepoint.needed => {
                let names = folders.collect::<Vec<_>>().join(" or ");
                let what = format!("the tracepoint {names} is missing or has an unknown format");
                return Err(Declined::new(what, "run without tracing, or on Linux 5.10 or later"));
            }
            None => {}
        }
    }
    Ok(decoders)
}

/// Adds the counters of lost events in `stats` (the content of `per_cpu/cpuN/stats`) to `lost`.
fn count_lost(stats: &str, lost: &mut Lost) {
    for line in stats.lines() {
        let Some((name, number)) = line.split_once(':') else { continue };
        let number: u64 = number.trim().parse().unwrap_or(0);
        match name.trim() {
            "overrun" => lost.overwritten += number,
            // "entries" is the number of events that are still in the buffer.
            "commit overrun" | "dropped events" | "entries" => lost.dropped += number,
            _ => {}
        }
    }
}

/// The pages that were collected from the ring buffer of one CPU.
#[derive(Debug)]
struct CpuPages {
    cpu: u32,
    file: File,
    /// All pages concatenated, without their unused ends.
    bytes: Vec<u8>,
    /// Offset in `bytes` at which each page ends.
    ends: Vec<usize>,
}

impl CpuPages {
    fn open(instance: &Instance, cpu: u32) -> Result<CpuPages, Declined> {
        let path = instance.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let file = file.map_err(|e| Declined::file("opening", &path, &e))?;
        Ok(CpuPages { cpu, file, bytes: Vec::new(), ends: Vec::new() })
    }

    /// Reads all available pages, but stops when the length of `bytes` reaches `kept_bytes`.
    fn collect_pages(&mut self, layout: &PageLayout, kept_bytes: u64) -> io::Result<()> {
        while (self.bytes.len() as u64) < kept_bytes {
            let start = self.bytes.len();
            self.bytes.resize(start + layout.page_bytes, 0);
            let read = self.file.read(&mut self.bytes[start..]);
            let got = *read.as_ref().unwrap_or(&0);
            let used = page::used_bytes(&self.bytes[start..start + got], layout);
            self.bytes.truncate(start + used);
            match read {
                Ok(0) => return Ok(()),
                Ok(_) => self.ends.push(start + used),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A CPU that has never been online since boot has no ring buffer.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_events(&self, layout: &PageLayout, decoders: &Decoders, trace: &mut Trace) {
        let mut start = 0;
        for end in &self.ends {
            let ended = page::records(&self.bytes[start..*end], layout, |at_ns, record| {
                trace.events.extend(decoders.decode(at_ns, self.cpu, record));
            });
            trace.lost.damaged_pages += u64::from(ended.damaged);
            start = *end;
        }
    }
}

/// Handle of the thread that collects pages.
#[derive(Debug)]
struct Reader {
    /// Channel to the thread, which ends when this sender is dropped. None after the drop.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<io::Result<Vec<CpuPages>>>>,
}

impl Reader {
    fn start(cpus: Vec<CpuPages>, layout: PageLayout, kept: u64) -> Result<Reader, Declined> {
        let (stop, stopped) = mpsc::channel();
        let builder = thread::Builder::new().name("tracer".to_owned());
        let thread = builder.spawn(move || collect_until(cpus, &layout, kept, &stopped));
        let thread = thread.map_err(|error| {
            Declined::new(
                format!("starting the thread that reads the trace: {error}"),
                "run without tracing",
            )
        })?;
        Ok(Reader { stop: Some(stop), thread: Some(thread) })
    }

    /// Ends the thread after it has collected the remaining pages. Returns the pages of all CPUs.
    fn end(&mut self) -> Result<Vec<CpuPages>, Declined> {
        self.stop = None;
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Ok(cpus))) => Ok(cpus),
            Some(Ok(Err(error))) => {
                Err(Declined::new(format!("reading the trace: {error}"), "run without tracing"))
            }
            _ => Err(Declined::new(
                "the thread that reads the trace panicked",
                "run without tracing",
            )),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // The trace was abandoned, so its result does not matter.
            let _ = self.end();
        }
    }
}

fn collect_until(
    mut cpus: Vec<CpuPages>,
    layout: &PageLayout,
    kept_bytes: u64,
    stopped: &Receiver<()>,
) -> io::Result<Vec<CpuPages>> {
    let each = kept_bytes / cpus.len().max(1) as u64;
    loop {
        let ended = !matches!(stopped.recv_timeout(POLL_INTERVAL), Err(RecvTimeoutError::Timeout));
        for cpu in &mut cpus {
            cpu.collect_pages(layout, each)?;
        }
        if ended {
            return Ok(cpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_loss_are_counted() {
        let stats = "entries: 4\noverrun: 3\ncommit overrun: 1\nbytes: 99\n\
                     oldest event ts:     0.000000\ndropped events: 2\nread events: 7\n";
        let mut lost = Lost::default();
        count_lost(stats, &mut lost);
        count_lost(stats, &mut lost);
        assert_eq!(lost, Lost { overwritten: 6, dropped: 14, damaged_pages: 0 });
        assert_eq!(lost.total(), 20);
    }

    #[test]
    fn the_kernel_filters_events_by_disk_and_thread() {
        let spec = TraceSpec::new((8, 16), false, Some("worker-*"));
        let of = |name: &str| TRACEPOINTS.iter().find(|t| t.names[0] == name).unwrap();
        assert_eq!(spec.filter(of("block_getrq")), Some("dev == 8388624".to_owned()));
        assert_eq!(spec.filter(of("sched_waking")), Some("comm ~ \"worker-*\"".to_owned()));
        assert!(!spec.wants(of("io_uring_complete")) && spec.wants(of("sched_waking")));
        assert!(!TraceSpec { threads: None, ..spec }.wants(of("sched_waking")));
    }

    #[test]
    fn a_thread_name_that_would_break_the_filter_is_refused() {
        let declined = Tracer::start(&TraceSpec::new((8, 0), false, Some("a\" || 1"))).unwrap_err();
        assert!(
            declined.to_string().contains("is not a valid thread name; use letters"),
            "{declined}"
        );
    }
}
