//! What can be typed behind `classic`: the papers' tools by name, each with flags of its own.
//!
//! SQLIO's flags are a letter with the value right behind it, which is no manner of clap's: each
//! gets the hidden name `--sqlio` before anything is parsed, so that it may stand in any order with
//! flags of halfpower. What they mean is decided in `classic::flags`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::{CommonArgs, SoakArgs};

/// Flags of `classic`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower classic sqlio -kR -s10 -frandom -o8 -b8 -BH -LS big.dat
  halfpower classic memspeed --quick
  halfpower classic cacheflush big.dat

docs/from-sqlio.md has every flag of SQLIO beside that of halfpower, and its trace line.")]
pub struct ClassicArgs {
    /// Which tool
    #[command(subcommand)]
    pub tool: Tool,
}

/// The tools.
#[derive(Subcommand, Debug, Clone)]
pub enum Tool {
    /// A workload by SQLIO's flags, with its text and its trace line of 14 fields
    Sqlio(Box<SqlioArgs>),
    /// Memory bandwidth by the names of the papers' tests
    Memspeed(MemspeedArgs),
    /// Rereads of one block and sequential reads by size: what a device answers from its cache
    Diskcache(Box<DiskcacheArgs>),
    /// Take a file out of the page cache and prove it
    Cacheflush(CacheflushArgs),
    /// Both bounds of the CPU that a command costs: the verb soak
    Soaker(SoakArgs),
    /// The command lines of a whole set of tests, to be run or changed
    Cmdgen(CmdgenArgs),
}

/// Flags of `classic sqlio`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "SQLIO's flags, each a letter with its value right behind it:
  -kR, -kW            read (default) or write
  -s30                seconds to run
  -b2                 block size in KiB
  -f64                stripe: go on so many blocks further after each; -frandom, -fsequential
  -i64                rows of the stripe: f x i x b KiB are touched; only with -fN
  -o8                 requests outstanding in each thread on each file (default: synchronous)
  -t1                 threads
  -BN                 caching: Y all, H past the file cache, S write-through, N both (default)
  -S0                 begin so many blocks into the file
  -LS, -LP            print latencies (there is one timer here)
  -p0, -aR0x3         pin threads to a CPU, or to those of a mask in turn
  -Fparam.txt         lines: FILE THREADS [MASK [MB]]
Refused with what to do instead: -d, -R, -m, -a without R, -U, -v, -64, -D, I and i behind a value.

Examples:
  halfpower classic sqlio -kR -s10 -frandom -o8 -b8 -BH -LS big.dat
  halfpower classic sqlio -kW -s10 -fsequential -o4 -b64 -BH big.dat --overwrite big.dat
  halfpower classic sqlio -fsequential -b64 . --csv trace.csv --note 'this laptop'
  halfpower classic sqlio -fsequential -b64 -o4 -BH sim:nt4-ultrawide
  halfpower classic sqlio -Fparam.txt -frandom -b8 -o4 --plan      the line of halfpower run

