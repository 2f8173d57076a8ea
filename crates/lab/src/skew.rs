//! Parsers for skewed loads in fio's syntax: distributions (`zipf:1.2`), request sizes with shares
//! (`4k/50:64k/50`) and pauses (`100us`).

use analysis::units;
use std::str::FromStr;

use workload::plan::SHARES_MAX;
use workload::{Distribution, SizeShare, Zone};

/// Default exponent of the zipf distribution, as in fio.
const ZIPF_THETA: f64 = 1.1;
/// Default parameter of the pareto distribution, as in fio.
const PARETO_H: f64 = 0.2;

/// Parses a distribution of offsets: `random`, `zipf:THETA`, `pareto:H`, or `zoned:` with zones
/// such as `60/10:30/20:10/70` (60% of the requests access the first 10% of the region, and so on).
///
/// # Errors
///
/// The text is invalid. The message is one line with the mistake and a valid form.
pub fn parse_distribution(text: &str) -> Result<Distribution, String> {
    let (law, rest) = match text.split_once(':') {
        Some((law, rest)) => (law, Some(rest)),
        None => (text, None),
    };
    match (law, rest) {
        ("random", None) => Ok(Distribution::Even),
        ("zipf", _) => Ok(Distribution::Zipf { theta: number(rest, ZIPF_THETA)? }),
        ("pareto", _) => Ok(Distribution::Pareto { h: number(rest, PARETO_H)? }),
        ("zoned", Some(zones)) => {
            let zones: Result<Vec<Zone>, String> = zones.split(':').map(zone).collect();
            Ok(Distribution::Zoned(zones?))
        }
        _ => Err(format!(
            "'{text}' is not a distribution; write random, zipf:1.2, pareto:0.2 or \
             zoned:60/10:30/20:10/70"
        )),
    }
}

fn number(text: Option<&str>, default: f64) -> Result<f64, String> {
    let Some(text) = text else { return Ok(default) };
    let finite = text.parse::<f64>().ok().filter(|number| number.is_finite());
    finite.ok_or_else(|| format!("'{text}' is not a number; use a number such as 1.2"))
}

fn percent(text: &str) -> Result<u8, String> {
    let share = text.parse::<u8>().ok().filter(|percent| *percent <= 100);
    share.ok_or_else(|| format!("'{text}' is not a share; use a whole percentage from 0 to 100"))
}

fn zone(text: &str) -> Result<Zone, String> {
    let (access, region) = text.split_once('/').ok_or_else(|| {
        format!("'{text}' is not a zone; use ACCESSES/REGION (percent), as in 60/10")
    })?;
    Ok(Zone { access_percent: percent(access)?, region_percent: percent(region)? })
}

/// Request sizes, each with its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split(pub Vec<SizeShare>);

impl Split {
    /// Returns the largest request size (bytes).
    pub fn largest_bytes(&self) -> u32 {
        self.0.iter().map(|size| size.request_bytes).max().unwrap_or(0)
    }
}

impl FromStr for Split {
    type Err = String;

    /// Parses sizes and shares such as `4k/50:64k/30:1m/20`. Sizes without a share divide the
    /// remaining percentage equally.
    fn from_str(text: &str) -> Result<Split, String> {
        if text.contains(',') {
            let why = "reads and writes need the same sizes; use a single list, as in 4k/50:64k/50";
            return Err(why.to_owned());
        }
        let parts: Vec<&str> = text.split(':').collect();
        if parts.len() > SHARES_MAX {
            return Err(format!("{} sizes are too many; use at most {SHARES_MAX}", parts.len()));
        }
        let mut sizes = Vec::with_capacity(parts.len());
        for part in parts {
            let (size, share) = part.split_once('/').unwrap_or((part, ""));
            let bytes = u32::try_from(units::parse_size(size)?).ok().filter(|bytes| *bytes > 0);
            let bytes = bytes
                .ok_or_else(|| format!("'{size}' is not a request size; use a size such as 64k"))?;
            let share = (!share.is_empty()).then(|| percent(share)).transpose()?;
            sizes.push((bytes, share));
        }
        let given: u32 = sizes.iter().filter_map(|(_, share)| share.map(u32::from)).sum();
        let open = sizes.iter().filter(|(_, share)| share.is_none()).count() as u32;
        let left = 100_u32.checked_sub(given).filter(|left| open > 0 || *left == 0);
        let left = left.ok_or_else(|| {
            format!(
                "the shares of '{text}' add up to {given}%, not 100%; change the shares, as in \
                 4k/50:64k/50"
            )
        })?;
        let mut nth = 0;
        let filled = |(request_bytes, share): (u32, Option<u8>)| {
            let percent = share.unwrap_or_else(|| {
                nth += 1;
                // Shares are whole percentages. If the remaining percentage cannot be divided
                // equally, the first sizes get one percent more.
                (left / open + u32::from(nth <= left % open)) as u8
            });
            SizeShare { request_bytes, percent }
        };
        Ok(Split(sizes.into_iter().map(filled).collect()))
    }
}

