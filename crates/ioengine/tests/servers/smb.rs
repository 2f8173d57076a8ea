//! Tests the SMB 2.1 client with Samba's smbd.
//!
//! The server stores its configuration, databases and sockets in a temporary directory, and listens
//! on a port of the loopback interface. The server needs root, and root is also its only user.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "what is measured is printed")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ioengine::conformance::{
    a_deadline_returns_and_loses_nothing, a_dropped_engine_leaves_memory_alone,
    a_read_at_the_end_is_short_and_past_it_empty, errors_reach_the_right_request,
    polling_does_not_wait, reads_bring_the_bytes_of_their_offset,
    the_rest_of_a_request_lands_behind_the_first_part, write_positions, writes_land_where_they_say,
};
use ioengine::network::{Access, Credentials};
use ioengine::{Completion, Engine, ErrorKind, HostTarget, Op, Request, Target};
use tempfile::TempDir;

use crate::fixture::{Process, engine, free_port, has_program, request, run, skipped};

const PROGRAM: &str = "smbd";
const FILE_BYTES: u64 = 24 << 20;
const PASSWORD: &str = "not a secret";
/// Value of the flag O_SYNC of open(2), which includes O_DSYNC.
const O_SYNC: u32 = 0o4_010_000;

/// A running server. The order of the fields matters: the process must end before its directory is
/// removed.
struct Server {
    process: Process,
    port: u16,
    folder: TempDir,
}

