//! What a device may consist of, as parameters of a system file with their starting values.
//!
//! Several structures can explain the same throughput: a limit of requests, a number of units, a
//! serial path. Each is a list of parameters; which one it is the data decide (`score::choose`).

use lab::failure::Outcome;
use simulator::{Description, System};

use crate::history::History;
use crate::ladder::{Direction, Ladder};

/// Units of work side by side that are more than any run keeps busy.
const MANY_UNITS: f64 = 64.0;

/// A parameter to be fitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its path in the system file.
    pub key: String,
    /// Where the search starts, in the unit of the system file.
    pub start: f64,
    /// Whether it counts things.
    pub counts: bool,
}

/// A way to build the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Structure {
    /// In a few words.
    pub name: String,
    /// What is fitted.
    pub parameters: Vec<Parameter>,
    /// What is set beforehand.
    pub given: Vec<(String, f64)>,
}

/// Something that remembers, which any device may have besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Reads of what was touched before.
    Cache,
    /// Writes that are taken before they are stored.
    Buffer,
    /// Bytes saved up.
    Credit,
}

impl Memory {
    /// All of them.
    pub const ALL: [Memory; 3] = [Memory::Cache, Memory::Buffer, Memory::Credit];
}

fn parameter(key: impl Into<String>, start: f64) -> Parameter {
    Parameter { key: key.into(), start: start.max(1e-6), counts: false }
}

fn microseconds(ns: f64) -> f64 {
    ns / 1e3
}

fn megabytes(bytes_per_s: f64) -> f64 {
    bytes_per_s / 1e6
}

impl Structure {
    /// The structures of a device of flash or a volume, each from a first guess.
    pub fn all(ladder: &Ladder) -> Vec<Structure> {
        let mut all = vec![limits(ladder), serial(ladder, 0.05), together(&limits(ladder))];
        all.extend([0.3, 0.6, 0.9].map(|share| together(&serial(ladder, share))));
        all.extend(units(ladder));
        all.extend(pieces(ladder));
        all
    }

    /// The same device with something that remembers, from several guesses.
    pub fn with(&self, memory: Memory, ladder: &Ladder) -> Vec<Structure> {
        let extended = |name: &str, keys: [&str; 2], starts: [f64; 2]| {
            let mut structure = self.clone();
            structure.name = format!("{}, {name}", self.name);
            structure.parameters.extend(
                keys.iter()
                    .zip(starts)
                    .map(|(key, start)| parameter(format!("drive.{key}"), start)),
            );
            structure
        };
        let mib = 1_048_576.0;
        match memory {
            Memory::Cache => {
                let hit = microseconds(ladder.quick_read_ns);
                let sizes = ladder.regions.iter().flat_map(|region| {
                    [0.1, 0.25, 0.5, 0.9, 1.5].map(|share| region * share / mib)
                });
                sizes.map(|size| extended("cache", ["cache", "cache_hit"], [size, hit])).collect()
            }
            Memory::Buffer => guesses(ladder.saved_bytes[1] / mib, ladder.late_bytes_per_s[1])
                .map(|starts| extended("write buffer", ["buffer", "drain"], starts))
                .collect(),
            Memory::Credit => guesses(ladder.saved_bytes[0] / mib, ladder.late_bytes_per_s[0])
                .map(|starts| extended("credit", ["credit", "sustained"], starts))
                .collect(),
        }
    }

    /// The system at the logarithms of the parameters.
    pub fn system(&self, base: &Description, at: &[f64]) -> Outcome<System> {
        let mut description = base.clone();
        for (key, value) in &self.given {
            description.put(key, *value, "given")?;
        }
        for (parameter, at) in self.parameters.iter().zip(at) {
            description.put(&parameter.key, parameter.value(*at), "fitted")?;
        }
        Ok(description.system()?)
    }

    /// The logarithms of the starting values.
    pub fn start(&self) -> Vec<f64> {
        self.parameters.iter().map(|parameter| parameter.start.ln()).collect()
    }
}

impl Parameter {
    /// Its value at a logarithm.
    pub fn value(&self, at: f64) -> f64 {
        if self.counts { at.exp().round().max(1.0) } else { at.exp() }
    }

    /// The least change that has an effect (ln).
    pub fn grain(&self, at: f64) -> f64 {
        if self.counts { (1.0 + 1.0 / at.exp().max(1.0)).ln() } else { 0.0 }
    }
}

/// Sizes and rates to start from.
fn guesses(size: f64, bytes_per_s: f64) -> impl Iterator<Item = [f64; 2]> {
    let rate = if bytes_per_s < f64::MAX { bytes_per_s } else { 1e8 };
    [0.4, 0.9, 1.0, 1.2, 2.5].into_iter().map(move |share| [size * share, megabytes(rate)])
}

