//! Tests the subcommands `watch` and `trace` on programs that issue a known number of requests: dd,
//! fio, shells, and halfpower itself. Tests are skipped without root or without a kernel that has
//! type information (BTF).

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::fixture::{Ended, Place, list, or_skip, real, root, skip, text, whole};

/// Checks whether this host can watch programs. If it cannot, the error contains the reason.
pub fn watching() -> Result<(), String> {
    root()?;
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err("the kernel has no type information (CONFIG_DEBUG_INFO_BTF)".to_owned());
    }
    // In a container, watching can fail because of a PID namespace or missing BPF privileges.
    let place = Place::new();
    let tried = place.halfpower("watch --quiet -- true");
    let mut lines = tried.stderr.lines();
    lines.find(|line| line.contains("only totals")).map_or(Ok(()), |line| Err(line.to_owned()))
}

/// Watches a command and returns the JSON document from standard output.
#[track_caller]
fn watched(place: &Place, command: &str) -> Value {
    place.does(&format!("watch --json --quiet -- {command}")).json()
}

fn script(place: &Place, text: &str) {
    fs::write(place.path("script"), text).unwrap();
}

/// Returns the entry of the file whose name ends with `ending`.
#[track_caller]
fn file<'a>(document: &'a Value, ending: &str) -> &'a Value {
    let mut files = list(&document["files"]).iter();
    let found = files.find(|file| text(&file["name"]).ends_with(ending));
    found.unwrap_or_else(|| panic!("no file {ending} in {document:#}"))
}

/// Returns each request size (bytes) and the number of requests of this size.
fn sizes(data: &Value) -> Vec<(u64, u64)> {
    list(&data["sizes"]).iter().map(|size| (whole(&size["bytes"]), whole(&size["count"]))).collect()
}

#[test]
fn the_requests_of_dd_are_counted_one_by_one() {
    or_skip!(watching());
    let place = Place::new();
    place.file("from", 400 << 10);
    let document = watched(&place, "dd if=from of=to bs=4k conv=fsync");
    let (from, to) = (file(&document, "/from"), file(&document, "/to"));
    // 400 KiB are 100 reads of 4 KiB. One more read returns 0 bytes at the end of the file.
    assert_eq!(sizes(&from["reads"]), [(4096, 101)]);
    assert_eq!(whole(&from["reads"]["moved_bytes"]), 400 << 10);
    assert_eq!(whole(&from["reads"]["sequential"]), 100);
    assert_eq!((sizes(&to["writes"]), whole(&to["flushes"])), (vec![(4096, 100)], 1));
    assert_eq!(list(&document["lost"]), [Value::Null; 0]);
    // dd has one thread, so its total waiting time is shorter than the run.
    assert!(whole(&document["outstanding_ns"]) < whole(&document["duration_ns"]), "{document:#}");
    assert!(place.path("halfpower-trace.parquet").exists());
}

#[test]
fn a_relative_path_after_fchdir_starts_at_the_directory_of_the_descriptor() {
    or_skip!(watching());
    let place = Place::new();
    or_skip!(place.command_of("perl").arg("-v").output());
    fs::create_dir(place.path("sub")).unwrap();
    place.file("sub/data", 4096);
    // In perl, chdir on a directory handle calls fchdir(2).
    script(&place, "opendir D, 'sub'; chdir D; open F, '<', 'data' or die $!; read F, $_, 4096;");
    let document = watched(&place, "perl script");
    assert_eq!(whole(&file(&document, "/sub/data")["reads"]["moved_bytes"]), 4096);
}

#[test]
fn a_command_keeps_its_output_and_its_exit_code() {
    or_skip!(watching());
    let place = Place::new();
    script(&place, "echo seen; exit 7");
    let ended = place.halfpower("watch --quiet -- sh script").with_code(7);
    assert_eq!(ended.stdout, "seen\n");
    assert!(ended.stderr.contains("sh script: "), "{}", ended.stderr);
    script(&place, "kill -9 $$");
    let again = place.halfpower("watch --quiet -- sh script").with_code(137);
    assert!(again.stderr.contains("halfpower-trace-2.parquet"), "{}", again.stderr);
    place.cannot("watch -- no-such-program").with_code(127).says("not found", "PATH");
}

