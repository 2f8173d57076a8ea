//! Entry points for fuzzing the decoders of kernel data. No input may cause a panic.

use crate::event::{Decoders, TRACEPOINTS};
use crate::extent::{Extent, sectors_of};
use crate::format::{Field, Format, PageLayout};
use crate::page;
use crate::phases::{self, AppRequest};
use crate::tracefs;
use crate::tracer::Trace;

/// Parses `text` as a description of an event, as a description of a page, and as a mount table.
pub fn texts(text: &str) {
    let format = Format::parse(text);
    let mut decoders = Decoders::default();
    for tracepoint in &TRACEPOINTS {
        decoders.learn(tracepoint, &format);
    }
    let _ = decoders.decode(0, 0, text.as_bytes());
    if let Some(layout) = PageLayout::parse(text) {
        page::records(text.as_bytes(), &layout, |_, _| {});
    }
    let _ = tracefs::mount_point(text);
}

/// Decodes `data` as a page of trace records, and splits the time of three requests into phases.
/// The requests start at the times of the first three events, so that they may match these events.
pub fn page(data: &[u8]) {
    let number = |offset, bytes| Field { offset, bytes };
    let (at, commit) = (number(0, 8), number(8, 8));
    let layout = PageLayout { at, commit, data_offset: 16, page_bytes: 4096 };
    let mut decoders = Decoders::default();
    for (id, tracepoint) in TRACEPOINTS.iter().enumerate() {
        let format = Format::parse(&FIELDS.replace("{id}", &id.to_string()));
        assert!(decoders.learn(tracepoint, &format), "the format has all fields");
    }
    let mut trace = Trace { uring: data.len().is_multiple_of(2), ..Trace::default() };
    let mut shown = 0;
    page::records(data, &layout, |at_ns, record| {
        shown += record.len();
        trace.events.extend(decoders.decode(at_ns, 0, record));
    });
    assert!(shown <= data.len(), "the trace records are longer than the trace page");
    trace.events.sort_by_key(|event| event.at_ns);
    let request = |at: usize| AppRequest {
        submit_ns: trace.events.get(at).map_or(0, |event| event.at_ns),
        reaped_ns: trace.events.last().map_or(0, |event| event.at_ns),
        offset: 0,
        bytes: 4096,
        write: at % 2 == 1,
        user_data: None,
    };
    let requests = [request(0), request(1), request(2)];
    let extents = [Extent { offset: 0, bytes: 1 << 20, sector: 0 }];
    assert!(sectors_of(&extents, 4096, 4096) == [(8, 8)]);
    let split = phases::split(&trace, &requests, &extents);
    let unmatched: u64 = split.unmatched.iter().map(|(_, count)| count).sum();
    assert_eq!(split.matched + unmatched, split.requests);
}

/// An event format that has the fields of all tracepoints.
const FIELDS: &str = "ID: {id}
field:unsigned short common_type; offset:0; size:2;
field:int common_pid; offset:4; size:4;
field:dev_t dev; offset:8; size:4;
field:sector_t sector; offset:16; size:8;
field:unsigned int nr_sector; offset:24; size:4;
field:char rwbs[4]; offset:28; size:4;
field:void * ctx; offset:8; size:8;
field:void * req; offset:16; size:8;
field:u64 user_data; offset:24; size:8;
field:pid_t pid; offset:8; size:4;
";
