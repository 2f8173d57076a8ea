//! Tests the study `write-cache` on a simulated drive with its cache on and off, and on a device of
//! this host whose cache cannot be switched. For this device, the study must report the reason.

use serde_json::Value;

use crate::fixture::{MIB, Place, list, or_skip, text};
use crate::volume::LoopDevice;

fn write_cache(place: &Place, rest: &str) -> Value {
    let document = place.document(&format!("study write-cache {rest} --quick --no-store"));
    list(&document["studies"])[0].clone()
}

fn finding<'a>(study: &'a Value, id: &str) -> &'a str {
    let found = list(&study["findings"]).iter().find(|finding| finding["id"] == id);
    text(&found.unwrap_or_else(|| panic!("no {id}: {study}"))["text"])
}

#[test]
fn the_cache_of_a_simulated_drive_gains_on_small_writes_as_in_the_paper() {
    let study = write_cache(&Place::new(), "sim:nt4-ultrawide");
    assert!(finding(&study, "gain").contains("with the cache"), "{study}");
    let claims = list(&study["claims"]).iter();
    let verdict = |id: &str| claims.clone().find(|c| c["id"] == id).unwrap()["verdict"].clone();
    assert_eq!(verdict("R065"), "holds");
}

#[test]
fn a_device_without_a_cache_of_its_own_is_not_switched_and_the_reason_is_a_finding() {
    let device = or_skip!(LoopDevice::blank(64 * MIB));
    let place = Place::new();
    let settings = device.path().replacen("/dev/", "/sys/block/", 1) + "/queue/write_cache";
    let before = std::fs::read_to_string(&settings).unwrap();
    let path = device.path();
    let rest = format!("{path} --toggle-write-cache --destroy-data-on={path}");
    let study = write_cache(&place, &rest);
    assert!(finding(&study, "not-switched").contains("its cache state is unknown"), "{study}");
    assert!(finding(&study, "loss").contains("loop device"), "{study}");
    assert_eq!(std::fs::read_to_string(&settings).unwrap(), before, "the kernel setting changed");
    assert!(place.journal().is_empty());
    let claims = list(&study["claims"]).iter();
    assert!(claims.clone().all(|claim| claim["verdict"] == "cannot-be-tried"), "{study}");
}
