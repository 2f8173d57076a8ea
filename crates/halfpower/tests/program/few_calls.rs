//! Kernels and containers with fewer system calls than this kernel has. A filter of system calls
//! (seccomp(2)) makes the missing ones fail as they fail there.
#![cfg(target_arch = "x86_64")]

use std::fs;
use std::os::unix::process::CommandExt;

use crate::fixture::{Ended, MIB, Place, noise};

/// The first system call after Linux 3.10: sched_setattr(2), since 3.14 (arch/x86/entry/syscalls).
const FIRST_AFTER_3_10: u32 = 314;

/// System calls that the default profile of Docker does not allow to a container without further
/// capabilities (moby, profiles/seccomp/default.json).
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

/// An instruction of a filter (linux/bpf_common.h).
fn instruction(code: u32, k: u32, jump_true: u8, jump_false: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: jump_true, jf: jump_false, k }
}

/// A filter under which system calls fail with an error: those from `first` on, and those listed.
fn filter(first: u32, listed: &[libc::c_long], error: libc::c_int) -> Vec<libc::sock_filter> {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump = |condition| libc::BPF_JMP | condition | libc::BPF_K;
    let done = libc::BPF_RET | libc::BPF_K;
    let fails = libc::SECCOMP_RET_ERRNO | error as u32;
    // The number of the call is at the beginning of struct seccomp_data.
    let mut program = vec![instruction(load, 0, 0, 0)];
    let mut add = |condition, number| {
        program.push(instruction(jump(condition), number, 0, 1));
        program.push(instruction(done, fails, 0, 0));
    };
    add(libc::BPF_JGE, first);
    listed.iter().for_each(|number| add(libc::BPF_JEQ, *number as u32));
    program.push(instruction(done, libc::SECCOMP_RET_ALLOW, 0, 0));
    program
}

/// Runs `halfpower LINE` under a filter.
#[track_caller]
fn restricted(place: &Place, filter: &[libc::sock_filter], line: &str) -> Ended {
    let mut command = place.command(line);
    let mut filter = filter.to_vec();
    let install = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the kernel copies the program, which lives until both calls return.
        let code = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
        };
        if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: `install` makes two system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
    place.start_command(command, line).ended()
}

/// Measures, surveys and copies; what the user gets without `--ioengine` must work.
#[track_caller]
fn is_usable(place: &Place, filter: &[libc::sock_filter]) {
    let may_be_noisy = |line: &str| {
        let ended = restricted(place, filter, line);
        assert!(matches!(ended.status.code(), Some(0 | 5)), "{ended}");
        ended
    };
    may_be_noisy("run . --rw randread --bs 4k --size 4m --iodepth 4 --runtime 0.1 --trials 1")
        .prints("requests/s");
    may_be_noisy("run . --rw randwrite --bs 4k --size 4m --fua --runtime 0.1 --trials 1 --verify")
        .says("verified", "every block is correct");
    may_be_noisy("survey . --budget 5 --size 16m --max-write 64m").prints("In short");
    may_be_noisy("study alignment . --quick --runtime 0.02 --trials 1 --html study.html");
    restricted(place, filter, "target .").with_code(0).prints("file system");
    restricted(place, filter, "report").with_code(0);
    fs::create_dir_all(place.path("tree/folder")).unwrap();
    fs::write(place.path("tree/folder/a"), noise(3 * MIB)).unwrap();
    for (flags, from, to) in [
        ("", "tree/folder/a", "copy"),
        ("--resume", "tree/folder/a", "resumed"),
        ("--archive", "tree", "other"),
    ] {
        restricted(place, filter, &format!("copy {flags} {from} {to}")).with_code(0);
    }
    for copy in ["copy", "resumed", "other/folder/a"] {
        assert_eq!(fs::read(place.path(copy)).unwrap(), noise(3 * MIB), "{copy}");
    }
    let open = fs::File::create(place.path("open")).unwrap();
    open.set_len(MIB).unwrap();
    let line = "run open --rw write --bs 4k --size 1m --overwrite=open --no-store";
    restricted(place, filter, line).with_code(3).says("open for writing", "end");
    place.is_tidy();
}

#[test]
fn all_works_with_the_system_calls_of_linux_3_10() {
    let place = Place::new();
    let old = filter(FIRST_AFTER_3_10, &[], libc::ENOSYS);
    is_usable(&place, &old);
    restricted(&place, &old, "engines").with_code(0).prints("libaio");
    restricted(&place, &old, "run . --rw read --bs 4k --size 1m --ioengine io_uring")
        .with_code(2)
        .says("io_uring is not available", "use --ioengine");
}

#[test]
fn all_works_in_a_container_with_the_default_profile() {
    let place = Place::new();
    let container = filter(u32::MAX, &NOT_IN_CONTAINERS, libc::EPERM);
    is_usable(&place, &container);
    restricted(&place, &container, "engines").with_code(0).prints("libaio");
    restricted(&place, &container, "run . --rw read --bs 4k --size 1m --ioengine io_uring")
        .with_code(2)
        .says("io_uring is not available", "use --ioengine");
}
