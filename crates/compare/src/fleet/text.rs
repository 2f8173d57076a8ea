//! Formats a fleet for the terminal: each odd host with its findings, then the number of other
//! hosts.

use analysis::fleet::HOSTS_MIN;
use analysis::units;

use super::document::{
    Distinguishing, FleetDocument, FleetHost, FleetModel, FleetQuantity, FleetValue, FleetWorkload,
};

/// Maximum number of odd hosts that are shown for each model.
const HOSTS_SHOWN: usize = 20;
/// Maximum number of workloads that are shown for each quantity of an odd host.
const WORKLOADS_SHOWN: usize = 3;
/// Maximum number of facts of each kind that are shown for an odd host.
const FACTS_SHOWN: usize = 5;

/// Formats a fleet as lines for the terminal.
pub fn lines(fleet: &FleetDocument) -> Vec<String> {
    let mut lines = Vec::new();
    if fleet.models.len() > 1 {
        let all: usize = fleet.models.iter().map(|model| model.hosts.len()).sum();
        let odd: usize = fleet.models.iter().map(odd_hosts).sum();
        let (hosts, models) = (counted(all, "host"), counted(fleet.models.len(), "model"));
        lines.push(format!("{odd} of {hosts} are odd ({models})"));
    }
    for model in &fleet.models {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(of_model(model));
    }
    lines.extend(super::doubts(fleet));
    lines
}

fn counted(number: usize, what: &str) -> String {
    units::counted(number as u64, what)
}

fn odd_hosts(model: &FleetModel) -> usize {
    model.hosts.iter().filter(|host| host.verdict.is_odd()).count()
}

fn of_model(model: &FleetModel) -> Vec<String> {
    let hosts = counted(model.hosts.len(), "host");
    if model.workloads.is_empty() {
        return vec![format!(
            "{}: {hosts}; a comparison needs {HOSTS_MIN} hosts that measured the same workload",
            model.model
        )];
    }
    let (odd, workloads) = (odd_hosts(model), counted(model.workloads.len(), "workload"));
    let mut lines =
        vec![format!("{}: {odd} of {hosts} are odd ({workloads} compared)", model.model)];
    for host in model.hosts.iter().filter(|host| host.verdict.is_odd()).take(HOSTS_SHOWN) {
        lines.push(format!("  {}", headline(host)));
        lines.extend(findings(host, model).into_iter().map(|line| format!("    {line}")));
    }
    if odd > HOSTS_SHOWN {
        let more = counted(odd - HOSTS_SHOWN, "more odd host");
        lines.push(format!("  and {more} (--json and --html show all)"));
    }
    lines.extend(model.distinguishing.iter().map(|fact| format!("  {}", fact_line(fact))));
    let compared = model.hosts.iter().filter(|host| host.workloads > 0).count();
    if odd > 0 && compared > odd {
        lines.push(format!("  {}: no difference found", counted(compared - odd, "other host")));
    }
    if compared < model.hosts.len() {
        let rest = counted(model.hosts.len() - compared, "host");
        lines.push(format!("  {rest} not compared: too few hosts measured the same workloads"));
    }
    if !model.too_few_hosts.is_empty() {
        let left_out = counted(model.too_few_hosts.len(), "workload");
        lines.push(format!("  {left_out} not compared: measured on fewer than {HOSTS_MIN} hosts"));
    }
    lines
}

/// Returns one line with the name of a host and its verdict.
pub fn headline(host: &FleetHost) -> String {
    let since = host.since_unix_ns.map(|at| format!(", since {} UTC", lab::date::utc(at)));
    let within = match host.odd {
        // The host is odd only in a mean over workloads.
        0 => String::new(),
        odd => format!(" in {odd} of {}", counted(host.workloads, "workload")),
    };
    let (name, target, verdict) = (&host.host, &host.target, host.verdict.words());
    format!("{name} ({target}): {verdict}{within}{}", since.unwrap_or_default())
}

/// Describes what is odd about a host, one line per finding.
pub fn findings(host: &FleetHost, model: &FleetModel) -> Vec<String> {
    let mut lines = Vec::new();
    let odd: Vec<(&FleetWorkload, Vec<&FleetValue>)> = model
        .workloads
        .iter()
        .filter_map(|workload| Some((workload, odd_values(workload, host)?)))
        .collect();
    for quantity in [
        FleetQuantity::Rate,
        FleetQuantity::Change,
        FleetQuantity::TailLatency,
        FleetQuantity::Scatter,
    ] {
        let value_of = |(workload, values): &(&'_ FleetWorkload, Vec<&'_ FleetValue>)| {
            // If the rate is odd, the headline already shows the time of the change.
            let is_said = quantity == FleetQuantity::Change
                && values.iter().any(|value| value.quantity == FleetQuantity::Rate);
            let value = *values.iter().find(|value| value.quantity == quantity && !is_said)?;
            Some((distance(value.ratio), value_line(workload, value)))
        };
        let mut of_quantity: Vec<(f64, String)> = odd.iter().filter_map(value_of).collect();
        of_quantity.sort_by(|a, b| b.0.total_cmp(&a.0));
        let more = of_quantity.len().saturating_sub(WORKLOADS_SHOWN);
        lines.extend(of_quantity.into_iter().take(WORKLOADS_SHOWN).map(|(_, line)| line));
        if more > 0 {
            lines.push(format!("and {}", counted(more, "more workload")));
        }
    }
    let rates = odd.iter().flat_map(|(_, values)| values);
    let rates = rates.filter(|value| value.quantity == FleetQuantity::Rate);
    let surest = rates.map(|value| value.probability).fold(1.0, f64::min);
    lines.extend(mean(host, surest));
    lines.extend(host.levels.iter().take(WORKLOADS_SHOWN).map(level));
    lines.extend(reasons(host));
    lines
}

