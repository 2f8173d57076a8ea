//! The functions that simulate the claims of the second paper.
//!
//! If a simulated value does not meet its claim, the column `why` of `claims.csv` states the
//! reason.

use crate::claims;
use crate::reproduce::chung2000::{
    ATLAS, CARD_6800, CIFS, DIAMONDMAX, E5000_NT4, E5000_W2K, FIREBALL, FIREBALL_IDE, SIZES, apart,
    bus_test, hardware_stripe, twinstor,
};
use crate::reproduce::chung2000_figures::dynamic;
use crate::reproduce::claim::{
    Answer, Check, Checks, OwnValue, best, cost, first_size, gain, loss, plateau, ratio, soaked,
};
use crate::reproduce::probe::{Extent, Lab, Probe};
use crate::reproduce::published;
use crate::reproduce::riedel97::{FAST, ULTRA};

/// The queue depths in the paper's figures.
const DEPTHS: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 8.0];
/// The prices of a SCSI disk (claim C174) and of an IDE disk (claim C172), in USD.
const PRICES: [f64; 2] = [534.0, 209.0];

fn atlas() -> Probe {
    Probe::of(ATLAS)
}

fn fireball() -> Probe {
    Probe::of(FIREBALL)
}

fn cifs() -> Probe {
    Probe::of(CIFS)
}

/// Returns the rate of random 8 KB reads (requests/s).
fn reads(lab: &Lab, probe: Probe) -> Answer {
    lab.rate(&probe.random())
}

/// Returns the rate of random 8 KB writes with the write cache enabled (requests/s).
fn writes(lab: &Lab, probe: Probe) -> Answer {
    lab.rate(&probe.random().wce())
}

/// Returns the best throughput over all request sizes at depth 8 (MB/s).
fn peak(lab: &Lab, probe: Probe) -> Answer {
    best(lab, &probe.deep(8), &SIZES)
}

/// Returns the smallest depth at which the throughput is at least 90% of that at depth 8.
fn optimal_depth(lab: &Lab, probe: &Probe) -> Answer {
    let most = lab.mib(&probe.clone().deep(8))?;
    first_size(&DEPTHS, |depth| Ok(lab.mib(&probe.clone().deep(depth as u32))? >= 0.9 * most))
}

/// Returns the difference `more - than` as a percentage of `than`.
fn percent_more(more: f64, than: f64) -> f64 {
    (more / than - 1.0) * 100.0
}

/// Returns the rate of random requests that would saturate the PCI bus (requests/s).
fn pci_requests(lab: &Lab) -> Answer {
    let measured = lab.measure(&atlas().random().deep(32))?;
    let share = measured.utilisation_percent("PCI").ok_or("the system has no PCI")?;
    Ok(measured.requests_per_s * 100.0 / share)
}

/// Returns the smallest number of disks for which one more disk increases the throughput by less
/// than `share` times the throughput of a single disk.
fn disks_until_full(lab: &Lab, probe: impl Fn(u32) -> Probe, share: f64) -> Answer {
    for disks in 1..12 {
        let more = peak(lab, probe(disks + 1))? - peak(lab, probe(disks))?;
        if more < share * peak(lab, probe(1))? {
            return Ok(f64::from(disks));
        }
    }
    Err("the throughput still increases when the 12th disk is added".to_owned())
}

/// Returns the best throughput of the probe `more` minus the best throughput of `fewer` (MB/s).
fn adds(lab: &Lab, more: Probe, fewer: Probe) -> Answer {
    Ok(peak(lab, more)? - peak(lab, fewer)?)
}

