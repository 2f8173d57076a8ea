//! Injected device faults, chosen per request, to test halfpower and other programs.
//!
//! A [`FaultPlan`] assigns faults to requests, numbered from 0. The wrapper
//! [`Faulty`](crate::engine::Faulty) injects them into any engine; the crate `fusefile` injects
//! them into a file that any program can open.

use crate::request::Op;

/// The fault injected into a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Fail with this error number; the request never reaches the device.
    Errno(i32),
    /// Transfer only this many bytes of the request.
    Short(u32),
    /// Delay the completion until this many other requests have completed.
    Late(u32),
    /// Delay the completion by this time (ns).
    Hang(u64),
    /// Complete the request twice.
    Twice,
    /// Never complete the request.
    Never,
    /// Flip one bit of the data.
    Flip,
    /// Report a write as done without writing.
    Lose,
    /// Write the data this many bytes after the requested offset.
    Misdirect(u64),
    /// Write only the first half and report the whole as written.
    Tear,
}

/// One rule of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// The fault.
    pub fault: Fault,
    /// Restricts the rule, and its counting, to reads or to writes; None: both.
    pub only: Option<Op>,
    /// The first affected request, counted from 0 among the requests that `only` selects.
    pub first: u64,
    /// How many consecutive requests are affected.
    pub count: u64,
}

/// Assigns faults to requests; the first matching rule applies. Without rules there are no faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// The rules.
    pub rules: Vec<FaultRule>,
}

/// A plan with its request counters.
#[derive(Clone, Debug, Default)]
pub struct FaultCounter {
    plan: FaultPlan,
    seen: [u64; 2],
}

impl FaultCounter {
    /// Starts a plan at its first request.
    pub fn new(plan: FaultPlan) -> FaultCounter {
        FaultCounter { plan, seen: [0; 2] }
    }

    /// The fault of the next request.
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
