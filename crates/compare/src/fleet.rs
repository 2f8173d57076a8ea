//! Finds the odd hosts of a fleet. Reports which values of each odd host are odd and since when,
//! and what distinguishes the odd hosts from the others.
//!
//! A host is compared with the other hosts that have a target of the same model. Four values are
//! compared in each workload: the rate, the tail latency, the scatter between trials, and the
//! change of the rate over time. Mean rates over several workloads are compared too. `contents`
//! reads the databases, `present` computes the values, and `contrast` computes the means. `facts`
//! collects the facts about each host, and `judge` decides which hosts are odd. `evidence` reads
//! more data about odd hosts, and `text` formats the answer for the terminal.

mod contents;
pub mod contrast;
mod present;
mod document;
mod facts;
mod judge;
mod evidence;
mod text;

use std::path::PathBuf;

use analysis::units;
use lab::failure::{Failure, Outcome};
use lab::json::Program;

use contents::Contents;
pub use document::{
    ChangedFact, Distinguishing, FleetContrast, FleetDocument, FleetDoubt, FleetHost, FleetLevels,
    FleetModel, FleetQuantity, FleetResult, FleetValue, FleetWorkload, Oddness, UnusualFact,
};
pub use text::{fact_line, findings, headline, lines};

/// Selects the results that are compared.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Paths of the databases.
    pub databases: Vec<PathBuf>,
    /// Words that the description of a workload must contain.
    pub words: Vec<String>,
    /// Rates that differ by at most this share count as equal.
    pub tolerated: f64,
}

/// Reads the databases and compares the hosts of the fleet.
///
/// # Errors
/// A database cannot be read, or there is nothing to compare.
pub fn load(question: &Question) -> Outcome<FleetDocument> {
    let contents = Contents::read(question)?;
    if contents.measured.is_empty() {
        let words = question.words.join(" ");
        return Err(Failure::failed(match words.as_str() {
            "" => "the databases have no usable result; run halfpower survey on each host".into(),
            _ => format!("no workload description contains '{words}'; leave out some words"),
        }));
    }
    let mut judged = judge::judged(&contents, question.tolerated);
    judged.sort_by_key(|judged| std::cmp::Reverse(judged.model.hosts.len()));
    evidence::add(&contents, &mut judged)?;
    Ok(FleetDocument {
        halfpower: Program::this(),
        databases: contents.databases.iter().map(|path| path.display().to_string()).collect(),
        tolerated: question.tolerated,
        results: contents.results,
        suspect: contents.suspect,
        invalid: contents.invalid,
        models: judged.into_iter().map(|judged| judged.model).collect(),
    })
}

