//! Tests the order of requests in a trace. Also tests that the file has a temporary name until the
//! trace is finished.

use super::*;
use crate::request::{Call, Operation};
use crate::testing::requests_of;

fn request(start_ns: u64, latency_ns: u64) -> Request {
    Request {
        start_ns,
        latency_ns: Some(latency_ns),
        process: 1,
        thread: 1,
        call: Call::BLOCK,
        operation: Operation::Read,
        file: FileId(0),
        offset: Some(0),
        bytes: 4096,
        result: None,
        direct: true,
        durable: false,
        device_bytes: None,
        sleeps: None,
    }
}

fn starts(bytes: &[u8]) -> Vec<u64> {
    requests_of(bytes).iter().map(|request| request.start_ns).collect()
}

#[test]
fn requests_in_order_of_their_end_are_stored_in_order_of_their_start() {
    let mut writer = TraceWriter::to(Vec::new(), "test").unwrap();
    for (start, latency) in [(20, 5), (10, 100), (110, 2), (0, 300)] {
        writer.push(&request(start, latency)).unwrap();
    }
    writer.advance(0).unwrap();
    let (header, bytes) = writer.finish_into(Header::default()).unwrap();
    assert_eq!(starts(&bytes), [0, 10, 20, 110]);
    assert_eq!((header.out_of_order, header.depth_max, header.duration_ns), (0, 3, 300));
}

#[test]
fn a_request_behind_the_low_water_mark_is_stored_and_counted() {
    let mut writer = TraceWriter::to(Vec::new(), "test").unwrap();
    writer.push(&request(10, 1)).unwrap();
    writer.advance(20).unwrap();
    writer.push(&request(5, 1)).unwrap();
    writer.push(&request(30, 1)).unwrap();
    let (header, bytes) = writer.finish_into(Header::default()).unwrap();
    assert_eq!(starts(&bytes), [10, 5, 30]);
    assert_eq!(header.out_of_order, 1);
}

#[test]
fn more_requests_than_are_held_overtake_one_that_takes_for_ever() {
    let mut writer = TraceWriter::to(Vec::new(), "test").unwrap();
    for start in 0..HELD_MOST as u64 + 10 {
        writer.push(&request(start + 100, 1)).unwrap();
    }
    assert_eq!(writer.held.len(), HELD_MOST);
    writer.push(&request(0, 1 << 40)).unwrap();
    let (header, bytes) = writer.finish_into(Header::default()).unwrap();
    assert_eq!(header.out_of_order, 1);
    assert_eq!(starts(&bytes)[10], 0);
}

#[test]
fn times_of_any_clock_start_at_the_first_request() {
    let mut writer = TraceWriter::to(Vec::new(), "test").unwrap();
    writer.start_at_first();
    writer.push(&request(5_000_000_100, 1)).unwrap();
    writer.push(&request(5_000_000_000, 1)).unwrap();
    assert_eq!(writer.base_ns(), None);
    writer.advance(u64::MAX).unwrap();
    assert_eq!(writer.base_ns(), Some(5_000_000_000));
    let (_, bytes) = writer.finish_into(Header::default()).unwrap();
    assert_eq!(starts(&bytes), [0, 100]);
}

#[test]
fn a_trace_has_its_name_only_when_it_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let names = || {
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let mut writer = TraceWriter::create(&path).unwrap();
    let file = writer.add_file("/data/a");
    writer.push(&Request { file, ..request(0, 10) }).unwrap();
    assert_eq!(names(), [format!("a.trace.{}.partial", std::process::id())]);
    let header = writer.finish(Header::default()).unwrap();
    assert_eq!(header.files[0].name, "/data/a");
    assert_eq!(names(), ["a.trace"]);
    let reader = crate::TraceReader::open(&path).unwrap();
    assert_eq!(reader.header(), &header);
    assert_eq!(reader.count(), 1);
    drop(TraceWriter::create(&folder.path().join("b.trace")).unwrap());
    assert_eq!(names(), ["a.trace"]);
}

#[test]
fn an_existing_file_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let writer = TraceWriter::create(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    let refused = writer.finish(Header::default()).unwrap_err().to_string();
    assert!(refused.contains("exists already; choose another name"), "{refused}");
    assert!(TraceWriter::create(&path).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn names_of_files_are_bounded_in_number_and_length() {
    let mut names = Names::default();
    let long = "ü".repeat(4000);
    let first = names.add(&long);
    assert_eq!((first, names.names[0].len()), (FileId(0), 4096));
    let ids: Vec<FileId> = (0..FILES_MOST + 5).map(|_| names.add("a")).collect();
    assert_eq!(names.names.len(), FILES_MOST);
    assert_eq!(ids.last(), Some(&FileId(FILES_MOST as u32 - 1)));
    assert_eq!(names.names.last().unwrap(), OTHER_FILES.as_bytes());
    assert_eq!(names.known(FileId(u32::MAX)), FileId(FILES_MOST as u32 - 1));
    assert_eq!(names.known(FileId(FILES_MOST as u32)), FileId(FILES_MOST as u32 - 1));
    let mut names = Names::default();
    names.known(FileId(u32::MAX));
    assert_eq!((names.add("a"), names.names.len()), (ids[FILES_MOST], FILES_MOST));
    let mut names = Names::default();
    (0..3000).for_each(|_| {
        names.add(&long);
    });
    assert!(names.bytes <= NAMES_MOST && names.names.len() < 3000);
}
