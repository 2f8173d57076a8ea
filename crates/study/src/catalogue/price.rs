//! Study `price`: the performance of storage relative to its price and power.
//!
//! KAPS is the number of random accesses of 8 KiB per second, and MAPS is the number of random
//! accesses of 1 MiB per second. If writes are allowed, half of the accesses are reads, as in Table
//! 10 of the second paper. Reads and writes are measured separately, and the result is computed as
//! if they alternated. In a real mix at a larger depth, they may slow each other down.
//!
//! The user states price, capacity and power (`--price`, `--capacity`, `--power`). Without a price,
//! all other figures are reported.

use analysis::units;
use lab::evidence::{Evidence, MeasuredPoint};
use lab::failure::{Failure, Outcome};
use report::model::{Cell as TableCell, Column, Table};

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::runner::StudyRunner;

pub const STUDY: Study = Study {
    name: "price",
    papers: "Chung 2000, sections 8.1 and 10, Tables 2, 9 and 10: the more expensive drive \
             delivers more accesses per second, the cheaper drive more accesses per dollar and \
             more bytes per dollar",
    needs: "--price to compute performance per price; --power to compute watts per access; \
            --capacity if the system does not report the capacity",
    plan: include_str!("../../plans/price.toml"),
    claims: &[
        "C023", "C024", "C025", "C026", "C032", "C033", "C034", "C171", "C178", "C276", "C277",
    ],
    rules: &["price-per-access"],
    measure: Some(measure),
    analyse,
};

/// Why claims about two drives are not testable.
const NEEDS_TWO_PRICES: &str = "the claim compares two drives; specify two targets and their \
                                prices, as in halfpower study price /dev/sda /dev/sdb --price \
                                209,534";
/// The assumed service life of a drive, over which the price is spread evenly (years).
const LIFE_YEARS: f64 = 5.0;
/// The assumed service life of a drive (s).
const LIFE_S: f64 = LIFE_YEARS * 365.25 * 86_400.0;
/// Number of bytes in a terabyte (decimal, as drives are sold).
const TB: f64 = 1e12;
/// Number of bytes in a gigabyte (decimal, as drives are sold).
const GB: f64 = 1e9;

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let targets = runner.study_targets.len();
    let stated = &runner.evidence.stated;
    for (flag, count) in [
        ("--price", stated.prices.len()),
        ("--power", stated.power_watts.len()),
        ("--capacity", stated.capacities.len()),
    ] {
        if count != 0 && count != targets {
            return Err(Failure::usage(format!(
                "{flag} has {count} values for {targets} targets; pass one value per target, in \
                 the same order, separated by commas"
            )));
        }
    }
    if stated.prices.is_empty() {
        runner.leave_out("money", "the price is unknown; pass one --price value per target");
    }
    runner.measure()?;
    for figures in all_figures(&runner.evidence) {
        for (quantity, unit, value) in figures.readings() {
            let labels = [("target", figures.name.clone())];
            runner.evidence.note(quantity, unit, &labels, value);
        }
        if figures.capacity.is_none() {
            let reason = format!(
                "the capacity of {} is unknown; pass one --capacity value per target",
                figures.name
            );
            runner.leave_out("capacity", &reason);
        }
    }
    Ok(())
}

/// The rates of random reads and writes of one size (accesses per second).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Accesses {
    reads: f64,
    writes: Option<f64>,
    depth: u32,
}

impl Accesses {
    /// Returns the harmonic mean of both rates, which is the rate if reads and writes alternate.
    /// Returns the rate of reads if writes were not measured.
    fn both(self) -> f64 {
        let Some(writes) = self.writes else { return self.reads };
        if self.reads > 0.0 && writes > 0.0 { 2.0 / (1.0 / self.reads + 1.0 / writes) } else { 0.0 }
    }
}

