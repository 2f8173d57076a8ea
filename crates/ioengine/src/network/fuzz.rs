//! Entry point of the fuzz target for the clients of all protocols: no bytes of a server may make
//! them panic or hang.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::network::{Access, Address, Credentials, Link, Scheme, Slots, Wire, connect_over};
use crate::request::{Op, Request};

/// Reads from a server that sends `bytes`, whatever the client asks. The first byte selects the
/// protocol. Returns how many requests completed.
pub fn network_server(bytes: &[u8]) -> usize {
    let Some((first, bytes)) = bytes.split_first() else { return 0 };
    let scheme = Scheme::ALL[usize::from(*first) % Scheme::ALL.len()];
    // Nothing listens on this port, for protocols that connect again.
    let address = format!("{}://127.0.0.1:1/a/1?timeout=1", scheme.name());
    let Ok(address) = address.parse::<Address>() else { return 0 };
    let Ok((client, mut server)) = UnixStream::pair() else { return 0 };
    // What does not fit into the socket is not sent.
    let _ = server.set_nonblocking(true);
    let _ = server.write_all(bytes);
    let _ = server.shutdown(Shutdown::Write);
    let Ok(wire) = Wire::over(TcpStream::from(OwnedFd::from(client)), &address) else { return 0 };
    let credentials = Credentials { user: "user".to_owned(), password: "password".to_owned() };
    // Objects cannot be opened for writing.
    let writable = scheme != Scheme::S3;
    let access = Access { address, credentials: Some(credentials), writable, durable: false };
    connect_over(wire, &access).map_or(0, |(link, _)| converse(link))
}

/// Issues a read and a write, and takes the answers. Returns how many completed.
fn converse(mut link: Link) -> usize {
    let mut memory = [[0_u8; 4096]; 2];
    let (mut slots, mut done) = (Slots::new(2), Vec::new());
    for (slot, op) in [(0, Op::Read), (1, Op::Write)] {
        let request = Request { offset: 0, length: 4096, within: 0, slot, file: 0, op };
        // SAFETY: the memory outlives the slots, and nothing else uses it.
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
