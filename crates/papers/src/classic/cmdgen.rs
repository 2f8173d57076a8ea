//! Generates the command lines of a whole set of tests, as the papers' `cmdgen` did for SQLIO.
//!
//! A set has a test for every combination of caching mode, direction, access order, depth and
//! request size. Each command line labels its test with the name of the series, the letter of the
//! caching mode, and "sync" or "async".

use std::path::PathBuf;

use ioengine::Caching;
use lab::failure::{Failure, Outcome};

use crate::classic::flags::{Flags, Order, buffering};
use crate::classic::sqlio::{has_own_way, quoted, translate};

/// The maximum number of tests in a set.
const TESTS_MAX: usize = 10_000;
/// The `--csv` file of the generated `classic sqlio` commands.
const TRACE: &str = "trace.csv";

/// A set of tests: one test for every combination of the values in the lists.
#[derive(Clone, Debug)]
pub struct TestSet {
    /// The targets. Each test accesses all targets at the same time.
    pub targets: Vec<PathBuf>,
    /// The caching modes of the tests.
    pub caching: Vec<Caching>,
    /// The directions of the tests: true means write, and false means read.
    pub writes: Vec<bool>,
    /// The access orders of the tests.
    pub orders: Vec<Order>,
    /// The depths of the tests. A depth of 0 means synchronous requests.
    pub depths: Vec<u32>,
    /// The request sizes of the tests (KiB).
    pub block_kib: Vec<u64>,
    /// The number of threads of each test.
    pub threads: u32,
    /// The length of each test, as the user typed it (s).
    pub seconds: String,
    /// The number of trials of each test.
    pub trials: u32,
    /// The name of the series of tests. It is part of each test's label.
    pub note: String,
}

impl TestSet {
    /// Returns the number of tests.
    pub fn count(&self) -> usize {
        let lists = [
            self.caching.len(),
            self.writes.len(),
            self.orders.len(),
            self.depths.len(),
            self.block_kib.len(),
        ];
        lists.into_iter().fold(1, usize::saturating_mul)
    }

    /// Returns the flags of every test. The request size varies fastest.
    ///
    /// # Errors
    /// `Exit::Usage`, if there are more than [`TESTS_MAX`] tests.
    fn tests(&self) -> Outcome<Vec<Flags>> {
        if self.count() > TESTS_MAX {
            return Err(Failure::usage(format!(
                "a set of {} tests is too large (maximum {TESTS_MAX}); shorten the lists",
                self.count()
            )));
        }
        let mut tests = vec![Flags {
            threads: Some(self.threads),
            seconds: self.seconds.clone(),
            ..Flags::default()
        }];
        tests = each(tests, &self.caching, |flags, caching| flags.caching = caching);
        tests = each(tests, &self.writes, |flags, writes| flags.writes = writes);
        tests = each(tests, &self.orders, |flags, order| flags.order = order);
        tests = each(tests, &self.depths, |flags, depth| flags.outstanding = depth);
        Ok(each(tests, &self.block_kib, |flags, kib| flags.block_kib = kib))
    }

    /// Returns the tests as command lines of `halfpower run`.
    ///
    /// # Errors
    /// Fails if there are too many tests, or if a test cannot be translated into a single run.
    pub fn run_lines(&self) -> Outcome<Vec<String>> {
        let line = |flags: &Flags| {
            let line = translate(flags, &self.targets, None)?.line();
            let label = quoted(&self.comment(flags.caching, flags.outstanding));
            Ok(format!("{line} --trials {} --label {label}", self.trials))
        };
        self.tests()?.iter().map(line).collect()
    }

    /// Returns the tests as command lines of `halfpower classic sqlio` that append to one trace
    /// file.
    ///
    /// # Errors
    /// As for [`TestSet::run_lines`].
    pub fn sqlio_lines(&self) -> Outcome<Vec<String>> {
        let files: Vec<String> =
            self.targets.iter().map(|path| quoted(&path.to_string_lossy())).collect();
        let line = |flags: &Flags| {
            // This call returns an error for a test that `classic sqlio` would refuse later.
            translate(flags, &self.targets, None)?;
            let kind = if flags.writes { 'W' } else { 'R' };
            let order = if flags.order == Order::Random { "random" } else { "sequential" };
            let (depth, kib, letter) = (flags.outstanding, flags.block_kib, flags.buffering());
            let note = quoted(&self.comment(flags.caching, depth));
            Ok(format!(
                "halfpower classic sqlio -k{kind} -s{} -f{order} -o{depth} -b{kib} -t{} -B{letter} \
                 {} --trials {} --csv {TRACE} --note {note}",
                self.seconds,
                self.threads,
                files.join(" "),
                self.trials
            ))
        };
        self.tests()?.iter().map(line).collect()
    }

