//! The parameters of an experiment as flags of `run`, `sweep` and `simulate`. All flags are
//! generated from the table [`PARAMETERS`].

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use lab::experiment::Experiment;
use lab::experiment::parameters::{PARAMETERS, Parameter};
use lab::experiment::settings::{Setting, Settings};

/// The parameters that the command line sets.
#[derive(Clone, Debug, Default)]
pub struct ParameterArgs {
    /// The parameters that are set. All other parameters have their defaults.
    pub given: Settings,
}

/// Returns the parameters whose flags this file defines. `CommonArgs` defines the other flags.
fn declared() -> impl Iterator<Item = &'static Parameter> {
    PARAMETERS.iter().filter(|parameter| !parameter.is_common)
}

impl FromArgMatches for ParameterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ParameterArgs, clap::Error> {
        let mut found = ParameterArgs::default();
        found.update_from_arg_matches(matches)?;
        Ok(found)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for parameter in declared() {
            let name = parameter.name;
            let typed = matches.value_source(name) == Some(ValueSource::CommandLine);
            if let Some(text) = matches.get_one::<String>(name).filter(|_| typed) {
                self.given.put(Setting { parameter, values: vec![text.clone()] });
            }
        }
        Ok(())
    }
}

impl Args for ParameterArgs {
    fn augment_args(command: Command) -> Command {
        command.args(declared().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ParameterArgs::augment_args(command)
    }
}

fn argument(parameter: &'static Parameter) -> Arg {
    let argument = Arg::new(parameter.name)
        .long(parameter.name)
        .aliases(parameter.aliases)
        .value_name(parameter.value_name)
        .help(parameter.help)
        .help_heading(parameter.heading)
        .hide_possible_values(true)
        .value_parser(Checked(parameter));
    let argument = match parameter.default {
        "" => argument,
        default => argument.default_value(default),
    };
    if parameter.is_switch {
        argument.num_args(0..=1).require_equals(true).default_missing_value("1")
    } else {
        argument
    }
}

/// A clap parser that checks a value of a parameter and returns the text unchanged.
#[derive(Clone)]
struct Checked(&'static Parameter);

impl TypedValueParser for Checked {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let set = self.0.set;
        let check = move |text: &str| -> Result<String, String> {
            set(&mut Experiment::default(), text).map(|()| text.to_owned())
        };
        check.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let choices = self.0.choices;
        (!choices.is_empty()).then(|| -> Box<dyn Iterator<Item = PossibleValue>> {
            Box::new(choices.iter().map(PossibleValue::new))
        })
    }
}
