//! A model of a program's I/O as a workload that `halfpower sweep` or fio can run: request sizes,
//! share of reads, access order, popularity of blocks, queue depth, threads, pauses and flushes.
//!
//! The trace is read twice, in bounded memory. The first pass ([`shapes`]) describes each file and
//! thread. Files and threads that behave alike are put into [`groups`]. The second pass
//! ([`measure`]) measures each group. [`model`] derives a workload from each group, and [`plan`]
//! and [`fio`] format the workloads.

use std::path::Path;

use lab::failure::{Failure, Outcome};
use lab::trace_file::{TraceFile, failed};
use trace::import::Format;
use trace::replay::{Level, Selection};
use trace::{Header, Request, TraceReader};

pub mod shapes;
pub mod groups;
pub mod measure;
pub mod model;
mod text;
pub mod plan;
pub mod fio;

use groups::Groups;
use measure::Measure;
use model::Model;
use shapes::Shapes;

/// The output format of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// A plan file for `halfpower sweep`.
    Plan,
    /// A job file for fio.
    Fio,
}

impl OutputFormat {
    /// All output formats.
    pub const ALL: [OutputFormat; 2] = [OutputFormat::Plan, OutputFormat::Fio];

    /// Returns the name that the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            OutputFormat::Plan => "plan",
            OutputFormat::Fio => "fio",
        }
    }
}

/// The trace and the selected requests that a model describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Path of the trace.
    pub trace: String,
    /// The command whose requests were recorded. Empty if unknown.
    pub command: String,
    /// Whether the model describes calls of the program or requests of the block layer.
    pub level: Level,
    /// The files and directories whose requests the model describes. Empty if all are included.
    pub files: Vec<String>,
}

/// A function that reads a trace once and calls its argument with every request.
pub type Pass<'a> = &'a dyn Fn(&mut dyn FnMut(&Request)) -> Outcome<()>;

/// Reads a trace of any known format and returns the model of the selected requests as text. If no
/// level is selected, the model describes the program's requests, or the requests of the block
/// layer if the trace has no others.
///
/// # Errors
/// The trace cannot be read, or no reads or writes are selected.
pub fn file(
    path: &Path,
    format: Option<Format>,
    selection: &Selection,
    output: OutputFormat,
) -> Outcome<String> {
    let kept = TraceFile::open(path, format)?;
    let open = || TraceReader::open(kept.path()).map_err(|error| failed(&error));
    let header = open()?.header().clone();
    let files = selection.selected_files(&header);
    let pass = |take: &mut dyn FnMut(&Request)| {
        for request in open()? {
            let request = request.map_err(|error| failed(&error))?;
            let is_selected = || files.get(request.file.0 as usize).is_none_or(|is| *is);
            if Level::of(&request) == Level::Block || is_selected() {
                take(&request);
            }
        }
        Ok(())
    };
    let levels = selection.level.map_or(Level::ALL.to_vec(), |level| vec![level]);
    for level in levels {
        if let Some(model) = model_of(&pass, &header, level)? {
            let trace = path.display().to_string();
            let command = header.command.clone();
            let files = if level == Level::Calls { selection.files.clone() } else { Vec::new() };
            let source = Source { trace, command, level, files };
            return Ok(match output {
                OutputFormat::Plan => plan::text(&model, &source),
                OutputFormat::Fio => fio::text(&model, &source),
            });
        }
    }
    let mut of =
        selection.level.map_or(String::new(), |level| format!(" of level {}", level.name()));
    if !selection.files.is_empty() {
        of += &format!(" of {}", selection.files.join(", "));
    }
    let name = path.display();
    Err(Failure::usage(format!(
        "{name}: the trace has no reads and writes{of}; halfpower trace {name} shows its contents"
    )))
}

/// Returns the model of the requests of a level. None if no request of the level moves data.
///
/// # Errors
/// The requests cannot be read.
pub fn model_of(pass: Pass<'_>, header: &Header, level: Level) -> Outcome<Option<Model>> {
    let mut shapes = Shapes::new(level);
    pass(&mut |request| shapes.take(request))?;
    if shapes.is_empty() {
        return Ok(None);
    }
    let groups = Groups::of(&shapes);
    let mut measure = Measure::new(&shapes, &groups);
    pass(&mut |request| measure.take(request))?;
    let measured = measure.finish();
    Ok(Some(Model::of(&shapes, &groups, &measured, header)))
}

#[cfg(test)]
mod tests;
