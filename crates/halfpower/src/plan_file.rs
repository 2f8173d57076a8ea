//! A plan file: the flags of `sweep` as TOML, for a sweep that is made again and again.
//!
//! A key is a flag in either spelling, or `target`; a value is text, a number, true, false, or a
//! list of them. The file becomes words that stand before those that were typed, so that typed
//! flags win and clap says what they mean. Consent to write is not taken from a file.
//!
//! A file that has parts, figures or a quick form (see [`STRUCTURE`]) is the plan of a study and
//! read by `study::plan`, from flags that are read here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, CommandFactory, Parser};
use toml::{Spanned, Value};

use crate::cli::{Cli, Verb};
use crate::failure::{Exit, Failure, Outcome};

/// The largest plan file (bytes): what is larger is something else that ends in .toml.
const BYTES_MAX: u64 = 1 << 20;
/// Flags that must be typed.
const CONSENTS: [&str; 2] = ["overwrite", "destroy-data-on"];
/// Keys that only the plan of a study has.
pub const STRUCTURE: [&str; 8] =
    ["title", "asks", "study", "compares", "disks", "quick", "part", "figure"];

/// What a plan file says; nothing where there is none.
#[derive(Debug, Default)]
pub struct PlanFile {
    path: PathBuf,
    flags: Flags,
    targets: Vec<PathBuf>,
    /// The whole text, where it is the plan of a study.
    study: Option<String>,
}

/// Flags of `sweep` as a file says them.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    settings: Vec<Setting>,
}

/// One flag of a file.
#[derive(Clone, Debug)]
pub struct Setting {
    line: usize,
    /// Its name, without dashes before it.
    pub flag: String,
    /// What it is set to, each value as it would be typed.
    pub values: Vec<String>,
    /// Whether it is typed without a value.
    is_bare: bool,
}

impl Setting {
    /// As it would be typed; none for a bare flag that is false.
    pub fn word(&self) -> Option<String> {
        match self.is_bare {
            false => Some(format!("--{}={}", self.flag, self.values.join(","))),
            true => (self.values == ["1"]).then(|| format!("--{}", self.flag)),
        }
    }

    /// The same flag with one of its values.
    #[must_use]
    pub fn with(&self, value: &str) -> Setting {
        Setting { values: vec![value.to_owned()], ..self.clone() }
    }
}

/// Parses again with the plan file that is among the targets of a sweep, if there is one.
///
/// # Errors
/// A plan file that cannot be read, or holds what is no flag of `sweep`; two of them.
pub fn expand(cli: Cli, typed: &[OsString]) -> Outcome<(Cli, PlanFile)> {
    let Verb::Sweep(args) = &cli.verb else { return Ok((cli, PlanFile::default())) };
    let is_plan =
        |path: &&PathBuf| path.extension().is_some_and(|end| end == "toml") && path.is_file();
    let mut plans = args.targets.iter().filter(is_plan);
    let Some(path) = plans.next().cloned() else { return Ok((cli, PlanFile::default())) };
    if let Some(second) = plans.find(|other| **other != path) {
        let (first, second) = (path.display(), second.display());
        return Err(Failure::usage(format!(
            "{first} and {second} are both plan files; give one at a time"
        )));
    }
    let plan = PlanFile::read(&path)?;
    let verb = typed.iter().position(|word| word == "sweep").map_or(typed.len(), |at| at + 1);
    let words = plan.words().into_iter().map(OsString::from);
    let words = typed[..verb].iter().cloned().chain(words).chain(typed[verb..].iter().cloned());
    let mut cli = Cli::try_parse_from(words).map_err(|e| Failure::usage(first_line(&e)))?;
    if let Verb::Sweep(args) = &mut cli.verb {
        args.targets.retain(|target| *target != path);
        if args.targets.is_empty() && args.filename.is_none() {
            args.targets.clone_from(&plan.targets);
        }
        args.planned = plan.words();
        args.study_plan = plan.study.clone().map(|text| (path, text));
        args.typed = typed[verb..].to_vec();
    }
    Ok((cli, plan))
}

