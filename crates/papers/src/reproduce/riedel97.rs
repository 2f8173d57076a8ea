//! The figures and tables of the first paper (Riedel, van Ingen and Gray 1997).
//!
//! If the published values of a figure are available, the data file states how each value was
//! measured. The other figures are set up as the paper's captions and text describe them.

use std::collections::BTreeMap;

use crate::reproduce::figure::{Cell, Chart, Column, Explanation, Figure, Metric};
use crate::reproduce::probe::{Extent, Probe};
use crate::reproduce::published::{self, Row};

/// The request sizes of the figures (KB).
pub const SIZES: [f64; 8] = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 192.0];
/// The system with Ultra-Wide SCSI disks.
pub const ULTRA: &str = "nt4-ultrawide";
/// The system with Fast-Wide SCSI disks.
pub const FAST: &str = "nt4-fastwide";
/// The system with the narrow SCSI disk of Table 3.
const NARROW: &str = "nt4-narrow";
/// The distance from the start of a stripe chunk to the start of the papers' striped files.
const MISALIGN: &str = "12k";

const ABOVE_THE_MEDIA: &str =
    "the published value exceeds the highest media rate of the disk (6.71 MB/s, Figure 14)";

/// The known reasons for large errors in the figures.
pub const EXPLANATIONS: &[Explanation] = &[
    ("4", "ST15150W, Read", 192.0, 192.0, "plotted at 192 KB, but probably measured at 256 KB"),
    ("6", "3 Buffers", 192.0, 192.0, ABOVE_THE_MEDIA),
    ("6", "8 Buffers", 64.0, 192.0, ABOVE_THE_MEDIA),
    ("5", "ST15150W, Read", 192.0, 192.0, "plotted at 192 KB, but probably measured at 256 KB"),
];

/// Returns all figures, then all tables, in the paper's order.
pub fn figures() -> Vec<Figure> {
    let mut all = vec![
        table_1_pipeline(),
        from_file("2", "Out-of-box file system, one Ultra-Wide disk", published::FIGURE_2),
        from_file("3", "Unbuffered file system, one disk", published::FIGURE_3),
        from_file("4", "CPU cost of unbuffered requests", published::FIGURE_4),
        from_file("5", "One Ultra-Wide disk, buffered and unbuffered", published::FIGURE_5),
        from_file("6", "One Fast-Wide disk, 1, 3 and 8 requests outstanding", published::FIGURE_6),
        depth_on_four_disks(),
        disks_on_one_bus(),
        one_bus_or_two(),
        from_file(
            "10",
            "Three Ultra-Wide disks, with and without the file-system cache",
            published::FIGURE_10,
        ),
        advertised_and_real(),
        allocation(),
        from_file("13", "Alignment of a file on four Ultra-Wide disks", published::FIGURE_13),
        radial_position(),
        striping_in(),
        raid5_in(),
    ];
    all.extend([hardware(), memory(), hit_times(), bus_phases()]);
    all
}

fn figure(key: &str, title: &str, charts: Vec<Chart>) -> Figure {
    Figure { key: key.to_owned(), title: title.to_owned(), charts, given: None }
}

/// Returns a chart with a row for each request size and a column for each probe. The request size
/// of each probe is replaced in each row.
fn by_size(title: &str, metric: Metric, columns: Vec<(String, Probe)>) -> Chart {
    let cells =
        |probe: Probe| SIZES.map(|kib| Some(Cell::new(probe.clone().kib(kib), metric))).to_vec();
    let column = |(name, probe)| Column { name, cells: cells(probe) };
    Chart {
        title: format!("{title} ({})", metric.unit()),
        rows_are: "request KB",
        rows: SIZES.map(|kib| kib.to_string()).to_vec(),
        columns: columns.into_iter().map(column).collect(),
    }
}

fn throughput(title: &str, columns: Vec<(String, Probe)>) -> Chart {
    by_size(title, Metric::Throughput, columns)
}

