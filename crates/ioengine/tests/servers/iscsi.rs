//! Tests the iSCSI client with `tgtd`, the daemon of the Linux SCSI target framework (tgt).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "measurements are printed")]

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use ioengine::conformance;
use ioengine::network::{Access, Credentials};
use ioengine::{
    BufferPages, Clock, Engine, EngineKind, EngineOptions, EngineSpec, Error, HostEngine,
    HostTarget, Monotonic, Op, Request, Target,
};

use crate::fixture::{Process, engine, free_port, has_program, request, run, skipped, sleep_ms};

const FILE_BYTES: u64 = 8 << 20;
const NAME: &str = "iqn.2026-01.test:disk";
const USER: &str = "anna";
const PASSWORD: &str = "a-secret-of-12+";

/// A running tgtd with one disk (logical unit 1), which is stored in a file. Dropping this value
/// ends the daemon.
struct Tgtd {
    daemon: Process,
    folder: tempfile::TempDir,
    port: u16,
}

impl Tgtd {
    /// Starts tgtd. If that is impossible, reports the test as skipped and returns None.
    fn start(test: &str) -> Option<Tgtd> {
        if let Some(missing) = ["tgtd", "tgtadm"].iter().find(|name| !has_program(name)) {
            skipped(test, &format!("{missing} is not installed"));
            return None;
        }
        // The start is repeated, because another process may take the free port before tgtd does.
        let started = (0..3).find_map(|_| Tgtd::start_once());
        if started.is_none() {
            skipped(test, "tgtd does not start");
        }
        started
    }

    fn start_once() -> Option<Tgtd> {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = File::create(folder.path().join("disk")).unwrap();
        conformance::write_positions(&mut disk, FILE_BYTES);
        let port = free_port();
        // tgtadm sends its commands to tgtd through this socket.
        let control = format!("TGT_IPC_SOCKET={}", folder.path().join("control").display());
        let portal = format!("portal=127.0.0.1:{port}");
        let arguments = [&control, "tgtd", "-f", "-C", "1", "--iscsi", &portal].map(OsStr::new);
        let daemon = Process::start("env", &arguments).ok()?;
        let mut target = Tgtd { daemon, folder, port };
        let is_ready = target.daemon.is_listening(port) && target.answers();
        is_ready.then(|| target.with_disk())
    }

    /// Returns whether tgtd answers tgtadm within about 10 s.
    fn answers(&self) -> bool {
        (0..500).any(|_| {
            let answers = self.try_admin("target --op show").is_ok();
            if !answers {
                sleep_ms(20);
            }
            answers
        })
    }

    fn with_disk(self) -> Tgtd {
        self.admin(&format!("target --op new --tid 1 --targetname {NAME}"));
        let file = self.disk();
        self.admin(&format!("logicalunit --op new --tid 1 --lun 1 -b {}", file.display()));
        self.admin("target --op bind --tid 1 --initiator-address ALL");
        self
    }

