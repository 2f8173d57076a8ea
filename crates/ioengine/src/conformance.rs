//! Tests that every I/O engine must pass, including the engine of the simulator.
//!
//! Each test is a function that takes a closure. The closure creates an engine on a test file, in
//! which every 512-byte sector begins with the sector's offset. The function panics if the engine
//! breaks the contract of [`Engine::submit_and_wait`]. Other crates enable the feature
//! `conformance` to test their engines.

use std::fs::File;
use std::io::Write;

use crate::engine::Engine;
use crate::error::Error;
use crate::request::{Completion, Op, Request};

/// The sector size of the test file (bytes).
const SECTOR: usize = 512;

/// Fills a file with `bytes` bytes, in which every sector begins with its offset in the file.
pub fn write_positions(file: &mut File, bytes: u64) {
    let mut sector = [0_u8; SECTOR];
    let mut content = Vec::with_capacity(bytes as usize);
    for position in (0..bytes).step_by(SECTOR) {
        sector[..8].copy_from_slice(&position.to_le_bytes());
        content.extend_from_slice(&sector);
    }
    file.write_all(&content).expect("the test file can be written");
    file.sync_all().expect("the test file can be flushed");
}

/// A function that creates an engine. Its arguments are the number of slots and the size of each
/// slot (bytes).
pub type Make<'a, E> = &'a dyn Fn(u32, u32) -> Result<E, Error>;

fn read(slot: u32, offset: u64, length: u32) -> Request {
    Request { offset, length, within: 0, slot, file: 0, op: Op::Read }
}

/// Submits requests and waits until all have completed. Returns the completions.
fn run<E: Engine>(engine: &mut E, batch: &[Request]) -> Vec<Completion> {
    let mut done = Vec::new();
    engine
        .submit_and_wait(batch, batch.len() as u32, None, &mut done)
        .expect("the engine can continue");
    assert_eq!(done.len(), batch.len(), "a wait for all requests returns all completions");
    assert_eq!(engine.in_flight(), 0, "all requests have completed");
    done
}

