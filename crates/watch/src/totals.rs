//! What the kernel counts for every process without recording: `/proc/PID/io`. It is all that can
//! be said without the rights to record. The fields are described in `proc_pid_io(5)`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

/// Totals of a process, its threads, and its children that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TotalsDocument {
    /// System calls that read, also from pipes and sockets.
    pub read_calls: u64,
    /// System calls that write, also to pipes and sockets.
    pub write_calls: u64,
    /// Bytes that these calls read, also from the page cache.
    pub read_bytes: u64,
    /// Bytes that these calls wrote, also to the page cache.
    pub write_bytes: u64,
    /// Bytes that were read from devices.
    pub device_read_bytes: u64,
    /// Bytes that were or will be written to devices.
    pub device_write_bytes: u64,
}

/// Where the totals of a process are read. It is opened while the process runs, because the file of
/// a process that has ended belongs to root; one that is open can be read until the process was
/// waited for.
#[derive(Debug)]
pub struct Totals(Option<File>);

impl Totals {
    /// The totals of a process.
    pub fn of(process: u32) -> Totals {
        let path = Path::new("/proc").join(process.to_string()).join("io");
        Totals(File::open(path).ok())
    }

    /// The totals so far; None if they may not be read, or the process is gone.
    pub fn read(&self) -> Option<TotalsDocument> {
        let mut bytes = [0; 1024];
        let length = self.0.as_ref()?.read_at(&mut bytes, 0).ok()?;
        Some(TotalsDocument::parse(&String::from_utf8_lossy(&bytes[..length])))
    }
}

impl TotalsDocument {
    fn parse(text: &str) -> TotalsDocument {
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(known, _)| *known == name);
            found.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
        };
        let cancelled = field("cancelled_write_bytes");
        TotalsDocument {
            read_calls: field("syscr"),
            write_calls: field("syscw"),
            read_bytes: field("rchar"),
            write_bytes: field("wchar"),
            device_read_bytes: field("read_bytes"),
            device_write_bytes: u64::saturating_sub(field("write_bytes"), cancelled),
        }
    }

    /// What was added since `before`.
    pub fn since(self, before: TotalsDocument) -> TotalsDocument {
        let less = u64::saturating_sub;
        TotalsDocument {
            read_calls: less(self.read_calls, before.read_calls),
            write_calls: less(self.write_calls, before.write_calls),
            read_bytes: less(self.read_bytes, before.read_bytes),
            write_bytes: less(self.write_bytes, before.write_bytes),
            device_read_bytes: less(self.device_read_bytes, before.device_read_bytes),
            device_write_bytes: less(self.device_write_bytes, before.device_write_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_were_cancelled_never_reach_the_device() {
        let text = "rchar: 4096\nwchar: 8192\nsyscr: 3\nsyscw: 2\nread_bytes: 512\n\
                    write_bytes: 12288\ncancelled_write_bytes: 4096\n";
        let totals = TotalsDocument::parse(text);
        assert_eq!((totals.read_calls, totals.read_bytes), (3, 4096));
        assert_eq!((totals.device_read_bytes, totals.device_write_bytes), (512, 8192));
        let before = TotalsDocument { read_calls: 1, ..TotalsDocument::default() };
        assert_eq!(totals.since(before).read_calls, 2);
    }

    #[test]
    fn this_process_has_totals_and_one_that_is_gone_has_none() {
        assert!(Totals::of(std::process::id()).read().is_some());
        assert_eq!(Totals::of(u32::MAX).read(), None);
    }
}
