//! What this host serves to a guest: disks and folders over the network, and a folder by virtiofs.

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

/// The daemon of virtiofs, which QEMU's package keeps outside the PATH.
const VIRTIOFSD: &str = "/usr/lib/qemu/virtiofsd";
/// The folder of this host that servers, virtiofs and 9p serve, in that of the guest's files. Its
/// name is that of a [`Workplace`].
pub const SHARED: &str = "data";
/// The length of the file that servers serve.
const FILE_BYTES: u64 = 64 << 20;
/// How long the daemon of virtiofs may take to listen (ms), and the time between two looks.
const START_MS: u64 = 30_000;
const LOOK_MS: u64 = 20;

/// The running servers of a guest. They end when the value is dropped.
pub struct Services {
    servers: Vec<Server>,
    /// The daemon of virtiofs and its socket.
    virtiofs: Option<(Process, PathBuf)>,
}

impl Services {
    /// Starts the servers of a scenario, whose files are in `folder`.
    ///
    /// # Errors
    /// [`crate::faults::tally::Missing`] if a program or privilege is missing; a server does not
    /// start.
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

    /// Shell commands that set a variable for the port of each server.
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

    /// Adds a network interface and the folder of virtiofs to a guest.
    pub fn add_devices(&self, command: &mut Command) {
        if !self.servers.is_empty() {
            command.args(["-netdev", "user,id=host", "-device", "virtio-net-pci,netdev=host"]);
        }
        if let Some((_, socket)) = &self.virtiofs {
            // The daemon reads and writes the memory of the guest.
            command.args(["-object", "memory-backend-memfd,id=memory,size=1G,share=on"]);
            command.args(["-machine", "memory-backend=memory", "-chardev"]);
            command.arg(format!("socket,id=virtiofs,path={}", socket.display()));
            command.args(["-device", "vhost-user-fs-pci,chardev=virtiofs,tag=host"]);
        }
    }
}

/// Starts the daemon of virtiofs.
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
    ensure!(socket.exists() && process.is_running(), "virtiofsd does not start: {text}");
    Ok((process, socket))
}
