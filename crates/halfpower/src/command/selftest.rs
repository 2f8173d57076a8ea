//! `halfpower selftest`: measures reference devices and compares each quantity with its true value,
//! to check the instrument on this machine.

use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json::{self, Program};
use lab::machine::Host;
use lab::selftest::Quantity;
use lab::selftest::apparatus::Apparatus;
use lab::selftest::devices::{self, Source};
use lab::selftest::quantities::{GROUPS, Group};
use lab::trials::Lab;
use serde::Serialize;

use crate::cli::SelftestArgs;

/// Approximate duration (ns), for the progress bar.
const TAKES_NS: u64 = 60_000_000_000;

/// What `--json` prints.
#[derive(Serialize, schemars::JsonSchema)]
pub struct SelftestDocument {
    /// The program.
    pub halfpower: Program,
    /// The machine.
    pub host: Host,
    /// How the reference devices were made: fuse or delay.
    pub device: String,
    /// All quantities.
    pub quantities: Vec<Quantity>,
    /// Whether all quantities passed.
    pub pass: bool,
}

pub fn execute(args: &SelftestArgs) -> Outcome {
    let console = Console::new(args.output.quiet);
    if args.output.plan {
        console::data(
            "mount reference devices (FUSE, content in memory) in the folder for temporary files, \
             as root also a loop device on a sparse image there, measure them one after the other \
             for about a minute, and remove them; nothing was done",
        );
        return Ok(Exit::Ok);
    }
    let groups = wanted(args.only.as_deref())?;
    let lab = Lab::new(console, Interrupt::install());
    let source = source(args, &console);
    let apparatus = Apparatus { lab: &lab, source };
    let mut progress = console.progress(TAKES_NS / GROUPS.len() as u64 * groups.len() as u64);
    let mut quantities = Vec::new();
    for (what, group) in groups {
        progress.update(what);
        quantities.extend(group(&apparatus)?);
    }
    progress.finish();
    let all = quantities.len();
    let failed = quantities.iter().filter(|quantity| !quantity.pass).count();
    let pass = failed == 0;
    if args.output.json {
        let device = source.name().to_owned();
        let (halfpower, host) = (Program::this(), Host::read());
        let document = SelftestDocument { halfpower, host, device, quantities, pass };
        console::data(&json::print(&document));
    } else {
        print(&quantities);
    }
    if pass {
        return Ok(Exit::Ok);
    }
    console.warn(format!(
        "selftest failed: {failed} of {all} quantities are outside their limits; check \
         with halfpower soak -- sleep 5 whether anything else is running; try again"
    ));
    Ok(Exit::Invalid)
}

/// The groups whose name contains a word; all groups without a word.
fn wanted(word: Option<&str>) -> Outcome<Vec<(&'static str, Group)>> {
    let contains = |name: &str| word.is_none_or(|word| name.contains(word));
    let groups: Vec<_> = GROUPS.into_iter().filter(|(name, _)| contains(name)).collect();
    if groups.is_empty() {
        let names = GROUPS.map(|(name, _)| name).join(", ");
        return Err(Failure::usage(format!(
            "--only {}: no such quantity; use a part of: {names}",
            word.unwrap_or_default()
        )));
    }
    Ok(groups)
}

/// The source of --device, or FUSE if available.
fn source(args: &SelftestArgs, console: &Console) -> Source {
    if let Some(source) = args.device {
        return source;
    }
    match devices::open(Source::Fuse, "", 1 << 20) {
        Ok(_) => Source::Fuse,
        Err(failure) => {
            console.warn(format!(
                "FUSE is not available ({failure}); the devices run in this process instead, which \
                 does not test the kernel"
            ));
            Source::Delay
        }
    }
}

fn print(quantities: &[Quantity]) {
    let row = |cells: [&str; 7]| {
        let [name, truth, measured, error, limit, path, pass] = cells;
        let line = format!("{name:<24} {truth:>9} {measured:>15} {error:>8} {limit:>6} {path:>10}");
        console::data(format!("{line}  {pass}").trim_end());
    };
    row(["quantity", "truth", "measured", "error", "limit", "path", ""]);
    for quantity in quantities {
        let name = format!("{} ({})", quantity.quantity, quantity.unit);
        let number = |value: f64| significant(value);
        let measured = match (quantity.bounds, quantity.measured) {
            (Some((low, high)), _) => format!("{} to {}", number(low), number(high)),
            (None, Some(value)) => number(value),
            (None, None) => "-".to_owned(),
        };
        let error = quantity.error.map_or("-".to_owned(), |e| format!("{:+.2}%", e * 100.0));
        let path = quantity.path.map_or("-".to_owned(), number);
        let pass = match (&quantity.skipped, quantity.pass) {
            (Some(why), _) => format!("skipped: {why}"),
            (None, true) => "pass".to_owned(),
            (None, false) => "FAIL".to_owned(),
        };
        let limit = format!("{:.0}%", quantity.tolerance * 100.0);
        row([&name, &number(quantity.truth), &measured, &error, &limit, &path, &pass]);
    }
    console::data(
        "\npath: cost of the same device without delay (system calls, FUSE, wake-ups), in the unit \
         of the\nrow; it is subtracted. Bounds: the truth must lie between them, and they must not \
         differ by\nmore than the limit.",
    );
}

/// The value with four significant digits.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = (3.0 - value.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_significant_digits() {
        assert_eq!(significant(1000.0), "1000");
        assert_eq!(significant(2.0), "2.000");
        assert_eq!(significant(244.14), "244.1");
        assert_eq!(significant(123_456.0), "123456");
        assert_eq!(significant(0.0), "0");
    }
}
