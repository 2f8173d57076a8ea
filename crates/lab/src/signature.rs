//! Recognises the data on a device by magic numbers: partition tables, file systems, swap,
//! encryption, and members of RAID and LVM volumes.
//!
//! The result only informs the user. It never permits a write, because a device without a
//! recognised format may still hold data. The functions must not panic on any content.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Number of bytes that are read at each end of a device. This is the size of a ZFS label, whose
/// uberblocks identify ZFS.
const END_BYTES: u64 = 256 << 10;
/// Maximum number of partitions that are examined, so that the description fits in one line.
const PARTS_MAX: usize = 8;
/// MBR type of the protective partition, which covers a whole disk that has a GPT.
const PROTECTIVE: u8 = 0xee;
/// MBR types of extended partitions, which contain further partitions.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// A recognised format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name of the format.
    pub what: &'static str,
    /// Label that the user gave the file system or volume. None without a label.
    pub label: Option<String>,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "{} '{label}'", self.what),
            None => f.write_str(self.what),
        }
    }
}

/// The first and last bytes of a device, a partition or an image.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    head: Vec<u8>,
    tail: Vec<u8>,
    bytes: u64,
}

/// Offset and size of a partition (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    offset: u64,
    bytes: u64,
}

impl Sample {
    /// Reads the first and last bytes of a range of a file or device.
    fn read(file: &File, offset: u64, bytes: u64) -> io::Result<Sample> {
        let end = bytes.min(END_BYTES);
        let read = |from: u64| {
            let mut buffer = vec![0; end as usize];
            file.read_exact_at(&mut buffer, from).map(|()| buffer)
        };
        Ok(Sample { head: read(offset)?, tail: read(offset + bytes - end)?, bytes })
    }

