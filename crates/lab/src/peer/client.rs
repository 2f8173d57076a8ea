//! The client of a halfpower peer: reads the counters of the server around every trial.
//!
//! If the peer becomes unreachable, the study continues. [`ServerWatch`] then warns once and
//! returns no more counters.

use std::cell::RefCell;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use crate::console::Console;
use crate::failure::{Failure, Outcome};
use crate::machine;
use crate::peer::channel::{Channel, ChannelError, MESSAGE_BYTES_MAX};
use crate::peer::counters::Counters;
use crate::peer::key::Key;
use crate::peer::message::{self, Greeting, ReadTrial, ReadTrialResult, Reply, Request, shortened};

/// Time limit for connecting and for the handshake.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Time limit for an answer, in addition to the length of a read trial.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The address and the key of the peer that a study uses.
#[derive(Clone, Debug)]
pub struct PeerAddress {
    /// Host and port of the peer.
    pub address: String,
    /// Path of the key file.
    pub key_file: PathBuf,
    /// Path of the file behind the network targets, relative to the folder of the peer. The peer
    /// also reads this file directly, for comparison. None if the peer reads no file.
    pub path: Option<String>,
}

/// A connection to a peer.
#[derive(Debug)]
struct PeerClient {
    address: String,
    channel: Channel,
}

/// Why a request got no answer.
enum NoAnswer {
    /// The peer refused the request, for this reason.
    Refused(String),
    /// The peer is unreachable or sent an invalid answer, for this reason.
    Gone(String),
}

impl PeerClient {
    fn connect(address: &str, key: &Key) -> Outcome<PeerClient> {
        let failed = |cause: String, remedy: &str| {
            Failure::failed(format!("the halfpower peer {address}: {cause}; {remedy}"))
        };
        let start = "start it on the server with halfpower peer --dir DIR --listen ADDRESS";
        let found = address.to_socket_addrs().map_err(|_| {
            Failure::usage(format!(
                "--peer {address} cannot be resolved; use HOST:PORT, such as 127.0.0.1:7750"
            ))
        })?;
        let mut cause = "the host name has no address".to_owned();
        for one in found {
            match TcpStream::connect_timeout(&one, CONNECT_TIME) {
                Ok(stream) => {
                    let channel = Channel::connect(stream, key, CONNECT_TIME);
                    let channel = channel.map_err(|error| no_handshake(address, &error))?;
                    return Ok(PeerClient { address: address.to_owned(), channel });
                }
                Err(error) => cause = ioengine::error::cause(&error),
            }
        }
        Err(failed(cause, start))
    }

    fn ask(&mut self, request: &Request, length: Duration) -> Result<Reply, NoAnswer> {
        let address = &self.address;
        let gone = |why: String| NoAnswer::Gone(format!("the halfpower peer {address}: {why}"));
        let sent = self.channel.send(&message::encode(request));
        sent.map_err(|error| gone(error.to_string()))?;
        let answer = self.channel.receive(length + ANSWER_TIME, MESSAGE_BYTES_MAX);
        let answer = answer.and_then(|answer| answer.ok_or(ChannelError::Closed));
        let answer = answer.map_err(|error| gone(error.to_string()))?;
        match message::decode(&answer).map_err(gone)? {
            Reply::Refused(why) => Err(NoAnswer::Refused(shortened(&why))),
            reply => Ok(reply),
        }
    }
}

/// Returns the error of a failed handshake. A server that has another key closes the connection
/// without an answer, so that an attacker learns nothing. If the connection was closed, the error
/// therefore mentions the key.
fn no_handshake(address: &str, error: &ChannelError) -> Failure {
    let cause = match error {
        ChannelError::Closed | ChannelError::WrongKey => {
            "the server refused this key, or is not a halfpower peer".to_owned()
        }
        other => other.to_string(),
    };
    Failure::failed(format!(
        "the halfpower peer {address}: {cause}; check that halfpower peer printed this address, \
         and specify a copy of the server's key file with --peer-key"
    ))
}

/// Reads the counters of a server while trials run on this host.
#[derive(Debug)]
pub struct ServerWatch {
    console: Console,
    client: RefCell<PeerClient>,
    greeting: Greeting,
    /// Why no more counters are available; None while the peer answers.
    ended: RefCell<Option<String>>,
}

impl ServerWatch {
    /// Connects to a peer.
    ///
    /// # Errors
    /// The key file or the address cannot be used, or the peer does not answer. The error contains
    /// the remedy.
    pub fn connect(peer: &PeerAddress, console: Console) -> Outcome<ServerWatch> {
        let key = Key::read(&peer.key_file)?;
        let mut client = PeerClient::connect(&peer.address, &key)?;
        let greeting = match client.ask(&Request::Hello {}, Duration::ZERO) {
            Ok(Reply::Hello(greeting)) => *greeting,
            Ok(_) => {
                return Err(Failure::failed(format!(
                    "the halfpower peer {} sent an unexpected answer; use the same version of \
                     halfpower on client and server",
                    peer.address
                )));
            }
            Err(NoAnswer::Refused(why)) => {
                let address = &peer.address;
                return Err(Failure::failed(format!("the halfpower peer {address}: {why}")));
            }
            Err(NoAnswer::Gone(why)) => {
                return Err(Failure::failed(format!(
                    "{why}; use the same key file and version of halfpower on both sides"
                )));
            }
        };
        Ok(ServerWatch {
            console,
            client: RefCell::new(client),
            greeting,
            ended: RefCell::new(None),
        })
    }

