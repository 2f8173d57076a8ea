//! Converts the sample of the load generator into a trial, converts trials and verdicts into
//! database columns, and reads trials back from the database.

use analysis::histogram::{Exact, Histogram};
use cpucost::CpuUsage;
use ioengine::Op;
use ioengine::target::{DeviceCounters, Scrub};
use results::{LatencyRow, Operation, PointEnd, SeriesRow, TrialRates, TrialRow};
use serde::Deserialize;
use workload::sample::Failure;
use workload::{FullQueue, Sample};

use crate::point::{Direction, LiveTrial, Percentiles, SeriesPoint, State, Trial, Verdict};

/// Converts a measured sample into a trial.
pub fn trial(sample: Sample) -> Trial {
    let interval_ns = sample.series.interval_ns;
    let series = sample.series.intervals.iter().enumerate().map(|(index, interval)| SeriesPoint {
        start_ns: index as u64 * interval_ns,
        length_ns: interval_ns,
        bytes: interval.bytes,
        requests: interval.requests,
    });
    let live = LiveTrial {
        failure: sample.first_error.map(failure_text),
        damage: damage_text(&sample),
        setup: sample.setup.clone(),
        retries: sample.retries,
        at_once: sample.at_once,
        never_issued: sample.never_issued,
        start_ns: sample.start_ns,
        log_lost: sample.log_lost,
        server: None,
        account: None,
        bounds: Vec::new(),
        simple: None,
        // `log` and `flushes` are large, so they are moved out of the sample below.
        log: Vec::new(),
        flushes: Histogram::default(),
    };
    Trial {
        series: series.collect(),
        errors: sample.errors,
        short_transfers: sample.short_transfers,
        elapsed_ns: sample.elapsed_ns(),
        accepted_ns: sample.accepted_after_ns(),
        full_queue: sample.full_queue.map(|full| FullQueue {
            start_ns: full.start_ns.saturating_sub(sample.start_ns),
            end_ns: full.end_ns.saturating_sub(sample.start_ns),
            ..full
        }),
        submit_calls: sample.submit_calls,
        reap_calls: sample.reap_calls,
        cpu: sample.cpu,
        device: sample.device,
        directions: sample.operations.map(|operation| Direction {
            bytes: operation.bytes,
            requests: operation.requests,
            latency: operation.latency,
        }),
        live: Some(Box::new(LiveTrial { log: sample.log, flushes: sample.flushes, ..live })),
        ..Trial::default()
    }
}

/// Describes a failed request, with the remedy if one is known.
fn failure_text(failure: Failure) -> String {
    let op = if failure.op == Op::Read { "reading" } else { "writing" };
    let offset = failure.offset;
    if failure.errno == 0 {
        return format!(
            "{op} at offset {offset}: unexpected end of the target; it shrank during the \
             measurement"
        );
    }
    let cause = ioengine::error::cause(&std::io::Error::from_raw_os_error(failure.errno));
    let remedy = match failure.errno {
        libc::ENOSPC => "; free space, or use a smaller --size",
        libc::EDQUOT => "; raise the quota of this user, project or subvolume, or free space in it",
        libc::EROFS => "; the file system is read-only, or became read-only during the run",
        libc::EFBIG => "; raise the file-size limit (ulimit -f), or use a smaller --size",
        libc::EIO => "; the device reports an I/O error: look at the kernel log (dmesg)",
        libc::ENODATA | libc::EREMOTEIO | libc::ENOLINK | libc::EBADE | libc::EILSEQ => {
            "; look at the kernel log (dmesg) and at the health of the drive (smartctl -a)"
        }
        libc::EAGAIN | libc::EINTR => {
            "; the request was refused even after many retries: use a smaller --iodepth, or look \
             at the kernel log (dmesg)"
        }
        libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ENXIO => {
            "; the device disappeared: look at the kernel log (dmesg)"
        }
        libc::EINVAL => "; the target does not accept this request: check --bs and --direct",
        _ => "",
    };
    format!("{op} at offset {offset}: {cause}{remedy}")
}

fn damage_text(sample: &Sample) -> Option<String> {
    let first = sample.first_damage?;
    let (damaged, checked) = (sample.damaged_blocks, sample.verified_blocks);
    Some(format!(
        "verification failed: {damaged} of {checked} blocks are damaged; the first: {first}"
    ))
}

