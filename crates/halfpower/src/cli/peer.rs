//! Flags of `peer`: the served folder, the address to listen on, the clients' key file, and the
//! rate limit.

use analysis::units;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Flags of `peer`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower peer --dir /srv/data                  on the server; only this machine can connect
  ssh -N -L 7750:127.0.0.1:7750 server &          on the client: open a tunnel, then run
  halfpower study network nbd://server/disk --peer 127.0.0.1:7750 --peer-key halfpower-peer.key

  halfpower peer --dir /srv/data --listen 192.0.2.7:7750      reachable over the network
  halfpower study network nfs://192.0.2.7/data/file --peer 192.0.2.7:7750 \\
      --peer-key halfpower-peer.key --peer-path file          also read the file on the server

A client needs the key file. Without --key-file, halfpower-peer.key is created in the current
directory; copy this file to the client in a safe way, such as scp. The connection is encrypted. A
client can read counters (CPU, network interfaces, the device below DIR), and measure reads of
regular files below DIR for at most 10 s. Contents and names of files are not sent, and nothing is
written. Ctrl-C ends the server. The address is printed on standard output.")]
pub struct PeerArgs {
    /// Folder whose files clients may read for measurements; symbolic links in it are not followed
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Address to listen on; with the default, only this machine can connect
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7750")]
    pub listen: SocketAddr,
    /// Existing key file (default: halfpower-peer.key in the current directory; if this default
    /// file is missing, it is created)
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Maximum rate at which a file is read, in bytes per second
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = units::parse_size)]
    pub max_rate: u64,
    /// Print only the address, warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}
