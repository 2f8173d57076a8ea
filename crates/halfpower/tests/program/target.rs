//! Tests `halfpower target`: it prints the layers below a target, the content of the target, and
//! whether writing is allowed.

use serde_json::Value;

use crate::fixture::{MIB, Place, list, or_skip, whole};
use crate::volume::{LoopDevice, Volume, make};

/// Returns the kinds of the layers, from top to bottom.
fn kinds(document: &Value) -> Vec<&str> {
    list(&document["layers"]).iter().map(|layer| layer["kind"].as_str().unwrap()).collect()
}

#[test]
fn a_file_on_a_file_system_on_a_loop_device_is_told_down_to_the_file_beneath() {
    let volume = or_skip!(Volume::new(16 * MIB));
    let inside = Place::within(volume.folder());
    let data = inside.file("data", MIB);
    let place = Place::new();
    let document = place.document(&format!("target {}", data.display()));
    let layers = list(&document["layers"]);
    assert!(kinds(&document).starts_with(&[
        "file",
        "file system",
        "volume",
        "file",
        "file system"
    ]));
    assert_eq!(whole(&layers[0]["facts"]["size_bytes"]), MIB);
    assert_eq!(layers[1]["name"], "ext4");
    assert_eq!(layers[1]["facts"]["mounted_at"], volume.folder().to_str().unwrap());
    assert_eq!(layers[2]["facts"]["type"], "loop");
    assert_eq!(layers[3]["name"], volume.device.image().to_str().unwrap());
    assert_eq!(document["writing"]["flag"], format!("--overwrite={}", data.display()));
    assert!(whole(&document["free_bytes"]) < 16 * MIB);
    let text = place.does(&format!("target {}", data.display())).stdout;
    assert_eq!(text.lines().count(), layers.len() + 3, "one layer a line: {text}");
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn a_partition_of_a_free_device_may_be_written_with_its_flag() {
    let device = or_skip!(LoopDevice::blank(32 * MIB));
    let part = or_skip!(device.partition(1, 1, 16));
    or_skip!(make(&["mkfs.ext4", "-q", "-F", "-Lroot", &part]));
    let place = Place::new();
    let document = place.document(&format!("target {part}"));
    assert!(kinds(&document).starts_with(&["partition", "volume", "file"]), "{document}");
    assert_eq!(document["content"], "it holds ext4 'root'");
    let flag = document["writing"]["flag"].as_str().unwrap();
    assert_eq!(document["writing"]["allowed"], "with");
    // The printed flag must permit writing.
    let line = format!("run {part} --rw write --bs 64k --size 64k --trials 1 --no-store {flag}");
    place.does(&line);
}

#[test]
fn what_is_in_use_is_refused_with_the_reason() {
    let volume = or_skip!(Volume::new(16 * MIB));
    let place = Place::new();
    let device = place.document(&format!("target {}", volume.device.path()));
    assert_eq!(device["writing"]["allowed"], "refused");
    assert_eq!(device["writing"]["flag"], Value::Null);
    let why = device["writing"]["why"].as_str().unwrap();
    assert!(why.contains(&format!("is mounted at {}", volume.folder().display())), "{why}");
    let image = place.document(&format!("target {}", volume.device.image().display()));
    let why = image["writing"]["why"].as_str().unwrap();
    assert!(why.contains("is the image of the loop device"), "{why}");
    let folder = place.document(&format!("target {}", volume.folder().display()));
    assert_eq!(folder["writing"]["allowed"], "freely");
}

#[test]
fn without_rights_the_layers_are_told_and_what_root_would_add() {
    let place = or_skip!(Place::of_nobody());
    let volume = or_skip!(Volume::new(16 * MIB));
    let ended = place.does(&format!("target {} --json", volume.device.path()));
    let document = ended.json();
    assert!(kinds(&document).starts_with(&["volume"]), "{document}");
    assert_eq!(document["content"], Value::Null);
    assert!(document["writing"]["why"].as_str().unwrap().contains("is mounted at"), "{document}");
    ended.says("only root can read", "the content of the target");
}

#[test]
fn what_cannot_be_a_target_is_an_error() {
    let place = Place::new();
    place.cannot("target nothing").with_code(2).says("nothing does not exist", "specify");
    place.cannot("target /dev/zero").with_code(2).says("neither a file nor", "block device");
    place.cannot("target sim:any").with_code(2).says("simulated systems", "use a file");
}

#[test]
fn every_verb_says_what_it_would_do_and_does_nothing() {
    let place = Place::new();
    place.file("data", MIB);
    let help = place.does("--help").stdout;
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    for verb in commands.lines().filter_map(|line| line.split_whitespace().next()) {
        let line = match verb {
            "survey" | "sweep" | "run" | "target" => format!("{verb} data --plan"),
            "fio" => "fio --name=x --filename=data -- --plan --quiet".to_owned(),
            "simulate" => "simulate --system nt4-ultrawide --plan".to_owned(),
            "study" => "study depth data --plan".to_owned(),
            "classic" => "classic sqlio -fsequential data --plan".to_owned(),
            "memory" | "engines" | "explain" | "clean" => format!("{verb} --plan"),
            "runs" => "runs list --plan".to_owned(),
            "compare" => "compare --run data --run data --plan".to_owned(),
            "baseline" => "baseline list --plan".to_owned(),
            "history" | "export" => format!("{verb} --plan"),
            "fleet" => "fleet none.db --plan".to_owned(),
            // These subcommands read their files even with `--plan`.
            "import" | "replay" => continue,
            "copy" => "copy data there --plan".to_owned(),
            "cat" | "checksum" => format!("{verb} data --plan"),
            "tune" => "tune . --plan".to_owned(),
            "mount" => "mount truth:fixed=1ms . --plan".to_owned(),
            "peer" => "peer --dir . --plan".to_owned(),
            "reproduce" => "reproduce riedel97 --plan".to_owned(),
            "selftest" | "restore" => format!("{verb} --plan"),
            "soak" | "watch" => format!("{verb} --plan -- true"),
            "trace" | "characterise" => format!("{verb} data --plan"),
            // These subcommands need a stored survey or a database.
            "report" | "serve" | "help" => continue,
            "calibrate" => "calibrate --measure sim:sata-hdd-7200 --plan".to_owned(),
            "whatif" => "whatif nt4-ultrawide --iodepth-to 2 --plan".to_owned(),
            "plan" => "plan --need reads,8k,100/s --plan".to_owned(),
            other => panic!("{other} is a new subcommand: add --plan to it and a line here"),
        };
        let ended = place.does(&line);
        assert!(!ended.stdout.is_empty() && ended.stderr.is_empty(), "{ended}");
        assert_eq!(place.listing(), ["data"], "{ended}");
    }
    let ended = place.does("run . --rw write --size 1m --plan --endurance 600TB");
    assert!(ended.stdout.contains("% of the rated 600 TB"), "{ended}");
}
