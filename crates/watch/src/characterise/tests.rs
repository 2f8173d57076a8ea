//! Tests that generate traces of known workloads, without real I/O, and check that the model has
//! the parameters of these workloads.

use proptest::prelude::*;
use trace::{Call, File, FileId, Header, Operation, Request};

use super::model::{Model, ModelWorkload, Order, Pace, Sharing};
use super::{OutputFormat, Source, model_of, plan};
use analysis::popularity::Law;
use trace::replay::Level;

const LATENCY_NS: u64 = 100_000;

/// A deterministic random number generator (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(end)) >> 64) as u64
    }
}

fn request(start_ns: u64, thread: u32, operation: Operation, offset: u64, bytes: u64) -> Request {
    let is_data = operation.moves_data();
    Request {
        start_ns,
        latency_ns: Some(LATENCY_NS),
        process: 1,
        thread,
        call: Call::named(if is_data { "pread64" } else { "fsync" }).unwrap(),
        operation,
        file: FileId(0),
        offset: is_data.then_some(offset),
        bytes,
        result: Some(bytes as i64),
        direct: true,
        durable: false,
        device_bytes: None,
        sleeps: None,
    }
}

fn header() -> Header {
    let file = |name: &str| File { name: name.to_owned(), end_bytes: 0 };
    Header { files: vec![file("/data/table"), file("/data/wal")], ..Header::default() }
}

fn model_at(requests: &[Request], level: Level) -> Option<Model> {
    let mut sorted = requests.to_vec();
    sorted.sort_by_key(|request| request.start_ns);
    let pass = |take: &mut dyn FnMut(&Request)| {
        sorted.iter().for_each(take);
        Ok(())
    };
    model_of(&pass, &header(), level).unwrap()
}

fn model(requests: &[Request]) -> Model {
    model_at(requests, Level::Calls).unwrap()
}

/// Returns the workload of the model, and checks that the model has no other.
#[track_caller]
fn only(requests: &[Request]) -> ModelWorkload {
    let mut model = model(requests);
    assert_eq!(model.workloads.len(), 1, "{model:#?}");
    model.workloads.remove(0)
}

/// Generates random reads in a closed loop. Each thread has `depth` slots, and each slot issues one
/// read after another. After every `every` reads, the slot pauses for `pause_ns`.
fn closed_loop(
    threads: u32,
    depth: u64,
    (pause_ns, every): (u64, u64),
    count: u64,
) -> Vec<Request> {
    let mut dice = Dice(42);
    let mut all = Vec::new();
    for thread in 0..threads {
        for slot in 0..depth {
            let mut now = slot;
            for number in 1..=count {
                let offset = dice.below(1 << 16) * 8192;
                all.push(request(now, thread + 1, Operation::Read, offset, 8192));
                now += LATENCY_NS + if number % every == 0 { pause_ns } else { 0 };
            }
        }
    }
    all
}

#[test]
fn depth_and_threads_of_a_closed_loop_are_found() {
    for (threads, depth) in [(1, 1), (1, 32), (3, 7), (4, 1)] {
        let found = only(&closed_loop(threads, depth, (0, 1), 500));
        assert_eq!((found.threads, u64::from(found.depth)), (threads, depth));
        assert_eq!(found.pace, Pace::Closed { pause_ns: 0, every: 1 });
        assert_eq!((found.read_percent, &found.sizes[..]), (100, &[(8192, 100)][..]));
        assert_eq!(found.order, Order::Random(Law::Even));
    }
}

#[test]
fn what_was_not_found_in_the_page_cache_is_read_once() {
    let reads = |direct: bool| -> Vec<Request> {
        let read = |number: u64| {
            let offset = number % 64 * 65536;
            let read = request(number * 2 * LATENCY_NS, 1, Operation::Read, offset, 65536);
            Request { direct, sleeps: Some(1), device_bytes: Some(65536), ..read }
        };
        (0..640).map(read).collect()
    };
    let plan_of = |direct| plan::text(&model(&reads(direct)), &Source::default());
    let (cold, direct) = (plan_of(false), plan_of(true));
    assert!(cold.contains("page-cache = \"cold\"\n") && cold.contains("size = \"4m\"\n"), "{cold}");
    assert!(!cold.contains("time-based"), "{cold}");
    assert!(direct.contains("size = \"4m\"\n") && direct.contains("time-based"), "{direct}");
}

#[test]
fn pauses_are_found_within_five_percent() {
    for (depth, pause, every) in
        [(1, 50_000, 1), (1, 3_000_000, 1), (1, 800_000, 16), (4, 90_000, 1)]
    {
        let found = only(&closed_loop(2, depth, (pause, every), 1600));
        let Pace::Closed { pause_ns, every: found_every } = found.pace else { panic!() };
        assert_eq!((u64::from(found.depth), u64::from(found_every)), (depth, every));
        let off = pause_ns as f64 / pause as f64 - 1.0;
        assert!(off.abs() < 0.05, "{pause_ns} ns, not {pause} ns, at depth {depth}");
    }
}