/// The performance and the cost figures of one target.
#[derive(Clone, Debug, Default)]
struct Figures {
    name: String,
    kaps: Accesses,
    kaps_best: Accesses,
    maps: Accesses,
    maps_best: Accesses,
    scan_bytes_per_s: Option<f64>,
    capacity: Option<f64>,
    price: Option<f64>,
    power_watts: Option<f64>,
}

impl Figures {
    /// Returns the price divided by `amount`. None if the price is unknown or `amount` is 0.
    fn money_per(&self, amount: f64) -> Option<f64> {
        self.price.filter(|_| amount > 0.0).map(|price| price / amount)
    }

    /// Returns the time to read the whole target (s).
    fn scan_s(&self) -> Option<f64> {
        Some(self.capacity? / self.scan_bytes_per_s.filter(|rate| *rate > 0.0)?)
    }

    /// Returns the cost of reading a terabyte: price x (time to read a terabyte / service life).
    fn money_per_tb_scanned(&self) -> Option<f64> {
        let seconds = TB / self.scan_bytes_per_s.filter(|rate| *rate > 0.0)?;
        Some(self.price? * seconds / LIFE_S)
    }

    fn gb_per_money(&self) -> Option<f64> {
        Some(self.capacity? / GB / self.price?)
    }

    /// Returns the energy of one 8 KiB access (J): the power divided by the KAPS.
    fn watts_per_kaps(&self) -> Option<f64> {
        self.power_watts.filter(|_| self.kaps.both() > 0.0).map(|watts| watts / self.kaps.both())
    }

