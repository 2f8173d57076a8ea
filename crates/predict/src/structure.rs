//! Lists the candidate models of a device, called structures. Each structure is a list of
//! parameters of a system file with starting values.
//!
//! Several structures can explain the same throughput: a request-rate limit, a number of parallel
//! units, or a serial path. `score::choose` fits them and selects the one that explains the data
//! best. For storage that several hosts share, there are separate structures with a link for each
//! host.

use lab::failure::Outcome;
use simulator::{Description, System};

use crate::history::History;
use crate::initial::{Direction, InitialGuess};

/// A number of parallel units that is so high that the units do not limit the throughput of any
/// run.
const MANY_UNITS: f64 = 64.0;

/// A parameter to be fitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Key of the parameter in the system file, for example `drive.units`.
    pub key: String,
    /// Starting value of the search, in the unit of the system file.
    pub start: f64,
    /// Whether the parameter is a count, which can only be a whole number.
    pub is_count: bool,
}

/// A model of a device: the parameters that describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Structure {
    /// Short description of the structure, for users.
    pub name: String,
    /// The parameters to fit.
    pub parameters: Vec<Parameter>,
    /// Parameters with a fixed value. Each is a key of the system file and the value.
    pub fixed: Vec<(String, f64)>,
}

/// A stateful part that can be added to any structure: a cache, a buffer or a credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatefulPart {
    /// A cache, which serves repeated reads faster.
    Cache,
    /// A write buffer, which accepts writes before they are on the media.
    Buffer,
    /// Burst credit, which is a token bucket of bytes.
    Credit,
}

impl StatefulPart {
    /// All stateful parts.
    pub const ALL: [StatefulPart; 3] =
        [StatefulPart::Cache, StatefulPart::Buffer, StatefulPart::Credit];
}

fn parameter(key: impl Into<String>, start: f64) -> Parameter {
    Parameter { key: key.into(), start: start.max(1e-6), is_count: false }
}

fn microseconds(ns: f64) -> f64 {
    ns / 1e3
}

fn megabytes(bytes_per_s: f64) -> f64 {
    bytes_per_s / 1e6
}

impl Structure {
    /// Returns all structures that can be fitted to a history, with starting values.
    pub fn candidates(history: &History, guess: &InitialGuess) -> Vec<Structure> {
        match history.hosts() {
            0 | 1 => Structure::all(guess),
            _ => shared(guess),
        }
    }

    /// Returns all structures of a flash device or a volume, with starting values.
    pub fn all(guess: &InitialGuess) -> Vec<Structure> {
        let mut all = vec![limits(guess), serial(guess, 0.05), coalesced(&limits(guess))];
        all.extend([0.3, 0.6, 0.9].map(|share| coalesced(&serial(guess, share))));
        all.extend(units(guess));
        all.extend(pieces(guess));
        all
    }

    /// Returns copies of the structure to which `part` is added. The copies differ in their
    /// starting values.
    pub fn with(&self, part: StatefulPart, guess: &InitialGuess) -> Vec<Structure> {
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
        match part {
            StatefulPart::Cache => {
                let hit = microseconds(guess.cache_hit_ns);
                let sizes = guess.regions.iter().flat_map(|region| {
                    [0.1, 0.25, 0.5, 0.9, 1.5].map(|share| region * share / mib)
                });
                sizes.map(|size| extended("cache", ["cache", "cache_hit"], [size, hit])).collect()
            }
            StatefulPart::Buffer => {
                sizes_and_rates(guess.credit_bytes[1] / mib, guess.late_bytes_per_s[1])
                    .map(|starts| extended("write buffer", ["buffer", "drain"], starts))
                    .collect()
            }
            StatefulPart::Credit => {
                sizes_and_rates(guess.credit_bytes[0] / mib, guess.late_bytes_per_s[0])
                    .map(|starts| extended("credit", ["credit", "sustained"], starts))
                    .collect()
            }
        }
    }

    /// Builds the system whose parameters have the logarithms `at`.
    ///
    /// # Errors
    /// If the system with these values is not valid.
    pub fn system(&self, base: &Description, at: &[f64]) -> Outcome<System> {
        let mut description = base.clone();
        for (key, value) in &self.fixed {
            description.put(key, *value, "fixed")?;
        }
        for (parameter, at) in self.parameters.iter().zip(at) {
            description.put(&parameter.key, parameter.value(*at), "fitted")?;
        }
        Ok(description.system()?)
    }

    /// Returns the logarithms of the starting values.
    pub fn start(&self) -> Vec<f64> {
        self.parameters.iter().map(|parameter| parameter.start.ln()).collect()
    }
}

