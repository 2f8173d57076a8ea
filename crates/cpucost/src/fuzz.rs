//! The parsers of the kernel's texts behind one function, for the fuzz targets of the program: they
//! must take any text without panic.

use crate::procstat::ProcStat;
use crate::{affinity, isolation};

/// Reads `text` as `/proc/stat`, as a list of CPUs, as mounts and as memberships of control groups.
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