#[test]
fn children_threads_and_reused_descriptors_are_followed() {
    or_skip!(watching());
    let place = Place::new();
    let loops = "for i in $(seq 40); do echo $i > file-$i; cat file-$i > /dev/null; done; \
                  cd sub; cat ../file-1 inner > /dev/null";
    fs::create_dir(place.path("sub")).unwrap();
    place.file("sub/inner", 100);
    script(&place, loops);
    let document = watched(&place, "sh script");
    for number in 1..=40 {
        let of = file(&document, &format!("/file-{number}"));
        let reads = if number == 1 { 2 } else { 1 };
        assert_eq!(whole(&of["writes"]["count"]), 1, "{of:#}");
        assert_eq!(whole(&of["reads"]["count"]), 2 * reads, "one read is at the end: {of:#}");
    }
    assert_eq!(whole(&file(&document, "/sub/inner")["reads"]["moved_bytes"]), 100);
    assert!(list(&document["processes"]).len() >= 42);
}

#[test]
fn copies_within_the_kernel_have_the_lengths_that_were_moved() {
    or_skip!(watching());
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.file(name, 100_000);
    }
    script(&place, "cat a b c > all");
    let document = watched(&place, "sh script");
    // cat may pass a length to copy_file_range(2) that is larger than the file.
    let all = file(&document, "/all");
    assert_eq!(whole(&all["writes"]["moved_bytes"]), 300_000, "{all:#}");
    assert!(whole(&all["writes"]["asked_bytes"]) >= 300_000, "{all:#}");
    assert_eq!(whole(&file(&document, "/b")["reads"]["moved_bytes"]), 100_000);
}

#[test]
fn a_terminated_watch_passes_the_signal_on_and_reports() {
    or_skip!(watching());
    let place = Place::new();
    script(&place, "trap 'exit 3' TERM; echo started > flag; while :; do sleep 0.01; done");
    let mut running = place.start("watch --quiet -- sh script");
    running.until("the command has started", || place.path("flag").exists());
    running.signal("TERM");
    let ended = running.ended().with_code(3);
    assert!(ended.stderr.contains("/flag: 1 write"), "{ended}");
    assert!(place.path("halfpower-trace.parquet").exists());
    place.is_tidy();
}

#[test]
fn a_full_disk_loses_the_trace_and_not_the_command() {
    or_skip!(watching());
    let place = Place::new();
    fs::create_dir(place.path("small")).unwrap();
    let mut mount = place.command_of("mount");
    mount.args(["-t", "tmpfs", "-o", "size=16k", "none", "small"]);
    or_skip!(mount.status().map_err(|error| error.to_string()));
    place.file("data", 4 << 20);
    script(&place, "cat data > /dev/null; dd if=data of=/dev/null bs=512 2> /dev/null; echo done");
    let ended = place.halfpower("watch --quiet -o small/t.parquet -- sh script");
    let unmounted = place.command_of("umount").arg("small").status().unwrap();
    assert!(unmounted.success() && ended.stdout == "done\n", "{ended}");
    assert!(ended.with_code(1).stderr.contains("No space left"));
}

#[test]
fn a_watch_ends_while_other_programs_keep_the_disk_busy() {
    or_skip!(watching());
    let place = Place::new();
    place.file("data", 16 << 20);
    let reader = "while dd if=data of=/dev/null bs=4k iflag=direct 2> /dev/null; do :; done";
    let mut reading = place.command_of("sh").args(["-c", reader]).spawn().unwrap();
    script(&place, "cat script > copy");
    let document = watched(&place, "sh script");
    reading.kill().unwrap();
    reading.wait().unwrap();
    let bytes = fs::metadata(place.path("script")).unwrap().len();
    assert_eq!(whole(&file(&document, "/copy")["writes"]["moved_bytes"]), bytes);
    assert_eq!(list(&document["processes"]).len(), 2, "{document:#}");
}

