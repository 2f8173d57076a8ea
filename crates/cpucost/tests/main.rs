//! The soaker on a real kernel: the three faults of older soakers, and what it leaves behind.
//!
//! Load is made by further processes of this very binary, told by an environment variable what to
//! be. Other work may run on the machine, so expectations are ratios with wide margins, and each
//! may fail twice before it counts. Where the host forbids a soaker, the tests say why they skip.

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
/// Where the control groups that divide CPU time are usually mounted.
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

// ---- vocabulary

/// Runs only as a helper process, and then until it is killed.
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
        // What it was kept from it makes up for, so that its share is what it was told.
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

    /// A loop that takes this share of a CPU.
    fn with_duty(cpu: usize, duty: f64) -> Helper {
        let role = format!("busy {cpu} {duty}");
        Helper::start(Command::new(env::current_exe().unwrap()), &role).unwrap()
    }

    /// The same in a session, and so an autogroup, of its own; `None` without setsid(1).
    fn in_another_session(cpu: usize, duty: f64) -> Option<Helper> {
        let mut command = Command::new("setsid");
        command.arg(env::current_exe().unwrap());
        Helper::start(command, &format!("busy {cpu} {duty}"))
    }

    /// CPU time that the system charged to its threads, at most a tick old.
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

/// One soaker at a time, here as on the machine.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A soaker, or `None` with the reason printed. Waits for soakers of other programs to end.
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
    println!("skipped: another program holds the soaker");
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

/// What `/proc/stat` says of a CPU over a while without soaker.
fn stated_idle_share(cpu: usize, milliseconds: u64) -> f64 {
    let idle_ns = || ProcStat::read().unwrap().idle_ns(cpu).unwrap();
    let (begun_ns, before_ns) = (clock::now_ns(), idle_ns());
    clock::sleep(Duration::from_millis(milliseconds));
    (idle_ns() - before_ns) as f64 / (clock::now_ns() - begun_ns) as f64
}

/// Fails only if every attempt fails. A soaker that declines because the machine is too busy for it
/// did what it should: that is no failed attempt.
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

/// State letter and parent of a process, unless it is gone.
fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// The busy CPU must read as busy, the other as idle as `/proc/stat` has it around the reading.
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

/// Whether other programs left the spinners too little to judge them by.
fn is_crowded(reading: &SoakerReading) -> bool {
    let crowded = reading.per_cpu.iter().any(|soaked| soaked.charged_share < 0.05);
    if crowded {
        println!("skipped: no idle time to measure in, {reading:?}");
    }
    crowded
}

/// Whether there is a second CPU to compare with.
fn has_two_cpus() -> bool {
    let enough = allowed_cpus().len() >= 2;
    if !enough {
        println!("skipped: needs two CPUs");
    }
    enough
}

// ---- the first fault: idle only within its own task group

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

/// A control group with a CPU share of its own.
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

// ---- how right the idle share is beside a load that is known

/// Share of a CPU that the known load takes. A soaker that got a fair share beside it would call
/// the CPU half idle.
const DUTY: f64 = 0.7;
/// The idle share is right to within this.
const MOST_ERROR: f64 = 0.03;
const ROUNDS: usize = 5;
/// So many rounds are tried; those in which other programs took much count for nothing.
const MOST_ROUNDS: usize = 10;
const MOST_OTHERS: f64 = 0.15;
const ROUND: Duration = Duration::from_millis(800);

/// One CPU at one moment, as the system accounts for it.
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

    /// Shares of idle time and of the load since an earlier moment.
    fn shares_since(&self, earlier: &Account) -> (f64, f64) {
        let elapsed = (self.at_ns - earlier.at_ns) as f64;
        let share = |now: u64, then: u64| (now - then) as f64 / elapsed;
        (share(self.idle_ns, earlier.idle_ns), share(self.load_ns, earlier.load_ns))
    }
}

/// The idle share of one soaked round by three accounts.
struct Compared {
    soaker: f64,
    /// What the load was to take and others took leaves this.
    by_load: f64,
    /// What `/proc/stat` had in the round before without a soaker, less what others took more of in
    /// the soaked one. `None` where others took much then.
    by_stat: Option<f64>,
}

/// A round without soaker and one with; `None` where others took much.
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

/// The errors of the idle share, by the load's own time and by `/proc/stat`: medians over some
/// rounds. `None`, with the reason printed, where that cannot be told.
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

/// What the soaker says must be what the system says. Fails if it is wrong twice and never right.
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

// ---- the second fault: calibration stretched by load

#[test]
fn calibrating_under_load_gives_the_same_reading_as_when_quiet() {
    let _turn = one_at_a_time();
    in_some_attempt(|| {
        let Some(mut soaker) = start_soaker() else { return Ok(()) };
        // With the load gone, a unit cost stretched by it would read as more than wholly idle.
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
            // Work per CPU time charged: free of what else ran in the two intervals.
            let ratio = (loaded.idle_share / loaded.charged_share)
                / (quiet.idle_share / quiet.charged_share);
            if !(0.9..=1.1).contains(&ratio) {
                return Err(format!("CPU {}: {ratio:.3} of the quiet unit cost", loaded.cpu));
            }
        }
        Ok(())
    });
}

// ---- the third fault: what the soaker itself costs and leaves behind

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

/// The soaker's control group of a process, if it has one.
fn group_of(pid: u32) -> Option<PathBuf> {
    let name = format!("halfpower-soaker-{pid}");
    CPU_ROOTS.map(|root| Path::new(root).join(&name)).into_iter().find(|path| path.exists())
}
