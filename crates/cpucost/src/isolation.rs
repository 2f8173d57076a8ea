//! Gives the spinner processes of the soaker the lowest CPU priority on the machine.
//!
//! SCHED_IDLE ranks a task last only within its task group, which is a control group or a session
//! (autogroup). While other groups are busy, spinners in a separate group would still get the fair
//! share of their group, and the soaker would report a busy CPU as half idle. The spinners are
//! therefore moved to a group that ranks below all other groups. Two methods are tried, in this
//! order:
//! 1. a control group directly below the root of the `cpu` hierarchy, with `cpu.idle` = 1
//!    (Linux 5.15);
//! 2. if this process is in the root task group: the autogroup of the spinners' session, at nice 19
//!    (sched(7)). The weight of this group is 15, and that of a busy session is 1024. If autogroup
//!    is disabled, the spinners are not moved.
//!
//! If neither method works, the soaker refuses to start. A control group deeper in the hierarchy
//! would be idle only within its parent group. A killed soaker leaves its control group behind, and
//! the next soaker removes this group.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use thiserror::Error;

/// The reason why the soaker cannot run or cannot give a reading, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no soaker: {reason}; {remedy}")]
pub struct Declined {
    /// Why the soaker or its reading is not available.
    pub reason: String,
    /// How to solve the problem.
    pub remedy: String,
}

impl Declined {
    pub(crate) fn new(reason: impl fmt::Display, remedy: &str) -> Declined {
        Declined { reason: reason.to_string(), remedy: remedy.to_owned() }
    }
}

const GROUP_PREFIX: &str = "halfpower-soaker-";
const AUTOGROUP_SWITCH: &str = "/proc/sys/kernel/sched_autogroup_enabled";
/// Target of `/proc/self/ns/cgroup` in the initial control group namespace. In the namespace of a
/// container, the path of a control group does not start at the root of the machine.
const FIRST_CGROUP_NAMESPACE: &str = "cgroup:[4026531835]";

/// How the spinners get the lowest priority on the machine.
#[derive(Debug)]
pub(crate) enum Isolation {
    /// The spinners are in a control group with `cpu.idle` = 1, which is removed on drop.
    IdleGroup(IdleGroup),
    /// The spinners are in the autogroup of their session, at nice 19.
    Autogroup,
    /// The spinners are in the root task group, because autogroup is off.
    RootGroup,
}

impl Isolation {
    /// Prepares the first method of isolation that works on this host.
    pub(crate) fn prepare() -> Result<Isolation, Declined> {
        let hierarchy = Hierarchy::of_host();
        let obstacle = match &hierarchy {
            Some(hierarchy) => match IdleGroup::create(hierarchy) {
                Ok(group) => return Ok(Isolation::IdleGroup(group)),
                Err(error) => error.to_string(),
            },
            None => "no cpu control group hierarchy is mounted".to_owned(),
        };
        if !in_root_task_group(hierarchy.as_ref()) {
            return Err(Declined::new(
                format!(
                    "idle priority would apply only within this control group, not to the whole \
                     machine ({obstacle})"
                ),
                "run as root outside containers, on Linux 5.15 or later",
            ));
        }
        match fs::read_to_string(AUTOGROUP_SWITCH) {
            Ok(switch) if switch.trim() == "1" => Ok(Isolation::Autogroup),
            _ => Ok(Isolation::RootGroup),
        }
    }

