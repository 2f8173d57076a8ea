//! Reads, changes and writes system files, which are in TOML. Every value has a unit and a source,
//! and there are no defaults.
//!
//! A system file is built in (`systems/`) or supplied by the user. [`Description::set`] changes a
//! value, for example `drive.rotation=5400`. Keys of `setup` need no prefix, for example `disks=4`
//! or `write_cache=on`.

use std::collections::BTreeSet;

use ioengine::{Error, ErrorKind};
use toml::{Table, Value};

use crate::calibration::CalibrationPoint;
use crate::quantity::bytes_of;
use crate::system::System;
use crate::written;

/// The names and system files of the built-in systems.
const BUILT_IN: [(&str, &str); 24] = [
    ("nt4-narrow", include_str!("../systems/nt4-narrow.toml")),
    ("nt4-fastwide", include_str!("../systems/nt4-fastwide.toml")),
    ("nt4-ultrawide", include_str!("../systems/nt4-ultrawide.toml")),
    ("e5000-nt4sp6", include_str!("../systems/e5000-nt4sp6.toml")),
    ("e5000-w2k", include_str!("../systems/e5000-w2k.toml")),
    ("w2k-atlas10k", include_str!("../systems/w2k-atlas10k.toml")),
    ("w2k-fireball-3ware", include_str!("../systems/w2k-fireball-3ware.toml")),
    ("w2k-fireball-ide", include_str!("../systems/w2k-fireball-ide.toml")),
    ("w2k-3w6800", include_str!("../systems/w2k-3w6800.toml")),
    ("w2k-diamondmax", include_str!("../systems/w2k-diamondmax.toml")),
    ("w2k-cifs-gigabit", include_str!("../systems/w2k-cifs-gigabit.toml")),
    ("sata-hdd-7200", include_str!("../systems/sata-hdd-7200.toml")),
    ("sata-smr-5900", include_str!("../systems/sata-smr-5900.toml")),
    ("sata-ssd", include_str!("../systems/sata-ssd.toml")),
    ("nvme-gen4", include_str!("../systems/nvme-gen4.toml")),
    ("nvme-ftl", include_str!("../systems/nvme-ftl.toml")),
    ("nvme-slc", include_str!("../systems/nvme-slc.toml")),
    ("cloud-gp-volume", include_str!("../systems/cloud-gp-volume.toml")),
    ("ebs-gp2-100g", include_str!("../systems/ebs-gp2-100g.toml")),
    ("ebs-gp3", include_str!("../systems/ebs-gp3.toml")),
    ("ebs-st1-1t", include_str!("../systems/ebs-st1-1t.toml")),
    ("gcp-pd-balanced-500g", include_str!("../systems/gcp-pd-balanced-500g.toml")),
    ("azure-p10", include_str!("../systems/azure-p10.toml")),
    ("rack", include_str!("../systems/rack.toml")),
];

const CALIBRATION: &str = "calibration";

/// A parsed system file, possibly with changed values. [`Description::system`] validates the
/// values.
#[derive(Clone, Debug)]
pub struct Description {
    table: Table,
}