/// The text of a plan file.
///
/// # Errors
/// When it cannot be read, or is too large for one.
pub fn text_of(path: &Path) -> Outcome<String> {
    let reading = |error: std::io::Error| {
        let cause = ioengine::error::cause(&error);
        Failure::failed(format!("reading {}: {cause}; name a plan file", path.display()))
    };
    if std::fs::metadata(path).map_err(reading)?.len() > BYTES_MAX {
        return Err(Failure::usage(format!(
            "{} is too large for a plan file; to measure it, use --filename={0}",
            path.display()
        )));
    }
    std::fs::read_to_string(path).map_err(reading)
}

impl PlanFile {
    fn read(path: &Path) -> Outcome<PlanFile> {
        PlanFile::parse(path, &text_of(path)?)
    }

    /// Reads the text of a plan file.
    ///
    /// # Errors
    /// Usage, with the line; refused where it would consent to writing.
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
        self.flags.add(line, key, value)?;
        // A list where a flag takes one value.
        let word = self.flags.settings.last().and_then(Setting::word);
        word.map_or(Ok(()), |word| check(&word))
    }

    /// The flags as they would be typed.
    pub fn words(&self) -> Vec<String> {
        self.flags.words()
    }

    /// A failure about a flag of the file, with the line where it stands.
    pub fn place(&self, failure: Failure) -> Failure {
        let is_about = |setting: &&Setting| {
            let rest = failure.message.strip_prefix(&format!("--{} ", setting.flag));
            let value = rest.and_then(|rest| rest.split([' ', ':', ';']).next());
            let is_one =
                |v: &str| v == setting.values.join(",") || setting.values.iter().any(|w| w == v);
            value.is_some_and(is_one)
        };
        match self.flags.settings.iter().find(is_about) {
            Some(setting) => {
                let message = at(&self.path, setting.line, &failure.message).message;
                Failure { message, ..failure }
            }
            None => failure,
        }
    }
}

impl Flags {
    /// The flags of a table.
    ///
    /// # Errors
    /// As for [`Flags::add`].
    pub fn of<'a>(table: impl IntoIterator<Item = (&'a String, &'a Value)>) -> Outcome<Flags> {
        let mut flags = Flags::default();
        for (key, value) in table {
            flags.add(0, key, value)?;
        }
        Ok(flags)
    }

    /// Adds a flag.
    ///
    /// # Errors
    /// Usage for what is no flag of `sweep`, or no value of it; refused for a consent to write.
    pub fn add(&mut self, line: usize, key: &str, value: &Value) -> Outcome<()> {
        let values = texts_of(key, value)?;
        if values.is_empty() {
            return Err(Failure::usage(format!(
                "{key} is an empty list, which measures nothing; write at least one value"
            )));
        }
        let (flag, is_bare) = flag_of(key).ok_or_else(|| unknown(key))?;
        if CONSENTS.contains(&flag.as_str()) {
            return Err(Failure::new(
                Exit::Refused,
                format!("{key} is a consent, which no file can give; type --{flag} yourself"),
            ));
        }
        if self.settings.iter().any(|setting| setting.flag == flag) {
            return Err(Failure::usage(format!("{key} sets --{flag} again; drop one of them")));
        }
        if is_bare && !matches!(value, Value::Boolean(_)) {
            return Err(Failure::usage(format!("{key}: write true or false")));
        }
        let setting = Setting { line, flag, values, is_bare };
        for value in &setting.values {
            setting.with(value).word().map_or(Ok(()), |word| check(&word))?;
        }
        self.settings.push(setting);
        Ok(())
    }

    /// The flags among words that clap has accepted, each as one value.
    pub fn typed(words: &[OsString]) -> Flags {
        let mut settings: Vec<Setting> = Vec::new();
        let mut words = words.iter().filter_map(|word| word.to_str()).peekable();
        while let Some(word) = words.next() {
            let Some(text) = word.strip_prefix("--") else { continue };
            let (name, value) = text.split_once('=').map_or((text, None), |(n, v)| (n, Some(v)));
            let Some((flag, is_bare)) = flag_of(name) else { continue };
            let value = match (value, is_bare) {
                (Some(value), _) => value.to_owned(),
                (None, true) => "1".to_owned(),
                // A boolean that takes 0 or 1 behind an equals sign stands alone for 1.
                (None, false) if takes_equals(&flag) => "1".to_owned(),
                (None, false) => words.next().unwrap_or_default().to_owned(),
            };
            settings.retain(|setting| setting.flag != flag);
            settings.push(Setting { line: 0, flag, values: vec![value], is_bare });
        }
        Flags { settings }
    }

    /// All of them, in the order in which they were written.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The same, but what `others` set as they set it.
    #[must_use]
    pub fn overridden_by(&self, others: &Flags) -> Flags {
        let mut settings = self.without(others).settings;
        settings.extend(others.settings.iter().cloned());
        Flags { settings }
    }

    /// The same without what `others` set.
    #[must_use]
    pub fn without(&self, others: &Flags) -> Flags {
        let is_kept = |setting: &&Setting| others.settings.iter().all(|o| o.flag != setting.flag);
        Flags { settings: self.settings.iter().filter(is_kept).cloned().collect() }
    }

    /// As they would be typed.
    pub fn words(&self) -> Vec<String> {
        self.settings.iter().filter_map(Setting::word).collect()
    }
}

