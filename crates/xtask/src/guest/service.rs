//! Starts the servers on this host that a guest uses: network servers (NBD, NFS, SMB, iSCSI) and
//! the virtiofs daemon.

use super::scenario::Scenario;
use crate::faults::running::pause;
use crate::faults::tally::Stopped;
use crate::server::{FILE, LOOPBACK, Process, Protocol, Server, Workplace};
use anyhow::{Result, bail, ensure};
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Path of the virtiofs daemon, which the QEMU package installs outside the PATH.
const VIRTIOFSD: &str = "/usr/lib/qemu/virtiofsd";
/// Name of the folder that is served to the guest over the network, virtiofs or 9p. It is a
/// subfolder of the guest's folder on this host. A [`Workplace`] requires this name.
pub const SHARED: &str = "data";
/// Size of the file that the servers serve (bytes).
const FILE_BYTES: u64 = 64 << 20;
/// Time limit for the start of the virtiofs daemon (ms).
const START_MS: u64 = 30_000;
/// Time between two checks whether the daemon has started (ms).
const LOOK_MS: u64 = 20;

/// The running servers of a guest, which are stopped on drop.
pub struct Services {
    servers: Vec<Server>,
    /// The virtiofs daemon and the path of its socket. None if the scenario does not use virtiofs.
    virtiofs: Option<(Process, PathBuf)>,
}

impl Services {
    /// Starts the servers of a scenario, with their files in `folder`.
    ///
    /// # Errors
    /// If a server does not start. If a program or a privilege is missing, the error is
    /// [`crate::faults::tally::Missing`].
    pub fn start(scenario: &Scenario, folder: &Path, stop: &AtomicBool) -> Result<Services> {
        let data = folder.join(SHARED);
        fs::create_dir(&data)?;
        File::create_new(data.join(FILE))?.set_len(FILE_BYTES)?;
        let workplace = Workplace { folder, stop };
        let start = |protocol: &Protocol| Server::start(&workplace, *protocol, LOOPBACK, ["", ""]);
        let servers = scenario.servers.iter().map(start).collect::<Result<_>>()?;
        let virtiofs = scenario.virtiofs.then(|| share(&workplace)).transpose()?;
        Ok(Services { servers, virtiofs })
    }

    /// Returns shell commands for the guest. They configure the network and set a variable to the
    /// port of each server, for example `NFS_PORT`.
    pub fn ports_text(&self) -> String {
        let mut text = String::new();
        for server in &self.servers {
            let name = server.protocol.name().to_uppercase();
            let _ = writeln!(text, "export {name}_PORT={}", server.port);
        }
        if !self.servers.is_empty() {
            text += "ip addr add 10.0.2.15/24 dev eth0\nip link set eth0 up\n";
        }
        text
    }

    /// Adds a network interface and the virtiofs device to the QEMU command, if they are needed.
    pub fn add_devices(&self, command: &mut Command) {
        if !self.servers.is_empty() {
            command.args(["-netdev", "user,id=host", "-device", "virtio-net-pci,netdev=host"]);
        }
        if let Some((_, socket)) = &self.virtiofs {
            // The virtiofs daemon reads and writes the memory of the guest, so the memory must be
            // shared.
            command.args(["-object", "memory-backend-memfd,id=memory,size=1G,share=on"]);
            command.args(["-machine", "memory-backend=memory", "-chardev"]);
            command.arg(format!("socket,id=virtiofs,path={}", socket.display()));
            command.args(["-device", "vhost-user-fs-pci,chardev=virtiofs,tag=host"]);
        }
    }
}

/// Starts the virtiofs daemon and waits until its socket exists. Returns the process and the path
/// of the socket.
fn share(workplace: &Workplace<'_>) -> Result<(Process, PathBuf)> {
    let Workplace { folder, stop } = *workplace;
    let (socket, log) = (folder.join("virtiofs"), folder.join("virtiofs-log"));
    let data = folder.join(SHARED);
    let words =
        format!("{VIRTIOFSD} --socket-path={} -o source={}", socket.display(), data.display());
    let process = Process::start(None, &words, None, &log)?;
    let is_over = || {
        pause(LOOK_MS);
        socket.exists() || !process.is_running()
    };
    for _ in 0..START_MS / LOOK_MS {
        if stop.load(Ordering::Relaxed) {
            bail!(Stopped);
        }
        if is_over() {
            break;
        }
    }
    let text = fs::read_to_string(&log).unwrap_or_default();
    ensure!(socket.exists() && process.is_running(), "virtiofsd did not start: {text}");
    Ok((process, socket))
}
