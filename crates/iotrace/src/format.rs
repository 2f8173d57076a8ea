//! Parses the kernel's descriptions of events and ring-buffer pages: `events/*/*/format` and
//! `header_page`. Fields are found by their names, so their order and types do not matter.

/// The location of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset of the field in the record (bytes).
    pub offset: usize,
    /// Length of the field (bytes).
    pub bytes: usize,
}

impl Field {
    /// Reads the field as an unsigned number. Returns None if the record is too short, or if the
    /// length of the field is not 1, 2, 4 or 8 bytes.
    #[inline]
    pub fn number(self, record: &[u8]) -> Option<u64> {
        let bytes = self.of(record)?;
        Some(match self.bytes {
            1 => u64::from(bytes[0]),
            2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// Returns the bytes of the field in a record, or None if the record is too short.
    #[inline]
    pub fn of(self, record: &[u8]) -> Option<&[u8]> {
        record.get(self.offset..self.offset.checked_add(self.bytes)?)
    }
}

/// The format of one kind of record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Value of `common_type` in records of this format. None in the description of a page.
    pub id: Option<u16>,
    fields: Vec<(String, Field)>,
}

impl Format {
    /// Parses the text of a `format` file or of `header_page`. Ignores unknown lines.
    pub fn parse(text: &str) -> Format {
        let mut format = Format::default();
        for line in text.lines().map(str::trim) {
            if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().ok();
            }
            format.fields.extend(field(line));
        }
        format
    }

    /// Returns the location of the field with this name, or None if there is no such field.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, field)| *field)
    }
}

/// Parses a line such as `field:dev_t dev; offset:8; size:4; signed:0;`.
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.strip_prefix("field:")?.split(';').map(str::trim);
    let declared = parts.next()?.split('[').next()?;
    let name = declared.rsplit([' ', '*', '\t']).next().filter(|name| !name.is_empty())?;
    let (mut offset, mut bytes) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => offset = number.trim().parse().ok(),
            Some(("size", number)) => bytes = number.trim().parse().ok(),
            _ => {}
        }
    }
    Some((name.to_owned(), Field { offset: offset?, bytes: bytes? }))
}

/// The layout of a page of the kernel's ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Header field that contains the time of the page's first record (ns).
    pub at: Field,
    /// Header field that contains the length of the page's data (bytes), and flags.
    pub commit: Field,
    /// Offset of the data in the page (bytes).
    pub data_offset: usize,
    /// Size of the page (bytes).
    pub page_bytes: usize,
}

/// Maximum size of a page in a valid description (bytes). The kernel's pages have at most a few
/// MiB.
const PAGE_BYTES_MAX: usize = 1 << 24;

impl PageLayout {
    /// Parses the text of `events/header_page`. Returns None if the text does not describe a page.
    pub fn parse(text: &str) -> Option<PageLayout> {
        let format = Format::parse(text);
        let (at, commit) = (format.field("timestamp")?, format.field("commit")?);
        let data = format.field("data")?;
        let page_bytes = data.offset.checked_add(data.bytes)?;
        let header_fields = [at, commit];
        let fits = |head: &Field| {
            matches!(head.bytes, 4 | 8)
                && head.offset.checked_add(head.bytes).is_some_and(|end| end <= data.offset)
        };
        let sound = page_bytes <= PAGE_BYTES_MAX && header_fields.iter().all(fits);
        sound.then_some(PageLayout { at, commit, data_offset: data.offset, page_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEUE: &str = "name: block_rq_requeue\nID: 2108\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:void * req;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:30;\tsize:10;\tsigned:0;\n\
        \tfield:__data_loc char[] cmd;\toffset:40;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"%d,%d\", ((unsigned int) ((REC->dev) >> 20))\n";

    #[test]
    fn fields_are_found_by_their_names_whatever_their_types() {
        let format = Format::parse(REQUEUE);
        assert_eq!(format.id, Some(2108));
        assert_eq!(format.field("common_pid"), Some(Field { offset: 4, bytes: 4 }));
        assert_eq!(format.field("dev"), Some(Field { offset: 8, bytes: 4 }));
        assert_eq!(format.field("req"), Some(Field { offset: 16, bytes: 8 }));
        assert_eq!(format.field("rwbs"), Some(Field { offset: 30, bytes: 10 }));
        assert_eq!(format.field("sector"), None);
    }

    #[test]
    fn numbers_are_read_in_their_width_and_never_beyond_the_record() {
        let record = [1_u8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Field { offset: 0, bytes: 1 }.number(&record), Some(1));
        assert_eq!(
            Field { offset: 2, bytes: 2 }.number(&record),
            Some(u64::from(u16::from_ne_bytes([2, 0])))
        );
        assert_eq!(Field { offset: 8, bytes: 8 }.number(&record), None);
        assert_eq!(Field { offset: usize::MAX, bytes: 8 }.number(&record), None);
        assert_eq!(Field { offset: 0, bytes: 3 }.number(&record), None);
    }

    #[test]
    fn the_page_layout_is_parsed() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
                    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        let layout = PageLayout::parse(text).unwrap();
        assert_eq!((layout.data_offset, layout.page_bytes), (16, 4096));
        assert_eq!(layout.commit, Field { offset: 8, bytes: 8 });
        assert_eq!(PageLayout::parse("nonsense"), None);
        assert_eq!(PageLayout::parse(&text.replace("4080", "99999999999")), None);
    }
}
