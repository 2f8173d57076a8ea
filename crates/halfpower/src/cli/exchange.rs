//! Flags of `import` and `export`, which exchange results with other tools.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use exchange::export::{Format, one_of};
use results::Table;

/// Flags of `import`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower import fio.json                        output of fio --output-format=json or json+
  halfpower import fio.json job_*.log              with the logs of write_bw_log: rates over time
  halfpower import old/*.json --label before --host db1
  halfpower compare label:before latest            imported runs are compared like all others
  halfpower compare fio.json latest                without storing it

The format is recognised from the content. Importing the same file again changes nothing.
docs/exchange.md lists the formats, and what each tool does not report.")]
pub struct ImportArgs {
    /// Result files of fio (JSON, logs), diskspd, elbencho, iozone or classic sqlio; - for standard
    /// input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Label of the runs
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Host of the runs, if the results do not contain it
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Results database
    #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
    pub db: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Read the files, print what would be stored, and store nothing
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `export`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower export latest --format fio-json > new.json       for fio-plot and other programs
  halfpower export 3 4 --format csv --table trials
  halfpower export latest --format ndjson --table latency | jq .count
  halfpower export latest --format parquet --table trials --output trials.parquet
  halfpower export latest --format prometheus --output halfpower.prom --overwrite halfpower.prom

Tables: points, trials, intervals (rates over time), latency (histogram buckets). A run that was
imported from a file in one of the formats of --format is exported to the same format with its
original numbers.")]
pub struct ExportArgs {
    /// Runs: number, start of the uuid, label or latest
    #[arg(value_name = "RUN", default_value = "latest")]
    pub runs: Vec<String>,
    /// Format of the output
    #[arg(long, value_name = "FORMAT", default_value = "csv",
          value_parser = PossibleValuesParser::new(Format::NAMED.map(|(name, _)| name))
              .try_map(|word| word.parse::<Format>()))]
    pub format: Format,
    /// Table to export as csv, ndjson or parquet
    #[arg(long, value_name = "TABLE",
          value_parser = PossibleValuesParser::new(Table::NAMED.map(|(name, _)| name))
              .try_map(|word| one_of(&Table::NAMED, &word)))]
    pub table: Option<Table>,
    /// Write to this new file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Allow replacing this existing file (exact path)
    #[arg(long, value_name = "PATH", requires = "output")]
    pub overwrite: Option<PathBuf>,
    /// Results database
    #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
    pub db: PathBuf,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}
