//! Tests the throughput: sequential reads over a link with a known rate.
//!
//! The server and the program run in network namespaces joined by a rate-limited link. Reads of
//! 1 MiB are measured at several queue depths. At the depth with the highest throughput, the
//! throughput must reach the payload rate of the link, which is the link rate without the frame
//! headers. A plain TCP transfer over the same link confirms this rate.

use super::link::{Link, goodput};
use super::{Campaign, Found, Row, number};
use crate::bench::statistics::{Estimate, estimate, quantile};
use crate::bench::turns::take_turns;
use crate::server::{Protocol, Server};
use anyhow::Result;

/// Maximum relative error of a rate.
const BAR: f64 = 0.05;
/// Maximum relative error of the plain TCP transfer. A larger error shows that the link does not
/// have its nominal rate.
const PLAIN_BAR: f64 = 0.02;
/// Maximum number of rounds. Few rounds are enough, because the link's rate does not vary.
const ROUNDS: u32 = 5;
/// Queue depths to measure. The result of a case is the throughput at the depth with the highest
/// median throughput.
const DEPTHS: [&str; 3] = ["--iodepth=1", "--iodepth=4", "--iodepth=16"];

/// Measures all selected cases. The values are in MB/s.
///
/// # Errors
/// Only an interrupt is an error. Failed cases are returned as rows.
pub fn rows(campaign: &Campaign<'_>) -> Result<Vec<Row>> {
    let expected = goodput() / 1e6;
    let rounds = campaign.rounds.min(ROUNDS);
    let stop = &campaign.context.stop;
    let plain = |name: &str| {
        let link = Link::new()?;
        let rates = take_turns(name, rounds, 1, stop, |_| Ok(link.plain_transfer()? / 1e6))?;
        Ok(Found { measured: estimate(&rates.concat()), other: None })
    };
    let mut rows = Vec::new();
    rows.extend(campaign.row("link of 200 Mbit/s, plain TCP", expected, PLAIN_BAR, plain)?);
    for protocol in [Protocol::Nbd, Protocol::Nfs, Protocol::Smb, Protocol::Iscsi] {
        let measure = |name: &str| {
            let link = Link::new()?;
            let server = campaign.server(protocol, link.site(), ["", ""])?;
            let rates = take_turns(name, rounds, DEPTHS.len(), stop, |which| {
                rate(campaign, &link, &server, DEPTHS[which])
            })?;
            Ok(Found { measured: fastest(&rates), other: None })
        };
        let name = format!("link of 200 Mbit/s, {} reads of 1 MiB", protocol.name());
        rows.extend(campaign.row(&name, expected, BAR, measure)?);
    }
    Ok(rows)
}

/// Returns the rate at the depth with the highest median rate. Each entry of `rates` contains the
/// rates of one round at all depths.
fn fastest(rates: &[Vec<f64>]) -> Estimate {
    let at = |depth: usize| -> Vec<f64> { rates.iter().map(|round| round[depth]).collect() };
    let best = (0..rates[0].len())
        .max_by(|a, b| quantile(&at(*a), 0.5).total_cmp(&quantile(&at(*b), 0.5)))
        .expect("there is a depth");
    estimate(&at(best))
}

/// Measures the rate of one trial (MB/s).
fn rate(campaign: &Campaign<'_>, link: &Link, server: &Server, depth: &str) -> Result<f64> {
    let words = ["--rw=read", "--bs=1m", "--runtime=2", "--trials=1", depth];
    let document = campaign.run(&link.enter(), &server.url(), &words)?;
    let trial = &document["trials"][0];
    let seconds = number(trial, "elapsed_ns")? / 1e9;
    Ok(number(trial, "bytes")? / seconds / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_with_the_highest_median_counts() {
        let best = fastest(&[vec![1.0, 5.0, 9.0], vec![1.0, 6.0, 2.0], vec![1.0, 7.0, 2.0]]);
        assert_eq!(best.median, 6.0);
    }

    #[test]
    fn the_goodput_is_that_of_full_frames() {
        assert!((goodput() - 23.910e6).abs() < 1e3, "{}", goodput());
    }
}
