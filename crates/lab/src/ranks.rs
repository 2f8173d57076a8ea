//! Several processes, called ranks, that measure together on one host or on many.
//!
//! A launcher such as mpirun starts a process for each rank, and every rank executes the same
//! command. All ranks start a trial at the same moment. When the trial ends, rank 0 merges the
//! results of all ranks and sends the merged result to every rank, so that all ranks continue with
//! the same trial. Only rank 0 prints and stores results.
//!
//! A rank consists of two processes. The *relay* ([`relay`]) is started by the launcher and
//! communicates with the other relays through the MPI library. The *worker* is a child process of
//! the relay, and performs the measurement. The standard input of the worker is a socket, through
//! which it exchanges messages with the relay. Because of the separate processes, the MPI library
//! uses no CPU time in the worker, and the relay can report that the worker died.

pub mod merge;
pub mod message;
pub mod link;
pub mod relay;
pub mod share;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use analysis::units;
use ioengine::{Clock, Monotonic};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::machine;
use crate::rank_trial::name_of;
use crate::ranks::link::{Heard, Link};
use crate::ranks::merge::{Merged, Part, RankResult};
use crate::ranks::message::{Hello, Message, Pong};

/// Environment variable that holds the rank of a worker and the number of ranks, such as `2/4`.
pub const RANK_VARIABLE: &str = "HALFPOWER_RANK";
/// Time between the message that announces the start of a trial and the start itself (ns). It is
/// long enough for the message to reach every rank.
const LEAD_NS: u64 = 20_000_000;
/// Number of times that the clocks of each rank are read. The reading with the shortest round trip
/// is used.
const PINGS: u32 = 16;
/// Maximum time for which rank 0 waits for results after an interrupt (ns). It is short, because a
/// launcher that ends a run kills all processes about a second after it tells them to stop.
const INTERRUPTED_WAIT_NS: u64 = 500_000_000;
/// Time without a message after which rank 0 reports which ranks it is waiting for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval at which rank 0 checks the interrupt flag while it waits for messages.
const TICK: Duration = Duration::from_millis(50);
/// A warning is printed if the wall clock of a rank differs from that of rank 0 by more than this
/// (ns).
const WALL_APART_NS: u64 = 1_000_000_000;

/// How far the clocks of another rank are ahead of those of rank 0.
#[derive(Clone, Copy, Debug, Default)]
struct Offset {
    /// `CLOCK_MONOTONIC` of the other rank minus that of rank 0 (ns).
    monotonic_ns: i64,
    /// Wall clock of the other rank minus that of rank 0 (ns).
    wall_ns: i64,
    /// Time between the message that requested the clocks and its answer (ns). The error of each
    /// offset is at most half of this time.
    round_trip_ns: u64,
}

/// The part of [`Ranks`] that changes while the ranks measure.
#[derive(Debug, Default)]
struct State {
    /// The lost ranks, each with the reason why it is lost.
    lost: BTreeMap<u32, String>,
    /// Time at which rank 0 noticed the interrupt (ns). None before an interrupt.
    interrupted_at_ns: Option<u64>,
}

/// This process, which is one of several ranks, and its connection to the other ranks.
#[derive(Debug)]
pub struct Ranks {
    /// Number of this rank, counted from 0.
    pub rank: u32,
    /// Name of the host of each rank, indexed by the number of the rank.
    pub hosts: Vec<String>,
    offsets: Vec<Offset>,
    link: Link,
    clock: Monotonic,
    interrupt: Interrupt,
    console: Console,
    state: RefCell<State>,
}

/// Reads the rank of this worker and the number of ranks from the environment. Returns None if this
/// process is not a worker.
pub fn of_environment() -> Option<(u32, u32)> {
    let text = std::env::var(RANK_VARIABLE).ok()?;
    let (rank, count) = text.split_once('/')?;
    let (rank, count) = (rank.parse().ok()?, count.parse().ok()?);
    (rank < count).then_some((rank, count))
}

/// Returns true if this process prints and stores results. This is so for the worker of rank 0, and
/// for a process that is not a worker.
pub fn is_first_or_only() -> bool {
    of_environment().is_none_or(|(rank, _)| rank == 0)
}

