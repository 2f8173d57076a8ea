//! Tests network targets. nbdkit serves a file on the loopback interface. The clients of other
//! protocols are tested in the crate `ioengine`.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::fixture::{MIB, Place, damage, list, measure_until, or_skip, text, wait_until, whole};

/// An nbdkit server of one file. Dropping this value ends the server.
pub struct Server {
    process: Child,
    pub address: String,
}

impl Server {
    /// Serves a file with nbdkit, with these filters and their parameters.
    pub fn start(path: &Path, filters: &[&str], parameters: &[&str]) -> Result<Server, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--ipaddr", "127.0.0.1", "--port", &port.to_string()]);
        command.args(filters).arg("file").arg(path).args(parameters);
        let started = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = started.map_err(|error| format!("nbdkit: {error}"))?;
        let server = Server { process, address: format!("nbd://127.0.0.1:{port}/?timeout=5") };
        wait_until("nbdkit listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Ok(server)
    }

    pub fn overwrite(&self) -> String {
        format!("--overwrite={}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the server has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Creates a working directory with a file of 16 MiB, and a server of this file.
pub fn served() -> Result<(Place, Server), String> {
    let place = Place::new();
    let server = Server::start(&place.file("served", 16 * MIB), &[], &[])?;
    Ok((place, server))
}

#[test]
fn a_target_of_a_server_is_measured_and_described() {
    let (place, server) = or_skip!(served());
    let address = &server.address;
    let run =
        format!("run {address} --rw randread --bs 4k --iodepth 8 --size 8m --trials 1 --json");
    let document = place.document(&run);
    assert_eq!(text(&document["workload"]["ioengine"]), "network");
    assert_eq!(text(&document["target"]["kind"]), "network");
    assert!(text(&document["target"]["network"]["features"]).starts_with("NBD"));
    assert_eq!(whole(&document["trials"][0]["bytes"]), 8 * MIB);
    let described = place.document(&format!("target {address} --json"));
    assert_eq!(whole(&described["layers"][0]["facts"]["size_bytes"]), 16 * MIB);
    assert_eq!(text(&described["writing"]["flag"]), server.overwrite());
}

#[test]
fn a_target_of_a_server_is_overwritten_only_with_the_same_address() {
    let (place, server) = or_skip!(served());
    let content = || std::fs::read(place.path("served")).unwrap();
    let before = content();
    let write = format!("run {} --rw write --bs 64k --size 1m --trials 1", server.address);
    place.halfpower(&write).with_code(3).says("would be overwritten", &server.overwrite());
    let other = "--overwrite=nbd://127.0.0.1:1/";
    place.halfpower(&format!("{write} {other}")).with_code(3);
    assert!(content() == before, "the file was overwritten without consent");
    place.halfpower(&format!("{write} --no-store {}", server.overwrite()));
    assert!(content() != before, "the file was not overwritten");
}

#[test]
fn what_is_written_over_the_network_is_in_the_file() {
    let (place, server) = or_skip!(served());
    let load = "--bs 64k --size 4m --trials 1 --verify --no-store";
    let write = format!("run {} --rw write --iodepth 4 {load}", server.address);
    place
        .halfpower(&format!("{write} {}", server.overwrite()))
        .says("verified 4 MiB", "every block is correct");
    // Reads the same blocks from the local file and verifies them.
    let read = format!("run served --rw read {load} --direct=0");
    place.does(&read);
    damage(&place.path("served"), 2 * MIB + 100);
    place.halfpower(&read).with_code(4).says("verification failed", "");
}

#[test]
fn each_thread_flushes_on_the_connection_that_it_writes_on() {
    let place = Place::new();
    let (file, log) = (place.file("served", 16 * MIB), place.path("log"));
    // This server does not promise that a flush covers the writes of other connections.
    let parameters = ["multi-conn-mode=disable", &format!("logfile={}", log.display())];
    let filters = ["--filter=log", "--filter=multi-conn"];
    let server = or_skip!(Server::start(&file, &filters, &parameters));
    let load = "--rw randwrite --bs 4k --numjobs 2 --iodepth 4 --size 1m --fsync 16 --trials 1";
    let command = format!("run {} {load} {} --json", server.address, server.overwrite());
    let document = place.document(&command);
    let features = text(&document["target"]["network"]["features"]).to_owned();
    assert!(features.starts_with("NBD, a flush covers one connection"), "{features}");
    let log = std::fs::read_to_string(log).unwrap();
    let of = |word: &str| -> BTreeSet<&str> {
        let lines = log.lines().filter(|line| line.contains(word));
        lines.filter_map(|line| line.split("connection=").nth(1)?.split(' ').next()).collect()
    };
    let wrote = of(" Write ");
    assert!(wrote.len() == 2 && wrote == of(" Flush "), "{log}");
}

#[test]
fn a_server_that_ends_during_a_run_is_named_and_the_run_ends() {
    let place = Place::new();
    let (file, log) = (place.file("served", 16 * MIB), place.path("log"));
    let logfile = format!("logfile={}", log.display());
    let mut server = or_skip!(Server::start(&file, &["--filter=log"], &[&logfile]));
    let load = "--rw randread --bs 4k --time-based --runtime 600 --trials 1";
    let mut running = place.start(&format!("run {} {load}", server.address));
    running.until("requests are issued", || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.matches(" Read ").count() > 100)
    });
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    running.ended().with_code(1).says("closed the connection", "log of the server");
}

#[test]
fn a_silent_server_does_not_hang_the_program() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let place = Place::new();
    place
        .halfpower(&format!("run nbd://127.0.0.1:{port}/x?timeout=1 --rw read"))
        .with_code(1)
        .says("did not answer for 1 s", "?timeout=SECONDS");
}

