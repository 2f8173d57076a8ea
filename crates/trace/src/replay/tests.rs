//! Tests `Scan` and `Feed` with small traces whose lanes, gaps and offsets are known, and with
//! random traces.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::error::TraceError;
use crate::request::{File, FileId, Header};

fn request(thread: u32, start_ns: u64, latency_ns: u64, offset: u64) -> Request {
    Request {
        start_ns,
        latency_ns: Some(latency_ns),
        process: 1,
        thread,
        call: Call::named("pread64").unwrap(),
        operation: Operation::Read,
        file: FileId(0),
        offset: Some(offset),
        bytes: 4096,
        result: Some(4096),
        direct: false,
        durable: false,
        device_bytes: None,
        sleeps: None,
    }
}

fn write(thread: u32, start_ns: u64, offset: u64) -> Request {
    Request { operation: Operation::Write, ..request(thread, start_ns, 10, offset) }
}

fn flush(thread: u32, start_ns: u64) -> Request {
    let call = Call::named("fdatasync").unwrap();
    let operation = Operation::Flush;
    let (offset, bytes, result) = (None, 0, Some(0));
    Request { call, operation, offset, bytes, result, ..request(thread, start_ns, 50, 0) }
}

fn rows(requests: &[Request]) -> impl Iterator<Item = Result<Request, TraceError>> {
    requests.iter().copied().map(Ok)
}

fn scan(requests: &[Request]) -> Arc<Scan> {
    scan_of(requests, None)
}

fn scan_of(requests: &[Request], level: Option<Level>) -> Arc<Scan> {
    let selection = Selection { level, ..Selection::default() };
    Arc::new(Scan::of(rows(requests), &Header::default(), &selection).unwrap())
}

fn changed(requests: &[Request], changes: Changes) -> Vec<ReplayRequest> {
    let feed = Feed::new(rows(requests), scan(requests), changes, (0, 1));
    feed.map(Result::unwrap).collect()
}

fn fed(requests: &[Request]) -> Vec<ReplayRequest> {
    changed(requests, Changes::default())
}

#[test]
fn a_thread_with_one_request_at_a_time_waits_for_each_and_computes_in_between() {
    let found = fed(&[request(1, 100, 50, 0), request(1, 170, 30, 4096), request(1, 200, 5, 0)]);
    let seen: Vec<_> = found.iter().map(|one| (one.gap_ns, one.outstanding)).collect();
    assert_eq!(seen, [(0, Some(0)), (20, Some(0)), (0, Some(0))]);
}

#[test]
fn a_thread_with_several_requests_outstanding_keeps_as_many() {
    // The first two requests overlap. The third is made 7 ns after the end of the first.
    let found = fed(&[request(1, 0, 100, 0), request(1, 3, 200, 0), request(1, 107, 100, 0)]);
    let seen: Vec<_> = found.iter().map(|one| (one.gap_ns, one.outstanding)).collect();
    assert_eq!(seen, [(0, Some(0)), (3, Some(1)), (7, Some(1))]);
    assert_eq!(scan(&[request(1, 0, 100, 0), request(1, 3, 200, 0)]).lanes[0].depth_max, 2);
}

#[test]
fn processes_that_run_one_after_another_share_a_lane() {
    let requests = [
        request(7, 0, 1000, 0),
        request(8, 10, 20, 0),
        request(9, 40, 20, 0),
        request(8, 31, 5, 0),
    ];
    let found = scan(&requests);
    assert_eq!(found.lanes.len(), 2);
    assert_eq!(found.lane(8), found.lane(9));
    assert_ne!(found.lane(7), found.lane(8));
    // The lane has the requests of threads 8 and 9 in stored order: 8, 9, 8. The gap of the first
    // request is the time since the start of the trace. The gap of the second request is the time
    // since the end of the first request. The third request starts before the second request, so
    // its gap is 0.
    let of_lane = |lane| fed(&requests).into_iter().filter(move |one| one.lane == lane);
    let gaps: Vec<u64> = of_lane(found.lane(8)).map(|one| one.gap_ns).collect();
    assert_eq!(gaps, [10, 10, 0]);
}

