//! Resource use of a simulated system over all trials of a point, as text and as JSON: which
//! resource limits the throughput, and how busy each resource was in each phase of its work.

use analysis::units;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use simulator::{Account, Binding, SimpleModel, WriteCost};

use crate::json::{PointDocument, Program};
use crate::machine::{Host, TargetFacts};
use crate::point::{Point, Trial};
use crate::simulated::BoundDocument;

/// Maximum number of upper bounds in the text report.
const BOUNDS_TOLD: usize = 3;

/// The output of `simulate --json`: one point, or several points if a flag has a list of values.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SimulateDocument {
    /// A single point.
    One(Box<SimulatedDocument<SimulatedPoint>>),
    /// Several points.
    Several(Box<SimulatedDocument<SimulatedPoints>>),
}

/// The results of a simulation: program, host and system, with one or several points.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SimulatedDocument<T> {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The machine that ran the simulation.
    pub host: Host,
    /// The simulated system.
    pub target: TargetFacts,
    /// The simulated point or points.
    #[serde(flatten)]
    pub simulated: T,
}

/// The points of a simulation in which a flag has a list of values.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SimulatedPoints {
    /// The points, in the order of the listed values.
    pub points: Vec<SimulatedPoint>,
}

/// A point with the resource use of the simulated system.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SimulatedPoint {
    /// The results of the point, as in the output of `run --json`.
    #[serde(flatten)]
    pub point: PointDocument,
    /// Resource use of the simulated system.
    #[serde(flatten)]
    pub balance: Balance,
}

/// How busy each resource was over all trials of a point.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Balance {
    /// The resource that limits the throughput.
    pub binding: BindingDocument,
    /// All resources of the system, in the order in which a request uses them.
    pub resources: Vec<ResourceDocument>,
    /// Upper bounds on the throughput, the lowest first. Empty for mixes of reads and writes, for
    /// workloads with a warm-up, and if any byte is requested more than once.
    pub bounds: Vec<BoundDocument>,
    /// The time that a request would take if its steps did not overlap. Null except for direct
    /// reads or direct writes on a single disk.
    pub simple_model: Option<SimpleDocument>,
    /// Cost of the writes on a flash device with a translation layer. Null for other devices and
    /// without writes.
    pub write_cost: Option<WriteCostDocument>,
}

/// Cost of the writes of a run on a flash device with a translation layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WriteCostDocument {
    /// Bytes programmed into flash memory per byte that the host wrote.
    pub write_amplification: f64,
    /// Share of the dies' busy time that garbage collection and erases took, from 0 to 1.
    pub collection_share: f64,
    /// The highest rate of host writes that the device can sustain, because its dies would then be
    /// busy all the time (bytes per second).
    pub most_bytes_per_s: f64,
}

impl From<WriteCost> for WriteCostDocument {
    fn from(cost: WriteCost) -> WriteCostDocument {
        let WriteCost { write_amplification, collection_share, most_bytes_per_s } = cost;
        WriteCostDocument { write_amplification, collection_share, most_bytes_per_s }
    }
}

impl WriteCostDocument {
    fn line(&self) -> String {
        format!(
            "  write amplification {:.2}: garbage collection takes {:.0}% of the time in which the \
             flash is busy; the flash can sustain writes of this kind at {}",
            self.write_amplification,
            self.collection_share * 100.0,
            units::rate(self.most_bytes_per_s)
        )
    }
}

/// Times of the steps of a request, computed with a simple model in which the steps do not overlap.
/// The simulated time is given for comparison.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SimpleDocument {
    /// Fixed time of a request (ns): CPU time, bus phases without data, and firmware.
    pub fixed_ns: f64,
    /// Mean seek time plus half a revolution (ns). 0 for sequential requests.
    pub position_ns: f64,
    /// Time of the transfer from or to the media (ns).
    pub media_ns: f64,
    /// Time of the transfer over the bus (ns).
    pub bus_ns: f64,
    /// Sum of the four times above (ns).
    pub sum_ns: f64,
    /// Simulated time divided by the number of requests (ns).
    pub simulated_ns: f64,
}

