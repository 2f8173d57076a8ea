//! Tests `run`, `sweep` and `simulate` on simulated systems. They run in virtual time, so the same
//! workload must always give bit-identical results.

use ioengine::{Clock, Monotonic};
use serde_json::Value;

use crate::fixture::{KIB, MIB, Place, about, list, pause, real, text, whole};

const ULTRA: &str = "sim:nt4-ultrawide";

fn rate(point: &Value) -> f64 {
    real(&point["summary"]["throughput_bytes_per_s"]["median"])
}

#[test]
fn requests_that_complete_after_the_end_are_no_throttling() {
    for seed in 1..=8 {
        let place = Place::new();
        let document = place.document(&format!(
            "run sim:sata-hdd-7200 --rw randread --bs 4k --iodepth 256 --runtime 5 --trials 1 \
             --seed {seed} --no-store"
        ));
        let reasons = document["verdict"]["reasons"].to_string();
        assert!(!reasons.contains("throttled"), "seed {seed}: {reasons}");
    }
}

#[test]
fn queued_writes_do_not_miss_the_revolution_that_they_were_chosen_for() {
    let rate = |depth: u32| {
        let place = Place::new();
        let document = place.document(&format!(
            "run sim:sata-hdd-7200,write_cache=off --rw randwrite --bs 4k --iodepth {depth} \
             --runtime 10 --trials 1 --no-store"
        ));
        crate::known_truth::requests_per_s(&document)
    };
    let (one, many) = (rate(1), rate(32));
    assert!(many > 1.5 * one, "{one} at depth 1, {many} at depth 32");
}

#[test]
fn the_same_run_gives_the_same_bits() {
    let place = Place::new();
    let line = format!("run {ULTRA},disks=2,volume=stripe --bs 64k --iodepth 4 --size 10m");
    let (one, other) = (place.document(&line), place.document(&line));
    assert_eq!(one, other);
    let another_seed = place.document(&format!("{line} --seed 7"));
    assert_ne!(one["trials"], another_seed["trials"], "another seed gives the same trials");
    let stored = place.stored_points();
    assert_eq!((stored.len(), stored[0].trials.len()), (1, 3));
    assert_eq!(stored[0].row.ioengine, "simulated");
}

#[test]
fn simulate_says_what_run_says_and_where_the_time_went() {
    let place = Place::new();
    let flags = "--rw read --bs 64k --size 10m --seed 9";
    let run = place.document(&format!("run {ULTRA} --no-store {flags}"));
    let simulated = place.document(&format!("simulate --system nt4-ultrawide {flags}"));
    for part in ["target", "workload", "trials", "summary", "verdict"] {
        assert_eq!(run[part], simulated[part], "{part}");
    }
    assert_eq!(run["verdict"]["state"], "valid");
    assert_eq!(simulated["binding"]["resource"], "media");
    let resources = list(&simulated["resources"]);
    assert!(resources.iter().all(|resource| real(&resource["utilisation"]) <= 1.0));
    let media = resources.iter().find(|resource| resource["name"] == "media").unwrap();
    let phases = media["phases_ns"].as_object().unwrap();
    assert_eq!(phases.values().map(whole).sum::<u64>(), whole(&media["busy_ns"]));
    let bounds = list(&simulated["bounds"]);
    assert_eq!(bounds[0]["name"], "media", "the smallest bound comes first");
    assert!(bounds.iter().all(|bound| real(&bound["bytes_per_s"]) >= rate(&simulated)));
    assert_eq!(place.listing(), [""; 0], "a database was created without --db");
    place.does(&format!("simulate --system nt4-ultrawide {flags} --db asked.db"));
    assert_eq!(place.listing(), ["asked.db"]);
}

