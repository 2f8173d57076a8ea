//! Tests `memory`: the bandwidth for each working set and number of threads, and the detected
//! caches. Two tests compare the bandwidth with that of another program.
//!
//! These tests run both programs in turn on the same CPU. A busy machine makes samples slower,
//! never faster, so only the fastest sample of each execution counts. The result of an attempt is
//! the median ratio of several pairs of executions. The test fails only if all attempts fail.

use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use analysis::quantile::median;
use serde_json::Value;

use crate::fixture::{Place, list, or_skip, pause, real, whole};
use crate::json::Schema;

/// Number of pairs of executions per attempt. Each pair gives a ratio: bandwidth of halfpower
/// divided by bandwidth of the other program. The result of an attempt is the median ratio.
const PAIRS: usize = 7;
/// Maximum number of attempts.
const ATTEMPTS: usize = 5;
/// Maximum difference between the result of an attempt and 1.
const BAR: f64 = 0.1;
/// The triad has three arrays of this size (MiB), which is far larger than a cache.
const TRIAD_MIB: usize = 32;
/// The copy has two arrays of this size (MiB).
const COPY_MIB: usize = 48;

/// A plain triad in C, with default pages and page-aligned arrays. The compiler chooses the loads
/// and stores. Compilers do not generate non-temporal stores by themselves.
const TRIAD_C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline))
static void triad(double *restrict a, const double *restrict b, const double *restrict c,
                  double s, size_t n) {
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + s * c[i];
}

int main(int argc, char **argv) {
    size_t n = strtoull(argv[1], NULL, 10) / sizeof(double);
    int passes = atoi(argv[2]);
    double *a = aligned_alloc(4096, n * sizeof *a);
    double *b = aligned_alloc(4096, n * sizeof *b);
    double *c = aligned_alloc(4096, n * sizeof *c);
    if (argc != 3 || !a || !b || !c)
        return 1;
    for (size_t i = 0; i < n; i++) {
        a[i] = 1.0;
        b[i] = 2.0;
        c[i] = 3.0;
    }
    double best = 1e9;
    for (int pass = 0; pass <= passes; pass++) {
        double start = now();
        triad(a, b, c, passes, n);
        double took = now() - start;
        if (pass > 0 && took < best)
            best = took;
    }
    printf("%.0f\n", 24.0 * n / best);
    return a[n / 2] != 2.0 + 3.0 * passes;
}
"#;

