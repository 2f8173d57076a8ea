//! Tests the flags that change settings of the device below a target. The settings must be
//! restored, however the run ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::fixture::{MIB, Place, Running, list, or_skip, pause, wait_until};
use crate::json::Schema;
use crate::volume::{LoopDevice, Volume};

/// Settings that the flags can change. When a loop device is detached, the kernel keeps its
/// settings for the next device with the same number.
const NAMES: [&str; 5] = ["scheduler", "read_ahead_kb", "write_cache", "nr_requests", "nomerges"];

/// The settings of a loop device in sysfs. Dropping this value restores the settings. This value
/// must be dropped before the device.
struct Queue {
    folder: PathBuf,
    fresh: Vec<String>,
    _lock: MutexGuard<'static, ()>,
}

/// Held while a test changes settings. Without this lock, another test could attach a loop device
/// with the same number and take the changed settings for the original ones.
static LOCK: Mutex<()> = Mutex::new(());

impl Queue {
    fn of(device: &LoopDevice) -> Queue {
        let folder = PathBuf::from(device.path().replacen("/dev/", "/sys/block/", 1)).join("queue");
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue = Queue { folder, fresh: Vec::new(), _lock: lock };
        queue.fresh = queue.all();
        queue
    }

    fn get(&self, name: &str) -> String {
        let text = fs::read_to_string(self.folder.join(name)).unwrap();
        text.split(['[', ']']).nth(1).unwrap_or(&text).trim().to_owned()
    }

    fn set(&self, name: &str, value: &str) {
        // The kernel refuses a change while another change of the same queue is in progress.
        wait_until(&format!("{name} can be set"), || {
            let written = fs::write(self.folder.join(name), value);
            let is_busy = |error: &io::Error| error.raw_os_error() == Some(libc::EBUSY);
            if written.as_ref().is_err_and(is_busy) {
                return false;
            }
            written.unwrap();
            true
        });
    }

    fn all(&self) -> Vec<String> {
        NAMES.iter().map(|name| self.get(name)).collect()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        for (name, value) in NAMES.iter().zip(&self.fresh) {
            let _ = fs::write(self.folder.join(name), value);
        }
    }
}

/// Attaches a loop device and changes its settings from the defaults. Returns an error if the
/// kernel does not offer the schedulers none and mq-deadline.
fn tuned_device() -> Result<(LoopDevice, Queue), String> {
    let device = LoopDevice::new(4 * MIB)?;
    let queue = Queue::of(&device);
    let offered = fs::read_to_string(queue.folder.join("scheduler")).unwrap();
    if !["mq-deadline", "none"].iter().all(|name| offered.contains(name)) {
        return Err(format!("needs the schedulers none and mq-deadline, has {offered}"));
    }
    queue.set("scheduler", "none");
    queue.set("write_cache", "write back");
    queue.set("nr_requests", "64");
    queue.set("read_ahead_kb", "256");
    queue.set("nomerges", "0");
    Ok((device, queue))
}

const FLAGS: &str = "--scheduler mq-deadline --read-ahead 512k --nr-requests 32 --nomerges 2 \
                     --kernel-write-cache through";

/// Starts a run of several trials of 30 s. Returns when the settings are changed and the first
/// trial runs.
fn at_work(place: &Place, device: &LoopDevice, flags: &str) -> Running {
    let line = format!("run {} --time-based --runtime 30 --no-store {flags}", device.path());
    let mut running = place.start(&line);
    running.until_it_says("3 trials of 30 s");
    running
}