    /// Gives the spinners the lowest priority. `pids[0]` is their session leader.
    pub(crate) fn admit(&self, pids: &[i32]) -> Result<(), Declined> {
        match self {
            Isolation::IdleGroup(group) => pids.iter().try_for_each(|pid| {
                fs::write(group.path.join("cgroup.procs"), pid.to_string()).map_err(|error| {
                    Declined::new(
                        format!(
                            "cannot move a spinner process to {}: {error}",
                            group.path.display()
                        ),
                        "run as root",
                    )
                })
            }),
            Isolation::Autogroup => {
                let file = format!("/proc/{}/autogroup", pids[0]);
                fs::write(&file, "19").map_err(|error| {
                    let remedy = match error.kind() {
                        io::ErrorKind::WouldBlock => {
                            "try again in a second, because the kernel limits the rate of these \
                             changes"
                        }
                        _ => "run as root, or set kernel.sched_autogroup_enabled to 0",
                    };
                    Declined::new(
                        format!(
                            "cannot lower the priority of the spinner processes ({file}): {error}"
                        ),
                        remedy,
                    )
                })
            }
            Isolation::RootGroup => Ok(()),
        }
    }
}

/// A control group in which every task ranks below the rest of the machine.
#[derive(Debug)]
pub(crate) struct IdleGroup {
    path: PathBuf,
}

impl IdleGroup {
    fn create(hierarchy: &Hierarchy) -> io::Result<IdleGroup> {
        if !hierarchy.shows_true_root() {
            return Err(io::Error::other("the root control group is not visible here"));
        }
        if !hierarchy.gives_children_cpu() {
            return Err(io::Error::other("the cpu controller is not enabled for control groups"));
        }
        remove_leftovers(&hierarchy.root);
        let path = hierarchy.root.join(format!("{GROUP_PREFIX}{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = IdleGroup { path };
        fs::write(group.path.join("cpu.idle"), "1")?;
        Ok(group)
    }
}

impl Drop for IdleGroup {
    fn drop(&mut self) {
        // The kernel may take a moment to remove reaped processes from the group. If the group
        // cannot be removed here, the next soaker removes it.
        for _ in 0..1_000 {
            if fs::remove_dir(&self.path).is_ok() {
                break;
            }
            std::thread::yield_now();
        }
    }
}

/// Removes the control groups of soakers that have ended.
fn remove_leftovers(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(GROUP_PREFIX)) else {
            continue;
        };
        let lives = Path::new("/proc").join(pid).exists();
        if !lives || pid == std::process::id().to_string() {
            // An error is ignored, because a leftover group is harmless.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The control group hierarchy with the cpu controller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Hierarchy {
    fn of_host() -> Option<Hierarchy> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        Hierarchy::parse(&mounts, |root| {
            let controllers = fs::read_to_string(root.join("cgroup.controllers"));
            controllers.is_ok_and(|text| has_cpu(&text))
        })
    }

    /// Finds the hierarchy in the text of `/proc/self/mounts`. If version 1 has the cpu controller,
    /// version 2 does not have it, so a version 1 mount takes precedence.
    fn parse(mounts: &str, v2_has_cpu: impl Fn(&Path) -> bool) -> Option<Hierarchy> {
        let mut found = None;
        for line in mounts.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(root), Some(kind), Some(options)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let root = PathBuf::from(root);
            if kind == "cgroup" && options.split(',').any(|option| option == "cpu") {
                return Some(Hierarchy { root, version: Version::One });
            }
            if kind == "cgroup2" && found.is_none() && v2_has_cpu(&root) {
                found = Some(Hierarchy { root, version: Version::Two });
            }
        }
        found
    }

    /// Checks whether the mount shows the root group of the machine and not that of a container. In
    /// version 1, only the root group of the machine has the file `release_agent`. In version 2,
    /// all groups except this root group have the file `cgroup.type`.
    fn shows_true_root(&self) -> bool {
        match self.version {
            Version::One => self.root.join("release_agent").exists(),
            Version::Two => !self.root.join("cgroup.type").exists(),
        }
    }

    /// Checks whether control groups below the root get separate shares of CPU time.
    fn gives_children_cpu(&self) -> bool {
        match self.version {
            Version::One => true,
            Version::Two => fs::read_to_string(self.root.join("cgroup.subtree_control"))
                .is_ok_and(|text| has_cpu(&text)),
        }
    }
}

fn has_cpu(controllers: &str) -> bool {
    controllers.split_ascii_whitespace().any(|controller| controller == "cpu")
}

