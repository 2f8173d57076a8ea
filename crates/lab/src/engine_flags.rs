//! What the flags under Engine mean for a job: options of its I/O engines, flushes, and the
//! caching mode that some of them ask for where the user named none.

use ioengine::{Caching, EngineKind, EngineOption, EngineOptions};
use workload::FlushEvery;

use crate::experiment::Experiment;
use crate::failure::{Failure, Outcome};
use crate::flag_names::in_flags;

/// What the flags under Engine mean for a job: options of its I/O engines, flushes, and the caching
/// mode that some of them ask for where the user named none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFlags {
    /// Asked of every I/O engine.
    pub options: EngineOptions,
    /// Flushes in the midst of writing.
    pub flush_every: Option<FlushEvery>,
    /// None: where the target allows it.
    pub direct: Option<bool>,
}

impl EngineFlags {
    /// Resolves the flags for the I/O engines of a job (None: the best here).
    ///
    /// # Errors
    /// Usage: what means nothing here, or is not offered, with the remedy.
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
            any_thread: false,
        };
        check_offered(options)?;
        if options.fua && !writes {
            return Err(Failure::usage("--fua is about writes; use --rw write, or drop it"));
        }
        // Where no target is opened, none refuses.
        for engine_kind in engine_kinds.iter().flatten().filter(|p| !p.does_io()) {
            options.check(*engine_kind, Caching::Direct)?;
        }
        let direct = direct(experiment.direct, options, engine_kinds)?;
        let flush_every = flush_every(experiment, engine_kinds, writes)?;
        Ok(EngineFlags { options, flush_every, direct })
    }
}

/// Refuses what this kernel does not offer; what a target does not is found out with it.
fn check_offered(options: EngineOptions) -> Outcome<()> {
    let of_kernel = [EngineOption::SqPoll, EngineOption::IoPoll];
    for option in of_kernel.into_iter().filter(|option| options.has(*option)) {
        let found = option.availability();
        if !found.available {
            let (name, why) = (option.name(), found.detail);
            let what = format!("`{name}` is not offered here: {why}");
            return Err(Failure::usage(in_flags(&what)));
        }
    }
    Ok(())
}

/// The caching mode: the user's, where it is possible; else the one that was asked for with it.
fn direct(
    typed: Option<bool>,
    options: EngineOptions,
    engine_kinds: &[Option<EngineKind>],
) -> Outcome<Option<bool>> {
    let maps = engine_kinds.contains(&Some(EngineKind::Mmap));
    let buffered = match (maps, options.uncached) {
        (true, _) => Some("--ioengine mmap copies from and to the page cache"),
        (false, true) => Some("--uncached is about requests that go through the page cache"),
        (false, false) => None,
    };
    match (buffered, options.io_poll, typed) {
        (Some(why), true, _) => Err(Failure::usage(format!(
            "{why}, and --hipri polls the device past it; drop one of them"
        ))),
        (Some(why), false, Some(true)) => {
            Err(Failure::usage(format!("{why}; use --direct=0, or drop --direct")))
        }
        (Some(_), false, _) => Ok(Some(false)),
        (None, true, Some(false)) => Err(Failure::usage(
            "--hipri polls the device, which buffered requests do not wait for; use --direct",
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
            "--{name} 0 flushes never; drop it, or use --{name} 1 or more"
        )));
    }
    if !writes {
        return Err(Failure::usage(format!(
            "--{name} flushes after writes, and there are none; use --rw write, or drop it"
        )));
    }
    let imagined = |p: &Option<EngineKind>| p.is_some_and(|engine_kind| !engine_kind.does_io());
    if let Some(Some(engine_kind)) = engine_kinds.iter().find(|p| imagined(p)) {
        return Err(Failure::usage(format!(
            "--ioengine {engine_kind} has nothing to flush; drop --{name}"
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
    fn the_caching_mode_follows_from_what_was_asked_for_unless_it_was_typed() {
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
        // One mode holds for all of a sweep.
        assert_eq!(direct(None, none, &[SYNC, MMAP]).ok(), Some(Some(false)));
    }
}
