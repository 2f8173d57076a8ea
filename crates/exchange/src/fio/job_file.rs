//! Parses fio's job files into sections of options. The module `translate` translates the options.
//!
//! A section `[global]` sets defaults for the sections below it. `;` and `#` begin a comment
//! anywhere in a line, as in fio. `include FILE` inserts the options of another file, whose path is
//! relative to the including file. Variables are not replaced here, but when a job is translated
//! ([`Given::text`]). The size of the files and the number of jobs are limited, so that memory use
//! is bounded.

use std::path::{Path, PathBuf};

use lab::failure::{Failure, Outcome};

/// Maximum size of a job file together with its included files (bytes).
const BYTES_MAX: usize = 1 << 20;
/// Maximum nesting depth of included files.
const INCLUDES_MAX: usize = 16;
const JOBS_MAX: usize = 1000;

/// Access to the files, environment variables and hardware facts that a job file may refer to.
/// Tests implement this trait with fixed values.
pub trait Surroundings {
    /// Reads a text file.
    ///
    /// # Errors
    /// The file cannot be read, or is larger than `bytes_max`.
    fn read(&self, path: &Path, bytes_max: usize) -> Outcome<String>;
    /// Returns the value of an environment variable. None if the variable is not set.
    fn variable(&self, name: &str) -> Option<String>;
    /// Returns true if a path exists.
    fn exists(&self, path: &Path) -> bool;
    /// Returns the size of a memory page (bytes), fio's `$pagesize`.
    fn page_bytes(&self) -> u64;
    /// Returns the size of the main memory (MiB), fio's `$mb_memory`.
    fn memory_mib(&self) -> u64;
    /// Returns the number of CPUs, fio's `$ncpus`.
    fn cpus(&self) -> u64;
}

/// An option as written in a job file or on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The option's name in lower case, with underscores.
    pub key: String,
    /// The text after the equals sign. None for an option without a value.
    pub value: Option<String>,
    /// The location of the option for error messages: `FILE:LINE`, or the command line.
    pub place: String,
}

impl Given {
    /// Parses an option from `key=value` or `key`.
    pub fn new(text: &str, place: String) -> Given {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.trim().to_owned())),
            None => (text, None),
        };
        let key = key.trim().to_ascii_lowercase().replace('-', "_");
        Given { key, value, place }
    }

    /// Returns a usage error with the location of this option. `why` must end with the remedy.
    pub fn refuse(&self, why: impl std::fmt::Display) -> Failure {
        Failure::usage(format!("{}: {why}", self.place))
    }

    /// Returns the value, with `${VARIABLE}` and fio's keywords replaced. The result is empty for
    /// an option without a value. A calculation with a keyword, such as `$ncpus*2`, is put in
    /// parentheses, so that it is parsed as an expression.
    ///
    /// # Errors
    /// A variable is not set (fio would use an empty text), or a closing brace is missing.
    pub fn text(&self, surroundings: &dyn Surroundings) -> Outcome<String> {
        let mut text = String::new();
        let mut rest = self.value.as_deref().unwrap_or_default();
        while let Some((before, behind)) = rest.split_once("${") {
            let Some((name, after)) = behind.split_once('}') else {
                return Err(self.refuse(format!("{}: a '}}' is missing; add it", self.key)));
            };
            let value = surroundings.variable(name).filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| {
                let (key, name) = (&self.key, name.escape_debug());
                self.refuse(format!("{key}: ${{{name}}} is not set; set the variable {name}"))
            })?;
            text.push_str(before);
            text.push_str(&value);
            rest = after;
            if text.len() > BYTES_MAX {
                return Err(self.refuse(format!("{} is too long; shorten it", self.key)));
            }
        }
        text.push_str(rest);
        let keywords = [
            ("$pagesize", surroundings.page_bytes()),
            ("$mb_memory", surroundings.memory_mib()),
            ("$ncpus", surroundings.cpus()),
        ];
        let plain = text.clone();
        for (keyword, value) in keywords {
            text = text.replace(keyword, &value.to_string());
        }
        let is_expression = text != plain && text.contains(['+', '-', '*', '/']);
        Ok(if is_expression && !text.starts_with('(') { format!("({text})") } else { text })
    }
}

/// A job of a job file or of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The name in brackets.
    pub name: String,
    /// The location of the section for error messages: `FILE:LINE`, or the command line.
    pub place: String,
    /// Number of global options above the section. Only these global options apply to the job.
    inherited: usize,
    /// The section's own options.
    own: Vec<Given>,
}

/// The jobs of a job file or of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// The options of all global sections, in order.
    globals: Vec<Given>,
    /// The jobs, in the order of the file.
    pub sections: Vec<Section>,
    /// Whether the section that is being parsed is a global section.
    in_global: bool,
}

