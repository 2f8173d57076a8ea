//! Volumes: how a request of a file is split into requests to devices.
//!
//! A request is split at chunk boundaries, and into transfers of at most the maximum size.
//!
//! RAID 5 uses left-rotating parity. A write to part of a stripe row first reads the old data and
//! the old parity. A write to a full row reads nothing. A read of a failed device reads all other
//! devices instead. A write to a failed device reads the other devices and updates only the parity.
//! During a rebuild, the data are also written to the spare.

use ioengine::Op;

use crate::system::{MirrorReads, Setup, VolumeKind};

/// A transfer to or from one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Device number.
    pub device: u32,
    /// Offset on the device (bytes).
    pub at: u64,
    /// Length of the transfer (bytes).
    pub length: u64,
    /// Read or write.
    pub op: Op,
}

/// A request, split into pieces that are sent in two stages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    /// Pieces that are sent at once.
    pub first: Vec<Piece>,
    /// Pieces that are sent when all pieces of the first stage are done.
    pub then: Vec<Piece>,
    /// Number of bytes over which parity is computed.
    pub parity_bytes: u64,
}

impl Pieces {
    fn clear(&mut self) {
        self.first.clear();
        self.then.clear();
        self.parity_bytes = 0;
    }
}

/// A volume, and the range of the volume that a file uses.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    kind: VolumeKind,
    /// Number of devices. The first device is `home`.
    disks: u64,
    home: u32,
    chunk: u64,
    misalign: u64,
    /// Offset on each device at which the file starts (bytes).
    base: u64,
    /// Number of bytes of each device that the file may use.
    each: u64,
    most: u64,
    failed: Option<u32>,
    /// Whether writes to the failed device go to a spare.
    spare: bool,
    mirror: MirrorReads,
    turn: u64,
    last_end: u64,
}

impl Volume {
    /// Creates the volume of a host. `home` is the first device, and `most` is the maximum length
    /// of a piece (bytes).
    pub fn new(setup: &Setup, home: u32, device_bytes: u64, most: u64) -> Volume {
        let at = (device_bytes as f64 * setup.file_at) as u64;
        let base = at / setup.chunk * setup.chunk;
        Volume {
            kind: setup.volume,
            disks: u64::from(setup.volume_disks()),
            home,
            chunk: setup.chunk,
            misalign: setup.misalign % setup.chunk,
            base,
            each: device_bytes - base,
            most,
            failed: (setup.failed > 0).then_some(0),
            spare: setup.rebuilding,
            mirror: setup.mirror_reads,
            turn: 0,
            last_end: 0,
        }
    }

    /// Returns the number of the volume's first device.
    pub fn home(&self) -> u32 {
        self.home
    }

    /// Returns the maximum size of a file (bytes).
    pub fn bytes(&self) -> u64 {
        let data = match self.kind {
            VolumeKind::Stripe => self.disks,
            VolumeKind::None | VolumeKind::Raid1 => 1,
            VolumeKind::Raid5 => self.disks - 1,
        };
        (self.each / self.chunk * self.chunk * data).saturating_sub(self.misalign)
    }

    /// Splits a request into pieces. `load` returns the number of outstanding requests of a device.
    pub fn split(
        &mut self,
        op: Op,
        offset: u64,
        length: u64,
        load: &dyn Fn(u32) -> u32,
        out: &mut Pieces,
    ) {
        out.clear();
        match self.kind {
            VolumeKind::None => {
                let at = self.base + self.misalign + offset;
                self.add(0, at, length, op, &mut out.first);
            }
            VolumeKind::Stripe => {
                self.each_chunk(offset, length, |volume, row, chunk, within_chunk, n| {
                    let at = volume.base + row * volume.chunk + within_chunk;
                    volume.add(chunk as u32, at, n, op, &mut out.first);
                });
            }
            VolumeKind::Raid1 => self.mirrored(op, offset, length, load, out),
            VolumeKind::Raid5 => self.with_parity(op, offset, length, out),
        }
    }

