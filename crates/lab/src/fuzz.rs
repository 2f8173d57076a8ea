//! Fuzz targets for simulated systems and for the protocol of `halfpower peer`.
//!
//! They check that every accepted system file can be written, read back, built and simulated, and
//! that no input makes a peer or its client panic or hang.

use std::fmt::Write;
use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path};
use std::time::Duration;

use crate::peer::channel::{Channel, MESSAGE_BYTES_MAX};
use crate::peer::counters::Counters;
use crate::peer::key::{KEY_BYTES, Key};
use crate::peer::message::{self, Reply, Request};
use crate::peer::{folder, read_trial};
use crate::simulated::caching_of;
use ioengine::Op;
use simulator::bounds::{self, Shape};
use simulator::{Description, Driver, System};

/// Maximum number of disks in a system. Systems with more disks are not simulated.
const DISKS_BUILT: u32 = 64;
/// Maximum number of events simulated for one request.
const EVENTS_MAX: usize = 2000;

/// The rest of a fuzz input, which is decoded into numbers, flags and texts. Every input is valid,
/// and a small change of the input changes few of the decoded values. After the end of the input,
/// all decoded values are zero or empty.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// Returns true if the whole input has been decoded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decodes a byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Decodes a flag from the lowest bit of a byte.
    pub fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// Decodes a number of up to 63 bits. All lengths from 0 to 8 bytes are equally likely.
    pub fn number(&mut self) -> u64 {
        let length = usize::from(self.byte() % 9);
        let value = (0..length).fold(0, |value, _| value << 8 | u64::from(self.byte()));
        value & i64::MAX as u64
    }

    /// Decodes a 2-byte length, and then a text of that length, but at most `most` bytes.
    pub fn text(&mut self, most: usize) -> String {
        let length = usize::from(self.byte()) << 8 | usize::from(self.byte());
        let (text, rest) = self.0.split_at(length.min(most).min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}

/// Fuzzes simulated systems. The input is a complete system file. The input can also be the name of
/// a built-in system, followed by lines of the form `KEY=VALUE` that change this system.
pub fn system(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let named = Description::named(lines.next().unwrap_or_default().trim());
    let (mut description, changes) = match named {
        Ok(description) => (description, lines),
        Err(_) => match Description::read(&text, "system.toml") {
            Ok(description) => (description, "".lines()),
            Err(refused) => return assert!(!refused.to_string().contains('\n'), "{refused}"),
        },
    };
    for (key, value) in changes.filter_map(|line| line.split_once('=')) {
        let before = description.keys();
        if let Err(refused) = description.set(key, value) {
            assert!(refused.to_string().contains(key), "{refused}");
        }
        assert_eq!(description.keys(), before, "a change must not add or remove keys");
    }
    read_again(&description);
    if let Ok(system) = description.system() {
        work(&system, data.first().copied().unwrap_or(0));
    }
}

fn read_again(description: &Description) {
    let text = description.text();
    let again =
        Description::read(&text, "again").expect("halfpower cannot read its own system file");
    assert_eq!(again.text(), text);
    let seen = |of: &Description| {
        let line = |text: &mut String, key: String| {
            let _ = write!(text, "{key} {:?} ", of.value_of(&key));
        };
        of.keys().into_iter().fold(String::new(), |mut text, key| {
            line(&mut text, key);
            text
        })
    };
    assert_eq!(seen(&again), seen(description));
}

fn work(system: &System, choice: u8) {
    if system.setup.disks > DISKS_BUILT {
        return;
    }
    let op = [Op::Read, Op::Write][usize::from(choice & 1)];
    let caching = caching_of(system);
    let request_bytes = 4096;
    let shape =
        Shape { op, random: choice & 2 != 0, request_bytes, depth: 1, caching, bytes: None };
    let bounds = bounds::of(system, &shape);
    assert!(bounds.iter().all(|bound| bound.bytes_per_s >= 0.0), "{bounds:?}");
    let mut driver = Driver::new(system, caching, 1);
    if driver.most_bytes() < u64::from(request_bytes) {
        return;
    }
    driver.submit(0, 7, op, 0, request_bytes);
    let mut done = Vec::new();
    for _ in 0..EVENTS_MAX {
        let Some(next_ns) = driver.next_ns().filter(|_| done.is_empty()) else { break };
        driver.advance(next_ns, &mut done);
    }
    assert!(done.len() <= 1 && driver.in_flight() as usize + done.len() == 1);
}

/// Fuzzes the protocol of `halfpower peer`. The first byte selects what the other bytes are: a
/// request, two answers of a server, or the bytes that a client sends during the handshake.
pub fn peer(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    match first % 3 {
        0 => peer_handshake(data),
        1 => peer_request(data),
        _ => peer_answers(data),
    }
}

/// Checks that a peer accepts no request from a client without the key, whatever bytes the client
/// sends. The bytes may also be a recorded handshake.
fn peer_handshake(data: &[u8]) {
    let Ok((mut client, server)) = UnixStream::pair() else { return };
    // Bytes that do not fit into the socket buffer are not sent.
    let _ = client.set_nonblocking(true);
    let _ = client.write_all(data);
    let _ = client.shutdown(Shutdown::Write);
    let (key, limit) = (Key::new([42; KEY_BYTES]), Duration::from_secs(1));
    let stream = TcpStream::from(OwnedFd::from(server));
    if let Ok(mut channel) = Channel::accept(stream, &key, limit) {
        let request = channel.receive(limit, MESSAGE_BYTES_MAX);
        assert!(!matches!(request, Ok(Some(_))), "a request was accepted without the key");
    }
}

/// Checks that a request does not change when it is encoded and decoded again. Checks that
/// `folder::check` refuses paths outside the folder, and that `read_trial::check` refuses trials
/// that take more than 10 s or need more than 64 MiB of memory.
fn peer_request(data: &[u8]) {
    let request = match message::decode::<Request>(data) {
        Ok(request) => request,
        Err(why) => return assert!(why.contains(';') && !why.contains(char::is_control), "{why}"),
    };
    assert_eq!(message::decode::<Request>(&message::encode(&request)).as_ref(), Ok(&request));
    let Request::ReadTrial(trial) = request else { return };
    if folder::check(&trial.path).is_ok() {
        let is_normal = |part| matches!(part, Component::Normal(_));
        assert!(Path::new(&trial.path).components().all(is_normal), "{trial:?}");
    }
    if read_trial::check(&trial).is_ok() {
        assert!(u64::from(trial.request_bytes) * u64::from(trial.depth) <= 64 << 20, "{trial:?}");
        assert!(trial.milliseconds <= 10_000, "{trial:?}");
    }
}

/// Decodes two answers, one per line. If both contain counters, checks that the CPU usage computed
/// from their difference is finite.
fn peer_answers(data: &[u8]) {
    let counters = |line: &[u8]| -> Option<Counters> {
        match message::decode::<Reply>(line).ok()? {
            Reply::Counters(counters) => Some(counters),
            Reply::Refused(why) => {
                assert!(!message::shortened(&why).contains(char::is_control));
                None
            }
            _ => None,
        }
    };
    let mut lines = data.splitn(2, |byte| *byte == b'\n').filter_map(counters);
    if let (Some(before), Some(after)) = (lines.next(), lines.next()) {
        let usage = after.since(&before);
        assert!(usage.busy_cpus().is_finite() && usage.interfaces.len() <= after.interfaces.len());
    }
}
