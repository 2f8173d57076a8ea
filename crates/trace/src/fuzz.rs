//! Functions that the fuzz targets call to test the reader and the importers. No input may cause a
//! panic. Requests that an importer accepts must stay the same when they are exported and imported
//! again.

use std::path::Path;
use std::sync::Arc;

use crate::error::TraceError;
use crate::export;
use crate::import::{self, Format};
use crate::reader::TraceReader;
use crate::replay::{Changes, Feed, Scan, Selection};
use crate::request::{Header, Request};

/// Maximum number of requests to read from a file. A few bytes can encode billions of requests.
const REQUESTS: usize = 10_000;

/// Reads `data` as a trace file, replays the requests, and checks the messages of all errors.
pub fn file(data: &[u8]) {
    let reader = match TraceReader::of_bytes(data.to_vec(), "input") {
        Ok(reader) => reader,
        Err(error) => return check_message(&error),
    };
    let (header, mut requests) = (reader.header().clone(), Vec::new());
    for request in reader.take(REQUESTS) {
        match request {
            Ok(request) => {
                assert!((request.file.0 as usize) < header.files.len(), "unknown file");
                requests.push(request);
            }
            Err(error) => check_message(&error),
        }
    }
    replay(&header, &requests);
}

/// Replays requests twice: first without changes, then with changes.
fn replay(header: &Header, requests: &[Request]) {
    let rows = || requests.iter().copied().map(Ok);
    let Ok(scan) = Scan::of(rows(), header, &Selection::default()) else { return };
    let scan = Arc::new(scan);
    let changes = Changes { merge_bytes: Some(65536), flush_every: Some(2), ..Changes::default() };
    for changes in [Changes::default(), changes] {
        let feed = Feed::new(rows(), scan.clone(), changes, (0, 1));
        let fed = feed.filter(Result::is_ok).count() as u64;
        assert!(!changes.is_none() || fed == scan.count());
    }
}

/// Imports `data` in each format. If a format accepts the data, the trace is exported as CSV and
/// imported again, which must give the same requests.
pub fn imports(data: &[u8]) {
    if let Err(error) = import::detect(Path::new("input"), data) {
        check_message(&error);
    }
    for format in Format::ALL {
        let (header, trace) = match import::convert_bytes(data, format) {
            Ok(converted) => converted,
            Err(error) => {
                check_message(&error);
                continue;
            }
        };
        let requests = requests(&trace);
        assert_eq!(header.requests, requests.len() as u64);
        let mut csv = Vec::new();
        let exported = export::csv(open(&trace), &mut csv, "csv").expect("the export succeeds");
        assert_eq!((exported.requests, exported.left_out), (header.requests, 0));
        let (again, trace) = import::convert_bytes(&csv, Format::Csv).expect("the CSV is valid");
        assert_eq!(again.requests, header.requests);
        if header.out_of_order == 0 {
            let of_one_file = |request: &Request| Request { file: crate::FileId(0), ..*request };
            let again = self::requests(&trace);
            assert!(again.iter().map(of_one_file).eq(requests.iter().map(of_one_file)));
        }
    }
}

fn open(trace: &[u8]) -> TraceReader {
    TraceReader::of_bytes(trace.to_vec(), "trace").expect("a trace just written can be read")
}

fn requests(trace: &[u8]) -> Vec<Request> {
    open(trace).collect::<Result<_, _>>().expect("a trace just written can be read")
}

/// Checks that a message is one line of bounded length that ends with a remedy.
fn check_message(error: &TraceError) {
    let text = error.to_string();
    assert!(!text.contains('\n') && text.contains("; "), "{text:?}");
    assert!(text.len() < 1000, "{text:?}");
}
