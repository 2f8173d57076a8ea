//! Situations with commands that measure many points (`survey`, `study` and `sweep`) or predict
//! from a sweep (`whatif`).

use super::Situation;
use super::gear::{QUIET, contains_any, short, with_command};
use crate::accuracy::foreign::server::Server;
use crate::faults::place::Context;
use crate::faults::running::Ended;
use crate::faults::tally::{Check, ensure};
use anyhow::{Result, anyhow};
use serde_json::Value;

/// The situations of this module. An earlier version of halfpower did not report them.
pub const SITUATIONS: &[Situation] = &[
    Situation {
        word: "again-survey",
        wrong: "a survey of a device with a cache that holds the region",
        made: "a device of 512 MiB with 50 MB/s and a delay of 1 ms, behind nbdkit's cache filter",
        must: "the best read rate is at most 75 MB/s, or the verdict is suspect or invalid \
               because a cache of the device holds the region",
        says: &["a cache of the device holds"],
        run: survey,
    },
    Situation {
        word: "again-burst",
        wrong: "a device with burst credit",
        made: "`study burst` on nbdkit's rate filter of 50 MB/s with a burst of 2 s",
        must: "the credit is found",
        says: &["the burst credit is"],
        run: burst,
    },
    Situation {
        word: "again-sweep",
        wrong: "a sweep of depths warms the cache of the device",
        made: "a region of 512 MiB on a device with a delay of 2 ms and a cache of 32 MiB (nbdkit)",
        must: "the sweep's rate at depth 1 is within 25% of the rate of a single run at depth 1",
        says: &["25%"],
        run: sweep,
    },
    Situation {
        word: "again-whatif-d",
        wrong: "`whatif` predicts the rate at a depth that the sweep did not cover",
        made: "the calibration covers depths 1 to 4; `whatif` predicts the rate at depth 64",
        must: "outside the calibrated range",
        says: &["outside the calibrated range"],
        run: |context, says| whatif(context, says, "--iodepth-to 64"),
    },
    Situation {
        word: "again-whatif-s",
        wrong: "`whatif` predicts the rate at a request size that the sweep did not cover",
        made: "the calibration covers 4 KiB and 16 KiB; `whatif` predicts the rate at 1 MiB",
        must: "outside the calibrated range",
        says: &["outside the calibrated range"],
        run: |context, says| whatif(context, says, "--bs-to 1m"),
    },
];

/// Maximum ratio of the best rate in a survey to the rate of the device without its cache.
const ABOVE_MAX: f64 = 1.5;
/// Throughput of the surveyed device without its cache (bytes/s).
const UNCACHED_BYTES_PER_S: f64 = 50e6;
/// Maximum relative difference between the rates of a sweep and a single run at the same depth.
const APART_MAX: f64 = 0.25;

fn document(line: &str, ended: &Ended) -> Result<Value> {
    let words = || anyhow!("{line}: exit {:?}: {}", ended.code, short(&ended.stderr));
    serde_json::from_str(&ended.stdout).map_err(|_| words())
}

fn survey(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(
        context,
        "--filter=cache --filter=rate --filter=delay memory 512M rate=400000000 burstiness=0.1 \
         rdelay=1ms cache-on-read=true",
    )?;
    let place = context.place()?;
    let line = format!("survey {} --quick {QUIET} --html page.html", server.file());
    let document = document(&line, &place.run(&line)?)?;
    let verdict = &document["verdict"];
    let doubted =
        verdict["state"] != "valid" && contains_any(&verdict["reasons"].to_string(), says);
    let best = document["best"]["read"]["throughput_bytes_per_s"]["value"].as_f64();
    let best = best.unwrap_or(f64::INFINITY);
    let is_met = doubted || best <= ABOVE_MAX * UNCACHED_BYTES_PER_S;
    let verdict = || short(&verdict.to_string());
    Ok(with_command(
        &line,
        ensure(is_met, || format!("best read rate {:.0} MB/s; verdict {}", best / 1e6, verdict())),
    ))
}

fn burst(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=rate memory 512M rate=400000000")?;
    let place = context.place()?;
    let line = format!("study burst {} --quick --no-store --html page.html", server.file());
    let ended = place.run(&line)?;
    let is_met = ended.code == Some(0) && contains_any(&ended.stdout, says);
    Ok(with_command(&line, ensure(is_met, || short(&ended.stdout))))
}

/// Arguments of nbdkit for a device whose cache holds a sixteenth of the region.
const SMALL_CACHE: &str = "--filter=cache --filter=delay memory 512M rdelay=2ms cache-on-read=true \
                           cache-max-size=32M";

fn sweep(context: &Context, _says: &[&str]) -> Result<Check> {
    let load = format!("--rw randread --bs 4k --runtime 0.5 --time-based {QUIET}");
    let place = context.place()?;
    let alone = {
        let server = Server::nbdkit(context, SMALL_CACHE)?;
        let line = format!("run {} --iodepth 1 {load}", server.file());
        let document = document(&line, &place.run(&line)?)?;
        document["summary"]["requests_per_s"]["median"].as_f64().unwrap_or(f64::NAN)
    };
    let server = Server::nbdkit(context, SMALL_CACHE)?;
    let line = format!("sweep {} --iodepth 1,4,16 {load}", server.file());
    let document = document(&line, &place.run(&line)?)?;
    let points = document["points"].as_array().into_iter().flatten();
    let mut ones = points.filter(|point| point["workload"]["depth"] == 1);
    let one = ones.next().map_or(Value::Null, |point| point["summary"].clone());
    let within = one["requests_per_s"]["median"].as_f64().unwrap_or(f64::NAN);
    let is_met = (within / alone - 1.0).abs() <= APART_MAX;
    Ok(with_command(
        &line,
        ensure(is_met, || format!("{within:.0} requests/s in the sweep, {alone:.0} in one run")),
    ))
}

fn whatif(context: &Context, says: &[&str], question: &str) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 64M rdelay=2ms")?;
    let place = context.place()?;
    let file = server.file();
    place.prepare(&format!(
        "sweep {file} --rw randread --bs 4k,16k --iodepth 1,2,4 --trials 3 --runtime 0.2 \
         --time-based --quiet"
    ))?;
    place.prepare("calibrate latest --out device.toml --quiet")?;
    let line = format!("whatif ./device.toml --rw randread --bs 4k --iodepth 1 {question}");
    let ended = place.run(&line)?;
    let said = format!("{} {}", ended.stdout, ended.stderr);
    Ok(with_command(&line, ensure(contains_any(&said, says), || short(&said))))
}
