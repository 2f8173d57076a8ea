//! Load balance of random requests over the members of a stripe.
//!
//! Random requests do not spread evenly. If D requests are placed at random on N members, all at
//! the same time, N (1 - (1 - 1/N)^D) members are busy on average. In a closed loop, a new random
//! request replaces each completed request, so queues form. Then only N D / (D + N - 1) members are
//! busy if service times are exponential. With constant service times, the number of busy members
//! lies between the results of the two formulas.

use ioengine::stripe::Layout;
use workload::LoggedRequest;

/// Returns the expected number of busy devices if all requests are placed at random at the same
/// time.
pub fn busy_open(targets: u32, requests: u32) -> f64 {
    let targets = f64::from(targets);
    targets * (1.0 - (1.0 - 1.0 / targets).powf(f64::from(requests)))
}

/// Returns the expected number of busy devices in a closed loop with exponential service times.
pub fn busy_closed(targets: u32, requests: u32) -> f64 {
    let (targets, requests) = (f64::from(targets), f64::from(requests));
    targets * requests / (requests + targets - 1.0)
}

/// How requests are distributed over the devices of a stripe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StripeLoad {
    /// The number of devices with at least one request, averaged over time.
    pub busy: f64,
    /// The number of requests of the most loaded device, divided by the mean of all devices.
    pub imbalance: f64,
}

impl StripeLoad {
    /// Computes the load of a trial between the first and the last submission of a request. None if
    /// all requests were submitted at the same time.
    pub fn of(log: &[LoggedRequest], layout: &Layout) -> Option<StripeLoad> {
        let mut changes: Vec<(u64, usize, i64)> = Vec::with_capacity(2 * log.len());
        let mut counts = vec![0_u64; layout.members()];
        for request in log {
            for piece in layout.pieces(request.offset, request.length) {
                let member = usize::from(piece.member);
                counts[member] += 1;
                changes.push((request.submit_ns, member, 1));
                changes.push((request.complete_ns, member, -1));
            }
        }
        let (first, last) = (log.first()?.submit_ns, log.last()?.submit_ns);
        let (first, last) = log
            .iter()
            .map(|one| one.submit_ns)
            .fold((first, last), |(a, b), ns| (a.min(ns), b.max(ns)));
        changes.sort_unstable();
        let (mut waiting, mut busy, mut area, mut at) =
            (vec![0_i64; layout.members()], 0_u64, 0.0, first);
        for (ns, member, change) in changes.into_iter().take_while(|(ns, ..)| *ns <= last) {
            area += busy as f64 * (ns - at) as f64;
            at = ns;
            waiting[member] += change;
            busy = waiting.iter().filter(|requests| **requests > 0).count() as u64;
        }
        let (most, all) = (*counts.iter().max()?, counts.iter().sum::<u64>());
        let imbalance = most as f64 * counts.len() as f64 / all.max(1) as f64;
        (last > first).then(|| StripeLoad { busy: area / (last - first) as f64, imbalance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a request to one device of a stripe with chunks of 8 KiB.
    fn request(member: u64, submit_ns: u64, complete_ns: u64) -> LoggedRequest {
        let (offset, length) = (member * 8192, 8192);
        let (worker, op, failed) = (0, ioengine::Op::Read, false);
        LoggedRequest { worker, op, failed, offset, length, submit_ns, complete_ns }
    }

    #[test]
    fn busy_members_are_averaged_over_time_and_not_over_requests() {
        let layout = Layout::new(2, 8192).unwrap();
        // In the first 10 ns, both requests are on the first device, so one device is busy. Until
        // 20 ns, both devices are busy. Until the last submission at 30 ns, one device is busy.
        let log = [(0, 0, 10), (0, 0, 20), (1, 10, 40), (0, 30, 35)];
        let log = log.map(|(member, from, to)| request(member, from, to));
        let stripe_load = StripeLoad::of(&log, &layout).unwrap();
        assert!(
            (stripe_load.busy - (10.0 + 2.0 * 10.0 + 10.0) / 30.0).abs() < 1e-9,
            "{stripe_load:?}"
        );
        assert!((stripe_load.imbalance - 1.5).abs() < 1e-9, "{stripe_load:?}");
        assert_eq!(StripeLoad::of(&[], &layout), None);
    }

    /// Simulates a closed loop on `targets` devices with `depth` requests outstanding, and returns
    /// its log. `service` maps a random number in 0..1 to a service time (ns).
    fn closed_loop(targets: u64, depth: usize, service: impl Fn(f64) -> f64) -> Vec<LoggedRequest> {
        let mut dice = workload::random::Stream::new(7);
        let mut free = vec![0; targets as usize];
        let mut log = Vec::new();
        let mut returning = vec![0; depth];
        for _ in 0..40_000 {
            returning.sort_unstable_by(|a: &u64, b| b.cmp(a));
            let now = returning.pop().unwrap();
            let member = dice.next_u64() % targets;
            let share = (dice.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let at = &mut free[member as usize];
            *at = now.max(*at) + service(share) as u64;
            log.push(request(member, now, *at));
            returning.push(*at);
        }
        log
    }

    #[test]
    fn the_simulated_load_lies_between_the_two_formulas() {
        for (targets, depth) in [(2, 2), (2, 8), (4, 4), (4, 16)] {
            let layout = Layout::new(targets as usize, 8192).unwrap();
            let busy = |service: fn(f64) -> f64| {
                StripeLoad::of(&closed_loop(targets.into(), depth as usize, service), &layout)
                    .unwrap()
                    .busy
            };
            let (even, any) = (busy(|_| 1e6), busy(|share| -1e6 * (1.0 - share).ln()));
            let (most, least) = (busy_open(targets, depth), busy_closed(targets, depth));
            assert!((any - least).abs() < 0.03 * least, "{targets} {depth}: {any} {least}");
            assert!(least < even && even < 1.01 * most, "{targets} {depth}: {even} {most}");
        }
        assert!(
            (busy_open(2, 2) - 1.5).abs() < 1e-9 && (busy_closed(2, 2) - 4.0 / 3.0).abs() < 1e-9
        );
    }
}
