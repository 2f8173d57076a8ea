//! Translates a test of SQLIO into a command line of `halfpower run`.
//!
//! `--plan` prints this command line, and docs/from-sqlio.md describes the translation. If several
//! threads access blocks in a different order than in SQLIO, a note tells the user.

use std::path::{Path, PathBuf};

use lab::failure::{Failure, Outcome};

use crate::classic::flags::{BYTES_MAX, Flags, Order};
use crate::classic::params::ParamLine;

/// The default test file of SQLIO.
const FILE: &str = "testfile.dat";
/// The prefixes of simulated targets, which have their own I/O engine.
const OWN_WAY: [&str; 2] = ["sim:", "truth:"];

/// A test of SQLIO as a command line of `halfpower run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The targets of the run.
    pub targets: Vec<PathBuf>,
    /// The flags of `run` and their values.
    pub words: Vec<String>,
    /// Notes for the user about differences from SQLIO.
    pub notes: Vec<String>,
}

impl Translation {
    /// Returns the command line as a user would type it.
    pub fn line(&self) -> String {
        let targets = self.targets.iter().map(|path| quoted(&path.to_string_lossy()));
        let words: Vec<String> =
            targets.chain(self.words.iter().map(|word| quoted(word))).collect();
        format!("halfpower run {}", words.join(" "))
    }
}

/// Returns a word, quoted for a shell if necessary.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The files of a test, and the threads that access each file.
struct Assignment {
    targets: Vec<PathBuf>,
    threads: u32,
    cpus: Vec<usize>,
    size_bytes: Option<u64>,
}

/// Translates a test into flags of `run`. `params` has the lines of the parameter file, if there is
/// one.
///
/// # Errors
/// `Exit::Usage`, if the test cannot be translated into a single run. The message suggests an
/// alternative.
pub fn translate(
    flags: &Flags,
    files: &[PathBuf],
    params: Option<&[ParamLine]>,
) -> Outcome<Translation> {
    let assignment = match params {
        Some(lines) => assignment_of(lines, files, flags.order)?,
        None => Assignment {
            targets: if files.is_empty() { vec![FILE.into()] } else { files.to_vec() },
            threads: flags.threads.unwrap_or(1),
            cpus: flags.cpus.clone(),
            size_bytes: None,
        },
    };
    if assignment.targets.len() > 1 && flags.outstanding == 0 {
        return Err(Failure::usage(
            "without -o, each thread of SQLIO uses all files in turn, but here each file has its \
             own threads; use -o1 or more, or specify only one file",
        ));
    }
    let mut words = Vec::new();
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    let random = flags.order == Order::Random;
    let direction = if flags.writes { "write" } else { "read" };
    add("--rw", format!("{}{direction}", if random { "rand" } else { "" }));
    add("--bs", format!("{}k", flags.block_kib));
    add("--iodepth", flags.outstanding.max(1).to_string());
    add("--numjobs", assignment.threads.to_string());
    add("--runtime", flags.seconds.clone());
    if flags.outstanding == 0 && !assignment.targets.iter().any(|path| has_own_way(path)) {
        add("--ioengine", "sync".to_owned());
    }
    if random && assignment.threads > 1 {
        add("--placement", "shared".to_owned());
    }
    if flags.start_blocks > 0 {
        add("--offset", flags.start_bytes()?.to_string());
    }
    if let Some(bytes) = size_bytes(flags, assignment.size_bytes)? {
        add("--size", bytes.to_string());
    }
    if let Order::Stripe { columns, .. } = flags.order {
        add("--stride", (columns * flags.block_bytes()).to_string());
    }
    if !assignment.cpus.is_empty() {
        let cpus: Vec<String> = assignment.cpus.iter().map(usize::to_string).collect();
        add("--cpus-allowed", cpus.join(","));
    }
    words.push("--time-based".to_owned());
    words.push(format!("--direct={}", u8::from(flags.caching.is_direct())));
    if flags.caching.is_write_through() {
        words.push("--write-through".to_owned());
    }
    Ok(Translation {
        targets: assignment.targets,
        words,
        notes: notes(flags.order, assignment.threads),
    })
}

/// Checks whether a target is simulated. Simulated targets have their own I/O engine.
pub fn has_own_way(target: &Path) -> bool {
    OWN_WAY.iter().any(|prefix| target.to_string_lossy().starts_with(prefix))
}

/// Returns how much of each file is accessed (bytes). None means the whole file.
fn size_bytes(flags: &Flags, asked: Option<u64>) -> Outcome<Option<u64>> {
    let Order::Stripe { columns, rows } = flags.order else { return Ok(asked) };
    let blocks = columns.checked_mul(rows);
    let bytes = blocks.and_then(|blocks| blocks.checked_mul(flags.block_bytes()));
    match bytes.filter(|bytes| *bytes <= BYTES_MAX) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(Failure::usage(format!(
            "-f{columns} -i{rows} -b{} needs a larger file than is possible; use smaller numbers",
            flags.block_kib
        ))),
    }
}

