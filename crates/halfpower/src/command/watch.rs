//! `halfpower watch` watches a command or running processes. `halfpower trace` shows, imports and
//! exports traces. Both are implemented in the crate `watch`.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use analysis::units;
use lab::console::{self, Console};
use lab::experiment::Experiment;
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json;
use lab::recorder::RunOptions;
use lab::terminal::Charts;
use lab::trace_file::TraceFile;
use survey::grid::Budget;
use survey::session::SurveyOptions;
use survey::survey_data::SurveyData;
use watch::document::TraceDocument;
use watch::session::{self, WatchOptions, Whom};
use watch::{against, page, stored, text};

use crate::cli::watch::{TraceArgs, WatchArgs};

/// Maximum amount of data that the survey of `watch --survey` may write (bytes). Equals the default
/// of `halfpower survey`.
const SURVEY_WRITE_BYTES_MAX: u64 = 16 << 30;

pub fn execute(args: &WatchArgs) -> Outcome {
    let buffer_bytes = u32::try_from(args.buffer).ok().filter(|bytes| is_buffer_size(*bytes));
    let buffer_bytes = buffer_bytes.ok_or_else(|| {
        let given = units::size(args.buffer);
        Failure::usage(format!("--buffer {given}: use a power of two from 64k to 1g"))
    })?;
    let is_command = args.pid.is_empty() && args.target.is_none();
    if args.runtime.is_some() && is_command {
        return Err(Failure::usage(
            "--runtime needs --pid or --target; to limit the time of a command, run the command \
             under timeout(1)",
        ));
    }
    if args.plan {
        return plan(args);
    }
    args.html.as_deref().map_or(Ok(()), lab::page::check)?;
    let survey = match &args.survey {
        Some(target) => match make_survey(target, args)? {
            Exit::Ok | Exit::Invalid => survey(Some("latest"), &args.db)?,
            exit => return Ok(exit),
        },
        None => survey(args.against.as_deref(), &args.db)?,
    };
    let (whom, interrupt) = match &args.target {
        Some(target) => (Whom::Target(target.clone()), Interrupt::install()),
        None if is_command => (Whom::Command(args.command.clone()), Interrupt::beside_a_command()),
        None => (Whom::Processes(args.pid.clone()), Interrupt::install()),
    };
    let options = WatchOptions {
        whom,
        limit_ns: args.runtime,
        output: args.output.clone(),
        stdout_to_stderr: args.json,
        quiet: args.quiet,
        buffer_bytes,
    };
    let mut watched = session::run(&options, &interrupt)?;
    compare(&mut watched.document, survey.as_ref());
    let document = &watched.document;
    let wrote = (!document.trace.is_empty()).then(|| format!("Wrote {}.", document.trace));
    // A user without the privileges to record gets no trace and therefore no page. The report gives
    // the reason.
    if let Some(html) = args.html.as_deref().filter(|_| wrote.is_some()) {
        lab::page::write(html, &page::html(document, Path::new(&document.trace))?)?;
    }
    if args.json {
        console::data(&json::print(document));
    } else if watched.status.is_some() {
        // Standard output belongs to the watched command, so the report is printed to standard
        // error.
        let console = Console::new(false);
        text::lines(document).iter().for_each(|line| console.say(line));
    } else {
        console::data(&text::lines(document).join("\n"));
    }
    if let Some(wrote) = wrote {
        Console::new(args.quiet && (args.json || watched.status.is_none())).say(wrote);
    }
    Ok(watched.status.map_or(Exit::Ok, exit_of))
}

/// Surveys a target and stores the run in the database.
fn make_survey(target: &Path, args: &WatchArgs) -> Outcome {
    survey::session::execute(&SurveyOptions {
        target: target.to_owned(),
        budget: Budget::of(true, false, None),
        size: None,
        max_write: SURVEY_WRITE_BYTES_MAX,
        html: None,
        prints: false,
        charts: Charts::Never,
        json: false,
        quiet: args.quiet,
        plan: false,
        mpi: false,
        base: Experiment::default(),
        run: RunOptions { db: Some(args.db.clone()), label: None, pap_bytes_per_s: None },
    })
}

/// Loads the survey that the trace is compared with. Returns None if `run` is None.
fn survey(run: Option<&str>, db: &Path) -> Outcome<Option<SurveyData>> {
    run.map(|run| SurveyData::load(db, run)).transpose()
}

fn compare(document: &mut TraceDocument, survey: Option<&SurveyData>) {
    if let Some(survey) = survey {
        against::explain(document, survey);
    }
}

fn is_buffer_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (64 << 10..=1 << 30).contains(&bytes)
}

/// Returns the exit code that a shell reports: the exit code of the command, or 128 plus the number
/// of the signal that ended the command.
fn exit_of(status: ExitStatus) -> Exit {
    match status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()) {
        0 => Exit::Ok,
        code => Exit::Command(code as u8),
    }
}

fn plan(args: &WatchArgs) -> Outcome {
    if let Some(target) = &args.survey {
        console::data(&format!("survey {} in about 20 s, with a test file", target.display()));
    }
    console::data("load BPF programs that record I/O system calls and block-layer requests");
    if let Some(target) = &args.target {
        console::data(&format!("watch all programs that use {}", target.display()));
    } else if args.pid.is_empty() {
        let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
        console::data(&format!("run: {}", words.join(" ")));
    }
    for pid in &args.pid {
        console::data(&format!("watch process {pid}"));
    }
    console::data("write the trace to a new file and print a report");
    Ok(Exit::Ok)
}

/// Runs `halfpower trace`.
pub fn trace(args: &TraceArgs) -> Outcome {
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    if let (Some(format), Some(output)) = (args.export, &args.output) {
        Console::new(false).say(stored::write(&args.file, format, output)?);
        return Ok(Exit::Ok);
    }
    args.html.as_deref().map_or(Ok(()), lab::page::check)?;
    let survey = survey(args.against.as_deref(), &args.db)?;
    let mut document = stored::show(&args.file, args.format, args.output.as_deref())?;
    compare(&mut document, survey.as_ref());
    if let Some(html) = &args.html {
        let trace = TraceFile::open(&args.file, args.format)?;
        lab::page::write(html, &page::html(&document, trace.path())?)?;
    }
    json::answer(args.json, &document, || text::lines(&document));
    Ok(Exit::Ok)
}
