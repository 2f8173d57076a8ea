//! The dirty pages of a file, and the limits of a host: when they are written, and when writers
//! wait.
//!
//! The rules are those of `mm/page-writeback.c` (`balance_dirty_pages`, `domain_dirty_limits`) and
//! `fs/fs-writeback.c` (`wb_writeback`) as of Linux 6.18, and of
//! `Documentation/admin-guide/sysctl/vm.rst`: the flusher starts when more than the background
//! limit is dirty, or a file has been dirty for the expiry time; writers are free up to half way
//! between both limits, and then proceed at the rate of the device, with the dirty pages half way
//! from there to the limit. The kernel makes each writer pause for a computed time; here it waits
//! until enough is written, which gives the same rate.

use super::pages::Ranges;

/// The limits of a host (pages).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The flusher runs while more is dirty.
    pub background: u64,
    /// No more may be dirty or on the way to the device.
    pub limit: u64,
}

impl Limits {
    /// Up to here, writers do not wait (`dirty_freerun_ceiling`).
    pub fn free_run(self) -> u64 {
        u64::midpoint(self.background.min(self.limit), self.limit)
    }

    /// Where writers proceed at the rate of the device (the set point of `pos_ratio_polynom`).
    pub fn set_point(self) -> u64 {
        u64::midpoint(self.free_run(), self.limit)
    }

    /// Whether a writer of `more` pages waits while `unwritten` are dirty or on the way. One that
    /// finds nothing unwritten never does.
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
    /// Where the flusher goes on (`writeback_index`).
    next: u64,
    /// Since when the file has dirty pages (ns).
    since_ns: Option<u64>,
    /// Pages are written whatever the limits say: they have expired, or somebody waits for them.
    pub urgent: bool,
}

impl DirtyPages {
    /// Pages that are dirty and not on the way to the device.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Whether nothing is dirty or on the way to the device.
    pub fn is_clean(&self) -> bool {
        self.dirty == 0 && self.writing == 0
    }

    /// Pages become dirty; `gap` is called with each range that was not.
    pub fn mark(&mut self, from: u64, to: u64, now_ns: u64, mut gap: impl FnMut(u64, u64)) {
        let dirty = &mut self.dirty;
        self.ranges.insert(from, to, |from, to| {
            *dirty += to - from;
            gap(from, to);
        });
        self.since_ns.get_or_insert(now_ns);
    }

    /// Takes the next dirty pages, at most `most`, to write them: from where the last ones ended,
    /// and then from the beginning.
    pub fn take(&mut self, most: u64) -> Option<(u64, u64)> {
        let (from, to) = self.ranges.first_from(self.next).or(self.ranges.first_from(0))?;
        let to = to.min(from + most);
        self.take_range(from, to);
        self.next = to;
        Some((from, to))
    }

    /// Takes the dirty pages of a range, to write them.
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

    /// Pages have been written.
    pub fn written(&mut self, pages: u64) {
        self.writing -= pages;
    }

    /// A periodic look of the flusher: what has been dirty for `expire_ns` is written now. Returns
    /// whether the flusher must look again.
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
        assert!(!limits.holds_back(0, 1 << 40), "a write larger than the limit would never end");
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
        // Dirty again while it is on the way: written again, after the rest.
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
        assert!(pages.urgent, "the rest is written too");
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
