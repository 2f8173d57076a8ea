//! The tools with which seqio is compared: fio, dd and cat, with their settings as command lines.

use super::streams::Tool;

/// Request sizes with which fio is measured.
const SIZES: [&str; 3] = ["256k", "1m", "4m"];
/// Queue depths with which fio is measured.
const DEPTHS: [u32; 3] = [1, 4, 8];
/// Number of 2 MiB huge pages to reserve. They hold twice the largest amount of data that fio has
/// in flight (8 requests of 4 MiB).
pub const HUGE_PAGES: u64 = 2 * (4 * 8) / 2;

/// Returns the values of fio's `--iomem`: the default, and huge pages if they were reserved.
fn memories(huge: bool) -> &'static [&'static str] {
    if huge { &["malloc", "mmaphuge"] } else { &["malloc"] }
}

/// Returns fio with io_uring and direct I/O, in all combinations of buffer memory, request size and
/// queue depth.
fn fio_settings(huge: bool, flags: &str) -> Vec<Tool> {
    let mut tools = Vec::new();
    for memory in memories(huge) {
        for size in SIZES {
            for depth in DEPTHS {
                tools.push(Tool::fio(
                    &format!("fio {size} x {depth} {memory}"),
                    &format!(
                        "{flags} --direct=1 --ioengine=io_uring --bs={size} --iodepth={depth} \
                         --iomem={memory}"
                    ),
                ));
            }
        }
    }
    tools
}

/// Returns tools that read a file. The fastest on a cold file is compared with seqio.
pub fn readers(fio: bool, huge: bool) -> Vec<Tool> {
    let mut tools = vec![cat()];
    for size in ["1M", "4M"] {
        for (how, flags) in [("buffered", ""), ("direct", "iflag=direct")] {
            let line = format!("dd if={{from}} of=/dev/null bs={size} status=none {flags}");
            tools.push(Tool::new(&format!("dd bs={size} {how}"), &line));
        }
    }
    if fio {
        let read = "--filename={from} --rw=read";
        tools.extend(fio_settings(huge, read));
        let buffered = format!("{read} --ioengine=psync --bs=1m");
        tools.push(Tool::fio("fio 1m buffered", &buffered));
    }
    tools
}

/// Returns fio with direct reads of 1 MiB, io_uring and depth 8. All other settings are defaults.
pub fn default_reader() -> Tool {
    let flags = "--filename={from} --rw=read --direct=1 --ioengine=io_uring --bs=1m --iodepth=8";
    Tool::fio("fio 1m x 8 default", flags)
}

/// Returns fio with one request size and depth, and with different settings that affect its CPU
/// time. The caller chooses the setting that uses the least CPU time.
pub fn readers_with(request_kib: u64, depth: u64, huge: bool) -> Vec<Tool> {
    let lean = "--fixedbufs --registerfiles --gtod_reduce=1";
    let batched = "--iodepth_batch_complete_min=1 --iodepth_batch_complete_max=32";
    let mut tools = Vec::new();
    for memory in memories(huge) {
        for (how, more) in [("", ""), (" lean", lean), (" lean batched", batched)] {
            let more = if more == batched { format!("{lean} {batched}") } else { more.to_string() };
            tools.push(Tool::fio(
                &format!("fio {request_kib}k x {depth} {memory}{how}"),
                &format!(
                    "--filename={{from}} --rw=read --direct=1 --ioengine=io_uring \
                     --bs={request_kib}k --iodepth={depth} --iomem={memory} {more}"
                ),
            ));
        }
    }
    tools
}

/// Returns fio settings that write and flush a new file. The fastest is compared with seqio.
pub fn writers(huge: bool) -> Vec<Tool> {
    let mut tools = Vec::new();
    for fallocate in ["native", "none"] {
        let flags = "--filename={to} --rw=write --end_fsync=1";
        let flags = format!("{flags} --fallocate={fallocate}");
        let named = |mut tool: Tool| {
            tool.name = format!("{} fallocate={fallocate}", tool.name);
            tool
        };
        tools.extend(fio_settings(huge, &flags).into_iter().map(named));
        let buffered = Tool::fio("fio 1m buffered", &format!("{flags} --ioengine=psync --bs=1m"));
        tools.push(named(buffered));
    }
    tools
}

/// Returns `dd` with `conv=fsync`, the usual command to write a file durably.
pub fn durable_dd() -> Tool {
    let line = "dd if=/dev/zero of={to} bs=64k iflag=count_bytes count={bytes} conv=fsync \
                status=none";
    Tool::new("dd bs=64k conv=fsync", line)
}

/// Returns the usual command to read a file.
pub fn cat() -> Tool {
    Tool::new("cat", "cat {from}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_occurs_once_and_huge_pages_only_if_reserved() {
        let names = |tools: &[Tool]| {
            let mut names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
            names.sort();
            names.dedup();
            names
        };
        assert_eq!(names(&readers(true, true)).len(), 1 + 4 + 18 + 1);
        assert_eq!(names(&readers(false, true)).len(), 5);
        assert_eq!(names(&writers(true)).len(), 2 * (18 + 1));
        assert!(names(&writers(false)).iter().all(|name| !name.contains("huge")));
        assert_eq!(names(&readers_with(1024, 4, true)).len(), 6);
    }
}
