//! Measures the CPU time of processes that a command starts but does not wait for.
//!
//! [`Descendants::adopt`] makes this process the subreaper of its descendants
//! (PR_SET_CHILD_SUBREAPER, Linux 3.4): orphans become children of this process instead of init.
//! This process can therefore find the orphans and read their CPU time. The orphans keep running
//! when this process ends.

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, io};

use crate::rusage::ProcessTime;
use crate::sys;

/// A process that a command left running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Process id.
    pub pid: i32,
    /// Process name, from /proc/PID/comm.
    pub name: String,
    /// CPU time of the process and of the children that it waited for (resolution: 10 ms).
    pub time: ProcessTime,
}

/// The processes that outlived a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftBehind {
    /// CPU time of the ended processes that the command did not wait for.
    pub ended: ProcessTime,
    /// The processes that are still running.
    pub running: Vec<Running>,
}

/// Finds descendants of this process that are started after [`Descendants::adopt`].
#[derive(Debug)]
pub struct Descendants {
    /// Process ids of the descendants that existed before `adopt`.
    known: BTreeSet<i32>,
}

impl Descendants {
    /// Makes this process the parent of orphaned descendants, and records the descendants that
    /// already exist.
    ///
    /// # Errors
    /// prctl(2) fails, or /proc cannot be read.
    pub fn adopt() -> io::Result<Descendants> {
        sys::adopt_orphans()?;
        Ok(Descendants { known: descendants()?.into_keys().collect() })
    }

    /// Reaps descendants that have ended, and lists those that are still running. No other thread
    /// may wait for child processes at the same time, because this function could reap those
    /// processes first.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn left_behind(&self) -> io::Result<LeftBehind> {
        let mut left = LeftBehind::default();
        for (pid, process) in descendants()? {
            if self.known.contains(&pid) {
                continue;
            }
            let Stat { name, time, is_zombie, .. } = process;
            match sys::reap_if_ended(pid) {
                Some((user_ns, system_ns)) => left.ended.add(user_ns, system_ns),
                // This zombie is the child of another process, which may still reap it.
                None if is_zombie => left.ended.add(time.user_ns, time.system_ns),
                None => left.running.push(Running { pid, name, time }),
            }
        }
        Ok(left)
    }
}

impl LeftBehind {
    /// Returns the CPU time of all processes that outlived the command.
    pub fn time(&self) -> ProcessTime {
        let mut all = self.ended;
        self.running.iter().for_each(|one| all.add(one.time.user_ns, one.time.system_ns));
        all
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    parent: i32,
    is_zombie: bool,
    time: ProcessTime,
}

/// Parses the text of /proc/PID/stat (proc_pid_stat(5)).
fn parse(text: &str, ticks_per_second: u64) -> Option<Stat> {
    // The process name may contain parentheses and spaces.
    let (before, after) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let tick_ns = 1_000_000_000 / ticks_per_second.max(1);
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let mut time = ProcessTime::default();
    // utime, stime, cutime and cstime are fields 14 to 17. `fields` starts with field 3.
    let (user, system) = (ticks(11)?.checked_add(ticks(13)?)?, ticks(12)?.checked_add(ticks(14)?)?);
    time.add(user.checked_mul(tick_ns)?, system.checked_mul(tick_ns)?);
    let is_zombie = fields.first()? == &"Z";
    Some(Stat { name, parent: fields.get(1)?.parse().ok()?, is_zombie, time })
}

/// Returns all descendants of this process. The keys are process ids.
fn descendants() -> io::Result<BTreeMap<i32, Stat>> {
    let ticks = sys::ticks_per_second();
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // The process may have ended since the directory was listed.
        let text = fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some(stat) = parse(&String::from_utf8_lossy(&text), ticks) {
            all.insert(pid, stat);
        }
    }
    let mut ours = BTreeSet::from([std::process::id() as i32]);
    loop {
        let before = ours.len();
        let children = all.iter().filter(|(_, stat)| ours.contains(&stat.parent));
        ours.extend(children.map(|(pid, _)| *pid).collect::<Vec<i32>>());
        if ours.len() == before {
            break;
        }
    }
    ours.remove(&(std::process::id() as i32));
    all.retain(|pid, _| ours.contains(pid));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_line_of_a_process_with_any_name_is_read() {
        let line = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 50 6 70 8 20 0 1 0 5 6 7";
        let stat = parse(line, 100).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent), ("a) b (c)", 7));
        assert!(!stat.is_zombie);
        assert!(parse(&line.replace(") S ", ") Z "), 100).unwrap().is_zombie);
        assert_eq!((stat.time.user_ns, stat.time.system_ns), (1_200_000_000, 140_000_000));
        for text in ["", "42", "42 (a)", "42 (a) S 7 1 2", "42 (a) S x 1 2 3 4 5 6 7 8 9 1 2 3 4"] {
            assert_eq!(parse(text, 100), None, "{text}");
        }
        let huge = format!("1 (a) S 7 {} {u} {u} {u} {u}", "0 ".repeat(9), u = u64::MAX);
        assert_eq!(parse(&huge, 100), None);
    }

    #[test]
    fn children_of_this_process_are_among_its_descendants() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let pid = child.id() as i32;
        let has_grandchild = |all: &BTreeMap<i32, Stat>| all.values().any(|one| one.parent == pid);
        while !has_grandchild(&descendants().unwrap()) {}
        let all = descendants().unwrap();
        assert_eq!((all[&pid].name.as_str(), all[&pid].parent), ("sh", std::process::id() as i32));
        for (grandchild, _) in all.iter().filter(|(_, one)| one.parent == pid) {
            Command::new("kill").arg(grandchild.to_string()).status().unwrap();
        }
        child.wait().unwrap();
    }
}