fn position_in<E: Engine>(engine: &mut E, slot: u32, at: usize) -> u64 {
    let bytes = engine.buffer(slot)[at..at + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

/// Checks that the data of each read arrives in the slot of this read, even if requests complete in
/// a different order.
pub fn reads_bring_the_bytes_of_their_offset<E: Engine>(make: Make<E>, file_bytes: u64) {
    let depth = 16_u32;
    let mut engine = make(depth, 8192).expect("the engine can be made");
    let mut seed = 1_u64;
    for _ in 0..50 {
        let mut batch = Vec::new();
        for slot in 0..engine.slots() {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let length = if slot % 3 == 0 { 8192 } else { 4096 };
            let offset = (seed >> 33) % ((file_bytes - 8192) / 4096) * 4096;
            batch.push(read(slot, offset, length));
        }
        let done = run(&mut engine, &batch);
        for Completion { slot, result } in done {
            let request = batch[slot as usize];
            assert_eq!(result, request.length as i32, "the whole request is transferred");
            assert_eq!(position_in(&mut engine, slot, 0), request.offset, "wrong data");
            let last = request.length as usize - SECTOR;
            assert_eq!(position_in(&mut engine, slot, last), request.offset + last as u64);
        }
    }
}

/// Checks that a read that crosses the end of the file returns the bytes before the end, and that a
/// read that starts at the end returns no bytes.
pub fn a_read_at_the_end_is_short_and_past_it_empty<E: Engine>(make: Make<E>, file_bytes: u64) {
    let mut engine = make(1, 8192).expect("the engine can be made");
    let across = run(&mut engine, &[read(0, file_bytes - 4096, 8192)]);
    assert_eq!(across[0].result, 4096, "the bytes before the end of the file are read");
    let past = run(&mut engine, &[read(0, file_bytes, 4096)]);
    assert_eq!(past[0].result, 0, "a read that starts at the end returns no bytes");
}

/// Checks that a short read can be continued: the second request stores its data in the same slot,
/// after the data of the first request.
pub fn the_rest_of_a_request_lands_behind_the_first_part<E: Engine>(make: Make<E>) {
    let mut engine = make(1, 8192).expect("the engine can be made");
    run(&mut engine, &[read(0, 0, 4096)]);
    let rest = Request { within: 4096, ..read(0, 65536, 4096) };
    run(&mut engine, &[rest]);
    assert_eq!(position_in(&mut engine, 0, 0), 0);
    assert_eq!(position_in(&mut engine, 0, 4096), 65536);
}

/// Checks that in a batch of reads and writes to a file that is open read-only, only the writes
/// fail.
pub fn errors_reach_the_right_request<E: Engine>(make: Make<E>) {
    let mut engine = make(8, 4096).expect("the engine can be made");
    let op = |slot| if slot % 2 == 1 { Op::Write } else { Op::Read };
    let slots = engine.slots();
    let batch: Vec<Request> = (0..slots)
        .map(|slot| Request { op: op(slot), ..read(slot, u64::from(slot) * 4096, 4096) })
        .collect();
    for completion in run(&mut engine, &batch) {
        match op(completion.slot) {
            Op::Write => assert_eq!(completion.result, -libc::EBADF, "the write is refused"),
            Op::Read => assert_eq!(completion.result, 4096, "the read in the same batch succeeds"),
        }
    }
}

/// Checks that a call whose deadline has passed neither loses nor duplicates a completion.
pub fn a_deadline_returns_and_loses_nothing<E: Engine>(make: Make<E>) {
    let mut engine = make(16, 4096).expect("the engine can be made");
    let slots = engine.slots();
    for _ in 0..100 {
        let batch: Vec<Request> =
            (0..slots).map(|slot| read(slot, u64::from(slot) * 4096, 4096)).collect();
        let mut done = Vec::new();
        engine.submit_and_wait(&batch, slots, Some(0), &mut done).expect("the engine can continue");
        while engine.in_flight() > 0 {
            engine.submit_and_wait(&[], 1, None, &mut done).expect("the engine can continue");
        }
        let mut seen: Vec<u32> = done.iter().map(|completion| completion.slot).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..slots).collect::<Vec<_>>(), "each request completes once");
    }
}

/// Checks that a call with `at_least` 0 does not wait, and that later calls return the completions
/// that were not ready.
pub fn polling_does_not_wait<E: Engine>(make: Make<E>) {
    let mut engine = make(4, 4096).expect("the engine can be made");
    let mut done = Vec::new();
    engine.submit_and_wait(&[], 1, None, &mut done).expect("an idle engine does not wait");
    assert!(done.is_empty(), "no request was submitted");
    engine
        .submit_and_wait(&[read(0, 0, 4096)], 0, None, &mut done)
        .expect("the engine can continue");
    while done.is_empty() {
        engine.submit_and_wait(&[], 0, None, &mut done).expect("the engine can continue");
    }
    assert_eq!(done, [Completion { slot: 0, result: 4096 }]);
}

/// Checks that an engine that is dropped with requests in flight does not write to its memory after
/// the memory was freed.
pub fn a_dropped_engine_leaves_memory_alone<E: Engine>(make: Make<E>) {
    for _ in 0..20 {
        let mut engine = make(16, 65536).expect("the engine can be made");
        let batch: Vec<Request> =
            (0..engine.slots()).map(|slot| read(slot, u64::from(slot) * 65536, 65536)).collect();
        engine.submit_and_wait(&batch, 0, None, &mut Vec::new()).expect("the engine can continue");
        let bytes = 65536 * batch.len();
        drop(engine);
        let canary = vec![0x5C_u8; bytes + (4 << 20)];
        for _ in 0..3 {
            std::thread::yield_now();
            assert!(canary.iter().all(|byte| *byte == 0x5C), "freed memory was written to");
        }
    }
}