impl SimpleDocument {
    fn of(model: &SimpleModel, point: &Point) -> SimpleDocument {
        let elapsed_ns: u64 = point.trials.iter().map(|trial| trial.elapsed_ns).sum();
        let requests: u64 = point.trials.iter().map(Trial::requests).sum();
        SimpleDocument {
            fixed_ns: model.fixed_ns,
            position_ns: model.position_ns,
            media_ns: model.media_ns,
            bus_ns: model.bus_ns,
            sum_ns: model.sum_ns(),
            simulated_ns: elapsed_ns as f64 / requests.max(1) as f64,
        }
    }

    fn line(&self) -> String {
        let time = units::time;
        format!(
            "  without overlap, a request takes {}: fixed {}, seek and rotation {}, media {}, bus \
             {}; the simulation completes a request every {}",
            time(self.sum_ns),
            time(self.fixed_ns),
            time(self.position_ns),
            time(self.media_ns),
            time(self.bus_ns),
            time(self.simulated_ns)
        )
    }
}

/// The resource that limits the throughput of a simulated system. If the resource were faster, the
/// throughput would rise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BindingDocument {
    /// Name of the resource, or "latency" if no resource is near its limit. In the latter case, a
    /// larger queue depth may help.
    pub resource: String,
    /// Utilisation of the limiting resource, from 0 to 1. For "latency", it is the utilisation of
    /// the busiest resource. Work for which no request waits is not counted.
    pub utilisation: f64,
    /// A busier resource that mostly waits for the limiting resource. Null if there is none.
    #[serde(default)]
    pub held: Option<HeldDocument>,
}

/// A resource that is occupied most of the time because it waits for the limiting resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldDocument {
    /// Name of the resource.
    pub resource: String,
    /// Utilisation of the resource, from 0 to 1.
    pub utilisation: f64,
}

impl From<Binding> for BindingDocument {
    fn from(binding: Binding) -> BindingDocument {
        let Binding { resource, utilisation, held } = binding;
        let held = held
            .map(|held| HeldDocument { resource: held.resource, utilisation: held.utilisation });
        BindingDocument { resource, utilisation, held }
    }
}

impl BindingDocument {
    /// Formats the limiting resource, such as "PCI, busy 89.3% of the time".
    pub fn text(&self) -> String {
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        let busy = percent(self.utilisation);
        let waits = self.held.as_ref().map(|held| {
            format!(
                "; {}, busy {} of the time, waits for {}",
                held.resource,
                percent(held.utilisation),
                self.resource
            )
        });
        match self.resource.as_str() {
            "latency" => {
                format!("latency: even the busiest resource is busy only {busy} of the time")
            }
            name => format!("{name}, busy {busy} of the time{}", waits.unwrap_or_default()),
        }
    }
}

/// How one resource of the simulated system was used.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ResourceDocument {
    /// Name of the resource.
    pub name: String,
    /// Share of the time in which the resource was busy, from 0 to 1.
    pub utilisation: f64,
    /// Busy time, summed over all servers of the resource (ns). Limits are listed as resources too.
    /// The limit on the drain rate is busy while the write buffer is full. The limit on the
    /// sustained rate is busy while the burst credit is used up. A stage that admits a limited
    /// number of requests at once is busy while a request is in the stage.
    pub busy_ns: u64,
    /// Number of servers of the resource, which are units that work in parallel, such as dies.
    pub servers: u32,
    /// Bytes that the resource transferred.
    pub bytes: u64,
    /// Busy time of each phase (ns). Empty for a resource without phases.
    pub phases_ns: BTreeMap<String, u64>,
    /// Busy time during which slower resources limited this resource (ns), by name of the slower
    /// resource.
    pub paced_ns: BTreeMap<String, u64>,
}

impl SimulateDocument {
    /// Creates the document of one or several points.
    pub fn new(
        (halfpower, host, target): (Program, Host, TargetFacts),
        mut points: Vec<SimulatedPoint>,
    ) -> SimulateDocument {
        match points.len() {
            1 => {
                let simulated = points.remove(0);
                let one = SimulatedDocument { halfpower, host, target, simulated };
                SimulateDocument::One(Box::new(one))
            }
            _ => {
                let simulated = SimulatedPoints { points };
                let several = SimulatedDocument { halfpower, host, target, simulated };
                SimulateDocument::Several(Box::new(several))
            }
        }
    }
}

