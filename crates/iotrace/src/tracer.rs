//! A trace while it is made: tracepoints are switched on, a thread of its own carries the pages of
//! the kernel's buffers away before they overrun, and they are read when all is over.

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

/// How long the reader rests between its rounds.
const REST: Duration = Duration::from_millis(30);
/// The buffers of all CPUs together, unless asked otherwise (bytes).
const BUFFERS_BYTES: u64 = 256 << 20;
/// The buffer of one CPU, unless asked otherwise (bytes).
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 20;
/// The pages that a reader keeps, unless asked otherwise (bytes).
const KEPT_BYTES: u64 = 2 << 30;

/// What is to be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpec {
    /// Device number (major, minor) of the whole disk: requests to a partition are the disk's.
    pub disk: (u32, u32),
    /// Whether the load uses io_uring.
    pub uring: bool,
    /// Name of the threads of the load whose wakings are told, with `*` for anything
    /// ("worker-*"). None: completion and wake-up cannot be told apart.
    pub threads: Option<String>,
    /// The kernel's buffer for each CPU (bytes); None: 256 MiB in all, from 1 to 16 MiB each.
    pub buffer_bytes: Option<u64>,
    /// Pages that are kept in memory (bytes). What comes after is lost, and counted.
    pub kept_bytes: u64,
}

impl TraceSpec {
    /// Everything about a disk and the threads of a load.
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

    /// What the kernel shall leave out.
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
                let what = format!("`{name}` is no name of a thread");
                Err(Declined::new(what, "use letters, digits, - _ . : / and * for anything"))
            }
            _ => Ok(()),
        }
    }
}

/// Events that happened and are not in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Written over before they were carried away.
    pub overwritten: u64,
    /// Never written, for want of room.
    pub dropped: u64,
    /// Pages with records that could not be read.
    pub damaged_pages: u64,
}

impl Lost {
    /// All of them; a damaged page counts as one.
    pub fn total(&self) -> u64 {
        self.overwritten + self.dropped + self.damaged_pages
    }
}

/// A trace that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What happened, in order of time.
    pub events: Vec<Event>,
    /// What happened besides.
    pub lost: Lost,
    /// Whether io_uring was listened to.
    pub uring: bool,
    /// Bytes that the kernel wrote.
    pub bytes: u64,
}

/// A trace that is being made. Dropping it ends it and takes it away.
#[derive(Debug)]
pub struct Tracer {
    // In this order: the reader's files must be closed before their folder can go.
    reader: Reader,
    instance: Instance,
    decoders: Decoders,
    layout: PageLayout,
    uring: bool,
}

impl Tracer {
    /// Starts to trace.
    ///
    /// # Errors
    /// Without root, tracefs, or a tracepoint that is needed; each with its remedy.
    pub fn start(spec: &TraceSpec) -> Result<Tracer, Declined> {
        spec.check()?;
        let instance = Instance::new()?;
        instance.tell("tracing_on", "0")?;
        instance.tell("trace_clock", "mono")?;
        let layout = PageLayout::parse(&instance.text("events/header_page")?).ok_or_else(|| {
            Declined::new("this kernel's trace pages are of an unknown form", "run without tracing")
        })?;
        let cpus = instance.cpus()?;
        let buffer_bytes = spec.buffer_bytes.unwrap_or_else(|| {
            let fair = BUFFERS_BYTES / cpus.len().max(1) as u64;
            fair.clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end())
        });
        instance.tell("buffer_size_kb", &(buffer_bytes >> 10).max(1).to_string())?;
        let decoders = listen(&instance, spec)?;
        let pages =
            cpus.iter().map(|cpu| CpuPages::open(&instance, *cpu)).collect::<Result<_, _>>();
        instance.tell("tracing_on", "1")?;
        let reader = Reader::start(pages?, layout, spec.kept_bytes)?;
        Ok(Tracer { reader, instance, decoders, layout, uring: spec.uring })
    }

    /// Ends the trace and reads it.
    ///
    /// # Errors
    /// Where the kernel does not give its pages or counters.
    pub fn stop(mut self) -> Result<Trace, Declined> {
        self.instance.tell("tracing_on", "0")?;
        let cpus = self.reader.end()?;
        let mut trace = Trace { uring: self.uring, ..Trace::default() };
        for cpu in &cpus {
            let stats = self.instance.text(&format!("per_cpu/cpu{}/stats", cpu.cpu))?;
            count_lost(&stats, &mut trace.lost);
            trace.bytes += cpu.bytes.len() as u64;
            cpu.read_events(&self.layout, &self.decoders, &mut trace);
        }
        // Stable and made for runs: each CPU's events are in order already.
        trace.events.sort_by_key(|event| event.at_ns);
        Ok(trace)
    }
}

