//! Known delays: latency with a delay, minus the latency of the same path without it.
//!
//! nbdkit's delay filter holds each request back. In front of the servers of NFS, SMB and iSCSI, a
//! proxy holds all bytes back in both directions; without a delay the same proxy is the base. Base
//! and delay are measured in turns.

use super::proxy::Proxy;
use super::server::{LOOPBACK, Protocol, Server};
use super::{Campaign, Row};
use crate::bench::statistics::estimate;
use crate::bench::turns::take_turns;
use anyhow::Result;
use std::time::Duration;

/// Largest error of an added latency, as a share.
const BAR: f64 = 0.05;
/// Delays of nbdkit's filter (ms).
const FILTER_MS: [u64; 3] = [1, 5, 20];
/// Delays of the proxy in each direction (ms).
const PROXY_MS: [u64; 2] = [2, 10];
/// The loads: their name, and the value of --rw.
const LOADS: [(&str, &str); 2] = [("reads", "randread"), ("writes", "randwrite")];

/// Measures all wanted cases.
///
/// # Errors
/// Only an interrupt; failures of cases are rows.
pub fn rows(campaign: &Campaign<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for ms in FILTER_MS {
        let name = |load: &str| format!("NBD, filter of {ms} ms, {load}");
        let measure = |rw: &str, name: &str| {
            let parameters = format!("rdelay={ms}ms wdelay={ms}ms");
            let start = |filters| Server::start(campaign.context, Protocol::Nbd, LOOPBACK, filters);
            let servers = [start(["", ""])?, start(["--filter=delay", &parameters])?];
            let urls = servers.each_ref().map(Server::url);
            added(campaign, name, |delayed| p50_ms(campaign, &urls[usize::from(delayed)], rw))
        };
        for (load, rw) in LOADS {
            rows.extend(campaign.row(&name(load), ms as f64, BAR, |name| measure(rw, name))?);
        }
    }
    for protocol in [Protocol::Nfs, Protocol::Smb, Protocol::Iscsi] {
        for ms in PROXY_MS {
            let name =
                |load: &str| format!("{}, proxy of {ms} ms each way, {load}", protocol.name());
            let measure = |rw: &str, name: &str| {
                let server = Server::start(campaign.context, protocol, LOOPBACK, ["", ""])?;
                let proxy = Proxy::to(server.port)?;
                let url = protocol.url(LOOPBACK.host, proxy.port);
                added(campaign, name, |delayed| {
                    proxy.set_delay(Duration::from_millis(if delayed { ms } else { 0 }));
                    p50_ms(campaign, &url, rw)
                })
            };
            for (load, rw) in LOADS {
                let expected = 2.0 * ms as f64;
                rows.extend(campaign.row(&name(load), expected, BAR, |name| measure(rw, name))?);
            }
        }
    }
    Ok(rows)
}

/// The differences between the latencies with and without a delay, one for each round.
fn added(
    campaign: &Campaign<'_>,
    name: &str,
    latency: impl Fn(bool) -> Result<f64>,
) -> Result<crate::bench::statistics::Estimate> {
    let stop = &campaign.context.stop;
    let rounds = take_turns(name, campaign.rounds, 2, stop, |which| latency(which == 1))?;
    let differences: Vec<f64> = rounds.iter().map(|round| round[1] - round[0]).collect();
    Ok(estimate(&differences))
}

/// The median latency of one trial (ms).
fn p50_ms(campaign: &Campaign<'_>, url: &str, rw: &str) -> Result<f64> {
    let words = ["--rw", rw, "--bs=4k", "--runtime=1", "--trials=1"];
    let document = campaign.run(&[], url, &words)?;
    Ok(super::number(&document["trials"][0]["latency_ns"], "p50")? / 1e6)
}
