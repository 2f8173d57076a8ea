//! The messages between ranks, which are sent as JSON. Unless a field states another clock, times
//! are on `CLOCK_MONOTONIC`, which all processes of a host share.

use serde::{Deserialize, Serialize};

use crate::ranks::merge::{Merged, RankResult};

/// A message from one rank to another, or from a relay to its worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// A rank introduces itself to rank 0.
    Hello(Hello),
    /// Rank 0 requests the clocks of a rank. The answer repeats the number of this request.
    Ping(u32),
    /// A rank answers with its clocks.
    Pong(Pong),
    /// Rank 0 sends the name of each rank's host to all ranks.
    Hosts(Vec<String>),
    /// A rank is ready to start the trial that this text describes.
    Ready(String),
    /// All ranks start the trial at this time on the receiver's clock (ns).
    Go(u64),
    /// A rank sends the result of its trial to rank 0.
    Result(Box<RankResult>),
    /// Rank 0 sends the merged result of all ranks.
    Merged(Box<Merged>),
    /// Rank 0 sends a value to all ranks, or a rank sends its value to rank 0. The value is JSON.
    Value(String),
    /// A relay reports that the rank with this number is lost, and why.
    Lost(u32, String),
    /// A relay reports that the user or the launcher has stopped the run.
    Interrupt,
}

/// The first message of a rank to rank 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Name of the host.
    pub host: String,
    /// Version of halfpower.
    pub version: String,
    /// Text that identifies the monotonic clock of the rank. Ranks that share a clock have the same
    /// text.
    pub clock_domain: String,
}

/// The clocks of a rank at one moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Pong {
    /// Number in the [`Message::Ping`] that this message answers.
    pub number: u32,
    /// Time on `CLOCK_MONOTONIC` (ns).
    pub monotonic_ns: u64,
    /// Time on the wall clock (ns since 1970).
    pub unix_ns: i64,
}
