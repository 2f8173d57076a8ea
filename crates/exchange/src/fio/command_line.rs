//! Reads fio's command line: `--name=job --rw=randread ...`.
//!
//! `--name` begins a job, and `--name=global` begins the global options. Options before the first
//! `--name` belong to the first job, as in fio. Options that only affect fio's output are ignored.

use std::ffi::OsString;

use lab::failure::{Failure, Outcome};

use crate::fio::job_file::{Given, Jobs};

/// Options that are ignored, because they do not change the load.
const OUTPUT: [&str; 16] = [
    "output",
    "output_format",
    "eta",
    "eta_newline",
    "eta_interval",
    "minimal",
    "append_terse",
    "terse_version",
    "status_interval",
    "bandwidth_log",
    "max_jobs",
    "alloc_size",
    "warnings_fatal",
    "aux_path",
    "parse_only",
    "debug",
];
/// Options whose value is never a separate word. For example, `--direct 1` is an error, as in fio.
const ALONE: [&str; 28] = [
    "direct",
    "buffered",
    "time_based",
    "group_reporting",
    "norandommap",
    "thread",
    "stonewall",
    "wait_for_previous",
    "new_group",
    "randrepeat",
    "invalidate",
    "end_fsync",
    "overwrite",
    "zero_buffers",
    "refill_buffers",
    "scramble_buffers",
    "hipri",
    "fixedbufs",
    "registerfiles",
    "sqthread_poll",
    "gtod_reduce",
    "disable_lat",
    "disable_clat",
    "disable_slat",
    "minimal",
    "parse_only",
    "readonly",
    "unlink",
];
/// The location of an option in error messages.
const PLACE: &str = "fio's command line";

/// Separates the words of fio's command line from the flags of `halfpower run`. The flags are the
/// words after `--`, and also `--showcmd` and `--output-format=FORMAT`, which both programs have.
pub fn split(typed: &[OsString]) -> (Vec<String>, Vec<OsString>) {
    let end = typed.iter().position(|word| word == "--").unwrap_or(typed.len());
    let is_shared = |word: &OsString| {
        let formats = ["normal", "json", "json+"].map(|name| format!("--output-format={name}"));
        word == "--showcmd" || formats.iter().any(|format| word.as_os_str() == format.as_str())
    };
    let (shows, words): (Vec<OsString>, Vec<OsString>) =
        typed[..end].iter().cloned().partition(is_shared);
    let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    (words, typed.iter().skip(end + 1).cloned().chain(shows).collect())
}

/// Parses the jobs of a command line.
///
/// # Errors
/// A word is not an option, or `--name` is missing or not valid.
pub fn parse(words: &[String]) -> Outcome<Jobs> {
    let mut jobs = Jobs::default();
    let mut early = Vec::new();
    let mut has_begun = false;
    if let Some(readonly) = words.iter().find(|word| *word == "--readonly") {
        jobs.begin("global", PLACE.to_owned())?;
        jobs.add(Given::new(&readonly[2..], PLACE.to_owned()))?;
    }
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--").filter(|option| !option.is_empty()) else {
            return Err(Failure::usage(format!(
                "'{}' is not an option of fio; write fio's options as --KEY=VALUE, and flags of \
                 halfpower after --",
                word.escape_debug()
            )));
        };
        let mut given = Given::new(option, PLACE.to_owned());
        let takes_next = given.value.is_none() && !ALONE.contains(&given.key.as_str());
        if takes_next && let Some(value) = words.next_if(|next| !next.starts_with("--")) {
            given.value = Some(value.clone());
        }
        if OUTPUT.contains(&given.key.as_str()) || given.key == "readonly" {
            continue;
        }
        if given.key != "name" {
            match has_begun {
                true => jobs.add(given)?,
                false => early.push(given),
            }
            continue;
        }
        let name = given.value.as_deref().unwrap_or_default();
        jobs.begin(name, PLACE.to_owned())?;
        has_begun = true;
        early.drain(..).try_for_each(|given| jobs.add(given))?;
    }
    if jobs.sections.is_empty() {
        return Err(Failure::usage("the command line has no job; add --name=NAME, as for fio"));
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Outcome<Vec<String>> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let jobs = parse(&words)?;
        let one = |given: &Given| match &given.value {
            Some(value) => format!(" {}={value}", given.key),
            None => format!(" {}", given.key),
        };
        let job = |section| jobs.options(section).map(one).collect::<String>();
        Ok(jobs.sections.iter().map(|found| format!("{}:{}", found.name, job(found))).collect())
    }

    #[test]
    fn name_begins_a_job_and_global_options_apply_to_all() {
        let line = "--name=global --bs=8k --name=a --rw randread --name b --time-based --eta=never";
        assert_eq!(parsed(line).unwrap(), ["a: bs=8k rw=randread", "b: bs=8k time_based"]);
    }

    #[test]
    fn options_before_the_first_name_belong_to_the_first_job() {
        let line = "--bs=8k --direct --name=a --rw=read --output-format json --name=b";
        assert_eq!(parsed(line).unwrap(), ["a: bs=8k direct rw=read", "b:"]);
    }

    #[test]
    fn flags_of_halfpower_stand_behind_two_dashes() {
        let typed = ["--name=a", "--showcmd", "--", "--no-store", "--name"].map(OsString::from);
        let (words, flags) = split(&typed);
        assert_eq!(words, ["--name=a"]);
        assert_eq!(flags, ["--no-store", "--name", "--showcmd"]);
    }

    #[test]
    fn readonly_applies_to_all_jobs_wherever_it_stands() {
        let line = "--name=a --rw=read --readonly --name=b";
        assert_eq!(parsed(line).unwrap(), ["a: readonly rw=read", "b: readonly"]);
    }

    #[test]
    fn words_that_are_no_options_are_refused() {
        for line in ["", "--bs=4k", "job.fio", "--name=a x", "--direct 1 --name=a", "-- --name=a"] {
            let refusal = parsed(line).unwrap_err().message;
            assert!(refusal.contains(';'), "{line}: {refusal}");
        }
    }
}
