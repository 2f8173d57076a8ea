//! Fuzz target for the flags and the parameter file of SQLIO. Any input must yield a `run` command
//! or an error with a remedy.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use lab::failure::Failure;
use lab::job::Job;
use papers::classic::flags::Flags;
use papers::classic::params;
use papers::classic::sqlio::translate;

use crate::cli::{Cli, Verb};

/// Fuzzes SQLIO's flags. The input has one argument per line. The parameter file follows after an
/// empty line.
pub fn sqlio(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (words, file) = text.split_once("\n\n").unwrap_or((&text, ""));
    let (flags, files): (Vec<String>, Vec<String>) =
        words.lines().map(str::to_owned).partition(|word| word.starts_with('-'));
    let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
    let params = params::parse(file).map_err(|failure| check(&failure)).ok();
    let Ok(flags) = Flags::parse(&flags).map_err(|failure| check(&failure)) else { return };
    let params = params.as_deref().filter(|_| flags.param_file.is_some());
    let Ok(found) = translate(&flags, &files, params).map_err(|failure| check(&failure)) else {
        return;
    };
    let words = ["halfpower", "run"].into_iter().chain(found.words.iter().map(String::as_str));
    let cli =
        Cli::try_parse_from(words.map(OsString::from)).expect("halfpower run accepts each word");
    let Verb::Run(args) = cli.verb else { unreachable!("the subcommand is run") };
    assert!(args.common.overwrite.is_empty() && args.common.destroy_data_on.is_empty());
    assert!(args.targets.is_empty(), "a flag's value was parsed as a target");
    assert!(!found.targets.is_empty());
    let experiment = args.experiment().expect("each value was accepted");
    if let Err(failure) = Job::resolve(&experiment, false) {
        check(&failure);
    }
}

/// Checks that an error has a remedy.
fn check(failure: &Failure) {
    assert!(failure.message.contains([';', ':']), "the message has no remedy: {failure}");
}
