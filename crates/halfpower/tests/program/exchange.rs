//! Tests the exchange of results with other programs: fio's logs are imported, tables are exported
//! as Parquet, pandas runs the queries of docs/results.md, and the notebooks and fio-plot run.
//! Tests that need missing Python packages are skipped. The ignored tests install the packages into
//! the build directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::fixture::{Place, list, or_skip, skip, text, wait_until, whole};

/// Documentation page whose SQL queries the tests run.
const RESULTS_PAGE: &str = include_str!("../../../../docs/results.md");
const NOTEBOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/results.ipynb");
const FIGURE_3: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/figure3.ipynb");
/// Published data of Figure 3, which the second notebook plots.
const FIGURE_3_POINTS: &str = "../papers/data/riedel97_fig03_unbuffered_single_disk.csv";
/// Packages that the ignored tests install from PyPI.
const PACKAGES: [&str; 7] =
    ["pandas", "pyarrow", "duckdb", "matplotlib", "nbclient", "ipykernel", "fio-plot"];

/// Returns the system's Python if pandas is installed.
fn pandas() -> Result<PathBuf, String> {
    let mut python = Command::new("python3");
    let output = python.args(["-c", "import pandas"]).output();
    let output = output.map_err(|error| format!("python3: {error}"))?;
    if output.status.success() {
        return Ok(PathBuf::from("python3"));
    }
    Err("Python has no pandas (apt-get install python3-pandas)".to_owned())
}

/// Returns a Python with all [`PACKAGES`]. The first call installs them.
fn installed() -> Result<PathBuf, String> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let install = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
        let python = folder.join("bin/python");
        let has = |error: &mut Command| error.output().is_ok_and(|output| output.status.success());
        if !has(Command::new("python3").args(["-m", "venv"]).arg(&folder)) {
            return Err("python3 -m venv fails (apt-get install python3-venv)".to_owned());
        }
        let mut pip = Command::new(&python);
        match has(pip.args(["-m", "pip", "install", "--quiet"]).args(PACKAGES)) {
            true => Ok(python),
            false => Err("pip cannot install from PyPI".to_owned()),
        }
    };
    PYTHON.get_or_init(install).clone()
}

