//! `halfpower compare`: compares stored runs, or measures workloads alternately and compares them.
//! `halfpower history`: shows stored points over time. `halfpower baseline`: measures a stored run
//! again and reports whether it became slower.

use analysis::units;
use std::ffi::OsString;
use std::path::Path;

use clap::Parser;
use compare::baseline;
use compare::document::ComparisonsDocument;
use compare::fleet::{self, Question};
use compare::history::{self, Filter};
use compare::live::{self, Contestant, Terms, Work};
use compare::side::{Detail, Side};
use compare::verdict::{self, Comparison};
use compare::{fleet_page, junit, limit, page, text};
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome, check_not_under_dev};
use lab::guard::Consent;
use lab::interrupt::Interrupt;
use lab::job::Job;
use lab::json::{self, Program};
use lab::run_text::run_line;
use lab::trials::Lab;
use results::Store;

use crate::cli::compare::{
    BaselineArgs, BaselineCheckArgs, BaselineVerb, CompareArgs, FleetArgs, HistoryArgs,
};
use crate::cli::{self, Cli, Verb};

/// Runs `compare`. The exit code is 6 if a change exceeds a limit.
pub fn execute(args: &CompareArgs) -> Outcome {
    let measured_sides = args.run.len() + args.command.len();
    if args.sides.len().max(measured_sides) < 2 {
        return Err(Failure::usage(
            "compare needs two sides, such as: halfpower compare 1 latest (halfpower runs list \
             shows the runs)",
        ));
    }
    args.html.as_deref().map_or(Ok(()), lab::page::check)?;
    let interrupt = Interrupt::install();
    let comparisons = if measured_sides == 0 { stored(args) } else { measured(args, &interrupt) };
    let Some(comparisons) = comparisons? else { return Ok(Exit::Ok) };
    if comparisons.iter().all(|comparison| comparison.points.is_empty()) {
        return Err(Failure::failed(format!(
            "{} and {} have no workload in common; see their workloads with halfpower runs show",
            comparisons[0].before_name, comparisons[0].after_name
        )));
    }
    show(args, &comparisons)?;
    if interrupt.is_set() {
        return Ok(Exit::Interrupted);
    }
    let fails = comparisons.iter().any(|found| !limit::exceeded(found, &args.fail_on).is_empty());
    Ok(if fails { Exit::Regression } else { Exit::Ok })
}

pub fn history(args: &HistoryArgs) -> Outcome {
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let (words, host, target) = (args.words.clone(), args.host.clone(), args.target.clone());
    let filter = Filter { words, host, target, runs_max: None };
    let found = history::load(&Store::open_read_only(&args.db)?, &filter)?;
    json::answer(args.json, &found, || history::lines(&found));
    Ok(Exit::Ok)
}

pub fn fleet(args: &FleetArgs) -> Outcome {
    args.html.as_deref().map_or(Ok(()), lab::page::check)?;
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let (databases, words) = (args.databases.clone(), args.only.clone());
    let found = fleet::load(&Question { databases, words, tolerated: args.same_within })?;
    if let Some(path) = &args.html {
        lab::page::write(path, &fleet_page::html(&found))?;
    }
    json::answer(args.json, &found, || fleet::lines(&found));
    Ok(Exit::Ok)
}

/// Runs `baseline`. The exit code of a check is 6 if a change exceeds a limit.
pub fn baseline(args: &BaselineArgs) -> Outcome {
    if args.plan && !matches!(args.verb, BaselineVerb::Check(_)) {
        console::data("would change or list the baselines in the database; nothing was done");
        return Ok(Exit::Ok);
    }
    match &args.verb {
        BaselineVerb::Check(check) => return check_baseline(args, check),
        BaselineVerb::List => {
            for (name, run) in Store::open_read_only(&args.db)?.baselines()? {
                console::data(&format!("{name}: {}", run_line(&run).trim_start()));
            }
        }
        BaselineVerb::Set { name, run } => {
            // Opening for writing would create a missing database, so the database is opened for
            // reading first.
            let id = Store::open_read_only(&args.db)?.run(run)?.id;
            let mut store = Store::open(&args.db)?;
            store.set_baseline(name, id)?;
            store.close()?;
        }
        BaselineVerb::Remove { name } => {
            Store::open_read_only(&args.db)?;
            let mut store = Store::open(&args.db)?;
            if !store.remove_baseline(name)? {
                return Err(Failure::usage(format!(
                    "no baseline '{name}'; halfpower baseline list shows all"
                )));
            }
            store.close()?;
        }
    }
    Ok(Exit::Ok)
}

fn check_baseline(args: &BaselineArgs, check: &BaselineCheckArgs) -> Outcome {
    let (overwrite, destroy_data_on) = (check.overwrite.clone(), check.destroy_data_on.clone());
    let terms = baseline::Terms {
        budget_ns: check.budget,
        consent: Consent { overwrite, destroy_data_on },
        tolerated: check.same_within,
        stores: !check.no_store,
    };
    let chosen = baseline::Check::of(&args.db, &check.name, &terms)?;
    if args.plan {
        chosen.plan(&terms)?.iter().for_each(|line| console::data(line));
        return Ok(Exit::Ok);
    }
    let lab = Lab::new(Console::new(check.quiet), Interrupt::install());
    lab.console.say(chosen.describe());
    let found = [chosen.measure(&lab, &args.db, &terms)?];
    let exceeded = limit::exceeded(&found[0], &check.fail_on).len() as u64;
    if check.json {
        console::data(&json::print(&ComparisonsDocument::of(&found, &check.fail_on)));
    } else {
        text::lines(&found[0]).iter().for_each(|line| console::data(line));
        text::regressions(&found, &check.fail_on).iter().for_each(|line| console::data(line));
        if exceeded == 0 {
            console::data("no regression");
        }
    }
    Ok(match (lab.interrupt.is_set(), exceeded) {
        (true, _) => Exit::Interrupted,
        (false, 0) => Exit::Ok,
        _ => Exit::Regression,
    })
}