#[test]
fn workers_share_the_lanes() {
    let requests: Vec<Request> = (0..6).map(|at| request(at, u64::from(at), 1000, 0)).collect();
    let of = |worker| {
        let feed = Feed::new(rows(&requests), scan(&requests), Changes::default(), (worker, 4));
        feed.map(|one| one.unwrap().lane).collect::<Vec<u32>>()
    };
    assert_eq!([of(0), of(1), of(2), of(3)], [vec![0, 1], vec![0, 1], vec![0], vec![0]]);
}

#[test]
fn files_lie_one_after_another_with_space_against_read_ahead() {
    let of = |direct| {
        let first = Request { direct, ..request(1, 0, 10, 8192) };
        let other = Request { direct, file: FileId(1), ..request(1, 50, 10, 100) };
        let offsets: Vec<u64> = fed(&[first, other]).iter().map(|one| one.offset).collect();
        (scan(&[first, other]).span_bytes, offsets)
    };
    // The first file takes 12 KiB. The second file takes 4,196 bytes, which are rounded up to
    // 8 KiB. With buffered I/O, 12 KiB between the files are unused.
    assert_eq!(of(false), (32 << 10, vec![8192, (24 << 10) + 100]));
    assert_eq!(of(true), (20 << 10, vec![8192, (12 << 10) + 100]));
}

#[test]
fn what_cannot_be_replayed_is_named() {
    let failed = Request { result: Some(-5), ..request(1, 0, 1, 0) };
    let pipe = Request { offset: None, ..request(1, 1, 1, 0) };
    let empty = Request { result: Some(0), ..request(1, 2, 1, 0) };
    let open = Request { operation: Operation::Open, ..request(1, 3, 1, 0) };
    let requests = [failed, pipe, empty, open, request(1, 4, 1, 0)];
    let found = scan(&requests);
    let names: Vec<_> = found.left_out.iter().map(|left| (left.what, left.count)).collect();
    let expected = [
        ("failed requests", 1),
        ("requests without an offset", 1),
        ("requests that moved no data", 1),
        ("opens", 1),
    ];
    assert_eq!(names, expected);
    assert_eq!((found.count(), fed(&requests).len()), (1, 1));
}

#[test]
fn calls_are_preferred_and_the_block_layer_can_be_chosen() {
    let block = Request { call: Call::BLOCK, bytes: 512, ..request(2, 5, 1, 0) };
    let requests = [request(1, 0, 10, 0), block, block];
    assert_eq!((scan(&requests).level, scan(&requests).count()), (Level::Calls, 1));
    assert_eq!((scan(&[block]).level, scan(&[block]).count()), (Level::Block, 1));
    let chosen = scan_of(&requests, Some(Level::Block));
    assert_eq!(chosen.count(), 2);
}

#[test]
fn without_latencies_nobody_knows_what_waits() {
    let untimed = Request { latency_ns: None, ..request(1, 0, 0, 0) };
    let requests = [untimed, Request { start_ns: 70, ..untimed }];
    assert!(!scan(&requests).has_latencies);
    let seen: Vec<_> = fed(&requests).iter().map(|one| (one.gap_ns, one.outstanding)).collect();
    assert_eq!(seen, [(0, None), (70, None)]);
    let deep = changed(&requests, Changes { depth: Some(4), ..Changes::default() });
    assert!(deep.iter().all(|one| one.outstanding == Some(3)));
}

#[test]
fn requests_that_follow_each_other_are_joined_up_to_a_length() {
    let at = |n: u64| request(1, 100 * n, 90, 4096 * n);
    let requests = [at(0), at(1), at(2), at(3), request(1, 400, 90, 0)];
    let merged = changed(&requests, Changes { merge_bytes: Some(12288), ..Changes::default() });
    let seen: Vec<_> = merged.iter().map(|one| (one.offset, one.bytes, one.gap_ns)).collect();
    // The program computed for 10 ns between every two requests. The first replayed request is
    // joined from three requests with two gaps of 10 ns between them, so its gap is 20 ns.
    assert_eq!(seen, [(0, 12288, 20), (12288, 4096, 10), (0, 4096, 10)]);
}

