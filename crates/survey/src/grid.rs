//! The first grid of points that a survey measures, and the survey's budget.
//!
//! The first grid is coarse: request sizes increase by factors of four (two in long surveys) from
//! the device's minimum to 16 MiB. Larger sizes than 1 MiB are included because some disks need
//! them to reach their highest rate. Each size is read and written, with buffered I/O at depth 1
//! and with direct I/O at two or three depths. Random 8 KiB requests are measured at several
//! depths. Where a curve bends, `schedule` later adds sizes between those of the grid.

use ioengine::zones::Zones;
use ioengine::{BufferPages, Caching};
use serde::{Deserialize, Serialize};
use workload::Pattern;

use crate::app::App;

/// A grid point: one workload of the survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridPoint {
    /// Whether the point writes.
    pub write: bool,
    /// Access pattern: sequential or random.
    pub pattern: Pattern,
    /// Caching mode: buffered or direct.
    pub caching: Caching,
    /// Request size (bytes).
    pub request_bytes: u32,
    /// Queue depth: the number of outstanding requests.
    pub depth: u32,
    /// Page size of the buffers.
    pub pages: BufferPages,
}

/// Time budget of a survey and the density of its grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Total duration of the survey (ns).
    pub budget_ns: u64,
    /// Length of a trial (ns).
    pub trial_ns: u64,
    /// Ratio of neighbouring request sizes of the first grid.
    pub size_step: u32,
    /// Queue depths of the first grid.
    pub depths: &'static [u32],
    /// Queue depths of the random requests.
    pub random_depths: &'static [u32],
    /// Trials per point of the first grid.
    pub rounds: u32,
    /// The requests of the user's program (`--app`), measured in addition to the grid.
    pub app: Option<App>,
}

/// Default duration of a survey (ns).
pub const BUDGET_NS: u64 = 90_000_000_000;
/// Duration of a survey with --quick (ns).
const QUICK_NS: u64 = 20_000_000_000;
/// Duration of a survey with --thorough (ns).
const THOROUGH_NS: u64 = 600_000_000_000;
/// Trials of simulated systems, which run in virtual time, are longer by this factor.
const VIRTUAL_LONGER: u64 = 8;
/// With at least this many simulated files, each point gets only one trial. The files are on
/// separate devices, so one trial already averages over many devices.
const MANY_FILES: u32 = 100;
/// Maximum request size of a survey (bytes).
const REQUEST_BYTES_MAX: u32 = 16 << 20;
/// Maximum size of all buffers in flight (bytes). Larger buffers would cause memory pressure, which
/// would distort the measurements.
pub const IN_FLIGHT_BYTES_MAX: u64 = 64 << 20;
/// Request size of the out-of-box setting: buffered, one request at a time (bytes).
pub const OUT_OF_BOX_BYTES: u32 = 64 << 10;
/// Request size at which caching modes and page sizes of buffers are compared (bytes).
pub const LARGE_BYTES: u32 = 1 << 20;
/// Size of the random requests (bytes). It is 8 KiB because the papers measure accesses per second
/// (KAPS) at this size.
const RANDOM_BYTES: u32 = 8 << 10;
/// Request sizes of the sequential points at depth 1 for which the upper bound of the CPU cost is
/// measured (bytes).
pub const SOAKED_BYTES: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];

impl Budget {
    /// Returns the budget for `--quick`, `--thorough`, `--budget`, or none of these.
    pub fn of(quick: bool, thorough: bool, budget_ns: Option<u64>) -> Budget {
        match (quick, thorough, budget_ns) {
            (true, _, _) => Budget::within(QUICK_NS),
            (_, true, _) => Budget::within(THOROUGH_NS),
            (_, _, Some(budget_ns)) => Budget::within(budget_ns),
            _ => Budget::within(BUDGET_NS),
        }
    }

    /// Adapts the budget to the virtual time of simulated systems. Trials are longer, so that even
    /// slow devices complete many large requests in each trial. This takes little real time.
    #[must_use]
    pub fn in_virtual_time(self, files: u32) -> Budget {
        let rounds = if files >= MANY_FILES { 1 } else { self.rounds };
        Budget { trial_ns: self.trial_ns * VIRTUAL_LONGER, rounds, ..self }
    }

    /// Returns whether the trials of a point are repeated until its interval is narrow.
    pub fn repeats(&self) -> bool {
        self.rounds > 1
    }

    /// Adds the requests of the user's program (`--app`), if there are any.
    #[must_use]
    pub fn for_app(self, app: Option<App>) -> Budget {
        Budget { app, ..self }
    }