/// A finding of a survey or study, as stored in the database.
#[derive(Clone, Debug, Deserialize)]
pub struct StoredFinding {
    /// Identifier of the finding.
    pub id: String,
    /// The finding as a sentence.
    pub text: String,
}

/// Reads the findings from the JSON that a survey, a study or an import stored with its run. Empty
/// if the run has no findings.
pub fn stored_findings(findings_json: Option<&str>) -> Vec<StoredFinding> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Kept {
        findings: Vec<StoredFinding>,
    }
    let kept = findings_json.and_then(|json| serde_json::from_str::<Kept>(json).ok());
    kept.unwrap_or_default().findings
}

fn state_row(state: State) -> results::Verdict {
    match state {
        State::Valid => results::Verdict::Valid,
        State::Suspect => results::Verdict::Suspect,
        State::Invalid => results::Verdict::Invalid,
    }
}

/// Converts a verdict into its database column and the JSON list of its reasons.
pub fn verdict_row(verdict: &Verdict) -> (results::Verdict, String) {
    (state_row(verdict.state), serde_json::to_string(&verdict.reasons).unwrap_or_default())
}

/// Converts the verdict of a point into database columns.
pub fn point_end(verdict: Option<&Verdict>) -> PointEnd {
    let (word, reasons) = verdict.map(verdict_row).unzip();
    PointEnd { verdict: word, verdict_reasons_json: reasons.unwrap_or_else(|| "[]".to_owned()) }
}

fn verdict_of(verdict: results::Verdict, reasons_json: &str) -> Verdict {
    let state = match verdict {
        results::Verdict::Valid => State::Valid,
        results::Verdict::Suspect => State::Suspect,
        results::Verdict::Invalid => State::Invalid,
    };
    Verdict { state, reasons: serde_json::from_str(reasons_json).unwrap_or_default() }
}

/// Converts a trial into its row, the rows of its latency histograms, and the rows of its time
/// series.
pub fn trial_rows(trial: &Trial) -> (TrialRow, Vec<LatencyRow>, Vec<SeriesRow>) {
    let latency = trial.latency();
    let quantile = |q| latency.quantile(q).unwrap_or(0);
    let [reads, writes] = &trial.directions;
    let device = trial.device;
    let (verdict, verdict_reasons_json) = verdict_row(&trial.verdict);
    let row = TrialRow {
        ordinal: trial.ordinal,
        started_unix_ns: trial.started_unix_ns,
        soaked: trial.soaked,
        bytes: trial.bytes(),
        requests: trial.requests(),
        errors: trial.errors,
        short_transfers: trial.short_transfers,
        read_bytes: reads.bytes,
        read_requests: reads.requests,
        write_bytes: writes.bytes,
        write_requests: writes.requests,
        elapsed_ns: trial.elapsed_ns,
        accepted_ns: trial.accepted_ns,
        full_queue_start_ns: trial.full_queue.map(|full| full.start_ns),
        full_queue_end_ns: trial.full_queue.map(|full| full.end_ns),
        full_queue_bytes_per_s: trial.full_queue.map(|full| full.bytes_per_s),
        full_queue_requests_per_s: trial.full_queue.map(|full| full.requests_per_s),
        latency_mean_ns: latency.mean().unwrap_or(0.0) as u64,
        latency_min_ns: latency.min().unwrap_or(0),
        latency_p50_ns: quantile(0.5),
        latency_p90_ns: quantile(0.9),
        latency_p99_ns: quantile(0.99),
        latency_p99_9_ns: quantile(0.999),
        latency_max_ns: latency.max().unwrap_or(0),
        submit_calls: trial.submit_calls,
        reap_calls: trial.reap_calls,
        cpu_process_ns: trial.cpu.process_ns,
        cpu_user_ns: trial.cpu.user_ns,
        cpu_system_ns: trial.cpu.system_ns,
        cpu_machine_ns: trial.cpu.machine_ns,
        cpu_soaker_ns: trial.soaker_ns,
        instructions: trial.cpu.instructions,
        cycles: trial.cpu.cycles,
        device_reads: device.map(|d| d.reads),
        device_read_merges: device.map(|d| d.read_merges),
        device_read_sectors: device.map(|d| d.read_sectors),
        device_writes: device.map(|d| d.writes),
        device_write_merges: device.map(|d| d.write_merges),
        device_write_sectors: device.map(|d| d.write_sectors),
        resident_before_bytes: trial.scrub.and_then(|s| s.resident_before_bytes),
        resident_after_bytes: trial.scrub.and_then(|s| s.resident_after_bytes),
        verdict,
        verdict_reasons_json,
        ranks_json: (!trial.ranks.is_empty())
            .then(|| serde_json::to_string(&trial.ranks).unwrap_or_default()),
    };
    (row, latency_rows(trial), series_rows(trial))
}

