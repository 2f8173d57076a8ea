//! Tests the S3 client with the server versitygw. The environment variable `HALFPOWER_VERSITYGW`
//! specifies the path of the program. Without the variable, the program must be in PATH.
//!
//! The server stores the bucket as a temporary directory and the objects as files in that
//! directory. It does not need root.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "the measurement is printed")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::PathBuf;

use ioengine::conformance::{
    a_deadline_returns_and_loses_nothing, a_dropped_engine_leaves_memory_alone,
    a_read_at_the_end_is_short_and_past_it_empty, errors_reach_the_right_request,
    polling_does_not_wait, reads_bring_the_bytes_of_their_offset,
    the_rest_of_a_request_lands_behind_the_first_part, write_positions,
};
use ioengine::network::object::{ObjectClient, PayloadSignature};
use ioengine::network::{Access, Credentials};
use ioengine::{Engine, Error, ErrorKind, HostTarget, Op, Request, Target};
use tempfile::TempDir;

use crate::fixture::{Process, engine, free_port, has_program, request, run, skipped};

const PROGRAM: &str = "versitygw";
const OBJECT_BYTES: u64 = 24 << 20;
const USER: &str = "a-user";
const SECRET: &str = "not+a/secret";
/// Minimum size of each part of a multipart upload except the last (bytes).
const PART_BYTES: usize = 5 << 20;

/// A running server. The order of the fields matters: the process must end before its directory is
/// removed.
struct Server {
    process: Process,
    port: u16,
    folder: TempDir,
}

impl Server {
    /// Starts a server with an object `folder/positions` in the bucket `data`. If that is
    /// impossible, reports the test as skipped and returns None.
    fn start(test: &str, further: &[&str]) -> Option<Server> {
        let test = format!("servers-s3-{test}");
        let skip = |reason: &str| {
            skipped(&test, reason);
            None
        };
        let named = std::env::var("HALFPOWER_VERSITYGW").ok();
        if named.is_none() && !has_program(PROGRAM) {
            return skip("versitygw is not installed");
        }
        let program = named.as_deref().unwrap_or(PROGRAM);
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["root/data/folder", "metadata"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let object = folder.path().join("root/data/folder/positions");
        write_positions(&mut File::create(object).unwrap(), OBJECT_BYTES);
        let port = free_port();
        let listen = format!("127.0.0.1:{port}");
        let mut arguments = vec!["--access", USER, "--secret", SECRET, "--port", &listen];
        arguments.extend(["--quiet"].iter().chain(further));
        arguments.extend(["posix", "--sidecar"]);
        let mut arguments: Vec<&OsStr> = arguments.into_iter().map(AsRef::as_ref).collect();
        let (metadata, root) = (folder.path().join("metadata"), folder.path().join("root"));
        arguments.extend([metadata.as_os_str(), root.as_os_str()]);
        let Ok(mut process) = Process::start(program, &arguments) else {
            return skip("versitygw cannot be started");
        };
        if !process.is_listening(port) {
            return skip("the server does not start");
        }
        Some(Server { process, port, folder })
    }

    /// Returns the address of a path, with the correct credentials.
    fn access(&self, path: &str) -> Access {
        self.access_as(USER, SECRET, path)
    }

    fn access_as(&self, user: &str, password: &str, path: &str) -> Access {
        let credentials = Credentials { user: user.to_owned(), password: password.to_owned() };
        Access { credentials: Some(credentials), ..self.anonymous(path) }
    }

    fn anonymous(&self, path: &str) -> Access {
        let address = format!("s3://127.0.0.1:{}/{path}", self.port).parse().unwrap();
        Access { address, credentials: None, writable: false, durable: false }
    }

    /// Connects a client that may write.
    fn client(&self, payload: PayloadSignature) -> ObjectClient {
        let access = Access { writable: true, ..self.access("data") };
        ObjectClient::connect(&access, payload).unwrap()
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.path().join("root/data").join(key)
    }
}

/// Returns 16 reads of 4 KiB, one for each slot.
fn reads() -> Vec<Request> {
    (0..16).map(|slot| request(Op::Read, slot, u64::from(slot) << 12, 4096)).collect()
}

/// Repeats an action until it fails, and returns the error. The first actions may succeed, because
/// a signal takes some time to end or stop the server.
fn first_error<T>(mut action: impl FnMut() -> Result<T, Error>) -> Error {
    (0..10_000).find_map(|_| action().err()).expect("the server is stopped")
}

/// Returns test data in which neighbouring bytes differ.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 251 + at) as u8).collect()
}

