//! Flags of `explain`: the words to explain, and how the texts are printed.

use clap::Args;

/// Flags of `explain`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower explain                     all topics
  halfpower explain noisy               a reason of a verdict
  halfpower explain half-power point    a term
  halfpower explain deeper-requests     advice, and how to follow it in C, Rust, fio, PostgreSQL
  halfpower explain depth               a study; depth/knee is one of its findings
  halfpower explain R077                a claim of a paper
  halfpower explain sata-ssd            a simulated system

The texts are part of the program and need no network.")]
pub struct ExplainArgs {
    /// The term to explain, or a word that a result shows in brackets
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}