#[test]
fn one_flush_covers_several_writes() {
    let mut requests = Vec::new();
    for n in 0..5 {
        requests.push(write(1, 100 * n, 4096 * n));
        requests.push(flush(1, 100 * n + 20));
    }
    let kept: Vec<Action> = fed(&requests).iter().map(|one| one.action).collect();
    let flush = Action::Flush { data_only: true };
    assert_eq!(kept[..4], [Action::Write, flush, Action::Write, flush]);
    let fewer = changed(&requests, Changes { flush_every: Some(2), ..Changes::default() });
    let actions: Vec<Action> = fewer.iter().map(|one| one.action).collect();
    let pair = [Action::Write, Action::Write, flush];
    assert_eq!(actions, [&pair[..], &pair[..], &[Action::Write, flush]].concat());
    // The gap before a dropped flush (10 ns) is added to the gap of the next write (30 ns).
    assert_eq!(fewer[1].gap_ns, 10 + 30);
    let both = Changes { flush_every: Some(2), merge_bytes: Some(8192), ..Changes::default() };
    let joined = changed(&requests, both);
    let sizes: Vec<u64> = joined.iter().map(|one| one.bytes).collect();
    assert_eq!(sizes, [8192, 0, 8192, 0, 4096, 0]);
}

#[test]
fn requests_of_chosen_files_are_replayed() {
    let named = |name: &str| File { name: name.to_owned(), ..File::default() };
    let files = vec![named("/data/a"), named("/data/b"), named("/proc/stat")];
    let header = Header { files, ..Header::default() };
    let of_file = |file| Request { file: FileId(file), ..request(1, 10 * u64::from(file), 5, 0) };
    let requests = [of_file(0), of_file(1), of_file(2)];
    let counted = |files: &[&str]| {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        let selection = Selection { files, ..Selection::default() };
        let scan = Arc::new(Scan::of(rows(&requests), &header, &selection).unwrap());
        let feed = Feed::new(rows(&requests), scan.clone(), Changes::default(), (0, 1));
        assert_eq!(feed.count() as u64, scan.count());
        (scan.count(), scan.left_out.clone())
    };
    assert_eq!(counted(&[]).0, 2);
    assert_eq!(counted(&["/data/b"]).0, 1);
    assert_eq!(counted(&["/data/b"]).1[0].what, "requests of other files");
}

#[test]
fn advice_about_the_only_file_is_replayed() {
    let call = Call::named("fadvise64 dontneed").unwrap();
    let advice = Request { call, operation: Operation::Advise, bytes: 0, ..request(1, 0, 1, 0) };
    let part = Request { offset: Some(4096), ..advice };
    let read = request(1, 10, 5, 0);
    let actions: Vec<Action> = fed(&[advice, read]).iter().map(|one| one.action).collect();
    assert_eq!(actions, [Action::Advise(call), Action::Read]);
    let order = Request { call: Call::named("fadvise64 random").unwrap(), ..part };
    assert_eq!((fed(&[order, read]).len(), scan(&[order, read]).count()), (1, 1));
    let other = Request { file: FileId(1), ..read };
    let both = scan(&[advice, read, other]);
    assert_eq!((both.count(), fed(&[advice, read, other]).len()), (2, 2));
    assert_eq!(both.left_out[0].what, "other calls");
}

#[test]
fn hints_about_ranges_are_replayed_where_their_file_lies() {
    let hint = |name: &str, file, offset, bytes| Request {
        call: Call::named(name).unwrap(),
        operation: Operation::Advise,
        file: FileId(file),
        bytes,
        device_bytes: Some(bytes),
        ..request(1, 0, 1, offset)
    };
    let ahead = hint("fadvise64 willneed", 1, 4096, 8192);
    let old = hint("readahead", 0, 8192, 4096);
    let reads = [0, 1].map(|file| Request { file: FileId(file), ..request(1, 10, 5, 16384) });
    let requests = [ahead, old, reads[0], reads[1]];
    let found: Vec<_> = fed(&requests).iter().map(|one| (one.offset, one.bytes)).collect();
    // The first file has 20 KiB and is followed by 20 KiB of unused space.
    assert_eq!(found, [(40960 + 4096, 8192), (8192, 4096), (16384, 4096), (40960 + 16384, 4096)]);
    let scan = scan(&requests);
    assert_eq!((scan.range_hints, scan.file_hints, scan.span_bytes), (2, 0, 61440));
    assert_eq!(scan.buffered_read_bytes, [0, 12288], "the device read for the hints");
}

