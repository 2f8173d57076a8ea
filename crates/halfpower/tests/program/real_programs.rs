//! Runs real programs under `halfpower watch`, which must report the behaviour that their
//! documentation describes. If a program is not installed, its test is skipped.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Place, list, or_skip, text, wait_until, whole};
use crate::watch::watching;

/// Number of files in the test tree.
const TREE_FILES: u64 = 60;

/// Checks that `halfpower watch` works here and that these programs are installed.
fn programs(names: &[&str]) -> Result<(), String> {
    watching()?;
    let is_missing = |name: &&&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        !std::env::split_paths(&path).any(|folder| folder.join(name).exists())
    };
    names.iter().find(is_missing).map_or(Ok(()), |name| Err(format!("{name} is not installed")))
}

/// Creates a tree of files of 300 to 60,300 bytes in three directories below `tree`. Returns the
/// total size of the files.
fn tree(place: &Place) -> u64 {
    let mut total = 0;
    for at in 0..TREE_FILES {
        let folder = place.path(&format!("tree/d{}", at % 3));
        fs::create_dir_all(&folder).unwrap();
        let bytes = 300 + at * at * 17;
        let line = format!("file {at} of the tree\n");
        let content: Vec<u8> = line.bytes().cycle().take(bytes as usize).collect();
        fs::write(folder.join(format!("f{at}.txt")), content).unwrap();
        total += bytes;
    }
    total
}

/// Runs a shell command under `halfpower watch` and returns the document.
#[track_caller]
fn watched(place: &Place, command: &str) -> Value {
    fs::write(place.path("script"), command).unwrap();
    let _ = fs::remove_file(place.path("halfpower-trace.parquet"));
    let document = place.does("watch --json --quiet -- sh script").json();
    assert_eq!(list(&document["lost"]), [Value::Null; 0], "{command}");
    document
}

/// Returns the files whose name contains `part`.
fn files<'a>(document: &'a Value, part: &'a str) -> Vec<&'a Value> {
    let all = list(&document["files"]).iter();
    all.filter(|file| text(&file["name"]).contains(part)).collect()
}

/// Returns the files that were read and whose name contains `part`.
fn with_reads<'a>(document: &'a Value, part: &'a str) -> Vec<&'a Value> {
    files(document, part).into_iter().filter(|file| !file["reads"].is_null()).collect()
}

/// Returns the sum of a field over the reads or writes of these files. The field is for example
/// `count`.
fn total(files: &[&Value], direction: &str, field: &str) -> u64 {
    files.iter().filter_map(|file| file[direction][field].as_u64()).sum()
}

fn flushes(files: &[&Value]) -> u64 {
    files.iter().map(|file| whole(&file["flushes"])).sum()
}

/// Returns the request sizes of the reads or writes of these files (bytes).
fn sizes(files: &[&Value], direction: &str) -> Vec<u64> {
    let of = files.iter().filter(|file| !file[direction].is_null());
    let sizes = of.flat_map(|file| list(&file[direction]["sizes"]));
    sizes.map(|size| whole(&size["bytes"])).collect()
}

/// Returns the names of the system calls that issued the requests of an operation.
fn calls<'a>(document: &'a Value, operation: &str) -> Vec<&'a str> {
    let of = list(&document["operations"]).iter().find(|of| text(&of["operation"]) == operation);
    of.map_or(Vec::new(), |of| list(&of["calls"]).iter().map(|call| text(&call["call"])).collect())
}

#[test]
fn dd_reads_and_writes_blocks_of_512_bytes_unless_told_otherwise() {
    or_skip!(programs(&["dd"]));
    let place = Place::new();
    place.file("data", 64 << 10);
    // dd(1): bs=BYTES, "read and write up to BYTES bytes at a time (default: 512)".
    let document = watched(&place, "dd if=data of=copy 2> /dev/null");
    let copy = files(&document, "/copy");
    assert_eq!((sizes(&copy, "writes"), total(&copy, "writes", "count")), (vec![512], 128));
    assert_eq!((total(&copy, "writes", "sequential"), flushes(&copy)), (127, 0));
}

