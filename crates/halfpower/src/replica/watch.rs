//! What sees the bytes of a copy go by: it counts them, slows them down, sums them up, notes how
//! far they are, and ends the copy when the user wants it to.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ioengine::{Clock, Monotonic};
use seqio::copy::Watch;

use super::resume::State;
use super::{Settings, Tally};

/// Bytes between two notes of how far a copy is, and time (ns).
const NOTE_BYTES: u64 = 256 << 20;
const NOTE_NS: u64 = 2_000_000_000;
/// How long somebody who is slowed down does not look whether to stop (ns).
const NAP_NS: u64 = 50_000_000;

/// A rate that all threads together do not exceed.
#[derive(Debug)]
pub struct Limiter {
    bytes_per_s: Option<f64>,
    taken: AtomicU64,
    since_ns: u64,
    clock: Monotonic,
}

impl Limiter {
    /// From now on; None: no limit.
    pub fn new(bytes_per_s: Option<f64>) -> Limiter {
        let clock = Monotonic::uncalibrated();
        let (taken, since_ns) = (AtomicU64::new(0), clock.now_ns());
        Limiter { bytes_per_s, taken, since_ns, clock }
    }

    /// Waits until so many more bytes may go, or `stop` says so.
    fn take(&self, bytes: u64, stop: impl Fn() -> bool) {
        let Some(rate) = self.bytes_per_s else { return };
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        let due_ns = self.since_ns + (before as f64 / rate * 1e9) as u64;
        while !stop() {
            let left_ns = due_ns.saturating_sub(self.clock.now_ns());
            if left_ns == 0 {
                return;
            }
            self.clock.sleep(Duration::from_nanos(left_ns.min(NAP_NS)));
        }
    }
}

/// Where it is noted how far a copy is.
#[derive(Debug)]
pub struct Notes {
    /// What is noted.
    pub state: State,
    /// The copy, and its path.
    pub file: File,
    /// See above.
    pub partial: PathBuf,
    noted_ns: u64,
    clock: Monotonic,
}

impl Notes {
    /// Notes of a copy that has come so far.
    pub fn new(state: State, file: File, partial: PathBuf) -> Notes {
        let clock = Monotonic::uncalibrated();
        Notes { state, file, partial, noted_ns: clock.now_ns(), clock }
    }

    /// Notes it now and then.
    fn written(&mut self, up_to: u64) -> io::Result<()> {
        let now_ns = self.clock.now_ns();
        let far = up_to - self.state.done_bytes >= NOTE_BYTES;
        let late = now_ns - self.noted_ns >= NOTE_NS;
        if up_to > self.state.done_bytes && (far || late) {
            self.note(up_to)?;
            self.noted_ns = now_ns;
        }
        Ok(())
    }

    /// Makes the copy durable so far and notes it.
    pub fn note(&mut self, up_to: u64) -> io::Result<()> {
        self.file.sync_data()?;
        self.state.done_bytes = up_to;
        self.state.keep(&self.partial)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Eyes<'a> {
    settings: &'a Settings,
    /// The checksum of what has gone by.
    pub hasher: Option<blake3::Hasher>,
    /// Where it is noted how far it is.
    pub notes: Option<Notes>,
    /// How far it is, as counted in the tally (bytes).
    pub seen: u64,
}

impl<'a> Eyes<'a> {
    /// Eyes on a copy that begins at a place.
    pub fn new(settings: &'a Settings, begin: u64) -> Eyes<'a> {
        let hasher = settings.verify.then(blake3::Hasher::new);
        Eyes { settings, hasher, notes: None, seen: begin }
    }
}

impl Watch for Eyes<'_> {
    fn wants_data(&self) -> bool {
        self.hasher.is_some()
    }

    fn data(&mut self, _offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(data);
        }
        Tally::add(&self.settings.tally.moved_bytes, data.len() as u64);
        self.settings.limiter.take(data.len() as u64, || self.settings.interrupt.is_set());
        self.settings.check()
    }

    fn hole(&mut self, _offset: u64, bytes: u64) -> io::Result<()> {
        if let Some(hasher) = &mut self.hasher {
            let zeros = [0; 64 << 10];
            let mut left = bytes;
            while left > 0 {
                let part = left.min(zeros.len() as u64);
                hasher.update(&zeros[..part as usize]);
                left -= part;
            }
        }
        self.settings.check()
    }

    fn written(&mut self, up_to: u64) -> io::Result<()> {
        Tally::add(&self.settings.tally.bytes, up_to.saturating_sub(self.seen));
        self.seen = self.seen.max(up_to);
        if let Some(notes) = &mut self.notes {
            notes.written(up_to)?;
        }
        self.settings.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_over_all_threads() {
        let clock = Monotonic::uncalibrated();
        let limiter = Limiter::new(Some(1e6));
        let start_ns = clock.now_ns();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..5).for_each(|_| limiter.take(20_000, || false)));
            }
        });
        // Of ten parts of 20 ms each the last goes when nine are through.
        assert!(clock.now_ns() - start_ns >= 180_000_000);
        limiter.take(1 << 40, || true);
        Limiter::new(None).take(u64::MAX, || false);
    }
}
