//! Finds the parameters in system files that were fitted to published values of a paper. The source
//! of such a value in the system file states which figures it was fitted to.
//!
//! Equal values with the same source count as one parameter, even if they are in several systems or
//! under several keys. For example, reads and writes may share a CPU time.

use std::collections::BTreeSet;

use simulator::Description;

use crate::reproduce::figure::Figure;

/// A parameter of a system file that was fitted to published values.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Where the parameter occurs: the names of the systems, and the paths in the system files,
    /// such as `drive.firmware_read`.
    pub places: Vec<(String, String)>,
    /// The value of the parameter, in `unit`.
    pub value: f64,
    /// The unit of the value.
    pub unit: String,
    /// The source of the value in the system file, for example `fit to Table 3`.
    pub source: String,
}

impl Parameter {
    /// Returns the keys of the figures and tables to which the parameter was fitted, such as `2` or
    /// `t3`.
    pub fn figures(&self) -> Vec<String> {
        cited(&self.source)
    }

    /// Returns the path of the parameter in the first system file.
    pub fn key(&self) -> &str {
        self.places.first().map_or("", |(_, key)| key)
    }

    /// Returns the names of the systems that have the parameter.
    pub fn systems(&self) -> BTreeSet<&str> {
        self.places.iter().map(|(system, _)| system.as_str()).collect()
    }

    /// Returns the value that is used if no published value determines the parameter: 0 for a time
    /// or a size, and the advertised rate for a rate. There are two exceptions: `drive.retained`
    /// gets the size of the read-ahead, and `drive.coalesce` gets the host's largest request size.
    pub fn neutral(&self) -> f64 {
        let of = |key: &str| {
            let description = Description::named(&self.places.first()?.0).ok()?;
            Some(description.value_of(key)?.0)
        };
        let found = match (self.key(), self.key().rsplit_once('.')) {
            ("drive.retained", _) => of("drive.prefetch"),
            ("drive.coalesce", _) => of("host.max_transfer"),
            (_, Some((part, _))) if self.unit.ends_with("/s") => of(&format!("{part}.advertised")),
            _ => Some(0.0),
        };
        found.unwrap_or(self.value)
    }
}

/// Returns the fitted parameters of all systems that these figures simulate.
pub fn parameters<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> Vec<Parameter> {
    let probes = figures.into_iter().flat_map(Figure::probes);
    let systems: BTreeSet<&str> = probes.map(|probe| probe.system()).collect();
    let mut all: Vec<Parameter> = Vec::new();
    for name in systems {
        let Ok(description) = Description::named(name) else { continue };
        for key in description.keys() {
            let (Some((value, unit)), Some(source)) =
                (description.value_of(&key), description.source_of(&key))
            else {
                continue;
            };
            if !says_fit(&source) {
                continue;
            }
            let known = all
                .iter_mut()
                .find(|known| known.value == value && known.unit == unit && known.source == source);
            let place = (name.to_owned(), key);
            match known {
                Some(known) => known.places.push(place),
                None => all.push(Parameter { places: vec![place], value, unit, source }),
            }
        }
    }
    all
}

/// Checks whether a source states that the value was fitted.
fn says_fit(source: &str) -> bool {
    source.split(|c: char| !c.is_ascii_alphabetic()).any(|word| word == "fit")
}

/// Returns the keys of the figures and tables in a source. For "Figures 10 and 13", these are `10`
/// and `13`. For "Table 3", the key is `t3`.
fn cited(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut prefix = None;
    for word in source.split(|c: char| !c.is_ascii_alphanumeric()) {
        prefix = match word {
            "Figure" | "Figures" => Some(""),
            "Table" | "Tables" => Some("t"),
            "and" | "" => prefix,
            number if number.parse::<u32>().is_ok() => {
                found.extend(prefix.map(|prefix| format!("{prefix}{number}")));
                prefix
            }
            _ => None,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::figures;
    use crate::reproduce::published::Paper;

    #[test]
    fn a_source_names_the_figures_it_was_fitted_to() {
        assert_eq!(cited("fit to Figures 10 and 13, reads of 2 to 8 KB"), ["10", "13"]);
        assert_eq!(cited("fit to the overhead of Figure 2"), ["2"]);
        assert_eq!(cited("the host bus, fit to Table 3"), ["t3"]);
        assert!(cited("fit to C134 and C053").is_empty());
    }

    #[test]
    fn a_value_that_files_or_places_share_is_one_parameter() {
        let all = parameters(&figures(Paper::Riedel97));
        let of = |key: &str| {
            let has = |p: &&Parameter| p.places.iter().any(|(_, place)| place == key);
            all.iter().filter(has).collect::<Vec<_>>()
        };
        assert_eq!(of("host.direct_read.fixed").len(), 1);
        assert_eq!(of("host.direct_read.fixed")[0].systems().len(), 3);
        assert_eq!(of("host.direct_read.fixed"), of("host.direct_write.fixed"));
        assert_eq!(of("drive.firmware_write").len(), 2, "one for each drive");
        assert!(of("drive.rotation").is_empty(), "its value is from a data sheet");
        assert!(!says_fit("benefit of the doubt"));
    }

    #[test]
    fn without_knowledge_a_rate_is_the_advertised_one_and_a_time_is_none() {
        let all = parameters(&figures(Paper::Riedel97));
        let of = |key: &str| {
            let place = ("nt4-ultrawide".to_owned(), key.to_owned());
            all.iter().find(|p| p.places.contains(&place)).unwrap().neutral()
        };
        assert_eq!(of("bus.read"), 40.0);
        assert_eq!(of("drive.firmware_queued_write"), 0.0);
    }
}