    /// Returns the tests as a plan file for `halfpower sweep`. Each caching mode and access order
    /// has a section for synchronous requests and a section for asynchronous requests.
    ///
    /// # Errors
    /// Fails if there are too many tests.
    pub fn toml(&self) -> Outcome<String> {
        self.tests()?;
        // A JSON string is a valid TOML string.
        let text = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let list = |words: Vec<String>| format!("[{}]", words.join(", "));
        let targets = self.targets.iter().map(|path| text(&path.to_string_lossy())).collect();
        let sizes = self.block_kib.iter().map(|kib| text(&format!("{kib}k"))).collect();
        let title = if self.note.is_empty() { "a set of tests" } else { &self.note };
        let mut lines = vec![
            format!("title = {}", text(title)),
            "asks = \"How fast is each combination?\"".to_owned(),
            format!("target = {}", list(targets)),
            format!("bs = {}", list(sizes)),
            format!("numjobs = {}", self.threads),
            format!("runtime = {}", self.seconds),
            "time-based = true".to_owned(),
            format!("trials = {}", self.trials),
        ];
        for &caching in &self.caching {
            for &order in &self.orders {
                for sync in [true, false] {
                    lines.extend(self.part(caching, order, sync));
                }
            }
        }
        Ok(lines.join("\n"))
    }

    /// Returns the lines of one section of the plan file. The section has the tests of a caching
    /// mode and access order. They are synchronous if `sync` is set, or else asynchronous. The
    /// result is empty if there are no such tests.
    fn part(&self, caching: Caching, order: Order, sync: bool) -> Vec<String> {
        let depths = self.depths.iter().filter(|depth| (**depth == 0) == sync);
        let depths: Vec<String> = depths.map(|depth| (*depth).max(1).to_string()).collect();
        if depths.is_empty() {
            return Vec::new();
        }
        let random = order == Order::Random;
        let before = if random { "rand" } else { "" };
        let direction =
            |writes: &bool| format!("\"{before}{}\"", if *writes { "write" } else { "read" });
        let directions: Vec<String> = self.writes.iter().map(direction).collect();
        let name = if sync { "sync" } else { "async" };
        let mut lines = vec![
            String::new(),
            "[[part]]".to_owned(),
            format!("name = \"{caching} {}{name}\"", if random { "random " } else { "" }),
            format!("rw = [{}]", directions.join(", ")),
            format!("direct = {}", caching.is_direct()),
            format!("write-through = {}", caching.is_write_through()),
            format!("iodepth = [{}]", depths.join(", ")),
        ];
        if sync && !self.targets.iter().any(|path| has_own_way(path)) {
            lines.push("ioengine = \"sync\"".to_owned());
        }
        if random && self.threads > 1 {
            lines.push("placement = \"shared\"".to_owned());
        }
        lines
    }

    /// Returns the label of a test, such as `new-new Y sync`: the name of the series, the letter of
    /// the caching mode, and "sync" or "async".
    fn comment(&self, caching: Caching, outstanding: u32) -> String {
        let name = if outstanding == 0 { "sync" } else { "async" };
        let letter = buffering(caching);
        format!("{} {letter} {name}", self.note).trim_start().to_owned()
    }
}

/// Returns a copy of each test for each value. `set` stores the value in the copy.
fn each<T: Copy>(tests: Vec<Flags>, values: &[T], set: impl Fn(&mut Flags, T)) -> Vec<Flags> {
    let mut found = Vec::with_capacity(tests.len() * values.len());
    for test in tests {
        for value in values {
            let mut test = test.clone();
            set(&mut test, *value);
            found.push(test);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> TestSet {
        TestSet {
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
        }
    }

    #[test]
    fn every_combination_is_a_line_with_its_label() {
        let lines = set().run_lines().unwrap();
        assert_eq!(lines.len(), set().count());
        assert_eq!(
            lines[0],
            "halfpower run 'my file' --rw read --bs 2k --iodepth 1 --numjobs 1 --runtime 30 \
             --ioengine sync --time-based --direct=0 --trials 1 --label 'new-new Y sync'"
        );
        assert!(lines.last().unwrap().ends_with("--direct=1 --trials 1 --label 'new-new H async'"));
        let mut distinct = lines.clone();
        distinct.dedup();
        assert_eq!(distinct, lines);
    }

    #[test]
    fn the_sqlio_lines_translate_into_the_run_lines() {
        let (run, sqlio) = (set().run_lines().unwrap(), set().sqlio_lines().unwrap());
        for (run, sqlio) in run.iter().zip(&sqlio) {
            let words: Vec<String> = sqlio
                .split_whitespace()
                .filter(|word| word.starts_with('-') && !word.starts_with("--"))
                .map(str::to_owned)
                .collect();
            let flags = Flags::parse(&words).unwrap();
            let line = translate(&flags, &set().targets, None).unwrap().line();
            assert!(run.starts_with(&line), "{sqlio} was translated to {line}, not to {run}");
        }
    }

    #[test]
    fn too_many_tests_are_refused() {
        let many = TestSet { block_kib: (1..2000).collect(), ..set() };
        assert!(many.run_lines().unwrap_err().message.contains("shorten the lists"));
        assert!(many.toml().is_err() && many.sqlio_lines().is_err());
    }
}
