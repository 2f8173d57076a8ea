//! The state of a worker after a step, and the calls on the target that the worker leaves to its
//! caller.

use ioengine::Hint;

/// The state of a worker after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The worker can take its next step at once.
    Running,
    /// The worker has nothing to do until a request completes or becomes due.
    Waiting,
    /// A call on the target is due, and all requests that it must wait for are complete. The caller
    /// must make the call and then report it with [`Worker::called`] or [`Replayer::called`].
    ///
    /// [`Worker::called`]: crate::worker::Worker::called
    /// [`Replayer::called`]: crate::replayer::Replayer::called
    CallDue(TargetCall),
    /// No request is in flight, and no more requests will be issued.
    Done,
}

/// A call on a target that is neither a read nor a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetCall {
    /// Make all earlier writes durable.
    Flush {
        /// Whether to flush like fdatasync(2), which writes the data and only the metadata that is
        /// needed to find the data.
        data_only: bool,
    },
    /// Reset a zone, so that it can be written again from its beginning.
    ResetZone {
        /// Offset of the zone (bytes).
        offset: u64,
        /// Length of the zone (bytes).
        bytes: u64,
    },
    /// Give the kernel a hint about future accesses to a range of the target.
    Advise {
        /// The hint.
        hint: Hint,
        /// Offset of the range (bytes).
        offset: u64,
        /// Length of the range (bytes), or 0 for a range up to the end of the target.
        bytes: u64,
    },
}