/// Answers the handshake of an NBD client until the export is open.
fn open_export(mut stream: TcpStream) -> std::io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x01")?;
    let mut option = [0; 4 + 16];
    stream.read_exact(&mut option)?;
    let length = u32::from_be_bytes(option[16..].try_into().unwrap());
    stream.read_exact(&mut vec![0; length as usize])?;
    let export = [&[0; 2][..], &MIB.to_be_bytes(), &1_u16.to_be_bytes()].concat();
    for (kind, data) in [(3_u32, &export[..]), (1, &[])] {
        stream.write_all(&0x0003_e889_0455_65a9_u64.to_be_bytes())?;
        stream.write_all(&[7, kind, data.len() as u32].map(u32::to_be_bytes).concat())?;
        stream.write_all(data)?;
    }
    Ok(())
}

#[test]
fn an_interrupt_ends_the_wait_for_a_silent_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let place = Place::new();
    let address = format!("nbd://127.0.0.1:{port}/x?timeout=600");
    let running = place.start(&format!("run {address} --rw read --trials 1"));
    // The program examines the target on one connection and measures on the next. The server never
    // answers on the second connection.
    open_export(listener.accept().unwrap().0).unwrap();
    let (_connection, _) = listener.accept().unwrap();
    running.signal("INT");
    running.ended().says("interrupted while waiting for nbd://", "");
}

#[test]
fn a_survey_of_a_network_target_has_no_buffered_points() {
    let (place, server) = or_skip!(served());
    let survey = format!("survey {} --budget 6s --json", server.address);
    // On a very busy machine, six seconds may not be enough for a point.
    let has_points = |document: &Value| !list(&document["points"]).is_empty();
    let document = measure_until(|| place.halfpower(&survey).json(), has_points);
    let points = list(&document["points"]);
    assert!(!points.is_empty());
    for point in points {
        assert_eq!(text(&point["workload"]["caching"]), "direct", "{point}");
        assert_eq!(text(&point["workload"]["ioengine"]), "network", "{point}");
    }
}

#[test]
fn the_study_of_network_paths_compares_them_with_a_local_file() {
    let (place, server) = or_skip!(served());
    let short = "--quick --runtime 0.02 --trials 1 --no-store --json";
    let study = format!("study network served {} {short}", server.address);
    let document = place.halfpower(&study).json();
    let findings: Vec<&Value> = list(&document["studies"][0]["findings"]).iter().collect();
    let of = |id: &str| findings.iter().filter(|finding| text(&finding["id"]) == id).count();
    // Without permission, the study only reads. It reports the latency and the cost of each of the
    // two paths, and one comparison.
    assert_eq!((of("latency"), of("cost"), of("against-local")), (2, 2, 1), "{findings:?}");
}