fn at(path: &Path, line: usize, message: impl AsRef<str>) -> Failure {
    Failure::usage(format!("{}:{line}: {}", path.display(), message.as_ref()))
}

/// The line of an offset; of the end of the text, the last one.
pub fn line_of(text: &str, offset: usize) -> usize {
    let line = text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
    line.min(text.lines().count().max(1))
}

/// The same, where it is a value of a flag.
///
/// # Errors
/// Usage, naming the key.
pub fn texts_of(key: &str, value: &Value) -> Outcome<Vec<String>> {
    values_of(value).ok_or_else(|| {
        Failure::usage(format!("{key}: no value of a flag; write text, a number or a list"))
    })
}

/// What a value would be typed as, each of a list by itself.
fn values_of(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Integer(number) => Some(vec![number.to_string()]),
        Value::Float(number) => Some(vec![number.to_string()]),
        Value::Boolean(on) => Some(vec![u8::from(*on).to_string()]),
        Value::Array(values) if values.iter().any(Value::is_array) => None,
        Value::Array(values) => {
            values.iter().map(values_of).collect::<Option<Vec<_>>>().map(|all| all.concat())
        }
        Value::Datetime(_) | Value::Table(_) => None,
    }
}

/// The flag of `sweep` that a key names, and whether it takes no value.
pub fn flag_of(key: &str) -> Option<(String, bool)> {
    let key = key.replace('_', "-");
    let command = Cli::command();
    let mut arguments = command.find_subcommand("sweep")?.get_arguments();
    let argument = arguments.find(|argument| {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        argument.get_long() == Some(&key) || aliases.contains(&key.as_str())
    })?;
    // Those that take 0 or 1 behind an equals sign say so.
    let takes_value = argument.get_num_args().is_some_and(|values| values.max_values() > 0);
    let is_bare = matches!(argument.get_action(), ArgAction::SetTrue) && !takes_value;
    Some((argument.get_long()?.to_owned(), is_bare))
}

/// Whether a flag takes its value behind an equals sign only.
fn takes_equals(flag: &str) -> bool {
    let command = Cli::command();
    let sweep = command.find_subcommand("sweep");
    let mut arguments = sweep.into_iter().flat_map(clap::Command::get_arguments);
    arguments.any(|argument| argument.get_long() == Some(flag) && argument.is_require_equals_set())
}

fn unknown(key: &str) -> Failure {
    let flag = format!("--{}", key.replace('_', "-"));
    let error = Cli::try_parse_from(["halfpower", "sweep", &flag]).err();
    let suggested = error.as_ref().and_then(|error| error.get(ContextKind::SuggestedArg));
    let remedy = match suggested {
        Some(ContextValue::String(flag)) => format!("did you mean {}?", flag.trim_matches('-')),
        _ => "halfpower sweep --help lists the flags".to_owned(),
    };
    Failure::usage(format!("'{}' is no flag of sweep; {remedy}", key.escape_debug()))
}

