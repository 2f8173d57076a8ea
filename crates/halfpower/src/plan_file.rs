//! A plan file contains the flags of `sweep` as TOML, for sweeps that are repeated.
//!
//! A key is a flag (with dashes or underscores) or `target`. A value is text, a number, true,
//! false, or a list of these. The flags of the file are inserted before the flags of the command
//! line, which therefore override them. A file cannot give permission to write.
//!
//! A file with a key of [`STRUCTURE`], such as `part` or `figure`, is the plan of a study. Such a
//! file is parsed by `study::plan`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, CommandFactory, Parser};
use lab::experiment::settings::{CONSENTS, consent_in_file, line_of, read_plan, texts_of};
use lab::failure::{Failure, Outcome};
use toml::{Spanned, Value};

use crate::cli::{self, Cli, Verb};

/// Keys that make a file the plan of a study.
const STRUCTURE: [&str; 9] =
    ["title", "asks", "study", "compares", "whole_device", "disks", "quick", "part", "figure"];

/// The contents of a plan file. Empty if the command line has no plan file.
#[derive(Debug, Default)]
pub struct PlanFile {
    path: PathBuf,
    flags: Vec<Flag>,
    targets: Vec<PathBuf>,
    /// The whole text of the file if it is the plan of a study.
    study: Option<String>,
}

/// A flag in a plan file.
#[derive(Clone, Debug)]
struct Flag {
    line: usize,
    /// Name of the flag without the leading dashes.
    name: String,
    /// Values of the flag, written as on the command line.
    values: Vec<String>,
    /// Whether the flag takes no value.
    is_bare: bool,
}

impl Flag {
    /// Returns the flag as on the command line, such as `--bs=4k,64k`. None for a switch that is
    /// set to false.
    fn word(&self) -> Option<String> {
        if self.is_bare {
            (self.values == ["1"]).then(|| format!("--{}", self.name))
        } else {
            Some(format!("--{}={}", self.name, self.values.join(",")))
        }
    }

    /// Returns the flag with `value` as its only value.
    fn with(&self, value: &str) -> Flag {
        Flag { values: vec![value.to_owned()], ..self.clone() }
    }
}

/// If one of the targets of `sweep` is a plan file, parses the command line again with the flags of
/// this file.
///
/// # Errors
/// The plan file cannot be read, it has an unknown flag, or there are two plan files.
pub fn expand(cli: Cli, typed: &[OsString]) -> Outcome<(Cli, PlanFile)> {
    let Verb::Sweep(args) = &cli.verb else { return Ok((cli, PlanFile::default())) };
    let is_plan =
        |path: &&PathBuf| path.extension().is_some_and(|end| end == "toml") && path.is_file();
    let mut plans = args.targets.iter().filter(is_plan);
    let Some(path) = plans.next().cloned() else { return Ok((cli, PlanFile::default())) };
    if let Some(second) = plans.find(|other| **other != path) {
        let (first, second) = (path.display(), second.display());
        return Err(Failure::usage(format!(
            "{first} and {second} are both plan files; use only one"
        )));
    }
    let plan = PlanFile::read(&path)?;
    let verb = typed.iter().position(|word| word == "sweep").map_or(typed.len(), |at| at + 1);
    let words = plan.words().into_iter().map(OsString::from);
    let words = typed[..verb].iter().cloned().chain(words).chain(typed[verb..].iter().cloned());
    let mut cli =
        Cli::try_parse_from(words).map_err(|e| Failure::usage(first_line(&e, "sweep")))?;
    if let Verb::Sweep(args) = &mut cli.verb {
        args.targets.retain(|target| *target != path);
        if args.targets.is_empty() && args.filename.is_none() {
            args.targets.clone_from(&plan.targets);
        }
        args.planned = plan.words();
        args.study_plan = plan.study.clone().map(|text| (path, text));
    }
    Ok((cli, plan))
}

impl PlanFile {
    fn read(path: &Path) -> Outcome<PlanFile> {
        PlanFile::parse(path, &read_plan(path)?)
    }

