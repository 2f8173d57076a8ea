//! Flags of `classic`: the papers' tools, each with its own flags.
//!
//! An SQLIO flag is a letter directly followed by its value, such as `-b64`, which clap does not
//! support. Therefore [`name_flags`] converts each SQLIO flag to a value of the hidden flag
//! `--sqlio` before clap parses the command line. `papers::classic::flags` interprets these values.

use analysis::units;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::{CommonArgs, OutputArgs, SoakArgs};

/// Flags of `classic`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower classic sqlio -kR -s10 -frandom -o8 -b8 -BH -LS big.dat
  halfpower classic memspeed --quick
  halfpower classic cacheflush big.dat

docs/from-sqlio.md lists every SQLIO flag with its halfpower equivalent, and the trace format.")]
pub struct ClassicArgs {
    /// The tool to run
    #[command(subcommand)]
    pub tool: Tool,
}

/// The tools of the papers.
#[derive(Subcommand, Debug, Clone)]
pub enum Tool {
    /// Measure a workload given by SQLIO's flags, and print SQLIO's output and trace line
    Sqlio(Box<SqlioArgs>),
    /// Measure memory bandwidth with the papers' tests
    Memspeed(MemspeedArgs),
    /// Measure the device cache: rereads of a block, and sequential reads, by request size
    Diskcache(Box<DiskcacheArgs>),
    /// Drop a file from the page cache and verify that no page of the file remains there
    Cacheflush(CacheflushArgs),
    /// Report lower and upper bounds of a command's CPU cost (same as halfpower soak)
    Soaker(SoakArgs),
    /// Print the command lines of a set of tests
    Cmdgen(CmdgenArgs),
}

/// Flags of `classic sqlio`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "SQLIO's flags, each a letter directly followed by its value:
  -kR, -kW            read (default) or write
  -s30                seconds to run
  -b2                 block size in KiB
  -f64                stripe: stride between blocks, in blocks; or -frandom, -fsequential
  -i64                rows of the stripe: f x i x b KiB are touched; only with -fN
  -o8                 requests outstanding in each thread on each file (default: synchronous)
  -t1                 threads
  -BN                 caching: Y all, H no file cache, S write-through, N both (default)
  -S0                 first block in the file
  -LS, -LP            print latencies (both use the same timer)
  -p0, -aR0x3         pin threads to a CPU, or round-robin to the CPUs of a mask
  -Fparam.txt         lines: FILE THREADS [MASK [MB]]
Not supported (the error names the alternative): -d, -R, -m, -a without R, -v, -64, -D, and I or
i after a value.

Examples:
  halfpower classic sqlio -kR -s10 -frandom -o8 -b8 -BH -LS big.dat
  halfpower classic sqlio -kW -s10 -fsequential -o4 -b64 -BH big.dat --overwrite big.dat
  halfpower classic sqlio -fsequential -b64 . --csv trace.csv --note 'this laptop'
  halfpower classic sqlio -fsequential -b64 -o4 -BH sim:nt4-ultrawide
  halfpower classic sqlio -Fparam.txt -frandom -b8 -o4 --plan      print the halfpower run command