/// The checks of the claims in section 1.
pub const OVERVIEW: &[Check] = &[
    ("C004", |lab| lab.mib(&atlas().wce().deep(2))),
    ("C005", |lab| ratio(lab, &atlas().deep(2), &Probe::of(ULTRA))),
    ("C007", |lab| loss(lab, &Probe::of(ULTRA).kib(2.0), &Probe::of(ULTRA))),
    ("C012", |lab| Ok(ratio(lab, &atlas().deep(2), &Probe::of(ULTRA))? * 100.0)),
    ("C013", |lab| {
        let set_up = |buses: u32| {
            let stripe = Probe::of(ULTRA).striped(3 * buses).with("buses", buses);
            stripe.kib(192.0).deep(6 * buses)
        };
        for buses in 1..5 {
            if gain(lab, &set_up(buses + 1), &set_up(buses))? < 10.0 {
                return Ok(f64::from(3 * buses));
            }
        }
        Err("the throughput still increases when disks 13 to 15 are added".to_owned())
    }),
    ("C014", |lab| disks_until_full(lab, |disks| atlas().striped(disks), 0.5)),
    ("C015", |lab| Ok(reads(lab, atlas())? * 8.0 / 1024.0)),
    ("C016", |lab| Ok(pci_requests(lab)? / reads(lab, atlas())?)),
    ("C017", |lab| Ok(pci_requests(lab)? / reads(lab, atlas())?)),
    ("C024", |lab| Ok(-percent_more(reads(lab, fireball())?, reads(lab, atlas())?))),
    ("C027", |lab| best(lab, &cifs().deep(2), &SIZES)),
    ("C028", |lab| {
        Ok(best(lab, &cifs().wce().deep(2), &SIZES)? / best(lab, &cifs().deep(2), &SIZES)?)
    }),
    ("C030", |lab| ratio(lab, &atlas().deep(2), &Probe::of(ULTRA))),
    ("C031", |lab| disks_until_full(lab, |disks| atlas().striped(disks), 0.5)),
    ("C033", |lab| Ok(reads(lab, atlas())? / reads(lab, fireball())?)),
];

/// The checks of the claims in sections 3 and 4.
pub const INTERNALS: &[Check] = &[
    ("C061", |lab| lab.mib(&apart(FIREBALL, 4).random().deep(8))),
    ("C073", |lab| {
        let write = atlas().wce();
        loss(lab, &write.clone().with("allocation", "zeroed"), &write)
    }),
];

/// The checks of the claims in sections 5 and 6.
pub const OLD_HARDWARE: &[Check] = &[
    ("C076", |lab| {
        let read = Probe::of(ULTRA).buffered();
        ratio(lab, &read.clone().kib(128.0), &read)
    }),
    ("C077", |lab| {
        // As in Figure 5, the result for SP6 is the CPU time of the whole machine, scaled from 333
        // to 200 MHz. The result for the older SP3 is only the CPU time charged to the process.
        let cheaper = |kib: f64| -> Result<bool, String> {
            let write = |system| Probe::of(system).buffered().writing().kib(kib);
            Ok(soaked(lab, &write(E5000_NT4))? * 333.0 / 200.0 < cost(lab, &write(ULTRA))?)
        };
        let mut from = Err("the claim does not hold at the largest request size".to_owned());
        for kib in SIZES {
            from = match (cheaper(kib)?, from) {
                (false, _) => Err("the claim does not hold at the largest request size".to_owned()),
                (true, Ok(size)) => Ok(size),
                (true, Err(_)) => Ok(kib),
            };
        }
        from
    }),
    ("C080", |lab| {
        Ok(lab.mib(&Probe::of(ULTRA).wce())? - lab.mib(&Probe::of(ULTRA).wce().kib(2.0))?)
    }),
    ("C081", |lab| lab.mib(&Probe::of(E5000_NT4))),
    ("C082", |lab| lab.mib(&Probe::of(FAST))),
    ("C084", |lab| {
        first_size(&SIZES, |kib| {
            let write = Probe::of(E5000_NT4).kib(kib);
            Ok(ratio(lab, &write.clone().writing().deep(3), &write.wce())? > 0.9)
        })
    }),
    ("C087", |lab| loss(lab, &Probe::of(ULTRA).kib(2.0), &Probe::of(ULTRA))),
    ("C088", |lab| {
        let read = Probe::of(E5000_W2K).kib(2.0);
        loss(lab, &dynamic(read.clone()), &read)
    }),
];

/// The checks of the claims in section 7.1.
pub const RANDOM: &[Check] = &[
    ("C100", |lab| {
        // `first` is the smallest depth at which the rate is more than 5% above that of depth 1.
        // The claim states the last depth of Figure 11 before `first`. The depths double, so this
        // is half of `first`.
        let alone = reads(lab, atlas())?;
        let first = first_size(&[2.0, 4.0, 8.0, 16.0, 32.0], |depth| {
            Ok(lab.rate(&atlas().random().deep(depth as u32))? > 1.05 * alone)
        })?;
        Ok(first / 2.0)
    }),
    ("C101", |lab| Ok(reads(lab, atlas().buffered())? / reads(lab, atlas())?)),
    ("C103", |lab| reads(lab, atlas().buffered())),
    ("C104", |lab| Ok(reads(lab, atlas().buffered())? / 166.7)),
    ("C105", |lab| writes(lab, atlas().buffered())),
    ("C108", |lab| {
        let measured = lab.measure(&atlas().buffered().random().wce())?;
        Ok(measured.account.device_requests[0] as f64 / measured.requests * 100.0)
    }),
    ("C109", |lab| Ok(percent_more(reads(lab, atlas().buffered())?, reads(lab, atlas())?))),
];

