//! Flags of `watch` and `trace`: which programs to watch, and how to print or convert traces.

use std::ffi::OsString;
use std::path::PathBuf;

use analysis::units;
use clap::Args;

/// Flags of `watch`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower watch -- dd if=big.dat of=/dev/null bs=4k
  halfpower watch --pid 4711 --runtime 30          a running program, for 30 s
  halfpower watch --target /data --runtime 30      what all programs do on that file system
  halfpower watch --against latest -- ./load       compare with the newest survey in halfpower.db
  halfpower watch --survey /data -- ./load         survey /data first (20 s), then compare
  halfpower watch --json -- sqlite3 test.db < load.sql > result.json
  halfpower watch --html load.html -- ./load       also a page with charts
  halfpower trace halfpower-trace.parquet          print the summary of the trace again

Records every read, write, flush and open of a program, its threads and children (system calls,
libaio, io_uring, page faults in mapped files), and the requests of the block layer. Needs root, or
the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE, and Linux 5.8 or later with type
information (CONFIG_DEBUG_INFO_BTF). The trace is a Parquet file, which pandas and DuckDB can read.
The cost of recording is measured and printed; lost events are counted. Nothing remains in the
kernel, even after kill -9.

The report is written to stderr and the command's output is unchanged. With --json the document is
written to stdout and the command's output to stderr. The exit code is that of the command, 127 if
it is not found, or 126 if it is not executable.")]
pub struct WatchArgs {
    /// PID of a process to watch, including its threads and future children (repeatable)
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Vec<u32>,
    /// Watch what all programs do on the file system of a folder, or on a block device, until
    /// Ctrl-C or --runtime
    #[arg(long, value_name = "PATH", conflicts_with_all = ["command", "pid"])]
    pub target: Option<PathBuf>,
    /// Stop watching after this time (only with --pid or --target)
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub runtime: Option<u64>,
    /// New file for the trace [default: halfpower-trace.parquet, with a number if it exists]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Size of the buffer for events, a power of two; use a larger buffer if events are lost
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "64m")]
    pub buffer: u64,
    /// Compare with a stored survey of the same device; RUN is the number of its run, or latest
    #[arg(long, value_name = "RUN", group = "survey_run")]
    pub against: Option<String>,
    /// Survey this folder or device first (as survey --quick, about 20 s), and compare with the
    /// result
    #[arg(long, value_name = "PATH", group = "survey_run")]
    pub survey: Option<PathBuf>,
    /// The database that contains the survey
    #[arg(long, value_name = "FILE", default_value = "halfpower.db", requires = "survey_run")]
    pub db: PathBuf,
    /// Also write a page with charts to this file
    #[arg(long, alias = "report", value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document; the command's output goes to stderr
    #[arg(long)]
    pub json: bool,
    /// Print only the report, warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
    /// The command and its arguments
    #[arg(last = true, required_unless_present_any = ["pid", "target"], value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Flags of `trace`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower trace halfpower-trace.parquet                    what a watched program did
  halfpower trace blkparse.txt                               what a trace of another tool contains
  halfpower trace blkparse.txt --output new.parquet          store it as a trace file
  halfpower trace t.parquet --export fio-iolog --output t.log   for fio --read_iolog

Reads trace files of halfpower watch, and: csv (as exported), fio-iolog (version 2 and 3), blkparse
(text), blktrace (the files NAME.blktrace.CPU; specify one of them), strace (-f -ttt -T), msr (MSR
Cambridge), systor17, alibaba and tencent (published block traces). The format is recognised from
the content.")]
pub struct TraceArgs {
    /// A trace file, or a trace of another tool
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The format of the file [default: recognised from its content]
    #[arg(long, value_name = "FORMAT", value_parser = import_format)]
    pub format: Option<trace::import::Format>,
    /// Write the trace in a format of other tools: fio-iolog or csv
    #[arg(long, value_name = "FORMAT", value_parser = export_format, requires = "output")]
    pub export: Option<watch::stored::ExportFormat>,
    /// New file for the trace, in the format of --export (without --export: the format of halfpower
    /// watch)
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Compare with a stored survey of the same device; RUN is the number of its run, or latest
    #[arg(long, value_name = "RUN", conflicts_with = "export")]
    pub against: Option<String>,
    /// The database that contains the survey
    #[arg(long, value_name = "FILE", default_value = "halfpower.db", requires = "against")]
    pub db: PathBuf,
    /// Also write a page with charts to this file
    #[arg(long, alias = "report", value_name = "FILE", conflicts_with = "export")]
    pub html: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long, conflicts_with = "export")]
    pub json: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}

/// Parses the name of a trace format.
pub fn import_format(name: &str) -> Result<trace::import::Format, String> {
    let known = || trace::import::Format::ALL.map(trace::import::Format::name).join(", ");
    trace::import::Format::named(name)
        .ok_or_else(|| format!("unknown format '{name}'; use one of {}", known()))
}

fn export_format(name: &str) -> Result<watch::stored::ExportFormat, String> {
    let all = watch::stored::ExportFormat::ALL;
    let found = all.into_iter().find(|format| format.name() == name);
    let known = all.map(watch::stored::ExportFormat::name).join(", ");
    found.ok_or_else(|| format!("unknown format '{name}'; use one of {known}"))
}
