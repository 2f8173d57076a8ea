//! Striping in user space: splits each request to a striped target into pieces for its devices.
//!
//! The chunks of the target are distributed round-robin: chunk `n` is on device `n % members`, as
//! chunk `n / members` of that device. This module only computes offsets. The engine `Striped` does
//! the I/O.

use crate::error::{Error, ErrorKind};

/// The maximum number of devices of a stripe.
pub const MEMBERS_MAX: usize = 1024;

/// The number of devices of a stripe, and the chunk size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    members: u16,
    chunk_bytes: u64,
}

/// The part of a request that is in one chunk of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The index of the device.
    pub member: u16,
    /// The offset on the device (bytes).
    pub offset: u64,
    /// The length of the piece (bytes).
    pub length: u32,
}

impl Layout {
    /// Creates the layout of a stripe over `members` devices, with chunks of `chunk_bytes` bytes.
    ///
    /// # Errors
    /// Returns `ErrorKind::Usage` if there are no members or too many, or if a chunk has 0 bytes.
    pub fn new(members: usize, chunk_bytes: u64) -> Result<Layout, Error> {
        let usage = |what: String, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, what).with_remedy(remedy))
        };
        if !(1..=MEMBERS_MAX).contains(&members) {
            return usage(format!("the stripe has {members} targets"), "use 1 to 1,024 targets");
        }
        if chunk_bytes == 0 {
            return usage("the chunk size is 0 bytes".to_owned(), "use a size such as 64k");
        }
        Ok(Layout { members: members as u16, chunk_bytes })
    }

    /// Returns the number of devices of the stripe.
    pub fn members(&self) -> usize {
        usize::from(self.members)
    }

    /// Returns the chunk size (bytes).
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Returns the usable size of a stripe (bytes) if its smallest device has `smallest_member`
    /// bytes. Each device contributes the same number of whole chunks.
    pub fn bytes(&self, smallest_member: u64) -> u64 {
        let rows = smallest_member / self.chunk_bytes;
        (rows * self.chunk_bytes).saturating_mul(u64::from(self.members))
    }

    /// Returns how many bytes each device needs for a stripe of `striped` bytes.
    pub fn member_bytes(&self, striped: u64) -> u64 {
        let row = self.chunk_bytes.saturating_mul(u64::from(self.members));
        striped.div_ceil(row).saturating_mul(self.chunk_bytes)
    }

    /// Returns how many bytes of a stripe of `striped` bytes are on the device with index `member`.
    /// The last chunk of the stripe may be partial.
    pub fn bytes_on(&self, member: u64, striped: u64) -> u64 {
        let row = self.chunk_bytes.saturating_mul(u64::from(self.members));
        let before = member.saturating_mul(self.chunk_bytes);
        striped / row * self.chunk_bytes
            + (striped % row).saturating_sub(before).min(self.chunk_bytes)
    }

    /// Returns the maximum number of pieces of a request of `request_bytes` bytes, over all
    /// offsets.
    pub fn pieces_max(&self, request_bytes: u32) -> u64 {
        match request_bytes {
            0 | 1 => 1,
            bytes => (u64::from(bytes) - 1).div_ceil(self.chunk_bytes) + 1,
        }
    }

    /// Returns the pieces of a request in order, one for each chunk that the request touches.
    pub fn pieces(&self, offset: u64, length: u32) -> Pieces {
        Pieces { layout: *self, offset, left: length }
    }
}

/// The iterator that [`Layout::pieces`] returns. Its items are the pieces of a request.
#[derive(Clone, Debug)]
pub struct Pieces {
    layout: Layout,
    offset: u64,
    left: u32,
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let Layout { members, chunk_bytes } = self.layout;
        let (chunk, within) = (self.offset / chunk_bytes, self.offset % chunk_bytes);
        let length = u64::from(self.left).min(chunk_bytes - within) as u32;
        let piece = Piece {
            member: (chunk % u64::from(members)) as u16,
            offset: chunk / u64::from(members) * chunk_bytes + within,
            length,
        };
        self.left -= length;
        self.offset = self.offset.saturating_add(u64::from(length));
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(members: usize, chunk_bytes: u64) -> Layout {
        Layout::new(members, chunk_bytes).unwrap()
    }

    #[test]
    fn requests_are_split_at_chunk_boundaries() {
        let piece = |member, offset, length| Piece { member, offset, length };
        let found: Vec<Piece> = layout(3, 100).pieces(250, 400).collect();
        let wanted = [
            piece(2, 50, 50),
            piece(0, 100, 100),
            piece(1, 100, 100),
            piece(2, 100, 100),
            piece(0, 200, 50),
        ];
        assert_eq!(found, wanted);
        assert_eq!(layout(2, 100).pieces(100, 100).collect::<Vec<_>>(), [piece(1, 0, 100)]);
        assert_eq!(layout(2, 100).pieces(7, 0).count(), 0);
    }

    #[test]
    fn the_layout_maps_every_byte_to_exactly_one_place() {
        let layout = layout(3, 7);
        let total = layout.bytes(30);
        assert_eq!(total, 3 * 28, "only whole rows are used");
        let mut seen = [[false; 28]; 3];
        for offset in 0..total {
            let piece = layout.pieces(offset, 1).next().unwrap();
            let place = &mut seen[usize::from(piece.member)][piece.offset as usize];
            assert!(!*place, "{offset}");
            *place = true;
        }
        assert!(seen.iter().flatten().all(|seen| *seen));
        assert_eq!(layout.member_bytes(total), 28);
        assert_eq!(layout.member_bytes(total - 20), 28);
        for striped in 0..total {
            let last = layout.pieces(striped, 1).next().unwrap();
            let each = [0, 1, 2].map(|member| layout.bytes_on(member, striped));
            assert_eq!(each.iter().sum::<u64>(), striped);
            assert_eq!(
                each[usize::from(last.member)],
                last.offset,
                "the position of the next byte"
            );
        }
    }

    #[test]
    fn the_maximum_number_of_pieces_is_reached_and_never_exceeded() {
        let layout = layout(4, 10);
        for length in 1..60 {
            let counts = (0..40).map(|offset| layout.pieces(offset, length).count() as u64);
            assert_eq!(counts.max().unwrap(), layout.pieces_max(length), "{length}");
        }
    }

    #[test]
    fn a_stripe_of_nothing_is_refused_with_a_remedy() {
        assert!(Layout::new(0, 1).unwrap_err().to_string().contains("; use 1 to"));
        assert!(Layout::new(1025, 1).is_err());
        assert!(Layout::new(2, 0).unwrap_err().to_string().contains("; use a size"));
    }
}