impl Server {
    /// Starts a server with additional configuration lines. If that is impossible, reports the test
    /// as skipped and returns None.
    fn start(test: &str, further: &str) -> Option<Server> {
        let test = format!("servers-smb-{test}");
        let skip = |reason: &str| {
            skipped(&test, reason);
            None
        };
        // SAFETY: geteuid has no arguments and always succeeds.
        if unsafe { libc::geteuid() } != 0 {
            return skip("the server needs root");
        }
        if !has_program(PROGRAM) || !has_program("smbpasswd") {
            return skip("smbd or smbpasswd is not installed");
        }
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (path, port) = (folder.path().to_path_buf(), free_port());
        for name in ["share/folder", "state"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        for name in ["folder/positions", "written"] {
            write_positions(&mut File::create(path.join("share").join(name)).unwrap(), FILE_BYTES);
        }
        let configuration = path.join("smb.conf");
        let text = configuration_text(&path.to_string_lossy(), port, further);
        fs::write(&configuration, text).unwrap();
        if !add_user(&configuration) {
            return skip("smbpasswd cannot add a user");
        }
        let arguments = ["--foreground", "--no-process-group", "--configfile"];
        let mut arguments: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        arguments.push(configuration.as_os_str());
        let mut process = Process::start(PROGRAM, &arguments).unwrap();
        if !process.is_listening(port) {
            return skip("the server does not start");
        }
        Some(Server { process, port, folder })
    }

    /// Returns the address of a path, with the correct credentials.
    fn access(&self, path: &str) -> Access {
        self.access_as("root", PASSWORD, path)
    }

    fn access_as(&self, user: &str, password: &str, path: &str) -> Access {
        let credentials = Credentials { user: user.to_owned(), password: password.to_owned() };
        Access { credentials: Some(credentials), ..anonymous(self.port, path) }
    }

    fn file(&self, path: &str) -> PathBuf {
        self.folder.path().join("share").join(path)
    }
}

fn anonymous(port: u16, path: &str) -> Access {
    let address = format!("smb://127.0.0.1:{port}/{path}").parse().unwrap();
    Access { address, credentials: None, writable: false, durable: false }
}

fn writable(access: Access) -> HostTarget {
    HostTarget::connect(Access { writable: true, ..access }).unwrap()
}

fn refused(access: Access) -> String {
    let error = HostTarget::connect(access).expect_err("this cannot be opened");
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    error.to_string()
}

fn features(target: &HostTarget) -> &str {
    &target.remote_info().unwrap().features
}

fn configuration_text(folder: &str, port: u16, further: &str) -> String {
    let share = |name: &str, settings: &str| {
        format!("[{name}]\npath = {folder}/share\nforce user = root\n{settings}\n")
    };
    let state = ["lock directory", "state directory", "cache directory", "pid directory"];
    let state = state.map(|name| format!("{name} = {folder}/state\n")).concat();
    let global = format!(
        "[global]\nserver role = standalone server\nworkgroup = TEST\n\
         interfaces = 127.0.0.1\nbind interfaces only = yes\nsmb ports = {port}\n\
         disable netbios = yes\ndisable spoolss = yes\nload printers = no\n\
         private dir = {folder}/state\nncalrpc dir = {folder}/state/ncalrpc\n{state}\
         passdb backend = tdbsam:{folder}/state/passdb.tdb\nlog file = {folder}/state/log\n\
         map to guest = bad user\n{further}\n"
    );
    let shares = [
        share("data", "writable = yes"),
        share("read-only", "writable = no"),
        share("guests", "writable = yes\nguest ok = yes"),
        share("nobody", "writable = yes\ninvalid users = root"),
    ];
    global + &shares.concat()
}

/// Adds the user root to the server. Returns whether that succeeded.
fn add_user(configuration: &Path) -> bool {
    let mut command = Command::new("smbpasswd");
    command.arg("-c").arg(configuration).args(["-s", "-a", "root"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let input = format!("{PASSWORD}\n{PASSWORD}\n");
    let written = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait().is_ok_and(|status| status.success()) && written.is_ok()
}

/// Runs the conformance suite on two targets: the read tests on `read`, the write tests on `write`.
fn conforms(read: &HostTarget, write: &HostTarget) {
    assert_eq!(read.size_bytes(), FILE_BYTES);
    let make = |depth, slot_bytes| engine(read, depth, slot_bytes);
    reads_bring_the_bytes_of_their_offset(&make, FILE_BYTES);
    a_read_at_the_end_is_short_and_past_it_empty(&make, FILE_BYTES);
    the_rest_of_a_request_lands_behind_the_first_part(&make);
    errors_reach_the_right_request(&make);
    a_deadline_returns_and_loses_nothing(&make);
    polling_does_not_wait(&make);
    a_dropped_engine_leaves_memory_alone(&make);
    writes_land_where_they_say(&|depth, slot_bytes| engine(write, depth, slot_bytes));
    read.sync().unwrap();
    write.sync().unwrap();
}

#[test]
fn the_client_of_smb_conforms_and_signs() {
    let Some(server) = Server::start("conforms", "server signing = mandatory") else { return };
    let read = HostTarget::connect(server.access("data/folder/positions")).unwrap();
    conforms(&read, &writable(server.access("data/written")));
    assert!(features(&read).starts_with("SMB 2.1, signed, 5"), "{}", features(&read));
    assert!(features(&read).ends_with("requests up to 8192 KiB"), "{}", features(&read));
}

#[test]
fn guests_and_anonymous_users_are_served_without_signatures() {
    let Some(server) = Server::start("guests", "") else { return };
    let unknown = |path| server.access_as("no-such-user", "?", path);
    let read = HostTarget::connect(unknown("guests/folder/positions")).unwrap();
    conforms(&read, &writable(unknown("guests/written")));
    assert!(features(&read).starts_with("SMB 2.1, guest, "), "{}", features(&read));
    let path = "guests/folder/positions";
    let read = HostTarget::connect(anonymous(server.port, path)).unwrap();
    conforms(&read, &writable(anonymous(server.port, "guests/written")));
    assert!(features(&read).starts_with("SMB 2.1, anonymous, "), "{}", features(&read));
}

#[test]
fn what_is_wrong_is_named() {
    let Some(server) = Server::start("names", "") else { return };
    let named = |access: Access, what: &str| {
        let message = refused(access);
        assert!(message.contains(what), "{message}");
        assert!(!message.contains(PASSWORD) && message.lines().count() == 1, "{message}");
    };
    named(server.access("data/no/file"), "there is no file 'no/file' in the share 'data'");
    named(server.access("data/folder/none"), "there is no file 'folder/none'");
    named(server.access("data/folder"), "'folder' is a directory");
    named(server.access("nothing/file"), "there is no share 'nothing'");
    named(server.access("IPC$/file"), "the share 'IPC$' is not a file share");
    named(server.access("data"), "the address must contain a share and a file");
    named(server.access("data//"), "the address must contain a share and a file");
    named(server.access("nobody/written"), "denies this user access to the share 'nobody'");
    let wrong = server.access_as("root", "another", "data/written");
    named(wrong, "refused the user 'root' or the password; check the user, and");
    named(anonymous(server.port, "data/written"), "denies this user access to the share 'data'");
    let access = Access { writable: true, ..server.access("read-only/written") };
    named(access, "the share 'read-only' is read-only for the user 'root'");
    assert!(HostTarget::connect(server.access("read-only/written")).is_ok());
}

#[test]
fn a_server_without_the_dialect_is_named() {
    let further = "server min protocol = SMB3_00";
    let Some(server) = Server::start("dialect", further) else { return };
    let message = refused(server.access("data/written"));
    assert!(message.contains("the server does not allow SMB 2.1; allow version"), "{message}");
}

#[test]
fn the_user_of_the_address_is_used_with_its_domain() {
    let Some(server) = Server::start("user", "") else { return };
    for user in ["root", "TEST%5Croot", "ROOT"] {
        let address = format!("smb://{user}@127.0.0.1:{}/data/written", server.port);
        let access = server.access_as("somebody", PASSWORD, "data/written");
        let access = Access { address: address.parse().unwrap(), ..access };
        let target = HostTarget::connect(access).unwrap();
        assert!(features(&target).contains("signed"), "{user}: {}", features(&target));
    }
}

#[test]
fn large_requests_transfer_in_parts_of_8_mib() {
    let Some(server) = Server::start("large", "") else { return };
    let target = writable(server.access("data/written"));
    let (depth, part) = (4, 8 << 20);
    let mut large = engine(&target, depth, 2 * part).unwrap();
    for slot in 0..depth {
        large.buffer(slot).fill(slot as u8 + 1);
    }
    let offset = |slot: u32| u64::from(slot % 2 * part + slot / 2 * (part / 2));
    // A write of 16 MiB transfers only the first 8 MiB before it completes. Each of the reads below
    // requests 8 MiB and must transfer all 8 MiB.
    let written = run(&mut large, &[request(Op::Write, 1, offset(1), 2 * part)]).unwrap();
    assert_eq!(written, [Completion { slot: 1, result: part as i32 }]);
    let all: Vec<Request> =
        (0..depth).map(|slot| request(Op::Read, slot, offset(slot), part)).collect();
    let done = run(&mut large, &all).unwrap();
    assert!(done.iter().all(|completion| completion.result == part as i32), "{done:?}");
    let content = fs::read(server.file("written")).unwrap();
    for slot in 0..depth {
        let start = offset(slot) as usize;
        let read = &large.buffer(slot)[..part as usize];
        assert!(*read == content[start..start + part as usize], "slot {slot}");
    }
    assert!(content[part as usize..2 * part as usize].iter().all(|byte| *byte == 2));
}

/// Returns the open(2) flags of all open descriptors of a file, in all processes of this host.
fn open_flags(file: &Path) -> Vec<u32> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        for descriptor in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            if fs::read_link(descriptor.path()).is_ok_and(|target| target == file) {
                let information = process.path().join("fdinfo").join(descriptor.file_name());
                let text = fs::read_to_string(information).unwrap_or_default();
                let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
                found.extend(flags.map(|flags| u32::from_str_radix(flags.trim(), 8).unwrap()));
            }
        }
    }
    found
}

