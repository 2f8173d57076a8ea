//! `halfpower report`: regenerates the page of a stored survey with the analysis code of this
//! version of halfpower. With `--all`, writes a gallery of all runs. The database is only read.

use std::path::PathBuf;

use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::page;
use serve::folder::{self, FolderOptions};
use survey::insight::Insight;
use survey::survey_data::SurveyData;
use survey::view;

use crate::cli::serve::ReportArgs;

pub fn execute(args: &ReportArgs) -> Outcome {
    let default = if args.all { "halfpower-pages" } else { "halfpower.html" };
    let html = args.html.clone().unwrap_or_else(|| PathBuf::from(default));
    if args.all {
        let (db, newest, plan) = (args.db.clone(), args.newest, args.plan);
        return folder::write(&FolderOptions { db, folder: html, newest, plan });
    }
    let data = SurveyData::load(&args.db, &args.run)?;
    let insight = Insight::of(&data);
    if insight.seen.is_empty() {
        let run = &args.run;
        return Err(Failure::failed(format!(
            "survey {run} has no finished trial; specify another survey, or repeat this survey"
        )));
    }
    if args.plan {
        page::check(&html)?;
        let (page, run) = (html.display(), &args.run);
        console::data(&format!("would write the page {page} of survey {run}; nothing was done"));
        return Ok(Exit::Ok);
    }
    page::write(&html, &view::html(&data, &insight))?;
    console::data(&html.display().to_string());
    Ok(Exit::Ok)
}
