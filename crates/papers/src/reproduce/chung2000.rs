//! The tables and scattered numbers of the second paper as tables of points.
//!
//! Its figures are lost, so only its tables of rates, random requests and CPU costs are reproduced,
//! and the plateaus stated in its text and captions.

use crate::reproduce::figure::{Cell, Chart, Column, Explanation, Figure, Metric};
use crate::reproduce::probe::{Extent, Probe};
use crate::reproduce::published::{self, Row};

/// SCSI disks under Windows 2000.
pub const ATLAS: &str = "w2k-atlas10k";
/// IDE disks on a 3ware card under Windows 2000.
pub const FIREBALL: &str = "w2k-fireball-3ware";
/// The same disks on the next card, 3W-6800.
pub const CARD_6800: &str = "w2k-3w6800";
/// Maxtor DiamondMax disks, also IDE.
pub const DIAMONDMAX: &str = "w2k-diamondmax";
/// A CIFS file server over Gigabit Ethernet.
pub const CIFS: &str = "w2k-cifs-gigabit";
/// The old machine under NT 4.0 SP6.
pub const E5000_NT4: &str = "e5000-nt4sp6";
/// The old machine under Windows 2000.
pub const E5000_W2K: &str = "e5000-w2k";

/// Known reasons for residuals.
pub const EXPLANATIONS: &[Explanation] = &[];

/// All tables, in the paper's order.
pub fn figures() -> Vec<Figure> {
    vec![
        given("t1", "Generations of software and hardware: an input", published::CHUNG_1),
        given("t2", "Prices: an input", published::CHUNG_2),
        given("t4", "Hardware, old and new (Tables 4 and 5): an input", published::CHUNG_4_5),
        limits(),
        transfer_modes(),
        given("t8", "Format of a trace: an input", published::CHUNG_8),
        random_requests(),
        price_performance(),
        costs(),
        given("costs", "Fixed and marginal CPU costs: inputs", published::COSTS),
        plateaus(),
    ]
}

/// A table with a single column of points, whose rows have names.
fn table(key: &str, title: &str, unit: &str, rows: Vec<(String, Cell)>) -> Figure {
    let (names, cells): (Vec<String>, Vec<Option<Cell>>) =
        rows.into_iter().map(|(name, cell)| (name, Some(cell))).unzip();
    let column = Column { name: String::new(), cells };
    let title_of_chart = format!("({unit})");
    let chart =
        Chart { title: title_of_chart, rows_are: "what", rows: names, columns: vec![column] };
    Figure { key: key.to_owned(), title: title.to_owned(), charts: vec![chart], given: None }
}

/// A published table that describes the set-up; it is an input.
fn given(key: &str, title: &str, file: &'static str) -> Figure {
    let (key, title) = (key.to_owned(), title.to_owned());
    Figure { key, title, charts: Vec::new(), given: Some(file) }
}

/// Repeated reads of the same blocks from four striped disks, which come from the drives' buffers:
/// the limit of adapter and PCI bus.
pub fn bus_test(system: &'static str, kib: f64) -> Probe {
    let stripe = Probe::of(system).striped(4).with("path", "driver").kib(kib).deep(8);
    stripe.over(Extent::Again(1 << 20))
}

/// A stripe made by a 3ware card. It starts at the beginning of the disks, the file system at the
/// first partition, 63 sectors later.
pub fn hardware_stripe(card: &'static str, disks: u32) -> Probe {
    Probe::of(card).striped(disks).with("raid_in", "adapter").with("misalign", "31.5k")
}

/// Two disks mirrored by the 3ware card.
pub fn twinstor() -> Probe {
    let mirror = Probe::of(FIREBALL).with("disks", 2).with("volume", "raid1");
    mirror.with("raid_in", "adapter").with("mirror_reads", "twinstor")
}

/// The disks of a system, each with its own requests.
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
            hardware_stripe(CARD_6800, 4).kib(256.0).deep(8),
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
    table("t6", "Real application performance", "MB/s", rows.map(row).to_vec())
}

/// 64 KB reads by programmed I/O, at the clocks per byte of Table 7.
pub fn by_processor() -> Probe {
    // 170 clocks a byte at 733 MHz, on the motherboard's own channel.
    Probe::of(FIREBALL).with("host.direct_read.each", "237.5us/KiB").with("bus.read", "66.6MB/s")
}

fn transfer_modes() -> Figure {
    let rows = published::rows(published::CHUNG_7);
    let of = |mode: &str| {
        let is_it = |row: &&Row| row.text("mode") == mode && row.text("unit") == "MBps";
        rows.iter().find(is_it).and_then(|row| row.number("value"))
    };
    let modes = [("DMA", Probe::of(FIREBALL)), ("PIO", by_processor())];
    let row = |(name, probe): (&str, Probe)| {
        (name.to_owned(), Cell { probe, metric: Metric::Throughput, published: of(name) })
    };
    table("t7", "64 KB reads by DMA and by the processor", "MB/s", modes.map(row).to_vec())
}

fn random_requests() -> Figure {
    let rows = published::rows(published::CHUNG_9);
    let row = |row: &Row| {
        let (drive, metric) = (row.text("drive"), row.text("metric"));
        let system = if drive.contains("Atlas") { ATLAS } else { FIREBALL };
        let probe = Probe::of(system).random();
        let probe = match metric {
            "random 8KB read" => probe,
            "random 8KB write" => probe.wce(),
            _ => return None,
        };
        let cell = Cell { probe, metric: Metric::Requests, published: row.number("value") };
        Some((format!("{drive}, {metric}"), cell))
    };
    table("t9", "Random 8 KB requests", "IO/s", rows.iter().filter_map(row).collect())
}

fn price_performance() -> Figure {
    let rows = published::rows(published::CHUNG_10);
    let row = |row: &Row| {
        let (drive, metric) = (row.text("drive"), row.text("metric"));
        let system = if drive.contains("Atlas") { ATLAS } else { FIREBALL };
        let kib = match metric {
            "KAPS" => 8.0,
            "MAPS" => 1024.0,
            _ => return None,
        };
        let probe = Probe::of(system).random().kib(kib);
        let cell = Cell { probe, metric: Metric::Requests, published: row.number("value") };
        Some((format!("{drive}, {metric}"), cell))
    };
    table(
        "t10",
        "Accesses of a kilobyte and of a megabyte",
        "IO/s",
        rows.iter().filter_map(row).collect(),
    )
}

/// Table 11: CPU costs of random requests, and sequential ones for comparison.
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
            // Fixed and marginal costs of sequential requests are inputs.
            let sequential = Cell::new(probe, metric);
            cells.push((format!("sequential 64 KB, {path} {operation}"), sequential));
        }
    }
    table("t11", "CPU cost, all of the machine's processors", "ms/MB", cells)
}

/// The plateaus of the text. Local network paths are left out because no system models them.
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
    if row.text("pattern") == "bus test" {
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