/// Builds a figure from a file of published values.
fn from_file(key: &str, title: &str, file: &'static str) -> Figure {
    let mut charts: Vec<Chart> = Vec::new();
    let sizes = sizes_of(file);
    for row in published::rows(file) {
        let (metric, name) = (metric_of(&row), series_of(&row));
        let chart_title = format!("{} ({})", row.text("chart"), metric.unit());
        let at = charts.iter().position(|chart| chart.title == chart_title).unwrap_or_else(|| {
            let rows = sizes.iter().map(f64::to_string).collect();
            charts.push(Chart {
                title: chart_title,
                rows_are: "request KB",
                rows,
                columns: vec![],
            });
            charts.len() - 1
        });
        let columns = &mut charts[at].columns;
        let column = columns.iter().position(|column| column.name == name).unwrap_or_else(|| {
            columns.push(Column { name, cells: vec![None; sizes.len()] });
            columns.len() - 1
        });
        let kib = row.number("request_kib").unwrap_or_default();
        if let Some(at) = sizes.iter().position(|size| *size == kib) {
            let (probe, published) = (probe_of(&row).kib(kib), row.number("value"));
            columns[column].cells[at] = Some(Cell { probe, metric, published });
        }
    }
    figure(key, title, charts)
}

/// Returns the request sizes of a chart (KB): [`SIZES`], and all larger sizes in the file of
/// published values.
fn sizes_of(file: &'static str) -> Vec<f64> {
    let mut sizes = SIZES.to_vec();
    let rows = published::rows(file);
    let largest = rows.iter().filter(|row| !row.text("config").is_empty());
    for kib in largest.filter_map(|row| row.number("request_kib")) {
        if kib > sizes[sizes.len() - 1] {
            sizes.push(kib);
        }
    }
    sizes
}

fn system_of(drive: &str) -> &'static str {
    match drive {
        drive if drive.contains("Ultra") => ULTRA,
        drive if drive.contains("Narrow") => NARROW,
        _ => FAST,
    }
}

/// Returns the name of the series of a row. In the overhead chart of Figure 5, the series of both
/// drives have the same names, so `ST15150W` is added to the names of that drive's series.
fn series_of(row: &Row) -> String {
    let name = row.text("series");
    match (row.text("figure"), row.text("chart"), system_of(row.text("drive"))) {
        ("5", "overhead", system) if system == FAST => format!("{name} ST15150W"),
        _ => name.to_owned(),
    }
}

/// Returns the probe of a published value, without the request size. Files on stripes are not
/// aligned to the chunks, unless the row states that they are. Figure 13 does not state whether the
/// write cache (WCE) is on. It is assumed to be on, because the writes at depth 3 are as fast as in
/// Figure 10 with WCE.
fn probe_of(row: &Row) -> Probe {
    let disks = row.number("disks").map_or(1, |disks| disks as u32);
    let system = system_of(row.text("drive"));
    let mut probe = match row.text("config") {
        "file aligned to stripe chunk" => striped(system, disks).with("misalign", "0"),
        _ => striped(system, disks),
    };
    let cached = row.text("wce") == "on" || row.text("figure") == "13";
    if row.text("buffering") == "fs_buffered" {
        probe = probe.buffered();
        // Section 2 measures synchronous requests on one disk. Section 4 measures several disks
        // with several requests in flight.
        if disks > 1 {
            probe = probe.with("overlapped", "on");
        }
    }
    if row.text("operation") == "write" {
        probe = if cached { probe.wce() } else { probe.writing() };
    }
    probe.deep(row.number("depth").map_or(1, |depth| depth as u32))
}

fn metric_of(row: &Row) -> Metric {
    match row.text("metric") {
        "cpu_time_per_mb" => Metric::CpuPerMib,
        "cpu_time_per_request" => Metric::CpuPerRequest,
        "cpu_utilization" => Metric::CpuShare,
        _ => Metric::Throughput,
    }
}

/// Returns Figure 1: the load of each component while a file is read or written on one disk.
fn table_1_pipeline() -> Figure {
    let read = Probe::of(FAST).buffered();
    let column = |name: &str, probe: Probe| Column {
        name: name.to_owned(),
        cells: [Metric::Throughput, Metric::CpuShare, Metric::BusShare]
            .map(|metric| Some(Cell::new(probe.clone(), metric)))
            .to_vec(),
    };
    let chart = Chart {
        title: "one disk, 64 KB".to_owned(),
        rows_are: "quantity",
        rows: ["throughput, MB/s", "processor %", "SCSI bus %"].map(str::to_owned).to_vec(),
        columns: vec![
            column("buffered read", read.clone()),
            column("buffered read, 2 KB", read.kib(2.0)),
            column("buffered write", Probe::of(FAST).buffered().writing()),
        ],
    };
    figure("1", "The storage sub-system, out of the box (Fast-Wide disk)", vec![chart])
}