#[test]
fn tar_writes_records_of_10_kib_and_reads_each_file_once() {
    or_skip!(programs(&["tar"]));
    let place = Place::new();
    let bytes = tree(&place);
    // A record is 20 blocks of 512 bytes (GNU tar manual, "Blocking").
    let document = watched(&place, "tar -cf t.tar tree");
    assert_eq!(sizes(&files(&document, "/t.tar"), "writes"), [10_240]);
    let read = with_reads(&document, "/tree/");
    assert_eq!((read.len() as u64, total(&read, "reads", "moved_bytes")), (TREE_FILES, bytes));
    assert_eq!(flushes(&files(&document, "/")), 0, "tar flushes files");
}

#[test]
fn cp_copies_within_the_kernel_or_in_large_blocks() {
    or_skip!(programs(&["cp"]));
    let place = Place::new();
    place.file("data", 3 << 20);
    let document = watched(&place, "cp data copy");
    let copy = files(&document, "/copy");
    assert_eq!(total(&copy, "writes", "moved_bytes"), 3 << 20);
    // Since coreutils 9.0, cp uses copy_file_range(2) if it is available. Otherwise cp copies in
    // blocks of at least 128 KiB (NEWS of coreutils 9.0).
    let is_in_kernel = calls(&document, "write").contains(&"copy_file_range");
    let is_large = sizes(&copy, "writes").iter().all(|bytes| *bytes >= 128 << 10);
    assert!(is_in_kernel || is_large, "{document:#}");
    // The requests do not overlap. A call of copy_file_range(2) counts as one request.
    assert!(document["mean_depth"].as_f64().unwrap() < 1.01, "{document:#}");
}

#[test]
fn grep_reads_every_file_once_in_large_blocks_and_writes_nothing() {
    or_skip!(programs(&["grep"]));
    let place = Place::new();
    let bytes = tree(&place);
    let document = watched(&place, "grep -r nowhere tree || true");
    let read = with_reads(&document, "/tree/");
    assert_eq!((read.len() as u64, total(&read, "reads", "moved_bytes")), (TREE_FILES, bytes));
    assert!(sizes(&read, "reads").iter().any(|bytes| *bytes >= 32 << 10), "{document:#}");
    assert_eq!(total(&read, "writes", "count"), 0);
}

#[test]
fn rsync_writes_temporary_files_beside_their_destination() {
    or_skip!(programs(&["rsync"]));
    let place = Place::new();
    let bytes = tree(&place);
    // By default, rsync writes a new file and renames it (rsync(1), `--inplace`).
    let document = watched(&place, "rsync -a tree/ copy/");
    let written = files(&document, "/copy/");
    assert_eq!(total(&written, "writes", "moved_bytes"), bytes);
    let is_temporary = |file: &&Value| text(&file["name"]).contains("/.f");
    let temporary = written.iter().filter(|file| !file["writes"].is_null());
    assert!(temporary.clone().count() > 50 && temporary.copied().all(|f| is_temporary(&f)));
    assert_eq!(flushes(&written), 0, "rsync flushes files without --fsync");
}

#[test]
fn git_makes_a_received_pack_durable_and_the_work_tree_not() {
    or_skip!(programs(&["git"]));
    let place = Place::new();
    tree(&place);
    let commit = "cd tree; git init -q .; git add .; \
                  git -c user.name=a -c user.email=a@b -c gc.auto=0 commit -qm all";
    assert!(place.command_of("sh").args(["-c", commit]).status().unwrap().success());
    // By default, git flushes packs (git-config(1), core.fsync). --no-local makes git transfer a
    // pack, and fetch.unpackLimit=1 makes git keep the pack instead of unpacking it.
    let clone = "git -c fetch.unpackLimit=1 -c transfer.unpackLimit=1 clone -q --no-local tree new";
    let document = watched(&place, clone);
    let pack = files(&document, "/objects/pack/");
    assert!(flushes(&pack) >= 1, "{pack:#?}");
    let tree = files(&document, "/new/d");
    assert_eq!((tree.len() as u64, flushes(&tree)), (TREE_FILES, 0));
}

