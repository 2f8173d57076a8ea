//! Faults of a device, decided request by request: for tests, and for users who doubt.
//!
//! A [`FaultPlan`] says which request suffers what, counted from 0; the wrapper
//! [`Faulty`](crate::engine::Faulty) does it to any engine, the crate `fusefile` to a file that
//! any program can open.

use crate::request::Op;

/// What is to happen to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: pass it on.
    #[default]
    None,
    /// Answer with this error number; the request never reaches the device.
    Errno(i32),
    /// Move only so many bytes.
    Short(u32),
    /// Hold the completion back until so many others have passed it.
    Late(u32),
    /// Hold the completion back for so long (ns).
    Hang(u64),
    /// Complete it twice.
    Twice,
    /// Never complete it.
    Never,
    /// Turn one bit of the data.
    Flip,
    /// Say that a write is done and do nothing.
    Lose,
    /// Write the data so many bytes further on.
    Misdirect(u64),
    /// Write the first half only and say that all is written.
    Tear,
}

/// One line of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// What happens.
    pub fault: Fault,
    /// Only reads or only writes count, or both.
    pub only: Option<Op>,
    /// The first request that suffers it, counted from 0 among those that count.
    pub first: u64,
    /// How many in a row do.
    pub count: u64,
}

/// Which request suffers what; empty: none does. The first rule that fits holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// The rules.
    pub rules: Vec<FaultRule>,
}

/// How far a plan has come.
#[derive(Clone, Debug, Default)]
pub struct FaultCounter {
    plan: FaultPlan,
    seen: [u64; 2],
}

impl FaultCounter {
    /// A plan before its first request.
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
    fn a_rule_counts_only_what_it_is_about() {
        let write = FaultRule { fault: Fault::Lose, only: Some(Op::Write), first: 1, count: 2 };
        let any = FaultRule { fault: Fault::Twice, only: None, first: 5, count: 1 };
        let mut counter = FaultCounter::new(FaultPlan { rules: vec![write, any] });
        let ops = [Op::Write, Op::Read, Op::Write, Op::Write, Op::Write, Op::Read];
        let faults: Vec<Fault> = ops.into_iter().map(|op| counter.next(op)).collect();
        let (none, lose) = (Fault::None, Fault::Lose);
        assert_eq!(faults, [none, none, lose, lose, none, Fault::Twice]);
    }
}
