//! Parameters that a user set in a plan file or on the command line, with their values. They are
//! applied to an experiment in the order in which the user specified them.

use std::path::Path;

use toml::Value;

use crate::experiment::Experiment;
use crate::experiment::parameters::{self, PARAMETERS, Parameter};
use crate::failure::{Exit, Failure, Outcome};
use crate::similar;

/// Maximum size of a plan file (bytes). A larger file is probably not a plan.
const BYTES_MAX: u64 = 1 << 20;
/// Flags that allow destroying data. They are accepted only on the command line, not in plan files.
pub const CONSENTS: [&str; 2] = ["overwrite", "destroy-data-on"];

/// A parameter with its values.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The parameter.
    pub parameter: &'static Parameter,
    /// Values of the parameter as typed on the command line.
    pub values: Vec<String>,
}

impl Setting {
    /// Formats the setting as a command-line flag.
    pub fn word(&self) -> String {
        format!("--{}={}", self.parameter.name, self.values.join(","))
    }

    /// Returns a setting of the same parameter with `value` as the only value.
    #[must_use]
    pub fn with(&self, value: &str) -> Setting {
        Setting { values: vec![value.to_owned()], ..self.clone() }
    }

    /// Sets the parameter in an experiment.
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn apply(&self, experiment: &mut Experiment) -> Outcome<()> {
        let (name, text) = (self.parameter.name, self.values.join(","));
        (self.parameter.set)(experiment, &text)
            .map_err(|why| Failure::usage(format!("invalid value '{text}' for {name}: {why}")))
    }
}

/// A list of settings, with at most one setting of each parameter.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<Setting>);

impl Settings {
    /// Adds a setting. Replaces an earlier setting of the same parameter.
    pub fn put(&mut self, setting: Setting) {
        self.0.retain(|other| other.parameter.name != setting.parameter.name);
        self.0.push(setting);
    }

    /// Adds a key of a plan file and its value.
    ///
    /// # Errors
    /// If the parameter is unknown or already set, if the value is invalid, or if the key is in
    /// [`CONSENTS`].
    pub fn add(&mut self, key: &str, value: &Value) -> Outcome<()> {
        let values = texts_of(key, value)?;
        let name = key.replace('_', "-");
        if CONSENTS.contains(&name.as_str()) {
            return Err(consent_in_file(key, &name));
        }
        let parameter = parameters::named(key).ok_or_else(|| unknown(key))?;
        if self.0.iter().any(|setting| setting.parameter.name == parameter.name) {
            let name = parameter.name;
            return Err(Failure::usage(format!("{key}: {name} is already set; drop one of them")));
        }
        let setting = Setting { parameter, values };
        for value in &setting.values {
            setting.with(value).apply(&mut Experiment::default())?;
        }
        self.0.push(setting);
        Ok(())
    }

    /// Returns all settings, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }

    /// Merges two lists. If both lists set a parameter, the setting in `others` is used.
    #[must_use]
    pub fn overridden_by(&self, others: &Settings) -> Settings {
        let mut settings = self.without(others);
        settings.0.extend(others.0.iter().cloned());
        settings
    }

    /// Returns the settings of the parameters that `others` does not set.
    #[must_use]
    pub fn without(&self, others: &Settings) -> Settings {
        let is_set = |setting: &Setting| {
            others.0.iter().any(|other| other.parameter.name == setting.parameter.name)
        };
        Settings(self.0.iter().filter(|setting| !is_set(setting)).cloned().collect())
    }

    /// Checks that no parameter has a list of values to sweep, because `run` measures one workload.
    ///
    /// # Errors
    /// If a parameter has such a list. The error recommends `sweep`.
    pub fn check_one_workload(&self) -> Outcome<()> {
        let is_list = |setting: &&Setting| {
            let text = setting.values.join(",");
            setting.parameter.is_axis && (text.contains(',') || text.contains(".."))
        };
        match self.0.iter().find(is_list) {
            Some(Setting { parameter, values }) => Err(Failure::usage(format!(
                "--{} {}: halfpower run measures one workload; to measure a list of values, use \
                 halfpower sweep",
                parameter.name,
                values.join(",")
            ))),
            None => Ok(()),
        }
    }

    /// Applies all settings to an experiment.
    ///
    /// # Errors
    /// If a value is invalid, as for [`Setting::apply`].
    pub fn apply(&self, experiment: &mut Experiment) -> Outcome<()> {
        self.0.iter().try_for_each(|setting| setting.apply(experiment))
    }
}

/// Returns the error for a plan file that contains one of the flags in [`CONSENTS`].
pub fn consent_in_file(key: &str, flag: &str) -> Failure {
    Failure::new(
        Exit::Refused,
        format!("{key} is accepted only on the command line; use --{flag} there"),
    )
}

/// Reads the text of a plan file.
///
/// # Errors
/// If the file cannot be read or is too large.
pub fn read_plan(path: &Path) -> Outcome<String> {
    let reading = |error: std::io::Error| {
        let cause = ioengine::error::cause(&error);
        Failure::failed(format!("reading {}: {cause}; specify a plan file", path.display()))
    };
    if std::fs::metadata(path).map_err(reading)?.len() > BYTES_MAX {
        return Err(Failure::usage(format!(
            "{} is too large for a plan file; to measure it, use --filename={0}",
            path.display()
        )));
    }
    std::fs::read_to_string(path).map_err(reading)
}

/// Returns the number of the line that contains a byte offset, counted from 1. The end of the text
/// is part of the last line.
pub fn line_of(text: &str, offset: usize) -> usize {
    let line = text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
    line.min(text.lines().count().max(1))
}

/// Converts the value of a key in a plan file to text, as a user would type it on the command line.
/// Returns one text for each element of a list.
///
/// # Errors
/// If the list is empty, or if the value has an unsupported type, such as a date.
pub fn texts_of(key: &str, value: &Value) -> Outcome<Vec<String>> {
    match values_of(value) {
        Some(values) if values.is_empty() => {
            Err(Failure::usage(format!("{key} is an empty list; specify at least one value")))
        }
        Some(values) => Ok(values),
        None => Err(Failure::usage(format!(
            "{key}: unsupported type of value; use text, a number or a list"
        ))),
    }
}

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

fn unknown(key: &str) -> Failure {
    let names = PARAMETERS.iter().map(|parameter| parameter.name);
    let remedy = match similar::nearest(key, names) {
        Some(name) => format!("did you mean {name}?"),
        None => "halfpower sweep --help lists the flags".to_owned(),
    };
    Failure::usage(format!("sweep has no flag '{}'; {remedy}", key.escape_debug()))
}
