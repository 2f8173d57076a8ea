//! Stores the contents of the served file in memory, and applies injected faults.
//!
//! Only written pages use memory. All other pages read as zeros.

use std::collections::BTreeMap;

use ioengine::fault::Fault;

/// Size of a page (bytes).
const PAGE: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Content {
    size: u64,
    /// The written pages, by page number.
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Content {
    /// Returns the contents of a file of `size` zero bytes.
    pub(crate) fn new(size: u64) -> Content {
        Content { size, pages: BTreeMap::new() }
    }

    /// Returns how many bytes of a range are inside the file.
    fn clip(&self, offset: u64, length: usize) -> usize {
        (length as u64).min(self.size.saturating_sub(offset)) as usize
    }

    /// Splits a range at page boundaries and calls `each` for every page. The arguments of `each`
    /// are the page number, the range of bytes within the page, and the offset of these bytes
    /// within the whole range.
    fn for_pages(
        offset: u64,
        length: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>, usize),
    ) {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = (at % PAGE as u64) as usize;
            let count = (PAGE - within).min(length - done);
            each(at / PAGE as u64, within..within + count, done);
            done += count;
        }
    }

    /// Reads a range and applies a fault. Bytes beyond the end of the file are left out.
    pub(crate) fn read(&self, offset: u64, length: u32, fault: Fault) -> Vec<u8> {
        let wanted = match fault {
            Fault::Short(most) => length.min(most.max(1)),
            _ => length,
        };
        let mut data = vec![0; self.clip(offset, wanted as usize)];
        Content::for_pages(offset, data.len(), |page, part, begin| {
            if let Some(written) = self.pages.get(&page) {
                data[begin..begin + part.len()].copy_from_slice(&written[part]);
            }
        });
        let middle = data.len() / 4;
        if let (Fault::Flip, Some(byte)) = (fault, data.get_mut(middle)) {
            *byte ^= 1;
        }
        data
    }

    /// Writes data and applies a fault. Returns the number of bytes that the device reports as
    /// written.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], fault: Fault) -> u32 {
        let (mut at, mut taken) = (offset, data.len());
        match fault {
            Fault::Lose => return data.len() as u32,
            Fault::Short(most) => taken = taken.min(most.max(1) as usize),
            Fault::Misdirect(bytes) => at += bytes,
            _ => {}
        }
        let really = if fault == Fault::Tear { taken / 2 } else { taken };
        let mut data = data[..self.clip(at, really)].to_vec();
        let middle = data.len() / 2;
        if let (Fault::Flip, Some(byte)) = (fault, data.get_mut(middle)) {
            *byte ^= 1;
        }
        Content::for_pages(at, data.len(), |page, part, begin| {
            let page = self.pages.entry(page).or_insert_with(|| vec![0; PAGE].into());
            page[part.clone()].copy_from_slice(&data[begin..begin + part.len()]);
        });
        taken as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_data_are_read_back_up_to_the_end_of_the_file() {
        let mut content = Content::new(100);
        assert_eq!(content.write(90, &[7; 10], Fault::None), 10);
        assert_eq!(content.read(80, 50, Fault::None), [vec![0; 10], vec![7; 10]].concat());
        assert!(content.read(200, 10, Fault::None).is_empty());
    }

    #[test]
    fn a_large_file_needs_memory_only_for_what_was_written() {
        let mut content = Content::new(1 << 50);
        let (at, data) = ((1 << 49) - 5, [9; PAGE + 10]);
        content.write(at, &data, Fault::None);
        assert_eq!(content.pages.len(), 3);
        assert_eq!(content.read(at, data.len() as u32, Fault::None), data);
        assert_eq!(content.read(at - 2, 4, Fault::None), [0, 0, 9, 9]);
        assert_eq!(content.read(0, 4, Fault::None), [0; 4]);
    }

    #[test]
    fn each_fault_has_its_documented_effect() {
        let mut content = Content::new(64);
        assert_eq!(content.write(0, &[1; 8], Fault::Lose), 8);
        assert_eq!(content.read(0, 8, Fault::None), [0; 8]);
        assert_eq!(content.write(0, &[1; 8], Fault::Tear), 8);
        assert_eq!(content.read(0, 8, Fault::None), [1, 1, 1, 1, 0, 0, 0, 0]);
        content.write(16, &[2; 8], Fault::Misdirect(8));
        assert_eq!(content.read(16, 16, Fault::None)[8..], [2; 8]);
        assert_eq!(content.write(32, &[3; 8], Fault::Short(3)), 3);
        assert_eq!(content.read(32, 4, Fault::None), [3, 3, 3, 0]);
        content.write(40, &[4; 8], Fault::Flip);
        assert_eq!(content.read(40, 8, Fault::None), [4, 4, 4, 4, 5, 4, 4, 4]);
        assert_eq!(content.read(40, 8, Fault::Flip)[2], 5);
    }
}
