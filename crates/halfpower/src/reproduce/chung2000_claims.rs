//! What the prose of the second paper says, asked of the simulator, claim by claim.

use crate::reproduce::chung2000::{
    ATLAS, CARD_6800, CIFS, DIAMONDMAX, E5000_NT4, E5000_W2K, FIREBALL, apart, bus_test,
    by_processor, hardware_stripe, twinstor,
};
use crate::reproduce::claim::{
    Answer, Check, Reason, best, first_size, gain, loss, plateau, ratio, soaked,
};
use crate::reproduce::probe::{Extent, Lab, Probe};
use crate::reproduce::riedel97::{FAST, ULTRA};

/// Request sizes of this paper's figures (KB).
const SIZES: [f64; 8] = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
/// Depths of its figures.
const DEPTHS: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 8.0];
/// Prices of a disk of each sort (USD): C174, C172.
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

/// Random 8 KB requests per second.
fn reads(lab: &Lab, probe: Probe) -> Answer {
    lab.rate(&probe.random())
}

fn writes(lab: &Lab, probe: Probe) -> Answer {
    lab.rate(&probe.random().wce())
}

/// The most that a stripe gives (MB/s).
fn peak(lab: &Lab, probe: Probe) -> Answer {
    best(lab, &probe.deep(8), &SIZES)
}

/// The first depth that gives nine tenths of what 8 give.
fn optimal_depth(lab: &Lab, probe: &Probe) -> Answer {
    let most = lab.mib(&probe.clone().deep(8))?;
    first_size(&DEPTHS, |depth| Ok(lab.mib(&probe.clone().deep(depth as u32))? >= 0.9 * most))
}

/// By how many percent more disks cost more work per second than one.
fn percent_more(more: f64, than: f64) -> f64 {
    (more / than - 1.0) * 100.0
}

fn dynamic(probe: Probe) -> Probe {
    probe.with("host.direct_read.fixed", "58us").with("host.direct_read.each", "0.43us/KiB")
}

/// Random requests per second at which the PCI bus is full.
fn pci_requests(lab: &Lab) -> Answer {
    let measured = lab.measure(&atlas().random().deep(32))?;
    let share = measured.utilisation_percent("PCI").ok_or("the system has no PCI")?;
    Ok(measured.requests_per_s * 100.0 / share)
}

/// Disks until one more adds less than a tenth of a disk's own rate to the first.
fn disks_until_full(lab: &Lab, probe: impl Fn(u32) -> Probe, share: f64) -> Answer {
    for disks in 1..12 {
        let more = peak(lab, probe(disks + 1))? - peak(lab, probe(disks))?;
        if more < share * peak(lab, probe(1))? {
            return Ok(f64::from(disks));
        }
    }
    Err("no number of disks saturates it".to_owned())
}

/// Gain of one more disk over what fewer give (MB/s).
fn adds(lab: &Lab, more: Probe, fewer: Probe) -> Answer {
    Ok(peak(lab, more)? - peak(lab, fewer)?)
}

fn band(probe: Probe, at: &str) -> Probe {
    probe.with("file_at", at).deep(2).over(Extent::Bytes(32 << 20))
}

/// Section 1.
pub const OVERVIEW: &[Check] = &[
    ("C003", |lab| lab.mib(&atlas().deep(2))),
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
        Err("no number of disks saturates it".to_owned())
    }),
    ("C014", |lab| disks_until_full(lab, |disks| atlas().striped(disks), 0.5)),
    ("C016", |lab| Ok(pci_requests(lab)? / reads(lab, atlas())?)),
    ("C017", |lab| Ok(pci_requests(lab)? / reads(lab, atlas())?)),
    ("C023", |lab| loss(lab, &fireball().deep(2), &atlas().deep(2))),
    ("C024", |lab| Ok(-percent_more(reads(lab, fireball())?, reads(lab, atlas())?))),
    ("C026", |lab| Ok(ratio(lab, &fireball().deep(2), &atlas().deep(2))? * PRICES[0] / PRICES[1])),
    ("C027", |lab| best(lab, &cifs().deep(2), &SIZES)),
    ("C028", |lab| {
        Ok(best(lab, &cifs().wce().deep(2), &SIZES)? / best(lab, &cifs().deep(2), &SIZES)?)
    }),
    ("C030", |lab| ratio(lab, &atlas().deep(2), &Probe::of(ULTRA))),
    ("C031", |lab| disks_until_full(lab, |disks| atlas().striped(disks), 0.5)),
    ("C033", |lab| Ok(reads(lab, atlas())? / reads(lab, fireball())?)),
    ("C034", |lab| ratio(lab, &atlas().deep(2), &fireball().deep(2))),
];