/// Returns SQL statements that insert rows, each in a separate transaction.
fn inserts(mode: &str, rows: u64) -> String {
    let mut sql = format!("pragma journal_mode={mode};\ncreate table t(v text);\n");
    for _ in 0..rows {
        sql.push_str("insert into t values(hex(randomblob(50)));\n");
    }
    sql
}

#[test]
fn sqlite_flushes_four_times_for_a_transaction_and_once_with_a_write_ahead_log() {
    or_skip!(programs(&["sqlite3"]));
    let place = Place::new();
    const ROWS: u64 = 50;
    fs::write(place.path("delete.sql"), inserts("delete", ROWS)).unwrap();
    fs::write(place.path("wal.sql"), inserts("wal", ROWS)).unwrap();
    // For each transaction, SQLite flushes the journal, the header of the journal, and the
    // database. It also flushes the directory once, so that the name of the new journal is durable
    // (sqlite.org/atomiccommit.html, 3.7 and 3.10).
    let document = watched(&place, "sqlite3 a.db < delete.sql");
    let count = |part| flushes(&files(&document, part));
    // There are 51 transactions: one creates the table, and 50 insert rows.
    assert_eq!((count("/a.db-journal"), count("/a.db") - count("/a.db-journal")), (102, 51));
    let folder = place.path("").canonicalize().unwrap();
    let folder = folder.to_str().unwrap();
    let of_folder = list(&document["files"]).iter();
    let of_folder = of_folder.filter(|file| text(&file["name"]).trim_end_matches('/') == folder);
    assert_eq!(flushes(&of_folder.collect::<Vec<_>>()), 51);
    // With synchronous=FULL, SQLite flushes the write-ahead log after each transaction
    // (sqlite.org/wal.html, 2.3).
    let document = watched(&place, "sqlite3 b.db < wal.sql");
    let log = flushes(&files(&document, "/b.db-wal"));
    assert!((51..=54).contains(&log), "{log}");
    // With synchronous=NORMAL, SQLite flushes the write-ahead log only before a checkpoint.
    let sql = inserts("wal", ROWS);
    fs::write(place.path("normal.sql"), format!("pragma synchronous=normal;\n{sql}")).unwrap();
    let document = watched(&place, "sqlite3 c.db < normal.sql");
    assert!(flushes(&files(&document, "/c.db-wal")) <= 3);
}

#[test]
fn rocksdb_flushes_its_log_after_each_write_if_told_to() {
    or_skip!(programs(&["db_bench"]));
    let place = Place::new();
    let bench = |sync| {
        format!(
            "db_bench --benchmarks=fillseq --num=200 --value_size=400 --compression_type=none \
             --threads=1 --db=db{sync} --sync={sync} > /dev/null 2>&1"
        )
    };
    // With sync=1, RocksDB flushes the log before a write returns (WriteOptions::sync in
    // rocksdb/options.h).
    let document = watched(&place, &bench(1));
    let log: Vec<&Value> = files(&document, "/db1/")
        .into_iter()
        .filter(|f| text(&f["name"]).ends_with(".log"))
        .collect();
    assert!(flushes(&log) >= 200, "{log:#?}");
    assert!(total(&log, "writes", "count") >= 200);
    let document = watched(&place, &bench(0));
    let log: Vec<&Value> = files(&document, "/db0/")
        .into_iter()
        .filter(|f| text(&f["name"]).ends_with(".log"))
        .collect();
    assert!(flushes(&log) < 20 && total(&log, "writes", "count") >= 200, "{log:#?}");
}

/// A PostgreSQL server on a Unix socket. Dropping this value stops the server.
struct Postgres<'a> {
    place: &'a Place,
    bin: String,
}

