//! Serves clients over HTTP with the library hyper, and limits the resources that clients can use.
//!
//! All connections are tasks of one thread. There are limits on the number and age of connections,
//! the number of requests on a connection, and the time and size of request headers. If there are
//! too many connections, a new connection replaces the oldest connection whose client has not sent
//! the token. Strangers therefore cannot lock out clients that know the token.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ioengine::{Clock, Monotonic};
use lab::console::Console;
use lab::interrupt::Interrupt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;

use crate::answer::{Answer, Answers};

/// Interval between checks for Ctrl-C.
const TICK: Duration = Duration::from_millis(100);
/// Pause after a connection could not be accepted, for example because of too many open files.
const AFTER_ERROR: Duration = Duration::from_millis(100);
/// Minimum time between two messages about refused requests (ns).
const LINE_EVERY_NS: u64 = 1_000_000_000;

/// Limits on the resources that clients can use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections at the same time.
    pub connections: usize,
    /// Maximum number of requests on a connection.
    pub requests: u32,
    /// Maximum time for the headers of a request. Also the maximum idle time between requests.
    pub header_time: Duration,
    /// Maximum time for generating a page.
    pub page_time: Duration,
    /// Age at which a connection stops accepting requests.
    pub age: Duration,
    /// Maximum time for sending the last response of a connection that has reached `age`.
    pub last_answer: Duration,
    /// Maximum size of the headers of a request, including its first line (bytes).
    pub header_bytes: usize,
    /// Maximum number of headers of a request.
    pub headers: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 64,
            requests: 200,
            header_time: Duration::from_secs(10),
            page_time: Duration::from_secs(60),
            age: Duration::from_secs(120),
            last_answer: Duration::from_secs(60),
            header_bytes: 16 << 10,
            headers: 64,
        }
    }
}

/// The socket on which the server listens.
pub enum Listener {
    /// A network address.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// A connection, and whether its client has sent the token.
struct Open {
    number: u64,
    is_known: Arc<AtomicBool>,
    task: AbortHandle,
}

/// The state of all connections.
struct Shared {
    answers: Answers,
    limits: Limits,
    console: Console,
    clock: Monotonic,
    /// Time of the last message about a refused request (ns). 0 if there was no message.
    said_ns: AtomicU64,
    /// All connections, oldest first.
    open: Mutex<Vec<Open>>,
}

/// Serves until Ctrl-C.
pub async fn serve(
    listener: Listener,
    answers: Answers,
    limits: Limits,
    console: Console,
    interrupt: &Interrupt,
) {
    let shared = Arc::new(Shared {
        answers,
        limits,
        console,
        clock: Monotonic::new(),
        said_ns: AtomicU64::new(0),
        open: Mutex::default(),
    });
    let mut tick = tokio::time::interval(TICK);
    let mut number = 0;
    while !interrupt.is_set() {
        number += 1;
        let accepted = tokio::select! {
            _ = tick.tick() => continue,
            accepted = accept(&listener, &shared, number) => accepted,
        };
        if accepted.is_err() {
            tokio::time::sleep(AFTER_ERROR).await;
        }
    }
    for open in shared.open_connections().drain(..) {
        open.task.abort();
    }
}

/// Waits for a connection and starts its task.
async fn accept(listener: &Listener, shared: &Arc<Shared>, number: u64) -> std::io::Result<()> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, _) = listener.accept().await?;
            // Without TCP_NODELAY, the last part of a response may wait until the client has
            // acknowledged the previous part.
            let _ = stream.set_nodelay(true);
            shared.start(number, stream);
        }
        Listener::Unix(listener) => shared.start(number, listener.accept().await?.0),
    }
    Ok(())
}

impl Shared {
    fn open_connections(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the task of a connection. If there are too many connections, the oldest connection
    /// whose client has not sent the token is closed.
    fn start<S>(self: &Arc<Self>, number: u64, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut open = self.open_connections();
        if open.len() >= self.limits.connections {
            let stranger = open.iter().position(|it| !it.is_known.load(Ordering::Relaxed));
            // If all clients have sent the token, the new connection is closed.
            let Some(stranger) = stranger else { return };
            open.remove(stranger).task.abort();
        }
        let is_known = Arc::new(AtomicBool::new(false));
        let (shared, known) = (Arc::clone(self), Arc::clone(&is_known));
        let task = tokio::spawn(async move {
            converse(&shared, stream, &known).await;
            shared.open_connections().retain(|it| it.number != number);
        });
        open.push(Open { number, is_known, task: task.abort_handle() });
    }

    /// Answers a request. After the last request that is allowed, the connection is closed.
    async fn answer(
        &self,
        request: Request<Incoming>,
        is_known: &AtomicBool,
        count: &AtomicU32,
    ) -> Answer {
        let (parts, _) = request.into_parts();
        let answered = self.answers.answer(&parts).await;
        if answered.is_known {
            is_known.store(true, Ordering::Relaxed);
        } else if let Some(why) = answered.refused {
            self.say_refused(why);
        }
        let mut answer = answered.answer;
        if count.fetch_add(1, Ordering::Relaxed) + 1 >= self.limits.requests {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    fn say_refused(&self, why: &str) {
        let now_ns = self.clock.now_ns();
        let said_ns = self.said_ns.load(Ordering::Relaxed);
        if said_ns == 0 || now_ns.saturating_sub(said_ns) >= LINE_EVERY_NS {
            self.said_ns.store(now_ns.max(1), Ordering::Relaxed);
            self.console.say(format!("refused a request: {why}"));
        }
    }
}

/// Answers the requests of a connection until the connection ends or is too old.
async fn converse<S>(shared: &Shared, stream: S, is_known: &AtomicBool)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let count = AtomicU32::new(0);
    let service = service_fn(|request| async {
        let answer = shared.answer(request, is_known, &count).await;
        Ok::<_, std::convert::Infallible>(answer)
    });
    let Limits { header_time, header_bytes, headers, age, last_answer, .. } = shared.limits;
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_time)
        .max_buf_size(header_bytes)
        .max_header_size(header_bytes)
        .max_headers(headers)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // The connection ended. If the client made an error, hyper has reported it to the client.
        _ = connection.as_mut() => return,
        () = tokio::time::sleep(age) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(last_answer, connection).await;
}
