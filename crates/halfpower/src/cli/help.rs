//! Help texts, and error messages for invalid values of flags. For subcommands with many flags,
//! `--help` shows only the usual flags, and `--help-all` shows all flags.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory};
use lab::similar;

use crate::cli::Cli;

/// For each subcommand with many flags, the flags that `--help` shows.
const USUAL: &[(&str, &[&str])] = &[
    ("run", RUN),
    ("sweep", RUN),
    (
        "simulate",
        &["system", "set", "list", "show", "rw", "bs", "iodepth", "numjobs", "size", "json"],
    ),
    (
        "survey",
        &["quick", "thorough", "budget", "size", "app", "pap", "overwrite", "html", "json", "plan"],
    ),
    (
        "study",
        &[
            "list",
            "show",
            "quick",
            "runtime",
            "trials",
            "size",
            "overwrite",
            "html",
            "json",
            "plan",
        ],
    ),
    (
        "compare",
        &[
            "fail-on",
            "same-within",
            "run",
            "command",
            "until",
            "budget",
            "html",
            "json",
            "plan",
            "db",
        ],
    ),
    (
        "copy",
        &[
            "archive",
            "overwrite",
            "verify",
            "resume",
            "sparse",
            "exclude",
            "delete",
            "update",
            "limit-rate",
            "plan",
        ],
    ),
    (
        "whatif",
        &["set", "rw", "bs", "iodepth", "numjobs", "size", "iodepth-to", "bs-to", "json", "plan"],
    ),
];

const RUN: &[&str] = &[
    "rw",
    "bs",
    "iodepth",
    "numjobs",
    "direct",
    "ioengine",
    "size",
    "runtime",
    "overwrite",
    "json",
];

const HELP_ALL: &str = "--help-all";

/// Returns the clap command, and the words for clap to parse. If `words` contains `--help-all`, it
/// is replaced by `--help`. Otherwise the help of the command shows only the usual flags.
pub fn command(words: &[OsString]) -> (Command, Vec<OsString>) {
    let is_literal = |word: &&OsString| *word != "--";
    let asks = words.iter().take_while(is_literal).any(|word| word == HELP_ALL);
    if !asks {
        return (short(Cli::command()), words.to_vec());
    }
    let words =
        words.iter().map(|word| if word == HELP_ALL { "--help".into() } else { word.clone() });
    (Cli::command(), words.collect())
}

/// Hides all flags except the usual flags, and adds the number of hidden flags to the help.
fn short(mut command: Command) -> Command {
    for (verb, usual) in USUAL {
        command = command.mut_subcommand(verb, |verb| {
            let is_usual = |arg: &clap::Arg| {
                arg.is_positional() || arg.get_long().is_none_or(|long| usual.contains(&long))
            };
            let hidden =
                verb.get_arguments().filter(|arg| !is_usual(arg) && !arg.is_hide_set()).count();
            let verb = verb.mut_args(|arg| {
                let hides = !is_usual(&arg);
                if hides { arg.hide(true) } else { arg }
            });
            let name = verb.get_name().to_owned();
            let more = format!("{hidden} more flags: halfpower {name} {HELP_ALL}");
            let examples = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            verb.after_help(format!("{more}\n\n{examples}"))
        });
    }
    command
}

/// Returns a one-line message for an invalid value, such as "--bs 4x: '4x' is not a size; write 4k,
/// ..". None for other errors.
pub fn wrong_value(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg)?.split(' ').next()?;
    let value = text(ContextKind::InvalidValue)?;
    let why = std::error::Error::source(error)?.to_string();
    let has_remedy = why.contains("; ") || why.starts_with("write ");
    let remedy = if has_remedy { "" } else { "; see --help" };
    Some(similar::with_offer(&format!("{flag} {value}: {why}{remedy}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let (command, words) = command(&words);
        command.try_get_matches_from(words).unwrap_err().to_string()
    }

    #[test]
    fn help_has_the_usual_flags_and_names_the_way_to_all_of_them() {
        let usual = help("halfpower run --help");
        assert!(usual.contains("--iodepth") && !usual.contains("--random-distribution"), "{usual}");
        assert!(usual.contains("halfpower run --help-all"), "{usual}");
        let all = help("halfpower run --help-all");
        assert!(all.contains("--iodepth") && all.contains("--random-distribution"), "{all}");
    }

    #[test]
    fn every_usual_flag_exists_and_there_are_at_most_ten() {
        for (verb, usual) in USUAL {
            assert!(usual.len() <= 10, "{verb}");
            let command = Cli::command();
            let verb = command.find_subcommand(verb).unwrap();
            let flags: Vec<&str> = verb.get_arguments().filter_map(clap::Arg::get_long).collect();
            for flag in *usual {
                assert!(flags.contains(flag), "{} --{flag}", verb.get_name());
            }
        }
    }

    #[test]
    fn words_of_another_command_are_left_alone() {
        let words = ["halfpower", "soak", "--", "ls", "--help-all"].map(OsString::from);
        assert_eq!(command(&words).1, words);
    }
}
