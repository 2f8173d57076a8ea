//! Methods of [`Lab`] for runs of several ranks. They merge the trials of all ranks, and let all
//! ranks make the same decisions.

use cpucost::CpuUsage;
use ioengine::clock::Clocks;
use ioengine::{HostTarget, Target};
use serde::Serialize;
use serde::de::DeserializeOwned;
use workload::Sample;
use workload::random::mix;

use crate::check::Check;
use crate::failure::Outcome;
use crate::point::{State, Trial};
use crate::point_key::PointKey;
use crate::rank_trial::{RankFiles, RankGroup};
use crate::ranks::Ranks;
use crate::ranks::merge::RankResult;
use crate::trials::Lab;

impl Lab {
    /// Checks that no rank was lost.
    ///
    /// # Errors
    /// A rank was lost. The message contains the reason.
    pub fn check_ranks(&self) -> Outcome<()> {
        self.ranks.as_ref().map_or(Ok(()), Ranks::check_lost)
    }

    /// Returns, on every rank, the value that rank 0 passed. Used for decisions that must be the
    /// same on all ranks. Without ranks, returns `value`.
    ///
    /// # Errors
    /// Rank 0 is lost.
    pub fn agree<T: Serialize + DeserializeOwned>(&self, value: T) -> Outcome<T> {
        match &self.ranks {
            Some(ranks) => ranks.agree(value),
            None => Ok(value),
        }
    }

    /// Returns true if the measurement must stop, because the user interrupted the run or a rank
    /// was lost. All ranks must call this function, and all get the same answer.
    ///
    /// # Errors
    /// Rank 0 is lost.
    pub fn must_stop(&self) -> Outcome<bool> {
        self.agree(self.interrupt.is_set() || self.check_ranks().is_err())
    }

    /// Returns, on every rank, the smallest value that any rank passed. Without ranks, returns
    /// `value`.
    ///
    /// # Errors
    /// A rank is lost.
    pub fn smallest(&self, value: u64) -> Outcome<u64> {
        let Some(ranks) = &self.ranks else { return Ok(value) };
        Ok(ranks.gather(&value)?.into_iter().min().unwrap_or(value))
    }

    /// Returns true if this process is the first rank or the only process. This process prints and
    /// stores the results.
    pub fn is_first(&self) -> bool {
        self.ranks.as_ref().is_none_or(Ranks::is_first)
    }

    /// Returns the group of ranks that measure together. Each rank has its own targets. None for
    /// one process.
    pub fn rank_group(&self) -> Option<RankGroup> {
        let ranks = self.ranks.as_ref()?;
        Some(RankGroup { count: ranks.count(), files: RankFiles::Own })
    }

    /// Derives the seed of this rank from the common seed, so that ranks write different data and
    /// visit blocks in different orders.
    pub fn seed_of_rank(&self, seed: u64) -> u64 {
        match &self.ranks {
            Some(ranks) if !ranks.is_first() => mix(seed, u64::from(ranks.rank)),
            _ => seed,
        }
    }

    /// Merges the trials of all ranks into one. Each rank checks its own trial, and then the merged
    /// trial is checked as a whole.
    pub(super) fn merged(
        &self,
        ranks: &Ranks,
        sample: Sample,
        (targets, clocks): (&[&HostTarget], &Clocks),
        key: &PointKey,
        judged: &dyn Fn(Sample, &PointKey) -> Trial,
    ) -> Outcome<Trial> {
        let later = self.clock.clocks();
        let mut shared = Sample { log: Vec::new(), ..sample.clone() };
        shared.convert_times(|ns| clocks.system_ns(&later, ns));
        // The counters of the host include the other ranks on the host, so they are checked only in
        // the merged trial.
        let cpu = CpuUsage { others_user_ns: None, run_delay_ns: None, ..sample.cpu };
        let alone = judged(
            Sample { cpu, device: None, ..sample },
            &PointKey { ranks: None, ..key.clone() },
        );
        let number = |target: &&HostTarget| target.device_number();
        let devices: Vec<_> = targets.iter().filter_map(number).collect();
        let merged = ranks.merge(RankResult {
            sample: shared,
            devices: format!("{devices:?}"),
            verdict: alone.verdict,
        })?;
        let mut trial = judged(merged.sample, key);
        trial.verdict.merge(&merged.verdict);
        trial.ranks = merged.ranks;
        for rank in trial.ranks.iter().filter(|rank| rank.lost.is_some()) {
            let text = format!("{} was lost: {}", rank.name(), rank.lost.as_deref().unwrap_or(""));
            trial.verdict.flag(State::Invalid, Check::LostRank, text);
        }
        Ok(trial)
    }
}
