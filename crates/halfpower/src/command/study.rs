//! `halfpower study`, and `halfpower sweep` with the plan of a study: runs studies on targets and
//! prints the results.

use analysis::units;
use std::path::{Path, PathBuf};

use ioengine::clock::unix_ns;
use lab::console::{self, Console};
use lab::evidence::Stated;
use lab::experiment::settings::{self, Settings};
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json::{self, Program};
use lab::machine::Host;
use lab::page;
use lab::recorder::Recorder;
use lab::settings as host_settings;
use lab::target::TargetSpec;
use lab::trials::Lab;
use serde::Serialize;
use study::catalogue::{self, Study};
use study::document::{StudiesDocument, StudyDocument};
use study::extent::Extent;
use study::figure;
use study::plan::Plan;
use study::session::{Session, StudyResult};
use study::target::StudyTarget;
use study::view;
use survey::document::WroteDocument;
use survey::findings;

use crate::cli::study::StudyArgs;
use crate::cli::{CommonArgs, RunArgs};

/// Default size of a test file (bytes).
const FILE_BYTES: u64 = 1 << 30;
/// Default size of a test file with --quick (bytes).
const QUICK_FILE_BYTES: u64 = 512 << 20;

/// A requested study.
struct Asked {
    name: String,
    study: Option<&'static Study>,
    plan: Plan,
}

/// Targets, options and output of all requested studies.
struct Form<'a> {
    targets: Vec<PathBuf>,
    size: Option<u64>,
    quick: bool,
    toggle_write_cache: bool,
    stated: Stated,
    typed: Settings,
    html: Option<&'a Path>,
    common: &'a CommonArgs,
}

/// Runs the named studies.
pub fn execute(args: &StudyArgs) -> Outcome {
    if args.list {
        return list(args.common.json);
    }
    let asked = asked(args.name.as_deref().unwrap_or_default())?;
    if args.show {
        asked.iter().filter_map(|one| one.study).for_each(|study| console::data(study.plan.trim()));
        return Ok(Exit::Ok);
    }
    let mut targets = args.targets.clone();
    if targets.is_empty() {
        targets = asked.iter().flat_map(|one| one.plan.targets.clone()).collect();
    }
    if targets.is_empty() {
        targets.push(PathBuf::from("."));
    }
    let form = Form {
        targets,
        size: args.size,
        quick: args.quick,
        toggle_write_cache: args.toggle_write_cache,
        stated: stated(args)?,
        typed: typed(args)?,
        html: Some(&args.html),
        common: &args.common,
    };
    conduct(asked, &form)
}

/// Runs the study of a plan file.
pub fn sweep(args: &RunArgs, (path, text): &(PathBuf, String)) -> Outcome {
    let asked = asked_in(path, text)?;
    let experiment = args.experiment()?;
    let mut targets = experiment.targets;
    if targets.is_empty() {
        targets.clone_from(&asked.plan.targets);
    }
    if targets.is_empty() {
        return Err(Failure::usage(
            "no target; name one after the plan file, or in it: target = \"/data\"",
        ));
    }
    let form = Form {
        targets,
        size: experiment.size_bytes,
        quick: args.quick,
        toggle_write_cache: false,
        stated: Stated::default(),
        typed: args.parameters.given.clone(),
        html: args.html.as_deref(),
        common: &args.common,
    };
    conduct(vec![asked], &form)
}

fn conduct(asked: Vec<Asked>, form: &Form<'_>) -> Outcome {
    let common = form.common;
    if common.plan {
        return print_plan(&asked, form);
    }
    let console = Console::new(common.quiet);
    host_settings::warn_of_left_behind(&console);
    let interrupt = Interrupt::install();
    if let Some(html) = form.html {
        page::check(html)?;
    }
    let db = (!common.no_store).then_some(common.db.as_path());
    Recorder::check(db, &form.targets)?;
    let lab = Lab::new(console, interrupt);
    let (started_unix_ns, host) = (unix_ns(), Host::read());
    let most = if form.quick { QUICK_FILE_BYTES } else { FILE_BYTES };
    let consent = common.consent();
    // Check all targets before any time is spent.
    form.targets.iter().try_for_each(|name| StudyTarget::check(name, &consent))?;
    let ready =
        |name: &PathBuf| StudyTarget::ready(name, form.size, (most, common.seed), &consent, &lab);
    let session = Session {
        lab: &lab,
        host: host.clone(),
        study_targets: form.targets.iter().map(ready).collect::<Outcome<Vec<StudyTarget>>>()?,
        quick: form.quick,
        toggle_write_cache: form.toggle_write_cache,
        stated: form.stated.clone(),
        options: common.run_options(),
        base: common.experiment(),
        typed: form.typed.clone(),
        size: form.size,
    };
    let mut all = Vec::new();
    for Asked { name, study, plan } in asked {
        if lab.interrupt.is_set() {
            break;
        }
        let made = match session.make(&name, study, plan) {
            // Keep the studies that are complete.
            Err(failure) if failure.exit == Exit::Interrupted && !all.is_empty() => break,
            made => made?,
        };
        if !common.json {
            console::data(&view::text(&made));
        }
        all.push(made);
    }
    drop(session);
    show(form, &console, (&host, started_unix_ns), &all)?;
    let exit = exit_of(lab.interrupt.is_set(), &all);
    say_why(exit, &all);
    Ok(exit)
}