    /// Returns `length` bytes at an offset. None if they are outside the sample.
    fn at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let within = |part: &[u8], from: u64| {
            let from = usize::try_from(from).ok()?;
            Some(from..from.checked_add(length)?).filter(|range| range.end <= part.len())
        };
        if let Some(range) = within(&self.head, offset) {
            return Some(&self.head[range]);
        }
        let start = self.bytes.checked_sub(self.tail.len() as u64)?;
        let range = within(&self.tail, offset.checked_sub(start)?)?;
        Some(&self.tail[range])
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        self.at(offset, magic.len()) == Some(magic)
    }

    fn byte(&self, offset: u64) -> u8 {
        self.at(offset, 1).map_or(0, |bytes| bytes[0])
    }

    fn u32(&self, offset: u64) -> u32 {
        self.at(offset, 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn u64(&self, offset: u64) -> u64 {
        u64::from(self.u32(offset)) | u64::from(self.u32(offset.saturating_add(4))) << 32
    }

    /// Reads a label of at most `length` bytes. None if it is empty.
    fn text(&self, offset: u64, length: usize) -> Option<String> {
        let bytes = self.at(offset, length)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(length);
        printable(&String::from_utf8_lossy(&bytes[..end]))
    }

    /// Reads a label in UTF-16 of at most `length` bytes. None if it is empty.
    fn wide_text(&self, offset: u64, length: usize) -> Option<String> {
        let bytes = self.at(offset, length)?;
        let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
        printable(&String::from_utf16_lossy(&units))
    }
}

/// Removes control characters from a label. None if nothing remains.
fn printable(text: &str) -> Option<String> {
    let kept: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    (!kept.is_empty()).then_some(kept)
}

/// Describes the data in a file or on a device of `bytes` bytes, such as "a GPT partition table
/// with ext4 'root', swap". None if nothing is recognised.
///
/// # Errors
/// The file or device cannot be read.
pub fn describe(file: &File, bytes: u64) -> io::Result<Option<String>> {
    let sample = Sample::read(file, 0, bytes)?;
    let found: Vec<String> = find(&sample).iter().map(Signature::to_string).collect();
    let mut inner = Vec::new();
    for part in parts(&sample).into_iter().filter(|p| p.offset + p.bytes <= bytes).take(PARTS_MAX) {
        let sample = Sample::read(file, part.offset, part.bytes)?;
        inner.extend(find(&sample).iter().map(Signature::to_string));
    }
    let with = if inner.is_empty() { String::new() } else { format!(" with {}", inner.join(", ")) };
    Ok((!found.is_empty()).then(|| format!("{}{with}", found.join(", "))))
}

/// Returns all formats that are recognised in a sample.
pub fn find(sample: &Sample) -> Vec<Signature> {
    let finders = [tables, boot_sectors, linux_file_systems, members, ends, others];
    finders.iter().flat_map(|find| find(sample)).collect()
}

fn found(is_there: bool, what: &'static str, label: Option<String>) -> Option<Signature> {
    is_there.then_some(Signature { what, label })
}

/// Recognises partition tables: GPT at the start or the end of the device, and MBR.
fn tables(sample: &Sample) -> Vec<Signature> {
    let blocks = [512_u64, 4096];
    let primary = blocks.iter().any(|block| sample.has(*block, b"EFI PART"));
    let mut last = blocks.iter().filter_map(|block| sample.bytes.checked_sub(*block));
    let backup = last.any(|offset| sample.has(offset, b"EFI PART"));
    let mbr = !primary && entries(sample).is_some_and(|all| all.iter().any(|e| e.0 != 0));
    let gpt = found(primary, "a GPT partition table", None);
    let backup = found(!primary && backup, "the backup of a GPT partition table", None);
    let mbr = found(mbr, "an MBR partition table", None);
    [gpt, backup, mbr].into_iter().flatten().collect()
}

/// Returns the four entries of an MBR: type, first sector, and number of sectors. None without an
/// MBR. The boot sectors of FAT and NTFS have the same magic number and are excluded.
fn entries(sample: &Sample) -> Option<[(u8, u32, u32); 4]> {
    let is_boot_sector = !boot_sectors(sample).is_empty();
    let at = [446_u64, 462, 478, 494];
    let is_table = sample.has(510, b"\x55\xaa") && !is_boot_sector;
    let all_valid = at.iter().all(|at| sample.byte(*at) & 0x7f == 0);
    (is_table && all_valid)
        .then(|| at.map(|at| (sample.byte(at + 4), sample.u32(at + 8), sample.u32(at + 12))))
}

/// Returns the partitions in an MBR or GPT.
fn parts(sample: &Sample) -> Vec<Part> {
    let part = |block: u64, first: u64, blocks: u64| {
        let (offset, bytes) = (first.checked_mul(block)?, blocks.checked_mul(block)?);
        offset.checked_add(bytes)?;
        (offset > 0 && bytes > 0).then_some(Part { offset, bytes })
    };
    let table = [512_u64, 4096].into_iter().find(|block| sample.has(*block, b"EFI PART"));
    let Some(block) = table else {
        let entries = entries(sample).unwrap_or_default().into_iter();
        let real = entries.filter(|(kind, ..)| *kind != PROTECTIVE && !EXTENDED.contains(kind));
        return real.filter_map(|(_, first, n)| part(512, first.into(), n.into())).collect();
    };
    let (first, bytes) = (sample.u64(block + 72), u64::from(sample.u32(block + 84)));
    let count = u64::from(sample.u32(block + 80)).min(128);
    let entry = |number: u64| {
        let at = first.checked_mul(block)?.checked_add(number.checked_mul(bytes)?)?;
        let kind = sample.at(at, 16)?;
        let (from, to) = (sample.u64(at.checked_add(32)?), sample.u64(at.checked_add(40)?));
        let blocks = to.checked_sub(from)?.checked_add(1)?;
        if kind == [0; 16] { None } else { part(block, from, blocks) }
    };
    (0..count).filter_map(entry).collect()
}

/// Recognises formats that begin with a DOS boot sector.
fn boot_sectors(sample: &Sample) -> Vec<Signature> {
    let ends = sample.has(510, b"\x55\xaa");
    let fat32 = ends && sample.has(82, b"FAT32   ");
    let fat = ends && [b"FAT12   ", b"FAT16   ", b"FAT     "].iter().any(|m| sample.has(54, *m));
    let label = |offset| sample.text(offset, 11).filter(|label| label != "NO NAME");
    let all = [
        found(sample.has(3, b"NTFS    "), "NTFS", None),
        found(sample.has(3, b"EXFAT   "), "exFAT", None),
        found(fat32, "vfat", label(71)),
        found(fat && !fat32, "vfat", label(43)),
    ];
    all.into_iter().flatten().collect()
}

fn linux_file_systems(sample: &Sample) -> Vec<Signature> {
    let swap = [4096_u64, 8192, 16384, 65536]
        .iter()
        .any(|page| sample.has(page - 10, b"SWAPSPACE2") || sample.has(page - 10, b"SWAP-SPACE"));
    let btrfs = 64 << 10;
    let all = [
        found(sample.has(1024 + 56, b"\x53\xef"), ext_version(sample), sample.text(1024 + 120, 16)),
        found(sample.has(0, b"XFSB"), "xfs", sample.text(108, 12)),
        found(sample.has(btrfs + 64, b"_BHRfS_M"), "btrfs", sample.text(btrfs + 299, 256)),
        found(swap, "swap", sample.text(1052, 16)),
        found(sample.u32(1024) == 0xf2f5_2010, "f2fs", sample.wide_text(1024 + 124, 1024)),
    ];
    all.into_iter().flatten().collect()
}

/// Distinguishes ext2, ext3 and ext4 by their features, because they have the same magic number.
fn ext_version(sample: &Sample) -> &'static str {
    let (compatible, incompatible) = (sample.u32(1024 + 92), sample.u32(1024 + 96));
    let read_only_compatible = sample.u32(1024 + 100);
    // These features exist only in ext4: extents, 64bit and flex_bg (incompatible); huge_file,
    // gdt_csum, dir_nlink, extra_isize and metadata_csum (read-only compatible).
    if incompatible & 0x2c0 != 0 || read_only_compatible & 0x478 != 0 {
        "ext4"
    } else if compatible & 0x4 != 0 {
        "ext3"
    } else {
        "ext2"
    }
}

