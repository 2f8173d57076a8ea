//! Formats the answer of a capacity plan as JSON and as text. Both have the same content, but the
//! numbers in the text are rounded.

use analysis::units;
use lab::json::Program;
use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::need::Need;
use crate::plan::ranking::{Answer, Choice, Counts, Question};

/// The JSON document that `plan --json` prints. Prices are in the currency of the price list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CapacityDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The request streams of the need, as text.
    pub streams: Vec<String>,
    /// The stated capacity. Null if the need states no capacity.
    pub capacity_bytes: Option<u64>,
    /// Factor by which all rates of the need are multiplied. A configuration must sustain the
    /// multiplied rates.
    pub margin: f64,
    /// Currency of the prices.
    pub currency: String,
    /// Number of configurations for each outcome, for example "too small".
    pub counts: Counts,
    /// The cheapest configuration of each kind (system, volume, RAID controller) that meets the
    /// need.
    pub choices: Vec<ChoiceDocument>,
    /// The configuration that comes closest to the need. Null if a configuration meets the need.
    pub closest: Option<ClosestDocument>,
}

/// A configuration that meets the need.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChoiceDocument {
    /// The configuration as text.
    pub configuration: String,
    /// The configuration as a target of the subcommands `run` and `survey`.
    pub target: String,
    /// The price of all parts together.
    pub price: f64,
    /// Whether the price of any part is an assumption instead of a published price.
    pub price_is_assumed: bool,
    /// The usable capacity (bytes).
    pub capacity_bytes: u64,
    /// The largest factor by which the stated load can be multiplied so that the configuration
    /// still meets the need.
    pub headroom: f64,
    /// The bottleneck when the load is `headroom` times the stated load. If there is no bottleneck,
    /// the busiest component.
    pub binds: String,
    /// Price divided by the highest request rate that the configuration sustains.
    pub price_per_request_per_s: f64,
    /// Price per 10^9 bytes of usable capacity.
    pub price_per_gb: f64,
    /// Simulated results of each request stream at the stated load.
    pub streams: Vec<StreamDocument>,
}

/// Simulated results of one request stream.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StreamDocument {
    /// The request stream, as text.
    pub stream: String,
    /// Number of requests completed per second.
    pub requests_per_s: f64,
    /// Median latency (ns).
    pub latency_p50_ns: u64,
    /// 99th percentile of the latency (ns).
    pub latency_p99_ns: u64,
}

/// The configuration that comes closest to the need, if no configuration meets the need.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClosestDocument {
    /// The configuration as text.
    pub configuration: String,
    /// Why the configuration does not meet the need.
    pub why: String,
}

/// Builds the JSON document of a capacity plan.
pub fn of(question: &Question, answer: &Answer, currency: &str) -> CapacityDocument {
    CapacityDocument {
        halfpower: Program::this(),
        streams: question.need.streams.iter().map(ToString::to_string).collect(),
        capacity_bytes: question.need.capacity_bytes,
        margin: question.margin,
        currency: currency.to_owned(),
        counts: answer.counts,
        choices: answer.choices.iter().map(|one| choice(&question.need, one)).collect(),
        closest: answer.closest.as_ref().map(|(candidate, why)| ClosestDocument {
            configuration: candidate.to_string(),
            why: why.clone(),
        }),
    }
}

fn choice(need: &Need, choice: &Choice) -> ChoiceDocument {
    let streams = need.streams.iter().zip(&choice.outlook.streams);
    ChoiceDocument {
        configuration: choice.candidate.to_string(),
        target: choice.candidate.target(),
        price: choice.candidate.price,
        price_is_assumed: choice.candidate.is_assumed,
        capacity_bytes: choice.outlook.capacity_bytes,
        headroom: choice.headroom,
        binds: choice.binds.clone(),
        price_per_request_per_s: choice.price_per_request_per_s(need),
        price_per_gb: choice.price_per_gb(),
        streams: streams
            .map(|(stream, found)| StreamDocument {
                stream: stream.to_string(),
                requests_per_s: found.requests_per_s,
                latency_p50_ns: found.p50_ns,
                latency_p99_ns: found.p99_ns,
            })
            .collect(),
    }
}

