//! Flags of `copy`: sources and destination, what is preserved, what may be overwritten, and the
//! method of copying.

use analysis::units;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use lab::experiment::parameters;

/// Flags of `copy`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower copy big.img /backup/             into a directory; durable when the command ends
  halfpower copy -a /data /mnt/new            a tree with owners, times, attributes and hard links
  halfpower copy -a --delete --overwrite=/mnt/new /data/. /mnt/new     bring a copy up to date
  halfpower copy --verify big.img /mnt/usb/big.img      read back from the device and compare
  halfpower copy --resume big.img /mnt/nfs/   resumable after an interruption
  halfpower copy /dev/sdb disk.img            an image of a device
  tar c . | halfpower copy - /backup/all.tar  standard input; DST - is standard output
  zstd -dc disk.zst | halfpower copy - /dev/sdb --destroy-data-on=ID

As with cp, SRC is copied into DST if DST is a directory; otherwise the copy is named DST. SRC/ is
the same as SRC; SRC/. means the contents of SRC. Repeating the command uses the same DST: entries
that are already copied are left alone, and missing entries are copied.

A file gets its name only when it is complete. Until then it has no name, or is in a private
directory next to DST (.halfpower-*), which is removed at the end, or by halfpower clean if the copy
was killed. A failure does not prevent copying the other entries. Each failure is printed, and the
exit code is 1 (3 if all failures concern existing entries). An existing file is replaced only if
--overwrite names it, or names the directory to which a tree is copied.

What is kept:                    default                  -p      -a
  permission bits                minus the umask          yes     yes
  owner, group, times, ACLs      no                       yes     yes
  set-user-ID, set-group-ID      no                       if owner and group can be kept
  extended attributes, capabilities, hard links
                                 no                       no      yes
  chattr flags (+i, +a)          no                       no      no, but reported
Without -p or -a nobody gets more permissions than on the source: if the copy has another group or
an inherited ACL, its group gets the permissions of others. A replaced file then keeps its own
owner, mode, ACL and attributes. Symbolic links in a tree stay links; pipes, sockets and devices are
created again. Holes are preserved. On btrfs and xfs, the copy shares the blocks of its source.")]
pub struct CopyArgs {
    /// Sources (files, directories or block devices; - for standard input), then the destination
    #[arg(value_names = ["SRC", "DST"], num_args = 1.., required = true)]
    pub paths: Vec<PathBuf>,
    /// Copy into this directory
    #[arg(long, short = 't', value_name = "DIR", conflicts_with = "no_target_directory")]
    pub target_directory: Option<PathBuf>,
    /// Give the copy the name DST, even if DST is a directory
    #[arg(long, short = 'T')]
    pub no_target_directory: bool,

