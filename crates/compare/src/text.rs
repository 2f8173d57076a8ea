//! Formats a comparison as text: lines for the terminal, and a Markdown table for pull requests.

use crate::limit::{self, Limit};
use crate::quantity::Quantity;
use crate::verdict::{Change, Comparison, PointChange, Verdict};
use analysis::units;

/// Maximum number of points for which all quantities are shown. With more points, quantities other
/// than the rate are shown only if they changed.
const POINTS_SHOWN_IN_FULL: usize = 4;

/// Maximum number of differing settings and facts that are shown.
const FACTS_MAX: usize = 12;

/// Formats the comparison as lines for the terminal.
pub fn lines(comparison: &Comparison) -> Vec<String> {
    let mut lines =
        vec![format!("before  {}", comparison.before), format!("after   {}", comparison.after)];
    lines.extend(comparison.doubts.iter().map(|doubt| format!("doubt   {doubt}")));
    let differing: Vec<_> = comparison.settings.iter().chain(&comparison.facts).collect();
    for (name, before, after) in differing.iter().take(FACTS_MAX) {
        lines.push(format!("differs {name}: {before} -> {after}"));
    }
    if differing.len() > FACTS_MAX {
        let more = units::counted((differing.len() - FACTS_MAX) as u64, "more difference");
        lines.push(format!("        {more} (--json lists all)"));
    }
    for point in &comparison.points {
        lines.push(String::new());
        lines.push(point.workload.clone());
        let in_full = comparison.points.len() <= POINTS_SHOWN_IN_FULL;
        lines.extend(shown(point, in_full).map(line));
    }
    for (name, before, after) in &comparison.conclusions {
        lines.extend([String::new(), format!("conclusion {name}")]);
        lines.push(format!("  before  {before}"));
        lines.push(format!("  after   {after}"));
    }
    lines.push(String::new());
    lines.extend(missing(comparison));
    lines.push(summary(comparison));
    lines
}

/// Formats the comparison as Markdown.
pub fn markdown(comparison: &Comparison) -> Vec<String> {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let mut lines = vec![
        format!(
            "### {} compared with {}",
            cell(&comparison.after_name),
            cell(&comparison.before_name)
        ),
        String::new(),
        summary(comparison),
        String::new(),
        "| workload | quantity | before | after | change | 95% interval | verdict |".to_owned(),
        "|---|---|--:|--:|--:|---|---|".to_owned(),
    ];
    let in_full = comparison.points.len() <= POINTS_SHOWN_IN_FULL;
    for point in &comparison.points {
        for change in shown(point, in_full) {
            lines.push(format!(
                "| {} | {} | {} | {} | {} | {} | {} |",
                cell(&point.workload),
                change.quantity.name(),
                change.quantity.shown(change.before),
                change.quantity.shown(change.after),
                percent(change.ratio.value),
                interval(change),
                verdict(change),
            ));
        }
    }
    let differing = comparison.settings.iter().chain(&comparison.facts);
    let differing: Vec<_> = differing.chain(&comparison.conclusions).collect();
    if !differing.is_empty() {
        lines.extend([String::new(), "| differs | before | after |".to_owned()]);
        lines.push("|---|---|---|".to_owned());
        let row = |(name, a, b): &&(String, String, String)| {
            format!("| {} | {} | {} |", cell(name), cell(a), cell(b))
        };
        lines.extend(differing.iter().map(row));
    }
    lines
}

/// Returns one line for each change that exceeds a limit.
pub fn regressions(comparisons: &[Comparison], limits: &[Limit]) -> Vec<String> {
    let of = |comparison: &Comparison| -> Vec<String> {
        let line = |(point, change): (&PointChange, &Change)| {
            let (quantity, ratio) = (change.quantity.name(), percent(change.ratio.value));
            format!(
                "regression of {}: {quantity} {ratio}, {}",
                comparison.after_name, point.workload
            )
        };
        limit::exceeded(comparison, limits).into_iter().map(line).collect()
    };
    comparisons.iter().flat_map(of).collect()
}

/// Returns one line that counts the faster, slower, unchanged and undecided points.
pub fn summary(comparison: &Comparison) -> String {
    let count = |verdict| comparison.count(Quantity::Rate, verdict);
    let same = format!("same within {}", share(comparison.tolerated));
    let parts = [
        (count(Verdict::Better), "faster"),
        (count(Verdict::Worse), "slower"),
        (count(Verdict::Same), &same),
        (count(Verdict::CannotTell), "undecided"),
    ];
    let points = units::counted(comparison.points.len() as u64, "point");
    let found: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format!("{points} compared by rate: {}", found.join(", "))
}

