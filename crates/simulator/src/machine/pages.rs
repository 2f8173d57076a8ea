//! Simulates which pages of all files a host keeps in memory, with a list in order of last use
//! (LRU).
//!
//! An entry of the list is a range of adjacent pages of one file that were read or written
//! together, within one aligned chunk of 64 KiB. A use moves the whole entry to the recent end of
//! the list. A sequential pass creates one entry per chunk. The number of entries never exceeds the
//! number of pages that fit into memory. Dirty entries stay even if memory is full, because a page
//! can be evicted only after it was written.

use std::collections::BTreeMap;

/// Maximum size of an entry (bytes).
const CHUNK_BYTES: u64 = 64 << 10;
/// Entry number that marks the end of the list.
const NONE: u32 = u32::MAX;

/// A range of resident pages.
#[derive(Clone, Copy, Debug)]
struct Entry {
    file: u32,
    from: u64,
    to: u64,
    /// The range from the first dirty byte to the end of the last dirty byte. Empty if no byte is
    /// dirty.
    dirty: (u64, u64),
    /// Whether the entry is in the list. If a dirty entry is the oldest when memory is full, it
    /// leaves the list but stays in memory.
    listed: bool,
    newer: u32,
    older: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Pages {
    page: u64,
    capacity: u64,
    resident: u64,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// For each file, a map from the start offset of each entry to the number of the entry.
    index: Vec<BTreeMap<u64, u32>>,
    newest: u32,
    oldest: u32,
}

impl Pages {
    /// Creates an empty set of pages, with space for `capacity` bytes.
    pub fn new(page: u64, capacity: u64) -> Pages {
        Pages {
            page,
            capacity,
            resident: 0,
            entries: Vec::new(),
            free: Vec::new(),
            index: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Extends a range of bytes to whole pages.
    pub fn around(&self, from: u64, to: u64) -> (u64, u64) {
        (from / self.page * self.page, to.next_multiple_of(self.page))
    }

    /// Returns the range from the first missing page to the last missing page of a range. `None` if
    /// all pages of the range are resident.
    pub fn missing(&self, file: u32, from: u64, to: u64) -> Option<(u64, u64)> {
        let (from, to) = self.around(from, to);
        let (mut at, mut first, mut last) = (from, None, from);
        for entry in self.overlapping(file, from, to).map(|number| &self.entries[number as usize]) {
            if entry.from > at {
                first = first.or(Some(at));
                last = entry.from;
            }
            at = entry.to;
        }
        if at < to {
            first = first.or(Some(at));
            last = to;
        }
        first.map(|first| (first, last))
    }

    /// Returns the entries that overlap a range, in order of offset.
    fn overlapping(&self, file: u32, from: u64, to: u64) -> impl Iterator<Item = u32> {
        let of_file = self.index.get(file as usize).filter(|index| !index.is_empty());
        of_file.into_iter().flat_map(move |index| {
            // Entries do not overlap, so at most one entry that starts before the range can overlap
            // the range.
            let before = index.range(..from).next_back();
            let reaches = move |number: &u32| self.entries[*number as usize].to > from;
            let before = before.map(|(_, number)| *number).filter(reaches);
            before.into_iter().chain(index.range(from..to).map(|(_, number)| *number))
        })
    }

    /// Returns the part of `index` for a file.
    fn of_file(&mut self, file: u32) -> &mut BTreeMap<u64, u32> {
        let file = file as usize;
        if file >= self.index.len() {
            self.index.resize_with(file + 1, BTreeMap::new);
        }
        &mut self.index[file]
    }

    /// Marks the resident part of a range as used now.
    pub fn touch(&mut self, file: u32, from: u64, to: u64) {
        let newest = self.entries.get(self.newest as usize);
        if newest.is_some_and(|e| e.file == file && e.from <= from && to <= e.to) {
            return;
        }
        let numbers: Vec<u32> = self.overlapping(file, from, to).collect();
        for number in numbers {
            self.unlist(number);
            self.list(number);
        }
    }

    /// Makes all pages of a range resident. If `dirty` is true, the pages must be written before
    /// they can be evicted. If memory is full, the least recently used pages are evicted.
    pub fn hold(&mut self, file: u32, from: u64, to: u64, dirty: bool) {
        let (from, to) = self.around(from, to);
        if self.missing(file, from, to).is_some() {
            self.fill(file, from, to);
        }
        self.touch(file, from, to);
        if dirty {
            let numbers: Vec<u32> = self.overlapping(file, from, to).collect();
            for number in numbers {
                let entry = &mut self.entries[number as usize];
                let (low, high) = (from.max(entry.from), to.min(entry.to));
                let (first, last) = entry.dirty;
                let known = first < last;
                entry.dirty = if known { (first.min(low), last.max(high)) } else { (low, high) };
            }
        }
        self.evict();
    }

    /// Adds entries for the pages of a range that are not resident. The range consists of whole
    /// pages.
    fn fill(&mut self, file: u32, from: u64, to: u64) {
        let held: Vec<(u64, u64)> = self
            .overlapping(file, from, to)
            .map(|number| &self.entries[number as usize])
            .map(|entry| (entry.from, entry.to))
            .collect();
        let mut at = from;
        for (start, end) in held.into_iter().chain([(to, to)]) {
            while at < start {
                let chunk = (at / CHUNK_BYTES + 1) * CHUNK_BYTES;
                let stop = start.min(chunk.max(at + self.page));
                self.add(file, at, stop);
                at = stop;
            }
            at = at.max(end);
        }
    }

    /// Adds a range. If the range continues the newest entry in the same chunk, extends that entry.
    fn add(&mut self, file: u32, from: u64, to: u64) {
        self.resident += to - from;
        if let Some(entry) = self.entries.get_mut(self.newest as usize)
            && (entry.file, entry.to) == (file, from)
            && !from.is_multiple_of(CHUNK_BYTES)
        {
            entry.to = to;
            return;
        }
        let (newer, older) = (NONE, NONE);
        let entry = Entry { file, from, to, dirty: (0, 0), listed: false, newer, older };
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.of_file(file).insert(from, number);
        self.list(number);
    }

    /// Records that the dirty bytes of a range are now on the device. Entries for which
    /// `still_dirty` returns true stay dirty.
    pub fn written(
        &mut self,
        file: u32,
        from: u64,
        to: u64,
        still_dirty: impl Fn(u64, u64) -> bool,
    ) {
        let numbers: Vec<u32> = self.overlapping(file, from, to).collect();
        for number in numbers {
            let entry = &mut self.entries[number as usize];
            if still_dirty(entry.from, entry.to) {
                continue;
            }
            entry.dirty = (0, 0);
            if !entry.listed {
                self.remove(number);
            }
        }
        self.evict();
    }

    /// Evicts the least recently used pages until the remaining pages fit into memory.
    fn evict(&mut self) {
        while self.resident > self.capacity && self.oldest != self.newest {
            let number = self.oldest;
            self.unlist(number);
            let (first, last) = self.entries[number as usize].dirty;
            if first == last {
                self.remove(number);
            } else {
                self.trim(number, first, last);
            }
        }
    }

    /// Removes the pages of an entry that are outside the range `first..last`.
    fn trim(&mut self, number: u32, first: u64, last: u64) {
        let entry = &mut self.entries[number as usize];
        let (file, from) = (entry.file, entry.from);
        self.resident -= first - from + entry.to - last;
        (entry.from, entry.to) = (first, last);
        let index = self.of_file(file);
        index.remove(&from);
        index.insert(first, number);
    }

    fn remove(&mut self, number: u32) {
        let Entry { file, from, to, .. } = self.entries[number as usize];
        self.resident -= to - from;
        self.of_file(file).remove(&from);
        self.free.push(number);
    }

    /// Adds an entry as the newest entry of the list.
    fn list(&mut self, number: u32) {
        let newest = self.newest;
        let entry = &mut self.entries[number as usize];
        (entry.listed, entry.newer, entry.older) = (true, NONE, newest);
        match self.entries.get_mut(newest as usize) {
            Some(before) => before.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
    }

    fn unlist(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        if !std::mem::take(&mut entry.listed) {
            return;
        }
        let (newer, older) = (entry.newer, entry.older);
        match self.entries.get_mut(newer as usize) {
            Some(next) => next.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(next) => next.newer = newer,
            None => self.oldest = newer,
        }
    }
}

/// A set of ranges of bytes or pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Returns the ranges of the set that overlap the given range, in order of offset.
    fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.0.range(..from).next_back().filter(move |(_, end)| **end > from);
        before.into_iter().chain(self.0.range(from..to)).map(|(start, end)| (*start, *end))
    }

    /// Returns the first range at or after `at`. If `at` is within a range, returns the rest of
    /// that range.
    pub fn first_from(&self, at: u64) -> Option<(u64, u64)> {
        self.overlapping(at, u64::MAX).next().map(|(start, end)| (start.max(at), end))
    }

    /// Checks whether any byte of a range is in the set.
    pub fn overlaps(&self, from: u64, to: u64) -> bool {
        self.overlapping(from, to).next().is_some()
    }

    /// Returns the number of ranges. Adjacent ranges count as one.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the first range at or after `at`. If `at` is within a range, returns the rest of
    /// that range. If no range ends after `at`, returns the first range of the set.
    pub fn next(&self, at: u64) -> Option<(u64, u64)> {
        let here = self.overlapping(at, u64::MAX).next().map(|(from, to)| (from.max(at), to));
        here.or_else(|| self.0.first_key_value().map(|(from, to)| (*from, *to)))
    }

    /// Adds a range. Calls `gap` with each part of the range that was not in the set.
    pub fn insert(&mut self, from: u64, to: u64, mut gap: impl FnMut(u64, u64)) {
        let held: Vec<(u64, u64)> = self.overlapping(from, to).collect();
        let mut at = from;
        for (start, end) in &held {
            if *start > at {
                gap(at, *start);
            }
            at = at.max(*end);
        }
        if at < to {
            gap(at, to);
        }
        let (mut first, mut last) = (from, to);
        for (start, end) in held {
            (first, last) = (first.min(start), last.max(end));
            self.0.remove(&start);
        }
        // Adjacent ranges are merged.
        if let Some((start, end)) = self.0.range(..first).next_back()
            && *end == first
        {
            first = *start;
        }
        if let Some(end) = self.0.remove(&last) {
            last = end;
        }
        self.0.insert(first, last);
    }

    /// Removes a range.
    pub fn remove(&mut self, from: u64, to: u64) {
        let held: Vec<(u64, u64)> = self.overlapping(from, to).collect();
        for (start, end) in held {
            self.0.remove(&start);
            if start < from {
                self.0.insert(start, from);
            }
            if end > to {
                self.0.insert(to, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    const PAGE: u64 = 4096;

    /// Returns the numbers of the resident pages of file 0.
    fn resident(pages: &Pages) -> Vec<u64> {
        let there = |page: &u64| pages.missing(0, page * PAGE, (page + 1) * PAGE).is_none();
        (0..1000).filter(there).collect()
    }

    #[test]
    fn the_page_unused_for_longest_leaves_first() {
        let mut pages = Pages::new(PAGE, 3 * PAGE);
        for page in [10, 20, 30] {
            pages.hold(0, page * PAGE, (page + 1) * PAGE, false);
        }
        pages.touch(0, 10 * PAGE, 11 * PAGE);
        pages.hold(0, 40 * PAGE + 5, 40 * PAGE + 6, false);
        assert_eq!(resident(&pages), [10, 30, 40]);
    }

    #[test]
    fn a_dirty_page_keeps_nothing_but_itself_in_memory() {
        let mut pages = Pages::new(PAGE, 4 * PAGE);
        pages.hold(0, 0, 4 * PAGE, false);
        pages.hold(0, PAGE, 2 * PAGE, true);
        pages.hold(0, 20 * PAGE, 23 * PAGE, false);
        assert_eq!(resident(&pages), [1, 20, 21, 22]);
        pages.written(0, PAGE, 2 * PAGE, |_, _| false);
        assert_eq!(resident(&pages), [20, 21, 22]);
    }

    #[test]
    fn dirty_pages_stay_until_they_are_written() {
        let mut pages = Pages::new(PAGE, 2 * PAGE);
        pages.hold(0, 0, PAGE, true);
        for page in [20, 30, 40] {
            pages.hold(0, page * PAGE, (page + 1) * PAGE, false);
        }
        assert_eq!(resident(&pages), [0, 40]);
        pages.written(0, 0, PAGE, |_, _| true);
        assert_eq!(resident(&pages), [0, 40]);
        pages.written(0, 0, PAGE, |_, _| false);
        assert_eq!(resident(&pages), [40]);
    }

    #[test]
    fn what_is_missing_spans_the_gaps_of_a_range() {
        let mut pages = Pages::new(PAGE, 1 << 20);
        pages.hold(0, 2 * PAGE, 3 * PAGE, false);
        pages.hold(0, 5 * PAGE, 6 * PAGE, false);
        pages.hold(1, 0, 10 * PAGE, false);
        assert_eq!(pages.missing(0, PAGE + 1, 4 * PAGE - 1), Some((PAGE, 4 * PAGE)));
        assert_eq!(pages.missing(0, 2 * PAGE, 6 * PAGE), Some((3 * PAGE, 5 * PAGE)));
        assert_eq!(pages.missing(0, 5 * PAGE, 7 * PAGE), Some((6 * PAGE, 7 * PAGE)));
        assert_eq!(pages.missing(0, 2 * PAGE + 7, 2 * PAGE + 8), None);
    }

    #[test]
    fn a_sequential_pass_makes_one_entry_per_chunk() {
        let mut pages = Pages::new(PAGE, 1 << 20);
        for at in (0..16 << 20).step_by(2048) {
            pages.hold(0, at, at + 2048, false);
        }
        assert!(pages.index.len() <= 17 && pages.entries.len() <= 18, "{}", pages.entries.len());
        assert!(pages.resident <= 1 << 20);
    }

    #[test]
    fn random_use_agrees_with_a_list_of_pages() {
        let mut random = Stream::new(5);
        let mut below = |most: f64| (random.share() * most) as u64;
        let mut pages = Pages::new(PAGE, 50 * PAGE);
        // The model is a list of page numbers, least recently used first.
        let mut model: Vec<u64> = Vec::new();
        for _ in 0..20_000 {
            // Only even page numbers are used. They are never adjacent, so each page has its own
            // entry.
            let page = 2 * below(100.0);
            let hit = model.contains(&page);
            assert_eq!(pages.missing(0, page * PAGE, (page + 1) * PAGE).is_none(), hit);
            model.retain(|other| *other != page);
            model.push(page);
            if model.len() > 50 {
                model.remove(0);
            }
            pages.hold(0, page * PAGE, (page + 1) * PAGE, false);
        }
        assert_eq!(pages.resident, 50 * PAGE);
    }

    #[test]
    fn the_next_range_is_the_first_one_upwards_or_else_the_lowest() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.next(0), None);
        ranges.insert(10, 20, |_, _| ());
        ranges.insert(40, 50, |_, _| ());
        ranges.insert(20, 25, |_, _| ());
        assert_eq!(ranges.count(), 2, "adjacent ranges are merged");
        let found = [0, 10, 15, 25, 45, 50].map(|at| ranges.next(at));
        let wanted = [(10, 25), (10, 25), (15, 25), (40, 50), (45, 50), (10, 25)];
        assert_eq!(found, wanted.map(Some));
    }

    #[test]
    fn ranges_agree_with_a_list_of_bytes() {
        let mut random = Stream::new(7);
        let (mut ranges, mut model) = (Ranges::default(), [false; 200]);
        for _ in 0..20_000 {
            let from = (random.share() * 190.0) as u64;
            let to = from + 1 + (random.share() * 9.0) as u64;
            let bytes = &mut model[from as usize..to as usize];
            assert_eq!(ranges.overlaps(from, to), bytes.contains(&true));
            if random.share() < 0.5 {
                let mut new = 0;
                ranges.insert(from, to, |start, end| new += end - start);
                assert_eq!(new, bytes.iter().filter(|byte| !**byte).count() as u64);
                bytes.fill(true);
            } else {
                ranges.remove(from, to);
                bytes.fill(false);
            }
        }
    }
}
