//! Options of a copy, and the settings of `filecopy` and `seqio` that follow from them.

use analysis::units;
use std::path::PathBuf;

use filecopy::{Existing, Filter, FilterRule, Keep, Limiter, Links, Settings};
use ioengine::EngineKind;
use seqio::{Cache, Options};

use crate::failure::{Failure, Outcome};
use crate::guard::Consent;
use crate::journal;

/// Options of a copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Files, directories or block devices (- for standard input). The last one is the destination,
    /// unless there is a target directory.
    pub paths: Vec<PathBuf>,
    /// Copy into this directory.
    pub target_directory: Option<PathBuf>,
    /// The destination is the name of the copy, not a directory to copy into.
    pub no_target_directory: bool,
    /// Which metadata of the sources is kept.
    pub keep: Keep,
    /// How symbolic links are copied.
    pub links: Links,
    /// Preserve holes.
    pub sparse: bool,
    /// Do not enter directories on other file systems than the source.
    pub one_file_system: bool,
    /// Patterns that decide which entries of trees are copied, in order. True: the pattern includes
    /// entries; false: it excludes them.
    pub patterns: Vec<(bool, String)>,
    /// What to do with existing entries.
    pub existing: Existing,
    /// Delete entries that the source does not have, if `consent` allows it.
    pub delete: bool,
    /// Replace files even if their owner cannot be kept.
    pub force: bool,
    /// Read the copy back from its device and compare checksums.
    pub verify: bool,
    /// Resume an interrupted copy, and make this copy resumable.
    pub resume: bool,
    /// Make a tree visible only when it is complete.
    pub all_or_nothing: bool,
    /// Flush the copy to its device.
    pub sync: bool,
    /// The user's permission to replace files and to write to devices.
    pub consent: Consent,
    /// Rate limit (bytes per second).
    pub limit_rate: Option<f64>,
    /// Use the page cache and leave the copy there.
    pub cached: bool,
    /// Request size (bytes); None: as tuned, else by the kind of storage.
    pub request_bytes: Option<u64>,
    /// Requests in flight on each side; None: as tuned, else by the kind of storage.
    pub depth: Option<u32>,
    /// Name of the I/O engine; None or auto: the best available.
    pub engine: Option<String>,
    /// Number of files of a tree that are copied concurrently.
    pub threads: u32,
    /// Print each entry that is copied, replaced or removed.
    pub verbose: bool,
    /// Print one JSON document instead of text.
    pub json: bool,
    /// Print only warnings and errors.
    pub quiet: bool,
    /// Print what would be copied where and do nothing.
    pub plan: bool,
}

impl CopyOptions {
    /// The settings of a session that may replace nothing and reports no events.
    ///
    /// # Errors
    /// An invalid pattern, request size or I/O engine.
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

    /// How the data of large files are moved.
    fn streams(&self) -> Outcome<Options> {
        let cache = if self.cached { Cache::Buffered } else { Cache::Auto };
        let mut options = Options::new().cache(cache).keep_holes(self.sparse);
        if let Some(bytes) = self.request_bytes {
            let most = *seqio::tune::REQUEST_BYTES.end();
            let fits = u32::try_from(bytes).ok().filter(|bytes| (1..=most).contains(bytes));
            let bytes = fits.ok_or_else(|| {
                let most = units::size(most.into());
                Failure::usage(format!("--bs {bytes}: use 4k to {most}"))
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
                    "--ioengine {name} cannot stream; use io_uring, threads, libaio or sync"
                )));
            }
            options = options.engine_kind(engine_kind);
        }
        Ok(options)
    }
}
