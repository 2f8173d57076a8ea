//! Computes the claims of the first paper's text with the simulator.
//!
//! Each group of sections has a list of checks. `CHECKS` contains all lists.

use crate::reproduce::claim::{
    Answer, Check, Checks, best, cost, first_size, gain, loss, media_limit, plateau, ratio, reaches,
};
use crate::reproduce::probe::{Extent, Lab, MIB, Probe, known};
use crate::reproduce::riedel97::{FAST, SIZES, ULTRA, striped as stripe};

/// The request sizes of the paper's figures, and larger sizes that only the text mentions (KB).
const TO_1_MIB: [f64; 11] = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 192.0, 256.0, 512.0, 1024.0];
/// The processor's speed (instructions/ns): a request takes 10,000 instructions in 120 us.
const INSTRUCTIONS_PER_NS: f64 = 10_000.0 / 120_000.0;
/// The innermost position in Figure 14, as a share of the disk.
const INNERMOST: &str = "0.9667";
/// The media limit of the Ultra-Wide disk in Figure 11 (MB/s).
const ULTRA_MEDIA: f64 = 9.0;
/// The media limit of the Fast-Wide disk in section 3 (MB/s).
const FAST_MEDIA: f64 = 6.5;

fn ultra() -> Probe {
    Probe::of(ULTRA)
}

fn fast() -> Probe {
    Probe::of(FAST)
}

/// Returns a probe of a file that is striped over Ultra-Wide disks and aligned to the chunks, as in
/// Figure 13.
fn aligned(disks: u32) -> Probe {
    stripe(ULTRA, disks).with("misalign", "0")
}

/// Returns a probe that accesses three striped Ultra-Wide disks through the file-system cache, as
/// in Figure 10.
fn cached_stripe() -> Probe {
    stripe(ULTRA, 3).buffered().with("overlapped", "on")
}

/// Returns the smallest number of disks on one bus at which one more disk adds less than 10%
/// throughput.
fn saturating(lab: &Lab, probe: impl Fn(u32) -> Probe) -> Result<f64, String> {
    for disks in 1..8 {
        if ratio(lab, &probe(disks + 1), &probe(disks))? < 1.1 {
            return Ok(f64::from(disks));
        }
    }
    Err("the throughput still increases when the 8th disk is added".to_owned())
}

fn disks_that_saturate(lab: &Lab) -> Result<f64, String> {
    saturating(lab, |disks| stripe(ULTRA, disks).deep(8))
}

/// Returns the throughput at which the CPU time of the requests saturates one processor (MB/s).
fn saturated(lab: &Lab, probe: &Probe) -> Result<f64, String> {
    Ok(1000.0 / cost(lab, probe)?)
}

/// Returns the smallest queue depth at which three disks reach 90% of their throughput at depth 16.
/// The request size is 64 KB.
fn depth_of_three_disks(lab: &Lab) -> Result<f64, String> {
    let three = stripe(ULTRA, 3);
    let most = lab.mib(&three.clone().deep(16))?;
    first_size(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0], |depth| {
        Ok(lab.mib(&three.clone().deep(depth as u32))? >= 0.9 * most)
    })
}

/// Returns the smallest request size (KB) from which the throughput of `this` is always at least
/// `1 - within` times the throughput of `other`.
fn overtakes(lab: &Lab, this: &Probe, other: &Probe, within: f64) -> Answer {
    let mut from = Err("the claim does not hold at any request size".to_owned());
    for kib in SIZES {
        let ratio = ratio(lab, &this.clone().kib(kib), &other.clone().kib(kib))?;
        from = match from {
            _ if ratio < 1.0 - within => {
                Err("the claim does not hold at the largest request size".to_owned())
            }
            Ok(size) => Ok(size),
            Err(_) => Ok(kib),
        };
    }
    from
}

/// Returns the series of Figure 4. According to the paper, their costs "are very similar for both
/// reads and writes regardless of the generation of the disk and disk caching".
fn series_of_figure_4() -> [Probe; 6] {
    [ultra(), fast(), ultra().writing(), fast().writing(), ultra().wce(), fast().wce()]
}