/// Switches the tracepoints on and learns their formats.
fn listen(instance: &Instance, spec: &TraceSpec) -> Result<Decoders, Declined> {
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
                    instance.tell(&format!("{f}/filter"), &filter)?;
                }
                instance.tell(&format!("{f}/enable"), "1")?;
            }
            None if tracepoint.needed => {
                let names = folders.collect::<Vec<_>>().join(" or ");
                let what = format!("this kernel has no {names} of a known form");
                return Err(Declined::new(what, "run without tracing, or on Linux 5.10 or later"));
            }
            None => {}
        }
    }
    Ok(decoders)
}

/// Adds what `per_cpu/cpuN/stats` counts.
fn count_lost(stats: &str, lost: &mut Lost) {
    for line in stats.lines() {
        let Some((name, number)) = line.split_once(':') else { continue };
        let number: u64 = number.trim().parse().unwrap_or(0);
        match name.trim() {
            "overrun" => lost.overwritten += number,
            // What nobody carried away any more is lost like what was never written.
            "commit overrun" | "dropped events" | "entries" => lost.dropped += number,
            _ => {}
        }
    }
}

/// The pages of one CPU, as they were carried away.
#[derive(Debug)]
struct CpuPages {
    cpu: u32,
    file: File,
    /// All pages one behind the other, without what is empty.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl CpuPages {
    fn open(instance: &Instance, cpu: u32) -> Result<CpuPages, Declined> {
        let path = instance.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let file = file.map_err(|e| Declined::file("opening", &path, &e))?;
        Ok(CpuPages { cpu, file, bytes: Vec::new(), ends: Vec::new() })
    }

    /// Carries away what there is.
    fn carry(&mut self, layout: &PageLayout, kept_bytes: u64) -> io::Result<()> {
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

/// The thread that carries pages away.
#[derive(Debug)]
struct Reader {
    /// None once it was told to end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<io::Result<Vec<CpuPages>>>>,
}

impl Reader {
    fn start(cpus: Vec<CpuPages>, layout: PageLayout, kept: u64) -> Result<Reader, Declined> {
        let (stop, stopped) = mpsc::channel();
        let builder = thread::Builder::new().name("tracer".to_owned());
        let thread = builder.spawn(move || carry_until(cpus, &layout, kept, &stopped));
        let thread = thread.map_err(|error| {
            Declined::new(
                format!("starting the reader of the trace: {error}"),
                "run without tracing",
            )
        })?;
        Ok(Reader { stop: Some(stop), thread: Some(thread) })
    }

    /// Waits for it to carry the rest away.
    fn end(&mut self) -> Result<Vec<CpuPages>, Declined> {
        self.stop = None;
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Ok(cpus))) => Ok(cpus),
            Some(Ok(Err(error))) => {
                Err(Declined::new(format!("reading the trace: {error}"), "run without tracing"))
            }
            _ => Err(Declined::new("the reader of the trace died", "run without tracing")),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // The trace is not wanted any more.
            let _ = self.end();
        }
    }
}

fn carry_until(
    mut cpus: Vec<CpuPages>,
    layout: &PageLayout,
    kept_bytes: u64,
    stopped: &Receiver<()>,
) -> io::Result<Vec<CpuPages>> {
    let each = kept_bytes / cpus.len().max(1) as u64;
    loop {
        let ended = !matches!(stopped.recv_timeout(REST), Err(RecvTimeoutError::Timeout));
        for cpu in &mut cpus {
            cpu.carry(layout, each)?;
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
    fn all_sorts_of_loss_are_counted() {
        let stats = "entries: 4\noverrun: 3\ncommit overrun: 1\nbytes: 99\n\
                     oldest event ts:     0.000000\ndropped events: 2\nread events: 7\n";
        let mut lost = Lost::default();
        count_lost(stats, &mut lost);
        count_lost(stats, &mut lost);
        assert_eq!(lost, Lost { overwritten: 6, dropped: 14, damaged_pages: 0 });
        assert_eq!(lost.total(), 20);
    }

    #[test]
    fn events_of_other_disks_and_threads_are_left_out_by_the_kernel() {
        let spec = TraceSpec::new((8, 16), false, Some("worker-*"));
        let of = |name: &str| TRACEPOINTS.iter().find(|t| t.names[0] == name).unwrap();
        assert_eq!(spec.filter(of("block_getrq")), Some("dev == 8388624".to_owned()));
        assert_eq!(spec.filter(of("sched_waking")), Some("comm ~ \"worker-*\"".to_owned()));
        assert!(!spec.wants(of("io_uring_complete")) && spec.wants(of("sched_waking")));
        assert!(!TraceSpec { threads: None, ..spec }.wants(of("sched_waking")));
    }

    #[test]
    fn a_name_that_would_break_the_filter_is_declined() {
        let declined = Tracer::start(&TraceSpec::new((8, 0), false, Some("a\" || 1"))).unwrap_err();
        assert!(declined.to_string().contains("is no name of a thread; use letters"), "{declined}");
    }
}