    /// Adds a piece to `to`, or several pieces if the length exceeds the maximum transfer size.
    fn add(&self, device: u32, mut at: u64, mut length: u64, op: Op, to: &mut Vec<Piece>) {
        while length > 0 {
            let now = length.min(self.most);
            to.push(Piece { device: self.home + device, at, length: now, op });
            (at, length) = (at + now, length - now);
        }
    }

    /// Calls `visit` for each chunk of a request. The arguments are the row, the index of the chunk
    /// in the row, the offset in the chunk, and the number of bytes.
    fn each_chunk(
        &self,
        offset: u64,
        length: u64,
        mut visit: impl FnMut(&Self, u64, u64, u64, u64),
    ) {
        let data = if self.kind == VolumeKind::Raid5 { self.disks - 1 } else { self.disks };
        let (mut at, mut left) = (offset + self.misalign, length);
        while left > 0 {
            let (number, within_chunk) = (at / self.chunk, at % self.chunk);
            let now = left.min(self.chunk - within_chunk);
            visit(self, number / data, number % data, within_chunk, now);
            (at, left) = (at + now, left - now);
        }
    }

    /// Checks whether a device, or a spare in its place, accepts writes.
    fn takes_writes(&self, device: u32) -> bool {
        self.spare || self.failed != Some(device)
    }

    fn mirrored(
        &mut self,
        op: Op,
        offset: u64,
        length: u64,
        load: &dyn Fn(u32) -> u32,
        out: &mut Pieces,
    ) {
        let at = self.base + self.misalign + offset;
        let all = 0..self.disks as u32;
        if op == Op::Write {
            for device in all.filter(|device| self.takes_writes(*device)) {
                self.add(device, at, length, op, &mut out.first);
            }
            return;
        }
        let sequential = offset == self.last_end;
        self.last_end = offset + length;
        let load = |device: u32| load(self.home + device);
        let failed = self.failed;
        let is_alive = |device: &u32| failed != Some(*device);
        let mut alive = all.clone().filter(is_alive);
        let shortest = || all.clone().filter(is_alive).min_by_key(|device| load(*device));
        let device = match self.mirror {
            MirrorReads::First => alive.next(),
            MirrorReads::Shortest => shortest(),
            MirrorReads::Twinstor => {
                let outstanding: u32 = all.clone().map(load).sum();
                let window = (u64::from(outstanding) + 1) * length;
                if sequential && window >= TWINSTOR_BYTES {
                    self.turn = (offset / TWINSTOR_BYTES) % self.disks;
                }
                let whose_turn = Some(self.turn as u32).filter(|_| sequential);
                whose_turn.filter(is_alive).or_else(shortest)
            }
        };
        self.add(device.unwrap_or(0), at, length, op, &mut out.first);
    }

    /// Returns the index of the device that holds the parity of a row.
    fn parity_of(&self, row: u64) -> u64 {
        self.disks - 1 - row % self.disks
    }

    fn with_parity(&mut self, op: Op, offset: u64, length: u64, out: &mut Pieces) {
        let row_bytes = self.chunk * (self.disks - 1);
        let mut done = 0;
        // Each row is handled separately, because each row has its own parity.
        while done < length {
            let at = offset + self.misalign + done;
            let now = (row_bytes - at % row_bytes).min(length - done);
            let (row, whole) = (at / row_bytes, now == row_bytes);
            self.row(op, row, (offset + done, now), whole, out);
            done += now;
        }
    }

