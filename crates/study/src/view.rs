//! Presentation of studies: the HTML page with a section for each study, and the text on the
//! terminal.
//!
//! Page and text show the same findings, advice, verdicts on claims, and reasons for doubt.

use analysis::units;
use explain::Kind;
use lab::date;
use lab::evidence::MeasuredPoint;
use lab::json;
use lab::machine::{Host, TargetFacts};
use lab::point::State;
use lab::terminal::{self, Charts};
use report::model::{self, Block, Cell as TableCell, Column, Page, Section, Table};
use report::units::Unit;
use survey::advice::Advice;
use survey::findings;
use survey::view;

use crate::conclusion::{ClaimResult, Verdict, claim_of};
use crate::general;
use crate::session::StudyResult;

/// Maximum number of findings of each study in the overview at the top of the page.
const HEADLINES: usize = 2;
/// Maximum number of settings that are listed for a rule of advice.
const SETTINGS: usize = 3;
/// Maximum number of reasons that are listed for suspect or invalid points.
const REASONS: usize = 2;

/// Renders the HTML page of all studies.
pub fn html(host: &Host, started_unix_ns: i64, all: &[StudyResult]) -> String {
    let targets = all.first().map(|study| study.evidence.targets.as_slice()).unwrap_or_default();
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    let date = date::utc(started_unix_ns);
    report::render(&Page {
        title: match all {
            [one] => format!("{} of {}", one.plan.title, names.join(", ")),
            _ => format!("Studies of {}", names.join(", ")),
        },
        subtitle: format!("{}, {}, Linux {} \u{b7} {date} UTC", host.name, host.cpu, host.kernel),
        verdict: verdict(all),
        key_figures: Vec::new(),
        findings: all.iter().flat_map(headlines).collect(),
        advice: advice(all).iter().map(view::advice_of).collect(),
        sections: all.iter().map(section).collect(),
        provenance: provenance(host, targets),
    })
}

/// Merges the advice of all studies, largest gain first.
fn advice(all: &[StudyResult]) -> Vec<Advice> {
    merged(all.iter().flat_map(|study| &study.conclusion.advice))
}

/// Joins the advice of each rule into one piece of advice, which lists the settings with the
/// largest gains. The rule with the largest gain is first.
fn merged<'a>(all: impl IntoIterator<Item = &'a Advice>) -> Vec<Advice> {
    let mut rules: Vec<Vec<&Advice>> = Vec::new();
    for one in all {
        let is_same = |rule: &&mut Vec<&Advice>| {
            rule[0].id == one.id && rule[0].how == one.how && rule[0].gain_in == one.gain_in
        };
        match rules.iter_mut().find(is_same) {
            Some(rule) => rule.push(one),
            None => rules.push(vec![one]),
        }
    }
    let mut merged: Vec<Advice> = rules.into_iter().filter_map(as_one).collect();
    merged.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    merged
}

/// Joins the advice of one rule for several settings. None if `all` is empty.
fn as_one(mut all: Vec<&Advice>) -> Option<Advice> {
    all.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    let (most, others) = all.split_first()?;
    if others.is_empty() {
        return Some((*most).clone());
    }
    let with_gain = |one: &&Advice| format!("{} ({:.1} times)", one.setting, one.gain);
    let (named, rest) = others.split_at(others.len().min(SETTINGS - 1));
    let named: Vec<String> = named.iter().map(with_gain).collect();
    let rest = match rest.len() {
        0 => String::new(),
        count => format!(", and {count} more"),
    };
    let evidence: Vec<&str> = all.iter().map(|one| one.evidence.as_str()).collect();
    Some(Advice {
        text: format!("{}; also {}{rest}", most.text, named.join(", ")),
        evidence: evidence.join("; "),
        ..(*most).clone()
    })
}

fn verdict(all: &[StudyResult]) -> model::Verdict {
    let mut verdict = lab::point::Verdict::default();
    for study in all {
        study.evidence.points.iter().for_each(|point| verdict.merge(&point.summary.verdict));
        if let Some(failure) = &study.failure {
            verdict.add(State::Suspect, format!("{}: {failure}", study.name));
        }
    }
    // Findings do not use invalid points, so invalid points do not make the study invalid.
    verdict.state = verdict.state.min(State::Suspect);
    view::verdict(&verdict)
}

