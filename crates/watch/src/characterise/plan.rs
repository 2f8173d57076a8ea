//! Formats a model as a plan file for `halfpower sweep`. If the model has several workloads, each
//! of them becomes a part of the plan, and the parts are measured one after another.

use super::Source;
use super::model::{Model, ModelWorkload, Order, Pace, Sharing};
use super::text::{comment, describe, distribution, head, runtime_s, size, split};

/// Formats a model as the text of a plan file.
pub fn text(model: &Model, source: &Source) -> String {
    let mut out = String::new();
    comment(
        &mut out,
        "Usage: halfpower sweep THIS-FILE TARGET (a file, directory, device, or sim:NAME)",
    );
    head(&mut out, model, source);
    let is_one = model.workloads.len() == 1;
    if !is_one {
        comment(
            &mut out,
            "The parts are measured one after another, so each part uses the device alone. In the \
             trace, they may overlap in time. A fio job (--output-format fio) runs them at the \
             same time.",
        );
        out.push_str("title = \"Model of a trace\"\n");
    }
    for workload in &model.workloads {
        out.push('\n');
        describe(&mut out, workload);
        if !is_one {
            out.push_str(&format!("[[part]]\nname = \"{}\"\n", workload.name));
        }
        flags(&mut out, workload);
    }
    out
}

fn flags(out: &mut String, workload: &ModelWorkload) {
    let mut add = |key: &str, value: String| out.push_str(&format!("{key} = {value}\n"));
    let text = |value: &str| format!("\"{value}\"");
    add("rw", text(rw(workload)));
    if (1..100).contains(&workload.read_percent) {
        add("rwmixread", workload.read_percent.to_string());
    }
    match workload.sizes[..] {
        [(bytes, _)] => add("bs", text(&size(u64::from(bytes)))),
        _ => add("bssplit", text(&split(&workload.sizes))),
    }
    match &workload.order {
        Order::Strided(bytes) => add("stride", text(&size(*bytes))),
        Order::Random(law) => {
            if let Some(law) = distribution(law) {
                add("random-distribution", text(&law));
            }
        }
        Order::Sequential | Order::Common => {}
    }
    add("size", text(&size(workload.region_bytes)));
    add("iodepth", workload.depth.to_string());
    if workload.threads > 1 {
        add("numjobs", workload.threads.to_string());
        add("placement", text(placement(workload)));
    }
    match workload.pace {
        Pace::Closed { pause_ns: 0, .. } => {}
        Pace::Closed { pause_ns, every } => {
            add("thinktime", text(&format!("{}ns", pause_ns)));
            if every > 1 {
                add("thinktime-blocks", every.to_string());
            }
        }
        Pace::Open { requests_per_s, poisson } => {
            add("rate-iops", format!("{requests_per_s:.3}"));
            add("rate-process", text(if poisson { "poisson" } else { "linear" }));
        }
    }
    if let Some((writes, data_only)) = workload.flush {
        add(if data_only { "fdatasync" } else { "fsync" }, writes.to_string());
    }
    if workload.durable {
        add("write-through", "true".to_owned());
    }
    add("direct", workload.direct.to_string());
    if !workload.direct && workload.read_percent > 0 {
        add("page-cache", text(if workload.cached { "warm" } else { "cold" }));
    }
    duration(out, workload);
    if workload.flush.is_some() {
        comment(
            out,
            "A simulated target flushes only at the end. To run this plan on a simulated target, \
             remove the line with fsync or fdatasync.",
        );
    }
    if let Some(engine) = workload.interface.engine() {
        comment(
            out,
            &format!(
                "To use the I/O engine of the trace on a real target, add: ioengine = \"{engine}\""
            ),
        );
    }
}

fn duration(out: &mut String, workload: &ModelWorkload) {
    if is_cold(workload) {
        let once = "A trial accesses the region once; a second pass would hit the page cache.";
        return comment(out, once);
    }
    let seconds = runtime_s(workload);
    out.push_str(&format!("runtime = \"{seconds}s\"\ntime-based = true\n"));
}

/// Checks whether the workload has buffered reads that mostly miss the page cache.
fn is_cold(workload: &ModelWorkload) -> bool {
    !workload.direct && !workload.cached && workload.read_percent > 0
}

fn placement(workload: &ModelWorkload) -> &'static str {
    match (&workload.order, workload.sharing) {
        (Order::Common, _) => "interlocked",
        (_, Sharing::Own) => "own",
        (_, Sharing::Shared) => "shared",
    }
}

/// Returns the value of the parameter `rw`, such as `randread`. fio and halfpower use the same
/// values.
pub fn rw(workload: &ModelWorkload) -> &'static str {
    match (&workload.order, workload.read_percent) {
        (Order::Random(_), 100) => "randread",
        (Order::Random(_), 0) => "randwrite",
        (Order::Random(_), _) => "randrw",
        (_, 100) => "read",
        (_, 0) => "write",
        (_, _) => "rw",
    }
}
