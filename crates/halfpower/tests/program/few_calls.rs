//! Tests the program where system calls are missing, as on old kernels and in containers. A filter
//! (seccomp(2)) makes these system calls fail with the errors of such systems. Another test runs
//! the program in gVisor, a kernel in user space.
#![cfg(target_arch = "x86_64")]

use std::fs::{self, File};
use std::ops::Range;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use crate::fixture::{Ended, MIB, Place, noise, or_skip, root};

/// Numbers of the system calls of x86_64 that were added after Linux 3.10. The first is
/// sched_setattr(2) of Linux 3.14 (arch/x86/entry/syscalls).
const AFTER_3_10: Range<i64> = 314..500;

/// System calls that a storage program might use, but that the default profile of Docker denies to
/// containers without additional capabilities (moby, profiles/seccomp/default.json).
const NOT_IN_CONTAINERS: [libc::c_long; 23] = [
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_settime,
    libc::SYS_finit_module,
    libc::SYS_fsopen,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_mbind,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_quotactl,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_setns,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Returns a filter under which the given system calls fail with `error`.
fn filter(fails: impl IntoIterator<Item = i64>, error: libc::c_int) -> BpfProgram {
    let rules = fails.into_iter().map(|number| (number, Vec::new())).collect();
    let fails = SeccompAction::Errno(error as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, fails, TargetArch::x86_64);
    filter.unwrap().try_into().unwrap()
}

/// How the system calls of a program are restricted.
enum Restriction {
    Filter(BpfProgram),
    Gvisor,
}

/// Returns a command that runs `command` in gVisor, with access to the files of this machine.
fn in_gvisor(command: &Command) -> Command {
    let mut runsc = Command::new("runsc");
    runsc.args(["--platform=ptrace", "--network=none", "--ignore-cgroups"]);
    runsc.args(["do", "-force-overlay=false", "-cwd"]).arg(command.get_current_dir().unwrap());
    runsc.arg("env");
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            runsc.arg(format!("{}={}", name.display(), value.display()));
        }
    }
    runsc.arg(command.get_program()).args(command.get_args());
    runsc
}

/// Runs `halfpower LINE` under a restriction.
#[track_caller]
fn restricted(place: &Place, restriction: &Restriction, line: &str) -> Ended {
    let mut command = place.command(line);
    if let Restriction::Gvisor = restriction {
        command = in_gvisor(&command);
    }
    let outputs = ["stdout", "stderr"].map(|name| place.state().join(name));
    command.stdout(File::create(&outputs[0]).unwrap()).stderr(File::create(&outputs[1]).unwrap());
    // The filter also applies to the thread that sets it, so a separate thread starts the program.
    let start = move || {
        if let Restriction::Filter(filter) = restriction {
            seccompiler::apply_filter(filter).unwrap();
        }
        command.status().unwrap()
    };
    let status = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
    let [stdout, stderr] = outputs.map(|path| fs::read_to_string(path).unwrap());
    Ended { status, stdout, stderr, line: line.to_owned() }
}

/// Checks that runs, surveys and copies work under a restriction. Everything must work if
/// `--ioengine` is not specified.
#[track_caller]
fn is_usable(place: &Place, restriction: &Restriction) {
    let may_be_noisy = |line: &str| {
        let ended = restricted(place, restriction, line);
        assert!(matches!(ended.status.code(), Some(0 | 5)), "{ended}");
        ended
    };
    may_be_noisy("run . --rw randread --bs 4k --size 4m --iodepth 4 --runtime 0.1 --trials 1")
        .prints("requests/s");
    may_be_noisy("run . --rw randwrite --bs 4k --size 4m --fua --runtime 0.1 --trials 1 --verify")
        .says("verified", "every block is correct");
    may_be_noisy("survey . --budget 20 --size 16m --max-write 64m").prints("In short");
    may_be_noisy("study alignment . --quick --runtime 0.02 --trials 1 --html study.html");
    restricted(place, restriction, "target .").with_code(0).prints("file system");
    restricted(place, restriction, "report").with_code(0);
    restricted(place, restriction, "engines").with_code(0).prints("libaio");
    restricted(place, restriction, "run . --rw read --bs 4k --size 1m --ioengine io_uring")
        .with_code(2)
        .says("io_uring is not available", "use --ioengine");
    fs::create_dir_all(place.path("tree/folder")).unwrap();
    fs::write(place.path("tree/folder/a"), noise(3 * MIB)).unwrap();
    for (flags, from, to) in [
        ("", "tree/folder/a", "copy"),
        ("--resume", "tree/folder/a", "resumed"),
        ("--archive", "tree", "other"),
    ] {
        restricted(place, restriction, &format!("copy {flags} {from} {to}")).with_code(0);
    }
    for copy in ["copy", "resumed", "other/folder/a"] {
        assert_eq!(fs::read(place.path(copy)).unwrap(), noise(3 * MIB), "{copy}");
    }
    place.is_tidy();
}

/// Checks that a file is not overwritten while another program has it open for writing.
#[track_caller]
fn refuses_open_files(place: &Place, restriction: &Restriction) {
    let open = File::create(place.path("open")).unwrap();
    open.set_len(MIB).unwrap();
    let line = "run open --rw write --bs 4k --size 1m --overwrite=open --no-store";
    restricted(place, restriction, line).with_code(3).says("open for writing", "end");
}

#[test]
fn all_works_with_the_system_calls_of_linux_3_10() {
    let filter = Restriction::Filter(filter(AFTER_3_10, libc::ENOSYS));
    let place = Place::new();
    is_usable(&place, &filter);
    refuses_open_files(&place, &filter);
}

#[test]
fn all_works_without_the_system_calls_that_containers_lack() {
    let filter = Restriction::Filter(filter(NOT_IN_CONTAINERS, libc::EPERM));
    let place = Place::new();
    is_usable(&place, &filter);
    refuses_open_files(&place, &filter);
}

// Files that other programs have open are not checked here, because gVisor hides these programs.
#[test]
fn all_works_in_gvisor() {
    or_skip!(root());
    let found = Command::new("runsc").arg("--version").output();
    or_skip!(found.map_err(|error| format!("runsc: {error} (apt-get install runsc)")));
    is_usable(&Place::new(), &Restriction::Gvisor);
}
