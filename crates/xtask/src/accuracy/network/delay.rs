//! Tests the latency: if a known delay is added to a path, the measured latency must grow by this
//! delay.
//!
//! For NBD, nbdkit's delay filter delays each request. For NFS, SMB and iSCSI, a proxy in front of
//! the server delays all bytes in both directions. Runs with and without the delay alternate.
//!
//! A thread of the server or of the proxy waits for the delay and wakes up slightly late, so every
//! client measures a little more than the delay. For NBD, fio measures the same delay for
//! comparison. If fio measures the same excess, the server and not halfpower causes the excess.

use super::proxy::Proxy;
use super::{Campaign, Found, Row, number};
use crate::bench::statistics::estimate;
use crate::bench::turns::take_turns;
use crate::server::{LOOPBACK, Protocol, Server};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// Maximum relative error of the measured delay.
const BAR: f64 = 0.05;
/// Delays that nbdkit's filter adds to each request (ms).
const FILTER_MS: [u64; 3] = [1, 5, 20];
/// Delays that the proxy adds in each direction (ms).
const PROXY_MS: [u64; 2] = [2, 10];
/// Workloads: the name in the table, and the value of `--rw`.
const LOADS: [(&str, &str); 2] = [("reads", "randread"), ("writes", "randwrite")];

/// Measures all selected cases.
///
/// # Errors
/// Only an interrupt is an error. Failed cases are returned as rows.
pub fn rows(campaign: &Campaign<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let has_fio = fio_speaks_nbd();
    for ms in FILTER_MS {
        let name = |load: &str| format!("NBD, filter delay of {ms} ms, {load}");
        let measure = |rw: &str, name: &str| {
            let parameters = format!("rdelay={ms}ms wdelay={ms}ms");
            let start = |filters| campaign.server(Protocol::Nbd, LOOPBACK, filters);
            let servers = [start(["", ""])?, start(["--filter=delay", &parameters])?];
            let urls = servers.each_ref().map(Server::url);
            added(campaign, name, has_fio, |tool, delayed| {
                let url = &urls[usize::from(delayed)];
                match tool {
                    Tool::Halfpower => p50_ms(campaign, url, rw),
                    Tool::Fio => fio_p50_ms(campaign, url, rw),
                }
            })
        };
        for (load, rw) in LOADS {
            rows.extend(campaign.row(&name(load), ms as f64, BAR, |name| measure(rw, name))?);
        }
    }
    for protocol in [Protocol::Nfs, Protocol::Smb, Protocol::Iscsi] {
        for ms in PROXY_MS {
            let name =
                |load: &str| format!("{}, proxy delay {ms} ms each way, {load}", protocol.name());
            let measure = |rw: &str, name: &str| {
                let server = campaign.server(protocol, LOOPBACK, ["", ""])?;
                let proxy = Proxy::to(server.port)?;
                let url = protocol.url(LOOPBACK.host, proxy.port);
                added(campaign, name, false, |_, delayed| {
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

#[derive(Clone, Copy)]
enum Tool {
    Halfpower,
    Fio,
}

/// Measures in each round by how much the delay increases the latency.
fn added(
    campaign: &Campaign<'_>,
    name: &str,
    with_fio: bool,
    latency: impl Fn(Tool, bool) -> Result<f64>,
) -> Result<Found> {
    let stop = &campaign.context.stop;
    let turns =
        [(Tool::Halfpower, false), (Tool::Halfpower, true), (Tool::Fio, false), (Tool::Fio, true)];
    let turns = if with_fio { &turns[..] } else { &turns[..2] };
    let rounds = take_turns(name, campaign.rounds, turns.len(), stop, |which| {
        let (tool, delayed) = turns[which];
        latency(tool, delayed)
    })?;
    let differences = |base: usize| -> Vec<f64> {
        rounds.iter().map(|round| round[base + 1] - round[base]).collect()
    };
    let other = with_fio.then(|| estimate(&differences(2)));
    Ok(Found { measured: estimate(&differences(0)), other })
}

/// Measures the median latency of one trial (ms).
fn p50_ms(campaign: &Campaign<'_>, url: &str, rw: &str) -> Result<f64> {
    let words = ["--rw", rw, "--bs=4k", "--runtime=1", "--trials=1"];
    let document = campaign.run(&[], url, &words)?;
    Ok(number(&document["trials"][0]["latency_ns"], "p50")? / 1e6)
}

/// Returns true if fio is installed and has the I/O engine `nbd`.
fn fio_speaks_nbd() -> bool {
    let output = Command::new("fio").arg("--enghelp").output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == "nbd")
    })
}

/// Measures the median latency with fio (ms).
fn fio_p50_ms(campaign: &Campaign<'_>, url: &str, rw: &str) -> Result<f64> {
    let place = campaign.context.place()?;
    let mut command = Command::new("fio");
    command.args(["--name=delay", "--ioengine=nbd", "--bs=4k", "--time_based", "--runtime=1"]);
    command.args(["--output-format=json", "--lat_percentiles=1"]);
    command.args([format!("--uri={url}"), format!("--rw={rw}")]);
    command.arg(format!("--size={}", super::FILE_BYTES));
    let ended = place.start_command(command)?.ended()?;
    ended.ends_with(0).map_err(|wrong| anyhow::anyhow!("fio: {wrong}"))?;
    fio_median_ms(&ended.stdout)
}

/// Parses fio's JSON and returns the median latency of the reads, or of the writes if there were no
/// reads (ms).
fn fio_median_ms(text: &str) -> Result<f64> {
    let begin = text.find('{').context("fio printed no JSON")?;
    let document: Value = serde_json::from_str(&text[begin..])?;
    let job = &document["jobs"][0];
    ensure!(job["error"].as_i64() == Some(0), "fio failed with error {}", job["error"]);
    let used = ["read", "write"].into_iter().find(|direction| {
        job[direction]["total_ios"].as_u64().is_some_and(|requests| requests > 0)
    });
    let latency = &job[used.context("fio completed no requests")?]["lat_ns"]["percentile"];
    Ok(number(latency, "50.000000")? / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_fio_is_that_of_the_direction_with_requests() {
        let text = r#"note
            {"jobs": [{"error": 0, "read": {"total_ios": 0},
                "write": {"total_ios": 9, "lat_ns": {"percentile": {"50.000000": 5000000}}}}]}"#;
        assert_eq!(fio_median_ms(text).unwrap(), 5.0);
        assert!(fio_median_ms(&text.replace("\"error\": 0", "\"error\": 5")).is_err());
        assert!(fio_median_ms("no JSON").is_err());
    }
}
