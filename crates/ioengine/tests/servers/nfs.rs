//! Tests the NFS 4.1 client with nfs-ganesha, a server in user space.
//!
//! The server exports two subdirectories of a temporary directory. One of the exports is read-only.
//! The server needs root. If rpcbind is running, the tests are skipped, because the server would
//! register with rpcbind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use ioengine::conformance::{
    a_deadline_returns_and_loses_nothing, a_dropped_engine_leaves_memory_alone,
    a_read_at_the_end_is_short_and_past_it_empty, errors_reach_the_right_request,
    polling_does_not_wait, reads_bring_the_bytes_of_their_offset,
    the_rest_of_a_request_lands_behind_the_first_part, write_positions, writes_land_where_they_say,
};
use ioengine::network::Access;
use ioengine::{Completion, Engine, Error, ErrorKind, HostEngine, HostTarget, Op, Request};
use tempfile::TempDir;

use crate::fixture::{Process, engine, free_port, has_program, request, run, skipped, sleep_ms};

const PROGRAM: &str = "ganesha.nfsd";
const FILE_BYTES: u64 = 8 << 20;

/// A running server. The order of the fields matters: the process must end before its directory is
/// removed.
struct Server {
    process: Process,
    port: u16,
    folder: TempDir,
}

impl Server {
    /// Starts a server with a lease of `lease_s` seconds. If that is impossible, reports the test
    /// as skipped and returns None.
    fn start(test: &str, lease_s: u32) -> Option<Server> {
        let test = format!("servers-nfs-{test}");
        let skip = |reason: &str| {
            skipped(&test, reason);
            None
        };
        // SAFETY: geteuid has no arguments and always succeeds.
        if unsafe { libc::geteuid() } != 0 {
            return skip("the server needs root");
        }
        if !has_program(PROGRAM) {
            return skip("ganesha.nfsd is not installed");
        }
        if TcpStream::connect("127.0.0.1:111").is_ok() {
            return skip("rpcbind is running, and the server would register with it");
        }
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (path, port) = (folder.path().to_path_buf(), free_port());
        for name in ["open/folder", "read-only", "recovery"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        for name in ["open/folder/positions", "open/written", "read-only/positions"] {
            write_positions(&mut File::create(path.join(name)).unwrap(), FILE_BYTES);
        }
        symlink("written", path.join("open/link")).unwrap();
        let configuration = path.join("ganesha.conf");
        fs::write(&configuration, configuration_text(&path.to_string_lossy(), port, lease_s))
            .unwrap();
        let (log, pid) = (path.join("ganesha.log"), path.join("ganesha.pid"));
        let arguments = [
            "-F".as_ref(),
            "-f".as_ref(),
            configuration.as_os_str(),
            "-L".as_ref(),
            log.as_os_str(),
            "-p".as_ref(),
            pid.as_os_str(),
        ];
        let mut process = Process::start(PROGRAM, &arguments).unwrap();
        if !process.is_listening(port) {
            let log = fs::read_to_string(log).unwrap_or_default();
            return skip(&format!("the server does not start: {:?}", log.lines().last()));
        }
        Some(Server { process, port, folder })
    }

    fn access(&self, path: &str) -> Access {
        let address = format!("nfs://127.0.0.1:{}/{path}", self.port).parse().unwrap();
        Access { address, credentials: None, writable: false, durable: false }
    }

    fn connect(&self, path: &str) -> HostTarget {
        HostTarget::connect(self.access(path)).unwrap()
    }

    fn connect_writable(&self, durable: bool) -> HostTarget {
        let access = Access { writable: true, durable, ..self.access("open/written?timeout=10") };
        HostTarget::connect(access).unwrap()
    }

    fn refused(&self, path: &str, writable: bool) -> String {
        let access = Access { writable, ..self.access(path) };
        HostTarget::connect(access).expect_err("this cannot be opened").to_string()
    }

    fn file(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }
}

fn configuration_text(folder: &str, port: u16, lease_s: u32) -> String {
    let export = |number: u32, name: &str, access: &str| {
        format!(
            "EXPORT {{ Export_Id = {number}; Path = \"{folder}/{name}\"; Pseudo = \"/{name}\"; \
             Access_Type = {access}; Squash = no_root_squash; SecType = sys; Protocols = 4; \
             Transports = TCP; FSAL {{ Name = VFS; }} }}\n"
        )
    };
    format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; \
         Enable_UDP = false; Enable_NLM = false; Enable_RQUOTA = false; \
         Dbus_Name_Prefix = \"halfpower{port}\"; }}\n\
         NFSv4 {{ Graceless = true; Lease_Lifetime = {lease_s}; Minor_Versions = 1; \
         RecoveryBackend = fs; RecoveryRoot = \"{folder}/recovery\"; }}\n{}{}",
        export(1, "open", "RW"),
        export(2, "read-only", "RO")
    )
}

