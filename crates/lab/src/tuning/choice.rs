//! Decides which settings to measure next, and selects one of the measured settings. The selected
//! setting needs the least memory of those whose rate is at most 3% below the best rate.
//!
//! A setting consists of a request size and a queue depth.

use analysis::quantile::median;
use seqio::tune::Setting;

/// Request sizes that are tried (KiB).
const REQUEST_KIB: [u32; 6] = [256, 512, 1024, 2048, 4096, 8192];
/// Queue depths that are tried.
const DEPTHS: [u32; 5] = [1, 2, 4, 8, 16];
/// Maximum memory for the requests of a setting, which is request size times queue depth (bytes).
const MEMORY_MAX: u64 = 64 << 20;
/// How far the rate of the selected setting may be below the best rate, as a share of the best
/// rate.
const LOSS_MAX: f64 = 0.03;
/// Minimum rate of a setting that is considered for further measurements, as a share of the best
/// rate.
const IN_PLAY: f64 = 0.90;
/// A setting can be selected only if it was measured at least this often. If no setting was
/// measured this often, only the settings with the most measurements can be selected.
const PROBES_ENOUGH: usize = 3;
/// This many of the fastest settings are measured again in every round, because they determine the
/// best rate.
const FASTEST: usize = 3;

/// A setting and its measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Request size and queue depth.
    pub setting: Setting,
    /// Rate of each probe (bytes per second).
    pub rates: Vec<f64>,
    /// CPU time of each probe (ns per byte).
    pub costs: Vec<f64>,
}

impl Measured {
    /// Returns the median rate (bytes per second).
    pub fn bytes_per_s(&self) -> f64 {
        median(&self.rates).unwrap_or(0.0)
    }

    /// Returns the median CPU time (ns per byte).
    pub fn cpu_ns_per_byte(&self) -> f64 {
        median(&self.costs).unwrap_or(f64::INFINITY)
    }
}

/// Returns the memory that the outstanding requests of a setting need (bytes).
pub fn memory(setting: Setting) -> u64 {
    u64::from(setting.request_bytes) * u64::from(setting.depth)
}

/// The result of tuning.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Of the settings whose rate is at most 3% below the best rate, the setting that needs the
    /// least memory. If several settings need the same memory, the one with the least CPU time.
    pub cheapest: Measured,
    /// The fastest setting.
    pub best: Measured,
}

/// Selects the cheapest and the fastest setting. None if nothing was measured.
pub fn choose(measured: &[Measured]) -> Option<Choice> {
    let by_rate = |a: &&Measured, b: &&Measured| a.bytes_per_s().total_cmp(&b.bytes_per_s());
    let most = measured.iter().map(|one| one.rates.len()).max()?;
    let known = || measured.iter().filter(|one| one.rates.len() >= most.min(PROBES_ENOUGH));
    let best = known().max_by(by_rate)?;
    let least = best.bytes_per_s() * (1.0 - LOSS_MAX);
    let near = known().filter(|one| one.bytes_per_s() >= least);
    let cheapest = near.min_by(|a, b| {
        let memory = memory(a.setting).cmp(&memory(b.setting));
        memory.then(a.cpu_ns_per_byte().total_cmp(&b.cpu_ns_per_byte()))
    });
    Some(Choice { cheapest: cheapest?.clone(), best: best.clone() })
}

/// Returns all settings whose outstanding requests need at most `memory_bytes`, at most an eighth
/// of `region_bytes`, and at most 64 MiB.
pub fn grid(region_bytes: u64, memory_bytes: u64) -> Vec<Setting> {
    let most = MEMORY_MAX.min(region_bytes / 8).min(memory_bytes);
    let with = |kib: &u32| DEPTHS.map(|depth| Setting { request_bytes: kib << 10, depth });
    REQUEST_KIB.iter().flat_map(with).filter(|setting| memory(*setting) <= most).collect()
}

/// Returns the settings to measure in the next round. The first round measures a coarse grid, with
/// every second request size and queue depth.
///
/// Later rounds measure two groups of settings again: the three fastest settings, and the cheap
/// settings within 10% of the best rate. A setting is cheap if the setting needs no more memory
/// than the current choice. If `explores` is true, later rounds also measure new settings of the
/// grid: all neighbours of the fastest setting, and the cheap neighbours of all settings within 10%
/// of the best rate.
pub fn round(grid: &[Setting], measured: &[Measured], explores: bool) -> Vec<Setting> {
    let Some(choice) = choose(measured) else {
        return grid.iter().copied().filter(|setting| is_coarse(*setting)).collect();
    };
    let in_play = choice.best.bytes_per_s() * IN_PLAY;
    let cheap = |setting| memory(setting) <= memory(choice.cheapest.setting);
    let mut ranked: Vec<&Measured> = measured.iter().collect();
    ranked.sort_by(|a, b| b.bytes_per_s().total_cmp(&a.bytes_per_s()));
    let again = |(rank, one): &(usize, &Measured)| {
        *rank < FASTEST || (one.bytes_per_s() >= in_play && cheap(one.setting))
    };
    let mut next: Vec<Setting> =
        ranked.iter().copied().enumerate().filter(again).map(|(_, one)| one.setting).collect();
    let known = |setting| measured.iter().any(|one| one.setting == setting);
    let beside_good = |setting| {
        let good = ranked.iter().filter(|one| one.bytes_per_s() >= in_play);
        good.map(|one| one.setting).any(|good| are_beside(good, setting))
    };
    let promising = |setting: &Setting| {
        let setting = *setting;
        let may_be_best = are_beside(choice.best.setting, setting);
        !known(setting) && (may_be_best || (cheap(setting) && beside_good(setting)))
    };
    next.extend(grid.iter().copied().filter(|_| explores).filter(promising));
    next
}