/// A rate of the channel in each direction: what a single request shows, or the best of all.
fn channel(ladder: &Ladder, parameters: &mut Vec<Parameter>) {
    for (op, direction) in ladder.directions() {
        let rate = direction.single_bytes_per_s.max(direction.most_bytes_per_s);
        parameters.push(parameter(format!("drive.{op}_rate"), megabytes(rate)));
    }
}

/// A fixed time, a limit of rate, a limit of requests.
fn limits(ladder: &Ladder) -> Structure {
    let mut parameters = Vec::new();
    let mut most: f64 = 0.0;
    for (op, direction) in ladder.directions() {
        let fixed = microseconds(direction.fixed_ns);
        parameters.push(parameter(format!("drive.fixed_{op}"), fixed));
        most = most.max(direction.most_requests_per_s);
    }
    channel(ladder, &mut parameters);
    parameters.push(parameter("drive.requests_per_s", most));
    Structure { name: "latency and limits".to_owned(), parameters, given: Vec::new() }
}

/// One path on which requests come one after the other, with a time for each and one for each
/// byte, beside a latency that they share, at first this share of a single request's time.
fn serial(ladder: &Ladder, share: f64) -> Structure {
    let mut parameters = Vec::new();
    let mut each_ns = f64::MAX;
    for (op, direction) in ladder.directions() {
        each_ns = each_ns.min(1e9 / direction.most_requests_per_s);
        let latency = microseconds(direction.fixed_ns * share);
        parameters.push(parameter(format!("drive.fixed_{op}"), latency));
        let rate = direction.single_bytes_per_s.max(direction.most_bytes_per_s);
        parameters.push(parameter(format!("links.0.{op}"), megabytes(rate)));
    }
    parameters.push(parameter("links.0.fixed", microseconds(each_ns)));
    Structure { name: "serial path".to_owned(), parameters, given: Vec::new() }
}

/// The same device, but the host is told of requests together, as paravirtual disks do.
fn together(structure: &Structure) -> Structure {
    let name = format!("{}, told together", structure.name);
    let given = vec![("drive.coalesce".to_owned(), 1e6)];
    Structure { name, given, ..structure.clone() }
}

/// Units that work side by side on whole requests, then a channel; as many as the best rate of
/// requests times their duration.
fn units(ladder: &Ladder) -> Vec<Structure> {
    let busy = |(_, d): &(&str, Direction)| d.most_requests_per_s * d.fixed_ns / 1e9;
    let count = ladder.directions().iter().map(busy).fold(1.0, f64::max);
    let with = |count: f64| {
        let mut parameters = Vec::new();
        for (op, direction) in ladder.directions() {
            let unit = microseconds(direction.fixed_ns);
            parameters.push(parameter(format!("drive.unit_{op}"), unit));
        }
        channel(ladder, &mut parameters);
        let start = count.round().max(1.0);
        let key = "drive.units".to_owned();
        parameters.push(Parameter { key, start, counts: true });
        Structure { name: "units and channel".to_owned(), parameters, given: Vec::new() }
    };
    [0.7, 1.0, 1.5, 3.0].map(|share| with(count * share)).into()
}

/// Units that serve large requests in pieces, behind a fixed time.
fn pieces(ladder: &Ladder) -> Vec<Structure> {
    let most = |(_, d): (_, Direction)| d.most_bytes_per_s;
    let rate = ladder.directions().into_iter().map(most).fold(1.0, f64::max);
    let with = |(count, piece): (f64, f64)| {
        let mut parameters = Vec::new();
        for (op, direction) in ladder.directions() {
            let fixed = microseconds(direction.fixed_ns);
            parameters.push(parameter(format!("drive.fixed_{op}"), fixed));
            let unit = microseconds(count * piece * 1e9 / rate.min(direction.most_bytes_per_s));
            parameters.push(parameter(format!("drive.unit_{op}"), unit));
        }
        let key = "drive.units".to_owned();
        parameters.push(Parameter { key, start: count, counts: true });
        let given = vec![("drive.unit_size".to_owned(), piece / (1 << 30) as f64)];
        let name = format!("units of {} KiB", piece / 1024.0);
        Structure { name, parameters, given }
    };
    [(4.0, 4096.0), (8.0, 16384.0), (4.0, 65536.0), (2.0, 262_144.0)].map(with).into()
}

/// The base of a device of flash or a volume, as large as what was worked on.
pub fn volume(history: &History, cpus: u32) -> Outcome<Description> {
    let mut base = Description::read(include_str!("volume.toml"), "volume")?;
    let extent = history.extent_bytes();
    base.put("drive.capacity", extent as f64 / (1 << 30) as f64, "the region of the run")?;
    base.put("drive.units", MANY_UNITS, "no limit seen")?;
    base.put("host.cpus", f64::from(cpus), "the host of the run")?;
    base.set("file_size", &extent.to_string())?;
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volume_before_calibration_is_a_whole_system() {
        let base = Description::read(include_str!("volume.toml"), "volume").unwrap();
        base.system().unwrap();
    }
}
