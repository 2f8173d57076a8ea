//! Fuzz target for the parsers of kernel text files such as `/proc/stat`. No input may make a
//! parser panic.

use crate::procstat::ProcStat;
use crate::{affinity, isolation};

/// Parses `text` as `/proc/stat`, as a CPU list, as `/proc/self/mounts` and as `/proc/self/cgroup`.
pub fn texts(text: &str) {
    let ticks = text.len() as u64;
    if let Some(stat) = ProcStat::parse(text, ticks) {
        assert!(!stat.cpus.is_empty());
    }
    if let Some(cpus) = affinity::parse_cpu_list(text) {
        assert!(cpus.iter().all(|cpu| *cpu < 8192));
    }
    let _ = isolation::parse(text);
}
