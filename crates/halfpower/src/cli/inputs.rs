//! What can be typed after `halfpower cat` and `halfpower checksum`: files, and how to read them.

use std::path::PathBuf;

use clap::Args;

/// Flags of `cat`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower cat big.dat | wc -l
  halfpower cat --direct /dev/nvme0n1 | zstd > disk.zst
  halfpower cat part.* - < last > whole

Large files that are not in the page cache are read past it, several requests ahead (halfpower tune
finds how many); small ones and those that are there already are read through it. What was not in
the page cache before is not there afterwards, unless --cached is given. Pipes, devices and files of
/proc are read as they come. A file that cannot be read is named, and the others follow.")]
pub struct CatArgs {
    /// What to read, in this order; - is standard input, as is nothing at all
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Past the page cache wherever the file system can, also small files and those that are there
    #[arg(long)]
    pub direct: bool,
    /// Through the page cache, in which the files stay
    #[arg(long, conflicts_with = "direct")]
    pub cached: bool,
    /// Say nothing but warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what would be read and read nothing
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

A line is that of b3sum: 64 digits of BLAKE3, two blanks, the name; each can check the other's. In
names a backslash and line breaks are written \\\\, \\n and \\r, behind a backslash before the line.
The files in a directory come in the order of their names, folders among them; symbolic links in it
are not followed, and what is no file is left out. --check exits with 4 if a file differs, with 1 if
one cannot be read.")]
pub struct ChecksumArgs {
    /// Files and directories; - is standard input, as is nothing at all
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Compare the files that are named in SUMS with their lines there; - is standard input
    #[arg(long, value_name = "SUMS", conflicts_with = "files")]
    pub check: Option<PathBuf>,
    /// Print one JSON document instead of lines
    #[arg(long)]
    pub json: bool,
    /// No progress; with --check nothing of files that are as they should be
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what would be read and read nothing
    #[arg(long)]
    pub plan: bool,
}
