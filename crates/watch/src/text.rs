//! Formats the result of `watch` and `trace` as lines for the terminal.

use analysis::units;
use lab::terminal;
use trace::Operation;

use crate::document::{
    AmplificationDocument, DataDocument, FOLDERS_MAX, FileDocument, OperationDocument,
    TraceDocument, WaitDocument, percent,
};
use crate::totals::TotalsDocument;

/// A class of requests is shown only if it takes at least this share of the time.
const WAIT_SHOWN: f64 = 0.05;
/// Maximum number of gains that the terminal shows.
const GAINS_SHOWN: usize = 5;
/// Shares of at least this value are shown as if they were 100%.
const NEARLY_ALL: f64 = 0.995;

/// Formats the result as lines, wrapped for the terminal.
pub fn lines(document: &TraceDocument) -> Vec<String> {
    lines_of(document, &|prefix, text| terminal::wrapped(prefix, text))
}

/// Formats the result as lines that are neither wrapped nor indented.
pub fn whole_lines(document: &TraceDocument) -> Vec<String> {
    lines_of(document, &|prefix, text| vec![format!("{} {text}", prefix.trim()).trim().to_owned()])
}

/// Formats the result. `wrapped` takes a prefix and a text, and breaks the text into lines.
fn lines_of(document: &TraceDocument, wrapped: &dyn Fn(&str, &str) -> Vec<String>) -> Vec<String> {
    let mut lines = vec![head(document)];
    let mut add = |prefix: &str, text: String| lines.extend(wrapped(prefix, &text));
    if let Some(text) = time(document) {
        add("  ", text);
    }
    if let Some(text) = of_waits(document) {
        add("  waits    ", text);
    }
    for (operation, prefix) in [
        (Operation::Read, "  reads    "),
        (Operation::Write, "  writes   "),
        (Operation::Flush, "  flushes  "),
    ] {
        if let Some(of) = document.operation(operation) {
            add(prefix, of_operation(document, of));
        }
    }
    if let Some(depth) = document.mean_depth {
        add(
            "  depth    ",
            format!("{depth:.2} reads and writes outstanding on average (excluding idle time)"),
        );
    }
    if let Some(text) = others(document) {
        add("  other    ", text);
    }
    if let Some(totals) = document.totals.filter(|_| document.calls() == 0) {
        add("  totals   ", of_totals(&totals));
    }
    of_programs(document, &mut add);
    of_files(document, &mut add);
    for device in &document.devices {
        add("  ", format!("{} (all programs): {}", device.name, of_device(device)));
    }
    document.amplification.iter().for_each(|one| add("  ", amplification(one)));
    if let Some(first) = document.against.first() {
        add("", format!("Compared with the survey of {}", first.target));
        if let Some(share) = document.share_of_device {
            let share = percent(share);
            add(
                "  ",
                format!(
                    "While the program waits for storage, it gets {share} of the device's best \
                     performance."
                ),
            );
        }
        document.against.iter().for_each(|one| add("  ", one.text.clone()));
        document.places.iter().for_each(|one| add("  ", one.text.clone()));
        of_gains(document, &mut add);
    }
    of_recording(document, &mut add);
    lines
}

fn head(document: &TraceDocument) -> String {
    let line = document.command.lines().next().unwrap_or_default();
    let name = match line {
        "" if !document.target.is_empty() => document.target.as_str(),
        "" if document.trace.is_empty() => "the process",
        "" => document.trace.as_str(),
        command => command,
    };
    let duration = units::time(document.duration_ns as f64);
    if document.calls() == 0 && document.totals.is_some() {
        return format!("{name}: {duration}");
    }
    let calls = units::counted(document.calls(), "call");
    match document.processes.len() as u64 {
        0 | 1 => format!("{name}: {duration}, {calls}"),
        count => format!("{name}: {duration}, {calls} by {count} processes"),
    }
}

