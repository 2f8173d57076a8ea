//! What becomes of an entry when something exists under its name.

use std::ffi::OsStr;

use crate::directory::{EntryInfo, type_name};
use crate::problem::{Problem, ProblemKind, on_errno};
use crate::settings::{Change, Existing, Settings};
use crate::target::TargetDirectory;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing is there.
    Create,
    /// Something is there that may go.
    Replace(EntryInfo),
    /// The same is there, but for attributes that may be set.
    Refresh,
    /// The same is there.
    UpToDate,
    /// It is left alone, as asked for.
    Leave,
}

/// How an existing entry compares with the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Same,
    /// The same but for attributes that are to be kept.
    OtherAttributes,
    Different,
}

/// Decides what becomes of an entry; `compare` looks closer at what is there, which is of the same
/// type.
pub(crate) fn decide(
    settings: &Settings,
    source: &EntryInfo,
    target: &TargetDirectory,
    name: &OsStr,
    compare: impl FnOnce(&EntryInfo) -> Result<Comparison, Problem>,
) -> Result<Decision, Problem> {
    let path = target.join(name);
    let there = target.look_up(name).map_err(on_errno("looking at", &path))?;
    let Some(there) = there else { return Ok(Decision::Create) };
    let shown = path.display();
    if there.identity() == source.identity() {
        let what = format!("{shown} is the source itself; name another destination");
        return Err(Problem::new(ProblemKind::Failed, &path, what));
    }
    if there.is_directory() {
        let source = type_name(source.file_type());
        let what = format!(
            "{shown} is a directory, the source is {source}; remove it or name another destination"
        );
        return Err(Problem::new(ProblemKind::Refused, &path, what));
    }
    match settings.existing {
        Existing::Leave => return Ok(Decision::Leave),
        Existing::Update if there.modified >= source.modified => return Ok(Decision::Leave),
        _ => {}
    }
    let comparison = match there.file_type() == source.file_type() {
        true => compare(&there)?,
        false => Comparison::Different,
    };
    if comparison == Comparison::Same {
        return Ok(Decision::UpToDate);
    }
    if let Err(why) = (settings.may_replace)(&path, &there, Change::Replace) {
        return Err(Problem::new(ProblemKind::Refused, &path, why));
    }
    Ok(match comparison {
        Comparison::OtherAttributes => Decision::Refresh,
        _ => Decision::Replace(there),
    })
}
