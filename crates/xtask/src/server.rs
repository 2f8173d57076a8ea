//! Starts servers of NBD, NFS, SMB and iSCSI that serve a file in the folder of a campaign.
//!
//! Each server has a separate folder for its configuration and state, and listens on one port of
//! one address. A server can run in a network namespace. It is stopped when [`Server`] is dropped.
//! If a program or a privilege is missing, the error is [`Missing`].

use crate::bench::host;
use crate::faults::running::pause;
use crate::faults::tally::{Missing, Stopped};
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// Name of the file that all servers serve, in the folder `data` of the campaign.
pub const FILE: &str = "disk";
/// User and password of the SMB server.
pub const CREDENTIALS: (&str, &str) = ("root", "not a secret");
/// Qualified name of the iSCSI target.
const TARGET: &str = "iqn.2026-01.test:disk";
/// Time limit for the start of a server (ms).
const START_MS: u64 = 60_000;
/// Time between two checks whether a server has started (ms).
const LOOK_MS: u64 = 20;
/// Maximum number of attempts to start a server. An attempt fails if another program takes the port
/// first.
const ATTEMPTS: u32 = 3;

/// A network protocol of storage servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// NBD. The server is nbdkit.
    Nbd,
    /// NFS 4.1. The server is nfs-ganesha.
    Nfs,
    /// SMB 2.1 with signed messages. The server is smbd of Samba.
    Smb,
    /// iSCSI. The server is tgtd of the Linux SCSI target framework.
    Iscsi,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Protocol; 4] = [Protocol::Nbd, Protocol::Nfs, Protocol::Smb, Protocol::Iscsi];

    /// Returns the usual name of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Nbd => "NBD",
            Protocol::Nfs => "NFS",
            Protocol::Smb => "SMB",
            Protocol::Iscsi => "iSCSI",
        }
    }

    /// Returns the name of the server program.
    pub fn program(self) -> &'static str {
        match self {
            Protocol::Nbd => "nbdkit",
            Protocol::Nfs => "ganesha.nfsd",
            Protocol::Smb => "smbd",
            Protocol::Iscsi => "tgtd",
        }
    }

    /// Returns the URL of the served file on a host and port.
    pub fn url(self, host: &str, port: u16) -> String {
        match self {
            Protocol::Nbd => format!("nbd://{host}:{port}/"),
            Protocol::Nfs => format!("nfs://{host}:{port}/data/{FILE}"),
            Protocol::Smb => format!("smb://{host}:{port}/data/{FILE}"),
            Protocol::Iscsi => format!("iscsi://{host}:{port}/{TARGET}/1"),
        }
    }
}

/// The campaign to which a server belongs.
pub struct Workplace<'a> {
    /// The folder of the campaign. Servers serve its subfolder `data`.
    pub folder: &'a Path,
    /// Whether the campaign must stop. Signal handlers set this flag.
    pub stop: &'a AtomicBool,
}

/// The network location of a server.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// IP address on which the server listens.
    pub host: &'a str,
    /// Network namespace in which the server runs. None for the namespace of this process.
    pub namespace: Option<&'a str>,
}

/// The loopback interface of this machine.
pub const LOOPBACK: Site<'static> = Site { host: "127.0.0.1", namespace: None };

/// A running server. On drop, the process is stopped before its folder is removed, because fields
/// are dropped in the order of their declaration.
pub struct Server {
    process: Process,
    /// Protocol of the server.
    pub protocol: Protocol,
    /// Port on which the server listens.
    pub port: u16,
    host: String,
    folder: TempDir,
}

