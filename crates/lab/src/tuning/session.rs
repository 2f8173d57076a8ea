//! Runs the subcommand `tune`: prepares the target, measures reads and writes, stores the selected
//! settings for all programs that use `seqio`, and prints them.

use analysis::units;
use ioengine::Op;
use ioengine::clock::unix_ns;

use super::choice;
use super::document::{TuneDocument, TuningDocument};
use super::{EACH_NS, Place, Prospect, Tuning, Wish, keep, shown, tune};
use crate::console::{self, Console};
use crate::date;
use crate::failure::{Exit, Outcome};
use crate::interrupt::Interrupt;
use crate::json::{self, Program};
use crate::trials::Lab;

/// Options that decide whether the result is stored and how it is printed.
#[derive(Clone, Copy, Debug)]
pub struct TuneOptions {
    /// Whether the result is not stored.
    pub no_store: bool,
    /// Whether one JSON document is printed instead of text.
    pub json: bool,
    /// Whether only the result, warnings and errors are printed.
    pub quiet: bool,
    /// Whether the actions are printed instead of executed.
    pub plan: bool,
}

/// Tunes a target, stores the result and prints it.
///
/// # Errors
/// The target has nothing to tune, the options that allow writing do not match the target, or a
/// request fails.
pub fn execute(wish: &Wish, options: &TuneOptions) -> Outcome {
    let prospect = Prospect::of(wish)?;
    let kept_in = if options.no_store { None } else { Some(keep::path()?) };
    kept_in.iter().try_for_each(|path| keep::load(path).map(drop))?;
    if options.plan {
        print_plan(wish, &prospect);
        kept_in.iter().for_each(|path| console::data(&format!("change {}", path.display())));
        return Ok(Exit::Ok);
    }
    let lab = Lab::new(Console::new(options.quiet), Interrupt::install());
    prospect.destroys().iter().for_each(|what| lab.console.warn(format!("destroying {what}")));
    let (storage, not_written) = (prospect.storage.clone(), prospect.not_written.clone());
    let writes = prospect.writable_bytes > 0;
    let place = Place::ready(wish, prospect, &lab)?;
    let read = tune(&place, Op::Read, &lab, wish.seed)?;
    let tune_writes = || tune(&place, Op::Write, &lab, wish.seed);
    let write = writes.then(tune_writes).transpose()?;
    let written_bytes = place.laid_out_bytes + write.as_ref().map_or(0, |w| w.written_bytes);
    drop(place);
    if let Some(path) = &kept_in {
        let chosen = |tuning: &Tuning| tuning.choice.cheapest.setting;
        let measured = date::utc(unix_ns());
        keep::keep(path, &storage.identity, chosen(&read), write.as_ref().map(chosen), measured)?;
    }
    let document = TuneDocument {
        halfpower: Program::this(),
        target: wish.target.display().to_string(),
        storage: (&*storage).into(),
        read: (&read).into(),
        write: write.as_ref().map(TuningDocument::from),
        not_written,
        written_bytes,
        kept_in: kept_in.map(|path| path.display().to_string()),
    };
    if options.json {
        console::data(&json::print(&document));
    } else {
        print(&document, &read, write.as_ref(), lab.console);
    }
    Ok(Exit::Ok)
}

fn print_plan(wish: &Wish, prospect: &Prospect) {
    let (size, target) = (units::size(prospect.bytes), wish.target.display());
    if prospect.is_test_file() {
        console::data(&format!(
            "lay out a test file of {size} in {target}, and remove it afterwards"
        ));
    }
    prospect.destroys().iter().for_each(|what| console::data(&format!("destroy {what}")));
    let seconds = EACH_NS as f64 / 1e9;
    console::data(&format!(
        "read the file or device with direct I/O for {seconds:.1} s, with up to 64 MiB in flight"
    ));
    match &prospect.not_written {
        Some(why) => console::data(&format!("write nothing: {why}")),
        None => {
            let (region, most) =
                (units::size(prospect.writable_bytes), units::size(prospect.write_most()));
            console::data(&format!(
                "overwrite {region} repeatedly for {seconds:.1} s, writing at most {most}"
            ));
        }
    }
}

fn print(document: &TuneDocument, read: &Tuning, write: Option<&Tuning>, console: Console) {
    console::data(&line("read", read));
    write.iter().for_each(|write| console::data(&line("write", write)));
    document.not_written.iter().for_each(|why| console.say(format!("writes not measured: {why}")));
    if let Some(path) = &document.kept_in {
        let identity = &document.storage.identity;
        console.say(format!(
            "the settings of {identity} for seqio, copy and cat were stored in {path}"
        ));
    }
}

fn line(name: &str, Tuning { choice, .. }: &Tuning) -> String {
    let (cheapest, best) = (&choice.cheapest, &choice.best);
    format!(
        "{name}: {} reaches {} and needs {} of buffer memory; {} is the best rate, reached with {}",
        shown(cheapest.setting),
        units::rate(cheapest.bytes_per_s()),
        units::size(choice::memory(cheapest.setting)),
        units::rate(best.bytes_per_s()),
        shown(best.setting)
    )
}
