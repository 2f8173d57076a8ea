//! The need that a capacity plan must meet: streams of requests at stated rates, limits on their
//! latency, and a capacity.
//!
//! A need is text that consists of clauses separated by semicolons. The words of a clause are
//! separated by spaces or commas. Example: `reads 8k 20000/s p99<2ms; writes 64k 300MB/s; capacity
//! 20TB; survives 1`.

use analysis::units;
use std::fmt;

use ioengine::Op;

/// Maximum request size (bytes).
const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// Maximum rate of a stream (requests per second). Higher rates would take minutes to simulate.
const REQUESTS_PER_S_MAX: f64 = 1e8;

/// The requirements that the storage must meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// One or more request streams, which all run at the same time.
    pub streams: Vec<Stream>,
    /// Required usable capacity (bytes). None if no capacity was stated.
    pub capacity_bytes: Option<u64>,
    /// Number of failed devices that the data must survive.
    pub survives: u32,
    /// Whether a write must be durable when it completes. If so, the write caches are off.
    pub durable: bool,
}

/// A stream of requests of one size that arrive at a fixed mean rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Whether the stream reads or writes.
    pub op: Op,
    /// Whether the offsets are random. False means sequential offsets.
    pub random: bool,
    /// Request size (bytes).
    pub request_bytes: u32,
    /// Rate of the stream (requests per second).
    pub requests_per_s: f64,
    /// Limit on a latency percentile. None if no limit was stated.
    pub latency: Option<LatencyLimit>,
}

/// A limit on a percentile of the latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyLimit {
    /// The percentile, such as 99 or 99.9.
    pub percentile: f64,
    /// The latency below which the percentile must stay (ns).
    pub limit_ns: u64,
}

impl Stream {
    /// Returns the rate of the stream [bytes per second].
    pub fn bytes_per_s(&self) -> f64 {
        self.requests_per_s * f64::from(self.request_bytes)
    }
}

impl fmt::Display for LatencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{} < {}", self.percentile, units::time(self.limit_ns as f64))
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.random { "random" } else { "sequential" };
        let name = if self.op == Op::Read { "reads" } else { "writes" };
        let size = units::size(self.request_bytes.into());
        let rate = units::count(self.requests_per_s);
        write!(f, "{order} {name} of {size}, {rate}/s")?;
        self.latency.map_or(Ok(()), |limit| write!(f, ", {limit}"))
    }
}

impl Need {
    /// Parses a need.
    ///
    /// # Errors
    /// If a clause is invalid, or if there are neither reads nor writes. The message shows the
    /// correct form.
    pub fn parse(text: &str) -> Result<Need, String> {
        let mut need =
            Need { streams: Vec::new(), capacity_bytes: None, survives: 0, durable: false };
        for clause in text.split(';').map(str::trim).filter(|clause| !clause.is_empty()) {
            need.add(clause).map_err(|why| format!("'{clause}': {why}"))?;
        }
        if need.streams.is_empty() {
            return Err(
                "the need has neither reads nor writes; add a clause like 'reads 8k 20000/s'"
                    .into(),
            );
        }
        Ok(need)
    }

    fn add(&mut self, clause: &str) -> Result<(), String> {
        let is_space = |c: char| c.is_whitespace() || c == ',';
        let words: Vec<&str> = clause.split(is_space).filter(|word| !word.is_empty()).collect();
        let (first, rest) = words.split_first().unwrap_or((&"", &[]));
        match (*first, rest) {
            ("reads" | "read", rest) => self.streams.push(stream(Op::Read, rest)?),
            ("writes" | "write", rest) => self.streams.push(stream(Op::Write, rest)?),
            ("capacity", [size]) if self.capacity_bytes.is_none() => {
                self.capacity_bytes = Some(units::parse_size(size)?);
            }
            ("survives", [count]) => {
                let what = "specify the number of devices that may fail, such as 1";
                self.survives = count.parse().map_err(|_| what)?;
            }
            ("durable", []) => self.durable = true,
            ("capacity", [_]) => return Err("the capacity is stated twice".into()),
            _ => {
                return Err("use 'reads SIZE RATE', 'writes SIZE RATE', 'capacity SIZE', \
                            'survives DEVICES' or 'durable'"
                    .into());
            }
        }
        Ok(())
    }

    /// Returns the need with all rates multiplied by `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> Need {
        let faster =
            |stream: &Stream| Stream { requests_per_s: stream.requests_per_s * factor, ..*stream };
        Need { streams: self.streams.iter().map(faster).collect(), ..self.clone() }
    }
}

