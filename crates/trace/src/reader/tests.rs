//! Writes traces and reads them back. Damaged traces must give an error message of one line.

use proptest::prelude::*;

use super::*;
use crate::testing::{NAMES, any_requests, requests_of, stored};

fn sample(number: u64) -> Vec<Request> {
    let request = |at: u64| Request {
        start_ns: at * 1000,
        latency_ns: (!at.is_multiple_of(7)).then_some(100_000 + at % 1000),
        process: 7,
        thread: (at % 8) as u32,
        call: Call::IO_URING,
        operation: if at.is_multiple_of(3) { Operation::Write } else { Operation::Read },
        file: FileId((at % 3) as u32),
        offset: (!at.is_multiple_of(5)).then_some(at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 30),
        bytes: 4096,
        result: Some(4096),
        direct: at.is_multiple_of(2),
        durable: false,
        device_bytes: None,
        sleeps: None,
    };
    (0..number).map(request).collect()
}

#[test]
fn a_trace_of_several_row_groups_is_read_as_it_was_written() {
    let requests = sample(300_000);
    let (header, bytes) = stored(&requests);
    let reader = TraceReader::of_bytes(bytes, "test").unwrap();
    assert_eq!(reader.metadata.num_row_groups(), 3);
    assert_eq!(reader.header(), &header);
    assert_eq!((header.requests, header.files.len()), (300_000, NAMES.len()));
    assert!(reader.map(Result::unwrap).eq(requests));
}

#[test]
fn a_cut_or_foreign_file_is_refused_with_a_remedy() {
    let (_, bytes) = stored(&sample(100));
    for kept in [0, 3, 11, 12, bytes.len() / 2, bytes.len() - 1] {
        let refused = TraceReader::of_bytes(bytes[..kept].to_vec(), "cut.trace").err().unwrap();
        let text = refused.to_string();
        assert!(text.starts_with("cut.trace is not a trace: "), "{text}");
        assert!(text.contains("; specify a trace file") && !text.contains('\n'), "{text}");
    }
    let refused = TraceReader::open(Path::new("/nonexistent")).err().unwrap().to_string();
    assert!(refused.starts_with("cannot read /nonexistent: "), "{refused}");
    let refused = TraceReader::open(Path::new("/tmp")).err().unwrap().to_string();
    assert_eq!(
        refused,
        "/tmp is not a trace: it is not a regular file; specify a trace file, or import the file \
         first"
    );
}

#[test]
fn a_length_of_the_footer_beyond_the_file_is_refused() {
    let (_, mut bytes) = stored(&sample(100));
    let at = bytes.len() - 8;
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let refused = TraceReader::of_bytes(bytes, "test").err().unwrap().to_string();
    assert!(refused.contains("its footer is longer than the file"), "{refused}");
}

#[test]
fn a_damaged_page_is_an_error_that_names_the_request_before_it() {
    let (_, bytes) = stored(&sample(10_000));
    let mut damaged = 0;
    for at in (4..bytes.len() - 3000).step_by(bytes.len() / 50) {
        let mut bytes = bytes.clone();
        bytes[at..at + 16].fill(0xff);
        let Ok(mut reader) = TraceReader::of_bytes(bytes, "test") else { continue };
        if let Some(error) = reader.find_map(Result::err) {
            let text = error.to_string();
            assert!(text.starts_with("test is damaged after request "), "{text}");
            assert!(text.ends_with("; record or import the trace again"), "{text}");
            assert!(reader.next().is_none(), "the reader continued after an error");
            damaged += 1;
        }
    }
    assert!(damaged > 0, "no damage was detected");
}

#[test]
fn a_request_of_a_file_that_the_header_does_not_know_is_an_error() {
    let (_, bytes) = stored(&sample(10));
    let mut reader = TraceReader::of_bytes(bytes, "test").unwrap();
    reader.header.files.truncate(1);
    let error = reader.find_map(Result::err).unwrap().to_string();
    assert!(error.contains("there is no file 1"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_requests_are_read_as_they_were_written(requests in any_requests()) {
        let (header, bytes) = stored(&requests);
        prop_assert_eq!(header.requests, requests.len() as u64);
        prop_assert_eq!(requests_of(&bytes), requests);
    }

    #[test]
    fn changed_bytes_are_read_or_refused(
        requests in any_requests(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let (_, mut bytes) = stored(&requests);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(reader) = TraceReader::of_bytes(bytes, "test") {
            prop_assert!(reader.take(10_000).count() <= 10_000);
        }
    }

    #[test]
    fn any_bytes_between_the_marks_of_a_file_are_refused(middle: Vec<u8>) {
        let length = (middle.len() as u32).to_le_bytes();
        let bytes = [b"PAR1", middle.as_slice(), &length, b"PAR1"].concat();
        prop_assert!(TraceReader::of_bytes(bytes, "test").is_err());
    }
}