impl Jobs {
    /// Returns the options of a job in the order in which they apply. A later option overrides an
    /// earlier option.
    pub fn options<'a>(&'a self, section: &'a Section) -> impl Iterator<Item = &'a Given> {
        self.globals[..section.inherited].iter().chain(&section.own)
    }

    /// Begins a section.
    ///
    /// # Errors
    /// There are too many jobs, or fio would treat the section name as `global`.
    pub fn begin(&mut self, name: &str, place: String) -> Outcome<()> {
        self.in_global = name == "global";
        if self.in_global {
            return Ok(());
        }
        if name.starts_with("global") {
            return Err(Failure::usage(format!(
                "{place}: fio treats every section whose name begins with global as a [global] \
                 section; rename the section '{}'",
                name.escape_debug()
            )));
        }
        if self.sections.len() == JOBS_MAX {
            return Err(Failure::usage(format!(
                "{place}: the job file has more than {JOBS_MAX} jobs; split it"
            )));
        }
        let inherited = self.globals.len();
        self.sections.push(Section { name: name.to_owned(), place, inherited, own: Vec::new() });
        Ok(())
    }

    /// Adds an option to the section that is being parsed.
    ///
    /// # Errors
    /// There is no section yet.
    pub fn add(&mut self, given: Given) -> Outcome<()> {
        match (self.in_global, self.sections.last_mut()) {
            (true, _) => self.globals.push(given),
            (false, Some(section)) => section.own.push(given),
            (false, None) => {
                let why = "an option precedes the first section; add [global] or [NAME] above it";
                return Err(given.refuse(why));
            }
        }
        Ok(())
    }
}

/// Parses a job file and the files that it includes.
///
/// # Errors
/// A file has a mistake, or there is no job. The message is one line, with the file and the remedy.
/// For a mistake, the message also has the line number.
pub fn parse(path: &Path, text: &str, surroundings: &dyn Surroundings) -> Outcome<Jobs> {
    let mut reader =
        Reader { surroundings, jobs: Jobs::default(), open: Vec::new(), left: BYTES_MAX };
    reader.file(path, text)?;
    if reader.jobs.sections.is_empty() {
        return Err(Failure::usage(format!(
            "{} has no job; add a section such as [job1]",
            path.display()
        )));
    }
    Ok(reader.jobs)
}