/// Returns the doubts about the results, one sentence each.
pub fn doubts(fleet: &FleetDocument) -> Vec<String> {
    let mut doubts = Vec::new();
    if fleet.suspect > 0 {
        let (suspect, all) = (fleet.suspect, units::counted(fleet.results as u64, "result"));
        doubts.push(format!(
            "{suspect} of {all} are suspect; for the reasons, use halfpower runs show"
        ));
    }
    if fleet.invalid > 0 {
        let invalid = units::counted(fleet.invalid as u64, "invalid result");
        doubts.push(format!("left out of the comparison: {invalid}"));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;
    use contents::{FleetWorkload, Measurement, Member, Run};
    use lab::point_key::PointKey;
    use workload::Pattern;

    use crate::matching;
    use crate::side::tests::ran_on;

    const DAY_NS: i64 = 86_400_000_000_000;
    const HOSTS: usize = 20;

    fn measurement(day: i64, bytes_per_s: f64) -> Measurement {
        Measurement {
            started_unix_ns: day * DAY_NS,
            bytes_per_s,
            error: 0.005,
            tails_ns: [Some(1e6), None],
            scatter: Some(0.01),
        }
    }

    /// Returns a rate that differs from `mean` by up to 1%, depending on `host` and `day`.
    fn around(mean: f64, host: usize, day: i64) -> f64 {
        mean * (1.0 + ((host as f64 * 7.0 + day as f64 * 3.0) % 11.0 - 5.0) / 500.0)
    }

    fn workload(pattern: Pattern) -> FleetWorkload {
        let key = PointKey::of(&workload::Workload { pattern, ..workload::Workload::default() });
        FleetWorkload { settings: matching::settings_of(&key), key }
    }

    /// Returns a fleet of 20 hosts that were each measured on eight days. `measure` returns the
    /// results of a host on a day: one of random reads and one of sequential reads.
    fn contents(
        measure: impl Fn(usize, i64) -> [Measurement; 2],
        firmware: impl Fn(usize) -> &'static str,
    ) -> Contents {
        let mut contents = Contents {
            databases: vec![PathBuf::from("a.db")],
            workloads: vec![workload(Pattern::Random), workload(Pattern::Sequential)],
            ..Contents::default()
        };
        for host in 0..HOSTS {
            contents.members.push(Member {
                host: format!("host{host}"),
                target: "xfs on nvme0n1".to_owned(),
                model: "X".to_owned(),
                newest: ran_on("6.1", firmware(host), &format!("S{host}")),
            });
            for day in 1..=8 {
                let (id, started_unix_ns) = (day, day * DAY_NS);
                contents.runs.push(Run { database: 0, id, started_unix_ns, member: host });
                for (place, measured) in measure(host, day).into_iter().enumerate() {
                    contents.measured.entry((place, host)).or_default().push(measured);
                }
            }
        }
        contents
    }

    fn model(
        measure: impl Fn(usize, i64) -> [Measurement; 2],
        firmware: impl Fn(usize) -> &'static str,
    ) -> FleetModel {
        judge::judged(&contents(measure, firmware), 0.05).remove(0).model
    }

    /// Returns the verdicts on hosts whose rate on each day is given by `rate`. The second workload
    /// has the rate of the following day.
    fn with_rates(
        rate: impl Fn(usize, i64) -> f64,
        firmware: impl Fn(usize) -> &'static str,
    ) -> FleetModel {
        let measure =
            |host, day| [measurement(day, rate(host, day)), measurement(day, rate(host, day + 1))];
        model(measure, firmware)
    }

    fn document(model: FleetModel) -> FleetDocument {
        FleetDocument {
            halfpower: Program::this(),
            databases: vec!["a.db".to_owned()],
            tolerated: 0.05,
            results: 320,
            suspect: 3,
            invalid: 0,
            models: vec![model],
        }
    }

    fn odd(model: &FleetModel) -> Vec<(&str, Oddness, usize, Option<i64>)> {
        let odd = model.hosts.iter().filter(|host| host.verdict.is_odd());
        odd.map(|host| (host.host.as_str(), host.verdict, host.odd, host.since_unix_ns)).collect()
    }

    #[test]
    fn hosts_that_became_slower_are_named_with_the_day_and_their_firmware() {
        let is_odd = |host: usize| host == 3 || host == 11;
        let rate = |host, day| around(if is_odd(host) && day >= 5 { 7e8 } else { 1e9 }, host, day);
        let model = model(
            |host, day| [measurement(day, rate(host, day)), measurement(day, rate(host, day))],
            |host| if is_odd(host) { "2.0" } else { "1.0" },
        );
        let since = Some(5 * DAY_NS);
        assert_eq!(
            odd(&model),
            [("host3", Oddness::Slower, 2, since), ("host11", Oddness::Slower, 2, since)]
        );
        let [fact] = model.distinguishing.as_slice() else { panic!("{:?}", model.distinguishing) };
        assert_eq!((fact.fact.as_str(), fact.value.as_str()), ("target device firmware", "2.0"));
        assert_eq!((fact.odd_with, fact.odd, fact.others_with, fact.others), (2, 2, 0, 18));
        let text = lines(&document(model)).join("\n");
        assert!(text.contains("2 of 20 hosts are odd (2 workloads compared)"), "{text}");
        assert!(
            text.contains("host3 (xfs on nvme0n1): slower in 2 of 2 workloads, since"),
            "{text}"
        );
        assert!(text.contains("3 of 320 results are suspect"), "{text}");
        assert!(text.contains("2 of 2 slower hosts have target device firmware = 2.0"), "{text}");
        assert!(text.contains("18 other hosts: no difference found"), "{text}");
    }

    #[test]
    fn hosts_that_differ_by_less_than_is_tolerated_are_alike() {
        let rate = |host, day| around(if host == 3 { 0.97e9 } else { 1e9 }, host, day);
        let model = with_rates(rate, |_| "1.0");
        assert!(model.hosts.iter().all(|host| host.verdict == Oddness::Alike));
        assert!(model.distinguishing.is_empty());
    }

    #[test]
    fn a_host_that_is_fast_since_its_first_run_has_no_day() {
        let rate = |host, day| around(if host == 0 { 2e9 } else { 1e9 }, host, day);
        let model = with_rates(rate, |_| "1.0");
        assert_eq!(odd(&model), [("host0", Oddness::Faster, 2, None)]);
        assert!((model.hosts[0].ratio.unwrap() - 2.0).abs() < 0.05);
    }

    #[test]
    fn a_high_tail_and_scattered_trials_are_unsteady_and_low_ones_are_not() {
        let measure = |host: usize, day: i64| {
            let vary = |mean: f64| around(mean, host, day) as f32;
            let mut random = measurement(day, around(1e9, host, day));
            let mut sequential = random;
            let tail = match host {
                3 => 3e6,
                5 => 3e5,
                _ => 1e6,
            };
            random.tails_ns[0] = Some(vary(tail));
            sequential.scatter = Some(vary(if host == 7 { 0.12 } else { 0.01 }));
            [random, sequential]
        };
        let model = model(measure, |_| "1.0");
        let mut found = odd(&model);
        found.sort_unstable_by_key(|host| host.0);
        assert_eq!(
            found,
            [("host3", Oddness::Unsteady, 1, None), ("host7", Oddness::Unsteady, 1, None)]
        );
        let text = lines(&document(model)).join("\n");
        assert!(text.contains("p99 2.99"), "{text}");
        assert!(text.contains("trials scatter by 12.0%, which is 12."), "{text}");
    }

    #[test]
    fn a_host_that_became_as_slow_as_others_always_were_is_odd_by_its_change() {
        // The rates of the hosts scatter by 9%, so a host that becomes 10% slower remains within
        // their range.
        let level = |host: usize| 1e9 * (1.0 + (host as f64 * 13.0 % 20.0 - 9.5) / 60.0);
        let rate = |host: usize, day: i64| {
            let changed = if host == 4 && day >= 5 { 0.9 } else { 1.0 };
            around(level(host) * changed, host, day)
        };
        let model = with_rates(rate, |_| "1.0");
        let [(host, verdict, 2, Some(_))] = odd(&model)[..] else { panic!("{:?}", odd(&model)) };
        assert_eq!((host, verdict), ("host4", Oddness::Slower));
        let text = lines(&document(model)).join("\n");
        assert!(text.contains("0.9") && text.contains("times its earlier value"), "{text}");
    }

    #[test]
    fn a_host_whose_random_requests_are_slow_for_its_sequential_ones_is_odd() {
        // The mean rate of the odd host is within the range of the other hosts.
        let level = |host: usize| 1e9 * (1.0 + (host as f64 * 13.0 % 20.0 - 9.5) / 100.0);
        let measure = |host: usize, day: i64| {
            let slower = if host == 13 { 0.9 } else { 1.0 };
            let rate = around(level(host), host, day);
            [measurement(day, slower * rate), measurement(day, rate)]
        };
        let model = model(measure, |_| "1.0");
        let [("host13", Oddness::Slower, _, None)] = odd(&model)[..] else {
            panic!("{:?}", odd(&model))
        };
        let text = lines(&document(model)).join("\n");
        assert!(text.contains("compared with sequential requests: 0.90 times"), "{text}");
    }
}
