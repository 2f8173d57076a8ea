//! Tests fio jobs: job files that `run` measures, and command lines of `fio`. A translated job must
//! equal the same workload of `run`, and nothing may be written without the user's permission.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fixture::{KIB, MIB, Place, list, or_skip, text, whole};

/// Flags for a short run that leaves nothing behind.
const SHORT: &str = "--trials 1 --no-store";

/// Creates a working directory with the job file `job.fio`.
fn with_job(job: &str) -> Place {
    let place = Place::new();
    fs::write(place.path("job.fio"), job).unwrap();
    place
}

#[test]
fn a_job_file_measures_the_load_that_it_describes() {
    let place = with_job(
        "; two phases\n[global]\nsize=(1m+1m)\nbs=8k\ninclude more.fio\n[first]\nrw=randread\n\
         iodepth=4\nioengine=io_uring\n[second]\nstonewall\nrw=write\nnumjobs=2\nsize=${SIZE}\n",
    );
    fs::write(place.path("more.fio"), "direct=1\ngroup_reporting\n").unwrap();
    let ended = place.halfpower_after("export SIZE=512k", "run job.fio --trials 1 --no-store");
    let ended = ended.with_code(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{ended}");
    assert!(lines[0].starts_with("randread 8 KiB, depth 4, io_uring, direct: "), "{ended}");
    assert!(lines[1].starts_with("write 8 KiB, depth 1 x 2 threads, sync, direct: "), "{ended}");
    let note = "job first: ignored options, which do not affect the load: group_reporting";
    assert!(ended.stderr.contains(note), "{ended}");
    assert_eq!(place.listing(), ["job.fio", "more.fio"], "test files are left behind");
}

#[test]
fn flags_override_the_job_and_the_label_is_its_name() {
    let place = with_job("[seq]\nfilename=data\nsize=1m\nbs=4k\ndirect=1\n");
    place.file("data", MIB);
    let document = place.document(&format!("run job.fio --bs 64k {SHORT}"));
    assert_eq!(whole(&document["workload"]["request_bytes"]), 64 * KIB);
    let requests = whole(&list(&document["trials"])[0]["requests"]);
    assert_eq!(requests, 16, "the run makes one pass over the file size");
    place.does("run job.fio --trials 1");
    assert!(place.does("runs list").stdout.contains("seq"));
}

#[test]
fn showcmd_prints_a_command_that_measures_the_same_workload() {
    let place = Place::new();
    place.file("data", MIB);
    let job = "--name=j --filename=data --rw=randread --bssplit=4k/50:8k/50 --size=1m --direct=1";
    let shown = place.does(&format!("fio {job} --showcmd")).stdout;
    let line = shown.trim().strip_prefix("halfpower ").unwrap().to_owned();
    let by_hand = place.document(&format!("{line} {SHORT}"));
    let by_job = place.document(&format!("fio {job} -- {SHORT}"));
    assert_eq!(by_hand["workload"], by_job["workload"]);
    assert_eq!(text(&by_hand["workload"]["caching"]), "direct");
}

#[test]
fn what_exists_is_written_only_with_permission_whatever_the_job_says() {
    let place = with_job("[w]\nfilename=data\nrw=write\noverwrite=1\nsize=64k\ndirect=1\n");
    place.file("data", MIB);
    let before = fs::read(place.path("data")).unwrap();
    for line in [format!("run job.fio {SHORT}"), format!("run job.fio --overwrite job.fio {SHORT}")]
    {
        place.cannot(&line).with_code(3).says("data", "--overwrite");
        assert_eq!(fs::read(place.path("data")).unwrap(), before);
    }
    place.does(&format!("run job.fio --overwrite data {SHORT}"));
    let after = fs::read(place.path("data")).unwrap();
    assert_ne!(before[..64 * 1024], after[..64 * 1024]);
    assert_eq!(before[64 * 1024..], after[64 * 1024..]);
}

#[test]
fn one_job_that_cannot_run_stops_all_before_anything_is_done() {
    for (job, cause, remedy) in [
        ("rw=randtrim", "job.fio:7: rw=randtrim: halfpower does not support trims", "remove"),
        ("exec_prerun=touch evil", "job.fio:7: exec_prerun=touch evil", "running commands"),
        ("ioengine=net", "job.fio:7: ioengine=net", "use sync"),
        ("filename=/dev/null", "job.fio:5: job 'b': /dev/null", "specify a regular file"),
        ("directory=gone", "job.fio:5: job 'b': gone does not exist", "specify an existing file"),
        ("include job.fio", "job.fio:7: job.fio includes itself", "remove"),
    ] {
        let place =
            with_job(&format!("[global]\nsize=64k\ndirect=1\n[a]\n[b]\nstonewall\n{job}\n"));
        let ended = place.cannot("run job.fio").with_code(2);
        let ended = ended.says(cause, remedy);
        assert!(ended.stdout.is_empty(), "{ended}");
        assert_eq!(place.listing(), ["job.fio"], "{ended}");
    }
}

#[test]
fn different_jobs_at_the_same_time_are_refused() {
    let place = with_job("[a]\nsize=1m\n[b]\nsize=1m\nbs=8k\n");
    let cause = "job.fio:3: job 'b' runs at the same time as 'a' but has a different bs";
    place.cannot("run job.fio").with_code(2).says(cause, "--serial");
}

#[test]
fn strict_and_section_choose_what_runs() {
    let place = with_job("[global]\nsize=64k\ndirect=1\n[a]\n[b]\nbs=8k\nstartdelay=1\n");
    place.cannot("run job.fio --section b --strict").with_code(2).says("startdelay", "--strict");
    let ended = place.does(&format!("run job.fio --section b {SHORT}"));
    assert!(ended.stdout.starts_with("read 8 KiB"), "{ended}");
    place.cannot("run job.fio --section c").with_code(2).says("--section c", "a, b");
    let serial = place.does(&format!("run job.fio --serial {SHORT}"));
    assert_eq!(serial.stdout.lines().count(), 2, "{serial}");
}

#[test]
fn mistakes_of_the_command_line_are_named() {
    let place = with_job("[a]\nsize=64k\n");
    place.file("data", MIB);
    for (line, cause, remedy) in [
        ("fio --rw=read", "no job", "add --name=NAME"),
        ("fio job.fio", "'job.fio' is not an option of fio", "--KEY=VALUE"),
        ("fio --name=x --size=1m -- --nonsense", "--nonsense", "halfpower run --help"),
        ("fio --name=x --size=1m --rw=write --readonly", "this job writes", "--readonly"),
        ("run job.fio data", "data is not a fio job file", "specify only"),
        ("run data --section a", "--section", "job file"),
    ] {
        place.cannot(line).with_code(2).says(cause, remedy);
    }
}

#[test]
fn jobs_are_printed_as_one_json_document_with_the_fields_of_fio() {
    let place = with_job("[global]\nsize=1m\n[a]\nbs=64k\n[b]\nstonewall\nrw=randrw\nbs=4k\n");
    let json = |ended: &str| -> Value { serde_json::from_str(ended).unwrap() };
    let ours = json(&place.does("run job.fio --trials 1 --output-format=json").stdout);
    let names: Vec<&str> = list(&ours["jobs"]).iter().map(|job| text(&job["jobname"])).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(whole(&ours["jobs"][0]["read"]["io_bytes"]), MIB);
    let line = "fio --name=a --size=1m --output-format=json+ -- --trials 1 --no-store";
    assert_eq!(list(&json(&place.does(line).stdout)["jobs"]).len(), 1);
    let theirs = or_skip!(place.fio("--output-format=json+ job.fio"));
    let theirs = json(&theirs);
    for (job, other) in list(&ours["jobs"]).iter().zip(list(&theirs["jobs"])) {
        has_fields_of(job, other, "job");
    }
    // Import and export must not change the JSON output of fio.
    fs::write(place.path("fio.json"), theirs.to_string()).unwrap();
    place.does("import fio.json --label theirs");
    assert_eq!(json(&place.does("export theirs --format fio-json").stdout), theirs);
    assert!(place.does("runs list").stdout.contains("fio-3."));
}

/// Checks that one document has all fields of another document, with the same types.
fn has_fields_of(ours: &Value, theirs: &Value, path: &str) {
    // These fields depend on the job, the percentiles and the latencies.
    let varies = ["job options", "percentile", "bins"];
    for (name, value) in theirs.as_object().into_iter().flatten() {
        let found = ours.get(name).unwrap_or_else(|| panic!("{path}.{name} is missing"));
        let kind = |value: &Value| (value.is_number(), value.is_string(), value.is_object());
        assert_eq!(kind(found), kind(value), "{path}.{name}");
        if !varies.contains(&name.as_str()) {
            has_fields_of(found, value, &format!("{path}.{name}"));
        }
    }
}

/// Directory in which Debian's package fio-examples installs its job files.
const EXAMPLES: &str = "/usr/share/doc/fio/examples";

fn examples() -> std::io::Result<Vec<PathBuf>> {
    let examples = fs::read_dir(EXAMPLES).map_err(|error| {
        std::io::Error::new(
            error.kind(),
            format!("{EXAMPLES}: {error} (apt-get install fio-examples)"),
        )
    });
    let mut files: Vec<_> = examples?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "fio"));
    files.sort();
    Ok(files)
}