#[test]
fn every_interface_of_fio_is_counted_exactly() {
    or_skip!(watching());
    let place = Place::new();
    let interfaces =
        [("sync", "read"), ("psync", "pread64"), ("libaio", "libaio"), ("io_uring", "io_uring")];
    place.file("data", 8 << 20);
    for (engine, call) in interfaces {
        let load = format!(
            "fio --name=a --filename=data --rw=randread --bs=8k --size=8m --number_ios=500 \
             --ioengine={engine} --iodepth=4 --direct=1 --allow_file_create=0 --output=fio.txt"
        );
        let _ = fs::remove_file(place.path("halfpower-trace.parquet"));
        let ended = place.halfpower(&format!("watch --json --quiet -- {load}"));
        if ended.status.code() == Some(127) {
            return skip(std::any::type_name_of_val(&|| ()), "fio is not installed");
        }
        if fs::read_to_string(place.path("fio.txt")).is_ok_and(|text| text.contains("err= ")) {
            let document = ended.json();
            let data = file(&document, "/data");
            assert_eq!(sizes(&data["reads"]), [(8192, 500)], "{engine}");
            assert_eq!(whole(&data["reads"]["direct"]), 500, "{engine}");
            let reads = &document["operations"].as_array().unwrap()[0];
            let calls = list(&reads["calls"]).iter();
            let of = calls.filter(|of| text(&of["call"]) == call).map(|of| whole(&of["count"]));
            assert!(of.sum::<u64>() >= 500, "{engine}: {reads:#}");
            assert!(real(&document["mean_depth"]) > 0.9, "{engine}");
        }
    }
}

#[test]
fn a_running_process_is_watched_until_its_end_or_for_a_while() {
    or_skip!(watching());
    let place = Place::new();
    place.file("data", 1 << 20);
    let script = "while cat data > /dev/null; do sleep 0.05; done";
    let mut shell = place.command_of("sh").args(["-c", script]).spawn().unwrap();
    let line = format!("watch --pid {} --runtime 1 --json --quiet", shell.id());
    let document = place.document(&line);
    shell.kill().unwrap();
    shell.wait().unwrap();
    let data = file(&document, "/data");
    assert!(whole(&data["reads"]["moved_bytes"]) >= 1 << 20, "{data:#}");
    assert!(text(&document["command"]).is_empty());
    place.cannot("watch --runtime 1 -- ls").with_code(2).says("--runtime", "timeout(1)");
    place.cannot("watch --pid 4194304").with_code(2).says("no such process", "pgrep");
}

#[test]
fn a_target_is_watched_whoever_uses_it() {
    or_skip!(watching());
    let place = Place::new();
    place.file("data", 64 << 10);
    let load = "while dd if=data of=on-target bs=4k conv=fsync,notrunc 2> /dev/null; \
                do cat /proc/uptime; done";
    let mut shell = place.command_of("sh");
    let shell = shell.args(["-c", load]).stdout(std::process::Stdio::null());
    let mut shell = shell.spawn().unwrap();
    let document = place.document("watch --target . --runtime 2 --quiet");
    shell.kill().unwrap();
    shell.wait().unwrap();
    let folder = place.path("").canonicalize().unwrap().display().to_string();
    let written = file(&document, &format!("{folder}/on-target"));
    assert_eq!(sizes(&written["writes"]), [(4096, whole(&written["writes"]["count"]))]);
    assert!(whole(&written["flushes"]) >= 1, "{written:#}");
    let mut names = list(&document["files"]).iter().map(|file| text(&file["name"]));
    assert!(!names.any(|name| name == "/proc/uptime"), "another file system: {document:#}");
    // The list of programs is empty if only dd used the file system. If the libraries of other
    // programs are on the same file system, the list contains dd and these programs.
    let programs = list(&document["programs"]).iter();
    let mut dd = programs.filter(|program| text(&program["name"]) == "dd");
    let is_alone = list(&document["programs"]).is_empty();
    assert!(is_alone || dd.any(|dd| whole(&dd["written_bytes"]) >= 64 << 10), "{document:#}");
    let target = text(&document["target"]).strip_prefix("the file system ").unwrap();
    assert!(folder.starts_with(target), "{folder} on {target}");
    assert_eq!(text(&document["command"]), "");
    place.does("trace halfpower-trace.parquet").prints("the file system ");
    place.cannot("watch --target missing").with_code(2).says("missing", "specify a directory");
    place.cannot("watch --target /dev/null").with_code(2).says("/dev/null", "specify a directory");
    place.halfpower("watch --target . -- ls").with_code(2);
}