/// Returns the mean CPU time of the series of Figure 4 at this request size (ms/MB).
fn unbuffered_cost(lab: &Lab, kib: f64) -> Answer {
    let costs = series_of_figure_4().map(|probe| cost(lab, &probe.kib(kib)));
    Ok(costs.into_iter().sum::<Result<f64, String>>()? / 6.0)
}

/// Returns the mean throughput of a probe over all request sizes except the smallest (MB/s).
fn buffered_mean(lab: &Lab, probe: &Probe) -> Answer {
    let rates = SIZES[1..].iter().map(|kib| lab.mib(&probe.clone().kib(*kib)));
    Ok(rates.sum::<Result<f64, String>>()? / (SIZES.len() - 1) as f64)
}

/// Returns the factor by which the write cache (WCE) increases the mean throughput of buffered
/// writes. The mean is over all request sizes except the smallest.
fn gain_of_wce(lab: &Lab) -> Answer {
    let write = ultra().buffered();
    Ok(buffered_mean(lab, &write.clone().wce())? / buffered_mean(lab, &write.writing())?)
}

/// Returns the mean of the throughputs of 64 KB reads and 64 KB writes with WCE on one disk (MB/s).
fn one_disk(lab: &Lab, disk: &Probe) -> Answer {
    Ok((lab.mib(disk)? + lab.mib(&disk.clone().wce())?) / 2.0)
}

/// Returns how much throughput a file on four disks loses if it is not aligned to the chunks
/// (percent). The result is the largest loss at depth 3 over the sizes of Figure 13.
fn loss_by_misalignment(lab: &Lab, set: impl Fn(Probe) -> Probe) -> Answer {
    let mut most = f64::NEG_INFINITY;
    for kib in SIZES {
        let aligned = set(aligned(4)).deep(3).kib(kib);
        most = most.max(loss(lab, &set(stripe(ULTRA, 4)).deep(3).kib(kib), &aligned)?);
    }
    Ok(most)
}

fn instructions_per_byte(lab: &Lab, probe: &Probe) -> Result<f64, String> {
    Ok(cost(lab, probe)? * 1e6 / MIB * INSTRUCTIONS_PER_NS)
}

/// Returns the median time of a read of prefetched data (ms).
fn hit(lab: &Lab, system: &'static str, kib: f64) -> Result<f64, String> {
    let probe = Probe::of(system).with("path", "driver").with("file_at", "0.0").kib(kib);
    known(lab.measure(&probe.over(Extent::Paced(20_000_000)))?.median_ns / 1e6)
}

/// Returns the fixed time of a read of prefetched data (ms). It is the time of a 0.5 KB read, the
/// smallest of Table 3, minus the transfer time at the advertised rate.
fn fixed_ms(lab: &Lab, system: &'static str, advertised_mb_per_s: f64) -> Result<f64, String> {
    fixed_ms_at(lab, system, 0.5, advertised_mb_per_s)
}

fn fixed_ms_at(lab: &Lab, system: &'static str, kib: f64, advertised_mb_per_s: f64) -> Answer {
    Ok(hit(lab, system, kib)? - kib * 1.024 / advertised_mb_per_s)
}

fn at(probe: Probe, place: &str) -> Probe {
    probe.with("file_at", place).over(Extent::Bytes(16 << 20))
}

/// Returns the mean of two shares (percent). The first share is the throughput at the outermost
/// position of Figure 14, divided by `outer`. The second share is the throughput at the innermost
/// position, divided by `inner`. `outer` and `inner` are advertised media rates (MB/s).
fn share_of_media(lab: &Lab, probe: &Probe, outer: f64, inner: f64) -> Result<f64, String> {
    let outer = lab.mib(&at(probe.clone(), "0.0"))? / outer;
    let inner = lab.mib(&at(probe.clone(), INNERMOST))? / inner;
    Ok((outer + inner) * 50.0)
}