Files are not made and not extended: name one that exists, or a directory, which gets a test file
that is removed afterwards. The trace line goes to stdout, or to the file of --csv.")]
pub struct SqlioArgs {
    /// What was typed with one dash; see `name_flags`.
    #[arg(long = "sqlio", hide = true, value_name = "FLAG")]
    pub flags: Vec<String>,
    /// Files, devices, directories, sim:SYSTEM or truth:KEY=VALUE,.. (default: testfile.dat)
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Add the trace line to this file, which is new or a trace written before
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// The comment of the trace line, without commas
    #[arg(long, value_name = "TEXT", default_value = "", help_heading = "Output")]
    pub note: String,
    /// How often to measure; each trial has a trace line of its own
    #[arg(long, default_value_t = 1, help_heading = "Time")]
    pub trials: u32,
    /// See CommonArgs.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags of `classic memspeed`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower classic memspeed             the rows of Table 2, and again on all CPUs
  halfpower classic memspeed --size 10m  as much as the papers moved: it fits caches of today
  halfpower memory                       the same kernels with all caches and sizes

The arrays are far larger than all caches unless --size says otherwise. MBps are 2^20 bytes per
second, bytes counted once.")]
pub struct MemspeedArgs {
    /// Fewer and shorter samples
    #[arg(long)]
    pub quick: bool,
    /// Bytes of each test, both arrays of the copy together
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub size: Option<u64>,
    /// Where a file without a name is laid out beside the temporary file in memory
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Say nothing but the result, warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `classic diskcache`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower classic diskcache /dev/sdb --quick    reads only
  halfpower classic diskcache .                   a test file here, removed afterwards
  halfpower classic diskcache sim:nt4-ultrawide   the papers' machine
  halfpower study device-cache /dev/sdb           the study behind it, with its findings

Columns as in Table 3 of the study of 1997: the same block again and again, and blocks in order.")]
pub struct DiskcacheArgs {
    /// File, block device, directory, sim:SYSTEM or truth:KEY=VALUE,..
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// Fewer points and shorter trials
    #[arg(long, help_heading = "Time")]
    pub quick: bool,
    /// Size of the test file in a directory
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Workload")]
    pub size: Option<u64>,
    /// See CommonArgs.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags of `classic cacheflush`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower classic cacheflush big.dat        how much of it was in the page cache, and is now
  halfpower classic cacheflush big.dat && cp big.dat /tmp     a cold read by any program
  halfpower classic cacheflush                what the papers' cacheflush was for")]
pub struct CacheflushArgs {
    /// File or block device; without one, what it is for
    #[arg(value_name = "TARGET")]
    pub target: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// How the tests of `cmdgen` are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// Lines of halfpower run.
    Run,
    /// Lines of halfpower classic sqlio, with one trace file.
    Sqlio,
    /// A plan file for halfpower sweep.
    Toml,
}

/// Flags of `classic cmdgen`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower classic cmdgen big.dat > tests.sh               the papers' set of tests
  halfpower classic cmdgen big.dat --as sqlio --note new-new > tests.sh
  halfpower classic cmdgen . --as toml --runtime 2 > tests.toml
  halfpower sweep tests.toml                                all of them in one page and database
  halfpower classic cmdgen sim:nt4-ultrawide --bs 4k,64k --iodepth 0,8 --rw read

The papers named a series by the generation of its hardware and software (old-old, old-new,
new-new: their Table 1); --note names yours. Lines that write to what exists lack --overwrite or
--destroy-data-on, which nobody but you can add.")]
pub struct CmdgenArgs {
    /// What is measured
    #[arg(value_name = "TARGET", required = true)]
    pub targets: Vec<PathBuf>,
    /// Request sizes
    #[arg(long, value_name = "SIZE,..", default_value = "2k..1m", help_heading = "Workload")]
    pub bs: String,
    /// Requests outstanding; 0 is synchronous
    #[arg(long, value_name = "N,..", default_value = "0,1,2,4,8", help_heading = "Workload")]
    pub iodepth: String,
    /// read, write
    #[arg(long, value_name = "KIND,..", default_value = "read,write", help_heading = "Workload")]
    pub rw: String,
    /// sequential, random
    #[arg(long, value_name = "ORDER,..", default_value = "sequential", help_heading = "Workload")]
    pub order: String,
    /// Caching modes by SQLIO's letters: Y, H, S, N
    #[arg(long, value_name = "LETTER,..", default_value = "Y,H", help_heading = "Workload")]
    pub buffering: String,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub numjobs: u32,
    /// Seconds of each test
    #[arg(long, value_name = "SECONDS", default_value = "30", help_heading = "Time")]
    pub runtime: String,
    /// How often to measure each
    #[arg(long, default_value_t = 1, help_heading = "Time")]
    pub trials: u32,
    /// The name of the series; each test adds its caching mode and whether it is synchronous
    #[arg(long, value_name = "TEXT", default_value = "", help_heading = "Output")]
    pub note: String,
    /// How the tests are written
    #[arg(long = "as", value_name = "STYLE", default_value = "run", help_heading = "Output")]
    pub style: Style,
    /// Print what would be done and do nothing
    #[arg(long, help_heading = "Output")]
    pub plan: bool,
}

/// Behind `classic sqlio`, words with one dash are SQLIO's: `-kR` becomes `--sqlio=-kR`, `-s 30`
/// becomes `--sqlio=-s30`. Help and quiet stay what they are elsewhere.
pub fn name_flags(words: Vec<OsString>) -> Vec<OsString> {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|found| found == word);
    if !is(1, "classic") || !is(2, "sqlio") {
        return words;
    }
    let mut named = words[..3].to_vec();
    let mut rest = words[3..].iter().peekable();
    while let Some(word) = rest.next() {
        if word == "--" {
            named.push(word.clone());
            named.extend(rest.cloned());
            break;
        }
        let Some(flag) = sqlio_flag(word) else {
            named.push(word.clone());
            continue;
        };
        let wants_value = flag.chars().count() == 2 && !["-U", "-?"].contains(&flag);
        let value = rest.next_if(|next| wants_value && is_value(next));
        let value = value.and_then(|value| value.to_str()).unwrap_or_default();
        named.push(format!("--sqlio={flag}{value}").into());
    }
    named
}

fn sqlio_flag(word: &OsStr) -> Option<&str> {
    let text = word.to_str().filter(|text| !["-h", "-q"].contains(text))?;
    let body = text.strip_prefix('-')?;
    (!body.is_empty() && !body.starts_with('-')).then_some(text)
}

fn is_value(word: &OsStr) -> bool {
    word.to_str().is_some_and(|text| !text.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb, normalise};
    use clap::Parser;

    fn sqlio(line: &str) -> SqlioArgs {
        let words = std::iter::once("halfpower").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(normalise(words.map(OsString::from))).unwrap();
        match cli.verb {
            Verb::Classic(args) => match args.tool {
                Tool::Sqlio(args) => *args,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_of_both_programs_stand_in_any_order() {
        let args = sqlio("classic sqlio -kW --csv out.csv -b64 file -q -s 10 --overwrite file -o8");
        assert_eq!(args.flags, ["-kW", "-b64", "-s10", "-o8"]);
        assert_eq!(args.files, [PathBuf::from("file")]);
        assert!(args.common.quiet && args.csv == Some("out.csv".into()));
        assert_eq!(args.common.overwrite, [PathBuf::from("file")]);
    }

    #[test]
    fn a_flag_that_needs_no_value_takes_none() {
        let args = sqlio("classic sqlio -U file -?");
        assert_eq!((args.flags.len(), args.files.len()), (2, 1));
        let args = sqlio("classic sqlio -- -kR");
        assert_eq!(args.files, [PathBuf::from("-kR")]);
    }

    #[test]
    fn the_flags_of_other_verbs_stay_as_they_are() {
        let words = ["halfpower", "run", "-q", "-kR"].map(OsString::from);
        assert_eq!(normalise(words.iter().cloned()), words);
    }
}
