//! The server of `halfpower peer`, which authenticates clients and answers their requests.
//!
//! Each connection has a thread. The server limits the number of connections, the duration of a
//! handshake, the length and rate of requests, and the rate of read trials. Only one read trial
//! runs at a time.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use analysis::units;
use ioengine::device::Device;
use ioengine::host::device_of;
use ioengine::{Clock, Monotonic};

use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::machine::Host;
use crate::peer::channel::{Channel, ChannelError};
use crate::peer::counters::Counters;
use crate::peer::folder::Folder;
use crate::peer::key::{self, Key};
use crate::peer::message::{self, Greeting, REQUEST_BYTES_MAX, Reply, Request};
use crate::peer::read_trial;

/// Interval between checks for Ctrl-C.
const TICK: Duration = Duration::from_millis(100);
/// Pause after `accept` failed, for example because too many files are open.
const AFTER_ERROR: Duration = Duration::from_millis(100);
/// Minimum time between two warnings about refused clients (ns).
const LINE_EVERY_NS: u64 = 1_000_000_000;
/// Stack size of a connection's thread.
const STACK_BYTES: usize = 512 << 10;

/// The options of `halfpower peer`.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// The folder whose files may be read.
    pub folder: PathBuf,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Path of the key file. None: [`key::FILE_NAME`] in the working directory. If that file is
    /// missing, it is created.
    pub key_file: Option<PathBuf>,
    /// Maximum rate of a read trial (bytes per second).
    pub bytes_per_s_max: u64,
    /// Whether to print only warnings and errors.
    pub quiet: bool,
    /// Whether to only print what the server would do.
    pub plan: bool,
}

/// Limits that protect the server from its clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections that have not yet sent their first request.
    pub handshakes: usize,
    /// Maximum number of authenticated connections.
    pub clients: usize,
    /// Time limit for the handshake. The first request after the handshake has a separate time
    /// limit of the same length.
    pub handshake: Duration,
    /// Maximum time between two requests.
    pub idle: Duration,
    /// Maximum rate of requests on a connection (requests per second).
    pub requests_per_s: u32,
    /// Number of requests that a connection may send at once without being delayed.
    pub burst: u32,
    /// Maximum rate of a read trial (bytes per second).
    pub bytes_per_s: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            handshakes: 16,
            clients: 4,
            handshake: Duration::from_secs(5),
            // A client is silent during its trial. Every trial of a study is shorter than this.
            idle: Duration::from_secs(900),
            requests_per_s: 50,
            burst: 50,
            bytes_per_s: (1_u64 << 30) as f64,
        }
    }
}

/// Runs the server until Ctrl-C.
///
/// # Errors
/// A usage error or a refusal if the folder, the key file or the maximum rate cannot be used. A
/// failure if the address cannot be used.
pub fn serve(options: &PeerOptions) -> Outcome {
    if options.bytes_per_s_max == 0 {
        return Err(Failure::usage("--max-rate 0 allows no reads; use a rate such as 1g"));
    }
    let folder = Folder::open(&options.folder)?;
    let key_file = options.key_file.clone().unwrap_or_else(|| key::FILE_NAME.into());
    if options.plan {
        let is_there = key_file.symlink_metadata().is_ok();
        let (name, make) = (key_file.display(), if is_there { "use" } else { "create" });
        let rate = units::size(options.bytes_per_s_max);
        console::data(&format!(
            "would listen on {}, {make} the key file {name}, serve counters of this machine, and \
             let clients read files below {} at up to {rate}/s; nothing was done",
            options.listen,
            options.folder.display()
        ));
        return Ok(Exit::Ok);
    }
    let console = Console::new(options.quiet);
    let (key, made) = key_of(options, &key_file)?;
    if made {
        console.say(format!("created the key file {}; only you can read it", key_file.display()));
    }
    let interrupt = Interrupt::install();
    let limits = Limits { bytes_per_s: options.bytes_per_s_max as f64, ..Limits::default() };
    let device = device_of(&options.folder);
    let server = Server::start(options.listen, Served { folder, device, key, limits, console })?;
    say_how(options, &console, server.address(), &key_file);
    console::data(&server.address().to_string());
    let clock = Monotonic::new();
    while !interrupt.is_set() {
        clock.sleep(TICK);
    }
    server.stop();
    Ok(Exit::Ok)
}