/// The checks of the claims in sections 1 and 2.
pub const OUT_OF_BOX: &[Check] = &[
    ("R001", |lab| lab.mib(&fast().buffered())),
    ("R002", |lab| known(lab.measure(&ultra().buffered().kib(2.0))?.cpu_percent())),
    ("R006", |lab| overtakes(lab, &ultra(), &ultra().buffered(), 0.1)),
    ("R008", disks_that_saturate),
    ("R009", disks_that_saturate),
    ("R022", |lab| plateau(lab, &ultra().buffered().writing(), &SIZES)),
    ("R024", |lab| lab.mib(&ultra().buffered().writing().with("allocation", "extend").kib(2.0))),
    ("R025", |lab| {
        let write = ultra().buffered().writing().kib(4.0);
        loss(lab, &write.clone().with("allocation", "extend"), &write)
    }),
    ("R028", |lab| {
        let write = ultra().buffered().wce().kib(8.0);
        ratio(lab, &write, &write.clone().write_through())
    }),
    ("R029", |lab| lab.mib(&ultra().buffered().wce().kib(32.0).write_through())),
    ("R030", gain_of_wce),
    ("R031", |lab| reaches(lab, &ultra().buffered().wce(), &SIZES, ULTRA_MEDIA / 2.0)),
    ("R032", |lab| saturated(lab, &ultra().buffered().writing().kib(2.0))),
    ("R033", |lab| saturated(lab, &ultra().buffered().writing())),
    ("R034", |lab| Ok(1000.0 / unbuffered_cost(lab, 64.0)?)),
    ("R035", |lab| Ok(lab.measure(&ultra().buffered())?.elapsed_ns / 1e9)),
    ("R037", |lab| Ok(lab.mib(&ultra().buffered().writing().kib(2.0))? / ULTRA_MEDIA * 100.0)),
    ("R038", |lab| Ok(buffered_mean(lab, &ultra().buffered().writing())? / ULTRA_MEDIA * 100.0)),
    ("R039", |lab| Ok(buffered_mean(lab, &ultra().buffered().wce())? / ULTRA_MEDIA * 100.0)),
    ("R040", |lab| {
        let least = SIZES.iter().map(|kib| cost(lab, &ultra().buffered().kib(*kib)));
        let least = least.collect::<Result<Vec<f64>, String>>()?;
        let least = least.iter().copied().fold(f64::INFINITY, f64::min);
        first_size(&SIZES, |kib| Ok(cost(lab, &ultra().buffered().kib(kib))? <= 1.05 * least))
    }),
    ("R041", gain_of_wce),
];

