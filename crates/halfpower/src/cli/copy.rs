//! What can be typed after `halfpower copy`: what is copied where, how, and what is kept.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use lab::experiment::parameters;

/// Flags of `copy`.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  halfpower copy big.img /backup/             into a directory, durable when it says so
  halfpower copy -a /data /mnt/new            a tree with owners, times, attributes and hard links
  halfpower copy -a --delete --overwrite=/mnt/new /data/. /mnt/new     bring a copy up to date
  halfpower copy --verify big.img /mnt/usb/big.img      read back from the device and compared
  halfpower copy --resume big.img /mnt/nfs/   keeps what an interruption leaves, and goes on from it
  halfpower copy /dev/sdb disk.img            a device; to one: --destroy-data-on names it
  tar c . | halfpower copy - /backup/all.tar  standard input; DST - is standard output
  zstd -dc disk.zst | halfpower copy - /dev/sdb --destroy-data-on=ID

Where it goes, as with cp: into DST if that is a directory, else DST is the copy. SRC/ is the same
as SRC; SRC/. is what is in SRC. The same command again means the same DST again: what is there is
left alone, and what is missing is brought.

A file gets its name when it is whole: it is written without a name, or in a private directory
beside DST (.halfpower-*, removed at the end; after a kill by halfpower clean). Everything that can
be copied is copied; each failure is printed, and the exit code is 1 (3 if all of them are about
something that exists). What exists is replaced only where --overwrite names it, or names the
directory that a tree is copied to.

What is kept:                    default                  -p      -a
  permission bits                less the umask           yes     yes
  owner, group, times, ACLs      no                       yes     yes
  set-user-ID, set-group-ID      no                       if owner and group could be kept
  extended attributes, capabilities, hard links
                                 no                       no      yes
  chattr flags (+i, +a)          no                       no      no, and said
Without -p or -a nobody gets more rights than the source gave him: where the copy has another group
or an inherited ACL, its group gets what others have. A file that is replaced then keeps its own
owner, bits, ACL and attributes. Symbolic links in a tree stay links; pipes, sockets and devices are
made anew. Holes stay holes, and file systems that can share blocks do (btrfs, xfs).")]
pub struct CopyArgs {
    /// Files, directories or block devices, - for standard input; and where they go
    #[arg(value_names = ["SRC", "DST"], num_args = 1.., required = true)]
    pub paths: Vec<PathBuf>,
    /// Copy into this directory
    #[arg(long, short = 't', value_name = "DIR", conflicts_with = "no_target_directory")]
    pub target_directory: Option<PathBuf>,
    /// DST is the copy itself, also where it is a directory
    #[arg(long, short = 'T')]
    pub no_target_directory: bool,

    /// Keep everything: see below
    #[arg(long, short, help_heading = "What is kept")]
    pub archive: bool,
    /// Keep mode, owner and times
    #[arg(long, short, help_heading = "What is kept")]
    pub preserve: bool,
    /// Copy what symbolic links lead to
    #[arg(long, short = 'L', help_heading = "What is kept")]
    pub dereference: bool,
    /// Leave holes holes
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = parameters::boolean,
          default_value = "true", help_heading = "What is kept")]
    pub sparse: bool,

    /// Directories are always copied with all that is in them
    #[arg(long, short, visible_short_alias = 'R', hide = true)]
    pub recursive: bool,
    /// Do not look into directories on other file systems than SRC
    #[arg(long, short = 'x', help_heading = "Which entries")]
    pub one_file_system: bool,
    /// Patterns that decide which entries of trees are copied
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Leave existing files alone
    #[arg(long, short, conflicts_with = "update", help_heading = "Which entries")]
    pub no_clobber: bool,
    /// Replace only files that are older than their source
    #[arg(long, short, help_heading = "Which entries")]
    pub update: bool,
    /// Remove what SRC does not have from directories that --overwrite names
    #[arg(long, help_heading = "Which entries")]
    pub delete: bool,

    /// Checksum what is read, read the copy back from its device, and compare: exit 4 if it differs
    #[arg(long, help_heading = "Safety")]
    pub verify: bool,
    /// Go on from what an interrupted copy left, and leave something to go on from
    #[arg(long, help_heading = "Safety")]
    pub resume: bool,
    /// A tree appears when all of it is there, or not at all
    #[arg(long, help_heading = "Safety", conflicts_with = "resume")]
    pub all_or_nothing: bool,
    /// Do not wait until the copy is durable
    #[arg(long, help_heading = "Safety")]
    pub no_sync: bool,
    /// Allow replacing this file, or files in this directory that a tree goes to (repeatable)
    #[arg(long, value_name = "PATH", help_heading = "Safety")]
    pub overwrite: Vec<PathBuf>,
    /// Allow destroying the data on this device (by-id name, serial or kernel path)
    #[arg(long, value_name = "ID", help_heading = "Safety")]
    pub destroy_data_on: Vec<String>,
    /// Replace files (that --overwrite names) also where their owner cannot be kept
    #[arg(long, short, help_heading = "Safety")]
    pub force: bool,

    /// Copy no faster than this, such as 50MB/s
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, help_heading = "How")]
    pub limit_rate: Option<f64>,
    /// Through the page cache, and leave the copy there
    #[arg(long, help_heading = "How")]
    pub cached: bool,
    /// Request size [default: as tuned, else by the kind of storage]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, help_heading = "How")]
    pub bs: Option<u64>,
    /// Requests in flight on each side [default: as tuned, else by the kind of storage]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256),
          help_heading = "How")]
    pub iodepth: Option<u32>,
    /// How requests are issued: io_uring, threads, libaio, sync [default: the best there is]
    #[arg(long, value_name = "NAME", help_heading = "How")]
    pub ioengine: Option<String>,
    /// Files of a tree that are copied at once: they wait for a device more than for a CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64),
          default_value_t = 8, help_heading = "How")]
    pub numjobs: u32,

    /// Print each entry that is copied, replaced or removed
    #[arg(long, short, help_heading = "Output", conflicts_with = "json")]
    pub verbose: bool,
    /// Print one JSON document instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Say nothing but warnings and errors
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
    /// Print what would be copied where, and do nothing
    #[arg(long, visible_alias = "dry-run", help_heading = "Output")]
    pub plan: bool,
}

/// Patterns in the order in which they were typed: the first that matches decides.
#[derive(Debug, Clone, Default)]
pub struct FilterArgs {
    /// Whether each includes, and its text.
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
                "Leave out entries of trees that match, as rsync does: a name, or a path below SRC \
                 with a slash in it; *, ?, [a-z], **; a slash at the end: directories only. The \
                 first pattern that matches decides",
            ))
            .arg(pattern("include", "Copy entries that match, before a later --exclude"))
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
