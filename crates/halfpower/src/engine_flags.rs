//! What the flags under Engine mean for a job: options of its personalities, flushes, and the
//! caching mode that some of them ask for where the user named none.

use ioengine::{Caching, EngineOption, EngineOptions, Personality};
use workload::FlushEvery;

use crate::cli::RunArgs;
use crate::failure::{Failure, Outcome};
use crate::flag_names::in_flags;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFlags {
    /// Asked of every personality.
    pub options: EngineOptions,
    /// Flushes in the midst of writing.
    pub flush_every: Option<FlushEvery>,
    /// None: where the target allows it.
    pub direct: Option<bool>,
}

impl EngineFlags {
    /// Resolves the flags for the personalities of a job (None: the best here).
    ///
    /// # Errors
    /// Usage: what means nothing here, or is not offered, with the remedy.
    pub fn resolve(
        args: &RunArgs,
        personalities: &[Option<Personality>],
        writes: bool,
    ) -> Outcome<EngineFlags> {
        let wanted = &args.engine;
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
        for personality in personalities.iter().flatten().filter(|p| !p.does_io()) {
            options.check(*personality, Caching::Direct)?;
        }
        let direct = direct(args.direct, options, personalities)?;
        let flush_every = flush_every(args, personalities, writes)?;
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
    personalities: &[Option<Personality>],
) -> Outcome<Option<bool>> {
    let maps = personalities.contains(&Some(Personality::Mmap));
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
    args: &RunArgs,
    personalities: &[Option<Personality>],
    writes: bool,
) -> Outcome<Option<FlushEvery>> {
    let (writes_each, data_only) = match (args.engine.fsync, args.engine.fdatasync) {
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
    let imagined = |p: &Option<Personality>| p.is_some_and(|personality| !personality.does_io());
    if let Some(Some(personality)) = personalities.iter().find(|p| imagined(p)) {
        return Err(Failure::usage(format!(
            "--ioengine {personality} has nothing to flush; drop --{name}"
        )));
    }
    Ok(Some(flush))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Option<Personality> = Some(Personality::Sync);
    const MMAP: Option<Personality> = Some(Personality::Mmap);

    #[test]
    fn the_caching_mode_follows_from_what_was_asked_for_unless_it_was_typed() {
        let none = EngineOptions::default();
        let uncached = EngineOptions { uncached: true, ..none };
        let polled = EngineOptions { io_poll: true, ..none };
        let mode = |typed, options, personality| direct(typed, options, &[personality]).ok();
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