/// Runs the conformance suite on the object `folder/positions`.
fn conforms(target: &HostTarget) {
    assert_eq!(target.size_bytes(), OBJECT_BYTES);
    let make = |depth, slot_bytes| engine(target, depth, slot_bytes);
    reads_bring_the_bytes_of_their_offset(&make, OBJECT_BYTES);
    a_read_at_the_end_is_short_and_past_it_empty(&make, OBJECT_BYTES);
    the_rest_of_a_request_lands_behind_the_first_part(&make);
    errors_reach_the_right_request(&make);
    a_deadline_returns_and_loses_nothing(&make);
    polling_does_not_wait(&make);
    a_dropped_engine_leaves_memory_alone(&make);
    target.sync().unwrap();
}

#[test]
fn the_client_of_s3_conforms() {
    let Some(server) = Server::start("conforms", &["--keep-alive"]) else { return };
    let target = HostTarget::connect(server.access("data/folder/positions")).unwrap();
    conforms(&target);
    let features = &target.remote_info().unwrap().features;
    assert_eq!(features, "S3 over HTTP/1.1, signed, 1 outstanding request per connection");
}

#[test]
fn a_server_without_keep_alive_is_read_over_new_connections() {
    let Some(server) = Server::start("closes", &[]) else { return };
    let target = HostTarget::connect(server.access("data/folder/positions")).unwrap();
    conforms(&target);
    let features = &target.remote_info().unwrap().features;
    assert!(features.ends_with("closed by the server after each request"), "{features}");
    let mut client = server.client(PayloadSignature::Unsigned);
    for _ in 0..3 {
        client.put("again", b"x").unwrap();
    }
    assert_eq!(client.reconnects(), 2);
}