/// Parses `SIZE RATE [random|sequential] [pN<TIME]`. Without `random` or `sequential`, the offsets
/// are random if the rate is in requests, and sequential if it is in bytes.
fn stream(op: Op, words: &[&str]) -> Result<Stream, String> {
    let [size, rate, rest @ ..] = words else {
        return Err("a size and a rate are needed, such as 8k 20000/s or 64k 300MB/s".into());
    };
    let bytes = units::parse_size(size)?;
    if !(512..=REQUEST_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(512) {
        return Err("the request size must be a multiple of 512 bytes and at most 1 GiB".into());
    }
    let (requests_per_s, in_requests) = rate_of(rate, bytes)?;
    if !(requests_per_s > 0.0 && requests_per_s <= REQUESTS_PER_S_MAX) {
        return Err(format!("the rate {rate} must be above 0 and at most 100 million requests/s"));
    }
    let (mut random, mut latency) = (in_requests, None);
    for word in rest {
        match *word {
            "random" => random = true,
            "sequential" => random = false,
            limit => latency = Some(latency_limit(limit)?),
        }
    }
    Ok(Stream { op, random, request_bytes: bytes as u32, requests_per_s, latency })
}

/// Parses a rate such as `20000/s`, `20k/s` or `300MB/s`. Returns the rate in requests per second,
/// and whether the text states the rate in requests.
fn rate_of(text: &str, request_bytes: u64) -> Result<(f64, bool), String> {
    let wrong = || format!("'{text}' is not a rate; use 20000/s or 300MB/s");
    let number = text.strip_suffix("/s").ok_or_else(wrong)?;
    let (digits, factor) = match number.strip_suffix('k') {
        Some(digits) => (digits, 1e3),
        None => (number, 1.0),
    };
    if let Ok(requests) = digits.parse::<f64>() {
        return Ok((requests * factor, true));
    }
    let bytes = units::parse_size(number).map_err(|_| wrong())?;
    Ok((bytes as f64 / request_bytes as f64, false))
}

/// Parses a latency limit such as `p99<2ms`.
fn latency_limit(text: &str) -> Result<LatencyLimit, String> {
    let wrong = || format!("'{text}' is unknown; use random, sequential or a limit like p99<2ms");
    let (percentile, limit) =
        text.strip_prefix('p').and_then(|rest| rest.split_once('<')).ok_or_else(wrong)?;
    let percentile: f64 = percentile.parse().map_err(|_| wrong())?;
    if !(1.0..=99.99).contains(&percentile) {
        return Err(format!("p{percentile} is not a percentile from 1 to 99.99"));
    }
    let limit_ns = units::parse_duration(limit)?;
    if limit_ns == 0 {
        return Err("the latency limit must be above 0".into());
    }
    Ok(LatencyLimit { percentile, limit_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_has_streams_limits_and_a_capacity() {
        let need = Need::parse(
            "reads 8k 20000/s p99<2ms; writes 64k 300MB/s random; capacity 20TB; survives 1; \
             durable",
        )
        .unwrap();
        assert_eq!((need.capacity_bytes, need.survives), (Some(20_000_000_000_000), 1));
        assert!(need.durable);
        let limit = LatencyLimit { percentile: 99.0, limit_ns: 2_000_000 };
        assert_eq!(need.streams[0].latency, Some(limit));
        assert!(need.streams[0].random && need.streams[1].random);
        assert_eq!(need.streams[0].to_string(), "random reads of 8 KiB, 20k/s, p99 < 2 ms");
        assert!((need.streams[1].bytes_per_s() - 3e8).abs() < 1.0);
        assert!((need.times(2.0).streams[0].requests_per_s - 4e4).abs() < 1e-6);
    }

    #[test]
    fn a_rate_in_bytes_means_sequential_requests() {
        let need = Need::parse("writes 64k 1MiB/s").unwrap();
        assert!(!need.streams[0].random);
        assert!((need.streams[0].requests_per_s - 16.0).abs() < 1e-9);
        assert_eq!(Need::parse("reads,4k,1.5k/s"), Need::parse("reads 4k 1.5k/s random"));
        assert!(Need::parse(",; ,").is_err());
    }

    #[test]
    fn wrong_clauses_are_named_with_the_right_form() {
        for (text, words) in [
            ("", "neither reads nor writes"),
            ("capacity 1t", "neither reads nor writes"),
            ("reads 8k", "a size and a rate"),
            ("reads 8k 10", "use 20000/s"),
            ("reads 100 5/s", "multiple of 512"),
            ("reads 8k 0/s", "above 0"),
            ("reads 8k 1/s p99>2ms", "p99<2ms"),
            ("reads 8k 1/s p0<2ms", "percentile"),
            ("fast please", "use 'reads SIZE RATE'"),
            ("reads 8k 1/s; capacity 1t; capacity 2t", "twice"),
        ] {
            let error = Need::parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_need_or_an_error(text in ".{0,80}") {
            let _ = Need::parse(&text);
        }

        #[test]
        fn any_stream_is_read_back(
            kib in 1_u32..1024, rate in 1_u32..1_000_000, ms in 1_u64..1000, random: bool,
        ) {
            let order = if random { "random" } else { "sequential" };
            let text = format!("reads {kib}k {rate}/s {order} p95<{ms}ms");
            let stream = Need::parse(&text).unwrap().streams[0];
            proptest::prop_assert_eq!(stream.request_bytes, kib << 10);
            proptest::prop_assert_eq!(stream.random, random);
            proptest::prop_assert!((stream.requests_per_s - f64::from(rate)).abs() < 1e-6);
            proptest::prop_assert_eq!(stream.latency.unwrap().limit_ns, ms * 1_000_000);
        }
    }
}
