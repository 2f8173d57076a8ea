//! `cargo xtask book`: checks the pages in `docs/` and builds the book.
//!
//! Without a flag, the command checks the links of all pages and counts the commands in their code
//! blocks. `--check` also runs these commands with the release program and compares their output
//! with the page, except for numbers. `--write` puts the new output into the pages. `--html` builds
//! the book with mdBook. [`blocks`] describes how a page marks its commands.

mod blocks;

mod output;

mod links;

mod stand_ins;

mod session;

mod figures;

mod html;

use crate::repository;
use anyhow::{Context, Result};
use blocks::{Block, Command, Mark};
use session::Session;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Pages outside `docs/` whose links and commands are also checked.
const OTHER_PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "STYLE.md"];

/// Options of `cargo xtask book`.
#[derive(clap::Args)]
pub struct Options {
    /// Run the commands in the pages and compare their output with the pages; numbers may differ
    #[arg(long)]
    check: bool,
    /// Run the commands of the pages and replace the output in the pages
    #[arg(long)]
    write: bool,
    /// With --write: also update the output of samples, which depends on the machine
    #[arg(long, requires = "write")]
    samples: bool,
    /// Regenerate the figures in docs/figures
    #[arg(long)]
    figures: bool,
    /// Build the book in target/book; skipped if mdBook cannot be installed
    #[arg(long)]
    html: bool,
    /// Only process pages or figures whose name contains WORD
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Path of the halfpower program to run [default: the release build]
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Number of commands for each [`Mark`], and number of commands that failed.
#[derive(Default)]
struct Counts {
    run: usize,
    sample: usize,
    plan: usize,
    no_run: usize,
    unmarked: usize,
    failed: usize,
}

/// Runs `cargo xtask book`. The exit code is 1 if a link is broken, the output of a command differs
/// from the page, or a command fails with `--plan`.
///
/// # Errors
/// If a page has a malformed block, the program does not build, or mdBook fails.
pub fn run(options: &Options) -> Result<ExitCode> {
    let root = repository::root();
    let needs_program = options.check || options.write || options.figures;
    let program = match &options.program {
        Some(program) => Some(program.clone()),
        None if needs_program => Some(repository::release_build()?),
        None => None,
    };
    let scratch = root.join("target/book-check");
    if let Some(program) = program.as_deref().filter(|_| options.figures) {
        figures::write(&root, program, &scratch, options.only.as_deref())?;
    }
    let pages = pages(&root)?;
    let (links, broken) = links::check(&root, &pages);
    for link in &broken {
        println!("{}:{}: {}", link.page, link.line, link.problem);
    }
    println!("links: {links} checked, {} broken", broken.len());
    let runs = program.filter(|_| options.check || options.write);
    let mut counts = Counts::default();
    for (path, text) in &pages {
        let is_wanted = options.only.as_ref().is_none_or(|word| path.contains(word.as_str()));
        if is_wanted {
            let page = Page { path, text, options };
            page.visit(&root, runs.as_deref(), &scratch, &mut counts)?;
        }
    }
    counts.print(runs.is_some());
    if options.html {
        html::build(&root, &root.join("target"))?;
    }
    let is_good = broken.is_empty() && counts.failed == 0;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the text of each page by its path.
fn pages(root: &Path) -> Result<BTreeMap<String, String>> {
    let is_page = |path: &String| {
        path.starts_with("docs/") && Path::new(path).extension() == Some("md".as_ref())
    };
    let mut paths: Vec<String> = repository::files(root)?.into_iter().filter(is_page).collect();
    paths.extend(OTHER_PAGES.map(String::from));
    let read = |path: String| {
        let text = std::fs::read_to_string(root.join(&path));
        let text = text.with_context(|| format!("cannot read {path}"))?;
        Ok((path, text))
    };
    paths.into_iter().map(read).collect()
}

impl Counts {
    fn print(&self, was_run: bool) {
        let done = if was_run { "run" } else { "not run (use --check)" };
        println!(
            "commands: {} {done}, of these {} samples and {} plans; {} marked no-run; {} without a \
             mark; {} that failed or whose output differs from the page",
            self.run + self.sample + self.plan,
            self.sample,
            self.plan,
            self.no_run,
            self.unmarked,
            self.failed,
        );
    }

    fn of(&mut self, mark: &Mark) -> &mut usize {
        match mark {
            Mark::Run => &mut self.run,
            Mark::Sample => &mut self.sample,
            Mark::Plan => &mut self.plan,
            Mark::NoRun => &mut self.no_run,
            Mark::Unmarked => &mut self.unmarked,
        }
    }
}

struct Page<'a> {
    path: &'a str,
    text: &'a str,
    options: &'a Options,
}

/// A range of lines of a page, and the new lines for this range.
type Replacement = ((usize, usize), Vec<String>);

impl Page<'_> {
    /// Counts the commands of the page. If `program` is given, also runs them.
    fn visit(
        &self,
        root: &Path,
        program: Option<&Path>,
        scratch: &Path,
        counts: &mut Counts,
    ) -> Result<()> {
        let blocks = blocks::parse(self.text).with_context(|| self.path.to_string())?;
        for block in &blocks {
            *counts.of(&block.mark) += block.commands.len();
        }
        let is_run = |block: &Block| !matches!(block.mark, Mark::NoRun | Mark::Unmarked);
        let Some(program) = program.filter(|_| blocks.iter().any(is_run)) else { return Ok(()) };
        let session = Session::new(program, scratch)?;
        let mut replacements = Vec::new();
        for block in blocks.iter().filter(|block| is_run(block)) {
            for command in &block.commands {
                let result = match block.mark {
                    Mark::Plan => {
                        counts.failed += usize::from(!self.plans(&session, command)?);
                        continue;
                    }
                    Mark::Sample => self.execute(&session, true, command)?,
                    _ => self.execute(&session, false, command)?,
                };
                match result {
                    Some(replacement) if self.options.write => replacements.push(replacement),
                    Some(_) => counts.failed += 1,
                    None => {}
                }
            }
        }
        if !replacements.is_empty() {
            let text = with_replacements(self.text, &replacements);
            std::fs::write(root.join(self.path), text)?;
        }
        Ok(())
    }

