//! Tests uneven loads: hot blocks, random request sizes, a stream of requests that threads share,
//! and pauses. Also tests that the request log shows these loads.

use std::collections::BTreeMap;
use std::fs;

use crate::fixture::{KIB, MIB, Place, list, whole};

/// A line of a request log.
#[derive(Clone, Copy, Debug)]
struct Line {
    trial: u64,
    thread: u64,
    writes: bool,
    offset: u64,
    bytes: u64,
    submit_ns: i64,
    complete_ns: i64,
}

/// Parses `log.csv` in the working directory.
fn log_of(place: &Place) -> Vec<Line> {
    let text = fs::read_to_string(place.path("log.csv")).unwrap();
    let mut lines = text.lines();
    let header = "point,trial,thread,op,offset,bytes,submit_ns,complete_ns,failed";
    assert_eq!(lines.next(), Some(header));
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |field: usize| fields[field].parse::<u64>().unwrap();
        assert_eq!((fields.len(), fields[8]), (9, "0"), "{line}");
        Line {
            trial: number(1),
            thread: number(2),
            writes: fields[3] == "write",
            offset: number(4),
            bytes: number(5),
            submit_ns: fields[6].parse().unwrap(),
            complete_ns: fields[7].parse().unwrap(),
        }
    };
    lines.map(line).collect()
}

/// Reads 4 KiB blocks with the engine null, so that no device limits the rate.
const NULL: &str = "run --ioengine null --bs 4k --size 256m --trials 1 --no-store --log log.csv";
/// Number of 4 KiB blocks in the region.
const BLOCKS: u64 = 64 * KIB;

#[test]
fn the_most_popular_blocks_get_the_shares_of_zipfs_law_wherever_they_lie() {
    let place = Place::new();
    let flags = "--rw randread --numjobs 2 --placement shared --random_distribution=zipf:1.2";
    let document = place.document(&format!("{NULL} {flags}"));
    assert_eq!(document["workload"]["settings"]["random_distribution"], "zipf:1.2");
    let mut counts = BTreeMap::<u64, u64>::new();
    for line in log_of(&place) {
        assert!(line.offset.is_multiple_of(4 * KIB) && line.offset < BLOCKS * 4 * KIB);
        *counts.entry(line.offset).or_default() += 1;
    }
    let drawn: u64 = counts.values().sum();
    assert_eq!(drawn, BLOCKS);
    let sum: f64 = (1..=BLOCKS).map(|rank| (rank as f64).powf(-1.2)).sum();
    let mut hottest: Vec<(u64, u64)> = counts.iter().map(|(at, count)| (*count, *at)).collect();
    hottest.sort_unstable_by(|a, b| b.cmp(a));
    for (rank, (count, _)) in (1..).zip(&hottest[..4]) {
        let expected = drawn as f64 * f64::from(rank).powf(-1.2) / sum;
        let off = (*count as f64 - expected).abs();
        assert!(off < 6.0 * expected.sqrt(), "{count} of rank {rank}, not {expected:.0}");
    }
    assert!(hottest[0].1.abs_diff(hottest[1].1) > 4 * KIB, "the two hottest blocks are too close");
}

#[test]
fn zones_get_their_shares_in_the_order_of_the_region() {
    let place = Place::new();
    place.does(&format!("{NULL} --rw randrw --random-distribution zoned:60/10:30/20:10/70"));
    let lines = log_of(&place);
    let share = |from: u64, to: u64| {
        let within = |line: &&Line| (from..to).contains(&(line.offset / (4 * KIB) * 100 / BLOCKS));
        lines.iter().filter(within).count() as f64 / lines.len() as f64
    };
    let off = [share(0, 10) - 0.6, share(10, 30) - 0.3, share(30, 100) - 0.1];
    assert!(off.iter().all(|off| off.abs() < 0.02), "{off:?}");
    assert!(lines.iter().any(|line| line.writes) && lines.iter().any(|line| !line.writes));
}

#[test]
fn sizes_by_chance_are_told_and_move_the_bytes_that_were_asked_for() {
    let place = Place::new();
    place.file("data", 8 * MIB);
    let flags =
        "--rw randread --bssplit 4k/60:64k/40 --iodepth 4 --numjobs 2 --trials 2 --log log.csv";
    let document = place.document(&format!("run data {flags} --size 8m"));
    let workload = &document["workload"];
    assert_eq!(workload["request_bytes"], 64 * KIB);
    let sizes = list(&workload["settings"]["request_sizes"]);
    assert_eq!(sizes.len(), 2);
    assert_eq!((whole(&sizes[0]["request_bytes"]), whole(&sizes[0]["percent"])), (4 * KIB, 60));
    let lines = log_of(&place);
    for (number, trial) in list(&document["trials"]).iter().enumerate() {
        let of_trial = || lines.iter().filter(|line| line.trial == number as u64);
        assert_eq!(whole(&trial["bytes"]), 8 * MIB);
        assert_eq!(of_trial().map(|line| line.bytes).sum::<u64>(), 8 * MIB);
        assert_eq!(of_trial().count() as u64, whole(&trial["requests"]));
    }
    assert!(lines.iter().all(|line| line.offset + line.bytes <= 8 * MIB));
    assert!(lines.iter().all(|line| line.offset.is_multiple_of(4 * KIB)));
    assert!(lines.iter().all(|line| line.submit_ns >= 0 && line.submit_ns <= line.complete_ns));
    let small = lines.iter().filter(|line| line.bytes == 4 * KIB).count() as f64;
    assert!((0.5..0.7).contains(&(small / lines.len() as f64)), "{small} of {}", lines.len());
}