#[test]
fn settings_are_in_force_during_the_run_and_put_back_after_it() {
    let (device, queue) = or_skip!(tuned_device());
    let (place, before) = (Place::new(), queue.all());
    let line = format!("run {} --runtime 1 --trials 1 --json {FLAGS}", device.path());
    let mut running = place.start(&line);
    running.until("all settings are in force", || {
        queue.all() == ["mq-deadline", "512", "write through", "32", "2"]
    });
    let ended = running.ended().with_code(0);
    assert!(ended.stderr.contains(", scheduler mq-deadline (was none)"), "{ended}");
    let document = ended.json();
    Schema::of("run").fits(&document);
    let made = list(&document["host_settings"]);
    let names: Vec<&Value> = made.iter().map(|made| &made["name"]).collect();
    assert_eq!(names, ["scheduler", "write_cache", "nr_requests", "nomerges", "read_ahead_kb"]);
    assert_eq!((&made[4]["old"], &made[4]["new"]), (&json!("256"), &json!("512")));
    assert!(Path::new(made[0]["path"].as_str().unwrap()).ends_with("queue/scheduler"));
    assert_eq!(document["target"]["device"]["scheduler"], "mq-deadline");
    assert_eq!(queue.all(), before);
    place.is_tidy();
}

#[test]
fn what_the_kernel_moves_along_is_put_back_too() {
    let (device, queue) = or_skip!(tuned_device());
    queue.set("scheduler", "mq-deadline");
    queue.set("iosched/read_expire", "400");
    queue.set("nr_requests", "77");
    let line = format!("run {} --size 1m --trials 1 --scheduler none --no-store", device.path());
    Place::new().does(&line);
    let now = ["scheduler", "iosched/read_expire", "nr_requests"].map(|name| queue.get(name));
    assert_eq!(now, ["mq-deadline", "400", "77"]);
    let flags = "--size 1m --trials 1 --no-store --kernel-write-cache through";
    Place::new().does(&format!("run {} {flags}", device.path()));
    assert_eq!(["write_cache", "read_ahead_kb"].map(|n| queue.get(n)), ["write back", "256"]);
}

#[test]
fn a_setting_that_was_as_wanted_stays_so_when_another_would_move_it() {
    let (device, queue) = or_skip!(tuned_device());
    let (place, before) = (Place::new(), queue.all());
    let running = at_work(&place, &device, "--scheduler mq-deadline --nr-requests 64");
    assert_eq!(queue.get("nr_requests"), "64");
    running.signal("INT");
    let ended = running.ended().with_code(130);
    assert!(!ended.stderr.contains("nr_requests"), "{ended}");
    assert_eq!(queue.all(), before);
}

#[test]
fn a_plan_names_the_settings_and_changes_none() {
    let (device, queue) = or_skip!(tuned_device());
    let (place, before) = (Place::new(), queue.all());
    let ended = place.does(&format!("run {} {FLAGS} --plan", device.path()));
    let name = device.path().trim_start_matches("/dev/");
    let line =
        format!("set scheduler of {name} from none to mq-deadline, and back to none after the run");
    assert!(ended.stdout.contains(&line), "{ended}");
    assert_eq!(queue.all(), before);
    place.is_tidy();
}

#[test]
fn settings_of_the_device_beneath_a_file_are_changed_for_a_sweep() {
    let volume = or_skip!(Volume::new(64 * MIB));
    let queue = Queue::of(&volume.device);
    let (place, before) = (Place::new(), queue.all());
    fs::write(volume.folder().join("data"), crate::fixture::noise(MIB)).unwrap();
    for target in [volume.folder().join("data"), volume.folder().to_path_buf()] {
        let axes = "--bs 4k,64k --size 1m --trials 1 --no-store --read-ahead 64k";
        let document = place.document(&format!("sweep {} {axes}", target.display()));
        assert_eq!(document["host_settings"][0]["new"], "64");
        Schema::of("sweep").fits(&document);
        assert_eq!(queue.all(), before);
    }
}

#[test]
fn settings_are_put_back_after_signals_and_errors() {
    let (device, queue) = or_skip!(tuned_device());
    let (place, before) = (Place::new(), queue.all());
    for signal in ["INT", "TERM", "HUP"] {
        let running = at_work(&place, &device, FLAGS);
        assert_ne!(queue.all(), before);
        running.signal(signal);
        running.ended().with_code(130);
        assert_eq!(queue.all(), before, "{signal}");
    }
    device.breaks();
    let line = format!("run {} --size 4m --bs 64k --no-store {FLAGS}", device.path());
    place.halfpower(&line).with_code(1).says("reading at offset", "; ");
    assert_eq!(queue.all(), before);
    place.is_tidy();
}

