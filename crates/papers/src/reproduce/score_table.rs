//! Formats the scores of both papers as Markdown, for the README and the documentation.
//!
//! `cargo xtask papers` writes the text to README.md and docs/predict.md. The scores of figures
//! count every published value. In the scores of claims, a group of claims that contradict each
//! other counts as one claim. The values and claims that are not scored are listed below the
//! tables, with the reason.

use crate::reproduce::claim::{Claims, Count};
use crate::reproduce::figure::{ChartResult, Figure, Score};
use crate::reproduce::layout::{count_text, number, percent};
use crate::reproduce::left_out::left_out;
use crate::reproduce::published::{Claim, Paper};
use crate::reproduce::{FigureResult, Reproduction, figures, reproduce};

/// Simulates the claims of both papers, and the figures that have published values.
pub fn both_papers() -> Vec<Reproduction> {
    let one = |paper| {
        let scored = figures(paper).into_iter().filter(Figure::has_published).collect();
        reproduce(paper, scored, true)
    };
    Paper::ALL.map(one).to_vec()
}

/// Formats the short form for the README: a table with one row for each paper.
pub fn short(papers: &[Reproduction]) -> String {
    let mut lines = vec![
        "| paper | published points | mean error | worst | numbers in the text reproduced within \
         10% |"
            .to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for one in papers {
        let errors: Vec<(String, f64)> = one.figures.iter().flat_map(named_errors).collect();
        let Some((score, claims)) = Score::of(&errors).zip(one.claims.as_ref()) else { continue };
        lines.push(format!(
            "| {} | {} | {} | {} ({}) | {} |",
            short_name(one.paper),
            score.points,
            share(score.mean),
            percent(score.worst),
            score.worst_name,
            count_text(claims.measured()),
        ));
    }
    lines.push(String::new());
    let not = papers.iter().filter_map(|one| one.claims.as_ref()).map(with_contradicted);
    lines.push(format!(
        "Numbers in the text are not counted if the paper's own figures and tables contradict \
         them. If these numbers were counted too, {} would be reproduced.",
        not.map(count_text).collect::<Vec<_>>().join(" and ")
    ));
    lines.join("\n")
}

fn with_contradicted(claims: &Claims) -> Count {
    claims.measured_with_contradicted()
}

/// Formats the long form for the documentation: all scores, the values that are not scored, and the
/// claims that are not scored or not met.
pub fn long(papers: &[Reproduction]) -> String {
    let mut lines = Vec::new();
    for one in papers {
        lines.push(format!("### {}\n", one.paper.title()));
        lines.extend(figure_rows(one));
        lines.push(String::new());
        if let Some(claims) = &one.claims {
            lines.extend(claim_rows(claims));
        }
        lines.push("Published points that are not scored:\n".to_owned());
        for left in left_out(one.paper) {
            let (points, what, why) = (left.points, left.what, left.why);
            lines.push(format!("- {}, {what} (points: {points}). Reason: {why}.", left.figure));
        }
        lines.push(String::new());
    }
    lines.join("\n").trim_end().to_owned()
}

fn short_name(paper: Paper) -> &'static str {
    match paper {
        Paper::Riedel97 => "Riedel, van Ingen, Gray 1997",
        Paper::Chung2000 => "Chung, Gray, Worthington, Horst 2000",
    }
}

fn named_errors(figure: &FigureResult) -> Vec<(String, f64)> {
    let named = |(name, error): (String, f64)| (format!("{}: {name}", figure.figure.name()), error);
    figure.charts.iter().flat_map(|chart| chart.errors(false)).map(named).collect()
}

fn share(value: f64) -> String {
    format!("{:.1}%", value * 100.0)
}

fn figure_rows(one: &Reproduction) -> Vec<String> {
    let mut lines = vec![
        "| figure | points | mean error | median | worst | naive bound, mean error |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    for figure in &one.figures {
        let Some(score) = &figure.score else { continue };
        lines.push(row(&figure.figure.name(), score, figure.naive.as_ref()));
        let scored = figure.charts.iter().filter(|chart| chart.score.is_some());
        let charts: Vec<&ChartResult> = scored.collect();
        for chart in charts.iter().filter(|_| charts.len() > 1) {
            if let Some(score) = &chart.score {
                let name = format!("- {}", chart.chart.title);
                lines.push(row(&name, score, chart.naive.as_ref()));
            }
        }
    }
    lines
}

fn row(name: &str, score: &Score, naive: Option<&Score>) -> String {
    let naive = naive.map_or("-".to_owned(), |naive| share(naive.mean));
    format!(
        "| {name} | {} | {} | {} | {} ({}) | {naive} |",
        score.points,
        share(score.mean),
        share(score.median),
        percent(score.worst),
        score.worst_name
    )
}

fn claim_rows(claims: &Claims) -> Vec<String> {
    let mut lines = vec![
        "| numbers in the text | reproduced within 10% |".to_owned(),
        "|---|---|".to_owned(),
        format!("| measured or derived | {} |", count_text(claims.measured())),
        format!("| measured or derived, including those that the paper contradicts | {} |", {
            count_text(claims.measured_with_contradicted())
        }),
        format!(
            "| all numbers that are not contradicted, including rules, prices and facts | {} |",
            count_text(claims.all())
        ),
    ];
    lines.push(String::new());
    lines.push("Not reproduced:\n".to_owned());
    for scored in claims.counted().filter(|scored| !scored.pass) {
        let simulated =
            scored.answer.as_ref().map_or("no value".to_owned(), |value| number(*value));
        let claim = &scored.claim;
        let reason = scored.reason.as_deref().unwrap_or("unexplained");
        lines.push(format!(
            "- {}, {}: {}; simulated {simulated}. Reason: {reason}.",
            claim.id,
            claim.text,
            claim.published()
        ));
    }
    lines.push("\nContradicted by the paper's own numbers and not counted:\n".to_owned());
    for one in &claims.contradicted {
        let claim = &one.scored.claim;
        lines.push(format!(
            "- {}, {}: {}; {} give {}.",
            claim.id,
            claim.text,
            claim.published(),
            one.source,
            number(one.own)
        ));
    }
    lines.extend(claims.contradict_inputs.iter().map(listed));
    lines.push("\nNot simulated, because no system file describes the set-up:\n".to_owned());
    lines.extend(claims.not_simulated.iter().map(listed));
    let groups = claims.scored.iter().filter_map(|scored| {
        let other = scored.counted_as.as_ref()?;
        Some(format!("{} is counted as {other}", scored.claim.id))
    });
    let groups: Vec<String> = groups.collect();
    if !groups.is_empty() {
        let text = "If claims contradict each other, only the claim nearest to the simulation is \
                    counted";
        lines.push(format!("\n{text}: {}.", groups.join(", ")));
    }
    lines.push(format!(
        "\n{} numbers are inputs of the simulator, and {} are out of scope.\n",
        claims.inputs,
        claims.out.len()
    ));
    lines
}

fn listed(claim: &Claim) -> String {
    format!("- {}, {}: {}: {}.", claim.id, claim.text, claim.published(), claim.why)
}