fn depths(probe: &Probe, depths: &[u32]) -> Vec<(String, Probe)> {
    depths.iter().map(|depth| (format!("{depth} deep"), probe.clone().deep(*depth))).collect()
}

fn depth_on_four_disks() -> Figure {
    let four = Probe::of(FAST).striped(4).with("misalign", MISALIGN);
    let mut writes = vec![("WCE".to_owned(), four.clone().wce())];
    writes.extend(depths(&four.clone().writing(), &[1, 3, 8]));
    let charts = vec![throughput("read", depths(&four, &[1, 3, 8])), throughput("write", writes)];
    figure("7", "Four Fast-Wide disks striped on one bus", charts)
}

/// Returns a probe of a file that is striped by ftdisk and not aligned to the chunks. The paper
/// does not state where on the disks the file is. The position follows from the throughput. Three
/// Ultra-Wide disks reach 27 to 28 MB/s (Figure 10), which is the media rate of the outermost
/// cylinders. Four Fast-Wide disks on two buses reach "nearly 24 MBps" (section 4), which is the
/// media rate in the middle of the disks.
pub fn striped(system: &'static str, disks: u32) -> Probe {
    let probe = Probe::of(system).striped(disks);
    if disks == 1 {
        return probe;
    }
    let place = if system == ULTRA { "0.0" } else { "0.5" };
    probe.with("misalign", MISALIGN).with("file_at", place)
}

fn disks_on_one_bus() -> Figure {
    let columns = |system: &'static str, writes: bool| -> Vec<(String, Probe)> {
        let of = |disks: u32| {
            let probe = striped(system, disks).deep(3);
            let name = if disks == 1 { "1 disk".to_owned() } else { format!("{disks} disks") };
            (name, if writes { probe.wce() } else { probe })
        };
        (1..=4).map(of).collect()
    };
    let charts = vec![
        throughput("Fast-Wide read", columns(FAST, false)),
        throughput("Fast-Wide write, WCE", columns(FAST, true)),
        throughput("Ultra-Wide write, WCE", columns(ULTRA, true)),
    ];
    figure("8", "Disks on one bus, 3 requests outstanding", charts)
}

fn one_bus_or_two() -> Figure {
    let columns = |write: bool| -> Vec<(String, Probe)> {
        let of = |(name, disks, buses): (&str, u32, u32)| {
            let probe = striped(FAST, disks).with("buses", buses).deep(3);
            (name.to_owned(), if write { probe.wce() } else { probe })
        };
        let set_ups = [
            ("2 disks, 1 bus", 2, 1),
            ("4 disks, 1 bus", 4, 1),
            ("2+2 disks, 2 buses", 4, 2),
            ("3+3 disks, 2 buses", 6, 2),
        ];
        set_ups.into_iter().map(of).collect()
    };
    let charts = vec![throughput("read", columns(false)), throughput("write, WCE", columns(true))];
    figure("9", "Fast-Wide disks on one bus or two, 3 requests outstanding", charts)
}

fn advertised_and_real() -> Figure {
    let published: BTreeMap<(String, String), f64> = published::rows(published::FIGURE_11)
        .iter()
        .filter_map(|row| {
            let key = (row.text("component").to_owned(), row.text("kind").to_owned());
            row.number("value").map(|value| (key, value))
        })
        .collect();
    let of = |component: &str, kind: &str| {
        published.get(&(component.to_owned(), kind.to_owned())).copied()
    };
    let nine = striped(ULTRA, 9).with("buses", 3).deep(18);
    let cells = [
        (Probe::of(ULTRA), of("Ultra disk media", "RAP")),
        (striped(ULTRA, 4).deep(12).kib(192.0), of("SCSI bus Ultra-Wide", "RAP")),
        (nine.kib(192.0), of("PCI bus", "RAP")),
    ];
    let cell = |(probe, published)| Some(Cell { probe, metric: Metric::Throughput, published });
    let chart = Chart {
        title: "real application performance (MB/s)".to_owned(),
        rows_are: "component",
        rows: ["one disk", "a bus with 4 disks", "PCI with 9 disks"].map(str::to_owned).to_vec(),
        columns: vec![Column { name: "read".to_owned(), cells: cells.map(cell).to_vec() }],
    };
    figure("11", "Advertised and real performance of each component", vec![chart])
}

