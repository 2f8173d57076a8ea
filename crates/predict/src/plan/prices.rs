//! The price list: the prices of the parts of each system, and the source of each price.

use serde::Deserialize;

/// The built-in price list. It contains prices from Table 2 of Chung et al. 2000, and assumed
/// prices of typical current systems.
pub const BUILT_IN: &str = include_str!("prices.toml");

/// Prefix of the `source` text that marks a price as assumed.
const ASSUMED: &str = "assumed";

/// A price list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Currency of all prices, such as USD.
    pub currency: String,
    /// The systems, each listed once.
    #[serde(rename = "system")]
    pub systems: Vec<SystemPrices>,
}

/// Prices of the parts of one system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemPrices {
    /// Name of a built-in system, or the path of a system file.
    pub name: String,
    /// The largest number of devices in one machine.
    pub most: u32,
    /// The host, without adapters and devices.
    pub host: Part,
    /// An adapter that connects devices to the host.
    pub adapter: Adapter,
    /// One device.
    pub device: Part,
    /// A RAID controller, needed if the adapter or the array implements the volume. If this entry
    /// is missing, the controller costs nothing.
    pub controller: Option<Part>,
}

/// A part with its price.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The price of the part, in the currency of the list.
    pub price: f64,
    /// Source of the price.
    pub source: String,
}

/// An adapter with its price.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// The price of the adapter, in the currency of the list.
    pub price: f64,
    /// The largest number of devices that one adapter connects.
    pub devices: u32,
    /// Number of buses of one adapter. 0 means that each device has a separate bus.
    pub buses: u32,
    /// Source of the price.
    pub source: String,
}

impl Prices {
    /// Parses a price list.
    ///
    /// # Errors
    /// If the text is not TOML, contains an unknown key, or contains an invalid number. The message
    /// contains the location.
    pub fn parse(text: &str) -> Result<Prices, String> {
        let prices: Prices = toml::from_str(text).map_err(|error| error.to_string())?;
        for system in &prices.systems {
            system.check().map_err(|why| format!("system {}: {why}", system.name))?;
        }
        if prices.systems.is_empty() {
            return Err("the list has no [[system]] table".into());
        }
        Ok(prices)
    }
}

impl SystemPrices {
    fn check(&self) -> Result<(), String> {
        let parts = [Some(&self.host), Some(&self.device), self.controller.as_ref()];
        let prices = parts.into_iter().flatten().map(|part| part.price).chain([self.adapter.price]);
        if let Some(wrong) = prices.into_iter().find(|price| !(0.0..1e12).contains(price)) {
            return Err(format!("{wrong} is not a price; use 0 or more"));
        }
        if !(1..=4096).contains(&self.most) || self.adapter.devices == 0 {
            return Err("`most` must be from 1 to 4096, and `adapter.devices` at least 1".into());
        }
        Ok(())
    }

    /// Returns the price of the host, of `devices` devices and their adapters, and of the RAID
    /// controller if `has_controller` is true.
    pub fn of(&self, devices: u32, has_controller: bool) -> f64 {
        let adapters = devices.div_ceil(self.adapter.devices);
        let controller = self.controller.as_ref().filter(|_| has_controller);
        self.host.price
            + f64::from(adapters) * self.adapter.price
            + f64::from(devices) * self.device.price
            + controller.map_or(0.0, |part| part.price)
    }

    /// Returns the number of buses for `devices` devices. 0 means that each device has a separate
    /// bus.
    pub fn buses(&self, devices: u32) -> u32 {
        let adapters = devices.div_ceil(self.adapter.devices);
        (adapters * self.adapter.buses).min(devices)
    }

    /// Returns true if the price of any part is an assumption instead of a published price.
    pub fn is_assumed(&self) -> bool {
        let sources = [&self.host.source, &self.adapter.source, &self.device.source];
        let controller = self.controller.as_ref().map(|part| &part.source);
        sources.into_iter().chain(controller).any(|source| source.starts_with(ASSUMED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_costs_the_sum_of_its_parts() {
        let prices = Prices::parse(BUILT_IN).unwrap();
        let fireball = &prices.systems[1];
        // Five disks need two adapters, because an adapter connects at most four.
        assert!((fireball.of(5, false) - (3750.0 + 2.0 * 255.0 + 5.0 * 209.0)).abs() < 1e-9);
        assert_eq!(fireball.buses(5), 0);
        assert_eq!(prices.systems[0].buses(1), 1);
        assert_eq!(prices.systems[0].buses(20), 2);
    }

    #[test]
    fn assumed_prices_are_known_as_such() {
        let prices = Prices::parse(BUILT_IN).unwrap();
        let assumed: Vec<bool> = prices.systems.iter().map(SystemPrices::is_assumed).collect();
        assert_eq!(assumed, [false, false, true, true, true, true, true]);
    }

    #[test]
    fn wrong_lists_are_refused_with_the_place() {
        let wrong = BUILT_IN.replace("price = 534", "price = -1");
        assert!(Prices::parse(&wrong).unwrap_err().contains("w2k-atlas10k: -1 is not a price"));
        let wrong = BUILT_IN.replace("most = 30", "mots = 30");
        assert!(Prices::parse(&wrong).unwrap_err().contains("mots"));
        assert!(Prices::parse("currency = 'USD'\nsystem = []").unwrap_err().contains("[[system]]"));
    }
}
