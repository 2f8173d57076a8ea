//! Flags of `plan`: the storage that is needed, the price list, and limits on the configurations.

use std::path::PathBuf;

use clap::Args;

use crate::cli::OutputArgs;

/// Flags of `plan`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower plan --need 'reads 8k 20000/s p99<2ms; writes 64k 300MB/s; capacity 20TB'
  halfpower plan --need 'writes 8k 300/s; capacity 100GB; survives 1; durable' --max-cost 8000
  halfpower plan --show-prices > prices.toml
  halfpower plan --need 'reads 1m 2GB/s' --prices prices.toml --margin 50

A need is a list of clauses, separated by semicolons:
  reads|writes SIZE RATE   RATE is 20000/s (random order) or 300MB/s (sequential order);
                           then optionally random or sequential, and a limit such as p99<2ms
  capacity SIZE            usable bytes
  survives N               failed devices that the data must survive
  durable                  writes are durable when they complete: write caches are off

Each configuration of the price list (system, number of devices, volume, controller, stripe unit,
write cache) is judged in the order of its price: first by closed-form bounds, then by a simulation
of all streams together. For each kind (system, volume, controller), the cheapest configuration that
meets the need is printed, with the load that it sustains and its bottleneck.")]
pub struct PlanArgs {
    /// The rates, latencies and capacity that are needed (syntax: see below)
    #[arg(long, value_name = "NEED", required_unless_present = "show_prices",
          value_parser = predict::plan::need::Need::parse)]
    pub need: Option<predict::plan::need::Need>,
    /// Price list with the systems to consider (default: the built-in list)
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Print the built-in price list
    #[arg(long)]
    pub show_prices: bool,
    /// Maximum price
    #[arg(long, value_name = "PRICE", value_parser = super::whatif::parse_price)]
    pub max_cost: Option<f64>,
    /// Maximum number of devices
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_devices: u32,
    /// Percentage by which a configuration must exceed the needed rates
    #[arg(long, value_name = "PERCENT", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(0..=400))]
    pub margin: u32,
    /// Number of configurations to find; they differ in system, volume or controller
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub count: u32,
    /// How results are printed.
    #[command(flatten)]
    pub output: OutputArgs,
}