/// Recognises LVM physical volumes, LUKS encryption and bcache, which have a header at the start.
fn members(sample: &Sample) -> Vec<Signature> {
    let lvm = (0..4_u64).map(|sector| sector * 512);
    let lvm =
        lvm.into_iter().any(|s| sample.has(s, b"LABELONE") && sample.has(s + 24, b"LVM2 001"));
    let luks = sample.has(0, b"LUKS\xba\xbe");
    let luks_label = sample.text(24, 48).filter(|_| sample.has(6, &[0, 2]));
    let bcache = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    let all = [
        found(lvm, "an LVM physical volume", None),
        found(luks, "LUKS encryption", luks_label),
        found(sample.has(4096 + 24, bcache), "bcache", sample.text(4096 + 72, 32)),
    ];
    all.into_iter().flatten().collect()
}

/// Recognises members of a Linux software RAID (MD). The header is at the start of the device in
/// version 1.1, at offset 4 KiB in version 1.2, and near the end in versions 1.0 and 0.90.
fn ends(sample: &Sample) -> Vec<Signature> {
    let magic = 0xa92b_4efc_u32;
    let v1_0 = sample.bytes.checked_sub(8 << 10).map(|offset| offset >> 12 << 12);
    let v0_90 = (sample.bytes >> 16 << 16).checked_sub(64 << 10);
    let member = "a member of a RAID (MD)";
    let of_version_1 = [Some(0), Some(4096), v1_0].into_iter().flatten();
    let mut all: Vec<Signature> = of_version_1
        .filter(|at| sample.u32(*at) == magic && sample.u32(at.saturating_add(4)) == 1)
        .filter_map(|at| found(true, member, sample.text(at.saturating_add(32), 32)))
        .collect();
    let old = v0_90.is_some_and(|at| sample.u32(at) == magic && sample.u32(at + 4) == 0);
    all.extend(found(old, member, None));
    all.truncate(1);
    all
}

