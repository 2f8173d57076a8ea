//! Tests on a real kernel that the soaker avoids the three faults of older soakers (module
//! `soaker`) and leaves nothing behind.
//!
//! Helper processes generate the load. They run this same binary, and an environment variable
//! selects their role. Other programs may run on the machine, so the checks have wide margins, and
//! each check may fail twice before the test fails. If the host does not allow a soaker, the tests
//! print the reason and pass.

#![cfg(test)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, fs};

use cpucost::affinity::{allowed_cpus, pin_current_thread};
use cpucost::procstat::ProcStat;
use cpucost::rusage::ProcessTime;
use cpucost::{CpuMeter, HostMeter, Soaker, SoakerReading};

const ROLE: &str = "CPUCOST_TEST_ROLE";
const ATTEMPTS: usize = 3;
/// Usual mount points of the cpu control group hierarchy.
const CPU_ROOTS: [&str; 3] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"];

#[expect(clippy::disallowed_methods, reason = "these tests are the caller that owns the clock")]
mod clock {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    pub fn now_ns() -> u64 {
        ORIGIN.elapsed().as_nanos() as u64
    }

    pub fn sleep(duration: Duration) {
        std::thread::sleep(duration);
    }
}

// ---- helpers

/// Main function of a helper process, which runs until it is killed.
#[test]
fn role_of_a_helper_process() {
    let Ok(role) = env::var(ROLE) else { return };
    if role == "owner" {
        let _soaker = start_soaker();
        let pids = children_of(std::process::id());
        println!("\nspinners {}", pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
        loop {
            clock::sleep(Duration::from_secs(1));
        }
    }
    let (cpu, duty) = role.strip_prefix("busy ").unwrap().split_once(' ').unwrap();
    pin_current_thread(&[cpu.parse().unwrap()]).unwrap();
    let (duty, begun_ns): (f64, u64) = (duty.parse().unwrap(), clock::now_ns());
    let parent = std::os::unix::process::parent_id();
    while std::os::unix::process::parent_id() == parent {
        // The helper catches up on time that it lost to other load, so that its share of the CPU is
        // as requested.
        let due_ns = (duty * (clock::now_ns() - begun_ns) as f64) as u64;
        while duty >= 1.0 || ProcessTime::now().total_ns < due_ns {
            std::hint::black_box((0..20_000u64).fold(1, |a, b| a ^ b));
        }
        clock::sleep(Duration::from_millis(5));
    }
}

/// A helper process, killed on drop.
struct Helper(Child);

impl Helper {
    fn start(mut command: Command, role: &str) -> Option<Helper> {
        command.args(["--exact", "role_of_a_helper_process", "--nocapture"]).env(ROLE, role);
        command.stdout(Stdio::piped()).spawn().ok().map(Helper)
    }

    fn busy(cpu: usize) -> Helper {
        Helper::with_duty(cpu, 1.0)
    }

    /// Starts a process that uses the share `duty` (0 to 1) of a CPU.
    fn with_duty(cpu: usize, duty: f64) -> Helper {
        let role = format!("busy {cpu} {duty}");
        Helper::start(Command::new(env::current_exe().unwrap()), &role).unwrap()
    }

    /// Starts a process like [`Helper::with_duty`] in a separate session, and therefore in a
    /// separate autogroup. `None` if there is no setsid(1).
    fn in_another_session(cpu: usize, duty: f64) -> Option<Helper> {
        let mut command = Command::new("setsid");
        command.arg(env::current_exe().unwrap());
        Helper::start(command, &format!("busy {cpu} {duty}"))
    }

    /// Returns the CPU time charged to the helper's threads, at most one timer tick old.
    fn charged_ns(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        let charged_ns = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap();
            text.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        threads.map(|thread| charged_ns(thread.unwrap())).sum()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Makes the tests run one at a time, because only one soaker can run on the machine.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a soaker when no other program runs a soaker. If this is not possible, prints the reason
/// and returns `None`.
fn start_soaker() -> Option<Soaker> {
    for _ in 0..200 {
        match Soaker::start() {
            Ok(soaker) => return Some(soaker),
            Err(declined)
                if declined.reason.contains("another soaker")
                    || declined.remedy.contains("try again") =>
            {
                clock::sleep(Duration::from_millis(50));
            }
            Err(declined) => {
                println!("skipped: {declined}");
                return None;
            }
        }
    }
    println!("skipped: another program runs a soaker");
    None
}

fn calibrate(soaker: &mut Soaker) -> Result<(), String> {
    soaker.calibrate(&clock::sleep, &clock::now_ns).map_err(|declined| declined.to_string())
}

fn soak(soaker: &mut Soaker, milliseconds: u64) -> Result<SoakerReading, String> {
    let duration = Duration::from_millis(milliseconds);
    soaker
        .background(duration, &clock::sleep, &clock::now_ns)
        .map_err(|declined| declined.to_string())
}

fn idle_share(reading: &SoakerReading, cpu: usize) -> f64 {
    reading.per_cpu.iter().find(|soaked| soaked.cpu == cpu).unwrap().idle_share
}

/// Measures the idle share of a CPU from `/proc/stat`, without a soaker.
fn stated_idle_share(cpu: usize, milliseconds: u64) -> f64 {
    let idle_ns = || ProcStat::read().unwrap().idle_ns(cpu).unwrap();
    let (begun_ns, before_ns) = (clock::now_ns(), idle_ns());
    clock::sleep(Duration::from_millis(milliseconds));
    (idle_ns() - before_ns) as f64 / (clock::now_ns() - begun_ns) as f64
}

/// Repeats an attempt until it succeeds, and panics after `ATTEMPTS` failures. A soaker must refuse
/// to calibrate on a machine that is too busy, so such a refusal does not count as a failure.
fn in_some_attempt(mut attempt: impl FnMut() -> Result<(), String>) {
    const MOMENTS: usize = 10;
    let mut failures = Vec::new();
    for _ in 0..MOMENTS {
        match attempt() {
            Ok(()) => return,
            Err(declined) if declined.contains("too busy to be calibrated") => {}
            Err(failure) => failures.push(failure),
        }
        assert!(failures.len() < ATTEMPTS, "{failures:#?}");
    }
    println!("skipped: other programs keep the machine too busy");
}

fn children_of(parent: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if state_and_parent(pid).is_some_and(|(_, its_parent)| its_parent == parent) {
            children.push(pid);
        }
    }
    children
}

/// Returns the state letter and the parent of a process. None if the process no longer exists.
fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Checks that the soaker reports `cpu` as busy. For another CPU, the idle share that the soaker
/// reports must be close to the idle share in `/proc/stat`, read before and after.
fn assert_that_a_busy_cpu_reads_busy(cpu: usize) {
    let other = *allowed_cpus().iter().find(|&&allowed| allowed != cpu).unwrap();
    in_some_attempt(|| {
        let Some(mut soaker) = start_soaker() else { return Ok(()) };
        calibrate(&mut soaker)?;
        let before = stated_idle_share(other, 300);
        let reading = soak(&mut soaker, 600)?;
        let after = stated_idle_share(other, 300);
        println!("stated {before:.3} and {after:.3}, {reading:?}");
        if let Some(suspect) = reading.suspect {
            return Err(suspect);
        }
        let (busy, free) = (idle_share(&reading, cpu), idle_share(&reading, other));
        if busy > 0.03 {
            return Err(format!("the busy CPU reads {:.1}% idle", busy * 100.0));
        }
        if free < before.min(after) - 0.3 || free > before.max(after) + 0.3 {
            return Err(format!("the other CPU: soaker {free:.3}, stated {before:.3}, {after:.3}"));
        }
        let lost = reading.lost_ns as f64 / reading.elapsed_ns as f64;
        let shares: f64 = reading.per_cpu.iter().map(|soaked| 1.0 - soaked.idle_share).sum();
        if (lost - shares).abs() > 0.05 {
            return Err(format!("lost {lost:.3} CPUs, but the shares say {shares:.3}"));
        }
        Ok(())
    });
}

/// Checks whether other programs left too little CPU time for the test.
fn is_crowded(reading: &SoakerReading) -> bool {
    let crowded = reading.per_cpu.iter().any(|soaked| soaked.charged_share < 0.05);
    if crowded {
        println!("skipped: no idle time to measure in, {reading:?}");
    }
    crowded
}

fn has_two_cpus() -> bool {
    let enough = allowed_cpus().len() >= 2;
    if !enough {
        println!("skipped: needs two CPUs");
    }
    enough
}

// ---- first fault of older soakers: they rank last only within their own task group

#[test]
fn a_cpu_kept_busy_in_the_same_session_reads_busy() {
    let _turn = one_at_a_time();
    if has_two_cpus() {
        let cpu = allowed_cpus()[0];
        let _busy = Helper::busy(cpu);
        assert_that_a_busy_cpu_reads_busy(cpu);
    }
}

#[test]
fn a_cpu_kept_busy_in_another_session_reads_busy() {
    let _turn = one_at_a_time();
    if !has_two_cpus() {
        return;
    }
    let cpu = allowed_cpus()[0];
    let Some(busy) = Helper::in_another_session(cpu, 1.0) else {
        println!("skipped: no setsid(1)");
        return;
    };
    assert_that_a_busy_cpu_reads_busy(cpu);
    drop(busy);
}

#[test]
fn a_cpu_kept_busy_in_another_control_group_reads_busy() {
    let _turn = one_at_a_time();
    if !has_two_cpus() {
        return;
    }
    let Some(group) = TestGroup::create() else {
        println!("skipped: cannot make a control group");
        return;
    };
    let cpu = allowed_cpus()[0];
    let busy = Helper::busy(cpu);
    group.take(&busy);
    assert_that_a_busy_cpu_reads_busy(cpu);
    drop(busy);
}

/// A control group with a separate share of CPU time, which is removed on drop.
struct TestGroup(PathBuf);

impl TestGroup {
    fn create() -> Option<TestGroup> {
        let name = format!("cpucost-test-{}", std::process::id());
        CPU_ROOTS
            .into_iter()
            .filter(|root| Path::new(root).join("cgroup.procs").exists())
            .map(|root| Path::new(root).join(&name))
            .filter(|path| fs::create_dir(path).is_ok())
            .map(TestGroup)
            .find(|group| ["cpu.shares", "cpu.weight"].iter().any(|f| group.0.join(f).exists()))
    }

    fn take(&self, helper: &Helper) {
        fs::write(self.0.join("cgroup.procs"), helper.0.id().to_string()).unwrap();
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            clock::sleep(Duration::from_millis(5));
        }
    }
}

// ---- accuracy of the idle share under a known load

/// Share of a CPU that the load uses. A soaker that shared the CPU equally with the load would
/// report the CPU as 50% idle instead of 30%.
const DUTY: f64 = 0.7;
/// Maximum error of the idle share.
const MOST_ERROR: f64 = 0.03;
/// Number of valid rounds from which the median error is computed.
const ROUNDS: usize = 5;
/// Maximum number of rounds, including invalid rounds. A round is invalid if other programs use
/// more than the share [`MOST_OTHERS`] of the CPU.
const MOST_ROUNDS: usize = 10;
const MOST_OTHERS: f64 = 0.15;
const ROUND: Duration = Duration::from_millis(800);

/// Kernel counters of one CPU at one time.
struct Account {
    at_ns: u64,
    idle_ns: u64,
    load_ns: u64,
}

impl Account {
    fn now(cpu: usize, load: &Helper) -> Account {
        let idle_ns = ProcStat::read().unwrap().idle_ns(cpu).unwrap();
        Account { at_ns: clock::now_ns(), idle_ns, load_ns: load.charged_ns() }
    }

    /// Returns two shares of the time that has passed since an earlier reading: the share during
    /// which the CPU was idle, and the share during which the CPU ran the load.
    fn shares_since(&self, earlier: &Account) -> (f64, f64) {
        let elapsed = (self.at_ns - earlier.at_ns) as f64;
        let share = |now: u64, then: u64| (now - then) as f64 / elapsed;
        (share(self.idle_ns, earlier.idle_ns), share(self.load_ns, earlier.load_ns))
    }
}

/// The idle share in a round with the soaker, from three sources.
struct Compared {
    soaker: f64,
    /// Share of the CPU that neither the load nor other programs used.
    by_load: f64,
    /// Idle share from `/proc/stat` in the previous round, which ran without the soaker. It is
    /// corrected for the change in CPU use by other programs. `None` if other programs used much
    /// CPU.
    by_stat: Option<f64>,
}

/// Runs one round without the soaker and one round with it. `None` if other programs used much CPU.
fn compare(soaker: &mut Soaker, cpu: usize, load: &Helper) -> Result<Option<Compared>, String> {
    let begun = Account::now(cpu, load);
    clock::sleep(ROUND);
    let between = Account::now(cpu, load);
    let reading = soak(soaker, ROUND.as_millis() as u64)?;
    let (idle_soaked, load_soaked) = Account::now(cpu, load).shares_since(&between);
    let (stated, load_alone) = between.shares_since(&begun);
    if let Some(suspect) = reading.suspect {
        return Err(suspect);
    }
    let soaked = reading.per_cpu.iter().find(|soaked| soaked.cpu == cpu).unwrap();
    let others_alone = 1.0 - stated - load_alone;
    let others_soaked = 1.0 - soaked.charged_share - idle_soaked - load_soaked;
    println!(
        "stated {stated:.3}, load {load_alone:.3} and {load_soaked:.3}, others {others_alone:.3} \
         and {others_soaked:.3}, soaker {:.3}",
        soaked.idle_share
    );
    let by_load = (1.0 - load_soaked.max(DUTY) - others_soaked).clamp(0.0, 1.0);
    let by_stat = (stated - (others_soaked - others_alone)).clamp(0.0, 1.0);
    let by_stat = (others_alone <= MOST_OTHERS).then_some(by_stat);
    let compared = Compared { soaker: soaked.idle_share, by_load, by_stat };
    Ok((others_soaked <= MOST_OTHERS).then_some(compared))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns two median errors of the idle share over several rounds: the error against the CPU time
/// of the load, and the error against `/proc/stat`. The second error is omitted if it is unknown in
/// a round. If too few rounds are valid, prints the reason and returns `None`.
fn errors(place: &str, cpu: usize, load: &Helper) -> Option<Vec<f64>> {
    let mut soaker = start_soaker()?;
    let measured = calibrate(&mut soaker).and_then(|()| {
        let mut rounds = Vec::new();
        for _ in 0..MOST_ROUNDS {
            rounds.extend(compare(&mut soaker, cpu, load)?);
            if rounds.len() == ROUNDS {
                return Ok(rounds);
            }
        }
        Err("other programs leave too few quiet moments to compare in".to_owned())
    });
    let rounds = measured.map_err(|declined| println!("skipped: {declined}")).ok()?;
    let idle = median(rounds.iter().map(|round| round.by_load));
    let by_load = median(rounds.iter().map(|round| round.soaker - round.by_load));
    let by_stat = rounds.iter().filter_map(|round| Some(round.soaker - round.by_stat?));
    let by_stat = (by_stat.clone().count() == ROUNDS).then(|| median(by_stat));
    let errors: Vec<f64> = [Some(by_load), by_stat].into_iter().flatten().collect();
    let points: Vec<String> = errors.iter().map(|e| format!("{:+.1}", e * 100.0)).collect();
    println!("| {place} | {:.1}% | {} |", idle * 100.0, points.join(" | "));
    Some(errors)
}

/// Checks that the soaker reports the same idle share as the kernel. Panics if two or more attempts
/// give a wrong share and no attempt gives the right share.
fn assert_that_the_idle_share_is_right(place: &str, cpu: usize, load: &Helper) {
    let mut wrong = Vec::new();
    for _ in 0..ATTEMPTS {
        match errors(place, cpu, load) {
            Some(errors) if errors.iter().all(|error| error.abs() <= MOST_ERROR) => return,
            Some(errors) => wrong.push(errors),
            None if wrong.is_empty() => return,
            None => {}
        }
    }
    assert!(wrong.len() < 2, "{place}: {wrong:?}");
}

#[test]
fn the_idle_share_beside_a_load_in_the_same_session_is_right() {
    let _turn = one_at_a_time();
    let cpu = allowed_cpus()[0];
    let load = Helper::with_duty(cpu, DUTY);
    assert_that_the_idle_share_is_right("the same session", cpu, &load);
}

#[test]
fn the_idle_share_beside_a_load_in_another_session_is_right() {
    let _turn = one_at_a_time();
    let cpu = allowed_cpus()[0];
    let Some(load) = Helper::in_another_session(cpu, DUTY) else {
        println!("skipped: no setsid(1)");
        return;
    };
    assert_that_the_idle_share_is_right("another session (autogroup)", cpu, &load);
}

#[test]
fn the_idle_share_beside_a_load_in_another_control_group_is_right() {
    let _turn = one_at_a_time();
    let Some(group) = TestGroup::create() else {
        println!("skipped: cannot make a control group that divides CPU time");
        return;
    };
    let cpu = allowed_cpus()[0];
    let load = Helper::with_duty(cpu, DUTY);
    group.take(&load);
    assert_that_the_idle_share_is_right("another control group", cpu, &load);
    drop(load);
}

// ---- second fault of older soakers: other load distorts the calibration

#[test]
fn calibrating_under_load_gives_the_same_reading_as_when_quiet() {
    let _turn = one_at_a_time();
    in_some_attempt(|| {
        let Some(mut soaker) = start_soaker() else { return Ok(()) };
        // The soaker is calibrated under load. If the load inflated the cost of a unit, the soaker
        // would later report an idle CPU as more than 100% idle.
        {
            let _load: Vec<Helper> = soaker.cpus().iter().map(|&cpu| Helper::busy(cpu)).collect();
            clock::sleep(Duration::from_millis(100));
            calibrate(&mut soaker)?;
        }
        let loaded = soak(&mut soaker, 400)?;
        calibrate(&mut soaker)?;
        let quiet = soak(&mut soaker, 400)?;
        println!("{loaded:?}\n{quiet:?}");
        if is_crowded(&loaded) || is_crowded(&quiet) {
            return Ok(());
        }
        for (loaded, quiet) in loaded.per_cpu.iter().zip(&quiet.per_cpu) {
            // In both intervals, the ratio of work done to CPU time charged must be the same,
            // because other load does not influence this ratio.
            let ratio = (loaded.idle_share / loaded.charged_share)
                / (quiet.idle_share / quiet.charged_share);
            if !(0.9..=1.1).contains(&ratio) {
                return Err(format!("CPU {}: {ratio:.3} of the quiet unit cost", loaded.cpu));
            }
        }
        Ok(())
    });
}

// ---- third fault of older soakers: the effect of the soaker itself

#[test]
fn the_spinners_are_in_no_account_of_this_process() {
    let _turn = one_at_a_time();
    let Some(mut soaker) = start_soaker() else { return };
    let meter = HostMeter::new();
    in_some_attempt(|| {
        calibrate(&mut soaker)?;
        let before = meter.sample(clock::now_ns());
        let reading = soak(&mut soaker, 500)?;
        let usage = meter.sample(clock::now_ns()).since(&before);
        if is_crowded(&reading) {
            return Ok(());
        }
        if usage.process_ns > usage.elapsed_ns / 20 {
            return Err(format!("charged to this process: {usage:?}"));
        }
        Ok(())
    });
}

#[test]
fn a_parked_soaker_leaves_the_machine_alone() {
    let _turn = one_at_a_time();
    let Some(soaker) = start_soaker() else { return };
    let spinners = children_of(std::process::id());
    assert!(spinners.len() >= soaker.cpus().len());
    let asleep = |&pid: &u32| state_and_parent(pid).is_some_and(|(state, _)| state == 'S');
    let mut waits = 0;
    while !spinners.iter().all(asleep) {
        waits += 1;
        assert!(waits < 2_000, "the spinners do not sleep");
        clock::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_second_soaker_on_the_machine_is_declined() {
    let _turn = one_at_a_time();
    let Some(_soaker) = start_soaker() else { return };
    let declined = Soaker::start().unwrap_err();
    assert!(declined.reason.contains("another soaker"), "{declined}");
    assert!(!declined.remedy.is_empty());
}

#[test]
fn a_reading_without_calibration_or_beginning_is_declined() {
    let _turn = one_at_a_time();
    let Some(mut soaker) = start_soaker() else { return };
    assert!(soaker.begin(0).unwrap_err().reason.contains("not calibrated"));
    assert!(soaker.end(1).unwrap_err().reason.contains("no interval"));
}

#[test]
fn a_dead_spinner_makes_the_soaker_decline() {
    let _turn = one_at_a_time();
    let Some(mut soaker) = start_soaker() else { return };
    in_some_attempt(|| calibrate(&mut soaker));
    soaker.begin(clock::now_ns()).unwrap();
    let victim = children_of(std::process::id())[0];
    assert!(Command::new("kill").args(["-9", &victim.to_string()]).status().unwrap().success());
    while state_and_parent(victim).is_some_and(|(state, _)| state != 'Z') {
        clock::sleep(Duration::from_millis(1));
    }
    let declined = soaker.end(clock::now_ns()).unwrap_err();
    assert!(declined.reason.contains("was killed"), "{declined}");
}

#[test]
fn spinners_and_their_group_are_gone_after_drop() {
    let _turn = one_at_a_time();
    let Some(soaker) = start_soaker() else { return };
    let group = group_of(std::process::id());
    let spinners = children_of(std::process::id());
    assert!(!spinners.is_empty());
    drop(soaker);
    assert!(!spinners.into_iter().any(is_running));
    assert!(!group.is_some_and(|path| path.exists()));
}

#[test]
fn spinners_die_with_a_killed_owner_and_the_next_soaker_tidies_up() {
    let _turn = one_at_a_time();
    let owner = Command::new(env::current_exe().unwrap());
    let mut owner = Helper::start(owner, "owner").unwrap();
    let lines = BufReader::new(owner.0.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).find_map(|line| {
        let skipped = line.contains("skipped").then(String::new);
        skipped.or(line.strip_prefix("spinners ").map(str::to_owned))
    });
    let told = told.unwrap();
    if told.is_empty() {
        println!("skipped: the host forbids a soaker");
        return;
    }
    let spinners: Vec<u32> = told.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(spinners.iter().all(|&pid| is_running(pid)));
    let group = group_of(owner.0.id());
    drop(owner);
    let mut waits = 0;
    while spinners.iter().any(|&pid| is_running(pid)) {
        waits += 1;
        assert!(waits < 2_000, "the spinners outlived their owner");
        clock::sleep(Duration::from_millis(5));
    }
    if let (Some(group), Some(_soaker)) = (group, start_soaker()) {
        assert!(!group.exists(), "{} was left behind", group.display());
    }
}

fn is_running(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// Returns the control group of the soaker that a process started, if there is one.
fn group_of(pid: u32) -> Option<PathBuf> {
    let name = format!("halfpower-soaker-{pid}");
    CPU_ROOTS.map(|root| Path::new(root).join(&name)).into_iter().find(|path| path.exists())
}
