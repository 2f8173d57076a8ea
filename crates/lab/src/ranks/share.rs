//! Determines the path and the part of a target that a rank uses. As in IOR, the ranks divide a
//! shared region into segments, or interleave their requests.

use std::path::{Path, PathBuf};

use analysis::units;
use workload::{Pattern, Workload};

use crate::failure::{Failure, Outcome};
use crate::guard::Consent;
use crate::machine;
use crate::rank_trial::{RankFiles, RankGroup};
use crate::ranks::of_environment;

/// Placeholder for the number of the rank in the name of a target.
const RANK: &str = "{rank}";
/// Placeholder for the name of the host in the name of a target.
const HOST: &str = "{host}";

/// The part of a target that a rank uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The ranks, and how they share files.
    pub group: RankGroup,
    /// Number of the part that this rank uses. It is the number of this rank or, with
    /// `--rank-shift`, the number of another rank (see [`shifted`]).
    pub number: u32,
}

/// Returns the number of the rank whose part `rank` uses: `rank + shift`, modulo the number of
/// ranks.
pub fn shifted(rank: u32, shift: u32, count: u32) -> u32 {
    ((u64::from(rank) + u64::from(shift)) % u64::from(count.max(1))) as u32
}

/// Replaces `{rank}` and `{host}` in the name of a target, if this process is a rank. `{rank}`
/// becomes the number that [`shifted`] returns.
pub fn path_of_rank(path: &Path, shift: u32) -> PathBuf {
    let Some((rank, count)) = of_environment() else { return path.to_path_buf() };
    let Some(text) = path.to_str().filter(|text| text.contains('{')) else {
        return path.to_path_buf();
    };
    let number = shifted(rank, shift, count).to_string();
    PathBuf::from(text.replace(RANK, &number).replace(HOST, &machine::host_name()))
}

/// Replaces `{rank}` and `{host}` in the paths that may be overwritten, in the same way as in the
/// targets of this rank.
pub fn consent_of_rank(consent: &Consent, shift: u32) -> Consent {
    let path = |path: &PathBuf| path_of_rank(path, shift);
    Consent {
        overwrite: consent.overwrite.iter().map(path).collect(),
        destroy_data_on: consent.destroy_data_on.clone(),
    }
}

impl Share {
    /// Checks that the ranks can divide the region of a workload into parts.
    ///
    /// # Errors
    /// The region is too small for one request of each rank. Strided parts also fail if the
    /// workload is not sequential, has several request sizes, or has several threads.
    pub fn check(&self, region_bytes: u64, workload: &Workload) -> Outcome<()> {
        if self.bytes(region_bytes, workload.request_bytes) == 0 {
            return Err(Failure::usage(format!(
                "a region of {} is too small for {} ranks with requests of {}; use a larger --size \
                 or a smaller --bs",
                units::size(region_bytes),
                self.group.count,
                units::size(workload.request_bytes.into())
            )));
        }
        let is_plain = workload.pattern == Pattern::Sequential
            && workload.threads == 1
            && workload.request_sizes.is_empty();
        if self.group.files == RankFiles::Strided && !is_plain {
            return Err(Failure::usage(
                "--rank-files strided works only with sequential requests of one size from one \
                 thread; use --rw read or write, a single --bs and --numjobs 1",
            ));
        }
        Ok(())
    }

    /// Returns the size of the part of a region that a rank uses (bytes). If each rank has its own
    /// target, this is the whole region. Otherwise it is an equal share, rounded down to whole
    /// requests.
    pub fn bytes(&self, region_bytes: u64, request_bytes: u32) -> u64 {
        let (count, request_bytes) = (u64::from(self.group.count), u64::from(request_bytes));
        match self.group.files {
            RankFiles::Own => region_bytes,
            _ => region_bytes / count / request_bytes * request_bytes,
        }
    }

    /// Sets the region of a workload to the part of this rank. The region of the argument must have
    /// the size of one part ([`Share::bytes`]).
    pub fn place(&self, workload: Workload) -> Workload {
        let (count, number) = (u64::from(self.group.count), u64::from(self.number));
        let request_bytes = u64::from(workload.request_bytes);
        let part_bytes = workload.region_bytes;
        let (before, region_bytes) = match self.group.files {
            RankFiles::Own => return workload,
            RankFiles::Segmented => (number * part_bytes, part_bytes),
            RankFiles::Strided => {
                let before = number * request_bytes;
                (before, (part_bytes * count).saturating_sub(before))
            }
        };
        let pattern = match self.group.files {
            RankFiles::Strided => Pattern::Strided { stride_bytes: count * request_bytes },
            _ => workload.pattern,
        };
        let region_offset = workload.region_offset.saturating_add(before);
        Workload { pattern, region_offset, region_bytes, ..workload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(files: RankFiles, number: u32) -> Share {
        Share { group: RankGroup { count: 4, files }, number }
    }

    fn placed(files: RankFiles, number: u32) -> Workload {
        let share = share(files, number);
        let region_bytes = share.bytes(1 << 20, 4096);
        let workload = Workload {
            region_offset: 8192,
            region_bytes,
            request_bytes: 4096,
            ..Workload::default()
        };
        share.check(1 << 20, &workload).unwrap();
        share.place(workload)
    }

    #[test]
    fn segments_lie_one_after_the_other() {
        let parts: Vec<_> = (0..4)
            .map(|number| placed(RankFiles::Segmented, number))
            .map(|part| (part.region_offset, part.region_bytes))
            .collect();
        let quarter = 1 << 18;
        assert_eq!(parts[0], (8192, quarter));
        assert_eq!(parts[3], (8192 + 3 * quarter, quarter));
    }

    #[test]
    fn strides_of_all_ranks_interlock() {
        let last = placed(RankFiles::Strided, 3);
        assert_eq!(last.pattern, Pattern::Strided { stride_bytes: 16384 });
        assert_eq!(last.region_offset, 8192 + 3 * 4096);
        assert_eq!(last.region_offset + last.region_bytes, 8192 + (1 << 20));
    }

    #[test]
    fn what_cannot_be_shared_is_refused() {
        let plain = Workload { request_bytes: 4096, ..Workload::default() };
        let failure = share(RankFiles::Segmented, 0).check(12288, &plain).unwrap_err();
        assert!(failure.message.contains("4 ranks"), "{failure}");
        let random = Workload { pattern: Pattern::Random, ..plain };
        let failure = share(RankFiles::Strided, 0).check(1 << 20, &random).unwrap_err();
        assert!(failure.message.contains("--rank-files strided"), "{failure}");
        assert!(share(RankFiles::Segmented, 0).check(1 << 20, &random).is_ok());
    }

    #[test]
    fn a_shift_wraps_around() {
        assert_eq!((shifted(3, 1, 4), shifted(0, 6, 4), shifted(u32::MAX, u32::MAX, 1)), (0, 2, 0));
    }
}