/// The checks of the claims in sections 7.2 and 7.3.
pub const ONE_SCSI_DISK: &[Check] = &[
    ("C116", |lab| ratio(lab, &atlas().deep(2), &Probe::of(ULTRA))),
    ("C118", |lab| lab.mib(&atlas().buffered().wce().kib(2.0))),
    ("C119", |lab| lab.mib(&atlas().buffered().writing().kib(2.0))),
    ("C121", |lab| lab.mib(&atlas().buffered().writing())),
    ("C122", |lab| {
        let write = atlas().buffered().wce();
        Ok(soaked(lab, &write.clone().kib(2.0))? / soaked(lab, &write.kib(4.0))?)
    }),
    ("C133", |lab| gain(lab, &atlas().kib(2.0).deep(2), &atlas().kib(2.0))),
    ("C135", |lab| lab.mib(&atlas().kib(2.0).deep(2))),
    ("C136", |lab| {
        let read = atlas().kib(2.0);
        Ok(percent_more(soaked(lab, &dynamic(read.clone()))?, soaked(lab, &read)?))
    }),
    ("C137", |lab| gain(lab, &atlas().kib(2.0), &dynamic(atlas().kib(2.0)))),
    ("C138", |lab| Ok(lab.measure(&atlas().kib(2.0).deep(2))?.busy_percent())),
];

/// The checks of the claims in section 7.4.
pub const SCSI_STRIPES: &[Check] = &[
    ("C145", |lab| {
        first_size(&SIZES, |kib| {
            let two = atlas().striped(2).deep(3).kib(kib);
            Ok(ratio(lab, &two, &atlas().deep(3).kib(kib))? >= 1.8)
        })
    }),
    ("C147", |lab| ratio(lab, &atlas().striped(2).deep(3), &atlas().deep(3))),
    ("C151", |lab| peak(lab, atlas().striped(3))),
    ("C152", |lab| peak(lab, atlas().striped(4))),
    // C154 and C155 are the gains in write throughput from the third and the fourth drive. C155 is
    // the gain of four drives over two drives. If C155 were the gain over three drives, the
    // throughput of four drives would exceed the 50 MB/s that the text states.
    ("C155", |lab| adds(lab, atlas().striped(4).wce(), atlas().striped(2).wce())),
    ("C156", |lab| lab.mib(&bus_test(ATLAS, 64.0))),
    ("C157", |lab| adds(lab, atlas().striped(3), atlas().striped(2))),
    ("C158", |lab| adds(lab, atlas().striped(4), atlas().striped(3))),
];

/// The checks of the claims in section 8.1.
pub const IDE_RANDOM: &[Check] = &[
    ("C160", |lab| lab.rate(&fireball().random().deep(32))),
    ("C161", |lab| Ok(lab.rate(&fireball().random().deep(32))? / 90.0)),
    ("C164", |lab| Ok(-percent_more(reads(lab, fireball())?, reads(lab, atlas())?))),
    ("C173", |lab| Ok(PRICES[1] / reads(lab, fireball())?)),
    ("C175", |lab| Ok(PRICES[0] / reads(lab, atlas())?)),
    ("C177", |lab| reads(lab, atlas())),
    ("C178", |lab| Ok(percent_more(2.5 * reads(lab, fireball())?, reads(lab, atlas())?))),
    ("C182", |lab| {
        // The value is the first position (GB) on the 40 GB disk at which reads are more than 20%
        // faster than at the start of the disk.
        let at = |gb: f64| {
            let place = format!("{:?}", gb / 40.0);
            lab.mib(&Probe::of(DIAMONDMAX).with("file_at", place).over(Extent::Bytes(32 << 20)))
        };
        first_size(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0], |gb| Ok(at(gb)? > 1.2 * at(0.0)?))
    }),
    ("C183", |lab| Ok(reads(lab, fireball().buffered())? / reads(lab, fireball())?)),
    ("C185", |lab| writes(lab, fireball().buffered())),
    ("C186", |lab| Ok(writes(lab, fireball().buffered())? / 90.0)),
    ("C187", |lab| soaked(lab, &fireball().buffered().random())),
    ("C188", |lab| soaked(lab, &fireball().buffered().random().wce())),
    ("C189", |lab| {
        let buffered = soaked(lab, &fireball().buffered().random())?;
        Ok((1.0 - soaked(lab, &fireball().random())? / buffered) * 100.0)
    }),
    ("C190", |lab| soaked(lab, &fireball().random())),
    ("C191", |lab| soaked(lab, &fireball().buffered().random().wce())),
    ("C192", |lab| soaked(lab, &fireball().buffered().random())),
    ("C193", |lab| soaked(lab, &fireball().random())),
    ("C194", |lab| lab.rate(&apart(FIREBALL, 4).random())),
    ("C195", |lab| lab.rate(&apart(FIREBALL, 4).random().wce())),
];

