//! Tests `halfpower peer`, and `study network` with a peer. The peer and nbdkit, which serves a
//! file, listen on the loopback interface. Hostile clients are tested in `lab::peer`.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::fixture::{MIB, Place, Running, list, or_skip, real, text};
use crate::network::Server;

const KEY: &str = "halfpower-peer.key";

/// A running `halfpower peer` in the working directory, and its address.
struct Peer {
    running: Running,
    address: String,
}

impl Peer {
    fn start(place: &Place) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let mut running = place.start(&format!("peer --dir . --listen {address}"));
        running.until_it_says("--peer-key");
        Peer { running, address }
    }

    fn flags(&self) -> String {
        format!("--peer {} --peer-key {KEY}", self.address)
    }
}

/// Creates a working directory with a file of 16 MiB, a server of this file, and a peer.
fn served() -> Result<(Place, Server, Peer), String> {
    let place = Place::new();
    let server = Server::start(&place.file("served", 16 * MIB), &[], &[])?;
    let peer = Peer::start(&place);
    Ok((place, server, peer))
}

fn of<'a>(all: &'a [Value], name: &str, word: &str) -> Vec<&'a Value> {
    all.iter().filter(|one| text(&one[name]) == word).collect()
}

#[test]
fn a_peer_tells_what_a_path_costs_its_server_and_ends_with_a_signal() {
    let (place, server, peer) = or_skip!(served());
    let short = "--quick --runtime 0.02 --trials 1 --json";
    let flags = format!("{} --peer-path served", peer.flags());
    let study = format!("study network {} {flags} {short}", server.address);
    let document = place.document(&study);
    let study = &document["studies"][0];
    let findings = list(&study["findings"]);
    let said = of(findings, "id", "server");
    assert!(text(&said[0]["text"]).contains("one machine"), "{said:?}");
    assert_eq!(of(findings, "id", "server-bytes").len(), 1, "{findings:?}");
    assert!(of(findings, "id", "server-alone").len() >= 2, "{findings:?}");
    let readings = list(&study["readings"]);
    let network = of(readings, "quantity", "server-network-bytes");
    assert!(real(&network[0]["value"]) > 0.9, "the network carries too few bytes: {network:?}");
    // The cost of a request is not checked, because it may be missing if other tests keep the
    // machine busy.
    assert_eq!(of(readings, "quantity", "server-background").len(), 6, "before and after load");
    assert_eq!(list(&study["left_out"]).iter().filter(|one| one["part"] == "server").count(), 0);
    assert!(place.stored_run().findings_json.unwrap().contains("server-network-bytes"));
    peer.running.signal("INT");
    let ended = peer.running.ended().with_code(0);
    assert_eq!(ended.stdout.trim(), peer.address);
    let mode = std::fs::metadata(place.path(KEY)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_peer_that_goes_away_ends_the_figures_of_the_server_and_not_the_study() {
    let (place, server, mut peer) = or_skip!(served());
    let study = format!("study network {} {} --quick", server.address, peer.flags());
    let mut running = place.start(&format!("{study} --runtime 0.1 --trials 2 --no-store --json"));
    peer.running.until_it_says("connected");
    // The study begins only after it has received the answer of the peer.
    running.until_it_says("network: ");
    peer.running.signal("KILL");
    let ended = running.ended().with_code(0);
    let ended = ended.says("the halfpower peer", "continues without the counters of the server");
    let times = ended.stderr.matches("continues without the counters of the server").count();
    assert_eq!(times, 1, "{ended}");
    let study = &ended.json()["studies"][0];
    assert!(!of(list(&study["findings"]), "id", "cost").is_empty(), "{study}");
    let left_out = list(&study["left_out"]).iter().find(|one| one["part"] == "server");
    assert!(text(&left_out.unwrap()["reason"]).contains("start halfpower peer"), "{study}");
}

#[test]
fn another_key_is_refused_with_the_remedy_on_both_sides() {
    let place = Place::new();
    place.file("served", MIB);
    let peer = Peer::start(&place);
    let other = place.path("other.key");
    std::fs::write(&other, "0".repeat(64)).unwrap();
    let study = format!("study network served --peer {} --peer-key other.key", peer.address);
    std::fs::set_permissions(&other, Permissions::from_mode(0o644)).unwrap();
    place.halfpower(&study).with_code(3).says("other users can use", "chmod 600");
    std::fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
    place.halfpower(&study).with_code(1).says("refused this key", "--peer-key");
    peer.running.signal("TERM");
    peer.running.ended().with_code(0).says("another key", "--peer-key");
}

#[test]
fn what_a_peer_cannot_serve_and_a_study_cannot_ask_is_refused() {
    let place = Place::new();
    place.file("served", MIB);
    std::fs::write(place.path("open.key"), "0".repeat(64)).unwrap();
    let refused = |line: &str, code, cause: &str, remedy: &str| {
        place.halfpower(line).with_code(code).says(cause, remedy);
    };
    refused("peer --dir . --key-file open.key", 3, "other users can use", "chmod 600");
    refused("peer --dir . --key-file missing.key", 2, "does not exist", "drop --key-file");
    refused("peer --dir missing", 2, "--dir missing", "use an existing folder");
    refused("peer --dir . --max-rate 0", 2, "--max-rate 0", "use a rate");
    place.halfpower("peer --dir . --listen nowhere").with_code(2);
    place.halfpower("study network served --peer 127.0.0.1:1").with_code(2);
    let flags = "--peer 127.0.0.1:1 --peer-key open.key";
    refused(&format!("study depth served {flags}"), 2, "--peer is for the study network", "drop");
    assert_eq!(place.listing(), ["open.key", "served"], "a key file was created");
    let planned = place.does("peer --dir . --plan");
    assert!(planned.stdout.contains("listen on 127.0.0.1:7750"), "{planned}");
}
