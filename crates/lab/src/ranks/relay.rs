//! The relay of a rank: starts the worker, and carries messages between it and the other ranks.
//!
//! A relay sends a sign of life once a second, so that a host that dies is noticed. It sleeps
//! between messages: a library such as MPI, which spins while it waits, would take CPU time from
//! the measurement.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ioengine::{Clock, Monotonic};

use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::ranks::RANK_VARIABLE;
use crate::ranks::link::{read_frame, write_frame};
use crate::ranks::message::Message;

/// Shortest and longest sleep between two checks for messages from the transport.
const SLEEP: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(10)];
/// Interval of the signs of life (ns).
const HEARTBEAT_NS: u64 = 1_000_000_000;
/// A relay that is silent for longer counts as lost (ns).
const SILENCE_NS: u64 = 15_000_000_000;
/// A relay that does not take a message for longer counts as lost (ns). This is less than
/// `SILENCE_NS`, because the waiting relay sends no signs of life.
const STUCK_NS: u64 = 10_000_000_000;
/// Time for which a worker may go on after rank 0 has ended (ns).
const GRACE_NS: u64 = 5_000_000_000;
/// Part of a worker's error output that is kept (bytes).
const ERRORS_BYTES: usize = 4096;

/// Carries messages between the relays of a run.
pub trait Transport {
    /// Number of this rank.
    fn rank(&self) -> u32;
    /// Number of ranks.
    fn count(&self) -> u32;
    /// Sends a message to another rank. An empty message is a sign of life. While the other rank
    /// does not take it, `give_up` is called repeatedly. If it returns an exit code, the run of all
    /// ranks ends at once.
    fn send(&mut self, to: u32, message: &[u8], give_up: &mut dyn FnMut() -> Option<u8>);
    /// The next message that has arrived, with the rank that sent it; None if there is none yet.
    fn receive(&mut self) -> Option<(u32, Vec<u8>)>;
}

/// How the worker of a rank ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code of the worker; 1 if a signal killed it.
    pub code: u8,
    /// Whether all other relays were alive at the end. If not, the launcher's library must not wait
    /// for them.
    pub all_alive: bool,
}

/// The worker process and its end of the socket.
struct Worker {
    child: Child,
    socket: UnixStream,
    frames: Receiver<(u32, Vec<u8>)>,
    errors: Option<JoinHandle<String>>,
}

impl Worker {
    /// Tells the worker that a rank takes no messages, waits until it has ended, and returns its
    /// exit code.
    fn end_without(&mut self, rank: u32, lost: u32, clock: &Monotonic) -> u8 {
        let why = format!("it took no message for {} s", STUCK_NS / 1_000_000_000);
        let message = serde_json::to_vec(&Message::Lost(lost, why)).unwrap_or_default();
        let _ = write_frame(&mut &self.socket, rank, &message);
        let until_ns = clock.now_ns() + GRACE_NS;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return exit_code(status).max(1),
                Ok(None) if clock.now_ns() < until_ns => clock.sleep(SLEEP[1]),
                _ => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        1
    }
}

/// The exit code of a worker; 1 if a signal killed it.
fn exit_code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Starts the worker of a rank, carries its messages until it ends, and says how it ended.
///
/// `command` is the program with its arguments. Workers of other ranks than 0 print nothing.
///
/// # Errors
/// The worker cannot be started.
pub fn carry(
    transport: &mut dyn Transport,
    command: &mut Command,
    interrupt: &Interrupt,
) -> Outcome<Ended> {
    let worker = start(transport, command).map_err(|error| {
        Failure::failed(format!("starting the measuring process: {error}; raise ulimit -u"))
    })?;
    let clock = Monotonic::uncalibrated();
    let now_ns = clock.now_ns();
    let count = transport.count() as usize;
    let mut relay = Relay {
        transport,
        worker,
        clock,
        heard_ns: vec![now_ns; count],
        lost: vec![false; count],
        beat_ns: now_ns,
        told_interrupt: false,
        first_ended_ns: None,
    };
    let status = relay.until_worker_ends(interrupt);
    Ok(relay.leave(status))
}