#[test]
fn each_example_of_fio_is_translated_or_refused_in_one_line() {
    let place = Place::new();
    let files = or_skip!(examples());
    let mut translated = 0;
    for file in &files {
        let line = format!("run {} --showcmd --serial", file.display());
        let ended = place.halfpower(&line);
        if ended.status.code() == Some(0) {
            translated += 1;
            let is_command = |line: &str| line.starts_with("halfpower run ");
            assert!(!ended.stdout.is_empty() && ended.stdout.lines().all(is_command), "{ended}");
            continue;
        }
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert!(ended.stdout.is_empty() && ended.stderr.lines().count() == 1, "{ended}");
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(ended.stderr.contains(&name), "stderr lacks the file name: {ended}");
    }
    assert!(files.len() >= 60, "{} examples", files.len());
    assert!(translated * 4 >= files.len(), "{translated} of {} are translated", files.len());
    assert!(place.listing().is_empty());
}

/// Returns true if a job file contains the path of a block device of this machine. No test may use
/// such a device.
fn names_a_device(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let words = text.split(|c: char| c.is_whitespace() || c == '=' || c == ':');
    words
        .filter(|word| word.starts_with("/dev/"))
        .any(|path| fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()))
}

#[test]
fn each_translated_example_of_fio_runs_or_is_refused_before_anything_is_made() {
    let place = Place::new();
    let files = or_skip!(examples());
    let (mut measured, mut refused) = (0, 0);
    for file in files.iter().filter(|file| !names_a_device(file)) {
        let line = format!("run {} --serial", file.display());
        if place.halfpower(&format!("{line} --showcmd")).status.code() != Some(0) {
            continue;
        }
        let short = "--size 1m --runtime 20ms --ramp-time 0 --trials 1 --no-store --quiet";
        let ended = place.halfpower(&format!("{line} {short}"));
        assert!(place.listing().is_empty(), "left behind: {ended}");
        match ended.status.code() {
            // A short trial may be invalid, for example because of a cache.
            Some(0 | 5) => {
                measured += 1;
                assert!(ended.stdout.contains("requests/s"), "{ended}");
            }
            Some(2 | 3) => {
                refused += 1;
                assert!(ended.stdout.is_empty(), "{ended}");
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                let mut named = ended.stderr.lines().rev().filter(|line| line.contains(&name));
                assert!(named.next().is_some_and(|line| line.contains("job '")), "{ended}");
            }
            _ => panic!("{ended}"),
        }
    }
    assert!(measured >= 10 && refused >= 3, "{measured} measured, {refused} refused");
}