/// Formats a document as lines for the terminal.
pub fn text(document: &CapacityDocument) -> Vec<String> {
    let margin = 100.0 * (document.margin - 1.0);
    let mut lines = vec![format!("The need, with a margin of {margin:.0}%:")];
    lines.extend(document.streams.iter().map(|stream| format!("  {stream}")));
    let capacity = document.capacity_bytes.map(units::decimal_size);
    lines.extend(capacity.map(|size| format!("  {size} of usable capacity")));
    lines.push(counts(&document.counts));
    for (number, choice) in (1..).zip(&document.choices) {
        lines.push(String::new());
        lines.extend(lines_of(number, choice, &document.currency));
    }
    if document.choices.is_empty() {
        lines.push("No configuration meets the need.".to_owned());
        lines.extend(
            document.closest.as_ref().map(|closest| {
                format!("The closest is {}: {}", closest.configuration, closest.why)
            }),
        );
    }
    lines
}

fn counts(counts: &Counts) -> String {
    let parts = [
        (counts.too_small, "too small"),
        (counts.excluded_by_bounds, "excluded by bounds"),
        (counts.missed, "too slow in simulation"),
        (counts.met, "meet the need"),
        (counts.not_cheaper, "not judged, because cheaper configurations meet the need"),
    ];
    let named = parts.iter().filter(|(count, _)| *count > 0);
    let named: Vec<String> = named.map(|(count, what)| format!("{count} {what}")).collect();
    let all = units::counted(counts.candidates as u64, "configuration");
    format!("{all}: {}", if named.is_empty() { "none".to_owned() } else { named.join(", ") })
}

fn lines_of(number: usize, choice: &ChoiceDocument, currency: &str) -> Vec<String> {
    let assumed = if choice.price_is_assumed { " (assumed prices)" } else { "" };
    let (per_request, per_gb) = (choice.price_per_request_per_s, choice.price_per_gb);
    let mut lines = vec![
        format!("{number}. {:.0} {currency}{assumed}: {}", choice.price, choice.configuration),
        format!(
            "   {} usable; sustains {:.2} times the stated load, limited by {}",
            units::decimal_size(choice.capacity_bytes),
            choice.headroom,
            choice.binds
        ),
    ];
    for stream in &choice.streams {
        let [p50, p99] =
            [stream.latency_p50_ns, stream.latency_p99_ns].map(|ns| units::time(ns as f64));
        lines.push(format!("   {}: p50 {p50}, p99 {p99}", stream.stream));
    }
    lines.push(format!(
        "   {per_request:.3} {currency} per request/s at the highest sustained load, {per_gb:.3} \
         {currency} per GB"
    ));
    lines.push(format!("   halfpower survey {}", choice.target));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::candidate::{Catalogue, Limits};
    use crate::plan::prices::{BUILT_IN, Prices};
    use crate::plan::ranking;

    fn document(need: &str, price_max: Option<f64>) -> CapacityDocument {
        let prices = Prices::parse(BUILT_IN).unwrap();
        let catalogue = Catalogue::load(&prices).unwrap();
        let need = Need::parse(need).unwrap();
        let limits = Limits { price_max, devices_max: 4 };
        let question = Question { need, limits, margin: 1.2, count: 2 };
        let answer = ranking::find(&catalogue, &question, &mut |_, _| {}).unwrap();
        of(&question, &answer, &prices.currency)
    }

    #[test]
    fn choices_are_printed_with_price_margin_and_limit() {
        let text = text(&document("reads 8k 50/s; capacity 10GB", None)).join("\n");
        for words in ["1. ", "2. ", "USD", "margin of 20%", "limited by", "10 GB", "per GB"] {
            assert!(text.contains(words), "{words} is missing:\n{text}");
        }
    }

    #[test]
    fn an_impossible_need_names_the_closest_configuration() {
        let text = text(&document("reads 8k 50/s; capacity 900TB", None)).join("\n");
        assert!(
            text.contains("No configuration") && text.contains("the volume holds only"),
            "{text}"
        );
    }
}
