//! Tests `halfpower explain`, and the suggestions for mistyped names.

use crate::fixture::{Place, list};

#[test]
fn a_word_of_the_output_is_explained_offline() {
    let place = Place::new();
    place.does("explain noisy").prints("reason of a verdict");
    place.does("explain half-power point").prints("RAP > PAP/2");
    place.does("explain depth/knee").prints("finding of the study depth");
    place.does("explain R077").prints("claim of a paper");
    place.does("explain sata-ssd").prints("simulated system");
    place.does("explain").prints("Reasons of verdicts");
    for (line, name) in [("noisy", "noisy"), ("r077", "R077"), ("sim:sata-ssd", "sata-ssd")] {
        let document = place.document(&format!("explain {line}"));
        assert_eq!(list(&document["articles"])[0]["name"], name);
    }
    place.does("explain noisy holes").prints("holes (reason of a verdict)");
    place.cannot("explain noisy xyzzy").with_code(2).says("xyzzy", "lists all topics");
    assert!(place.listing().is_empty());
}

#[test]
fn everything_that_the_program_prints_has_a_topic() {
    let all =
        |kind| -> Vec<&str> { explain::of_kind(kind).map(|topic| topic.name.as_str()).collect() };
    let reasons: Vec<&str> = lab::check::Check::ALL.iter().map(|check| check.name()).collect();
    let mut topics = all(explain::Kind::Reason);
    for name in &reasons {
        assert!(topics.contains(name), "reason {name}");
    }
    topics.retain(|name| !reasons.contains(name));
    assert_eq!(topics, [""; 0], "some topics explain reasons that do not exist");
    let rules = survey::advice::rules();
    let rules: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(all(explain::Kind::Advice), rules);
    let studies: Vec<&str> = study::catalogue::ALL.iter().map(|study| study.name).collect();
    assert_eq!(all(explain::Kind::Study), studies);
}

#[test]
fn a_mistyped_name_gets_the_one_that_was_meant() {
    let place = Place::new();
    for (line, meant) in [
        ("explain nosiy", "noisy"),
        ("study dpeth .", "did you mean depth?"),
        ("run sim:sata-sdd --bs 4k", "did you mean sata-ssd?"),
        ("run . --rw randrad", "did you mean randread?"),
        ("run . --ioengine io_urin", "did you mean io_uring?"),
        ("run sim:sata-ssd,disk=4", "did you mean disks?"),
    ] {
        let ended = place.cannot(line).with_code(2);
        assert!(ended.stderr.contains(meant), "{line}: {ended}");
    }
    for (line, meant) in [("surve .", "survey"), ("run . --iodept 4", "--iodepth")] {
        let ended = place.halfpower(line).with_code(2);
        assert!(ended.stderr.contains(meant), "{line}: {ended}");
    }
}
