//! `halfpower generate` (hidden): prints the manual page, shell completions or JSON Schemas. Also
//! prints tables for the documentation that show how well the simulator reproduces the papers.

use clap::CommandFactory;
use clap_complete::Shell;
use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::json;
use lab::resource_usage::SimulateDocument;
use lab::target_description::TargetDocument;
use papers::reproduce::document::ReproduceDocument;
use papers::reproduce::score_table;
use schemars::generate::SchemaSettings;

use crate::cli::{Cli, GenerateArgs};
use crate::command::explain::ExplainDocument;

pub fn execute(args: &GenerateArgs) -> Outcome {
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let text = match args.what.as_str() {
        "man" => manual()?,
        "schema" => schema_of("run").unwrap_or_default(),
        "papers-short" => score_table::short(&score_table::both_papers()),
        "papers" => score_table::long(&score_table::both_papers()),
        what => match what.strip_prefix("schema-").and_then(schema_of) {
            Some(schema) => schema,
            None => completions(what)?,
        },
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

/// A subcommand that has `--json`, and the schema of its document.
type Schema = (&'static str, fn() -> String);

/// The subcommands whose documents have a published schema.
const SCHEMAS: [Schema; 23] = [
    ("explain", schema::<ExplainDocument>),
    ("run", schema::<json::RunDocument>),
    ("sweep", schema::<json::SweepDocument>),
    ("simulate", schema::<SimulateDocument>),
    ("survey", schema::<survey::document::SurveyDocument>),
    ("study", schema::<study::document::StudiesDocument>),
    ("selftest", schema::<lab::selftest::document::SelftestDocument>),
    ("reproduce", schema::<ReproduceDocument>),
    ("calibrate", schema::<predict::session::CalibrateDocument>),
    ("whatif", schema::<predict::whatif_text::WhatifDocument>),
    ("plan", schema::<predict::plan::document::CapacityDocument>),
    ("compare", schema::<compare::document::ComparisonsDocument>),
    ("import", schema::<exchange::import::ImportDocument>),
    ("baseline", schema::<compare::document::ComparisonsDocument>),
    ("history", schema::<compare::history::HistoryDocument>),
    ("fleet", schema::<compare::fleet::FleetDocument>),
    ("soak", schema::<lab::soak::SoakDocument>),
    ("trace", schema::<watch::document::TraceDocument>),
    ("memory", schema::<lab::memory::document::MemoryDocument>),
    ("checksum", schema::<lab::files::checksum::ChecksumDocument>),
    ("tune", schema::<lab::tuning::document::TuneDocument>),
    ("target", schema::<TargetDocument>),
    ("copy", schema::<lab::files::copy::document::CopyDocument>),
];

fn schema_of(verb: &str) -> Option<String> {
    SCHEMAS.iter().find(|(name, _)| *name == verb).map(|(_, schema)| schema())
}

fn schema<T: schemars::JsonSchema>() -> String {
    // By default, schemars generates a schema for input, in which fields with a default value are
    // optional. In a schema for output, these fields are required.
    let settings = SchemaSettings::draft2020_12().for_serialize();
    json::print(&settings.into_generator().into_root_schema_for::<T>())
}

fn completions(shell: &str) -> Outcome<String> {
    let shell: Shell = shell.parse().map_err(|_| {
        let schemas: Vec<String> =
            SCHEMAS.iter().map(|(name, _)| format!("schema-{name}")).collect();
        let schemas = schemas.join(", ");
        Failure::usage(format!(
            "generate {shell}: use man, {schemas}, papers, papers-short, bash, zsh, fish or elvish"
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
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), SCHEMAS.len());
        for (name, schema) in SCHEMAS {
            let path = folder.join(format!("{name}.schema.json"));
            let text = std::fs::read_to_string(path).unwrap_or_default();
            assert!(
                text.trim_end() == schema().trim_end(),
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
            let word = flag.split([' ', '=']).next().unwrap().trim_start_matches("--");
            let mut flags = verbs().flat_map(|verb| verb.get_arguments());
            assert!(flags.any(|one| one.get_long() == Some(word)), "{name}: {flag}");
        }
    }
}