/// Reads the key file. Creates it if it is missing and the user specified no key file. The returned
/// bool is true if the file was created.
fn key_of(options: &PeerOptions, key_file: &Path) -> Outcome<(Key, bool)> {
    let is_there = key_file.symlink_metadata().is_ok();
    if is_there {
        return Ok((Key::read(key_file)?, false));
    }
    if options.key_file.is_some() {
        return Err(Failure::usage(format!(
            "the key file {} does not exist; drop --key-file to create {} in the working directory",
            key_file.display(),
            key::FILE_NAME
        )));
    }
    Ok((Key::make(key_file)?, true))
}

/// Prints what is served, and the command to run on the client.
fn say_how(options: &PeerOptions, console: &Console, address: SocketAddr, key_file: &Path) {
    let (folder, rate) = (options.folder.display(), units::size(options.bytes_per_s_max));
    console.say(format!(
        "serving counters of this machine and the content of files below {folder} (at most \
         {rate}/s), until Ctrl-C"
    ));
    let name = key_file.file_name().map(PathBuf::from).unwrap_or_default();
    let (host, port) = (Host::read().name, address.port());
    if address.ip().is_loopback() {
        let key = key_file.canonicalize().unwrap_or_else(|_| key_file.to_path_buf());
        console.say(format!(
            "run on this machine: halfpower study network ADDRESS --peer {address} --peer-key {}",
            key.display()
        ));
        console.say(format!(
            "or copy the key file to another machine, and run there: ssh -N -L {port}:{address} \
             {host} & halfpower study network ADDRESS --peer 127.0.0.1:{port} --peer-key {}",
            name.display()
        ));
        return;
    }
    let address =
        if address.ip().is_unspecified() { format!("{host}:{port}") } else { address.to_string() };
    console.say(format!(
        "copy the key file to the client, and run there: halfpower study network ADDRESS --peer \
         {address} --peer-key {}",
        name.display()
    ));
}

/// Configuration of a [`Server`].
#[derive(Debug)]
pub struct Served {
    /// The folder whose files may be read.
    pub folder: Folder,
    /// The block device that stores the folder; None if the device is unknown.
    pub device: Option<Device>,
    /// The key that all clients share.
    pub key: Key,
    /// Limits that protect the server from its clients.
    pub limits: Limits,
    /// The console for messages about clients that connect or leave.
    pub console: Console,
}

/// State that all connections share.
#[derive(Debug)]
struct Shared {
    served: Served,
    clock: Monotonic,
    stop: Arc<AtomicBool>,
    handshakes: AtomicUsize,
    clients: AtomicUsize,
    reading: AtomicBool,
    /// Time of the last warning about a refused client (ns). 0 before the first warning.
    said_ns: AtomicU64,
    /// The open connections, each with its number.
    open: Mutex<Vec<(u64, TcpStream)>>,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<thread::JoinHandle<()>>,
}

impl Server {
    /// Starts a server in a separate thread. The server listens on the address `listen`.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn start(listen: SocketAddr, served: Served) -> Outcome<Server> {
        let failed = |error: std::io::Error| {
            let cause = ioengine::error::cause(&error);
            Failure::failed(format!(
                "listening on {listen}: {cause}; use another address or port with --listen"
            ))
        };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            served,
            clock: Monotonic::new(),
            stop: Arc::default(),
            handshakes: AtomicUsize::new(0),
            clients: AtomicUsize::new(0),
            reading: AtomicBool::new(false),
            said_ns: AtomicU64::new(0),
            open: Mutex::default(),
        });
        let listening = thread::spawn({
            let shared = Arc::clone(&shared);
            move || listen_on(&listener, &shared)
        });
        Ok(Server { address, shared, listening: Some(listening) })
    }

    /// Returns the address and port on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server and all connections.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for (_, stream) in self.shared.open_connections().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // This connection wakes the thread that waits for clients.
        let reached = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(listening) = self.listening.take().filter(|_| reached.is_ok()) {
            let _ = listening.join();
        }
    }
}

/// A slot for one connection. The number of slots is limited. Dropping this value frees the slot.
struct Seat<'a>(&'a AtomicUsize);

impl Seat<'_> {
    fn take(taken: &AtomicUsize, most: usize) -> Option<Seat<'_>> {
        let more = |count: usize| (count < most).then(|| count + 1);
        let seat = taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        seat.is_ok().then(|| Seat(taken))
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Removes a connection from the list of open connections when this value is dropped.
struct Listed<'a>(&'a Shared, u64);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.0.open_connections().retain(|(number, _)| *number != self.1);
    }
}

