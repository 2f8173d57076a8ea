//! Enumerates the possible configurations. A configuration consists of a system of the price
//! list, the number of its devices, their volume and RAID controller, the stripe unit, and the
//! state of the write caches.

use analysis::units;
use std::fmt;

use lab::failure::{Failure, Outcome};
use lab::simulated_target;
use simulator::system::{RaidIn, VolumeKind};
use simulator::{Description, System};

use crate::plan::need::Need;
use crate::plan::prices::{Prices, SystemPrices};

/// Stripe unit sizes to try (bytes).
const CHUNKS: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];
/// Maximum number of devices in a mirror.
const MIRROR_MAX: u32 = 3;

/// A configuration and its price.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Name of the system in the price list.
    pub system: String,
    /// Number of devices in the configuration.
    pub disks: u32,
    /// Number of buses. 0 means that each device has a separate bus.
    pub buses: u32,
    /// The volume that the devices form.
    pub volume: VolumeKind,
    /// The component that implements the volume: host, adapter or array.
    pub raid_in: RaidIn,
    /// Stripe unit (bytes).
    pub chunk: u64,
    /// Whether the write caches of devices and controllers are on.
    pub write_cache: bool,
    /// The price of all parts together.
    pub price: f64,
    /// Whether the price of any part is an assumption instead of a published price.
    pub is_assumed: bool,
}

/// Limits on the configurations to consider.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The highest price. None if any price is allowed.
    pub price_max: Option<f64>,
    /// The largest number of devices in a configuration.
    pub devices_max: u32,
}

/// The parsed systems of a price list.
#[derive(Debug)]
pub struct Catalogue {
    entries: Vec<(SystemPrices, Description)>,
}

impl Catalogue {
    /// Loads all systems of a price list.
    ///
    /// # Errors
    /// If a system does not exist or is not valid.
    pub fn load(prices: &Prices) -> Outcome<Catalogue> {
        let load = |prices: &SystemPrices| {
            let description = simulated_target::parse(&prices.name, &[])?;
            description.system()?;
            Ok((prices.clone(), description))
        };
        let entries = prices.systems.iter().map(load).collect::<Outcome<_>>()?;
        Ok(Catalogue { entries })
    }

    /// Returns all configurations within the limits, sorted by price. Configurations of equal price
    /// are sorted by the number of devices.
    ///
    /// # Errors
    /// If a system is not valid.
    pub fn candidates(&self, need: &Need, limits: &Limits) -> Outcome<Vec<Candidate>> {
        let mut all = Vec::new();
        for (prices, description) in &self.entries {
            let system = description.system()?;
            for disks in 1..=prices.most.min(limits.devices_max) {
                all.extend(of_size(prices, &system, disks, need));
            }
        }
        all.retain(|one| limits.price_max.is_none_or(|most| one.price <= most));
        all.sort_by(|a, b| (a.price.total_cmp(&b.price)).then(a.disks.cmp(&b.disks)));
        Ok(all)
    }

    /// Builds the simulated system of a configuration, with one file of `file_bytes` bytes.
    ///
    /// # Errors
    /// If the system does not support this configuration.
    pub fn system(&self, candidate: &Candidate, file_bytes: u64) -> Outcome<System> {
        let entry = self.entries.iter().find(|(prices, _)| prices.name == candidate.system);
        let Some((_, description)) = entry else {
            let what = format!("{} is not in the price list", candidate.system);
            return Err(Failure::usage(what));
        };
        let mut description = description.clone();
        for (key, value) in candidate.changes() {
            description.set(key, &value)?;
        }
        description.set("file_size", &file_bytes.to_string())?;
        Ok(description.system()?)
    }
}

/// Returns the configurations of a system with `disks` devices.
fn of_size(prices: &SystemPrices, system: &System, disks: u32, need: &Need) -> Vec<Candidate> {
    let mut all = Vec::new();
    let volumes: &[VolumeKind] = match disks {
        1 => &[VolumeKind::None],
        2 => &[VolumeKind::Stripe, VolumeKind::Raid1],
        3..=MIRROR_MAX => &[VolumeKind::Stripe, VolumeKind::Raid1, VolumeKind::Raid5],
        _ => &[VolumeKind::Stripe, VolumeKind::Raid5],
    };
    let writes = need.streams.iter().any(|stream| stream.op == ioengine::Op::Write);
    // Write caches stay off if writes must be durable, or if there are no writes.
    let caches: &[bool] = match (need.durable, writes) {
        (true, _) | (false, false) => &[false],
        (false, true) => &[false, true],
    };
    for volume in volumes.iter().copied().filter(|volume| survives(*volume, disks) >= need.survives)
    {
        for raid_in in makers(prices, system, volume, disks) {
            let is_striped = matches!(volume, VolumeKind::Stripe | VolumeKind::Raid5);
            for chunk in CHUNKS.into_iter().take(if is_striped { CHUNKS.len() } else { 1 }) {
                all.extend(caches.iter().map(|write_cache| Candidate {
                    system: prices.name.clone(),
                    disks,
                    buses: prices.buses(disks),
                    volume,
                    raid_in,
                    chunk,
                    write_cache: *write_cache,
                    price: prices.of(disks, raid_in != RaidIn::Host),
                    is_assumed: prices.is_assumed(),
                }));
            }
        }
    }
    all
}

/// Returns the components that can implement a volume of `disks` devices. An adapter can combine
/// only the devices connected to it.
fn makers(prices: &SystemPrices, system: &System, volume: VolumeKind, disks: u32) -> Vec<RaidIn> {
    let is_volume = volume != VolumeKind::None;
    let adapter = system.adapter.is_some() && disks <= prices.adapter.devices;
    let of = |maker, is_there: bool| (is_volume && is_there).then_some(maker);
    let controllers = [of(RaidIn::Adapter, adapter), of(RaidIn::Array, system.array.is_some())];
    [RaidIn::Host].into_iter().chain(controllers.into_iter().flatten()).collect()
}

