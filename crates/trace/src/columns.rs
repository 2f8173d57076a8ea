//! The columns of a trace file: their names, types and encodings, which the writer and the reader
//! share.
//!
//! Times, offsets and lengths are unsigned numbers. The names of the time columns contain the unit.
//! Calls, operations and files are stored as text with dictionary encoding, so that other programs
//! can read them without a list of codes. Two files may have the same name, so `file_id` contains
//! the number of the file in the header.

use std::sync::Arc;

use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::errors::Result;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

/// Key of the trace header in the metadata of the Parquet file.
pub(crate) const HEADER_KEY: &str = "halfpower_trace";

/// Key of the format version in the metadata of the Parquet file.
pub(crate) const VERSION_KEY: &str = "halfpower_trace_version";

/// Version of the format. It must be increased if older readers would misread new files.
pub(crate) const VERSION: &str = "1";

/// The type of the values in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An unsigned integer of 64 bits.
    Long,
    /// An unsigned integer of 32 bits.
    Short,
    /// A signed integer of 64 bits.
    Signed,
    /// UTF-8 text.
    Text,
    /// True or false.
    Flag,
}

#[derive(Debug)]
pub(crate) struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub nullable: bool,
    /// Whether a dictionary saves space, because few different values are expected.
    pub dictionary: bool,
}

const fn column(name: &'static str, kind: Kind, nullable: bool, dictionary: bool) -> Column {
    Column { name, kind, nullable, dictionary }
}

/// All columns, in the order in which the file contains them.
pub(crate) const COLUMNS: [Column; 15] = [
    column("start_ns", Kind::Long, false, false),
    column("latency_ns", Kind::Long, true, false),
    column("process", Kind::Short, false, true),
    column("thread", Kind::Short, false, true),
    column("call", Kind::Text, false, true),
    column("operation", Kind::Text, false, true),
    column("file_id", Kind::Short, false, true),
    column("file", Kind::Text, false, true),
    column("offset", Kind::Long, true, false),
    column("bytes", Kind::Long, false, true),
    column("result", Kind::Signed, true, true),
    column("direct", Kind::Flag, false, false),
    column("durable", Kind::Flag, false, false),
    column("device_bytes", Kind::Long, true, true),
    column("sleeps", Kind::Long, true, true),
];

/// Nullable columns that were added to the format later. Older traces lack these columns.
pub(crate) const ADDED: [&str; 1] = ["sleeps"];

/// Returns the schema of a trace file.
pub(crate) fn schema() -> Result<TypePtr> {
    let fields = COLUMNS.iter().map(field).collect::<Result<Vec<TypePtr>>>()?;
    Ok(Arc::new(Type::group_type_builder("request").with_fields(fields).build()?))
}

fn field(column: &Column) -> Result<TypePtr> {
    let integer = |bits, signed| Some(LogicalType::integer(bits, signed));
    let (physical, logical) = match column.kind {
        Kind::Long => (Physical::INT64, integer(64, false)),
        Kind::Short => (Physical::INT32, integer(32, false)),
        Kind::Signed => (Physical::INT64, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Flag => (Physical::BOOLEAN, None),
    };
    let repetition = if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let builder = Type::primitive_type_builder(column.name, physical);
    let built = builder.with_logical_type(logical).with_repetition(repetition).build()?;
    Ok(Arc::new(built))
}

/// Returns the settings with which the columns are written. Only `start_ns` has statistics, so that
/// other programs can skip row groups by time. Statistics of the other columns would only make the
/// footer larger.
pub(crate) fn properties() -> WriterProperties {
    /// Maximum size of a dictionary of numbers (bytes). Above this size, a dictionary saves no
    /// space compared with delta encoding.
    const DICTIONARY_BYTES: usize = 64 << 10;
    let mut builder = WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_created_by("halfpower".to_owned());
    for column in &COLUMNS {
        let path = ColumnPath::from(column.name);
        let encoding = match column.kind {
            Kind::Long | Kind::Short | Kind::Signed => Encoding::DELTA_BINARY_PACKED,
            Kind::Text => Encoding::DELTA_BYTE_ARRAY,
            Kind::Flag => Encoding::RLE,
        };
        builder = builder
            .set_column_dictionary_enabled(path.clone(), column.dictionary)
            .set_column_encoding(path.clone(), encoding);
        if column.dictionary && column.kind != Kind::Text {
            builder = builder.set_column_dictionary_page_size_limit(path.clone(), DICTIONARY_BYTES);
        }
        if column.name == "start_ns" {
            builder = builder.set_column_statistics_enabled(path, EnabledStatistics::Chunk);
        }
    }
    builder.build()
}