impl Parameter {
    /// Returns the value whose logarithm is `at`, in the unit of the system file. Counts are
    /// rounded.
    pub fn value(&self, at: f64) -> f64 {
        if self.is_count { at.exp().round().max(1.0) } else { at.exp() }
    }

    /// For a count, returns by how much the logarithm `at` grows if the count grows by 1. For other
    /// parameters, returns 0.
    pub fn grain(&self, at: f64) -> f64 {
        if self.is_count { (1.0 + 1.0 / at.exp().max(1.0)).ln() } else { 0.0 }
    }
}

/// Returns pairs of starting values: a size (MiB) and a rate (MB/s).
fn sizes_and_rates(size: f64, bytes_per_s: f64) -> impl Iterator<Item = [f64; 2]> {
    let rate = if bytes_per_s < f64::MAX { bytes_per_s } else { 1e8 };
    [0.4, 0.9, 1.0, 1.2, 2.5].into_iter().map(move |share| [size * share, megabytes(rate)])
}

/// Adds the channel rate of each direction as a parameter. The starting value is the rate of a
/// single request or the highest rate of all points, whichever is higher.
fn channel(guess: &InitialGuess, parameters: &mut Vec<Parameter>) {
    for (op, direction) in guess.directions() {
        let rate = direction.single_bytes_per_s.max(direction.most_bytes_per_s);
        parameters.push(parameter(format!("drive.{op}_rate"), megabytes(rate)));
    }
}

/// Returns the structure with a fixed time per request and with limits on the byte rate and on the
/// request rate.
fn limits(guess: &InitialGuess) -> Structure {
    let mut parameters = Vec::new();
    let mut most: f64 = 0.0;
    for (op, direction) in guess.directions() {
        let fixed = microseconds(direction.fixed_ns);
        parameters.push(parameter(format!("drive.fixed_{op}"), fixed));
        most = most.max(direction.most_requests_per_s);
    }
    channel(guess, &mut parameters);
    parameters.push(parameter("drive.requests_per_s", most));
    Structure { name: "latency and limits".to_owned(), parameters, fixed: Vec::new() }
}

/// Returns the structure in which a request first takes a fixed latency and then uses a serial
/// path. The latencies of several requests overlap, but the path transfers one request at a time,
/// with a fixed time per request and a time per byte. The starting value of the latency is `share`
/// of the fixed time of a request.
fn serial(guess: &InitialGuess, share: f64) -> Structure {
    let mut parameters = Vec::new();
    let mut each_ns = f64::MAX;
    for (op, direction) in guess.directions() {
        each_ns = each_ns.min(1e9 / direction.most_requests_per_s);
        let latency = microseconds(direction.fixed_ns * share);
        parameters.push(parameter(format!("drive.fixed_{op}"), latency));
        let rate = direction.single_bytes_per_s.max(direction.most_bytes_per_s);
        parameters.push(parameter(format!("links.0.{op}"), megabytes(rate)));
    }
    parameters.push(parameter("links.0.fixed", microseconds(each_ns)));
    Structure { name: "serial path".to_owned(), parameters, fixed: Vec::new() }
}

/// Returns a copy of the structure in which the device reports several completions at once, as
/// paravirtual disks do.
fn coalesced(structure: &Structure) -> Structure {
    let name = format!("{}, coalesced completions", structure.name);
    let fixed = vec![("drive.coalesce".to_owned(), 1e6)];
    Structure { name, fixed, ..structure.clone() }
}

/// Returns the structures of parallel units that share a channel. Each unit serves one whole
/// request at a time. By Little's law, the number of busy units is the highest request rate times
/// the fixed time of a request. The starting value of the number of units is this product times a
/// factor, which differs between the structures.
fn units(guess: &InitialGuess) -> Vec<Structure> {
    let busy = |(_, d): &(&str, Direction)| d.most_requests_per_s * d.fixed_ns / 1e9;
    let count = guess.directions().iter().map(busy).fold(1.0, f64::max);
    let with = |count: f64| {
        let mut parameters = Vec::new();
        for (op, direction) in guess.directions() {
            let unit = microseconds(direction.fixed_ns);
            parameters.push(parameter(format!("drive.unit_{op}"), unit));
        }
        channel(guess, &mut parameters);
        let start = count.round().max(1.0);
        let key = "drive.units".to_owned();
        parameters.push(Parameter { key, start, is_count: true });
        Structure { name: "units and channel".to_owned(), parameters, fixed: Vec::new() }
    };
    [0.7, 1.0, 1.5, 3.0].map(|share| with(count * share)).into()
}

