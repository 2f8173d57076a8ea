//! Wraps every system call of this crate in a safe function. This is the only file with `unsafe`
//! code.
//!
//! The functions form three groups: clocks and counters, placement on CPUs, and the spinner
//! processes of the soaker. The spinner processes obey the rule of fork(2) for multithreaded
//! programs: after the fork, a child only makes system calls and computes on shared memory
//! ([`SharedBoard`]). A child never allocates memory, takes a lock, or runs code that can panic.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};

/// Maximum number of CPUs that the kernel supports.
const MASK_CPUS: usize = 8192;
const WORD_BITS: usize = u64::BITS as usize;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

// ---- clocks and counters

fn clock_ns(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to which the kernel may write.
    check(unsafe { libc::clock_gettime(clock, &mut time) })?;
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the CPU time of all threads of this process (ns).
pub(crate) fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).expect("every Linux since 2.6.12 has this clock")
}

/// Returns the CPU time of another process (ns). The time is exact while the process sleeps, and up
/// to one timer tick old while the process runs.
pub(crate) fn process_cpu_ns_of(pid: i32) -> io::Result<u64> {
    let mut clock = 0;
    // SAFETY: `clock` is a clockid_t to write to; any pid is allowed.
    let error = unsafe { libc::clock_getcpuclockid(pid, &mut clock) };
    if error != 0 { Err(io::Error::from_raw_os_error(error)) } else { clock_ns(clock) }
}

/// Returns the user and system time of this process from getrusage(2) (ns, at microsecond
/// resolution).
pub(crate) fn rusage_self_ns() -> (u64, u64) {
    // SAFETY: rusage is plain integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a rusage to write to. The call cannot fail with RUSAGE_SELF; if it did,
    // the zeros would remain.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

fn ns(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000
}

/// Returns the number of ticks per second for the times in `/proc/stat` (USER_HZ).
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: sysconf only looks up a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100)
}

/// Returns the number of online CPUs.
pub(crate) fn online_cpus() -> u32 {
    // SAFETY: sysconf only looks up a number.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1).max(1)
}

/// The kernel's `struct perf_event_attr` (linux/perf_event.h), in the size `PERF_ATTR_SIZE_VER0`.
#[repr(C)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
}

const PERF_FORMAT_TOTAL_TIMES: u64 = 0b11;
const PERF_FLAG_INHERIT: u64 = 1 << 1;
const PERF_FLAG_EXCLUDE_HV: u64 = 1 << 6;
/// Threads inherit the counter, but child processes do not (Linux 5.13), so that the soaker is not
/// counted.
const PERF_FLAG_INHERIT_THREAD: u64 = 1 << 35;

/// Opens and starts a counter for the calling thread and all threads that it starts later. A read
/// returns three u64 in native byte order: value, time enabled, and time counting
/// (perf_event_open(2)).
pub(crate) fn perf_open(kind: u32, config: u64) -> io::Result<File> {
    let attr = PerfEventAttr {
        kind,
        size: size_of::<PerfEventAttr>() as u32,
        config,
        sample_period: 0,
        sample_type: 0,
        read_format: PERF_FORMAT_TOTAL_TIMES,
        flags: PERF_FLAG_INHERIT | PERF_FLAG_EXCLUDE_HV | PERF_FLAG_INHERIT_THREAD,
        wakeup_events: 0,
        bp_type: 0,
        bp_addr: 0,
    };
    let close_on_exec: libc::c_ulong = 1 << 3;
    let (this_thread, any_cpu, no_group) = (0, -1, -1);
    // SAFETY: `attr` is a valid attribute block and contains its own size.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            this_thread,
            any_cpu,
            no_group,
            close_on_exec,
        )
    };
    let fd = check(fd as libc::c_int)?;
    // SAFETY: the call above returned this descriptor, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

// ---- placement

/// Returns the CPUs on which the calling thread may run.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    let mut mask = [0u64; MASK_CPUS / WORD_BITS];
    // SAFETY: the kernel writes only to `mask`, whose size is passed.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) })?;
    Ok((0..MASK_CPUS).filter(|cpu| mask[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1 == 1).collect())
}

