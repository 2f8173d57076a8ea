//! A small load with a log: so many requests at a depth, each with its stamps.

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

/// The name of the thread that makes the requests.
pub const THREAD: &str = "worker-0";

/// When the thread of a hindered load loses its CPU and gets it back, after each submission (ns).
pub const HINDERED_NS: Range<u64> = 10_000_000..100_000_000;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Load {
    pub engine_kind: EngineKind,
    pub depth: u32,
    pub request_bytes: u32,
    pub requests: usize,
    pub write: bool,
    /// The CPU of its thread, which it does not have during [`HINDERED_NS`] of each request.
    pub hindered_on: Option<usize>,
    /// A thread of the kernel takes the submissions and posts the completions (SQPOLL).
    pub taker: Option<Taker>,
}

/// Where the kernel's thread of a load lives.
#[derive(Clone, Copy, Debug)]
pub struct Taker {
    /// The only CPU that it may use; the load's own thread uses others.
    pub cpu: usize,
    /// When somebody else has that CPU.
    pub without: Without,
}

/// When a thread does without its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    Never,
    /// From before each submission to [`HINDERED_NS`]'s end.
    FromTheStart,
    /// During [`HINDERED_NS`].
    InTheMidst,
}

/// Before a submission that is to find the CPU taken, the CPU is left alone for so long, since the
/// kernel lets no thread have nearly all of one (ns) ...
const REST_NS: u64 = 40_000_000;
/// ... and so much is given to take it (ns).
const LEAD_NS: u64 = 5_000_000;

impl Load {
    /// Random reads through io_uring, one at a time.
    pub fn random(request_bytes: u32, requests: usize) -> Load {
        let engine_kind = EngineKind::IoUring;
        let (write, hindered_on, taker) = (false, None, None);
        Load { engine_kind, depth: 1, request_bytes, requests, write, hindered_on, taker }
    }

    /// Does it, on a thread of its own; the stamps are those of the kernel's clock.
    pub fn run(&self, target: &HostTarget) -> Result<Vec<AppRequest>, String> {
        thread::scope(|scope| {
            let builder = thread::Builder::new().name(THREAD.to_owned());
            let worker = builder.spawn_scoped(scope, || {
                let clock = Monotonic::new();
                let hindered_on = self.hindered_on.inspect(|cpu| {
                    affinity::pin_current_thread(&[*cpu]).unwrap();
                });
                let taken = self.taker.filter(|taker| taker.without != Without::Never);
                let hindrance = hindered_on.or(taken.map(|taker| taker.cpu)).map(Hindrance::new);
                let before = clock.clocks();
                let log = self.log(target, &clock, hindrance.as_ref())?;
                Ok(in_kernel_time(log, &before, &clock.clocks()))
            });
            worker.unwrap().join().unwrap()
        })
    }