/// Writes through an engine, and returns whether the server has the file open with O_SYNC.
fn opened_with_o_sync(server: &Server, durable: bool) -> bool {
    let target = writable(Access { durable, ..server.access("data/written") });
    let mut engine = engine(&target, 1, 4096).unwrap();
    let done = run(&mut engine, &[request(Op::Write, 0, 0, 4096)]).unwrap();
    assert_eq!(done, [Completion { slot: 0, result: 4096 }]);
    let flags = open_flags(&server.file("written"));
    let [flags] = flags.try_into().expect("only the engine has the file open");
    flags & O_SYNC == O_SYNC
}

#[test]
fn only_durable_writes_reach_a_file_that_the_server_opened_with_o_sync() {
    for durable in [true, false] {
        let Some(server) = Server::start("durable", "") else { return };
        assert_eq!(opened_with_o_sync(&server, durable), durable);
    }
}

#[test]
fn a_file_can_be_opened_again_at_once() {
    let Some(server) = Server::start("again", "") else { return };
    for round in 0..20 {
        let target = writable(server.access("data/written"));
        let mut engine = engine(&target, 4, 4096).unwrap();
        let offset = u64::from(round) << 12;
        // In most rounds, the engine is dropped while requests are outstanding.
        let batch = [request(Op::Read, 0, offset, 4096), request(Op::Write, 1, offset, 4096)];
        engine.submit_and_wait(&batch, round % 3, None, &mut Vec::new()).unwrap();
    }
}