    /// Keep everything that can be kept, also hard links and extended attributes (see below)
    #[arg(long, short, help_heading = "What is kept")]
    pub archive: bool,
    /// Keep mode, owner and times
    #[arg(long, short, help_heading = "What is kept")]
    pub preserve: bool,
    /// Copy the targets of symbolic links instead of the links
    #[arg(long, short = 'L', help_heading = "What is kept")]
    pub dereference: bool,
    /// Preserve holes
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = parameters::boolean,
          default_value = "true", help_heading = "What is kept")]
    pub sparse: bool,

    /// No effect: directories are always copied recursively
    #[arg(long, short, visible_short_alias = 'R', hide = true)]
    pub recursive: bool,
    /// Do not enter directories on other file systems than that of SRC
    #[arg(long, short = 'x', help_heading = "Which entries")]
    pub one_file_system: bool,
    /// Patterns that decide which entries of trees are copied
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Leave existing files alone
    #[arg(long, short, conflicts_with = "update", help_heading = "Which entries")]
    pub no_clobber: bool,
    /// Replace only files older than their source
    #[arg(long, short, help_heading = "Which entries")]
    pub update: bool,
    /// In directories specified with --overwrite, delete entries that SRC does not have
    #[arg(long, help_heading = "Which entries")]
    pub delete: bool,

    /// Read the copy back from its device and compare checksums; exit code 4 if they differ
    #[arg(long, help_heading = "Safety")]
    pub verify: bool,
    /// Resume an interrupted copy, and make this copy resumable
    #[arg(long, help_heading = "Safety")]
    pub resume: bool,
    /// Make a tree visible only when it is complete
    #[arg(long, help_heading = "Safety", conflicts_with = "resume")]
    pub all_or_nothing: bool,
    /// Do not flush the copy to its device
    #[arg(long, help_heading = "Safety")]
    pub no_sync: bool,
    /// Allow replacing this file, or existing files in this destination directory (repeatable)
    #[arg(long, value_name = "PATH", help_heading = "Safety")]
    pub overwrite: Vec<PathBuf>,
    /// Allow destroying the data on this device (by-id name, serial or device path)
    #[arg(long, value_name = "ID", help_heading = "Safety")]
    pub destroy_data_on: Vec<String>,
    /// Replace files specified with --overwrite even if their owner cannot be kept
    #[arg(long, short, help_heading = "Safety")]
    pub force: bool,

    /// Rate limit, such as 50MB/s
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, help_heading = "Method")]
    pub limit_rate: Option<f64>,
    /// Use the page cache, and keep the copied data in it
    #[arg(long, help_heading = "Method")]
    pub cached: bool,
    /// Request size [default: the result of halfpower tune, otherwise depends on the kind of
    /// storage]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "Method")]
    pub bs: Option<u64>,
    /// Queue depth of the source and of the destination [default: the result of halfpower tune,
    /// otherwise depends on the kind of storage]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256),
          help_heading = "Method")]
    pub iodepth: Option<u32>,
    /// I/O engine: io_uring, threads, libaio, sync [default: the best available]
    #[arg(long, value_name = "NAME", help_heading = "Method")]
    pub ioengine: Option<String>,
    /// Number of files of a tree that are copied concurrently
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64),
          default_value_t = 8, help_heading = "Method")]
    pub numjobs: u32,

    /// Print each entry that is copied, replaced or removed
    #[arg(long, short, help_heading = "Output", conflicts_with = "json")]
    pub verbose: bool,
    /// Print one JSON document instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print only warnings and errors
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
    /// Only print what would be copied, and to which path
    #[arg(long, visible_alias = "dry-run", help_heading = "Output")]
    pub plan: bool,
}

/// Patterns of --include and --exclude, in the order of the command line. The first matching
/// pattern decides.
#[derive(Debug, Clone, Default)]
pub struct FilterArgs {
    /// For each pattern: whether it includes entries (--include), and its text.
    pub patterns: Vec<(bool, String)>,
}

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        let pattern = |name: &'static str, help: &'static str| {
            let arg = Arg::new(name).long(name).value_name("PATTERN").action(ArgAction::Append);
            arg.help(help).help_heading("Which entries")
        };
        command
            .arg(pattern(
                "exclude",
                "Skip matching files and directories below SRC, as rsync does. A pattern without a \
                 slash matches names, and a pattern with a slash matches paths below SRC. A slash \
                 at the end only restricts the pattern to directories. Wildcards: *, ?, [a-z], **. \
                 Of all --include and --exclude patterns, in the given order, the first that \
                 matches an entry decides whether the entry is copied",
            ))
            .arg(pattern("include", "Copy matching entries even if a later --exclude matches them"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        FilterArgs::augment_args(command)
    }
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<FilterArgs, clap::Error> {
        let mut found: Vec<(usize, bool, String)> = Vec::new();
        for (name, includes) in [("include", true), ("exclude", false)] {
            let values = matches.get_many::<String>(name).into_iter().flatten();
            let places = matches.indices_of(name).into_iter().flatten();
            found.extend(places.zip(values).map(|(place, text)| (place, includes, text.clone())));
        }
        found.sort();
        let patterns = found.into_iter().map(|(_, includes, text)| (includes, text)).collect();
        Ok(FilterArgs { patterns })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = FilterArgs::from_arg_matches(matches)?;
        Ok(())
    }
}
