//! Formats a model as a job file for fio. All jobs of the file run at the same time.

use super::Source;
use super::model::{Model, ModelWorkload, Order, Pace, Sharing};
use super::plan::rw;
use super::text::{comment, describe, distribution, head, runtime_s, size, split};

/// Minimum mean length of sequential runs within random access (requests). Shorter runs are
/// ignored.
const RUN_MIN: f64 = 2.0;

/// Formats a model as the text of a job file.
pub fn text(model: &Model, source: &Source) -> String {
    let mut out = String::new();
    comment(
        &mut out,
        "Usage: fio --directory=DIR THIS-FILE (fio creates test files in DIR), or halfpower run \
         THIS-FILE.",
    );
    head(&mut out, model, source);
    let runtime = model.workloads.iter().map(runtime_s).max().unwrap_or(1);
    out.push_str(&format!("[global]\ntime_based=1\nruntime={runtime}\n"));
    for (number, workload) in (1..).zip(&model.workloads) {
        out.push('\n');
        describe(&mut out, workload);
        out.push_str(&format!("[{}]\n", name(workload, number)));
        options(&mut out, workload, number);
    }
    out
}

/// Returns a job name that contains only letters, digits, dots and hyphens.
fn name(workload: &ModelWorkload, number: usize) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String = workload.name.chars().map(plain).collect();
    format!("{number}-{name}")
}

fn options(out: &mut String, workload: &ModelWorkload, number: usize) {
    let mut add = |key: &str, value: String| out.push_str(&format!("{key}={value}\n"));
    add("rw", direction(workload));
    if (1..100).contains(&workload.read_percent) {
        add("rwmixread", workload.read_percent.to_string());
    }
    match workload.sizes[..] {
        [(bytes, _)] => add("bs", size(u64::from(bytes))),
        _ => add("bssplit", split(&workload.sizes)),
    }
    if let Order::Random(law) = &workload.order
        && let Some(law) = distribution(law)
    {
        add("random_distribution", law);
    }
    let threads = u64::from(workload.threads);
    let is_shared = threads > 1 && workload.sharing == Sharing::Shared;
    let part = if is_shared { workload.region_bytes } else { workload.region_bytes / threads };
    let largest = workload.sizes.iter().map(|(bytes, _)| u64::from(*bytes)).max().unwrap_or(1);
    add("size", size(part.max(largest)));
    if is_shared {
        add("filename", format!("halfpower-model-{number}"));
    }
    if threads > 1 {
        add("numjobs", threads.to_string());
    }
    let engine = match (workload.interface.engine(), workload.depth) {
        (Some("sync"), 1) => "psync",
        (Some(engine), _) if engine != "sync" => engine,
        (_, 1) => "psync",
        (_, _) => "io_uring",
    };
    add("ioengine", engine.to_owned());
    add("iodepth", workload.depth.to_string());
    pace(&mut add, workload);
    if let Some((writes, data_only)) = workload.flush {
        add(if data_only { "fdatasync" } else { "fsync" }, writes.to_string());
    }
    if workload.durable {
        add("sync", "dsync".to_owned());
    }
    add("direct", u8::from(workload.direct).to_string());
    if workload.cached && !workload.direct {
        add("pre_read", "1".to_owned());
    }
    if workload.order == Order::Common {
        comment(
            out,
            "Left out: the sequential stream that all threads share. In fio, each thread has its \
             own stream.",
        );
    }
}

fn pace(add: &mut impl FnMut(&str, String), workload: &ModelWorkload) {
    match workload.pace {
        Pace::Closed { pause_ns: 0, .. } => {}
        Pace::Closed { pause_ns, every } => {
            add("thinktime", format!("{}us", pause_ns.div_ceil(1000)));
            // fio counts the requests of all queue slots of a job together. The model counts the
            // requests of one slot, so the count is multiplied by the depth.
            let every = u64::from(every).saturating_mul(u64::from(workload.depth));
            add("thinktime_blocks", every.to_string());
        }
        Pace::Open { requests_per_s, poisson } => {
            // `rate_iops` takes whole numbers: a single rate, or a read rate and a write rate for a
            // mixed workload.
            let each = requests_per_s / f64::from(workload.threads);
            let of = |percent: u8| (each * f64::from(percent) / 100.0).round().max(1.0);
            let (reads, writes) = (of(workload.read_percent), of(100 - workload.read_percent));
            let rate = match workload.read_percent {
                100 => format!("{reads:.0}"),
                0 => format!("{writes:.0}"),
                _ => format!("{reads:.0},{writes:.0}"),
            };
            add("rate_iops", rate);
            add("rate_process", if poisson { "poisson" } else { "linear" }.to_owned());
        }
    }
}

/// Returns the value of fio's option `rw`: the direction and order, followed by the length of
/// sequential runs or the gap between strided requests, if any.
fn direction(workload: &ModelWorkload) -> String {
    let rw = rw(workload);
    let common = workload.sizes.iter().max_by_key(|(_, percent)| *percent);
    match &workload.order {
        Order::Strided(bytes) => {
            let gap = bytes.saturating_sub(common.map_or(0, |(bytes, _)| u64::from(*bytes)));
            if gap > 0 { format!("{rw}:{}", size(gap)) } else { rw.to_owned() }
        }
        Order::Random(_) if workload.run_length >= RUN_MIN => {
            format!("{rw}:{:.0}", workload.run_length)
        }
        _ => rw.to_owned(),
    }
}
