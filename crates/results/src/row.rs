//! The rows of the schema, as flat structs of numbers and text, and the words that its columns
//! may hold.
//!
//! Each row struct is written once: the macro derives from its fields the names of the columns
//! and how they are bound and read, so that the three cannot disagree. Rows carry no behaviour
//! and check nothing; what the columns mean is said here and in the migration that makes them.

use std::fmt;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// A struct whose fields are columns of one table.
pub(crate) trait Columns: Sized {
    /// The names of the columns, in the order of [`Columns::values`].
    const COLUMNS: &'static [&'static str];

    /// The fields, ready to be bound.
    fn values(&self) -> Vec<&dyn ToSql>;

    /// Takes the fields by name from a row that has all [`Columns::COLUMNS`].
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self>;
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
            /// The word as it stands in the database.
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
    FromSqlError::Other(format!("{text:?} is no {what}").into())
}

id! {
    /// The number of a run, unique in its database for ever.
    RunId
}

id! {
    /// The number of a point, unique in its database.
    PointId
}

id! {
    /// The number of a trial, unique in its database.
    TrialId
}

/// The seed of a random generator. Stored as decimal text, because SQLite's integers are signed
/// and a seed uses all 64 bits.
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
    /// What made a run. A new word is a new schema version, so that an older program says that
    /// the database is newer instead of stumbling over it.
    RunKind {
        /// One workload.
        Run = "run",
        /// The whole characterisation of a target.
        Survey = "survey",
        /// The product of several axes.
        Sweep = "sweep",
        /// One experiment of the papers, or of a user's plan.
        Study = "study",
    }
}

words! {
    /// How far a run has come.
    RunState {
        /// Still measuring, or left behind by a process that died.
        Running = "running",
        /// Came to its end.
        Finished = "finished",
        /// Stopped by the user or by a crash; its trials count.
        Interrupted = "interrupted",
        /// Stopped by an error.
        Failed = "failed",
    }
}

words! {
    /// Whether a result can be trusted.
    Verdict {
        /// The intended thing was measured, steadily.
        Valid = "valid",
        /// The intended thing was measured, but noise, drift or throttling is in it.
        Suspect = "suspect",
        /// The wrong thing was measured.
        Invalid = "invalid",
    }
}

words! {
    /// What requests do.
    Operation {
        /// They read.
        Read = "read",
        /// They write.
        Write = "write",
        /// Some read and some write; only points have it, never a latency row.
        Mix = "mix",
    }
}

row! {
    /// A run as it begins: what is asked, of what, on which host, by which process.
    NewRun {
        /// Identifies the run in every database it is copied to.
        uuid: String,
        /// What made it.
        kind: RunKind,
        /// The command as the user gave it.
        command_line: String,
        /// The user's own name for it.
        label: Option<String>,
        /// When it began, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// Version of the program.
        version: String,
        /// Version of the program's JSON output.
        schema: u32,
        /// The seed from which all its random choices follow.
        seed: Seed,
        /// The process that measures.
        pid: u32,
        /// The boot in which that process lives (`/proc/sys/kernel/random/boot_id`).
        boot_id: String,
        /// Kernel, CPU, governor and the like, as JSON.
        host_json: String,
        /// File system, device, scheduler, write cache and the like, as JSON.
        target_json: String,
        /// Everything that was asked for or chosen by default, as JSON.
        settings_json: String,
    }
}

row! {
    /// What the trials of a point say together, once its run is over.
    PointEnd {
        /// Whether it can be trusted; `None` if nothing was measured, and until the run is over.
        verdict: Option<Verdict>,
        /// Why, as a JSON list of strings.
        verdict_reasons_json: String,
    }
}

row! {
    /// What is known of a run once it is over.
    RunEnd {
        /// How it ended: any state but [`RunState::Running`].
        state: RunState,
        /// When it ended, in nanoseconds since 1970-01-01 UTC.
        finished_unix_ns: i64,
        /// What its analysis found, as JSON.
        findings_json: Option<String>,
        /// Whether it can be trusted; `None` if nothing was measured.
        verdict: Option<Verdict>,
        /// Why, as a JSON list of strings.
        verdict_reasons_json: String,
    }
}

row! {
    /// A stored run: the fields of [`NewRun`], and those of [`RunEnd`] as far as it has come.
    RunRow {
        /// Its number.
        id: RunId,
        /// Identifies the run in every database it is copied to.
        uuid: String,
        /// What made it.
        kind: RunKind,
        /// The command as the user gave it.
        command_line: String,
        /// The user's own name for it.
        label: Option<String>,
        /// When it began, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// When it ended; `None` while it runs and when its process died.
        finished_unix_ns: Option<i64>,
        /// How far it has come.
        state: RunState,
        /// Version of the program.
        version: String,
        /// Version of the program's JSON output.
        schema: u32,
        /// The seed from which all its random choices follow.
        seed: Seed,
        /// The process that measures or measured.
        pid: u32,
        /// The boot in which that process lives or lived.
        boot_id: String,
        /// Kernel, CPU, governor and the like, as JSON.
        host_json: String,
        /// File system, device, scheduler, write cache and the like, as JSON.
        target_json: String,
        /// Everything that was asked for or chosen by default, as JSON.
        settings_json: String,
        /// What its analysis found, as JSON.
        findings_json: Option<String>,
        /// Whether it can be trusted; `None` until it ends.
        verdict: Option<Verdict>,
        /// Why, as a JSON list of strings.
        verdict_reasons_json: String,
    }
}