#[test]
fn every_command_names_the_same_bottleneck() {
    // In the second paper, PCI limits the throughput, and the bus of the disks waits for PCI.
    let place = Place::new();
    let four = "--set disks=4 --set volume=stripe";
    let flags = "--bs 64k --iodepth 8";
    let simulated = place.document(&format!("simulate --system w2k-atlas10k {four} {flags}"));
    assert_eq!(simulated["binding"]["resource"], "PCI");
    assert_eq!(simulated["binding"]["held"]["resource"], "Ultra160 SCSI");
    let given = "--given disks=4 --given volume=stripe";
    let faster = format!("whatif w2k-atlas10k {given} {flags} --set bus.read=320MB/s");
    let whatif = place.document(&faster);
    assert_eq!(whatif["before"]["bottleneck"], "PCI");
    assert!((real(&whatif["ratio"]) - 1.0).abs() < 0.01, "{}", whatif["ratio"]);
    assert_eq!(whatif["sensitivities"][0]["key"], "links.0.read");
    let system = "sim:w2k-atlas10k,disks=4,volume=stripe";
    let survey = place.document(&format!("survey {system} --quick"));
    let found = list(&survey["findings"]).iter().find(|found| found["id"] == "bottleneck");
    let found = found.unwrap();
    let limit = "The limit of sequential reads is PCI (PCI, busy 8";
    assert!(text(&found["text"]).starts_with(limit), "{found}");
    place.does("report latest --html again.html");
    let page = std::fs::read_to_string(place.path("again.html")).unwrap();
    assert!(page.contains("The limit of sequential reads is PCI"), "not in the new page");
    let study = place.document(&format!("study stripe {system} --quick --no-store"));
    let findings = list(&study["studies"][0]["findings"]).iter();
    let mut limits = findings.filter(|finding| finding["id"] == "limit");
    let reads = text(&limits.next().unwrap()["text"]);
    assert!(reads.starts_with("reads over 4 targets are limited by PCI"), "{reads}");
}

#[test]
fn a_sweep_of_a_simulated_disk_is_sane() {
    let place = Place::new();
    let document = place.document(&format!("sweep {ULTRA} --bs 2k,64k --rw read --size 10m"));
    let [small, large] = list(&document["points"]) else { panic!("{document}") };
    assert!(rate(small) < rate(large), "{document}");
    assert!((6e6..10e6).contains(&rate(large)), "not about the media rate: {}", rate(large));
    for point in [small, large] {
        let cpu = &point["summary"]["cpu_ns_per_request"];
        assert!(real(&cpu["lower"]) > 0.0 && real(&cpu["lower"]) <= real(&cpu["upper"]), "{cpu}");
        for trial in list(&point["trials"]) {
            assert_eq!(whole(&trial["bytes"]), 10 * MIB);
            assert!(whole(&trial["device"]["read_bytes"]) >= 10 * MIB);
        }
    }
    let target = &document["target"];
    assert_eq!(target["kind"], "simulated");
    assert_eq!(target["simulated"]["system"], "nt4-ultrawide");
    assert!(!list(&target["links"]).is_empty());
    assert_eq!(place.stored_points().len(), 2);
}

#[test]
fn settings_come_with_the_name_or_with_flags() {
    let place = Place::new();
    let point = |line: &str| place.document(&format!("{line} --rw write --bs 8k --size 2m -q"));
    let changes = |document: &Value| document["target"]["simulated"]["changes"].clone();
    let plain = point(&format!("run {ULTRA} --no-store"));
    assert_eq!(plain["workload"]["caching"], "direct");
    let faster = point(&format!("run {ULTRA},drive.rotation=14400 --no-store"));
    assert!(rate(&faster) > 1.5 * rate(&plain), "each write should wait for a revolution");
    assert_eq!(changes(&faster)["drive.rotation"], "14400");
    let set = point("simulate --system nt4-ultrawide --set drive.rotation=14400");
    assert_eq!((rate(&set), changes(&set)), (rate(&faster), changes(&faster)));
    let buffered = point(&format!("run {ULTRA} --direct=0 --no-store"));
    assert_eq!(buffered["workload"]["caching"], "buffered");
    assert!(buffered["trials"][0]["accepted_ns"].is_u64(), "the time should include a flush");
    let durable = point(&format!("run {ULTRA} --write-through --no-store"));
    assert_eq!(durable["workload"]["caching"], "direct+write-through");
    let extending = point(&format!("run {ULTRA} --allocation extend --no-store"));
    assert_eq!(changes(&extending)["allocation"], "extend");
    assert_eq!(extending["workload"]["settings"]["grows_file"], true);
}

#[test]
fn time_and_rate_are_virtual() {
    let place = Place::new();
    let line = format!("run {ULTRA} --rw randread --bs 8k --no-store");
    let document = place.document(&format!("{line} --runtime 600 --rate-iops 20"));
    let trial = &document["trials"][0];
    assert!(whole(&trial["elapsed_ns"]) > 599_000_000_000, "the run lasts ten virtual minutes");
    assert!((11_000..=12_001).contains(&whole(&trial["requests"])), "{}", trial["requests"]);
    let threads = place.document(&format!("{line} --numjobs 3 --runtime 5 --ramp-time 1"));
    assert_eq!(threads["workload"]["threads"], 3);
    let moved = place.document(&format!("{line} --offset 200m --size 64k"));
    assert_eq!(whole(&moved["trials"][0]["bytes"]), 64 * KIB, "the file should be enlarged");
}

