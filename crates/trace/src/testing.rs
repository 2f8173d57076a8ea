//! Helpers for the tests of several modules: random requests, and traces in memory.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::reader::TraceReader;
use crate::request::{Call, FileId, Header, Operation, Request};
use crate::writer::TraceWriter;

/// File names in test traces, with spaces, quotes, separators and line breaks.
pub(crate) const NAMES: [&str; 5] = ["/data/a", "b,\"c\"", "", "with blank", "über\nzwei"];

/// Generates a random request to one of the files [`NAMES`].
pub(crate) fn any_request() -> impl Strategy<Value = Request> {
    let calls: Vec<Call> = ["unknown", "block", "pread64", "fsync", "io_uring"]
        .map(|name| Call::named(name).expect("a call of the list"))
        .to_vec();
    let times = (any::<u64>(), option::of(any::<u64>()));
    let who = (any::<u32>(), any::<u32>(), prop::sample::select(calls));
    let what = (prop::sample::select(Operation::ALL.to_vec()), 0..NAMES.len() as u32);
    let range = (option::of(any::<u64>()), any::<u64>(), option::of(any::<i64>()));
    let counts = [option::of(any::<u64>()), option::of(any::<u64>())];
    let how = (any::<bool>(), any::<bool>(), counts);
    (times, who, what, range, how).prop_map(|(times, who, what, range, how)| Request {
        start_ns: times.0,
        latency_ns: times.1,
        process: who.0,
        thread: who.1,
        call: who.2,
        operation: what.0,
        file: FileId(what.1),
        offset: range.0,
        bytes: range.1,
        result: range.2,
        direct: how.0,
        durable: how.1,
        device_bytes: how.2[0],
        sleeps: how.2[1],
    })
}

/// Generates up to 59 requests in the order of their start times.
pub(crate) fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    vec(any_request(), 0..60).prop_map(|mut requests| {
        requests.sort_by_key(|request| request.start_ns);
        requests
    })
}

/// Writes the requests and the files [`NAMES`] to a trace in memory. Returns its header and bytes.
pub(crate) fn stored(requests: &[Request]) -> (Header, Vec<u8>) {
    let mut writer = TraceWriter::to(Vec::new(), "test").unwrap();
    NAMES.iter().for_each(|name| {
        writer.add_file(name);
    });
    requests.iter().for_each(|request| writer.push(request).unwrap());
    let source = "test".to_owned();
    writer.finish_into(Header { source, ..Header::default() }).unwrap()
}

/// Reads all requests of a trace in memory.
pub(crate) fn requests_of(bytes: &[u8]) -> Vec<Request> {
    let reader = TraceReader::of_bytes(bytes.to_vec(), "test").unwrap();
    reader.collect::<Result<_, _>>().unwrap()
}

/// Reports that a test is skipped: on stderr, and in the file `$HALFPOWER_SKIP_LOG` if it is set.
#[allow(clippy::print_stderr)] // A skipped test must be visible in the output.
pub(crate) fn skip(name: &str, reason: &str) {
    use std::io::Write as _;
    let line = format!("skipped: {name}: {reason}");
    eprintln!("{line}");
    if let Some(log) = std::env::var_os("HALFPOWER_SKIP_LOG") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log);
        file.and_then(|mut file| writeln!(file, "{line}")).unwrap();
    }
}