#[test]
fn interlocked_threads_are_one_sequential_stream_here_and_in_a_simulated_system() {
    let place = Place::new();
    place.file("data", 4 * MIB);
    for target in ["data", "sim:nt4-ultrawide"] {
        let flags = "--bs 64k --iodepth 2 --numjobs 4 --placement interlocked --size 4m --trials 1";
        let document = place.document(&format!("run {target} {flags} --no-store --log log.csv"));
        assert_eq!(document["workload"]["settings"]["placement"], "interlocked");
        let mut lines = log_of(&place);
        let mut threads: Vec<u64> = lines.iter().map(|line| line.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        assert_eq!(threads, [0, 1, 2, 3]);
        if target != "data" {
            // The threads share one stream of requests, so requests are issued almost in the order
            // of their offsets.
            lines.sort_by_key(|line| line.submit_ns);
            let far = |(nth, line): (usize, &Line)| (line.offset / (64 * KIB)).abs_diff(nth as u64);
            let farthest = lines.iter().enumerate().map(far).max().unwrap();
            assert!(farthest < 8, "{farthest} requests out of order");
        }
        let mut offsets: Vec<u64> = lines.iter().map(|line| line.offset).collect();
        offsets.sort_unstable();
        assert!(offsets.into_iter().eq((0..64).map(|block| block * 64 * KIB)), "{target}");
    }
}

#[test]
fn pauses_are_exact_in_virtual_time() {
    let place = Place::new();
    let flags = "--rw randread --bs 4k --thinktime 10ms --thinktime_blocks=2 --runtime 3";
    let line = format!("run sim:nt4-ultrawide {flags} --trials 1 --no-store --log log.csv");
    let document = place.document(&line);
    let settings = &document["workload"]["settings"];
    assert_eq!(
        (whole(&settings["thinktime_ns"]), whole(&settings["thinktime_blocks"])),
        (10_000_000, 2)
    );
    assert_ne!(document["verdict"]["state"], "invalid", "{}", document["verdict"]);
    let lines = log_of(&place);
    assert!(lines.len() > 100, "{} requests", lines.len());
    for (nth, pair) in lines.windows(2).enumerate() {
        let pause = if nth % 2 == 1 { 10_000_000 } else { 0 };
        assert_eq!(pair[1].submit_ns - pair[0].complete_ns, pause, "after request {nth}");
    }
}

#[test]
fn a_plan_file_skews_a_sweep() {
    let place = Place::new();
    let plan = "target = 'sim:nt4-ultrawide'\nrw = ['read', 'randread']\nsize = '1m'\ntrials = 1\n\
                bssplit = '4k/50:64k/50'\nrandom_distribution = 'pareto:0.3'\n";
    fs::write(place.path("plan.toml"), plan).unwrap();
    let document = place.document("sweep plan.toml --no-store");
    let laws: Vec<_> = list(&document["points"])
        .iter()
        .map(|point| point["workload"]["settings"]["random_distribution"].as_str())
        .collect();
    // Sequential points have no random distribution.
    assert_eq!(laws, [None, Some("pareto:0.3")]);
    let again = place.document("sweep plan.toml --no-store");
    assert_eq!(document["points"], again["points"], "the same seed gives other points");
}

#[test]
fn what_does_not_go_together_is_refused_with_the_remedy() {
    let place = Place::new();
    place.file("data", MIB);
    for (flags, remedy) in [
        ("--bs 4k --bssplit 4k/50:64k/50", "drop one"),
        ("--bssplit 4k/50:6k/50", "multiples"),
        ("--bssplit 4k/50:64k/50 --verify", "use --bs"),
        ("--random-distribution zipf:1.2", "randread"),
        ("--rw randread --random-distribution zipf:0", "zipf:1.2"),
        ("--rw randread --random-distribution pareto:1", "pareto:0.2"),
        ("--rw randread --random-distribution zoned:60/10", "make the access shares add up to 100"),
        ("--rw randread --placement interlocked", "--rw read"),
        ("--stride 64k --placement interlocked", "without --stride"),
        ("--thinktime-blocks 2", "--thinktime 100us"),
        ("--thinktime 1ms --thinktime-blocks 0", "1 or more"),
        ("--thinktime 1ms --rate-iops 100", "drop --thinktime or --rate-iops"),
        ("--log data", "specify another file with --log"),
        ("--log none/log.csv", "create it first"),
    ] {
        let ended = place.cannot(&format!("run data {flags} --quiet --no-store"));
        assert!(ended.stderr.contains(remedy), "{remedy:?} is not in stderr: {ended}");
    }
}

#[test]
fn a_log_takes_the_place_of_an_older_one_only() {
    let place = Place::new();
    place.file("data", MIB);
    place.file("precious.csv", KIB);
    for _ in 0..2 {
        place.does("run data --size 64k --bs 4k --trials 1 --no-store --log log.csv");
        assert_eq!(log_of(&place).len(), 16);
    }
    place.cannot("run data --size 64k --no-store --log precious.csv").with_code(3);
    place
        .cannot("run log.csv --bs 512 --size 512 --direct=0 --no-store --log log.csv")
        .with_code(3);
}