/// The permission to run a read trial. Dropping the value allows the next read trial.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Limits the request rate of a connection by delaying requests.
struct Pace {
    interval_ns: u64,
    burst_ns: u64,
    /// Time at which the next request would be due if requests were spaced evenly at the allowed
    /// rate, without bursts (ns).
    due_ns: u64,
}

impl Pace {
    fn new(limits: &Limits) -> Pace {
        let interval_ns = 1_000_000_000 / u64::from(limits.requests_per_s.max(1));
        let burst_ns = interval_ns.saturating_mul(u64::from(limits.burst));
        Pace { interval_ns, burst_ns, due_ns: 0 }
    }

    /// Returns the time at which the next request may be answered (ns).
    fn next_ns(&mut self, now_ns: u64) -> u64 {
        self.due_ns = self.due_ns.max(now_ns) + self.interval_ns;
        now_ns.max(self.due_ns.saturating_sub(self.burst_ns))
    }
}

fn listen_on(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut number = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let Ok((stream, from)) = listener.accept() else {
            shared.clock.sleep(AFTER_ERROR);
            continue;
        };
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        number += 1;
        let Ok(copy) = stream.try_clone() else { continue };
        let mine = Arc::clone(shared);
        let serve = move || {
            mine.open_connections().push((number, copy));
            let _listed = Listed(&mine, number);
            mine.serve(stream, from);
        };
        // If no thread can be started, the connection is closed.
        let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn(serve);
    }
}

