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
    /// Files, directories or block devices (- for standard input). The last path is the
    /// destination, unless `target_directory` is set.
    pub paths: Vec<PathBuf>,
    /// Directory to copy into; None if the last path is the destination.
    pub target_directory: Option<PathBuf>,
    /// Whether the destination is always the path of the copy itself, never a directory to copy
    /// into.
    pub no_target_directory: bool,
    /// Which metadata the copies keep from their sources.
    pub keep: Keep,
    /// How symbolic links are copied.
    pub links: Links,
    /// Whether to preserve holes.
    pub sparse: bool,
    /// Whether to skip directories that are on another file system than the source.
    pub one_file_system: bool,
    /// Patterns that decide which entries of directory trees are copied, in order. The flag of a
    /// pattern is true if the pattern includes entries and false if it excludes entries.
    pub patterns: Vec<(bool, String)>,
    /// What to do if the destination of an entry already exists.
    pub existing: Existing,
    /// Whether to delete entries of the destination that do not exist in the source, if `consent`
    /// allows that.
    pub delete: bool,
    /// Whether to replace files even if their owner cannot be kept.
    pub force: bool,
    /// Whether to read the copy back from its device and compare checksums.
    pub verify: bool,
    /// Whether to resume an interrupted copy and make this copy resumable.
    pub resume: bool,
    /// Whether a directory tree becomes visible only when it is complete.
    pub all_or_nothing: bool,
    /// Whether to flush the copy to its device.
    pub sync: bool,
    /// The user's permission to replace files and to write to devices.
    pub consent: Consent,
    /// Rate limit (bytes per second); None: no limit.
    pub limit_rate: Option<f64>,
    /// Whether to copy through the page cache and leave the copied data in it.
    pub cached: bool,
    /// Request size (bytes). None: the tuned size or, if there is none, a default for the kind of
    /// storage.
    pub request_bytes: Option<u64>,
    /// Number of requests in flight for the source, and also for the destination. None: the tuned
    /// number or, if there is none, a default for the kind of storage.
    pub depth: Option<u32>,
    /// Name of the I/O engine; None or auto: the best available I/O engine.
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
    /// Returns the settings of a session that may replace nothing and reports no events.
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

    /// Returns the options for moving the data of large files.
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
