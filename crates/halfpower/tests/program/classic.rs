//! Tests `classic`, which offers the measurement tools of the papers (for example SQLIO) under
//! their original names. The flags of SQLIO are checked by comparison with the corresponding `run`.
//! Writing needs the same permissions as with `run`.

use std::fs;

use serde_json::Value;

use crate::fixture::{KIB, MIB, Place, list, or_skip, real, text, whole};

const FIELDS: usize = 14;

/// Returns the fields of the trace lines, which follow the line with the column names.
fn trace(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().skip_while(|line| !line.starts_with("MB/s,"));
    let fields = |line: &str| line.split(',').map(str::to_owned).collect();
    let found: Vec<Vec<String>> = lines.skip(1).map(fields).collect();
    assert!(found.iter().all(|fields| fields.len() == FIELDS), "{found:?}");
    found
}

/// Compares a trace line with the document of the corresponding `halfpower run`.
#[track_caller]
fn agrees(fields: &[String], document: &Value, trial: usize) {
    let number = |at: usize| fields[at].parse::<f64>().unwrap_or_else(|_| panic!("{fields:?}"));
    let same = |at: usize, value: f64| {
        assert!((number(at) - value).abs() <= 0.0005001, "field {at}: {value}, not {fields:?}");
    };
    let (workload, trial) = (&document["workload"], &document["trials"][trial]);
    let seconds = real(&trial["elapsed_ns"]) / 1e9;
    same(0, real(&trial["bytes"]) / MIB as f64 / seconds);
    same(1, real(&trial["requests"]) / seconds);
    let operation = if whole(&workload["read_percent"]) == 100 { "read" } else { "write" };
    assert_eq!(fields[2], operation);
    same(3, real(&workload["request_bytes"]) / KIB as f64);
    let letter = match text(&workload["caching"]) {
        "buffered" => "Y",
        "direct" => "H",
        "write-through" => "S",
        _ => "N",
    };
    assert_eq!(fields[5], letter);
    same(6, real(&workload["threads"]));
    same(7, real(&workload["settings"]["limit_ns"]) / 1e9);
    same(8, real(&document["target"]["size_bytes"]) / KIB as f64);
    same(9, seconds);
    same(10, real(&trial["cpu_ns"]["user"]) / 1e6);
    same(11, real(&trial["cpu_ns"]["system"]) / 1e6);
}