fn start(transport: &dyn Transport, command: &mut Command) -> io::Result<Worker> {
    let (socket, theirs) = UnixStream::pair()?;
    let (rank, count) = (transport.rank(), transport.count());
    command.env(RANK_VARIABLE, format!("{rank}/{count}"));
    // The worker has its own process group: signals for the launcher's processes reach it only
    // through its relay.
    command.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
    if rank > 0 {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
    }
    let mut child = command.spawn()?;
    // Closes our copy of the worker's end, so that the socket ends with the worker.
    command.stdin(Stdio::null());
    let errors = child.stderr.take().map(|stderr| thread::spawn(move || last_of(stderr)));
    let mut reader = socket.try_clone()?;
    let (sender, frames) = channel();
    thread::spawn(move || {
        while let Ok(Some(frame)) = read_frame(&mut reader) {
            if sender.send(frame).is_err() {
                return;
            }
        }
    });
    Ok(Worker { child, socket, frames, errors })
}

/// The last line of a stream, read to its end.
fn last_of(mut stream: impl Read) -> String {
    let (mut kept, mut part) = (Vec::new(), [0; ERRORS_BYTES]);
    while let Ok(count @ 1..) = stream.read(&mut part) {
        kept.extend_from_slice(&part[..count]);
        let surplus = kept.len().saturating_sub(ERRORS_BYTES);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&kept);
    text.trim_end().lines().last().unwrap_or_default().to_owned()
}

struct Relay<'a> {
    transport: &'a mut dyn Transport,
    worker: Worker,
    clock: Monotonic,
    /// When each rank was last heard of (ns).
    heard_ns: Vec<u64>,
    lost: Vec<bool>,
    beat_ns: u64,
    told_interrupt: bool,
    /// When rank 0 said that it ended (ns).
    first_ended_ns: Option<u64>,
}

impl Relay<'_> {
    fn is_first(&self) -> bool {
        self.transport.rank() == 0
    }

    /// Carries messages until the worker has ended.
    fn until_worker_ends(&mut self, interrupt: &Interrupt) -> ExitStatus {
        let mut sleep = SLEEP[0];
        loop {
            let frame = self.worker.frames.recv_timeout(sleep);
            let from_worker = frame.is_ok();
            match frame {
                Ok((to, message)) => self.send(to, &message),
                Err(RecvTimeoutError::Timeout) => {}
                // The worker has closed its socket, so it is about to end.
                Err(RecvTimeoutError::Disconnected) => self.clock.sleep(sleep),
            }
            let from_others = self.receive();
            sleep = if from_worker || from_others { SLEEP[0] } else { SLEEP[1].min(sleep * 2) };
            if interrupt.is_set() && !self.told_interrupt {
                self.told_interrupt = true;
                self.tell_worker(self.transport.rank(), &Message::Interrupt);
            }
            self.beat();
            let now_ns = self.clock.now_ns();
            if self.first_ended_ns.is_some_and(|ns| now_ns - ns > GRACE_NS) {
                let _ = self.worker.child.kill();
            }
            if let Ok(Some(status)) = self.worker.child.try_wait() {
                while let Ok((to, message)) = self.worker.frames.recv_timeout(SLEEP[1]) {
                    self.send(to, &message);
                }
                return status;
            }
        }
    }

    /// Reports how the worker ended, and waits until rank 0 has ended.
    fn leave(mut self, status: ExitStatus) -> Ended {
        let rank = self.transport.rank();
        let errors = self.worker.errors.take().and_then(|errors| errors.join().ok());
        let why = how_it_ended(status, &errors.unwrap_or_default());
        let message = serde_json::to_vec(&Message::Lost(rank, why)).unwrap_or_default();
        let others = if rank == 0 { 1..self.transport.count() } else { 0..1 };
        others.for_each(|other| self.send(other, &message));
        while !self.is_first() && self.first_ended_ns.is_none() && !self.lost[0] {
            self.clock.sleep(SLEEP[1]);
            self.receive();
            self.beat();
        }
        let code = exit_code(status);
        Ended { code, all_alive: !self.lost.contains(&true) }
    }

    fn send(&mut self, to: u32, message: &[u8]) {
        let is_other = to != self.transport.rank() && to < self.transport.count();
        if !is_other || self.lost[to as usize] {
            return;
        }
        let (rank, clock, worker) = (self.transport.rank(), self.clock, &mut self.worker);
        let begun_ns = clock.now_ns();
        let mut give_up = || {
            let is_stuck = clock.now_ns() - begun_ns > STUCK_NS;
            is_stuck.then(|| worker.end_without(rank, to, &clock))
        };
        self.transport.send(to, message, &mut give_up);
    }

    /// Passes on all messages that have arrived; returns whether there was one.
    fn receive(&mut self) -> bool {
        let mut any = false;
        while let Some((from, message)) = self.transport.receive() {
            let Some(heard_ns) = self.heard_ns.get_mut(from as usize) else { continue };
            *heard_ns = self.clock.now_ns();
            if message.is_empty() {
                continue;
            }
            any = true;
            let is_end = matches!(serde_json::from_slice(&message), Ok(Message::Lost(0, _)));
            if from == 0 && is_end {
                self.first_ended_ns = Some(self.clock.now_ns());
            }
            // A worker that has ended needs no messages.
            let _ = write_frame(&mut &self.worker.socket, from, &message);
        }
        any
    }

    /// Sends a sign of life if one is due, and notices silent relays.
    fn beat(&mut self) {
        let now_ns = self.clock.now_ns();
        if now_ns - self.beat_ns < HEARTBEAT_NS {
            return;
        }
        self.beat_ns = now_ns;
        let others = if self.is_first() { 1..self.transport.count() } else { 0..1 };
        for other in others {
            let index = other as usize;
            if !self.lost[index] && now_ns - self.heard_ns[index] > SILENCE_NS {
                self.lost[index] = true;
                let why = format!("nothing was heard of it for {} s", SILENCE_NS / 1_000_000_000);
                self.tell_worker(self.transport.rank(), &Message::Lost(other, why));
            }
            self.send(other, &[]);
        }
    }

    fn tell_worker(&self, from: u32, message: &Message) {
        if let Ok(text) = serde_json::to_vec(message) {
            let _ = write_frame(&mut &self.worker.socket, from, &text);
        }
    }
}

