//! `halfpower survey`: converts the command-line flags to the options of a survey. The survey
//! itself is implemented in the crate `survey`.

use lab::failure::Outcome;
use survey::grid::Budget;
use survey::session::{self, SurveyOptions};

use crate::cli::SurveyArgs;

pub fn execute(args: &SurveyArgs) -> Outcome {
    let budget = Budget::of(args.quick, args.thorough, args.budget).for_app(args.app);
    session::execute(&SurveyOptions {
        target: args.target.clone(),
        budget,
        size: args.size,
        max_write: args.max_write,
        html: Some(args.html.clone()),
        prints: true,
        charts: args.common.charts,
        json: args.common.json,
        quiet: args.common.quiet,
        plan: args.common.plan,
        mpi: args.common.mpi,
        base: args.common.experiment(),
        run: args.common.run_options(),
    })
}
