//! Reads how long the threads of this process waited for a CPU. The time is the second number in
//! `/proc/self/task/*/schedstat` (ns since the start of the thread; kernel document
//! scheduler/sched-stats).

use std::fs;

/// Maximum number of threads. With more threads, reading one file for each thread takes too long.
const THREADS_MAX: usize = 256;

/// Returns the time for which threads waited for a CPU, summed over all live threads (ns). None if
/// the kernel does not report this time, or if there are more than `THREADS_MAX` threads.
pub fn run_delay_ns() -> Option<u64> {
    let tasks: Vec<_> = fs::read_dir("/proc/self/task").ok()?.flatten().collect();
    if tasks.len() > THREADS_MAX {
        return None;
    }
    // Threads that end before their file is read are skipped.
    let texts =
        tasks.iter().filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    texts.map(|text| delay_in(&text)).sum()
}

fn delay_in(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    #[test]
    fn the_delay_is_the_second_number() {
        assert_eq!(delay_in("1000 250 7\n"), Some(250));
        assert_eq!(delay_in("1000"), None);
        assert_eq!(delay_in("a b c"), None);
    }

    #[test]
    fn more_threads_than_cpus_wait_for_them() {
        let Some(before) = run_delay_ns() else {
            eprintln!("skipped: this kernel keeps no scheduler statistics of threads");
            return;
        };
        let end_ns = sys::process_cpu_ns() + 400_000_000;
        let spin = || while sys::process_cpu_ns() < end_ns {};
        let threads = std::thread::available_parallelism().map_or(1, usize::from) + 2;
        let during = std::thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(spin)));
            spin();
            // The statistics of a thread disappear when it ends, so they are read before its end.
            run_delay_ns().unwrap_or(0)
        });
        assert!(during > before, "{before} {during}");
    }
}