fn allocation() -> Figure {
    let columns = |system: &'static str| {
        let probe = striped(system, 4).writing();
        let mut all = depths(&probe, &[1, 3, 8]);
        let extending = depths(&probe.with("allocation", "extend"), &[1, 3, 8]).into_iter();
        all.extend(extending.map(|(name, probe)| (format!("{name}, extending"), probe)));
        all
    };
    let one = |probe: Probe| {
        let extending = probe.clone().with("allocation", "extend");
        vec![("preallocated".to_owned(), probe), ("extending".to_owned(), extending)]
    };
    let charts = vec![
        throughput("unbuffered write, four Fast-Wide disks", columns(FAST)),
        throughput("buffered write, one Ultra-Wide disk", {
            one(Probe::of(ULTRA).buffered().writing())
        }),
    ];
    figure("12", "Writing a preallocated file, and a file that grows", charts)
}

fn radial_position() -> Figure {
    let rows = published::rows(published::FIGURE_14);
    let mut places: Vec<String> = Vec::new();
    let mut columns: Vec<Column> = Vec::new();
    for row in &rows {
        let place = row.text("radial_fraction").to_owned();
        let at = places.iter().position(|known| *known == place).unwrap_or_else(|| {
            places.push(place.clone());
            columns.iter_mut().for_each(|column| column.cells.push(None));
            places.len() - 1
        });
        let name = row.text("series");
        let column = columns.iter().position(|column| column.name == name).unwrap_or_else(|| {
            columns.push(Column { name: name.to_owned(), cells: vec![None; places.len()] });
            columns.len() - 1
        });
        // The innermost position must leave room for the file.
        let at_share = row.number("radial_fraction").unwrap_or_default().min(0.995);
        let probe = Probe::of(system_of(row.text("drive")))
            .with("file_at", format!("{at_share:?}"))
            .over(Extent::Bytes(16 << 20));
        let (metric, published) = (Metric::Throughput, row.number("value"));
        columns[column].cells[at] = Some(Cell { probe, metric, published });
    }
    let title = "64 KB reads, one request outstanding (MB/s)".to_owned();
    let chart = Chart { title, rows_are: "radius", rows: places, columns };
    figure("14", "Throughput over the surface of the disks", vec![chart])
}

fn striping_in() -> Figure {
    let columns = |writes: bool| -> Vec<(String, Probe)> {
        let of = |place: &'static str| {
            let probe = striped(ULTRA, 3).with("raid_in", place).deep(3);
            (place.to_owned(), if writes { probe.wce() } else { probe })
        };
        ["host", "adapter", "array"].map(of).to_vec()
    };
    let charts = vec![throughput("read", columns(false)), throughput("write, WCE", columns(true))];
    figure("16", "Striping of three Ultra-Wide disks by the host, the adapter or the array", charts)
}

fn raid5_in() -> Figure {
    let raid = |place: &'static str, writes: bool| {
        let probe = striped(ULTRA, 4).with("volume", "raid5").with("raid_in", place).deep(3);
        if writes { probe.writing() } else { probe }
    };
    let columns = || {
        let of = |(place, writes): (&'static str, bool)| {
            let name = if writes { "write" } else { "read" };
            (format!("{place} {name}"), raid(place, writes))
        };
        [("host", false), ("array", false), ("host", true), ("array", true)].map(of).to_vec()
    };
    let charts =
        vec![throughput("throughput", columns()), by_size("CPU", Metric::SoakedPerMib, columns())];
    figure("17", "RAID 5 of four Ultra-Wide disks, managed by the host or by the array", charts)
}

fn hit_times() -> Figure {
    let rows = published::rows(published::TABLE_3);
    let sizes = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
    let mut columns: Vec<Column> = Vec::new();
    for row in &rows {
        let hit = row.text("hit_type");
        let name = format!("{} {}", row.text("drive"), hit.replace('_', " "));
        let column = columns.iter().position(|column| column.name == name).unwrap_or_else(|| {
            columns.push(Column { name, cells: vec![None; sizes.len()] });
            columns.len() - 1
        });
        let kib = row.number("request_kib").unwrap_or_default();
        let extent = if hit == "cache_hit" { Extent::Again(0) } else { Extent::Paced(20_000_000) };
        // The driver's test program reads blocks of the disk, not of a file. This probe reads the
        // first blocks of the disk.
        let probe = Probe::of(system_of(row.text("drive"))).with("path", "driver");
        let probe = probe.with("file_at", "0.0").kib(kib).over(extent);
        if let Some(at) = sizes.iter().position(|size| *size == kib) {
            let (metric, published) = (Metric::Latency, row.number("value"));
            columns[column].cells[at] = Some(Cell { probe, metric, published });
        }
    }
    let rows = sizes.map(|kib| kib.to_string()).to_vec();
    let title = "elapsed time of a request (ms)".to_owned();
    let chart = Chart { title, rows_are: "request KB", rows, columns };
    figure("t3", "Reads by the device driver from the drives' buffers", vec![chart])
}