/// Returns the number of failed devices that a volume survives.
fn survives(volume: VolumeKind, disks: u32) -> u32 {
    match volume {
        VolumeKind::None | VolumeKind::Stripe => 0,
        VolumeKind::Raid1 => disks - 1,
        VolumeKind::Raid5 => 1,
    }
}

/// Returns the name of a volume kind, as the value of `volume` in a system file.
fn volume_name(volume: VolumeKind) -> &'static str {
    match volume {
        VolumeKind::None => "none",
        VolumeKind::Stripe => "stripe",
        VolumeKind::Raid1 => "raid1",
        VolumeKind::Raid5 => "raid5",
    }
}

/// Returns the name of a component, as the value of `raid_in` in a system file.
fn maker_name(maker: RaidIn) -> &'static str {
    match maker {
        RaidIn::Host => "host",
        RaidIn::Adapter => "adapter",
        RaidIn::Array => "array",
    }
}

impl Candidate {
    /// Returns the settings of the configuration, as keys and values for [`Description::set`].
    fn changes(&self) -> Vec<(&'static str, String)> {
        let mut changes = vec![("disks", self.disks.to_string())];
        changes.push(("buses", self.buses.to_string()));
        changes.push(("volume", volume_name(self.volume).to_owned()));
        changes.push(("raid_in", maker_name(self.raid_in).to_owned()));
        changes.push(("chunk", self.chunk.to_string()));
        let state = if self.write_cache { "on" } else { "off" };
        changes.push(("write_cache", state.to_owned()));
        changes
    }

    /// Returns the kind of configuration: the system, the volume, and the component that implements
    /// the volume. A plan shows only the cheapest configuration of each kind.
    pub fn kind(&self) -> (&str, &'static str, &'static str) {
        (&self.system, volume_name(self.volume), maker_name(self.raid_in))
    }

    /// Formats the configuration as a target that the subcommands `run` and `survey` accept
    /// (`sim:SYSTEM,KEY=VALUE,...`).
    pub fn target(&self) -> String {
        let changes = self.changes().into_iter().map(|(key, value)| format!("{key}={value}"));
        let changes: Vec<String> = changes.collect();
        format!("sim:{},{}", self.system, changes.join(","))
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.disks, self.system)?;
        if self.volume != VolumeKind::None {
            write!(f, ", {}", volume_name(self.volume))?;
            if self.volume != VolumeKind::Raid1 {
                write!(f, ", stripe unit {}", units::size(self.chunk))?;
            }
            if self.raid_in != RaidIn::Host {
                write!(f, ", managed by the {}", maker_name(self.raid_in))?;
            }
        }
        write!(f, ", write cache {}", if self.write_cache { "on" } else { "off" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::prices::BUILT_IN;
    use simulator::system::DriveModel;

    fn candidates(need: &str, price_max: Option<f64>) -> Vec<Candidate> {
        let catalogue = Catalogue::load(&Prices::parse(BUILT_IN).unwrap()).unwrap();
        let limits = Limits { price_max, devices_max: 64 };
        catalogue.candidates(&Need::parse(need).unwrap(), &limits).unwrap()
    }

    #[test]
    fn there_are_more_than_two_thousand_configurations_the_cheapest_first() {
        let all = candidates("writes 8k 100/s", None);
        assert!(all.len() >= 2000, "{}", all.len());
        assert!(all.windows(2).all(|pair| pair[0].price <= pair[1].price));
        assert!(all.iter().any(|one| one.raid_in == RaidIn::Adapter));
    }

    #[test]
    fn limits_and_redundancy_are_respected() {
        let all = candidates("reads 8k 100/s; survives 1", Some(5000.0));
        assert!(!all.is_empty() && all.iter().all(|one| one.price <= 5000.0));
        assert!(all.iter().all(|one| matches!(one.volume, VolumeKind::Raid1 | VolumeKind::Raid5)));
        let durable = candidates("writes 8k 100/s; durable", None);
        assert!(durable.iter().all(|one| !one.write_cache));
    }

    #[test]
    fn drives_with_a_translation_layer_cost_by_their_raw_flash() {
        const USD_PER_TB: f64 = 130.0;
        let catalogue = Catalogue::load(&Prices::parse(BUILT_IN).unwrap()).unwrap();
        let mut found = 0;
        for (prices, description) in &catalogue.entries {
            let DriveModel::Flash(flash) = description.system().unwrap().drive else { continue };
            let Some(translation) = &flash.translation else { continue };
            let raw_tb = flash.capacity.0 / 1e12 * (1.0 + translation.over_provisioning.0);
            let wanted = USD_PER_TB * raw_tb;
            assert!((prices.device.price - wanted).abs() < 1.0, "{}: {wanted}", prices.name);
            assert!(prices.is_assumed() && prices.device.source.contains("per TB of raw flash"));
            found += 1;
        }
        assert_eq!(found, 2);
    }

    #[test]
    fn every_configuration_is_a_valid_system() {
        let catalogue = Catalogue::load(&Prices::parse(BUILT_IN).unwrap()).unwrap();
        for one in candidates("writes 8k 100/s", None).iter().step_by(7) {
            let system = catalogue.system(one, 1 << 30);
            assert!(system.is_ok(), "{one}: {}", system.unwrap_err());
            assert!(one.target().starts_with(&format!("sim:{},disks={}", one.system, one.disks)));
        }
    }
}
