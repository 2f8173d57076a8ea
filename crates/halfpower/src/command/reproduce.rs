//! `halfpower reproduce`: simulates the figures and claims of a paper and prints them next to the
//! published values.

use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::json;
use papers::reproduce::document::ReproduceDocument;
use papers::reproduce::figure::Figure;
use papers::reproduce::published::Paper;
use papers::reproduce::{figures, fitted, layout, leave_out, reproduce, stated};

use crate::cli::{PaperName, ReproduceArgs};

/// Reproduces a paper and prints the result.
pub fn execute(args: &ReproduceArgs) -> Outcome {
    if args.output.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let paper = match args.paper {
        PaperName::Riedel97 => Paper::Riedel97,
        PaperName::Chung2000 => Paper::Chung2000,
    };
    if args.leave_out {
        console::data(&predicted(paper, args.output.quiet)?);
        return Ok(Exit::Ok);
    }
    let wanted = if args.claims { Vec::new() } else { wanted(paper, args.figure.as_deref())? };
    let reproduction = reproduce(paper, wanted, args.figure.is_none());
    let text = match (args.output.json, &reproduction.claims) {
        (true, _) => json::print(&ReproduceDocument::of(&reproduction)),
        (false, Some(claims)) if args.claims => layout::claims_text(claims),
        (false, _) => layout::text(&reproduction),
    };
    console::data(&text);
    Ok(Exit::Ok)
}

/// Predicts each figure with parameters that are fitted only to the other figures.
fn predicted(paper: Paper, quiet: bool) -> Outcome<String> {
    let figures = figures(paper);
    let parameters = fitted::parameters(&figures);
    let mut progress = Console::new(quiet).open_progress();
    let left = leave_out::leave_out(&figures, &parameters, &stated(paper), |share, what| {
        progress.advance(Some(share), what);
    });
    progress.finish();
    if left.is_empty() {
        let what = format!(
            "--leave-out: no parameter was fitted to the published data of {}",
            paper.name()
        );
        return Err(Failure::usage(format!("{what}; use --leave-out with riedel97")));
    }
    Ok(leave_out::text(&left))
}

/// Returns the figure with this key, or all figures if there is no key.
fn wanted(paper: Paper, key: Option<&str>) -> Outcome<Vec<Figure>> {
    let mut all = figures(paper);
    let Some(key) = key else { return Ok(all) };
    let keys = all.iter().map(|figure| figure.key.clone()).collect::<Vec<_>>().join(", ");
    all.retain(|figure| figure.key == key);
    if all.is_empty() {
        let what = format!("--figure {key}: {} has no such figure", paper.name());
        return Err(Failure::usage(format!("{what}; use one of {keys}")));
    }
    Ok(all)
}
