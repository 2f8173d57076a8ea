//! Finds the points of two sides that measure the same workload.
//!
//! Two points match if their settings are equal. If a setting (for example the engine) has one
//! value in all points of a side and another value in all points of the other side, the user
//! probably wants to compare these two values. Such a setting does not prevent a match, and it is
//! reported.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use lab::json;
use lab::point::Point;
use lab::point_key::PointKey;
use lab::workload_document::WorkloadDocument;

/// Settings that are ignored when workloads are matched: the seed, the length of the measurement,
/// and the logging of requests.
const NOT_COMPARED: [&str; 5] = [
    "seed",
    "settings limit bytes",
    "settings limit ns",
    "settings warm up ns",
    "settings logs requests",
];

/// The name and value of each setting of a point. Points with equal settings measure the same
/// workload.
pub type Settings = BTreeMap<String, String>;

/// The matched points of two sides.
#[derive(Clone, Debug, Default)]
pub struct Matched {
    /// Pairs of points with the same workload: index on the first side, index on the second side.
    pub pairs: Vec<(usize, usize)>,
    /// Settings that differ between the sides: name, value on the first side, value on the second.
    pub settings: Vec<(String, String, String)>,
    /// Indices of the points that only the first side has.
    pub only_first: Vec<usize>,
    /// Indices of the points that only the second side has.
    pub only_second: Vec<usize>,
}

/// Matches the points of two sides.
pub fn matched(a: &[Point], b: &[Point]) -> Matched {
    let of_a: Vec<Settings> = a.iter().map(|point| settings_of(&point.key)).collect();
    let of_b: Vec<Settings> = b.iter().map(|point| settings_of(&point.key)).collect();
    let differing = differing(&of_a, &of_b);
    let without = |settings: &Settings| {
        let mut rest = settings.clone();
        differing.iter().for_each(|name| drop(rest.remove(name)));
        rest
    };
    let mut places: BTreeMap<Settings, usize> = BTreeMap::new();
    for (index, settings) in of_b.iter().enumerate() {
        places.entry(without(settings)).or_insert(index);
    }
    let mut found = Matched::default();
    for (index, settings) in of_a.iter().enumerate() {
        match places.remove(&without(settings)) {
            Some(place) => found.pairs.push((index, place)),
            None => found.only_first.push(index),
        }
    }
    let taken: BTreeSet<usize> = found.pairs.iter().map(|(_, place)| *place).collect();
    found.only_second = (0..b.len()).filter(|place| !taken.contains(place)).collect();
    let value = |of: &[Settings], name: &String| {
        of.first()
            .and_then(|settings| settings.get(name))
            .cloned()
            .unwrap_or_else(|| "-".to_owned())
    };
    let named = |name: &String| {
        let short = name.strip_prefix("settings ").unwrap_or(name).to_owned();
        (short, value(&of_a, name), value(&of_b, name))
    };
    found.settings = differing.iter().map(named).collect();
    found
}

/// Merges points that measure the same workload into one point. The trials of each point are sorted
/// by time.
pub fn together(points: Vec<Point>) -> Vec<Point> {
    let mut places: BTreeMap<Settings, usize> = BTreeMap::new();
    let mut all: Vec<Point> = Vec::new();
    for point in points {
        match places.entry(settings_of(&point.key)) {
            Entry::Occupied(place) => all[*place.get()].trials.extend(point.trials),
            Entry::Vacant(place) => {
                place.insert(all.len());
                all.push(point);
            }
        }
    }
    all.iter_mut().for_each(|point| point.trials.sort_by_key(|trial| trial.started_unix_ns));
    all
}

/// Returns the settings of a workload that are compared.
pub fn settings_of(key: &PointKey) -> Settings {
    let mut settings = Settings::new();
    for (name, value) in json::facts("", &WorkloadDocument::from(key)).1 {
        if NOT_COMPARED.contains(&name.as_str()) {
            continue;
        }
        // A setting that is a list has several values with the same name. They are joined here.
        settings.entry(name).and_modify(|all| *all = format!("{all}, {value}")).or_insert(value);
    }
    settings
}

/// Returns the names of the settings that have one value in all points of a side and a different
/// value in all points of the other side.
fn differing(a: &[Settings], b: &[Settings]) -> Vec<String> {
    let names: BTreeSet<&String> = a.iter().chain(b).flat_map(Settings::keys).collect();
    let only = |of: &[Settings], name: &String| -> Option<Option<String>> {
        let mut values = of.iter().map(|settings| settings.get(name).cloned());
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    };
    let differs = |name: &&String| match (only(a, name), only(b, name)) {
        (Some(of_a), Some(of_b)) => of_a != of_b,
        _ => false,
    };
    names.into_iter().filter(differs).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::point::testing::point;

    fn sized(request_bytes: u32, depth: u32) -> Point {
        let mut point = point(&[4096 * 100, 4096 * 101]);
        point.key.workload.request_bytes = request_bytes;
        point.key.workload.depth = depth;
        point
    }

    #[test]
    fn points_are_matched_by_workload_and_not_by_place() {
        let a = [sized(4096, 1), sized(8192, 1), sized(65536, 1)];
        let b = [sized(65536, 1), sized(4096, 1), sized(1 << 20, 1)];
        let found = matched(&a, &b);
        assert_eq!(found.pairs, [(0, 1), (2, 0)]);
        assert_eq!((found.only_first, found.only_second), (vec![1], vec![2]));
        assert!(found.settings.is_empty());
    }

    #[test]
    fn a_setting_that_is_what_the_sides_compare_is_reported() {
        let a = [sized(4096, 1), sized(8192, 1)];
        let b = [sized(4096, 32), sized(8192, 32)];
        let found = matched(&a, &b);
        assert_eq!(found.pairs, [(0, 0), (1, 1)]);
        assert_eq!(found.settings, [("depth".to_owned(), "1".to_owned(), "32".to_owned())]);
    }

    #[test]
    fn seeds_do_not_keep_points_apart_and_their_trials_are_put_together() {
        let mut other = sized(4096, 1);
        other.key.workload.seed = 77;
        other.trials[0].started_unix_ns = -5;
        let all = together(vec![sized(4096, 1), other, sized(8192, 1)]);
        assert_eq!(all.iter().map(|point| point.trials.len()).collect::<Vec<_>>(), [4, 2]);
        assert_eq!(all[0].trials[0].started_unix_ns, -5);
    }
}
