//! `halfpower copy`: converts the flags to the options of a copy. `lab::files::copy` decides how
//! each source is copied, and the crate `filecopy` copies.

use filecopy::{Existing, Keep, Links};
use lab::failure::Outcome;
use lab::files::copy;
use lab::files::copy::options::CopyOptions;
use lab::guard::Consent;

use crate::cli::copy::CopyArgs;

pub fn execute(args: &CopyArgs) -> Outcome {
    let (overwrite, destroy_data_on) = (args.overwrite.clone(), args.destroy_data_on.clone());
    copy::execute(&CopyOptions {
        paths: args.paths.clone(),
        target_directory: args.target_directory.clone(),
        no_target_directory: args.no_target_directory,
        keep: match (args.archive, args.preserve) {
            (true, _) => Keep::All,
            (_, true) => Keep::Basics,
            _ => Keep::Mode,
        },
        links: if args.dereference { Links::Follow } else { Links::Keep },
        sparse: args.sparse,
        one_file_system: args.one_file_system,
        patterns: args.filter.patterns.clone(),
        existing: match (args.no_clobber, args.update) {
            (true, _) => Existing::Leave,
            (_, true) => Existing::Update,
            _ => Existing::Replace,
        },
        delete: args.delete,
        force: args.force,
        verify: args.verify,
        resume: args.resume,
        all_or_nothing: args.all_or_nothing,
        sync: !args.no_sync,
        consent: Consent { overwrite, destroy_data_on },
        limit_rate: args.limit_rate,
        cached: args.cached,
        request_bytes: args.bs,
        depth: args.iodepth,
        engine: args.ioengine.clone(),
        threads: args.numjobs,
        verbose: args.verbose,
        json: args.json,
        quiet: args.quiet,
        plan: args.plan,
    })
}
