//! `halfpower serve`: checks the options, listens, prints how to reach the server, and serves until
//! Ctrl-C.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome, check_not_under_dev};
use lab::interrupt::Interrupt;
use lab::machine;
use results::Store;
use rustix::fs::Mode;

use crate::access::{Access, Token};
use crate::answer::Answers;
use crate::pages::Pages;
use crate::server::{self, Limits, Listener};

/// The umask for creating the socket, so that only the socket's owner can connect.
const OTHERS: u32 = 0o177;

/// The options of `halfpower serve`.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The path of the database.
    pub db: PathBuf,
    /// The network address to listen on.
    pub listen: SocketAddr,
    /// The path of the Unix socket to listen on. None if the server listens on `listen`.
    pub unix: Option<PathBuf>,
    /// Whether `listen` may be an address that other machines can reach.
    pub allow_remote: bool,
    /// Whether to print only the address, warnings and errors.
    pub quiet: bool,
    /// Whether to only print what would be done.
    pub plan: bool,
}

/// Serves until Ctrl-C.
///
/// # Errors
/// A usage error if other machines can reach the address and `allow_remote` is not set. A refusal
/// if a file exists at the path of the socket. A failure if the database cannot be read or the
/// server cannot listen.
pub fn serve(options: &ServeOptions) -> Outcome {
    check_address(options)?;
    Store::open_read_only(&options.db)?;
    options.unix.as_deref().map_or(Ok(()), check_socket)?;
    let db = options.db.display();
    if options.plan {
        let at = options.unix.as_ref().map_or_else(
            || options.listen.to_string(),
            |path| format!("the Unix socket {}", path.display()),
        );
        console::data(&format!("would serve pages of {db} on {at} (read-only); nothing was done"));
        return Ok(Exit::Ok);
    }
    let console = Console::new(options.quiet);
    let (token, interrupt) = (Token::random()?, Interrupt::install());
    // The path is made absolute, because the working directory may be moved or removed while the
    // server runs.
    let path = std::path::absolute(&options.db).unwrap_or_else(|_| options.db.clone());
    let pages = Pages::start(&path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        let cause = ioengine::error::cause(&error);
        Failure::failed(format!(
            "starting the server: {cause}; raise the limit on open files (ulimit -n)"
        ))
    })?;
    let limits = Limits::default();
    let served: Outcome<()> = runtime.block_on(async {
        let (listener, access, socket) = listen(options, &token)?;
        say_how(options, &console, &listener, &token);
        let answers = Answers::new(access, pages, limits.page_time);
        server::serve(listener, answers, limits, console, &interrupt).await;
        drop(socket);
        Ok(())
    });
    // The program does not wait for a page that is being generated.
    runtime.shutdown_background();
    served.map(|()| Exit::Ok)
}

fn check_address(options: &ServeOptions) -> Outcome<()> {
    if options.unix.is_some() || options.listen.ip().is_loopback() || options.allow_remote {
        return Ok(());
    }
    let port = options.listen.port();
    Err(Failure::usage(format!(
        "--listen {}: other machines could connect, and HTTP is not encrypted, so anyone who sees \
         the traffic can read the token and all results; use a tunnel (ssh -N -L \
         {port}:127.0.0.1:{port} HOST), or add --allow-remote",
        options.listen
    )))
}

/// Checks that nothing exists at the path of the socket.
fn check_socket(path: &Path) -> Outcome<()> {
    check_not_under_dev(path, "--unix")?;
    if fs::symlink_metadata(path).is_ok() {
        return Err(Failure::refused(format!(
            "{} exists; remove it if no server uses it, or specify another path with --unix",
            path.display()
        )));
    }
    Ok(())
}

/// A Unix socket that this program created. The socket's file is removed on drop, unless the file
/// was replaced.
struct Socket {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn listen(options: &ServeOptions, token: &Token) -> Outcome<(Listener, Access, Option<Socket>)> {
    if let Some(path) = &options.unix {
        let failed = |error: std::io::Error| {
            let cause = ioengine::error::cause(&error);
            let path = path.display();
            Failure::failed(format!(
                "listening on {path}: {cause}; specify another path with --unix"
            ))
        };
        // The umask gives the socket its final permissions when it is created, so that other users
        // can never connect.
        let before = rustix::process::umask(Mode::from_raw_mode(OTHERS));
        let made = UnixListener::bind(path);
        rustix::process::umask(before);
        let made = made.map_err(failed)?;
        let socket = Socket { path: path.clone(), identity: identity(path) };
        made.set_nonblocking(true).map_err(failed)?;
        let listener = tokio::net::UnixListener::from_std(made).map_err(failed)?;
        let access = Access::of_socket(token.clone());
        return Ok((Listener::Unix(listener), access, Some(socket)));
    }
    let listen = options.listen;
    let failed = |error: std::io::Error| {
        let cause = ioengine::error::cause(&error);
        Failure::failed(format!(
            "listening on {listen}: {cause}; specify another address or port with --listen"
        ))
    };
    let made = std::net::TcpListener::bind(listen).map_err(failed)?;
    made.set_nonblocking(true).map_err(failed)?;
    let address = made.local_addr().map_err(failed)?;
    let listener = tokio::net::TcpListener::from_std(made).map_err(failed)?;
    let access = Access::of_address(token.clone(), address, &machine::host_name());
    Ok((Listener::Tcp(listener), access, None))
}

/// Prints the address with the token, and how to use it.
fn say_how(options: &ServeOptions, console: &Console, listener: &Listener, token: &Token) {
    let (db, token) = (options.db.display(), token.text());
    console.say(format!("serving pages of {db} (read-only) until Ctrl-C"));
    match (listener, &options.unix) {
        (Listener::Tcp(listener), _) => {
            let Ok(address) = listener.local_addr() else { return };
            if !address.ip().is_loopback() {
                console.warn(
                    "other machines can connect, and HTTP is not encrypted, so anyone who sees the \
                     traffic can read the token and all results",
                );
            }
            let host = match address.ip().is_unspecified() {
                true => format!("{}:{}", machine::host_name(), address.port()),
                false => address.to_string(),
            };
            console::data(&format!("http://{host}/?token={token}"));
        }
        (Listener::Unix(_), path) => {
            let path = path.as_deref().unwrap_or(Path::new("")).display();
            console.say(format!(
                "to list runs: curl --unix-socket {path} -H 'Authorization: Bearer TOKEN' \
                 http://localhost/api/runs"
            ));
            console.say(format!(
                "to use a browser on another machine: run ssh -N -L 7752:{path} HOST on that \
                 machine, and replace localhost by localhost:7752 in the printed address"
            ));
            console::data(&format!("http://localhost/?token={token}"));
        }
    }
}
