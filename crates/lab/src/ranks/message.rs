//! The messages between ranks, as JSON. Times in them are of `CLOCK_MONOTONIC`, the clock that all
//! processes of a host share.

use serde::{Deserialize, Serialize};

use crate::ranks::merge::{Merged, RankResult};

/// A message from one rank to another, or from a relay to its worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// A rank introduces itself to rank 0.
    Hello(Hello),
    /// Rank 0 asks a rank for its clocks; the number of the question comes back with the answer.
    Ping(u32),
    /// The clocks of a rank.
    Pong(Pong),
    /// Rank 0 tells every rank the hosts of all ranks.
    Hosts(Vec<String>),
    /// A rank is ready to start a trial, which this text describes.
    Ready(String),
    /// All ranks start at this time of the receiver's clock (ns).
    Go(u64),
    /// The result of a trial of one rank.
    Result(Box<RankResult>),
    /// The result of a trial of all ranks.
    Merged(Box<Merged>),
    /// A value that ranks agree on or collect, as JSON.
    Value(String),
    /// A relay reports that a rank ended, and how.
    Lost(u32, String),
    /// A relay reports that the user or the launcher stops the run.
    Interrupt,
}

/// What a rank tells rank 0 about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Name of the host.
    pub host: String,
    /// Version of the program.
    pub version: String,
    /// Names the monotonic clock of the rank: equal for ranks that share one.
    pub clock_domain: String,
}

/// The clocks of a rank at one moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Pong {
    /// Number of the question.
    pub number: u32,
    /// `CLOCK_MONOTONIC` (ns).
    pub monotonic_ns: u64,
    /// Wall clock (ns since 1970).
    pub unix_ns: i64,
}
