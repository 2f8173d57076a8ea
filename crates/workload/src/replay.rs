//! Requests that a program made before, to be issued again: what a replay takes in place of a
//! pattern.
//!
//! Requests come in *lanes*. A lane is what one thread of the program did, in its order. A request
//! says how long the program computed before it made the request, and how many earlier requests of
//! its lane were still outstanding at that moment. The replay waits until no more are outstanding
//! than that, so at depth 1 a request follows the completion of the one before it.

use std::fmt;
use std::sync::Arc;

use ioengine::Hint;

/// What a replayed request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOperation {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Makes earlier writes durable.
    Flush {
        /// Like fdatasync(2): only the metadata needed to find the data.
        data_only: bool,
    },
    /// Tells the kernel how a part of the target will be accessed.
    Advise(Hint),
}

/// A request of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// The lane, counted from 0 within the requests of one worker.
    pub lane: u32,
    /// What the request does.
    pub operation: ReplayOperation,
    /// Offset in the region (bytes); 0 for a flush.
    pub offset: u64,
    /// Length (bytes); 0 for a flush, and for a hint about the whole target.
    pub bytes: u64,
    /// Time since the later of two events: the program made the lane's previous request, and the
    /// last of the completions that it had waited for (ns).
    pub gap_ns: u64,
    /// How many earlier requests of the lane may still be outstanding; None if that is not known:
    /// the request then waits for none, and `gap_ns` counts from the request before it.
    pub outstanding_max: Option<u32>,
}

/// When the requests of a replay are issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// With the gaps between requests that the program made, divided by `speed`.
    Gaps {
        /// 1 keeps the gaps, 2 halves them.
        speed: f64,
    },
    /// Without gaps: each request as soon as those that it waits for have completed.
    Fast,
}

impl Pace {
    /// A gap of the program as it is replayed (ns).
    pub(crate) fn gap_ns(self, gap_ns: u64) -> u64 {
        match self {
            Pace::Fast => 0,
            Pace::Gaps { speed: 1.0 } => gap_ns,
            Pace::Gaps { speed } => (gap_ns as f64 / speed) as u64,
        }
    }
}

impl fmt::Display for Pace {
    /// "as recorded", "as recorded, 2 times as fast", or "without gaps".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pace::Gaps { speed: 1.0 } => f.write_str("as recorded"),
            Pace::Gaps { speed } => write!(f, "as recorded, {speed} times as fast"),
            Pace::Fast => f.write_str("without gaps"),
        }
    }
}

/// The requests of one worker in order of their start; an error, which is one line with the remedy,
/// is the last item.
pub type ReplayRequests = Box<dyn Iterator<Item = Result<ReplayRequest, String>> + Send>;

/// Where the requests of a replay come from. Each trial reads them again.
pub trait ReplaySource: fmt::Debug + Send + Sync {
    /// Starts to read the requests of a worker.
    ///
    /// # Errors
    /// They cannot be read; one line with the remedy.
    fn requests(&self, worker: u32) -> Result<ReplayRequests, String>;
}

/// A replay: the requests of a program in place of a pattern.
///
/// Two replays are equal if their descriptions are.
#[derive(Clone, Debug)]
pub struct Replay {
    /// What is replayed, in words and figures that are stored with the result.
    pub description: ReplayDescription,
    /// Where its last request ends, if none is folded (bytes); 0 for a stored result.
    pub span_bytes: u64,
    /// Ranges without blocks at the beginning of each trial (bytes): where the program wrote new
    /// files, so that their blocks were allocated then.
    pub new_ranges: Vec<(u64, u64)>,
    /// Whether a request ends only when the program takes its completion. A worker then takes as
    /// many completions at a time as its next request waits for.
    pub takes_only_awaited: bool,
    /// Reads the requests; None for a stored result, which cannot be measured again.
    pub source: Option<Arc<dyn ReplaySource>>,
}

/// What is replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayDescription {
    /// Name of the trace.
    pub trace: String,
    /// Identifies the requests: equal for equal traces with equal changes.
    pub fingerprint: u64,
    /// Number of requests, flushes included.
    pub requests: u64,
    /// Bytes that they read and write.
    pub bytes: u64,
    /// How long the program took, from its first request to the end of its last one (ns).
    pub recorded_ns: u64,
    /// When they are issued.
    pub pace: Pace,
    /// Changes to what the program did, as in "depth 8, flush every 16"; empty if there are none.
    pub changes: String,
    /// Whether requests beyond the end of the region are moved into it.
    pub folded: bool,
}

impl ReplayDescription {
    /// Mean length of a request (bytes).
    pub fn mean_bytes(&self) -> u64 {
        self.bytes / self.requests.max(1)
    }
}

impl PartialEq for Replay {
    fn eq(&self, other: &Replay) -> bool {
        self.description == other.description
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_keeps_shortens_or_drops_gaps() {
        let of = |pace: Pace| (pace.gap_ns(1000), pace.to_string());
        assert_eq!(of(Pace::Gaps { speed: 1.0 }), (1000, "as recorded".to_owned()));
        assert_eq!(of(Pace::Gaps { speed: 2.0 }).0, 500);
        assert_eq!(of(Pace::Fast), (0, "without gaps".to_owned()));
    }
}