/// Prints the reason for the exit code last, because its first mention may be far above.
fn say_why(exit: Exit, all: &[StudyResult]) {
    let names = |is: fn(&StudyResult) -> bool| -> String {
        let named: Vec<&str> =
            all.iter().filter(|made| is(made)).map(|made| made.name.as_str()).collect();
        named.join(", ")
    };
    match exit {
        Exit::Failed => {
            for made in all {
                if let Some(failure) = &made.failure {
                    console::error(&format!("study {}: {failure}", made.name));
                }
            }
        }
        Exit::Invalid => {
            let names = names(StudyResult::is_invalid);
            console::error(&format!("invalid results: {names}; the reasons are above"));
        }
        _ => {}
    }
}

fn exit_of(interrupted: bool, all: &[StudyResult]) -> Exit {
    let refused = all.iter().find_map(|made| made.refused);
    match refused.filter(|_| all.iter().all(|made| made.refused.is_some())) {
        _ if interrupted => Exit::Interrupted,
        _ if all.iter().any(|made| made.failure.is_some()) => Exit::Failed,
        Some(exit) => exit,
        None if all.iter().any(StudyResult::is_invalid) => Exit::Invalid,
        None => Exit::Ok,
    }
}

/// Writes the page, and prints the document with `--json`.
fn show(
    form: &Form<'_>,
    console: &Console,
    (host, started_unix_ns): (&Host, i64),
    all: &[StudyResult],
) -> Outcome<()> {
    let page =
        form.html.map_or(Ok(()), |html| page::write(html, &view::html(host, started_unix_ns, all)));
    let common = form.common;
    let html = form.html.filter(|_| page.is_ok()).map(|html| html.display().to_string());
    let db = (!common.no_store).then(|| common.db.display().to_string());
    if common.json {
        let targets = all.first().map(|made| made.evidence.targets.clone());
        console::data(&json::print(&StudiesDocument {
            halfpower: Program::this(),
            host: host.clone(),
            targets: targets.unwrap_or_default(),
            studies: all.iter().map(StudyDocument::from).collect(),
            wrote: WroteDocument { db, html },
        }));
    } else {
        let places: Vec<String> = [html, db].into_iter().flatten().collect();
        if !places.is_empty() {
            console.say(format!("Wrote {}.", places.join(" and ")));
        }
    }
    page
}

/// The studies for a comma-separated list of names and plan files.
fn asked(names: &str) -> Outcome<Vec<Asked>> {
    let built_in = |study: &'static Study| {
        Ok(Asked {
            name: study.name.to_owned(),
            study: Some(study),
            plan: Plan::parse(study.plan)?,
        })
    };
    if names == "all" {
        return catalogue::ALL.iter().copied().map(built_in).collect();
    }
    let named = |name: &str| match catalogue::named(name) {
        Some(study) => built_in(study),
        None if name.ends_with(".toml") => {
            asked_in(Path::new(name), &settings::read_plan(Path::new(name))?)
        }
        None => Err(unknown(name)),
    };
    names.split(',').map(|name| named(name.trim())).collect()
}

/// The study of a plan file.
fn asked_in(path: &Path, text: &str) -> Outcome<Asked> {
    let within = |failure: Failure| Failure {
        message: format!("{}: {}", path.display(), failure.message),
        ..failure
    };
    let plan = Plan::parse(text).map_err(within)?;
    figure::check(&plan).map_err(within)?;
    let study = plan.study.as_deref();
    let study = study.map(|name| catalogue::named(name).ok_or_else(|| within(unknown(name))));
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Asked { name, study: study.transpose()?, plan })
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = catalogue::ALL.iter().map(|study| study.name).collect();
    let names = names.join(", ");
    Failure::usage(format!("unknown study '{name}'; use all, {names}, or a plan.toml"))
}

