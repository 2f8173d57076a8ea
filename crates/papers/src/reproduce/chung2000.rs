//! The tables of the second paper, and a table of the throughput plateaus that the text and the
//! captions state.
//!
//! The figures are in `chung2000_figures`. Their published values are lost.

use crate::reproduce::figure::{Cell, Chart, Column, Explanation, Figure, Metric};
use crate::reproduce::probe::{Extent, Probe};
use crate::reproduce::published::{self, Row};

/// The system with SCSI disks under Windows 2000.
pub const ATLAS: &str = "w2k-atlas10k";
/// The system with IDE disks on a 3ware 3W-5400 card under Windows 2000.
pub const FIREBALL: &str = "w2k-fireball-3ware";
/// The system with an IDE disk as in [`FIREBALL`], on an IDE channel of the motherboard.
pub const FIREBALL_IDE: &str = "w2k-fireball-ide";
/// The system with IDE disks as in [`FIREBALL`], on the later 3ware card 3W-6800.
pub const CARD_6800: &str = "w2k-3w6800";
/// The system with Maxtor DiamondMax disks, which are also IDE disks.
pub const DIAMONDMAX: &str = "w2k-diamondmax";
/// The system with a CIFS file server over Gigabit Ethernet.
pub const CIFS: &str = "w2k-cifs-gigabit";
/// The machine of the first paper under NT 4.0 SP6.
pub const E5000_NT4: &str = "e5000-nt4sp6";
/// The machine of the first paper under Windows 2000.
pub const E5000_W2K: &str = "e5000-w2k";

/// The known reasons why simulated values of the tables have large errors.
pub const EXPLANATIONS: &[Explanation] = &[
    ("t6", "3W-6800", 0.0, 1e9, FOUR_FIREBALLS),
    ("t6", "Ultra160 SCSI", 0.0, 1e9, PCI_AT_64_KB),
    (
        "t7",
        "DMA",
        0.0,
        1e9,
        "at 19 MB/s, the CPU costs that the paper states (C210 and C212) add up to 1.4% of two \
         CPUs",
    ),
    ("t7", "PIO", 0.0, 1e9, "170 clocks per byte (Table 7) limit a 733 MHz CPU to 4.1 MB/s"),
    (
        "t10",
        "Fireball",
        0.0,
        1e9,
        "the KAPS value of 78 is the mean of 66 reads/s and 90 writes/s (Table 9)",
    ),
    ("plateaus", "3W-6800 alpha card", 0.0, 1e9, FOUR_FIREBALLS),
    ("plateaus", "SCSI Atlas 10K, controller cache", 0.0, 1e9, PCI_AT_64_KB),
    ("plateaus", "Atlas 10K, single, write, 8", 0.0, 1e9, WRITES_BESIDE_READS),
    ("plateaus", "3ware single, write, 8", 0.0, 1e9, FRAMES_AT_5400_RPM),
];

const PCI_AT_64_KB: &str = "the paper also states 83.6, 84 and 87 MB/s (C053, C058, C156)";
const WRITES_BESIDE_READS: &str = "before each sorted write, 64 KB are read; in the model, the \
     write then takes about 3.5 ms, but the published rate leaves only 2.3 ms";
const FRAMES_AT_5400_RPM: &str =
    "each write first reads 64 KB (C106), so the rate is at most 96 per second (C183, C162, C198)";
const FOUR_FIREBALLS: &str =
    "the published rate exceeds the media rate of four disks with 19 MB/s each (C198)";

/// The request sizes of the figures (KB).
pub const SIZES: [f64; 8] = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Returns a chart with a row for each request size in [`SIZES`]. Each series has a name and a
/// probe, whose request size is replaced in each row.
pub fn by_sizes(title: &str, metric: Metric, series: Vec<(String, Probe)>) -> Chart {
    let cells =
        |probe: Probe| SIZES.map(|kib| Some(Cell::new(probe.clone().kib(kib), metric))).to_vec();
    let column = |(name, probe)| Column { name, cells: cells(probe) };
    Chart {
        title: format!("{title} ({})", metric.unit()),
        rows_are: "request KB",
        rows: SIZES.map(|kib| kib.to_string()).to_vec(),
        columns: series.into_iter().map(column).collect(),
    }
}

