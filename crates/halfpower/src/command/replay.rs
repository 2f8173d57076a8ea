//! `halfpower replay`: issues the requests of a trace again. Measured, printed and stored like a
//! run.

use lab::failure::Outcome;
use lab::job::Job;

use crate::cli::replay::ReplayArgs;
use crate::command::run::{Form, Request, measure_job};

pub fn execute(args: &ReplayArgs) -> Outcome {
    let job = Job::resolve(&args.experiment(), false)?;
    let request = Request { common: &args.common, planned: &[], form: Form::Run, show: None };
    measure_job(&request, &job)
}