#[test]
fn each_field_of_the_trace_is_what_run_measures_of_the_same_workload() {
    let place = Place::new();
    let system = "sim:nt4-ultrawide";
    for (flags, words, outstanding) in [
        ("-kR -s2 -fsequential -o4 -b64 -BH", "--rw read --bs 64k --iodepth 4 --direct=1", "4"),
        ("-kW -s1 -frandom -b8 -BH", "--rw randwrite --bs 8k --direct=1", "0"),
        ("-s1 -fsequential -o2 -b16 -BY", "--rw read --bs 16k --iodepth 2 --direct=0", "2"),
        (
            "-s1 -b4 -o1",
            "--rw read --bs 4k --direct=1 --write-through --stride 256k --size 16m",
            "1",
        ),
    ] {
        let runtime = if flags.contains("-s2") { 2 } else { 1 };
        let line = format!("classic sqlio {flags} {system} --no-store --note new-new");
        let printed = trace(&place.does(&line).stdout);
        let words = format!("{words} --time-based --runtime {runtime} --trials 1 --no-store");
        let document = place.document(&format!("run {system} {words}"));
        assert_eq!(printed.len(), 1, "{flags}");
        agrees(&printed[0], &document, 0);
        assert_eq!((printed[0][4].as_str(), printed[0][13].as_str()), (outstanding, "new-new"));
    }
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn a_trace_file_grows_by_a_line_for_each_trial_of_a_real_run() {
    let place = Place::new();
    place.file("testfile.dat", 2 * MIB);
    let line = "classic sqlio -s0.1 -fsequential -BH -b64 --csv trace.csv --no-store";
    let document = place.document(&format!("{line} --trials 2"));
    place.does(line);
    let lines = trace(&fs::read_to_string(place.path("trace.csv")).unwrap());
    assert_eq!(lines.len(), 3);
    assert_eq!(text(&document["workload"]["ioengine"]), "sync");
    for (trial, fields) in lines[..2].iter().enumerate() {
        agrees(fields, &document, trial);
        assert_eq!(fields[4], "0");
    }
    assert_eq!(place.listing(), ["testfile.dat", "trace.csv"]);
}

#[test]
fn what_sqlio_printed_is_printed_under_its_names() {
    let place = Place::new();
    let line = "classic sqlio -kW -s1 -frandom -o8 -b8 -BH -LS truth:fixed=2ms --no-store -q";
    let printed = place.does(line).stdout;
    let lines: Vec<&str> = printed.lines().collect();
    for (at, words) in [
        (1, "1 thread writing to"),
        (2, "using 8KB random IOs"),
        (3, "8 IOs outstanding"),
        (4, "the disk cache, not the file cache"),
        (5, "throughput metrics:"),
        (6, "IOs/sec:"),
        (7, "MBs/sec:"),
        (8, "latency metrics:"),
        (9, "Min_Latency(ms): "),
        (12, "histogram:"),
        (13, "ms: 0  1  2  3"),
        (15, "verdict: "),
    ] {
        assert!(lines[at].contains(words), "{words} is not in line {at} of {printed}");
    }
    // Every request takes at least 2 ms, so the histogram columns for 0 and 1 ms have 0%.
    assert_eq!(&lines[14][..9], "%:  0  0 ", "{printed}");
}

#[test]
fn a_flag_that_means_nothing_here_gets_one_clear_line() {
    let place = Place::new();
    place.file("data", MIB);
    fs::write(place.path("params"), "data 1\nother 2\n").unwrap();
    fs::write(place.path("diary.csv"), "dear diary").unwrap();
    for (flags, cause, remedy) in [
        ("-dDEF data", "drive letters", "with its path"),
        ("-R1 data", "raw drives", "/dev/sdb"),
        ("-mS4 data", "one buffer", "drop the flag"),
        ("-a0x3 data", "each thread is pinned to one", "-aR0x3"),
        ("-LSi data", "does not measure", "-LS"),
        ("-v1.1.1 data", "1.1.1", "drop the flag"),
        ("-64 data", "-64", "drop the flag"),
        ("-z data", "no such flag", "--help"),
        ("-b data", "-b", "--help"),
        ("-kX data", "-kR", "--help"),
        ("-frandom -i8 data", "-i8", "drop -i"),
        ("data data2", "without -o", "use -o1"),
        ("-Fparams", "differ", "specify the same values for all files"),
        ("-Fnone", "-Fnone", "directly after -F"),
        ("-t300 data", "1 to 256", "--help"),
        ("data --note a,b", "commas", "remove them"),
        ("data --csv halfpower.db", "the database", "--csv"),
        ("--trials 0 data", "--trials 0", "use 1 or more"),
        ("-S999999 data", "data has", "SQLIO's flags were translated to: halfpower run data"),
        ("-BH", "testfile.dat", "SQLIO's flags were translated to"),
    ] {
        place.cannot(&format!("classic sqlio {flags}")).says(cause, remedy);
    }
    let ended = place.cannot("classic sqlio -BY data --csv diary.csv").with_code(3);
    ended.says("diary.csv", "another --csv");
    for (line, remedy) in [
        ("cmdgen . --bs 3x", "use a list"),
        ("cmdgen . --bs 512", "KiB"),
        ("cmdgen . --buffering Q", "Y, H, S and N"),
        ("cmdgen . --order back", "sequential"),
        ("cmdgen . --runtime 1e9", "-s30"),
        ("cmdgen . --bs 1k..4g --iodepth 0..1", "not an ascending range"),
        ("cacheflush .", "specify a file"),
        ("cacheflush sim:nt4-ultrawide", "use a file"),
        ("cacheflush none", "none"),
        ("diskcache none", "none"),
        ("memspeed --size 1", "4k"),
    ] {
        place.cannot(&format!("classic {line}")).says("", remedy);
    }
}

#[test]
fn sqlio_writes_to_what_exists_only_with_consent() {
    let place = Place::new();
    let path = place.file("data", 8 * MIB);
    let before = fs::read(&path).unwrap();
    let line = "classic sqlio -kW -s0.1 -b64 -BY -fsequential data --no-store";
    place.cannot(line).with_code(3).says("data", "--overwrite");
    assert!(fs::read(&path).unwrap() == before, "written without consent");
    place.does(&format!("{line} --overwrite data"));
    assert!(fs::read(&path).unwrap() != before, "not written with consent");
    let plan = place.does(&format!("{line} --overwrite data --csv t.csv --plan")).stdout;
    assert!(plan.contains("halfpower run data --rw write --bs 64k"), "{plan}");
    assert!(plan.contains("trace lines to t.csv") && plan.contains("nothing was done"), "{plan}");
    assert_eq!(place.listing(), ["data"]);
}

#[test]
fn the_line_of_a_plan_is_the_line_that_is_run() {
    let place = Place::new();
    let line = "-kW -s1 -t2 -frandom -o4 -b8 -BN -S16 sim:nt4-ultrawide";
    let plan = place.does(&format!("classic sqlio {line} --plan")).stdout;
    let typed = plan.lines().next().unwrap().strip_prefix("halfpower ").unwrap().to_owned();
    let by_hand = place.document(&format!("{typed} --trials 1 --no-store"));
    let by_flags = place.document(&format!("classic sqlio {line} --no-store"));
    assert_eq!(by_hand["workload"], by_flags["workload"]);
    assert_eq!(by_hand["trials"][0]["bytes"], by_flags["trials"][0]["bytes"]);
    assert_eq!(by_hand["trials"][0]["elapsed_ns"], by_flags["trials"][0]["elapsed_ns"]);
}

#[test]
fn a_parameter_file_names_the_files() {
    let place = Place::new();
    place.file("a", 4 * MIB);
    place.file("b", 4 * MIB);
    fs::write(place.path("params"), "# two files\na 1 0x0 2\nb 1 0x0 2\n").unwrap();
    let line = "classic sqlio -Fparams -frandom -o2 -b64 -BH -s0.1 --no-store";
    let document = place.document(line);
    assert_eq!(list(&document["targets"]).len(), 2);
    assert_eq!(whole(&document["workload"]["size_bytes"]), 2 * MIB);
}

#[test]
fn cmdgen_writes_tests_that_run_in_each_of_its_styles() {
    let place = Place::new();
    let set = "classic cmdgen sim:nt4-ultrawide --bs 8k,64k --iodepth 0,4 --rw read --runtime 1 \
               --buffering H --note new-new";
    let run = place.does(set).stdout;
    let sqlio = place.does(&format!("{set} --as sqlio")).stdout;
    assert_eq!((run.lines().count(), sqlio.lines().count()), (4, 4));
    // The test splits each command line at spaces. The quoted labels contain spaces, so the test
    // replaces the labels first.
    let typed = |line: &str| {
        let line = line.strip_prefix("halfpower ").unwrap();
        line.replace("'new-new H sync'", "sync").replace("'new-new H async'", "async")
    };
    for (run, sqlio) in run.lines().zip(sqlio.lines()) {
        let document = place.document(&format!("{} --no-store", typed(run)));
        place.does(&format!("{} --no-store -q", typed(sqlio)));
        let lines = trace(&fs::read_to_string(place.path("trace.csv")).unwrap());
        agrees(lines.last().unwrap(), &document, 0);
    }
    let plan = place.does(&format!("{set} --as toml")).stdout;
    fs::write(place.path("tests.toml"), plan).unwrap();
    let made = place.document("sweep tests.toml --no-store");
    assert_eq!(list(&made["studies"][0]["points"]).len(), 4);
}

#[test]
fn cacheflush_leaves_nothing_of_a_file_in_the_page_cache() {
    let place = Place::new();
    let path = place.file("data", MIB);
    fs::read(&path).unwrap();
    let ended = place.halfpower("classic cacheflush data --json");
    if ended.stderr.contains("cannot be dropped from the page cache") {
        or_skip!(Err::<(), _>(format!("pages of the file stay cached: {}", ended.stderr)));
    }
    let document = ended.with_code(0).json();
    assert_eq!(whole(&document["resident_before_bytes"]), MIB);
    assert_eq!(whole(&document["resident_after_bytes"]), 0);
    place.does("classic cacheflush data --plan").prints("nothing was done");
    place.does("classic cacheflush").prints("nothing was done");
    // `--read` reads the whole file once, buffered, and prints throughput, CPU time and a trace
    // line.
    let read = place.does("classic cacheflush data --read --note new-new").stdout;
    assert!(read.contains("MBs/sec:") && read.contains("Process(%):"), "{read}");
    let line = read.lines().last().unwrap();
    assert!(line.contains(",read,64,0,Y,1,") && line.ends_with(",new-new"), "{line}");
    let seconds: f64 = line.split(',').nth(9).unwrap().parse().unwrap();
    let mb_per_s: f64 = line.split(',').next().unwrap().parse().unwrap();
    // The time is printed in whole milliseconds.
    let rounding = 0.0006 / seconds.max(0.0006);
    assert!((seconds * mb_per_s - 1.0).abs() <= rounding, "time x throughput is not 1 MB: {line}");
}

#[test]
fn memspeed_names_its_eight_tests() {
    let place = Place::new();
    let document = place.document("classic memspeed --quick --size 1m");
    let tests = list(&document["tests"]);
    let mut numbers: Vec<u64> = tests.iter().filter_map(|test| test["test"].as_u64()).collect();
    numbers.sort_unstable();
    // On a machine with a single CPU, memspeed leaves out the tests with several threads.
    let all = tests.iter().any(|test| whole(&test["threads"]) > 1);
    assert_eq!(numbers, (1..=if all { 8 } else { 5 }).collect::<Vec<u64>>());
    assert!(tests.iter().all(|test| real(&test["bytes_per_s"]) > 0.0));
    place.does("classic memspeed --plan").prints("nothing was done");
}

#[test]
fn diskcache_finds_a_cache_hit_faster_than_the_medium_on_a_device_that_has_a_cache() {
    let place = Place::new();
    let device = "truth:fixed=1ms,rate=100MB/s,cache=2m,hit=100us";
    let document =
        place.document(&format!("classic diskcache {device} --quick --size 4m --no-store"));
    let rows = list(&document["rows"]);
    assert_eq!(rows.len(), 8);
    // Several sequential reads of less than 4 KiB share a 4 KiB block, so some of these reads hit
    // the device's cache. Only requests of at least 8 KiB are checked.
    for row in rows.iter().filter(|row| whole(&row["request_bytes"]) >= 8 * KIB) {
        let (same, ordered) = (real(&row["same_block_ns"]), real(&row["sequential_ns"]));
        assert!(same < ordered, "a cache hit is not faster: {row}");
    }
    assert!(real(&document["two_deep_bytes_per_s"]) > 0.0);
    place.does(&format!("classic diskcache {device} --plan")).prints("nothing was done");
}

#[test]
fn soaker_is_the_verb_soak() {
    let place = Place::new();
    let one = place.does("classic soaker --json --unsoaked -- true").json();
    let other = place.does("soak --json --unsoaked -- true").json();
    let keys = |document: &Value| document.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&one), keys(&other));
}

#[test]
fn trace_lines_are_imported_and_exported_as_they_were() {
    let place = Place::new();
    place.does(
        "classic sqlio -kR -fsequential -b64 -o4 -BH sim:nt4-ultrawide --csv t.csv --trials 2",
    );
    let trace = fs::read_to_string(place.path("t.csv")).unwrap();
    place.does("import t.csv --label trace").prints("not reported: whether requests were random");
    assert_eq!(place.does("export trace --format sqlio").stdout.trim(), trace.trim());
    place.does("compare trace latest").prints("1 point compared by rate: 1 same");
}
