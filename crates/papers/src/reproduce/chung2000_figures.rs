//! The figures of the second paper, set up as the captions and the text describe them.
//!
//! The published values of the figures are lost, so each chart has only simulated values. If the
//! text states a number from a figure, this number is a claim.

use crate::reproduce::chung2000::{
    ATLAS, CIFS, E5000_NT4, E5000_W2K, FIREBALL, apart, by_sizes, hardware_stripe, twinstor,
};
use crate::reproduce::figure::{Cell, Chart, Column, Figure, Metric};
use crate::reproduce::probe::{Extent, Probe};
use crate::reproduce::riedel97::{FAST, ULTRA};

/// The queue depths in the figures with sequential requests.
const DEPTHS: [u32; 5] = [1, 2, 3, 4, 8];
/// The queue depths in the figures with random requests.
const RANDOM_DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];

type Series = Vec<(String, Probe)>;

/// Sets the CPU costs of direct reads from a dynamic volume (claims C141 and C142).
pub fn dynamic(probe: Probe) -> Probe {
    probe.with("host.direct_read.fixed", "58us").with("host.direct_read.each", "0.43us/KiB")
}

/// Sets the CPU costs per KB of a stripe of IDE disks (claims C223 and C224). The fixed cost (C222)
/// is that of a single disk.
fn stripe_cost(probe: Probe) -> Probe {
    let probe = probe.with("host.direct_read.each", "0.46us/KiB");
    probe.with("host.direct_write.each", "0.52us/KiB")
}

/// Sets the CPU costs per KB of a mirror of IDE disks (claims C242 and C243). The fixed cost (C241)
/// is that of a single disk.
fn mirror_cost(probe: Probe) -> Probe {
    let probe = probe.with("host.direct_read.each", "0.60us/KiB");
    probe.with("host.direct_write.each", "0.55us/KiB")
}

fn one(name: &str, probe: Probe) -> (String, Probe) {
    (name.to_owned(), probe)
}

fn depths(name: &str, probe: &Probe) -> Series {
    DEPTHS.map(|depth| (format!("{name}, {depth} deep"), probe.clone().deep(depth))).to_vec()
}

/// Returns three series: reads, writes with the write cache disabled, and writes with the write
/// cache enabled (WCE). The names of the series begin with `name`.
fn directions(name: &str, probe: &Probe) -> Series {
    let named = |what: &str| format!("{name} {what}").trim_start().to_owned();
    let off = probe.clone().writing().with("write_cache", "off");
    vec![
        (named("read"), probe.clone()),
        (named("write"), off),
        (named("write, WCE"), probe.clone().wce()),
    ]
}

fn throughput(title: &str, series: Series) -> Chart {
    by_sizes(title, Metric::Throughput, series)
}

fn soaked(title: &str, series: Series) -> Chart {
    by_sizes(title, Metric::SoakedPerMib, series)
}

/// Returns a chart of random requests, with a row for each depth.
fn by_depth(title: &str, metric: Metric, series: Series) -> Chart {
    let cells = |probe: Probe| {
        let cell = |depth| Some(Cell::new(probe.clone().random().deep(depth), metric));
        RANDOM_DEPTHS.map(cell).to_vec()
    };
    let column = |(name, probe)| Column { name, cells: cells(probe) };
    Chart {
        title: format!("{title} ({})", metric.unit()),
        rows_are: "depth",
        rows: RANDOM_DEPTHS.map(|depth| depth.to_string()).to_vec(),
        columns: series.into_iter().map(column).collect(),
    }
}

/// Returns four series of random requests to a disk: reads and writes, each with and without the
/// file-system cache.
fn random(system: &'static str) -> Series {
    let disk = Probe::of(system);
    vec![
        one("read", disk.clone()),
        one("write", disk.clone().wce()),
        one("buffered read", disk.clone().buffered()),
        one("buffered write", disk.buffered().wce()),
    ]
}

fn figure(key: &str, title: &str, charts: Vec<Chart>) -> Figure {
    Figure { key: key.to_owned(), title: format!("{title} (simulated)"), charts, given: None }
}

