//! Formats comments, sizes and times, which are the same in plan files for halfpower and in job
//! files for fio.

use analysis::popularity::Law;
use analysis::units;

use super::Source;
use super::model::{Model, ModelWorkload};
use trace::replay::Level;

/// Maximum length of a comment line, without the leading `# ` (characters).
const COLUMNS: usize = 98;
/// Maximum length of a name or command in a comment (characters).
const NAME_MAX: usize = 300;
/// Minimum and maximum duration of a trial (ns).
const RUNTIME: (u64, u64) = (1_000_000_000, 10_000_000_000);

/// Appends text as comment lines. Control characters become spaces, because a line break would end
/// the comment.
pub fn comment(out: &mut String, text: &str) {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut line = String::new();
    for word in clean.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            out.push_str(&format!("# {line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push_str(&format!("# {line}\n"));
}

/// Formats a size as a value that halfpower and fio accept, such as `64k`.
pub fn size(bytes: u64) -> String {
    let fits = |(shift, _): &&(u32, &str)| bytes > 0 && bytes.is_multiple_of(1 << shift);
    let (shift, unit) = [(30, "g"), (20, "m"), (10, "k")].iter().find(fits).unwrap_or(&(0, ""));
    format!("{}{unit}", bytes >> shift)
}

/// Formats request sizes with their shares of the requests (percent), such as `4k/50:64k/50`.
pub fn split(sizes: &[(u32, u8)]) -> String {
    let part = |(bytes, percent): &(u32, u8)| format!("{}/{percent}", size(u64::from(*bytes)));
    sizes.iter().map(part).collect::<Vec<_>>().join(":")
}

/// Formats the popularity of blocks as a value of `random_distribution`, such as `zipf:1.200`. None
/// if all blocks are equally popular.
pub fn distribution(law: &Law) -> Option<String> {
    match law {
        Law::Even => None,
        Law::Zipf { theta } => Some(format!("zipf:{theta:.3}")),
        Law::Pareto { h } => Some(format!("pareto:{h:.3}")),
        Law::Zoned(zones) => {
            let zone = |zone: &analysis::popularity::Zone| {
                format!(":{}/{}", zone.access_percent, zone.region_percent)
            };
            Some(format!("zoned{}", zones.iter().map(zone).collect::<String>()))
        }
    }
}

/// Returns the duration of a trial (s): the duration of the workload in the trace, but at least 1 s
/// and at most 10 s.
pub fn runtime_s(workload: &ModelWorkload) -> u64 {
    workload.duration_ns.clamp(RUNTIME.0, RUNTIME.1).div_ceil(1_000_000_000)
}

/// Appends comments about the source of the model, and about the requests that the model leaves
/// out.
pub fn head(out: &mut String, model: &Model, source: &Source) {
    let cut = |text: &str| text.chars().take(NAME_MAX).collect::<String>();
    let of = match source.level {
        Level::Calls => "the requests of the program",
        Level::Block => "the block-layer requests of all programs",
    };
    let command = match source.command.as_str() {
        "" => String::new(),
        command => format!(" ({})", cut(command)),
    };
    comment(
        out,
        &format!("Created by halfpower characterise from {of} in {}{command}.", cut(&source.trace)),
    );
    if !source.files.is_empty() {
        comment(out, &format!("Only requests of {} are included.", cut(&source.files.join(", "))));
    }
    for what in &model.left_out {
        comment(out, &format!("Left out: {what}."));
    }
}

/// Appends comments about the measurements of a workload, and about what its model leaves out.
pub fn describe(out: &mut String, workload: &ModelWorkload) {
    comment(
        out,
        &format!(
            "{}: {:.0}% of the requests, {:.0}% of the bytes.",
            workload.name,
            workload.share * 100.0,
            workload.share_of_bytes * 100.0
        ),
    );
    for what in &workload.counted {
        comment(out, &format!("Counted: {what}."));
    }
    if workload.run_length >= 1.5 {
        let mean = units::count(workload.run_length);
        comment(out, &format!("Counted: a sequential run has {mean} requests on average."));
    }
    for what in &workload.left_out {
        comment(out, &format!("Left out: {what}."));
    }
}