#[test]
fn completions_that_wait_to_be_handled_together_are_no_pause() {
    let found = only(&closed_loop(1, 8, (8_000, 1), 500));
    assert_eq!((found.depth, found.pace), (8, Pace::Closed { pause_ns: 0, every: 1 }));
    // At depth 1, the delay of 8 us counts as a pause of the program.
    let found = only(&closed_loop(1, 1, (8_000, 1), 500));
    assert!(matches!(found.pace, Pace::Closed { pause_ns: 7_900..8_100, .. }), "{found:?}");
}

#[test]
fn a_rare_long_wait_is_no_pause() {
    let mut requests = closed_loop(1, 1, (0, 1), 1000);
    requests.iter_mut().skip(500).for_each(|request| request.start_ns += 5_000_000_000);
    let found = only(&requests);
    assert_eq!(found.pace, Pace::Closed { pause_ns: 0, every: 1 });
    assert!(
        found.left_out.iter().any(|text| text.starts_with("1 idle period without requests, 5 s")),
        "{found:?}"
    );
}

#[test]
fn sizes_and_shares_are_found_within_one_percent() {
    let mut requests = closed_loop(1, 4, (0, 1), 5000);
    let mut dice = Dice(7);
    for request in &mut requests {
        let bytes = [4096, 16384, 65536][[0, 0, 0, 0, 0, 0, 1, 1, 1, 2][dice.below(10) as usize]];
        (request.bytes, request.result) = (bytes, Some(bytes as i64));
        if dice.below(10) < 3 {
            request.operation = Operation::Write;
        }
    }
    let found = only(&requests);
    let expected = [(4096, 60), (16384, 30), (65536, 10)];
    for ((bytes, percent), (expected_bytes, share)) in found.sizes.iter().zip(expected) {
        assert_eq!(*bytes, expected_bytes);
        assert!(percent.abs_diff(share) <= 1, "{:?}", found.sizes);
    }
    assert!(found.read_percent.abs_diff(70) <= 1, "{}", found.read_percent);
}

#[test]
fn the_interval_of_flushes_is_exact() {
    for every in [1, 8, 100] {
        let mut now = 0;
        let mut requests = Vec::new();
        for number in 0..2000 {
            requests.push(request(now, 1, Operation::Write, number * 4096, 4096));
            now += LATENCY_NS;
            if (number + 1) % every == 0 {
                requests.push(request(now, 1, Operation::Flush, 0, 0));
                now += LATENCY_NS;
            }
        }
        let found = only(&requests);
        assert_eq!(found.flush, Some((every as u32, false)));
        // The time of the flush must not count as a pause.
        assert_eq!(found.pace, Pace::Closed { pause_ns: 0, every: 1 });
        assert_eq!((found.order, found.region_bytes), (Order::Sequential, 2000 * 4096));
    }
}

#[test]
fn a_log_beside_a_table_makes_two_workloads() {
    let mut requests = closed_loop(4, 1, (0, 1), 2000);
    let wal = |at: u64, operation| Request {
        file: FileId(1),
        direct: false,
        ..request(at, 9, operation, at / 200_000 * 16384, 16384)
    };
    for number in 0..1000 {
        requests.push(wal(number * 200_000, Operation::Write));
        let flush = Request {
            call: Call::named("fdatasync").unwrap(),
            bytes: 0,
            result: Some(0),
            ..wal(number * 200_000 + LATENCY_NS, Operation::Flush)
        };
        requests.push(flush);
    }
    let model = model(&requests);
    let [table, log] = &model.workloads[..] else { panic!("{model:#?}") };
    assert_eq!(
        (table.name.as_str(), log.name.as_str()),
        ("random reads of 8 KiB", "sequential writes of 16 KiB")
    );
    assert_eq!((table.threads, table.flush, table.direct), (4, None, true));
    assert_eq!((log.threads, log.flush, log.direct), (1, Some((1, true)), false));
    assert_eq!(table.sharing, Sharing::Shared);
    assert_eq!(log.files.0, ["/data/wal"]);
}

#[test]
fn threads_that_share_one_stream_are_told_from_strides() {
    let stream: Vec<Request> = (0..3000)
        .map(|n| request(n * LATENCY_NS / 3, (n % 3) as u32 + 1, Operation::Read, n * 65536, 65536))
        .collect();
    let found = only(&stream);
    assert_eq!((found.order, found.threads), (Order::Common, 3));
    let strides: Vec<Request> =
        (0..3000).map(|n| request(n * LATENCY_NS, 1, Operation::Read, n * 65536, 4096)).collect();
    assert_eq!(only(&strides).order, Order::Strided(65536));
}