/// The checks of the claims in section 3.
pub const UNBUFFERED: &[Check] = &[
    ("R042", |lab| {
        let share = |probe: Probe, advertised: f64| -> Result<f64, String> {
            Ok(best(lab, &probe, &SIZES)? * MIB / 1e4 / advertised)
        };
        Ok((share(ultra(), 40.0)? + share(fast(), 20.0)?) / 2.0)
    }),
    ("R043", |lab| Ok(cost(lab, &ultra().buffered().writing())? / cost(lab, &ultra().writing())?)),
    ("R044", |lab| instructions_per_byte(lab, &ultra().buffered().writing())),
    ("R045", |lab| instructions_per_byte(lab, &ultra())),
    ("R046", |lab| media_limit(lab, &fast(), &SIZES)),
    ("R047", |lab| lab.mib(&fast().kib(8.0))),
    ("R048", |lab| lab.mib(&ultra().kib(4.0))),
    ("R049", |lab| {
        let write = ultra().writing();
        Ok(media_limit(lab, &write, &TO_1_MIB)? / 1024.0)
    }),
    ("R050", |lab| reaches(lab, &ultra().writing(), &SIZES, ULTRA_MEDIA / 2.0)),
    ("R051", |lab| media_limit(lab, &ultra().wce(), &SIZES)),
    ("R052", |lab| media_limit(lab, &fast().wce(), &SIZES)),
    ("R053", |lab| Ok(unbuffered_cost(lab, 8.0)? * 8.0 / 1.024)),
    ("R054", |lab| Ok(1000.0 / unbuffered_cost(lab, 2.0)?)),
    ("R055", |lab| Ok(unbuffered_cost(lab, 2.0)? / unbuffered_cost(lab, 16.0)?)),
    ("R056", |lab| {
        let small = unbuffered_cost(lab, 2.0)? * 2.0;
        let grown = first_size(&SIZES, |kib| Ok(unbuffered_cost(lab, kib)? * kib > 1.1 * small))?;
        Ok(grown / 2.0)
    }),
    ("R058", |lab| {
        let buffered = instructions_per_byte(lab, &ultra().buffered().writing())?;
        Ok(buffered - instructions_per_byte(lab, &ultra().writing())?)
    }),
    ("R059", |lab| unbuffered_cost(lab, 64.0)),
    ("R060", |lab| Ok(1000.0 / unbuffered_cost(lab, 64.0)?)),
    ("R061", |lab| overtakes(lab, &ultra(), &ultra().buffered(), 0.1)),
    ("R062", |lab| Ok(cost(lab, &ultra().buffered().kib(32.0))? / cost(lab, &ultra().kib(32.0))?)),
    ("R063", |lab| {
        first_size(&SIZES, |kib| {
            let (past, through) = (ultra().kib(kib), ultra().buffered().kib(kib));
            let faster = ratio(lab, &past, &through)? > 1.03;
            Ok(faster && cost(lab, &past)? < cost(lab, &through)?)
        })
    }),
    ("R064", |lab| reaches(lab, &ultra().writing(), &SIZES, ULTRA_MEDIA / 2.0)),
    ("R065", |lab| ratio(lab, &ultra().wce().kib(8.0), &ultra().writing().kib(8.0))),
    ("R066", |lab| {
        let write = ultra().buffered().kib(192.0);
        ratio(lab, &write.clone().wce(), &write.writing())
    }),
    ("R067", |lab| overtakes(lab, &ultra().writing(), &ultra().buffered().writing(), 0.03)),
    ("R068", |lab| overtakes(lab, &ultra(), &ultra().buffered(), 0.1)),
    ("R071", |lab| media_limit(lab, &fast(), &SIZES)),
    ("R072", |lab| gain(lab, &ultra().kib(2.0), &fast().kib(2.0))),
    ("R073", |lab| gain(lab, &ultra().wce().kib(192.0), &fast().wce().kib(192.0))),
    ("R074", |lab| {
        first_size(&SIZES, |kib| Ok(known(lab.measure(&ultra().kib(kib))?.cpu_percent())? < 5.0))
    }),
    ("R075", |lab| Ok(3.0 * lab.measure(&ultra().kib(2.0))?.cpu_percent())),
    ("R076", |lab| overtakes(lab, &ultra().writing(), &ultra().buffered().writing(), 0.03)),
];

