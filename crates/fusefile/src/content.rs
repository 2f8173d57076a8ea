//! The contents of the file in memory, and the effects of faults on them.
//!
//! Only written pages use memory; others read as zeros.

use ioengine::fault::Fault;

/// The contents of the file.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Vec<u8>,
}

impl Content {
    /// `bytes` zeros.
    pub(crate) fn new(bytes: u64) -> Content {
        Content { bytes: vec![0; bytes as usize] }
    }

    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The bytes of a range that lie inside the file.
    fn clip(&self, offset: u64, length: usize) -> std::ops::Range<usize> {
        let start = (offset.min(self.size())) as usize;
        start..(start + length).min(self.bytes.len())
    }

    /// Reads a range under a fault; the result is shorter at the end of the file.
    pub(crate) fn read(&self, offset: u64, length: u32, fault: Fault) -> Vec<u8> {
        let wanted = match fault {
            Fault::Short(most) => length.min(most.max(1)),
            _ => length,
        };
        let mut data = self.bytes[self.clip(offset, wanted as usize)].to_vec();
        let middle = data.len() / 4;
        if let (Fault::Flip, Some(byte)) = (fault, data.get_mut(middle)) {
            *byte ^= 1;
        }
        data
    }

    /// Writes data under a fault; returns the number of bytes that the device claims to have
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
        let range = self.clip(at, really);
        let there = range.len();
        self.bytes[range.clone()].copy_from_slice(&data[..there]);
        if fault == Fault::Flip && there > 0 {
            self.bytes[range.start + there / 2] ^= 1;
        }
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