/// Lets only one test measure bandwidth at a time, because two tests would halve each other's rate.
fn turn() -> impl Drop {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures halfpower and the other program in turn until the ratio of their bandwidths is within
/// the limit. Panics after the last attempt.
fn agree(ours: impl Fn() -> f64, other: impl Fn() -> f64) {
    let _turn = turn();
    // Child processes inherit this CPU affinity, so both programs run on the same CPU.
    let cpus = cpucost::affinity::allowed_cpus();
    cpucost::affinity::pin_current_thread(&cpus[cpus.len() - 1..]).unwrap();
    let mut seen = Vec::new();
    for attempt in 0..ATTEMPTS {
        let pair = |index: usize| {
            if index.is_multiple_of(2) {
                let first = ours();
                first / other()
            } else {
                let first = other();
                ours() / first
            }
        };
        let ratios: Vec<f64> = (0..PAIRS).map(pair).collect();
        let ratio = median(&ratios).unwrap();
        eprintln!("attempt {attempt}: ratio {ratio:.3} of {ratios:.3?}");
        if (ratio - 1.0).abs() <= BAR {
            return;
        }
        seen.push(ratio);
        pause(2000);
    }
    panic!("halfpower and the other program disagree in every attempt: {seen:.3?}");
}

/// Returns the fastest sample of `memory LINE` (bytes per second). The line must select a single
/// case.
///
/// Waits for the program without polling, because polling would use CPU during the measurement.
fn best(place: &Place, line: &str) -> f64 {
    let line = format!("memory --threads 1 --buffer-pages system --quiet --json {line}");
    let document: Value = serde_json::from_str(&output(&mut place.command(&line))).unwrap();
    assert_eq!(list(&document["table"]).len(), 1);
    real(&document["table"][0]["best_bytes_per_s"])
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that a program is installed. Otherwise returns the reason to skip the test.
fn program(name: &str, package: &str) -> Result<(), String> {
    let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output().unwrap();
    let remedy = format!("needs {name}; type: sudo apt-get install {package}");
    if found.status.success() { Ok(()) } else { Err(remedy) }
}

#[test]
#[ignore = "compares speeds, which needs an idle machine"]
fn the_triad_is_as_fast_as_a_plain_loop_in_c() {
    or_skip!(program("cc", "gcc"));
    let place = Place::new();
    let (source, triad) = (place.path("triad.c"), place.path("triad"));
    fs::write(&source, TRIAD_C).unwrap();
    let mut cc = Command::new("cc");
    output(cc.args(["-O3", "-march=native", "-o"]).arg(&triad).arg(&source));
    let other = || {
        let bytes = (TRIAD_MIB << 20).to_string();
        output(Command::new(&triad).args([&bytes, "15"])).trim().parse().unwrap()
    };
    let line = format!("--kernel triad --size {}m", 3 * TRIAD_MIB);
    agree(|| best(&place, &line), other);
}

#[test]
#[ignore = "compares speeds, which needs an idle machine"]
fn the_copy_is_as_fast_as_that_of_mbw() {
    or_skip!(program("mbw", "mbw"));
    let place = Place::new();
    let other = || {
        let mut mbw = Command::new("mbw");
        let text = output(mbw.args(["-t0", "-q", "-a", "-n", "15", &COPY_MIB.to_string()]));
        // Example: 0  Method: MEMCPY  Elapsed: 0.00368  MiB: 64.00000  Copy: 17367.707 MiB/s
        let rates = text.lines().filter_map(|line| line.split("Copy:").nth(1));
        let rates = rates.map(|rate| rate.split_whitespace().next().unwrap());
        rates.map(|rate| rate.parse::<f64>().unwrap()).reduce(f64::max).unwrap() * 1048576.0
    };
    // The C library places large arrays 16 bytes after the start of a page, so halfpower does the
    // same.
    let line = format!("--kernel copy --size {}m --offset 16", 2 * COPY_MIB);
    agree(|| best(&place, &line), other);
}

#[test]
fn everything_is_measured_and_fits_the_schema() {
    let _turn = turn();
    let place = Place::new();
    let document = place.document("memory --quick --quiet");
    Schema::of("memory").fits(&document);
    let table = list(&document["table"]);
    let cpus = list(&document["cpus"]).len() as u64;
    for threads in [1, cpus] {
        for kernel in ["load", "store", "memset", "copy", "triad", "touch-read", "touch-write"] {
            let is_it = |cell: &&Value| cell["kernel"] == kernel && cell["threads"] == threads;
            let cells: Vec<&Value> = table.iter().filter(is_it).collect();
            assert!(cells.iter().any(|cell| cell["level"] == "DRAM"), "{kernel} {threads}");
            for cell in cells {
                let (once, traffic) =
                    (real(&cell["bytes_per_s"]["median"]), real(&cell["traffic_bytes_per_s"]));
                let times = if kernel == "copy" { 2.0 } else { 1.0 };
                assert!(once > 0.0 && (traffic / once - times).abs() < 1e-9, "{cell}");
                assert!(real(&cell["best_bytes_per_s"]) >= once, "{cell}");
            }
        }
    }
    let points = list(&document["curves"][0]["points"]);
    let sizes: Vec<u64> = points.iter().map(|point| whole(&point["set_bytes"])).collect();
    assert!(sizes[0] == 4096 && sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
    assert!(!list(&document["curves"][0]["plateaus"]).is_empty(), "the curve has no plateaus");
    let paths: Vec<&str> =
        list(&document["paths"]).iter().map(|path| path["name"].as_str().unwrap()).collect();
    assert!(paths.starts_with(&["temporary-file-read", "temporary-file-write"]), "{paths:?}");
    assert!(paths.contains(&"hot-file-read") || !list(&document["skipped"]).is_empty());
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn what_is_asked_for_is_measured_and_nothing_else() {
    let _turn = turn();
    let place = Place::new();
    let line = "memory --quick --kernel load,copy --size 8k,1m --threads 1,3 --offset 8";
    let document = place.document(&format!("{line} --buffer-pages 4k"));
    let cells = list(&document["table"]).iter();
    let of = |cell: &Value| (whole(&cell["threads"]), whole(&cell["set_bytes"]));
    let cells: Vec<_> = cells.map(of).collect();
    let sets = [8192, 1 << 20, 8192, 1 << 20];
    let expected: Vec<_> =
        [1, 3].iter().flat_map(|threads| sets.map(|set| (*threads, set))).collect();
    assert_eq!(cells, expected);
    assert!(list(&document["curves"]).is_empty() && list(&document["paths"]).is_empty());
    assert!(document["huge_share"].as_f64().is_none_or(|share| share == 0.0), "{document:#}");
    let text = place.does(&line.replace("memory", "memory --quiet")).stdout;
    for words in ["1 thread (MB/s)", "3 threads (MB/s)", "load", "copy", "counted once"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn the_plan_says_what_is_written_and_touches_nothing() {
    let place = Place::new();
    let plan = place.does("memory --plan").stdout;
    for words in ["triad", "DRAM", "an unnamed file of", "nothing was done"] {
        assert!(plan.contains(words), "{words}: {plan}");
    }
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_remedy() {
    let place = Place::new();
    for (flags, cause, remedy) in [
        ("--kernel stream", "stream", "triad"),
        ("--size 1k", "--size", "4k or more"),
        ("--size 4x", "4x", "4k"),
        ("--size 900t", "sets take", "smaller --size"),
        ("--threads 0", "--threads 0", "1 to 4096"),
        ("--threads x", "--threads x", "not a number"),
        ("--offset 12", "--offset 12", "multiple of 8"),
        ("--cpus-allowed 9999", "9999", "use CPUs in"),
    ] {
        place.cannot(&format!("memory {flags}")).with_code(2).says(cause, remedy);
    }
    place.cannot("memory --quick --quiet --dir /dev").with_code(3).says("/dev", "--dir");
}

#[test]
fn an_order_to_stop_keeps_what_was_measured() {
    // The load of the machine determines when the first result is available. The test therefore
    // runs the program up to three times and interrupts each run later than the run before it.
    let after = |milliseconds| {
        let place = Place::new();
        let running = place.start("memory --json --quiet");
        pause(milliseconds);
        running.signal("INT");
        let document = running.ended().with_code(130).json();
        assert_eq!(document["interrupted"], true);
        document
    };
    let kept = [2500, 5000, 10_000].into_iter().map(after);
    assert!(kept.into_iter().any(|document| !list(&document["table"]).is_empty()));
}