/// Runs a Python script with arguments in the directory of `place`. Returns what the script prints.
#[track_caller]
fn run_python(place: &Place, python: &Path, script: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(python);
    command.arg("-c").arg(script).args(arguments).current_dir(place.path("."));
    let output = command.env("HOME", place.path(".")).env_remove("MPLBACKEND").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Stores a survey and two runs with several request sizes.
fn with_results() -> Place {
    let place = Place::new();
    place.does("survey sim:sata-ssd --budget 5s --quiet");
    let sweep = "--rw read --bs 4k,16k,64k,256k,1m --size 8m --trials 2 --quiet";
    place.does(&format!("sweep sim:sata-ssd {sweep} --label before"));
    place.does(&format!("sweep sim:nvme-gen4 {sweep} --label after"));
    place
}

#[test]
fn the_logs_of_fio_become_the_intervals_of_its_job() {
    for grouped in ["", "--group_reporting"] {
        let place = Place::new();
        let line = format!(
            "--name=a --filename=data --size=1m --bs=4k --rw=randrw --ioengine=psync --numjobs=2 \
             --time_based --runtime=1 --rate_iops=200 --log_avg_msec=100 --write_bw_log=a \
             --write_iops_log=a {grouped} --output-format=json --output=a.json"
        );
        or_skip!(place.fio(&line));
        let logs = "a_bw.1.log a_bw.2.log a_iops.1.log a_iops.2.log";
        place.does("import a.json --label alone").prints("the rate over time");
        place.does(&format!("import a.json {logs} --label both"));
        let store = place.store();
        assert_eq!(store.runs().unwrap().len(), 2, "an import with logs is another run");
        let points = store.points(store.run("both").unwrap().id).unwrap();
        let (id, trial) = store.trials(points[0].0).unwrap().remove(0);
        let bytes: u64 = store.series(id).unwrap().iter().map(|part| part.bytes).sum();
        let all = trial.bytes;
        // `share` is the fraction of the transferred bytes that the intervals of the logs contain.
        // fio does not log an incomplete last interval, so `share` may be below 1. If the logs of
        // only one of the two jobs were imported, `share` would be about half.
        let share = bytes as f64 / all as f64;
        assert!((0.6..1.05).contains(&share), "{share} of {all} bytes are in the intervals");
        let theirs = std::fs::read_to_string(place.path("a.json")).unwrap();
        let exported = place.does("export both --format fio-json").stdout;
        assert_eq!(exported.trim_end(), theirs.trim_end(), "the export differs from the import");
        place
            .does(&format!("import {logs} --label logs"))
            .prints("the settings (assumed: sequential");
    }
}

/// A running fio server, which is killed when the test ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_a_client_of_fio_prints_is_a_run_of_its_server_and_is_exported_as_it_was() {
    let place = Place::new();
    let job = "[a]\nfilename=data\nsize=256k\nbs=4k\nrw=randread\nnumjobs=2\ngroup_reporting\n";
    std::fs::write(place.path("job.fio"), job).unwrap();
    let mut server = Command::new("fio");
    server.arg("--server=sock:server").current_dir(place.path(".")).stdout(Stdio::null());
    let _server = Server(or_skip!(server.stderr(Stdio::null()).spawn()));
    wait_until("fio's server", || place.path("server").exists());
    or_skip!(place.fio("--output-format=json --output=a.json --client=sock:server job.fio"));
    place.does("import a.json --label client").prints("job a: 1 point");
    // fio prints messages of the server before the JSON document.
    let theirs = std::fs::read_to_string(place.path("a.json")).unwrap();
    let theirs: Value = serde_json::from_str(&theirs[theirs.find("{\n").unwrap()..]).unwrap();
    let ours: Value =
        serde_json::from_str(&place.does("export client --format fio-json").stdout).unwrap();
    assert_eq!(ours, theirs);
    let job = &list(&theirs["client_stats"])[0];
    assert_eq!(whole(&job["read"]["total_ios"]), 128, "both threads");
    let host = place.store().run("client").unwrap().host_json;
    assert!(host.contains(&format!("\"name\":\"{}\"", text(&job["hostname"]))), "{host}");
}

/// Python script that runs each query of queries.json in pandas and in the sqlite3 shell, and
/// compares the results.
const ASK: &str = r#"
import json, math, sqlite3, subprocess, sys
import pandas
connection = sqlite3.connect("halfpower.db")
rows = []
for query in json.load(open("queries.json")):
    frame = pandas.read_sql(query, connection)
    shell = subprocess.run(["sqlite3", "-json", "halfpower.db", query], capture_output=True,
                           text=True, check=True).stdout
    theirs = json.loads(shell) if shell.strip() else []
    ours = json.loads(frame.to_json(orient="records", double_precision=15))
    assert len(ours) == len(theirs), (query, len(ours), len(theirs))
    for one, other in zip(ours, theirs):
        assert list(one) == list(other), (query, one, other)
        for name, value in one.items():
            if isinstance(value, float) and other[name] is not None:
                assert math.isclose(value, other[name], rel_tol=1e-9), (query, name, value, other)
            else:
                assert value == other[name], (query, name, value, other[name])
    rows.append(len(ours))
print(rows)
"#;

/// Returns the queries of the documentation page, and a query for all columns of each view.
fn questions() -> Vec<String> {
    let blocks = RESULTS_PAGE.split("```sql\n").skip(1);
    let asked = blocks.map(|block| block.split("```").next().unwrap().to_owned());
    let whole = ["findings", "latency_percentiles", "hosts", "intervals", "points", "trials"];
    asked.chain(whole.map(|view| format!("SELECT * FROM {view} LIMIT 50"))).collect()
}