impl Ranks {
    /// Connects to the other ranks through the relay. Standard input is the socket to the relay.
    ///
    /// # Errors
    /// This process was not started by a relay, or a rank is lost or runs another version of
    /// halfpower.
    pub fn meet(console: Console, interrupt: &Interrupt) -> Outcome<Ranks> {
        let Some(ranks) = of_environment() else {
            return Err(Failure::usage(
                "this process was not started as a rank of halfpower; drop --mpi",
            ));
        };
        let no_relay = |error| {
            Failure::failed(format!(
                "standard input is not the connection to the other ranks: {error}"
            ))
        };
        let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(no_relay)?;
        let socket = UnixStream::from(socket);
        // `peer_addr` fails if standard input is not a socket. Without this check, messages could
        // be written to a file or a terminal.
        socket.peer_addr().map_err(no_relay)?;
        let link = Link::new(socket, interrupt)?;
        Ranks::introduce(link, ranks, console, interrupt)
    }

    fn introduce(
        link: Link,
        (rank, count): (u32, u32),
        console: Console,
        interrupt: &Interrupt,
    ) -> Outcome<Ranks> {
        let mut ranks = Ranks {
            rank,
            hosts: vec![String::new(); count as usize],
            offsets: vec![Offset::default(); count as usize],
            link,
            clock: Monotonic::new(),
            interrupt: interrupt.clone(),
            console,
            state: RefCell::new(State::default()),
        };
        let hello = Hello {
            host: machine::host_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clock_domain: clock_domain(),
        };
        if rank > 0 {
            ranks.link.send(0, &Message::Hello(hello))?;
            ranks.hosts = ranks.answer_until_hosts()?;
            return Ok(ranks);
        }
        let hellos = ranks.collect("to start", |message| match message {
            Message::Hello(hello) => Some(hello),
            _ => None,
        });
        ranks.check_lost()?;
        let all: Vec<Hello> = std::iter::once(hello).chain(hellos.into_iter().flatten()).collect();
        check_versions(&all)?;
        ranks.hosts = all.iter().map(|hello| hello.host.clone()).collect();
        let is_foreign = |(_, hello): &(u32, &Hello)| hello.clock_domain != all[0].clock_domain;
        let foreign: Vec<u32> = (0..).zip(&all).filter(is_foreign).map(|(rank, _)| rank).collect();
        ranks.compare_clocks(&foreign)?;
        ranks.to_all(&Message::Hosts(ranks.hosts.clone()));
        Ok(ranks)
    }

