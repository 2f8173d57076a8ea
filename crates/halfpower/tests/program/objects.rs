//! Tests the study of object stores with the S3 server versitygw, which is found in PATH or at the
//! path in the environment variable `HALFPOWER_VERSITYGW`. The server stores objects as files, so
//! the tests can see what the study leaves behind.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{Ended, Place, Running, list, or_skip, pause, temporary_folder, text};

const PROGRAM: &str = "versitygw";
const USER: &str = "a-user";
const SECRET: &str = "not+a/secret";
/// Path of an object that the study must not touch.
const OTHERS: &str = "root/data/folder/halfpower-of-others/object";
/// Maximum number of waits of 50 ms for the server to start.
const START_TRIES: u32 = 1200;

/// A running server with the bucket `data`. Dropping this value ends the server and then removes
/// its directory.
struct Server {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl Server {
    fn start(further: &[&str]) -> Result<Server, String> {
        let named = std::env::var("HALFPOWER_VERSITYGW").ok();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_found = std::env::split_paths(&path).any(|one| one.join(PROGRAM).is_file());
        if named.is_none() && !is_found {
            return Err(format!("{PROGRAM} is not installed"));
        }
        let folder = temporary_folder();
        let (root, metadata) = (folder.path().join("root"), folder.path().join("metadata"));
        fs::create_dir_all(&metadata).unwrap();
        let others = folder.path().join(OTHERS);
        fs::create_dir_all(others.parent().unwrap()).unwrap();
        fs::write(&others, "of others").unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(named.as_deref().unwrap_or(PROGRAM));
        command.args(["--access", USER, "--secret", SECRET, "--port", &free.to_string()]);
        command.args(["--quiet", "--keep-alive"]).args(further).args(["posix", "--sidecar"]);
        command.arg(metadata).arg(root);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{PROGRAM}: {error}"))?;
        let mut server = Server { child, port: free.port(), folder };
        for _ in 0..START_TRIES {
            if TcpStream::connect(free).is_ok() {
                return Ok(server);
            }
            if server.child.try_wait().unwrap().is_some() {
                break;
            }
            pause(50);
        }
        Err("the server does not start".to_owned())
    }

    /// Starts `halfpower study objects` on a bucket, or on a prefix in the bucket.
    fn study(&self, place: &Place, path: &str, secret: &str) -> Running {
        let line = format!("study objects s3://127.0.0.1:{}/{path} --quick --json", self.port);
        let mut command = place.command(&line);
        command.env_remove("HALFPOWER_USER").env_remove("HALFPOWER_PASSWORD");
        command.env("AWS_ACCESS_KEY_ID", USER).env("AWS_SECRET_ACCESS_KEY", secret);
        place.start_command(command, &line)
    }

    /// Returns the sorted paths of all files in the bucket: objects and parts of uploads.
    fn objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(&self.folder.path().join("root/data"), &mut found);
        found.sort();
        found
    }

    #[track_caller]
    fn has_only_what_was_there(&self, ended: &Ended) {
        assert_eq!(self.objects(), [self.folder.path().join(OTHERS)], "{ended}");
        let others = fs::read_to_string(self.folder.path().join(OTHERS)).unwrap();
        assert_eq!(others, "of others");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Adds the paths of all files below a directory. Directories that disappear meanwhile are skipped.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            collect(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn findings(document: &Value) -> Vec<String> {
    let findings = list(&document["studies"][0]["findings"]);
    findings.iter().map(|finding| text(&finding["id"]).to_owned()).collect()
}

#[test]
fn the_study_measures_all_requests_and_leaves_no_object() {
    let server = or_skip!(Server::start(&[]));
    let place = Place::new();
    for path in ["data/folder", "data"] {
        let ended = server.study(&place, path, SECRET).ended().with_code(0);
        server.has_only_what_was_there(&ended);
        let document = ended.json();
        let findings = findings(&document);
        for id in ["latency", "ceiling", "parallel", "cost", "signature", "multipart", "list"] {
            assert!(findings.iter().any(|found| found == id), "{id}: {findings:?}");
        }
        let readings = list(&document["studies"][0]["readings"]);
        for (op, settings) in [("PUT", 6), ("GET", 4), ("DELETE", 2)] {
            let is_rate =
                |one: &&Value| one["quantity"] == "object-requests" && one["labels"]["op"] == op;
            assert_eq!(readings.iter().filter(is_rate).count(), settings, "{op}");
        }
    }
}

#[test]
fn an_interrupt_at_any_step_leaves_no_object() {
    let server = or_skip!(Server::start(&[]));
    for step in ["/get/", "/put/", "/multipart/", "/list/"] {
        let place = Place::new();
        let mut running = server.study(&place, "data/folder", SECRET);
        running.until("the step has created an object", || {
            server.objects().iter().any(|path| path.to_string_lossy().contains(step))
        });
        running.signal("INT");
        let ended = running.ended().with_code(130);
        server.has_only_what_was_there(&ended);
    }
}

#[test]
fn an_object_store_that_refuses_is_named_in_one_line() {
    let server = or_skip!(Server::start(&[]));
    let place = Place::new();
    let refused = |server: &Server, path: &str, secret: &str, code: i32, words: &str| {
        let ended = server.study(&place, path, secret).ended().with_code(code);
        let document = ended.json();
        let reason = text(&document["studies"][0]["skipped"]["remedy"]);
        assert!(reason.contains(words) && reason.lines().count() == 1, "{reason}");
        server.has_only_what_was_there(&ended);
    };
    refused(&server, "nothing/x", SECRET, 2, "there is no bucket 'nothing'");
    refused(&server, "data/x", "another", 2, "the secret of the access key 'a-user' is wrong");
    let read_only = or_skip!(Server::start(&["--readonly"]));
    refused(&read_only, "data/x", SECRET, 1, "the server denies access for the access key");
}

#[test]
fn a_target_that_is_no_object_store_is_skipped() {
    let place = Place::new();
    let ended = place.does("study objects . --size 1m --json");
    let reason = &ended.json()["studies"][0]["skipped"]["reason"];
    assert_eq!(text(reason), "the study measures object stores", "{ended}");
    place.is_tidy();
}