struct Reader<'a> {
    surroundings: &'a dyn Surroundings,
    jobs: Jobs,
    /// The file that is being parsed and the files that include it, outermost first.
    open: Vec<PathBuf>,
    /// Number of bytes that may still be read before the limit is reached.
    left: usize,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, text: &str) -> Outcome<()> {
        self.left = self.left.checked_sub(text.len()).ok_or_else(|| {
            let path = path.display();
            Failure::usage(format!(
                "{path}: the job file and its includes have more than {BYTES_MAX} bytes; split the \
                 job file"
            ))
        })?;
        self.open.push(path.to_path_buf());
        for (number, line) in text.lines().enumerate() {
            let line = line.split([';', '#']).next().unwrap_or_default().trim();
            if !line.is_empty() {
                self.line(line, format!("{}:{}", path.display(), number + 1))?;
            }
        }
        self.open.pop();
        Ok(())
    }

    fn line(&mut self, line: &str, place: String) -> Outcome<()> {
        if let Some(name) = line.strip_prefix('[') {
            if self.open.len() > 1 {
                return Err(Failure::usage(format!(
                    "{place}: an included file must not have sections; move the section {} to the \
                     job file",
                    line.escape_debug()
                )));
            }
            let name = name.strip_suffix(']').ok_or_else(|| {
                Failure::usage(format!("{place}: a section has no ']'; write [NAME]"))
            })?;
            return self.jobs.begin(name, place);
        }
        match line.strip_prefix("include").filter(|rest| rest.starts_with(char::is_whitespace)) {
            Some(name) => self.include(name.trim(), &place),
            None => self.jobs.add(Given::new(line, place)),
        }
    }

    fn include(&mut self, name: &str, place: &str) -> Outcome<()> {
        let including = self.open.last().and_then(|path| path.parent()).unwrap_or(Path::new(""));
        let path = including.join(name);
        if self.open.contains(&path) || self.open.len() > INCLUDES_MAX {
            return Err(Failure::usage(format!(
                "{place}: {} includes itself, or include lines are nested more than {INCLUDES_MAX} \
                 levels deep; remove this include line",
                path.display()
            )));
        }
        let text = self
            .surroundings
            .read(&path, self.left)
            .map_err(|failure| Failure { message: format!("{place}: {failure}"), ..failure })?;
        self.file(&path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Files(BTreeMap<PathBuf, String>);

    impl Surroundings for Files {
        fn read(&self, path: &Path, bytes_max: usize) -> Outcome<String> {
            match self.0.get(path) {
                Some(text) if text.len() <= bytes_max => Ok(text.clone()),
                _ => Err(Failure::usage(format!("reading {}; specify another", path.display()))),
            }
        }
        fn variable(&self, name: &str) -> Option<String> {
            (name == "SIZE").then(|| "64m".to_owned())
        }
        fn exists(&self, _: &Path) -> bool {
            false
        }
        fn page_bytes(&self) -> u64 {
            4096
        }
        fn memory_mib(&self) -> u64 {
            1000
        }
        fn cpus(&self) -> u64 {
            8
        }
    }

    fn files(files: &[(&str, &str)]) -> Files {
        Files(files.iter().map(|(name, text)| (name.into(), (*text).to_owned())).collect())
    }

    fn parsed(text: &str, included: &[(&str, &str)]) -> Outcome<Jobs> {
        parse(Path::new("jobs/a.fio"), text, &files(included))
    }

    /// Formats each job with its options as `name: key=value key=value`.
    fn shown(text: &str, files: &[(&str, &str)]) -> Vec<String> {
        let jobs = parsed(text, files).unwrap();
        let one = |given: &Given| match &given.value {
            Some(value) => format!("{}={value}", given.key),
            None => given.key.clone(),
        };
        let job = |section: &Section| {
            let options: Vec<String> = jobs.options(section).map(one).collect();
            format!("{}: {}", section.name, options.join(" "))
        };
        jobs.sections.iter().map(job).collect()
    }

    #[test]
    fn a_job_has_the_options_of_the_global_sections_above_it() {
        let text = "; c\n[global]\n bs = 4k ; why\n# c\n[a]\nrw=read # c\n[global]\ndirect=1\n\
                    [b]\r\ntime_based\n";
        assert_eq!(shown(text, &[]), ["a: bs=4k rw=read", "b: bs=4k direct=1 time_based"]);
    }

    #[test]
    fn included_options_belong_to_the_section_that_includes_them() {
        let files = [("jobs/g.fio", "bs=8k\ninclude sub/h.fio"), ("jobs/sub/h.fio", "direct=1")];
        let text = "[a]\ninclude g.fio\nrw=read\n[b]\nrw=write";
        assert_eq!(shown(text, &files), ["a: bs=8k direct=1 rw=read", "b: rw=write"]);
    }

    #[test]
    fn mistakes_are_named_with_their_line_and_a_remedy() {
        let cycle = [("jobs/a.fio", "include b.fio"), ("jobs/b.fio", "include a.fio")];
        let section = [("jobs/b.fio", "[c]")];
        for (text, files, words) in [
            ("bs=4k\n[a]", [].as_slice(), "jobs/a.fio:1: an option precedes"),
            ("\n[a\nbs=4k", &[], "jobs/a.fio:2: a section has no ']'"),
            ("[global]\nbs=4k", &[], "jobs/a.fio has no job; "),
            ("[a]\n[globals]", &[], "jobs/a.fio:2: fio treats every section"),
            ("[a]\ninclude b.fio", &[], "jobs/a.fio:2: reading jobs/b.fio; "),
            ("[a]\ninclude b.fio", &cycle, "jobs/b.fio:1: jobs/a.fio includes itself"),
            ("[a]\ninclude a.fio", &cycle, "jobs/a.fio:2: jobs/a.fio includes itself"),
            ("[a]\ninclude b.fio", &section, "jobs/b.fio:1: an included file"),
        ] {
            let refusal = parsed(text, files).unwrap_err().message;
            assert!(refusal.starts_with(words) && refusal.contains(';'), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_file_that_includes_too_much_is_refused() {
        let half = "x\n".repeat(BYTES_MAX / 4);
        let files = [("jobs/b.fio", half.as_str())];
        assert!(parsed("[a]\ninclude b.fio\n", &files).is_ok());
        assert!(parsed("[a]\ninclude b.fio\ninclude b.fio\n", &files).is_err());
        let large = "x".repeat(BYTES_MAX + 1);
        assert!(parsed(&large, &[]).unwrap_err().message.contains("split the job file"));
        assert!(parsed(&"[a]\n".repeat(JOBS_MAX + 1), &[]).is_err());
    }

    #[test]
    fn variables_and_keywords_are_replaced_and_an_unset_variable_is_named() {
        let text = |value: &str| {
            let given = Given::new(&format!("size={value}"), "a.fio:1".to_owned());
            given.text(&files(&[]))
        };
        assert_eq!(text("${SIZE}").unwrap(), "64m");
        assert_eq!(text("x${SIZE}y${SIZE}").unwrap(), "x64my64m");
        assert_eq!(text("$pagesize").unwrap(), "4096");
        assert_eq!(text("8*$mb_memory").unwrap(), "(8*1000)");
        assert_eq!(text("2*4").unwrap(), "2*4");
        let refusal = text("${NONE}").unwrap_err().message;
        assert_eq!(refusal, "a.fio:1: size: ${NONE} is not set; set the variable NONE");
        assert!(text("${SIZE").is_err());
    }
}
