//! Decides what to do if the destination already exists: replace the existing entry, set its
//! attributes, or leave it unchanged.

use std::ffi::OsStr;

use crate::directory::{EntryInfo, type_name};
use crate::problem::{Problem, ProblemKind, on_errno};
use crate::settings::{Change, Existing, Settings};
use crate::target::TargetDirectory;

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The destination does not exist.
    Create,
    /// The destination exists and may be replaced.
    Replace(EntryInfo),
    /// The destination has the same content, but its attributes must be set.
    Refresh,
    /// The destination has the same content and attributes.
    UpToDate,
    /// The destination exists and is left unchanged, as the settings require.
    Leave,
}

/// Result of comparing an existing entry with the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Same,
    /// The content is the same, but attributes that the copy must keep differ.
    OtherAttributes,
    Different,
}

/// Decides what to do with an entry. If an entry of the same type exists at the destination,
/// `compare` compares it with the source.
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
        let what = format!("{shown} is the source itself; specify another destination");
        return Err(Problem::new(ProblemKind::Failed, &path, what));
    }
    if there.is_directory() {
        let source = type_name(source.file_type());
        let what = format!(
            "{shown} is a directory, but the source is {source}; remove the directory or specify \
             another destination"
        );
        return Err(Problem::new(ProblemKind::Refused, &path, what));
    }
    match settings.existing {
        Existing::Leave => return Ok(Decision::Leave),
        Existing::Update if there.modified >= source.modified => return Ok(Decision::Leave),
        _ => {}
    }
    let comparison = if there.file_type() == source.file_type() {
        compare(&there)?
    } else {
        Comparison::Different
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