/// Binds a thread to the given CPUs. `pid` 0 means the calling thread.
pub(crate) fn pin(pid: i32, cpus: &[usize]) -> io::Result<()> {
    let mut mask = [0u64; MASK_CPUS / WORD_BITS];
    for &cpu in cpus {
        let word = mask.get_mut(cpu / WORD_BITS).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (cpu % WORD_BITS);
    }
    // SAFETY: the kernel reads only `mask`, whose size is passed.
    check(unsafe { libc::sched_setaffinity(pid, size_of_val(&mask), mask.as_ptr().cast()) })?;
    Ok(())
}

/// Sets how late the kernel may wake the calling thread from a timed sleep (ns). The value 0
/// restores the default.
pub(crate) fn set_timer_slack_ns(slack_ns: u64) -> io::Result<()> {
    // SAFETY: this prctl takes one number and changes only the calling thread.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns as libc::c_ulong) })?;
    Ok(())
}

/// Gives a process the SCHED_IDLE policy (sched(7)).
pub(crate) fn set_idle_policy(pid: i32) -> io::Result<()> {
    set_policy(pid, libc::SCHED_IDLE)
}

/// Gives a process SCHED_OTHER, the policy of most processes (sched(7)).
pub(crate) fn set_normal_policy(pid: i32) -> io::Result<()> {
    set_policy(pid, libc::SCHED_OTHER)
}

/// Sets the scheduling policy of a process. The policy must not be a real-time policy.
fn set_policy(pid: i32, policy: libc::c_int) -> io::Result<()> {
    let priority: libc::c_int = 0;
    // SAFETY: the kernel's sched_param is one int, which is only read. The system call is made
    // directly, because musl's wrapper always fails.
    let rc =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, pid, policy, &raw const priority) };
    check(rc as libc::c_int).map(|_| ())
}

// ---- spinner processes

/// Number of units of work after which a spinner publishes its CPU time. These units take some
/// milliseconds, so that the half microsecond for reading the clock is negligible.
const PUBLISH_UNITS: u64 = 2048;

/// The state that a spinner shares with its parent. The alignment of 128 bytes (two cache lines)
/// prevents false sharing, because CPUs prefetch cache lines in pairs.
#[repr(C, align(128))]
pub(crate) struct SpinnerState {
    /// Futex on which the spinner sleeps. The parent sets it to 1 while the spinner must spin.
    pub(crate) running: AtomicU32,
    /// Futex on which the parent waits. It is 0 until the spinner runs or has failed to start.
    ready: AtomicU32,
    /// Process id of the spinner, or the negative errno if clone(2) failed.
    pid: AtomicI32,
    /// Number of units of work done since the spinner started.
    pub(crate) units: AtomicU64,
    /// Seqlock of the two fields below. It is odd while the spinner writes them.
    version: AtomicU32,
    published_units: AtomicU64,
    published_cpu_ns: AtomicU64,
}

impl SpinnerState {
    /// Publishes `units` and the CPU time used so far. Called by the spinner.
    fn publish(&self, units: u64) {
        let cpu_ns = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0);
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.published_units.store(units, Ordering::Relaxed);
        self.published_cpu_ns.store(cpu_ns, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns the last published units and CPU time (ns). `None` while the spinner publishes new
    /// values, which may take long if the spinner is preempted.
    pub(crate) fn read_published(&self) -> Option<(u64, u64)> {
        let version = self.version.load(Ordering::Acquire);
        let units = self.published_units.load(Ordering::Relaxed);
        let cpu_ns = self.published_cpu_ns.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let unchanged = self.version.load(Ordering::Relaxed) == version;
        (unchanged && version.is_multiple_of(2)).then_some((units, cpu_ns))
    }
}

/// Memory that is shared with the spinners: one [`SpinnerState`] for each. The board is not `Send`,
/// because the kernel kills the spinners when the *thread* that forked them ends (prctl(2),
/// PR_SET_PDEATHSIG).
pub(crate) struct SharedBoard {
    spinners: NonNull<SpinnerState>,
    count: usize,
}

impl SharedBoard {
    /// Maps the shared memory with zeroed states for `count` spinners.
    pub(crate) fn new(count: usize) -> io::Result<SharedBoard> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let bytes = count * size_of::<SpinnerState>();
        // SAFETY: a new mapping at an address that the kernel chooses disturbs no other mapping.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let spinners = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedBoard { spinners, count })
    }

    /// Returns the states of all spinners.
    pub(crate) fn spinners(&self) -> &[SpinnerState] {
        // SAFETY: the mapping holds `count` states until drop, is page-aligned, and zero is a valid
        // value of every field. The fields are atomics, so the other processes may write to them.
        unsafe { std::slice::from_raw_parts(self.spinners.as_ptr(), self.count) }
    }
}