#[test]
fn files_that_were_written_from_their_start_are_new() {
    let of = |file, request: Request| Request { file: FileId(file), ..request };
    let requests = [
        of(0, write(1, 0, 0)),
        of(0, request(1, 20, 5, 0)),
        of(1, request(1, 40, 5, 0)),
        of(1, write(1, 60, 0)),
        of(2, write(1, 80, 4096)),
        of(3, Request { result: Some(0), ..request(1, 90, 5, 0) }),
        of(3, write(1, 100, 0)),
    ];
    // The files have 4, 4, 8 and 4 KiB. Each file is followed by unused space of the same size.
    // File 3 counts as new: its first read moved no data and is ignored, so the first request that
    // counts is a write at offset 0.
    assert_eq!(scan(&requests).new_ranges, [(0, 4096), (32 << 10, 4096)]);
}

#[test]
fn calls_that_only_start_to_write_back_are_no_flushes() {
    let call = Call::named("sync_file_range").unwrap();
    let scan = scan(&[write(1, 0, 0), Request { call, ..flush(1, 20) }]);
    assert_eq!(scan.requests, [0, 1, 0]);
    assert!(scan.left_out[0].what.contains("sync_file_range"));
}

#[test]
fn changes_are_said_in_words() {
    let changes = Changes { depth: Some(8), merge_bytes: None, flush_every: Some(16) };
    assert_eq!(changes.to_string(), "depth 8, a flush after 16 writes");
    assert_eq!(Changes::default().to_string(), "");
}

#[test]
fn an_error_of_the_trace_ends_the_feed() {
    let error = || TraceError::Exists { name: "x".to_owned() };
    let requests = [request(1, 0, 1, 0)];
    let broken = rows(&requests).chain([Err(error())]).chain(rows(&requests));
    let mut feed = Feed::new(broken, scan(&requests), Changes::default(), (0, 1));
    assert!(feed.next().unwrap().is_ok());
    assert!(feed.next().unwrap().is_err());
    assert!(feed.next().is_none());
    let selection = Selection::default();
    assert!(Scan::of([Err(error())].into_iter(), &Header::default(), &selection).is_err());
}

fn any_request() -> impl Strategy<Value = Request> {
    let numbers = (0..6_u32, 0..5000_u64, 0..900_u64, 0..3_u32);
    let rest = (0..1_u64 << 40, 1..1_u64 << 20, -1..40_000_i64, 0..9_usize, any::<bool>());
    (numbers, rest).prop_map(|((thread, start_ns, latency, file), rest)| {
        let (offset, bytes, result, operation, timed) = rest;
        Request {
            latency_ns: timed.then_some(latency),
            file: FileId(file),
            bytes,
            result: Some(result),
            operation: Operation::ALL[operation],
            ..request(thread, start_ns, latency, offset)
        }
    })
}

proptest! {
    #[test]
    fn every_request_reaches_one_worker_within_the_target(
        requests in proptest::collection::vec(any_request(), 0..80),
        workers in 1..5_u32,
    ) {
        let scan = scan(&requests);
        let mut count = 0;
        for worker in 0..workers {
            let changes = Changes::default();
            for one in Feed::new(rows(&requests), scan.clone(), changes, (worker, workers)) {
                let one = one.unwrap();
                prop_assert!(one.offset + one.bytes <= scan.span_bytes);
                prop_assert!((one.lane as usize) < scan.lanes.len());
                count += 1;
            }
        }
        prop_assert_eq!(count, scan.count());
    }

    #[test]
    fn a_hostile_trace_is_fed_without_a_panic(
        requests in crate::testing::any_requests(),
        merge_bytes in proptest::option::of(any::<u64>()),
    ) {
        let changes = Changes { merge_bytes, flush_every: Some(3), ..Changes::default() };
        prop_assert_eq!(fed(&requests).len() as u64, scan(&requests).count());
        changed(&requests, changes);
    }

    #[test]
    fn changes_move_the_same_bytes(
        requests in proptest::collection::vec(any_request(), 0..80),
        merge_bytes in proptest::option::of(1..1_u64 << 22),
        flush_every in proptest::option::of(1..9_u32),
        depth in proptest::option::of(1..9_u32),
    ) {
        let moved = |found: Vec<ReplayRequest>| -> u64 { found.iter().map(|one| one.bytes).sum() };
        let changes = Changes { depth, merge_bytes, flush_every };
        prop_assert_eq!(moved(changed(&requests, changes)), moved(fed(&requests)));
    }
}
