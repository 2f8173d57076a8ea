//! The plan of a study: a TOML file that describes what to measure. Built-in studies and the plan
//! files of users (`halfpower sweep plan.toml`) have the same format.
//!
//! Top-level keys are flags of `sweep` and apply to all points. If flags have lists of values, all
//! combinations of the values are measured. Further keys are:
//!
//! - `title` and `asks`: the title of the study, and the question that the study answers
//! - `[quick]`: flags that get other values if `--quick` is used
//! - `[[part]]`: a part of the study, with a `name`, its own flags, and its own `quick` table
//! - `[[figure]]`: a chart
//! - `disks`: the number of targets that each point uses at the same time
//! - `compares`: whether findings compare the targets
//! - `whole_device`: whether direct requests access the whole device of a simulated system
//! - `study`: the built-in study that measures the points and analyses the results

use std::collections::BTreeMap;
use std::path::PathBuf;

use lab::experiment::Experiment;
use lab::experiment::settings::{self, Setting, Settings};
use lab::failure::{Failure, Outcome};
use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// Each value of this flag gets a separate group, so that reads are measured even if writes are not
/// allowed.
const DIRECTION: &str = "rw";
/// The flags that a plan must not set, because they apply to the whole run.
const OF_THE_RUN: [&str; 12] = [
    "json",
    "quiet",
    "plan",
    "db",
    "no-store",
    "label",
    "name",
    "seed",
    "pap",
    "endurance",
    "html",
    "log",
];
const GROUPS_MAX: usize = 1_000;

/// A parsed plan: the points and the charts of a study.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Title of the study.
    pub title: String,
    /// The question that the study answers.
    pub asks: String,
    /// Name of the built-in study whose code measures and analyses the points. None if the default
    /// code is used.
    pub study: Option<String>,
    /// Whether the findings compare the targets. If not, each target gets its own findings.
    pub compares: bool,
    /// Whether direct requests access the whole device of a simulated system. If the user specifies
    /// the size or position of the test file, they access only this file.
    pub whole_device: bool,
    /// The targets to measure if the command line specifies none.
    pub targets: Vec<PathBuf>,
    /// The charts to draw.
    pub figures: Vec<FigurePlan>,
    parts: Vec<Part>,
}

/// A part of a plan: points that share flags.
#[derive(Clone, Debug, Default)]
struct Part {
    name: String,
    flags: Settings,
    quick: Settings,
    disks: Vec<u32>,
}

/// Description of one chart.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigurePlan {
    /// Heading of the chart.
    pub title: String,
    /// The x axis: a flag, `part`, `disks` or `target`.
    pub x: String,
    /// The y axis: one of [`super::figure::METRICS`].
    pub y: String,
    /// Whether the y axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Flags whose combinations of values each get a separate line in the chart.
    #[serde(default)]
    pub by: Vec<String>,
    /// Filter: the chart shows only points with these flag values.
    #[serde(default, rename = "where")]
    pub only: BTreeMap<String, Words>,
}

/// The values of a flag that the filter of a chart accepts.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Words {
    /// Only this value is accepted.
    One(String),
    /// Each of these values is accepted.
    Any(Vec<String>),
}

impl Words {
    /// Returns true if `is_it` is true for at least one of the values.
    pub fn any(&self, is_it: impl Fn(&str) -> bool) -> bool {
        match self {
            Words::One(one) => is_it(one),
            Words::Any(any) => any.iter().any(|one| is_it(one)),
        }
    }
}

/// Points that are measured together, because they differ only in axes of `sweep`, such as `bs`.
/// The targets are opened only once for a group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The part of the plan to which the points belong.
    pub part: String,
    /// Number of targets that each point uses at the same time. None if each target is measured
    /// separately.
    pub disks: Option<u32>,
    /// The experiment, without targets.
    pub experiment: Experiment,
    /// The flags of the points, as on the command line.
    pub words: Vec<String>,
    /// Labels of the points, by name. They include the flags that are not axes of `sweep`, such as
    /// the I/O scheduler.
    pub given: BTreeMap<String, String>,
    /// Changes to the simulated system for these points, such as "file_at=0.5". None if there are
    /// no changes.
    pub changes: Option<String>,
}

