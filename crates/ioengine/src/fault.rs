//! Device faults that are injected into selected requests, to test halfpower and other programs.
//!
//! A [`FaultPlan`] assigns faults to requests, which are numbered from 0. The wrapper
//! [`Faulty`](crate::engine::Faulty) injects the faults into any engine. The crate `fusefile`
//! injects them into a file that any program can open.

use crate::request::Op;

/// The fault injected into a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// The request fails with this error number and never reaches the device.
    Errno(i32),
    /// Only this many bytes of the request are transferred.
    Short(u32),
    /// The completion is delayed until this many other requests have completed.
    Late(u32),
    /// The completion is delayed by this time (ns).
    Hang(u64),
    /// The request completes twice.
    Twice,
    /// The request never completes.
    Never,
    /// One bit of the data is flipped.
    Flip,
    /// A write is reported as successful, but nothing is written.
    Lose,
    /// The data is written this many bytes after the requested offset.
    Misdirect(u64),
    /// Only the first half of a write is written, but the whole write is reported as successful.
    Tear,
}

/// Assigns one fault to consecutive requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// The fault that is injected.
    pub fault: Fault,
    /// The requests to which the rule applies: only reads, or only writes. None if it applies to
    /// all requests.
    pub only: Option<Op>,
    /// The number of the first affected request. Numbers start at 0, and count only the requests
    /// that `only` selects.
    pub first: u64,
    /// The number of consecutive requests that are affected.
    pub count: u64,
}

/// Assigns faults to requests. The first matching rule applies. Without rules there are no faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// The rules, in order of precedence.
    pub rules: Vec<FaultRule>,
}

/// Counts the requests, and finds the fault of each request in a plan.
#[derive(Clone, Debug, Default)]
pub struct FaultCounter {
    plan: FaultPlan,
    seen: [u64; 2],
}

impl FaultCounter {
    /// Creates a counter that has counted no requests yet.
    pub fn new(plan: FaultPlan) -> FaultCounter {
        FaultCounter { plan, seen: [0; 2] }
    }

    /// Returns the fault of the next request, and counts the request.
    pub fn next(&mut self, op: Op) -> Fault {
        let seen = self.seen;
        self.seen[op as usize] += 1;
        let number_in = |rule: &FaultRule| match rule.only {
            None => seen[0] + seen[1],
            Some(only) => seen[only as usize],
        };
        let fits = |rule: &&FaultRule| {
            let (number, last) = (number_in(rule), rule.first.saturating_add(rule.count));
            rule.only.is_none_or(|only| only == op) && (rule.first..last).contains(&number)
        };
        self.plan.rules.iter().find(fits).map_or(Fault::None, |rule| rule.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_counts_only_requests_of_its_direction() {
        let write = FaultRule { fault: Fault::Lose, only: Some(Op::Write), first: 1, count: 2 };
        let any = FaultRule { fault: Fault::Twice, only: None, first: 5, count: 1 };
        let mut counter = FaultCounter::new(FaultPlan { rules: vec![write, any] });
        let ops = [Op::Write, Op::Read, Op::Write, Op::Write, Op::Write, Op::Read];
        let faults: Vec<Fault> = ops.into_iter().map(|op| counter.next(op)).collect();
        let (none, lose) = (Fault::None, Fault::Lose);
        assert_eq!(faults, [none, none, lose, lose, none, Fault::Twice]);
    }
}