impl Drop for SharedBoard {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`, and no borrow of it outlives `self`.
        unsafe {
            libc::munmap(self.spinners.as_ptr().cast(), self.count * size_of::<SpinnerState>())
        };
    }
}

/// Starts a sleeping spinner for each state, and returns the process ids of all spinners. The first
/// spinner creates a new session and clones the other spinners as its siblings (CLONE_PARENT). All
/// spinners are therefore in the same session and are children of this process.
///
/// # Errors
/// The error of the first spinner that did not start. The other spinners are killed.
pub(crate) fn fork_spinners(board: &SharedBoard) -> io::Result<Vec<i32>> {
    // SAFETY: sigset_t is plain bits; both sets are filled before they are used.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: `all` and `before` are local variables, so the pointers are valid during the calls.
    // Signals are blocked before the fork, so no signal handler of the parent ever runs in a child.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    // SAFETY: getpid has no preconditions.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child runs `first_spinner`, which obeys the rule at the start of this file.
    let forked = check(unsafe { libc::fork() });
    if let Ok(0) = forked {
        first_spinner(board, parent);
    }
    // SAFETY: `before` was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    board.spinners()[0].pid.store(forked?, Ordering::Relaxed);

    let timeout = libc::timespec { tv_sec: 5, tv_nsec: 0 };
    let mut pids = Vec::with_capacity(board.count);
    let mut failure = None;
    for spinner in board.spinners() {
        while spinner.ready.load(Ordering::Acquire) == 0 && failure.is_none() {
            if futex_wait(&spinner.ready, 0, Some(&timeout)) == libc::ETIMEDOUT {
                failure = Some(io::ErrorKind::TimedOut.into());
            }
        }
        match spinner.pid.load(Ordering::Relaxed) {
            pid @ 1.. => pids.push(pid),
            errno => failure = failure.or(Some(io::Error::from_raw_os_error(-errno))),
        }
    }
    match failure {
        None => Ok(pids),
        Some(error) => {
            kill_and_reap(&pids);
            Err(error)
        }
    }
}

/// Main function of the first spinner: creates the session, starts the other spinners, then spins.
fn first_spinner(board: &SharedBoard, parent: i32) -> ! {
    // SAFETY: prctl and setsid are async-signal-safe and change only this process.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        libc::setsid();
    }
    let mut spinners = board.spinners().iter();
    let own = spinners.next();
    for spinner in spinners {
        let flags = (libc::CLONE_PARENT | libc::SIGCHLD) as libc::c_ulong;
        // SAFETY: without CLONE_VM and without a stack, this call is a fork. The child obeys the
        // rule at the start of this file.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) };
        if pid == 0 {
            spin_forever(spinner, parent);
        }
        if pid < 0 {
            // SAFETY: errno belongs to the calling thread.
            spinner.pid.store(unsafe { -*libc::__errno_location() }, Ordering::Relaxed);
            spinner.ready.store(1, Ordering::Release);
            futex_wake(&spinner.ready);
        }
    }
    match own {
        Some(spinner) => spin_forever(spinner, parent),
        // SAFETY: _exit is async-signal-safe and ends the process without running exit handlers.
        None => unsafe { libc::_exit(0) },
    }
}

/// Main loop of a spinner. It spins while `running` is 1, sleeps otherwise, and ends with its
/// parent.
fn spin_forever(spinner: &SpinnerState, parent: i32) -> ! {
    // SAFETY: these calls are async-signal-safe and change only this process.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
        spinner.pid.store(libc::getpid(), Ordering::Relaxed);
    }
    let mut units = 0u64;
    let mut value = 1u64;
    loop {
        spinner.publish(units);
        if spinner.ready.swap(1, Ordering::Release) == 0 {
            futex_wake(&spinner.ready);
        }
        while spinner.running.load(Ordering::Acquire) == 0 {
            futex_wait(&spinner.running, 0, None);
        }
        while spinner.running.load(Ordering::Relaxed) == 1 {
            value = std::hint::black_box(unit(value));
            units = units.wrapping_add(1);
            spinner.units.store(units, Ordering::Relaxed);
            if units.is_multiple_of(PUBLISH_UNITS) {
                spinner.publish(units);
            }
        }
    }
}

/// Does one unit of work, which takes about a microsecond. The steps do not access memory, so that
/// their cost does not depend on cache contention. Each step depends on the previous step, and
/// combines multiplication and shift, so that several steps cannot be merged into one.
fn unit(seed: u64) -> u64 {
    let mut value = seed;
    let mut step = 0u32;
    while step < 512 {
        value = (value ^ (value >> 29)).wrapping_mul(6_364_136_223_846_793_005);
        step = step.wrapping_add(1);
    }
    value
}

/// Sleeps while `word` is `expected`. Returns 0 or the errno. Spurious wake-ups are possible.
fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<&libc::timespec>) -> libc::c_int {
    let timeout = timeout.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `word` and `timeout` (null means forever) are live for the length of the call. The
    // futex is not private, because the word is shared between processes.
    unsafe {
        let rc = libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, timeout);
        if rc < 0 { *libc::__errno_location() } else { 0 }
    }
}

/// Wakes one process that sleeps on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is live; waking has no other precondition.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Checks whether a child of this process is still running.
pub(crate) fn child_runs(pid: i32) -> bool {
    // SAFETY: siginfo_t is plain data, for which zero is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a siginfo_t to write to; WNOWAIT leaves the child to be reaped later.
    let rc = unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, options) };
    // SAFETY: waitid filled `info`, or left si_pid at zero because nothing has ended.
    rc == 0 && unsafe { info.si_pid() } == 0
}

/// Waits for a child to end and reaps it (wait4(2)). Returns its status, and its user and system
/// time including descendants that were waited for (ns, at microsecond resolution).
pub(crate) fn wait_for(pid: i32) -> io::Result<(libc::c_int, u64, u64)> {
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: `status` and `usage` are local variables that the kernel may write to.
        match check(unsafe { libc::wait4(pid, &mut status, 0, &mut usage) }) {
            Ok(_) => return Ok((status, ns(usage.ru_utime), ns(usage.ru_stime))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reaps a child that has ended (wait4(2)). Returns its user and system time including descendants
/// that were waited for (ns). `None` if the process is running, or is not a child of this process.
pub(crate) fn reap_if_ended(pid: i32) -> Option<(u64, u64)> {
    // SAFETY: rusage is plain integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a null status pointer is allowed; `usage` is a rusage to write to.
    let reaped = unsafe { libc::wait4(pid, ptr::null_mut(), libc::WNOHANG, &mut usage) };
    (reaped == pid).then(|| (ns(usage.ru_utime), ns(usage.ru_stime)))
}

/// Makes this process the subreaper of its descendants (prctl(2), PR_SET_CHILD_SUBREAPER).
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes a number and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })?;
    Ok(())
}

/// Kills children with SIGKILL and reaps them.
pub(crate) fn kill_and_reap(pids: &[i32]) {
    for &pid in pids {
        // SAFETY: `pid` is a child not yet reaped, so the number cannot mean another process.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    for &pid in pids {
        // SAFETY: a null status pointer is allowed.
        while check(unsafe { libc::waitpid(pid, ptr::null_mut(), 0) })
            .is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
        {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spinner_counts_while_it_runs_and_only_then() {
        let board = SharedBoard::new(2).unwrap();
        let pids = fork_spinners(&board).unwrap();
        let spinner = &board.spinners()[1];
        assert_eq!(spinner.units.load(Ordering::Relaxed), 0);
        spinner.running.store(1, Ordering::Release);
        futex_wake(&spinner.running);
        while spinner.read_published().is_none_or(|(units, _)| units < PUBLISH_UNITS) {
            std::thread::yield_now();
        }
        spinner.running.store(0, Ordering::Release);
        let stat = format!("/proc/{}/stat", pids[1]);
        while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
            std::thread::yield_now();
        }
        let (units, cpu_ns) = spinner.read_published().unwrap();
        assert_eq!(units, spinner.units.load(Ordering::Relaxed));
        assert!(units >= PUBLISH_UNITS && cpu_ns > 0);
        assert_eq!(board.spinners()[0].units.load(Ordering::Relaxed), 0);
        assert!(pids.iter().all(|&pid| child_runs(pid)));
        kill_and_reap(&pids);
        assert!(!pids.iter().any(|&pid| child_runs(pid)));
    }

    #[test]
    fn a_cpu_beyond_every_mask_is_an_error() {
        assert!(pin(0, &[MASK_CPUS]).is_err());
    }
}
