//! Describes a target: its layers from the file to the bus, its content, and whether writing to the
//! target is safe. Nothing is written to the target.

use analysis::units;
use std::collections::BTreeMap;
use std::path::Path;

use ioengine::kernel::Kernel;
use ioengine::stack::{self, Layer, Value};
use ioengine::{Caching, ErrorKind, HostTarget, Target, TargetKind, usage};
use schemars::JsonSchema;
use serde::Serialize;

use crate::failure::Outcome;
use crate::guard::{self, Consent};
use crate::json::Program;
use crate::network_target;

/// The document of `target --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetDocument {
    halfpower: Program,
    /// Path of the target as typed.
    target: String,
    /// The target, followed by the layers below it down to the hardware.
    layers: Vec<LayerDocument>,
    /// Description of the content of the file or device. Null for a directory or network target, or
    /// if the user may not read the target.
    content: Option<String>,
    /// Free space of the target's file system (bytes). Null for a device.
    free_bytes: Option<u64>,
    writing: Writing,
    /// Information that is missing because only root can read it.
    pub missing: Vec<String>,
    /// The layers as text, one line each.
    #[serde(skip)]
    lines: Vec<String>,
}

/// One layer of the path from the target to the hardware.
#[derive(Debug, Serialize, JsonSchema)]
struct LayerDocument {
    /// Kind of the layer: file, directory, file system, partition, volume, device, bus or network.
    kind: &'static str,
    name: String,
    /// Depth of the layer, 0 at the top. The members of an array or of a btrfs file system on
    /// several devices are one level deeper than the array or the file system. The files below an
    /// overlay or FUSE mount are one level deeper than the mount.
    depth: usize,
    /// Properties of the layer. The names of quantities end in the unit, as in `size_bytes`.
    facts: BTreeMap<&'static str, FactDocument>,
}

/// The value of a property.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum FactDocument {
    Text(String),
    Integer(u64),
    Number(f64),
}

/// Whether writing to the target is safe.
#[derive(Debug, Serialize, JsonSchema)]
struct Writing {
    /// Whether writing is allowed: "freely", "with" (only with `flag`), or "refused".
    allowed: &'static str,
    /// The flag that allows writing. Writing then destroys the existing data. Null if no flag is
    /// needed or writing is refused.
    flag: Option<String>,
    /// Why writing is allowed or refused.
    why: String,
}

impl TargetDocument {
    /// Describes the target at `path`.
    ///
    /// # Errors
    /// The target does not exist or cannot be opened.
    pub fn of(path: &Path) -> Outcome<TargetDocument> {
        if network_target::is_network(path) {
            return TargetDocument::of_network(path);
        }
        let full = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let layers = stack::of(&Kernel::of_host(), &full);
        let (opened, missing) = open(path)?;
        Ok(TargetDocument {
            halfpower: Program::this(),
            target: path.display().to_string(),
            content: opened.as_ref().map(guard::holds),
            free_bytes: free_bytes(path, opened.as_ref()),
            writing: writing(path, opened.as_ref()),
            missing,
            layers: layers.iter().map(LayerDocument::from).collect(),
            lines: layers.iter().map(line).collect(),
        })
    }

    /// Describes a network target with the information that its server reports.
    fn of_network(name: &Path) -> Outcome<TargetDocument> {
        let address = network_target::parse(name)?;
        let target = network_target::open(&address, false, false, &Consent::default())?;
        let size = FactDocument::Integer(target.size_bytes());
        let mut facts = BTreeMap::from([("size_bytes", size)]);
        let mut line = format!("{:<12} {address}: {}", "network", units::size(target.size_bytes()));
        if let Some(info) = target.remote_info() {
            facts.insert("features", FactDocument::Text(info.features.clone()));
            facts.insert("block_bytes", FactDocument::Integer(info.block_bytes.into()));
            facts.insert("request_bytes_max", FactDocument::Integer(info.request_bytes_max.into()));
            line = format!("{line}, {}", info.features);
            if info.block_bytes > 1 {
                line = format!("{line}, blocks of {}", units::size(u64::from(info.block_bytes)));
            }
        }
        let flag = Consent { overwrite: vec![name.to_path_buf()], ..Consent::default() }.flag();
        let why = format!("{address} exists and would be overwritten");
        Ok(TargetDocument {
            halfpower: Program::this(),
            target: address.to_string(),
            layers: vec![LayerDocument {
                kind: "network",
                name: address.to_string(),
                depth: 0,
                facts,
            }],
            content: None,
            free_bytes: None,
            writing: Writing { allowed: "with", flag: Some(flag), why },
            missing: Vec::new(),
            lines: vec![line],
        })
    }

