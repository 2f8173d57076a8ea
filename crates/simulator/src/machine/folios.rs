//! Simulates which pages Linux keeps in memory, with an inactive list, an active list, and a record
//! of evicted pages.
//!
//! A new page enters the inactive list. When the page is used a second time, it moves to the active
//! list. A page that is read again soon after its eviction enters the active list immediately.
//! Reclaim evicts clean pages from the old end of the inactive list. It moves pages from the active
//! list to the inactive list while the inactive list is too short, or when evicted pages have been
//! read again. The rules are those of `mm/swap.c` (`folio_mark_accessed`), `mm/workingset.c`
//! (`workingset_refault`) and `mm/vmscan.c` (`shrink_lruvec`, `shrink_active_list`,
//! `inactive_is_low`) as of Linux 6.18, without swap, memory mappings and the multi-generational
//! LRU. An entry of a list is a folio: one page, or several pages that were read together.

use std::collections::{BTreeMap, HashMap};

use super::readahead::Neighbours;

/// Folio number that marks the end of a list.
const NONE: u32 = u32::MAX;
/// Number of pages that a reclaim tries to free (`SWAP_CLUSTER_MAX`).
const RECLAIM_PAGES: u64 = 32;
/// The first scan of a reclaim covers 1/2^n of each list, where n is this number. Each further scan
/// covers twice as much (`DEF_PRIORITY`).
const FIRST_PRIORITY: u32 = 12;
/// An eviction is remembered until at least `REMEMBERED * capacity` further pages have been evicted
/// or activated.
const REMEMBERED: u64 = 2;

/// A folio and its state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folio {
    pub file: u32,
    /// Index of the first page within the file.
    pub first: u64,
    pub pages: u64,
    /// Whether the folio is being read from the device.
    pub fetching: bool,
    /// Whether a reader that reaches the folio starts the next read-ahead.
    pub marked: bool,
    /// Number of pages that are dirty or are being written.
    pub unwritten: u32,
    referenced: bool,
    active: bool,
    newer: u32,
    older: u32,
}

/// The inactive or the active list: its newest and oldest folio, and its number of pages.
#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
    pages: u64,
}

const EMPTY: List = List { newest: NONE, oldest: NONE, pages: 0 };

/// The page cache of a host.
#[derive(Clone, Debug)]
pub(crate) struct Folios {
    capacity: u64,
    folios: Vec<Folio>,
    free: Vec<u32>,
    /// Maps the file and the first page of each folio to the number of the folio.
    index: BTreeMap<(u32, u64), u32>,
    /// The inactive list and the active list.
    lists: [List; 2],
    /// Total number of pages that were evicted or activated.
    age: u64,
    /// Maps the file and the first page of each evicted folio to the value of `age` at the
    /// eviction.
    gone: HashMap<(u32, u64), u64>,
    /// Whether evicted pages have returned to the active list since the last reclaim.
    came_back: bool,
}

impl Folios {
    /// Creates an empty cache with space for `capacity` pages.
    pub fn new(capacity: u64) -> Folios {
        Folios {
            capacity,
            folios: Vec::new(),
            free: Vec::new(),
            index: BTreeMap::new(),
            lists: [EMPTY; 2],
            age: 0,
            gone: HashMap::new(),
            came_back: false,
        }
    }

    /// Returns the number of the folio that contains a page. None if the page is not in memory.
    pub fn find(&self, file: u32, page: u64) -> Option<u32> {
        let (key, number) = self.index.range(..=(file, page)).next_back()?;
        let folio = &self.folios[*number as usize];
        (key.0 == file && page < folio.first + folio.pages).then_some(*number)
    }

    /// Returns the folio with the given number.
    pub fn get(&self, number: u32) -> &Folio {
        &self.folios[number as usize]
    }

    /// Returns a mutable reference to the folio with the given number.
    pub fn get_mut(&mut self, number: u32) -> &mut Folio {
        &mut self.folios[number as usize]
    }

    /// Returns the numbers of the folios that overlap a range of pages, in order of offset.
    pub fn within(&self, file: u32, from: u64, to: u64) -> Vec<u32> {
        let first = self.find(file, from).filter(|number| self.get(*number).first < from);
        let rest = self.index.range((file, from)..(file, to)).map(|(_, number)| *number);
        first.into_iter().chain(rest).collect()
    }

