//! The table of all parameters of an experiment, with their names, help texts and parsers.
//!
//! Users set a parameter with a flag of `run` or `sweep`, or with a key in a plan file. To add a
//! parameter, add a field to [`Experiment`], a row to [`PARAMETERS`], and code that uses the field.

use analysis::units;
use ioengine::target::Hint;
use ioengine::{BufferPages, EngineKind};
use workload::Placement;

use crate::experiment::numbers::{counts, narrow, number, whole};
use crate::experiment::{Allocation, Experiment, KernelWriteCache, PageCache, RateProcess, Rw};
use crate::failure::{Failure, Outcome};
use crate::skew;
use crate::truth;

/// The result of parsing a value. The error message says what is wrong and shows a valid value.
type Parsed = Result<(), String>;

/// One parameter of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name of the parameter, such as `iodepth` for the flag `--iodepth`. Names of fio are used
    /// where fio has the same parameter.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// Name of the group under which `--help` lists the parameter.
    pub heading: &'static str,
    /// Placeholder that `--help` shows for the parameter's value, such as `SIZE`.
    pub value_name: &'static str,
    /// Default value as a user would type it. Empty if there is no fixed default.
    pub default: &'static str,
    /// All valid values, for shell completion. Empty if there are more than a few.
    pub choices: &'static [&'static str],
    /// Whether the flag can be used without a value, as in `--verify`.
    pub is_switch: bool,
    /// Whether `sweep` accepts a list of values, and measures each value.
    pub is_axis: bool,
    /// Whether every measuring command has the flag. If so, `CommonArgs` declares the flag.
    pub is_common: bool,
    /// Text that `--help` shows.
    pub help: &'static str,
    /// Function that parses a value and stores it in an experiment.
    pub set: fn(&mut Experiment, &str) -> Parsed,
}

const WORKLOAD: &str = "Workload";
const REFERENCE: &str = "Reference device";
const TIME: &str = "Time";
const ENGINE: &str = "Engine";
const HOST: &str = "Host";
const RANKS: &str = "Ranks";
const OUTPUT: &str = "Output";
const SAFETY: &str = "Safety";

impl Parameter {
    const fn new(
        name: &'static str,
        value_name: &'static str,
        heading: &'static str,
        help: &'static str,
        set: fn(&mut Experiment, &str) -> Parsed,
    ) -> Parameter {
        Parameter {
            name,
            aliases: &[],
            heading,
            value_name,
            default: "",
            choices: &[],
            is_switch: false,
            is_axis: false,
            is_common: false,
            help,
            set,
        }
    }

    const fn switch(
        name: &'static str,
        heading: &'static str,
        help: &'static str,
        set: fn(&mut Experiment, &str) -> Parsed,
    ) -> Parameter {
        Parameter { is_switch: true, ..Parameter::new(name, "0|1", heading, help, set) }
    }

    const fn aliases(self, aliases: &'static [&'static str]) -> Parameter {
        Parameter { aliases, ..self }
    }

    const fn default(self, default: &'static str) -> Parameter {
        Parameter { default, ..self }
    }

    const fn choices(self, choices: &'static [&'static str]) -> Parameter {
        Parameter { choices, ..self }
    }

    const fn axis(self) -> Parameter {
        Parameter { is_axis: true, ..self }
    }

    const fn common(self) -> Parameter {
        Parameter { is_common: true, ..self }
    }
}

/// Finds a parameter by its name or alias. `time_based` also finds `time-based`.
pub fn named(name: &str) -> Option<&'static Parameter> {
    let name = name.replace('_', "-");
    PARAMETERS.iter().find(|known| known.name == name || known.aliases.contains(&name.as_str()))
}