#[test]
fn a_trace_is_shown_again_exported_and_imported() {
    or_skip!(watching());
    let place = Place::new();
    place.file("from", 64 << 10);
    let first = watched(&place, "dd if=from of=/dev/null bs=16k");
    let again = place.document("trace halfpower-trace.parquet --json");
    assert_eq!(first["files"], again["files"]);
    place.does("trace halfpower-trace.parquet").prints("from: 5 reads of 16 KiB");
    place.does("trace halfpower-trace.parquet --export csv --output t.csv");
    let from_csv = place.document("trace t.csv --json");
    assert_eq!(file(&first, "/from")["reads"], file(&from_csv, "/from")["reads"]);
    place.does("trace halfpower-trace.parquet --export fio-iolog --output t.log");
    let log = fs::read_to_string(place.path("t.log")).unwrap();
    assert!(log.starts_with("fio version 3 iolog\n") && log.contains(" read 16384 16384\n"));
}

#[test]
fn a_program_is_compared_with_a_survey() {
    or_skip!(watching());
    let place = Place::new();
    place.does("survey sim:sata-ssd --quick --html s.html");
    place.file("data", 8 << 20);
    let line = "watch --json --quiet --against latest -- dd if=data of=copy bs=64k conv=fsync";
    let document = place.does(line).json();
    let against = list(&document["against"]);
    let writes = against.iter().find(|one| text(&one["operation"]) == "write").unwrap();
    assert!(text(&writes["text"]).starts_with("sequential writes of 64 KiB"), "{writes:#}");
    assert!(real(&writes["share_of_best"]) > 0.0 && text(&writes["target"]).contains("sata-ssd"));
    place.does("trace halfpower-trace.parquet --against 1").prints("Compared with the survey of");
    let named = "trace halfpower-trace.parquet --against latest --db halfpower.db";
    place.does(named).prints("Compared with the survey of");
    let runs = place.cannot("trace halfpower-trace.parquet --against 7");
    assert!(runs.stderr.contains('7'), "{runs}");
}

#[test]
fn a_survey_is_made_first_if_asked_for() {
    or_skip!(watching());
    let place = Place::new();
    place.file("data", 4 << 20);
    let line = "watch --quiet --survey sim:sata-ssd -- dd if=data of=copy bs=64k conv=fsync";
    let ended = place.does(line);
    assert!(ended.stderr.contains("Compared with the survey of sim:sata-ssd"), "{ended}");
    assert!(!ended.stdout.contains("In short"), "halfpower printed to stdout: {ended}");
    assert!(place.path("halfpower.db").exists() && !place.path("halfpower.html").exists());
    let both = "watch --survey . --against latest -- true";
    place.halfpower(both).with_code(2);
    place.does("watch --survey . --plan -- true").prints("survey . in about 20 s");
}