/// The rows of Table 4. Each row has a name, the published phases that it adds up, and the same
/// phases in the model. The model does not separate all published phases.
const PHASES: [(&str, &[&str], &[&str]); 7] = [
    ("Arbitrate", &["Arbitrate", "Arbitrate Win"], &["arbitrate"]),
    ("Reselect", &["Reselect", "(Re)Select End"], &["reselect"]),
    ("Select", &["Select"], &["select"]),
    ("Message In", &["Message In"], &["message in"]),
    ("Message Out", &["Message Out"], &["message out"]),
    ("Command, Status", &["Command", "Status"], &["command", "status"]),
    ("Data In", &["Data In", "Data In End"], &["data"]),
];

/// The columns of Table 4: the name, the request size (KB), and the number of disks.
const PHASE_RUNS: [(&str, f64, u32); 4] = [
    ("8 KB, 1 disk", 8.0, 1),
    ("64 KB, 1 disk", 64.0, 1),
    ("64 KB, 2 disks", 64.0, 2),
    ("64 KB, 3 disks", 64.0, 3),
];

fn bus_phases() -> Figure {
    let rows = published::rows(published::TABLE_4);
    let published = |phases: &[&str], kib: f64, disks: u32| -> Option<f64> {
        let of = |row: &&Row| {
            phases.contains(&row.text("phase"))
                && row.number("request_kib") == Some(kib)
                && row.number("disks") == Some(f64::from(disks))
        };
        let values: Vec<f64> =
            rows.iter().filter(of).filter_map(|row| row.number("value")).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    };
    let column = |(name, kib, disks): (&str, f64, u32)| {
        let depth = if disks == 1 { 1 } else { 8 };
        let probe = striped(ULTRA, disks).kib(kib).deep(depth);
        let mut cells: Vec<Option<Cell>> = Vec::new();
        for (_, theirs, ours) in PHASES {
            let (metric, published) = (Metric::Phases(ours), published(theirs, kib, disks));
            cells.push(Some(Cell { probe: probe.clone(), metric, published }));
        }
        let published = published(&["Bus Utilization"], kib, disks);
        cells.push(Some(Cell { probe, metric: Metric::BusShare, published }));
        Column { name: name.to_owned(), cells }
    };
    let mut rows: Vec<String> = PHASES.map(|(name, _, _)| name.to_owned()).to_vec();
    rows.push("Bus Utilization".to_owned());
    let chart = Chart {
        title: "share of each phase in the bus activity, and bus utilization (percent)".to_owned(),
        rows_are: "phase",
        rows,
        columns: PHASE_RUNS.map(column).to_vec(),
    };
    figure("t4", "SCSI activity by phase (Ultra-Wide)", vec![chart])
}

/// Returns Table 1, which describes the hardware and is an input. The chart adds the simulated
/// media rate of each disk.
fn hardware() -> Figure {
    let rows = [("ST15150W", FAST), ("ST34371W", ULTRA)];
    let column = |(name, at): (&str, &str)| Column {
        name: name.to_owned(),
        cells: rows
            .iter()
            .map(|(_, system)| {
                let probe = Probe::of(system).with("file_at", at).kib(192.0);
                Some(Cell::new(probe.over(Extent::Bytes(16 << 20)), Metric::Throughput))
            })
            .collect(),
    };
    let chart = Chart {
        title: "simulated media rate of the disks, read (MB/s)".to_owned(),
        rows_are: "disk",
        rows: rows.map(|(name, _)| name.to_owned()).to_vec(),
        columns: [("outermost", "0.0"), ("innermost", "0.99")].map(column).to_vec(),
    };
    let title = "Hardware (an input of the simulator, see the system files)";
    let table = figure("t1", title, vec![chart]);
    Figure { given: Some(published::TABLE_1), ..table }
}

/// Returns Table 2, the memory bandwidth of processors. The table is an input and is not simulated.
fn memory() -> Figure {
    let title = "Processor to memory bandwidth (an input of the simulator: R128, R129)";
    let table = figure("t2", title, Vec::new());
    Figure { given: Some(published::TABLE_2), ..table }
}
