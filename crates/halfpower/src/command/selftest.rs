//! `halfpower selftest`: measures reference devices and compares each quantity with its true value,
//! to check whether halfpower measures correctly on this machine.

use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::json::{self, Program};
use lab::machine::Host;
use lab::selftest::apparatus::Apparatus;
use lab::selftest::devices::{self, Source};
use lab::selftest::document::{self, SelftestDocument};
use lab::selftest::quantities::{GROUPS, Group};
use lab::trials::Lab;

use crate::cli::SelftestArgs;

/// Approximate duration of the whole self-test (ns), for the progress bar.
const TAKES_NS: u64 = 60_000_000_000;

pub fn execute(args: &SelftestArgs) -> Outcome {
    let console = Console::new(args.output.quiet);
    if args.output.plan {
        console::data(
            "would mount reference devices (FUSE files with their content in memory) in the folder \
             for temporary files and, as root, also create a loop device on a sparse image there; \
             would then measure one device after another, for about a minute in total, and remove \
             all devices; nothing was done",
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
        document::lines(&quantities).iter().for_each(|line| console::data(line));
    }
    if pass {
        return Ok(Exit::Ok);
    }
    console.warn(format!(
        "selftest failed: {failed} of {all} quantities are outside their limits; to check whether \
         other programs are running, run 'halfpower soak -- sleep 5'; then try again"
    ));
    Ok(Exit::Invalid)
}

/// Returns the groups with a name that contains `word`, or all groups if `word` is None. If no name
/// contains `word`, returns a usage error.
fn wanted(word: Option<&str>) -> Outcome<Vec<(&'static str, Group)>> {
    let contains = |name: &str| word.is_none_or(|word| name.contains(word));
    let groups: Vec<_> = GROUPS.into_iter().filter(|(name, _)| contains(name)).collect();
    if groups.is_empty() {
        let names = GROUPS.map(|(name, _)| name).join(", ");
        return Err(Failure::usage(format!(
            "--only {}: no such quantity; use one of these names, or a part of one: {names}",
            word.unwrap_or_default()
        )));
    }
    Ok(groups)
}

/// Returns the kind of reference device: the value of `--device`. Without `--device`, the kind is
/// FUSE. If FUSE is not available, prints a warning and returns the kind `delay`.
fn source(args: &SelftestArgs, console: &Console) -> Source {
    if let Some(source) = args.device {
        return source;
    }
    match devices::open(Source::Fuse, "", 1 << 20) {
        Ok(_) => Source::Fuse,
        Err(failure) => {
            console.warn(format!(
                "FUSE is not available ({failure}); the reference devices run in this process \
                 instead, so the kernel is not tested"
            ));
            Source::Delay
        }
    }
}
