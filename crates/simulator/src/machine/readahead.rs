//! Computes which pages Linux reads when a page is not in memory, or when a reader reaches the mark
//! of an earlier read-ahead.
//!
//! The rules are those of `mm/readahead.c` as of Linux 6.18: `page_cache_sync_ra`,
//! `page_cache_async_ra`, `get_init_ra_size`, `get_next_ra_size`, `page_cache_ra_order`. The
//! comment "On-demand readahead" in that file describes them. All numbers are in pages. The caller
//! provides the pages in memory through the trait `Neighbours`. The result is the pages to read,
//! and the folio that gets the mark.

use ioengine::Hint;

/// Factor by which `POSIX_FADV_SEQUENTIAL` enlarges the maximum read-ahead window (`mm/fadvise.c`).
const SEQUENTIAL_FACTOR: u64 = 2;
/// Amount by which the folio order grows from one window to the next. Folios thus become four times
/// as large (`page_cache_async_ra`).
const ORDER_STEP: u32 = 2;

/// Read-ahead state of an open file (`struct file_ra_state`), in pages.
#[derive(Clone, Debug)]
pub(crate) struct ReadAhead {
    /// Maximum size of a read-ahead window (pages; 0: no read-ahead).
    window_max: u64,
    /// Maximum size of a request to the device (pages; `bdi->io_pages`).
    request_max: u64,
    /// Maximum folio order (base-2 logarithm of the number of pages in a folio).
    order_max: u32,
    hint: Hint,
    start: u64,
    size: u64,
    async_size: u64,
    order: u32,
    /// End of the last read (bytes).
    previous_end: u64,
}

/// A range of pages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub start: u64,
    pub size: u64,
    /// The page whose folio gets the readahead mark. `None` if no folio gets it.
    pub mark: Option<u64>,
    /// Maximum folio order (base-2 logarithm of the number of pages in a folio).
    pub order: u32,
}

/// Tells which pages around a given page are in memory.
pub(crate) trait Neighbours {
    /// Returns the number of consecutive pages before `page` that are in memory, at most `most`.
    fn held_before(&self, page: u64, most: u64) -> u64;
    /// Returns the first page at or after `page` that is not in memory. Checks `most` pages.
    /// `None` if all of them are in memory.
    fn next_missing(&self, page: u64, most: u64) -> Option<u64>;
}

impl ReadAhead {
    /// Returns the state of a newly opened file.
    pub fn new(window_max: u64, request_max: u64, order_max: u32) -> ReadAhead {
        ReadAhead {
            window_max,
            request_max,
            order_max,
            hint: Hint::Normal,
            start: 0,
            size: 0,
            async_size: 0,
            order: 0,
            previous_end: 0,
        }
    }

    /// Applies a hint of posix_fadvise(2). Hints that do not concern the order of reads have no
    /// effect.
    pub fn advise(&mut self, hint: Hint) {
        if matches!(hint, Hint::Normal | Hint::Sequential | Hint::Random) {
            self.hint = hint;
        }
    }

    /// Records that a read has ended at byte `end`.
    pub fn read_until(&mut self, end: u64) {
        self.previous_end = end;
    }

    /// Returns the byte at which the last read ended.
    pub fn previous_end(&self) -> u64 {
        self.previous_end
    }

    /// Returns the maximum number of pages that one `POSIX_FADV_WILLNEED` hint reads
    /// (`force_page_cache_ra`).
    pub fn forced_max(&self) -> u64 {
        self.request_max.max(self.window_max)
    }

    fn most(&self) -> u64 {
        let factor = if self.hint == Hint::Sequential { SEQUENTIAL_FACTOR } else { 1 };
        self.window_max * factor
    }

    /// Returns the maximum window size for a request of `wanted` pages. If the request is larger
    /// than the usual maximum, the window may be as large as the request, up to the largest request
    /// that the device accepts (`ractl_max_pages`).
    fn most_for(&self, wanted: u64) -> u64 {
        let most = self.most();
        if wanted > most && self.request_max > most { wanted.min(self.request_max) } else { most }
    }

    /// Returns the window to read after a miss: a reader needs `wanted` pages, and the first of
    /// them, `page`, is not in memory (`page_cache_sync_ra`).
    pub fn missed(
        &mut self,
        page: u64,
        wanted: u64,
        page_bytes: u64,
        held: &impl Neighbours,
    ) -> Window {
        if self.window_max == 0 || self.hint == Hint::Random {
            let size = if self.window_max == 0 { 1 } else { wanted };
            return Window { start: page, size, mark: None, order: 0 };
        }
        let most = self.most_for(wanted);
        let since_previous = page.checked_sub(self.previous_end / page_bytes);
        let follows = since_previous.is_some_and(|pages| pages <= 1);
        if page == 0 || wanted > most || follows {
            self.size = initial_size(wanted, most);
            self.async_size = if self.size > wanted { self.size - wanted } else { self.size / 2 };
        } else {
            let before = held.held_before(page, most);
            if before <= wanted {
                // A random read does not change the read-ahead state.
                return Window { start: page, size: wanted, mark: None, order: 0 };
            }
            let history = if before == page { before * 2 } else { before };
            self.size = (history + wanted).min(most);
            self.async_size = 1;
        }
        self.start = page;
        self.order = 0;
        self.window()
    }