/// Formats the verdict on a change.
pub fn verdict(change: &Change) -> String {
    let is_rate = change.quantity == Quantity::Rate;
    match (change.verdict, change.more_trials) {
        (Verdict::Better, _) if is_rate => "faster".to_owned(),
        (Verdict::Better, _) => "lower".to_owned(),
        (Verdict::Worse, _) if is_rate => "slower".to_owned(),
        (Verdict::Worse, _) => "higher".to_owned(),
        (Verdict::Same, _) => "same".to_owned(),
        (Verdict::CannotTell, _) if change.test.is_none() => {
            "cannot tell: each side has only one trial; use --trials 3 or more for both".to_owned()
        }
        (Verdict::CannotTell, Some(trials)) => {
            format!(
                "cannot tell: each side needs {}",
                units::counted(u64::from(trials), "more trial")
            )
        }
        (Verdict::CannotTell, None) => {
            "cannot tell: too noisy even for 10000 trials on each side".to_owned()
        }
    }
}

/// Formats the 95% interval of a change. Empty if the interval is unknown.
pub fn interval(change: &Change) -> String {
    if change.test.is_none() {
        return String::new();
    }
    format!("{} to {}", percent(change.ratio.low), percent(change.ratio.high))
}

/// Formats a ratio as a change in percent, or as a factor if the ratio is 10 or more.
pub fn percent(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    if percent.abs() < 0.05 {
        return "0.0%".to_owned();
    }
    if ratio > 1000.0 {
        return "over x1000".to_owned();
    }
    // Ratios of ten or more are hard to read in percent.
    if ratio >= 10.0 { format!("x{ratio:.1}") } else { format!("{percent:+.1}%") }
}

fn share(share: f64) -> String {
    format!("{}%", units::count(100.0 * share))
}

fn line(change: &Change) -> String {
    let quantity = change.quantity;
    let values = format!("{} -> {}", quantity.shown(change.before), quantity.shown(change.after));
    let bounds = match interval(change) {
        known if known.is_empty() => known,
        known => format!(" ({known})"),
    };
    let ratio = format!("{}{bounds}", percent(change.ratio.value));
    format!("  {:<6} {values:<28} {ratio:<28} {}", quantity.name(), verdict(change))
}

/// Returns the changes of a point that are shown.
fn shown(point: &PointChange, in_full: bool) -> impl Iterator<Item = &Change> {
    point.changes.iter().filter(move |change| {
        let changed = matches!(change.verdict, Verdict::Better | Verdict::Worse);
        in_full || changed || change.quantity == Quantity::Rate
    })
}

fn missing(comparison: &Comparison) -> Vec<String> {
    let of = |name: &str, points: &[String]| match points {
        [] => None,
        [one] => Some(format!("only {name} measured {one}")),
        [first, rest @ ..] => {
            let more = units::counted(rest.len() as u64, "more point");
            Some(format!("only {name} measured these points: {first}, and {more}"))
        }
    };
    let before = of(&comparison.before_name, &comparison.only_before);
    before.into_iter().chain(of(&comparison.after_name, &comparison.only_after)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::Side;
    use crate::verdict::compare;
    use lab::machine::{Host, TargetFacts};
    use lab::point::testing::point;

    fn a_comparison() -> Comparison {
        let side = |kernel: &str, bytes: &[u64]| {
            let host = Host { kernel: kernel.to_owned(), ..Host::default() };
            Side::of(kernel, host, TargetFacts::default(), vec![point(bytes)])
        };
        let before = side("6|1", &[409_600_000, 409_700_000, 409_500_000]);
        compare(&before, &side("6.12", &[450_600_000, 450_700_000, 450_500_000]), 0.02)
    }

    #[test]
    fn the_terminal_shows_values_change_interval_and_verdict() {
        let text = lines(&a_comparison()).join("\n");
        assert!(text.contains("differs host kernel: 6|1 -> 6.12"), "{text}");
        assert!(text.contains("+10.0% (+10.0% to +10.1%)"), "{text}");
        assert!(text.ends_with("1 point compared by rate: 1 faster"), "{text}");
    }

    #[test]
    fn cells_of_markdown_cannot_break_the_table() {
        let text = markdown(&a_comparison()).join("\n");
        assert!(text.contains("| host kernel | 6\\|1 | 6.12 |"), "{text}");
        assert!(text.contains("+10.0% | +10.0% to +10.1% | faster |"), "{text}");
    }

    #[test]
    fn small_changes_and_large_ratios_are_readable() {
        assert_eq!(percent(1.0001), "0.0%");
        assert_eq!(percent(0.5), "-50.0%");
        assert_eq!(percent(25.0), "x25.0");
    }
}
