//! Reads one page of the kernel's ring buffer. A page has a header, followed by records. Each
//! record contains the time since the previous record.
//!
//! A record starts with a 32-bit word that contains a type (5 bits) and a time (27 bits). A type
//! from 1 to 28 is also the length of the data in words. For type 0, the next word contains the
//! length. Type 29 is padding, type 30 is a long time delta, and type 31 is an absolute time. All
//! values are checked. From a damaged page, only the records before the damage are returned.

use crate::format::PageLayout;

/// Bit of the header's commit field that is set if records before this page were lost.
const MISSED: u64 = 1 << 31;
/// Bits of the commit field that contain the length of the page's data (bytes).
const LENGTH: u64 = (1 << 20) - 1;
/// A record of type "absolute time" contains only this number of low bits of the time. The high
/// bits are those of the previous record's time.
const ABSOLUTE_TIME_BITS: u32 = 59;

const PADDING: u32 = 29;
const TIME_DELTA: u32 = 30;
const ABSOLUTE_TIME: u32 = 31;

/// Losses and damage found while reading a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageEnd {
    /// Whether the kernel reports that records before this page were lost.
    pub missed: bool,
    /// Whether the page is damaged. If so, only the records before the damage were read.
    pub damaged: bool,
}

/// Returns the number of used bytes of a page, including the header.
pub fn used_bytes(page: &[u8], layout: &PageLayout) -> usize {
    let length = layout.commit.number(page).unwrap_or(0) & LENGTH;
    (layout.data_offset + length as usize).min(page.len())
}

/// Calls `visit` with the time (ns) and the bytes of each record of a page.
pub fn records(page: &[u8], layout: &PageLayout, mut visit: impl FnMut(u64, &[u8])) -> PageEnd {
    let (Some(start_ns), Some(commit)) = (layout.at.number(page), layout.commit.number(page))
    else {
        return PageEnd { missed: false, damaged: true };
    };
    let missed = commit & MISSED != 0;
    let whole = layout.data_offset as u64 + (commit & LENGTH) <= page.len() as u64;
    let Some(mut data) = page.get(layout.data_offset..used_bytes(page, layout)) else {
        return PageEnd { missed, damaged: true };
    };
    let mut at_ns = start_ns;
    while !data.is_empty() {
        match next(data, &mut at_ns) {
            Next::Record(record, rest) => {
                visit(at_ns, record);
                data = rest;
            }
            Next::Skip(rest) => data = rest,
            Next::End => break,
            Next::Damaged => return PageEnd { missed, damaged: true },
        }
    }
    PageEnd { missed, damaged: !whole }
}

enum Next<'a> {
    /// A record. The values are the bytes of the record and the data after the record.
    Record(&'a [u8], &'a [u8]),
    /// A time or a discarded record. The value is the data after this item.
    Skip(&'a [u8]),
    End,
    Damaged,
}

fn next<'a>(data: &'a [u8], at_ns: &mut u64) -> Next<'a> {
    let Some((head, rest)) = word(data) else { return Next::Damaged };
    let (kind, passed) = split(head);
    if kind == PADDING && passed == 0 {
        return Next::End;
    }
    let second = word(rest);
    if kind == ABSOLUTE_TIME || kind == TIME_DELTA {
        let Some((high, rest)) = second else { return Next::Damaged };
        let time = (u64::from(high) << 27) | u64::from(passed);
        *at_ns = match kind {
            TIME_DELTA => at_ns.wrapping_add(time),
            _ => (*at_ns >> ABSOLUTE_TIME_BITS << ABSOLUTE_TIME_BITS) | time,
        };
        return Next::Skip(rest);
    }
    *at_ns = at_ns.wrapping_add(u64::from(passed));
    let (length, body) = match (kind, second) {
        // This length includes the 4 bytes of the word that contains the length.
        (0 | PADDING, Some((length, body))) if length >= 4 => ((length - 4) as usize, body),
        (1..PADDING, _) => (kind as usize * 4, rest),
        _ => return Next::Damaged,
    };
    // Records are padded to whole words.
    let Some(filled) = length.checked_next_multiple_of(4).filter(|filled| *filled <= body.len())
    else {
        return Next::Damaged;
    };
    match kind {
        PADDING => Next::Skip(&body[filled..]),
        _ => Next::Record(&body[..length], &body[filled..]),
    }
}

fn word(data: &[u8]) -> Option<(u32, &[u8])> {
    let (head, rest) = data.split_first_chunk::<4>()?;
    Some((u32::from_ne_bytes(*head), rest))
}

