//! Buffers of an engine: one contiguous, aligned region, divided into slots. Each request in flight
//! uses one slot.
//!
//! The region is one mapping, so that it can be registered with the kernel as a single buffer. Huge
//! pages are used if possible, because a device accepts only a limited number of memory segments
//! per request: with 4 KiB pages, the kernel splits large requests. Safe code cannot access a slot
//! while the kernel uses it.
//!
//! Requests to a stripe are split into pieces, and each piece has its own slot. The pieces of a
//! request share one memory area, and each piece uses a separate part of this area.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, ErrorKind};
use crate::mapping::Mapping;
use crate::request::Request;

/// The type of memory pages for the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum BufferPages {
    /// The buffers use huge pages if the kernel provides them, otherwise ordinary pages.
    #[default]
    Huge,
    /// The buffers use only ordinary 4 KiB pages.
    Small,
}

/// Alignment of slots (bytes). No device requires a larger alignment.
pub const SLOT_ALIGNMENT: usize = 4096;
/// Size of a huge page (bytes).
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The buffer slots of one engine.
#[derive(Debug)]
pub struct SlotBuffers {
    mapping: Option<Mapping>,
    /// Whether the memory is put into `POOL` when this value is dropped.
    pooled: bool,
    base: *mut u8,
    /// Distance between the starts of two memory areas (bytes).
    stride: usize,
    /// Base-2 logarithm of the number of slots that share a memory area.
    share_bits: u32,
    slot_bytes: usize,
    lent: Vec<bool>,
    in_flight: u32,
}

// SAFETY: `base` points into `mapping`, which this value owns. Mapping is Send.
unsafe impl Send for SlotBuffers {}
// SAFETY: no method that takes `&self` accesses the memory.
unsafe impl Sync for SlotBuffers {}

/// Buffer memory of dropped engines, which later engines reuse. Without the pool, mapping the
/// memory and touching each page would take longer than reading a small file.
static POOL: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());
/// Maximum size of the pool (bytes).
static POOL_BYTES: AtomicUsize = AtomicUsize::new(64 << 20);

/// Frees the memory that is kept for later engines, and lowers the limit on this memory to `bytes`.
/// The initial limit is 64 MiB. Processes with little memory call this function.
pub fn limit_pool(bytes: usize) {
    POOL_BYTES.fetch_min(bytes, Ordering::Relaxed);
    POOL.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Takes a mapping with this length and page type from the pool. None if the pool has no such
/// mapping.
fn from_pool(length: usize, huge: bool) -> Option<Mapping> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |mapping: &Mapping| mapping.length() == length && mapping.is_huge() == huge;
    let place = pool.iter().position(fits)?;
    Some(pool.swap_remove(place))
}

fn into_pool(mapping: Mapping) {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let held: usize = pool.iter().map(Mapping::length).sum();
    if held + mapping.length() <= POOL_BYTES.load(Ordering::Relaxed) {
        pool.push(mapping);
    }
}

impl SlotBuffers {
    /// Allocates `slots` slots of `slot_bytes` each, and touches every page so that no page fault
    /// occurs during a measurement.
    pub fn new(slots: u32, slot_bytes: usize, pages: BufferPages) -> Result<Self, Error> {
        SlotBuffers::shared(slots, 0, slot_bytes, pages, false)
    }