fn ask_pandas(python: &Path) {
    let place = with_results();
    let queries = questions();
    std::fs::write(place.path("queries.json"), serde_json::to_string(&queries).unwrap()).unwrap();
    let rows = run_python(&place, python, ASK, &[]);
    let rows: Vec<u64> = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows.len(), 10 + 6);
    for (query, rows) in queries.iter().zip(rows) {
        // Simulated trials are always valid, so queries for other verdicts return no rows.
        assert!(rows > 0 || query.contains("<> 'valid'"), "{query}: no rows");
    }
}

/// Returns an error if the sqlite3 shell is not installed.
fn sqlite_shell() -> Result<(), String> {
    let shell = Command::new("sqlite3").arg("--version").output();
    shell.map(|_| ()).map_err(|error| format!("sqlite3: {error} (apt-get install sqlite3)"))
}

#[test]
fn the_questions_of_the_results_page_have_the_same_answers_in_pandas() {
    or_skip!(sqlite_shell());
    ask_pandas(&or_skip!(pandas()));
}

#[test]
#[ignore = "installs Python packages"]
fn the_questions_have_the_same_answers_in_the_newest_pandas() {
    or_skip!(sqlite_shell());
    ask_pandas(&or_skip!(installed()));
}

/// Python script that reads each Parquet table with pyarrow and DuckDB, and compares it with the
/// same table as CSV. The script also runs some queries in DuckDB and SQLite, and compares the
/// results. These queries use only the tables of points and trials.
const READ_TABLES: &str = r#"
import csv, json, math, sqlite3
import duckdb, pyarrow.parquet
for table in ["points", "trials", "intervals", "latency"]:
    read = pyarrow.parquet.read_table(table + ".parquet")
    rows = list(csv.reader(open(table + ".csv", newline="")))
    assert read.column_names == rows[0], table
    assert read.num_rows == len(rows) - 1 > 0, (table, read.num_rows)
    known = duckdb.sql(f"SELECT * FROM '{table}.parquet'").fetchall()
    for values, other, text in zip(zip(*read.to_pydict().values()), known, rows[1:]):
        assert values == other, (table, values, other)
        for value, field in zip(values, text):
            if isinstance(value, float):
                assert math.isclose(value, float(field), rel_tol=1e-15), (table, value, field)
            else:
                assert field == ("" if value is None else str(value)), (table, value, field)
sqlite, duck, asked = sqlite3.connect("halfpower.db"), duckdb.connect(), 0
for table in ["points", "trials"]:
    duck.sql(f"CREATE VIEW {table} AS SELECT * FROM '{table}.parquet'")
for query in json.load(open("queries.json")):
    words = query.replace("(", " ").replace(";", " ").split()
    sources = {words[at + 1] for at, word in enumerate(words) if word in ("FROM", "JOIN")}
    if not sources <= {"points", "trials"} or "SELECT *" in query:
        continue
    asked += 1
    ours, theirs = duck.sql(query).fetchall(), sqlite.execute(query).fetchall()
    close = lambda a, b: a == b or math.isclose(float(a), float(b), rel_tol=1e-9)
    key = lambda row: [f"{v:.9g}" if isinstance(v, (int, float)) else str(v) for v in row]
    assert len(ours) == len(theirs), query
    for one, other in zip(sorted(ours, key=key), sorted(theirs, key=key)):
        assert all(close(a, b) for a, b in zip(one, other)), (query, one, other)
print(asked)
"#;

#[test]
#[ignore = "installs Python packages"]
fn tables_as_parquet_are_read_by_pyarrow_and_duckdb() {
    let python = or_skip!(installed());
    let place = with_results();
    for table in ["points", "trials", "intervals", "latency"] {
        for format in ["parquet", "csv"] {
            let to = format!("--format {format} --output {table}.{format}");
            place.does(&format!("export 1 2 3 --table {table} {to}"));
        }
    }
    let queries = serde_json::to_string(&questions()).unwrap();
    std::fs::write(place.path("queries.json"), queries).unwrap();
    let asked = run_python(&place, &python, READ_TABLES, &[]);
    assert_eq!(asked.trim(), "6", "number of queries that need only points and trials");
}