impl<'a> Postgres<'a> {
    /// Creates a database cluster and starts its server as the user postgres.
    fn start(place: &'a Place) -> Result<Postgres<'a>, String> {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let bins = versions.map(|version| version.path().join("bin"));
        let bin = bins.filter(|bin| bin.join("pg_ctl").exists()).last();
        let bin = bin.ok_or("PostgreSQL is not installed")?.display().to_string();
        let postgres = Postgres { place, bin };
        fs::create_dir(place.path("pg")).unwrap();
        let folder = place.path("pg").display().to_string();
        let bin = &postgres.bin;
        let mut script = String::new();
        let _ = write!(
            script,
            "chmod 755 {}; chown postgres {folder}; cd {folder}; run='runuser -u postgres --'; \
             $run {bin}/initdb -D d -A trust > log; \
             $run {bin}/pg_ctl -D d -o '-k {folder} -c listen_addresses= -c autovacuum=off' \
             -l server.log -w start >> log; \
             $run createdb -h {folder} bench; \
             $run pgbench -h {folder} -i -q bench 2>> log",
            place.path("").display(),
        );
        match place.command_of("sh").args(["-ec", &script]).status() {
            Ok(status) if status.success() => Ok(postgres),
            failed => Err(format!("PostgreSQL does not start: {failed:?}")),
        }
    }

    fn folder(&self) -> String {
        self.place.path("pg").display().to_string()
    }

    fn server(&self) -> u32 {
        let file = fs::read_to_string(self.place.path("pg/d/postmaster.pid")).unwrap();
        file.lines().next().unwrap().parse().unwrap()
    }
}

impl Drop for Postgres<'_> {
    fn drop(&mut self) {
        let data = format!("{}/d", self.folder());
        let mut stop = Command::new("runuser");
        stop.args(["-u", "postgres", "--", &format!("{}/pg_ctl", self.bin), "-D", &data]);
        let _ = stop.args(["-m", "immediate", "-w", "stop"]).output();
    }
}

#[test]
fn postgresql_flushes_its_log_at_each_commit_and_moves_pages_of_8_kib() {
    or_skip!(programs(&["pgbench", "runuser"]));
    let place = Place::new();
    let postgres = or_skip!(Postgres::start(&place));
    let server = postgres.server();
    let mut watch = place.start(&format!("watch --json --quiet --pid {server} --runtime 600"));
    let is_partial = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().ends_with(".partial")
    };
    watch.until("the watch has begun", || fs::read_dir(place.path("")).unwrap().any(is_partial));
    let mut bench = Command::new("runuser");
    let folder = postgres.folder();
    // With -C, pgbench opens a new session for each transaction, so the server processes of the
    // sessions start during the watch.
    bench
        .args(["-u", "postgres", "--", "pgbench", "-h", &folder, "-n", "-C", "-t", "100", "bench"]);
    let output = bench.current_dir(place.path("pg")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    watch.signal("INT");
    let document = watch.ended().json();
    // At commit, PostgreSQL writes the log in pages of 8 KiB (wal_block_size) and flushes it with
    // fdatasync (wal_sync_method on Linux). See the manual, 30.5.
    let log = files(&document, "/pg_wal/");
    assert!(flushes(&log) >= 80, "{log:#?}");
    assert!(sizes(&log, "writes").iter().all(|bytes| bytes % 8192 == 0), "{log:#?}");
    assert!(calls(&document, "flush").contains(&"fdatasync"), "{document:#}");
    // PostgreSQL reads and writes tables in pages of 8 KiB (block_size).
    let table = files(&document, "/base/");
    let is_table = |file: &&Value| {
        let name = text(&file["name"]).rsplit('/').next().unwrap_or_default();
        name.starts_with(|first: char| first.is_ascii_digit())
    };
    let table: Vec<&Value> = table.into_iter().filter(is_table).collect();
    let table_sizes = [sizes(&table, "reads"), sizes(&table, "writes")].concat();
    assert!(!table_sizes.is_empty());
    assert!(table_sizes.iter().all(|bytes| bytes % 8192 == 0), "{table:#?}");
    drop(postgres);
    let command_line = format!("/proc/{server}/cmdline");
    // The command line of a zombie process is empty.
    wait_until("the server has ended", || !fs::read(&command_line).is_ok_and(|c| !c.is_empty()));
}
