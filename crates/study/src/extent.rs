//! Computes how much a plan measures: the numbers of points and trials, the time, and the bytes
//! written.
//!
//! `--plan` prints these numbers before anything is measured.

use analysis::units;
use std::path::PathBuf;

use lab::failure::{Failure, Outcome};
use lab::job::Job;
use lab::simulated_target::is_simulated;

use crate::plan::Group;

/// How much a plan measures. Time and bytes are upper bounds, because a trial ends as soon as it
/// reaches its time limit or its byte limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Number of points on all targets.
    pub points: u64,
    /// Number of trials of all points.
    pub trials: u64,
    /// Time of all trials, without the preparation of the page cache (ns).
    pub time_ns: u64,
    /// Maximum number of bytes written.
    pub written_bytes: u64,
}

impl Extent {
    /// Computes the extent of a group on these targets. `file_bytes` is the size of a test file.
    ///
    /// # Errors
    /// Flags of the group contradict each other or the targets, or the group needs more targets.
    pub fn of(group: &Group, targets: &[PathBuf], file_bytes: u64) -> Outcome<Extent> {
        let mut experiment = group.experiment.clone();
        let (together, times) = match group.disks {
            // One simulated system is enough, because it provides any number of disks.
            Some(_) if targets.iter().all(|name| is_simulated(name)) => (&targets[..1], 1),
            Some(disks) if disks as usize > targets.len() => {
                let count = targets.len();
                let what = format!("the study needs {disks} targets, but {count} were specified");
                return Err(Failure::usage(what));
            }
            Some(disks) => (&targets[..disks as usize], 1),
            None => (&targets[..1], targets.len() as u64),
        };
        experiment.targets = together.to_vec();
        let job = Job::resolve(&experiment, true)?;
        let trials = u64::from(job.trials);
        let each_ns = job.base.limit_ns.unwrap_or(0).saturating_add(job.base.warm_up_ns);
        let each_bytes =
            experiment.size_bytes.unwrap_or(file_bytes).saturating_mul(together.len() as u64);
        let points = job.axes.len() as u64 * times;
        let writes = job.axes.iter().filter(|axes| axes.read_percent < 100).count() as u64 * times;
        Ok(Extent {
            points,
            trials: points * trials,
            time_ns: (points * trials).saturating_mul(each_ns),
            written_bytes: (writes * trials).saturating_mul(each_bytes),
        })
    }

    /// Adds two extents.
    #[must_use]
    pub fn and(self, other: Extent) -> Extent {
        Extent {
            points: self.points + other.points,
            trials: self.trials + other.trials,
            time_ns: self.time_ns.saturating_add(other.time_ns),
            written_bytes: self.written_bytes.saturating_add(other.written_bytes),
        }
    }

    /// Formats the extent, such as "12 points, 36 trials in 18 s, at most 3 GiB written".
    pub fn words(self) -> String {
        let written = match self.written_bytes {
            0 => "nothing written".to_owned(),
            bytes => format!("at most {} written", units::size(bytes)),
        };
        let time = units::time(self.time_ns as f64);
        let (points, trials) =
            (units::counted(self.points, "point"), units::counted(self.trials, "trial"));
        format!("{points}, {trials} in {time}, {written}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use lab::experiment::settings::Settings;

    #[test]
    fn more_disks_than_targets_make_no_points_except_on_a_simulated_system() {
        let text = "disks = [1, 2]\nbs = '4k'\ntrials = 1\nruntime = 1";
        let groups = Plan::parse(text).unwrap().groups(false, &Settings::default()).unwrap();
        let points = |target: &str| -> Vec<Option<u64>> {
            let of = |group| Extent::of(group, &[PathBuf::from(target)], 1 << 20);
            groups.iter().map(|group| of(group).ok().map(|extent| extent.points)).collect()
        };
        assert_eq!(points("."), [Some(1), None]);
        assert_eq!(points("sim:nt4-ultrawide"), [Some(1), Some(1)]);
    }

    #[test]
    fn the_extent_is_the_product_of_the_lists() {
        let text = "rw = ['read', 'write']\nbs = ['4k', '8k', '64k']\ntrials = 5\nruntime = 0.5";
        let groups = Plan::parse(text).unwrap().groups(false, &Settings::default()).unwrap();
        let targets = [PathBuf::from("."), PathBuf::from("/tmp")];
        let each = groups.iter().map(|group| Extent::of(group, &targets, 1 << 20).unwrap());
        let extent = each.fold(Extent::default(), Extent::and);
        assert_eq!((extent.points, extent.trials), (12, 60));
        assert_eq!(extent.time_ns, 30_000_000_000);
        assert_eq!(extent.written_bytes, 30 << 20);
        assert!(extent.words().ends_with("at most 30 MiB written"), "{}", extent.words());
    }
}
