//! A TCP proxy that delays all bytes in both directions by a known time.
//!
//! A reader thread records when each chunk of bytes arrives, and a writer thread forwards the chunk
//! after the delay. Several chunks can wait at the same time, so the delay does not reduce the
//! throughput.

use crate::bench::clock::Stopwatch;
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Maximum size of a chunk (bytes).
const CHUNK_BYTES: usize = 64 << 10;

/// A proxy on a port of the loopback interface. A dropped proxy accepts no new connections. Its
/// open connections end when either side closes them.
pub struct Proxy {
    /// Port on which the proxy listens.
    pub port: u16,
    delay_ns: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts a proxy that forwards connections to the port `server` of the loopback interface. The
    /// initial delay is zero.
    ///
    /// # Errors
    /// If the proxy cannot listen on a port.
    pub fn to(server: u16) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        let port = listener.local_addr()?.port();
        let (delay_ns, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (delay, is_over) = (Arc::clone(&delay_ns), Arc::clone(&ended));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // If the connection fails, the client reports an error.
                let _ = connect(client, server, &delay);
            }
        });
        Ok(Proxy { port, delay_ns, ended })
    }

    /// Sets the delay in each direction for all bytes that arrive from now on.
    pub fn set_delay(&self, one_way: Duration) {
        self.delay_ns.store(one_way.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // This connection wakes the thread that accepts connections, so that the thread ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Connects a client to the server, with a reader thread and a writer thread in each direction.
fn connect(client: TcpStream, server: u16, delay_ns: &Arc<AtomicU64>) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let watch = Stopwatch::start();
    let pairs = [(client.try_clone()?, server.try_clone()?), (server, client)];
    for (from, to) in pairs {
        let (sender, receiver) = channel();
        let delay_ns = Arc::clone(delay_ns);
        thread::spawn(move || read(from, watch, &delay_ns, &sender));
        thread::spawn(move || write(to, watch, &receiver));
    }
    Ok(())
}

/// A chunk of bytes, and the time since the start of the connection at which it is forwarded.
type Chunk = (Duration, Vec<u8>);

fn read(mut from: TcpStream, watch: Stopwatch, delay_ns: &AtomicU64, sender: &Sender<Chunk>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let delay = Duration::from_nanos(delay_ns.load(Ordering::Relaxed));
        if sender.send((watch.elapsed() + delay, buffer[..count].to_vec())).is_err() {
            break;
        }
    }
}

fn write(mut to: TcpStream, watch: Stopwatch, receiver: &Receiver<Chunk>) {
    for (due, bytes) in receiver {
        watch.wait_until(due);
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // Shutting down both directions also ends the reader of the other direction.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::clock::timed;

    /// Starts a server that sends back all bytes that it receives, and returns its port.
    fn echo() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let mut buffer = [0; 1 << 16];
                while let Ok(count @ 1..) = client.read(&mut buffer) {
                    client.write_all(&buffer[..count]).unwrap();
                }
            }
        });
        port
    }

    #[test]
    fn bytes_arrive_unchanged_and_not_before_twice_the_delay() {
        let proxy = Proxy::to(echo()).unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
        for delay_ms in [0, 5, 20] {
            proxy.set_delay(Duration::from_millis(delay_ms));
            let sent: Vec<u8> = (0..30_000_u32).map(|at| (at % 251) as u8).collect();
            let mut received = vec![0; sent.len()];
            let ((), seconds) = timed(|| {
                client.write_all(&sent).unwrap();
                client.read_exact(&mut received).unwrap();
            });
            assert!(received == sent);
            assert!(seconds >= 2.0 * delay_ms as f64 / 1e3, "{delay_ms} ms: {seconds} s");
        }
    }
}