    /// Returns all known figures of the target as readings (quantity, unit, value).
    fn readings(&self) -> Vec<(&'static str, &'static str, f64)> {
        let known = |quantity, unit, value: Option<f64>| Some((quantity, unit, value?));
        [
            known("kaps", "accesses/s", Some(self.kaps.both())),
            known("kaps-read", "accesses/s", Some(self.kaps.reads)),
            known("kaps-write", "accesses/s", self.kaps.writes),
            known("kaps-best", "accesses/s", Some(self.kaps_best.both())),
            known("maps", "accesses/s", Some(self.maps.both())),
            known("maps-best", "accesses/s", Some(self.maps_best.both())),
            known("scan-rate", "bytes/s", self.scan_bytes_per_s),
            known("scan-time", "s", self.scan_s()),
            known("capacity", "bytes", self.capacity),
            known("price", "money", self.price),
            known("price-per-kaps", "money/(accesses/s)", self.money_per(self.kaps.both())),
            known("price-per-read-kaps", "money/(accesses/s)", self.money_per(self.kaps.reads)),
            known("price-per-maps", "money/(accesses/s)", self.money_per(self.maps.both())),
            known("gb-per-price", "GB/money", self.gb_per_money()),
            known("price-per-tb-scanned", "money/TB", self.money_per_tb_scanned()),
            known("watts-per-kaps", "W/(accesses/s)", self.watts_per_kaps()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns all figures of the target as table rows (label, value).
    fn rows(&self) -> Vec<(String, String)> {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
        let each = |value: f64| number((value > 0.0).then_some(value));
        let best = |one: Accesses| format!("{} at depth {}", units::count(one.both()), one.depth);
        let scan = self.scan_s().map_or_else(|| "-".to_owned(), long_time);
        let rate = self.scan_bytes_per_s.map_or_else(|| "-".to_owned(), units::rate);
        let capacity = self.capacity.map(|bytes| units::decimal_size(bytes as u64));
        let life = format!("Price per terabyte scanned, over {LIFE_YEARS:.0} years");
        let rows = [
            ("Price", number(self.price)),
            ("Capacity", capacity.unwrap_or_else(|| "-".to_owned())),
            ("Random 8 KiB reads per second, depth 1", each(self.kaps.reads)),
            ("Random 8 KiB writes per second, depth 1", number(self.kaps.writes)),
            ("KAPS, depth 1", each(self.kaps.both())),
            ("KAPS, best depth", best(self.kaps_best)),
            ("MAPS, depth 1", each(self.maps.both())),
            ("MAPS, best depth", best(self.maps_best)),
            ("Sequential reads", rate),
            ("Time for a full scan", scan),
            ("Price per KAPS", number(self.money_per(self.kaps.both()))),
            ("Price per KAPS of reads", number(self.money_per(self.kaps.reads))),
            ("Price per MAPS", number(self.money_per(self.maps.both()))),
            ("KAPS per unit of money", number(self.price.map(|price| self.kaps.both() / price))),
            ("MAPS per unit of money", number(self.price.map(|price| self.maps.both() / price))),
            ("GB per unit of money", number(self.gb_per_money())),
            (life.as_str(), number(self.money_per_tb_scanned())),
            ("Watts per KAPS", number(self.watts_per_kaps())),
        ];
        rows.map(|(what, value)| (what.to_owned(), value)).into()
    }
}

fn all_figures(evidence: &Evidence) -> Vec<Figures> {
    (0..evidence.targets.len()).filter_map(|index| figures(evidence, index)).collect()
}

/// Returns the figures of a target. None if 8 KiB or 1 MiB reads were not measured at depth 1.
fn figures(evidence: &Evidence, index: usize) -> Option<Figures> {
    let of = |flags: &[(&str, &str)]| -> Vec<&MeasuredPoint> {
        let mut points = evidence.all(flags);
        points.retain(|point| point.target_index == index);
        points
    };
    let at = |bs: &str, depth: u32| {
        let rate = |rw: &str| {
            let points = of(&[("part", "random"), ("rw", rw), ("bs", bs)]);
            points
                .into_iter()
                .find(|point| point.depth() == depth)
                .map(MeasuredPoint::requests_per_s)
        };
        Some(Accesses { reads: rate("randread")?, writes: rate("randwrite"), depth })
    };
    let best = |bs: &str| {
        let reads = of(&[("part", "random"), ("rw", "randread"), ("bs", bs)]);
        let all = reads.into_iter().filter_map(|point| at(bs, point.depth()));
        all.max_by(|a, b| a.both().total_cmp(&b.both()))
    };
    let target = &evidence.targets[index];
    let stated = &evidence.stated;
    let measured = evidence.points.iter().find(|point| point.target_index == index)?;
    Some(Figures {
        name: measured.target.clone(),
        kaps: at("8k", 1)?,
        kaps_best: best("8k")?,
        maps: at("1m", 1)?,
        maps_best: best("1m")?,
        scan_bytes_per_s: of(&[("part", "scan")]).first().map(|point| point.rate()),
        capacity: stated
            .capacities
            .get(index)
            .copied()
            .or_else(|| capacity(target))
            .map(|bytes| bytes as f64),
        price: stated.prices.get(index).copied(),
        power_watts: stated.power_watts.get(index).copied(),
    })
}

/// Returns the size of the device that holds the target (bytes). This is the capacity even for a
/// file, because the price is that of the whole device.
fn capacity(target: &lab::machine::TargetFacts) -> Option<u64> {
    target.device.as_ref()?.size_bytes.filter(|bytes| *bytes > 0)
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let all = all_figures(evidence);
    all.iter().for_each(|one| describe(&mut found, one));
    if let [first, .., last] = by_price(&all).as_slice() {
        compare(&mut found, first, last);
        claims(&mut found, first, last);
    } else {
        found.cannot(STUDY.claims, NEEDS_TWO_PRICES);
    }
    if !all.is_empty() {
        found.tables.push(table(&all));
    }
    found
}

/// Returns the targets with a price, cheapest first.
fn by_price(all: &[Figures]) -> Vec<&Figures> {
    let mut priced: Vec<&Figures> = all.iter().filter(|one| one.price.is_some()).collect();
    priced.sort_by(|a, b| a.price.unwrap_or(0.0).total_cmp(&b.price.unwrap_or(0.0)));
    priced
}

fn describe(found: &mut Conclusion, one: &Figures) {
    let kind = |accesses: Accesses| match accesses.writes {
        Some(_) => "alternating random reads and writes",
        None => "random reads",
    };
    let scan = one.scan_s().map(|s| format!(", a full scan takes {}", long_time(s)));
    let rate = one.scan_bytes_per_s.map(|rate| {
        format!("; sequential reads: {}{}", units::rate(rate), scan.unwrap_or_default())
    });
    let best = |one: Accesses, best: Accesses| {
        if best.both() > one.both() {
            format!(" and {} at depth {}", significant(best.both()), best.depth)
        } else {
            String::new()
        }
    };
    found.find(
        "accesses",
        format!(
            "{}, {} at depth 1: {} KAPS (8 KiB accesses per second){}, {} MAPS (1 MiB){}{}",
            one.name,
            kind(one.kaps),
            significant(one.kaps.both()),
            best(one.kaps, one.kaps_best),
            significant(one.maps.both()),
            best(one.maps, one.maps_best),
            rate.unwrap_or_default()
        ),
    );
    if let (Some(kaps), Some(maps)) =
        (one.money_per(one.kaps.both()), one.money_per(one.maps.both()))
    {
        let bytes =
            one.gb_per_money().map(|gb| format!(", {} GB per unit of money", significant(gb)));
        let scanned = one.money_per_tb_scanned().map(|money| {
            let money = significant(money);
            format!(", {money} per terabyte scanned (price spread over {LIFE_YEARS:.0} years)")
        });
        found.find(
            "money",
            format!(
                "{}: price {} per KAPS (8 KiB access per second), {} per MAPS (1 MiB){}{}",
                one.name,
                significant(kaps),
                significant(maps),
                bytes.unwrap_or_default(),
                scanned.unwrap_or_default()
            ),
        );
    }
    if let Some(watts) = one.watts_per_kaps() {
        let joules = significant(watts);
        found.find(
            "power",
            format!("{}: a random 8 KiB access at depth 1 takes {joules} J", one.name),
        );
    }
}

/// Compares what the cheapest and the most expensive target deliver for the same money.
fn compare(found: &mut Conclusion, cheap: &Figures, dear: &Figures) {
    let (Some(less), Some(more)) = (cheap.price, dear.price) else { return };
    let times = |of: f64, over: f64| (of / less) / (over / more);
    let accesses = times(cheap.kaps.both(), dear.kaps.both());
    let mut words = vec![format!("{} the 8 KiB accesses", words_of_times(accesses))];
    words.push(format!(
        "{} the 1 MiB accesses",
        words_of_times(times(cheap.maps.both(), dear.maps.both()))
    ));
    if let (Some(one), Some(other)) = (cheap.scan_bytes_per_s, dear.scan_bytes_per_s) {
        words.push(format!("{} the sequential rate", words_of_times(times(one, other))));
    }
    if let (Some(one), Some(other)) = (cheap.capacity, dear.capacity) {
        words.push(format!("{} the capacity", words_of_times(times(one, other))));
    }
    found.find(
        "same-money",
        format!(
            "for the same money, {} delivers {} of {}",
            cheap.name,
            words.join(", "),
            dear.name
        ),
    );
    let (winner, gain) = if accesses >= 1.0 { (cheap, accesses) } else { (dear, 1.0 / accesses) };
    let setting = format!("{} for random accesses", winner.name);
    let money = |one: &Figures| one.money_per(one.kaps.both()).map(significant);
    found.advise_in(
        "accesses for the money",
        "price-per-access",
        gain,
        &setting,
        format!(
            "one random 8 KiB access per second costs {1} on {0}, and {3} on {2}",
            cheap.name,
            money(cheap).unwrap_or_default(),
            dear.name,
            money(dear).unwrap_or_default()
        ),
    );
}

/// Judges the claims. The papers compared an expensive SCSI drive with a cheap IDE drive. Here the
/// most expensive target is compared with the cheapest target.
fn claims(found: &mut Conclusion, cheap: &Figures, dear: &Figures) {
    let (Some(less), Some(more)) = (cheap.price, dear.price) else { return };
    let scan = cheap.scan_bytes_per_s.zip(dear.scan_bytes_per_s);
    let reads = cheap.kaps.reads / dear.kaps.reads;
    let premium = more / less;
    for id in ["C025", "C032", "C171", "C276"] {
        found.gain(
            id,
            Some(premium),
            "stated price of the more expensive target compared with the cheaper one",
        );
    }
    let slower = scan.map(|(cheap, dear)| 1.0 - cheap / dear);
    found.loss("C023", slower, "loss of sequential rate with the cheaper target");
    found.loss("C024", Some(1.0 - reads), "loss of random read rate with the cheaper target");
    let what =
        "sequential rate for the same money, cheaper target compared with the more expensive one";
    found.gain("C026", scan.map(|(cheap, dear)| cheap / dear * premium), what);
    found.gain(
        "C033",
        Some(1.0 / reads),
        "random read rate of the more expensive target compared with the cheaper one",
    );
    let what = "sequential rate of the more expensive target compared with the cheaper one";
    found.gain("C034", scan.map(|(cheap, dear)| dear / cheap), what);
    for id in ["C178", "C277"] {
        let what = "random read rate for the same money, cheaper target compared with the more \
                    expensive one";
        found.gain(id, Some(reads * premium), what);
    }
}

/// Builds a table with a column for each target.
fn table(all: &[Figures]) -> Table {
    let column = |label: &str| Column { label: label.to_owned(), unit: None };
    let columns = all.iter().map(|one| column(&one.name));
    let rows: Vec<Vec<(String, String)>> = all.iter().map(Figures::rows).collect();
    let row = |index: usize| {
        let what = TableCell::Text(rows[0][index].0.clone());
        let values = rows.iter().map(|one| TableCell::Text(one[index].1.clone()));
        std::iter::once(what).chain(values).collect()
    };
    Table {
        id: "price-side-by-side".to_owned(),
        caption: "What each target delivers and costs. KAPS: random accesses of 8 KiB per second. \
                  MAPS: random accesses of 1 MiB per second"
            .to_owned(),
        columns: std::iter::once(column("Figure")).chain(columns).collect(),
        rows: (0..rows[0].len()).map(row).collect(),
    }
}

/// Formats a number with three significant digits, even if the number is small.
fn significant(value: f64) -> String {
    if value > 0.0 && value < 1.0 {
        format!("{value:.*}", (2.0 - value.log10().floor()).min(12.0) as usize)
    } else {
        units::count(value)
    }
}

/// Formats a time in seconds, minutes, hours or days, depending on its length.
fn long_time(seconds: f64) -> String {
    match seconds {
        days if days >= 172_800.0 => format!("{} days", units::count(days / 86_400.0)),
        hours if hours >= 7_200.0 => format!("{} hours", units::count(hours / 3_600.0)),
        minutes if minutes >= 120.0 => format!("{} minutes", units::count(minutes / 60.0)),
        seconds => units::time(seconds * 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::Stated;
    use lab::evidence::testing::{cell, evidence};
    use lab::machine::{DeviceFacts, TargetFacts};

    /// Builds the points of a target. `reads` and `writes` are random 8 KiB accesses per second,
    /// `large` is random 1 MiB accesses per second, and `scan` is the rate of a scan (bytes/s).
    fn drive(index: usize, reads: u64, writes: u64, large: u64, scan: u64) -> Vec<MeasuredPoint> {
        let random = |rw, bs, bytes| {
            cell(bytes, &[("part", "random"), ("rw", rw), ("bs", bs), ("iodepth", "1")])
        };
        let mut points = vec![
            random("randread", "8k", reads * 8192),
            random("randwrite", "8k", writes * 8192),
            random("randread", "1m", large << 20),
            random("randwrite", "1m", large << 20),
            cell(scan, &[("part", "scan"), ("rw", "read"), ("bs", "1m")]),
        ];
        for point in &mut points {
            point.target_index = index;
            point.target = format!("drive {index}");
        }
        points
    }

    fn stated(prices: &[f64]) -> Evidence {
        let mut points = drive(0, 66, 90, 15, 19 << 20);
        points.extend(drive(1, 105, 105, 20, 24 << 20));
        Evidence {
            targets: vec![TargetFacts::default(), TargetFacts::default()],
            stated: Stated {
                prices: prices.to_vec(),
                power_watts: vec![7.8, 10.5],
                capacities: vec![26_000_000_000, 18_000_000_000],
            },
            ..evidence(points)
        }
    }

    fn row(found: &Conclusion, what: &str) -> Vec<String> {
        let table = &found.tables[0];
        let text = |cell: &TableCell| match cell {
            TableCell::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        let rows = table.rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>());
        rows.into_iter().find(|row| row[0] == what).unwrap()[1..].to_vec()
    }

    #[test]
    fn table_10_of_the_second_paper_follows_from_its_rates_and_prices() {
        // The paper prints 78 KAPS, the arithmetic mean of 66 and 90. The harmonic mean is 76.2.
        let found = analyse(&stated(&[209.0, 534.0]));
        assert_eq!(row(&found, "KAPS, depth 1"), ["76.2", "105"]);
        assert_eq!(row(&found, "KAPS per unit of money"), ["0.364", "0.197"]);
        assert_eq!(row(&found, "MAPS per unit of money"), ["0.0718", "0.0375"]);
        assert_eq!(row(&found, "GB per unit of money"), ["0.124", "0.0337"]);
        assert_eq!(row(&found, "Price per KAPS of reads"), ["3.17", "5.09"], "Table 9");
        assert_eq!(row(&found, "Watts per KAPS"), ["0.102", "0.100"]);
        assert_eq!(found.advice[0].id, "price-per-access");
        assert!(found.claims.iter().all(|claim| claim.verdict == Verdict::Holds), "{found:?}");
    }

    #[test]
    fn without_a_price_everything_else_is_reported() {
        let found = analyse(&stated(&[]));
        assert_eq!(row(&found, "KAPS, depth 1"), ["76.2", "105"]);
        assert_eq!(row(&found, "Price per KAPS"), ["-", "-"]);
        assert!(found.findings.iter().all(|finding| finding.id != "money"));
        assert!(found.advice.is_empty());
        assert!(found.claims.iter().all(|claim| claim.verdict == Verdict::CannotBeTried));
    }

    #[test]
    fn a_terabyte_scanned_costs_its_share_of_the_service_life() {
        let figures = Figures {
            scan_bytes_per_s: Some(TB / LIFE_S * 2.0),
            price: Some(100.0),
            ..Figures::default()
        };
        assert_eq!(figures.money_per_tb_scanned(), Some(50.0));
    }

    #[test]
    fn the_capacity_is_that_of_the_device_and_not_of_a_file() {
        let device = DeviceFacts { size_bytes: Some(1 << 40), ..DeviceFacts::default() };
        let file = TargetFacts { size_bytes: 1 << 30, ..TargetFacts::default() };
        assert_eq!(capacity(&file), None);
        assert_eq!(capacity(&TargetFacts { device: Some(device), ..file }), Some(1 << 40));
    }

    #[test]
    fn small_numbers_keep_three_digits() {
        assert_eq!(significant(0.001234), "0.00123");
        assert_eq!(significant(3.166), "3.17");
        assert_eq!(long_time(200_000.0), "2.31 days");
    }
}