/// Returns all tables, in the paper's order.
pub fn tables() -> Vec<Figure> {
    vec![
        given(
            "t1",
            "Generations of software and hardware (an input of the simulator)",
            published::CHUNG_1,
        ),
        given("t2", "Prices (an input of the simulator)", published::CHUNG_2),
        given(
            "t4",
            "Old and new hardware (Tables 4 and 5, inputs of the simulator)",
            published::CHUNG_4_5,
        ),
        limits(),
        transfer_modes(),
        given("t8", "Format of a trace (not simulated)", published::CHUNG_8),
        random_requests(),
        price_performance(),
        costs(),
        given("costs", "Fixed and marginal CPU costs (inputs of the simulator)", published::COSTS),
        plateaus(),
    ]
}

/// Returns a table with named rows and a single column of values.
fn table(key: &str, title: &str, unit: &str, rows: Vec<(String, Cell)>) -> Figure {
    let (names, cells): (Vec<String>, Vec<Option<Cell>>) =
        rows.into_iter().map(|(name, cell)| (name, Some(cell))).unzip();
    let column = Column { name: String::new(), cells };
    let title_of_chart = format!("({unit})");
    let chart =
        Chart { title: title_of_chart, rows_are: "quantity", rows: names, columns: vec![column] };
    Figure { key: key.to_owned(), title: title.to_owned(), charts: vec![chart], given: None }
}

/// Returns a published table that describes the set-up and is an input of the simulator.
fn given(key: &str, title: &str, file: &'static str) -> Figure {
    let (key, title) = (key.to_owned(), title.to_owned());
    Figure { key, title, charts: Vec::new(), given: Some(file) }
}

/// Returns a probe that repeatedly reads the same 512 KB from four striped disks. If a request is
/// larger, the probe repeats this one request. The reads are served from the disks' buffers, so the
/// adapter or the PCI bus limits the throughput.
pub fn bus_test(system: &'static str, kib: f64) -> Probe {
    let stripe = Probe::of(system).striped(4).with("path", "driver").kib(kib).deep(8);
    stripe.over(Extent::Again(512 << 10))
}

/// Returns a probe of disks that a 3ware card stripes. The file system starts at the first
/// partition, 63 sectors (31.5 KB) after the start of the stripe, so requests are misaligned.
pub fn hardware_stripe(card: &'static str, disks: u32) -> Probe {
    Probe::of(card).striped(disks).with("raid_in", "adapter").with("misalign", "31.5k")
}

/// Returns a probe of two disks that are mirrored by the 3ware card.
pub fn twinstor() -> Probe {
    let mirror = Probe::of(FIREBALL).with("disks", 2).with("volume", "raid1");
    mirror.with("raid_in", "adapter").with("mirror_reads", "twinstor")
}

/// Returns a probe of several independent disks. A separate simulated host accesses each disk.
pub fn apart(system: &'static str, disks: u32) -> Probe {
    Probe::of(system).with("disks", disks).with("hosts", disks)
}

fn limits() -> Figure {
    let rows = published::rows(published::CHUNG_6);
    let of = |component: &str, condition: &str| {
        let is_it = |row: &&Row| {
            row.text("component") == component
                && row.text("kind") == "RAP"
                && row.text("condition") == condition
        };
        let row = rows.iter().find(is_it);
        (row.and_then(|row| row.number("value")), row.and_then(|row| row.number("value_hi")))
    };
    let inner = |system: &'static str| Probe::of(system).with("file_at", "0.98").deep(2);
    let outer = |system: &'static str| Probe::of(system).with("file_at", "0.0").deep(2);
    let short = |probe: Probe| probe.over(Extent::Bytes(32 << 20));
    let rows = [
        ("PCI bus, reads of 1 MB", bus_test(ATLAS, 1024.0), of("PCI bus", "").0),
        (
            "Ultra160 SCSI, reads of 64 KB",
            bus_test(ATLAS, 64.0),
            of("SCSI bus Ultra160", "64KB read requests").0,
        ),
        (
            "Ultra160 SCSI, writes",
            Probe::of(ATLAS).striped(4).wce().deep(8),
            of("SCSI bus Ultra160", "write").0,
        ),
        ("3W-5400, reads of 64 KB", bus_test(FIREBALL, 64.0), of("3ware 3W-5400", "64KB read").0),
        (
            "3W-5400, writes",
            hardware_stripe(FIREBALL, 4).wce().deep(8),
            of("3ware 3W-5400", "write").0,
        ),
        (
            "3W-6800, reads of 256 KB",
            bus_test(CARD_6800, 256.0),
            of("3ware 3W-6800 (alpha test unit)", "256KB read").0,
        ),
        (
            "3W-6800, writes of 256 KB",
            hardware_stripe(CARD_6800, 4).wce().kib(256.0).deep(8),
            of("3ware 3W-6800 (alpha test unit)", "256KB write").0,
        ),
        ("Atlas 10K, inner", short(inner(ATLAS)), of("disk Atlas 10K", "").0),
        ("Atlas 10K, outer", short(outer(ATLAS)), of("disk Atlas 10K", "").1),
        ("Fireball lct08, inner", short(inner(FIREBALL)), of("disk Fireball lct08", "").0),
        ("Fireball lct08, outer", short(outer(FIREBALL)), of("disk Fireball lct08", "").1),
    ];
    let row = |(name, probe, published): (&str, Probe, Option<f64>)| {
        (name.to_owned(), Cell { probe, metric: Metric::Throughput, published })
    };
    let table = table("t6", "Real application performance", "MB/s", rows.map(row).to_vec());
    Figure { given: Some(published::CHUNG_6), ..table }
}