/// Splits the first word of a record into type and time. The kernel defines the word as a C bit
/// field, so the positions of the bits depend on the byte order.
fn split(head: u32) -> (u32, u32) {
    if cfg!(target_endian = "big") {
        (head >> 27, head & ((1 << 27) - 1))
    } else {
        (head & 31, head >> 5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Field;
    use proptest::prelude::*;

    const LAYOUT: PageLayout = PageLayout {
        at: Field { offset: 0, bytes: 8 },
        commit: Field { offset: 8, bytes: 8 },
        data_offset: 16,
        page_bytes: 4096,
    };

    fn head(kind: u32, passed: u32) -> [u8; 4] {
        let word =
            if cfg!(target_endian = "big") { kind << 27 | passed } else { passed << 5 | kind };
        word.to_ne_bytes()
    }

    fn page(at_ns: u64, flags: u64, data: &[u8]) -> Vec<u8> {
        let commit = data.len() as u64 | flags;
        [&at_ns.to_ne_bytes()[..], &commit.to_ne_bytes()[..], data].concat()
    }

    fn records_of(page: &[u8]) -> (Vec<(u64, Vec<u8>)>, PageEnd) {
        let mut records_of = Vec::new();
        let end = records(page, &LAYOUT, |at_ns, record| records_of.push((at_ns, record.to_vec())));
        (records_of, end)
    }

    #[test]
    fn times_add_up_from_record_to_record() {
        let data = [&head(1, 0)[..], b"aaaa", &head(2, 10)[..], b"bbbbbbbb"].concat();
        let (records, end) = records_of(&page(1000, 0, &data));
        assert_eq!(records, [(1000, b"aaaa".to_vec()), (1010, b"bbbbbbbb".to_vec())]);
        assert_eq!(end, PageEnd::default());
    }

    #[test]
    fn a_time_delta_adds_and_an_absolute_time_replaces_the_lower_bits() {
        let high = 3_u32.to_ne_bytes();
        let long = [&head(30, 5)[..], &high[..], &head(1, 1)[..], b"aaaa"].concat();
        assert_eq!(records_of(&page(7, 0, &long)).0[0].0, 7 + (3 << 27) + 5 + 1);
        let whole = [&head(31, 5)[..], &high[..], &head(1, 1)[..], b"aaaa"].concat();
        let top = 1_u64 << 60;
        assert_eq!(records_of(&page(top + 7, 0, &whole)).0[0].0, top + (3 << 27) + 5 + 1);
    }

    #[test]
    fn a_large_record_has_its_length_in_a_word_of_its_own() {
        let body = vec![9_u8; 120];
        let data = [&head(0, 2)[..], &124_u32.to_ne_bytes()[..], &body[..]].concat();
        assert_eq!(records_of(&page(1, 0, &data)).0, [(3, body)]);
    }

    #[test]
    fn discarded_records_are_skipped_and_padding_ends_a_page() {
        let taken_back = [&head(29, 3)[..], &12_u32.to_ne_bytes()[..], b"xxxxxxxx"].concat();
        let data = [&taken_back[..], &head(1, 4)[..], b"aaaa", &head(29, 0)[..], b"rest"].concat();
        let (records, end) = records_of(&page(0, 0, &data));
        assert_eq!(records, [(7, b"aaaa".to_vec())]);
        assert!(!end.damaged);
    }

    #[test]
    fn the_page_flag_reports_lost_records() {
        let (_, end) = records_of(&page(0, MISSED, &[]));
        assert_eq!(end, PageEnd { missed: true, damaged: false });
    }

    #[test]
    fn a_record_beyond_its_page_is_damage_after_valid_records() {
        let data = [&head(1, 0)[..], b"aaaa", &head(28, 1)[..], b"bb"].concat();
        let (records, end) = records_of(&page(5, 0, &data));
        assert_eq!((records.len(), end.damaged), (1, true));
        let endless = [&head(0, 1)[..], &u32::MAX.to_ne_bytes()[..]].concat();
        assert!(records_of(&page(5, 0, &endless)).1.damaged);
        let no_length = [&head(0, 1)[..], &0_u32.to_ne_bytes()[..]].concat();
        assert!(records_of(&page(5, 0, &no_length)).1.damaged);
        assert!(records_of(&[0; 12]).1.damaged, "truncated header");
        let mut cut = page(5, 0, &[0; 64]);
        cut.truncate(40);
        assert!(records_of(&cut).1.damaged, "truncated page");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic_or_exceed_the_page(
            bytes in proptest::collection::vec(any::<u8>(), 0..512)
        ) {
            let mut shown = 0;
            records(&bytes, &LAYOUT, |_, record| shown += record.len() + 4);
            prop_assert!(shown <= bytes.len());
        }

        #[test]
        fn what_is_written_is_read_again(
            given in proptest::collection::vec((0_u32..1 << 27, 1_usize..28), 0..40)
        ) {
            let mut data = Vec::new();
            for (passed, words) in &given {
                data.extend(head(*words as u32, *passed));
                data.extend(vec![*words as u8; words * 4]);
            }
            let (records, end) = records_of(&page(0, 0, &data));
            let mut at_ns = 0;
            prop_assert!(!end.damaged);
            prop_assert_eq!(records.len(), given.len());
            for ((time, record), (passed, words)) in records.iter().zip(&given) {
                at_ns += u64::from(*passed);
                prop_assert_eq!((*time, record.len()), (at_ns, words * 4));
            }
        }
    }
}