impl Description {
    /// Returns the names of the built-in systems.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Returns the text of a built-in system file.
    ///
    /// # Errors
    /// When no built-in system has that name.
    pub fn file(name: &str) -> Result<&'static str, Error> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| *text).ok_or_else(|| {
            let names: Vec<&str> = Description::names().collect();
            Error::new(ErrorKind::Usage, format!("no simulated system is called '{name}'"))
                .with_remedy(format!(
                    "use one of {}, or a file such as sim:./mine.toml",
                    names.join(", ")
                ))
        })
    }

    /// Parses the system file of a built-in system.
    ///
    /// # Errors
    /// When no built-in system has that name.
    pub fn named(name: &str) -> Result<Description, Error> {
        Description::read(Description::file(name)?, name)
    }

    /// Parses the text of a system file. Error messages use `from` as the name of the file.
    ///
    /// # Errors
    /// When the text is not TOML.
    pub fn read(text: &str, from: &str) -> Result<Description, Error> {
        let table = text.parse::<Table>().map_err(|error| {
            let what = format!("{from}: {}", one_line(&error.to_string()));
            Error::new(ErrorKind::Usage, what).with_remedy(
                "correct the file; the built-in systems, such as nt4-ultrawide, are examples",
            )
        })?;
        Ok(Description { table })
    }

    /// Returns the one-line description of the system. `None` if the file contains no description.
    pub fn title(&self) -> Option<&str> {
        self.table.get("title").and_then(Value::as_str)
    }

    /// Changes a value. `key` is a key of `setup`, such as `disks`, or a path, such as
    /// `drive.rotation`.
    ///
    /// # Errors
    /// When the key does not exist or does not accept the value.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), Error> {
        let path: Vec<&str> = key.split('.').collect();
        let refuse = |what: String| Error::new(ErrorKind::Usage, what);
        let setup: Vec<String> = match self.table.get("setup") {
            Some(Value::Table(setup)) => setup.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let unknown = || {
            refuse(format!("`set` {key}: the system has no such value")).with_remedy(format!(
                "use one of {}, or a path such as drive.rotation or host.direct_read.fixed",
                setup.join(", ")
            ))
        };
        let mut at = match path.len() {
            1 => self.table.get_mut("setup").and_then(|setup| setup.get_mut(path[0])),
            _ => descend(self.table.get_mut(path[0]), &path[1..]),
        };
        let place = at.as_mut().ok_or_else(unknown)?;
        change(place, text).map_err(|why| refuse(format!("`set` {key}={text}: {why}")))
    }

    /// Changes the number of a value, keeps its unit, and records `source` as its source.
    ///
    /// # Errors
    /// When the key does not exist.
    pub fn put(&mut self, key: &str, number: f64, source: &str) -> Result<(), Error> {
        let path: Vec<&str> = key.split('.').collect();
        let place = descend(self.table.get_mut(path[0]), &path[1..]);
        let Some(value) = place.and_then(Value::as_table_mut).filter(|t| t.contains_key("unit"))
        else {
            let what = format!("{key}: the system has no such value");
            return Err(Error::new(ErrorKind::Usage, what));
        };
        value.insert("value".to_owned(), Value::Float(number));
        value.insert("source".to_owned(), Value::String(source.to_owned()));
        Ok(())
    }

    /// Sets the zones of the drive and records `source` as their source. Each zone has a number of
    /// cylinders and a number of sectors per track.
    pub fn set_zones(&mut self, zones: &[[u64; 2]], source: &str) {
        let Some(Value::Table(drive)) = self.table.get_mut("drive") else { return };
        let pair = |zone: &[u64; 2]| Value::Array(zone.map(|n| Value::Integer(n as i64)).into());
        drive.insert("zones".to_owned(), Value::Array(zones.iter().map(pair).collect()));
        drive.insert("zones_source".to_owned(), Value::String(source.to_owned()));
    }

    /// Changes the name and the title of the system.
    pub fn rename(&mut self, name: &str, title: &str) {
        for (key, text) in [("name", name), ("title", title)] {
            self.table.insert(key.to_owned(), Value::String(text.to_owned()));
        }
    }

    /// Returns the text of the system file with the current values.
    pub fn text(&self) -> String {
        written::text_of(&self.table)
    }

    /// Returns the source of a value. `None` if there is no such value.
    pub fn source_of(&self, key: &str) -> Option<String> {
        Some(self.value_at(key)?.get("source")?.as_str()?.to_owned())
    }

    /// Returns a value as a number and a unit. `None` if there is no such value.
    pub fn value_of(&self, key: &str) -> Option<(f64, String)> {
        let table = self.value_at(key)?;
        Some((number(table.get("value")?)?, table.get("unit")?.as_str()?.to_owned()))
    }

    fn value_at(&self, key: &str) -> Option<&Table> {
        let path: Vec<&str> = key.split('.').collect();
        let mut at: Option<&Value> = self.table.get(path[0]);
        for part in &path[1..] {
            at = match at {
                Some(Value::Table(table)) => table.get(*part),
                Some(Value::Array(items)) => part.parse::<usize>().ok().and_then(|i| items.get(i)),
                _ => None,
            };
        }
        at?.as_table()
    }

    /// Returns the paths of all values that have a unit and a source.
    pub fn keys(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(&Value::Table(self.table.clone()), &mut String::new(), &mut |path, table| {
            if table.contains_key("unit") {
                found.push(path.to_owned());
            }
        });
        found
    }

    /// Returns all sources that are cited in the file.
    pub fn sources(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        walk(&Value::Table(self.table.clone()), &mut String::new(), &mut |_, table| {
            for (key, value) in table {
                if let Some(text) = value.as_str().filter(|_| key.ends_with("source")) {
                    found.insert(text.to_owned());
                }
            }
        });
        found
    }

    /// Returns the calibration points. Empty if the system was not calibrated.
    pub fn calibration(&self) -> Vec<CalibrationPoint> {
        let points = self.table.get(CALIBRATION).cloned();
        points.and_then(|points| points.try_into().ok()).unwrap_or_default()
    }

    /// Stores the calibration points.
    ///
    /// # Panics
    /// Never, because the points contain only numbers and text.
    pub fn set_calibration(&mut self, points: &[CalibrationPoint]) {
        let points = Value::try_from(points).expect("points can be TOML");
        self.table.insert(CALIBRATION.to_owned(), points);
    }

    /// Builds and validates the system.
    ///
    /// # Errors
    /// When a value is missing, unknown or out of range.
    pub fn system(&self) -> Result<System, Error> {
        let system: Result<System, _> = self.table.clone().try_into();
        let refuse = |what: String| Error::new(ErrorKind::Usage, what);
        let system = system.map_err(|error: toml::de::Error| {
            let name = self.table.get("name").and_then(Value::as_str).unwrap_or("the system");
            refuse(format!("{name}: {}", one_line(&error.to_string())))
        })?;
        system.check().map_err(|why| refuse(format!("{}: {why}", system.name)))?;
        Ok(system)
    }
}

