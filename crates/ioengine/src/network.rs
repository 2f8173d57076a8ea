//! Network targets: files, disks and objects on a server, accessed without the kernel's clients.
//!
//! A network target has an address such as `nbd://host/export`. Each I/O engine opens its own
//! connection and keeps up to `depth` requests outstanding on it. If the protocol allows fewer
//! requests per connection, the engine opens several connections. [`Address`] parses addresses, and
//! each protocol is one file. After the set-up of a connection, the code of a protocol does no I/O
//! (`protocol`): it only translates requests into messages, and replies into completions. The
//! module `link` sends and receives the bytes, directly from and into the buffer slots. Replies are
//! not trusted: if a reply does not match an outstanding request, the connection ends with an
//! error.

mod address;
pub(crate) mod fuzz;
mod iscsi;
mod link;
mod nbd;
mod nfs;
pub mod object;
mod protocol;
#[cfg(test)]
pub(crate) mod reference_server;
mod s3;
mod smb;
mod wire;

pub use address::{Address, Scheme};
pub(crate) use link::{Link, Slots};
use protocol::Opened;
pub use wire::end_set_up_with;
pub(crate) use wire::{Poll, TICK, Wire};

use crate::clock::{Clock, Monotonic};
use crate::error::{Error, ErrorKind};

/// The number of connections that [`round_trip_ns`] times.
const ROUND_TRIPS: usize = 7;

/// The user name and password for a server that requires them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name. For S3, the ID of the access key.
    pub user: String,
    /// The password. For S3, the secret of the access key.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    /// Prints the user but never the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials {{ user: {:?}, .. }}", self.user)
    }
}

/// The parameters with which a network target is opened.
#[derive(Clone, Debug)]
pub struct Access {
    /// The server and the file, disk or object on it.
    pub address: Address,
    /// The user name and password. None for anonymous access.
    pub credentials: Option<Credentials>,
    /// Whether the target may be written.
    pub writable: bool,
    /// Whether each write is durable on the server before it completes.
    pub durable: bool,
}

/// What a server reported about a target when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteInfo {
    /// The size of the target (bytes).
    pub size_bytes: u64,
    /// The required alignment of offsets and lengths (bytes).
    pub block_bytes: u32,
    /// The size of the largest request that the server accepts (bytes). Larger requests are
    /// completed in several parts.
    pub request_bytes_max: u32,
    /// The version of the protocol and the features in use.
    pub features: String,
}

/// The parameters of a network target, and what its server reported. Contains no open connection.
#[derive(Debug)]
pub(crate) struct Remote {
    access: Access,
    info: RemoteInfo,
}

impl Remote {
    /// Connects to the server and opens the target.
    pub(crate) fn open(access: Access) -> Result<Remote, Error> {
        let (_, info) = connect(&access)?;
        Ok(Remote { access, info })
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    pub(crate) fn info(&self) -> &RemoteInfo {
        &self.info
    }

    /// Makes all writes to the target durable on the server, over a new connection. Engines do not
    /// use this function, because each engine flushes its own writes.
    ///
    /// # Errors
    /// If the flush fails, or if it would not cover the writes of other connections.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        if !self.access.writable {
            return Ok(());
        }
        let mut link = connect(&self.access)?.0;
        if !link.flushes_for_all() {
            let name = &self.access.address;
            let what = format!("{name}: only the connections that wrote data can flush it");
            return Err(Error::new(ErrorKind::Unsupported, what)
                .with_remedy("flush with the engine that wrote the data"));
        }
        link.flush()
    }
}

/// Measures the time of a round trip to the server (ns). This is the median time that TCP takes to
/// set up a connection.
///
/// # Errors
/// If the server cannot be reached.
pub fn round_trip_ns(address: &Address) -> Result<f64, Error> {
    // The function first connects to find an address that answers, so that the times include
    // neither name resolution nor addresses that do not answer.
    let wire = Wire::connect(address)?;
    let peer = wire.peer().ok_or_else(|| wire.violated("closed the connection immediately"))?;
    let clock = Monotonic::new();
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let begun_ns = clock.now_ns();
        let stream = wire::reach(&peer).map_err(|error| wire.broken(error))?;
        times.push(clock.now_ns() - begun_ns);
        drop(stream);
    }
    times.sort_unstable();
    Ok(times[ROUND_TRIPS / 2] as f64)
}