    fn log(
        &self,
        target: &HostTarget,
        clock: &Monotonic,
        hindrance: Option<&Hindrance>,
    ) -> Result<Vec<AppRequest>, String> {
        let slot_bytes = self.request_bytes;
        let (depth, pages) = (self.depth, BufferPages::Small);
        let options =
            ioengine::EngineOptions { sq_poll: self.taker.is_some(), ..Default::default() };
        let spec = EngineSpec { engine_kind: self.engine_kind, depth, slot_bytes, pages, options };
        if self.taker.is_some() {
            // That of an earlier engine may still be on its way out.
            eventually(|| threads_of_the_kernel().is_empty().then_some(()))
                .ok_or("a thread of the kernel of an earlier engine does not end")?;
        }
        let mut engine = target.engine(&spec).unwrap();
        self.taker.iter().try_for_each(Taker::settle)?;
        let places = target.size_bytes() / u64::from(slot_bytes);
        let mut free: Vec<u32> = (0..depth).collect();
        let mut under_way: Vec<Option<AppRequest>> = vec![None; depth as usize];
        let (mut log, mut done, mut sent) = (Vec::new(), Vec::new(), 0_u64);
        while log.len() < self.requests {
            let left = self.requests - sent as usize;
            let mut batch = Vec::new();
            let from_the_start =
                self.taker.is_some_and(|taker| taker.without == Without::FromTheStart);
            if let Some(hindrance) = hindrance.filter(|_| from_the_start) {
                let from_ns = clock.now_ns() + REST_NS;
                hindrance.begins(from_ns..from_ns + LEAD_NS + HINDERED_NS.end);
                clock.sleep_until(from_ns + LEAD_NS);
            }
            let submit_ns = clock.now_ns();
            for slot in free.drain(..).take(left) {
                // All places in turn, far from each other: any odd stride would do.
                let offset = sent.wrapping_mul(0x9E37_79B1) % places * u64::from(slot_bytes);
                let op = if self.write { Op::Write } else { Op::Read };
                batch.push(Request { offset, length: slot_bytes, within: 0, slot, file: 0, op });
                under_way[slot as usize] = Some(AppRequest {
                    submit_ns,
                    reaped_ns: 0,
                    offset,
                    bytes: u64::from(slot_bytes),
                    write: self.write,
                    user_data: Some(u64::from(slot)),
                });
                sent += 1;
            }
            if let Some(hindrance) = hindrance.filter(|_| !from_the_start) {
                hindrance.begins(submit_ns + HINDERED_NS.start..submit_ns + HINDERED_NS.end);
            }
            engine.submit_and_wait(&batch, 1, None, &mut done).unwrap();
            let reaped_ns = clock.now_ns();
            for completion in done.drain(..) {
                assert_eq!(completion.outcome().unwrap(), slot_bytes);
                let request = under_way[completion.slot as usize].take().unwrap();
                log.push(AppRequest { reaped_ns, ..request });
                free.push(completion.slot);
            }
        }
        Ok(log)
    }
}

/// What a question finds within two seconds.
fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = Monotonic::new();
    (0..2000).find_map(|_| {
        ask().or_else(|| {
            clock.sleep(Duration::from_millis(1));
            None
        })
    })
}

/// The threads of the kernel that take submissions for this process.
fn threads_of_the_kernel() -> Vec<PathBuf> {
    let is_it = |folder: &PathBuf| {
        let name = std::fs::read_to_string(folder.join("comm"));
        name.is_ok_and(|name| name.starts_with("iou-sqp"))
    };
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    threads.map(|entry| entry.path()).filter(is_it).collect()
}

impl Taker {
    /// Gives the kernel's thread its CPU, and the calling one the others.
    fn settle(&self) -> Result<(), String> {
        // It takes its name when it first runs.
        let found = eventually(|| threads_of_the_kernel().pop());
        let folder = found.ok_or("no thread of the kernel takes submissions")?;
        let (cpu, thread) = (self.cpu.to_string(), folder.file_name().unwrap().to_owned());
        let moved =
            Command::new("taskset").args(["--cpu-list", "--pid", &cpu]).arg(thread).output();
        let moved = moved.map_err(|error| format!("taskset: {error}"))?;
        if !moved.status.success() {
            let said = String::from_utf8_lossy(&moved.stderr);
            return Err(format!("the thread of the kernel stays where it is: {said}"));
        }
        let mut others = affinity::allowed_cpus();
        others.retain(|cpu| *cpu != self.cpu);
        affinity::pin_current_thread(&others).unwrap();
        Ok(())
    }
}

/// A thread of the highest rank on a CPU, which takes it away for a while in each request.
struct Hindrance {
    requests: Option<Sender<Range<u64>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Hindrance {
    fn new(cpu: usize) -> Hindrance {
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
        Hindrance { requests: Some(requests), thread: Some(thread) }
    }

    fn begins(&self, when: Range<u64>) {
        self.requests.as_ref().unwrap().send(when).unwrap();
    }
}

impl Drop for Hindrance {
    fn drop(&mut self) {
        self.requests = None;
        self.thread.take().map(thread::JoinHandle::join);
    }
}

fn in_kernel_time(log: Vec<AppRequest>, before: &Clocks, after: &Clocks) -> Vec<AppRequest> {
    let stamp = |ns| before.system_ns(after, ns);
    let moved = |request: AppRequest| AppRequest {
        submit_ns: stamp(request.submit_ns),
        reaped_ns: stamp(request.reaped_ns),
        ..request
    };
    log.into_iter().map(moved).collect()
}
