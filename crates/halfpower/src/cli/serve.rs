//! Flags of `serve` and `report`: which pages of a database are shown, and at which address or
//! path.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Flags of `serve`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower serve                           pages of halfpower.db at the address that is printed
  halfpower serve --db all.db --listen 127.0.0.1:8080
  halfpower serve --unix halfpower.socket   only you can connect to the socket
  ssh -N -L 7752:127.0.0.1:7752 db1 &       a browser on another machine, through a tunnel

The list of runs leads to a page for each run and each target. Choose runs in the list to compare
them. The page of a run in progress is updated during the run. The address has a random token, which
the browser keeps in a cookie. Programs send the token as follows:
  curl -H 'Authorization: Bearer TOKEN' ADDRESS/api/runs
The database is opened read only, nothing else is read, and nothing is written. Ctrl-C ends the
server. The address is printed on standard output.")]
pub struct ServeArgs {
    /// Results database
    #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
    pub db: PathBuf,
    /// Address to listen on; port 0 selects any free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7752")]
    pub listen: SocketAddr,
    /// Listen on a new Unix socket at this path instead
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub unix: Option<PathBuf>,
    /// Allow --listen with an address that other machines can reach; the pages, and the token that
    /// gives access to them, are not encrypted
    #[arg(long)]
    pub allow_remote: bool,
    /// Print only the address, warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `report`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower report                     the latest survey of halfpower.db
  halfpower report 12 --html disk.html
  halfpower report --all               a gallery: the list of runs, and a page for each
  halfpower report --all --html site --newest 500

Pages of the gallery are files in a folder, which can be copied to a web server. Only pages of
halfpower are replaced. halfpower serve shows the same pages from the database.")]
pub struct ReportArgs {
    /// The survey: its number, the beginning of its uuid, or latest
    #[arg(value_name = "RUN", default_value = "latest", conflicts_with = "all")]
    pub run: String,
    /// Write a gallery to a folder: pages of runs, and a list of all runs, hosts and targets
    #[arg(long)]
    pub all: bool,
    /// With --all, write pages of only the N newest runs
    #[arg(long, value_name = "N", default_value_t = 100, requires = "all")]
    pub newest: usize,
    /// Results database
    #[arg(long, value_name = "FILE", default_value = "halfpower.db")]
    pub db: PathBuf,
    /// Path of the HTML page (default: halfpower.html); with --all, path of the folder with pages
    /// (default: halfpower-pages)
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
    /// Only print what would be done
    #[arg(long)]
    pub plan: bool,
}