    /// Formats the description as text.
    pub fn lines(&self) -> Vec<String> {
        let say = |name: &str, text: &str| format!("{name:<12} {text}");
        let mut lines = self.lines.clone();
        lines.extend(self.content.iter().map(|content| say("content", content)));
        lines.extend(self.free_bytes.iter().map(|bytes| say("free", &units::size(*bytes))));
        let Writing { allowed, flag, why } = &self.writing;
        let allowed = match flag {
            Some(flag) => format!("allowed with {flag}"),
            None if *allowed == "freely" => "allowed".to_owned(),
            None => (*allowed).to_owned(),
        };
        lines.push(say("writing", &format!("{allowed}: {why}")));
        lines
    }
}

/// Opens a file or device. If the user may not read it, returns None and a list of what the
/// description will not contain. Directories are not opened.
fn open(path: &Path) -> Outcome<(Option<HostTarget>, Vec<String>)> {
    if path.is_dir() {
        return Ok((None, Vec::new()));
    }
    match HostTarget::open(path, false, Caching::Buffered) {
        Ok(target) => Ok((Some(target), Vec::new())),
        Err(error) if error.kind() == ErrorKind::NotWritable => Ok((
            None,
            vec!["the content of the target and the list of programs that use it".to_owned()],
        )),
        Err(error) => Err(error.into()),
    }
}

fn free_bytes(path: &Path, opened: Option<&HostTarget>) -> Option<u64> {
    if path.is_dir() {
        return ioengine::host::free_bytes_at(path).ok();
    }
    opened.filter(|target| target.kind() == TargetKind::File)?.free_bytes()
}

fn writing(path: &Path, opened: Option<&HostTarget>) -> Writing {
    let unwritable = ioengine::host::unwritable(path).filter(|_| path.is_dir() || opened.is_some());
    if let Some(why) = unwritable {
        return Writing { allowed: "refused", flag: None, why };
    }
    if path.is_dir() {
        let why = "a test file is created here and removed afterwards".to_owned();
        return Writing { allowed: "freely", flag: None, why };
    }
    let Some(target) = opened else {
        let kernel = Kernel::of_host();
        let device = kernel.at(path);
        let used = device.and_then(|device| usage::of_device(&kernel, &device));
        let used = used.map(|why| format!("{} {why}", path.display()));
        let why = used.unwrap_or_else(|| "permission denied; run as root".to_owned());
        return Writing { allowed: "refused", flag: None, why };
    };
    match guard::advice(target, path) {
        (Some(flag), why) => {
            // The flag is shown separately, so the remedy at the end of the sentence is removed.
            let why = why.split("; use ").next().unwrap_or_default().to_owned();
            Writing { allowed: "with", flag: Some(flag), why }
        }
        (None, why) => Writing { allowed: "refused", flag: None, why },
    }
}

fn line(layer: &Layer) -> String {
    let fact = |(name, value): &(&str, Value)| {
        let name = name.trim_end_matches("_bytes_per_s").trim_end_matches("_bytes");
        let value = match value {
            Value::Text(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bytes(bytes) => units::size(*bytes),
            Value::BytesPerS(rate) => units::rate(*rate),
        };
        format!("{} {value}", name.replace('_', " "))
    };
    let facts: Vec<String> = layer.facts.iter().map(fact).collect();
    let colon = if facts.is_empty() { "" } else { ": " };
    let (indent, kind) = ("  ".repeat(layer.depth), layer.kind.name());
    format!("{kind:<12} {indent}{}{colon}{}", layer.name, facts.join(", "))
}

impl From<&Layer> for LayerDocument {
    fn from(layer: &Layer) -> LayerDocument {
        let fact = |(name, value): &(&'static str, Value)| {
            let value = match value {
                Value::Text(text) => FactDocument::Text(text.clone()),
                Value::Number(number) | Value::Bytes(number) => FactDocument::Integer(*number),
                Value::BytesPerS(rate) => FactDocument::Number(*rate),
            };
            (*name, value)
        };
        LayerDocument {
            kind: layer.kind.name(),
            name: layer.name.clone(),
            depth: layer.depth,
            facts: layer.facts.iter().map(fact).collect(),
        }
    }
}