/// Computes the resource use over all trials of a point.
pub fn of(point: &Point) -> Balance {
    let live = || point.trials.iter().filter_map(|trial| trial.live.as_deref());
    let mut accounts = live().filter_map(|trial| trial.account.clone());
    let sum = accounts.next().map(|first| accounts.fold(first, |sum, one| add(sum, &one)));
    let none = || Binding { resource: "latency".to_owned(), utilisation: 0.0, held: None };
    let binding = sum.as_ref().map_or_else(none, Account::binding).into();
    let resources = sum.iter().flat_map(|account| {
        account.resources.iter().map(|resource| ResourceDocument {
            name: resource.name.clone(),
            utilisation: resource.utilisation(account.elapsed_ns),
            busy_ns: resource.busy_ns,
            servers: resource.servers,
            bytes: resource.bytes,
            phases_ns: resource.phases_ns.iter().map(|(k, ns)| ((*k).to_owned(), *ns)).collect(),
            paced_ns: resource.paced_ns.iter().filter(|(_, ns)| *ns > 0).cloned().collect(),
        })
    });
    let resources = resources.collect();
    let bounds = live().next().map(|trial| trial.bounds.iter().map(BoundDocument::from));
    let bounds = bounds.into_iter().flatten().collect();
    let simple = live().find_map(|trial| trial.simple);
    let simple_model = simple.map(|model| SimpleDocument::of(&model, point));
    let write_cost = sum.as_ref().and_then(Account::write_cost).map(WriteCostDocument::from);
    Balance { binding, resources, bounds, simple_model, write_cost }
}

/// Adds up the accounts of two trials on the same system.
fn add(mut sum: Account, one: &Account) -> Account {
    sum.elapsed_ns += one.elapsed_ns;
    sum.flash_writes = match (sum.flash_writes, one.flash_writes) {
        (Some(sum), Some(one)) => Some(sum.plus(&one)),
        (sum, one) => sum.or(one),
    };
    for (sum, one) in sum.resources.iter_mut().zip(&one.resources) {
        sum.busy_ns += one.busy_ns;
        sum.bytes += one.bytes;
        sum.background_ns += one.background_ns;
        for (sum, one) in sum.phases_ns.iter_mut().zip(&one.phases_ns) {
            sum.1 += one.1;
        }
        for (sum, one) in sum.paced_ns.iter_mut().zip(&one.paced_ns) {
            sum.1 += one.1;
        }
    }
    sum
}

impl Balance {
    /// Formats the report: the limiting resource, the upper bounds, and one line per resource.
    pub fn lines(&self) -> Vec<String> {
        let limit = format!("  limited by {}", self.binding.text());
        let told = self.bounds.iter().take(BOUNDS_TOLD);
        let told = told.map(|bound| format!("{} ({})", units::rate(bound.bytes_per_s), bound.name));
        let bounds = told.collect::<Vec<_>>().join(", ");
        let bounds = (!bounds.is_empty()).then(|| format!("  upper bounds: {bounds}"));
        let simple = self.simple_model.as_ref().map(SimpleDocument::line);
        let cost = self.write_cost.as_ref().map(WriteCostDocument::line);
        let first = std::iter::once(limit).chain(cost).chain(bounds).chain(simple);
        first.chain(self.resources.iter().map(line)).collect()
    }
}