#[test]
fn mistakes_with_traces_are_named_with_their_remedy() {
    let place = Place::new();
    fs::write(place.path("words"), "no trace\n").unwrap();
    let says = |line: &str, cause: &str, remedy: &str| {
        let _: Ended = place.cannot(line).says(cause, remedy);
    };
    says("trace words", "words", "blkparse");
    says("trace missing", "missing", "specify a trace file");
    says("trace words --format xyz", "unknown format 'xyz'", "one of");
    says("trace words --export cvs --output x", "unknown format 'cvs'", "csv");
    says("watch --buffer 3m -- ls", "--buffer 3 MiB", "power of two");
    let cut = [b"PAR1".to_vec(), vec![7; 5000]].concat();
    fs::write(place.path("cut.parquet"), cut).unwrap();
    let ended = place.cannot("trace cut.parquet");
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn without_rights_there_are_totals_and_the_reason() {
    let place = or_skip!(Place::of_nobody());
    place.file_of_holes("data", 1 << 20);
    let ended = place.does("watch -- cat data");
    assert_eq!(ended.stdout.len(), 1 << 20);
    for part in ["needs root, or the capabilities", "only totals are reported", "1 MiB"] {
        assert!(ended.stderr.contains(part), "{part}: {ended}");
    }
    assert_eq!(ended.stderr.matches("needs root").count(), 1, "{ended}");
    assert!(!place.path("halfpower-trace.parquet").exists());
}

pub struct Load {
    pub name: &'static str,
    pub flags: &'static str,
}

/// Twelve fio loads with different I/O engines, caching, access patterns, flushes and file counts.
pub const LOADS: [Load; 12] = [
    Load { name: "random direct reads, sync", flags: "--rw=randread --ioengine=psync --direct=1" },
    Load {
        name: "random direct reads, libaio",
        flags: "--rw=randread --ioengine=libaio --iodepth=8 --direct=1",
    },
    Load {
        name: "random direct reads, io_uring",
        flags: "--rw=randread --ioengine=io_uring --iodepth=8 --direct=1",
    },
    Load { name: "sequential buffered reads", flags: "--rw=read --ioengine=sync --bs=64k" },
    Load { name: "sequential direct writes", flags: "--rw=write --ioengine=psync --direct=1" },
    Load {
        name: "random direct writes, io_uring",
        flags: "--rw=randwrite --ioengine=io_uring --iodepth=4 --direct=1",
    },
    Load {
        name: "buffered writes with flushes",
        flags: "--rw=randwrite --ioengine=psync --fdatasync=10 --number_ios=300",
    },
    Load {
        name: "mixed reads and writes, libaio",
        flags: "--rw=randrw --rwmixread=70 --ioengine=libaio --iodepth=4 --direct=1",
    },
    Load { name: "strided direct reads", flags: "--rw=read:64k --ioengine=psync --direct=1" },
    Load { name: "vectored buffered reads", flags: "--rw=randread --ioengine=vsync" },
    Load { name: "preadv2, direct", flags: "--rw=randread --ioengine=pvsync2 --direct=1" },
    Load {
        name: "four files, four jobs",
        flags: "--rw=randread --ioengine=psync --direct=1 --nrfiles=4 --filesize=2m --numjobs=4",
    },
];

/// Returns the number of requests, their median latency and their p99 latency (ns), as reported by
/// fio.
fn as_fio_says(report: &Value, direction: &str) -> (u64, [u64; 2]) {
    let of = &list(&report["jobs"])[0][direction];
    let percentile = |p: &str| of["lat_ns"]["percentile"][p].as_u64().unwrap_or(0);
    (whole(&of["total_ios"]), ["50.000000", "99.000000"].map(percentile))
}

#[test]
#[ignore = "takes some minutes and needs fio"]
fn twelve_known_loads_are_seen_as_fio_reports_them() {
    or_skip!(watching());
    let place = Place::new();
    let mut worst = 0.0_f64;
    for (at, Load { name, flags }) in LOADS.iter().enumerate() {
        let line = format!(
            "fio --name=a --bs=8k --size=8m --number_ios=2000 --io_size=64m {flags} \
             --output-format=json --output=fio.json --group_reporting --fallocate=none \
             --lat_percentiles=1 --clat_percentiles=0"
        );
        let trace = format!("{at}.parquet");
        let watched = format!("watch --json --quiet --output {trace} -- {line}");
        let document = place.does(&watched).json();
        assert_eq!(list(&document["lost"]), [Value::Null; 0], "{name}");
        let report = fs::read_to_string(place.path("fio.json")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        for direction in ["read", "write"] {
            let (count, [p50, p99]) = as_fio_says(&report, direction);
            if count == 0 {
                continue;
            }
            let field = format!("{direction}s");
            let files = list(&document["files"]).iter();
            let data = files.filter(|file| text(&file["name"]).contains("/a."));
            let seen: u64 = data.filter_map(|f| f[&field]["count"].as_u64()).sum();
            let of = list(&document["operations"]).iter();
            let latency = of.clone().find(|of| text(&of["operation"]) == direction).unwrap();
            let ours = ["p50_ns", "p99_ns"].map(|p| whole(&latency["latency"][p]));
            let ratio = [ours[0] as f64 / p50 as f64, ours[1] as f64 / p99 as f64];
            println!(
                "{name}, {direction}: {seen} of {count} requests; p50 {:.3}, p99 {:.3} of fio's",
                ratio[0], ratio[1]
            );
            worst = worst.max((ratio[0] - 1.0).abs());
            assert_eq!(seen, count, "{name}");
        }
    }
    println!("worst median: {:.1}%", worst * 100.0);
}