#[test]
fn the_client_of_nfs_conforms() {
    let Some(server) = Server::start("conforms", 60) else { return };
    let target = server.connect("open/folder/positions");
    let info = target.remote_info().unwrap();
    assert_eq!((info.size_bytes, info.block_bytes), (FILE_BYTES, 1));
    assert!(info.features.starts_with("NFS 4.1, 64 slots, requests up to "), "{}", info.features);
    let make = |depth, bytes| engine(&target, depth, bytes);
    reads_bring_the_bytes_of_their_offset(&make, FILE_BYTES);
    a_read_at_the_end_is_short_and_past_it_empty(&make, FILE_BYTES);
    the_rest_of_a_request_lands_behind_the_first_part(&make);
    errors_reach_the_right_request(&make);
    a_deadline_returns_and_loses_nothing(&make);
    polling_does_not_wait(&make);
    a_dropped_engine_leaves_memory_alone(&make);
    for durable in [false, true] {
        let target = server.connect_writable(durable);
        writes_land_where_they_say(&|depth, bytes| engine(&target, depth, bytes));
        assert!(engine(&target, 4, 4096).unwrap().flush().unwrap());
    }
}

#[test]
fn more_requests_than_slots_use_a_second_connection() {
    let Some(server) = Server::start("second-connection", 60) else { return };
    let target = server.connect("open/folder/positions");
    let mut engine = engine(&target, 100, 4096).unwrap();
    assert!(engine.setup().features.ends_with("2 connections"), "{}", engine.setup().features);
    for round in 0..5 {
        let offset = |slot: u32| u64::from(slot * 5 + round) * 4096;
        let batch: Vec<Request> =
            (0..100).map(|slot| request(Op::Read, slot, offset(slot), 4096)).collect();
        for Completion { slot, result } in run(&mut engine, &batch).unwrap() {
            assert_eq!(result, 4096);
            assert_eq!(engine.buffer(slot)[..8], offset(slot).to_le_bytes());
        }
    }
}

#[test]
fn any_offset_and_length_may_be_read_and_written() {
    let Some(server) = Server::start("any-length", 60) else { return };
    let target = server.connect_writable(false);
    let mut expected = fs::read(server.file("open/written")).unwrap();
    let mut engine = engine(&target, 16, 4096).unwrap();
    for round in 1..5_u32 {
        let part =
            |slot: u32| (slot as usize * 6007 + round as usize, (slot * 61 + round) as usize);
        let batch = |op| -> Vec<Request> {
            let one = |slot| request(op, slot, part(slot).0 as u64, part(slot).1 as u32);
            (0..16).map(one).collect()
        };
        for slot in 0..16 {
            let (at, length) = part(slot);
            let byte = (slot * 10 + round) as u8;
            engine.buffer(slot).fill(byte);
            expected[at..at + length].fill(byte);
        }
        let whole = |done: Vec<Completion>| {
            done.iter().for_each(|c| assert_eq!(c.result as usize, part(c.slot).1));
        };
        whole(run(&mut engine, &batch(Op::Write)).unwrap());
        (0..16).for_each(|slot| engine.buffer(slot).fill(0xEE));
        whole(run(&mut engine, &batch(Op::Read)).unwrap());
        for slot in 0..16 {
            let (at, length) = part(slot);
            assert_eq!(engine.buffer(slot)[..length], expected[at..at + length]);
            assert!(engine.buffer(slot)[length..].iter().all(|byte| *byte == 0xEE));
        }
    }
    assert!(engine.flush().unwrap());
    assert!(fs::read(server.file("open/written")).unwrap() == expected, "the server's file");
}