/// Python script that runs a notebook. It prints the number of images and the text of all results.
const RUN_NOTEBOOK: &str = r#"
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3",
                        resources={"metadata": {"path": "."}}).execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
data = [output.get("data", {}) for output in outputs]
print(sum("image/png" in one for one in data))
print("\n".join(one["text/plain"] for one in data if "text/plain" in one))
"#;

#[test]
#[ignore = "installs Python packages"]
fn the_notebook_runs_on_stored_results() {
    let python = or_skip!(installed());
    let place = with_results();
    let printed = run_python(&place, &python, RUN_NOTEBOOK, &[NOTEBOOK]);
    let (pictures, text) = printed.split_once('\n').unwrap();
    assert_eq!(pictures, "3", "{printed}");
    // The notebook must print the half-power point and the comparison of each request size.
    assert!(text.contains("half_power_bytes") && text.contains("ratio"), "{text}");
    assert!(text.contains("1048576"), "{text}");
}

#[test]
#[ignore = "installs Python packages"]
fn the_notebook_of_figure_3_draws_the_paper_beside_stored_results() {
    let python = or_skip!(installed());
    let place = with_results();
    let points = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIGURE_3_POINTS);
    std::fs::copy(&points, place.path(points.file_name().unwrap().to_str().unwrap())).unwrap();
    let printed = run_python(&place, &python, RUN_NOTEBOOK, &[FIGURE_3]);
    let (pictures, text) = printed.split_once('\n').unwrap();
    assert_eq!(pictures, "1", "{printed}");
    // The paper's figure has curves for reads and writes, two of them with the write cache enabled
    // (WCE). The stored sweep has only reads.
    assert!(text.contains("Ultra Read") && text.contains("Fast Write WCE"), "{text}");
    assert!(text.contains("here read") || text.contains("here  read"), "{text}");
}

#[test]
#[ignore = "installs Python packages"]
fn fio_plot_and_the_converter_of_fio_accept_an_export() {
    let python = or_skip!(installed());
    let place = Place::new();
    std::fs::create_dir(place.path("plots")).unwrap();
    for depth in [1, 4, 16] {
        let load = format!("--rw randread --bs 4k --iodepth {depth} --size 8m --trials 1 --quiet");
        place.does(&format!("run sim:sata-ssd {load}"));
        let to = format!("plots/randread-{depth}-1.json");
        place.does(&format!("export latest --format fio-json --output {to}"));
    }
    let plot = |arguments: &str| {
        let mut plot = Command::new(python.with_file_name("fio-plot"));
        plot.args(arguments.split_whitespace()).current_dir(place.path("."));
        plot.env("MPLBACKEND", "Agg").env("HOME", place.path(".")).output().unwrap()
    };
    for (form, name) in
        [("-L -t iops -d 1 4 16 -n 1", "three.png"), ("-l -d 1 4 16 -n 1", "bars.png")]
    {
        let output = plot(&format!("-i plots -T title -r randread {form} -o {name}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && place.path(name).exists(), "{form}: {said}");
    }
    let mut convert = Command::new("fio_jsonplus_clat2csv");
    convert.args(["plots/randread-4-1.json", "latency.csv"]).current_dir(place.path("."));
    let output = match convert.output() {
        Ok(output) => output,
        Err(_) => return skip(std::any::type_name_of_val(&|| ()), "fio is not installed"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let csv = std::fs::read_to_string(place.path("latency_job0.csv")).unwrap();
    let document: Value =
        serde_json::from_slice(&std::fs::read(place.path("plots/randread-4-1.json")).unwrap())
            .unwrap();
    let job = &list(&document["jobs"])[0]["read"];
    let bins = job["clat_ns"]["bins"].as_object().unwrap();
    // The CSV file has a header and one line for each bin of the histogram. The cumulative count in
    // the last line is the number of all requests.
    assert_eq!(csv.lines().count(), 1 + bins.len(), "{csv}");
    let last = csv.lines().last().unwrap();
    assert!(last.contains(&format!(", {}, 1.0, ", whole(&job["total_ios"]))), "{last}");
}