/// Checks whether this process is in the root task group of the machine or in an autogroup.
fn in_root_task_group(hierarchy: Option<&Hierarchy>) -> bool {
    if hierarchy.is_some_and(|found| found.shows_true_root() && !found.gives_children_cpu()) {
        return true;
    }
    match fs::read_to_string("/proc/self/cgroup") {
        Ok(memberships) => {
            let namespace = fs::read_link("/proc/self/ns/cgroup");
            namespace.is_ok_and(|name| name.as_os_str() == FIRST_CGROUP_NAMESPACE)
                && cpu_membership(&memberships) == Some("/")
        }
        // If the file does not exist although /proc is mounted, the kernel has no control groups.
        Err(error) => error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self").exists(),
    }
}

/// Returns the cpu control group of this process from the text of `/proc/self/cgroup`. A version 1
/// hierarchy takes precedence over version 2.
fn cpu_membership(memberships: &str) -> Option<&str> {
    let mut unified = None;
    for line in memberships.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        if controllers.split(',').any(|controller| controller == "cpu") {
            return Some(path);
        }
        if controllers.is_empty() {
            unified = Some(path);
        }
    }
    unified
}

/// Runs all parsers of this file, for the fuzz target.
pub(crate) fn parse(text: &str) -> bool {
    Hierarchy::parse(text, |_| true).is_some() || cpu_membership(text).is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_cpu_hierarchy_is_found_among_mounts() {
        let v1 = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                  cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
                  cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n";
        let found = Hierarchy::parse(v1, |_| true).unwrap();
        assert_eq!(found.version, Version::One);
        assert_eq!(found.root, Path::new("/sys/fs/cgroup/cpu,cpuacct"));

        let v2 = "tmpfs /tmp tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        assert_eq!(Hierarchy::parse(v2, |_| true).unwrap().version, Version::Two);
        assert_eq!(Hierarchy::parse(v2, |_| false), None);
        assert_eq!(Hierarchy::parse("cpuset /x cgroup rw,cpuset 0 0\n", |_| true), None);
    }

    #[test]
    fn membership_prefers_the_line_of_the_cpu_controller() {
        assert_eq!(cpu_membership("5:cpu,cpuacct:/a:b\n0::/user.slice\n"), Some("/a:b"));
        assert_eq!(cpu_membership("3:cpuset:/x\n0::/user.slice\n"), Some("/user.slice"));
        assert_eq!(cpu_membership("3:cpuset:/x\n"), None);
    }

    #[test]
    fn a_container_root_is_not_taken_for_the_true_root() {
        let folder = std::env::temp_dir().join(format!("cpucost-root-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup.type"), "domain\n").unwrap();
        let v1 = Hierarchy { root: folder.clone(), version: Version::One };
        let v2 = Hierarchy { root: folder.clone(), version: Version::Two };
        assert!(!v1.shows_true_root() && !v2.shows_true_root());
        assert!(IdleGroup::create(&v1).is_err() && IdleGroup::create(&v2).is_err());
        assert!(!v2.gives_children_cpu());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn groups_of_dead_soakers_are_removed_and_other_things_stay() {
        let root = std::env::temp_dir().join(format!("cpucost-stale-{}", std::process::id()));
        let dead = root.join(format!("{GROUP_PREFIX}999999999"));
        let live = root.join(format!("{GROUP_PREFIX}1"));
        let other = root.join("system.slice");
        for folder in [&dead, &live, &other] {
            fs::create_dir_all(folder).unwrap();
        }
        remove_leftovers(&root);
        assert!(!dead.exists() && live.exists() && other.exists());
        fs::remove_dir_all(&root).unwrap();
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "([a-z0-9:,/ ]{0,40}\n){0,5}") {
            let found = Hierarchy::parse(&text, |_| true);
            prop_assert!(found.is_none() || text.contains("cgroup"));
            if let Some(path) = cpu_membership(&text) {
                prop_assert!(text.contains(path));
            }
        }
    }
}
