//! Parses the descriptions of reference devices, such as `fixed=500us,rate=500m`, and of faults to
//! inject, such as `eio@100,short:512@7x3`.

use analysis::units;
use ioengine::Op;
use ioengine::fault::{Fault, FaultPlan, FaultRule};
use ioengine::truth::{
    BufferTruth, CacheTruth, CreditTruth, GranuleTruth, PrefetchTruth, StripeTruth, Truth, Zone,
};

/// The keys that `--truth` and targets of the form `truth:KEY=VALUE,..` accept, as shown in help
/// texts and errors.
pub const TRUTH_WORDS: &str = "fixed=TIME, rate=RATE, parallel=N, cache=SIZE, prefetch=SIZE, \
                               hit=TIME, buffer=SIZE, drain=RATE, credit=SIZE, sustained=RATE, \
                               span=SIZE, zones=RATE@PERCENT/.., granule=SIZE, rmw=TIME, \
                               straddle=TIME, members=N, chunk=SIZE, link=RATE, cpu=TIME";
/// Maximum number of requests that a stripe serves in parallel, summed over its devices.
const SERVERS_MAX: u64 = 65536;
/// Maximum number of devices of a stripe.
const MEMBERS_MAX: u32 = 64;
/// Minimum chunk size of a stripe, which is one sector (bytes).
const CHUNK_MIN_BYTES: u64 = 512;
/// The syntax of `--inject`, for help texts and errors.
pub const FAULT_WORDS: &str = "[read-|write-]KIND[:ARGUMENT]@N[xCOUNT], where KIND is eio, enospc, \
                               eagain, eintr, short:SIZE, late:COUNT, hang:TIME, twice, never, \
                               flip, lose, misdirect:SIZE or tear. N is the number of the first \
                               affected request, counted from 0. The COUNT after x is the number \
                               of affected requests. With the prefix read-, only reads are counted \
                               and affected; with write-, only writes";

/// The parsed values of the keys. Their combination has not been checked yet.
#[derive(Default)]
struct Typed {
    /// Values of the keys that do not depend on other keys.
    truth: Truth,
    cache: Option<u64>,
    prefetch: Option<u64>,
    hit_ns: u64,
    buffer: Option<u64>,
    drain: Option<f64>,
    credit: Option<u64>,
    sustained: Option<f64>,
    span: Option<u64>,
    /// The rate of each zone (bytes per second) and the end of the zone (percent of the span).
    zones: Option<Vec<(f64, f64)>>,
    granule: Option<u64>,
    rewrite_ns: Option<u64>,
    straddle_ns: Option<u64>,
    members: Option<u32>,
    chunk: Option<u64>,
}

/// Parses a reference device.
///
/// # Errors
/// The text is invalid. The message is one line with the mistake and a valid form.
pub fn parse_truth(text: &str) -> Result<Truth, String> {
    let mut typed = Typed::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| unknown(part))?;
        typed.take(key, value)?;
    }
    typed.together()
}

/// Returns the total size of all zones (bytes), summed over the devices of a stripe. This is the
/// default size of the device, and also its minimum size. None if the device has no zones.
pub fn span_bytes(truth: &Truth) -> Option<u64> {
    let members = u64::from(truth.stripe.map_or(1, |stripe| stripe.members));
    truth.zones.last().map(|zone| zone.end_bytes.saturating_mul(members))
}