fn stated(args: &StudyArgs) -> Outcome<Stated> {
    let is_wrong = |value: &&f64| !value.is_finite() || **value <= 0.0;
    let positive = |flag: &str, values: &[f64]| match values.iter().find(is_wrong) {
        Some(value) => Err(Failure::usage(format!("{flag} {value}: use a number above 0"))),
        None => Ok(()),
    };
    positive("--price", &args.price)?;
    positive("--power", &args.power)?;
    Ok(Stated {
        prices: args.price.clone(),
        power_watts: args.power.clone(),
        capacities: args.capacity.clone(),
    })
}

/// The flags that override the plans.
fn typed(args: &StudyArgs) -> Outcome<Settings> {
    if args.trials == Some(0) {
        return Err(Failure::usage("--trials 0 measures nothing; use 1 or more"));
    }
    if args.runtime.as_deref().is_some_and(|time| units::parse_duration(time) == Ok(0)) {
        return Err(Failure::usage("--runtime 0 measures nothing; use a time such as 1 or 200ms"));
    }
    if args.size == Some(0) {
        return Err(Failure::usage("--size 0 measures nothing; use a size such as 1g"));
    }
    let mut settings = Settings::default();
    if let Some(runtime) = &args.runtime {
        settings.add("runtime", &runtime.clone().into())?;
    }
    if let Some(trials) = args.trials {
        settings.add("trials", &i64::from(trials).into())?;
    }
    Ok(settings)
}

/// The list as JSON.
#[derive(Debug, Serialize)]
struct Studies {
    studies: Vec<Listed>,
}

/// A study in the list.
#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    title: String,
    asks: String,
    papers: &'static str,
    needs: &'static str,
    claims: &'static [&'static str],
}

fn list(as_json: bool) -> Outcome {
    let mut documents = Vec::new();
    for study in catalogue::ALL {
        let plan = Plan::parse(study.plan)?;
        if as_json {
            let Study { name, papers, needs, claims, .. } = study;
            let (title, asks) = (plan.title, plan.asks);
            documents.push(Listed { name, title, asks, papers, needs, claims });
            continue;
        }
        let lead = format!("{:<15}", study.name);
        findings::wrapped(&lead, &plan.asks).iter().for_each(|line| console::data(line));
        let needs = match study.needs {
            "" => String::new(),
            needs => format!("needs {needs}"),
        };
        let indent = " ".repeat(lead.len());
        findings::wrapped(&indent, &needs).iter().for_each(|line| console::data(line));
    }
    if as_json {
        console::data(&json::print(&Studies { studies: documents }));
    }
    Ok(Exit::Ok)
}

fn print_plan(asked: &[Asked], form: &Form<'_>) -> Outcome {
    let most = if form.quick { QUICK_FILE_BYTES } else { FILE_BYTES };
    let size = units::size(form.size.unwrap_or(most));
    for target in &form.targets {
        StudyTarget::check(target, &form.common.consent())?;
        let name = target.display();
        console::data(&if target.is_dir() {
            format!("lay out a test file of at most {size} in {name}, and remove it afterwards")
        } else if TargetSpec::of(target)?.is_on_host() {
            format!("read {name}; write to it only if --overwrite or --destroy-data-on names it")
        } else {
            format!("simulate {name}; nothing is touched")
        });
    }
    for one in asked {
        print_points(one, form, form.size.unwrap_or(most))?;
    }
    let html = form.html.map(|html| format!("write the page {}; ", html.display()));
    console::data(&format!("{}nothing was done", html.unwrap_or_default()));
    Ok(Exit::Ok)
}

/// Prints the points of one study and what they cost.
fn print_points(one: &Asked, form: &Form<'_>, file_bytes: u64) -> Outcome<()> {
    let (mut sum, mut lines) = (Extent::default(), Vec::new());
    for group in one.plan.groups(form.quick, &form.typed)? {
        let disks = group.disks.map(|n| format!(" on {n} targets")).unwrap_or_default();
        let points = format!("  {}{disks} {}", group.part, group.words.join(" "));
        match Extent::of(&group, &form.targets, file_bytes) {
            Ok(extent) => {
                sum = sum.and(extent);
                lines.push(points);
            }
            Err(failure) => lines.push(format!("{points}: left out: {}", failure.message)),
        }
    }
    let has_own = one.study.is_some_and(|study| study.measure.is_some());
    let more = if has_own { "; plus trials that are chosen during the study" } else { "" };
    console::data(&format!("{}: {}{more}", one.name, sum.words()));
    lines.iter().for_each(|line| console::data(line));
    Ok(())
}
