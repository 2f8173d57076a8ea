//! Tests the study `stripe`. It must find the chunk size of a known stripe exactly, and report
//! which loads scale and how far.

use serde_json::Value;

use crate::fixture::{Place, list, real, text};

fn stripe(targets: &str) -> Value {
    let line = format!("study stripe {targets} --quick --no-store");
    let document = Place::new().document(&line);
    list(&document["studies"])[0].clone()
}

fn finding<'a>(study: &'a Value, id: &str, lead: &str) -> &'a str {
    let findings = list(&study["findings"]).iter().filter(|finding| finding["id"] == id);
    let mut texts = findings.map(|finding| text(&finding["text"]));
    texts.find(|text| text.starts_with(lead)).unwrap_or_else(|| panic!("no {id}: {study}"))
}

#[test]
fn the_chunk_and_the_members_of_a_stripe_within_one_target_are_found_exactly() {
    for (members, chunk_kib) in [(2, 64), (3, 48), (5, 256)] {
        let target = format!("truth:fixed=500us,members={members},chunk={chunk_kib}k");
        // The machine may stall during an attempt, so several attempts are made.
        let wanted = (f64::from(chunk_kib) * 1024.0, f64::from(members));
        let seen = |study: &Value| {
            let value = |quantity: &str| {
                let readings = list(&study["readings"]).iter();
                let mut mine = readings.filter(|reading| reading["quantity"] == quantity);
                mine.next().map_or(0.0, |reading| real(&reading["value"]))
            };
            (value("stripe-chunk"), value("stripe-members"))
        };
        let found = (0..3).any(|_| seen(&stripe(&target)) == wanted);
        assert!(found, "{target}");
    }
}

#[test]
fn disks_of_a_simulated_system_scale_until_their_bus_is_full() {
    let study = stripe("sim:nt4-ultrawide");
    let scaling = finding(&study, "scaling", "reads");
    assert!(scaling.contains("2.00 times with 2 targets, 3.00 times with 3 targets"), "{scaling}");
    assert!(finding(&study, "ceiling", "reads").contains("of 4 times the rate of one target"));
    let claims = list(&study["claims"]).iter();
    let verdict = |id: &str| claims.clone().find(|c| c["id"] == id).unwrap()["verdict"].clone();
    assert_eq!(verdict("R118"), "holds");
    assert_eq!(verdict("R106"), "cannot-be-tried");
}

#[test]
fn known_devices_that_share_nothing_scale_with_their_number() {
    let study = stripe(&"truth:fixed=1ms ".repeat(4));
    let scaling = finding(&study, "scaling", "reads");
    let four = scaling.split(" times with 4 targets").next().unwrap().split(' ').next_back();
    let four: f64 = four.unwrap().parse().unwrap();
    assert!((3.4..=4.3).contains(&four), "{scaling}");
    let needed = finding(&study, "depth-needed", "striped reads");
    assert!(!needed.contains("depth 1 for 4 targets"), "{needed}");
}

#[test]
fn simulated_and_real_targets_are_not_striped_into_one() {
    let place = Place::new();
    let line = "study stripe . sim:nt4-ultrawide --quick --size 1m --runtime 10ms --trials 1";
    let document = place.document(&format!("{line} --no-store"));
    let left_out = document["studies"][0]["left_out"].to_string();
    assert!(left_out.contains("cannot be combined"), "{left_out}");
    let points = document["studies"][0]["points"].as_array().unwrap();
    assert!(points.iter().all(|point| point["disks"] == 1), "{points:?}");
}