impl Typed {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let truth = &mut self.truth;
        match key {
            "fixed" => truth.fixed_ns = units::parse_duration(value)?,
            "rate" => truth.bytes_per_s = Some(rate(value)?),
            "parallel" => truth.parallelism = count(key, value, 65536)?,
            "link" => truth.link_bytes_per_s = Some(rate(value)?),
            "cpu" => truth.cpu_ns = units::parse_duration(value)?,
            "cache" => self.cache = Some(units::parse_size(value)?),
            "prefetch" => self.prefetch = Some(units::parse_size(value)?),
            "hit" => self.hit_ns = units::parse_duration(value)?,
            "buffer" => self.buffer = Some(units::parse_size(value)?),
            "drain" => self.drain = Some(rate(value)?),
            "credit" => self.credit = Some(units::parse_size(value)?),
            "sustained" => self.sustained = Some(rate(value)?),
            "span" => self.span = Some(at_least(key, value, 1)?),
            "zones" => self.zones = Some(zones(value)?),
            "granule" => self.granule = Some(at_least(key, value, 1)?),
            "rmw" => self.rewrite_ns = Some(units::parse_duration(value)?),
            "straddle" => self.straddle_ns = Some(units::parse_duration(value)?),
            "members" => self.members = Some(count(key, value, MEMBERS_MAX)?),
            "chunk" => self.chunk = Some(at_least(key, value, CHUNK_MIN_BYTES)?),
            _ => return Err(unknown(key)),
        }
        Ok(())
    }

    /// Checks that the keys can be combined, and returns the device.
    fn together(self) -> Result<Truth, String> {
        let hit_ns = self.hit_ns;
        let cache = self.cache.map(|bytes| CacheTruth { bytes, hit_ns });
        let prefetch = self.prefetch.map(|bytes| PrefetchTruth { bytes, hit_ns });
        let buffer = pair(("buffer", self.buffer), ("drain", self.drain))?
            .map(|(bytes, drain_bytes_per_s)| BufferTruth { bytes, drain_bytes_per_s });
        let credit = pair(("credit", self.credit), ("sustained", self.sustained))?
            .map(|(bytes, sustained_bytes_per_s)| CreditTruth { bytes, sustained_bytes_per_s });
        let zones = match pair(("span", self.span), ("zones", self.zones))? {
            Some(_) if self.truth.bytes_per_s.is_some() => {
                return Err("`zones` already contains the rates; drop `rate`".to_owned());
            }
            Some((span, shares)) => laid_out(span, &shares)?,
            None => Vec::new(),
        };
        let stripe = pair(("members", self.members), ("chunk", self.chunk))?
            .map(|(members, chunk_bytes)| StripeTruth { members, chunk_bytes });
        let members = u64::from(self.members.unwrap_or(1));
        if members * u64::from(self.truth.parallelism) > SERVERS_MAX {
            return Err(format!("`members` x `parallel` must be at most {SERVERS_MAX}"));
        }
        let penalty = (self.rewrite_ns, self.straddle_ns) != (None, None);
        let granule = match (self.granule, penalty) {
            (Some(bytes), true) => Some(GranuleTruth {
                bytes,
                rewrite_ns: self.rewrite_ns.unwrap_or(0),
                straddle_ns: self.straddle_ns.unwrap_or(0),
            }),
            (None, false) => None,
            _ => return Err("specify `granule` together with `rmw` or `straddle`".to_owned()),
        };
        Ok(Truth { cache, prefetch, buffer, credit, zones, stripe, granule, ..self.truth })
    }
}

/// Checks that two keys are either both given or both missing.
fn pair<A, B>(one: (&str, Option<A>), other: (&str, Option<B>)) -> Result<Option<(A, B)>, String> {
    match (one.1, other.1) {
        (Some(a), Some(b)) => Ok(Some((a, b))),
        (None, None) => Ok(None),
        _ => Err(format!("`{}` and `{}` must be given together", one.0, other.0)),
    }
}

fn count(key: &str, value: &str, most: u32) -> Result<u32, String> {
    let count: Option<u32> = value.parse().ok().filter(|n| (1..=most).contains(n));
    count.ok_or_else(|| format!("`{key}` must be a number from 1 to {most}"))
}

fn at_least(key: &str, value: &str, least: u64) -> Result<u64, String> {
    let bytes = units::parse_size(value)?;
    let small = || format!("`{key}` must be at least {}", units::size(least));
    if bytes >= least { Ok(bytes) } else { Err(small()) }
}

/// Parses zones in the form `RATE@PERCENT/RATE@PERCENT/..`. The unit of a rate may contain a slash
/// too, as in `200MB/s`.
fn zones(text: &str) -> Result<Vec<(f64, f64)>, String> {
    let wrong = || {
        format!(
            "zones={text}: write RATE@PERCENT/.., where each PERCENT is the end of a zone in \
             percent of the span and the last PERCENT is 100, as in \
             200MB/s@40/150MB/s@70/100MB/s@100"
        )
    };
    let mut found: Vec<(f64, f64)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (typed, behind) = rest.split_once('@').ok_or_else(wrong)?;
        let (end, next) = behind.split_once('/').unwrap_or((behind, ""));
        let before = found.last().map_or(0.0, |(_, end)| *end);
        let end = end.parse::<f64>().ok().filter(|end| *end > before && *end <= 100.0);
        found.push((rate(typed)?, end.ok_or_else(wrong)?));
        rest = next;
    }
    match found.last() {
        Some((_, 100.0)) => Ok(found),
        _ => Err(wrong()),
    }
}