fn headlines(study: &StudyResult) -> Vec<model::Finding> {
    let all = study.conclusion.findings.iter().take(HEADLINES);
    let finding = |finding: &model::Finding| model::Finding {
        headline: format!("{}: {}", study.name, finding.headline),
        ..finding.clone()
    };
    all.map(finding).collect()
}

fn provenance(host: &Host, targets: &[TargetFacts]) -> Vec<(String, Vec<(String, String)>)> {
    let mut groups = vec![json::facts("Host", host)];
    groups.extend(targets.iter().map(|target| json::facts("Target", target)));
    groups
}

fn section(study: &StudyResult) -> Section {
    let mut blocks = Vec::new();
    if !study.papers.is_empty() {
        blocks.push(Block::Text(format!("The papers: {}.", study.papers)));
    }
    blocks.push(Block::Study(study.name.clone()));
    if let Some(skipped) = &study.evidence.skipped {
        blocks.push(Block::Text(format!("Skipped: {}; {}.", skipped.reason, skipped.remedy)));
    }
    let findings = study.conclusion.findings.iter().map(|found| sentence(&found.headline));
    let findings: Vec<String> = findings.collect();
    if !findings.is_empty() {
        blocks.push(Block::Text("Results on this machine:".to_owned()));
        blocks.push(Block::List(findings));
    }
    let doubts = doubts(study);
    if !doubts.is_empty() {
        blocks.push(Block::Text("Read with care:".to_owned()));
        blocks.push(Block::List(doubts.iter().map(|doubt| sentence(doubt)).collect()));
    }
    blocks.extend(study.charts.iter().cloned().map(Block::Chart));
    blocks.extend(claims(study).map(Block::Table));
    blocks.extend(study.conclusion.tables.iter().cloned().map(Block::Table));
    blocks.extend(points(study).map(Block::Table));
    let left_out = left_out(study).into_iter();
    blocks.extend(left_out.map(|words| Block::Text(format!("Left out: {words}."))));
    Section {
        id: study.name.clone(),
        title: study.plan.title.clone(),
        lead: study.plan.asks.clone(),
        blocks,
    }
}

/// Makes the first letter of a text a capital letter, and adds a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

fn column(label: &str, unit: Option<Unit>) -> Column {
    Column { label: label.to_owned(), unit }
}

/// Builds the table of the papers' claims, with the published number, the measured number and the
/// verdict.
fn claims(study: &StudyResult) -> Option<Table> {
    let row = |result: &ClaimResult| {
        let claim = claim_of(result.id)?;
        Some(vec![
            TableCell::Text(result.id.to_owned()),
            TableCell::Text(claim.text.clone()),
            TableCell::Text(claim.published()),
            TableCell::Text(result.here.clone()),
            TableCell::Text(result.verdict.words().to_owned()),
        ])
    };
    let rows: Vec<_> = study.conclusion.claims.iter().filter_map(row).collect();
    let columns = ["Claim", "What it says", "Published", "Here", "Verdict"];
    (!rows.is_empty()).then(|| Table {
        id: format!("{}-claims", study.name),
        caption: "What the papers claim, and whether it holds here".to_owned(),
        columns: columns.into_iter().map(|label| column(label, None)).collect(),
        rows,
    })
}

fn points(study: &StudyResult) -> Option<Table> {
    let row = |point: &MeasuredPoint| {
        let given = point.given.iter().filter(|(flag, _)| is_telling(flag));
        let given: Vec<String> = given.map(|(flag, word)| format!("{flag} {word}")).collect();
        vec![
            TableCell::Text(general::name(point)),
            TableCell::Text(given.join(", ")),
            TableCell::Text(point.target.clone()),
            TableCell::Number(point.rate()),
            TableCell::Number(point.requests_per_s()),
            point.latency_ns(0.5).into(),
            point.latency_ns(0.99).into(),
            point.cpu_ns().into(),
            TableCell::Text(point.summary.verdict.state.word().to_owned()),
        ]
    };
    let rows: Vec<_> = study.evidence.points.iter().map(row).collect();
    (!rows.is_empty()).then(|| Table {
        id: format!("{}-points", study.name),
        caption: "All points".to_owned(),
        columns: vec![
            column("Point", None),
            column("Flags", None),
            column("Target", None),
            column("Throughput", Some(Unit::BytesPerSecond)),
            column("Requests", Some(Unit::PerSecond)),
            column("Median latency", Some(Unit::Nanoseconds)),
            column("99th percentile", Some(Unit::Nanoseconds)),
            column("CPU per request", Some(Unit::Nanoseconds)),
            column("Verdict", None),
        ],
        rows,
    })
}

