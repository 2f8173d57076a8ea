//! Checks and converts the flags in the group Engine of `--help`. They specify the options of the
//! I/O engine and periodic flushes. Some of the options also determine the caching mode.

use ioengine::{Caching, EngineKind, EngineOption, EngineOptions};
use workload::FlushEvery;

use crate::experiment::Experiment;
use crate::failure::{Failure, Outcome};
use crate::flag_names::in_flags;

/// What the flags in the group Engine of `--help` specify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFlags {
    /// Options for all I/O engines of the job.
    pub options: EngineOptions,
    /// How often each thread flushes its writes (`--fsync`, `--fdatasync`). None without these
    /// flags.
    pub flush_every: Option<FlushEvery>,
    /// Whether I/O is direct. None to use direct I/O if the target supports it.
    pub direct: Option<bool>,
}

impl EngineFlags {
    /// Checks and converts the flags for the I/O engines of a job. In `engine_kinds`, None means
    /// the best engine of this host.
    ///
    /// # Errors
    ///
    /// If a flag has no effect in this job, or the kernel does not support the flag. The usage
    /// error contains the remedy.
    pub fn resolve(
        experiment: &Experiment,
        engine_kinds: &[Option<EngineKind>],
        writes: bool,
    ) -> Outcome<EngineFlags> {
        let wanted = &experiment.engine;
        let options = EngineOptions {
            sq_poll: wanted.sqthread_poll,
            io_poll: wanted.hipri,
            uncached: wanted.uncached,
            fua: wanted.fua,
            zone_append: wanted.zone_append,
            any_thread: false,
        };
        check_offered(options)?;
        if options.fua && !writes {
            return Err(Failure::usage("--fua is for writes only; use --rw write, or drop --fua"));
        }
        if options.zone_append && !writes {
            let why = "--zone-append is for writes only; use --rw write, or drop --zone-append";
            return Err(Failure::usage(why));
        }
        // Usually, options are checked when a target is opened. A job with the engine `null` or
        // `delay` opens no file or block device, so the options are checked here.
        for engine_kind in engine_kinds.iter().flatten().filter(|p| !p.does_io()) {
            options.check(*engine_kind, Caching::Direct)?;
        }
        let direct = direct(experiment.direct, options, engine_kinds)?;
        let flush_every = flush_every(experiment, engine_kinds, writes)?;
        Ok(EngineFlags { options, flush_every, direct })
    }
}

/// Refuses options that this kernel does not support. Options that the target does not support are
/// refused later, when the target is opened.
fn check_offered(options: EngineOptions) -> Outcome<()> {
    let of_kernel = [EngineOption::SqPoll, EngineOption::IoPoll];
    for option in of_kernel.into_iter().filter(|option| options.has(*option)) {
        let found = option.availability();
        if !found.available {
            let (name, why) = (option.name(), found.detail);
            let what = format!("`{name}` is not available here: {why}");
            return Err(Failure::usage(in_flags(&what)));
        }
    }
    Ok(())
}

/// Returns whether I/O is direct. `--direct` specifies this, but some I/O engines and options work
/// only in one of the two modes. Returns None if nothing determines the mode.
fn direct(
    typed: Option<bool>,
    options: EngineOptions,
    engine_kinds: &[Option<EngineKind>],
) -> Outcome<Option<bool>> {
    let maps = engine_kinds.contains(&Some(EngineKind::Mmap));
    let buffered = match (maps, options.uncached) {
        (true, _) => Some("--ioengine mmap always uses the page cache"),
        (false, true) => Some("--uncached is for requests that go through the page cache"),
        (false, false) => None,
    };
    match (buffered, options.io_poll, typed) {
        (Some(why), true, _) => Err(Failure::usage(format!(
            "{why}, but --hipri works only with direct requests; drop one of the two flags"
        ))),
        (Some(why), false, Some(true)) => {
            Err(Failure::usage(format!("{why}; use --direct=0, or drop --direct")))
        }
        (Some(_), false, _) => Ok(Some(false)),
        (None, true, Some(false)) => Err(Failure::usage(
            "--hipri works only with direct requests; use --direct, or drop --hipri",
        )),
        (None, true, _) => Ok(Some(true)),
        (None, false, typed) => Ok(typed),
    }
}

fn flush_every(
    experiment: &Experiment,
    engine_kinds: &[Option<EngineKind>],
    writes: bool,
) -> Outcome<Option<FlushEvery>> {
    let (writes_each, data_only) = match (experiment.engine.fsync, experiment.engine.fdatasync) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage("--fsync and --fdatasync exclude each other; drop one"));
        }
        (Some(n), _) => (n, false),
        (None, Some(n)) => (n, true),
        (None, None) => return Ok(None),
    };
    let flush = FlushEvery { writes: writes_each, data_only };
    let name = flush.name();
    if writes_each == 0 {
        return Err(Failure::usage(format!(
            "--{name} 0 never flushes; drop --{name}, or set --{name} to 1 or more"
        )));
    }
    if !writes {
        return Err(Failure::usage(format!(
            "--{name} flushes after writes, but this workload only reads; use --rw write, or drop \
             --{name}"
        )));
    }
    let imagined = |p: &Option<EngineKind>| p.is_some_and(|engine_kind| !engine_kind.does_io());
    if let Some(Some(engine_kind)) = engine_kinds.iter().find(|p| imagined(p)) {
        return Err(Failure::usage(format!(
            "--ioengine {engine_kind} does no I/O, so there is nothing to flush; drop --{name}"
        )));
    }
    Ok(Some(flush))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Option<EngineKind> = Some(EngineKind::Sync);
    const MMAP: Option<EngineKind> = Some(EngineKind::Mmap);

    #[test]
    fn engine_options_choose_the_caching_mode_unless_the_user_gave_one() {
        let none = EngineOptions::default();
        let uncached = EngineOptions { uncached: true, ..none };
        let polled = EngineOptions { io_poll: true, ..none };
        let mode = |typed, options, engine_kind| direct(typed, options, &[engine_kind]).ok();
        assert_eq!(mode(None, none, SYNC), Some(None));
        assert_eq!(mode(Some(true), none, SYNC), Some(Some(true)));
        assert_eq!(mode(None, none, MMAP), Some(Some(false)));
        assert_eq!(mode(Some(false), none, MMAP), Some(Some(false)));
        assert_eq!(mode(Some(true), none, MMAP), None);
        assert_eq!(mode(None, uncached, None), Some(Some(false)));
        assert_eq!(mode(Some(true), uncached, None), None);
        assert_eq!(mode(None, polled, None), Some(Some(true)));
        assert_eq!(mode(Some(false), polled, None), None);
        assert_eq!(mode(None, polled, MMAP), None);
        // A sweep uses one caching mode for all its points.
        assert_eq!(direct(None, none, &[SYNC, MMAP]).ok(), Some(Some(false)));
    }
}