impl Plan {
    /// Parses a plan.
    ///
    /// # Errors
    /// A usage error that states the line and the cause.
    pub fn parse(text: &str) -> Outcome<Plan> {
        let table: Table = toml::from_str(text).map_err(|error| {
            let line = settings::line_of(text, error.span().map_or(0, |span| span.start));
            let message = error.message().replace('\n', " ");
            Failure::usage(format!(
                "line {line}: {message}; halfpower study depth --show prints an example"
            ))
        })?;
        let lines = Lines::of(text);
        let mut plan = Plan::default();
        let (mut base, mut parts, mut quick) = (Part::default(), Vec::new(), Settings::default());
        let mut flags = Table::new();
        for (key, value) in table {
            match key.as_str() {
                "title" => plan.title = text_of(&key, value)?,
                "asks" => plan.asks = text_of(&key, value)?,
                "study" => plan.study = Some(text_of(&key, value)?),
                "whole_device" => {
                    plan.whole_device = value
                        .as_bool()
                        .ok_or_else(|| Failure::usage("`whole_device` must be true or false"))?;
                }
                "compares" => {
                    plan.compares = value
                        .as_bool()
                        .ok_or_else(|| Failure::usage("`compares` must be true or false"))?;
                }
                of_the_run if OF_THE_RUN.contains(&of_the_run.replace('_', "-").as_str()) => {
                    return Err(Failure::usage(format!(
                        "{key} applies to the whole run; use the flag --{}",
                        key.replace('_', "-")
                    )));
                }
                "target" => {
                    let targets = settings::texts_of(&key, &value)?;
                    plan.targets = targets.into_iter().map(PathBuf::from).collect();
                }
                "disks" => base.disks = disks_of(&value)?,
                "quick" => quick = lines.flags(".quick", "quick: ", &table_of("quick", value)?)?,
                "figure" => plan.figures = figures_of(value, &lines)?,
                "part" => parts = tables_of("part", value)?,
                _ => drop(flags.insert(key, value)),
            }
        }
        base.flags = lines.flags("", "", &flags)?;
        base.quick = quick;
        plan.parts = if parts.is_empty() {
            vec![base]
        } else {
            let parts = parts.into_iter().enumerate();
            let part = |(number, table)| base.with(table, &lines, &format!(".part.{number}"));
            parts.map(part).collect::<Outcome<Vec<Part>>>()?
        };
        Ok(plan)
    }

    /// Returns the names of the plan's parts.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.name.as_str())
    }

    /// Returns true if the plan specifies points. If not, the code of the study chooses the trials.
    pub fn has_points(&self) -> bool {
        self.parts.iter().any(|part| !part.name.is_empty() || part.flags.iter().next().is_some())
    }

    /// Returns all groups of points. Flags from the command line override flags of the plan.
    ///
    /// # Errors
    /// A usage error if there are more than 1000 groups.
    pub fn groups(&self, quick: bool, typed: &Settings) -> Outcome<Vec<Group>> {
        let mut groups = Vec::new();
        for part in &self.parts {
            let flags =
                if quick { part.flags.overridden_by(&part.quick) } else { part.flags.clone() };
            groups.extend(part.groups(&flags.overridden_by(typed))?);
            if groups.len() > GROUPS_MAX {
                return Err(Failure::usage(format!(
                    "the plan has more than {GROUPS_MAX} combinations of values; shorten its lists"
                )));
            }
        }
        Ok(groups)
    }
}

impl Part {
    /// Creates the part of a `[[part]]` table. `self` has the defaults for keys that the table does
    /// not set.
    fn with(&self, mut table: Table, lines: &Lines, path: &str) -> Outcome<Part> {
        let name = table.remove("name").map(|value| text_of("name", value)).transpose()?;
        let name = name.ok_or_else(|| {
            let line = lines.before(path);
            Failure::usage(format!(
                "{line}a [[part]] has no name; add one, as in name = \"buffered\""
            ))
        })?;
        let lead = format!("part {name}: ");
        let disks = table.remove("disks").map(|value| disks_of(&value)).transpose()?;
        let quick = table.remove("quick").map(|value| table_of("quick", value)).transpose()?;
        let within = format!("{path}.quick");
        let quick = lines.flags(&within, &lead, &quick.unwrap_or_default())?;
        let own = lines.flags(path, &lead, &table)?;
        Ok(Part {
            flags: self.flags.overridden_by(&own),
            // The flags of the part override the quick flags of the plan. The quick flags of the
            // part override both.
            quick: self.quick.without(&own).overridden_by(&quick),
            disks: disks.unwrap_or_else(|| self.disks.clone()),
            name,
        })
    }