fn is_coarse(setting: Setting) -> bool {
    let kib = setting.request_bytes >> 10;
    [256, 1024, 4096].contains(&kib) && [1, 4, 16].contains(&setting.depth)
}

/// Returns true if two settings are neighbours in the grid. Neighbours differ by one step in
/// request size or in queue depth, or by one step in both but in opposite directions.
fn are_beside(one: Setting, other: Setting) -> bool {
    let step = |a: u32, b: u32| a.ilog2() as i32 - b.ilog2() as i32;
    let size = step(one.request_bytes, other.request_bytes);
    let depth = step(one.depth, other.depth);
    matches!((size, depth), (0, 1 | -1) | (1 | -1, 0) | (1, -1) | (-1, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(kib: u32, depth: u32, rate: f64, cost: f64) -> Measured {
        let setting = Setting { request_bytes: kib << 10, depth };
        Measured { setting, rates: vec![rate], costs: vec![cost] }
    }

    fn chosen(measured: &[Measured]) -> (u32, u32) {
        let setting = choose(measured).unwrap().cheapest.setting;
        (setting.request_bytes >> 10, setting.depth)
    }

    #[test]
    fn the_setting_with_the_least_memory_within_3_percent_is_chosen() {
        let all = [
            measured(8192, 8, 1000.0, 0.1),
            measured(1024, 4, 971.0, 0.3),
            measured(512, 4, 969.0, 0.2),
        ];
        assert_eq!(chosen(&all), (1024, 4));
        assert_eq!(choose(&all).unwrap().best.setting.depth, 8);
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn for_equal_memory_the_least_cpu_time_is_chosen() {
        let all = [
            measured(512, 8, 1000.0, 0.3),
            measured(1024, 4, 990.0, 0.2),
            measured(2048, 2, 980.0, 0.1),
            measured(4096, 1, 500.0, 0.05),
        ];
        assert_eq!(chosen(&all), (2048, 2));
    }

    #[test]
    fn a_single_fast_probe_is_not_enough() {
        let lucky = Measured { rates: vec![2000.0, 900.0, 910.0], ..measured(256, 1, 0.0, 0.1) };
        let steady = Measured { rates: vec![1000.0; 3], ..measured(1024, 4, 0.0, 0.1) };
        assert_eq!(chosen(&[lucky, steady]), (1024, 4));
    }

    #[test]
    fn settings_with_few_probes_are_not_chosen_but_measured_again() {
        let often = |one: Measured| Measured { rates: vec![one.rates[0]; 3], ..one };
        let known = often(measured(1024, 4, 1000.0, 0.1));
        let all = [known.clone(), measured(256, 1, 1100.0, 0.1), measured(256, 4, 990.0, 0.1)];
        let choice = choose(&all).unwrap();
        assert_eq!((&choice.cheapest, &choice.best), (&known, &known));
        let again = round(&grid(1 << 30, u64::MAX), &all, false);
        assert_eq!(again.len(), 3, "{again:?}");
        assert!(round(&grid(1 << 30, u64::MAX), &all, true).len() > 3);
    }

    #[test]
    fn the_grid_is_limited_to_64_mib_and_an_eighth_of_the_file() {
        let large = grid(1 << 40, u64::MAX);
        assert_eq!(large.len(), 29, "8 MiB x 16 is too much");
        assert!(large.iter().all(|setting| memory(*setting) <= 64 << 20));
        assert!(grid(1 << 30, 5 << 20).iter().all(|setting| memory(*setting) <= 5 << 20));
        assert!(grid(1 << 30, 1 << 10).is_empty());
        assert!(grid(64 << 20, u64::MAX).iter().all(|setting| memory(*setting) <= 8 << 20));
    }

    /// Runs six rounds on storage without noise. Returns the choice and the number of measured
    /// settings.
    fn tuned(rate: impl Fn(Setting) -> f64) -> (Choice, usize) {
        let (grid, mut all) = (grid(1 << 30, u64::MAX), Vec::<Measured>::new());
        for _ in 0..6 {
            for setting in round(&grid, &all, true) {
                match all.iter_mut().find(|one| one.setting == setting) {
                    Some(one) => one.rates.push(rate(setting)),
                    None => all.push(measured(
                        setting.request_bytes >> 10,
                        setting.depth,
                        rate(setting),
                        0.1,
                    )),
                }
            }
        }
        (choose(&all).unwrap(), all.len())
    }

    #[test]
    fn rounds_find_the_same_setting_as_a_search_of_the_whole_grid() {
        let mib = |setting: Setting| memory(setting) as f64 / 1048576.0;
        let plateau = move |setting: Setting| mib(setting).min(4.0) * 1e9;
        let disk = |setting: Setting| f64::from(setting.request_bytes).min(2e6);
        let wide = |setting: Setting| f64::from(setting.depth.min(8));
        let rates: [(&str, &dyn Fn(Setting) -> f64); 3] =
            [("plateau", &plateau), ("disk", &disk), ("wide", &wide)];
        for (name, rate) in rates {
            let exhaustive: Vec<Measured> = grid(1 << 30, u64::MAX)
                .into_iter()
                .map(|s| measured(s.request_bytes >> 10, s.depth, rate(s), 0.1))
                .collect();
            let wanted = choose(&exhaustive).unwrap().cheapest.setting;
            let (found, taken) = tuned(rate);
            assert_eq!(memory(found.cheapest.setting), memory(wanted), "{name}");
            assert!(taken <= 29, "{name}: {taken}");
        }
    }
}