/// Opens one connection to the target.
pub(crate) fn connect(access: &Access) -> Result<(Link, RemoteInfo), Error> {
    connect_over(Wire::connect(&access.address)?, access)
}

/// Sets up the protocol on a new TCP connection.
pub(crate) fn connect_over(wire: Wire, access: &Access) -> Result<(Link, RemoteInfo), Error> {
    let opened = match access.address.scheme {
        Scheme::Nbd => nbd::open(wire, access)?,
        Scheme::Nfs => nfs::open(wire, access)?,
        Scheme::Iscsi => iscsi::open(wire, access)?,
        Scheme::Smb => smb::open(wire, access)?,
        Scheme::S3 => s3::open(wire, access)?,
    };
    let Opened { wire, protocol, info } = opened;
    // Sizes of 2^63 bytes and more are refused, because offsets are signed numbers in the kernel
    // and in most protocols.
    if i64::try_from(info.size_bytes).is_err() {
        return Err(wire.violated(&format!("reports a target size of {} bytes", info.size_bytes)));
    }
    Ok((Link::new(wire, protocol)?, info))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::reference_server::{Fault, serve};
    use super::{Access, Address, Wire, connect_over};
    use crate::buffer::BufferPages;
    use crate::clock::{Clock, Monotonic};
    use crate::engine::{Engine, EngineKind, EngineOptions, EngineSpec, HostEngine};
    use crate::error::{Error, ErrorKind};
    use crate::host::HostTarget;
    use crate::request::{Op, Request};
    use crate::target::Target;

    fn spec() -> EngineSpec {
        EngineSpec {
            engine_kind: EngineKind::Network,
            depth: 4,
            slot_bytes: 4096,
            pages: BufferPages::Small,
            options: EngineOptions::default(),
        }
    }

    /// Creates an engine with four slots, and connects the engine to a server with a fault.
    fn engine_on(fault: Fault) -> HostEngine {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let target = HostTarget::connect(serve(file.path().to_path_buf(), fault)).unwrap();
        target.engine(&spec()).unwrap()
    }

    #[test]
    fn a_busy_server_is_asked_again_after_growing_pauses() {
        let (mut engine, mut done, clock) =
            (engine_on(Fault::IsBusy(4)), Vec::new(), Monotonic::new());
        let mut pauses_ns = Vec::new();
        let last = loop {
            let begun_ns = clock.now_ns();
            engine.submit_and_wait(&[read(0, 0, 512)], 1, None, &mut done).unwrap();
            let completion = done.pop().unwrap();
            if completion.result != -libc::EAGAIN {
                break completion;
            }
            pauses_ns.push(clock.now_ns() - begun_ns);
        };
        assert_eq!((last.result, pauses_ns.len()), (512, 4));
        let least_ns = |number: u32| 1_000_000_u64 << number;
        assert!((0..).zip(&pauses_ns).all(|(at, ns)| *ns >= least_ns(at)), "{pauses_ns:?}");
    }

    #[test]
    fn a_server_that_is_always_busy_is_given_up_after_the_time_limit() {
        let (mut engine, mut done) = (engine_on(Fault::IsBusy(u32::MAX)), Vec::new());
        let error = loop {
            match engine.submit_and_wait(&[read(0, 0, 512)], 1, None, &mut done) {
                Ok(()) => {}
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("the server was too busy for 1 s; use a smaller"), "{error}");
    }

    /// Sends these option replies to an NBD client, and returns the error message of the client.
    fn refused(replies: &[(u32, &[u8])]) -> String {
        let (client, mut server) = UnixStream::pair().unwrap();
        let mut bytes = b"NBDMAGICIHAVEOPT\0\x01".to_vec();
        for (kind, data) in replies {
            bytes.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
            bytes.extend([7, *kind, data.len() as u32].map(u32::to_be_bytes).concat());
            bytes.extend(*data);
        }
        server.write_all(&bytes).unwrap();
        let address: Address = "nbd://h/x".parse().unwrap();
        let wire = Wire::over(TcpStream::from(OwnedFd::from(client)), &address).unwrap();
        let access = Access { address, credentials: None, writable: false, durable: false };
        connect_over(wire, &access).unwrap_err().to_string()
    }

    #[test]
    fn a_size_that_no_offset_reaches_is_refused() {
        let export = [&[0; 2][..], &u64::MAX.to_be_bytes(), &[0; 2]].concat();
        let error = refused(&[(3, &export), (1, &[])]);
        assert!(error.contains("reports a target size of 18446744073709551615 bytes"), "{error}");
    }

    #[test]
    fn a_server_cannot_forge_lines_of_the_program() {
        let error = refused(&[(1 << 31 | 2, b"no\nhalfpower: all is well")]);
        assert!(error.contains("(no\\nhalfpower: all is well)"), "{error}");
    }

    #[test]
    fn an_engine_flushes_on_the_connection_that_wrote() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let mut features = Vec::new();
        for fault in [Fault::None, Fault::CachesWrites] {
            let served = Access { writable: true, ..serve(file.path().to_path_buf(), fault) };
            let target = HostTarget::connect(served).unwrap();
            features.push(target.remote_info().unwrap().features.clone());
            let (mut engine, mut done) = (target.engine(&spec()).unwrap(), Vec::new());
            engine.buffer(0).fill(features.len() as u8);
            let write = Request { op: Op::Write, ..read(0, 4096, 4096) };
            engine.submit_and_wait(&[write], 1, None, &mut done).unwrap();
            assert!(engine.flush().unwrap(), "the engine has a connection to flush");
            let content = std::fs::read(file.path()).unwrap();
            assert_eq!(content[4096], features.len() as u8, "{fault:?}");
            // A flush on another connection would not cover the writes that the server caches for
            // this connection.
            assert_eq!(target.sync().is_ok(), fault == Fault::None);
        }
        assert_eq!(features[0], "NBD, a flush covers all connections");
        assert_eq!(features[1], "NBD, a flush covers one connection");
    }

    fn read(slot: u32, offset: u64, length: u32) -> Request {
        Request { offset, length, within: 0, slot, file: 0, op: Op::Read }
    }

    /// Reads through a server with a fault until an error occurs, and returns the error.
    #[track_caller]
    fn fails_with(fault: Fault) -> Error {
        let mut engine = engine_on(fault);
        let mut done = Vec::new();
        for round in 0..10 {
            let offset = |slot: u32| (round * 4 + u64::from(slot)) * 4096;
            let batch: Vec<Request> = (0..4).map(|slot| read(slot, offset(slot), 4096)).collect();
            if let Err(error) = engine.submit_and_wait(&batch, 4, None, &mut done) {
                assert_eq!(error.kind(), ErrorKind::Io);
                return error;
            }
        }
        panic!("all reads succeeded");
    }

    #[test]
    fn a_reply_that_arrives_byte_by_byte_holds_no_deadline() {
        let (mut engine, mut done) = (engine_on(Fault::Trickles(0)), Vec::new());
        // The whole reply takes more than five times as long as this deadline allows.
        let until_ns = Monotonic::new().now_ns() + 200_000_000;
        engine.submit_and_wait(&[read(0, 0, 512)], 1, Some(until_ns), &mut done).unwrap();
        assert_eq!((done.len(), engine.in_flight()), (0, 1));
        engine.submit_and_wait(&[], 1, None, &mut done).unwrap();
        assert_eq!(done[0].result, 512);
    }

    #[test]
    fn a_server_that_goes_away_is_named() {
        let error = fails_with(Fault::HangsUp(5)).to_string();
        assert!(error.starts_with("nbd://127.0.0.1:"), "{error}");
        assert!(error.contains("closed the connection"), "{error}");
    }

    #[test]
    fn a_silent_server_is_given_up_after_the_time_limit() {
        let error = fails_with(Fault::FallsSilent(6)).to_string();
        assert!(error.contains("did not answer for 1 s"), "{error}");
    }

    #[test]
    fn a_reply_to_another_request_ends_the_connection() {
        let error = fails_with(Fault::MixesUp(3)).to_string();
        assert!(error.contains("a request that is not outstanding"), "{error}");
    }

    #[test]
    fn a_server_that_speaks_another_protocol_is_recognised() {
        let error = fails_with(Fault::Babbles(3)).to_string();
        assert!(error.contains("without its magic number; check that the address"), "{error}");
    }
}