    fn try_admin(&self, arguments: &str) -> Result<(), String> {
        let output = Command::new("tgtadm")
            .args(["-C", "1", "--lld", "iscsi", "--mode"])
            .args(arguments.split(' '))
            .env("TGT_IPC_SOCKET", self.folder.path().join("control"))
            .output()
            .map_err(|error| format!("tgtadm: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Runs tgtadm, and panics if it fails.
    #[track_caller]
    fn admin(&self, arguments: &str) {
        self.try_admin(arguments).unwrap_or_else(|error| panic!("tgtadm {arguments}: {error}"));
    }

    /// Sets a parameter that the target negotiates at the start of each new session.
    #[track_caller]
    fn negotiates(&self, key: &str, value: &str) {
        self.admin(&format!("target --op update --tid 1 --name {key} --value {value}"));
    }

    fn asks_for_a_password(&self) {
        self.admin(&format!("account --op new --user {USER} --password {PASSWORD}"));
        self.admin(&format!("account --op bind --tid 1 --user {USER}"));
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn access(&self, writable: bool) -> Access {
        self.access_to(&format!("{NAME}/1"), writable)
    }

    fn access_to(&self, path: &str, writable: bool) -> Access {
        let address = format!("iscsi://127.0.0.1:{}/{path}?timeout=10", self.port);
        let address = address.parse().unwrap();
        Access { address, credentials: None, writable, durable: false }
    }

    /// Returns the error message of a connection that must be refused.
    #[track_caller]
    fn refusal(&self, access: Access) -> String {
        HostTarget::connect(access).map(drop).expect_err("the target refuses").to_string()
    }
}

fn engine_with(
    target: &HostTarget,
    depth: u32,
    slot_bytes: u32,
    options: EngineOptions,
) -> Result<HostEngine, Error> {
    let (engine_kind, pages) = (EngineKind::Network, BufferPages::Small);
    target.engine(&EngineSpec { engine_kind, depth, slot_bytes, pages, options })
}

#[test]
fn iscsi_conforms() {
    let Some(server) = Tgtd::start("iscsi_conforms") else { return };
    let target = HostTarget::connect(server.access(false)).unwrap();
    let make = |depth, slot_bytes| engine(&target, depth, slot_bytes);
    conformance::reads_bring_the_bytes_of_their_offset(&make, FILE_BYTES);
    conformance::a_read_at_the_end_is_short_and_past_it_empty(&make, FILE_BYTES);
    conformance::the_rest_of_a_request_lands_behind_the_first_part(&make);
    conformance::errors_reach_the_right_request(&make);
    conformance::a_deadline_returns_and_loses_nothing(&make);
    conformance::polling_does_not_wait(&make);
    conformance::a_dropped_engine_leaves_memory_alone(&make);
    let target = HostTarget::connect(server.access(true)).unwrap();
    let make = |depth, slot_bytes| engine(&target, depth, slot_bytes);
    conformance::writes_land_where_they_say(&make);
    target.sync().unwrap();
}

#[test]
fn iscsi_says_what_the_disk_is() {
    let Some(server) = Tgtd::start("iscsi_says_what_the_disk_is") else { return };
    let target = HostTarget::connect(server.access(false)).unwrap();
    let info = target.remote_info().unwrap();
    assert_eq!((info.size_bytes, info.block_bytes), (FILE_BYTES, 512));
    assert!(info.features.starts_with("iSCSI, IET VIRTUAL-DISK, "), "{}", info.features);
    assert_eq!(info.request_bytes_max % 512, 0);
    let mut engine = engine(&target, 2, 4096).unwrap();
    let done =
        run(&mut engine, &[request(Op::Read, 0, 100, 512), request(Op::Read, 1, 0, 100)]).unwrap();
    assert!(done.iter().all(|done| done.result == -libc::EINVAL), "not aligned: {done:?}");
}

/// Writes and reads with requests of many sizes, at queue depth 8. Checks that the file of the disk
/// contains the written data, and that the reads return the written data.
fn moves_the_right_bytes(server: &Tgtd, settings: &str) {
    let target = HostTarget::connect(server.access(true)).unwrap();
    const SIZES: [u32; 8] = [512, 4096, 7680, 8192, 65_536, 66_048, 300_032, 1 << 20];
    let mut engine = engine(&target, 8, 1 << 20).unwrap();
    let mut seed = 7_u64;
    for round in 0..4_u64 {
        let mut batch = Vec::new();
        let mut offset = 0;
        for slot in 0..8 {
            let length = SIZES[(slot as usize + round as usize) % 8];
            for byte in engine.buffer(slot) {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *byte = (seed >> 56) as u8;
            }
            batch.push(request(Op::Write, slot, offset, length));
            offset += u64::from(length);
        }
        let done = run(&mut engine, &batch).unwrap();
        assert!(engine.flush().unwrap());
        let disk = File::open(server.disk()).unwrap();
        for (write, done) in batch.iter().zip(&done) {
            assert_eq!(done.result, write.length as i32, "{settings}: {write:?}");
            let mut stored = vec![0; write.length as usize];
            disk.read_exact_at(&mut stored, write.offset).unwrap();
            let sent = &engine.buffer(write.slot)[..write.length as usize];
            assert!(stored == sent, "{settings}: {write:?} wrote other bytes");
        }
        let reads: Vec<Request> =
            batch.iter().map(|write| Request { op: Op::Read, ..*write }).collect();
        let expected: Vec<Vec<u8>> = (0..8).map(|slot| engine.buffer(slot).to_vec()).collect();
        (0..8).for_each(|slot| engine.buffer(slot).fill(0));
        for (read, done) in reads.iter().zip(run(&mut engine, &reads).unwrap()) {
            assert_eq!(done.result, read.length as i32, "{settings}: {read:?}");
            let length = read.length as usize;
            let got = &engine.buffer(read.slot)[..length];
            assert!(got == &expected[read.slot as usize][..length], "{settings}: {read:?}");
        }
    }
}

#[test]
fn iscsi_moves_the_right_bytes_whatever_is_negotiated() {
    let test = "iscsi_moves_the_right_bytes_whatever_is_negotiated";
    let Some(server) = Tgtd::start(test) else { return };
    for r2t in ["Yes", "No"] {
        for immediate in ["Yes", "No"] {
            for (segment, burst, first) in [
                ("8192", "262144", "65536"),
                ("262144", "1048576", "262144"),
                ("512", "1536", "1024"),
            ] {
                server.negotiates("InitialR2T", r2t);
                server.negotiates("ImmediateData", immediate);
                server.negotiates("MaxRecvDataSegmentLength", segment);
                server.negotiates("MaxBurstLength", burst);
                server.negotiates("FirstBurstLength", first);
                let settings =
                    format!("R2T {r2t}, immediate {immediate}, {segment}/{burst}/{first}");
                moves_the_right_bytes(&server, &settings);
            }
        }
    }
}

#[test]
fn iscsi_durable_writes_and_flushes_succeed() {
    let Some(server) = Tgtd::start("iscsi_durable_writes_and_flushes_succeed") else { return };
    for fua in [true, false] {
        let access = Access { durable: !fua, ..server.access(true) };
        let target = HostTarget::connect(access).unwrap();
        let options = EngineOptions { fua, ..EngineOptions::default() };
        let mut engine = engine_with(&target, 4, 4096, options).unwrap();
        let batch: Vec<Request> =
            (0..4).map(|slot| request(Op::Write, slot, u64::from(slot) * 4096, 4096)).collect();
        for _ in 0..10 {
            assert!(run(&mut engine, &batch).unwrap().iter().all(|done| done.result == 4096));
            assert!(engine.flush().unwrap());
        }
    }
}

#[test]
fn iscsi_uses_several_sessions_for_a_deep_queue() {
    let Some(server) = Tgtd::start("iscsi_uses_several_sessions_for_a_deep_queue") else { return };
    let target = HostTarget::connect(server.access(false)).unwrap();
    let mut engine = engine(&target, 1024, 512).unwrap();
    let batch: Vec<Request> =
        (0..1024).map(|slot| request(Op::Read, slot, u64::from(slot) * 512, 512)).collect();
    for _ in 0..10 {
        let done = run(&mut engine, &batch).unwrap();
        assert!(done.iter().all(|done| done.result == 512));
        for slot in 0..1024 {
            let position = u64::from_le_bytes(engine.buffer(slot)[..8].try_into().unwrap());
            assert_eq!(position, u64::from(slot) * 512);
        }
    }
}

#[test]
fn iscsi_completes_a_huge_request_in_parts() {
    let Some(server) = Tgtd::start("iscsi_completes_a_huge_request_in_parts") else { return };
    let huge = 40 << 20;
    File::options().write(true).open(server.disk()).unwrap().set_len(huge).unwrap();
    server.admin("logicalunit --op delete --tid 1 --lun 1");
    let file = server.disk();
    server.admin(&format!("logicalunit --op new --tid 1 --lun 1 -b {}", file.display()));
    let target = HostTarget::connect(server.access(true)).unwrap();
    let most = target.remote_info().unwrap().request_bytes_max;
    let mut engine = engine(&target, 1, huge as u32).unwrap();
    for op in [Op::Write, Op::Read] {
        let (mut at, mut parts) = (0, 0);
        while at < huge as u32 {
            let rest = Request { within: at, ..request(op, 0, at.into(), huge as u32 - at) };
            let result = run(&mut engine, &[rest]).unwrap()[0].result;
            assert!(result > 0 && result as u32 <= most, "{op}: {result}");
            at += result as u32;
            parts += 1;
        }
        assert_eq!(parts, (huge as u32).div_ceil(most));
    }
}

#[test]
fn iscsi_connects_again_right_away() {
    let Some(server) = Tgtd::start("iscsi_connects_again_right_away") else { return };
    for round in 0..30_u32 {
        let target = HostTarget::connect(server.access(true)).unwrap();
        let mut engine = engine(&target, 16, 65_536).unwrap();
        let batch: Vec<Request> = (0..16)
            .map(|slot| request(Op::ALL[slot as usize % 2], slot, u64::from(slot) << 16, 65_536))
            .collect();
        // The engine is dropped while requests are in flight.
        engine.submit_and_wait(&batch, round % 17, None, &mut Vec::new()).unwrap();
    }
}

#[test]
fn iscsi_names_what_is_wrong() {
    let Some(server) = Tgtd::start("iscsi_names_what_is_wrong") else { return };
    let wrong = server.refusal(server.access_to("iqn.2026-01.test:other/1", false));
    assert!(wrong.contains("no target 'iqn.2026-01.test:other'"), "{wrong}");
    let wrong = server.refusal(server.access_to(&format!("{NAME}/7"), false));
    assert!(wrong.contains("the target has no unit 7"), "{wrong}");
    let wrong = server.refusal(server.access_to(&format!("{NAME}/0"), false));
    assert!(wrong.contains("unit 0 is not a disk but 'IET Controller'"), "{wrong}");
    let wrong = server.refusal(server.access_to(NAME, false));
    assert!(wrong.contains("is not a logical unit number"), "{wrong}");

    server.admin("logicalunit --op update --tid 1 --lun 1 --params readonly=1");
    let wrong = server.refusal(server.access(true));
    assert!(wrong.contains("the disk is write-protected"), "{wrong}");
    HostTarget::connect(server.access(false)).unwrap();

    server.admin("target --op unbind --tid 1 --initiator-address ALL");
    server.admin("target --op bind --tid 1 --initiator-address 192.0.2.1");
    let wrong = server.refusal(server.access(false));
    assert!(wrong.contains("admits this initiator"), "{wrong}");
    assert_eq!(wrong.lines().count(), 1);
}

#[test]
fn iscsi_logs_in_with_a_password() {
    let Some(server) = Tgtd::start("iscsi_logs_in_with_a_password") else { return };
    let with = |user: &str, password: &str| {
        let (user, password) = (user.to_owned(), password.to_owned());
        Access { credentials: Some(Credentials { user, password }), ..server.access(true) }
    };
    // The target does not require a password yet.
    HostTarget::connect(with(USER, PASSWORD)).unwrap();
    server.asks_for_a_password();
    HostTarget::connect(with(USER, PASSWORD)).unwrap();
    for access in [with(USER, "another secret"), with("otto", PASSWORD)] {
        let wrong = server.refusal(access);
        assert!(wrong.contains("the user or the password"), "{wrong}");
        assert!(!wrong.contains("secret"), "{wrong}");
    }
    let wrong = server.refusal(server.access(true));
    assert!(wrong.contains("requires a user and a password"), "{wrong}");
}

/// Reads once without an error, calls `then`, and reads until an error occurs. Returns the error.
fn reads_until_it_fails(mut engine: HostEngine, then: impl FnOnce()) -> Error {
    let batch: Vec<Request> =
        (0..16).map(|slot| request(Op::Read, slot, u64::from(slot) << 16, 65_536)).collect();
    run(&mut engine, &batch).unwrap();
    then();
    for _ in 0..1000 {
        if let Err(error) = engine.submit_and_wait(&batch, 16, None, &mut Vec::new()) {
            return error;
        }
    }
    panic!("all reads succeeded");
}

#[test]
fn iscsi_reports_a_target_that_goes_away_or_falls_silent() {
    let test = "iscsi_reports_a_target_that_goes_away_or_falls_silent";
    let Some(server) = Tgtd::start(test) else { return };
    let short = format!("iscsi://127.0.0.1:{}/{NAME}/1?timeout=3", server.port);
    let access = Access { address: short.parse().unwrap(), ..server.access(false) };
    let target = HostTarget::connect(access).unwrap();
    let stopped = engine(&target, 16, 65_536).unwrap();
    let killed = engine(&target, 16, 65_536).unwrap();
    let error = reads_until_it_fails(stopped, || server.daemon.signal(libc::SIGSTOP)).to_string();
    assert!(error.contains("did not answer for 3 s"), "{error}");
    server.daemon.signal(libc::SIGCONT);
    let error = reads_until_it_fails(killed, || server.daemon.signal(libc::SIGKILL)).to_string();
    assert!(error.contains("closed the connection"), "{error}");
}

#[test]
#[ignore = "takes 20 s"]
fn iscsi_answers_pings_and_flushes_after_a_pause() {
    let test = "iscsi_answers_pings_and_flushes_after_a_pause";
    let Some(server) = Tgtd::start(test) else { return };
    server.negotiates("nop_interval", "1");
    server.negotiates("nop_count", "2");
    let target = HostTarget::connect(server.access(true)).unwrap();
    let mut engine = engine(&target, 1, 512).unwrap();
    let clock = Monotonic::new();
    let end_ns = clock.now_ns() + 20_000_000_000;
    while clock.now_ns() < end_ns {
        assert_eq!(run(&mut engine, &[request(Op::Read, 0, 0, 512)]).unwrap()[0].result, 512);
        sleep_ms(10);
    }
    assert!(engine.flush().unwrap());
}