fn stored(args: &CompareArgs) -> Outcome<Option<Vec<Comparison>>> {
    if args.plan {
        let sides = args.sides.join(" and ");
        console::data(&format!("would compare the stored results of {sides}; nothing was done"));
        return Ok(None);
    }
    // Distributions are read only for the HTML page, because reading them takes much longer.
    let detail = if args.html.is_some() { Detail::Distributions } else { Detail::Rates };
    let sides: Outcome<Vec<Side>> =
        args.sides.iter().map(|name| Side::load(name, &args.db, detail)).collect();
    let sides = sides?;
    let others = sides[1..].iter();
    Ok(Some(others.map(|other| verdict::compare(&sides[0], other, args.same_within)).collect()))
}

fn measured(args: &CompareArgs, interrupt: &Interrupt) -> Outcome<Option<Vec<Comparison>>> {
    let contestants: Outcome<Vec<Contestant>> =
        args.run.iter().map(|text| contestant(text)).chain(commands(args)).collect();
    let db = (!args.no_store).then(|| args.db.clone());
    let (contestants, terms) =
        (contestants?, Terms { until: args.until, budget_ns: args.budget, db });
    if args.plan {
        live::plan(&contestants, &terms)?.iter().for_each(|line| console::data(line));
        return Ok(None);
    }
    let lab = Lab::new(Console::new(args.quiet), interrupt.clone());
    let found = live::measure(&lab, &contestants, &terms)?;
    if found.rounds == 0 {
        return Err(Failure::interrupted());
    }
    let rounds = units::counted(u64::from(found.rounds), "round");
    let (until, budget) = (units::count(100.0 * args.until), units::time(args.budget as f64));
    lab.console.say(match (found.is_narrow, lab.interrupt.is_set()) {
        (true, _) => format!("{rounds}: the ratio of the rates is known to within {until}%"),
        (false, true) => format!("interrupted after {rounds}"),
        (false, false) => format!(
            "{rounds} in {budget}: the ratio of the rates is not known to within {until}%; use a \
             longer --budget, or a shorter --runtime on each side"
        ),
    });
    Ok(Some(live::comparisons(&found, args.same_within)))
}

/// Parses the value of `--run`, which contains the arguments of `halfpower run` for one side.
fn contestant(text: &str) -> Outcome<Contestant> {
    let wrong = |why: &str| Failure::usage(format!("--run '{text}': {why}"));
    let words = shlex::split(text).ok_or_else(|| wrong("a quote is not closed"))?;
    let line = ["halfpower", "run"].into_iter().map(str::to_owned).chain(words);
    let parsed = Cli::try_parse_from(cli::normalise(line.map(OsString::from)));
    let verb = parsed.map_err(|error| wrong(error.to_string().trim_end()))?.verb;
    let Verb::Run(run) = verb else { unreachable!("run was typed") };
    run.check_without_plan()?;
    run.parameters.given.check_one_workload()?;
    let job = Job::resolve(&run.experiment()?, false)?;
    let (label, seed) = (run.common.label.clone(), run.common.seed);
    Ok(Contestant { name: text.to_owned(), label, seed, work: Work::Job(Box::new(job)) })
}

/// Returns the sides that `--command` specifies.
fn commands(args: &CompareArgs) -> impl Iterator<Item = Outcome<Contestant>> {
    args.command.iter().map(|text| {
        let words = shlex::split(text).filter(|words| !words.is_empty()).ok_or_else(|| {
            Failure::usage(format!("--command '{text}': unclosed quote or empty command"))
        })?;
        Ok(Contestant { name: text.clone(), label: None, seed: 0, work: Work::Command(words) })
    })
}

fn show(args: &CompareArgs, comparisons: &[Comparison]) -> Outcome<()> {
    if let Some(path) = &args.junit {
        write_new(path, &junit::document(comparisons, &args.fail_on))?;
    }
    if let Some(path) = &args.html {
        let program = Program::this();
        lab::page::write(
            path,
            &page::html(comparisons, &format!("halfpower {}", program.version)),
        )?;
    }
    if args.json {
        console::data(&json::print(&ComparisonsDocument::of(comparisons, &args.fail_on)));
        return Ok(());
    }
    for (number, comparison) in comparisons.iter().enumerate() {
        let lines =
            if args.markdown { text::markdown(comparison) } else { text::lines(comparison) };
        if number > 0 {
            console::data("");
        }
        lines.iter().for_each(|line| console::data(line));
    }
    text::regressions(comparisons, &args.fail_on).iter().for_each(|line| console::data(line));
    Ok(())
}

/// Writes a new file, or replaces a file that contains JUnit XML.
fn write_new(path: &Path, text: &str) -> Outcome<()> {
    check_not_under_dev(path, "--junit")?;
    let is_report = |old: String| old.contains("<testsuites>");
    let replaces = std::fs::read_to_string(path).map(is_report);
    let shown = path.display();
    // A dangling link also counts as existing, because writing to it would create its target.
    if std::fs::symlink_metadata(path).is_ok() && !replaces.unwrap_or(false) {
        return Err(Failure::refused(format!(
            "{shown} exists and is not JUnit XML; specify another file with --junit"
        )));
    }
    std::fs::write(path, text).map_err(|error| {
        let cause = ioengine::error::cause(&error);
        Failure::failed(format!("writing {shown}: {cause}; specify another file with --junit"))
    })
}
