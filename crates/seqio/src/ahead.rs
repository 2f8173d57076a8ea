//! Adapts the queue depth while a stream runs: doubles the depth as long as this increases the
//! rate.
//!
//! The rate is measured over a window of blocks at one depth, and then over a window at twice this
//! depth. If the second rate is at least `GAIN` times the first rate, the depth is doubled again.
//! Otherwise, the depth returns to the lower value and stays there. At most one window of a stream
//! therefore runs at a depth that brings no gain.
//!
//! A window in which the program was slower than the storage tells nothing about the depth. It is
//! ignored before the depth is first doubled, and ends the search afterwards.

use ioengine::clock::{Clock, Monotonic};

/// Minimum ratio of the new rate to the old rate for which a doubled depth is kept.
const GAIN: f64 = 1.05;
/// Minimum length of a window (blocks).
const WINDOW_BLOCKS: u64 = 64;
/// Minimum length of a window (ns). In this time, the clock resolution and short stalls have little
/// influence on the rate.
const WINDOW_NS: u64 = 50_000_000;
/// Minimum share of blocks for which the program had to wait. If the share in a window is smaller,
/// the program is slower than the storage.
const WAITED_SHARE: f64 = 0.5;

/// The queue depth of a stream, which is adapted while the stream runs.
#[derive(Debug)]
pub(crate) struct Depth {
    now: u32,
    most: u32,
    searching: bool,
    /// Rate of the last window at half the current depth (blocks per ns). None before the depth is
    /// first doubled.
    before: Option<f64>,
    since_ns: u64,
    blocks: u64,
    waited: u64,
    clock: Monotonic,
}

impl Depth {
    /// Starts at depth `now`. The depth never exceeds `most`.
    pub fn new(now: u32, most: u32) -> Depth {
        let clock = Monotonic::uncalibrated();
        let (now, since_ns) = (now.clamp(1, most.max(1)), clock.now_ns());
        let searching = now < most;
        Depth { now, most, searching, before: None, since_ns, blocks: 0, waited: 0, clock }
    }

    /// Returns the current depth.
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Counts a block. `waited` is true if the program had to wait for the block.
    pub fn count(&mut self, waited: bool) {
        if !self.searching {
            return;
        }
        self.blocks += 1;
        self.waited += u64::from(waited);
        if self.blocks >= WINDOW_BLOCKS {
            let now_ns = self.clock.now_ns();
            if now_ns - self.since_ns >= WINDOW_NS {
                self.window(now_ns - self.since_ns);
                (self.since_ns, self.blocks, self.waited) = (now_ns, 0, 0);
            }
        }
    }

    /// Starts a new window, because the stream paused or moved to another offset.
    pub fn restart(&mut self) {
        (self.since_ns, self.blocks, self.waited) = (self.clock.now_ns(), 0, 0);
    }

    /// Evaluates a finished window and may change the depth.
    fn window(&mut self, took_ns: u64) {
        let tells = self.waited as f64 >= self.blocks as f64 * WAITED_SHARE;
        let rate = self.blocks as f64 / took_ns.max(1) as f64;
        match self.before {
            // The program no longer waits at this depth, so a larger depth cannot help.
            Some(_) if !tells => self.searching = false,
            None if !tells => {}
            Some(before) if rate < before * GAIN => {
                self.now = (self.now / 2).max(1);
                self.searching = false;
            }
            _ if self.now < self.most => {
                self.before = Some(rate);
                self.now = (self.now * 2).min(self.most);
            }
            _ => self.searching = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates windows until the search ends. `rate` returns the rate at a depth. Returns the
    /// final depth and the number of windows.
    fn settled(most: u32, rate: impl Fn(u32) -> f64) -> (u32, u32) {
        let mut depth = Depth::new(2, most);
        let mut windows = 0;
        while depth.searching && windows < 100 {
            (depth.blocks, depth.waited) = (100, 90);
            let took_ns = 100.0 / rate(depth.now) * 1e6;
            depth.window(took_ns as u64);
            windows += 1;
        }
        (depth.now, windows)
    }

    #[test]
    fn the_depth_doubles_while_the_rate_grows_and_then_returns_to_the_last_gain() {
        assert_eq!(settled(64, |depth| f64::from(depth.min(8))), (8, 4));
        assert_eq!(settled(64, |_| 1.0), (2, 2), "no gain: only one window runs at a larger depth");
        assert_eq!(settled(8, f64::from), (8, 3), "the depth stays within the limit");
    }

    #[test]
    fn a_slow_program_does_not_change_the_depth() {
        let mut depth = Depth::new(2, 8);
        (depth.blocks, depth.waited) = (100, 10);
        depth.window(1_000_000);
        assert_eq!((depth.now, depth.searching), (2, true));
    }
}
