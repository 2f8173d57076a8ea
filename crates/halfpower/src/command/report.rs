//! `halfpower report`: writes the page of a stored survey again, with the analysis of this version.
//! It reads the database only.

use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::page;
use survey::insight::Insight;
use survey::survey_data::SurveyData;
use survey::view;

use crate::cli::ReportArgs;

pub fn execute(args: &ReportArgs) -> Outcome {
    let data = SurveyData::load(&args.db, &args.run)?;
    let insight = Insight::of(&data);
    if insight.seen.is_empty() {
        let run = &args.run;
        return Err(Failure::failed(format!("survey {run} has no finished trial")));
    }
    if args.plan {
        page::check(&args.html)?;
        let (page, run) = (args.html.display(), &args.run);
        console::data(&format!("write the page {page} of survey {run}; nothing was done"));
        return Ok(Exit::Ok);
    }
    page::write(&args.html, &view::html(&data, &insight))?;
    console::data(&args.html.display().to_string());
    Ok(Exit::Ok)
}