#[test]
fn a_killed_run_is_named_by_the_next_and_undone_by_restore() {
    let (device, queue) = or_skip!(tuned_device());
    let (place, before) = (Place::new(), queue.all());
    let name = device.path().trim_start_matches("/dev/");
    let running = at_work(&place, &device, FLAGS);
    assert!(place.does("restore").stdout.contains("uses the settings of"));
    let held = place.halfpower(&format!("run {} --size 1m --read-ahead 64k", device.path()));
    let pid = running.child.id();
    held.with_code(1).says(&format!("settings of {name} are in use by process {pid}"), "wait");
    running.signal("KILL");
    running.ended();
    assert_ne!(queue.all(), before);

    let run = place.does("run --ioengine null --runtime 0.02 --trials 1 --no-store");
    assert_eq!(run.stderr.matches("run halfpower restore").count(), 1, "{run}");
    assert!(place.does("clean").stdout.contains("run halfpower restore"));
    let again = place.halfpower(&format!("run {} --size 1m --read-ahead 64k", device.path()));
    again.with_code(1).says("did not restore settings", "run halfpower restore first");

    let plan = place.does("restore --plan");
    let line = format!("restore scheduler of {name} to none");
    assert!(plan.stdout.contains(&line), "{plan}");
    assert_ne!(queue.all(), before);

    let ended = place.does("restore");
    assert!(ended.stdout.contains(&line.replacen("restore", "restored", 1)), "{ended}");
    assert_eq!(queue.all(), before);
    place.is_tidy();
    assert!(place.does("restore").stdout.contains("nothing to restore"));
}

#[test]
fn restore_leaves_what_somebody_else_has_set_since() {
    let (device, queue) = or_skip!(tuned_device());
    let place = Place::new();
    let running = at_work(&place, &device, "--scheduler mq-deadline --read-ahead 512k");
    running.signal("KILL");
    running.ended();
    queue.set("read_ahead_kb", "1024");
    let ended = place.does("restore");
    assert!(ended.stdout.contains("left read_ahead_kb of"), "{ended}");
    assert_eq!(
        (queue.get("read_ahead_kb"), queue.get("scheduler")),
        ("1024".into(), "none".into())
    );
    place.is_tidy();

    // If another program changes a setting during the run, the run must leave this setting as it is
    // and report this.
    let running = at_work(&place, &device, "--read-ahead 512k");
    queue.set("read_ahead_kb", "2048");
    running.signal("INT");
    let ended = running.ended().with_code(130);
    assert!(ended.stderr.contains("left read_ahead_kb of"), "{ended}");
    assert_eq!(queue.get("read_ahead_kb"), "2048");
    place.is_tidy();
}

#[test]
fn an_entry_of_an_earlier_boot_is_forgotten_and_one_of_a_detached_device_is_not() {
    let (device, queue) = or_skip!(tuned_device());
    let place = Place::new();
    let entry = || {
        let name = place.journal().into_iter().find(|name| name.starts_with("settings-")).unwrap();
        place.state().join("halfpower/journal").join(name)
    };
    let killed = |device: &LoopDevice| {
        let running = at_work(&place, device, "--read-ahead 512k");
        running.signal("KILL");
        running.ended();
    };
    killed(&device);
    let mut document: Value = serde_json::from_slice(&fs::read(entry()).unwrap()).unwrap();
    document["boot_id"] = json!("an earlier boot");
    fs::write(entry(), document.to_string()).unwrap();
    let ended = place.does("restore");
    assert!(ended.stdout.contains("discarded the recorded settings of"), "{ended}");
    assert_eq!(queue.get("read_ahead_kb"), "512", "an entry of another boot was restored");
    place.is_tidy();

    // A detached loop device keeps the settings of the killed run, and `restore` must still restore
    // them.
    queue.set("nomerges", "1");
    let running = at_work(&place, &device, "--nomerges 2");
    running.signal("KILL");
    running.ended();
    drop(device);
    assert_eq!(queue.get("nomerges"), "2");
    place.does("restore");
    assert_eq!(queue.get("nomerges"), "1");
    place.is_tidy();
}

