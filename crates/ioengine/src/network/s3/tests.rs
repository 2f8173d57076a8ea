//! Tests of the S3 target with a server in this process that sends valid and invalid responses.

use std::sync::Arc;

use super::test_server::{Answer, Received, Server, chunked, failure, response};
use crate::buffer::BufferPages;
use crate::conformance::{
    a_deadline_returns_and_loses_nothing, a_dropped_engine_leaves_memory_alone,
    a_read_at_the_end_is_short_and_past_it_empty, errors_reach_the_right_request,
    polling_does_not_wait, reads_bring_the_bytes_of_their_offset,
    the_rest_of_a_request_lands_behind_the_first_part, write_positions,
};
use crate::engine::{Engine, EngineKind, EngineOptions, EngineSpec, HostEngine};
use crate::error::{Error, ErrorKind};
use crate::host::HostTarget;
use crate::network::{Access, Credentials};
use crate::request::{Completion, Op, Request};
use crate::target::Target;

const OBJECT_BYTES: u64 = 1 << 20;

/// Builds the server's answer to a read. The arguments are the status, the header fields and the
/// requested bytes.
type Wrap = fn(&str, &str, &[u8]) -> Answer;

/// Starts a server with one object in which every sector begins with its position.
fn object(wrap: Wrap) -> Server {
    let mut file = tempfile::tempfile().unwrap();
    write_positions(&mut file, OBJECT_BYTES);
    let mut bytes = vec![0; OBJECT_BYTES as usize];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
    let bytes = Arc::new(bytes);
    Server::new(move |request| {
        if request.method == "HEAD" {
            return Answer::Send(of_size(OBJECT_BYTES));
        }
        let (first, last) = request.range().unwrap();
        let fields = format!("Content-Range: bytes {first}-{last}/{OBJECT_BYTES}\r\n");
        wrap("206 Partial", &fields, &bytes[first as usize..=last as usize])
    })
}

/// Returns the response to HEAD for an object of `bytes` bytes.
fn of_size(bytes: u64) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nETag: \"a\"\r\n\r\n").into_bytes()
}

fn spec(depth: u32, slot_bytes: u32) -> EngineSpec {
    let (engine_kind, options) = (EngineKind::Network, EngineOptions::default());
    EngineSpec { engine_kind, depth, slot_bytes, pages: BufferPages::Small, options }
}

fn read(slot: u32, offset: u64) -> Request {
    Request { offset, length: 4096, within: 0, slot, file: 0, op: Op::Read }
}

#[test]
fn the_engine_conforms_on_an_object() {
    let server = object(|status, fields, bytes| Answer::Send(response(status, fields, bytes)));
    let target = HostTarget::connect(server.access("bucket/a key+")).unwrap();
    let make = |depth, bytes| target.engine(&spec(depth, bytes));
    reads_bring_the_bytes_of_their_offset(&make, OBJECT_BYTES);
    a_read_at_the_end_is_short_and_past_it_empty(&make, OBJECT_BYTES);
    the_rest_of_a_request_lands_behind_the_first_part(&make);
    errors_reach_the_right_request(&make);
    a_deadline_returns_and_loses_nothing(&make);
    polling_does_not_wait(&make);
    a_dropped_engine_leaves_memory_alone(&make);
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.path == "/bucket/a%20key%2B"));
    let of_one = |number| requests.iter().filter(|r| r.connection == number).count();
    assert!((0..20).any(|number| of_one(number) > 20), "connections are kept alive");
}

#[test]
fn chunked_bodies_bring_the_right_bytes() {
    let server = object(|status, fields, bytes| Answer::Send(chunked(status, fields, bytes, 1000)));
    let target = HostTarget::connect(server.access("bucket/key")).unwrap();
    let make = |depth, bytes| target.engine(&spec(depth, bytes));
    reads_bring_the_bytes_of_their_offset(&make, OBJECT_BYTES);
    a_read_at_the_end_is_short_and_past_it_empty(&make, OBJECT_BYTES);
}