#[test]
fn a_trace_without_latencies_becomes_a_rate() {
    let mut dice = Dice(5);
    let untimed = |start_ns, offset| Request {
        latency_ns: None,
        ..request(start_ns, 1, Operation::Read, offset, 4096)
    };
    let steady: Vec<Request> =
        (0..2000).map(|n| untimed(n * 500_000, dice.below(1 << 20) * 4096)).collect();
    let Pace::Open { requests_per_s, poisson } = only(&steady).pace else { panic!() };
    assert!((requests_per_s / 2000.0 - 1.0).abs() < 0.01 && !poisson, "{requests_per_s}");
    let by_chance: Vec<Request> =
        (0..2000).map(|_| untimed(dice.below(1_000_000_000), dice.below(1 << 20) * 4096)).collect();
    assert!(matches!(only(&by_chance).pace, Pace::Open { poisson: true, .. }));
}

#[test]
fn requests_of_the_block_layer_are_another_level() {
    let mut requests = closed_loop(1, 1, (0, 1), 200);
    for number in 0..100 {
        let block = request(number * 300_000, 5, Operation::Write, number * 131_072, 131_072);
        requests.push(Request { call: Call::BLOCK, ..block });
    }
    assert_eq!(only(&requests).sizes, [(8192, 100)]);
    let block = model_at(&requests, Level::Block).unwrap();
    assert_eq!(block.workloads[0].sizes, [(131_072, 100)]);
    assert!(model_at(&requests[..200], Level::Block).is_none());
}

#[test]
fn the_rate_of_a_mix_is_divided_between_reads_and_writes_for_fio() {
    let mut dice = Dice(5);
    let requests: Vec<Request> = (0..4000)
        .map(|n| {
            let operation = if n % 4 == 0 { Operation::Write } else { Operation::Read };
            let one = request(n * 500_000, 1, operation, dice.below(1 << 20) * 4096, 4096);
            Request { latency_ns: None, ..one }
        })
        .collect();
    let text = super::fio::text(&model(&requests), &Source::default());
    assert!(text.contains("rate_iops=1500,500\n"), "{text}");
}

/// Generates arbitrary requests, some of them with very large numbers.
fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    let number = prop_oneof![0_u64..100_000, any::<u64>()];
    let calls = ["unknown", "block", "pread64", "fsync", "sync", "io_uring", "page fault"]
        .map(|name| Call::named(name).unwrap())
        .to_vec();
    let operations = Operation::ALL.to_vec();
    let what = (prop::sample::select(calls), prop::sample::select(operations), 0_u32..3, 0_u32..3);
    let range = (prop::option::of(number.clone()), number.clone(), prop::option::of(any::<i64>()));
    let times = (number.clone(), prop::option::of(number));
    let one = (what, range, times, any::<(bool, bool)>(), prop::option::of(0_u64..9));
    let request = one.prop_map(|(what, range, times, (direct, durable), device_bytes)| Request {
        start_ns: times.0,
        latency_ns: times.1,
        process: 1,
        thread: what.3,
        call: what.0,
        operation: what.1,
        file: FileId(what.2),
        offset: range.0,
        bytes: range.1,
        result: range.2,
        direct,
        durable,
        device_bytes,
        sleeps: None,
    });
    prop::collection::vec(request, 0..80)
}

proptest! {
    #[test]
    fn any_requests_have_a_model_within_bounds(requests in any_requests()) {
        let pass = |take: &mut dyn FnMut(&Request)| {
            requests.iter().for_each(take);
            Ok(())
        };
        for level in Level::ALL {
            let Some(model) = model_of(&pass, &header(), level).unwrap() else { continue };
            for workload in &model.workloads {
                let shares: u32 = workload.sizes.iter().map(|(_, share)| u32::from(*share)).sum();
                prop_assert_eq!(shares, 100);
                prop_assert!(workload.threads >= 1 && workload.depth >= 1);
                prop_assert!(workload.region_bytes >= u64::from(workload.sizes[0].0));
            }
            let text = plan::text(&model, &Source::default());
            prop_assert!(text.lines().all(|line| !line.contains('\r')));
        }
    }
}

#[test]
fn comments_cannot_be_left() {
    let model = model(&closed_loop(1, 1, (0, 1), 50));
    let source = Source {
        trace: "a\nrw = \"write\"".to_owned(),
        command: "x\r\noverwrite = true".to_owned(),
        level: Level::Calls,
        files: vec!["f\noverwrite = true".to_owned()],
    };
    for format in OutputFormat::ALL {
        let text = match format {
            OutputFormat::Plan => plan::text(&model, &source),
            OutputFormat::Fio => super::fio::text(&model, &source),
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        assert!(lines.clone().all(|line| !line.contains("overwrite")), "{text}");
        assert_eq!(lines.filter(|line| line.starts_with("rw")).count(), 1, "{text}");
    }
}