/// Checks whether a flag is shown with a point. Flags for the length of the measurement are hidden,
/// and so is `direct`, because the name of the point contains it.
fn is_telling(flag: &str) -> bool {
    !matches!(flag, "runtime" | "trials" | "direct" | "time-based" | "ramp-time")
}

/// Returns reasons to doubt the results of a study.
fn doubts(study: &StudyResult) -> Vec<String> {
    let mut doubts = Vec::new();
    if study.interrupted {
        let text = "interrupted: the findings cover only the points measured before the interrupt";
        doubts.push(text.to_owned());
    }
    if let Some(failure) = study.failure.as_ref().filter(|_| study.evidence.skipped.is_none()) {
        doubts.push(format!("the study failed: {failure}"));
    }
    let judged = [(State::Invalid, "are invalid"), (State::Suspect, "are suspect")];
    let points = &study.evidence.points;
    doubts.extend(judged.into_iter().filter_map(|(state, what)| doubted(points, state, what)));
    doubts
}

/// Formats how many points have the verdict `state` (invalid or suspect), with the first reasons.
/// None if there are no such points.
fn doubted(points: &[MeasuredPoint], state: State, what: &str) -> Option<String> {
    let mut verdict = lab::point::Verdict::default();
    let doubted = points.iter().filter(|point| point.summary.verdict.state == state);
    let count = doubted.map(|point| verdict.merge(&point.summary.verdict)).count();
    let (named, rest) = verdict.reasons.split_at(verdict.reasons.len().min(REASONS));
    let rest = if rest.is_empty() { "" } else { "; and more (see --json)" };
    let (all, named) = (points.len(), named.join("; "));
    (count > 0).then(|| format!("{count} of {all} points {what}: {named}{rest}"))
}

/// Returns the parts of the plan that were not measured, grouped by reason.
fn left_out(study: &StudyResult) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for part in &study.evidence.left_out {
        let name = if part.part.is_empty() { "some points" } else { &part.part };
        match reasons.iter_mut().find(|(reason, _)| *reason == part.reason) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => reasons.push((&part.reason, vec![name])),
        }
    }
    reasons.iter().map(|(reason, names)| format!("{}: {reason}", names.join(", "))).collect()
}

/// Formats the name and the title of a study. If the title begins with the name, the name is not
/// repeated, as in "depth: requests outstanding".
fn heading(name: &str, title: &str) -> String {
    let (lead, rest) = title.split_once(": ").unwrap_or_default();
    if lead.to_lowercase().replace(' ', "-") == name {
        format!("{name}: {rest}")
    } else {
        format!("{name}: {title}")
    }
}

