//! `halfpower calibrate`: converts the flags to the options of a calibration. The crate `predict`
//! does the calibration.

use lab::failure::Outcome;
use lab::guard::Consent;
use predict::session::{self, CalibrateOptions};

use crate::cli::calibrate::CalibrateArgs;

pub fn execute(args: &CalibrateArgs) -> Outcome {
    let (overwrite, destroy_data_on) = (args.overwrite.clone(), args.destroy_data_on.clone());
    session::execute(&CalibrateOptions {
        runs: args.runs.clone(),
        check: args.check.clone(),
        db: args.db.clone(),
        measure: args.measure.clone(),
        consent: Consent { overwrite, destroy_data_on },
        system: args.system.clone(),
        out: args.out.clone(),
        holdout: args.holdout,
        json: args.output.json,
        quiet: args.output.quiet,
        plan: args.output.plan,
    })
}