/// Joins the non-empty lines of a message.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|i| i as f64))
}

fn descend<'a>(from: Option<&'a mut Value>, path: &[&str]) -> Option<&'a mut Value> {
    let (first, rest) = match path.split_first() {
        Some(parts) => parts,
        None => return from,
    };
    let next = match from? {
        Value::Table(table) => table.get_mut(*first),
        Value::Array(items) => first.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
        _ => None,
    };
    descend(next, rest)
}

/// Replaces a value with the value in `text`. A number can only be replaced with a number or a
/// size.
fn change(place: &mut Value, text: &str) -> Result<(), String> {
    match place {
        Value::Table(table) if table.contains_key("value") => {
            let digits = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e');
            let (value, unit) = text.split_at(digits.unwrap_or(text.len()));
            let value: f64 =
                value.trim().parse().map_err(|_| "the value is not a number".to_owned())?;
            table.insert("value".to_owned(), Value::Float(value));
            match unit.trim() {
                "" => None,
                // The command line accepts sizes as 64k or 64K, but system files contain only
                // lower-case units.
                "K" | "M" | "G" | "T" => {
                    table.insert("unit".to_owned(), unit.trim().to_lowercase().into())
                }
                unit => table.insert("unit".to_owned(), unit.into()),
            };
            table.insert("source".to_owned(), Value::String("changed".to_owned()));
        }
        Value::Table(_) | Value::Array(_) => return Err("the key is a group of values".to_owned()),
        Value::String(old) => text.clone_into(old),
        // A whole number in the file may be a count, a share or a size, so all three are accepted.
        Value::Integer(_) => {
            let number =
                || text.parse().map(Value::Integer).or_else(|_| text.parse().map(Value::Float));
            let size = |_| bytes_of(text).map(|_| Value::String(text.to_owned()));
            *place = number()
                .or_else(size)
                .map_err(|_| "the value is not a whole number, a fraction or a size")?;
        }
        Value::Float(old) => {
            *old = text.parse().map_err(|_| "the value is not a number".to_owned())?;
        }
        other => return Err(format!("values of type {} cannot be changed", other.type_str())),
    }
    Ok(())
}