/// All parameters, in the order in which `--help` lists them.
pub const PARAMETERS: &[Parameter] = &[
    Parameter::new(
        "rw",
        "KIND",
        WORKLOAD,
        "Direction and order: read, write, rw, randread, randwrite or randrw",
        |experiment, text| {
            experiment.rw = text.split(',').map(rw).collect::<Result<_, _>>()?;
            Ok(())
        },
    )
    .aliases(&["readwrite"])
    .default("read")
    .choices(&["read", "write", "rw", "randread", "randwrite", "randrw"])
    .axis(),
    Parameter::new("bs", "SIZE", WORKLOAD, "Request size (default 4k)", |experiment, text| {
        let sizes = units::parse_list(text, units::parse_size)?;
        let size = |bytes| narrow(bytes, "a request size such as 64k");
        experiment.request_bytes = Some(sizes.into_iter().map(size).collect::<Result<_, _>>()?);
        Ok(())
    })
    .aliases(&["blocksize"])
    .axis(),
    Parameter::new(
        "iodepth",
        "N",
        WORKLOAD,
        "Number of requests that each thread keeps outstanding",
        |experiment, text| {
            experiment.depths = counts(text, "a depth of 1 or more")?;
            Ok(())
        },
    )
    .default("1")
    .axis(),
    Parameter::new("numjobs", "N", WORKLOAD, "Number of threads", |experiment, text| {
        experiment.threads = counts(text, "1 or more threads")?;
        Ok(())
    })
    .default("1")
    .axis(),
    Parameter::new(
        "ioengine",
        "NAME",
        WORKLOAD,
        "I/O engine, which issues the requests (for a list, run: halfpower engines)",
        |experiment, text| {
            experiment.engine_kinds = text.split(',').map(engine_kind).collect::<Result<_, _>>()?;
            Ok(())
        },
    )
    .default("auto")
    .choices(&["auto", "null", "delay", "sync", "mmap", "threads", "libaio", "io_uring", "network"])
    .axis(),
    Parameter::new(
        "truth",
        "KEY=VALUE,..",
        REFERENCE,
        "Reference device of --ioengine delay, such as fixed=500us,rate=500MB/s. Keys: fixed, \
         rate, parallel, cache, prefetch, hit, buffer, drain, credit, sustained, span and zones \
         (rates by position, such as 200MB/s@40/100MB/s@100), granule, rmw, straddle, members and \
         chunk (of a stripe), link, cpu. The device can also be a target: truth:KEY=VALUE,..",
        |experiment, text| put(&mut experiment.truth, truth::parse_truth(text)),
    ),
    Parameter::new(
        "inject",
        "KIND@N,..",
        REFERENCE,
        "Inject faults into the requests of each thread, such as write-lose@100x3 (loses writes \
            100 to 102). KIND: eio, enospc, eagain, eintr, short:SIZE, late:COUNT, hang:TIME, \
            twice, never, flip, lose, misdirect:SIZE, tear",
        |experiment, text| put(&mut experiment.faults, truth::parse_faults(text)),
    ),
    Parameter::switch(
        "direct",
        WORKLOAD,
        "Bypass the page cache (default: 1 if the target supports direct I/O, otherwise 0)",
        |experiment, text| put(&mut experiment.direct, boolean(text)),
    ),
    Parameter::switch(
        "write-through",
        WORKLOAD,
        "Make every write durable before it completes (O_DSYNC)",
        |experiment, text| store(&mut experiment.write_through, boolean(text)),
    )
    .aliases(&["sync"]),
    Parameter::new(
        "rwmixread",
        "PERCENT",
        WORKLOAD,
        "Percentage of reads in mixed workloads (default 50)",
        |experiment, text| {
            let share = |share| match share {
                0..=100 => Ok(share as u8),
                _ => Err(format!("{share} is not a percentage from 0 to 100")),
            };
            let shares = units::parse_list(text, whole)?.into_iter().map(share);
            put(&mut experiment.read_percents, shares.collect())
        },
    )
    .axis(),
    Parameter::new(
        "stride",
        "SIZE",
        WORKLOAD,
        "Distance between the offsets of consecutive requests (default: the request size)",
        |experiment, text| put(&mut experiment.stride_bytes, units::parse_size(text)),
    ),
    Parameter::new(
        "size",
        "SIZE",
        WORKLOAD,
        "Size of the region to access (default: the whole target or test file)",
        |experiment, text| put(&mut experiment.size_bytes, units::parse_size(text)),
    ),
    Parameter::new(
        "chunk",
        "SIZE",
        WORKLOAD,
        "Combine the targets into a stripe; requests are split at multiples of this chunk size",
        |experiment, text| put(&mut experiment.chunk_bytes, units::parse_size(text)),
    ),
    Parameter::new("offset", "SIZE", WORKLOAD, "Offset of the region", |experiment, text| {
        store(&mut experiment.offset_bytes, units::parse_size(text))
    })
    .default("0"),
    Parameter::new(
        "placement",
        "own|shared|interlocked",
        WORKLOAD,
        "own: each thread uses its own part of the region; shared: all threads use the whole \
         region; interlocked: all threads together form one sequential stream",
        |experiment, text| {
            let placement = match text {
                "own" => Placement::Own,
                "shared" => Placement::Shared,
                "interlocked" => Placement::Interlocked,
                _ => return Err("use own, shared or interlocked".to_owned()),
            };
            store(&mut experiment.placement, Ok(placement))
        },
    )
    .default("own")
    .choices(&["own", "shared", "interlocked"]),
    Parameter::new(
        "allocation",
        "preallocated|extend|truncate|fallocate|last-block",
        WORKLOAD,
        "State of a file before each trial. preallocated: all blocks were written once; extend: \
         new and empty; truncate: written, then truncated to zero bytes; fallocate: new, with \
         reserved blocks; last-block: new, with only the last block written",
        |experiment, text| {
            let allocation = Allocation::ALL.into_iter().find(|known| known.name() == text);
            let why = "use preallocated, extend, truncate, fallocate or last-block";
            store(&mut experiment.allocation, allocation.ok_or_else(|| why.to_owned()))
        },
    )
    .default("preallocated")
    .choices(&["preallocated", "extend", "truncate", "fallocate", "last-block"]),
    Parameter::new(
        "hint",
        "HINT",
        WORKLOAD,
        "Hint to the kernel (fadvise): normal, sequential, random, noreuse, willneed or dontneed",
        |experiment, text| {
            put(&mut experiment.hint, text.parse::<Hint>().map_err(|error| error.to_string()))
        },
    )
    .aliases(&["fadvise-hint"])
    .choices(&["normal", "sequential", "random", "noreuse", "willneed", "dontneed"]),
    Parameter::switch(
        "invalidate",
        WORKLOAD,
        "Evict the target from the page cache before buffered reads",
        |experiment, text| store(&mut experiment.invalidate, boolean(text)),
    )
    .default("true"),
    Parameter::new(
        "page-cache",
        "cold|warm",
        WORKLOAD,
        "State of the page cache before each trial. cold: no data of the target; warm: the whole \
         region. Default: cold for reads, unchanged for writes",
        |experiment, text| put(&mut experiment.page_cache, page_cache(text)),
    )
    .choices(&["cold", "warm"]),
    Parameter::new(
        "runtime",
        "TIME",
        TIME,
        "Length of a trial (default: 5 s; with --size: one pass over the region)",
        |experiment, text| put(&mut experiment.runtime_ns, units::parse_duration(text)),
    ),
    Parameter::switch(
        "time-based",
        TIME,
        "When the end of the region is reached, continue at its start until --runtime has passed",
        |experiment, text| store(&mut experiment.time_based, boolean(text)),
    ),
    Parameter::new("ramp-time", "TIME", TIME, "Length of the warm-up", |experiment, text| {
        store(&mut experiment.ramp_time_ns, units::parse_duration(text))
    })
    .default("0"),
    Parameter::switch(
        "steady-state",
        TIME,
        "Warm up until the rate is steady, but at most 10 min. Steady: over 5 s, the rate varies \
         by at most 20%, and a line fitted to the rate rises or falls by at most 10%",
        |experiment, text| store(&mut experiment.steady_state, boolean(text)),
    ),
    Parameter::new("trials", "N", TIME, "Number of trials", |experiment, text| {
        store(&mut experiment.trials, number(text))
    })
    .default("3"),
    Parameter::new(
        "rate-iops",
        "RATE",
        WORKLOAD,
        "Open loop: the threads together issue this many requests per second",
        |experiment, text| put(&mut experiment.rate_iops, number(text)),
    ),
    Parameter::new(
        "rate",
        "SIZE",
        WORKLOAD,
        "Open loop: the threads together transfer this many bytes per second, such as 20m",
        |experiment, text| {
            let rate = units::parse_size(text).map(|bytes| bytes as f64);
            put(&mut experiment.rate_bytes_per_s, rate)
        },
    ),
    Parameter::new(
        "rate-process",
        "linear|poisson",
        WORKLOAD,
        "Open loop: requests are due at equal intervals (linear) or at random times (poisson)",
        |experiment, text| {
            let process = match text {
                "linear" => Ok(RateProcess::Linear),
                "poisson" => Ok(RateProcess::Poisson),
                _ => Err("use linear or poisson".to_owned()),
            };
            store(&mut experiment.rate_process, process)
        },
    )
    .default("linear")
    .choices(&["linear", "poisson"]),
    Parameter::new(
        "percentile",
        "P,P",
        OUTPUT,
        "Latency percentiles to print (default 50,99); high percentiles need more requests",
        |experiment, text| put(&mut experiment.percentiles, percentiles(text)),
    )
    .aliases(&["percentile-list"]),
    Parameter::new(
        "cpus-allowed",
        "LIST",
        WORKLOAD,
        "Pin threads to these CPUs, such as 0,2 or 0-3",
        |experiment, text| store(&mut experiment.cpus, cpus(text)),
    ),
    Parameter::switch(
        "zero-buffers",
        WORKLOAD,
        "Write zeros instead of incompressible data",
        |experiment, text| store(&mut experiment.zero_buffers, boolean(text)),
    ),
    Parameter::switch(
        "verify",
        WORKLOAD,
        "Write blocks with checksums and read them back; with --rw read, only check the blocks",
        |experiment, text| store(&mut experiment.verify, boolean(text)),
    ),
    Parameter::switch(
        "soaker",
        WORKLOAD,
        "Also measure an upper bound of the CPU cost: repeat the trials while idle-priority \
         processes use all idle CPU time",
        |experiment, text| store(&mut experiment.soaker, boolean(text)),
    ),
    Parameter::new(
        "random-distribution",
        "LAW",
        WORKLOAD,
        "Blocks that random requests visit. random: each block once per pass; zipf:THETA or \
         pareto:H: some blocks more often, scattered over the region; zoned:60/10:30/20:..: 60% of \
         the requests visit the first 10% of the region, 30% the next 20%, and so on",
        |experiment, text| store(&mut experiment.distribution, skew::parse_distribution(text)),
    )
    .default("random"),
    Parameter::new(
        "bssplit",
        "SIZE/PERCENT:..",
        WORKLOAD,
        "Several request sizes with their percentages (instead of --bs), such as 4k/50:64k/50",
        |experiment, text| put(&mut experiment.request_sizes, text.parse()),
    ),
    Parameter::new(
        "thinktime",
        "TIME",
        WORKLOAD,
        "Pause between a completion and the next request, such as 100us (closed loop). Each of the \
         --iodepth slots in the queue of a thread pauses independently",
        |experiment, text| put(&mut experiment.think_ns, skew::parse_pause(text)),
    ),
    Parameter::new(
        "thinktime-blocks",
        "N",
        WORKLOAD,
        "Number of requests between two pauses of --thinktime",
        |experiment, text| put(&mut experiment.think_requests, number(text)),
    ),
    Parameter::new(
        "rank-files",
        "own|segmented|strided",
        RANKS,
        "With --mpi. own: each rank has its own target; segmented, strided: parts of a shared file",
        |experiment, text| put(&mut experiment.rank_files, text.parse()),
    )
    .choices(&["own", "segmented", "strided"]),
    Parameter::new(
        "rank-shift",
        "N",
        RANKS,
        "With --mpi: rank R uses the data of rank R+N, so that no host reads what it has cached",
        |experiment, text| store(&mut experiment.rank_shift, number(text)),
    )
    .default("0"),
    Parameter::new(
        "log",
        "FILE",
        OUTPUT,
        "Log all requests to this file as CSV, with times since the start of the trial",
        |experiment, text| put(&mut experiment.log, Ok(text.into())),
    ),
    Parameter::switch(
        "sqthread-poll",
        ENGINE,
        "io_uring: for each thread, a kernel thread polls for submissions and occupies a CPU",
        |experiment, text| store(&mut experiment.engine.sqthread_poll, boolean(text)),
    ),
    Parameter::switch(
        "hipri",
        ENGINE,
        "io_uring, nvme: poll for completions (IOPOLL); needs direct I/O and poll queues",
        |experiment, text| store(&mut experiment.engine.hipri, boolean(text)),
    ),
    Parameter::switch(
        "uncached",
        ENGINE,
        "Drop data from the page cache after each buffered request (RWF_DONTCACHE)",
        |experiment, text| store(&mut experiment.engine.uncached, boolean(text)),
    ),
    Parameter::switch(
        "fua",
        ENGINE,
        "Make each write durable before it completes (RWF_DSYNC per request, not O_DSYNC); uses \
         Forced Unit Access if the device supports it",
        |experiment, text| store(&mut experiment.engine.fua, boolean(text)),
    ),
    Parameter::switch(
        "zone-append",
        ENGINE,
        "With --ioengine nvme: write with Zone Append; each zone has --iodepth writes in flight",
        |experiment, text| store(&mut experiment.engine.zone_append, boolean(text)),
    ),
    Parameter::new(
        "fsync",
        "N",
        ENGINE,
        "After every N writes, each thread waits until they are complete and calls fsync",
        |experiment, text| put(&mut experiment.engine.fsync, number(text)),
    ),
    Parameter::new(
        "fdatasync",
        "N",
        ENGINE,
        "After every N writes, each thread waits until they are complete and calls fdatasync",
        |experiment, text| put(&mut experiment.engine.fdatasync, number(text)),
    ),
    Parameter::new(
        "scheduler",
        "NAME",
        HOST,
        "I/O scheduler of the device during the run; restored afterwards (needs root)",
        |experiment, text| put(&mut experiment.host.scheduler, Ok(text.to_owned())),
    ),
    Parameter::new(
        "read-ahead",
        "SIZE",
        HOST,
        "Read-ahead window of the device during the run (needs root)",
        |experiment, text| {
            let bytes = units::parse_size(text).and_then(|bytes| {
                if bytes.is_multiple_of(4096) {
                    Ok(bytes)
                } else {
                    Err("the window must be a multiple of 4 KiB; use 128k or 4m".to_owned())
                }
            });
            put(&mut experiment.host.read_ahead_bytes, bytes)
        },
    ),
    Parameter::new(
        "kernel-write-cache",
        "back|through",
        HOST,
        "Write cache mode that the kernel assumes. through: the kernel sends no flushes. \
         The drive's own setting is not changed, so a power failure may lose data (needs root)",
        |experiment, text| {
            let state = match text {
                "back" => Ok(KernelWriteCache::Back),
                "through" => Ok(KernelWriteCache::Through),
                _ => Err("use back or through".to_owned()),
            };
            put(&mut experiment.host.kernel_write_cache, state)
        },
    )
    .choices(&["back", "through"]),
    Parameter::new(
        "nr-requests",
        "N",
        HOST,
        "Maximum number of requests that the block layer queues during the run (needs root)",
        |experiment, text| {
            let count = number(text).and_then(|count: u32| match count {
                4.. => Ok(count),
                _ => Err("the kernel requires 4 or more".to_owned()),
            });
            put(&mut experiment.host.nr_requests, count)
        },
    ),
    Parameter::new(
        "nomerges",
        "0|1|2",
        HOST,
        "Merging of requests: 0 all merges, 1 simple merges only, 2 no merges (needs root)",
        |experiment, text| {
            let merges = match text {
                "0" => Ok(0),
                "1" => Ok(1),
                "2" => Ok(2),
                _ => Err("use 0, 1 or 2".to_owned()),
            };
            put(&mut experiment.host.nomerges, merges)
        },
    )
    .choices(&["0", "1", "2"]),
    Parameter::new("seed", "SEED", WORKLOAD, "", |experiment, text| {
        store(&mut experiment.seed, number(text))
    })
    .aliases(&["randseed"])
    .common(),
    Parameter::new("buffer-pages", "huge|4k", WORKLOAD, "", |experiment, text| {
        store(&mut experiment.buffer_pages, buffer_pages(text))
    })
    .common(),
    Parameter::switch("allow-holes", SAFETY, "", |experiment, text| {
        store(&mut experiment.allow_holes, boolean(text))
    })
    .common(),
];