#[test]
fn large_reads_bring_the_bytes_of_the_object() {
    let Some(server) = Server::start("large", &["--keep-alive"]) else { return };
    let target = HostTarget::connect(server.access("data/folder/positions")).unwrap();
    let length = 16 << 20;
    let mut engine = engine(&target, 2, length).unwrap();
    let batch = [request(Op::Read, 0, 512, length), request(Op::Read, 1, 8 << 20, length)];
    let done = run(&mut engine, &batch).unwrap();
    assert!(done.iter().all(|completion| completion.result == length as i32), "{done:?}");
    let object = fs::read(server.file("folder/positions")).unwrap();
    for Request { slot, offset, .. } in batch {
        let expected = &object[offset as usize..][..length as usize];
        assert!(engine.buffer(slot)[..length as usize] == *expected, "slot {slot}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let Some(server) = Server::start("names", &["--keep-alive"]) else { return };
    let named = |access: Access, what: &str| {
        let message = HostTarget::connect(access).expect_err("must be refused").to_string();
        assert!(message.contains(what), "{message}");
        assert!(!message.contains(SECRET) && message.lines().count() == 1, "{message}");
    };
    named(server.access("data/none"), "there is no such object (opening the object: NoSuchKey");
    named(server.access("nothing/x"), "there is no bucket 'nothing'");
    named(server.access("data"), "the address contains no object key");
    let key = "data/folder/positions";
    let wrong = "the secret of the access key 'a-user' is wrong";
    named(server.access_as(USER, "another", key), wrong);
    let unknown = "the server does not know the access key 'nobody'";
    named(server.access_as("nobody", SECRET, key), unknown);
    named(server.anonymous(key), "the server refuses anonymous access");
    let writable = Access { writable: true, ..server.access(key) };
    named(writable, "objects cannot be written in place");
    let elsewhere = server.access("data/folder/positions?region=eu-west-1");
    named(elsewhere, "HTTP status 400");
}

#[test]
fn a_server_that_is_killed_gives_one_error() {
    let Some(server) = Server::start("killed", &["--keep-alive"]) else { return };
    let target = HostTarget::connect(server.access("data/folder/positions")).unwrap();
    let mut engine = engine(&target, 16, 4096).unwrap();
    run(&mut engine, &reads()).unwrap();
    let mut client = server.client(PayloadSignature::Unsigned);
    client.put("small", b"x").unwrap();
    server.process.signal(libc::SIGKILL);
    let error = first_error(|| run(&mut engine, &reads()));
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", server.port)), "{error}");
    assert_eq!(first_error(|| client.put("small", b"x")).kind(), ErrorKind::Io);
}

#[test]
fn a_server_that_hangs_gives_an_error_after_the_time_limit() {
    let Some(server) = Server::start("hangs", &["--keep-alive"]) else { return };
    let address = "data/folder/positions?timeout=3";
    let target = HostTarget::connect(server.access(address)).unwrap();
    let mut engine = engine(&target, 1, 4096).unwrap();
    let access = server.access("data?timeout=3");
    let mut client = ObjectClient::connect(&access, PayloadSignature::Unsigned).unwrap();
    client.head("folder/positions").unwrap();
    server.process.signal(libc::SIGSTOP);
    let read = first_error(|| run(&mut engine, &[request(Op::Read, 0, 0, 4096)]));
    let head = first_error(|| client.head("folder/positions"));
    server.process.signal(libc::SIGCONT);
    for error in [read.to_string(), head.to_string()] {
        assert!(error.contains("did not answer for 3 s"), "{error}");
    }
}

#[test]
fn objects_are_stored_read_listed_and_removed() {
    let Some(server) = Server::start("objects", &["--keep-alive"]) else { return };
    for (payload, key) in
        [(PayloadSignature::Unsigned, "x/plain"), (PayloadSignature::Signed, "x/a & <b>'\"ä+% c")]
    {
        let mut client = server.client(payload);
        let mut into = vec![0; 3 << 20];
        for bytes in [0, 1, 4096, 3 << 20] {
            let bytes = content(bytes);
            let put = client.put(key, &bytes).unwrap();
            assert!(put.first_byte_ns <= put.total_ns);
            assert!(fs::read(server.file(key)).unwrap() == bytes, "the server's file");
            assert_eq!(client.head(key).unwrap().value, bytes.len() as u64);
            let got = client.get(key, &mut into).unwrap();
            assert_eq!(got.value, bytes.len() as u64);
            assert!(into[..bytes.len()] == bytes && got.first_byte_ns <= got.total_ns);
        }
        assert_eq!(client.list("x/", None).unwrap().value.keys, [key]);
        client.delete(key).unwrap();
        assert!(client.list("x/", None).unwrap().value.keys.is_empty());
        let missing = client.get(key, &mut into).unwrap_err().to_string();
        assert!(missing.contains("NoSuchKey, HTTP status 404"), "{missing}");
        assert_eq!(client.reconnects(), 0, "all requests use one connection");
    }
}

#[test]
fn a_long_list_has_several_pages() {
    let Some(server) = Server::start("list", &["--keep-alive"]) else { return };
    fs::create_dir(server.file("many")).unwrap();
    let keys: Vec<String> = (0..1500).map(|number| format!("many/{number:04}")).collect();
    for key in &keys {
        File::create(server.file(key)).unwrap();
    }
    let mut client = server.client(PayloadSignature::Unsigned);
    let first = client.list("many/", None).unwrap().value;
    assert_eq!(first.keys, keys[..1000]);
    let (mut found, mut next) = (first.keys, first.next);
    for _ in 0..3 {
        let Some(continuation) = next else { break };
        let page = client.list("many/", Some(&continuation)).unwrap().value;
        found.extend(page.keys);
        next = page.next;
    }
    assert_eq!((found, next), (keys, None));
}

#[test]
fn multipart_uploads_are_completed_or_aborted() {
    let Some(server) = Server::start("multipart", &["--keep-alive"]) else { return };
    for payload in [PayloadSignature::Unsigned, PayloadSignature::Signed] {
        let mut client = server.client(payload);
        let bytes = content(2 * PART_BYTES + 1000);
        let upload = client.create_upload("parts").unwrap().value;
        let chunks = bytes.chunks(PART_BYTES).zip(1..);
        let parts = chunks
            .map(|(chunk, number)| client.upload_part("parts", &upload, number, chunk))
            .map(|part| part.unwrap().value);
        let parts = parts.collect::<Vec<_>>();
        client.complete_upload("parts", &upload, &parts).unwrap();
        assert!(fs::read(server.file("parts")).unwrap() == bytes, "the parts in order");
        let upload = client.create_upload("parts").unwrap().value;
        client.upload_part("parts", &upload, 1, b"x").unwrap();
        client.abort_upload("parts", &upload).unwrap();
        let gone = client.upload_part("parts", &upload, 2, b"x").unwrap_err().to_string();
        assert!(gone.contains("there is no such multipart upload"), "{gone}");
    }
}