/// Checks that data is written at the requested offsets, by reading it back.
pub fn writes_land_where_they_say<E: Engine>(make: Make<E>) {
    let mut engine = make(8, 4096).expect("the engine can be made");
    let slots = engine.slots();
    let place = |slot: u32| u64::from(slots - 1 - slot) * 4096;
    let write: Vec<Request> =
        (0..slots).map(|slot| Request { op: Op::Write, ..read(slot, place(slot), 4096) }).collect();
    for slot in 0..slots {
        engine.buffer(slot).fill(slot as u8 + 1);
    }
    assert!(run(&mut engine, &write).iter().all(|completion| completion.result == 4096));
    let back: Vec<Request> = (0..slots).map(|slot| read(slot, place(slot), 4096)).collect();
    for slot in 0..slots {
        engine.buffer(slot).fill(0);
    }
    run(&mut engine, &back);
    for slot in 0..slots {
        assert!(engine.buffer(slot).iter().all(|byte| *byte == slot as u8 + 1));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::buffer::BufferPages;
    use crate::engine::{EngineKind, EngineOptions, EngineSpec, Faulty, HostEngine};
    use crate::fault::Fault;
    use crate::host::{HostTarget, offers_direct};
    #[cfg(feature = "network")]
    use crate::network::Access;
    #[cfg(feature = "network")]
    use crate::network::reference_server::{Fault as ServerFault, serve};
    use crate::target::{Caching, Target};

    const FILE_BYTES: u64 = 2 << 20;
    /// The number of files in the stripe.
    const MEMBERS: usize = 4;
    const CHUNK_BYTES: usize = 4096;

    /// Prints that a test is skipped. Also appends the line to the file that the environment
    /// variable `HALFPOWER_SKIP_LOG` specifies, if it is set.
    fn skipped(name: &str, reason: &str) {
        let line = format!("skipped: {name}: {reason}");
        eprintln!("{line}");
        let log = std::env::var_os("HALFPOWER_SKIP_LOG")
            .and_then(|path| std::fs::OpenOptions::new().append(true).create(true).open(path).ok());
        if let Some(mut log) = log {
            writeln!(log, "{line}").unwrap();
        }
    }

    #[derive(Clone, Copy)]
    struct Variant {
        engine_kind: EngineKind,
        options: EngineOptions,
    }

    impl Variant {
        fn name(self) -> String {
            let options = self.options.chosen().map(|option| format!("-{}", option.name()));
            format!("{}{}", self.engine_kind, options.collect::<String>())
        }

        /// Returns the parameters of an engine. Uses depth 1 if the engine does not support
        /// `depth`.
        fn spec(self, caching: Caching, depth: u32, slot_bytes: u32) -> EngineSpec {
            let Variant { engine_kind, options } = self;
            let allowed = engine_kind.check_depth(depth, caching.is_direct());
            let depth = if allowed.is_ok() { depth } else { 1 };
            EngineSpec { engine_kind, depth, slot_bytes, pages: BufferPages::Huge, options }
        }
    }

    /// Returns the variants to test: each engine that does I/O on files, without options and with
    /// each option that it supports.
    fn variants() -> Vec<Variant> {
        let none = EngineOptions::default();
        let all = [
            none,
            EngineOptions { sq_poll: true, ..none },
            EngineOptions { io_poll: true, ..none },
            EngineOptions { uncached: true, ..none },
            EngineOptions { fua: true, ..none },
            EngineOptions { any_thread: true, ..none },
        ];
        // Only io_uring behaves differently with `any_thread`.
        let differs = |v: &Variant| !v.options.any_thread || v.engine_kind == EngineKind::IoUring;
        let on_files = |kind: &EngineKind| kind.takes_files();
        let does_io = EngineKind::ALL.into_iter().filter(on_files);
        let of = |engine_kind| all.map(|options| Variant { engine_kind, options });
        let supports = |variant: &Variant| {
            Caching::ALL
                .iter()
                .any(|caching| variant.spec(*caching, 1, 512).check(*caching).is_ok())
        };
        does_io.flat_map(of).filter(supports).filter(differs).collect()
    }

    /// Distributes the bytes of the test file over the files of the stripe.
    fn distribute(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut shares = vec![Vec::new(); MEMBERS];
        for (number, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            shares[number % MEMBERS].extend_from_slice(chunk);
        }
        shares
    }

    /// Runs a check for every variant that this host supports, with buffered and with direct I/O,
    /// on a single file and on a stripe.
    fn each_engine_kind(check: impl Fn(Make<HostEngine>)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("positions");
        write_positions(&mut File::create(&path).unwrap(), FILE_BYTES);
        let shares = distribute(&std::fs::read(&path).unwrap());
        let members: Vec<PathBuf> =
            (0..MEMBERS).map(|n| folder.path().join(format!("member-{n}"))).collect();
        for (member, share) in members.iter().zip(shares) {
            let mut file = File::create(member).unwrap();
            file.write_all(&share).unwrap();
            file.sync_all().unwrap();
        }
        for variant in variants() {
            for caching in [Caching::Buffered, Caching::Direct] {
                for paths in [std::slice::from_ref(&path), &members] {
                    if is_offered(variant, paths, caching) {
                        check(&|depth, bytes| {
                            engine_on(paths, false, variant, caching, depth, bytes)
                        });
                    }
                }
            }
        }
    }

    /// Runs a check for the `network` engine. A server in this process exports the test file.
    #[cfg(feature = "network")]
    fn network(writable: bool, check: impl Fn(Make<HostEngine>)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_positions(&mut file.as_file().try_clone().unwrap(), FILE_BYTES);
        let served = Access { writable, ..serve(file.path().to_path_buf(), ServerFault::None) };
        let target = HostTarget::connect(served).unwrap();
        check(&|depth, slot_bytes| {
            let (engine_kind, options) = (EngineKind::Network, EngineOptions::default());
            let pages = BufferPages::Small;
            target.engine(&EngineSpec { engine_kind, depth, slot_bytes, pages, options })
        });
        target.sync().unwrap();
    }

    #[cfg(feature = "network")]
    #[test]
    fn the_network_engine_conforms() {
        network(false, |make| reads_bring_the_bytes_of_their_offset(make, FILE_BYTES));
        network(false, |make| a_read_at_the_end_is_short_and_past_it_empty(make, FILE_BYTES));
        network(false, |make| the_rest_of_a_request_lands_behind_the_first_part(make));
        network(false, |make| errors_reach_the_right_request(make));
        network(false, |make| a_deadline_returns_and_loses_nothing(make));
        network(false, |make| polling_does_not_wait(make));
        network(false, |make| a_dropped_engine_leaves_memory_alone(make));
        network(true, |make| writes_land_where_they_say(make));
    }

    /// Returns true if a variant works on this host. Reports the test as skipped if the combination
    /// is valid but this host does not support it.
    fn is_offered(variant: Variant, paths: &[PathBuf], caching: Caching) -> bool {
        let (path, striped) = (&paths[0], paths.len() > 1);
        let maps = variant.engine_kind == EngineKind::Mmap;
        if variant.spec(caching, 1, 512).check(caching).is_err() || (maps && striped) {
            return false;
        }
        let test = format!("conformance-{}-{caching}", variant.name());
        if !variant.engine_kind.availability().available {
            skipped(&test, "this kernel does not offer the engine");
            return false;
        }
        if caching.is_direct() && !offers_direct(path) {
            skipped(&test, "the file system does not offer direct I/O");
            return false;
        }
        let target = HostTarget::open(path, false, caching).unwrap();
        let checked = target.check(&variant.spec(caching, 1, 512));
        checked.inspect_err(|declined| skipped(&test, &declined.to_string())).is_ok()
    }

    fn engine_on(
        paths: &[PathBuf],
        writable: bool,
        variant: Variant,
        caching: Caching,
        depth: u32,
        slot_bytes: u32,
    ) -> Result<HostEngine, Error> {
        let open = |path: &PathBuf| HostTarget::open(path, writable, caching);
        let mut targets = paths.iter().map(open).collect::<Result<Vec<HostTarget>, Error>>()?;
        let target = match targets.len() {
            1 => targets.remove(0),
            _ => HostTarget::striped(targets, CHUNK_BYTES as u64)?,
        };
        target.engine(&variant.spec(caching, depth, slot_bytes))
    }

    #[test]
    fn every_engine_reads_the_right_bytes() {
        each_engine_kind(|make| reads_bring_the_bytes_of_their_offset(make, FILE_BYTES));
    }

    #[test]
    fn every_engine_tells_the_end_of_the_file() {
        each_engine_kind(|make| a_read_at_the_end_is_short_and_past_it_empty(make, FILE_BYTES));
    }

    #[test]
    fn every_engine_continues_a_short_transfer() {
        each_engine_kind(|make| the_rest_of_a_request_lands_behind_the_first_part(make));
    }

    #[test]
    fn every_engine_delivers_errors_to_the_right_request() {
        each_engine_kind(|make| errors_reach_the_right_request(make));
    }

    #[test]
    fn every_engine_keeps_deadlines() {
        each_engine_kind(|make| a_deadline_returns_and_loses_nothing(make));
    }

    #[test]
    fn every_engine_polls() {
        each_engine_kind(|make| polling_does_not_wait(make));
    }

    #[test]
    fn every_engine_drains_when_dropped() {
        each_engine_kind(|make| a_dropped_engine_leaves_memory_alone(make));
    }

    #[test]
    fn every_engine_writes() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["written", "member-0", "member-1", "member-2"];
        let paths = names.map(|name| folder.path().join(name));
        for path in &paths {
            File::create(path).unwrap().set_len(1 << 20).unwrap();
        }
        for variant in variants() {
            for caching in [Caching::Buffered, Caching::Direct] {
                for paths in [&paths[..1], &paths[1..]] {
                    if is_offered(variant, paths, caching) {
                        writes_land_where_they_say(&|depth, bytes| {
                            engine_on(paths, true, variant, caching, depth, bytes)
                        });
                    }
                }
            }
        }
    }

    #[test]
    fn every_engine_survives_signals_while_waiting() {
        extern "C" fn ignore(_: libc::c_int) {}
        // SAFETY: the handler does nothing. Because SA_RESTART is not set, interrupted waits return
        // EINTR.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as usize;
            libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
        }
        let finished = AtomicBool::new(false);
        // SAFETY: the call only returns the id of the calling thread.
        let victim = unsafe { libc::pthread_self() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !finished.load(Ordering::Relaxed) {
                    // SAFETY: `victim` is the thread that runs this scope, so it outlives the
                    // scope.
                    unsafe { libc::pthread_kill(victim, libc::SIGUSR2) };
                    crate::clock::Monotonic::new().sleep(Duration::from_micros(50));
                }
            });
            each_engine_kind(|make| reads_bring_the_bytes_of_their_offset(make, FILE_BYTES));
            finished.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn injected_errors_short_transfers_and_late_completions_reach_their_request() {
        each_engine_kind(|make| {
            let engine = make(4, 4096).unwrap();
            let slots = engine.slots();
            let mut faulty = Faulty::new(engine, |number, _| match number {
                0 => Fault::Errno(libc::EAGAIN),
                1 => Fault::Short(512),
                2 => Fault::Late(2),
                _ => Fault::None,
            });
            for round in 0..4 {
                let batch: Vec<Request> =
                    (0..slots).map(|slot| read(slot, u64::from(slot) * 4096, 4096)).collect();
                let mut done = Vec::new();
                while done.len() < batch.len() {
                    let batch = if done.is_empty() { &batch[..] } else { &[] };
                    faulty.submit_and_wait(batch, 1, None, &mut done).unwrap();
                }
                let first = done.iter().find(|completion| completion.slot == 0).unwrap();
                if round == 0 {
                    assert_eq!(first.result, -libc::EAGAIN);
                } else if slots > 1 {
                    assert_eq!(first.result, 4096);
                }
            }
        });
    }

    #[test]
    fn an_engine_asked_for_too_much_depth_is_not_made() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let target = HostTarget::open(file.path(), false, Caching::Buffered).unwrap();
        let spec = EngineSpec {
            engine_kind: EngineKind::Sync,
            depth: 8,
            slot_bytes: 4096,
            pages: BufferPages::Small,
            options: EngineOptions::default(),
        };
        assert!(target.engine(&spec).unwrap_err().to_string().contains("`depth` 8"));
    }
}
