//! Recognises rotating disks. They cannot be fitted to a stored run, because the time of a request
//! depends on the positions of arm and platter, which a run does not show. The module `disk`
//! measures them instead.
//!
//! The description of a simulated system states whether its drives rotate. A host reports a
//! rotation speed only for real disks, but it also reports virtual disks as rotating. For virtual
//! disks, the latency of random reads decides.

use analysis::units;
use lab::machine::TargetFacts;

use crate::history::{History, MeasuredPoint};

/// Minimum median latency of small random reads at depth 1 on a rotating device (ns). If latency
/// decides, a faster device does not count as rotating. Half a revolution of the fastest disks
/// (15,000 revolutions per minute) takes 2 ms. Flash is ten times faster.
const ARM_NS: f64 = 2e6;
/// Maximum size of a small request, which spends most of its time on arm movement and rotation
/// (bytes).
const SMALL_BYTES: u64 = 16 << 10;
/// If the host does not report whether a device rotates, sequential reads must also be this many
/// times as fast as random reads. On slow flash volumes, sequential and random reads take equally
/// long.
const SEQUENTIAL_GAIN: f64 = 5.0;

/// Returns the reason why the target of a run counts as a rotating disk, or `None` if it does not.
pub fn why_rotating(target: &TargetFacts, history: &History) -> Option<String> {
    let device = target.device.as_ref();
    let reported = device.and_then(|device| device.rotational);
    if target.simulated.is_some() {
        let rotates = reported == Some(true);
        return rotates.then(|| "the drives of the simulated system rotate".to_owned());
    }
    if let Some(speed) = device.and_then(|device| device.revolutions_per_min).filter(|s| *s > 0) {
        return Some(format!("the system reports {speed} revolutions per minute"));
    }
    let random_ns = single_read_ns(history, true);
    let has_model = device.is_some_and(|device| device.model.is_some());
    match (reported, random_ns) {
        (Some(false), _) => None,
        (Some(true), Some(ns)) if ns >= ARM_NS => {
            let time = units::time(ns);
            Some(format!("the system reports a rotating disk, and a random read takes {time}"))
        }
        (Some(true), None) if has_model => Some("the system reports a rotating disk".to_owned()),
        (None, Some(ns)) if ns >= ARM_NS => {
            let sequential_ns = single_read_ns(history, false)?;
            (sequential_ns * SEQUENTIAL_GAIN <= ns).then(|| {
                let [random, sequential] = [ns, sequential_ns].map(units::time);
                format!("a random read takes {random}, but a sequential read takes {sequential}")
            })
        }
        _ => None,
    }
}

/// Returns the median latency of small reads at depth 1 (ns), or `None` if none were measured.
fn single_read_ns(history: &History, random: bool) -> Option<f64> {
    let is_single = |point: &&MeasuredPoint| {
        point.outstanding() == 1
            && point.reads() == Some(true)
            && point.key.is_random() == random
            && point.key.request_bytes() <= SMALL_BYTES
    };
    let [_, median, _] = history.points.iter().find(is_single)?.latency_ns;
    Some(median)
}

#[cfg(test)]
mod tests {
    use lab::machine::{DeviceFacts, SimulatedFacts};
    use workload::Pattern;

    use super::*;
    use crate::history::tests::a_point;

    /// Returns a history of random and sequential 4 KiB reads at depth 1 with these median
    /// latencies (ns).
    fn history(random_ns: f64, sequential_ns: f64) -> History {
        let points: Vec<_> = [1, 2, 4, 8].map(|depth| a_point(4096, depth)).into();
        let mut history = History::of(&points, 0.0).unwrap();
        let latencies = [random_ns, sequential_ns].into_iter().cycle();
        for (number, (point, ns)) in history.points.iter_mut().zip(latencies).enumerate() {
            point.latency_ns = [ns, ns, ns];
            point.key.workload.read_percent = 100;
            point.key.workload.depth = 1;
            let random = number % 2 == 0;
            point.key.workload.pattern = if random { Pattern::Random } else { Pattern::Sequential };
        }
        history
    }

    fn device(rotational: Option<bool>, model: Option<&str>, speed: Option<u32>) -> TargetFacts {
        let device = DeviceFacts {
            rotational,
            model: model.map(str::to_owned),
            revolutions_per_min: speed,
            ..DeviceFacts::default()
        };
        TargetFacts { device: Some(device), ..TargetFacts::default() }
    }

    #[test]
    fn disks_are_recognised_by_the_system_or_by_their_latency() {
        let (disk, flash, slow) = (history(8e6, 3e5), history(1e5, 5e4), history(3e6, 3e6));
        let rotates = |target: &TargetFacts, history| why_rotating(target, history).is_some();
        let simulated = |rotational| TargetFacts {
            simulated: Some(SimulatedFacts::default()),
            ..device(Some(rotational), None, None)
        };
        assert!(rotates(&simulated(true), &flash) && !rotates(&simulated(false), &disk));
        assert!(rotates(&device(Some(true), Some("ST4000"), Some(7200)), &flash));
        // A host reports virtual disks as rotating, even if the storage below them is flash.
        let virtual_disk = device(Some(true), None, None);
        assert!(rotates(&virtual_disk, &disk) && !rotates(&virtual_disk, &flash));
        assert!(!rotates(&device(Some(false), None, None), &disk));
        let unknown = TargetFacts::default();
        assert!(rotates(&unknown, &disk));
        assert!(!rotates(&unknown, &flash) && !rotates(&unknown, &slow));
    }
}