/// Recognises ZFS, by an uberblock in a sampled label, and optical media (ISO 9660).
fn others(sample: &Sample) -> Vec<Signature> {
    let labels = [Some(0), (sample.bytes >> 18 << 18).checked_sub(256 << 10)];
    let magics = [0x00ba_b10c_u64, 0x00ba_b10c_u64.swap_bytes()];
    let zfs = labels.into_iter().flatten().any(|label| {
        (0..128_u64).any(|slot| magics.contains(&sample.u64(label + (128 << 10) + (slot << 10))))
    });
    let iso = sample.has(32769, b"CD001");
    let all = [found(zfs, "ZFS", None), found(iso, "ISO 9660", sample.text(32808, 32))];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    const BYTES: u64 = 4 << 20;

    /// Pieces of an image, as pairs of offset and bytes. A negative offset counts from the end.
    type Pieces<'a> = &'a [(i64, &'a [u8])];

    fn image(pieces: Pieces) -> Vec<u8> {
        let mut content = vec![0; BYTES as usize];
        for (offset, bytes) in pieces {
            let at = offset.rem_euclid(BYTES as i64) as usize;
            content[at..at + bytes.len()].copy_from_slice(bytes);
        }
        content
    }

    fn sample(content: &[u8]) -> Sample {
        let end = content.len().min(END_BYTES as usize);
        let tail = content[content.len() - end..].to_vec();
        Sample { head: content[..end].to_vec(), tail, bytes: content.len() as u64 }
    }

    fn names(content: &[u8]) -> Vec<String> {
        find(&sample(content)).iter().map(Signature::to_string).collect()
    }

    #[test]
    fn each_format_is_known_by_its_magic_number() {
        let ends = (510, b"\x55\xaa".as_slice());
        let md = b"\xfc\x4e\x2b\xa9\x01\0\0\0".as_slice();
        let uuid = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81".as_slice();
        let ext = (1080, b"\x53\xef".as_slice());
        let cases: [(Pieces, &str); 26] = [
            (&[(512, b"EFI PART"), (450, b"\xee"), ends], "a GPT partition table"),
            (&[(4096, b"EFI PART")], "a GPT partition table"),
            (&[(-512, b"EFI PART")], "the backup of a GPT partition table"),
            (&[(450, b"\x83"), ends], "an MBR partition table"),
            (&[ext, (1144, b"root")], "ext2 'root'"),
            (&[ext, (1116, b"\x04")], "ext3"),
            (&[ext, (1116, b"\x04"), (1120, b"\x40")], "ext4"),
            (&[(0, b"XFSB"), (108, b"data")], "xfs 'data'"),
            (&[(65600, b"_BHRfS_M"), (65835, b"pool")], "btrfs 'pool'"),
            (&[(4086, b"SWAPSPACE2"), (1052, b"swap0")], "swap 'swap0'"),
            (&[(65526, b"SWAPSPACE2")], "swap"),
            (&[(512, b"LABELONE"), (536, b"LVM2 001")], "an LVM physical volume"),
            (&[(0, md), (32, b"host:0")], "a member of a RAID (MD) 'host:0'"),
            (&[(4096, md)], "a member of a RAID (MD)"),
            (&[(-8192, md)], "a member of a RAID (MD)"),
            (&[(-65536, b"\xfc\x4e\x2b\xa9\0\0\0\0")], "a member of a RAID (MD)"),
            (&[(0, b"LUKS\xba\xbe\0\x02"), (24, b"vault")], "LUKS encryption 'vault'"),
            (&[(3, b"NTFS    "), ends], "NTFS"),
            (&[(3, b"EXFAT   "), ends], "exFAT"),
            (&[(82, b"FAT32   "), (71, b"STICK      "), ends], "vfat 'STICK'"),
            (&[(54, b"FAT16   "), (43, b"NO NAME    "), ends], "vfat"),
            (&[(135_168, b"\x0c\xb1\xba\0\0\0\0\0")], "ZFS"),
            (&[(-131_072, b"\0\0\0\0\0\xba\xb1\x0c")], "ZFS"),
            (&[(4120, uuid), (4168, b"cache")], "bcache 'cache'"),
            (&[(32769, b"CD001"), (32808, b"DISC    ")], "ISO 9660 'DISC'"),
            (&[(1024, b"\x10\x20\xf5\xf2"), (1148, b"f\0l\0")], "f2fs 'fl'"),
        ];
        for (pieces, what) in cases {
            assert_eq!(names(&image(pieces)), [what]);
        }
        assert_eq!(names(&image(&[])), [""; 0]);
    }

    #[test]
    fn two_formats_are_both_named_and_labels_lose_control_characters() {
        let pieces: [(i64, &[u8]); 3] = [(0, b"XFSB"), (108, b"a\x1b[2J\nb"), (-512, b"EFI PART")];
        let names = names(&image(&pieces));
        assert_eq!(names, ["the backup of a GPT partition table", "xfs 'a[2Jb'"]);
    }

    fn written(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn the_contents_of_partitions_are_described_with_their_table() {
        let at = 1_i64 << 20;
        let mut gpt = [0; 92];
        gpt[..8].copy_from_slice(b"EFI PART");
        (gpt[72], gpt[80], gpt[84]) = (2, 4, 128);
        let mut entry = [0; 128];
        (entry[0], entry[33], entry[41]) = (1, 8, 15);
        let pieces: [(i64, &[u8]); 3] = [(512, &gpt), (1024, &entry), (at, b"XFSB")];
        let said = describe(&written(&image(&pieces)), BYTES).unwrap();
        assert_eq!(said.as_deref(), Some("a GPT partition table with xfs"));
        // This entry describes an MBR partition of 2048 sectors that starts at sector 2048.
        let row = [0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0];
        let pieces: [(i64, &[u8]); 3] =
            [(446, &row), (510, b"\x55\xaa"), (at + 4086, b"SWAPSPACE2")];
        let said = describe(&written(&image(&pieces)), BYTES).unwrap();
        assert_eq!(said.as_deref(), Some("an MBR partition table with swap"));
        assert_eq!(describe(&written(&image(&[])), BYTES).unwrap(), None);
        assert!(describe(&written(b""), BYTES).is_err(), "the file is too short");
    }

    const PLACES: [i64; 12] = [0, 446, 510, 512, 592, 1024, 1080, 4096, -65536, -8192, -4096, -512];

    const MAGICS: [&[u8]; 3] = [b"EFI PART", b"\x55\xaa", b"\x53\xef"];

    proptest! {
        #[test]
        fn any_bytes_at_all_are_looked_at_without_a_panic(
            pieces in prop::collection::vec(
                (prop::sample::select(&PLACES[..]), prop::collection::vec(any::<u8>(), 1..256)),
                0..6,
            ),
            magic in prop::sample::select(&MAGICS[..]),
            place in prop::sample::select(&PLACES[..]),
            bytes in 0..BYTES as usize,
        ) {
            let mut all: Vec<(i64, &[u8])> =
                pieces.iter().map(|(at, bytes)| (*at, bytes.as_slice())).collect();
            all.push((place, magic));
            let content = image(&all);
            let _ = describe(&written(&content), BYTES);
            let cut = sample(&content[..bytes]);
            let _ = (find(&cut), parts(&cut));
        }
    }
}
