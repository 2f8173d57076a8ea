//! Flags of `cat` and `checksum`, the subcommands that only read files. Both read standard input if
//! no file is given or the file is `-`.

use std::path::PathBuf;

use clap::Args;

/// Flags of `cat`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower cat big.dat | wc -l
  halfpower cat --direct /dev/nvme0n1 | zstd > disk.zst
  halfpower cat part.* - < last > whole

Large uncached files are read with direct I/O and several requests in flight (see halfpower tune);
small or cached files are read through the page cache. Files that were not cached before are not
cached afterwards, unless --cached is given. Pipes, character devices and files in /proc are read
sequentially. A file that cannot be read is reported, and the others are still read.")]
pub struct CatArgs {
    /// Files to read, in this order; - is standard input [default: -]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Use direct I/O where the file system supports it, even for small or cached files
    #[arg(long)]
    pub direct: bool,
    /// Read through the page cache, and leave the files in it
    #[arg(long, conflicts_with = "direct")]
    pub cached: bool,
    /// Print only warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what would be read, without reading it
    #[arg(long)]
    pub plan: bool,
}

/// Flags of `checksum`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower checksum disk.img
  halfpower checksum photos > SUMS
  halfpower checksum --check SUMS --quiet
  halfpower cat /dev/sdb | halfpower checksum

The output format is that of b3sum: 64 hexadecimal digits, two spaces, the name; each program can
check the other's files. If a name contains a backslash or line break, these are written \\\\, \\n
and \\r, and the line starts with a backslash. Directories are read recursively, sorted by name;
symbolic links in them are not followed, and special files are skipped. Exit code of --check: 4 if a
file differs, 1 if a file cannot be read.")]
pub struct ChecksumArgs {
    /// Files and directories; - is standard input [default: -]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Check the files listed in SUMS; - is standard input
    #[arg(long, value_name = "SUMS", conflicts_with = "files")]
    pub check: Option<PathBuf>,
    /// Print one JSON document instead of lines
    #[arg(long)]
    pub json: bool,
    /// Print no progress; with --check, print only files that differ or cannot be read
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what would be read, without reading it
    #[arg(long)]
    pub plan: bool,
}