#[test]
fn a_request_that_is_too_large_completes_in_parts() {
    let Some(server) = Server::start("parts", 60) else { return };
    let target = server.connect_writable(true);
    let largest = target.remote_info().unwrap().request_bytes_max;
    let mut engine = engine(&target, 2, 3 << 20).unwrap();
    for (slot, op) in [(0, Op::Read), (1, Op::Write)] {
        engine.buffer(slot).fill(7);
        let (mut within, mut parts) = (0, 0);
        while within < 3 << 20 {
            let offset = 4096 + u64::from(within);
            let rest = Request { within, ..request(op, slot, offset, (3 << 20) - within) };
            let moved = run(&mut engine, &[rest]).unwrap()[0].outcome().unwrap();
            assert!((1..=largest).contains(&moved), "{moved} of at most {largest} bytes");
            within += moved;
            parts += 1;
        }
        assert!(parts > 1);
    }
    for at in (0..3_usize << 20).step_by(512) {
        assert_eq!(engine.buffer(0)[at..at + 8], (4096 + at as u64).to_le_bytes());
    }
    let written = fs::read(server.file("open/written")).unwrap();
    assert!(written[4096..4096 + (3 << 20)].iter().all(|byte| *byte == 7));
    assert_eq!(written[..8], 0_u64.to_le_bytes());
    assert_eq!(written[4096 + (3 << 20)..][..8], (4096 + (3_u64 << 20)).to_le_bytes());
}

#[test]
fn what_cannot_be_opened_is_named_with_its_remedy() {
    let Some(server) = Server::start("refusals", 60) else { return };
    for (path, writable, expected) in [
        ("open/none", false, "looking up 'none': there is no such file or directory"),
        ("no-export/file", false, "looking up 'no-export': there is no such file or directory"),
        ("open/written/x", false, "looking up 'x': a part of the path is not a directory"),
        ("open/folder", false, "this is a directory; specify a file"),
        ("open/link", false, "this is a symbolic link; specify its target"),
        ("", false, "the address contains no file path"),
        ("read-only/positions", true, "the export is read-only (NFS4ERR_ROFS); use `rw=read`"),
    ] {
        let message = server.refused(path, writable);
        assert!(message.contains(expected), "{path}: {message}");
        assert!(message.starts_with("nfs://127.0.0.1:") && message.contains("; "), "{message}");
    }
    server.connect("read-only/positions");
}

/// Reads until an error occurs. Returns the error, which must be an I/O error.
fn first_error(engine: &mut HostEngine) -> Error {
    loop {
        let batch: Vec<Request> =
            (0..16).map(|slot| request(Op::Read, slot, u64::from(slot) * 4096, 4096)).collect();
        if let Err(error) = run(engine, &batch) {
            assert_eq!(error.kind(), ErrorKind::Io);
            return error;
        }
    }
}

#[test]
fn a_server_that_is_killed_ends_the_run_with_one_error() {
    let Some(server) = Server::start("killed", 60) else { return };
    let target = server.connect("open/folder/positions?timeout=20");
    let mut engine = engine(&target, 16, 4096).unwrap();
    let error = std::thread::scope(|scope| {
        let error = scope.spawn(|| first_error(&mut engine));
        sleep_ms(200);
        server.process.signal(libc::SIGKILL);
        error.join().unwrap()
    });
    assert!(error.to_string().contains("closed the connection"), "{error}");
}

#[test]
fn a_server_that_is_stopped_is_given_up_after_the_time_limit() {
    let Some(server) = Server::start("stopped", 60) else { return };
    let target = server.connect("open/folder/positions?timeout=1");
    let mut engine = engine(&target, 16, 4096).unwrap();
    server.process.signal(libc::SIGSTOP);
    let error = first_error(&mut engine);
    assert!(error.to_string().contains("did not answer for 1 s"), "{error}");
}

#[test]
fn an_idle_client_loses_its_session() {
    let Some(server) = Server::start("lease", 4) else { return };
    let target = server.connect_writable(false);
    let mut engine = engine(&target, 4, 4096).unwrap();
    let write = request(Op::Write, 0, 0, 4096);
    run(&mut engine, &[write]).unwrap();
    // The server discards a client only some time after the client's lease has expired, so each
    // attempt waits longer.
    let idle_and_write = |attempt: u64| {
        sleep_ms(attempt * 12_000);
        run(&mut engine, &[write]).err()
    };
    let error = (1..=4).find_map(idle_and_write).expect("the server discards its client");
    assert!(error.to_string().contains("discarded the session"), "{error}");
    assert!(error.to_string().contains("lease time of 4 s"), "{error}");
}
