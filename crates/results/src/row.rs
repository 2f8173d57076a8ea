//! A struct for the rows of each table, and enums for columns that contain one of a few words.
//!
//! The fields of a struct have the names of the columns. The macro `row!` generates the code that
//! writes and reads them. The columns are described here and in the migration that creates them.

use std::fmt;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// A struct whose fields are columns of one database table.
pub(crate) trait Columns: Sized {
    /// The names of the columns, in the order of [`Columns::values`].
    const COLUMNS: &'static [&'static str];

    /// Returns the field values as SQL parameters, in the order of [`Columns::COLUMNS`].
    fn values(&self) -> Vec<&dyn ToSql>;

    /// Reads each field from the column of the same name.
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self>;

    /// Reads the fields from consecutive columns in the order of [`Columns::COLUMNS`], starting at
    /// the column with index `first`. This is much faster than reading by name.
    fn read_from(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<Self>;
}

macro_rules! row {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        impl Columns for $name {
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),+];

            fn values(&self) -> Vec<&dyn ToSql> {
                vec![$(&self.$field),+]
            }

            fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
                Ok(Self { $($field: row.get(stringify!($field))?,)+ })
            }

            fn read_from(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<Self> {
                let mut columns = first..;
                let mut next = || columns.next().unwrap_or(usize::MAX);
                Ok(Self { $($field: row.get(next())?,)+ })
            }
        }
    };
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                self.0.to_sql()
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                i64::column_result(value).map(Self)
            }
        }
    };
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$word_doc:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$word_doc])* $variant,)+
        }

        impl $name {
            /// Returns the word that the database stores for this value.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.as_str().into())
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                match value.as_str()? {
                    $($word => Ok(Self::$variant),)+
                    other => Err(unknown_text(stringify!($name), other)),
                }
            }
        }
    };
}

fn unknown_text(what: &str, text: &str) -> FromSqlError {
    FromSqlError::Other(format!("{text:?} is not a {what}").into())
}

id! {
    /// The number of a run. It is unique in its database and never reused.
    RunId
}

id! {
    /// The number of a point. It is unique in its database.
    PointId
}

id! {
    /// The number of a trial. It is unique in its database.
    TrialId
}

/// The seed of a random number generator. It is stored as decimal text, because SQLite's integers
/// are signed and a seed uses all 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

impl ToSql for Seed {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.to_string().into())
    }
}

impl FromSql for Seed {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text = value.as_str()?;
        text.parse().map(Self).map_err(|_| unknown_text("seed", text))
    }
}

words! {
    /// The command that made a run. A new variant requires a new schema version. An older program
    /// then reports that the database is newer, instead of an unknown kind of run.
    RunKind {
        /// The run of a single workload.
        Run = "run",
        /// A survey, which measures a target with many workloads.
        Survey = "survey",
        /// A sweep, which varies several settings of a workload.
        Sweep = "sweep",
        /// An experiment from one of the papers or from a user's plan.
        Study = "study",
        /// Imported results of another tool.
        Import = "import",
    }
}

words! {
    /// The state of a run.
    RunState {
        /// The run is in progress, or its process died.
        Running = "running",
        /// The run completed.
        Finished = "finished",
        /// The user or a crash stopped the run. Its stored trials are valid.
        Interrupted = "interrupted",
        /// An error stopped the run.
        Failed = "failed",
    }
}

words! {
    /// Whether a result can be trusted.
    Verdict {
        /// The intended workload was measured, and the result is steady.
        Valid = "valid",
        /// The intended workload was measured, but with noise, drift or throttling.
        Suspect = "suspect",
        /// Something other than the intended workload was measured.
        Invalid = "invalid",
    }
}

words! {
    /// The direction of requests.
    Operation {
        /// Only reads.
        Read = "read",
        /// Only writes.
        Write = "write",
        /// A mix of reads and writes. Only points have this value, never latency rows.
        Mix = "mix",
    }
}

