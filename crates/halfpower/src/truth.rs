//! Devices of known truth and their faults, as they are typed: `fixed=500us,rate=500m`,
//! `eio@100,short:512@7x3`.

use ioengine::Op;
use ioengine::fault::{Fault, FaultPlan, FaultRule};
use ioengine::truth::{BufferTruth, CacheTruth, CreditTruth, Truth};

use crate::units;

/// What `--truth` and `truth:` understand; for help and errors.
pub const TRUTH_WORDS: &str = "fixed=TIME, rate=RATE, parallel=N, cache=SIZE, hit=TIME, \
                               buffer=SIZE, drain=RATE, credit=SIZE, sustained=RATE, cpu=TIME";
/// What `--inject` understands.
pub const FAULT_WORDS: &str = "KIND[:ARGUMENT]@N[xCOUNT], where KIND is eio, enospc, eagain, \
                               eintr, short:SIZE, late:COUNT, hang:TIME, twice, never, flip, \
                               lose, misdirect:SIZE or tear, N counts requests from 0, and \
                               read- or write- before KIND counts only those";

/// Reads a device of known truth.
///
/// # Errors
/// One line that says what is wrong and what would be right.
pub fn parse_truth(text: &str) -> Result<Truth, String> {
    let mut truth = Truth::default();
    let (mut cache, mut hit_ns) = (None, 0);
    let (mut buffer, mut drain, mut credit, mut sustained) = (None, None, None, None);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| unknown(part))?;
        match key {
            "fixed" => truth.fixed_ns = units::parse_duration(value)?,
            "rate" => truth.bytes_per_s = Some(rate(value)?),
            "parallel" => {
                let count: Option<u32> = value.parse().ok().filter(|n| (1..=65536).contains(n));
                truth.parallelism = count.ok_or("parallel is a number from 1 to 65536")?;
            }
            "cache" => cache = Some(units::parse_size(value)?),
            "hit" => hit_ns = units::parse_duration(value)?,
            "buffer" => buffer = Some(units::parse_size(value)?),
            "drain" => drain = Some(rate(value)?),
            "credit" => credit = Some(units::parse_size(value)?),
            "sustained" => sustained = Some(rate(value)?),
            "cpu" => truth.cpu_ns = units::parse_duration(value)?,
            _ => return Err(unknown(key)),
        }
    }
    truth.cache = cache.map(|bytes| CacheTruth { bytes, hit_ns });
    truth.buffer = match (buffer, drain) {
        (Some(bytes), Some(drain_bytes_per_s)) => Some(BufferTruth { bytes, drain_bytes_per_s }),
        (None, None) => None,
        _ => return Err("buffer and drain go together".to_owned()),
    };
    truth.credit = match (credit, sustained) {
        (Some(bytes), Some(sustained_bytes_per_s)) => {
            Some(CreditTruth { bytes, sustained_bytes_per_s })
        }
        (None, None) => None,
        _ => return Err("credit and sustained go together".to_owned()),
    };
    Ok(truth)
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = units::parse_rate(text)?;
    if rate >= 1.0 { Ok(rate) } else { Err(format!("'{text}' is less than a byte per second")) }
}

fn unknown(part: &str) -> String {
    format!("'{part}' is no property of a device; use {TRUTH_WORDS}")
}

/// The device as it would be typed.
pub fn describe(truth: &Truth) -> String {
    let time = |ns: u64| units::time(ns as f64).replace(' ', "");
    let mut parts = vec![format!("fixed {}", time(truth.fixed_ns))];
    parts.extend(truth.bytes_per_s.map(|rate| format!("bus {}", units::rate(rate))));
    if truth.parallelism > 1 {
        parts.push(format!("{} at a time", truth.parallelism));
    }
    parts.extend(truth.cache.map(|c| format!("cache {}", units::size(c.bytes))));
    parts.extend(truth.buffer.map(|b| format!("write buffer {}", units::size(b.bytes))));
    parts.extend(truth.credit.map(|c| format!("credit {}", units::size(c.bytes))));
    if truth.cpu_ns > 0 {
        parts.push(format!("CPU {}", time(truth.cpu_ns)));
    }
    parts.join(", ")
}

/// Reads a plan of faults.
///
/// # Errors
/// One line that says what is wrong and what would be right.
pub fn parse_faults(text: &str) -> Result<FaultPlan, String> {
    let rules = text.split(',').filter(|part| !part.is_empty()).map(parse_rule);
    Ok(FaultPlan { rules: rules.collect::<Result<_, _>>()? })
}

fn parse_rule(text: &str) -> Result<FaultRule, String> {
    let wrong = || format!("'{text}' is no fault; write {FAULT_WORDS}");
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
    fn a_device_is_read_as_it_is_typed() {
        let truth = parse_truth("fixed=500us,rate=500MB/s,parallel=4,cache=64m,hit=20us").unwrap();
        assert_eq!((truth.fixed_ns, truth.parallelism), (500_000, 4));
        assert_eq!(truth.bytes_per_s, Some(500e6));
        assert_eq!(truth.cache, Some(CacheTruth { bytes: 64 << 20, hit_ns: 20_000 }));
        let truth = parse_truth("buffer=1m,drain=1m,credit=2m,sustained=1m,cpu=5us").unwrap();
        assert!(truth.buffer.is_some() && truth.credit.is_some() && truth.cpu_ns == 5000);
        assert_eq!(parse_truth("").unwrap(), Truth::default());
    }

    #[test]
    fn wrong_words_are_answered_with_the_right_ones() {
        for text in ["fixe=1ms", "fixed", "buffer=1m", "sustained=1m", "parallel=0", "rate=0"] {
            assert!(parse_truth(text).is_err(), "{text}");
        }
        assert!(parse_truth("speed=9").unwrap_err().contains("rate=RATE"));
        for text in ["eio", "eio@x", "wrong@1", "short:x@1", "eio@1xy", "short:9g@1"] {
            assert!(parse_faults(text).is_err(), "{text}");
        }
    }

    #[test]
    fn faults_have_a_place_a_count_and_a_direction() {
        let plan = parse_faults("eio@100,write-short:512@7x3,hang:30s@1").unwrap();
        let short =
            FaultRule { fault: Fault::Short(512), only: Some(Op::Write), first: 7, count: 3 };
        assert_eq!(plan.rules[1], short);
        assert_eq!(plan.rules[0].first, 100);
        assert_eq!(plan.rules[2].fault, Fault::Hang(30_000_000_000));
    }
}
