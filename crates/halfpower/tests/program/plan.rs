//! Tests `halfpower plan`: it prints the cheapest configurations for a need, and refuses invalid
//! needs and price lists.

use crate::fixture::{Place, list};

#[test]
fn the_cheapest_configuration_of_each_kind_is_named_with_price_and_limit() {
    let place = Place::new();
    let document = place.document("plan --need reads,8k,150/s;capacity,30GB --max-devices 8");
    let choices = list(&document["choices"]);
    assert!(!choices.is_empty(), "{document}");
    let prices: Vec<f64> = choices.iter().map(|one| one["price"].as_f64().unwrap()).collect();
    assert!(prices.is_sorted(), "{prices:?}");
    for one in choices {
        assert!(one["headroom"].as_f64().unwrap() >= 1.2, "{one}");
        assert!(one["capacity_bytes"].as_u64().unwrap() >= 30_000_000_000, "{one}");
        // The configuration must also be a valid target of the other subcommands.
        let target = one["target"].as_str().unwrap();
        place.does(&format!("run {target} --rw randread --bs 8k --size 4m --trials 1 --no-store"));
    }
    let counts = &document["counts"];
    let of = |name: &str| counts[name].as_u64().unwrap();
    let judged = ["too_small", "excluded_by_bounds", "missed", "met", "not_cheaper"].map(of);
    assert_eq!(judged.iter().sum::<u64>(), of("candidates"), "{counts}");
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn a_need_that_nothing_meets_ends_with_one_and_names_the_closest() {
    let place = Place::new();
    let line = "plan --need reads,4k,5000000/s --max-cost 5000 --max-devices 4";
    let ended = place.halfpower(line).with_code(1);
    assert!(ended.stdout.contains("No configuration meets the need"), "{ended}");
    assert!(ended.stdout.contains("The closest"), "{ended}");
}

#[test]
fn a_price_list_can_be_printed_changed_and_given() {
    let place = Place::new();
    let list = place.does("plan --show-prices").stdout;
    let cheaper = list.replace("price = 534", "price = 1");
    std::fs::write(place.path("prices.toml"), cheaper).unwrap();
    let need = "plan --need reads,8k,20/s --max-devices 1 --count 10";
    let price = |line: &str| {
        let document = place.document(line);
        let choices = document["choices"].as_array().unwrap().clone();
        let atlas = choices.iter().find(|one| one["target"].to_string().contains("atlas10k"));
        atlas.unwrap()["price"].as_f64().unwrap()
    };
    assert_eq!(price(need) - price(&format!("{need} --prices prices.toml")), 533.0);
}

#[test]
fn wrong_needs_and_price_lists_are_refused_with_the_remedy() {
    let place = Place::new();
    std::fs::write(place.path("wrong.toml"), "currency = 'USD'\nsystem = []").unwrap();
    for (line, words) in [
        ("plan --need reads,8k", "a size and a rate are needed"),
        ("plan --need capacity,1t", "neither reads nor writes"),
        ("plan --need reads,8k,1/s --prices nowhere.toml", "specify a TOML file"),
        ("plan --need reads,8k,1/s --prices /dev/zero", "specify a TOML file"),
        ("plan --need reads,8k,1/s --prices wrong.toml", "--show-prices prints an example"),
        ("plan", "--need"),
    ] {
        let ended = place.halfpower(line).with_code(2);
        assert!(ended.stderr.contains(words), "{words}: {ended}");
    }
}