fn latency_rows(trial: &Trial) -> Vec<LatencyRow> {
    let mut rows = Vec::new();
    for (op, operation) in [(Op::Read, Operation::Read), (Op::Write, Operation::Write)] {
        let buckets = trial.directions[op as usize].latency.buckets();
        rows.extend(buckets.map(|bucket| LatencyRow {
            operation,
            low_ns: bucket.low_ns,
            high_ns: bucket.high_ns,
            count: bucket.count,
        }));
    }
    rows
}

fn series_rows(trial: &Trial) -> Vec<SeriesRow> {
    let row = |(ordinal, point): (usize, &SeriesPoint)| SeriesRow {
        ordinal: ordinal as u32,
        start_ns: point.start_ns,
        length_ns: point.length_ns,
        bytes: point.bytes,
        requests: point.requests,
    };
    trial.series.iter().enumerate().map(row).collect()
}

/// Converts rows into a trial. A trial row has one minimum, maximum and mean latency for reads and
/// writes together. The histogram gets these values only if all requests are reads or all are
/// writes. Otherwise they are computed from the buckets.
pub fn trial_of(row: &TrialRow, latency: &[LatencyRow], series: &[SeriesRow]) -> Trial {
    let direction = |operation: Operation, bytes, requests| Direction {
        bytes,
        requests,
        latency: histogram_of(row, latency, operation),
    };
    let rates = (row.full_queue_bytes_per_s, row.full_queue_requests_per_s);
    let device = row.device_reads.map(|reads| DeviceCounters {
        reads,
        read_merges: row.device_read_merges.unwrap_or(0),
        read_sectors: row.device_read_sectors.unwrap_or(0),
        writes: row.device_writes.unwrap_or(0),
        write_merges: row.device_write_merges.unwrap_or(0),
        write_sectors: row.device_write_sectors.unwrap_or(0),
    });
    Trial {
        ordinal: row.ordinal,
        started_unix_ns: row.started_unix_ns,
        soaked: row.soaked,
        directions: [
            direction(Operation::Read, row.read_bytes, row.read_requests),
            direction(Operation::Write, row.write_bytes, row.write_requests),
        ],
        errors: row.errors,
        short_transfers: row.short_transfers,
        elapsed_ns: row.elapsed_ns,
        accepted_ns: row.accepted_ns,
        full_queue: full_queue_of(row.full_queue_start_ns, row.full_queue_end_ns, rates),
        submit_calls: row.submit_calls,
        reap_calls: row.reap_calls,
        cpu: CpuUsage {
            elapsed_ns: row.elapsed_ns,
            process_ns: row.cpu_process_ns,
            user_ns: row.cpu_user_ns,
            system_ns: row.cpu_system_ns,
            machine_ns: row.cpu_machine_ns,
            instructions: row.instructions,
            cycles: row.cycles,
            ..CpuUsage::default()
        },
        soaker_ns: row.cpu_soaker_ns,
        device,
        scrub: row.resident_before_bytes.map(|_| Scrub {
            resident_before_bytes: row.resident_before_bytes,
            resident_after_bytes: row.resident_after_bytes,
            dropped_all_caches: false,
        }),
        series: series
            .iter()
            .map(|point| SeriesPoint {
                start_ns: point.start_ns,
                length_ns: point.length_ns,
                bytes: point.bytes,
                requests: point.requests,
            })
            .collect(),
        ranks: row
            .ranks_json
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default(),
        percentiles: None,
        verdict: verdict_of(row.verdict, &row.verdict_reasons_json),
        live: None,
    }
}