    /// Returns a budget with the densest grid that can be measured in `budget_ns`.
    fn within(budget_ns: u64) -> Budget {
        let small = budget_ns < 60_000_000_000;
        let large = budget_ns >= 300_000_000_000;
        Budget {
            budget_ns,
            trial_ns: (budget_ns / 360).clamp(60_000_000, 1_000_000_000),
            size_step: if large { 2 } else { 4 },
            depths: if small { &[1, 8] } else { &[1, 8, 32] },
            random_depths: if small { &[1, 32] } else { &[1, 4, 16, 64] },
            rounds: if small { 2 } else { 3 },
            app: None,
        }
    }
}

impl GridPoint {
    /// Returns whether the point has the out-of-box setting: buffered sequential requests of
    /// 64 KiB, one at a time.
    pub fn is_out_of_box(&self) -> bool {
        let plain = self.pattern == Pattern::Sequential && self.depth == 1;
        plain && !self.caching.is_direct() && self.request_bytes == OUT_OF_BOX_BYTES
    }
}

/// Properties of a target that limit which points can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Minimum size of a direct request (bytes).
    pub request_bytes_min: u32,
    /// Size of the measured region (bytes).
    pub region_bytes: u64,
    /// Maximum size of all buffers in flight (bytes).
    pub in_flight_bytes_max: u64,
    /// Whether buffered I/O is supported.
    pub buffered: bool,
    /// Whether direct I/O is supported.
    pub direct: bool,
    /// Whether writing is allowed.
    pub write: bool,
    /// Layout of the device's zones. None if no zones of the region must be written in order.
    pub zones: Option<Zones>,
}

/// Returns the points of the first grid.
pub fn first(budget: &Budget, limits: &Limits) -> Vec<GridPoint> {
    let mut points = Vec::new();
    for write in [false, true] {
        if write && !limits.write {
            continue;
        }
        for request_bytes in sizes(budget, limits) {
            let depths = if limits.direct { budget.depths } else { &[] };
            for &depth in depths {
                points
                    .push(GridPoint { depth, ..sequential(write, Caching::Direct, request_bytes) });
            }
            points.push(sequential(write, Caching::Buffered, request_bytes));
        }
        if limits.direct {
            for &depth in budget.random_depths {
                points.push(GridPoint {
                    pattern: Pattern::Random,
                    depth,
                    ..sequential(write, Caching::Direct, RANDOM_BYTES)
                });
            }
            // This point has ordinary pages. It is compared with the point that has huge pages but
            // is otherwise equal.
            points.push(GridPoint {
                pages: BufferPages::Small,
                depth: 8,
                ..sequential(write, Caching::Direct, LARGE_BYTES)
            });
        }
    }
    points.extend(budget.app.iter().flat_map(|app| of_app(app, limits)));
    let mut known = Vec::new();
    points.retain(|point| {
        let is_new = !known.contains(point);
        known.push(*point);
        is_new && allowed(point, limits)
    });
    points
}

/// Returns the grid points with the requests of the user's program (`--app`): a point that reads,
/// and a point that writes if writes are allowed.
fn of_app(app: &App, limits: &Limits) -> Vec<GridPoint> {
    let caching = if app.direct { Caching::Direct } else { Caching::Buffered };
    let points = [false, true].map(|write| GridPoint {
        depth: app.depth,
        ..sequential(write, caching, app.request_bytes)
    });
    points.into_iter().filter(|point| limits.write || !point.write).collect()
}

/// Returns a sequential point at depth 1 whose buffers are on huge pages.
pub fn sequential(write: bool, caching: Caching, request_bytes: u32) -> GridPoint {
    let (pattern, pages) = (Pattern::Sequential, BufferPages::Huge);
    GridPoint { write, pattern, caching, request_bytes, depth: 1, pages }
}

/// Returns whether a point fits the target and the memory limit.
pub fn allowed(point: &GridPoint, limits: &Limits) -> bool {
    let in_flight = u64::from(point.request_bytes) * u64::from(point.depth);
    let too_small = point.caching.is_direct() && point.request_bytes < limits.request_bytes_min;
    let offered = if point.caching.is_direct() { limits.direct } else { limits.buffered };
    let most = limits.in_flight_bytes_max.min(limits.region_bytes);
    let keeps_order = || limits.zones.is_none_or(|zones| keeps_order(point, &zones, limits));
    offered && !too_small && in_flight <= most && (!point.write || keeps_order())
}