/// Formats the share of the time during which each operation was outstanding.
fn time(document: &TraceDocument) -> Option<String> {
    let whole = document.duration_ns as f64;
    if document.outstanding_ns == 0 || whole <= 0.0 {
        return None;
    }
    let share = |ns: u64| percent(ns as f64 / whole);
    let mut parts: Vec<(u64, String)> = document
        .operations
        .iter()
        .filter(|of| of.outstanding_ns > 0)
        .map(|of| (of.outstanding_ns, format!("{} in {}", share(of.outstanding_ns), plural(of))))
        .collect();
    parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let parts: Vec<String> = parts.into_iter().take(4).map(|(_, text)| text).collect();
    let all = share(document.outstanding_ns);
    Some(format!("storage requests were outstanding for {all} of the time: {}", parts.join(", ")))
}

fn plural(of: &OperationDocument) -> String {
    match of.operation.as_str() {
        "flush" => "flushes".to_owned(),
        "advise" => "hints".to_owned(),
        "truncate" => "truncations".to_owned(),
        "allocate" => "allocations".to_owned(),
        name => format!("{name}s"),
    }
}

fn of_operation(document: &TraceDocument, of: &OperationDocument) -> String {
    let mut parts = Vec::new();
    match &of.data {
        Some(data) => {
            parts.push(amount(data));
            parts.extend(order(data));
            parts.push(caching(&of.operation, data));
        }
        None => {
            let writes = document.operation(Operation::Write).and_then(|of| of.data.as_ref());
            let count = of.latency.count.max(1);
            let each = writes.map_or(String::new(), |data| {
                format!(", one per {:.1} writes", data.count as f64 / count as f64)
            });
            parts.push(format!("{}{each}", units::count(count as f64)));
        }
    }
    let time = |ns: Option<u64>| ns.map(|ns| units::time(ns as f64));
    if let Some((p50, p99)) = time(of.latency.p50_ns).zip(time(of.latency.p99_ns)) {
        parts.push(format!("p50 {p50}, p99 {p99}"));
    }
    let calls: Vec<&str> = of.calls.iter().map(|call| call.call.as_str()).collect();
    format!("{} [{}]", parts.join("; "), calls.join(", "))
}

/// Formats the count, the size and the total bytes of requests, such as `12000 of 8 KiB, 93.8 MiB`.
fn amount(data: &DataDocument) -> String {
    let moved = units::size(data.moved_bytes);
    let failed = match data.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    format!("{} of {}, {moved}{failed}", data.count, sizes(data))
}

fn sizes(data: &DataDocument) -> String {
    let count = data.count.max(1) as f64;
    let Some(common) = data.sizes.iter().max_by_key(|size| size.count) else {
        return "unknown size".to_owned();
    };
    let (low, high) = (data.sizes.first(), data.sizes.last());
    let share = common.count as f64 / count;
    match low.zip(high) {
        Some((low, high)) if share < NEARLY_ALL => format!(
            "{} to {} ({} are {})",
            units::size(low.bytes),
            units::size(high.bytes),
            percent(share),
            units::size(common.bytes)
        ),
        _ => units::size(common.bytes),
    }
}

fn order(data: &DataDocument) -> Option<String> {
    let all = data.sequential + data.repeated + data.strided + data.random;
    if all == 0 {
        return None;
    }
    let kinds = [
        (data.sequential, "sequential"),
        (data.repeated, "repeated"),
        (data.strided, "strided"),
        (data.random, "random"),
    ];
    let parts: Vec<String> = kinds
        .into_iter()
        .map(|(count, name)| (count as f64 / all as f64, name))
        .filter(|(share, _)| *share >= 1.0 - NEARLY_ALL)
        .map(|(share, name)| match share {
            share if share >= NEARLY_ALL => name.to_owned(),
            share => format!("{} {name}", percent(share)),
        })
        .collect();
    Some(parts.join(", "))
}

