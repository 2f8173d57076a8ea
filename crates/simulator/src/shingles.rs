//! The translation layer of a drive-managed shingled disk.
//!
//! The disk is divided into bands at fixed positions. The tracks of a band overlap, so a band can
//! only be written as a whole. New data are therefore appended to the media cache, a region that is
//! written like a log. The data stay there as extents until their band is *cleaned*: the disk reads
//! the band, merges the extents into it, and writes the band again. Bands are cleaned while the
//! host is idle, or before a write for which the media cache has no room. The band with the oldest
//! data is cleaned first.
//!
//! When a sequential run is longer than a band, its further writes are stored in place. Bands that
//! the run has overwritten completely are removed from the cache.
//!
//! Aghayev and Desnoyers found this structure in commercial drives (*Skylight: A Window on Shingled
//! Disk Operation*, FAST 2015). This model simplifies the log: the space of overwritten data is
//! free at once, but a real log frees its space only in order. The disk model computes the times.

use std::collections::{BTreeMap, HashMap};

use crate::models::ShingleModel;

/// A range of the host's data that is stored in the media cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    to: u64,
    /// Offset on the disk at which the extent is stored (bytes).
    at: u64,
}

/// The state of a band that has data in the cache.
#[derive(Clone, Copy, Debug, Default)]
struct Band {
    /// Sequence number of the write that first stored data of this band in the cache.
    since: u64,
    extents: u64,
}

/// A band to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cleaning {
    pub from: u64,
    pub to: u64,
    /// Number of extents to merge.
    pub extents: u64,
}

/// The media cache and its map.
pub(crate) struct Shingles {
    band_bytes: u64,
    cache_bytes: u64,
    entries_max: u64,
    disk_bytes: u64,
    extents: BTreeMap<u64, Extent>,
    bands: HashMap<u64, Band>,
    /// Bands with data in the cache, sorted by `since`, so that the oldest band is first.
    by_age: BTreeMap<u64, u64>,
    writes: u64,
    used: u64,
    /// Offset in the cache at which the next write is appended (bytes).
    head: u64,
    /// Start and end of the sequential run to which the last write belongs.
    run: (u64, u64),
}

impl Shingles {
    /// Creates an empty media cache for a disk of `disk_bytes`.
    pub fn new(model: &ShingleModel, disk_bytes: u64) -> Shingles {
        Shingles {
            band_bytes: model.band.bytes(),
            cache_bytes: model.media_cache.bytes(),
            entries_max: u64::from(model.entries.count()),
            disk_bytes,
            extents: BTreeMap::new(),
            bands: HashMap::new(),
            by_age: BTreeMap::new(),
            writes: 0,
            used: 0,
            head: 0,
            run: (0, 0),
        }
    }

    /// Makes room for a write. If the write does not fit into the cache, removes the oldest band
    /// from the cache and returns this band. The caller must clean the band and then call this
    /// function again. Returns `None` if the write fits or the cache is empty.
    pub fn make_room(&mut self, from: u64, to: u64) -> Option<Cleaning> {
        let pieces = to.div_ceil(self.band_bytes) - from / self.band_bytes;
        let fits = self.used + (to - from) <= self.cache_bytes
            && self.extents.len() as u64 + pieces <= self.entries_max;
        if fits { None } else { self.clean_oldest() }
    }

    /// Checks whether the cache holds data.
    pub fn is_dirty(&self) -> bool {
        !self.by_age.is_empty()
    }

    /// Removes the oldest band from the cache and returns this band, which the caller must clean.
    /// `None` if the cache is empty.
    pub fn clean_oldest(&mut self) -> Option<Cleaning> {
        let band = *self.by_age.first_key_value()?.1;
        let extents = self.bands.get(&band).map_or(0, |entry| entry.extents);
        let (from, to) = self.range(band);
        self.drop_range(from, to);
        Some(Cleaning { from, to, extents })
    }