    /// Allocates `memories` memory areas of `slot_bytes` each, and touches every page. Each area is
    /// shared by `1 << share_bits` slots. With `pooled`, memory of the right size that a dropped
    /// engine of this process left is reused.
    pub fn shared(
        memories: u32,
        share_bits: u32,
        slot_bytes: usize,
        pages: BufferPages,
        pooled: bool,
    ) -> Result<Self, Error> {
        let huge = pages == BufferPages::Huge;
        let granule = if huge { HUGE_PAGE_BYTES } else { SLOT_ALIGNMENT };
        let stride = slot_bytes.max(1).checked_next_multiple_of(SLOT_ALIGNMENT);
        let total = stride.and_then(|stride| stride.checked_mul(memories as usize));
        let length = total
            .and_then(|total| total.checked_next_multiple_of(granule))
            .and_then(|length| length.checked_add(if huge { HUGE_PAGE_BYTES } else { 0 }));
        let (Some(stride), Some(total), Some(length)) = (stride, total, length) else {
            return Err(too_large(io::Error::from_raw_os_error(libc::ENOMEM), usize::MAX));
        };
        let reused = if pooled { from_pool(length, huge) } else { None };
        let is_touched = reused.is_some();
        let mapping = match reused {
            Some(mapping) => mapping,
            None => Mapping::new(length, huge).map_err(|e| too_large(e, total))?,
        };
        let skip = mapping.base().align_offset(granule);
        // SAFETY: with huge pages, the mapping is `granule` bytes longer than `total`, and `skip`
        // is less than `granule`. Without huge pages, the mapping is page-aligned and `skip` is 0.
        let base = unsafe { mapping.base().add(skip) };
        let lent = vec![false; (memories as usize) << share_bits];
        let mapping = Some(mapping);
        let mut buffers = SlotBuffers {
            mapping,
            pooled,
            base,
            stride,
            share_bits,
            slot_bytes,
            lent,
            in_flight: 0,
        };
        if !is_touched {
            buffers.touch(total);
        }
        Ok(buffers)
    }

    fn touch(&mut self, total: usize) {
        for at in (0..total).step_by(SLOT_ALIGNMENT) {
            // SAFETY: `at` is inside the region. The write is volatile so that the compiler does
            // not remove it.
            unsafe { self.base.add(at).write_volatile(0) };
        }
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u32 {
        self.lent.len() as u32
    }

    /// Returns the number of slots that are lent to the kernel.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the memory of a slot.
    ///
    /// # Panics
    /// If this slot, or a slot that shares its memory, is in flight.
    pub fn slot_mut(&mut self, slot: u32) -> &mut [u8] {
        let memory = slot as usize >> self.share_bits;
        let first = memory << self.share_bits;
        let sharing = &self.lent[first..first + (1 << self.share_bits)];
        assert!(!sharing.contains(&true), "slot {slot} is in flight");
        // SAFETY: the memory lies inside the region, is not lent, and `self` is borrowed mutably.
        unsafe {
            let base = self.base.add(self.stride * memory);
            std::slice::from_raw_parts_mut(base, self.slot_bytes)
        }
    }

    /// Returns the address and the length of the whole region, for its registration with the
    /// kernel.
    pub fn region(&self) -> (*mut u8, usize) {
        (self.base, self.stride * (self.lent.len() >> self.share_bits))
    }

    /// Lends a slot to the kernel and returns the memory address for this request.
    ///
    /// # Panics
    /// If the slot is already in flight or the request does not fit into it.
    #[inline]
    pub(crate) fn lend(&mut self, request: &Request) -> *mut u8 {
        let end = request.within as usize + request.length as usize;
        assert!(end <= self.slot_bytes, "the request does not fit its slot");
        let lent = &mut self.lent[request.slot as usize];
        assert!(!*lent, "the slot is already in flight");
        *lent = true;
        self.in_flight += 1;
        let memory = request.slot as usize >> self.share_bits;
        // SAFETY: slot < slots (indexed above) and within + length <= slot_bytes.
        unsafe { self.base.add(self.stride * memory + request.within as usize) }
    }

    /// Takes a slot back from the kernel.
    #[inline]
    pub(crate) fn take_back(&mut self, slot: u32) {
        let lent = &mut self.lent[slot as usize];
        debug_assert!(*lent, "a slot was returned twice");
        self.in_flight -= u32::from(*lent);
        *lent = false;
    }

    /// Leaks the memory. Used if requests do not complete, because the kernel may still write to
    /// the memory.
    pub(crate) fn leak(mut self) {
        std::mem::forget(self.mapping.take());
    }

    /// Returns the size of the buffers, and the part of them that is on huge pages according to
    /// /proc/self/smaps (bytes).
    pub fn pages(&self) -> (u64, u64) {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        (self.region().1 as u64, huge_bytes_at(&maps, self.base as u64))
    }
}

impl Drop for SlotBuffers {
    fn drop(&mut self) {
        if let Some(mapping) = self.mapping.take().filter(|_| self.pooled) {
            into_pool(mapping);
        }
    }
}

/// Returns the value of `AnonHugePages` in smaps for the mapping that contains `address` (bytes).
pub(crate) fn huge_bytes_at(smaps: &str, address: u64) -> u64 {
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap_or("");
        if let Some((low, high)) = first.split_once('-') {
            let bound = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            inside = (bound(low)..bound(high)).contains(&address);
        } else if inside && first == "AnonHugePages:" {
            let kib = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
            return kib.unwrap_or(0).saturating_mul(1024);
        }
    }
    0
}

