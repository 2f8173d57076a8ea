//! The relay of a rank, which starts the worker and forwards messages between the worker and the
//! other ranks.
//!
//! A relay sends a heartbeat once a second, so that the failure of a host is noticed. Between
//! messages the relay sleeps, because an MPI library that waits for messages spins and would take
//! CPU time from the measurement.

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

/// Shortest and longest time for which a relay sleeps between two checks for messages.
const SLEEP: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(10)];
/// Interval between heartbeats (ns).
const HEARTBEAT_NS: u64 = 1_000_000_000;
/// Time without a message or heartbeat after which a relay counts as lost (ns).
const SILENCE_NS: u64 = 15_000_000_000;
/// Time after which a relay that accepts no message counts as lost (ns). While a relay waits to
/// send a message, the waiting relay sends no heartbeats. This time is shorter than `SILENCE_NS`,
/// so that the waiting relay does not count as lost.
const STUCK_NS: u64 = 10_000_000_000;
/// Maximum time for which a worker may continue after rank 0 has ended or a rank was lost (ns).
const GRACE_NS: u64 = 5_000_000_000;
/// Number of bytes that are kept from the end of a worker's error output.
const ERRORS_BYTES: usize = 4096;

/// Sends and receives the messages between the relays of a run.
pub trait Transport {
    /// Returns the number of this rank.
    fn rank(&self) -> u32;
    /// Returns the number of ranks.
    fn count(&self) -> u32;
    /// Sends a message to another rank. An empty message is a heartbeat. While the other rank does
    /// not accept the message, `give_up` is called repeatedly. If `give_up` returns an exit code,
    /// the run of all ranks ends at once.
    fn send(&mut self, to: u32, message: &[u8], give_up: &mut dyn FnMut() -> Option<u8>);
    /// Returns the next message that has arrived and the rank that sent it. None if no message has
    /// arrived.
    fn receive(&mut self) -> Option<(u32, Vec<u8>)>;
}

/// How the worker of a rank ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code of the worker. 1 if a signal killed the worker.
    pub code: u8,
    /// Whether all relays that this relay watches are alive. If false, the MPI library must not
    /// wait for the other ranks, because the wait would never end. The relay of rank 0 watches all
    /// other relays. Each other relay watches only the relay of rank 0.
    pub all_alive: bool,
}

/// The worker process, and the relay's end of the socket to it.
struct Worker {
    child: Child,
    socket: UnixStream,
    frames: Receiver<(u32, Vec<u8>)>,
    errors: Option<JoinHandle<String>>,
}

impl Worker {
    /// Reports to the worker that rank `lost` accepts no messages, and waits until the worker ends.
    /// Kills a worker that does not end in time. Returns the exit code, which is at least 1.
    fn end_without(&mut self, rank: u32, lost: u32, clock: &Monotonic) -> u8 {
        let why = format!("the rank accepted no message for {} s", STUCK_NS / 1_000_000_000);
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

/// Returns the exit code of a worker. 1 if a signal killed the worker.
fn exit_code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Starts the worker of a rank, forwards messages until the worker ends, and returns how it ended.
///
/// `command` is the program with its arguments. Only the worker of rank 0 prints anything.
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
    // The worker runs in a separate process group, so that signals from the launcher reach it only
    // through the relay.
    command.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
    if rank > 0 {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
    }
    let mut child = command.spawn()?;
    // The standard input in `command` is a copy of the worker's end of the socket. Replacing it
    // closes this copy. Otherwise the connection would stay open after the worker ended.
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

/// Reads a stream to its end and returns its last line.
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
    /// Time of the last message or heartbeat from each rank (ns).
    heard_ns: Vec<u64>,
    lost: Vec<bool>,
    beat_ns: u64,
    told_interrupt: bool,
    /// Time at which rank 0 reported that it has ended (ns). None while rank 0 runs.
    first_ended_ns: Option<u64>,
}

impl Relay<'_> {
    fn is_first(&self) -> bool {
        self.transport.rank() == 0
    }

    /// Forwards messages until the worker has ended.
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

    /// Reports to other relays how the worker ended, and waits until rank 0 has ended or is lost.
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

    /// Forwards all messages that have arrived, except heartbeats, to the worker. Returns whether a
    /// message was forwarded.
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
            // An error is ignored, because a worker that has ended needs no messages.
            let _ = write_frame(&mut &self.worker.socket, from, &message);
        }
        any
    }

    /// Sends heartbeats if they are due, and reports silent relays as lost.
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
                let why = format!("the rank sent nothing for {} s", SILENCE_NS / 1_000_000_000);
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

/// Describes how a worker ended.
fn how_it_ended(status: ExitStatus, errors: &str) -> String {
    let how = match (status.signal(), status.code()) {
        (Some(signal), _) => format!("the measuring process was killed by signal {signal}"),
        (None, code) => format!("the rank ended with exit code {}", code.unwrap_or(1)),
    };
    if errors.is_empty() { how } else { format!("{how}: {errors}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transport of rank 0 in a run of two ranks. Rank 1 accepts no messages.
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
        // This worker ends with exit code 3 as soon as it receives a byte.
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 1 > /dev/null; exit 3"]);
        carry(&mut transport, &mut command, &Interrupt::default()).unwrap();
        assert_eq!(transport.ended_with, Some(3));
    }

    #[test]
    fn the_end_of_a_worker_is_told_in_words() {
        let killed = ExitStatus::from_raw(9);
        assert_eq!(how_it_ended(killed, ""), "the measuring process was killed by signal 9");
        let failed = ExitStatus::from_raw(1 << 8);
        assert_eq!(how_it_ended(failed, "no space"), "the rank ended with exit code 1: no space");
    }

    #[test]
    fn only_the_last_line_of_long_error_output_is_kept() {
        let text = "noise\n".repeat(10_000) + "the cause\n";
        assert_eq!(last_of(text.as_bytes()), "the cause");
    }
}
