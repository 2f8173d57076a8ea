//! Computes the position of a byte on a zoned disk, and when the byte passes under the head.
//!
//! T(x) is the time to stream from byte 0 to byte x without missing a revolution, including track
//! and cylinder skew. The angle of x is T(x) modulo the revolution time. All media times are
//! computed from T and the inverse of T, so the simulation needs no event for each sector.

use crate::models::SECTOR_BYTES;
use crate::system::{DiskModel, SeekCurve};

/// A zone, in which all cylinders have the same number of sectors per track.
#[derive(Clone, Debug)]
struct Zone {
    first_byte: u64,
    first_ns: u64,
    first_cylinder: u64,
    track_bytes: u64,
    cylinder_bytes: u64,
    /// Time from the start of a track to the start of the next track in the cylinder (ns).
    track_ns: u64,
    /// Time from the start of a cylinder to the start of the next cylinder (ns).
    cylinder_ns: u64,
}

/// The geometry of a zoned disk: where each byte is, and when the byte passes under the head.
#[derive(Clone, Debug)]
pub struct Geometry {
    zones: Vec<Zone>,
    revolution_ns: u64,
    bytes: u64,
    end_ns: u64,
    seek: SeekCurve,
}

impl Geometry {
    /// Creates the geometry of a disk. `spindle_share` is the ratio of the revolution time to its
    /// nominal value.
    pub fn new(model: &DiskModel, spindle_share: f64) -> Geometry {
        let revolution_ns = (60e9 / model.rotation.0 * spindle_share).round() as u64;
        let heads = u64::from(model.heads.count()).max(1);
        let (mut first_byte, mut first_ns, mut first_cylinder) = (0, 0, 0);
        let mut zones = Vec::new();
        for zone in &model.zones {
            let [cylinders, sectors] = *zone;
            let track_bytes = sectors * SECTOR_BYTES;
            let skew = |time: f64| (time * revolution_ns as f64).round() as u64;
            let track_ns = revolution_ns + skew(model.track_skew.0);
            let cylinder_ns = (heads - 1) * track_ns + revolution_ns + skew(model.cylinder_skew.0);
            let cylinder_bytes = track_bytes * heads;
            zones.push(Zone {
                first_byte,
                first_ns,
                first_cylinder,
                track_bytes,
                cylinder_bytes,
                track_ns,
                cylinder_ns,
            });
            first_byte += cylinders * cylinder_bytes;
            first_ns += cylinders * cylinder_ns;
            first_cylinder += cylinders;
        }
        let (bytes, end_ns) = (first_byte, first_ns);
        Geometry { zones, revolution_ns, bytes, end_ns, seek: model.seek.clone() }
    }

    /// Returns the capacity (bytes).
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the time of one revolution (ns).
    #[inline]
    pub fn revolution_ns(&self) -> u64 {
        self.revolution_ns
    }

    #[inline]
    fn zone_of(&self, is_before: impl Fn(&Zone) -> bool) -> &Zone {
        let after = self.zones.iter().skip(1).take_while(|zone| is_before(zone)).count();
        &self.zones[after]
    }

    /// Returns T(`at`): the time to stream from byte 0 to byte `at` (ns).
    #[inline]
    pub fn time_of(&self, at: u64) -> u64 {
        if at >= self.bytes {
            return self.end_ns;
        }
        let zone = self.zone_of(|zone| zone.first_byte <= at);
        let within = at - zone.first_byte;
        let (cylinder, rest) = (within / zone.cylinder_bytes, within % zone.cylinder_bytes);
        let (track, rest) = (rest / zone.track_bytes, rest % zone.track_bytes);
        zone.first_ns
            + cylinder * zone.cylinder_ns
            + track * zone.track_ns
            + rest * self.revolution_ns / zone.track_bytes
    }

    /// Computes the inverse of T: returns the byte that streaming from byte 0 has reached after
    /// `time_ns`.
    #[inline]
    pub fn byte_at(&self, time_ns: u64) -> u64 {
        if time_ns >= self.end_ns {
            return self.bytes;
        }
        let zone = self.zone_of(|zone| zone.first_ns <= time_ns);
        let within = time_ns - zone.first_ns;
        let (cylinder, rest) = (within / zone.cylinder_ns, within % zone.cylinder_ns);
        let last = zone.cylinder_bytes / zone.track_bytes - 1;
        let track = (rest / zone.track_ns).min(last);
        let rest = rest - track * zone.track_ns;
        // During the skew between two tracks, streaming stays at the end of the first track.
        let in_track = (rest * zone.track_bytes / self.revolution_ns).min(zone.track_bytes);
        let track_start = cylinder * zone.cylinder_bytes + track * zone.track_bytes;
        let zone_bytes = zone.first_byte + track_start + in_track;
        zone_bytes.min(self.bytes)
    }

    /// Returns the cylinder of a byte.
    #[inline]
    pub fn cylinder_of(&self, at: u64) -> u64 {
        let zone = self.zone_of(|zone| zone.first_byte <= at);
        zone.first_cylinder + (at - zone.first_byte) / zone.cylinder_bytes
    }

    /// Returns the seek time over `distance` cylinders, including head settling (ns).
    #[inline]
    pub fn seek_ns(&self, distance: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        let d = distance as f64;
        let curve = &self.seek;
        let ns = if d <= curve.knee.0 {
            curve.near_fixed.0 + curve.near_root.0 * d.sqrt()
        } else {
            curve.far_fixed.0 + curve.far_each.0 * d
        };
        ns as u64
    }