/// Returns the files and threads of a parameter file. All lines must have the same number of
/// threads, the same CPU mask and the same size, because a run uses the same values for each file.
fn assignment_of(lines: &[ParamLine], files: &[PathBuf], order: Order) -> Outcome<Assignment> {
    if !files.is_empty() {
        return Err(Failure::usage(
            "the parameter file (-F) already lists the test files; remove the files from the \
             command line",
        ));
    }
    let Some(first) = lines.first() else {
        return Err(Failure::usage("the parameter file lists no test file; add a line"));
    };
    let alike = |line: &ParamLine| ParamLine { file: first.file.clone(), ..line.clone() } == *first;
    if let Some(other) = lines.iter().find(|line| !alike(line)) {
        return Err(Failure::usage(format!(
            "{} and {} of the parameter file differ in threads, mask or size, but a run uses the \
             same values for all files; specify the same values for all files, or start one run \
             per file, all at the same time",
            first.file.display(),
            other.file.display()
        )));
    }
    if first.cpus.len() > 1 {
        return Err(Failure::usage(
            "the parameter file has a mask of several CPUs, but each thread is pinned to one CPU; \
             set the mask to 0x0 and use taskset",
        ));
    }
    if first.size_mb.is_some() && matches!(order, Order::Stripe { .. }) {
        return Err(Failure::usage(
            "a size in the parameter file needs -frandom or -fsequential, because -fN and -iN \
             already determine the size; drop the size, or use -frandom or -fsequential",
        ));
    }
    Ok(Assignment {
        targets: lines.iter().map(|line| line.file.clone()).collect(),
        threads: first.threads,
        cpus: first.cpus.clone(),
        size_bytes: first.size_mb.map(|mb| mb << 20),
    })
}

/// Returns a note for the user if several threads access blocks in a different order than in SQLIO.
fn notes(order: Order, threads: u32) -> Vec<String> {
    if threads < 2 {
        return Vec::new();
    }
    let note = match order {
        Order::Random => return Vec::new(),
        Order::Sequential => {
            "in SQLIO, all threads together read or write the blocks of a file in order; here each \
             thread has its own part of the file"
        }
        Order::Stripe { .. } => {
            "in SQLIO, each thread accesses some columns of the stripe and all rows; here each \
             thread accesses all columns and some rows"
        }
    };
    vec![note.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classic::params;

    fn line(text: &str) -> Outcome<Translation> {
        let (flags, files): (Vec<String>, Vec<String>) =
            text.split_whitespace().map(str::to_owned).partition(|word| word.starts_with('-'));
        let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
        translate(&Flags::parse(&flags)?, &files, None)
    }

    #[test]
    fn a_random_test_is_a_random_run() {
        let found = line("-kW -t4 -s360 -o8 -b8 -frandom -BH d.dat").unwrap();
        assert_eq!(
            found.line(),
            "halfpower run d.dat --rw randwrite --bs 8k --iodepth 8 --numjobs 4 --runtime 360 \
             --placement shared --time-based --direct=1"
        );
        assert_eq!(found.notes, [""; 0]);
    }

    #[test]
    fn the_defaults_touch_8_mb_column_by_column_synchronously() {
        let found = line("").unwrap();
        assert_eq!(
            found.line(),
            "halfpower run testfile.dat --rw read --bs 2k --iodepth 1 --numjobs 1 --runtime 30 \
             --ioengine sync --size 8388608 --stride 131072 --time-based --direct=1 --write-through"
        );
    }

    #[test]
    fn a_simulated_system_issues_requests_in_its_own_way() {
        let found = line("-fsequential -b64 -BY sim:nt4-ultrawide").unwrap();
        assert!(!found.line().contains("--ioengine"), "{}", found.line());
        assert!(found.line().contains("--direct=0") && !found.line().contains("--write-through"));
    }

    #[test]
    fn several_threads_in_sequence_have_a_note() {
        assert!(line("-t2 f").unwrap().notes[0].contains("rows"));
        assert!(line("-t2 -fsequential f").unwrap().notes[0].contains("its own part of the file"));
    }

    #[test]
    fn several_files_need_requests_outstanding_on_each() {
        assert!(line("a b").unwrap_err().message.contains("use -o1"));
        assert_eq!(line("-o1 a b").unwrap().targets.len(), 2);
    }

    #[test]
    fn a_parameter_file_names_files_threads_and_size() {
        let flags = Flags::parse(&["-frandom".into(), "-o2".into(), "-Fp".into()]).unwrap();
        let with = |text: &str| translate(&flags, &[], Some(&params::parse(text).unwrap()));
        let found = with("a 2 0x2 100\nb 2 0x2 100").unwrap();
        let line = found.line();
        assert!(line.starts_with("halfpower run a b "), "{line}");
        assert!(line.contains("--numjobs 2") && line.contains("--size 104857600"), "{line}");
        assert!(line.contains("--cpus-allowed 1"), "{line}");
        assert!(with("a 2\nb 3").unwrap_err().message.contains("the same values for all files"));
        assert!(with("a 2 0x3").unwrap_err().message.contains("taskset"));
        let striped = Flags::parse(&["-Fp".into()]).unwrap();
        let sized = params::parse("a 1 0 100").unwrap();
        assert!(translate(&striped, &[], Some(&sized)).is_err());
        assert!(translate(&striped, &["x".into()], Some(&sized)).is_err());
    }

    #[test]
    fn a_strip_that_overflows_is_refused() {
        let failure = line("-f9999999999999 -i9999999999").unwrap_err();
        assert!(failure.message.contains("smaller numbers"), "{failure}");
    }

    #[test]
    fn a_quoted_word_is_read_back_by_a_shell() {
        assert_eq!(quoted("a b's"), r"'a b'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("sim:x,disks=4"), "sim:x,disks=4");
    }
}