impl Server {
    /// Starts a server. `filters` has additional arguments for nbdkit. The first string, for
    /// example `--filter=delay`, is inserted before the plugin. The second string is inserted after
    /// the arguments of the plugin.
    ///
    /// # Errors
    /// `Missing` if the program or a privilege is missing, or the server does not start.
    pub fn start(
        workplace: &Workplace<'_>,
        protocol: Protocol,
        site: Site<'_>,
        filters: [&str; 2],
    ) -> Result<Server> {
        installed(protocol.program())?;
        if protocol == Protocol::Smb {
            installed("smbpasswd")?;
        }
        if protocol == Protocol::Iscsi {
            installed("tgtadm")?;
        }
        if protocol != Protocol::Nbd && !geteuid().is_root() {
            bail!(Missing(format!("{} needs root", protocol.program())));
        }
        // If a portmapper runs on this machine, the NFS server would register with it, so the
        // server is not started.
        let has_portmapper =
            || site.namespace.is_none() && TcpStream::connect("127.0.0.1:111").is_ok();
        if protocol == Protocol::Nfs && has_portmapper() {
            bail!(Missing(
                "rpcbind is running, and ganesha.nfsd would register with it".to_owned()
            ));
        }
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            match Server::start_at(workplace, protocol, site, port, filters)? {
                Ok(server) => return Ok(server),
                Err(output) => last = output,
            }
        }
        bail!(Missing(format!("{} did not start: {last}", protocol.program())))
    }

    /// Starts a server on a port. If the server does not start, the inner error is the last line of
    /// its output.
    fn start_at(
        workplace: &Workplace<'_>,
        protocol: Protocol,
        site: Site<'_>,
        port: u16,
        filters: [&str; 2],
    ) -> Result<Result<Server, String>> {
        let folder = tempfile::tempdir_in(workplace.folder)?;
        let (path, data) = (folder.path(), workplace.folder.join("data"));
        let host = site.host;
        let file = data.join(FILE);
        let (words, control) = match protocol {
            Protocol::Nbd => {
                let [filter, parameters] = filters;
                let words = format!(
                    "nbdkit --foreground --ipaddr {host} --port {port} --threads 16 {filter} \
                     file {} {parameters}",
                    file.display()
                );
                (words, None)
            }
            Protocol::Nfs => (configure_nfs(path, &data, host, port)?, None),
            Protocol::Smb => (configure_smb(path, &data, host, port)?, None),
            Protocol::Iscsi => {
                let words = format!("tgtd -f -C 1 --iscsi portal={host}:{port}");
                (words, Some(path.join("control")))
            }
        };
        let log = path.join("log");
        let process = Process::start(site.namespace, &words, control.as_deref(), &log)?;
        let host = host.to_owned();
        let server = Server { process, protocol, port, host, folder };
        if !server.listens(workplace.stop)? {
            let log = fs::read_to_string(&log).unwrap_or_default();
            return Ok(Err(log.lines().last().unwrap_or("no output").to_owned()));
        }
        if protocol == Protocol::Iscsi {
            server.add_disk(&file)?;
        }
        Ok(Ok(server))
    }

    /// Returns the URL of the served file.
    pub fn url(&self) -> String {
        self.protocol.url(&self.host, self.port)
    }

    /// Waits until the server listens. Returns false if the server ends or does not listen within
    /// the time limit.
    fn listens(&self, stop: &AtomicBool) -> Result<bool> {
        for _ in 0..START_MS / LOOK_MS {
            if stop.load(Ordering::Relaxed) {
                return Err(Stopped.into());
            }
            if !self.process.is_running() {
                return Ok(false);
            }
            // These files list the sockets in the network namespace of the server.
            let tables = ["tcp", "tcp6"].map(|name| {
                let path = format!("/proc/{}/net/{name}", self.process.0.id());
                fs::read_to_string(path).unwrap_or_default()
            });
            if tables.iter().any(|table| has_listener(table, self.port)) {
                return Ok(true);
            }
            pause(LOOK_MS);
        }
        Ok(false)
    }

    /// Creates the iSCSI target with the served file as its disk.
    fn add_disk(&self, file: &Path) -> Result<()> {
        let admin = |words: &str| -> Result<()> {
            let mut command = Command::new(installed("tgtadm")?);
            command.args(["-C", "1", "--lld", "iscsi", "--mode"]).args(words.split(' '));
            command.env("TGT_IPC_SOCKET", self.folder.path().join("control"));
            let output = command.output().context("cannot start tgtadm")?;
            let message = String::from_utf8_lossy(&output.stderr);
            anyhow::ensure!(output.status.success(), "tgtadm {words}: {}", message.trim());
            Ok(())
        };
        // After tgtd has started to listen, it takes some time until it accepts commands of tgtadm.
        let answers = (0..500).any(|_| {
            let answers = admin("target --op show").is_ok();
            if !answers {
                pause(LOOK_MS);
            }
            answers
        });
        anyhow::ensure!(answers, "tgtd does not accept commands of tgtadm");
        admin(&format!("target --op new --tid 1 --targetname {TARGET}"))?;
        admin(&format!("logicalunit --op new --tid 1 --lun 1 -b {}", file.display()))?;
        admin("target --op bind --tid 1 --initiator-address ALL")
    }
}

/// Returns whether a table of TCP sockets (/proc/net/tcp, see proc(5)) contains a listening socket
/// (state 0A) on this port.
fn has_listener(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        columns.next().is_some_and(|local| local.ends_with(&port)) && columns.nth(1) == Some("0A")
    })
}

/// Writes the configuration of ganesha.nfsd and returns the command line of the server.
fn configure_nfs(folder: &Path, data: &Path, host: &str, port: u16) -> Result<String> {
    fs::create_dir(folder.join("recovery"))?;
    let (at, data) = (folder.display(), data.display());
    let text = format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = {host}; \
         Enable_UDP = false; Enable_NLM = false; Enable_RQUOTA = false; \
         Dbus_Name_Prefix = \"halfpower{port}\"; }}\n\
         NFSv4 {{ Graceless = true; Lease_Lifetime = 60; Minor_Versions = 1; \
         RecoveryBackend = fs; RecoveryRoot = \"{at}/recovery\"; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{data}\"; Pseudo = \"/data\"; Access_Type = RW; \
         Squash = no_root_squash; SecType = sys; Protocols = 4; Transports = TCP; \
         FSAL {{ Name = VFS; }} }}\n"
    );
    fs::write(folder.join("ganesha.conf"), text)?;
    Ok(format!("ganesha.nfsd -F -f {at}/ganesha.conf -L {at}/log -p {at}/pid"))
}