    /// Returns the first time at or after `ready_ns` at which byte `at` passes under the head (ns).
    /// Byte 0 passes under the head at `phase_ns`.
    #[inline]
    pub fn passes_at(&self, at: u64, ready_ns: u64, phase_ns: u64) -> u64 {
        let revolution = self.revolution_ns;
        let angle = (phase_ns + self.time_of(at)) % revolution;
        let now = ready_ns % revolution;
        ready_ns + if angle >= now { angle - now } else { angle + revolution - now }
    }

    /// Returns the highest rate of all zones from the zone of byte `at` to the end (bytes per
    /// second). If `long` is true, the rates include skews. Otherwise, they are the rates within
    /// one track.
    pub fn best_rate_from(&self, at: u64, long: bool) -> f64 {
        let rate = |zone: &Zone| {
            if long {
                zone.cylinder_bytes as f64 / zone.cylinder_ns as f64
            } else {
                zone.track_bytes as f64 / self.revolution_ns as f64
            }
        };
        let first = self.zone_of(|zone| zone.first_byte <= at).first_byte;
        let after = self.zones.iter().filter(|zone| zone.first_byte >= first);
        after.map(rate).fold(0.0, f64::max) * 1e9
    }

    /// Returns the track sizes of all zones from the zone of byte `at` to the end (bytes).
    pub fn tracks_from(&self, at: u64) -> impl Iterator<Item = u64> {
        let first = self.zone_of(|zone| zone.first_byte <= at).first_byte;
        self.zones.iter().filter(move |zone| zone.first_byte >= first).map(|zone| zone.track_bytes)
    }

    /// A transfer that crosses fewer skews than average takes less time than at the sustained rate.
    /// Returns the maximum of this difference (ns).
    pub fn skew_ns(&self) -> u64 {
        let most = |zone: &Zone| {
            let track_skew = zone.track_ns - self.revolution_ns;
            let heads = zone.cylinder_bytes / zone.track_bytes;
            let all = zone.cylinder_ns - heads * self.revolution_ns;
            let cylinder_skew = all - (heads - 1) * track_skew;
            cylinder_skew.max(2 * track_skew)
        };
        self.zones.iter().map(most).max().unwrap_or(0)
    }

    /// Checks whether a range of bytes is on one track.
    pub fn is_on_one_track(&self, from: u64, end: u64) -> bool {
        let zone = self.zone_of(|zone| zone.first_byte <= from);
        let track = |at: u64| (at - zone.first_byte) / zone.track_bytes;
        track(from) == track(end.saturating_sub(1).max(from))
    }

    /// Returns the sustained read rate at a byte, including skews (bytes per second).
    pub fn rate_at(&self, at: u64) -> f64 {
        let zone = self.zone_of(|zone| zone.first_byte <= at);
        zone.cylinder_bytes as f64 * 1e9 / zone.cylinder_ns as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Description;
    use crate::system::DriveModel;
    use proptest::prelude::*;

    fn geometry(track_skew: f64, cylinder_skew: f64) -> Geometry {
        let mut text = Description::named("nt4-ultrawide").unwrap();
        text.set("drive.track_skew", &track_skew.to_string()).unwrap();
        text.set("drive.cylinder_skew", &cylinder_skew.to_string()).unwrap();
        let DriveModel::Disk(model) = text.system().unwrap().drive else { panic!("no disk") };
        Geometry::new(&model, 1.0)
    }

    proptest! {
        #[test]
        fn streaming_time_grows_with_every_sector(
            sector in 0_u64..8_000_000, more in 1_u64..4096, (track, cylinder) in skews(),
        ) {
            let disk = geometry(track, cylinder);
            let from = sector * 512;
            let end = from + more * 512;
            prop_assume!(end <= disk.bytes());
            prop_assert!(disk.time_of(end) > disk.time_of(from));
            prop_assert!(disk.cylinder_of(end) >= disk.cylinder_of(from));
        }

        #[test]
        fn the_byte_at_the_time_of_a_byte_is_that_byte_within_a_sector(
            at in 0_u64..4_000_000_000, (track, cylinder) in skews(),
        ) {
            let disk = geometry(track, cylinder);
            prop_assume!(at < disk.bytes());
            let found = disk.byte_at(disk.time_of(at));
            prop_assert!(found.abs_diff(at) <= SECTOR_BYTES, "{at} became {found}");
        }

        #[test]
        fn streaming_never_is_further_than_the_time_allows(
            share in 0.0..1.0_f64, later_ns in 0_u64..20_000_000, (track, cylinder) in skews(),
        ) {
            let disk = geometry(track, cylinder);
            let time_ns = (disk.end_ns as f64 * share) as u64;
            let reached = disk.byte_at(time_ns);
            let last = reached.saturating_sub(1) / SECTOR_BYTES * SECTOR_BYTES;
            prop_assert!(disk.time_of(last) <= time_ns, "streaming is not too fast");
            prop_assert!(disk.byte_at(time_ns + later_ns) >= reached, "streaming moves forward");
        }

        #[test]
        fn a_byte_passes_within_a_revolution_and_always_at_its_angle(
            at in 0_u64..4_000_000_000, ready_ns in 0_u64..1_000_000_000_000,
            phase_ns in 0_u64..8_333_333,
        ) {
            let disk = geometry(0.199, 0.28);
            let revolution = disk.revolution_ns();
            let passes = disk.passes_at(at, ready_ns, phase_ns);
            prop_assert!((ready_ns..ready_ns + revolution).contains(&passes));
            let angle = (phase_ns + disk.time_of(at)) % revolution;
            prop_assert_eq!(passes % revolution, angle);
        }
    }

    fn skews() -> impl Strategy<Value = (f64, f64)> {
        prop_oneof![Just((0.199, 0.28)), Just((0.28, 0.199)), Just((0.0, 0.0)), Just((0.1, 0.9))]
    }
}
