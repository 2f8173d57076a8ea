//! Runs the parsers of the kernel's text files, for the fuzz targets. No input may make a parser
//! panic.

use crate::procstat::ProcStat;
use crate::{affinity, isolation};

/// Parses `text` as `/proc/stat`, as a list of CPUs, as mounts and as control group memberships.
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