/// Returns a probe of 64 KB reads by programmed I/O (PIO), in which the CPU copies the data.
pub fn by_processor() -> Probe {
    // Table 7 states 170 clocks per byte. At 733 MHz, this is 237.5 us per KiB.
    Probe::of(FIREBALL_IDE).with("host.direct_read.each", "237.5us/KiB")
}

/// Returns Table 7, which compares reads by DMA with reads by the processor (PIO).
fn transfer_modes() -> Figure {
    let rows = published::rows(published::CHUNG_7);
    let row = |row: &Row| {
        let mode = row.text("mode");
        let probe = if mode == "PIO" { by_processor() } else { Probe::of(FIREBALL_IDE) };
        let metric = match row.text("unit") {
            "MBps" => Metric::Throughput,
            "percent" => Metric::BusyShare,
            _ => return None,
        };
        let cell = Cell { probe, metric, published: row.number("value") };
        Some((format!("{mode}, {}", metric.unit()), cell))
    };
    let rows = rows.iter().filter_map(row).collect();
    let table = table("t7", "64 KB reads by DMA and by the processor", "MB/s, percent", rows);
    Figure { given: Some(published::CHUNG_7), ..table }
}

/// Returns the system with the drive that Tables 9 and 10 call `name`, and the price of the drive
/// (USD; claims C174 and C172).
fn drive_of(name: &str) -> (&'static str, f64) {
    if name.contains("Atlas") { (ATLAS, 534.0) } else { (FIREBALL, 209.0) }
}

fn random_requests() -> Figure {
    let rows = published::rows(published::CHUNG_9);
    let row = |row: &Row| {
        let (drive, metric) = (row.text("drive"), row.text("metric"));
        let (system, price) = drive_of(drive);
        let probe = Probe::of(system).random();
        let (probe, shown) = match metric {
            "random 8KB read" => (probe, Metric::Requests),
            "random 8KB write" => (probe.wce(), Metric::Requests),
            "price per KAPS" => (probe, Metric::PricePerRequest(price)),
            _ => return None,
        };
        let cell = Cell { probe, metric: shown, published: row.number("value") };
        Some((format!("{drive}, {metric}"), cell))
    };
    let rows = rows.iter().filter_map(row).collect();
    table("t9", "Random 8 KB requests", "IO/s, USD", rows)
}

fn price_performance() -> Figure {
    let rows = published::rows(published::CHUNG_10);
    let row = |row: &Row| {
        let (drive, metric) = (row.text("drive"), row.text("metric"));
        let (system, price) = drive_of(drive);
        let (kib, shown) = match metric {
            "KAPS" => (8.0, Metric::Requests),
            "MAPS" => (1024.0, Metric::Requests),
            "KAPS per dollar" => (8.0, Metric::RequestsPerPrice(price)),
            "MAPS per dollar" => (1024.0, Metric::RequestsPerPrice(price)),
            _ => return None,
        };
        let probe = Probe::of(system).random().kib(kib);
        let cell = Cell { probe, metric: shown, published: row.number("value") };
        Some((format!("{drive}, {metric}"), cell))
    };
    let rows = rows.iter().filter_map(row).collect();
    let title = "Kilobyte and megabyte accesses per second";
    let table = table("t10", title, "IO/s, IO/s for each USD", rows);
    Figure { given: Some(published::CHUNG_10), ..table }
}

