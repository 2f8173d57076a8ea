//! Tests the translation of whole job files: the runs that result, and the errors.

use std::path::Path;

use super::*;
use crate::fio::job_file;

/// A fake machine on which only the files `data` and `other` exist.
struct Machine;

impl Surroundings for Machine {
    fn read(&self, path: &Path, _: usize) -> Outcome<String> {
        Err(Failure::usage(format!("reading {}; specify another", path.display())))
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
    fn exists(&self, path: &Path) -> bool {
        path == Path::new("data") || path == Path::new("other")
    }
    fn page_bytes(&self) -> u64 {
        4096
    }
    fn memory_mib(&self) -> u64 {
        1000
    }
    fn cpus(&self) -> u64 {
        8
    }
}

fn planned(text: &str, wishes: &Wishes) -> Outcome<Vec<Run>> {
    plan(&job_file::parse(Path::new("a.fio"), text, &Machine)?, wishes, &Machine)
}

fn runs(text: &str) -> Vec<Run> {
    planned(text, &Wishes::default()).unwrap_or_else(|failure| panic!("{text}: {failure}"))
}

/// Plans the run of a job on the existing file `data`. The options are separated by spaces.
fn run(options: &str) -> Run {
    let text = format!("[j]\nfilename=data\nsize=1m\n{}", options.replace(' ', "\n"));
    runs(&text).remove(0)
}

#[track_caller]
fn has(run: &Run, flags: &str) {
    let words = run.words();
    for flag in flags.split_whitespace() {
        assert!(words.contains(&flag.to_owned()), "{flag} is not in {}", run.line());
    }
}

/// Checks that a run does not have a flag, whatever its value.
#[track_caller]
fn lacks(run: &Run, flag: &str) {
    let start = format!("--{flag}=");
    assert!(!run.words().iter().any(|word| word.starts_with(&start)), "{}", run.line());
}

#[track_caller]
fn refused(text: &str, words: &str) {
    let refusal = planned(text, &Wishes::default()).unwrap_err().message;
    assert!(refusal.contains(words), "{text}: {refusal}");
    assert!(refusal.contains([';', ':']) && !refusal.contains('\n'), "{refusal}");
}

#[test]
fn defaults_of_fio_are_written_out() {
    assert_eq!(
        run("").line(),
        "halfpower run data --ioengine=sync --rw=read --bs=4k --iodepth=1 --direct=0 \
         --hint=sequential --buffer-pages=4k --size=1m --label=j"
    );
}

#[test]
fn each_option_becomes_the_flag_that_means_the_same() {
    for (options, flags) in [
        ("rw=randread bs=8k direct=1", "--rw=randread --bs=8k --direct=1"),
        ("buffered=0 ioengine=libaio iodepth=4", "--direct=1 --ioengine=libaio --iodepth=4"),
        ("rw=randrw rwmixwrite=30", "--rw=randrw --rwmixread=70"),
        ("rw=readwrite rwmixread=70 rwmixwrite=30", "--rw=rw --rwmixread=70"),
        ("rw=write bs=4k,16k", "--bs=16k"),
        ("rw=write bs=,16k", "--bs=16k"),
        ("rw=read bs=,16k", "--bs=4k"),
        ("rw=read:12k bs=4k", "--rw=read --stride=16k"),
        ("rw=randread bssplit=4k/60:64k/", "--bssplit=4k/60:64k"),
        ("rw=write bssplit=4k/60:8k/40,64k/50:128k", "--bssplit=64k/50:128k"),
        ("bsrange=1k-4k", "--bssplit=1k:2k:3k:4k"),
        ("bsrange=8k-8k", "--bs=8k"),
        ("runtime=1500ms time_based ramp_time=2", "--runtime=1500ms --time-based=1 --ramp-time=2s"),
        ("timeout=(2*30)", "--runtime=60s"),
        ("rate=4m bs=4k numjobs=2", "--rate-iops=2048"),
        ("rate_iops=100 rate_process=poisson", "--rate-iops=100 --rate-process=poisson"),
        ("rw=rw rate_iops=60,40 rwmixread=60", "--rate-iops=100"),
        ("rw=rw rate_iops=1,1 rwmixread=40", "--rate-iops=2"),
        ("rw=randread random_distribution=zipf:1.2", "--random-distribution=zipf:1.2"),
        (
            "rw=randread random_distribution=zoned:50/5:30/15:20/",
            "--random-distribution=zoned:50/5:30/15:20/80",
        ),
        ("thinktime=50 thinktime_blocks=4", "--thinktime=50us --thinktime-blocks=4"),
        ("rw=write fsync=8", "--fsync=8"),
        ("rw=write fdatasync=1", "--fdatasync=1"),
        ("rw=write sync=dsync", "--write-through=1"),
        ("rw=write zero_buffers", "--zero-buffers=1"),
        ("rw=write verify=crc32c", "--verify=1"),
        ("randseed=7 cpus_allowed=0-1 invalidate=0", "--seed=7 --cpus-allowed=0-1 --invalidate=0"),
        ("cpumask=5 mem=mmaphuge", "--cpus-allowed=0,2 --buffer-pages=huge"),
        ("ioengine=io_uring hipri sqthread_poll=1 direct=1", "--hipri=1 --sqthread-poll=1"),
        ("rw=randread fadvise_hint=1", "--hint=random"),
        ("pre_read=1 ioscheduler=none", "--page-cache=warm --scheduler=none"),
        ("offset=1m kb_base=1000 bs=4kib", "--offset=1000000 --bs=4k"),
        ("rw=write", "--page-cache=cold"),
        ("rw=write pre_read=1", "--page-cache=warm"),
        ("name=other", "--label=other"),
    ] {
        has(&run(options), flags);
    }
    lacks(&run("direct=1"), "hint");
    lacks(&run("fadvise_hint=0"), "hint");
    lacks(&run("ioengine=null"), "direct");
    for job in ["rw=read", "rw=rw", "rw=write direct=1", "rw=write invalidate=0"] {
        lacks(&run(job), "page-cache");
    }
}

#[test]
fn a_synchronous_engine_has_one_request_outstanding_as_in_fio() {
    has(&run("ioengine=psync iodepth=32"), "--iodepth=1");
    let buffered = run("ioengine=libaio iodepth=32");
    has(&buffered, "--iodepth=1");
    assert!(buffered.approximated[0].starts_with("a.fio:5: iodepth is approximated"));
}

#[test]
fn threads_have_files_of_their_own_unless_a_file_is_named() {
    let own = &runs("[j]\nsize=1m\nnumjobs=4\ndirectory=x\nrw=randread")[0];
    assert_eq!(own.targets(), [Path::new("x")]);
    has(own, "--numjobs=4 --size=4m");
    lacks(own, "placement");
    let missing = &runs("[j]\nsize=1m\nnumjobs=4\nfilename=x/new\nrw=randread")[0];
    assert_eq!(missing.targets(), [Path::new("x")]);
    has(missing, "--numjobs=4 --size=1m --placement=shared");
    has(&run("numjobs=4 rw=randread"), "--numjobs=4 --size=1m --placement=shared");
    let parts = run("numjobs=4 offset_increment=1m");
    has(&parts, "--numjobs=4 --size=4m");
    lacks(&parts, "placement");
}

#[test]
fn a_file_that_fio_would_make_is_allocated_as_by_fio() {
    let run = |options: &str| runs(&format!("[j]\nsize=1m\n{options}")).remove(0);
    has(&run("rw=write"), "--allocation=fallocate");
    has(&run("rw=randwrite\nfallocate=none"), "--allocation=extend");
    lacks(&run("rw=write\noverwrite=1"), "allocation");
    lacks(&run("rw=rw"), "allocation");
    lacks(&runs("[j]\nfilename=data\nrw=write")[0], "allocation");
}

#[test]
fn several_files_are_used_in_turn_like_a_stripe() {
    let both = &runs("[j]\nfilename=data:other\nbs=8k\nrw=randread")[0];
    assert_eq!(both.targets(), [Path::new("data"), Path::new("other")]);
    has(both, "--chunk=8k");
    refused(
        "[j]\nfilename=data:new\nsize=1m",
        "new does not exist, but other files of the job do; create new",
    );
}

#[test]
fn jobs_wait_behind_a_stonewall_and_equal_jobs_run_together() {
    let text = "[global]\nsize=1m\n[a]\n[b]\n[c]\nstonewall\nnumjobs=2\n[d]\nwait_for=c\nrw=write";
    let found = runs(text);
    let names: Vec<&str> = found.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names, ["a, b", "c", "d"]);
    has(&found[0], "--numjobs=2 --size=2m");
    let disks = &runs("[a]\nfilename=/dev/sdx\n[b]\nfilename=/dev/sdy")[0];
    assert_eq!(disks.targets(), [Path::new("/dev/sdx"), Path::new("/dev/sdy")]);
}