    /// Parses the text of a plan file.
    ///
    /// # Errors
    /// A usage error with the line number, or a refusal if the file gives permission to write.
    pub fn parse(path: &Path, text: &str) -> Outcome<PlanFile> {
        let table: BTreeMap<Spanned<String>, Value> = toml::from_str(text).map_err(|error| {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            let message = error.message().replace('\n', " ");
            at(path, line, format!("{message}; write flags as in bs = [\"4k\", \"64k\"]"))
        })?;
        let mut plan = PlanFile { path: path.to_path_buf(), ..PlanFile::default() };
        if table.keys().any(|key| STRUCTURE.contains(&key.get_ref().as_str())) {
            plan.study = Some(text.to_owned());
            return Ok(plan);
        }
        for (key, value) in &table {
            let line = line_of(text, key.span().start);
            plan.add(line, key.get_ref(), value).map_err(|failure| Failure {
                message: at(path, line, failure.message).message,
                ..failure
            })?;
        }
        Ok(plan)
    }

    fn add(&mut self, line: usize, key: &str, value: &Value) -> Outcome<()> {
        if key == "target" || key == "filename" {
            self.targets.extend(texts_of(key, value)?.into_iter().map(PathBuf::from));
            return Ok(());
        }
        let values = texts_of(key, value)?;
        let (name, is_bare) = flag_of(key).ok_or_else(|| unknown(key))?;
        if CONSENTS.contains(&name.as_str()) {
            return Err(consent_in_file(key, &name));
        }
        if self.flags.iter().any(|flag| flag.name == name) {
            return Err(Failure::usage(format!("{key} sets --{name} a second time; remove one")));
        }
        if is_bare && !matches!(value, Value::Boolean(_)) {
            return Err(Failure::usage(format!("{key} must be true or false")));
        }
        let flag = Flag { line, name, values, is_bare };
        // Each value is first checked alone, so that an error names the invalid value. Then all
        // values are checked together, because some flags accept only one value.
        let each = flag.values.iter().map(|value| flag.with(value));
        for word in each.chain([flag.clone()]).filter_map(|flag| flag.word()) {
            check(&word)?;
        }
        self.flags.push(flag);
        Ok(())
    }

    /// Returns the flags as on the command line.
    pub fn words(&self) -> Vec<String> {
        self.flags.iter().filter_map(Flag::word).collect()
    }

    /// Adds the file and the line number to an error message about a flag of this file.
    pub fn place(&self, failure: Failure) -> Failure {
        let is_about = |flag: &&Flag| {
            let rest = failure.message.strip_prefix(&format!("--{} ", flag.name));
            let value = rest.and_then(|rest| rest.split([' ', ':', ';']).next());
            let is_one = |v: &str| v == flag.values.join(",") || flag.values.iter().any(|w| w == v);
            value.is_some_and(is_one)
        };
        match self.flags.iter().find(is_about) {
            Some(flag) => {
                let message = at(&self.path, flag.line, &failure.message).message;
                Failure { message, ..failure }
            }
            None => failure,
        }
    }
}

fn at(path: &Path, line: usize, message: impl AsRef<str>) -> Failure {
    Failure::usage(format!("{}:{line}: {}", path.display(), message.as_ref()))
}

/// Returns the flag of `sweep` for a key, and whether this flag takes no value.
fn flag_of(key: &str) -> Option<(String, bool)> {
    let key = key.replace('_', "-");
    let command = Cli::command();
    let mut arguments = command.find_subcommand("sweep")?.get_arguments();
    let argument = arguments.find(|argument| {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        argument.get_long() == Some(&key) || aliases.contains(&key.as_str())
    })?;
    // Switches such as `--verify` accept `=0` and `=1` and thus take a value.
    let takes_value = argument.get_num_args().is_some_and(|values| values.max_values() > 0);
    let is_bare = matches!(argument.get_action(), ArgAction::SetTrue) && !takes_value;
    Some((argument.get_long()?.to_owned(), is_bare))
}