/// Returns the structures in which a request takes a fixed time and is then divided into pieces,
/// which parallel units serve.
fn pieces(guess: &InitialGuess) -> Vec<Structure> {
    let highest = |(_, d): (_, Direction)| d.most_bytes_per_s;
    let rate = guess.directions().into_iter().map(highest).fold(1.0, f64::max);
    let with = |(count, piece): (f64, f64)| {
        let mut parameters = Vec::new();
        for (op, direction) in guess.directions() {
            let fixed = microseconds(direction.fixed_ns);
            parameters.push(parameter(format!("drive.fixed_{op}"), fixed));
            let unit = microseconds(count * piece * 1e9 / rate.min(direction.most_bytes_per_s));
            parameters.push(parameter(format!("drive.unit_{op}"), unit));
        }
        let key = "drive.units".to_owned();
        parameters.push(Parameter { key, start: count, is_count: true });
        let fixed = vec![("drive.unit_size".to_owned(), piece / (1 << 30) as f64)];
        let name = format!("units of {} KiB", piece / 1024.0);
        Structure { name, parameters, fixed }
    };
    [(4.0, 4096.0), (8.0, 16384.0), (4.0, 65536.0), (2.0, 262_144.0)].map(with).into()
}

/// Returns the structures of storage that several hosts share. Each host has a separate device. The
/// channel of the device models the link of the host. The fixed time of the device models the
/// latency. The latencies of several requests overlap. All devices share one path to the storage,
/// which transfers one request at a time. Some structures also limit the request rate of each host,
/// of the path, or of both.
fn shared(guess: &InitialGuess) -> Vec<Structure> {
    let with = |share: f64, link: f64, [limits_host, limits_path]: [bool; 2]| {
        let mut parameters = Vec::new();
        let (mut each_ns, mut of_host_per_s) = (f64::MAX, 0.0_f64);
        for (op, direction) in guess.directions() {
            each_ns = each_ns.min(1e9 / direction.most_requests_per_s);
            of_host_per_s = of_host_per_s.max(direction.most_requests_per_s_of_host);
            let latency = microseconds(direction.fixed_ns * share);
            parameters.push(parameter(format!("drive.fixed_{op}"), latency));
            let of_host = megabytes(direction.most_bytes_per_s_of_host * link);
            parameters.push(parameter(format!("drive.{op}_rate"), of_host));
            let of_storage = megabytes(direction.most_bytes_per_s);
            parameters.push(parameter(format!("links.0.{op}"), of_storage));
        }
        let mut name = "shared storage and host links".to_owned();
        if limits_host {
            parameters.push(parameter("drive.requests_per_s", of_host_per_s));
            name += ", a request-rate limit for each host";
        }
        if limits_path {
            parameters.push(parameter("links.0.fixed", microseconds(each_ns)));
            name += ", a request-rate limit for all hosts";
        }
        Structure { name, parameters, fixed: Vec::new() }
    };
    let mut all = Vec::new();
    for share in [0.3, 0.9] {
        for link in [1.0, 4.0] {
            for limits in [[false, false], [true, false], [false, true], [true, true]] {
                all.push(with(share, link, limits));
            }
        }
    }
    all.extend(all.clone().iter().map(coalesced));
    all
}

/// Returns the system file of a flash device or volume before calibration. The device is as large
/// as the region that the run used. The host has `cpus` CPUs.
///
/// # Errors
/// If the built-in file is invalid, which is a bug.
pub fn volume(history: &History, cpus: u32) -> Outcome<Description> {
    let mut base = Description::read(include_str!("volume.toml"), "volume")?;
    let hosts = history.fitted_hosts();
    base.set("disks", &hosts.to_string())?;
    base.set("hosts", &hosts.to_string())?;
    if history.hosts() > 1 {
        // A bus is busy while it waits for the path, so each host has a separate bus.
        base.set("buses", "0")?;
    }
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
    use crate::history::tests::example;

    #[test]
    fn the_built_in_volume_is_a_valid_system() {
        let base = Description::read(include_str!("volume.toml"), "volume").unwrap();
        base.system().unwrap();
    }

    #[test]
    fn shared_storage_has_a_device_for_each_host() {
        let mut history = example();
        history.points.iter_mut().for_each(|point| point.hosts = 4);
        let system = volume(&history, 2).unwrap().system().unwrap();
        assert_eq!((system.setup.hosts, system.setup.disks, system.buses()), (4, 4, 4));
    }
}
