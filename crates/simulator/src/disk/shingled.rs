//! Computes the times of a shingled disk: of reads, of writes, and of the cleaning of bands. Bands
//! are cleaned when the media cache has no room for a write, and while the host is idle. The module
//! `shingles` records which data are in the media cache.

use ioengine::Op;

use super::{Disk, MediaTimes};
use crate::shingles::{Cleaning, Shingles};

impl Disk {
    /// Performs a read or write of a shingled disk. Before a write, bands are cleaned until the
    /// media cache has room. Returns the start and the end of the transfer (ns).
    pub(super) fn time_shingled(
        &mut self,
        shingles: &mut Shingles,
        op: Op,
        (from, end): (u64, u64),
        now_ns: u64,
    ) -> (u64, u64) {
        let mut at_ns = now_ns;
        let pieces = match op {
            Op::Read => shingles.pieces(from, end).unwrap_or_else(|| vec![(from, end - from)]),
            Op::Write => {
                while let Some(cleaning) = shingles.make_room(from, end) {
                    at_ns = self.clean(cleaning, at_ns);
                }
                vec![(shingles.store(from, end), end - from)]
            }
        };
        let mut start_ns = None;
        for (at, length) in pieces {
            let times = self.time(op, at, at + length, at_ns);
            self.times.transfer_ns += times.1 - times.0;
            self.arrive(at + length, times.1);
            start_ns.get_or_insert(times.0);
            at_ns = times.1;
        }
        (start_ns.unwrap_or(at_ns), at_ns)
    }

    /// Reads a band, merges the band's data from the media cache, and writes the band. Returns the
    /// time of the end (ns).
    fn clean(&mut self, Cleaning { from, to, extents }: Cleaning, now_ns: u64) -> u64 {
        let before = self.times;
        let (_, read_ns) = self.time(Op::Read, from, to, now_ns);
        self.arrive(to, read_ns);
        let extent_ns = self.model.shingled.as_ref().map_or(0, |model| model.extent_read.ns());
        let (_, end_ns) = self.time(Op::Write, from, to, read_ns + extents * extent_ns);
        self.arrive(to, end_ns);
        self.forget(from, to);
        self.times = MediaTimes { clean_ns: before.clean_ns + (end_ns - now_ns), ..before };
        end_ns
    }

    /// Schedules the next check for bands to clean, and returns the time of that check (ns). `None`
    /// if a check is scheduled already, the disk has work, or no band must be cleaned.
    pub fn next_look(&mut self, now_ns: u64) -> Option<u64> {
        if self.look_ns > now_ns || !self.is_idle() {
            return None;
        }
        let model = self.model.shingled.as_ref()?;
        self.shingles.as_ref().filter(|shingles| shingles.is_dirty())?;
        self.look_ns = (self.used_ns + model.idle.ns()).max(now_ns + 1);
        Some(self.look_ns)
    }

    /// Starts to clean a band of a shingled disk if the host has been idle for long enough. Returns
    /// the time of the end (ns).
    pub(super) fn clean_in_pause(&mut self, now_ns: u64) -> Option<u64> {
        let idle_ns = self.model.shingled.as_ref()?.idle.ns();
        if now_ns < self.used_ns + idle_ns {
            return None;
        }
        let cleaning = self.shingles.as_mut()?.clean_oldest()?;
        self.stop_reading_ahead(now_ns);
        self.operation.clear();
        self.busy = true;
        self.is_background = true;
        let end_ns = self.clean(cleaning, now_ns);
        self.times.background_ns += end_ns - now_ns;
        Some(end_ns)
    }

    /// Checks whether the disk reads ahead after a read at `from`. The disk does not read ahead if
    /// the media cache contains data of the range that starts at `from` and has twice the length
    /// of a prefetch.
    pub(super) fn reads_ahead_from(&self, from: u64) -> bool {
        let shingles = self.shingles.as_ref();
        let end = (from + 2 * self.model.prefetch.bytes()).min(self.geometry.bytes());
        shingles.is_none_or(|shingles| end <= from || shingles.pieces(from, end).is_none())
    }
}
