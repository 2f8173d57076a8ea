//! Simulates when Linux writes the dirty pages of a file, and when writers must wait because too
//! many pages of the host are dirty.
//!
//! The rules are those of `mm/page-writeback.c` (`balance_dirty_pages`, `domain_dirty_limits`) and
//! `fs/fs-writeback.c` (`wb_writeback`) as of Linux 6.18, and of
//! `Documentation/admin-guide/sysctl/vm.rst`. The flusher starts when the number of dirty pages
//! exceeds the background limit, or when a file has been dirty for the expiry time. Writers do not
//! wait while the number of dirty pages is below the midpoint between the background limit and the
//! maximum. Above this midpoint, writers proceed at the rate of the device, and the number of dirty
//! pages settles halfway between the midpoint and the maximum. The kernel makes each writer pause
//! for a computed time. In this model, a writer waits until enough pages are written, which gives
//! the same rate.

use super::pages::Ranges;

/// The dirty-page limits of a host (pages).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Number of dirty pages above which the flusher runs.
    pub background: u64,
    /// Maximum number of pages that are dirty or being written.
    pub limit: u64,
}

impl Limits {
    /// Returns the number of dirty pages up to which writers do not wait (`dirty_freerun_ceiling`).
    pub fn free_run(self) -> u64 {
        u64::midpoint(self.background.min(self.limit), self.limit)
    }

    /// Returns the number of dirty pages at which writers proceed at the rate of the device (the
    /// set point of `pos_ratio_polynom`).
    pub fn set_point(self) -> u64 {
        u64::midpoint(self.free_run(), self.limit)
    }

    /// Checks whether a writer of `more` pages must wait while `unwritten` pages are dirty or being
    /// written. A writer never waits if `unwritten` is 0.
    pub fn holds_back(self, unwritten: u64, more: u64) -> bool {
        unwritten > 0 && unwritten + more > self.set_point()
    }
}

/// The dirty pages of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirtyPages {
    ranges: Ranges,
    dirty: u64,
    writing: u64,
    /// Page at which the flusher continues (`writeback_index`).
    next: u64,
    /// Start of the current period in which the file has dirty pages (ns). None if no page is
    /// dirty.
    since_ns: Option<u64>,
    /// Whether the flusher writes the dirty pages regardless of the limits, because they have
    /// expired or a job waits for them.
    pub urgent: bool,
}

impl DirtyPages {
    /// Returns the number of pages that are dirty and not being written.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Checks whether no page is dirty or being written.
    pub fn is_clean(&self) -> bool {
        self.dirty == 0 && self.writing == 0
    }

    /// Marks pages as dirty. Calls `gap` with each range that was not dirty before.
    pub fn mark(&mut self, from: u64, to: u64, now_ns: u64, mut gap: impl FnMut(u64, u64)) {
        let dirty = &mut self.dirty;
        self.ranges.insert(from, to, |from, to| {
            *dirty += to - from;
            gap(from, to);
        });
        self.since_ns.get_or_insert(now_ns);
    }

    /// Takes the next range of at most `most` dirty pages for writing. Continues after the range
    /// that was taken last, and wraps around at the end of the file.
    pub fn take(&mut self, most: u64) -> Option<(u64, u64)> {
        let (from, to) = self.ranges.first_from(self.next).or(self.ranges.first_from(0))?;
        let to = to.min(from + most);
        self.take_range(from, to);
        self.next = to;
        Some((from, to))
    }

    /// Takes the first range of at most `most` dirty pages within `from..to` for writing.
    pub fn take_within(&mut self, from: u64, to: u64, most: u64) -> Option<(u64, u64)> {
        let (start, end) = self.ranges.first_from(from).filter(|(start, _)| *start < to)?;
        let end = end.min(to).min(start + most);
        self.take_range(start, end);
        Some((start, end))
    }

    fn take_range(&mut self, from: u64, to: u64) {
        self.ranges.remove(from, to);
        self.dirty -= to - from;
        self.writing += to - from;
        if self.dirty == 0 {
            (self.since_ns, self.urgent) = (None, false);
        }
    }

    /// Records that `pages` pages have been written.
    pub fn written(&mut self, pages: u64) {
        self.writing -= pages;
    }

    /// Runs the periodic check of the flusher. If the file has been dirty for `expire_ns`, its
    /// pages become urgent. Returns true if another check is needed.
    pub fn look(&mut self, now_ns: u64, expire_ns: u64) -> bool {
        let Some(since_ns) = self.since_ns else { return false };
        self.urgent |= now_ns - since_ns >= expire_ns;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_free_to_three_quarters_and_settle_at_seven_eighths_of_twice_the_background() {
        let limits = Limits { background: 1000, limit: 2000 };
        assert_eq!((limits.free_run(), limits.set_point()), (1500, 1750));
        assert!(!limits.holds_back(1740, 10) && limits.holds_back(1741, 10));
        assert!(!limits.holds_back(0, 1 << 40), "a write above the limit would wait forever");
    }

    #[test]
    fn pages_are_written_in_order_and_once() {
        let mut pages = DirtyPages::default();
        let mut new = 0;
        for (from, to) in [(10, 20), (15, 25), (100, 101)] {
            pages.mark(from, to, 5, |from, to| new += to - from);
        }
        assert_eq!((new, pages.dirty()), (16, 16));
        assert_eq!(pages.take(8), Some((10, 18)));
        // If a page becomes dirty again during its write, a second write follows after the other
        // dirty pages.
        pages.mark(10, 11, 9, |_, _| {});
        assert_eq!(pages.take(100), Some((18, 25)));
        assert_eq!((pages.take(100), pages.take(100)), (Some((100, 101)), Some((10, 11))));
        assert_eq!(pages.take(100), None);
        assert!(!pages.is_clean());
        pages.written(17);
        assert!(pages.is_clean());
    }

    #[test]
    fn what_is_dirty_for_the_expiry_time_is_written() {
        let mut pages = DirtyPages::default();
        assert!(!pages.look(100, 30));
        pages.mark(0, 1, 100, |_, _| {});
        pages.mark(1, 2, 125, |_, _| {});
        assert!(pages.look(129, 30) && !pages.urgent);
        assert!(pages.look(130, 30) && pages.urgent);
        pages.take(1);
        assert!(pages.urgent, "the remaining page is still urgent");
        pages.take(1);
        assert!(!pages.urgent && !pages.look(200, 30));
    }

    #[test]
    fn a_range_is_taken_alone() {
        let mut pages = DirtyPages::default();
        pages.mark(0, 100, 0, |_, _| {});
        assert_eq!(pages.take_within(10, 20, 4), Some((10, 14)));
        assert_eq!(pages.take_within(10, 20, 100), Some((14, 20)));
        assert_eq!(pages.take_within(10, 20, 100), None);
        assert_eq!(pages.dirty(), 90);
    }
}