    /// Adds a folio that is not in memory yet, and returns its number. If there is no space, other
    /// folios are evicted.
    pub fn add(&mut self, file: u32, first: u64, pages: u64) -> u32 {
        let returns = self.gone.remove(&(file, first)).is_some_and(|left| {
            // The page returns to the active list if the number of pages that were evicted or
            // activated since the eviction does not exceed the size of the active list.
            self.age - left <= self.lists[1].pages
        });
        if returns {
            self.age += pages;
            self.came_back = true;
        }
        let folio = Folio {
            file,
            first,
            pages,
            fetching: false,
            marked: false,
            unwritten: 0,
            referenced: false,
            active: returns,
            newer: NONE,
            older: NONE,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.folios[number as usize] = folio;
                number
            }
            None => {
                self.folios.push(folio);
                self.folios.len() as u32 - 1
            }
        };
        self.index.insert((file, first), number);
        self.push(number);
        while self.pages() > self.capacity && self.reclaim() {}
        number
    }

    /// Drops the clean folios that are completely in a range of pages (`mapping_try_invalidate`).
    /// This is not recorded as an eviction.
    pub fn drop_within(&mut self, file: u32, from: u64, to: u64) {
        for number in self.within(file, from, to) {
            let Folio { first, pages, fetching, unwritten, .. } = *self.get(number);
            if first >= from && first + pages <= to && !fetching && unwritten == 0 {
                self.unlink(number);
                self.index.remove(&(file, first));
                self.free.push(number);
            }
        }
    }

    /// Marks a folio as used (`folio_mark_accessed`).
    pub fn mark_used(&mut self, number: u32) {
        let folio = &mut self.folios[number as usize];
        if !folio.referenced {
            folio.referenced = true;
        } else if !folio.active {
            let pages = folio.pages;
            folio.referenced = false;
            self.unlink(number);
            self.folios[number as usize].active = true;
            self.push(number);
            self.age += pages;
        }
    }

    /// Returns the number of pages in memory.
    pub fn pages(&self) -> u64 {
        self.lists[0].pages + self.lists[1].pages
    }

    /// Frees some pages. Returns false if no page could be freed.
    fn reclaim(&mut self) -> bool {
        let [inactive, active] = self.lists.map(|list| list.pages);
        // The active list may be up to `ratio` times as large as the inactive list
        // (`inactive_is_low`). The ratio is sqrt(10 * g), where g is the size of both lists
        // together in GiB (1 if g < 1).
        let gib = (inactive + active) >> 18;
        let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
        let deactivates = std::mem::take(&mut self.came_back) || inactive * ratio < active;
        let mut freed = 0;
        for priority in (0..=FIRST_PRIORITY).rev() {
            let mut look = self.lists.map(|list| list.pages >> priority);
            look[1] = if deactivates { look[1] } else { 0 };
            while look[0] + look[1] > 0 && freed < RECLAIM_PAGES {
                let now = look.map(|pages| pages.min(RECLAIM_PAGES));
                self.deactivate(now[1]);
                freed += self.shrink(now[0]);
                look = [look[0] - now[0], look[1] - now[1]];
            }
            if freed >= RECLAIM_PAGES {
                break;
            }
        }
        freed > 0
    }

    /// Moves the oldest folios of the active list to the inactive list.
    fn deactivate(&mut self, pages: u64) {
        let mut moved = 0;
        while moved < pages && self.lists[1].oldest != NONE {
            let number = self.lists[1].oldest;
            moved += self.get(number).pages;
            self.unlink(number);
            self.get_mut(number).active = false;
            self.push(number);
        }
    }

    /// Scans the oldest folios of the inactive list. Frees clean folios and activates dirty folios.
    /// Returns the number of pages that were freed.
    fn shrink(&mut self, pages: u64) -> u64 {
        let (mut looked, mut freed) = (0, 0);
        while looked < pages && self.lists[0].oldest != NONE {
            let number = self.lists[0].oldest;
            let Folio { file, first, pages, fetching, unwritten, .. } = *self.get(number);
            looked += pages;
            self.unlink(number);
            if fetching || unwritten > 0 {
                self.get_mut(number).active = unwritten > 0;
                self.push(number);
                continue;
            }
            freed += pages;
            self.age += pages;
            self.index.remove(&(file, first));
            self.free.push(number);
            self.remember(file, first);
        }
        freed
    }

    fn remember(&mut self, file: u32, first: u64) {
        self.gone.insert((file, first), self.age);
        let most = self.capacity * REMEMBERED;
        if self.gone.len() as u64 > 2 * most {
            let age = self.age;
            self.gone.retain(|_, left| age - *left <= most);
        }
    }

    /// Adds a folio as the newest folio of its list.
    fn push(&mut self, number: u32) {
        let folio = &self.folios[number as usize];
        let (list, pages) = (usize::from(folio.active), folio.pages);
        let newest = self.lists[list].newest;
        match self.folios.get_mut(newest as usize) {
            Some(before) => before.newer = number,
            None => self.lists[list].oldest = number,
        }
        let folio = &mut self.folios[number as usize];
        (folio.newer, folio.older) = (NONE, newest);
        self.lists[list].newest = number;
        self.lists[list].pages += pages;
    }

    fn unlink(&mut self, number: u32) {
        let Folio { active, pages, newer, older, .. } = self.folios[number as usize];
        let list = &mut self.lists[usize::from(active)];
        list.pages -= pages;
        if newer == NONE {
            list.newest = older;
        }
        if older == NONE {
            list.oldest = newer;
        }
        if let Some(next) = self.folios.get_mut(newer as usize) {
            next.older = older;
        }
        if let Some(next) = self.folios.get_mut(older as usize) {
            next.newer = newer;
        }
    }
}

