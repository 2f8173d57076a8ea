//! `halfpower explain`: texts about terms, findings, reasons of verdicts, advice, studies, claims
//! of the papers and simulated systems.

use explain::{Found, Kind, Topic};
use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::json;
use lab::terminal;
use papers::claims::{self, Claim, Paper};
use serde::Serialize;
use simulator::Description;

use crate::cli::explain::ExplainArgs;

/// A topic in the JSON document.
#[derive(Serialize)]
struct TopicDocument<'a> {
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    study: Option<&'a str>,
    also: &'a [String],
    source: &'a str,
    see: &'a [String],
    text: &'a str,
}

impl<'a> From<&'a Topic> for TopicDocument<'a> {
    fn from(topic: &'a Topic) -> TopicDocument<'a> {
        TopicDocument {
            kind: topic.kind.name(),
            name: &topic.name,
            study: topic.study.as_deref(),
            also: &topic.also,
            source: &topic.source,
            see: &topic.see,
            text: &topic.text,
        }
    }
}

pub fn execute(args: &ExplainArgs) -> Outcome {
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    if args.words.is_empty() {
        list(args.json);
        return Ok(Exit::Ok);
    }
    let phrase = args.words.join(" ");
    let topics = match explain::find(&phrase) {
        Found::Topics(topics) => topics,
        Found::Similar(_) if args.words.len() > 1 && !args.json => {
            for (number, word) in args.words.iter().enumerate() {
                if number > 0 {
                    console::data("");
                }
                explain_word(word)?;
            }
            return Ok(Exit::Ok);
        }
        Found::Similar(_) if !args.json => {
            explain_word(&phrase)?;
            return Ok(Exit::Ok);
        }
        Found::Similar(names) => return Err(unknown(&phrase, &names)),
    };
    show(&topics, args.json);
    Ok(Exit::Ok)
}

/// Prints one word: a topic, a claim, or a simulated system.
fn explain_word(word: &str) -> Outcome<()> {
    let names = match explain::find(word) {
        Found::Topics(topics) => {
            show(&topics, false);
            return Ok(());
        }
        Found::Similar(names) => names,
    };
    if let Some(claim) = claims::named(&word.to_uppercase()) {
        lines_of_claim(&claim).iter().for_each(|line| console::data(line));
        return Ok(());
    }
    let name = word.strip_prefix("sim:").unwrap_or(word);
    let Ok(system) = Description::named(name) else { return Err(unknown(word, &names)) };
    let title = system.title().unwrap_or_default();
    console::data(&format!("{name} (simulated system)\n\n{title}\n"));
    console::data(&format!(
        "Its file, with the source of each value: halfpower simulate --show {name}"
    ));
    Ok(())
}

fn unknown(word: &str, names: &[&str]) -> Failure {
    let remedy = match names {
        [] => "halfpower explain lists all topics".to_owned(),
        [name] => format!("did you mean {name}?"),
        names => format!("see {}", names.join(", ")),
    };
    Failure::usage(format!("no topic is called '{word}'; {remedy}"))
}

fn show(topics: &[&Topic], as_json: bool) {
    if as_json {
        let documents: Vec<TopicDocument<'_>> =
            topics.iter().map(|topic| (*topic).into()).collect();
        console::data(&json::print(&documents));
        return;
    }
    let pages: Vec<String> =
        topics.iter().map(|topic| explain::lines(topic, terminal::width()).join("\n")).collect();
    console::data(&pages.join("\n\n"));
    if let [Topic { kind: Kind::Study, name, .. }] = topics {
        let of_study = |topic: &&Topic| topic.study.as_ref() == Some(name);
        let findings = explain::of_kind(Kind::StudyFinding).filter(of_study);
        let findings: Vec<&str> = findings.map(|topic| topic.name.as_str()).collect();
        if !findings.is_empty() {
            let lines = terminal::wrapped("Its findings: ", &findings.join(", "));
            console::data(&lines.join("\n"));
        }
    }
}

/// Prints the names of all topics by kind, or all topics as JSON.
fn list(as_json: bool) {
    if as_json {
        let all: Vec<&Topic> = Kind::ALL.into_iter().flat_map(explain::of_kind).collect();
        show(&all, true);
        return;
    }
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::StudyFinding) {
        let names: Vec<&str> = explain::of_kind(kind).map(|topic| topic.name.as_str()).collect();
        console::data(kind.plural());
        console::data(&terminal::wrapped("  ", &names.join(", ")).join("\n"));
        console::data("");
    }
    let more = "Also claims of the papers, such as R077, and simulated systems, such as sata-ssd. \
                halfpower explain WORD prints a topic.";
    console::data(&terminal::wrapped("", more).join("\n"));
}

/// A claim of a paper as text.
fn lines_of_claim(claim: &Claim) -> Vec<String> {
    let paper = Paper::of_claim(&claim.id).title();
    let mut lines = vec![format!("{} (claim of a paper)", claim.id), String::new()];
    lines.extend(terminal::wrapped("", &format!("{}: {}.", claim.text, claim.published())));
    for (label, text) in [("Measured as: ", &claim.quantity), ("Note: ", &claim.why)] {
        if !text.is_empty() {
            lines.extend(terminal::wrapped(label, text));
        }
    }
    lines.push(String::new());
    lines.extend(terminal::wrapped("Source: ", &format!("{paper}, {}", claim.section)));
    lines
}