row! {
    /// The facts known at the start of a run: settings, target, host and process.
    NewRun {
        /// Unique identifier of the run. It is the same in every copy of the database.
        uuid: String,
        /// The command that made the run.
        kind: RunKind,
        /// The command line that started the run.
        command_line: String,
        /// The user's label. None if the run has no label.
        label: Option<String>,
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// Version of the program that made the run.
        version: String,
        /// Version of the JSON format that the program writes.
        schema: u32,
        /// The seed from which all random choices of the run are generated.
        seed: Seed,
        /// Process id of the program that performs the run.
        pid: u32,
        /// Boot id of the machine during the run (`/proc/sys/kernel/random/boot_id`). If it has
        /// changed, `pid` no longer identifies the process of the run.
        boot_id: String,
        /// Facts about the host (kernel, CPU, governor ...), as JSON.
        host_json: String,
        /// Facts about the target (file system, device, scheduler, write cache ...), as JSON.
        target_json: String,
        /// All settings of the run, both explicit settings and defaults, as JSON.
        settings_json: String,
    }
}

row! {
    /// The verdict on a point, which is stored at the end of its run.
    PointEnd {
        /// Whether the point can be trusted. None if nothing was measured or the run continues.
        verdict: Option<Verdict>,
        /// The reasons for the verdict, as a JSON list of strings.
        verdict_reasons_json: String,
    }
}

row! {
    /// The facts known at the end of a run: state, end time, findings and verdict.
    RunEnd {
        /// Final state of the run: any state except [`RunState::Running`].
        state: RunState,
        /// End time, in nanoseconds since 1970-01-01 UTC.
        finished_unix_ns: i64,
        /// The findings of the run's analysis, as JSON. None if the run has no findings.
        findings_json: Option<String>,
        /// Whether the run can be trusted. None if nothing was measured.
        verdict: Option<Verdict>,
        /// The reasons for the verdict, as a JSON list of strings.
        verdict_reasons_json: String,
    }
}

row! {
    /// A stored run, with the fields of [`NewRun`] and [`RunEnd`].
    RunRow {
        /// Run number.
        id: RunId,
        /// Unique identifier of the run. It is the same in every copy of the database.
        uuid: String,
        /// The command that made the run.
        kind: RunKind,
        /// The command line that started the run.
        command_line: String,
        /// The user's label. None if the run has no label.
        label: Option<String>,
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// End time, in nanoseconds since 1970-01-01 UTC. None while the run is in progress or if
        /// its process died.
        finished_unix_ns: Option<i64>,
        /// State of the run.
        state: RunState,
        /// Version of the program that made the run.
        version: String,
        /// Version of the JSON format that the program writes.
        schema: u32,
        /// The seed from which all random choices of the run are generated.
        seed: Seed,
        /// Process id of the program that performs the run.
        pid: u32,
        /// Boot id of the machine during the run.
        boot_id: String,
        /// Facts about the host (kernel, CPU, governor ...), as JSON.
        host_json: String,
        /// Facts about the target (file system, device, scheduler, write cache ...), as JSON.
        target_json: String,
        /// All settings of the run, both explicit settings and defaults, as JSON.
        settings_json: String,
        /// The findings of the run's analysis, as JSON. None if the run has no findings.
        findings_json: Option<String>,
        /// Whether the run can be trusted. None until the run ends, or if nothing was measured.
        verdict: Option<Verdict>,
        /// The reasons for the verdict, as a JSON list of strings.
        verdict_reasons_json: String,
        /// The user's note. None if the run has no note.
        note: Option<String>,
    }
}

row! {
    /// The columns of [`RunRow`] that show when and where a run was made.
    RunHead {
        /// Run number.
        id: RunId,
        /// Unique identifier of the run. It is the same in every copy of the database.
        uuid: String,
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// Version of the program that made the run.
        version: String,
        /// Facts about the host (kernel, CPU, governor ...), as JSON.
        host_json: String,
        /// Facts about the target (file system, device, scheduler, write cache ...), as JSON.
        target_json: String,
    }
}

row! {
    /// The columns of [`RunRow`] that a list of runs shows. Settings and findings are not included,
    /// because they may be large.
    RunBrief {
        /// Run number.
        id: RunId,
        /// The command that made the run.
        kind: RunKind,
        /// The command line that started the run.
        command_line: String,
        /// The user's label. None if the run has no label.
        label: Option<String>,
        /// The user's note. None if the run has no note.
        note: Option<String>,
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// State of the run.
        state: RunState,
        /// Whether the run can be trusted. None until the run ends, or if nothing was measured.
        verdict: Option<Verdict>,
        /// Facts about the host (kernel, CPU, governor ...), as JSON.
        host_json: String,
        /// Facts about the target (file system, device, scheduler, write cache ...), as JSON.
        target_json: String,
    }
}

