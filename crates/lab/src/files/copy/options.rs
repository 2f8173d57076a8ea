//! Options of `halfpower copy`, and their conversion to settings of `filecopy` and `seqio`.

use analysis::units;
use std::path::PathBuf;

use filecopy::{Existing, Filter, FilterRule, Keep, Limiter, Links, Settings};
use ioengine::EngineKind;
use seqio::{Cache, Options};

use crate::failure::{Failure, Outcome};
use crate::guard::Consent;
use crate::journal;

/// Options of `halfpower copy`.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// The sources, followed by the destination. If `target_directory` is set, all paths are
    /// sources. A source `-` is standard input.
    pub paths: Vec<PathBuf>,
    /// Directory to copy into; None if the last path is the destination.
    pub target_directory: Option<PathBuf>,
    /// Whether to copy to the path of the destination even if a directory has this path. If false
    /// and the destination is a directory, the source is copied into that directory.
    pub no_target_directory: bool,
    /// The file attributes that copies keep, such as owner and times.
    pub keep: Keep,
    /// How symbolic links are copied.
    pub links: Links,
    /// Whether to preserve holes.
    pub sparse: bool,
    /// Whether to skip directories that are on another file system than the source.
    pub one_file_system: bool,
    /// Patterns in the order of the command line. Entries of directory trees that match a pattern
    /// are included (true) or excluded (false).
    pub patterns: Vec<(bool, String)>,
    /// What to do if the destination of an entry already exists.
    pub existing: Existing,
    /// Whether to delete entries of the destination that the source does not have. `consent` must
    /// allow this.
    pub delete: bool,
    /// Whether to replace files even if their owner cannot be kept.
    pub force: bool,
    /// Whether to read each copy back from its device and compare its checksum with the source's.
    pub verify: bool,
    /// Whether to resume an earlier copy that was interrupted. A copy with this option can itself
    /// be resumed later.
    pub resume: bool,
    /// Whether a directory tree gets its final name only when it is complete.
    pub all_or_nothing: bool,
    /// Whether to flush the copy to its device.
    pub sync: bool,
    /// The user's permission to replace files and to write to devices.
    pub consent: Consent,
    /// Rate limit (bytes per second); None: no limit.
    pub limit_rate: Option<f64>,
    /// Whether to copy through the page cache and keep the copied data cached afterwards.
    pub cached: bool,
    /// Request size (bytes). None: the size that an earlier tuning found or, without tuning, a
    /// default for the kind of storage.
    pub request_bytes: Option<u64>,
    /// Number of reads in flight from the source, and of writes in flight to the destination.
    /// None: the number that an earlier tuning found or, without tuning, a default for the kind of
    /// storage.
    pub depth: Option<u32>,
    /// Name of the I/O engine. None or "auto": the best available I/O engine.
    pub engine: Option<String>,
    /// Number of files of a directory tree that are copied concurrently.
    pub threads: u32,
    /// Whether to print each entry that is copied, skipped or removed.
    pub verbose: bool,
    /// Whether to print one JSON document instead of text.
    pub json: bool,
    /// Whether to print only warnings and errors.
    pub quiet: bool,
    /// Whether to print what would be copied, without copying it.
    pub plan: bool,
}

impl CopyOptions {
    /// Converts the options to settings of `filecopy`. The caller must add `may_replace` and
    /// `listener`; their defaults replace no file and report no events.
    ///
    /// # Errors
    /// A pattern, the request size or the I/O engine is invalid.
    pub(super) fn settings(&self) -> Outcome<Settings> {
        let rule = |(includes, text): &(bool, String)| FilterRule::new(*includes, text);
        let rules = self.patterns.iter().map(rule).collect::<Result<Vec<_>, String>>();
        Ok(Settings {
            options: self.streams()?,
            keep: self.keep,
            links: self.links,
            one_file_system: self.one_file_system,
            filter: Filter::new(rules.map_err(Failure::usage)?),
            existing: self.existing,
            delete: self.delete,
            force: self.force,
            all_or_nothing: self.all_or_nothing,
            verify: self.verify,
            resume: self.resume,
            sync: self.sync,
            cached: self.cached,
            dry_run: self.plan,
            threads: self.threads,
            state_folder: journal::copies_folder(),
            limiter: Limiter::new(self.limit_rate),
            ..Settings::default()
        })
    }

    /// Converts the options to options of `seqio`, which copies the data of large files.
    fn streams(&self) -> Outcome<Options> {
        let cache = if self.cached { Cache::Buffered } else { Cache::Auto };
        let mut options = Options::new().cache(cache).keep_holes(self.sparse);
        if let Some(bytes) = self.request_bytes {
            let most = *seqio::tune::REQUEST_BYTES.end();
            let fits = u32::try_from(bytes).ok().filter(|bytes| (1..=most).contains(bytes));
            let bytes = fits.ok_or_else(|| {
                let most = units::size(most.into());
                Failure::usage(format!("--bs {bytes} is out of range; use 1 to {most}"))
            })?;
            options = options.request_bytes(bytes);
        }
        if let Some(depth) = self.depth {
            options = options.depth(depth);
        }
        if let Some(name) = self.engine.as_deref().filter(|name| *name != "auto") {
            let engine_kind: EngineKind = name.parse()?;
            if !engine_kind.does_io() || engine_kind == EngineKind::Mmap {
                return Err(Failure::usage(format!(
                    "--ioengine {name} cannot copy files; use io_uring, threads, libaio or sync"
                )));
            }
            options = options.engine_kind(engine_kind);
        }
        Ok(options)
    }
}