/// Writes the configuration of smbd, adds a user, and returns the command line of the server.
fn configure_smb(folder: &Path, data: &Path, host: &str, port: u16) -> Result<String> {
    fs::create_dir(folder.join("state"))?;
    let at = folder.display();
    let state = ["lock directory", "state directory", "cache directory", "pid directory"];
    let state = state.map(|name| format!("{name} = {at}/state\n")).concat();
    let text = format!(
        "[global]\nserver role = standalone server\nworkgroup = TEST\n\
         interfaces = {host}\nbind interfaces only = yes\nsmb ports = {port}\n\
         disable netbios = yes\ndisable spoolss = yes\nload printers = no\n\
         private dir = {at}/state\nncalrpc dir = {at}/state/ncalrpc\n{state}\
         passdb backend = tdbsam:{at}/state/passdb.tdb\nlog file = {at}/log\n\
         [data]\npath = {}\nforce user = root\nwritable = yes\n",
        data.display()
    );
    let configuration = folder.join("smb.conf");
    fs::write(&configuration, text)?;
    let (user, password) = CREDENTIALS;
    let mut command = Command::new(installed("smbpasswd")?);
    command.arg("-c").arg(&configuration).args(["-s", "-a", user]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context("cannot start smbpasswd")?;
    let mut input = child.stdin.take().context("smbpasswd has no input")?;
    let written = input.write_all(format!("{password}\n{password}\n").as_bytes());
    drop(input);
    if !child.wait()?.success() || written.is_err() {
        bail!(Missing("smbpasswd cannot add a user".to_owned()));
    }
    let configuration = configuration.display();
    Ok(format!("smbd --foreground --no-process-group --configfile={configuration}"))
}

/// Returns the path of a program on the PATH or in the sbin folders. Returns the error `Missing` if
/// the program is not installed.
pub fn installed(program: &str) -> Result<PathBuf> {
    let beside = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(program));
    let found = host::on_path(program).or_else(|| beside.into_iter().find(|path| path.is_file()));
    found.ok_or_else(|| Missing(format!("{program} is not installed")).into())
}

/// A process group: a process and the processes that it starts. All of them are killed on drop.
pub struct Process(Child);

impl Process {
    /// Starts a command in a network namespace, or in the namespace of this process if `namespace`
    /// is None. `words` is the command line. It is split at spaces. `control` is the socket on
    /// which tgtd accepts commands of tgtadm.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(
        namespace: Option<&str>,
        words: &str,
        control: Option<&Path>,
        log: &Path,
    ) -> Result<Process> {
        let mut words = words.split_whitespace();
        let program = words.next().context("no program")?;
        let mut line = Vec::new();
        if let Some(name) = namespace {
            line.extend(["ip", "netns", "exec", name].map(PathBuf::from));
        }
        // With setpriv, the kernel kills the server if this process is killed.
        if host::on_path("setpriv").is_some() {
            line.extend(["setpriv", "--pdeathsig", "KILL"].map(PathBuf::from));
        }
        line.push(installed(program)?);
        line.extend(words.map(PathBuf::from));
        let output = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(installed(&line[0].to_string_lossy())?);
        command.args(&line[1..]).process_group(0).stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(output);
        if let Some(control) = control {
            command.env("TGT_IPC_SOCKET", control);
        }
        Ok(Process(command.spawn().with_context(|| format!("cannot start {program}"))?))
    }

    /// Returns whether the process is still running, from its state in /proc/PID/stat (see
    /// proc(5)). The PID cannot have been reused, because the exit status is collected only on
    /// drop.
    pub fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Processes that the server started may run in its process group even if the server has
        // ended.
        let _ = killpg(Pid::from_raw(self.0.id() as i32), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_by_its_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
                     0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n   \
                     1: 0100007F:1F91 0100007F:C000 01 00000000:00000000\n";
        assert!(has_listener(table, 8080));
        assert!(!has_listener(table, 8081), "a connection is not a listener");
        assert!(!has_listener(table, 0xc000) && !has_listener("", 8080));
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(None, "sleep 1000", None, &folder.path().join("log")).unwrap();
        let id = process.0.id();
        assert!(process.is_running());
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn a_process_that_ended_does_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(None, "true", None, &folder.path().join("log")).unwrap();
        assert!((0..3000).any(|_| {
            pause(LOOK_MS);
            !process.is_running()
        }));
    }
}