fn put<T>(place: &mut Option<T>, value: Result<T, String>) -> Parsed {
    *place = Some(value?);
    Ok(())
}

fn store<T>(place: &mut T, value: Result<T, String>) -> Parsed {
    *place = value?;
    Ok(())
}

/// Parses a switch. `0`, `off`, `false` and `no` mean off; `1`, `on`, `true` and `yes` mean on.
///
/// # Errors
///
/// For any other text.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("write 0 or 1".to_owned()),
    }
}

/// Parses the state of the page cache before a trial: `cold` or `warm`.
///
/// # Errors
///
/// For any other text.
pub fn page_cache(text: &str) -> Result<PageCache, String> {
    match text {
        "cold" => Ok(PageCache::Cold),
        "warm" => Ok(PageCache::Warm),
        _ => Err("use cold or warm".to_owned()),
    }
}

/// Parses the size of the memory pages for the buffers: `huge` or `4k`.
///
/// # Errors
///
/// For any other text.
pub fn buffer_pages(text: &str) -> Result<BufferPages, String> {
    match text {
        "huge" => Ok(BufferPages::Huge),
        "4k" | "small" => Ok(BufferPages::Small),
        _ => Err("use huge or 4k".to_owned()),
    }
}

fn rw(text: &str) -> Result<Rw, String> {
    let name = if text == "readwrite" { "rw" } else { text };
    Rw::ALL.into_iter().find(|rw| rw.name() == name).ok_or_else(|| {
        "unknown direction; use read, write, rw, randread, randwrite or randrw".to_owned()
    })
}

