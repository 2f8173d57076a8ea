//! `halfpower classic cmdgen`: prints a set of tests. The output is commands of `halfpower run`,
//! commands of `halfpower classic sqlio`, or a plan file.

use analysis::units;
use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use papers::classic::cmdgen::TestSet;
use papers::classic::flags::{Flags, Order, caching_of};

use crate::cli::classic::{CmdgenArgs, Style};

/// The papers' program read the name of a series of tests from this environment variable.
const NOTE_VARIABLE: &str = "sqlio_note";

/// Prints the tests as commands or as a plan.
pub fn execute(args: &CmdgenArgs) -> Outcome {
    let note = note(args, std::env::var(NOTE_VARIABLE).ok());
    let set = test_set(&CmdgenArgs { note, ..args.clone() })?;
    let lines = match args.style {
        Style::Run => set.run_lines()?,
        Style::Sqlio => set.sqlio_lines()?,
        Style::Toml => vec![set.toml()?],
    };
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    lines.iter().for_each(|line| console::data(line));
    Ok(Exit::Ok)
}

/// Returns the name of the series of tests: the value of `--note` or, if that is empty, of the
/// environment variable.
fn note(args: &CmdgenArgs, variable: Option<String>) -> String {
    if args.note.is_empty() { variable.unwrap_or_default() } else { args.note.clone() }
}

fn test_set(args: &CmdgenArgs) -> Outcome<TestSet> {
    if args.note.contains(|c: char| c == ',' || c.is_control()) {
        return Err(Failure::usage(
            "--note: a trace line is CSV, so commas and line breaks are not allowed; remove them",
        ));
    }
    let number = |text: &str| text.trim().parse().map_err(|_| format!("'{text}' is not a number"));
    let kib = |text: &str| match units::parse_size(text)? {
        bytes if bytes > 0 && bytes % 1024 == 0 => Ok(bytes / 1024),
        _ => Err(format!("'{text}' is not a whole number of KiB")),
    };
    let list = |flag: &str, text: &str, parse: &dyn Fn(&str) -> Result<u64, String>| {
        let values = units::parse_list(text, parse);
        values.map_err(|error| Failure::usage(format!("--{flag} {text}: {error}; use a list")))
    };
    let word = |flag: &str, word: &str, known: &str| {
        let remedy = format!("use one or several of {known}, separated by commas");
        Failure::usage(format!("--{flag} {word}: unknown value; {remedy}"))
    };
    // The duration and the number of threads are checked in the same way as SQLIO's own flags.
    let same = format!("-s{}", args.runtime);
    let Flags { seconds, .. } = Flags::parse(&[same, format!("-t{}", args.numjobs)])?;
    if args.trials == 0 {
        return Err(Failure::usage("--trials 0 measures nothing; use 1 or more"));
    }
    let depth = |depth: u64| {
        u32::try_from(depth).map_err(|_| {
            Failure::usage(format!("--iodepth {depth} is too large; use a smaller depth"))
        })
    };
    Ok(TestSet {
        targets: args.targets.clone(),
        caching: words(&args.buffering, |letter| {
            caching_of(letter).ok_or_else(|| word("buffering", letter, "Y, H, S and N"))
        })?,
        writes: words(&args.rw, |kind| match kind {
            "read" => Ok(false),
            "write" => Ok(true),
            other => Err(word("rw", other, "read and write")),
        })?,
        orders: words(&args.order, |order| match order {
            "sequential" => Ok(Order::Sequential),
            "random" => Ok(Order::Random),
            other => Err(word("order", other, "sequential and random")),
        })?,
        depths: list("iodepth", &args.iodepth, &number)?
            .into_iter()
            .map(depth)
            .collect::<Outcome<_>>()?,
        block_kib: list("bs", &args.bs, &kib)?,
        threads: args.numjobs,
        seconds,
        trials: args.trials,
        note: args.note.clone(),
    })
}

fn words<T>(text: &str, parse: impl Fn(&str) -> Outcome<T>) -> Outcome<Vec<T>> {
    text.split(',').map(|word| parse(word.trim())).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ioengine::Caching;
    use lab::experiment::settings::Settings;
    use study::plan::Plan;

    use super::*;

    #[test]
    fn a_series_is_named_by_the_flag_or_by_the_variable() {
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        let noted = |line: &str, variable: Option<&str>| {
            let cli = crate::cli::Cli::try_parse_from(words(line)).unwrap();
            let crate::cli::Verb::Classic(classic) = cli.verb else { panic!("{line}") };
            let crate::cli::classic::Tool::Cmdgen(args) = classic.tool else { panic!("{line}") };
            note(&args, variable.map(str::to_owned))
        };
        let line = "halfpower classic cmdgen big.dat";
        assert_eq!(noted(line, None), "");
        assert_eq!(noted(line, Some("old-new")), "old-new");
        assert_eq!(noted(&format!("{line} --note new-new"), Some("old-new")), "new-new");
    }

    #[test]
    fn the_plan_of_a_set_has_its_tests() {
        let set = TestSet {
            targets: vec!["my file".into()],
            caching: vec![Caching::Buffered, Caching::Direct],
            writes: vec![false, true],
            orders: vec![Order::Sequential],
            depths: vec![0, 1, 8],
            block_kib: vec![2, 64],
            threads: 1,
            seconds: "30".to_owned(),
            trials: 1,
            note: "new-new".to_owned(),
        };
        let plan = Plan::parse(&set.toml().unwrap()).unwrap();
        let groups = plan.groups(false, &Settings::default()).unwrap();
        let mut parts: Vec<&str> = groups.iter().map(|group| group.part.as_str()).collect();
        parts.dedup();
        assert_eq!(parts, ["buffered sync", "buffered async", "direct sync", "direct async"]);
        let direct = groups.last().unwrap();
        assert!(direct.words.contains(&"--iodepth=1,8".to_owned()), "{groups:?}");
        assert!(direct.words.contains(&"--bs=2k,64k".to_owned()), "{groups:?}");
        assert!(groups[0].words.contains(&"--ioengine=sync".to_owned()), "{groups:?}");
    }
}