/// The checks of the claims in section 4.
pub const PARALLEL: &[Check] = &[
    ("R077", |lab| reaches(lab, &fast(), &SIZES, FAST_MEDIA / 2.0)),
    ("R078", |lab| reaches(lab, &fast().writing().deep(3), &SIZES, FAST_MEDIA / 2.0)),
    ("R079", |lab| reaches(lab, &fast().writing().deep(8), &SIZES, FAST_MEDIA / 2.0)),
    ("R080", |lab| {
        let write = fast().writing().kib(8.0);
        ratio(lab, &write.clone().deep(8), &write)
    }),
    ("R081", |lab| {
        first_size(&SIZES, |kib| {
            let deep = fast().writing().deep(3).kib(kib);
            Ok(ratio(lab, &deep, &fast().wce().kib(kib))? > 0.9)
        })
    }),
    ("R085", |lab| {
        let read = stripe(FAST, 4).kib(8.0);
        ratio(lab, &read.clone().deep(8), &read)
    }),
    ("R086", |lab| one_disk(lab, &fast())),
    ("R087", |lab| Ok(4.0 * one_disk(lab, &fast())?)),
    ("R088", |lab| best(lab, &stripe(FAST, 4).deep(8), &SIZES)),
    ("R089", |lab| Ok(best(lab, &stripe(FAST, 4).deep(8), &SIZES)? * 5.0)),
    ("R090", |lab| Ok(best(lab, &stripe(ULTRA, 4).deep(8), &SIZES)? * 2.5)),
    ("R091", |lab| best(lab, &stripe(ULTRA, 4).deep(8), &SIZES)),
    ("R092", |lab| best(lab, &stripe(ULTRA, 4).deep(8), &SIZES)),
    ("R095", |lab| one_disk(lab, &fast())),
    ("R096", |lab| one_disk(lab, &ultra())),
    ("R097", |lab| {
        first_size(&[1.0, 2.0, 3.0, 4.0], |disks| {
            Ok(best(lab, &stripe(FAST, disks as u32).deep(3), &SIZES)? >= 10.0)
        })
    }),
    ("R098", |lab| reaches(lab, &stripe(FAST, 2).deep(3), &SIZES, 10.0)),
    ("R099", |lab| reaches(lab, &stripe(FAST, 2).wce().deep(3), &SIZES, 10.0)),
    ("R100", |lab| Ok(lab.mib(&stripe(FAST, 3).deep(3))? * 5.0)),
    ("R101", |lab| {
        first_size(&[1.0, 2.0, 3.0, 4.0], |disks| {
            Ok(best(lab, &stripe(ULTRA, disks as u32).deep(3), &SIZES)? >= 20.0)
        })
    }),
    ("R102", |lab| reaches(lab, &stripe(ULTRA, 3).deep(3), &SIZES, 20.0)),
    ("R103", |lab| reaches(lab, &stripe(ULTRA, 3).wce().deep(3), &SIZES, 20.0)),
    ("R104", |lab| Ok(lab.mib(&stripe(ULTRA, 4).deep(8).kib(192.0))? * 2.5)),
    ("R105", |lab| lab.mib(&stripe(FAST, 4).with("buses", 2).deep(3).kib(192.0))),
    ("R106", |lab| {
        let four = stripe(FAST, 4).with("buses", 2).deep(3).kib(192.0);
        ratio(lab, &four, &stripe(FAST, 2).deep(3).kib(192.0))
    }),
    ("R109", |lab| lab.mib(&stripe(ULTRA, 6).with("buses", 2).deep(12).kib(192.0))),
    ("R111", |lab| Ok(4.0 * best(lab, &stripe(ULTRA, 4).deep(8), &SIZES)?)),
    ("R114", |lab| overtakes(lab, &stripe(ULTRA, 3), &cached_stripe(), 0.03)),
    ("R115", |lab| overtakes(lab, &stripe(ULTRA, 3).deep(8), &cached_stripe(), 0.03)),
    ("R116", |lab| overtakes(lab, &stripe(ULTRA, 3).wce(), &cached_stripe().wce(), 0.03)),
    ("R117", |lab| {
        let write = fast().writing().kib(16.0);
        ratio(lab, &write.clone().deep(3), &write)
    }),
    ("R118", |lab| ratio(lab, &stripe(ULTRA, 3).deep(8), &ultra())),
    ("R119", |lab| lab.mib(&stripe(FAST, 3).deep(3))),
    ("R120", |lab| best(lab, &stripe(ULTRA, 4).deep(8), &SIZES)),
    ("R122", |lab| best(lab, &stripe(FAST, 4).deep(3), &SIZES)),
    ("R124", |lab| lab.mib(&stripe(FAST, 6).with("buses", 2).deep(3).kib(192.0))),
    ("R125", |lab| best(lab, &stripe(ULTRA, 4).deep(8), &SIZES)),
    ("R126", |lab| gain(lab, &ultra().wce(), &fast().wce())),
    ("R127", |lab| lab.mib(&ultra())),
    ("R130", disks_that_saturate),
];