row! {
    /// One workload of a run, resolved: what its trials execute.
    PointRow {
        /// Its place in the run's plan, from 0; unique in the run.
        ordinal: u32,
        /// The workload's fio name: `read`, `randwrite`, `randrw` ...
        rw: String,
        /// What its requests do.
        operation: Operation,
        /// The order of its offsets: `sequential`, `random` ...
        pattern: String,
        /// Bytes in each request.
        request_bytes: u64,
        /// Requests outstanding per thread.
        depth: u32,
        /// Threads that issue requests.
        threads: u32,
        /// The I/O engine: how requests are issued.
        ioengine: String,
        /// The caching mode: `buffered`, `direct` ...
        caching: String,
        /// Bytes of the target that are used.
        size_bytes: u64,
        /// Share of requests that read, in percent.
        read_percent: u32,
        /// The rate of an open loop; `None` for a closed one.
        rate_requests_per_s: Option<f64>,
        /// The seed of its offsets and data.
        seed: Seed,
        /// The whole workload, as JSON.
        workload_json: String,
    }
}

row! {
    /// One timed execution of a point. `None` means that it was not measured here.
    TrialRow {
        /// Its place among the trials of its point, from 0; unique in the point.
        ordinal: u32,
        /// When it began, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// Whether the soaker ran beside it.
        soaked: bool,
        /// Bytes transferred.
        bytes: u64,
        /// Requests completed.
        requests: u64,
        /// Requests that failed.
        errors: u64,
        /// Requests that transferred less than asked.
        short_transfers: u64,
        /// Bytes read.
        read_bytes: u64,
        /// Requests that read.
        read_requests: u64,
        /// Bytes written.
        write_bytes: u64,
        /// Requests that wrote.
        write_requests: u64,
        /// From the first submission to the end of the close-time flush.
        elapsed_ns: u64,
        /// Buffered writes: from the first submission to the last accepted write.
        accepted_ns: Option<u64>,
        /// Mean latency; this and the other latencies are 0 when no request completed.
        latency_mean_ns: u64,
        /// Least latency.
        latency_min_ns: u64,
        /// Median latency.
        latency_p50_ns: u64,
        /// Latency not exceeded by 90% of the requests.
        latency_p90_ns: u64,
        /// Latency not exceeded by 99% of the requests.
        latency_p99_ns: u64,
        /// Latency not exceeded by 99.9% of the requests.
        latency_p99_9_ns: u64,
        /// Greatest latency.
        latency_max_ns: u64,
        /// Calls that submitted requests; requests over calls is the mean batch.
        submit_calls: u64,
        /// Calls that reaped completions.
        reap_calls: u64,
        /// CPU time charged to the process: the lower bound of the cost.
        cpu_process_ns: u64,
        /// The part of it spent in user mode.
        cpu_user_ns: u64,
        /// The part of it spent in the kernel.
        cpu_system_ns: u64,
        /// Busy time of all CPUs of the machine.
        cpu_machine_ns: Option<u64>,
        /// CPU time that the soaker lost, background subtracted: the upper bound of the cost.
        cpu_soaker_ns: Option<u64>,
        /// Instructions retired by the process.
        instructions: Option<u64>,
        /// CPU cycles of the process.
        cycles: Option<u64>,
        /// Reads completed by the block device (`/sys/block/*/stat`, as the next five).
        device_reads: Option<u64>,
        /// Reads merged into others before the device.
        device_read_merges: Option<u64>,
        /// Sectors of 512 bytes read from the device.
        device_read_sectors: Option<u64>,
        /// Writes completed by the block device.
        device_writes: Option<u64>,
        /// Writes merged into others before the device.
        device_write_merges: Option<u64>,
        /// Sectors of 512 bytes written to the device.
        device_write_sectors: Option<u64>,
        /// Bytes of the target in the page cache before.
        resident_before_bytes: Option<u64>,
        /// Bytes of the target in the page cache after.
        resident_after_bytes: Option<u64>,
        /// Whether it can be trusted.
        verdict: Verdict,
        /// Why, as a JSON list of strings.
        verdict_reasons_json: String,
        /// Closed loops: when the queue was full and as many requests had completed as it holds,
        /// from the start of the trial on.
        full_queue_start_ns: Option<u64>,
        /// When the last turn of the full queue was over.
        full_queue_end_ns: Option<u64>,
        /// Bytes per second in that time.
        full_queue_bytes_per_s: Option<f64>,
        /// Requests per second in that time.
        full_queue_requests_per_s: Option<f64>,
    }
}

row! {
    /// A non-empty bucket of a trial's latency histogram.
    LatencyRow {
        /// What the requests did: [`Operation::Read`] or [`Operation::Write`].
        operation: Operation,
        /// Least latency that falls into the bucket.
        low_ns: u64,
        /// Greatest latency that falls into the bucket.
        high_ns: u64,
        /// Requests in the bucket.
        count: u64,
    }
}

row! {
    /// What was completed in one interval of a trial.
    SeriesRow {
        /// Its place in the trial, from 0.
        ordinal: u32,
        /// Its start, counted from the start of the trial.
        start_ns: u64,
        /// Its length.
        length_ns: u64,
        /// Bytes transferred.
        bytes: u64,
        /// Requests completed.
        requests: u64,
    }
}