fn unknown(key: &str) -> Failure {
    let flag = format!("--{}", key.replace('_', "-"));
    let error = Cli::try_parse_from(["halfpower", "sweep", &flag]).err();
    let suggested = error.as_ref().and_then(|error| error.get(ContextKind::SuggestedArg));
    let remedy = match suggested {
        Some(ContextValue::String(flag)) => format!("did you mean {}?", flag.trim_matches('-')),
        _ => "halfpower sweep --help lists the flags".to_owned(),
    };
    Failure::usage(format!("sweep has no flag '{}'; {remedy}", key.escape_debug()))
}

/// Checks that `sweep` accepts a flag with its value.
fn check(word: &str) -> Outcome<()> {
    let checked = Cli::try_parse_from(["halfpower", "sweep", word]);
    checked.map(drop).map_err(|error| Failure::usage(first_line(&error, "sweep")))
}

/// Returns the first line of a clap error. Adds a remedy if the line has none.
pub fn first_line(error: &clap::Error, verb: &str) -> String {
    if let Some(text) = cli::help::wrong_value(error) {
        return text;
    }
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let remedy = format!("; see halfpower {verb} --help");
    format!("{line}{}", if line.contains(';') { "" } else { &remedy })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::failure::Exit;

    fn parse(text: &str) -> Outcome<PlanFile> {
        PlanFile::parse(Path::new("plan.toml"), text)
    }

    #[test]
    fn keys_of_either_spelling_and_values_of_every_kind_become_words() {
        let text = "bs = ['4k', 65536]\niodepth = [1, 2]\nrw = 'randread'\ntime_based = true\n\
                    direct = false\nruntime = 0.5\nverify = false\nsoaker = true\nname = 'x y'\n";
        let mut words = parse(text).unwrap().words();
        words.sort();
        let expected = [
            "--bs=4k,65536",
            "--direct=0",
            "--iodepth=1,2",
            "--label=x y",
            "--runtime=0.5",
            "--rw=randread",
            "--soaker=1",
            "--time-based=1",
            "--verify=0",
        ];
        assert_eq!(words, expected);
        assert_eq!(parse("target = ['a', 'b']").unwrap().targets, ["a", "b"].map(PathBuf::from));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, words) in [
            ("\niodept = 4", "plan.toml:2: sweep has no flag 'iodept'; did you mean iodepth?"),
            ("zzzzzz = 1", "plan.toml:1: sweep has no flag 'zzzzzz'; halfpower sweep --help"),
            ("\n\nruntime = 'x'", "plan.toml:3: --runtime x: "),
            ("bs = {a = 1}", "plan.toml:1: bs: unsupported type"),
            ("bs = [['4k']]", "plan.toml:1: bs: unsupported type"),
            ("quiet = 1", "plan.toml:1: quiet must be true or false"),
            ("sync = true\nwrite_through = true", "plan.toml:2: write_through sets"),
            ("bs = '4k'\nbs = ", "plan.toml:2: "),
            ("\nlabel = '''\nx\n", "plan.toml:3: "),
            ("[global]\nbs = '4k'", "plan.toml:1: global: unsupported type"),
        ] {
            let failure = parse(text).unwrap_err();
            assert!(failure.message.starts_with(words), "{text}: {failure}");
            assert_eq!(failure.exit, Exit::Usage);
        }
    }

    #[test]
    fn consent_must_be_typed() {
        for key in ["overwrite", "destroy_data_on", "destroy-data-on"] {
            let failure = parse(&format!("{key} = ['data']")).unwrap_err();
            assert_eq!(failure.exit, Exit::Refused, "{failure}");
            assert!(failure.message.contains("on the command line"), "{failure}");
        }
    }

    #[test]
    fn a_later_failure_is_placed_where_its_value_stands() {
        let plan = parse("\nbs = ['4k', '8k']\ntrials = 0").unwrap();
        let placed = |message: &str| plan.place(Failure::usage(message)).message;
        assert_eq!(placed("--trials 0 measures"), "plan.toml:3: --trials 0 measures");
        assert_eq!(placed("--bs 8k: bad"), "plan.toml:2: --bs 8k: bad");
        assert_eq!(placed("--bs 5x: bad"), "--bs 5x: bad", "it is not in the file");
        assert_eq!(placed("no target"), "no target");
    }
}