row! {
    /// The origin of an imported run.
    OriginRow {
        /// The tool with its version, such as `fio-3.33`.
        tool: String,
        /// Format of the imported file, such as `fio-json`.
        format: String,
        /// Path of the imported file, as specified by the user.
        file: String,
        /// Quantities that the tool did not report, as a JSON list of strings.
        missing_json: String,
        /// The output of the tool.
        document: String,
    }
}

row! {
    /// A point: one workload of a run, with the values of all its settings.
    PointRow {
        /// Index of the point in the run's plan, from 0. It is unique in the run.
        ordinal: u32,
        /// The value of fio's option `rw` for this workload: `read`, `randwrite`, `randrw` ...
        rw: String,
        /// Direction of the workload's requests.
        operation: Operation,
        /// Access pattern: `sequential`, `random` ...
        pattern: String,
        /// Request size in bytes.
        request_bytes: u64,
        /// Queue depth of each thread: the number of requests that it keeps in flight.
        depth: u32,
        /// Number of threads that issue requests.
        threads: u32,
        /// Name of the I/O engine.
        ioengine: String,
        /// The caching mode: `buffered`, `direct` ...
        caching: String,
        /// Size of the part of the target that the workload accesses (bytes).
        size_bytes: u64,
        /// Share of reads, in percent.
        read_percent: u32,
        /// Request rate of an open-loop workload. None for a closed-loop workload.
        rate_requests_per_s: Option<f64>,
        /// The seed from which the workload's offsets and data are generated.
        seed: Seed,
        /// The whole workload, as JSON.
        workload_json: String,
    }
}

row! {
    /// One timed execution of a point. A value that was not measured is None.
    TrialRow {
        /// Index of the trial in its point, from 0. It is unique in the point.
        ordinal: u32,
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// Whether a soaker ran during the trial. A soaker uses all idle CPU time at the lowest
        /// priority. The CPU time that it loses is an upper bound of the CPU cost of the trial.
        soaked: bool,
        /// Number of bytes transferred in the trial.
        bytes: u64,
        /// Number of requests completed.
        requests: u64,
        /// Number of requests that failed.
        errors: u64,
        /// Number of requests that transferred fewer bytes than requested.
        short_transfers: u64,
        /// Number of bytes read in the trial.
        read_bytes: u64,
        /// Number of read requests completed.
        read_requests: u64,
        /// Number of bytes written in the trial.
        write_bytes: u64,
        /// Number of write requests completed.
        write_requests: u64,
        /// Time from the first submission to the end of the trial, including the final flush if
        /// there is one.
        elapsed_ns: u64,
        /// For buffered writes: time from the first submission until the page cache accepted the
        /// last write.
        accepted_ns: Option<u64>,
        /// Mean latency. All latencies are 0 if no request completed.
        latency_mean_ns: u64,
        /// Minimum latency.
        latency_min_ns: u64,
        /// Median latency.
        latency_p50_ns: u64,
        /// 90th percentile of latency.
        latency_p90_ns: u64,
        /// 99th percentile of latency.
        latency_p99_ns: u64,
        /// 99.9th percentile of latency.
        latency_p99_9_ns: u64,
        /// Maximum latency.
        latency_max_ns: u64,
        /// Number of calls of the I/O engine that submitted requests. The mean batch size is
        /// `requests / submit_calls`.
        submit_calls: u64,
        /// Number of calls of the I/O engine that returned completions.
        reap_calls: u64,
        /// CPU time that the kernel charged to the process. It is a lower bound on the CPU cost.
        cpu_process_ns: u64,
        /// User time, which is part of `cpu_process_ns`.
        cpu_user_ns: u64,
        /// System time, which is part of `cpu_process_ns`.
        cpu_system_ns: u64,
        /// Busy time of all CPUs of the machine.
        cpu_machine_ns: Option<u64>,
        /// CPU time that the soaker (see `soaked`) lost during the trial, minus the background
        /// load. It is an upper bound on the CPU cost.
        cpu_soaker_ns: Option<u64>,
        /// Number of instructions that the process retired.
        instructions: Option<u64>,
        /// Number of CPU cycles of the process.
        cycles: Option<u64>,
        /// Number of reads that the block device completed. All `device_` fields are from
        /// `/sys/block/*/stat`.
        device_reads: Option<u64>,
        /// Number of reads that were merged before they reached the device.
        device_read_merges: Option<u64>,
        /// Number of sectors of 512 bytes read from the device.
        device_read_sectors: Option<u64>,
        /// Number of writes that the block device completed.
        device_writes: Option<u64>,
        /// Number of writes that were merged before they reached the device.
        device_write_merges: Option<u64>,
        /// Number of sectors of 512 bytes written to the device.
        device_write_sectors: Option<u64>,
        /// Number of bytes of the target in the page cache before the trial.
        resident_before_bytes: Option<u64>,
        /// Number of bytes of the target in the page cache after the trial.
        resident_after_bytes: Option<u64>,
        /// Whether the trial can be trusted.
        verdict: Verdict,
        /// The reasons for the verdict, as a JSON list of strings.
        verdict_reasons_json: String,
        /// Start of the period in which the queue was full, as time since the start of the trial.
        /// The period does not start before the number of completed requests has reached the
        /// capacity of the queue. None if there was no such period, for example in an open loop.
        full_queue_start_ns: Option<u64>,
        /// End of the period in which the queue was full, as time since the start of the trial. The
        /// queue drains afterwards.
        full_queue_end_ns: Option<u64>,
        /// Throughput while the queue was full.
        full_queue_bytes_per_s: Option<f64>,
        /// Request rate while the queue was full.
        full_queue_requests_per_s: Option<f64>,
        /// Results of each rank (MPI process), as a JSON list. None for a trial of one process.
        ranks_json: Option<String>,
    }
}