fn walk(value: &Value, path: &mut String, found: &mut dyn FnMut(&str, &Table)) {
    let mut inside = |name: &str, value: &Value| {
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(name);
        walk(value, path, found);
        path.truncate(length);
    };
    match value {
        Value::Table(table) => {
            table.iter().for_each(|(name, value)| inside(name, value));
            found(path, table);
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| inside(&i.to_string(), item));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coalesce_bytes(text: &str) -> Result<u64, String> {
        let mut description = Description::named("nt4-fastwide").unwrap();
        description.set("drive.coalesce", text).map_err(|error| error.to_string())?;
        match description.system().map_err(|error| error.to_string())?.drive {
            crate::system::DriveModel::Disk(disk) => Ok(disk.coalesce.bytes()),
            crate::system::DriveModel::Flash(_) => Err("a disk".to_owned()),
        }
    }

    #[test]
    fn a_size_may_be_typed_in_all_usual_formats() {
        for text in ["64k", "64K", "64KiB", "64", "65536B", "128sectors"] {
            assert_eq!(coalesce_bytes(text), Ok(65536), "{text}");
        }
    }

    #[test]
    fn integers_in_a_setup_may_be_changed_to_sizes_and_shares() {
        let text = Description::file("nt4-ultrawide").unwrap();
        let text = text.replace("chunk = \"64k\"", "chunk = 65536");
        let text = text.replace("file_at = 0.3", "file_at = 0");
        let mut whole = Description::read(&text, "whole").unwrap();
        let setup = whole.system().unwrap().setup;
        assert_eq!((setup.chunk, setup.file_at), (65536, 0.0));
        whole.set("chunk", "16k").unwrap();
        whole.set("file_at", "0.5").unwrap();
        let setup = whole.system().unwrap().setup;
        assert_eq!((setup.chunk, setup.file_at), (16384, 0.5));
        assert!(whole.set("disks", "many").unwrap_err().to_string().contains("whole number"));
        whole.set("disks", "0.5").unwrap();
        let said = whole.system().unwrap_err().to_string();
        assert!(said.contains("disks"), "{said}");
    }

    #[test]
    fn an_invalid_size_in_the_setup_is_refused() {
        for size in ["64q", "0.3k", "-1", "1e30"] {
            let mut text = Description::named("nt4-ultrawide").unwrap();
            text.set("misalign", size).unwrap();
            let said = text.system().unwrap_err().to_string();
            assert!(said.contains("misalign") && said.contains(size), "{said}");
        }
    }

    #[test]
    fn a_wrong_unit_is_refused_with_the_valid_ones() {
        let said = coalesce_bytes("64us").unwrap_err();
        assert!(said.contains("'us'") && said.contains("KiB"), "{said}");
    }

    #[test]
    fn the_points_of_a_calibration_are_kept_in_the_system_file() {
        let mut system = Description::named("sata-ssd").unwrap();
        assert_eq!(system.calibration(), []);
        let point = CalibrationPoint {
            read_percent: 100,
            pattern: "random".to_owned(),
            request_bytes: 4096,
            outstanding: 8,
            hosts: 1,
            held_out: true,
            measured_bytes_per_s: 1.25e6,
            simulated_bytes_per_s: 1.5e6,
        };
        let points = [point.clone(), CalibrationPoint { outstanding: 16, hosts: 4, ..point }];
        system.set_calibration(&points);
        let read = Description::read(&system.text(), "written").unwrap();
        assert_eq!(read.calibration(), points);
        assert_eq!(read.system().unwrap().calibration, points);
        assert!(read.keys().iter().all(|key| !key.starts_with(CALIBRATION)), "no parameters");
    }
}