/// Creates a trial from the columns that comparisons need. Its histograms and time series are
/// empty.
pub fn trial_of_rates(row: &TrialRates) -> Trial {
    let direction = |bytes, requests| Direction { bytes, requests, ..Direction::default() };
    let rates = (row.full_queue_bytes_per_s, row.full_queue_requests_per_s);
    Trial {
        started_unix_ns: row.started_unix_ns,
        soaked: row.soaked,
        directions: [
            direction(row.read_bytes, row.read_requests),
            direction(row.write_bytes, row.write_requests),
        ],
        elapsed_ns: row.elapsed_ns,
        accepted_ns: row.accepted_ns,
        full_queue: full_queue_of(row.full_queue_start_ns, row.full_queue_end_ns, rates),
        cpu: CpuUsage { process_ns: row.cpu_process_ns, ..CpuUsage::default() },
        percentiles: Some(Percentiles {
            p50_ns: row.latency_p50_ns,
            p99_ns: row.latency_p99_ns,
            p99_9_ns: row.latency_p99_9_ns,
        }),
        verdict: verdict_of(row.verdict, &row.verdict_reasons_json),
        ..Trial::default()
    }
}

fn full_queue_of(
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    (bytes_per_s, requests_per_s): (Option<f64>, Option<f64>),
) -> Option<FullQueue> {
    Some(FullQueue {
        start_ns: start_ns?,
        end_ns: end_ns?,
        bytes_per_s: bytes_per_s?,
        requests_per_s: requests_per_s?,
    })
}

fn histogram_of(row: &TrialRow, rows: &[LatencyRow], operation: Operation) -> Histogram {
    let mine = || rows.iter().filter(|bucket| bucket.operation == operation);
    let count = mine().map(|bucket| bucket.count).fold(0, u64::saturating_add);
    let exact = (count == row.requests && count > 0).then(|| Exact {
        overflow: 0,
        min_ns: row.latency_min_ns,
        max_ns: row.latency_max_ns,
        sum_ns: u128::from(row.latency_mean_ns) * u128::from(count),
    });
    let buckets = || mine().map(|bucket| (bucket.low_ns, bucket.count));
    // If the stored minimum and maximum contradict the buckets, the histogram is built from the
    // buckets alone.
    Histogram::from_buckets(buckets(), exact)
        .or_else(|_| Histogram::from_buckets(buckets(), None))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::testing::point;
    use crate::rank_trial::RankTrial;

    #[test]
    fn a_trial_survives_the_conversion_to_rows_and_back() {
        let mut trial = point(&[4096 * 50]).trials.remove(0);
        trial.directions[0].latency.record_n(12_345, 50);
        trial.soaked = true;
        trial.soaker_ns = Some(77);
        trial.verdict.add(State::Suspect, "drift");
        trial.ranks.push(RankTrial { rank: 3, host: "b".to_owned(), ..RankTrial::default() });
        trial.series.push(SeriesPoint { start_ns: 0, length_ns: 100, bytes: 4096, requests: 1 });
        let (row, latency, series) = trial_rows(&trial);
        let back = trial_of(&row, &latency, &series);
        assert_eq!(back.bytes(), trial.bytes());
        assert_eq!(back.latency().quantile(0.5), trial.latency().quantile(0.5));
        assert_eq!(back.latency().mean(), Some(12_345.0));
        assert_eq!((back.soaker_ns, back.soaked), (Some(77), true));
        assert_eq!(back.verdict, trial.verdict);
        assert_eq!(back.series, trial.series);
        assert_eq!(back.ranks, trial.ranks);
    }

    #[test]
    fn buckets_that_count_more_than_a_number_holds_are_read_without_overflow() {
        let mut trial = point(&[4096]).trials.remove(0);
        trial.directions[0].latency.record_n(12_345, 1);
        let (row, latency, _) = trial_rows(&trial);
        let full = LatencyRow { count: u64::MAX, ..latency[0].clone() };
        let back = trial_of(&row, &[full.clone(), full], &[]);
        assert_eq!(back.latency().count(), 0, "minimum and maximum contradict the buckets");
    }
}
