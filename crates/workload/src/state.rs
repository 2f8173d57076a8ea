//! The state of a worker after a step, and the calls on a target that the worker asks its caller to
//! make.

use ioengine::Hint;

/// The state of a worker after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is more to do.
    Running,
    /// Nothing to do until a request completes or becomes due.
    Waiting,
    /// A call on the target is due, and all requests that it must wait for are complete. The caller
    /// must make the call and then report it with [`Worker::called`] or [`Replayer::called`].
    ///
    /// [`Worker::called`]: crate::worker::Worker::called
    /// [`Replayer::called`]: crate::replayer::Replayer::called
    CallDue(TargetCall),
    /// Nothing is in flight, and nothing more will be issued.
    Done,
}

/// A call on a target that is neither a read nor a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetCall {
    /// Make everything written durable.
    Flush {
        /// Like fdatasync(2): only the metadata needed to find the data.
        data_only: bool,
    },
    /// Empty a zone, so that it can be written again.
    ResetZone {
        /// Where it begins (bytes).
        offset: u64,
        /// Its length (bytes).
        bytes: u64,
    },
    /// Announce the coming accesses to a part of the target.
    Advise {
        /// What is announced.
        hint: Hint,
        /// Where the part begins (bytes).
        offset: u64,
        /// Its length (bytes); 0: up to the end.
        bytes: u64,
    },
}