impl Shared {
    fn open_connections(&self) -> MutexGuard<'_, Vec<(u64, TcpStream)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream, from: SocketAddr) {
        let Some(seat) = Seat::take(&self.handshakes, self.served.limits.handshakes) else {
            return self.refused(from, "too many clients are connecting at the same time");
        };
        let limits = &self.served.limits;
        match Channel::accept(stream, &self.served.key, limits.handshake) {
            Ok(mut channel) => {
                if let Err(error) = self.converse(&mut channel, from, seat) {
                    self.refused(from, &error.to_string());
                }
            }
            Err(ChannelError::WrongKey) => {
                let remedy = "copy this server's key file to the client, and specify the \
                              copy with --peer-key";
                self.refused(from, &format!("{}; {remedy}", ChannelError::WrongKey));
            }
            Err(error) => self.refused(from, &error.to_string()),
        }
    }

    /// Answers the requests of a client until the client ends the connection.
    fn converse(
        &self,
        channel: &mut Channel,
        from: SocketAddr,
        handshake: Seat<'_>,
    ) -> Result<(), ChannelError> {
        let limits = &self.served.limits;
        // The first request proves that the client has the key and did not just replay a recorded
        // handshake.
        let Some(mut request) = channel.receive(limits.handshake, REQUEST_BYTES_MAX)? else {
            return Ok(());
        };
        drop(handshake);
        let Some(_seat) = Seat::take(&self.clients, limits.clients) else {
            let why = format!("{} clients are connected already; end one of them", limits.clients);
            return channel.send(&message::encode(Reply::Refused(why)));
        };
        self.served.console.say(format!("{from}: connected"));
        let mut pace = Pace::new(limits);
        loop {
            self.clock.sleep_until(pace.next_ns(self.clock.now_ns()));
            channel.send(&message::encode(self.answer(&request)))?;
            match channel.receive(limits.idle, REQUEST_BYTES_MAX)? {
                Some(next) => request = next,
                None => break,
            }
        }
        self.served.console.say(format!("{from}: ended the connection"));
        Ok(())
    }

    /// Returns the answer to a request. The answer to an invalid request contains the reason, so
    /// that a client of another version can report it.
    fn answer(&self, request: &[u8]) -> Reply {
        let answered = message::decode(request).and_then(|request| match request {
            Request::Hello {} => Ok(Reply::Hello(Box::new(Greeting {
                halfpower: env!("CARGO_PKG_VERSION").to_owned(),
                host: Host::read(),
            }))),
            Request::Counters {} => {
                let read = Counters::read(self.served.device.as_ref(), &self.clock);
                read.map(Reply::Counters).map_err(|error| {
                    let cause = ioengine::error::cause(&error);
                    format!("/proc/stat: {cause}; mount /proc on the server")
                })
            }
            Request::ReadTrial(trial) => {
                if self.reading.swap(true, Ordering::AcqRel) {
                    return Err("another read trial is running; try again later".to_owned());
                }
                let _turn = Turn(&self.reading);
                let most = self.served.limits.bytes_per_s;
                read_trial::run(&self.served.folder, &trial, most, &self.stop).map(Reply::ReadTrial)
            }
        });
        answered.unwrap_or_else(Reply::Refused)
    }

    /// Prints a warning about a refused client, at most once per second.
    fn refused(&self, from: SocketAddr, why: &str) {
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        let now_ns = self.clock.now_ns();
        let said_ns = self.said_ns.load(Ordering::Relaxed);
        let is_time = said_ns == 0 || now_ns.saturating_sub(said_ns) > LINE_EVERY_NS;
        if is_time {
            self.said_ns.store(now_ns, Ordering::Relaxed);
            self.served.console.warn(format!("{from}: {why}"));
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub const KEY: [u8; 32] = [42; 32];

    /// Starts a server for a new folder that contains the file `data` of 1 MiB.
    pub fn server(limits: Limits) -> (tempfile::TempDir, Server) {
        let place = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(place.path().join("data"), vec![1; 1 << 20]).expect("a file");
        let folder = Folder::open(place.path()).expect("a folder");
        let (key, console) = (Key::new(KEY), Console::new(true));
        let served = Served { folder, device: device_of(place.path()), key, limits, console };
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        (place, Server::start(listen, served).expect("a port of the loopback interface"))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{KEY, server};
    use super::*;
    use crate::peer::channel::{MAGIC, testing::first_bytes};
    use crate::peer::message::ReadTrial;
    use std::io::{Read, Write};

    const SOON: Duration = Duration::from_secs(20);

    fn connect(server: &Server) -> Channel {
        let stream = TcpStream::connect(server.address()).unwrap();
        Channel::connect(stream, &Key::new(KEY), SOON).unwrap()
    }

    fn ask(channel: &mut Channel, request: &Request) -> Reply {
        channel.send(&message::encode(request)).unwrap();
        let reply = channel.receive(SOON, usize::MAX >> 1).unwrap().expect("an answer");
        message::decode(&reply).unwrap()
    }

    fn is_greeted(server: &Server) -> bool {
        matches!(ask(&mut connect(server), &Request::Hello {}), Reply::Hello(_))
    }

    fn trial(path: &str, milliseconds: u32) -> Request {
        let (path, request_bytes, depth) = (path.to_owned(), 4096, 1);
        let (random, direct) = (false, false);
        Request::ReadTrial(ReadTrial { path, request_bytes, depth, random, direct, milliseconds })
    }

    /// Returns true if the server ends the connection without an answer.
    fn is_closed(mut stream: TcpStream) -> bool {
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => answer.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn a_client_with_the_key_gets_facts_counters_and_a_read_trial() {
        let (_place, server) = server(Limits::default());
        let mut client = connect(&server);
        let Reply::Hello(greeting) = ask(&mut client, &Request::Hello {}) else { panic!() };
        assert_eq!(greeting.host.boot_id, crate::machine::boot_id());
        let Reply::Counters(counters) = ask(&mut client, &Request::Counters {}) else { panic!() };
        assert!(counters.cpus > 0);
        let Reply::ReadTrial(read) = ask(&mut client, &trial("data", 50)) else { panic!() };
        assert!(read.bytes > 0);
    }

    #[test]
    fn garbage_is_answered_by_nothing_and_the_next_client_is_served() {
        let (_place, server) = server(Limits::default());
        let long = [&MAGIC[..], &[0xff, 0xff], &[9; 100]].concat();
        let wrong = [&MAGIC[..], &[0, 48], &[9; 48]].concat();
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 500], &long, &wrong] {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(bytes).unwrap();
            assert!(is_closed(stream), "{bytes:?}");
        }
        assert!(is_greeted(&server));
    }

    #[test]
    fn a_recorded_handshake_gets_a_client_no_further() {
        let (_place, server) = server(Limits::default());
        let recorded = first_bytes(&Key::new(KEY));
        for _ in 0..2 {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(&recorded).unwrap();
            stream.set_read_timeout(Some(SOON)).unwrap();
            stream.read_exact(&mut [0; 50]).unwrap();
            // This client replays a recorded handshake without knowing the secret key of that
            // handshake, so it cannot encrypt a request correctly.
            stream.write_all(&[&[0, 80][..], &[5; 80]].concat()).unwrap();
            assert!(is_closed(stream));
        }
        assert_eq!(server.shared.clients.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn slow_clients_do_not_delay_others_and_are_dropped_in_the_end() {
        let handshake = Duration::from_millis(300);
        let (_place, server) = server(Limits { handshake, ..Limits::default() });
        let slow: Vec<TcpStream> = (0..8)
            .map(|_| {
                let mut stream = TcpStream::connect(server.address()).unwrap();
                stream.write_all(&MAGIC[..1]).unwrap();
                stream
            })
            .collect();
        assert!(is_greeted(&server));
        assert!(slow.into_iter().all(is_closed));
        while server.shared.handshakes.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        assert!(is_greeted(&server));
    }

    #[test]
    fn more_clients_than_allowed_are_told_so_and_a_place_becomes_free_again() {
        let (_place, server) = server(Limits { clients: 1, ..Limits::default() });
        let mut first = connect(&server);
        assert!(matches!(ask(&mut first, &Request::Hello {}), Reply::Hello(_)));
        let Reply::Refused(why) = ask(&mut connect(&server), &Request::Hello {}) else { panic!() };
        assert!(why.contains("1 clients are connected already"), "{why}");
        drop(first);
        while server.shared.clients.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        assert!(is_greeted(&server));
    }

    #[test]
    fn a_second_read_trial_at_the_same_time_is_refused() {
        let (_place, server) = server(Limits::default());
        let (mut first, mut second) = (connect(&server), connect(&server));
        thread::scope(|scope| {
            let running = scope.spawn(|| ask(&mut first, &trial("data", 1000)));
            while !server.shared.reading.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            let Reply::Refused(why) = ask(&mut second, &trial("data", 10)) else { panic!() };
            assert!(why.contains("another read trial is running"), "{why}");
            assert!(matches!(running.join().unwrap(), Reply::ReadTrial(_)));
        });
        assert!(matches!(ask(&mut second, &trial("data", 10)), Reply::ReadTrial(_)));
    }

    #[test]
    fn refused_requests_leave_the_connection_usable() {
        let (_place, server) = server(Limits::default());
        let mut client = connect(&server);
        for path in ["../data", "/etc/passwd", "/proc/self/fd/0", "missing", ""] {
            let Reply::Refused(why) = ask(&mut client, &trial(path, 10)) else { panic!("{path}") };
            assert!(why.contains("below the folder of the peer"), "{why}");
        }
        client.send(br#"{"version": 9, "message": 0}"#).unwrap();
        let reply = client.receive(SOON, 4096).unwrap().unwrap();
        let Ok(Reply::Refused(why)) = message::decode(&reply) else { panic!() };
        assert!(why.contains("version 9"), "{why}");
        assert!(matches!(ask(&mut client, &Request::Hello {}), Reply::Hello(_)));
    }

    #[test]
    fn a_request_that_is_too_long_ends_the_connection() {
        let (_place, server) = server(Limits::default());
        let mut client = connect(&server);
        client.send(&vec![b' '; REQUEST_BYTES_MAX + 1]).unwrap();
        assert!(matches!(client.receive(SOON, 4096), Ok(None) | Err(ChannelError::Closed)));
        assert!(is_greeted(&server));
    }

    #[test]
    fn requests_beyond_the_limit_wait() {
        let limits = Limits { requests_per_s: 100, burst: 5, ..Limits::default() };
        let mut pace = Pace::new(&limits);
        let times: Vec<u64> = (0..8).map(|_| pace.next_ns(1_000_000_000)).collect();
        let waits: Vec<u64> = times.iter().map(|ns| (ns - 1_000_000_000) / 1_000_000).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 10, 20, 30]);
        assert_eq!(
            pace.next_ns(9_000_000_000),
            9_000_000_000,
            "requests after a pause must not wait"
        );
        let (_place, server) = server(limits);
        let (mut client, clock) = (connect(&server), Monotonic::new());
        let begun_ns = clock.now_ns();
        for _ in 0..15 {
            ask(&mut client, &Request::Counters {});
        }
        assert!(clock.now_ns() - begun_ns >= 90_000_000, "ten requests waited 10 ms each");
    }
}
