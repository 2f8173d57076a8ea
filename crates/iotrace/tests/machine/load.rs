//! A small load with a log: so many requests at a depth, each with its stamps.

use std::ops::Range;
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread;

use cpucost::affinity;
use ioengine::clock::Clocks;
use ioengine::engine::EngineSpec;
use ioengine::{
    BufferPages, Clock, Engine, HostTarget, Monotonic, Op, Personality, Request, Target,
};
use iotrace::AppRequest;

/// The name of the thread that makes the requests.
pub const THREAD: &str = "worker-0";

/// When the thread of a hindered load loses its CPU and gets it back, after each submission (ns).
pub const HINDERED_NS: Range<u64> = 10_000_000..100_000_000;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Load {
    pub personality: Personality,
    pub depth: u32,
    pub request_bytes: u32,
    pub requests: usize,
    pub write: bool,
    /// The CPU of its thread, which it does not have during [`HINDERED_NS`] of each request.
    pub hindered_on: Option<usize>,
}

impl Load {
    /// Random reads through io_uring, one at a time.
    pub fn random(request_bytes: u32, requests: usize) -> Load {
        let personality = Personality::IoUring;
        Load { personality, depth: 1, request_bytes, requests, write: false, hindered_on: None }
    }

    /// Does it, on a thread of its own; the stamps are those of the kernel's clock.
    pub fn run(&self, target: &HostTarget) -> Vec<AppRequest> {
        thread::scope(|scope| {
            let builder = thread::Builder::new().name(THREAD.to_owned());
            let worker = builder.spawn_scoped(scope, || {
                let clock = Monotonic::new();
                let hindrance = self.hindered_on.map(Hindrance::new);
                let before = clock.clocks();
                let log = self.log(target, &clock, hindrance.as_ref());
                in_kernel_time(log, &before, &clock.clocks())
            });
            worker.unwrap().join().unwrap()
        })
    }

    fn log(
        &self,
        target: &HostTarget,
        clock: &Monotonic,
        hindrance: Option<&Hindrance>,
    ) -> Vec<AppRequest> {
        let slot_bytes = self.request_bytes;
        let (depth, pages) = (self.depth, BufferPages::Small);
        let options = ioengine::EngineOptions::default();
        let spec = EngineSpec { personality: self.personality, depth, slot_bytes, pages, options };
        let mut engine = target.engine(&spec).unwrap();
        let places = target.size_bytes() / u64::from(slot_bytes);
        let mut free: Vec<u32> = (0..depth).collect();
        let mut under_way: Vec<Option<AppRequest>> = vec![None; depth as usize];
        let (mut log, mut done, mut sent) = (Vec::new(), Vec::new(), 0_u64);
        while log.len() < self.requests {
            let left = self.requests - sent as usize;
            let mut batch = Vec::new();
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
            if let Some(hindrance) = hindrance {
                hindrance.begins(submit_ns);
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
        log
    }
}

/// A thread of the highest rank on the CPU of the calling one, which takes that CPU away for a
/// while in the middle of each request.
struct Hindrance {
    requests: Option<Sender<u64>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Hindrance {
    fn new(cpu: usize) -> Hindrance {
        affinity::pin_current_thread(&[cpu]).unwrap();
        let (requests, asked) = mpsc::channel::<u64>();
        let thread = thread::spawn(move || {
            let me = std::fs::read_link("/proc/thread-self").unwrap();
            let me = me.file_name().unwrap().to_str().unwrap();
            let first = Command::new("chrt").args(["--fifo", "--pid", "50", me]).status();
            assert!(first.unwrap().success());
            let clock = Monotonic::new();
            for submit_ns in asked {
                clock.sleep_until(submit_ns + HINDERED_NS.start);
                while clock.now_ns() < submit_ns + HINDERED_NS.end {
                    std::hint::spin_loop();
                }
            }
        });
        Hindrance { requests: Some(requests), thread: Some(thread) }
    }

    fn begins(&self, submit_ns: u64) {
        self.requests.as_ref().unwrap().send(submit_ns).unwrap();
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