Files are not created or extended: specify an existing file, or a directory, in which a test file is
created and removed afterwards. The trace line is written to stdout, or to the --csv file.")]
pub struct SqlioArgs {
    /// SQLIO's flags. [`name_flags`] converts them to values of this hidden flag.
    #[arg(long = "sqlio", hide = true, value_name = "FLAG")]
    pub flags: Vec<String>,
    /// Files, devices, directories, sim:SYSTEM or truth:KEY=VALUE,.. (default: testfile.dat)
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Append the trace line to this file (a new file or an earlier trace)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// Comment in the trace line (no commas)
    #[arg(long, value_name = "TEXT", default_value = "", help_heading = "Output")]
    pub note: String,
    /// Number of trials; each trial has a trace line
    #[arg(long, default_value_t = 1, help_heading = "Time")]
    pub trials: u32,
    /// Flags of every subcommand that measures.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags of `classic memspeed`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower classic memspeed             the rows of Table 2 of Riedel 1997, on one CPU and all CPUs
  halfpower classic memspeed --size 10m  the papers' size, which fits into the caches of today
  halfpower memory                       the same kernels at all cache levels and sizes

Without --size, the arrays are far larger than all caches. MBps are 2^20 bytes per second; copied
bytes are counted once.")]
pub struct MemspeedArgs {
    /// Take fewer and shorter samples
    #[arg(long)]
    pub quick: bool,
    /// Working set of each test; the copy test splits it between source and destination
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub size: Option<u64>,
    /// Directory for an unnamed test file, which is read from the page cache
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// How results are printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Flags of `classic diskcache`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower classic diskcache /dev/sdb --quick    reads only
  halfpower classic diskcache .                   a test file here, removed afterwards
  halfpower classic diskcache sim:nt4-ultrawide   the papers' machine
  halfpower study device-cache /dev/sdb           the underlying study, with its findings

The columns are those of Table 3 of the 1997 paper: rereads of one block, and sequential reads.")]
pub struct DiskcacheArgs {
    /// File, block device, directory, sim:SYSTEM or truth:KEY=VALUE,..
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// Measure fewer points with shorter trials
    #[arg(long, help_heading = "Time")]
    pub quick: bool,
    /// Size of the test file in a directory
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Workload")]
    pub size: Option<u64>,
    /// Flags of every subcommand that measures.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Flags of `classic cacheflush`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower classic cacheflush big.dat        print how much was cached before and after
  halfpower classic cacheflush big.dat && cp big.dat /tmp     a cold read by any program
  halfpower classic cacheflush big.dat --read                 one cold buffered read, measured
  halfpower classic cacheflush                explain the papers' cacheflush")]
pub struct CacheflushArgs {
    /// File or block device (default: print an explanation)
    #[arg(value_name = "TARGET")]
    pub target: Option<PathBuf>,
    /// After the flush, read the whole file through the page cache, 64 KiB at a time, and print
    /// throughput, CPU and the trace line, as the papers' cacheflush did
    #[arg(long, conflicts_with = "json")]
    pub read: bool,
    /// Comment of the trace line
    #[arg(long, value_name = "TEXT", default_value = "", requires = "read")]
    pub note: String,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}

/// Output format of `cmdgen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// Commands of `halfpower run`.
    Run,
    /// Commands of `halfpower classic sqlio`, with one trace file.
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

In the papers, a series is named after the generations of its hardware and software (old-old,
old-new, new-new: Table 1 of Chung et al. 2000); --note sets the name of your series. Commands that
write to existing files or devices lack --overwrite or --destroy-data-on, which you must add.")]
pub struct CmdgenArgs {
    /// Files, devices, directories or simulated systems
    #[arg(value_name = "TARGET", required = true)]
    pub targets: Vec<PathBuf>,
    /// Request sizes
    #[arg(long, value_name = "SIZE,..", default_value = "2k..1m", help_heading = "Workload")]
    pub bs: String,
    /// Queue depths; 0 means synchronous requests
    #[arg(long, value_name = "N,..", default_value = "0,1,2,4,8", help_heading = "Workload")]
    pub iodepth: String,
    /// Operations: read, write
    #[arg(long, value_name = "KIND,..", default_value = "read,write", help_heading = "Workload")]
    pub rw: String,
    /// Order of the requests: sequential, random
    #[arg(long, value_name = "ORDER,..", default_value = "sequential", help_heading = "Workload")]
    pub order: String,
    /// Caching modes, as letters of SQLIO's flag -B: Y, H, S, N
    #[arg(long, value_name = "LETTER,..", default_value = "Y,H", help_heading = "Workload")]
    pub buffering: String,
    /// Number of threads
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub numjobs: u32,
    /// Duration of each test, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", help_heading = "Time")]
    pub runtime: String,
    /// Number of trials per test
    #[arg(long, default_value_t = 1, help_heading = "Time")]
    pub trials: u32,
    /// Name of the series of tests (default: the environment variable sqlio_note). The comment of
    /// each test consists of this name, the caching mode, and sync or async
    #[arg(long, value_name = "TEXT", default_value = "", help_heading = "Output")]
    pub note: String,
    /// Output format
    #[arg(long = "as", value_name = "STYLE", default_value = "run", help_heading = "Output")]
    pub style: Style,
    /// Only print what would be done
    #[arg(long, help_heading = "Output")]
    pub plan: bool,
}

/// Marks the flags of SQLIO. After `classic sqlio`, arguments with a single dash are SQLIO's flags:
/// `-kR` becomes `--sqlio=-kR`, and `-s 30` becomes `--sqlio=-s30`. `-h` and `-q` keep their usual
/// meaning.
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