/// Refuses a word that is no flag of `sweep` with its value.
fn check(word: &str) -> Outcome<()> {
    let checked = Cli::try_parse_from(["halfpower", "sweep", word]);
    checked.map(drop).map_err(|error| Failure::usage(first_line(&error)))
}

/// The cause in clap's words, with a remedy where it has none.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let remedy = if line.contains(';') { "" } else { "; halfpower sweep --help says what fits" };
    format!("{line}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Outcome<PlanFile> {
        PlanFile::parse(Path::new("plan.toml"), text)
    }

    #[test]
    fn keys_of_either_spelling_and_values_of_every_kind_become_words() {
        let text = "bs = ['4k', 65536]\niodepth = [1, 2]\nrw = 'randread'\ntime_based = true\n\
                    direct = false\nruntime = 0.5\nverify = false\nsoaker = true\nname = 'x y'\n";
        let mut words = parse(text).unwrap().flags.words();
        words.sort();
        let expected = [
            "--bs=4k,65536",
            "--direct=0",
            "--iodepth=1,2",
            "--label=x y",
            "--runtime=0.5",
            "--rw=randread",
            "--soaker",
            "--time-based=1",
        ];
        assert_eq!(words, expected);
        assert_eq!(parse("target = ['a', 'b']").unwrap().targets, ["a", "b"].map(PathBuf::from));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, words) in [
            ("\niodept = 4", "plan.toml:2: 'iodept' is no flag of sweep; did you mean iodepth?"),
            ("zzzzzz = 1", "plan.toml:1: 'zzzzzz' is no flag of sweep; halfpower sweep --help"),
            ("\n\nruntime = 'x'", "plan.toml:3: invalid value 'x'"),
            ("bs = {a = 1}", "plan.toml:1: bs: no value"),
            ("bs = [['4k']]", "plan.toml:1: bs: no value"),
            ("soaker = 1", "plan.toml:1: soaker: write true or false"),
            ("sync = true\nwrite_through = true", "plan.toml:2: write_through sets"),
            ("bs = '4k'\nbs = ", "plan.toml:2: "),
            ("\nlabel = '''\nx\n", "plan.toml:3: "),
            ("[global]\nbs = '4k'", "plan.toml:1: global: no value"),
        ] {
            let failure = parse(text).unwrap_err();
            assert!(failure.message.starts_with(words), "{text}: {failure}");
            assert_eq!(failure.exit, Exit::Usage);
        }
    }

    #[test]
    fn what_was_typed_is_read_as_clap_reads_it() {
        let words = ["plan.toml", "--bs", "4k,64k", "--direct", "--soaker", "--trials=9", "."];
        let flags = Flags::typed(&words.map(OsString::from));
        let typed: Vec<String> = flags.words();
        assert_eq!(typed, ["--bs=4k,64k", "--direct=1", "--soaker", "--trials=9"]);
    }

    #[test]
    fn consent_must_be_typed() {
        for key in ["overwrite", "destroy_data_on", "destroy-data-on"] {
            let failure = parse(&format!("{key} = ['data']")).unwrap_err();
            assert_eq!(failure.exit, Exit::Refused, "{failure}");
            assert!(failure.message.contains("yourself"), "{failure}");
        }
    }

    #[test]
    fn a_later_failure_is_placed_where_its_value_stands() {
        let plan = parse("\nbs = ['4k', '4x']\ntrials = 0").unwrap();
        let placed = |message: &str| plan.place(Failure::usage(message)).message;
        assert_eq!(placed("--trials 0 measures"), "plan.toml:3: --trials 0 measures");
        assert_eq!(placed("--bs 4k,4x: bad"), "plan.toml:2: --bs 4k,4x: bad");
        assert_eq!(placed("--bs 5x: bad"), "--bs 5x: bad", "it was typed");
        assert_eq!(placed("no target"), "no target");
    }
}