#[test]
fn a_server_that_closes_after_each_response_is_read_to_the_end() {
    let server = object(|status, fields, bytes| {
        let fields = format!("{fields}Connection: close\r\n");
        Answer::SendAndClose(response(status, &fields, bytes))
    });
    let target = HostTarget::connect(server.access("bucket/key")).unwrap();
    let make = |depth, bytes| target.engine(&spec(depth, bytes));
    reads_bring_the_bytes_of_their_offset(&make, OBJECT_BYTES);
    a_deadline_returns_and_loses_nothing(&make);
}

#[test]
fn interim_responses_are_passed_over() {
    let server = object(|status, fields, bytes| {
        let interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n".to_vec();
        Answer::Send([interim, response(status, fields, bytes)].concat())
    });
    let target = HostTarget::connect(server.access("bucket/key")).unwrap();
    let make = |depth, bytes| target.engine(&spec(depth, bytes));
    reads_bring_the_bytes_of_their_offset(&make, OBJECT_BYTES);
}

/// Returns an engine on an object of 1 MiB. `answer` returns the server's answer to a read.
fn engine(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> HostEngine {
    let server = Server::new(move |request| match &*request.method {
        "HEAD" => Answer::Send(of_size(OBJECT_BYTES)),
        _ => answer(request),
    });
    HostTarget::connect(server.access("bucket/key")).unwrap().engine(&spec(1, 4096)).unwrap()
}

/// Reads 4096 bytes, and returns the result of the request.
fn outcome(engine: &mut HostEngine) -> Result<i32, Error> {
    let mut done = Vec::new();
    engine.submit_and_wait(&[read(0, 8192)], 1, None, &mut done)?;
    let [Completion { slot: 0, result }] = done[..] else { panic!("{done:?}") };
    Ok(result)
}

/// Returns the result of a read that the server answers with `bytes`.
fn answered(bytes: Vec<u8>) -> Result<i32, Error> {
    outcome(&mut engine(move |_| Answer::SendAndClose(bytes.clone())))
}

/// Checks that the connection fails if the server answers a read with `bytes`, and that the error
/// message contains `expected`.
#[track_caller]
fn breaks(bytes: impl Into<Vec<u8>>, expected: &str) {
    let error = answered(bytes.into()).expect_err(expected);
    assert_eq!(error.kind(), ErrorKind::Io);
    let text = error.to_string();
    assert!(text.starts_with("s3://127.0.0.1:") && text.contains(expected), "{text}");
}

const RIGHT_RANGE: &str = "Content-Range: bytes 8192-12287/1048576\r\n";

#[test]
fn statuses_of_failed_reads_are_error_numbers_and_the_connection_goes_on() {
    let statuses = [
        (400, -libc::EINVAL),
        (403, -libc::EACCES),
        (404, -libc::ENOENT),
        (416, 0),
        (500, -libc::EIO),
        (503, -libc::EAGAIN),
    ];
    let server = Server::new(move |request| match (&*request.method, request.range()) {
        ("HEAD", _) => Answer::Send(of_size(OBJECT_BYTES)),
        (_, Some((at, _))) => {
            let (status, _) = statuses[at as usize / 4096];
            Answer::Send(failure(status, "SlowDown", "GET"))
        }
        _ => Answer::Close,
    });
    let target = HostTarget::connect(server.access("bucket/key")).unwrap();
    let mut engine = target.engine(&spec(1, 4096)).unwrap();
    for (number, (status, expected)) in statuses.into_iter().enumerate() {
        let mut done = Vec::new();
        let read = read(0, number as u64 * 4096);
        engine.submit_and_wait(&[read], 1, None, &mut done).unwrap();
        assert_eq!(done, [Completion { slot: 0, result: expected }], "{status}");
    }
    let connections = server.requests().iter().map(|r| r.connection).max();
    assert_eq!(connections, Some(1), "the target has one connection, and the engine has another");
}

#[test]
fn an_object_that_was_replaced_is_stale() {
    let grown = response("206 P", "Content-Range: bytes 8192-12287/1048577\r\n", &[1; 4096]);
    assert_eq!(answered(grown).unwrap(), -libc::ESTALE);
}

#[test]
fn a_short_part_is_a_short_transfer() {
    let short = response("206 P", "Content-Range: bytes 8192-8291/*\r\n", &[1; 100]);
    assert_eq!(answered(short).unwrap(), 100);
}

#[test]
fn bodies_that_do_not_fit_the_request_end_the_connection() {
    let part = |range: &str, bytes: usize| response("206 P", range, &vec![1; bytes]);
    breaks(part(RIGHT_RANGE, 4095), "whose length differs from its Content-Range");
    breaks(part("Content-Range: bytes 0-4095/1048576\r\n", 4096), "another part of the object");
    breaks(part("Content-Range: bytes 8192-12288/1048576\r\n", 4097), "another part");
    breaks(part("", 4096), "without its Content-Range");
    breaks(response("200 OK", "", &[1; 4096]), "ignores the Range");
    breaks(format!("HTTP/1.1 206 P\r\n{RIGHT_RANGE}\r\n"), "without its length");
    let announced =
        |length: &str| format!("HTTP/1.1 206 P\r\n{RIGHT_RANGE}Content-Length: {length}\r\n\r\n");
    breaks(announced("-1"), "not a number of bytes");
    breaks(announced("18446744073709551616"), "not a number of bytes");
    breaks(announced("18446744073709551615"), "differs from its Content-Range");
    breaks(chunked("206 P", RIGHT_RANGE, &[1; 4097], 4097), "more than was requested");
    breaks(chunked("206 P", RIGHT_RANGE, &[1; 4095], 4095), "less than it announced");
    let huge = format!("HTTP/1.1 206 P\r\n{RIGHT_RANGE}Transfer-Encoding: chunked\r\n\r\n");
    breaks(huge + "ffffffffffffffff\r\n", "more than was requested");
    breaks("HTTP/1.1 500 E\r\nContent-Length: 9999999\r\n\r\n", "more than was requested");
}

#[test]
fn a_connection_that_ends_in_a_response_is_an_error() {
    let mut half = response("206 P", RIGHT_RANGE, &[1; 4096]);
    half.truncate(2000);
    breaks(half, "closed the connection");
    breaks("HTTP/1.1 206 P\r\nContent-Le", "closed the connection");
}

#[test]
fn headers_without_end_and_other_protocols_are_errors() {
    let long = format!("HTTP/1.1 206 P\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    breaks(long, "a header of more than 16384 bytes");
    breaks("HTTP/1.1 103 E\r\n\r\n".repeat(9), "too many interim responses");
    breaks("NBDMAGIC, not HTTP", "does not speak HTTP/1.1");
    let line = "1".repeat(2000);
    let chunked = format!("HTTP/1.1 206 P\r\n{RIGHT_RANGE}Transfer-Encoding: chunked\r\n\r\n");
    breaks(chunked + &line, "a header of more than 1024 bytes");
}

#[test]
fn a_server_that_only_closes_is_not_asked_again_and_again() {
    let error = outcome(&mut engine(|_| Answer::Close)).unwrap_err().to_string();
    assert!(error.contains("closed the connection"), "{error}");
}

/// Returns the error message for a target that cannot be opened.
fn open_error(access: Access) -> String {
    HostTarget::connect(access).expect_err("an error").to_string()
}

#[test]
fn a_target_that_cannot_be_opened_says_why() {
    let missing =
        || Server::new(|request| Answer::Send(failure(404, "NoSuchKey", &request.method)));
    let error = open_error(missing().access("bucket/key"));
    let expected = "there is no such object (opening the object: NoSuchKey, HTTP status 404)";
    assert!(error.contains(expected), "{error}");
    let wrong = Credentials { user: "anna".to_owned(), password: "wrong".to_owned() };
    let access = missing().access("bucket/key");
    let error = open_error(Access { credentials: Some(wrong), ..access });
    assert!(error.contains("the secret of the access key 'anna' is wrong"), "{error}");
    assert!(!error.contains("wrong'"), "{error}");
    let error = open_error(Access { writable: true, ..missing().access("bucket/key") });
    assert!(error.contains("objects cannot be written in place"), "{error}");
    let error = open_error(missing().access("bucket"));
    assert!(error.contains("the address contains no object key; use s3://HOST"), "{error}");
    let no_size = Server::new(|_| Answer::Send(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()));
    let error = open_error(no_size.access("bucket/key"));
    assert!(error.contains("did not report the size of the object"), "{error}");
}

#[test]
fn a_server_with_tls_is_recognised() {
    let alert = b"\x15\x03\x03\x00\x02\x02\x28";
    let redirect = b"HTTP/1.1 301 M\r\nContent-Length: 0\r\nLocation: https://h/\r\n\r\n";
    let told = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    for bytes in [&alert[..], redirect, told] {
        let server = Server::new(|_| Answer::SendAndClose(bytes.to_vec()));
        let error = open_error(server.access("bucket/key"));
        assert!(error.contains("TLS") && error.contains("stunnel"), "{error}");
    }
}

/// Headers that versitygw 1.8.0, an S3 server, sent for an object of 100 bytes. The first header
/// answers HEAD, and the second answers a read of 4 KiB.
const RECORDED: &str = "HTTP/1.1 200 OK\r\nServer: VERSITYGW\r\n\
    Date: Wed, 25 Nov 2026 10:19:25 GMT\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 100\r\nX-Amz-Request-Id: SKK0GEQBRT6VL65V\r\n\
    X-Amz-Id-2: qjE5//+uldbHTeip7N3e/xoCOqwYwEtKyqS0aW+7/EsaezlNHFiQ7uXsGNalaboXWWBjkGRza/6b\r\n\
    Last-Modified: Wed, 25 Nov 2026 10:19:22 GMT\r\naccept-ranges: bytes\r\n\
    x-amz-storage-class: STANDARD\r\n\r\n\
    HTTP/1.1 206 Partial Content\r\nServer: VERSITYGW\r\n\
    Date: Wed, 25 Nov 2026 10:19:25 GMT\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 100\r\nX-Amz-Request-Id: AGX7QUKEATW6TZ5N\r\n\
    x-amz-storage-class: STANDARD\r\nLast-Modified: Wed, 25 Nov 2026 10:19:22 GMT\r\n\
    Content-Range: bytes 0-99/100\r\naccept-ranges: bytes\r\n\r\n";

#[test]
fn no_bytes_of_a_server_make_the_client_panic_or_hang() {
    let part = response("206 P", "Content-Range: bytes 0-4095/1048576\r\n", &[7; 4096]);
    let in_chunks = chunked("206 P", "Content-Range: bytes 0-4095/1048576\r\n", &[7; 4096], 1000);
    let error = failure(503, "SlowDown", "GET");
    let refused = [failure(403, "x", "HEAD"), failure(403, "AccessDenied", "GET")].concat();
    let opened = |answer: &[u8]| [&of_size(OBJECT_BYTES)[..], answer].concat();
    let recorded = [RECORDED.as_bytes(), &[b'x'; 100]].concat();
    let seeds = [opened(&part), opened(&in_chunks), opened(&error), recorded, refused];
    // The first byte of the fuzz input selects the protocol. S3 is the last protocol in `ALL`.
    let scheme = crate::network::Scheme::ALL.len() as u8 - 1;
    for (seed, completions) in seeds.iter().zip([1, 1, 1, 1, 0]) {
        let bytes = [&[scheme], &seed[..]].concat();
        assert_eq!(crate::fuzz::network_server(&bytes), completions, "completions of the seed");
    }
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for round in 0..3000 {
        let mut bytes = seeds[round % seeds.len()].clone();
        for _ in 0..random(4) {
            let interesting = bytes.len().min(1000);
            let at = random(interesting);
            match random(4) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes.truncate(at.max(1)),
                2 if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"0159:-,\r\nfx/;"[random(13)]),
            }
        }
        bytes.insert(0, scheme);
        crate::fuzz::network_server(&bytes);
    }
}
