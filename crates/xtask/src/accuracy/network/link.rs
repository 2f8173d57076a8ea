//! Creates two network namespaces, one for the client and one for the server, joined by a veth
//! pair. The rate from the server to the client is limited.
//!
//! The kernel's token bucket filter (TBF, tc-tbf(8)) limits the rate of Ethernet frames. It counts
//! the headers of a frame, but not the preamble and the checksum. A plain TCP transfer by this
//! process measures the payload rate of the link independently of the program under test.

use crate::bench::clock::Stopwatch;
use crate::faults::tally::Missing;
use crate::server::{Site, installed};
use anyhow::{Context as _, Result, bail};
use nix::sched::{CloneFlags, setns};
use nix::unistd::geteuid;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Rate limit from the server to the client (bits/s), including Ethernet headers.
const RATE_BITS: u64 = 200_000_000;
/// Size of the token bucket (bytes). The bucket holds the tokens of 5 ms, so that no tokens are
/// lost if a timer fires late. If the bucket is full at the start, the rate of a transfer of 2 s
/// exceeds the rate limit by at most 0.3%.
const BURST_BYTES: u64 = 128 << 10;
/// Maximum size of the filter's queue (bytes). TCP never queues this much, so no frame is dropped.
const QUEUE_BYTES: u64 = 8 << 20;
/// Size of a full frame (bytes): the Ethernet header (14) and the MTU.
const FRAME_BYTES: f64 = 1514.0;
/// Payload of a full frame (bytes): the MTU (1500) minus the IPv4 header (20) and the TCP header
/// with timestamps (32, RFC 9293 section 3.1 and RFC 7323 section 3).
const PAYLOAD_BYTES: f64 = 1448.0;
/// Duration of the plain TCP transfer.
const TRANSFER: Duration = Duration::from_secs(2);
/// Client address and server address, from the block reserved for benchmarks (RFC 2544 section
/// C.2.2).
const CLIENT: &str = "198.18.0.1";
const SERVER: &str = "198.18.0.2";

/// Returns the maximum payload rate of the link (bytes/s).
pub fn goodput() -> f64 {
    RATE_BITS as f64 / 8.0 * PAYLOAD_BYTES / FRAME_BYTES
}

/// Two network namespaces and the link between them. Dropping the value removes them.
pub struct Link {
    client: String,
    server: String,
}

impl Link {
    /// Creates the namespaces and the link.
    ///
    /// # Errors
    /// `Missing` if this process does not run as root, if `ip` or `tc` is not installed, or if one
    /// of their commands fails.
    pub fn new() -> Result<Link> {
        if !geteuid().is_root() {
            bail!(Missing("network namespaces need root".to_owned()));
        }
        let process = std::process::id();
        let name = |side: &str| format!("halfpower-{process}-{side}");
        // If a later step fails, dropping `link` removes what was created.
        let link = Link { client: name("client"), server: name("server") };
        let (client, server) = (&link.client, &link.server);
        configure(&format!("ip netns add {client}"))?;
        configure(&format!("ip netns add {server}"))?;
        configure(&format!(
            "ip link add link0 netns {client} type veth peer name link0 netns {server}"
        ))?;
        for (name, address) in [(client, CLIENT), (server, SERVER)] {
            configure(&format!("ip -n {name} address add {address}/30 dev link0"))?;
            configure(&format!("ip -n {name} link set lo up"))?;
            configure(&format!("ip -n {name} link set link0 mtu 1500 up"))?;
        }
        configure(&format!(
            "tc -n {server} qdisc add dev link0 root tbf rate {RATE_BITS}bit burst {BURST_BYTES}b \
             limit {QUEUE_BYTES}b"
        ))?;
        Ok(link)
    }

    /// Returns the address on which servers listen and the namespace in which they run.
    pub fn site(&self) -> Site<'_> {
        Site { host: SERVER, namespace: Some(&self.server) }
    }

    /// Returns the command prefix that runs a program in the client's namespace.
    pub fn enter(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.client]
    }

    /// Sends bytes from the server's side to the client's side over one TCP connection and returns
    /// the rate (bytes/s).
    ///
    /// # Errors
    /// If a namespace cannot be entered or the connection fails.
    pub fn plain_transfer(&self) -> Result<f64> {
        let (client, server) = (self.client.clone(), self.server.clone());
        let (port_sender, port) = channel();
        // A thread belongs to one network namespace, so each side needs a separate thread.
        thread::spawn(move || -> Result<()> {
            enter(&server)?;
            let listener = TcpListener::bind((SERVER, 0)).context("cannot listen")?;
            port_sender.send(listener.local_addr()?.port())?;
            let (mut connection, _) = listener.accept()?;
            let bytes = vec![0x55; 256 << 10];
            // The loop ends when the client has received enough and closes the connection.
            while connection.write_all(&bytes).is_ok() {}
            Ok(())
        });
        let receive = move || -> Result<f64> {
            enter(&client)?;
            let port = port.recv().context("the test server did not open its port")?;
            let mut connection = TcpStream::connect((SERVER, port)).context("cannot connect")?;
            connection.set_read_timeout(Some(TRANSFER))?;
            let (mut buffer, mut bytes) = (vec![0; 256 << 10], 0);
            let watch = Stopwatch::start();
            while watch.elapsed() < TRANSFER {
                bytes += connection.read(&mut buffer).context("the transfer ended early")?;
            }
            Ok(bytes as f64 / watch.elapsed().as_secs_f64())
        };
        let receiver = thread::spawn(receive);
        receiver.join().map_err(|_| anyhow::anyhow!("the receiver of the transfer panicked"))?
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Removing the namespaces also removes the veth pair. An error is ignored, because a
        // namespace may not have been created.
        for name in [&self.client, &self.server] {
            let _ = configure(&format!("ip netns del {name}"));
        }
    }
}

/// Moves this thread into a network namespace.
fn enter(namespace: &str) -> Result<()> {
    let file = File::open(format!("/run/netns/{namespace}"))
        .with_context(|| format!("cannot open the namespace {namespace}"))?;
    setns(file, CloneFlags::CLONE_NEWNET).context("cannot enter a namespace")
}

/// Runs a command that creates or removes a part of the link.
fn configure(line: &str) -> Result<()> {
    let mut words = line.split_whitespace();
    let program = installed(words.next().context("the command is empty")?)?;
    let output = Command::new(program).args(words).output().context("cannot start a program")?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        bail!(Missing(format!("`{line}` fails: {}", message.trim().replace('\n', " "))));
    }
    Ok(())
}