    fn groups(&self, settings: &Settings) -> Outcome<Vec<Group>> {
        let is_axis = |one: &&Setting| one.parameter.is_axis && one.parameter.name != DIRECTION;
        let (axes, others): (Vec<&Setting>, Vec<&Setting>) = settings.iter().partition(is_axis);
        let mut group = Group { part: self.name.clone(), ..Group::default() };
        axes.into_iter().try_for_each(|setting| group.set(setting))?;
        let counts = match self.disks.as_slice() {
            [] => vec![None],
            counts => counts.iter().copied().map(Some).collect(),
        };
        let with_disks = |disks| Group { disks, ..group.clone() };
        let mut groups: Vec<Group> = counts.into_iter().map(with_disks).collect();
        for setting in others {
            // This limit saves memory. `Plan::groups` returns an error if there are too many
            // groups.
            let each = groups.into_iter().take(GROUPS_MAX + 1);
            let each = each.map(|group| group.with_each(setting));
            groups = each.collect::<Outcome<Vec<_>>>()?.concat();
        }
        Ok(groups)
    }
}

impl Group {
    /// Sets a parameter of the experiment, and records its flag.
    fn set(&mut self, setting: &Setting) -> Outcome<()> {
        setting.apply(&mut self.experiment)?;
        self.words.push(setting.word());
        Ok(())
    }

    /// Returns this group with an additional label.
    #[must_use]
    pub fn note(mut self, name: &str, value: impl Into<String>) -> Group {
        self.given.insert(name.to_owned(), value.into());
        self
    }

    /// Returns a copy of this group for each value of `setting`.
    fn with_each(&self, setting: &Setting) -> Outcome<Vec<Group>> {
        let with = |value: &String| {
            let mut group = self.clone().note(setting.parameter.name, value);
            group.set(&setting.with(value))?;
            Ok(group)
        };
        setting.values.iter().map(with).collect()
    }
}