/// The checks of the claims in sections 5 and 6.
pub const INTERNALS: &[Check] = &[
    ("R140", |lab| hit(lab, FAST, 2.0)),
    ("R141", |lab| Ok(64.0 * 1000.0 / 1024.0 / lab.mib(&fast())?)),
    ("R142", |lab| Ok(20e6 / MIB / lab.mib(&fast())?)),
    ("R143", |lab| fixed_ms(lab, FAST, 20.0)),
    ("R144", |lab| fixed_ms(lab, ULTRA, 40.0)),
    ("R145", |lab| {
        let fixed = fixed_ms_at(lab, ULTRA, 2.0, 40.0)?;
        let beyond = first_size(&[2.0, 4.0, 8.0, 16.0, 32.0, 64.0], |kib| {
            Ok(hit(lab, ULTRA, kib)? > 1.05 * (fixed + kib * 1.024 / 40.0))
        })?;
        Ok(beyond / 2.0)
    }),
    ("R147", |lab| phase(lab, &ultra().kib(8.0))),
    ("R148", |lab| phase(lab, &ultra())),
    ("R149", |lab| bus(lab, &ultra().kib(8.0))),
    ("R150", |lab| Ok((bus(lab, &stripe(ULTRA, 2).deep(8))? / bus(lab, &ultra())? - 1.0) * 100.0)),
    ("R151", |lab| ratio(lab, &stripe(ULTRA, 2).deep(8), &ultra())),
    ("R152", |lab| bus(lab, &stripe(ULTRA, 3).deep(8))),
    ("R153", |lab| {
        let write = ultra().buffered().writing().kib(8.0);
        loss(lab, &write.clone().with("allocation", "extend"), &write)
    }),
    ("R155", |lab| gain(lab, &aligned(4).deep(3), &stripe(ULTRA, 4).deep(3))),
    ("R158", |lab| {
        let measured = lab.measure(&stripe(ULTRA, 3).deep(8))?;
        Ok(8.0 * measured.account.device_requests[0] as f64 / measured.requests)
    }),
    ("R161", |lab| loss_by_misalignment(lab, |probe| probe)),
    ("R162", |lab| loss_by_misalignment(lab, Probe::wce)),
    ("R166", |lab| share_of_media(lab, &ultra(), 15.0, 10.0)),
    ("R169", |lab| share_of_media(lab, &fast(), 8.8, 5.9)),
    ("R170", |lab| loss(lab, &at(ultra(), INNERMOST), &at(ultra(), "0.0"))),
    ("R174", |lab| {
        let raid = ultra().with("disks", 4).with("volume", "raid5").writing().deep(3);
        first_size(&SIZES, |kib| {
            let host = raid.clone().kib(kib);
            let array = lab.measure(&host.clone().with("raid_in", "array"))?;
            Ok(lab.measure(&host)?.soaked_ms_per_mib() > 2.0 * array.soaked_ms_per_mib())
        })
    }),
    ("R175", depth_of_three_disks),
    ("R176", |lab| Ok(64.0 * depth_of_three_disks(lab)?)),
    ("R177", disks_that_saturate),
    ("R179", |lab| Ok(lab.measure(&ultra().kib(2.0))?.cpu_percent())),
    ("R180", |lab| Ok(lab.measure(&ultra())?.cpu_percent())),
    ("R181", |lab| best(lab, &stripe(FAST, 3).deep(8), &SIZES)),
    ("R182", |lab| best(lab, &stripe(ULTRA, 4).deep(8), &SIZES)),
];

fn phase(lab: &Lab, probe: &Probe) -> Result<f64, String> {
    lab.measure(probe)?.phase_percent(&["data"]).ok_or("the bus was idle".to_owned())
}

fn bus(lab: &Lab, probe: &Probe) -> Result<f64, String> {
    lab.measure(probe)?.bus_percent().ok_or("there is no bus".to_owned())
}

/// The checks of all claims of this paper.
pub const CHECKS: Checks =
    Checks { computed: &[OUT_OF_BOX, UNBUFFERED, PARALLEL, INTERNALS], own: &[] };
