//! Formats the result of a test like SQLIO's output, so that scripts that parse SQLIO's output also
//! work with halfpower. The flags are printed in words, followed by the metrics under SQLIO's
//! names.
//!
//! The histogram counts latencies in whole milliseconds, as SQLIO did.

use ioengine::Caching;
use lab::point::Trial;

use crate::classic::flags::{Flags, Order};

/// The number of columns of SQLIO's histogram. The first 24 columns count latencies of 0 to 23 ms,
/// and the last column counts all longer latencies.
const COLUMNS: usize = 25;
const MS: f64 = 1e6;

/// Describes the flags in words, as SQLIO did.
pub fn understood(flags: &Flags, threads: u32, files: &[String]) -> Vec<String> {
    let plural = if threads == 1 { "thread" } else { "threads" };
    let verb = if flags.writes { "writing to" } else { "reading from" };
    let kb = flags.block_kib;
    let order = match flags.order {
        Order::Random => format!("{kb}KB random IOs"),
        Order::Sequential => format!("{kb}KB sequential IOs"),
        Order::Stripe { columns, rows } => {
            format!("{kb}KB IOs over {}KB stripes with {rows} IOs per run", columns * kb)
        }
    };
    let outstanding = match flags.outstanding {
        0 => "one IO at a time in each thread".to_owned(),
        depth => format!("{depth} IOs outstanding in each thread"),
    };
    let caches = match flags.caching {
        Caching::Buffered => "file and disk caches",
        Caching::Direct => "the disk cache, not the file cache",
        Caching::WriteThrough => "the file cache, not the disk cache",
        Caching::DirectWriteThrough => "neither file nor disk caches",
    };
    let seconds = &flags.seconds;
    vec![
        format!("{threads} {plural} {verb} {} for {seconds} secs", files.join(", ")),
        format!("\tusing {order}"),
        format!("\t{outstanding}"),
        format!("\tbuffering set to use {caches}"),
    ]
}

/// Formats the metrics of a trial.
pub fn metrics(trial: &Trial, latencies: bool) -> Vec<String> {
    let mut lines = vec![
        "throughput metrics:".to_owned(),
        format!("IOs/sec: {:8.2}", trial.whole_requests_per_s()),
        format!("MBs/sec: {:8.2}", trial.whole_bytes_per_s() / 1048576.0),
    ];
    if latencies {
        lines.extend(latency_lines(trial));
    }
    lines
}

/// Formats the CPU utilisation of the machine and of the process during a trial (flag -U; percent
/// of all CPUs).
pub fn utilisation(trial: &Trial) -> Vec<String> {
    let cpu = &trial.cpu;
    let percent = |ns: u64| format!("{:5.1}", 100.0 * ns as f64 / cpu.available_ns.max(1) as f64);
    let machine = cpu.machine_ns.map_or_else(|| "unknown".to_owned(), percent);
    vec![
        "utilization metrics:".to_owned(),
        format!("Machine(%): {machine}"),
        format!("Process(%): {} (a lower bound of the CPU cost)", percent(cpu.process_ns)),
    ]
}

/// Returns a time in whole milliseconds, rounded down as in SQLIO.
fn whole_ms(ns: f64) -> u64 {
    (ns / MS) as u64
}

fn latency_lines(trial: &Trial) -> Vec<String> {
    let all = trial.latency();
    let ms = |ns: Option<u64>| whole_ms(ns.unwrap_or(0) as f64);
    let mut counts = [0; COLUMNS];
    for bucket in all.buckets() {
        counts[(bucket.low_ns as f64 / MS).min((COLUMNS - 1) as f64) as usize] += bucket.count;
    }
    // Latencies that are too long for the buckets also belong to the last column.
    counts[COLUMNS - 1] += all.count() - counts.iter().sum::<u64>();
    let share = |count: &u64| 100.0 * *count as f64 / all.count().max(1) as f64;
    let heads: Vec<String> = (0..COLUMNS - 1).map(|ms| format!("{ms:>2}")).collect();
    let shares: Vec<String> = counts.iter().map(|count| format!("{:>2.0}", share(count))).collect();
    vec![
        "latency metrics:".to_owned(),
        format!("Min_Latency(ms): {}", ms(all.min())),
        format!("Avg_Latency(ms): {}", whole_ms(all.mean().unwrap_or(0.0))),
        format!("Max_Latency(ms): {}", ms(all.max())),
        "histogram:".to_owned(),
        format!("ms:{} {}+", heads.join(" "), COLUMNS - 1),
        format!("%: {}", shares.join(" ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::histogram::Histogram;
    use cpucost::CpuUsage;
    use lab::point::Direction;

    #[test]
    fn the_last_column_of_the_histogram_counts_everything_beyond() {
        let mut latency = Histogram::new();
        [100_000, 2_300_000, 2_400_000, 90_000_000].iter().for_each(|ns| latency.record(*ns));
        let reads = Direction { bytes: 4 << 20, requests: 4, latency };
        let directions = [reads, Direction::default()];
        let trial = Trial { directions, elapsed_ns: 2_000_000_000, ..Trial::default() };
        let lines = metrics(&trial, true);
        assert_eq!(lines[1], "IOs/sec:     2.00");
        assert_eq!(lines[2], "MBs/sec:     2.00");
        assert!(lines.contains(&"Max_Latency(ms): 90".to_owned()), "{lines:?}");
        let shares: Vec<&str> = lines.last().unwrap().split_whitespace().skip(1).collect();
        assert_eq!(shares.len(), COLUMNS);
        assert_eq!((shares[0], shares[1], shares[2], shares[24]), ("25", "0", "50", "25"));
        assert_eq!(metrics(&trial, false).len(), 3);
    }

    #[test]
    fn utilisation_is_a_share_of_all_cpus() {
        let cpu = CpuUsage {
            available_ns: 4_000,
            machine_ns: Some(1_000),
            process_ns: 500,
            ..CpuUsage::default()
        };
        let lines = utilisation(&Trial { cpu, ..Trial::default() });
        assert_eq!(lines[1], "Machine(%):  25.0");
        assert!(lines[2].starts_with("Process(%):  12.5"), "{lines:?}");
    }

    #[test]
    fn a_trial_without_requests_has_an_empty_histogram() {
        assert!(metrics(&Trial::default(), true).last().unwrap().starts_with("%:  0  0"));
    }

    #[test]
    fn the_flags_are_printed_in_words() {
        let lines = understood(&Flags::default(), 1, &["f".to_owned()]);
        assert_eq!(lines[0], "1 thread reading from f for 30 secs");
        assert_eq!(lines[1], "\tusing 2KB IOs over 128KB stripes with 64 IOs per run");
        assert!(lines[3].contains("neither"));
    }
}
