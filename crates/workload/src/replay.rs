//! The recorded requests of a program, which a replay issues again in place of a pattern.
//!
//! Requests belong to *lanes*. A lane contains the requests of one thread of the program, in their
//! order. Each request records how long the program computed before it, and how many earlier
//! requests of its lane were still outstanding at that moment. The replay issues it only when no
//! more than that many are outstanding. At depth 1, each request therefore follows the completion
//! of the one before it.

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
    /// How long the program computed before it made the request (ns). The time counts from the
    /// lane's previous request, or from the last completion that the program waited for, whichever
    /// is later.
    pub gap_ns: u64,
    /// How many earlier requests of the lane may still be outstanding. None: not known. The request
    /// then waits for no completion, and `gap_ns` counts from the previous request.
    pub outstanding_max: Option<u32>,
}

/// When the requests of a replay are issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// With the program's gaps between requests, divided by `speed`.
    Gaps {
        /// 1 keeps the gaps, 2 halves them.
        speed: f64,
    },
    /// Without gaps: each request is issued as soon as the completions that it waits for have
    /// arrived.
    Fast,
}

impl Pace {
    /// The gap of a replay in place of a gap of the program (ns).
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

/// The requests of one worker, in order of their start. If reading fails, the last item is the
/// error: one line with the remedy.
pub type ReplayRequests = Box<dyn Iterator<Item = Result<ReplayRequest, String>> + Send>;

/// Where the requests of a replay come from. Each trial reads them again.
pub trait ReplaySource: fmt::Debug + Send + Sync {
    /// Starts to read the requests of a worker.
    ///
    /// # Errors
    /// The requests cannot be read; the error is one line with the remedy.
    fn requests(&self, worker: u32) -> Result<ReplayRequests, String>;
}

/// A replay: the requests of a program in place of a pattern.
///
/// Two replays are equal if their descriptions are.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Describes what is replayed; stored with the result.
    pub description: ReplayDescription,
    /// Size of a region that holds all its files one after another (bytes), unless requests are
    /// folded; 0 for a stored result.
    pub span_bytes: u64,
    /// Offsets and lengths of ranges whose blocks are released before each trial (bytes). The
    /// program wrote new files there, so its writes allocated the blocks.
    pub new_ranges: Vec<(u64, u64)>,
    /// Whether a request of the program ended only when the program reaped its completion. A worker
    /// then reaps as many completions at a time as its next request waits for.
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
    /// Bytes that the requests read and write.
    pub bytes: u64,
    /// How long the program took, from its first request to the end of its last one (ns).
    pub recorded_ns: u64,
    /// When the requests are issued.
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