/// Formats a study as text for the terminal. Includes the first chart that can be drawn as text.
pub fn text(study: &StudyResult, charts: Charts) -> String {
    let mut lines = terminal::wrapped("", &heading(&study.name, &study.plan.title));
    if let Some(skipped) = &study.evidence.skipped {
        lines.extend(terminal::wrapped("  skipped: ", &skipped.reason));
        lines.extend(terminal::wrapped("           ", &skipped.remedy));
    }
    lines.extend(doubts(study).iter().flat_map(|doubt| terminal::wrapped("  ! ", doubt)));
    for finding in &study.conclusion.findings {
        let text = format!("{} [{}]", finding.headline, finding.id);
        lines.extend(terminal::wrapped("  - ", &text));
    }
    let draw = |charset| {
        let mut all = study.charts.iter();
        all.find_map(|chart| report::text_chart(chart, terminal::width(), charset))
    };
    lines.extend(charts.charset().and_then(draw).into_iter().flatten());
    for advice in merged(&study.conclusion.advice) {
        let (gain, id) = (findings::gain(&advice), &advice.id);
        let text = format!("{gain}: {}; {} [{id}]", advice.text, advice.how);
        lines.extend(terminal::wrapped("  > ", &text));
    }
    let claims = claims_in_words(&study.conclusion.claims);
    lines.extend(claims.iter().flat_map(|claim| terminal::wrapped("  = ", claim)));
    let left_out = left_out(study);
    lines.extend(left_out.iter().flat_map(|words| terminal::wrapped("  left out: ", words)));
    if explain::of_kind(Kind::Study).any(|topic| topic.name == study.name) {
        let text = format!("halfpower explain {} explains the study and its findings", study.name);
        lines.extend(terminal::wrapped("  ", &text));
    }
    lines.join("\n")
}

/// Formats the claims. Tested claims are listed with statement and result, other claims only by id.
fn claims_in_words(results: &[ClaimResult]) -> Vec<String> {
    let mut lines = Vec::new();
    for (verdict, word) in [(Verdict::Holds, "holds"), (Verdict::DoesNotHold, "does not hold")] {
        for one in results.iter().filter(|one| one.verdict == verdict) {
            let of_paper = claim_of(one.id).map(|c| format!("{} ({})", c.text, c.published()));
            let of_paper = of_paper.unwrap_or_default();
            lines.push(format!("claim {} {word}: {of_paper}; here: {}", one.id, one.here));
        }
    }
    let untested = results.iter().filter(|one| one.verdict == Verdict::CannotBeTried);
    let untested: Vec<&str> = untested.map(|one| one.id).collect();
    if !untested.is_empty() {
        let (count, ids) = (units::counted(untested.len() as u64, "claim"), untested.join(" "));
        lines.push(format!("{count} not testable here (reasons on the page): {ids}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Conclusion;

    #[test]
    fn the_name_of_a_study_stands_once_in_its_heading() {
        assert_eq!(heading("depth", "Depth: requests outstanding"), "depth: requests outstanding");
        assert_eq!(heading("copy-cost", "Copy cost: paths"), "copy-cost: paths");
        assert_eq!(heading("hints", "Hints and read-ahead"), "hints: Hints and read-ahead");
    }

    #[test]
    fn a_claim_is_listed_with_its_statement_and_the_result() {
        let claim = |id, verdict| ClaimResult {
            id,
            verdict,
            value: None,
            here: "reads reach 36%".to_owned(),
        };
        let lines = claims_in_words(&[
            claim("R042", Verdict::Holds),
            claim("R050", Verdict::CannotBeTried),
            claim("R051", Verdict::DoesNotHold),
        ]);
        assert_eq!(lines.len(), 3);
        let expected = "claim R042 holds: Share of the advertised throughput that the devices \
                        reach (Figure 3) (30 percent); here: reads reach 36%";
        assert_eq!(lines[0], expected);
        assert!(lines[1].starts_with("claim R051 does not hold: "), "{lines:?}");
        assert!(lines[2].starts_with("1 claim not testable here"), "{lines:?}");
    }

    #[test]
    fn a_rule_for_many_settings_appears_once_with_those_that_gain_most() {
        let mut found = Conclusion::default();
        for (gain, setting) in [(2.0, "two"), (9.0, "nine"), (3.0, "three"), (4.0, "four")] {
            found.advise("deeper-requests", gain, setting, format!("evidence of {setting}"));
        }
        found.advise("align", 5.0, "five", "evidence of five");
        let merged = merged(&found.advice);
        let [deeper, align] = merged.as_slice() else { panic!("{merged:?}") };
        assert_eq!((deeper.gain, align.gain), (9.0, 5.0));
        let words = "nine; also four (4.0 times), three (3.0 times), and 1 more";
        assert!(deeper.text.ends_with(words), "{}", deeper.text);
        assert!(deeper.evidence.contains("evidence of two"), "{}", deeper.evidence);
        assert!(align.text.ends_with("five"), "{}", align.text);
    }
}
