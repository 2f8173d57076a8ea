//! Runs the compared tools alternately, so that slow changes of the machine, for example of its
//! clock rate, affect all tools equally. Every second round runs the tools in reverse order.

use anyhow::{Result, bail};
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs every tool once per round, in reverse order in every second round. Before the `rounds`
/// measured rounds, one more round lets caches and clock rates settle; its results are discarded.
/// Returns one list per measured round, with the results in the order of the tools. Returns an
/// error if `stop` is set or a run fails.
pub fn take_turns<T: Clone>(
    name: &str,
    rounds: u32,
    contestants: usize,
    stop: &AtomicBool,
    mut run: impl FnMut(usize) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut measured_rounds = Vec::new();
    for round in 0..=rounds {
        eprintln!("{name}: round {round} of {rounds}");
        let mut measured: Vec<Option<T>> = vec![None; contestants];
        for step in 0..contestants {
            let place = if round % 2 == 0 { step } else { contestants - 1 - step };
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            measured[place] = Some(run(place)?);
        }
        measured_rounds.push(measured.into_iter().flatten().collect());
    }
    measured_rounds.remove(0);
    Ok(measured_rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_take_turns_in_alternating_order_after_a_discarded_round() {
        let mut turns = Vec::new();
        let rounds = take_turns("test", 2, 2, &AtomicBool::new(false), |place| {
            turns.push(place);
            Ok(turns.len())
        });
        assert_eq!(rounds.unwrap(), [[4, 3], [5, 6]]);
        assert_eq!(turns, [0, 1, 1, 0, 0, 1]);
    }

    #[test]
    fn a_signal_ends_the_rounds() {
        let stopped = take_turns("test", 2, 2, &AtomicBool::new(true), |_| -> Result<()> {
            panic!("no tool may run");
        });
        assert!(stopped.is_err());
    }
}
