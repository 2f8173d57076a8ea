//! Flags of `assist`, a hidden subcommand for the self-test. It burns CPU time for each byte that
//! it reads.

use analysis::units;

use clap::Args;

/// Flags of `assist`.
#[derive(Args, Debug, Clone)]
pub struct AssistArgs {
    /// CPU time for each byte
    #[arg(value_name = "TIME", value_parser = units::parse_duration)]
    pub cpu_ns: u64,
}