/// Sections 3 and 4.
pub const INTERNALS: &[Check] = &[
    ("C061", |lab| lab.mib(&apart(FIREBALL, 4).random().deep(8))),
    ("C064", |lab| loss(lab, &by_processor(), &fireball())),
    ("C065", |lab| Ok(lab.measure(&by_processor())?.busy_percent())),
    ("C073", |lab| {
        let write = atlas().wce();
        loss(lab, &write.clone().with("allocation", "zeroed"), &write)
    }),
    ("C074", |lab| loss(lab, &band(atlas(), "0.99"), &band(atlas(), "0.0"))),
    ("C075", |lab| loss(lab, &band(fireball(), "0.99"), &band(fireball(), "0.0"))),
];

/// Sections 5 and 6.
pub const OLD_HARDWARE: &[Check] = &[
    ("C076", |lab| {
        let read = Probe::of(ULTRA).buffered();
        ratio(lab, &read.clone().kib(128.0), &read)
    }),
    ("C077", |lab| {
        first_size(&SIZES, |kib| {
            let write = |system| Probe::of(system).buffered().writing().kib(kib);
            Ok(soaked(lab, &write(E5000_NT4))? * 333.0 / 200.0 < soaked(lab, &write(ULTRA))?)
        })
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
    ("C085", |lab| optimal_depth(lab, &Probe::of(E5000_W2K).writing().kib(8.0))),
    ("C087", |lab| loss(lab, &Probe::of(ULTRA).kib(2.0), &Probe::of(ULTRA))),
    ("C088", |lab| {
        let read = Probe::of(E5000_W2K).kib(2.0);
        loss(lab, &dynamic(read.clone()), &read)
    }),
];

/// Section 7.1.
pub const RANDOM: &[Check] = &[
    ("C100", |lab| {
        // Of the depths of figure 11, the last one before a gain shows.
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
    ("C110", |lab| soaked(lab, &atlas().buffered().random())),
    ("C111", |lab| soaked(lab, &atlas().buffered().random().wce())),
    ("C112", |lab| soaked(lab, &atlas().random())),
    (
        "C113",
        |lab| Ok(soaked(lab, &atlas().buffered().random())? / soaked(lab, &atlas().random())?),
    ),
    ("C114", |lab| {
        let buffered = soaked(lab, &atlas().buffered().random().wce())?;
        Ok(buffered / soaked(lab, &atlas().random().wce())?)
    }),
];

/// Sections 7.2 and 7.3.
pub const ONE_SCSI_DISK: &[Check] = &[
    ("C116", |lab| ratio(lab, &atlas().deep(2), &Probe::of(ULTRA))),
    ("C118", |lab| lab.mib(&atlas().buffered().wce().kib(2.0))),
    ("C119", |lab| lab.mib(&atlas().buffered().writing().kib(2.0))),
    ("C121", |lab| lab.mib(&atlas().buffered().writing())),
    ("C122", |lab| {
        let write = atlas().buffered().wce();
        Ok(soaked(lab, &write.clone().kib(2.0))? / soaked(lab, &write.kib(4.0))?)
    }),
    ("C128", |lab| soaked(lab, &atlas().buffered().wce())),
    ("C131", |lab| Ok(1000.0 / soaked(lab, &atlas().buffered().wce())?)),
    ("C132", |lab| Ok(2000.0 / soaked(lab, &atlas().buffered().wce())?)),
    ("C133", |lab| gain(lab, &atlas().kib(2.0).deep(2), &atlas().kib(2.0))),
    ("C135", |lab| lab.mib(&atlas().kib(2.0).deep(2))),
    ("C136", |lab| {
        let read = atlas().kib(2.0);
        Ok(percent_more(soaked(lab, &dynamic(read.clone()))?, soaked(lab, &read)?))
    }),
    ("C137", |lab| gain(lab, &atlas().kib(2.0), &dynamic(atlas().kib(2.0)))),
    ("C138", |lab| Ok(lab.measure(&atlas().kib(2.0).deep(2))?.busy_percent())),
];

/// Section 7.4.
pub const SCSI_STRIPES: &[Check] = &[
    ("C145", |lab| {
        first_size(&SIZES, |kib| {
            let two = atlas().striped(2).deep(3).kib(kib);
            Ok(ratio(lab, &two, &atlas().deep(3).kib(kib))? >= 1.8)
        })
    }),
    ("C147", |lab| ratio(lab, &atlas().striped(2).deep(3), &atlas().deep(3))),
    ("C148", |lab| lab.mib(&atlas().deep(2))),
    ("C149", |lab| Ok(3.0 * lab.mib(&atlas().deep(2))?)),
    ("C150", |lab| Ok(4.0 * lab.mib(&atlas().deep(2))?)),
    ("C151", |lab| peak(lab, atlas().striped(3))),
    ("C152", |lab| peak(lab, atlas().striped(4))),
    ("C154", |lab| adds(lab, atlas().striped(3).wce(), atlas().striped(2).wce())),
    ("C155", |lab| adds(lab, atlas().striped(4).wce(), atlas().striped(3).wce())),
    ("C156", |lab| lab.mib(&bus_test(ATLAS, 64.0))),
    ("C157", |lab| adds(lab, atlas().striped(3), atlas().striped(2))),
    ("C158", |lab| adds(lab, atlas().striped(4), atlas().striped(3))),
];

/// Section 8.1.
pub const IDE_RANDOM: &[Check] = &[
    ("C160", |lab| lab.rate(&fireball().random().deep(32))),
    ("C161", |lab| Ok(lab.rate(&fireball().random().deep(32))? / 90.0)),
    ("C164", |lab| Ok(-percent_more(reads(lab, fireball())?, reads(lab, atlas())?))),
    ("C165", |lab| Ok(-percent_more(writes(lab, fireball())?, writes(lab, atlas())?))),
    ("C166", |lab| Ok(1000.0 / reads(lab, fireball())?)),
    ("C173", |lab| Ok(PRICES[1] / reads(lab, fireball())?)),
    ("C175", |lab| Ok(PRICES[0] / reads(lab, atlas())?)),
    ("C176", |lab| Ok(2.5 * reads(lab, fireball())?)),
    ("C177", |lab| reads(lab, atlas())),
    ("C178", |lab| Ok(percent_more(2.5 * reads(lab, fireball())?, reads(lab, atlas())?))),
    ("C182", |lab| {
        // Where, of 40 GB, the outermost disk is no longer slower than what comes after it.
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
    ("C196", |lab| {
        let two = lab.rate(&fireball().striped(2).random().deep(2))?;
        Ok(percent_more(two, reads(lab, fireball())?))
    }),
];

/// Sections 8.2 and 8.3.
pub const ONE_IDE_DISK: &[Check] = &[
    ("C197", |lab| Ok(ratio(lab, &fireball().buffered(), &atlas().buffered())? * 100.0)),
    ("C198", |lab| lab.mib(&fireball().buffered())),
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
    ("C207", |lab| plateau(lab, &fireball().deep(2), &SIZES)),
    ("C208", |lab| optimal_depth(lab, &fireball().kib(8.0))),
    ("C209", |lab| optimal_depth(lab, &atlas().wce().kib(8.0))),
];

/// Section 8.4.
pub const IDE_STRIPES: &[Check] = &[
    ("C215", |lab| peak(lab, fireball().striped(2))),
    ("C216", |lab| peak(lab, fireball().striped(2).wce())),
    ("C217", |lab| peak(lab, fireball().striped(2).wce())),
    ("C218", |lab| optimal_depth(lab, &fireball().striped(2).kib(8.0))),
    ("C225", |lab| best(lab, &fireball().striped(2).buffered(), &SIZES)),
    ("C226", |lab| best(lab, &hardware_stripe(2).buffered(), &SIZES)),
    ("C227", |lab| peak(lab, hardware_stripe(3).wce())),
    ("C228", |lab| adds(lab, hardware_stripe(3).wce(), hardware_stripe(2).wce())),
    ("C229", |lab| peak(lab, hardware_stripe(3))),
    ("C230", |lab| adds(lab, hardware_stripe(4).wce(), hardware_stripe(3).wce())),
    ("C231", |lab| peak(lab, Probe::of(CARD_6800).striped(8))),
    ("C233", |lab| {
        let alone = lab.mib(&fireball().deep(8))?;
        let deep = first_size(&[1.0, 2.0, 4.0, 8.0, 16.0], |depth| {
            Ok(lab.mib(&twinstor().deep(depth as u32))? > 1.1 * alone)
        })?;
        Ok(64.0 * deep)
    }),
    ("C235", |lab| reads(lab, fireball())),
    ("C236", |lab| lab.rate(&fireball().striped(2).random().deep(2))),
    ("C237", |lab| lab.rate(&twinstor().random().deep(2))),
];

/// Sections 9 and 10.
pub const NETWORK: &[Check] = &[
    ("C254", |lab| Ok(soaked(lab, &cifs().kib(2.0))? / soaked(lab, &atlas().kib(2.0))?)),
    ("C260", |lab| lab.mib(&cifs().kib(32.0).deep(2))),
    ("C263", |lab| Ok(2.0 * lab.mib(&cifs().kib(32.0).deep(2))?)),
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
    if disks == 1 { fireball() } else { hardware_stripe(disks) }
}

/// All checks of this paper.
pub const CHECKS: &[&[Check]] = &[
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

/// Why claims fail.
pub const REASONS: &[Reason] = &[
    (
        &["C101", "C103", "C104", "C109", "C183"],
        "one synchronous random read at a time cannot be faster than the disk; the paper guesses \
         at a reordering that one request does not allow",
    ),
    (
        &["C105", "C185", "C186"],
        "a random read of 64 KB before each write, as the paper says, takes longer than that",
    ),
];