fn caching(operation: &str, data: &DataDocument) -> String {
    let direct = data.direct as f64 / data.count.max(1) as f64;
    let mut text = match direct {
        share if share >= NEARLY_ALL => "direct".to_owned(),
        share if share > 0.0 => format!("{} direct", percent(share)),
        _ => "buffered".to_owned(),
    };
    let known = data.with_device_bytes;
    if operation == "read" && known * 2 > data.count && data.direct == 0 {
        let share = percent(data.in_memory as f64 / known as f64);
        text.push_str(&format!(", {share} from the page cache"));
        if data.in_memory < known && data.known_ns > 0 {
            let time = percent(data.waited_ns as f64 / data.known_ns as f64);
            text.push_str(&format!(" (the other reads took {time} of the read time)"));
        }
    }
    if data.durable > 0 {
        let share = data.durable as f64 / data.count.max(1) as f64;
        text.push_str(&format!(", {} durable without a flush", percent(share)));
    }
    text
}

fn others(document: &TraceDocument) -> Option<String> {
    let is_other =
        |of: &&OperationDocument| !matches!(of.operation.as_str(), "read" | "write" | "flush");
    let others = document.operations.iter().filter(is_other);
    let mut parts: Vec<String> = others
        .map(|of| {
            let count: u64 = of.calls.iter().map(|call| call.count).sum();
            format!("{count} {}", plural(of))
        })
        .collect();
    if document.page_faults > 0 {
        parts.push(format!("{} page faults in mapped files", document.page_faults));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn of_totals(totals: &TotalsDocument) -> String {
    let size = units::size;
    format!(
        "{} returned {} ({} from devices), {} wrote {} ({} to devices)",
        units::counted(totals.read_calls, "read call"),
        size(totals.read_bytes),
        size(totals.device_read_bytes),
        units::counted(totals.write_calls, "write call"),
        size(totals.write_bytes),
        size(totals.device_write_bytes),
    )
}

fn of_files(document: &TraceDocument, add: &mut impl FnMut(&str, String)) {
    let files = if document.folders.is_empty() { &document.files } else { &document.folders };
    // Files without times are left out. Only page faults were counted for them, for example for
    // shared libraries.
    let files: Vec<&FileDocument> = files.iter().filter(|file| file.has_time()).collect();
    if files.is_empty() {
        return;
    }
    let what = if document.folders.is_empty() { "Files" } else { "Files and directories" };
    add("", format!("{what}, by time in calls"));
    for file in files.iter().take(FOLDERS_MAX) {
        let name = if file.name.is_empty() { "(unknown file)" } else { &file.name };
        let of = if file.files == 1 { String::new() } else { format!(" ({} files)", file.files) };
        add("  ", format!("{name}{of}: {}", of_file(file)));
    }
    let left = files.len().saturating_sub(FOLDERS_MAX);
    if left > 0 {
        add("  ", format!("and {left} more (see --json)"));
    }
}

fn of_programs(document: &TraceDocument, add: &mut impl FnMut(&str, String)) {
    if document.programs.is_empty() {
        return;
    }
    add("", "Programs, by time in calls".to_owned());
    for program in document.programs.iter().take(FOLDERS_MAX) {
        let of = &program.requests;
        let parts = [
            (
                of.reads,
                format!("{} ({})", units::counted(of.reads, "read"), units::size(of.read_bytes)),
            ),
            (
                of.writes,
                format!(
                    "{} ({})",
                    units::counted(of.writes, "write"),
                    units::size(of.written_bytes)
                ),
            ),
            (of.flushes, flushes(of.flushes)),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text);
        let parts: Vec<String> = parts.collect();
        let what = if parts.is_empty() { "no data moved".to_owned() } else { parts.join(", ") };
        let many = match program.processes {
            1 => String::new(),
            many => format!(" ({many} processes)"),
        };
        let time = units::time(of.busy_ns as f64);
        add("  ", format!("{}{many}: {what} in {time}", program.name));
    }
    let left = document.programs.len().saturating_sub(FOLDERS_MAX);
    if left > 0 {
        add("  ", format!("and {} (see --json)", units::counted(left as u64, "more program")));
    }
}

fn of_file(file: &FileDocument) -> String {
    let mut parts = Vec::new();
    for (data, name) in [(&file.reads, "read"), (&file.writes, "write")] {
        if let Some(data) = data {
            let time = units::time(data.busy_ns as f64);
            let mut text =
                format!("{} of {} in {time}", units::counted(data.count, name), sizes(data));
            if let Some(order) = order(data) {
                text.push_str(&format!(" ({order})"));
            }
            parts.push(text);
        }
    }
    if file.flushes > 0 {
        let time = units::time(file.flush_ns as f64);
        parts.push(format!("{} in {time}", flushes(file.flushes)));
    }
    parts.join("; ")
}

fn flushes(count: u64) -> String {
    format!("{count} flush{}", if count == 1 { "" } else { "es" })
}

fn of_device(device: &FileDocument) -> String {
    let mut parts = Vec::new();
    for (data, name) in [(&device.reads, "read"), (&device.writes, "write")] {
        if let Some(data) = data {
            let mean = units::size(data.moved_bytes / data.count.max(1));
            let moved = units::size(data.moved_bytes);
            parts.push(format!(
                "{} of {mean} on average, {moved} in total",
                units::counted(data.count, name)
            ));
        }
    }
    if device.flushes > 0 {
        parts.push(flushes(device.flushes));
    }
    parts.join("; ")
}

/// Formats the share of the time that the program waits for each class of requests.
fn of_waits(document: &TraceDocument) -> Option<String> {
    let large = document.waits.iter().filter(|wait| wait.share_of_time >= WAIT_SHOWN);
    let part = |wait: &WaitDocument| {
        let share = percent(wait.share_of_time);
        match wait.operation.as_str() {
            "flush" => format!("{share} for flushes"),
            name => {
                let (order, size) = (&wait.order, units::size(wait.bytes));
                let blank = if order.is_empty() { "" } else { " " };
                format!("{share} for {order}{blank}{name}s of {size} (depth {:.1})", wait.depth)
            }
        }
    };
    let parts: Vec<String> = large.take(5).map(part).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn amplification(one: &AmplificationDocument) -> String {
    let (name, moved) = match one.operation.as_str() {
        "read" => ("Reads", "read"),
        _ => ("Writes", "wrote"),
    };
    let [program, cache, device] =
        [one.program_bytes, one.cache_bytes, one.device_bytes].map(units::size);
    let calls = match one.calls_device_bytes {
        0 => String::new(),
        bytes => format!(", of which {} during the program's calls", units::size(bytes)),
    };
    format!(
        "{name}: the program {moved} {program}, of which {cache} through the page cache; in total, \
         devices {moved} {device} for all programs{calls}"
    )
}

fn of_gains(document: &TraceDocument, add: &mut impl FnMut(&str, String)) {
    if document.gains.is_empty() {
        return;
    }
    add("", "Predicted gains, by Amdahl's law".to_owned());
    for gain in document.gains.iter().take(GAINS_SHOWN) {
        add("  ", format!("[{}] {}. Gain: {}", gain.rule, gain.text, gain.computed));
        add("    ", format!("how: {}", gain.how));
    }
}

fn of_recording(document: &TraceDocument, add: &mut impl FnMut(&str, String)) {
    if let Some(recording) = &document.recording {
        let each = units::time(recording.per_call_ns);
        let whole = recording.per_call_ns * recording.calls as f64;
        // Threads make calls at the same time, so the cost is given as a share of the time of all
        // threads together.
        let time = document.duration_ns.max(1) as f64 * document.threads.max(1) as f64;
        let share = percent((whole / time).min(1.0));
        add(
            "",
            format!("Recording added about {each} to each call, {share} of the threads' time."),
        );
    }
    for loss in &document.lost {
        add("  ! ", format!("lost: {} {}", loss.count, loss.cause));
    }
    for note in &document.notes {
        add("  ! ", note.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RecordingDocument;
    use crate::summary::Summary;
    use trace::{Call, FileId, Header, Request};

    fn document(requests: &[Request]) -> TraceDocument {
        let mut summary = Summary::default();
        requests.iter().for_each(|request| summary.take(request));
        let files = vec![trace::File { name: "/data/table".to_owned(), end_bytes: 0 }];
        let header = Header { command: "db".to_owned(), files, ..Header::default() };
        TraceDocument::of(&summary, &header, "t.parquet".to_owned())
    }

    fn request(at: u64, operation: Operation, offset: u64) -> Request {
        let bytes = if operation.moves_data() { 8192 } else { 0 };
        Request {
            start_ns: at * 1000,
            latency_ns: Some(500),
            process: 1,
            thread: 1,
            call: Call::named("pread64").unwrap(),
            operation,
            file: FileId(0),
            offset: operation.moves_data().then_some(offset),
            bytes,
            result: Some(bytes as i64),
            direct: false,
            durable: false,
            device_bytes: operation.moves_data().then_some(0),
            sleeps: Some(0),
        }
    }

    #[test]
    fn the_cost_of_recording_is_a_share_of_the_time_of_all_threads() {
        // The time of the four threads together is 4 times the duration of the trace. The first
        // cost is half of the threads' time. The second cost is more than the threads' time.
        let of_thread =
            |at: u64| Request { thread: at as u32 % 4, ..request(at, Operation::Read, 0) };
        let mut document = document(&(0..200).map(of_thread).collect::<Vec<_>>());
        let cost = |document: &mut TraceDocument, times: f64| {
            let per_call_ns = times * document.duration_ns as f64 / 200.0;
            document.recording = Some(RecordingDocument { per_call_ns, calls: 200 });
            lines(document).join(" ")
        };
        assert_eq!(document.threads, 4);
        let half = cost(&mut document, 2.0);
        assert!(half.contains("50% of the threads' time"), "{half}");
        let more = cost(&mut document, 5.0);
        assert!(more.contains("100% of the threads' time"), "{more}");
    }

    #[test]
    fn lines_for_a_page_are_whole_sentences() {
        let write = |at: u64| request(at, Operation::Write, at * at % 97 * 65536);
        let document = document(&(0..200).map(write).collect::<Vec<_>>());
        let words = |lines: Vec<String>| -> Vec<String> {
            lines.iter().flat_map(|line| line.split_whitespace()).map(str::to_owned).collect()
        };
        let whole = whole_lines(&document);
        assert!(
            whole.iter().all(|line| !line.ends_with(',') && !line.starts_with(' ')),
            "{whole:?}"
        );
        let narrow = lines_of(&document, &|prefix, text| report::wrapped(40, prefix, text));
        assert!(whole.len() < narrow.len());
        assert_eq!(words(whole), words(narrow));
    }

    #[test]
    fn a_program_is_told_how_its_time_is_divided_and_what_it_asked() {
        let requests: Vec<Request> = (0..200)
            .map(|at| match at % 4 {
                3 => request(at, Operation::Flush, 0),
                _ => request(at, Operation::Write, at * at % 97 * 65536),
            })
            .collect();
        let text = lines(&document(&requests)).join(" ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "db: 200 us, 200 calls",
            "storage requests were outstanding for 50% of the time: 38% in writes, 13% in flushes",
            "writes 150 of 8 KiB, 1.17 MiB; ",
            "random; buffered; p50 500 ns",
            "flushes 50, one per 3.0 writes",
            "1.00 reads and writes outstanding",
            "/data/table: 150 writes of 8 KiB in 75 us",
            "50 flushes in 25 us",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    fn mixed_sizes_have_their_range_and_the_most_common_one() {
        let mut requests: Vec<Request> = (0..9).map(|at| request(at, Operation::Read, 0)).collect();
        requests.push(Request { bytes: 512, ..request(9, Operation::Read, 0) });
        let document = document(&requests);
        let reads = document.operation(Operation::Read).unwrap().data.as_ref().unwrap();
        assert_eq!(sizes(reads), "512 B to 8 KiB (90% are 8 KiB)");
    }
}
