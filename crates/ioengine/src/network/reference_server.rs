//! An NBD server in this process, for tests. The server serves a file, and simulates the fault that
//! the test chooses.

use std::fs::File;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Monotonic;
use crate::network::{Access, Address};

/// The pause between two bytes with [`Fault::Trickles`].
const TRICKLE: Duration = Duration::from_millis(2);

/// What the server does wrong. The number in a variant is the number of requests that the server
/// answers correctly on each connection before the fault begins. Only in [`Fault::IsBusy`], the
/// number has another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server answers all requests correctly.
    None,
    /// Closes the connection in the middle of a reply.
    HangsUp(u32),
    /// Does not answer any more.
    FallsSilent(u32),
    /// Answers with the handle of another request.
    MixesUp(u32),
    /// Answers with random bytes.
    Babbles(u32),
    /// Answers this many requests of each connection with EAGAIN, and all later requests correctly.
    IsBusy(u32),
    /// Holds back the writes of a connection until a flush arrives on the same connection.
    CachesWrites,
    /// Sends one byte at a time, with a pause after each byte.
    Trickles(u32),
}

/// Starts a server for a file, and returns its address. The server ends with this process.
pub(crate) fn serve(path: PathBuf, fault: Fault) -> Access {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a bound port").port();
    let file = File::options().read(true).write(true).open(path).expect("the served file");
    let file = Arc::new(file);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let file = Arc::clone(&file);
            // An error means that the client has closed the connection.
            std::thread::spawn(move || drop(converse(stream, &file, fault)));
        }
    });
    let address: Address = format!("nbd://127.0.0.1:{port}/file?timeout=1").parse().expect("valid");
    Access { address, credentials: None, writable: false, durable: false }
}

fn converse(mut stream: TcpStream, file: &File, fault: Fault) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x01")?;
    let mut flags_and_option = [0; 4 + 16];
    stream.read_exact(&mut flags_and_option)?;
    let length = u32::from_be_bytes(flags_and_option[16..].try_into().expect("four bytes"));
    let mut option = vec![0; length as usize];
    stream.read_exact(&mut option)?;
    let mut reply = |kind: u32, data: &[u8]| {
        let mut message = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
        message.extend(7_u32.to_be_bytes());
        message.extend(kind.to_be_bytes());
        message.extend((data.len() as u32).to_be_bytes());
        message.extend(data);
        stream.write_all(&message)
    };
    let mut export = 0_u16.to_be_bytes().to_vec();
    export.extend(file.metadata()?.len().to_be_bytes());
    let flags: u16 = if fault == Fault::CachesWrites { 0b1101 } else { 0b1_0000_1101 };
    export.extend(flags.to_be_bytes());
    reply(3, &export)?;
    reply(1, &[])?;
    let mut cache = Vec::new();
    for number in 0.. {
        answer(&mut stream, (file, &mut cache), fault, number)?;
    }
    Ok(())
}

/// The offset and the bytes of a write.
type Write = (u64, Vec<u8>);

/// Reads a request and answers it. `cache` contains the writes that are held back.
fn answer(
    stream: &mut TcpStream,
    (file, cache): (&File, &mut Vec<Write>),
    fault: Fault,
    number: u32,
) -> std::io::Result<()> {
    let mut request = [0; 28];
    stream.read_exact(&mut request)?;
    let command = u16::from_be_bytes([request[6], request[7]]);
    let offset = u64::from_be_bytes(request[16..24].try_into().expect("eight bytes"));
    let length = u32::from_be_bytes(request[24..].try_into().expect("four bytes"));
    let mut data = vec![0; length as usize];
    let mut reply = vec![0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0];
    reply.extend(&request[8..16]);
    match command {
        0 => {
            file.read_exact_at(&mut data, offset)?;
            reply.extend(&data);
        }
        1 => {
            stream.read_exact(&mut data)?;
            if fault == Fault::CachesWrites {
                cache.push((offset, data));
            } else {
                file.write_all_at(&data, offset)?;
            }
        }
        _ => {
            let kept = cache.drain(..);
            kept.into_iter().try_for_each(|(offset, data)| file.write_all_at(&data, offset))?;
        }
    }
    match fault {
        Fault::HangsUp(after) if number >= after => {
            stream.write_all(&reply[..reply.len() / 2])?;
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        Fault::FallsSilent(after) if number >= after => return Ok(()),
        Fault::IsBusy(times) if number < times => {
            reply[4..8].copy_from_slice(&(libc::EAGAIN as u32).to_be_bytes());
            reply.truncate(16);
        }
        Fault::MixesUp(after) if number >= after => reply[14] ^= 0xff,
        Fault::Babbles(after) if number >= after => reply.iter_mut().for_each(|b| *b ^= 0x5a),
        Fault::Trickles(after) if number >= after => {
            let clock = Monotonic::new();
            return reply.iter().try_for_each(|byte| {
                clock.sleep(TRICKLE);
                stream.write_all(&[*byte])
            });
        }
        _ => {}
    }
    stream.write_all(&reply)
}