fn distance(ratio: f64) -> f64 {
    ratio.ln().abs()
}

fn odd_values<'a>(workload: &'a FleetWorkload, host: &FleetHost) -> Option<Vec<&'a FleetValue>> {
    let is_of_host = |it: &&super::FleetResult| it.host == host.host && it.target == host.target;
    let result = workload.hosts.iter().find(is_of_host)?;
    let odd: Vec<&FleetValue> = result.values.iter().filter(|value| value.is_odd).collect();
    (!odd.is_empty()).then_some(odd)
}

fn value_line(workload: &FleetWorkload, value: &FleetValue) -> String {
    let words = &workload.workload;
    let FleetValue { ratio, ratio_low, ratio_high, .. } = value;
    let times =
        format!("{ratio:.2} times the median of all hosts ({ratio_low:.2} to {ratio_high:.2})");
    match value.quantity {
        FleetQuantity::Rate => format!("{words}: {times}, {}", units::rate_mib(value.value)),
        FleetQuantity::Change => {
            let at = value.since_unix_ns.map(lab::date::utc).unwrap_or_default();
            format!(
                "{words}: since {at} UTC, the rate relative to the other hosts is {ratio:.2} times \
                 its earlier value ({ratio_low:.2} to {ratio_high:.2})"
            )
        }
        FleetQuantity::TailLatency => {
            let percentile = workload.tail_percentile.unwrap_or_default();
            format!("{words}: p{percentile} {times}, {}", units::time(value.value))
        }
        FleetQuantity::Scatter => {
            let share = 100.0 * value.value;
            format!(
                "{words}: trials scatter by {share:.1}%, which is {ratio:.1} times the median \
                 scatter of all hosts"
            )
        }
    }
}

/// Formats the odd mean or ratio with the lowest p-value. None if the rate in a single workload has
/// a lower p-value.
fn mean(host: &FleetHost, surest_rate: f64) -> Option<String> {
    let sure = |it: &&super::FleetContrast| it.probability < surest_rate;
    let means = host.contrasts.iter().filter(sure);
    let it = means.min_by(|a, b| a.probability.total_cmp(&b.probability))?;
    let (low, high) = (it.ratio_low, it.ratio_high);
    Some(format!(
        "{}: {:.2} times the median of all hosts ({low:.2} to {high:.2})",
        it.contrast.words(),
        it.ratio
    ))
}

fn level(it: &super::FleetLevels) -> String {
    format!(
        "{}: bimodal: {:.0}% of {} trials are {:.0}% slower than the others",
        it.workload,
        100.0 * it.share_low,
        it.trials,
        100.0 * (1.0 - it.low_bytes_per_s / it.high_bytes_per_s)
    )
}

/// Lists possible reasons why the host is odd: rare doubts, changed facts and unusual facts.
fn reasons(host: &FleetHost) -> impl Iterator<Item = String> {
    let doubt = |it: &super::FleetDoubt| {
        format!(
            "{}: {} (in {} of {} while this host was odd; other hosts with this reason in at least \
             half of their runs: {} of {})",
            it.workload,
            it.reason,
            it.runs_with,
            counted(it.runs, "run"),
            it.others_with,
            it.others
        )
    };
    let change = |it: &super::ChangedFact| {
        format!("{} changed when the host became odd: {} -> {}", it.fact, it.before, it.after)
    };
    let fact = |it: &super::UnusualFact| {
        format!(
            "unusual: {} = {} (on {} of {}); usual: {5} (on {4} of {3})",
            it.fact,
            it.value,
            it.hosts_with,
            counted(it.hosts, "host"),
            it.hosts_with_usual,
            it.usual.as_deref().unwrap_or("no such fact")
        )
    };
    let doubts = host.doubts.iter().take(WORKLOADS_SHOWN).map(doubt);
    let changes = host.changed.iter().take(FACTS_SHOWN).map(change);
    let facts = host.unusual.iter().take(FACTS_SHOWN).map(fact);
    doubts.chain(changes).chain(facts).collect::<Vec<_>>().into_iter()
}

/// Returns one line about a fact that several odd hosts share.
pub fn fact_line(it: &Distinguishing) -> String {
    format!(
        "{} of {} {} hosts have {} = {}, compared with {} of the {} other hosts (probability of \
         such a difference by chance: {:.2}%)",
        it.odd_with,
        it.odd,
        it.hosts.words(),
        it.fact,
        it.value,
        it.others_with,
        it.others,
        100.0 * it.probability
    )
}