/// Returns Figures 2 to 38. Figure 1 is a drawing whose numbers are in Table 6.
pub fn figures() -> Vec<Figure> {
    let mut all = vec![surface(), extension()];
    all.extend(old_hardware());
    all.extend(one_scsi_disk());
    all.extend(scsi_stripes());
    all.extend(ide_random());
    all.extend(one_ide_disk());
    all.extend(ide_stripes());
    all.extend(network());
    all
}

fn surface() -> Figure {
    let places = ["0.0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "0.98"];
    let column = |(name, system): (&str, &'static str)| {
        let cell = |place| {
            let probe = Probe::of(system).with("file_at", place).deep(2);
            Some(Cell::new(probe.over(Extent::Bytes(32 << 20)), Metric::Throughput))
        };
        Column { name: name.to_owned(), cells: places.map(cell).to_vec() }
    };
    let chart = Chart {
        title: "64 KB reads at depth 2 (MB/s)".to_owned(),
        rows_are: "radius",
        rows: places.map(str::to_owned).to_vec(),
        columns: [("Atlas 10K", ATLAS), ("Fireball lct08", FIREBALL)].map(column).to_vec(),
    };
    figure("2", "Read throughput over the surface of the disks", vec![chart])
}

fn extension() -> Figure {
    let write = || Probe::of(ATLAS).wce();
    let series = vec![
        one("preallocated", write()),
        one("extending at the end", write().with("allocation", "extend")),
        one("extending, zeroed", write().with("allocation", "zeroed")),
    ];
    figure("3", "File extension, Atlas 10K with WCE", vec![throughput("write", series)])
}

fn old_hardware() -> Vec<Figure> {
    let (sp3, sp6, w2k) = (Probe::of(ULTRA), Probe::of(E5000_NT4), Probe::of(E5000_W2K));
    let buffered = |probe: &Probe| directions("", &probe.clone().buffered());
    let direct = |probe: &Probe| directions("", probe);
    let charged = |title: &str, series| by_sizes(title, Metric::CpuPerMib, series);
    let overhead = vec![one("basic read", w2k.clone()), one("dynamic read", dynamic(w2k.clone()))];
    vec![
        figure(
            "4",
            "Buffered throughput, NT4SP3 and NT4SP6",
            vec![throughput("NT4SP3", buffered(&sp3)), throughput("NT4SP6", buffered(&sp6))],
        ),
        figure(
            "5",
            "Buffered overhead: CPU time of the process (NT4SP3) and of the machine (NT4SP6)",
            vec![charged("NT4SP3", buffered(&sp3)), soaked("NT4SP6", buffered(&sp6))],
        ),
        figure(
            "6",
            "Unbuffered throughput, NT4SP3 and NT4SP6",
            vec![
                throughput("NT4SP3, Ultra-Wide", direct(&sp3)),
                throughput("NT4SP3, Fast-Wide", direct(&Probe::of(FAST))),
                throughput("NT4SP6", direct(&sp6)),
            ],
        ),
        figure(
            "7",
            "Asynchronous unbuffered throughput, NT4SP3 and NT4SP6",
            vec![
                throughput("NT4SP3", depths("read", &Probe::of(FAST))),
                throughput("NT4SP6", depths("read", &sp6)),
                throughput("NT4SP3", depths("write", &Probe::of(FAST).writing())),
                throughput("NT4SP6", depths("write", &sp6.clone().writing())),
            ],
        ),
        figure(
            "8",
            "Windows 2000 on old hardware, basic volume",
            vec![throughput("buffered", buffered(&w2k)), throughput("unbuffered", direct(&w2k))],
        ),
        figure(
            "9",
            "Unbuffered asynchronous reads, old hardware",
            vec![throughput("Windows 2000", depths("read", &w2k))],
        ),
        figure(
            "10",
            "Unbuffered overhead: NT4SP3, NT4SP6, Windows 2000",
            vec![
                charged("NT4SP3", direct(&sp3)),
                soaked("NT4SP6", direct(&sp6)),
                soaked("Windows 2000", overhead),
            ],
        ),
    ]
}

fn one_scsi_disk() -> Vec<Figure> {
    let disk = Probe::of(ATLAS);
    let buffered = || directions("", &disk.clone().buffered());
    let mut basic = depths("basic", &disk);
    basic.truncate(2);
    let mut managed = depths("dynamic", &dynamic(disk.clone()));
    managed.truncate(2);
    let reads = basic.into_iter().chain(managed).collect();
    let overhead = vec![
        one("basic read", disk.clone()),
        one("dynamic read", dynamic(disk.clone())),
        one("write, WCE", disk.clone().wce()),
    ];
    vec![
        figure(
            "11",
            "Random 8 KB requests to a SCSI disk",
            vec![by_depth("Atlas 10K", Metric::Requests, random(ATLAS))],
        ),
        figure(
            "12",
            "Overhead of random 8 KB requests to a SCSI disk",
            vec![by_depth("Atlas 10K", Metric::SoakedPerMib, random(ATLAS))],
        ),
        figure(
            "13",
            "Buffered throughput of a SCSI disk",
            vec![throughput("Atlas 10K", buffered())],
        ),
        figure("14", "Buffered overhead of a SCSI disk", vec![soaked("Atlas 10K", buffered())]),
        figure(
            "15",
            "Unbuffered throughput of basic and dynamic volumes",
            vec![
                throughput("read", reads),
                throughput("write", directions("", &disk)[1..].to_vec()),
            ],
        ),
        figure(
            "16",
            "Unbuffered overhead of basic and dynamic volumes",
            vec![soaked("Atlas 10K", overhead)],
        ),
    ]
}

fn scsi_stripes() -> Vec<Figure> {
    let charts = |disks: [u32; 2]| {
        let charts = disks.map(|disks| {
            let stripe = Probe::of(ATLAS).striped(disks);
            let name = if disks == 1 { "1 disk".to_owned() } else { format!("{disks} disks") };
            [
                throughput(&name, depths("read", &stripe)),
                throughput(&name, depths("write, WCE", &stripe.wce())),
            ]
        });
        charts.into_iter().flatten().collect()
    };
    let overhead = [1, 3].map(|disks| {
        let stripe = dynamic(Probe::of(ATLAS).striped(disks));
        let series = vec![one("read", stripe.clone()), one("write, WCE", stripe.wce())];
        by_sizes(&format!("disks: {disks}"), Metric::CpuPerMib, series)
    });
    vec![
        figure("17", "One and two striped SCSI disks", charts([1, 2])),
        figure("18", "Three and four striped SCSI disks", charts([3, 4])),
        figure("19", "Overhead of one and three striped SCSI disks", overhead.to_vec()),
    ]
}

fn ide_random() -> Vec<Figure> {
    let both = vec![
        one("SCSI read", Probe::of(ATLAS)),
        one("SCSI write", Probe::of(ATLAS).wce()),
        one("IDE read", Probe::of(FIREBALL)),
        one("IDE write", Probe::of(FIREBALL).wce()),
    ];
    let apart_disks = |write: bool| -> Series {
        let series = |disks: u32| {
            let probe = apart(FIREBALL, disks);
            (format!("disks: {disks}"), if write { probe.wce() } else { probe })
        };
        (1..=4).map(series).collect()
    };
    let requests = |title: &str, series| by_depth(title, Metric::Requests, series);
    let pair = |probe: Probe| vec![one("read", probe.clone()), one("write, WCE", probe.wce())];
    vec![
        figure("20", "Random 8 KB requests, SCSI and IDE", vec![requests("one disk", both)]),
        figure(
            "21",
            "Overhead of random 8 KB requests to an IDE disk",
            vec![by_depth("Fireball lct08", Metric::SoakedPerMib, random(FIREBALL))],
        ),
        figure(
            "22",
            "Random requests to several IDE disks, by the depth of each disk",
            vec![requests("read", apart_disks(false)), requests("write, WCE", apart_disks(true))],
        ),
        figure(
            "23",
            "Random requests to two IDE disks, independent and striped",
            vec![
                requests("independent disks, by the depth of each disk", pair(apart(FIREBALL, 2))),
                requests("RAID0, by the depth of the stripe", pair(Probe::of(FIREBALL).striped(2))),
            ],
        ),
    ]
}

fn one_ide_disk() -> Vec<Figure> {
    let (scsi, ide) = (Probe::of(ATLAS), Probe::of(FIREBALL));
    let wce = |name: &str, probe: &Probe| {
        let named = |what: &str| format!("{name} {what}");
        vec![(named("read"), probe.clone()), (named("write, WCE"), probe.clone().wce())]
    };
    let both = |scsi: &Probe, ide: &Probe| -> Series {
        wce("SCSI", scsi).into_iter().chain(wce("IDE", ide)).collect()
    };
    let (scsi_cached, ide_cached) = (scsi.clone().buffered(), ide.clone().buffered());
    vec![
        figure(
            "24",
            "Buffered throughput, SCSI and IDE",
            vec![throughput("one disk", both(&scsi_cached, &ide_cached))],
        ),
        figure(
            "25",
            "Buffered overhead, SCSI and IDE",
            vec![soaked("one disk", both(&scsi_cached, &ide_cached))],
        ),
        figure(
            "26",
            "Unbuffered throughput, SCSI and IDE on the 3ware card",
            vec![
                throughput("SCSI", depths("read", &scsi)),
                throughput("IDE", depths("read", &ide)),
                throughput("SCSI", depths("write, WCE", &scsi.clone().wce())),
                throughput("IDE", depths("write, WCE", &ide.clone().wce())),
            ],
        ),
        figure(
            "27",
            "Unbuffered overhead, SCSI and IDE",
            vec![soaked("one disk", both(&scsi, &ide))],
        ),
    ]
}

fn ide_stripes() -> Vec<Figure> {
    let soft = || Probe::of(FIREBALL).striped(2);
    let hard = |disks| hardware_stripe(FIREBALL, disks);
    let charts = |name: &str, probe: Probe| {
        [
            throughput(name, depths("read", &probe)),
            throughput(name, depths("write, WCE", &probe.wce())),
        ]
    };
    let pair = |name: &str, probe: Probe| {
        vec![(format!("{name} read"), probe.clone()), (format!("{name} write, WCE"), probe.wce())]
    };
    let both = |soft: Probe, hard: Probe| -> Series {
        pair("software", soft).into_iter().chain(pair("hardware", hard)).collect()
    };
    let random = vec![one("RAID0 read", soft()), one("RAID1 read", twinstor())];
    let random_writes = vec![one("RAID0", soft().wce()), one("RAID1", twinstor().wce())];
    vec![
        figure("28", "Software RAID0 of two IDE disks", charts("2 disks", soft()).to_vec()),
        figure("29", "Hardware RAID0 of two IDE disks", charts("2 disks", hard(2)).to_vec()),
        figure(
            "30",
            "Unbuffered overhead of RAID0",
            vec![soaked("2 IDE disks", both(stripe_cost(soft()), stripe_cost(hard(2))))],
        ),
        figure(
            "31",
            "Buffered throughput of RAID0",
            vec![throughput("2 IDE disks", both(soft().buffered(), hard(2).buffered()))],
        ),
        figure("32", "Hardware RAID0 of three and four IDE disks", {
            charts("3 disks", hard(3)).into_iter().chain(charts("4 disks", hard(4))).collect()
        }),
        figure("33", "Hardware RAID1 of two IDE disks", charts("2 disks", twinstor()).to_vec()),
        figure(
            "34",
            "Random requests to RAID0 and RAID1",
            vec![
                by_depth("read", Metric::Requests, random),
                by_depth("write, WCE", Metric::Requests, random_writes),
            ],
        ),
        figure(
            "35",
            "Unbuffered overhead of hardware RAID1",
            vec![soaked("2 IDE disks", pair("RAID1", mirror_cost(twinstor())))],
        ),
    ]
}

fn network() -> Vec<Figure> {
    let client = Probe::of(CIFS);
    let none = |key: &str, what: &str| Figure {
        key: key.to_owned(),
        title: format!("{what}: not simulated, because no system file describes such paths"),
        charts: Vec::new(),
        given: None,
    };
    vec![
        none("36", "UNC paths and mapped drives on a local disk"),
        none("37", "Overhead of UNC paths and mapped drives"),
        figure(
            "38",
            "A mapped drive over Gigabit Ethernet",
            vec![
                throughput("read", depths("read", &client)),
                throughput("write", depths("write, WCE", &client.wce())),
            ],
        ),
    ]
}