#[test]
fn a_server_that_is_killed_gives_one_error() {
    let Some(server) = Server::start("killed", "") else { return };
    let target = writable(server.access("data/folder/positions?timeout=20"));
    let mut engine = engine(&target, 16, 4096).unwrap();
    let batch: Vec<Request> =
        (0..16).map(|slot| request(Op::Read, slot, u64::from(slot) << 12, 4096)).collect();
    assert!(run(&mut engine, &batch).is_ok());
    server.process.signal(libc::SIGKILL);
    let error = run(&mut engine, &batch).expect_err("the server is gone");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("closed the connection"), "{error}");
    assert!(engine.flush().is_err() && target.sync().is_err());
}

#[test]
fn a_server_that_hangs_gives_an_error_after_the_time_limit() {
    let Some(server) = Server::start("hangs", "") else { return };
    let read = HostTarget::connect(server.access("data/folder/positions?timeout=3")).unwrap();
    let mut engine = engine(&read, 1, 4096).unwrap();
    server.process.signal(libc::SIGSTOP);
    let error = run(&mut engine, &[request(Op::Read, 0, 0, 4096)]).err();
    server.process.signal(libc::SIGCONT);
    let error = error.expect("the server hangs").to_string();
    assert!(error.contains("did not answer for 3 s"), "{error}");
}

/// Starts a proxy that forwards two connections to a server. In the data that the server sends on
/// each connection, the proxy inverts a bit of the byte at position `corrupted`. Returns the port
/// of the proxy.
fn corrupting_proxy(port: u16, corrupted: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        // The target opens the first connection, and the engine opens the second.
        for client in listener.incoming().take(2).flatten() {
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            for stream in [&client, &server] {
                stream.set_nodelay(true).unwrap();
            }
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || forward(from, to, usize::MAX));
            std::thread::spawn(move || forward(server, client, corrupted));
        }
    });
    proxy
}

/// Forwards data until the connection ends, and inverts a bit of the byte at position `corrupted`.
fn forward(mut from: TcpStream, mut to: TcpStream, corrupted: usize) {
    let (mut buffer, mut position) = ([0; 4096], 0);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if (position..position + count).contains(&corrupted) {
            buffer[corrupted - position] ^= 0x10;
        }
        position += count;
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn data_that_was_changed_on_the_way_is_refused() {
    let Some(server) = Server::start("changed", "") else { return };
    let direct = server.access("data/folder/positions");
    for (corrupted, is_noticed) in [(usize::MAX, false), (100_000, true)] {
        let proxy = corrupting_proxy(server.port, corrupted);
        let address = format!("smb://127.0.0.1:{proxy}/data/folder/positions?timeout=20");
        let access = Access { address: address.parse().unwrap(), ..direct.clone() };
        let target = HostTarget::connect(access).unwrap();
        let mut engine = engine(&target, 1, 256 << 10).unwrap();
        match run(&mut engine, &[request(Op::Read, 0, 0, 256 << 10)]) {
            Ok(done) => assert!(!is_noticed, "{done:?}"),
            Err(error) => {
                let message = error.to_string();
                assert!(is_noticed && message.contains("a wrong signature"), "{message}");
            }
        }
    }
}