/// Converts the ends of zones from percent of `span` to bytes. `shares` contains the rate and the
/// end of each zone.
fn laid_out(span: u64, shares: &[(f64, f64)]) -> Result<Vec<Zone>, String> {
    let zone = |(bytes_per_s, end): &(f64, f64)| Zone {
        end_bytes: (span as f64 * end / 100.0).round() as u64,
        bytes_per_s: *bytes_per_s,
    };
    let zones: Vec<Zone> = shares.iter().map(zone).collect();
    if zones.is_sorted_by(|zone, next| zone.end_bytes < next.end_bytes) {
        Ok(zones)
    } else {
        Err(format!("a span of {span} bytes is too small for its zones; use a larger `span`"))
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = units::parse_rate(text)?;
    if rate >= 1.0 { Ok(rate) } else { Err(format!("'{text}' is less than one byte per second")) }
}

fn unknown(part: &str) -> String {
    format!("unknown property '{part}'; use {TRUTH_WORDS}")
}

/// Describes a device in words, such as "fixed 100us, cache 64 MiB".
pub fn describe(truth: &Truth) -> String {
    let time = |ns: u64| units::time(ns as f64).replace(' ', "");
    let mut parts = vec![format!("fixed {}", time(truth.fixed_ns))];
    parts.extend(truth.bytes_per_s.map(|rate| format!("bus {}", units::rate(rate))));
    if truth.parallelism > 1 {
        parts.push(format!("{} at a time", truth.parallelism));
    }
    parts.extend(zones_of(truth));
    parts.extend(truth.cache.map(|c| format!("cache {}", units::size(c.bytes))));
    parts.extend(truth.buffer.map(|b| format!("write buffer {}", units::size(b.bytes))));
    parts.extend(truth.prefetch.map(|p| format!("prefetch {}", units::size(p.bytes))));
    parts.extend(truth.granule.map(|g| format!("granule {}", units::size(g.bytes))));
    parts.extend(truth.credit.map(|c| format!("credit {}", units::size(c.bytes))));
    parts.extend(truth.stripe.map(|stripe| {
        format!("{} devices in chunks of {}", stripe.members, units::size(stripe.chunk_bytes))
    }));
    parts.extend(truth.link_bytes_per_s.map(|rate| format!("link {}", units::rate(rate))));
    if truth.cpu_ns > 0 {
        parts.push(format!("CPU {}", time(truth.cpu_ns)));
    }
    parts.join(", ")
}

/// Describes the number of zones, and the rates of the first and the last zone.
fn zones_of(truth: &Truth) -> Option<String> {
    let (first, last) = (truth.zones.first()?, truth.zones.last()?);
    let [outer, inner] = [first, last].map(|zone| units::rate(zone.bytes_per_s));
    Some(format!("{} zones from {outer} to {inner}", truth.zones.len()))
}

/// Parses the faults to inject, in the syntax of [`FAULT_WORDS`].
///
/// # Errors
/// The text is invalid. The message is one line with the mistake and a valid form.
pub fn parse_faults(text: &str) -> Result<FaultPlan, String> {
    let rules = text.split(',').filter(|part| !part.is_empty()).map(parse_rule);
    Ok(FaultPlan { rules: rules.collect::<Result<_, _>>()? })
}

fn parse_rule(text: &str) -> Result<FaultRule, String> {
    let wrong = || format!("'{text}' is not a fault; write {FAULT_WORDS}");
    let (what, place) = text.split_once('@').ok_or_else(wrong)?;
    let (only, what) = match (what.strip_prefix("read-"), what.strip_prefix("write-")) {
        (Some(rest), _) => (Some(Op::Read), rest),
        (_, Some(rest)) => (Some(Op::Write), rest),
        _ => (None, what),
    };
    let (first, count) = place.split_once('x').unwrap_or((place, "1"));
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let (kind, argument) = what.split_once(':').unwrap_or((what, ""));
    let size = || units::parse_size(argument);
    let narrow = |bytes: u64| u32::try_from(bytes).map_err(|_| wrong());
    let fault = match kind {
        "eio" => Fault::Errno(libc::EIO),
        "enospc" => Fault::Errno(libc::ENOSPC),
        "eagain" => Fault::Errno(libc::EAGAIN),
        "eintr" => Fault::Errno(libc::EINTR),
        "short" => Fault::Short(narrow(size()?)?),
        "late" => Fault::Late(narrow(number(argument)?)?),
        "hang" => Fault::Hang(units::parse_duration(argument)?),
        "twice" => Fault::Twice,
        "never" => Fault::Never,
        "flip" => Fault::Flip,
        "lose" => Fault::Lose,
        "misdirect" => Fault::Misdirect(size()?),
        "tear" => Fault::Tear,
        _ => return Err(wrong()),
    };
    Ok(FaultRule { fault, only, first: number(first)?, count: number(count)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_device_are_parsed() {
        let truth = parse_truth("fixed=500us,rate=500MB/s,parallel=4,cache=64m,hit=20us").unwrap();
        assert_eq!((truth.fixed_ns, truth.parallelism), (500_000, 4));
        assert_eq!(truth.bytes_per_s, Some(500e6));
        assert_eq!(truth.cache, Some(CacheTruth { bytes: 64 << 20, hit_ns: 20_000 }));
        let truth = parse_truth("buffer=1m,drain=1m,credit=2m,sustained=1m,cpu=5us").unwrap();
        assert!(truth.buffer.is_some() && truth.credit.is_some() && truth.cpu_ns == 5000);
        assert_eq!(parse_truth("").unwrap(), Truth::default());
    }

    #[test]
    fn zones_are_shares_of_the_span() {
        let text = "fixed=1ms,span=1000m,zones=200MB/s@40/150m@70.5/100MB/s@100";
        let truth = parse_truth(text).unwrap();
        let mib = |count: u64| count << 20;
        let zone = |end_bytes, bytes_per_s| Zone { end_bytes, bytes_per_s };
        let (outer, inner) = (zone(mib(400), 200e6), zone(mib(1000), 100e6));
        assert_eq!(truth.zones, [outer, zone(mib(705), mib(150) as f64), inner]);
        assert_eq!(span_bytes(&truth), Some(mib(1000)));
        assert!(describe(&truth).contains("3 zones from 191 MiB/s (200 MB/s)"));
        let striped = parse_truth(&format!("{text},members=3,chunk=64k")).unwrap();
        assert_eq!(span_bytes(&striped), Some(mib(3000)), "each member has a span");
        for zones in ["1m", "1m@50", "1m@60/2m@50/1m@100", "1m@0/1m@100", "1m@nan", ""] {
            assert!(parse_truth(&format!("span=1g,zones={zones}")).is_err(), "{zones}");
        }
        assert!(parse_truth("span=2,zones=1m@1/1m@2/1m@100").unwrap_err().contains("too small"));
    }

    #[test]
    fn stripes_granules_prefetch_and_links_are_parsed() {
        let truth = parse_truth("members=4,chunk=64k,link=1GB/s,granule=4k,rmw=1ms").unwrap();
        assert_eq!(truth.stripe, Some(StripeTruth { members: 4, chunk_bytes: 65536 }));
        let granule = GranuleTruth { bytes: 4096, rewrite_ns: 1_000_000, straddle_ns: 0 };
        assert_eq!((truth.granule, truth.link_bytes_per_s), (Some(granule), Some(1e9)));
        let truth = parse_truth("prefetch=1m,hit=50us").unwrap();
        assert_eq!(truth.prefetch, Some(PrefetchTruth { bytes: 1 << 20, hit_ns: 50_000 }));
        assert!(truth.cache.is_none());
    }

    #[test]
    fn keys_that_need_each_other_are_required_together() {
        for (text, remedy) in [
            ("members=2", "`members` and `chunk` must be given together"),
            ("chunk=64k", "`members` and `chunk` must be given together"),
            ("span=1g", "`span` and `zones` must be given together"),
            ("span=1g,zones=1m@100,rate=1m", "drop `rate`"),
            ("granule=4k", "`rmw` or `straddle`"),
            ("rmw=1ms", "`rmw` or `straddle`"),
            ("members=65,chunk=4k", "1 to 64"),
            ("members=64,chunk=4k,parallel=2048", "65536"),
            ("members=2,chunk=1", "512 B"),
            ("granule=0,rmw=1ms", "1 B"),
        ] {
            let error = parse_truth(text).unwrap_err();
            assert!(error.contains(remedy), "{text}: {error}");
        }
    }

    #[test]
    fn invalid_texts_are_refused_with_a_valid_form() {
        for text in ["fixe=1ms", "fixed", "buffer=1m", "sustained=1m", "parallel=0", "rate=0"] {
            assert!(parse_truth(text).is_err(), "{text}");
        }
        assert!(parse_truth("speed=9").unwrap_err().contains("rate=RATE"));
        for text in ["eio", "eio@x", "wrong@1", "short:x@1", "eio@1xy", "short:9g@1"] {
            assert!(parse_faults(text).is_err(), "{text}");
        }
    }

    #[test]
    fn faults_have_a_position_a_count_and_a_direction() {
        let plan = parse_faults("eio@100,write-short:512@7x3,hang:30s@1").unwrap();
        let short =
            FaultRule { fault: Fault::Short(512), only: Some(Op::Write), first: 7, count: 3 };
        assert_eq!(plan.rules[1], short);
        assert_eq!(plan.rules[0].first, 100);
        assert_eq!(plan.rules[2].fault, Fault::Hang(30_000_000_000));
    }
}