/// A view of the folios of one file.
pub(crate) struct OfFile<'a> {
    pub folios: &'a Folios,
    pub file: u32,
}

impl Neighbours for OfFile<'_> {
    fn held_before(&self, page: u64, most: u64) -> u64 {
        let least = page.saturating_sub(most);
        let mut at = page;
        while at > least
            && let Some(number) = self.folios.find(self.file, at - 1)
        {
            at = self.folios.get(number).first;
        }
        page - at.max(least)
    }

    fn next_missing(&self, page: u64, most: u64) -> Option<u64> {
        let mut at = page;
        while let Some(number) = self.folios.find(self.file, at) {
            let folio = self.folios.get(number);
            at = folio.first + folio.pages;
            if at >= page + most {
                return None;
            }
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    /// Accesses pages of file 0 `uses` times. `draw` chooses each page. Returns the share of
    /// accesses whose page was in memory.
    fn hits(folios: &mut Folios, uses: u32, mut draw: impl FnMut() -> u64) -> f64 {
        let mut found = 0;
        for _ in 0..uses {
            let page = draw();
            let number = match folios.find(0, page) {
                Some(number) => {
                    found += 1;
                    number
                }
                None => folios.add(0, page, 1),
            };
            folios.mark_used(number);
        }
        f64::from(found) / f64::from(uses)
    }

    #[test]
    fn uniform_uses_find_the_share_that_fits() {
        let mut random = Stream::new(5);
        let mut folios = Folios::new(4000);
        let mut draw = || (random.share() * 8000.0) as u64;
        hits(&mut folios, 40_000, &mut draw);
        let share = hits(&mut folios, 80_000, &mut draw);
        assert!((share - 0.5).abs() < 0.02, "{share}");
        assert!(folios.pages() <= 4000 && folios.pages() > 3900, "{}", folios.pages());
    }

    #[test]
    fn pages_used_twice_survive_a_pass_over_a_large_file() {
        let mut folios = Folios::new(1000);
        for _ in 0..3 {
            (0..100).for_each(|page| {
                hits(&mut folios, 1, || page);
            });
        }
        (1000..20_000).for_each(|page| {
            hits(&mut folios, 1, || page);
        });
        assert_eq!((0..100).filter(|page| folios.find(0, *page).is_some()).count(), 100);
    }

    #[test]
    fn unwritten_and_arriving_folios_stay() {
        let mut folios = Folios::new(100);
        let dirty = folios.add(0, 0, 1);
        folios.get_mut(dirty).unwritten = 1;
        let arriving = folios.add(0, 1, 1);
        folios.get_mut(arriving).fetching = true;
        for page in 10..1000 {
            folios.add(0, page, 1);
        }
        assert!(folios.find(0, 0).is_some() && folios.find(0, 1).is_some());
        assert!(folios.pages() <= 100);
        folios.get_mut(arriving).fetching = false;
        for page in 1000..3000 {
            folios.add(0, page, 1);
        }
        assert!(folios.find(0, 0).is_some() && folios.find(0, 1).is_none());
    }

    #[test]
    fn a_page_of_a_large_folio_is_found_and_its_neighbours_are_counted() {
        let mut folios = Folios::new(1000);
        folios.add(3, 8, 8);
        folios.add(3, 16, 1);
        assert!(folios.find(3, 7).is_none() && folios.find(2, 8).is_none());
        assert_eq!(folios.find(3, 15), folios.find(3, 8));
        let of_file = OfFile { folios: &folios, file: 3 };
        assert_eq!((of_file.held_before(17, 100), of_file.held_before(17, 4)), (9, 4));
        assert_eq!((of_file.next_missing(9, 100), of_file.next_missing(9, 4)), (Some(17), None));
        assert_eq!(folios.within(3, 12, 17).len(), 2);
    }
}