/// Returns Table 11: CPU costs of random requests, with sequential requests for comparison.
fn costs() -> Figure {
    let rows = published::rows(published::CHUNG_11);
    let of = |path: &str, operation: &str, term: &str| {
        let is_it = |row: &&Row| {
            row.text("path") == path
                && row.text("operation").starts_with(operation)
                && row.text("term") == term
        };
        rows.iter().find(is_it).and_then(|row| row.number("value"))
    };
    let mut cells = Vec::new();
    for path in ["buffered", "unbuffered"] {
        for operation in ["read", "write"] {
            let mut probe = Probe::of(ATLAS);
            probe = if path == "buffered" { probe.buffered() } else { probe };
            probe = if operation == "write" { probe.wce() } else { probe };
            let per_mib = |us: f64, kib: f64| us / 1e3 * 1024.0 / kib;
            let metric = Metric::SoakedPerMib;
            let published = of(path, operation, "total").map(|us| per_mib(us, 8.0));
            let random = Cell { probe: probe.clone().random(), metric, published };
            cells.push((format!("random 8 KB, {path} {operation}"), random));
            // The costs of sequential requests are inputs of the simulator, so these cells are not
            // scored.
            let sequential = Cell::new(probe, metric);
            cells.push((format!("sequential 64 KB, {path} {operation}"), sequential));
        }
    }
    let table = table("t11", "CPU cost of all processors of the machine", "ms/MB", cells);
    Figure { given: Some(published::CHUNG_11), ..table }
}

/// Returns the throughput plateaus that the text and the captions state. Network paths to a local
/// disk are left out, because no system models them.
fn plateaus() -> Figure {
    let rows = published::rows(published::PLATEAUS);
    let mut cells = Vec::new();
    for row in rows.iter().filter(|row| row.text("interface") != "CIFS local") {
        let metric = match row.text("unit") {
            "IO/s" => Metric::Requests,
            _ => Metric::Throughput,
        };
        let name = ["interface", "config", "operation", "request_kib", "buffering"]
            .map(|column| row.text(column));
        let name = name.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>();
        let probe = probe_of(row);
        cells.push((name.join(", "), Cell { probe, metric, published: row.number("value") }));
    }
    table("plateaus", "Plateaus stated in the text and the captions", "MB/s, IO/s", cells)
}

fn probe_of(row: &Row) -> Probe {
    let (interface, config) = (row.text("interface"), row.text("config"));
    let disks = row.number("disks").unwrap_or(4.0) as u32;
    let kib = row.number("request_kib").unwrap_or(64.0);
    let system = match interface {
        "SCSI Atlas 10K" => ATLAS,
        "IDE Maxtor DiamondMax 40GB" => DIAMONDMAX,
        "CIFS over Gigabit Ethernet" => CIFS,
        _ if config.contains("6800") => CARD_6800,
        _ => FIREBALL,
    };
    // The published rate of the 3W-6800 exceeds the media rate of four drives (C198), so the reads
    // must have been served from the drives' caches.
    let from_caches = config.contains("6800") && row.text("operation") == "read";
    if from_caches || row.text("pattern") == "bus test" {
        return bus_test(system, kib);
    }
    let probe = match config {
        config if config.contains("RAID1") => twinstor(),
        config if config.contains("hardware") => hardware_stripe(system, disks),
        config if config.contains("independent") => apart(system, disks),
        _ if system == CIFS => Probe::of(system),
        _ => Probe::of(system).striped(disks),
    };
    let buffered = row.text("buffering") == "fs_buffered";
    let probe = if buffered { probe.buffered() } else { probe };
    let probe = match (row.text("operation"), config.contains("WCE off")) {
        ("write", true) => probe.writing(),
        ("write", false) => probe.wce(),
        _ => probe,
    };
    let random = row.text("pattern") == "random 8KB";
    let deep = match row.text("depth") {
        "" if random || buffered => 1,
        "" => 8,
        "1 per disk" => 1,
        depth => depth.parse().unwrap_or(1),
    };
    let probe = if random { probe.random() } else { probe.kib(kib) };
    probe.deep(deep)
}
