//! Pins threads to CPUs, finds the allowed CPUs and their SMT siblings, and sets the timer slack of
//! threads.
//!
//! Each setting applies to the calling thread until the thread ends. Threads that it starts inherit
//! the pinning. CPU numbers are those of the kernel, as in `/proc/stat` and taskset(1).

use std::{fs, io};

use thiserror::Error;

use crate::sys;

/// Why a thread could not be pinned, or its timer slack could not be set.
#[derive(Debug, Error)]
pub enum Error {
    /// The list of CPUs is empty.
    #[error("the list of CPUs to pin to is empty; specify at least one CPU")]
    NoCpu,
    /// None of the CPUs may be used: they are outside the cpuset, or offline.
    #[error(
        "cannot pin to CPU {cpus:?}: {source}; choose among the allowed CPUs {allowed:?}, or widen \
         the cpuset"
    )]
    Pin {
        /// The requested CPUs.
        cpus: Vec<usize>,
        /// The CPUs that this thread may use.
        allowed: Vec<usize>,
        /// The kernel's error.
        source: io::Error,
    },
    /// The timer slack could not be set.
    #[error("cannot set the timer slack: {0}; timed sleeps will be up to 50 us late")]
    TimerSlack(#[source] io::Error),
}

/// Returns the CPUs that the calling thread may use, in ascending order. They are limited by the
/// affinity of the thread and by its cpuset.
pub fn allowed_cpus() -> Vec<usize> {
    sys::allowed_cpus().unwrap_or_else(|_| (0..sys::online_cpus() as usize).collect())
}

/// Binds the calling thread to `cpus` (sched_setaffinity(2)).
///
/// # Errors
/// The list is empty, or contains no CPU that the thread may use.
pub fn pin_current_thread(cpus: &[usize]) -> Result<(), Error> {
    if cpus.is_empty() {
        return Err(Error::NoCpu);
    }
    sys::pin(0, cpus).map_err(|source| Error::Pin {
        cpus: cpus.to_vec(),
        allowed: allowed_cpus(),
        source,
    })
}

/// Limits the delay of timed sleeps of the calling thread to `slack_ns`. The value 0 restores the
/// kernel's default, 50 µs (prctl(2), PR_SET_TIMERSLACK).
///
/// # Errors
/// A sandbox blocks the call. The kernel itself always allows it.
pub fn set_timer_slack_ns(slack_ns: u64) -> Result<(), Error> {
    sys::set_timer_slack_ns(slack_ns).map_err(Error::TimerSlack)
}

/// The allowed CPUs, grouped by physical core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// For each physical core, the allowed CPUs on it (SMT siblings), in ascending order.
    pub cores: Vec<Vec<usize>>,
}

impl Topology {
    /// Reads the topology of the allowed CPUs from `/sys/devices/system/cpu`. A CPU without an
    /// entry there counts as a separate core.
    pub fn read() -> Topology {
        Topology::group(&allowed_cpus(), |cpu| {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            fs::read_to_string(folder).ok().and_then(|text| parse_cpu_list(&text))
        })
    }

    fn group(allowed: &[usize], siblings: impl Fn(usize) -> Option<Vec<usize>>) -> Topology {
        let mut cores: Vec<Vec<usize>> = Vec::new();
        for &cpu in allowed {
            if cores.iter().any(|core| core.contains(&cpu)) {
                continue;
            }
            let mut core = siblings(cpu).unwrap_or_default();
            core.push(cpu);
            core.retain(|sibling| allowed.contains(sibling));
            core.sort_unstable();
            core.dedup();
            cores.push(core);
        }
        Topology { cores }
    }

    /// Returns the first allowed CPU of every core, for threads that must not share a core.
    pub fn one_cpu_per_core(&self) -> Vec<usize> {
        self.cores.iter().filter_map(|core| core.first().copied()).collect()
    }
}

/// Parses a list in the kernel's format, such as `0-3,8`. `None` if the text is malformed or lists
/// too many CPUs.
pub(crate) fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    const CPUS_MAX: usize = 8192;
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPUS_MAX || cpus.len() >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pinned_thread_may_use_only_what_it_was_pinned_to() {
        let last = *allowed_cpus().last().unwrap();
        std::thread::spawn(move || {
            pin_current_thread(&[last]).unwrap();
            assert_eq!(allowed_cpus(), vec![last]);
        })
        .join()
        .unwrap();
        assert!(allowed_cpus().contains(&last));
    }

    #[test]
    fn pinning_to_no_cpu_or_a_missing_one_is_refused_with_a_remedy() {
        assert!(matches!(pin_current_thread(&[]), Err(Error::NoCpu)));
        let told = pin_current_thread(&[8000]).unwrap_err().to_string();
        assert!(told.contains("8000") && told.contains("choose among"), "{told}");
        assert!(pin_current_thread(&[usize::MAX]).is_err());
    }

    #[test]
    fn timer_slack_is_accepted() {
        std::thread::spawn(|| set_timer_slack_ns(1).unwrap()).join().unwrap();
    }

    #[test]
    fn siblings_form_one_core_and_forbidden_cpus_stay_out() {
        let siblings = |cpu: usize| Some(vec![cpu % 2, cpu % 2 + 2]);
        let topology = Topology::group(&[0, 1, 2], siblings);
        assert_eq!(topology.cores, vec![vec![0, 2], vec![1]]);
        assert_eq!(topology.one_cpu_per_core(), vec![0, 1]);
    }

    #[test]
    fn this_host_has_every_allowed_cpu_on_exactly_one_core() {
        let mut cpus: Vec<usize> = Topology::read().cores.concat();
        cpus.sort_unstable();
        assert_eq!(cpus, allowed_cpus());
    }

    #[test]
    fn a_list_that_names_all_cpus_again_and_again_is_refused() {
        assert_eq!(parse_cpu_list(&"0-8191,".repeat(3)), None);
    }

    proptest! {
        #[test]
        fn a_cpu_list_is_read_as_written(cpus in prop::collection::vec(0usize..8192, 0..20)) {
            let text = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse_cpu_list(&format!("{text}\n")), Some(cpus));
        }

        #[test]
        fn no_text_makes_the_list_parser_panic(text in "[0-9,x-]{0,30}") {
            if let Some(cpus) = parse_cpu_list(&text) {
                prop_assert!(cpus.iter().all(|&cpu| cpu < 8192));
            }
        }
    }
}