/// How a worker ended, in words.
fn how_it_ended(status: ExitStatus, errors: &str) -> String {
    let how = match (status.signal(), status.code()) {
        (Some(signal), _) => format!("its measuring process was killed by signal {signal}"),
        (None, code) => format!("it ended with exit code {}", code.unwrap_or(1)),
    };
    if errors.is_empty() { how } else { format!("{how}: {errors}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay of two whose other end takes nothing.
    struct Frozen {
        ended_with: Option<u8>,
    }

    impl Transport for Frozen {
        fn rank(&self) -> u32 {
            0
        }

        fn count(&self) -> u32 {
            2
        }

        fn send(&mut self, _: u32, _: &[u8], give_up: &mut dyn FnMut() -> Option<u8>) {
            let clock = Monotonic::uncalibrated();
            while self.ended_with.is_none() {
                clock.sleep(SLEEP[1]);
                self.ended_with = give_up();
            }
        }

        fn receive(&mut self) -> Option<(u32, Vec<u8>)> {
            None
        }
    }

    #[test]
    fn a_rank_that_takes_no_message_does_not_hold_the_others_for_ever() {
        let mut transport = Frozen { ended_with: None };
        // A worker that ends when it is told something.
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 1 > /dev/null; exit 3"]);
        carry(&mut transport, &mut command, &Interrupt::default()).unwrap();
        assert_eq!(transport.ended_with, Some(3));
    }

    #[test]
    fn the_end_of_a_worker_is_told_in_words() {
        let killed = ExitStatus::from_raw(9);
        assert_eq!(how_it_ended(killed, ""), "its measuring process was killed by signal 9");
        let failed = ExitStatus::from_raw(1 << 8);
        assert_eq!(how_it_ended(failed, "no space"), "it ended with exit code 1: no space");
    }

    #[test]
    fn only_the_last_line_of_long_error_output_is_kept() {
        let text = "noise\n".repeat(10_000) + "the cause\n";
        assert_eq!(last_of(text.as_bytes()), "the cause");
    }
}