#[test]
fn different_jobs_at_the_same_time_are_refused_unless_they_may_run_in_turn() {
    let text = "[global]\nsize=1m\n[a]\n[b]\nbs=8k";
    refused(text, "a.fio:4: job 'b' runs at the same time as 'a' but has a different bs");
    let serial = Wishes { serial: true, ..Wishes::default() };
    assert_eq!(planned(text, &serial).unwrap().len(), 2);
    let one = Wishes { sections: vec!["b".to_owned()], ..Wishes::default() };
    has(&planned(text, &one).unwrap()[0], "--bs=8k");
    let none = Wishes { sections: vec!["c".to_owned()], ..Wishes::default() };
    assert!(planned(text, &none).unwrap_err().message.ends_with("use one of: a, b"));
}

#[test]
fn what_would_change_the_load_is_refused_with_its_line() {
    for (option, words) in [
        ("rw=randtrim", "a.fio:4: rw=randtrim: halfpower does not support trims; "),
        ("ioengine=net", "a.fio:4: ioengine=net: halfpower does not have this engine; "),
        ("exec_prerun=rm -rf /", "does not support running commands from job files; "),
        ("zonemode=zbd", "does not support zones"),
        ("verify_pattern=0x55", "a.fio:4: verify_pattern=0x55"),
        ("rw=read:-8k", "requests at descending offsets"),
        ("rw=rw\nbs=4k,8k", "reads and writes of different sizes"),
        ("rw=rw\nrate_iops=10,90", "do not match rwmixread"),
        ("flow=2", "whose rates depend"),
        ("size=10%", "specify bytes"),
        ("bs=1.5k", "a.fio:4: bs=1.5k: '1.5k': unexpected '.5k'; write"),
        ("bs=0", "a.fio:4: --bs 0: 0 measures nothing"),
        ("runtime=x", "a.fio:4: runtime=x"),
        ("direct=maybe", "write 0 or 1"),
        ("nonsense=1", "a.fio:4: nonsense=1: halfpower does not know this option; "),
        ("time_based", "a.fio:4: time_based: a runtime is missing; "),
        ("size=${NONE}", "a.fio:4: size: ${NONE} is not set; "),
        ("numjobs=4\noffset_increment=2m", "overlap or leave gaps"),
        ("rw=write\nreadonly", "a.fio:5: readonly: this job writes; "),
    ] {
        refused(&format!("[j]\nfilename=data\nsize=1m\n{option}"), words);
    }
    refused("[j]\nrw=read", "no size is given; add size=1g");
    let off = run("zonemode=none flow=0 trim_percentage=0");
    assert!(off.approximated.is_empty() && off.ignored.is_empty());
}

