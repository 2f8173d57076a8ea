//! `halfpower tune`: finds the request size and depth that reach nearly the best rate of a storage
//! with the least memory and CPU, and stores them for all programs that use `seqio`.

use analysis::units;
use ioengine::Op;
use ioengine::clock::unix_ns;
use lab::console::{self, Console};
use lab::date;
use lab::failure::{Exit, Outcome};
use lab::guard::Consent;
use lab::interrupt::Interrupt;
use lab::json::{self, Program};
use lab::trials::Lab;
use lab::tuning::choice::{self, Measured};
use lab::tuning::{self, EACH_NS, Place, Prospect, Tuning, Wish, keep};
use schemars::JsonSchema;
use seqio::tune::Setting;
use serde::Serialize;

use crate::cli::tune::TuneArgs;

/// What `tune --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TuneDocument {
    /// The program.
    pub halfpower: Program,
    /// The path as typed.
    pub target: String,
    /// The storage on which the path lies.
    pub storage: StorageDocument,
    /// Tuning for sequential reads.
    pub read: TuningDocument,
    /// Tuning for sequential writes; null if nothing was written.
    pub write: Option<TuningDocument>,
    /// Why nothing was written; null if writes were measured.
    pub not_written: Option<String>,
    /// Bytes written, including the test file.
    pub written_bytes: u64,
    /// The file that stores the tuning; null with --no-store.
    pub kept_in: Option<String>,
}

/// The storage that a tuning belongs to.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StorageDocument {
    /// Key under which tunings are stored.
    pub identity: String,
    /// Kind of storage as text.
    pub kind: String,
    /// Type of file system; empty for a bare device.
    pub file_system: String,
}

/// The tuning of reads or of writes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TuningDocument {
    /// The cheapest setting within 3% of the best rate.
    pub cheapest: SettingDocument,
    /// The fastest setting.
    pub best: SettingDocument,
    /// All measured settings.
    pub table: Vec<SettingDocument>,
}

/// A setting and its measurements.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SettingDocument {
    /// Request size.
    pub request_bytes: u32,
    /// Requests outstanding.
    pub depth: u32,
    /// Memory of the outstanding requests.
    pub buffer_bytes: u64,
    /// Number of measurements.
    pub probes: u64,
    /// Median rate.
    pub bytes_per_s: f64,
    /// Median CPU time of this process per byte.
    pub cpu_ns_per_byte: f64,
}

impl From<&Measured> for SettingDocument {
    fn from(measured: &Measured) -> SettingDocument {
        let Setting { request_bytes, depth } = measured.setting;
        SettingDocument {
            request_bytes,
            depth,
            buffer_bytes: choice::memory(measured.setting),
            probes: measured.rates.len() as u64,
            bytes_per_s: measured.bytes_per_s(),
            cpu_ns_per_byte: measured.cpu_ns_per_byte(),
        }
    }
}

impl From<&Tuning> for TuningDocument {
    fn from(tuning: &Tuning) -> TuningDocument {
        TuningDocument {
            cheapest: (&tuning.choice.cheapest).into(),
            best: (&tuning.choice.best).into(),
            table: tuning.table.iter().map(SettingDocument::from).collect(),
        }
    }
}

pub fn execute(args: &TuneArgs) -> Outcome {
    let wish = Wish {
        target: &args.target,
        size: args.size,
        consent: Consent {
            overwrite: args.overwrite.clone(),
            destroy_data_on: args.destroy_data_on.clone(),
        },
        seed: args.seed,
    };
    let prospect = Prospect::of(&wish)?;
    let kept_in = if args.no_store { None } else { Some(keep::path()?) };
    kept_in.iter().try_for_each(|path| keep::load(path).map(drop))?;
    if args.output.plan {
        plan(args, &prospect);
        kept_in.iter().for_each(|path| console::data(&format!("change {}", path.display())));
        return Ok(Exit::Ok);
    }
    let lab = Lab::new(Console::new(args.output.quiet), Interrupt::install());
    prospect.destroys().iter().for_each(|what| lab.console.warn(format!("destroying {what}")));
    let (storage, not_written) = (prospect.storage.clone(), prospect.not_written.clone());
    let writes = prospect.writable_bytes > 0;
    let place = Place::ready(&wish, prospect, &lab)?;
    let read = tuning::tune(&place, Op::Read, &lab, args.seed)?;
    let tune_writes = || tuning::tune(&place, Op::Write, &lab, args.seed);
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
        target: args.target.display().to_string(),
        storage: StorageDocument {
            identity: storage.identity.clone(),
            kind: storage.kind.to_string(),
            file_system: storage.file_system.clone(),
        },
        read: (&read).into(),
        write: write.as_ref().map(TuningDocument::from),
        not_written,
        written_bytes,
        kept_in: kept_in.map(|path| path.display().to_string()),
    };
    if args.output.json {
        console::data(&json::print(&document));
    } else {
        print(&document, &read, write.as_ref(), lab.console);
    }
    Ok(Exit::Ok)
}

fn plan(args: &TuneArgs, prospect: &Prospect) {
    let (size, target) = (units::size(prospect.bytes), args.target.display());
    if prospect.is_test_file() {
        console::data(&format!(
            "lay out a test file of {size} in {target}, and remove it afterwards"
        ));
    }
    prospect.destroys().iter().for_each(|what| console::data(&format!("destroy {what}")));
    let seconds = EACH_NS as f64 / 1e9;
    console::data(&format!(
        "read it with direct I/O for {seconds:.1} s, with up to 64 MiB in flight"
    ));
    match &prospect.not_written {
        Some(why) => console::data(&format!("write nothing: {why}")),
        None => {
            let (region, most) =
                (units::size(prospect.writable_bytes), units::size(prospect.write_most()));
            console::data(&format!(
                "overwrite {region} of it repeatedly for {seconds:.1} s, at most {most}"
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
        console.say(format!("stored for {identity} in {path}, for seqio, copy and cat"));
    }
}

fn line(name: &str, Tuning { choice, .. }: &Tuning) -> String {
    let (cheapest, best) = (&choice.cheapest, &choice.best);
    format!(
        "{name}: {}: {}, {} of buffers; best measured {} at {}",
        tuning::shown(cheapest.setting),
        units::rate(cheapest.bytes_per_s()),
        units::size(choice::memory(cheapest.setting)),
        units::rate(best.bytes_per_s()),
        tuning::shown(best.setting)
    )
}