    /// Runs a command with `--plan` and returns whether it succeeded. Prints the output of a
    /// command that failed.
    fn plans(&self, session: &Session, command: &Command) -> Result<bool> {
        let printed = session.plan(&command.text)?;
        if !printed.succeeded {
            let place = format!("{}:{}", self.path, command.line + 1);
            println!("{place}: `{} --plan` fails:\n{}", command.text, printed.text);
        }
        Ok(printed.succeeded)
    }

    /// Runs a command and prints the first difference between its output and the page. Returns the
    /// new output, or None if the page needs no change.
    fn execute(
        &self,
        session: &Session,
        is_sample: bool,
        command: &Command,
    ) -> Result<Option<Replacement>> {
        let place = format!("{}:{}", self.path, command.line + 1);
        let printed = session.run(&command.text)?;
        let lines: Vec<&str> = self.text.lines().collect();
        let (from, to) = command.output;
        let expected = &lines[from..to];
        let actual: Vec<&str> = printed.text.trim_end().lines().map(str::trim_end).collect();
        let result = match is_sample {
            true => output::compare_openings(expected, &actual),
            false => output::compare(expected, &actual),
        };
        let first = command.text.lines().next().unwrap_or_default();
        println!("{place}: {first}");
        let is_new = match &result {
            Err(difference) => {
                println!(
                    "  in the page: {}",
                    difference.expected.as_deref().unwrap_or("(no more lines)")
                );
                println!(
                    "  printed now: {}",
                    difference.printed.as_deref().unwrap_or("(no such line)")
                );
                true
            }
            Ok(()) if is_sample => self.options.write && self.options.samples,
            Ok(()) => self.options.write,
        };
        let renewed = output::renewed(expected, &actual);
        Ok(is_new.then_some(((from, to), renewed)))
    }
}

/// Returns the text of a page with the given ranges of lines replaced.
fn with_replacements(text: &str, replacements: &[Replacement]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut new: Vec<String> = Vec::new();
    let mut at = 0;
    for ((from, to), replacement) in replacements {
        new.extend(lines[at..*from].iter().map(|line| (*line).to_string()));
        new.extend(replacement.iter().cloned());
        // Empty lines before the next command are not part of the output, so they are kept.
        let spare = lines[*from..*to].iter().rev().take_while(|line| line.is_empty()).count();
        new.extend((0..spare).map(|_| String::new()));
        at = *to;
    }
    new.extend(lines[at..].iter().map(|line| (*line).to_string()));
    new.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_output_of_a_command_is_replaced() {
        let text = "a\n```console\n$ x\nold\n\n$ y\n```\nb\n";
        let new = with_replacements(text, &[((3, 5), vec!["new".to_string(), "more".to_string()])]);
        assert_eq!(new, "a\n```console\n$ x\nnew\nmore\n\n$ y\n```\nb\n");
    }

    #[test]
    fn every_link_of_the_repository_leads_somewhere() {
        let root = repository::root();
        let (count, broken) = links::check(&root, &pages(&root).unwrap());
        assert!(count > 0);
        assert_eq!(broken, []);
    }

    #[test]
    fn every_page_can_be_parsed_and_every_chapter_is_in_the_summary() {
        let root = repository::root();
        let pages = pages(&root).unwrap();
        let summary = &pages["docs/SUMMARY.md"];
        for (path, text) in &pages {
            blocks::parse(text).unwrap_or_else(|error| panic!("{path}: {error}"));
            if let Some(name) = path.strip_prefix("docs/").filter(|name| *name != "SUMMARY.md") {
                assert!(summary.contains(&format!("({name})")), "{name} is not in SUMMARY.md");
            }
        }
    }
}
