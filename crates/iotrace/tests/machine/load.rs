//! A small load on a file or device. The load logs the times of each request, so that tests can
//! compare the log with the trace.

use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use cpucost::affinity;
use ioengine::clock::Clocks;
use ioengine::engine::EngineSpec;
use ioengine::{
    BufferPages, Clock, Engine, EngineKind, HostTarget, Monotonic, Op, Request, Target,
};
use iotrace::AppRequest;

/// Name of the thread that sends the requests.
pub const THREAD: &str = "worker-0";

/// Time range in which another thread occupies a CPU (ns after the submission of each request).
pub const HOG_NS: Range<u64> = 10_000_000..300_000_000;

#[derive(Clone, Debug)]
pub struct Load {
    pub engine_kind: EngineKind,
    pub depth: u32,
    pub request_bytes: u32,
    pub requests: usize,
    pub write: bool,
    /// CPU to which the load's thread is pinned, and which another thread occupies during
    /// [`HOG_NS`]. None if no thread disturbs the load's thread.
    pub hog_cpu: Option<usize>,
    /// The kernel's SQPOLL thread, which takes the submissions and posts the completions. None if
    /// the load does not use SQPOLL.
    pub sq_poll_thread: Option<SqPollThread>,
}

/// The CPU of the SQPOLL thread, and the times at which another thread occupies this CPU.
#[derive(Clone, Copy, Debug)]
pub struct SqPollThread {
    /// CPU to which the SQPOLL thread is pinned. The load's own thread uses the other CPUs.
    pub cpu: usize,
    pub hog_time: HogTime,
}

/// When another thread occupies the CPU of the SQPOLL thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HogTime {
    Never,
    /// From [`LEAD_NS`] before each submission until the end of [`HOG_NS`].
    FromSubmission,
    /// During [`HOG_NS`] after each submission.
    AfterSubmission,
}

/// Pause before each submission of a load with a [`CpuHog`] (ns). Without the pause, the kernel
/// would throttle the real-time thread.
const PAUSE_NS: u64 = 40_000_000;
/// Time from the beginning of [`HogTime::FromSubmission`] to the submission (ns).
const LEAD_NS: u64 = 5_000_000;

impl Load {
    /// Returns a load of random reads with io_uring at depth 1.
    pub fn random(request_bytes: u32, requests: usize) -> Load {
        let engine_kind = EngineKind::IoUring;
        let (write, hog_cpu, sq_poll_thread) = (false, None, None);
        Load { engine_kind, depth: 1, request_bytes, requests, write, hog_cpu, sq_poll_thread }
    }

    /// Runs the load on a new thread. Returns the logged requests. Their times are those of the
    /// clock that kernel events use.
    pub fn run(&self, target: &HostTarget) -> Result<Vec<AppRequest>, String> {
        thread::scope(|scope| {
            let builder = thread::Builder::new().name(THREAD.to_owned());
            let worker = builder.spawn_scoped(scope, || {
                let clock = Monotonic::new();
                let hog_cpu = self.hog_cpu.inspect(|cpu| {
                    affinity::pin_current_thread(&[*cpu]).unwrap();
                });
                let taken = self
                    .sq_poll_thread
                    .filter(|sq_poll_thread| sq_poll_thread.hog_time != HogTime::Never);
                let hog =
                    hog_cpu.or(taken.map(|sq_poll_thread| sq_poll_thread.cpu)).map(CpuHog::new);
                let before = clock.clocks();
                let log = self.log(target, &clock, hog.as_ref())?;
                Ok(to_kernel_clock(log, &before, &clock.clocks()))
            });
            worker.unwrap().join().unwrap()
        })
    }

    fn log(
        &self,
        target: &HostTarget,
        clock: &Monotonic,
        hog: Option<&CpuHog>,
    ) -> Result<Vec<AppRequest>, String> {
        let slot_bytes = self.request_bytes;
        let (depth, pages) = (self.depth, BufferPages::Small);
        let options = ioengine::EngineOptions {
            sq_poll: self.sq_poll_thread.is_some(),
            ..Default::default()
        };
        let spec = EngineSpec { engine_kind: self.engine_kind, depth, slot_bytes, pages, options };
        if self.sq_poll_thread.is_some() {
            // The SQPOLL thread of an earlier engine may not have ended yet.
            eventually(|| sq_poll_threads().is_empty().then_some(()))
                .ok_or("the SQPOLL thread of an earlier engine does not end")?;
        }
        let mut engine = target.engine(&spec).unwrap();
        self.sq_poll_thread.iter().try_for_each(SqPollThread::place)?;
        let places = target.size_bytes() / u64::from(slot_bytes);
        let mut free: Vec<u32> = (0..depth).collect();
        let mut in_flight: Vec<Option<AppRequest>> = vec![None; depth as usize];
        let (mut log, mut done, mut sent) = (Vec::new(), Vec::new(), 0_u64);
        while log.len() < self.requests {
            let left = self.requests - sent as usize;
            let mut batch = Vec::new();
            let from_the_start = self
                .sq_poll_thread
                .is_some_and(|sq_poll_thread| sq_poll_thread.hog_time == HogTime::FromSubmission);
            if let Some(hog) = hog {
                let from_ns = clock.now_ns() + PAUSE_NS;
                if from_the_start {
                    hog.occupy(from_ns..from_ns + LEAD_NS + HOG_NS.end);
                }
                clock.sleep_until(from_ns + LEAD_NS);
            }
            let submit_ns = clock.now_ns();
            for slot in free.drain(..).take(left) {
                // The factor puts consecutive requests far apart. Any large odd factor would do.
                let offset = sent.wrapping_mul(0x9E37_79B1) % places * u64::from(slot_bytes);
                let op = if self.write { Op::Write } else { Op::Read };
                batch.push(Request { offset, length: slot_bytes, within: 0, slot, file: 0, op });
                in_flight[slot as usize] = Some(AppRequest {
                    submit_ns,
                    reaped_ns: 0,
                    offset,
                    bytes: u64::from(slot_bytes),
                    write: self.write,
                    user_data: Some(u64::from(slot)),
                });
                sent += 1;
            }
            if let Some(hog) = hog.filter(|_| !from_the_start) {
                hog.occupy(submit_ns + HOG_NS.start..submit_ns + HOG_NS.end);
            }
            engine.submit_and_wait(&batch, 1, None, &mut done).unwrap();
            let reaped_ns = clock.now_ns();
            for completion in done.drain(..) {
                assert_eq!(completion.outcome().unwrap(), slot_bytes);
                let request = in_flight[completion.slot as usize].take().unwrap();
                log.push(AppRequest { reaped_ns, ..request });
                free.push(completion.slot);
            }
        }
        Ok(log)
    }
}