/// Returns whether a point writes each zone in order. This needs sequential direct requests whose
/// size divides the capacity of a zone. Each request in flight needs a separate open zone.
fn keeps_order(point: &GridPoint, zones: &Zones, limits: &Limits) -> bool {
    let sequential = point.caching.is_direct() && point.pattern == Pattern::Sequential;
    let behind = limits.region_bytes.saturating_sub(zones.sequential_from_bytes);
    let most = (behind / zones.zone_bytes.max(1)).min(zones.open_max.map_or(u64::MAX, u64::from));
    let fits = zones.capacity_bytes.is_multiple_of(point.request_bytes.into());
    sequential && fits && u64::from(point.depth) <= most
}

/// Returns the request sizes of the first grid, which are powers of two.
fn sizes(budget: &Budget, limits: &Limits) -> Vec<u32> {
    let least = limits.request_bytes_min.next_power_of_two().clamp(512, 4096);
    let mut sizes = vec![least];
    let mut size = 4096;
    while size <= REQUEST_BYTES_MAX {
        sizes.push(size);
        size *= budget.size_step;
    }
    sizes.dedup();
    sizes.retain(|size| u64::from(*size) <= limits.region_bytes);
    sizes
}

/// Returns whether the upper bound of the CPU cost is measured at this point.
pub fn is_soaked(point: &GridPoint) -> bool {
    let plain = point.pattern == Pattern::Sequential && point.pages == BufferPages::Huge;
    plain && point.depth == 1 && SOAKED_BYTES.contains(&point.request_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_written_in_order_by_direct_requests_that_fill_them() {
        let zones = Zones {
            zone_bytes: 4 << 20,
            capacity_bytes: 3 << 20,
            sequential_from_bytes: 8 << 20,
            open_max: Some(6),
        };
        let limits = Limits { zones: Some(zones), ..limits() };
        let budget = Budget::of(false, false, None);
        let points = first(&budget, &limits);
        assert!(points.iter().any(|point| !point.write && point.pattern == Pattern::Random));
        let writes: Vec<&GridPoint> = points.iter().filter(|point| point.write).collect();
        assert!(writes.iter().any(|point| point.depth == 1 && point.request_bytes == 1 << 20));
        for point in writes {
            assert!(point.caching.is_direct() && point.pattern == Pattern::Sequential);
            assert!(zones.capacity_bytes.is_multiple_of(point.request_bytes.into()));
            assert!(point.depth <= 6);
        }
        // The first 8 of 16 MiB can be written in any order. The other 8 MiB are two zones that
        // must be written in order.
        let short = Limits { region_bytes: 16 << 20, ..limits };
        let deep = GridPoint { depth: 3, ..sequential(true, Caching::Direct, 4096) };
        assert!(!allowed(&deep, &short) && allowed(&GridPoint { depth: 2, ..deep }, &short));
    }

    fn limits() -> Limits {
        Limits {
            request_bytes_min: 512,
            region_bytes: 1 << 30,
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
            buffered: true,
            direct: true,
            write: true,
            zones: None,
        }
    }

    #[test]
    fn the_grid_reaches_from_the_minimum_to_16_mib() {
        let points = first(&Budget::of(false, false, None), &limits());
        let sizes = || points.iter().map(|point| point.request_bytes);
        assert_eq!((sizes().min(), sizes().max()), (Some(512), Some(16 << 20)));
        assert!(points.iter().all(|point| allowed(point, &limits())));
        assert!(points.len() < 90, "{} points do not fit the budget", points.len());
    }

    #[test]
    fn without_consent_nothing_is_written_and_without_direct_nothing_is_direct() {
        let budget = Budget::of(true, false, None);
        let reads = first(&budget, &Limits { write: false, ..limits() });
        assert!(!reads.is_empty() && reads.iter().all(|point| !point.write));
        let buffered = first(&budget, &Limits { direct: false, ..limits() });
        assert!(buffered.iter().all(|point| point.caching == Caching::Buffered));
        let direct = first(&budget, &Limits { buffered: false, ..limits() });
        assert!(direct.iter().all(|point| point.caching == Caching::Direct));
    }

    #[test]
    fn a_small_region_bounds_the_requests() {
        let lean = Limits { in_flight_bytes_max: 2 << 20, ..limits() };
        let points = first(&Budget::of(false, false, None), &lean);
        assert!(points.iter().all(|s| u64::from(s.request_bytes) * u64::from(s.depth) <= 2 << 20));
        let small = Limits { region_bytes: 1 << 20, ..limits() };
        let points = first(&Budget::of(false, false, None), &small);
        assert!(points.iter().all(|s| u64::from(s.request_bytes) * u64::from(s.depth) <= 1 << 20));
    }
}