fn too_large(source: io::Error, total: usize) -> Error {
    Error::io(format!("allocating {total} bytes for buffers"), source)
        .of_kind(ErrorKind::Usage)
        .with_remedy("use a smaller request size, depth or number of threads")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    fn request(slot: u32, within: u32, length: u32) -> Request {
        Request { offset: 0, length, within, slot, file: 0, op: Op::Read }
    }

    #[test]
    fn slots_are_aligned_and_separate() {
        let mut buffers = SlotBuffers::new(3, 5000, BufferPages::Small).unwrap();
        for slot in 0..3 {
            let memory = buffers.slot_mut(slot);
            assert_eq!(memory.len(), 5000);
            assert_eq!(memory.as_ptr() as usize % SLOT_ALIGNMENT, 0);
            memory.fill(slot as u8);
        }
        assert!(buffers.slot_mut(1).iter().all(|byte| *byte == 1));
    }

    #[test]
    #[should_panic(expected = "in flight")]
    fn a_lent_slot_cannot_be_reached() {
        let mut buffers = SlotBuffers::new(1, 4096, BufferPages::Small).unwrap();
        buffers.lend(&request(0, 0, 4096));
        buffers.slot_mut(0);
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_request_past_its_slot_is_refused() {
        let mut buffers = SlotBuffers::new(1, 4096, BufferPages::Small).unwrap();
        buffers.lend(&request(0, 512, 4096));
    }

    #[test]
    fn a_slot_comes_back() {
        let mut buffers = SlotBuffers::new(2, 4096, BufferPages::Small).unwrap();
        buffers.lend(&request(1, 0, 512));
        assert_eq!(buffers.in_flight(), 1);
        buffers.take_back(1);
        assert_eq!(buffers.in_flight(), 0);
        buffers.slot_mut(1)[0] = 1;
    }

    #[test]
    fn shared_memory_is_accessible_when_all_its_slots_are_back() {
        let mut buffers = SlotBuffers::shared(2, 1, 8192, BufferPages::Small, false).unwrap();
        assert_eq!((buffers.slots(), buffers.region().1), (4, 2 * 8192));
        let one = buffers.lend(&request(2, 0, 4096));
        let two = buffers.lend(&request(3, 4096, 4096));
        assert_eq!(two as usize - one as usize, 4096, "each piece has a separate part");
        buffers.slot_mut(0)[0] = 1;
        buffers.take_back(3);
        let reached = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            buffers.slot_mut(3)[0] = 1;
        }));
        assert!(reached.is_err(), "the memory of slot 2 is still lent");
        buffers.take_back(2);
        assert_eq!(buffers.slot_mut(3).as_ptr(), one.cast_const());
    }

    #[test]
    fn pooled_memory_is_reused() {
        let make = || SlotBuffers::shared(3, 0, 40_960, BufferPages::Small, true).unwrap();
        let mut first = make();
        first.slot_mut(0)[0] = 7;
        let (address, _) = first.region();
        let apart = make();
        assert_ne!(apart.region().0, address, "memory in use was taken from the pool");
        drop(first);
        assert_eq!(make().region().0, address);
    }

    #[test]
    fn huge_pages_are_read_from_the_right_mapping() {
        let smaps = "1000-2000 rw-p 0 00:00 0\nAnonHugePages:   0 kB\n\
                     200000-600000 rw-p 0 00:00 0\nRss: 4096 kB\nAnonHugePages:  4096 kB\n";
        assert_eq!(huge_bytes_at(smaps, 0x20_0000), 4096 * 1024);
        assert_eq!(huge_bytes_at(smaps, 0x1000), 0);
        let absurd = "1000-2000 rw-p\nAnonHugePages: 18446744073709551615 kB\n";
        assert_eq!(huge_bytes_at(absurd, 0x1000), u64::MAX);
    }
}