/// Formats one resource as one line with its utilisation and phases.
fn line(resource: &ResourceDocument) -> String {
    let percent = |ns: u64| 100.0 * resource.utilisation * ns as f64 / resource.busy_ns as f64;
    let busy = resource.phases_ns.iter().filter(|(_, ns)| **ns > 0);
    let phases: Vec<String> =
        busy.map(|(name, ns)| format!("{name} {:.1}%", percent(*ns))).collect();
    let paced = resource.paced_ns.iter();
    let paced = paced.map(|(name, ns)| format!("slowed by {name} {:.1}%", percent(*ns)));
    let parts: Vec<String> = phases.into_iter().chain(paced).collect();
    let times =
        if resource.servers > 1 { format!(" x {}", resource.servers) } else { String::new() };
    let name = format!("{}{times}", resource.name);
    let share = resource.utilisation * 100.0;
    let line = format!("    {name:<24} {share:>5.1}%  {}", parts.join(", "));
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::testing::point;
    use simulator::bounds::{Bound, Part};
    use simulator::{FlashWrites, Resource, ResourceKind};

    fn account(busy_ns: u64) -> Account {
        let media = Resource {
            name: "media".to_owned(),
            kind: ResourceKind::Part,
            busy_ns,
            servers: 1,
            bytes: 10,
            phases_ns: vec![("seek", 1), ("transfer", busy_ns - 1)],
            paced_ns: Vec::new(),
            background_ns: 0,
        };
        Account {
            elapsed_ns: 1000,
            requests: 1,
            bytes: 10,
            device_bytes: [10, 0],
            device_requests: [1, 0],
            mean_inside: 1.0,
            mean_residence_ns: 1000.0,
            resources: vec![media],
            flash_writes: None,
        }
    }

    #[test]
    fn the_trials_of_a_point_are_summed() {
        let mut point = point(&[4096, 4096]);
        for (trial, busy_ns) in point.trials.iter_mut().zip([1000, 900]) {
            let trial = trial.live_mut();
            trial.account = Some(account(busy_ns));
            trial.bounds =
                vec![Bound { part: Part::Media, name: "media".to_owned(), bytes_per_s: 1e6 }];
        }
        let balance = of(&point);
        assert_eq!(balance.binding.resource, "media");
        assert_eq!(balance.binding.utilisation, 0.95);
        assert_eq!(balance.resources[0].phases_ns["transfer"], 1898);
        assert_eq!(balance.resources[0].bytes, 20);
        assert!(balance.lines()[0].contains("limited by media, busy 95.0%"));
        assert!(balance.lines()[1].contains("upper bounds: ") && balance.bounds.len() == 1);
    }

    #[test]
    fn a_resource_that_waits_for_the_bottleneck_is_named_beside_it() {
        let mut point = point(&[4096]);
        let mut account = account(890);
        let bus = Resource {
            name: "bus".to_owned(),
            busy_ns: 995,
            phases_ns: Vec::new(),
            paced_ns: vec![("link".to_owned(), 5), ("media".to_owned(), 890)],
            ..account.resources[0].clone()
        };
        account.resources.insert(0, bus);
        point.trials[0].live_mut().account = Some(account);
        let lines = of(&point).lines();
        let limit = "  limited by media, busy 89.0% of the time; bus, busy 99.5% of the time, \
                     waits for media";
        assert_eq!(lines[0], limit);
        assert!(lines[1].ends_with("slowed by link 0.5%, slowed by media 89.0%"));
    }

    #[test]
    fn what_writes_cost_flash_is_summed_over_the_trials() {
        let dies = Resource {
            name: "flash units".to_owned(),
            busy_ns: 1000,
            servers: 2,
            phases_ns: vec![("read", 200), ("write", 200), ("garbage collection", 600)],
            ..account(1000).resources[0].clone()
        };
        let mut point = point(&[4096, 4096]);
        for (trial, moved_bytes) in point.trials.iter_mut().zip([1000.0, 3000.0]) {
            let (host_bytes, folded_bytes) = (1000.0, 0.0);
            let writes =
                FlashWrites { host_bytes, written_bytes: host_bytes, folded_bytes, moved_bytes };
            let resources = vec![dies.clone()];
            let account = Account { resources, flash_writes: Some(writes), ..account(1) };
            trial.live_mut().account = Some(account);
        }
        let cost = of(&point).write_cost.expect("there are writes");
        assert_eq!((cost.write_amplification, cost.collection_share), (3.0, 0.6));
        assert_eq!(cost.most_bytes_per_s, 2000.0 * 2.0 * 1e9 / 1600.0);
        assert!(of(&point).lines()[1].contains("write amplification 3.00"));
    }

    #[test]
    fn a_point_that_was_measured_on_this_host_has_no_resources() {
        let balance = of(&point(&[4096]));
        assert!(balance.resources.is_empty() && balance.binding.resource == "latency");
    }
}