#[test]
fn a_system_of_ones_own_is_simulated_from_its_file() {
    let place = Place::new();
    let file = place.does("simulate --show nt4-ultrawide").stdout;
    assert!(file.contains("source = "), "{file}");
    let slower = file.replace("value = 7200", "value = 3600");
    std::fs::write(place.path("slow.toml"), slower).unwrap();
    let rate_of = |target: &str| {
        let flags = "--rw write --bs 4k --size 1m --no-store";
        rate(&place.document(&format!("run {target} {flags}")))
    };
    let (fast, slow) = (rate_of(ULTRA), rate_of("sim:./slow.toml"));
    assert!((1.9..2.1).contains(&(fast / slow)), "each write takes a revolution: {fast} {slow}");
    let set = place.does("simulate --show nt4-ultrawide --set drive.rotation=3600").stdout;
    std::fs::write(place.path("set.toml"), set).unwrap();
    assert!(about(rate_of("sim:./set.toml"), slow), "the file lacks the setting");
    let changed = rate_of(&format!("{ULTRA},drive.rotation=3600"));
    assert!(about(changed, slow), "{changed} {slow}");
}

#[test]
fn the_systems_are_listed_with_their_titles() {
    let place = Place::new();
    let text = place.does("simulate --list").stdout;
    let ultra = text.lines().find(|line| line.starts_with("nt4-ultrawide ")).unwrap();
    assert!(ultra.contains("First paper"), "{text}");
    let document = place.document("simulate --list");
    assert_eq!(list(&document["systems"]).len(), text.lines().count());
}

#[test]
fn what_means_nothing_in_a_simulated_system_is_refused_with_the_remedy() {
    let place = Place::new();
    place.file("data", MIB);
    for (flags, cause, remedy) in [
        ("--rw write --verify", "stores no data", "drop --verify"),
        ("--inject eio@1", "cannot inject faults", "drop --inject"),
        ("--cpus-allowed 0", "CPUs of this host", "drop --cpus-allowed"),
        ("--ioengine sync", "no I/O engine of this host", "drop --ioengine"),
        ("--scheduler none", "settings of this host", "the flags listed under 'Host'"),
        ("--overwrite=data", "no data that could be lost", "--overwrite"),
        ("--rw write --allocation truncate", "no blocks", "drop --allocation truncate"),
        ("--hint random", "no kernel", "drop --hint"),
        ("--soaker", "both bounds", "drop --soaker"),
        ("--buffer-pages 4k", "no memory pages", "drop --buffer-pages"),
        ("--invalidate=0", "cold cache", "drop --invalidate=0"),
        ("--zero-buffers", "no data", "drop --zero-buffers"),
        ("--allow-holes", "no holes", "drop --allow-holes"),
        ("--endurance 600TB", "no drive", "drop --endurance"),
        ("--rw read --allocation extend", "writes only", "write or randwrite"),
        ("data", "cannot be measured together", "measure it alone"),
        ("sim:nt4-narrow", "cannot be measured together", "measure it alone"),
        ("--offset 1g", "beyond the end", "smaller --offset"),
        ("--size 1t", "the region ends at", "smaller --size"),
        ("--bs 1000", "not a multiple of 512", "--direct=0"),
    ] {
        place.cannot(&format!("run {ULTRA} {flags}")).with_code(2).says(cause, remedy);
    }
    for (line, cause, remedy) in [
        ("survey sim:nt4-ultrawide --destroy-data-on=foo", "could be lost", "--destroy-data-on"),
        ("survey sim:nt4-ultrawide --buffer-pages 4k", "no memory pages", "--buffer-pages"),
        ("run sim:nothing", "no simulated system is called 'nothing'", "nt4-ultrawide"),
        ("run sim:nt4-ultrawide,disks", "'disks' is not a change", "KEY=VALUE"),
        ("run sim:nt4-ultrawide,wheels=4", "no such value", "disks"),
        ("run sim:nt4-ultrawide,volume=raid5", "needs 3 or more disks", "for each host"),
        ("run sim:./missing.toml", "missing.toml", "specify a TOML file"),
        ("simulate", "no system", "--system"),
        ("simulate data", "takes no target", "--system"),
        ("simulate --system nt4-ultrawide data", "takes no target", "--system"),
    ] {
        place.cannot(line).with_code(2).says(cause, remedy);
    }
}