/// The line number of each key of a plan file. A path identifies a key, for example `.bs` or
/// `.part.2.quick.bs`.
struct Lines(BTreeMap<String, usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        let mut lines = Lines(BTreeMap::new());
        if let Ok(table) = DeTable::parse(text) {
            lines.add_table(text, "", table.get_ref());
        }
        lines
    }

    fn add_table(&mut self, text: &str, path: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let path = format!("{path}.{}", key.get_ref());
            self.0.insert(path.clone(), settings::line_of(text, key.span().start));
            match value.get_ref() {
                DeValue::Table(table) => self.add_table(text, &path, table),
                DeValue::Array(values) => {
                    for (number, value) in values.iter().enumerate() {
                        let DeValue::Table(table) = value.get_ref() else { continue };
                        let path = format!("{path}.{number}");
                        self.0.insert(path.clone(), settings::line_of(text, value.span().start));
                        self.add_table(text, &path, table);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the start of an error message, for example "line 7: ", for the key at `path`. Empty
    /// if the line is unknown.
    fn before(&self, path: &str) -> String {
        self.0.get(path).map(|line| format!("line {line}: ")).unwrap_or_default()
    }

    /// Parses the flags of `table`. Error messages start with the line number and `lead`.
    fn flags(&self, path: &str, lead: &str, table: &Table) -> Outcome<Settings> {
        let mut flags = Settings::default();
        for (key, value) in table {
            flags.add(key, value).map_err(|failure| {
                let line = self.before(&format!("{path}.{key}"));
                Failure { message: format!("{line}{lead}{}", failure.message), ..failure }
            })?;
        }
        Ok(flags)
    }
}

fn text_of(key: &str, value: Value) -> Outcome<String> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(Failure::usage(format!("{key} must be text in quotes"))),
    }
}

fn table_of(key: &str, value: Value) -> Outcome<Table> {
    match value {
        Value::Table(table) => Ok(table),
        _ => Err(Failure::usage(format!(
            "{key} must be a table; write a line [{key}] and the flags on the lines below it"
        ))),
    }
}

fn tables_of(key: &str, value: Value) -> Outcome<Vec<Table>> {
    match value {
        Value::Array(values) => values.into_iter().map(|value| table_of(key, value)).collect(),
        _ => Err(Failure::usage(format!(
            "{key} must be a list of tables; begin each table with a line [[{key}]]"
        ))),
    }
}

fn figures_of(value: Value, lines: &Lines) -> Outcome<Vec<FigurePlan>> {
    let figure = |(number, table): (usize, Table)| {
        table.try_into().map_err(|error: toml::de::Error| {
            let line = lines.before(&format!(".figure.{number}"));
            let message = error.message().replace('\n', " ");
            let known = "the keys of a figure are title, x, y, log, by and where";
            Failure::usage(format!("{line}figure: {message}; {known}"))
        })
    };
    tables_of("figure", value)?.into_iter().enumerate().map(figure).collect()
}

fn disks_of(value: &Value) -> Outcome<Vec<u32>> {
    let numbers = settings::texts_of("disks", value)?;
    let number = |text: &String| text.parse().ok().filter(|n| (1..=1024).contains(n));
    numbers.iter().map(number).collect::<Option<Vec<u32>>>().ok_or_else(|| {
        Failure::usage(
            "`disks` must be one or more numbers of targets (1 to 1024), as in disks = [1, 2, 4]",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(text: &str, quick: bool) -> Vec<Group> {
        Plan::parse(text).unwrap().groups(quick, &Settings::default()).unwrap()
    }

    #[test]
    fn every_list_is_an_axis_whatever_the_flag() {
        let found =
            groups("title = 'x'\nbs = ['4k', '64k']\noffset = [0, 512]\nrw = 'read'", false);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].given["offset"], "512");
        assert_eq!(found[0].words, ["--bs=4k,64k", "--offset=0", "--rw=read"]);
    }

    #[test]
    fn a_part_changes_what_all_share_and_the_quick_form_changes_both() {
        let text = "bs = '4k'\ntrials = 3\nquick = {trials = 1, bs = '8k'}\n\
                    [[part]]\nname = 'one'\n[[part]]\nname = 'two'\nbs = ['1k', '2k']\n\
                    [[part]]\nname = 'three'\nbs = '1k'\nquick = {bs = '2k'}";
        let words = |quick| groups(text, quick).into_iter().map(|g| g.words).collect::<Vec<_>>();
        let slow = words(false);
        assert_eq!(slow[0], ["--bs=4k", "--trials=3"]);
        assert_eq!(slow[1], ["--bs=1k,2k", "--trials=3"]);
        let fast = words(true);
        assert_eq!(fast[0], ["--bs=8k", "--trials=1"]);
        assert_eq!(fast[1], ["--bs=1k,2k", "--trials=1"]);
        assert_eq!(fast[2], ["--bs=2k", "--trials=1"]);
    }

    #[test]
    fn typed_flags_win() {
        let plan = Plan::parse("asks = '?'\nbs = '4k'").unwrap();
        let mut typed = Settings::default();
        typed.add("bs", &Value::from("1m")).unwrap();
        let groups = plan.groups(false, &typed).unwrap();
        assert_eq!(groups[0].words, ["--bs=1m"]);
    }

    #[test]
    fn numbers_of_disks_are_an_axis_of_their_own() {
        let found = groups("disks = [1, 2]\nbs = '4k'\n[[part]]\nname = 'a'", false);
        assert_eq!(found.iter().map(|g| g.disks).collect::<Vec<_>>(), [Some(1), Some(2)]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            ("title = 4", "title must be text"),
            ("[[part]]\nbs = '4k'", "line 1: a [[part]] has no name"),
            ("bz = '4k'\ntitle = 't'", "line 1: sweep has no flag 'bz'"),
            ("[[part]]\nname = 'a'\nbz = '4k'", "line 3: part a: sweep has no flag 'bz'"),
            ("[[part]]\nname = 'a'\nquick = {bz = '4k'}", "line 3: part a: sweep has no flag 'bz'"),
            (
                "[[part]]\nname = 'a'\n[part.quick]\nbs = '4k'\nbz = 1",
                "line 5: part a: sweep has no flag 'bz'",
            ),
            ("title = 'x'\nbs = = 2", "line 2: "),
            ("[[part]]\nname = 'a'\noverwrite = 'x'", "on the command line"),
            ("part = 4", "part must be a list"),
            ("quick = 4", "quick must be a table"),
            ("\n[[figure]]\ntitle = 'a'\nz = 'b'", "line 2: figure: "),
            ("disks = 'many'", "`disks` must be"),
            ("disks = 0", "`disks` must be"),
            ("title = ", "halfpower study depth --show"),
            ("title = 'x'\nplan = true", "use the flag --plan"),
            ("title = 'x'\nno_store = true", "use the flag --no-store"),
            ("compares = 3", "`compares` must be true"),
        ] {
            let failure = Plan::parse(text).unwrap_err();
            assert!(failure.message.contains(words), "{text}: {failure}");
        }
        let many = (0..40).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let text = format!("title = 'x'\noffset = [{many}]\nsize = [{many}]");
        let failure = Plan::parse(&text).unwrap().groups(false, &Settings::default()).unwrap_err();
        assert!(failure.message.contains("more than 1000"), "{failure}");
    }
}