row! {
    /// The columns of [`TrialRow`] that comparisons need.
    TrialRates {
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// Whether a soaker ran during the trial. A soaker uses all idle CPU time at the lowest
        /// priority. The CPU time that it loses is an upper bound of the CPU cost of the trial.
        soaked: bool,
        /// Number of bytes read in the trial.
        read_bytes: u64,
        /// Number of read requests completed.
        read_requests: u64,
        /// Number of bytes written in the trial.
        write_bytes: u64,
        /// Number of write requests completed.
        write_requests: u64,
        /// Time from the first submission to the end of the trial, including the final flush if
        /// there is one.
        elapsed_ns: u64,
        /// For buffered writes: time from the first submission until the page cache accepted the
        /// last write.
        accepted_ns: Option<u64>,
        /// Median latency.
        latency_p50_ns: u64,
        /// 99th percentile of latency.
        latency_p99_ns: u64,
        /// 99.9th percentile of latency.
        latency_p99_9_ns: u64,
        /// CPU time that the kernel charged to the process.
        cpu_process_ns: u64,
        /// Whether the trial can be trusted.
        verdict: Verdict,
        /// The reasons for the verdict, as a JSON list of strings.
        verdict_reasons_json: String,
        /// Start of the period in which the queue was full.
        full_queue_start_ns: Option<u64>,
        /// End of the period in which the queue was full.
        full_queue_end_ns: Option<u64>,
        /// Throughput while the queue was full.
        full_queue_bytes_per_s: Option<f64>,
        /// Request rate while the queue was full.
        full_queue_requests_per_s: Option<f64>,
    }
}

row! {
    /// A bucket of a trial's latency histogram. Empty buckets are not stored.
    LatencyRow {
        /// Direction of the requests: [`Operation::Read`] or [`Operation::Write`].
        operation: Operation,
        /// Lowest latency in the bucket.
        low_ns: u64,
        /// Highest latency in the bucket.
        high_ns: u64,
        /// Number of requests in the bucket.
        count: u64,
    }
}

row! {
    /// One interval of a trial, with the requests that completed in this interval.
    SeriesRow {
        /// Index of the interval in the trial, from 0.
        ordinal: u32,
        /// Start of the interval, as time since the start of the trial.
        start_ns: u64,
        /// Length of the interval.
        length_ns: u64,
        /// Number of bytes transferred in the interval.
        bytes: u64,
        /// Number of requests completed in the interval.
        requests: u64,
    }
}