#[test]
fn a_survey_of_a_simulated_disk_says_what_the_paper_said_of_it() {
    let place = Place::new();
    let document = place.document(&format!("survey {ULTRA} --quick"));
    assert_eq!(document["verdict"]["state"], "valid", "{}", document["verdict"]);
    assert_eq!(document["target"]["kind"], "simulated");
    let points = list(&document["points"]);
    assert!(points.len() > 20);
    // The rate of buffered writes drops when the cache is full, as on a real machine. Their
    // verdicts are therefore not checked.
    let steady = |p: &&Value| p["workload"]["rw"] == "read" || p["workload"]["caching"] == "direct";
    for point in points.iter().filter(steady) {
        assert_eq!(point["verdict"]["state"], "valid", "{point}");
    }
    let advice: Vec<&str> =
        list(&document["advice"]).iter().map(|a| a["text"].as_str().unwrap()).collect();
    assert!(advice.iter().any(|text| text.contains("outstanding")), "{advice:?}");
    assert_eq!(place.listing(), ["halfpower.db", "halfpower.html"]);
    let again = place.does("report --html again.html");
    assert!(place.path("again.html").exists(), "{again}");
}

#[test]
fn a_survey_of_a_simulated_system_ends_when_all_is_settled() {
    let place = Place::new();
    let clock = Monotonic::new();
    let start_ns = clock.now_ns();
    // `--max-write` does not limit simulated writes.
    let document = place.document("survey sim:cloud-gp-volume --max-write 16m");
    let took_ns = clock.now_ns() - start_ns;
    assert!(took_ns < 60_000_000_000, "the survey used its 90 s budget: {took_ns} ns");
    assert_eq!(whole(&document["written_bytes"]), 0, "a simulation wrote to this host");
    let trials = |document: &Value| -> Vec<usize> {
        list(&document["points"]).iter().map(|point| list(&point["trials"]).len()).collect()
    };
    assert!(trials(&document).iter().min() >= Some(&3), "{:?}", trials(&document));
    let unkept = place.document("survey sim:cloud-gp-volume --no-store");
    assert_eq!(trials(&unkept), trials(&document), "results differ without a database");
}

#[test]
fn a_plan_simulates_nothing() {
    let place = Place::new();
    for line in ["run", "sweep", "survey", "simulate"] {
        let ended = place.does(&format!("{line} {ULTRA} --plan"));
        assert!(ended.stdout.contains("nothing is touched"), "{ended}");
        assert!(ended.stdout.contains("virtual time"), "{ended}");
        assert!(!ended.stdout.contains("write at most"), "{ended}");
        assert!(!ended.stdout.contains("measuring"), "{ended}");
        assert_eq!(place.listing(), [""; 0], "{ended}");
    }
}

#[test]
fn a_simulated_rate_that_falls_is_said_to_fall_and_one_that_stays_is_valid() {
    let place = Place::new();
    let verdict = |line: &str| {
        let document = place.document(&format!("run {line} --trials 1 --no-store"));
        document["verdict"].to_string()
    };
    let bursts = "sim:cloud-gp-volume --bs 1m --iodepth 8 --time-based --runtime 600";
    let fell = verdict(bursts);
    assert!(fell.contains("suspect") && fell.contains("the rate fell from 250 MB/s"), "{fell}");
    for system in ["nt4-ultrawide", "sata-hdd-7200", "nvme-gen4"] {
        for load in ["read --bs 64k", "randread --bs 8k --iodepth 4", "randwrite --bs 4k"] {
            let line = format!("sim:{system} --rw {load} --time-based --runtime 4");
            assert!(verdict(&line).contains(r#""state":"valid""#), "{line}: {}", verdict(&line));
        }
    }
}

#[test]
fn a_simulated_request_that_takes_for_ever_is_no_matter_for_the_kernel_log() {
    let place = Place::new();
    let line = format!("run {ULTRA},drive.firmware_read=100s --bs 4k --size 1m --no-store -q");
    let ended = place.cannot(&line).with_code(1);
    let ended = ended.says("60 s of virtual time", "check the system parameters that you changed");
    assert!(!ended.stderr.contains("dmesg"), "{ended}");
}

#[test]
fn the_help_of_simulate_offers_what_a_simulated_system_can_do() {
    let help = Place::new().does("simulate --help").stdout;
    assert!(!help.contains("truncate") && !help.contains("a directory"), "{help}");
}

#[test]
fn an_interrupted_simulation_keeps_what_it_has() {
    let place = Place::new();
    // The run would take weeks of virtual time, so it cannot end before the interrupt.
    let flags = "--rw read --bs 2k --runtime 2000000 --trials 1";
    let mut running = place.start(&format!("run {ULTRA} {flags}"));
    running.until_it_says("time is virtual");
    pause(1000);
    running.signal("INT");
    let ended = running.ended().was_interrupted();
    assert!(ended.stdout.contains("interrupted before its end"), "{ended}");
    assert_eq!(place.stored_points()[0].trials.len(), 1);
}