    /// Returns the window to read when a reader has reached the readahead mark
    /// (`page_cache_async_ra`). The reader needs `wanted` pages. The first of them is `page`, where
    /// the marked folio of `folio_pages` pages starts. Returns `None` if nothing must be read.
    pub fn reached_mark(
        &mut self,
        page: u64,
        folio_pages: u64,
        wanted: u64,
        held: &impl Neighbours,
    ) -> Option<Window> {
        if self.window_max == 0 {
            return None;
        }
        let most = self.most_for(wanted);
        let expected = (self.start + self.size - self.async_size) / folio_pages * folio_pages;
        if page == expected {
            self.start += self.size;
            self.size = self.size.max(next_size(self.size, most));
        } else {
            let start = held.next_missing(page + 1, most).filter(|start| start - page <= most)?;
            self.start = start;
            self.size = next_size(start - page + wanted, most);
        }
        self.order += ORDER_STEP;
        // The end of the window is rounded down to a multiple of the folio size.
        let align = 1 << self.order.min(most.trailing_zeros());
        let end = (self.start + self.size) / align * align;
        if end > self.start {
            self.size = end - self.start;
        }
        self.async_size = self.size;
        Some(self.window())
    }

    fn window(&mut self) -> Window {
        self.order = self.order.min(self.order_max).min(self.size.max(1).ilog2());
        let mark = Some(self.start + self.size - self.async_size);
        Window { start: self.start, size: self.size, mark, order: self.order }
    }
}

/// Returns the size of the first window for a request of `wanted` pages (`get_init_ra_size`).
fn initial_size(wanted: u64, most: u64) -> u64 {
    let size = wanted.next_power_of_two();
    if size <= most / 32 {
        size * 4
    } else if size <= most / 4 {
        size * 2
    } else {
        most
    }
}

/// Returns the size of the window that follows a window of `size` pages (`get_next_ra_size`).
fn next_size(size: u64, most: u64) -> u64 {
    if size < most / 16 {
        size * 4
    } else if size <= most / 2 {
        size * 2
    } else {
        most
    }
}