    /// Stores a write in the cache or in place. Returns the disk offset at which the data are
    /// written.
    pub fn store(&mut self, from: u64, to: u64) -> u64 {
        self.writes += 1;
        self.drop_range(from, to);
        self.run = if from == self.run.1 { (self.run.0, to) } else { (from, to) };
        let in_place = to - self.run.0 > self.band_bytes;
        let length = to - from;
        if self.head + length > self.cache_bytes {
            self.head = 0;
        }
        let at = if in_place { from } else { self.head };
        if !in_place {
            self.head += length;
        }
        let mut start = from;
        while start < to {
            let band = start / self.band_bytes;
            let end = to.min((band + 1) * self.band_bytes);
            self.extents.insert(start, Extent { to: end, at: at + (start - from) });
            self.count(band);
            self.used += end - start;
            start = end;
        }
        let (first, _) = self.run;
        for band in from / self.band_bytes..=(to - 1) / self.band_bytes {
            let (start, end) = self.range(band);
            if first <= start && end <= to {
                self.drop_range(start, end);
            }
        }
        at
    }

    /// Returns where a range is stored on the disk, as the offset and the length of each piece in
    /// order. `None` if no part of the range is in the cache.
    pub fn pieces(&self, from: u64, to: u64) -> Option<Vec<(u64, u64)>> {
        let mut pieces = Vec::new();
        let mut at = from;
        for (start, extent) in self.overlapping(from, to) {
            let (first, last) = (start.max(from), extent.to.min(to));
            if first > at {
                pieces.push((at, first - at));
            }
            pieces.push((extent.at + (first - start), last - first));
            at = last;
        }
        if pieces.is_empty() {
            return None;
        }
        if at < to {
            pieces.push((at, to - at));
        }
        Some(pieces)
    }

    fn range(&self, band: u64) -> (u64, u64) {
        let from = band * self.band_bytes;
        (from, (from + self.band_bytes).min(self.disk_bytes))
    }

    fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, Extent)> {
        let before = self.extents.range(..from).next_back().filter(move |(_, e)| e.to > from);
        before.into_iter().chain(self.extents.range(from..to)).map(|(start, e)| (*start, *e))
    }

    fn count(&mut self, band: u64) {
        let entry = self.bands.entry(band).or_default();
        if entry.extents == 0 {
            // A single write can add several bands, but each band needs a unique `since`.
            entry.since = self.writes.max(self.by_age.last_key_value().map_or(0, |(w, _)| w + 1));
            self.by_age.insert(entry.since, band);
        }
        entry.extents += 1;
    }

    fn uncount(&mut self, band: u64) {
        let Some(entry) = self.bands.get_mut(&band) else { return };
        entry.extents -= 1;
        if entry.extents == 0 {
            self.by_age.remove(&entry.since);
            self.bands.remove(&band);
        }
    }

    /// Removes a range from the cache. If an extent is only partly in the range, the rest of the
    /// extent stays.
    fn drop_range(&mut self, from: u64, to: u64) {
        let held: Vec<(u64, Extent)> = self.overlapping(from, to).collect();
        for (start, extent) in held {
            let band = start / self.band_bytes;
            self.extents.remove(&start);
            self.used -= extent.to.min(to) - start.max(from);
            let after = (extent.to > to).then(|| (to, extent.at + (to - start)));
            let before = (start < from).then_some((start, extent.at));
            if let Some((start, at)) = after {
                self.extents.insert(start, Extent { to: extent.to, at });
                self.count(band);
            }
            if let Some((start, at)) = before {
                self.extents.insert(start, Extent { to: from, at });
                self.count(band);
            }
            self.uncount(band);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Number, Size, Time};
    use crate::random::Stream;

    const KIB: u64 = 1024;
    const MIB: u64 = 1 << 20;

    fn shingles(entries: f64) -> Shingles {
        let model = ShingleModel {
            media_cache: Size(64.0 * MIB as f64),
            entries: Number(entries),
            band: Size(16.0 * MIB as f64),
            extent_read: Time(0.0),
            idle: Time(1e9),
        };
        Shingles::new(&model, 1 << 40)
    }

    #[test]
    fn random_writes_for_each_cleaning_are_those_of_the_closed_form() {
        // The closed form is for N map entries, B bands and uniform random writes, if the oldest
        // band is cleaned first. A band gets an extent every B writes on average. If the band is
        // cleaned T writes after its first extent, it then holds 1 + x extents, where x = T / B.
        // Averaged over time, a band has N / B = (x + x^2 / 2) / (1 + x) extents. With r = N / B,
        // this gives 1 + x = r + sqrt(r^2 + 1), the number of writes for each cleaning.
        for (entries, bands) in [(256.0, 256_u64), (1024.0, 256), (4096.0, 256)] {
            let mut shingles = shingles(entries);
            let mut random = Stream::new(3);
            let (mut cleanings, mut writes) = (0, 0);
            for number in 0..200_000_u64 {
                let at = (random.share() * (bands * 16 * MIB / 4096) as f64) as u64 * 4096;
                while shingles.make_room(at, at + 4096).is_some() {
                    cleanings += u64::from(number >= 50_000);
                }
                shingles.store(at, at + 4096);
                writes += u64::from(number >= 50_000);
            }
            let r: f64 = entries / bands as f64;
            let wanted = r + (r * r + 1.0).sqrt();
            let found = writes as f64 / cleanings as f64;
            assert!((found / wanted - 1.0).abs() < 0.02, "{entries}: {found} of {wanted}");
        }
    }

    #[test]
    fn a_sequential_run_leaves_no_more_than_two_bands_in_the_cache() {
        let mut shingles = shingles(1e6);
        for number in 0..4096_u64 {
            let from = (1 << 30) + number * 64 * KIB;
            assert_eq!(shingles.make_room(from, from + 64 * KIB), None);
            let in_place = shingles.store(from, from + 64 * KIB) == from;
            assert_eq!(in_place, number >= 256, "{number}");
            assert!(shingles.used <= 32 * MIB, "{}", shingles.used);
        }
    }

    #[test]
    fn reads_find_what_is_in_the_cache() {
        let mut shingles = shingles(1e6);
        shingles.store(80 * MIB, 80 * MIB + 8 * KIB);
        shingles.store(160 * MIB, 160 * MIB + 4 * KIB);
        assert_eq!(shingles.pieces(0, MIB), None);
        let from = 80 * MIB - 4 * KIB;
        let wanted = vec![(from, 4 * KIB), (0, 8 * KIB), (80 * MIB + 8 * KIB, 4 * KIB)];
        assert_eq!(shingles.pieces(from, from + 16 * KIB), Some(wanted));
        // The middle of an extent is written again.
        shingles.store(80 * MIB + 2 * KIB, 80 * MIB + 3 * KIB);
        let wanted = vec![(0, 2 * KIB), (12 * KIB, KIB), (3 * KIB, 5 * KIB)];
        assert_eq!(shingles.pieces(80 * MIB, 80 * MIB + 8 * KIB), Some(wanted));
        assert_eq!(shingles.used, 12 * KIB);
        let cleaning = shingles.clean_oldest().expect("the cache holds data");
        assert_eq!(cleaning, Cleaning { from: 80 * MIB, to: 96 * MIB, extents: 3 });
        assert_eq!((shingles.used, shingles.is_dirty()), (4 * KIB, true));
        assert_eq!(shingles.pieces(80 * MIB, 96 * MIB), None);
    }

    #[test]
    fn the_map_agrees_with_a_list_of_blocks() {
        let mut shingles = shingles(1e6);
        let mut random = Stream::new(11);
        let mut model: HashMap<u64, u64> = HashMap::new();
        let block_bytes = 4 * KIB;
        for _ in 0..2000 {
            let from = (random.share() * 50_000.0) as u64;
            let to = from + 1 + (random.share() * 40.0) as u64;
            let (from, to) = (from * block_bytes, to * block_bytes);
            while let Some(cleaning) = shingles.make_room(from, to) {
                model.retain(|block, _| !(cleaning.from..cleaning.to).contains(block));
            }
            let at = shingles.store(from, to);
            model.extend(
                (from..to).step_by(block_bytes as usize).map(|block| (block, at + block - from)),
            );
            // Bands that a sequential run has overwritten completely are no longer in the cache.
            model.retain(|block, _| {
                shingles.overlapping(*block, block + block_bytes).next().is_some()
            });
            assert_eq!(shingles.used, model.len() as u64 * block_bytes);
        }
        for (block, at) in model {
            assert_eq!(shingles.pieces(block, block + block_bytes), Some(vec![(at, block_bytes)]));
        }
    }
}