#[test]
fn an_entry_that_names_other_files_is_never_acted_on() {
    let (device, queue) = or_skip!(tuned_device());
    let place = Place::new();
    let running = at_work(&place, &device, "--read-ahead 512k");
    running.signal("KILL");
    running.ended();
    let precious = place.path("precious");
    fs::write(&precious, "512").unwrap();
    let name = place.journal().into_iter().find(|name| name.starts_with("settings-")).unwrap();
    let entry = place.state().join("halfpower/journal").join(name);
    let mut document: Value = serde_json::from_slice(&fs::read(&entry).unwrap()).unwrap();
    document["changes"][0]["path"] = json!(precious);
    fs::write(&entry, document.to_string()).unwrap();
    let ended = place.does("restore");
    assert!(ended.stdout.contains("discarded"), "{ended}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "512");
    queue.set("read_ahead_kb", "256");
}

#[test]
fn a_run_killed_at_any_moment_leaves_what_restore_puts_back() {
    let (device, queue) = or_skip!(tuned_device());
    let (place, before) = (Place::new(), queue.all());
    let mut changed = 0;
    for attempt in 0..30_u64 {
        let line = format!("run {} --runtime 0.02 --trials 1 --no-store {FLAGS}", device.path());
        let running = place.start(&line);
        // Kills the program at a different moment in each attempt.
        pause(attempt * 37 % 90);
        running.signal("KILL");
        running.ended();
        changed += u32::from(queue.all() != before);
        place.does("restore");
        assert_eq!(queue.all(), before, "attempt {attempt}");
    }
    println!("{changed} of 30 kills happened while settings were changed");
    let names = place.journal();
    assert!(!names.iter().any(|name| name.ends_with(".json")), "{names:?}");
}

#[test]
fn settings_that_cannot_be_changed_are_errors_that_change_nothing() {
    let (device, queue) = or_skip!(tuned_device());
    let (place, before) = (Place::new(), queue.all());
    let path = device.path();
    for (flags, code, cause, remedy) in [
        ("--scheduler bogus", 2, "--scheduler bogus", "use one of these"),
        ("--read-ahead 1000", 2, "--read-ahead", "use 128k"),
        ("--read-ahead 63k", 2, "--read-ahead", "use 128k"),
        ("--scheduler mq-deadline --nr-requests 1000000", 1, "nr_requests of", "drop the flag"),
    ] {
        let ended = place.halfpower(&format!("run {path} --size 1m --no-store {flags}"));
        ended.with_code(code).says(cause, remedy);
        assert_eq!(queue.all(), before, "{flags}");
        place.is_tidy();
    }
    let other = or_skip!(LoopDevice::new(MIB));
    let two = format!("run {path} {} --size 1m --no-store --nomerges 1", other.path());
    place.cannot(&two).with_code(2).says("the targets lie on", "one by one");
    place.cannot("run --ioengine null --nomerges 1").with_code(2).says("uses no device", "drop");
    assert_eq!(queue.all(), before);
}

#[test]
fn without_root_no_setting_is_changed() {
    let place = or_skip!(Place::of_nobody());
    let line = "run . --size 1m --no-store --nomerges 1";
    // If the working directory is not on a single block device, there are no settings to change.
    let ended = place.halfpower(line);
    assert!(matches!(ended.status.code(), Some(1 | 2)), "{ended}");
    assert!(ended.stderr.contains("needs root") || ended.stderr.contains("no single block device"));
    place.is_tidy();
}

#[test]
fn a_second_run_that_changes_nothing_is_not_hindered() {
    let (device, _) = or_skip!(tuned_device());
    let place = Place::new();
    let running = at_work(&place, &device, "--read-ahead 512k");
    place.does(&format!("run {} --size 1m --trials 1 --no-store", device.path()));
    running.signal("INT");
    running.ended().with_code(130);
    wait_until("the journal is empty", || place.journal().is_empty());
}
