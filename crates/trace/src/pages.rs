//! Checks the pages of a trace file before they are decoded. A damaged or malicious file can state
//! wrong sizes, so they are compared with the actual sizes.
//!
//! The decoders of the Parquet library trust some of these sizes. With wrong sizes, they would
//! panic or allocate too much memory. Only the plain encoding and the encodings that the writer
//! uses are accepted.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

use crate::columns::Kind;
use crate::request::FILES_MOST;

/// Yields the pages of one column after checking each page.
pub(crate) struct CheckedPages<P> {
    pages: P,
    kind: Kind,
    nullable: bool,
    has_dictionary: bool,
}

impl<P: PageReader> CheckedPages<P> {
    /// Creates a reader that checks the pages of `pages`.
    pub(crate) fn new(pages: P, kind: Kind, nullable: bool) -> CheckedPages<P> {
        CheckedPages { pages, kind, nullable, has_dictionary: false }
    }

    fn check(&mut self, page: &Page) -> Result<()> {
        match page {
            Page::DictionaryPage { buf, num_values, encoding, .. } => {
                let bytes_each = match self.kind {
                    Kind::Long | Kind::Signed => 8,
                    Kind::Short | Kind::Text => 4,
                    Kind::Flag => return Err(refused("a dictionary of Boolean values")),
                };
                let fits = *num_values as usize <= (buf.len() / bytes_each).min(FILES_MOST);
                let plain = matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY);
                if !fits || !plain || self.has_dictionary {
                    return Err(refused("an invalid dictionary"));
                }
                self.has_dictionary = true;
                if self.kind == Kind::Text { check_texts(buf, *num_values) } else { Ok(()) }
            }
            Page::DataPage { buf, encoding, def_level_encoding, num_values, .. } => {
                let (mut data, mut levels) = (&buf[..], &[][..]);
                if self.nullable {
                    let length = buf.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
                    let split =
                        length.and_then(|length| buf[4..].split_at_checked(length as usize));
                    let split = split.filter(|_| *def_level_encoding == Encoding::RLE);
                    (levels, data) = split.ok_or_else(no_levels)?;
                }
                self.check_values(data, levels, *encoding, *num_values)
            }
            Page::DataPageV2 {
                buf,
                encoding,
                def_levels_byte_len,
                rep_levels_byte_len,
                num_values,
                ..
            } => {
                let split = buf.split_at_checked(*def_levels_byte_len as usize);
                let split = split.filter(|_| *rep_levels_byte_len == 0);
                let (levels, data) = split.ok_or_else(no_levels)?;
                self.check_values(data, levels, *encoding, *num_values)
            }
        }
    }

    fn check_values(
        &self,
        data: &[u8],
        levels: &[u8],
        encoding: Encoding,
        number: u32,
    ) -> Result<()> {
        let accepted = match (encoding, self.kind) {
            (Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY, _) => self.has_dictionary,
            (Encoding::DELTA_BINARY_PACKED, Kind::Long | Kind::Short | Kind::Signed) => {
                let needs_values = if self.nullable { has_values(levels) } else { number > 0 };
                return check_delta(data, needs_values);
            }
            (Encoding::PLAIN, Kind::Text) if !self.nullable => return check_texts(data, number),
            (Encoding::PLAIN, _) => true,
            (Encoding::RLE, Kind::Flag) => {
                let length = data.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
                length.is_some_and(|length| length as usize <= data.len() - 4)
            }
            _ => false,
        };
        if accepted { Ok(()) } else { Err(refused("an encoding that a trace does not use")) }
    }
}

/// Checks strings in plain encoding. The 4 bytes before each string contain its length.
fn check_texts(mut data: &[u8], number: u32) -> Result<()> {
    for _ in 0..number {
        let length = data.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes) as usize);
        let rest = length.and_then(|length| data.get(length.checked_add(4)?..));
        data = rest.ok_or_else(|| refused("a string that is longer than the page"))?;
    }
    Ok(())
}

/// Checks delta-encoded values. A header is followed by blocks, and each block has parts
/// (miniblocks) with a bit width for each part (Parquet format, "Delta Encoding"). Truncated blocks
/// are accepted here, because the decoder reports them.
fn check_delta(mut data: &[u8], needs_values: bool) -> Result<()> {
    /// Maximum number of values in a block. The writer uses blocks of 128 or 256 values.
    const BLOCK_MOST: u64 = 1 << 16;
    let absurd = || refused("invalid blocks of delta-encoded values");
    let mut take =
        |most: u64| variable_length(&mut data).filter(|number| *number <= most).ok_or_else(absurd);
    let (block, parts) = (take(BLOCK_MOST)?, take(BLOCK_MOST)?);
    let (values, _first) = (take(u64::from(u32::MAX))?, take(u64::MAX)?);
    if block == 0 || parts == 0 || block % parts != 0 || needs_values && values == 0 {
        return Err(absurd());
    }
    let part = block / parts;
    let mut left = values.saturating_sub(1);
    while left > 0 && !data.is_empty() {
        variable_length(&mut data).ok_or_else(absurd)?;
        let Some((widths, rest)) = data.split_at_checked(parts as usize) else { return Ok(()) };
        data = rest;
        for width in widths {
            if left > 0 {
                left = left.saturating_sub(part);
                let bytes = usize::from(*width) * part as usize / 8;
                data = data.get(bytes..).unwrap_or_default();
            }
        }
    }
    Ok(())
}

/// Returns whether any row of a page has a value, according to the definition levels. These are
/// encoded as runs of equal levels and as bit-packed groups of eight levels (Parquet format, "Run
/// Length Encoding / Bit-Packing Hybrid").
fn has_values(mut levels: &[u8]) -> bool {
    while let Some(header) = variable_length(&mut levels) {
        let length = if header & 1 == 0 { 1 } else { (header >> 1) as usize };
        let (marks, rest) = levels.split_at(length.min(levels.len()));
        if marks.iter().any(|mark| *mark != 0) {
            return true;
        }
        levels = rest;
    }
    false
}

/// Decodes a variable-length integer (LEB128) at the start of `data`, and removes it from `data`.
/// Each byte has seven bits of the number, the lowest bits first. A number has at most ten bytes.
fn variable_length(data: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let (first, rest) = data.split_first()?;
        *data = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn no_levels() -> ParquetError {
    refused("definition levels that do not fit into the page")
}

fn refused(what: &str) -> ParquetError {
    ParquetError::General(format!("a page has {what}"))
}

impl<P: PageReader> Iterator for CheckedPages<P> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl<P: PageReader> PageReader for CheckedPages<P> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.check(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}
