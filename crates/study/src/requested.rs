//! Finds the studies that the user requests on the command line: built-in studies and plan files.
//! Also lists all built-in studies.

use std::path::Path;

use lab::experiment::settings;
use lab::failure::{Failure, Outcome};
use lab::terminal;
use serde::Serialize;

use crate::catalogue::{self, Study};
use crate::figure;
use crate::plan::Plan;

/// A requested study.
pub struct RequestedStudy {
    /// Name of the study, or of its plan file without the extension.
    pub name: String,
    /// The built-in study whose code measures and analyses the points. None if the default code is
    /// used.
    pub study: Option<&'static Study>,
    /// What to measure.
    pub plan: Plan,
}

impl RequestedStudy {
    fn built_in(study: &'static Study) -> Outcome<RequestedStudy> {
        let plan = Plan::parse(study.plan)?;
        Ok(RequestedStudy { name: study.name.to_owned(), study: Some(study), plan })
    }

    /// Parses a comma-separated list of studies. Each item is the name of a built-in study or the
    /// path of a plan file. `all` selects all built-in studies.
    ///
    /// # Errors
    /// If a study is unknown, or a plan file cannot be read or parsed.
    pub fn named(names: &str) -> Outcome<Vec<RequestedStudy>> {
        if names == "all" {
            return catalogue::ALL.iter().copied().map(RequestedStudy::built_in).collect();
        }
        let named = |name: &str| match catalogue::named(name) {
            Some(study) => RequestedStudy::built_in(study),
            None if name.ends_with(".toml") => {
                RequestedStudy::of_file(Path::new(name), &settings::read_plan(Path::new(name))?)
            }
            None => Err(unknown(name)),
        };
        names.split(',').map(|name| named(name.trim())).collect()
    }

    /// Parses the text of the plan file `path`. The study gets the name of the file.
    ///
    /// # Errors
    /// If the plan is invalid. The message contains the path.
    pub fn of_file(path: &Path, text: &str) -> Outcome<RequestedStudy> {
        let within = |failure: Failure| Failure {
            message: format!("{}: {}", path.display(), failure.message),
            ..failure
        };
        let plan = Plan::parse(text).map_err(within)?;
        figure::check(&plan).map_err(within)?;
        let study = plan.study.as_deref();
        let study = study.map(|name| catalogue::named(name).ok_or_else(|| within(unknown(name))));
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(RequestedStudy { name, study: study.transpose()?, plan })
    }
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = catalogue::ALL.iter().map(|study| study.name).collect();
    let names = names.join(", ");
    Failure::usage(format!("unknown study '{name}'; use all, {names}, or a plan file (.toml)"))
}

/// The list of all built-in studies, as `study --list --json` prints it.
#[derive(Debug, Serialize)]
pub struct StudyList {
    studies: Vec<ListedStudy>,
}

#[derive(Debug, Serialize)]
struct ListedStudy {
    name: &'static str,
    title: String,
    asks: String,
    papers: &'static str,
    needs: &'static str,
    claims: &'static [&'static str],
}

impl StudyList {
    /// Lists all built-in studies.
    ///
    /// # Errors
    /// If the plan of a built-in study is invalid.
    pub fn of_catalogue() -> Outcome<StudyList> {
        let listed = |study: &&'static Study| -> Outcome<ListedStudy> {
            let plan = Plan::parse(study.plan)?;
            Ok(ListedStudy {
                name: study.name,
                title: plan.title,
                asks: plan.asks,
                papers: study.papers,
                needs: study.needs,
                claims: study.claims,
            })
        };
        Ok(StudyList { studies: catalogue::ALL.iter().map(listed).collect::<Outcome<_>>()? })
    }

    /// Formats the list as text, with the question and the requirements of each study.
    pub fn lines(&self) -> Vec<String> {
        let lines = |study: &ListedStudy| {
            let lead = format!("{:<15}", study.name);
            let needs = match study.needs {
                "" => String::new(),
                needs => format!("needs {needs}"),
            };
            let indent = " ".repeat(lead.len());
            [terminal::wrapped(&lead, &study.asks), terminal::wrapped(&indent, &needs)].concat()
        };
        self.studies.iter().flat_map(lines).collect()
    }
}