    /// Adds the pieces of a request within one row of the stripe.
    fn row(&self, op: Op, row: u64, (offset, length): (u64, u64), whole: bool, out: &mut Pieces) {
        let parity = self.parity_of(row) as u32;
        let from = (offset + self.misalign) % (self.chunk * (self.disks - 1));
        let part = RowPart { chunk: self.chunk, from, end: from + length };
        let device_of = |index: u64| ((u64::from(parity) + 1 + index) % self.disks) as u32;
        let all = || (0..self.disks - 1).map(|index| (device_of(index), part.within_chunk(index)));
        let at = self.base + row * self.chunk;
        let lost = all().find(|(device, own)| self.failed == Some(*device) && own.0 < own.1);
        let lost = lost.map(|(_, own)| own);
        let mut read = |device: u32, (low, high): (u64, u64)| {
            if self.failed != Some(device) {
                self.add(device, at + low, high - low, Op::Read, &mut out.first);
            }
        };
        if op == Op::Read {
            all().for_each(|(device, own)| read(device, own));
            if let Some((low, high)) = lost {
                // The lost range is computed from the same range of all other devices. A device
                // whose part of the request covers the lost range has already been read above.
                let others = all().filter(|(_, own)| own.0 > low || own.1 < high);
                others.for_each(|(device, _)| read(device, (low, high)));
                read(parity, (low, high));
                out.parity_bytes += (high - low) * (self.disks - 1);
            }
            return;
        }
        let (low, high) = part.spanned();
        let no_parity = !self.takes_writes(parity);
        let new_parity = self.failed == Some(parity) && !no_parity;
        if !whole && (lost.is_some() || new_parity) {
            // The old data or parity is lost, so the new parity is computed from the other devices.
            let others = all().filter(|(_, own)| own.0 > low || own.1 < high);
            others.for_each(|(device, _)| read(device, (low, high)));
            if lost.is_some_and(|lost| lost != (low, high)) {
                read(parity, (low, high));
            }
        } else if !whole && !no_parity {
            all().for_each(|(device, own)| read(device, own));
            read(parity, (low, high));
        }
        for (device, (low, high)) in all().chain([(parity, (low, high))]) {
            if self.takes_writes(device) {
                self.add(device, at + low, high.saturating_sub(low), op, &mut out.then);
            }
        }
        if !no_parity {
            out.parity_bytes += length;
        }
    }
}

/// The range of a stripe row that a request covers.
#[derive(Clone, Copy)]
struct RowPart {
    chunk: u64,
    from: u64,
    end: u64,
}

impl RowPart {
    /// Returns the start and the end of the range within one chunk. Start and end are equal if the
    /// range does not touch the chunk.
    fn within_chunk(&self, index: u64) -> (u64, u64) {
        let inside = |at: u64| at.saturating_sub(index * self.chunk).min(self.chunk);
        (inside(self.from), inside(self.end))
    }

    /// Returns the range of the parity chunk that changes. This is the whole chunk if the request
    /// covers more than one data chunk.
    fn spanned(&self) -> (u64, u64) {
        let (low, high) = (self.from % self.chunk, (self.end - 1) % self.chunk + 1);
        let one = self.from / self.chunk == (self.end - 1) / self.chunk;
        if one { (low, high) } else { (0, self.chunk) }
    }
}