/// Parses the length of a pause (ns). A number other than 0 needs a unit, because fio reads a
/// number without a unit as microseconds, but the other flags of halfpower read it as seconds.
///
/// # Errors
///
/// The text is invalid. The message is one line with the mistake and a valid form.
pub fn parse_pause(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(number) if number != 0.0 => {
            Err(format!("'{text}' has no unit; use {text}us (as in fio) or {text}s"))
        }
        _ => units::parse_duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_parsed() {
        for text in ["random", "zipf:1.2", "pareto:0.2", "zoned:60/10:30/20:10/70"] {
            assert_eq!(parse_distribution(text).unwrap().to_string(), text);
        }
        assert_eq!(parse_distribution("zipf"), Ok(Distribution::Zipf { theta: 1.1 }));
        assert_eq!(parse_distribution("pareto"), Ok(Distribution::Pareto { h: 0.2 }));
    }

    #[test]
    fn invalid_texts_are_refused_with_a_valid_form() {
        let refused = |text: &str| parse_distribution(text).unwrap_err();
        assert!(refused("normal:1").contains("zipf:1.2, pareto:0.2"));
        assert!(refused("random:1").contains("zipf:1.2"));
        assert!(refused("zipf:much").contains("such as 1.2"));
        assert!(refused("zipf:inf").contains("such as 1.2"));
        assert!(refused("zoned:60").contains("60/10"));
        assert!(refused("zoned:60/101").contains("0 to 100"));
        let refused = |text: &str| text.parse::<Split>().unwrap_err();
        assert!(refused("4k/50,8k/50").contains("reads and writes"));
        assert!(refused("4k/50:8k/49").contains("add up to 99%"));
        assert!(refused("4k/90:8k/20:1m").contains("add up to 110%"));
        assert!(refused("4k/x:8k").contains("whole percentage"));
        assert!(refused("0/50:8k").contains("is not a request size"));
        assert!(refused("5g/50:8k").contains("is not a request size"));
        assert!(parse_pause("100").unwrap_err().contains("100us"));
    }

    #[test]
    fn sizes_without_a_share_divide_the_rest() {
        let shares = |text: &str| -> Vec<(u32, u8)> {
            let Split(sizes) = text.parse().unwrap();
            sizes.into_iter().map(|size| (size.request_bytes, size.percent)).collect()
        };
        assert_eq!(shares("4k/50:64k/30:1m/20"), [(4096, 50), (65536, 30), (1 << 20, 20)]);
        assert_eq!(shares("4k/30:8k/:64k"), [(4096, 30), (8192, 35), (65536, 35)]);
        assert_eq!(shares("4k:8k:16k"), [(4096, 34), (8192, 33), (16384, 33)]);
        assert_eq!("4k/1:64k".parse::<Split>().unwrap().largest_bytes(), 65536);
    }

    #[test]
    fn pauses_need_a_unit() {
        assert_eq!(parse_pause("100us"), Ok(100_000));
        assert_eq!(parse_pause("0"), Ok(0));
    }
}
