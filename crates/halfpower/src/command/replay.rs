//! `halfpower replay`: replays the requests of a trace. The replay is measured, printed and stored
//! like a run.

use lab::failure::{Failure, Outcome};
use lab::job::Job;

use crate::cli::replay::ReplayArgs;
use crate::command::run::{Form, Request, measure_job};

pub fn execute(args: &ReplayArgs) -> Outcome {
    if args.common.mpi {
        return Err(Failure::usage(
            "a trace is replayed by one process; drop --mpi, or start halfpower without mpirun",
        ));
    }
    let job = Job::resolve(&args.experiment(), false)?;
    let request = Request { common: &args.common, planned: &[], form: Form::Run, show: None };
    measure_job(&request, &job)
}
