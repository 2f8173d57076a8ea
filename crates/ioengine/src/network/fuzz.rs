//! The entry point for fuzzing the clients of all network protocols. No bytes that a server sends
//! may make a client panic or hang.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::network::{Access, Address, Credentials, Link, Scheme, Slots, Wire, connect_over};
use crate::request::{Op, Request};

/// Runs a client with a simulated server. The first byte selects the protocol. The server sends the
/// other bytes without regard to what the client requests. Returns the number of completed
/// requests.
pub fn network_server(bytes: &[u8]) -> usize {
    let Some((first, bytes)) = bytes.split_first() else { return 0 };
    let scheme = Scheme::ALL[usize::from(*first) % Scheme::ALL.len()];
    // Additional connections are refused, because no server listens on port 1.
    let address = format!("{}://127.0.0.1:1/a/1?timeout=1", scheme.name());
    let Ok(address) = address.parse::<Address>() else { return 0 };
    let Ok((client, mut server)) = UnixStream::pair() else { return 0 };
    // Bytes that do not fit into the socket buffer are not sent.
    let _ = server.set_nonblocking(true);
    let _ = server.write_all(bytes);
    let _ = server.shutdown(Shutdown::Write);
    let Ok(wire) = Wire::over(TcpStream::from(OwnedFd::from(client)), &address) else { return 0 };
    let credentials = Credentials { user: "user".to_owned(), password: "password".to_owned() };
    // S3 objects cannot be opened for writing.
    let writable = scheme != Scheme::S3;
    let access = Access { address, credentials: Some(credentials), writable, durable: false };
    connect_over(wire, &access).map_or(0, |(link, _)| converse(link))
}

/// Issues a read and a write, and processes the replies. Returns the number of completed requests.
fn converse(mut link: Link) -> usize {
    let mut memory = [[0_u8; 4096]; 2];
    let (mut slots, mut done) = (Slots::new(2), Vec::new());
    for (slot, op) in [(0, Op::Read), (1, Op::Write)] {
        let request = Request { offset: 0, length: 4096, within: 0, slot, file: 0, op };
        // SAFETY: the memory outlives the slots, and no other code uses the memory.
        unsafe { slots.begin(slot, memory[slot as usize].as_mut_ptr(), 4096) };
        if link.has_room() {
            link.add(&request, &slots);
        }
    }
    while link.outstanding() > 0 && link.send(&slots).is_ok() {
        if link.wait(&mut slots, &mut done).is_err() {
            break;
        }
    }
    done.len()
}
