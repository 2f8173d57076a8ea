//! `halfpower generate` (hidden): prints manual page, shell completions and JSON Schemas, generated
//! from the command line and the document types, and the scores of the papers for the pages.

use clap::CommandFactory;
use clap_complete::Shell;
use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::json;
use lab::resource_usage::SimulateDocument;
use papers::reproduce::document::ReproduceDocument;
use papers::reproduce::score_table;
use schemars::generate::SchemaSettings;

use crate::cli::{Cli, GenerateArgs};
use crate::command::target::TargetDocument;

/// Runs the command.
pub fn execute(args: &GenerateArgs) -> Outcome {
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let text = match args.what.as_str() {
        "man" => manual()?,
        "schema" | "schema-run" => schema::<json::RunDocument>(),
        "schema-sweep" => schema::<json::SweepDocument>(),
        "schema-simulate" => schema::<SimulateDocument>(),
        "schema-survey" => schema::<survey::document::SurveyDocument>(),
        "schema-study" => schema::<study::document::StudiesDocument>(),
        "schema-selftest" => schema::<crate::command::selftest::SelftestDocument>(),
        "schema-reproduce" => schema::<ReproduceDocument>(),
        "schema-memory" => schema::<lab::memory::document::MemoryDocument>(),
        "schema-soak" => schema::<lab::soak::SoakDocument>(),
        "schema-calibrate" => schema::<crate::command::calibrate::CalibrateDocument>(),
        "schema-whatif" => schema::<crate::command::whatif::WhatifDocument>(),
        "schema-checksum" => schema::<crate::command::checksum::ChecksumDocument>(),
        "schema-tune" => schema::<crate::command::tune::TuneDocument>(),
        "schema-target" => schema::<TargetDocument>(),
        "schema-copy" => schema::<crate::command::copy::CopyDocument>(),
        "papers-short" => score_table::short(&score_table::both_papers()),
        "papers" => score_table::long(&score_table::both_papers()),
        shell => completions(shell)?,
    };
    console::data(text.trim_end());
    Ok(Exit::Ok)
}

fn manual() -> Outcome<String> {
    let mut page = Vec::new();
    let failed = |e: std::io::Error| Failure::failed(format!("writing the manual page: {e}"));
    let root = Cli::command();
    clap_mangen::Man::new(root.clone()).render(&mut page).map_err(failed)?;
    for verb in root.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let title = format!("halfpower-{}", verb.get_name());
        clap_mangen::Man::new(verb.clone()).title(title).render(&mut page).map_err(failed)?;
    }
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn schema<T: schemars::JsonSchema>() -> String {
    // The schema of serialised output; fields with a default would be optional for input.
    let settings = SchemaSettings::draft2020_12().for_serialize();
    json::print(&settings.into_generator().into_root_schema_for::<T>())
}

fn completions(shell: &str) -> Outcome<String> {
    let shell: Shell = shell.parse().map_err(|_| {
        Failure::usage(format!(
            "generate {shell}: man, schema-run, schema-sweep, schema-simulate, schema-survey, \
             schema-study, schema-selftest, schema-reproduce, schema-calibrate, schema-whatif, \
             schema-soak, schema-memory, schema-checksum, schema-tune, schema-target, schema-copy, \
             papers, papers-short, bash, zsh, fish or elvish"
        ))
    })?;
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "halfpower", &mut text);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schemas_are_up_to_date() {
        let published = [
            (include_str!("../../../../docs/schema/run.schema.json"), "run"),
            (include_str!("../../../../docs/schema/sweep.schema.json"), "sweep"),
            (include_str!("../../../../docs/schema/simulate.schema.json"), "simulate"),
            (include_str!("../../../../docs/schema/survey.schema.json"), "survey"),
            (include_str!("../../../../docs/schema/study.schema.json"), "study"),
            (include_str!("../../../../docs/schema/selftest.schema.json"), "selftest"),
            (include_str!("../../../../docs/schema/memory.schema.json"), "memory"),
            (include_str!("../../../../docs/schema/soak.schema.json"), "soak"),
            (include_str!("../../../../docs/schema/reproduce.schema.json"), "reproduce"),
            (include_str!("../../../../docs/schema/checksum.schema.json"), "checksum"),
            (include_str!("../../../../docs/schema/tune.schema.json"), "tune"),
            (include_str!("../../../../docs/schema/target.schema.json"), "target"),
            (include_str!("../../../../docs/schema/calibrate.schema.json"), "calibrate"),
            (include_str!("../../../../docs/schema/whatif.schema.json"), "whatif"),
            (include_str!("../../../../docs/schema/copy.schema.json"), "copy"),
        ];
        for (text, name) in published {
            let now = match name {
                "run" => schema::<json::RunDocument>(),
                "sweep" => schema::<json::SweepDocument>(),
                "simulate" => schema::<SimulateDocument>(),
                "study" => schema::<study::document::StudiesDocument>(),
                "selftest" => schema::<crate::command::selftest::SelftestDocument>(),
                "memory" => schema::<lab::memory::document::MemoryDocument>(),
                "soak" => schema::<lab::soak::SoakDocument>(),
                "checksum" => schema::<crate::command::checksum::ChecksumDocument>(),
                "tune" => schema::<crate::command::tune::TuneDocument>(),
                "target" => schema::<TargetDocument>(),
                "reproduce" => schema::<ReproduceDocument>(),
                "calibrate" => schema::<crate::command::calibrate::CalibrateDocument>(),
                "whatif" => schema::<crate::command::whatif::WhatifDocument>(),
                "copy" => schema::<crate::command::copy::CopyDocument>(),
                _ => schema::<survey::document::SurveyDocument>(),
            };
            assert!(
                text.trim_end() == now.trim_end(),
                "run: halfpower generate schema-{name} > docs/schema/{name}.schema.json"
            );
        }
    }

    #[test]
    fn the_manual_page_names_every_verb() {
        let page = manual().unwrap();
        for verb in Cli::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            assert!(page.contains(verb.get_name()), "{} is missing", verb.get_name());
        }
    }

    #[test]
    fn every_flag_in_the_table_of_parameters_exists() {
        let root = Cli::command();
        let verbs = || root.get_subcommands();
        for (name, flag) in lab::flag_names::FLAGS {
            let word = flag.trim_end_matches("=0").trim_start_matches("--");
            let mut flags = verbs().flat_map(|verb| verb.get_arguments());
            assert!(flags.any(|one| one.get_long() == Some(word)), "{name}: {flag}");
        }
    }
}
