//! Starts the request streams of several threads at the same time.
//!
//! Each thread takes a [`Place`]. When its stream is ready, the thread calls [`Place::wait`]. If
//! its stream failed, the thread drops the place instead. When every thread has done one or the
//! other, a coordinating thread sets the start time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use workload::Error;

#[derive(Debug, Default)]
struct State {
    /// Number of streams that are ready or have failed.
    reported: usize,
    /// When all streams start (ns of the clock). `None` until this is decided. `Some(None)` if the
    /// streams must not start.
    start_ns: Option<Option<u64>>,
}

/// Lets several streams start at the same time.
#[derive(Debug, Default)]
pub struct CommonStart {
    state: Mutex<State>,
    changed: Condvar,
}

/// The handle with which one thread reports that its stream is ready or failed, and waits for the
/// start.
#[derive(Debug)]
pub struct Place<'a> {
    start: &'a CommonStart,
    has_reported: bool,
}

impl CommonStart {
    /// Creates a handle for one more stream.
    pub fn place(&self) -> Place<'_> {
        Place { start: self, has_reported: false }
    }

    /// Waits until `streams` streams are ready or have failed.
    pub fn wait_for_all(&self, streams: usize) {
        let mut state = self.state();
        while state.reported < streams {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sets the start time of all streams (ns of the clock). With None, [`Place::wait`] returns an
    /// error.
    pub fn begin(&self, start_ns: Option<u64>) {
        self.state().start_ns = Some(start_ns);
        self.changed.notify_all();
    }

    /// Locks the state. Poisoning is ignored, because nothing panics while the lock is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Reports that the stream is ready, and waits for the start time (ns of the clock).
    ///
    /// # Errors
    /// [`CommonStart::begin`] was called with None.
    pub fn wait(&mut self) -> Result<u64, Error> {
        self.report();
        let mut state = self.start.state();
        loop {
            match state.start_ns {
                Some(Some(start_ns)) => return Ok(start_ns),
                Some(None) => return Err(Error::Start("the streams cannot start".to_owned())),
                None => {
                    let changed = self.start.changed.wait(state);
                    state = changed.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn report(&mut self) {
        if !std::mem::replace(&mut self.has_reported, true) {
            self.start.state().reported += 1;
            self.start.changed.notify_all();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn all_streams_get_the_same_time_although_one_failed() {
        let start = CommonStart::default();
        let times = thread::scope(|scope| {
            let threads = [1, 2].map(|_| scope.spawn(|| start.place().wait().ok()));
            scope.spawn(|| drop(start.place()));
            start.wait_for_all(3);
            start.begin(Some(7));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(times, [Some(7), Some(7)]);
    }

    #[test]
    fn no_stream_starts_if_they_must_not() {
        let start = CommonStart::default();
        thread::scope(|scope| {
            let thread = scope.spawn(|| start.place().wait().is_err());
            start.wait_for_all(1);
            start.begin(None);
            assert!(thread.join().unwrap());
        });
    }
}