/// Calls `ask` every millisecond until it returns a value, but for at most two seconds.
fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = Monotonic::new();
    (0..2000).find_map(|_| {
        ask().or_else(|| {
            clock.sleep(Duration::from_millis(1));
            None
        })
    })
}

/// Returns the /proc directories of the SQPOLL threads of this process.
fn sq_poll_threads() -> Vec<PathBuf> {
    let is_sq_poll = |folder: &PathBuf| {
        let name = std::fs::read_to_string(folder.join("comm"));
        name.is_ok_and(|name| name.starts_with("iou-sqp"))
    };
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    threads.map(|entry| entry.path()).filter(is_sq_poll).collect()
}

impl SqPollThread {
    /// Pins the SQPOLL thread to the CPU `cpu`, and the calling thread to all other CPUs.
    fn place(&self) -> Result<(), String> {
        // The SQPOLL thread gets its name only when it first runs.
        let found = eventually(|| sq_poll_threads().pop());
        let folder = found.ok_or("there is no SQPOLL thread")?;
        let (cpu, thread) = (self.cpu.to_string(), folder.file_name().unwrap().to_owned());
        let moved =
            Command::new("taskset").args(["--cpu-list", "--pid", &cpu]).arg(thread).output();
        let moved = moved.map_err(|error| format!("taskset: {error}"))?;
        if !moved.status.success() {
            let said = String::from_utf8_lossy(&moved.stderr);
            return Err(format!("taskset cannot move the SQPOLL thread: {said}"));
        }
        let mut others = affinity::allowed_cpus();
        others.retain(|cpu| *cpu != self.cpu);
        affinity::pin_current_thread(&others).unwrap();
        Ok(())
    }
}

/// Checks whether this process may start real-time threads. A control group can forbid this even
/// for root.
pub fn real_time_allowed() -> Result<(), String> {
    let tried = Command::new("chrt").args(["--fifo", "50", "true"]).output();
    let allowed = tried.is_ok_and(|tried| tried.status.success());
    allowed.then_some(()).ok_or_else(|| "real-time threads are not allowed here (chrt)".to_owned())
}

/// A real-time thread that occupies a CPU during the time ranges passed to [`CpuHog::occupy`].
struct CpuHog {
    requests: Option<Sender<Range<u64>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl CpuHog {
    fn new(cpu: usize) -> CpuHog {
        let (requests, asked) = mpsc::channel::<Range<u64>>();
        let thread = thread::spawn(move || {
            affinity::pin_current_thread(&[cpu]).unwrap();
            let me = std::fs::read_link("/proc/thread-self").unwrap();
            let me = me.file_name().unwrap().to_str().unwrap();
            let first = Command::new("chrt").args(["--fifo", "--pid", "50", me]).status();
            assert!(first.unwrap().success());
            let clock = Monotonic::new();
            for Range { start, end } in asked {
                clock.sleep_until(start);
                while clock.now_ns() < end {
                    std::hint::spin_loop();
                }
            }
        });
        CpuHog { requests: Some(requests), thread: Some(thread) }
    }

    fn occupy(&self, when: Range<u64>) {
        self.requests.as_ref().unwrap().send(when).unwrap();
    }
}

impl Drop for CpuHog {
    fn drop(&mut self) {
        self.requests = None;
        self.thread.take().map(thread::JoinHandle::join);
    }
}

fn to_kernel_clock(log: Vec<AppRequest>, before: &Clocks, after: &Clocks) -> Vec<AppRequest> {
    let stamp = |ns| before.system_ns(after, ns);
    let moved = |request: AppRequest| AppRequest {
        submit_ns: stamp(request.submit_ns),
        reaped_ns: stamp(request.reaped_ns),
        ..request
    };
    log.into_iter().map(moved).collect()
}