/// The checks of the claims in sections 8.2 and 8.3.
pub const ONE_IDE_DISK: &[Check] = &[
    ("C197", |lab| Ok(ratio(lab, &fireball().buffered(), &atlas().buffered())? * 100.0)),
    ("C199", |lab| lab.mib(&fireball().buffered().wce().kib(2.0))),
    ("C200", |lab| {
        ratio(lab, &fireball().buffered().wce().kib(2.0), &atlas().buffered().wce().kib(2.0))
    }),
    ("C201", |lab| {
        first_size(&SIZES, |kib| {
            let past = soaked(lab, &fireball().kib(kib))?;
            Ok(past <= 1.05 * soaked(lab, &fireball().buffered().kib(kib))?)
        })
    }),
    ("C205", |lab| plateau(lab, &fireball(), &SIZES)),
    ("C206", |lab| plateau(lab, &fireball().wce(), &SIZES)),
    // Reads and writes are simulated at depth 2. Depth 2 is the best depth for writes on the 3ware
    // card (C209).
    ("C207", |lab| {
        let writes = plateau(lab, &fireball().wce().deep(2), &SIZES)?;
        Ok(plateau(lab, &fireball().deep(2), &SIZES)?.max(writes))
    }),
    ("C208", |lab| optimal_depth(lab, &fireball().kib(8.0))),
    ("C209", |lab| optimal_depth(lab, &Probe::of(FIREBALL_IDE).wce().kib(8.0))),
];

/// The checks of the claims in section 8.4.
pub const IDE_STRIPES: &[Check] = &[
    ("C215", |lab| peak(lab, fireball().striped(2))),
    ("C216", |lab| peak(lab, fireball().striped(2).wce())),
    ("C217", |lab| peak(lab, fireball().striped(2).wce())),
    ("C218", |lab| optimal_depth(lab, &fireball().striped(2).kib(8.0))),
    ("C225", |lab| best(lab, &fireball().striped(2).buffered(), &SIZES)),
    ("C226", |lab| best(lab, &hardware_stripe(FIREBALL, 2).buffered(), &SIZES)),
    ("C228", |lab| {
        adds(lab, hardware_stripe(FIREBALL, 3).wce(), hardware_stripe(FIREBALL, 2).wce())
    }),
    ("C229", |lab| peak(lab, hardware_stripe(FIREBALL, 3))),
    ("C230", |lab| {
        adds(lab, hardware_stripe(FIREBALL, 4).wce(), hardware_stripe(FIREBALL, 3).wce())
    }),
    ("C231", |lab| lab.mib(&hardware_stripe(CARD_6800, 8).kib(256.0).deep(16))),
    ("C232", |lab| lab.mib(&hardware_stripe(CARD_6800, 8).wce().kib(256.0).deep(16))),
    ("C233", |lab| {
        let alone = lab.mib(&fireball().deep(8))?;
        let deep = first_size(&[1.0, 2.0, 4.0, 8.0, 16.0], |depth| {
            Ok(lab.mib(&twinstor().deep(depth as u32))? > 1.05 * alone)
        })?;
        Ok(64.0 * deep)
    }),
    ("C236", |lab| lab.rate(&fireball().striped(2).random().deep(2))),
    ("C237", |lab| lab.rate(&twinstor().random().deep(2))),
];

/// The checks of the claims in sections 9 and 10.
pub const NETWORK: &[Check] = &[
    ("C260", |lab| lab.mib(&cifs().kib(32.0).deep(2))),
    ("C274", pci_requests),
    ("C275", |lab| Ok(pci_requests(lab)? / reads(lab, atlas())?)),
    ("C277", |lab| {
        let each = |rate: f64, price: f64| rate / price;
        let ide = each(reads(lab, fireball())?, PRICES[1]);
        Ok(percent_more(ide, each(reads(lab, atlas())?, PRICES[0])))
    }),
    ("C278", |lab| disks_until_full(lab, hardware_stripe_or_one, 0.5)),
    ("C279", |lab| best(lab, &cifs().deep(2), &SIZES)),
    ("C280", |lab| {
        Ok(best(lab, &cifs().wce().deep(2), &SIZES)? / best(lab, &cifs().deep(2), &SIZES)?)
    }),
];