    /// Returns the number of ranks.
    pub fn count(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// Returns true if this is rank 0, which is the only rank that prints and stores results.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Formats a rank and its host for messages.
    fn name(&self, rank: u32) -> String {
        name_of(rank, self.hosts.get(rank as usize).map_or("", String::as_str))
    }

    /// Answers requests for the clocks of this rank until rank 0 sends the names of the hosts.
    fn answer_until_hosts(&self) -> Outcome<Vec<String>> {
        loop {
            match self.hear_first()? {
                Message::Ping(number) => {
                    let clocks = self.clock.clocks();
                    let (monotonic_ns, unix_ns) = (clocks.monotonic_ns(), clocks.unix_ns());
                    self.link.send(0, &Message::Pong(Pong { number, monotonic_ns, unix_ns }))?;
                }
                Message::Hosts(hosts) => return Ok(hosts),
                _ => {}
            }
        }
    }

    /// Measures the clock offsets of the ranks `foreign`, which do not share the clocks of rank 0.
    /// Uses Cristian's algorithm: rank 0 requests the clocks of each rank several times, uses the
    /// answer with the shortest round trip, and assumes that the clocks were read in the middle of
    /// the round trip. Warns if wall clocks differ by more than 1 s.
    fn compare_clocks(&mut self, foreign: &[u32]) -> Outcome<()> {
        for number in 0..PINGS {
            for &other in foreign {
                let asked_ns = self.clock.clocks();
                self.link.send(other, &Message::Ping(number))?;
                let pong = self.hear_of(other, |message| match message {
                    Message::Pong(pong) if pong.number == number => Some(pong),
                    _ => None,
                });
                self.check_lost()?;
                let Some(pong) = pong else { continue };
                let heard = self.clock.clocks();
                let round_trip_ns = heard.monotonic_ns().saturating_sub(asked_ns.monotonic_ns());
                let known = &mut self.offsets[other as usize];
                if number == 0 || round_trip_ns < known.round_trip_ns {
                    let middle_ns = asked_ns.monotonic_ns() + round_trip_ns / 2;
                    let wall_ns = asked_ns.unix_ns() + (round_trip_ns / 2) as i64;
                    *known = Offset {
                        monotonic_ns: pong.monotonic_ns.wrapping_sub(middle_ns) as i64,
                        wall_ns: pong.unix_ns - wall_ns,
                        round_trip_ns,
                    };
                }
            }
        }
        for &other in foreign {
            let Offset { wall_ns, .. } = self.offsets[other as usize];
            if wall_ns.unsigned_abs() > WALL_APART_NS {
                self.console.warn(format!(
                    "the wall clock of {} is {} {} the wall clock of rank 0; measured times are \
                     correct, but logs and files of that host get wrong dates; set its clock \
                     (chrony, ntpd)",
                    self.name(other),
                    units::time(wall_ns.unsigned_abs() as f64),
                    if wall_ns > 0 { "ahead of" } else { "behind" }
                ));
            }
        }
        Ok(())
    }

    /// Waits until all ranks are ready, and returns the time at which all ranks start the trial
    /// (ns, on the clock of this process). `what` describes the trial, and must be the same on all
    /// ranks.
    ///
    /// # Errors
    /// A rank is lost, or is about to measure another trial.
    pub fn start_together(&self, what: &str) -> Outcome<u64> {
        if !self.is_first() {
            self.link.send(0, &Message::Ready(what.to_owned()))?;
            loop {
                if let Message::Go(at_ns) = self.hear_first()? {
                    return Ok(self.clock.clocks().ours_near(at_ns));
                }
            }
        }
        let ready = self.collect("to be ready", |message| match message {
            Message::Ready(what) => Some(what),
            _ => None,
        });
        self.check_lost()?;
        for (other, theirs) in (1..).zip(&ready) {
            if let Some(theirs) = theirs.as_ref().filter(|theirs| *theirs != what) {
                return Err(Failure::failed(format!(
                    "{} is about to measure '{theirs}', but rank 0 is about to measure '{what}'; \
                     start all ranks with the same command and similar targets",
                    self.name(other)
                )));
            }
        }
        let clocks = self.clock.clocks();
        let at_ns = clocks.monotonic_ns() + LEAD_NS;
        for other in 1..self.count() {
            let theirs = at_ns.saturating_add_signed(self.offsets[other as usize].monotonic_ns);
            self.send_to(other, &Message::Go(theirs));
        }
        Ok(clocks.ours_near(at_ns))
    }

    /// Merges the results of all ranks, and returns the merged result on every rank. Times in `own`
    /// are on the `CLOCK_MONOTONIC` of this host, and times in the merged result are on the
    /// `CLOCK_MONOTONIC` of rank 0. In the merged result, the counts of a lost rank are 0. If one
    /// rank was interrupted, the run of all ranks ends.
    ///
    /// # Errors
    /// Rank 0 is lost, or no rank has a result.
    pub fn merge(&self, own: RankResult) -> Outcome<Merged> {
        let merged =
            if self.is_first() { self.merge_all(own)? } else { self.merged_by_first(own)? };
        if merged.sample.interrupted {
            self.interrupt.set();
        }
        Ok(merged)
    }

    fn merged_by_first(&self, own: RankResult) -> Outcome<Merged> {
        self.link.send(0, &Message::Result(Box::new(own)))?;
        loop {
            if let Message::Merged(merged) = self.hear_first()? {
                return Ok(*merged);
            }
        }
    }

    fn merge_all(&self, own: RankResult) -> Outcome<Merged> {
        let results = self.collect("to finish", |message| match message {
            Message::Result(result) => Some(*result),
            _ => None,
        });
        let parts = {
            let lost = &self.state.borrow().lost;
            let why = |rank| lost.get(&rank).cloned().unwrap_or_default();
            let part = |(rank, result): (u32, Option<RankResult>)| Part {
                rank,
                host: self.hosts[rank as usize].clone(),
                offset_ns: self.offsets[rank as usize].monotonic_ns,
                result: result.ok_or_else(|| why(rank)),
            };
            (0..).zip(std::iter::once(Some(own)).chain(results)).map(part).collect()
        };
        let merged = Box::new(merge::merge(parts).map_err(Failure::failed)?);
        let message = Message::Merged(merged);
        self.to_all(&message);
        let Message::Merged(merged) = message else { return Err(bug("no merged result")) };
        Ok(*merged)
    }

    /// Sends the value of rank 0 to all ranks, and returns it on every rank.
    ///
    /// # Errors
    /// Rank 0 is lost.
    pub fn agree<T: Serialize + DeserializeOwned>(&self, value: T) -> Outcome<T> {
        if self.is_first() {
            let text = serde_json::to_string(&value).map_err(bug)?;
            self.to_all(&Message::Value(text));
            return Ok(value);
        }
        loop {
            if let Message::Value(text) = self.hear_first()? {
                return serde_json::from_str(&text).map_err(bug);
            }
        }
    }

    /// Collects the values of all ranks, in the order of the ranks, and returns them on every rank.
    ///
    /// # Errors
    /// A rank is lost.
    pub fn gather<T: Serialize + DeserializeOwned + Clone>(&self, value: &T) -> Outcome<Vec<T>> {
        if !self.is_first() {
            self.link.send(0, &Message::Value(serde_json::to_string(value).map_err(bug)?))?;
            return self.agree(Vec::new());
        }
        let others = self.collect("to prepare their targets", |message| match message {
            Message::Value(text) => serde_json::from_str(&text).ok(),
            _ => None,
        });
        self.check_lost()?;
        let all = std::iter::once(value.clone()).chain(others.into_iter().flatten()).collect();
        self.agree(all)
    }

    /// Fails if a rank was lost.
    ///
    /// # Errors
    /// A rank was lost. The message contains the reason.
    pub fn check_lost(&self) -> Outcome<()> {
        let state = self.state.borrow();
        let Some((first, why)) = state.lost.iter().next() else { return Ok(()) };
        let more = match state.lost.len() {
            1 => String::new(),
            count => format!(" (and {})", units::counted(count as u64 - 1, "more rank")),
        };
        Err(Failure::failed(format!("{} was lost: {why}{more}", self.name(*first))))
    }

    /// Sends a message to a rank. Does nothing if the rank is lost.
    fn send_to(&self, rank: u32, message: &Message) {
        if !self.state.borrow().lost.contains_key(&rank) {
            let _ = self.link.send(rank, message);
        }
    }

    fn to_all(&self, message: &Message) {
        (1..self.count()).for_each(|other| self.send_to(other, message));
    }

    /// Waits for the next message from rank 0. Fails if rank 0 is lost.
    fn hear_first(&self) -> Outcome<Message> {
        let gone = |why: &str| {
            let name = self.name(0);
            Err(Failure::failed(format!("{name}, which collects the results, was lost: {why}")))
        };
        loop {
            match self.link.hear(PATIENCE) {
                Heard::Message(_, Message::Lost(0, why)) => return gone(&why),
                Heard::Message(0, message) => return Ok(message),
                Heard::Message(..) | Heard::Nothing => {}
                Heard::Closed => return gone("the connection was closed"),
            }
        }
    }

    /// Waits for the next message from a rank, passes it to `pick`, and returns the result. None if
    /// the rank is lost.
    fn hear_of<T>(&self, rank: u32, pick: impl Fn(Message) -> Option<T>) -> Option<T> {
        loop {
            if self.state.borrow().lost.contains_key(&rank) {
                return None;
            }
            match self.link.hear(PATIENCE) {
                Heard::Message(_, Message::Lost(lost, why)) => self.lose(lost, &why),
                Heard::Message(from, message) if from == rank => return pick(message),
                Heard::Message(..) | Heard::Nothing => {}
                Heard::Closed => self.lose(rank, "the connection was closed"),
            }
        }
    }

    /// Waits for one message from every other rank, and passes each message to `pick`. Returns the
    /// results in the order of the ranks, with None for a lost rank. `what` completes the progress
    /// message "waiting for rank 1 ...".
    fn collect<T>(&self, what: &str, pick: impl Fn(Message) -> Option<T>) -> Vec<Option<T>> {
        let mut collected: Vec<Option<T>> = (1..self.count()).map(|_| None).collect();
        let mut silent_since_ns = self.clock.now_ns();
        loop {
            let missing: Vec<u32> = (1..self.count())
                .filter(|other| collected[*other as usize - 1].is_none())
                .filter(|other| !self.state.borrow().lost.contains_key(other))
                .collect();
            if missing.is_empty() {
                return collected;
            }
            match self.link.hear(TICK) {
                Heard::Message(from, message) => {
                    silent_since_ns = self.clock.now_ns();
                    if let Message::Lost(rank, why) = message {
                        self.lose(rank, &why);
                    } else if missing.contains(&from) {
                        match pick(message) {
                            Some(picked) => collected[from as usize - 1] = Some(picked),
                            None => self.lose(from, "the rank sent an unexpected message"),
                        }
                    }
                }
                Heard::Nothing => {
                    let silent_ns = self.clock.now_ns() - silent_since_ns;
                    if u128::from(silent_ns) > PATIENCE.as_nanos() {
                        silent_since_ns = self.clock.now_ns();
                        self.console.say(format!("waiting for {} {what}", self.names(&missing)));
                    }
                }
                Heard::Closed => {
                    missing.iter().for_each(|other| self.lose(*other, "the connection was closed"));
                }
            }
            if self.is_over() {
                let silent =
                    missing.iter().filter(|other| collected[**other as usize - 1].is_none());
                silent.for_each(|other| {
                    self.lose(*other, "the rank sent nothing for 0.5 s after the interrupt");
                });
            }
        }
    }

    /// Formats several ranks for a message, such as `rank 1 (host) and 2 more`.
    fn names(&self, ranks: &[u32]) -> String {
        match ranks {
            [] => String::new(),
            [one] => self.name(*one),
            [one, others @ ..] => format!("{} and {} more", self.name(*one), others.len()),
        }
    }

    /// Returns true if rank 0 has waited long enough for results after an interrupt.
    fn is_over(&self) -> bool {
        if !self.interrupt.is_set() {
            return false;
        }
        let now_ns = self.clock.now_ns();
        let since_ns = *self.state.borrow_mut().interrupted_at_ns.get_or_insert(now_ns);
        now_ns - since_ns > INTERRUPTED_WAIT_NS
    }

    /// Records that a rank is lost. If a rank is lost several times, the first reason is kept.
    fn lose(&self, rank: u32, why: &str) {
        self.state.borrow_mut().lost.entry(rank).or_insert_with(|| why.to_owned());
    }
}

/// Fails if ranks run different versions of halfpower, because their results could differ in
/// meaning.
fn check_versions(all: &[Hello]) -> Outcome<()> {
    let first = &all[0];
    let Some((rank, other)) = (0..).zip(all).find(|(_, one)| one.version != first.version) else {
        return Ok(());
    };
    Err(Failure::failed(format!(
        "{} runs halfpower {}, but {} runs {}; install the same version on all hosts",
        name_of(rank, &other.host),
        other.version,
        name_of(0, &first.host),
        first.version
    )))
}

fn bug(error: impl Display) -> Failure {
    Failure::failed(format!("a message between ranks is invalid: {error}; please report this bug"))
}

/// Returns a text that identifies the monotonic clock of this process. Processes with the same boot
/// and time namespace share this clock.
fn clock_domain() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    format!("{} {}", boot.trim(), namespace.display())
}