#[test]
fn what_does_not_map_is_named_and_strict_refuses_approximations() {
    let found = run("group_reporting thread startdelay=5 numa_cpu_nodes=0");
    assert_eq!(found.ignored, ["group_reporting", "thread"]);
    let how = "a.fio:6: startdelay is approximated: jobs start without a delay";
    assert!(found.approximated.contains(&how.to_owned()), "{:?}", found.approximated);
    assert_eq!(found.approximated.len(), 2);
    let strict = Wishes { strict: true, ..Wishes::default() };
    let text = |option: &str| format!("[j]\nsize=1m\n{option}");
    assert!(planned(&text("startdelay=5"), &strict).is_err());
    assert!(planned(&text("group_reporting"), &strict).is_ok());
    assert!(planned(&text("rw=write"), &strict).unwrap_err().message.contains("end_fsync"));
}

#[test]
fn a_run_carries_no_permission_and_a_name_cannot_become_a_flag() {
    let found = &runs("[--overwrite=data]\nfilename=data\nrw=write\noverwrite=1\nsize=1m")[0];
    let experiment = found.experiment().unwrap();
    assert_eq!(experiment.consent, lab::guard::Consent::default());
    has(found, "--label=--overwrite=data");
    let target = &runs("[j]\nfilename=--overwrite=data\nsize=1m")[0];
    assert_eq!(target.targets(), [Path::new(".")]);
}