fn hardware_stripe_or_one(disks: u32) -> Probe {
    if disks == 1 { fireball() } else { hardware_stripe(FIREBALL, disks) }
}

const COMPUTED: &[&[Check]] = &[
    OVERVIEW,
    INTERNALS,
    OLD_HARDWARE,
    RANDOM,
    ONE_SCSI_DISK,
    SCSI_STRIPES,
    IDE_RANDOM,
    ONE_IDE_DISK,
    IDE_STRIPES,
    NETWORK,
];

/// Returns the published number of a claim.
fn stated(id: &str) -> Option<f64> {
    claims::named(id).map(|claim| claim.low)
}

/// Returns the CPU time of a 2 KB read (us). The claim `fixed` states the fixed cost of a read, and
/// the claim `each` states the cost per KB.
fn us_of_2_kib(fixed: &str, each: &str) -> Option<f64> {
    Some(stated(fixed)? + 2.0 * stated(each)?)
}

/// Compares the CPU time of buffered writes under NT 4.0 SP6 with Figure 2 of the first paper.
/// Returns the smallest request size (KB) such that this size and all larger sizes cost less under
/// SP6. The costs under SP6 are scaled from 333 to 200 MHz.
fn cheaper_under_sp6() -> Option<f64> {
    let (fixed, each) = (stated("C078")?, stated("C079")?);
    let mut from = None;
    for row in published::rows(published::FIGURE_2) {
        if row.text("metric") == "cpu_time_per_mb" && row.text("series") == "Write" {
            let kib = row.number("request_kib")?;
            let now = (fixed / kib + each) * 1.024 * 333.0 / 200.0;
            from = if now < row.number("value")? { from.or(Some(kib)) } else { None };
        }
    }
    from
}

/// Returns an upper limit of the rate of buffered random 8 KB writes to the IDE disk (requests/s).
/// Each write first reads 64 KB (C106). This read takes the time of a buffered read of 8 KB, plus
/// the time to read the other 56 KB at the media rate. The write itself is assumed to take no time.
fn framed_ide_writes() -> Option<f64> {
    let read_s = 1.0 / (stated("C183")? * stated("C162")?);
    let more_s = (stated("C106")? - 8.0) / 1024.0 / stated("C198")?;
    Some(1.0 / (read_s + more_s))
}

/// The values of some claims, computed from other numbers of the paper.
const OWN: &[OwnValue] = &[
    (&["C028", "C280"], || Some(stated("C264")? / stated("C260")?), "C264 and C260 (C264 / C260)"),
    (
        &["C136"],
        || Some(percent_more(us_of_2_kib("C141", "C142")?, us_of_2_kib("C139", "C140")?)),
        "C139 to C142 (the difference at 2 KB)",
    ),
    (
        &["C137"],
        || {
            let more_us = us_of_2_kib("C141", "C142")? - us_of_2_kib("C139", "C140")?;
            Some(more_us * stated("C134")? * 512.0 / 1e4)
        },
        "C139 to C142 (the difference in CPU time per request, multiplied by the request rate of \
         C134)",
    ),
    (
        &["C138"],
        || Some(us_of_2_kib("C139", "C140")? * stated("C135")? * 512.0 / 2e4),
        "C139 and C140 (the CPU costs at the rate of C135)",
    ),
    (
        &["C185"],
        framed_ide_writes,
        "C106, C162, C183 and C198 (each write first reads 64 KB, section 8.1; the write itself is \
         assumed to take no time)",
    ),
    (
        &["C186"],
        || Some(framed_ide_writes()? / stated("C184")?),
        "C184 and the value computed for C185 (C185 / C184)",
    ),
    (
        &["C077"],
        cheaper_under_sp6,
        "C078 and C079 (scaled to 200 MHz and compared with Figure 2 of the first paper)",
    ),
    (&["C232"], || stated("C060"), "the limits of the card (C060)"),
];

/// The checks of this paper's claims, and the values that follow from other numbers of the paper.
pub const CHECKS: Checks = Checks { computed: COMPUTED, own: OWN };
