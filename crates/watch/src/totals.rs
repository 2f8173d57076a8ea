//! Reads the I/O totals that the kernel counts for every process (`/proc/PID/io`). If the user has
//! no rights to record, these totals are the only result. `proc_pid_io(5)` describes the fields.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

/// I/O totals of a process, including its threads and its ended children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TotalsDocument {
    /// Number of system calls that read, including reads from pipes and sockets.
    pub read_calls: u64,
    /// Number of system calls that write, including writes to pipes and sockets.
    pub write_calls: u64,
    /// Number of bytes that the read calls returned, including bytes from the page cache.
    pub read_bytes: u64,
    /// Number of bytes that the write calls wrote, including bytes to the page cache.
    pub write_bytes: u64,
    /// Number of bytes that were read from devices.
    pub device_read_bytes: u64,
    /// Number of bytes that were or will be written to devices.
    pub device_write_bytes: u64,
}

/// The open `/proc/PID/io` of a process. The file is opened while the process runs, because only
/// root can open it after the process has ended. An open file can be read until the process is
/// reaped.
#[derive(Debug)]
pub struct Totals(Option<File>);

impl Totals {
    /// Opens `/proc/PID/io` of a running process.
    pub fn of(process: u32) -> Totals {
        let path = Path::new("/proc").join(process.to_string()).join("io");
        Totals(File::open(path).ok())
    }

    /// Reads the current totals. None if the file could not be opened, or if the process no longer
    /// exists.
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

    /// Returns the difference between these totals and the earlier totals `before`.
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