fn engine_kind(text: &str) -> Result<Option<EngineKind>, String> {
    if text == "auto" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error: ioengine::Error| error.to_string())
}

/// Parses percentiles such as `50,99.9`, or `50:99.9` as in fio, and sorts them.
fn percentiles(text: &str) -> Result<Vec<f64>, String> {
    let within = |p: &f64| *p > 0.0 && *p < 100.0;
    let mut percentiles = Vec::new();
    for part in text.split([',', ':']) {
        let percentile = part.trim().parse::<f64>().ok().filter(within).ok_or_else(|| {
            format!("'{part}' is not between 0 and 100; write percentiles as 50,99.9")
        })?;
        percentiles.push(percentile);
    }
    percentiles.sort_by(f64::total_cmp);
    percentiles.dedup();
    Ok(percentiles)
}

/// Maximum CPU number in a list. This is far more than Linux supports (8192 CPUs).
const CPU_MAX: usize = 65_535;

/// Parses a list of CPU numbers such as `0,2` or `0-3`. Does not check whether these CPUs exist.
///
/// # Errors
/// If the text is not a list of CPU numbers.
pub fn cpus(text: &str) -> Result<Vec<usize>, String> {
    let bad = || "write CPUs as 0,2 or 0-3".to_owned();
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| bad())?;
        let last: usize = last.trim().parse().map_err(|_| bad())?;
        // A huge range is refused before it is expanded, because it would fill the memory.
        if last > CPU_MAX {
            return Err(format!("there is no CPU {last}; {}", bad()));
        }
        if last < first {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Checks that this process may run on these CPUs.
///
/// # Errors
/// If the process may not run on one of the CPUs.
pub fn check_cpus(cpus: &[usize]) -> Outcome<()> {
    let allowed = cpucost::affinity::allowed_cpus();
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => Err(Failure::usage(format!(
            "--cpus-allowed: this process is not allowed to use CPU {cpu}; use CPUs in {allowed:?}"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, text: &str) -> Result<Experiment, String> {
        let mut experiment = Experiment::default();
        (named(name).unwrap().set)(&mut experiment, text).map(|()| experiment)
    }

    #[test]
    fn the_default_in_the_help_is_the_default_in_use() {
        for parameter in PARAMETERS.iter().filter(|parameter| !parameter.default.is_empty()) {
            let typed = set(parameter.name, parameter.default).unwrap();
            assert_eq!(typed, Experiment::default(), "{}", parameter.name);
        }
    }

    #[test]
    fn every_listed_choice_is_accepted_and_changes_the_experiment() {
        for parameter in PARAMETERS {
            let mut seen: Vec<Experiment> = Vec::new();
            for choice in parameter.choices {
                let typed = set(parameter.name, choice).unwrap();
                assert!(!seen.contains(&typed), "{} {choice}", parameter.name);
                seen.push(typed);
            }
        }
    }

    #[test]
    fn both_spellings_and_aliases_find_a_parameter_and_names_are_unique() {
        assert_eq!(named("time_based").unwrap().name, "time-based");
        assert_eq!(named("randseed").unwrap().name, "seed");
        let all = |known: &'static Parameter| {
            std::iter::once(known.name).chain(known.aliases.iter().copied())
        };
        let names: Vec<&str> = PARAMETERS.iter().flat_map(all).collect();
        let distinct: std::collections::BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), distinct.len());
    }

    #[test]
    fn invalid_values_are_refused_with_valid_ones() {
        for (name, text, remedy) in [
            ("rw", "sideways", "randread"),
            ("ioengine", "spdk", "io_uring"),
            ("bs", "4x", "64KiB"),
            ("bs", "1t", "is too large; use "),
            ("bs", "0", "measures nothing; use "),
            ("iodepth", "many", "whole number"),
            ("iodepth", "4294967296", "is too large; use "),
            ("numjobs", "4294967296", "is too large; use "),
            ("buffer-pages", "3k", "huge or 4k"),
            ("allocation", "none", "fallocate"),
            ("hint", "maybe", "willneed"),
            ("placement", "here", "interlocked"),
            ("rate-process", "even", "poisson"),
            ("percentile", "99,100", "between 0 and 100"),
            ("percentile", "many", "between 0 and 100"),
            ("rwmixread", "101", "from 0 to 100"),
            ("cpus-allowed", "0-18446744073709551614", "no CPU 18446744073709551614"),
            ("cpus-allowed", "3-1", "0,2 or 0-3"),
            ("read-ahead", "1000", "multiple of 4 KiB"),
            ("nr-requests", "3", "4 or more"),
        ] {
            let refusal = set(name, text).unwrap_err();
            assert!(refusal.contains(remedy), "{name} {text}: {refusal}");
        }
    }

    #[test]
    fn percentiles_are_separated_by_commas_or_as_in_fio_by_colons() {
        let listed = |text| set("percentile", text).unwrap().percentiles;
        assert_eq!(listed("99.99,50"), Some(vec![50.0, 99.99]));
        assert_eq!(listed("90:99.9:90"), Some(vec![90.0, 99.9]));
    }
}