    /// Returns the version and the machine of the server.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Returns true if the server runs on this machine, as equal boot ids show. The CPU time of the
    /// server then includes the CPU time of the client.
    pub fn is_this_machine(&self) -> bool {
        let boot_id = machine::boot_id();
        !boot_id.is_empty() && boot_id == self.greeting.host.boot_id
    }

    /// Returns the current counters of the server, or None if the peer no longer answers.
    pub fn counters(&self) -> Option<Counters> {
        match self.ask(&Request::Counters {}, Duration::ZERO)? {
            Ok(Reply::Counters(counters)) => Some(counters),
            Ok(_) => self.end("the halfpower peer sent an unexpected answer"),
            Err(why) => self.end(&why),
        }
    }

    /// Measures how fast the server itself reads a file. Returns None if the peer no longer
    /// answers.
    ///
    /// # Errors
    /// The server refuses the trial. The error contains the remedy.
    pub fn read_trial(&self, trial: &ReadTrial) -> Option<Result<ReadTrialResult, String>> {
        let length = Duration::from_millis(trial.milliseconds.into());
        match self.ask(&Request::ReadTrial(trial.clone()), length)? {
            Ok(Reply::ReadTrial(result)) => Some(Ok(result)),
            Ok(_) => self.end("the halfpower peer sent an unexpected answer"),
            Err(why) => Some(Err(why)),
        }
    }

    /// Returns the reason why no more counters are available, or None while the peer answers.
    pub fn ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Sends a request. Returns the answer, or the reason if the server refuses the request.
    /// Returns None if the peer no longer answers.
    fn ask(&self, request: &Request, length: Duration) -> Option<Result<Reply, String>> {
        if self.ended.borrow().is_some() {
            return None;
        }
        let asked = self.client.borrow_mut().ask(request, length);
        match asked {
            Ok(reply) => Some(Ok(reply)),
            Err(NoAnswer::Refused(why)) => Some(Err(why)),
            Err(NoAnswer::Gone(why)) => self.end(&why),
        }
    }

    /// Records why no more counters are available, and warns at the first call.
    fn end<T>(&self, why: &str) -> Option<T> {
        if self.ended.borrow().is_none() {
            self.console
                .warn(format!("{why}; the study continues without the counters of the server"));
            self.ended.replace(Some(why.to_owned()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;
    use crate::peer::server::testing::{KEY, server};
    use crate::peer::server::{Limits, Server};
    use std::fmt::Write as _;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::fs::OpenOptionsExt;
    use std::thread;

    /// Creates a key file in which every byte of the key is `byte`.
    fn key_file(byte: u8) -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
        let mut digits = String::new();
        KEY.iter().for_each(|_| write!(digits, "{byte:02x}").unwrap());
        file.write_all(digits.as_bytes()).unwrap();
        (place, path)
    }

    fn connect(address: &str, key: u8) -> Outcome<ServerWatch> {
        let (_place, key_file) = key_file(key);
        let peer = PeerAddress { address: address.to_owned(), key_file, path: None };
        ServerWatch::connect(&peer, Console::new(true))
    }

    fn watch(server: &Server) -> ServerWatch {
        connect(&server.address().to_string(), KEY[0]).unwrap()
    }

    #[test]
    fn the_counters_of_a_server_on_this_machine_are_read_and_labelled_as_such() {
        let (_place, server) = server(Limits::default());
        let watch = watch(&server);
        assert!(watch.is_this_machine());
        let (first, second) = (watch.counters().unwrap(), watch.counters().unwrap());
        assert!(second.since(&first).elapsed_ns > 0);
    }

    #[test]
    fn another_key_is_one_clear_failure_with_the_remedy() {
        let (_place, server) = server(Limits::default());
        let failure = connect(&server.address().to_string(), KEY[0] + 1).unwrap_err();
        assert_eq!(failure.exit, Exit::Failed);
        let message = failure.message;
        assert!(
            message.contains("refused this key") && message.contains("--peer-key"),
            "{message}"
        );
    }

    #[test]
    fn a_server_that_goes_away_ends_the_figures_and_nothing_hangs() {
        let (_place, server) = server(Limits::default());
        let watch = watch(&server);
        assert!(watch.counters().is_some());
        server.stop();
        assert!(watch.counters().is_none() && watch.counters().is_none());
        assert!(watch.ended().unwrap().contains("was closed"), "{:?}", watch.ended());
    }

    #[test]
    fn what_is_no_peer_is_a_clear_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answering = thread::spawn(move || {
            for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0, 48], &[0xff; 60], &[]] {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 58]);
                let _ = stream.write_all(answer);
            }
        });
        for _ in 0..4 {
            let failure = connect(&address, KEY[0]).unwrap_err();
            assert!(failure.message.contains("--peer-key"), "{failure}");
        }
        answering.join().unwrap();
        let nobody = connect(&address, KEY[0]).unwrap_err();
        assert!(nobody.message.contains("start it on the server"), "{nobody}");
        assert_eq!(connect("nowhere", KEY[0]).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn what_the_server_refuses_is_told_and_the_figures_go_on() {
        let (_place, server) = server(Limits::default());
        let watch = watch(&server);
        let trial = ReadTrial {
            path: "../secret".to_owned(),
            request_bytes: 4096,
            depth: 1,
            random: false,
            direct: false,
            milliseconds: 10,
        };
        assert!(watch.read_trial(&trial).unwrap().unwrap_err().contains("must be relative"));
        assert!(watch.read_trial(&ReadTrial { path: "data".to_owned(), ..trial }).unwrap().is_ok());
        assert!(watch.counters().is_some() && watch.ended().is_none());
    }
}
