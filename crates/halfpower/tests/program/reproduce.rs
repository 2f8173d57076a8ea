//! Tests `reproduce`: it must print all figures of the papers, and its errors must be within the
//! published limits.

use serde_json::Value;

use crate::fixture::Place;
use crate::json::Schema;

fn figure<'a>(document: &'a Value, key: &str) -> &'a Value {
    let figures = document["figures"].as_array().unwrap();
    figures.iter().find(|figure| figure["key"] == key).unwrap_or_else(|| panic!("no figure {key}"))
}

fn mean(scored: &Value) -> f64 {
    scored["score"]["mean"].as_f64().unwrap()
}

#[test]
fn the_first_paper_is_reproduced_within_its_bars() {
    let document = Place::new().document("reproduce riedel97");
    Schema::of("reproduce").fits(&document);
    let figures = document["figures"].as_array().unwrap();
    let keys: Vec<&str> = figures.iter().map(|figure| figure["key"].as_str().unwrap()).collect();
    let all = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 16 17 t1 t2 t3 t4";
    assert_eq!(keys, all.split(' ').collect::<Vec<_>>());

    // Every published point must be simulated.
    for figure in figures {
        for chart in figure["charts"].as_array().unwrap() {
            let columns = chart["columns"].as_array().unwrap().iter();
            let points = columns.flat_map(|column| column["points"].as_array().unwrap());
            for point in points.filter(|point| point["published"].is_f64()) {
                assert!(
                    point["simulated"].is_f64(),
                    "{} {}: {point}",
                    figure["key"],
                    chart["title"]
                );
            }
        }
    }

    // Figure 2 has a chart of throughput and a chart of CPU time.
    let of_figure_2 = &figure(&document, "2")["charts"];
    assert!(mean(&of_figure_2[1]) <= 0.125, "{}", of_figure_2[1]["score"]);
    let mut throughput = ["3", "6", "14", "t3"].map(|key| mean(figure(&document, key))).to_vec();
    throughput.push(mean(&of_figure_2[0]));
    let overall = throughput.iter().sum::<f64>() / throughput.len() as f64;
    assert!(overall <= 0.05, "mean {overall}, of {throughput:?}");
    assert!(throughput.iter().all(|mean| *mean <= 0.08), "{throughput:?}");
    assert!(mean(figure(&document, "4")) <= 0.10);
    let phases = &figure(&document, "t4")["score"];
    assert!(phases["worst"].as_f64().unwrap().abs() <= 0.05, "{phases}");
    for key in ["2", "3", "6"] {
        let figure = figure(&document, key);
        let naive = figure["naive_score"]["mean"].as_f64().unwrap();
        assert!(mean(figure) < naive, "figure {key} is no better than the naive bound {naive}");
    }
}

#[test]
fn every_claim_is_counted_once() {
    for (paper, all) in [("riedel97", 187), ("chung2000", 280)] {
        let document = Place::new().document(&format!("reproduce {paper} --claims"));
        let claims = &document["claims"];
        let count = |name: &str| claims[name].as_u64().unwrap();
        let listed = |name: &str| claims[name].as_array().unwrap().len() as u64;
        let checked = claims["checked"].as_array().unwrap();
        let grouped = checked.iter().filter(|claim| claim["counted_as"].is_string()).count() as u64;
        let lists = ["contradicted", "contradict_inputs", "not_simulated"].map(listed);
        let counted = count("inputs") + count("passed") + count("failed") + count("out");
        assert_eq!(counted + grouped + lists.iter().sum::<u64>(), all, "{paper}");
        let checked: Vec<_> =
            checked.iter().filter(|claim| claim["counted_as"].is_null()).collect();
        assert_eq!(checked.len() as u64, count("passed") + count("failed"));
        let measured = checked
            .iter()
            .filter(|claim| ["measured", "derived"].contains(&claim["kind"].as_str().unwrap()));
        let passed = measured.clone().filter(|claim| claim["pass"] == true).count() as u64;
        assert_eq!(count("measured_checked"), measured.count() as u64, "{paper}");
        assert_eq!(count("measured_passed"), passed, "{paper}");
        for claim in checked.iter().filter(|claim| claim["pass"] == false) {
            assert!(!claim["reason"].as_str().unwrap().is_empty(), "{claim}");
        }
    }
}

#[test]
fn what_fails_of_the_second_paper_has_a_reason() {
    let document = Place::new().document("reproduce chung2000 --claims");
    let checked = document["claims"]["checked"].as_array().unwrap();
    let counted = checked.iter().filter(|claim| claim["counted_as"].is_null());
    for claim in counted.filter(|claim| claim["pass"] == false) {
        assert_ne!(claim["reason"], "unexplained", "{claim}");
        assert_ne!(
            claim["reason"],
            "the claim does not hold at any simulated size, depth or number of disks",
            "{claim}"
        );
    }
    let claims = &document["claims"];
    let share = |of: &str| claims[of].as_f64().unwrap();
    assert!(share("measured_passed") >= 0.83 * share("measured_checked"), "{claims}");
}

#[test]
fn a_figure_of_the_second_paper_is_simulated_though_nothing_of_it_is_published() {
    let document = Place::new().document("reproduce chung2000 --figure 11");
    let random = figure(&document, "11");
    assert!(random["score"].is_null(), "{random}");
    let points = random["charts"][0]["columns"][0]["points"].as_array().unwrap();
    let rates: Vec<f64> = points.iter().map(|one| one["simulated"].as_f64().unwrap()).collect();
    assert!(rates[5] > 1.5 * rates[0], "depth 32 gains too little: {rates:?}");
}

#[test]
fn one_figure_is_laid_out_with_sizes_down_and_series_across() {
    let place = Place::new();
    let ended = place.does("reproduce riedel97 --figure 6");
    let head = ended.stdout.lines().find(|line| line.contains("request KB")).unwrap();
    assert!(head.contains("1 Buffer") && head.contains("8 Buffers"), "{ended}");
    assert!(ended.stdout.contains("naive bound: mean"), "{ended}");
    assert_eq!(ended.stdout, place.does("reproduce riedel97 --figure 6").stdout, "output differs");
    place
        .cannot("reproduce riedel97 --figure 15")
        .with_code(2)
        .says("no such figure", "use one of");
    place.halfpower("reproduce riedel99").with_code(2);
}