/// Returns the number of pages of the folio that starts at `page`, and whether this folio gets the
/// readahead mark (`page_cache_ra_order`, `ra_alloc_folio`). A folio starts at a multiple of its
/// size and does not extend beyond page `last`.
pub(crate) fn folio_at(window: &Window, page: u64, last: u64) -> (u64, bool) {
    let mut order = window.order.min(page.trailing_zeros());
    while order > 0 && page + (1 << order) - 1 > last {
        order -= 1;
    }
    let pages = 1_u64 << order;
    (pages, window.mark.is_some_and(|mark| mark / pages * pages == page))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    /// The vector lists the pages in memory.
    impl Neighbours for Vec<u64> {
        fn held_before(&self, page: u64, most: u64) -> u64 {
            (1..=most.min(page)).take_while(|step| self.contains(&(page - step))).count() as u64
        }

        fn next_missing(&self, page: u64, most: u64) -> Option<u64> {
            (page..page + most).find(|page| !self.contains(page))
        }
    }

    /// Simulates a reader that issues `count` requests of `wanted` pages, starting at page `first`.
    /// Returns the start, the size and the mark of each window.
    fn windows(state: &mut ReadAhead, first: u64, wanted: u64, count: u64) -> Vec<[u64; 3]> {
        let (mut held, mut marks, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for request in 0..count {
            let (from, end) = (first + request * wanted, first + (request + 1) * wanted);
            for page in from..end {
                let found = if !held.contains(&page) {
                    Some(state.missed(page, end - page, PAGE, &held))
                } else if let Some(at) = marks.iter().position(|mark| *mark == page) {
                    marks.remove(at);
                    state.reached_mark(page, 1, end - page, &held)
                } else {
                    None
                };
                if let Some(window) = found {
                    let Window { start, size, mark, .. } = window;
                    held.extend(start..start + size);
                    marks.extend(mark);
                    all.push([start, size, mark.unwrap_or(u64::MAX)]);
                }
            }
            state.read_until(end * PAGE);
        }
        all
    }

    fn state(window_max: u64) -> ReadAhead {
        ReadAhead::new(window_max, 256, 0)
    }

    #[test]
    fn windows_of_a_sequential_reader_grow_fourfold_then_twofold_up_to_the_maximum() {
        // The maximum is 32 pages (128 KiB). The request of 1 page is at most 1/32 of the maximum,
        // so the first window is four times as large, and the mark is right after the requested
        // page. A window of 4 pages is at least 1/16 of the maximum, so each further window
        // doubles: 8, 16, 32. Then the size stays at 32 pages.
        let all = windows(&mut state(32), 0, 1, 60);
        assert_eq!(all[..4], [[0, 4, 1], [4, 8, 4], [12, 16, 12], [28, 32, 28]]);
        assert_eq!(all[4], [60, 32, 60]);
    }

    #[test]
    fn large_windows_begin_fourfold() {
        // The maximum is 256 pages (1 MiB). A window of 4 pages is less than 1/16 of the maximum,
        // so the next window is four times as large. 16 pages are at least 1/16 of the maximum, so
        // the further windows double: 32, 64, 128, 256.
        let sizes: Vec<u64> = windows(&mut state(256), 0, 1, 400).iter().map(|w| w[1]).collect();
        assert_eq!(sizes[..6], [4, 16, 32, 64, 128, 256]);
    }

    #[test]
    fn a_first_request_of_half_the_maximum_gets_all_of_it() {
        // A request of 16 pages is more than a quarter of the 32-page maximum, so the window gets
        // the maximum size, and the mark is right after the request.
        assert_eq!(windows(&mut state(32), 0, 16, 1), [[0, 32, 16]]);
        // A request of 8 pages is at most a quarter of the maximum, so the window is twice the
        // request.
        assert_eq!(windows(&mut state(32), 0, 8, 1), [[0, 16, 8]]);
    }

    #[test]
    fn a_request_above_the_maximum_is_read_whole_as_far_as_the_device_takes_it() {
        // The request (256 pages) is larger than the read-ahead maximum (4 pages), but the device
        // accepts 256 pages. The window is therefore as large as the request, and the mark is in
        // the middle of the window.
        assert_eq!(windows(&mut state(4), 0, 256, 1), [[0, 256, 128], [256, 256, 256]]);
        let mut small = ReadAhead::new(4, 4, 0);
        assert_eq!(windows(&mut small, 0, 8, 1)[0], [0, 4, 2]);
    }

    #[test]
    fn a_random_read_brings_its_own_pages_and_leaves_the_state() {
        let mut state = state(32);
        let all = windows(&mut state, 1000, 2, 1);
        assert_eq!((all, state.size), (vec![[1000, 2, u64::MAX]], 0));
        // The next request continues where the last one ended, so it counts as sequential. The
        // first window has 4 pages, twice the request.
        assert_eq!(windows(&mut state, 1002, 2, 1), [[1002, 4, 1004]]);
    }

    #[test]
    fn pages_in_memory_before_a_miss_count_as_a_stream() {
        let mut state = state(32);
        let held: Vec<u64> = (90..100).collect();
        let window = state.missed(100, 2, PAGE, &held);
        assert_eq!((window.start, window.size, window.mark), (100, 12, Some(111)));
        // All 10 pages before the miss, up to the beginning of the file, are in memory. The window
        // size counts them twice: 2 x 10 + 2 pages.
        let held: Vec<u64> = (0..10).collect();
        assert_eq!(state.missed(10, 2, PAGE, &held).size, 22);
    }

    #[test]
    fn hints_double_the_windows_or_end_read_ahead() {
        let mut wide = state(32);
        wide.advise(Hint::Sequential);
        let sizes: Vec<u64> = windows(&mut wide, 0, 1, 200).iter().map(|w| w[1]).collect();
        assert_eq!(sizes[..6], [4, 8, 16, 32, 64, 64]);
        let mut none = state(32);
        none.advise(Hint::Random);
        none.advise(Hint::NoReuse);
        assert_eq!(windows(&mut none, 0, 2, 2), [[0, 2, u64::MAX], [2, 2, u64::MAX]]);
        // Without read-ahead, each miss reads one page.
        let single: Vec<u64> = windows(&mut state(0), 0, 2, 1).iter().map(|w| w[1]).collect();
        assert_eq!(single, [1, 1]);
    }

    #[test]
    fn folios_grow_with_the_windows_and_lie_at_multiples_of_their_size() {
        let mut state = ReadAhead::new(256, 256, 9);
        let held = Vec::new();
        assert_eq!(state.missed(0, 1, PAGE, &held).order, 0);
        let next = state.reached_mark(1, 1, 1, &held).unwrap();
        assert_eq!((next.start, next.size, next.order), (4, 16, 2));
        let window = Window { start: 4, size: 16, mark: Some(4), order: 3 };
        assert_eq!(folio_at(&window, 4, 19), (4, true));
        assert_eq!(folio_at(&window, 8, 19), (8, false));
        assert_eq!(folio_at(&window, 16, 19), (4, false));
    }
}
