//! `halfpower plan`: finds the cheapest simulated configurations that meet a stated need.

use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::json;
use lab::text_file;
use predict::plan::candidate::{Catalogue, Limits};
use predict::plan::document;
use predict::plan::prices::{BUILT_IN, Prices};
use predict::plan::ranking::{self, Question};

use crate::cli::plan::PlanArgs;

/// The command that prints an example of a price list.
const EXAMPLE: &str = "halfpower plan --show-prices";

/// Runs the command. The exit code is 1 if no configuration meets the need.
pub fn execute(args: &PlanArgs) -> Outcome {
    let Some(need) = args.need.clone().filter(|_| !args.show_prices) else {
        console::data(BUILT_IN.trim_end());
        return Ok(Exit::Ok);
    };
    let prices = prices(args)?;
    let catalogue = Catalogue::load(&prices)?;
    let limits = Limits { price_max: args.max_cost, devices_max: args.max_devices };
    let margin = 1.0 + f64::from(args.margin) / 100.0;
    let question = Question { need, limits, margin, count: args.count as usize };
    if args.output.plan {
        let all = catalogue.candidates(&question.need, &question.limits)?.len();
        console::data(&format!("would evaluate up to {all} configurations; nothing was done"));
        return Ok(Exit::Ok);
    }
    let mut progress = Console::new(args.output.quiet).open_progress();
    let mut tell = |judged: usize, all: usize| {
        progress.advance(Some(judged as f64 / all as f64), "evaluating configurations");
    };
    let answer = ranking::find(&catalogue, &question, &mut tell);
    progress.finish();
    let document = document::of(&question, &answer?, &prices.currency);
    json::answer(args.output.json, &document, || document::text(&document));
    Ok(if document.choices.is_empty() { Exit::Failed } else { Exit::Ok })
}

fn prices(args: &PlanArgs) -> Outcome<Prices> {
    let (text, name) = match &args.prices {
        Some(path) => (text_file::read(path, "price list", EXAMPLE)?, path.display().to_string()),
        None => (BUILT_IN.to_owned(), "the built-in price list".to_owned()),
    };
    Prices::parse(&text).map_err(|why| {
        Failure::usage(format!("{name}: {}; {EXAMPLE} prints an example", why.trim_end()))
    })
}