/// Number of bytes after which TwinStor alternates between the copies. If fewer bytes are
/// outstanding, sequential reads stay on the current copy (paper 2, C234).
const TWINSTOR_BYTES: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Description;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const DEVICE_BYTES: u64 = 1 << 30;

    fn volume(kind: &str, disks: u32, changes: &[(&str, &str)]) -> Volume {
        let mut text = Description::named("nt4-ultrawide").unwrap();
        text.set("disks", &disks.to_string()).unwrap();
        text.set("volume", kind).unwrap();
        changes.iter().for_each(|(key, value)| text.set(key, value).unwrap());
        let system = text.system().unwrap();
        Volume::new(&system.setup, 0, DEVICE_BYTES, system.host.max_transfer.bytes())
    }

    fn split(volume: &mut Volume, op: Op, offset: u64, length: u64) -> Pieces {
        let mut pieces = Pieces::default();
        volume.split(op, offset, length, &|_| 0, &mut pieces);
        pieces
    }

    /// Returns the device sectors that the pieces touch. Asserts that no sector is touched twice.
    fn sectors(pieces: &[Piece]) -> BTreeSet<(u32, u64)> {
        let mut all = BTreeSet::new();
        for piece in pieces {
            for at in (piece.at..piece.at + piece.length).step_by(512) {
                assert!(all.insert((piece.device, at)), "a sector is touched twice: {piece:?}");
            }
        }
        all
    }

    fn counts(pieces: &Pieces) -> [usize; 2] {
        let all = || pieces.first.iter().chain(&pieces.then);
        [Op::Read, Op::Write].map(|op| all().filter(|piece| piece.op == op).count())
    }

    fn bytes(pieces: &[Piece]) -> u64 {
        pieces.iter().map(|piece| piece.length).sum()
    }

    proptest! {
        #[test]
        fn every_byte_of_a_request_is_moved_once_however_it_is_cut(
            kind in prop_oneof![Just("none"), Just("stripe"), Just("raid1"), Just("raid5")],
            disks in 3_u32..9, chunk in 1_u64..300, misalign in 0_u64..300,
            from in 0_u64..4096, first in 1_u64..600, second in 1_u64..600,
        ) {
            let (chunk, misalign) = ((chunk * 512).to_string(), (misalign * 512).to_string());
            let setup = [("chunk", chunk.as_str()), ("misalign", misalign.as_str())];
            let mut volume = volume(kind, disks, &setup);
            let (from, first, second) = (from * 512, first * 512, second * 512);
            let whole = split(&mut volume, Op::Read, from, first + second);
            let head = split(&mut volume, Op::Read, from, first);
            let tail = split(&mut volume, Op::Read, from + first, second);
            prop_assert_eq!(bytes(&whole.first), first + second);
            let (head, tail) = (sectors(&head.first), sectors(&tail.first));
            prop_assert!(head.is_disjoint(&tail), "two bytes of the file share a sector");
            prop_assert_eq!(sectors(&whole.first), &head | &tail);
            let inside = |p: &Piece| p.device < disks && p.length <= 65536 && p.length > 0;
            prop_assert!(whole.first.iter().all(inside));
        }

        #[test]
        fn raid_5_writes_data_where_it_reads_them_and_parity_beside(
            disks in 3_u32..9, from in 0_u64..4096, length in 1_u64..1200, misalign in 0_u64..128,
        ) {
            let misalign = (misalign * 512).to_string();
            let mut volume = volume("raid5", disks, &[("misalign", &misalign)]);
            let read = sectors(&split(&mut volume, Op::Read, from * 512, length * 512).first);
            let written = split(&mut volume, Op::Write, from * 512, length * 512);
            let to = sectors(&written.then);
            prop_assert!(to.is_superset(&read));
            // The parity of each written sector is on another device.
            for (device, at) in &read {
                let row = (at - volume.base) / volume.chunk;
                let parity = volume.parity_of(row) as u32;
                prop_assert!(*device != parity && to.contains(&(parity, *at)));
            }
            prop_assert!(to.is_superset(&sectors(&written.first)), "a read sector is not written");
        }

        #[test]
        fn a_failed_device_is_never_touched_and_nothing_is_read_twice(
            disks in 3_u32..9, from in 0_u64..4096, length in 1_u64..1200, write in any::<bool>(),
        ) {
            let op = if write { Op::Write } else { Op::Read };
            let mut volume = volume("raid5", disks, &[("failed", "1")]);
            let pieces = split(&mut volume, op, from * 512, length * 512);
            prop_assert!(pieces.first.iter().chain(&pieces.then).all(|piece| piece.device != 0));
            sectors(&pieces.then);
        }
    }

    #[test]
    fn a_file_on_single_devices_is_no_larger_than_one_of_them() {
        let volume = volume("none", 4, &[("file_at", "0.5")]);
        assert_eq!(volume.bytes(), DEVICE_BYTES / 2);
    }

    #[test]
    fn raid_5_writes_a_row_in_one_write_each_and_a_part_with_two_reads_and_two_writes() {
        let mut volume = volume("raid5", 5, &[]);
        let row = 4 * 65536;
        assert_eq!(counts(&split(&mut volume, Op::Write, row, row)), [0, 5]);
        assert_eq!(counts(&split(&mut volume, Op::Write, row, 65536)), [2, 2]);
        assert_eq!(counts(&split(&mut volume, Op::Write, row, 8192)), [2, 2]);
        assert_eq!(counts(&split(&mut volume, Op::Write, row + 65536, row)), [6, 6]);
        assert_eq!(counts(&split(&mut volume, Op::Read, row, row)), [4, 0]);
    }

    #[test]
    fn raid_1_writes_every_copy_and_reads_one() {
        let mut pair = volume("raid1", 2, &[]);
        assert_eq!(counts(&split(&mut pair, Op::Write, 0, 8192)), [0, 2]);
        assert_eq!(counts(&split(&mut pair, Op::Read, 0, 8192)), [1, 0]);
        let mut broken = volume("raid1", 2, &[("failed", "1")]);
        assert_eq!(counts(&split(&mut broken, Op::Write, 0, 8192)), [0, 1]);
        assert_eq!(split(&mut broken, Op::Read, 0, 8192).first[0].device, 1);
    }

    #[test]
    fn twinstor_lets_both_copies_work_where_256_kib_are_outstanding() {
        let mut pair = volume("raid1", 2, &[("mirror_reads", "twinstor")]);
        let mut devices = BTreeSet::new();
        let mut pieces = Pieces::default();
        for offset in (0..4 << 20).step_by(65536) {
            pair.split(Op::Read, offset, 65536, &|_| 4, &mut pieces);
            devices.insert(pieces.first[0].device);
        }
        assert_eq!(devices.len(), 2);
        let mut alone = volume("raid1", 2, &[("mirror_reads", "twinstor"), ("failed", "1")]);
        for offset in (0..4 << 20).step_by(65536) {
            alone.split(Op::Read, offset, 65536, &|_| 4, &mut pieces);
            assert_eq!(pieces.first[0].device, 1);
        }
    }

    #[test]
    fn a_degraded_read_reads_all_others_once() {
        let mut volume = volume("raid5", 5, &[("failed", "1")]);
        // In row 0, device 4 holds the parity and devices 0 to 3 hold the data.
        assert_eq!(counts(&split(&mut volume, Op::Read, 0, 8192)), [4, 0]);
        assert_eq!(counts(&split(&mut volume, Op::Read, 65536, 8192)), [1, 0]);
        assert_eq!(counts(&split(&mut volume, Op::Read, 0, 4 * 65536)), [4, 0]);
    }

    #[test]
    fn what_is_written_during_a_rebuild_goes_to_the_spare_too() {
        let spare = [("failed", "1"), ("rebuilding", "on")];
        let mut pair = volume("raid1", 2, &spare);
        assert_eq!(counts(&split(&mut pair, Op::Write, 0, 8192)), [0, 2]);
        assert_eq!(split(&mut pair, Op::Read, 0, 8192).first[0].device, 1, "the spare is not read");
        let mut five = volume("raid5", 5, &spare);
        // The failed device 0 holds data in row 0 and the parity in row 4. In both cases, three
        // other devices are read. Data and parity are written, one of them to the spare.
        assert_eq!(counts(&split(&mut five, Op::Write, 0, 8192)), [3, 2]);
        assert_eq!(counts(&split(&mut five, Op::Write, 16 * 65536, 8192)), [3, 2]);
        assert_eq!(counts(&split(&mut five, Op::Write, 0, 4 * 65536)), [0, 5]);
    }

    #[test]
    fn a_degraded_write_takes_the_parity_from_what_the_others_hold() {
        let mut volume = volume("raid5", 5, &[("failed", "1")]);
        // A write to the failed device 0 reads the three other data devices and writes the parity.
        assert_eq!(counts(&split(&mut volume, Op::Write, 0, 8192)), [3, 1]);
        // A write to another device takes two reads and two writes, as without a failure.
        assert_eq!(counts(&split(&mut volume, Op::Write, 65536, 8192)), [2, 2]);
        // In row 4, the failed device holds the parity, so there is no parity to update.
        assert_eq!(counts(&split(&mut volume, Op::Write, 16 * 65536, 8192)), [0, 1]);
    }
}
