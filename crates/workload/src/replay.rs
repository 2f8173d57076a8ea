//! The recorded requests of a program. A replay issues these requests again, instead of requests
//! that follow a pattern.
//!
//! Requests belong to *lanes*. A lane contains the requests of one thread of the program, in the
//! order in which they were made. The trace records how long the program computed before each
//! request, and how many earlier requests of the lane were outstanding at that time. The replay
//! issues a request only when at most this number of requests is outstanding. At depth 1, for
//! example, each request waits for the completion of the previous request.

use std::fmt;
use std::sync::Arc;

use ioengine::Hint;

/// The operation of a replayed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOperation {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Makes earlier writes durable.
    Flush {
        /// Whether to flush like fdatasync(2), which omits metadata that is not needed to find the
        /// data.
        data_only: bool,
    },
    /// Tells the kernel how a part of the target will be accessed.
    Advise(Hint),
}

/// A request of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// Number of the lane. The lanes of each worker are numbered from 0.
    pub lane: u32,
    /// The operation.
    pub operation: ReplayOperation,
    /// Offset in the region (bytes); 0 for a flush.
    pub offset: u64,
    /// Length (bytes); 0 for a flush, and for a hint about the whole target.
    pub bytes: u64,
    /// Time that the program computed before this request (ns). The time starts at the previous
    /// request of the lane, or at the last completion that the program waited for, whichever is
    /// later.
    pub gap_ns: u64,
    /// Maximum number of earlier requests of the lane that may still be outstanding. None if this
    /// number is unknown: the request then waits for no completion, and `gap_ns` counts from the
    /// previous request.
    pub outstanding_max: Option<u32>,
}

/// When the requests of a replay are issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Requests are issued with the program's gaps between them, divided by `speed`.
    Gaps {
        /// Divisor of the gaps: 1 keeps them, 2 halves them.
        speed: f64,
    },
    /// Requests are issued without gaps. Each request is issued as soon as the completions for
    /// which it waits have arrived.
    Fast,
}

impl Pace {
    /// Converts a recorded gap to the gap of the replay (ns).
    pub(crate) fn gap_ns(self, gap_ns: u64) -> u64 {
        match self {
            Pace::Fast => 0,
            Pace::Gaps { speed: 1.0 } => gap_ns,
            Pace::Gaps { speed } => (gap_ns as f64 / speed) as u64,
        }
    }
}

impl fmt::Display for Pace {
    /// Formats as "as recorded", "2 times as fast as recorded", or "without gaps".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pace::Gaps { speed: 1.0 } => f.write_str("as recorded"),
            Pace::Gaps { speed } => write!(f, "{speed} times as fast as recorded"),
            Pace::Fast => f.write_str("without gaps"),
        }
    }
}

/// The requests of one worker, in the order of their start times. If reading fails, the last item
/// is the error message, which is one line and contains the remedy.
pub type ReplayRequests = Box<dyn Iterator<Item = Result<ReplayRequest, String>> + Send>;

/// Provides the requests of a replay. Each trial reads the requests again.
pub trait ReplaySource: fmt::Debug + Send + Sync {
    /// Starts to read the requests of a worker.
    ///
    /// # Errors
    /// The requests cannot be read. The error message is one line and contains the remedy.
    fn requests(&self, worker: u32) -> Result<ReplayRequests, String>;
}

/// A replay of the recorded requests of a program.
///
/// Two replays are equal if their descriptions are equal.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Description of the replay, which is stored with the result.
    pub description: ReplayDescription,
    /// Size of a region that contains all replayed files one after another (bytes). A folded replay
    /// may have a smaller region. 0 for a stored result.
    pub span_bytes: u64,
    /// Ranges in which the program wrote new files, as offset and length (bytes). The blocks of
    /// these ranges are released before each trial, so that writes allocate blocks as in the
    /// recording.
    pub new_ranges: Vec<(u64, u64)>,
    /// Whether the end of a request in the trace is the time at which the program reaped the
    /// completion. If so, a worker reaps only the completions for which the next request waits.
    pub takes_only_awaited: bool,
    /// Source of the requests. None for a stored result, which cannot be measured again.
    pub source: Option<Arc<dyn ReplaySource>>,
}

/// Describes the requests of a replay, and how they are issued.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayDescription {
    /// Name of the trace.
    pub trace: String,
    /// Hash of the requests. Equal traces with equal changes have the same hash.
    pub fingerprint: u64,
    /// Number of requests, flushes included.
    pub requests: u64,
    /// Number of bytes that the requests read and write.
    pub bytes: u64,
    /// Duration of the program, from the start of its first request to the end of its last request
    /// (ns).
    pub recorded_ns: u64,
    /// When the requests are issued.
    pub pace: Pace,
    /// Changes to the recorded requests, such as "depth 8, flush every 16". Empty if there are
    /// none.
    pub changes: String,
    /// Whether requests beyond the end of the region wrap around to its beginning.
    pub folded: bool,
}

impl ReplayDescription {
    /// Returns the mean length of a request (bytes).
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
