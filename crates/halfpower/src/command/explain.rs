//! `halfpower explain`: prints texts about terms, findings, reasons of verdicts, advice, studies,
//! claims of the papers and simulated systems.

use explain::{Block, Found, Kind, Topic};
use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::json::{self, Program};
use lab::terminal;
use papers::claims::{self, Claim, Paper};
use report::wrapped;
use schemars::JsonSchema;
use serde::Serialize;
use simulator::Description;

use crate::cli::explain::ExplainArgs;

/// The document of `explain --json`.
#[derive(Serialize, JsonSchema)]
pub struct ExplainDocument {
    /// The program that wrote the document.
    halfpower: Program,
    /// One article for each word, or several if a study and a finding have the same name.
    articles: Vec<Article>,
}

/// The explanation of one topic.
#[derive(Default, Serialize, JsonSchema)]
struct Article {
    /// What kind of topic this is, such as "reason of a verdict".
    kind: String,
    /// Name of the topic.
    name: String,
    /// Other names of the topic.
    also: Vec<String>,
    /// What the text is based on: a section of a paper, or a kernel document.
    source: String,
    /// Related topics.
    see: Vec<String>,
    /// The text in Markdown.
    text: String,
}

impl Article {
    fn of_topic(topic: &Topic) -> Article {
        let kind = match &topic.study {
            Some(study) => format!("finding of the study {study}"),
            None => topic.kind.name().to_owned(),
        };
        let mut text = topic.text.clone();
        if topic.kind == Kind::Study {
            let of_study = |finding: &&Topic| finding.study.as_ref() == Some(&topic.name);
            let findings = explain::of_kind(Kind::StudyFinding).filter(of_study);
            let findings: Vec<&str> = findings.map(|finding| finding.name.as_str()).collect();
            text.push_str(&format!("\n\nIts findings: {}.", findings.join(", ")));
        }
        Article {
            kind,
            name: topic.name.clone(),
            also: topic.also.clone(),
            source: topic.source.clone(),
            see: topic.see.clone(),
            text,
        }
    }

    fn of_claim(claim: &Claim) -> Article {
        let mut text = format!("{}: {}.", claim.text, claim.published());
        for (label, more) in [("Measured as", &claim.quantity), ("Note", &claim.why)] {
            if !more.is_empty() {
                text.push_str(&format!("\n\n{label}: {more}"));
            }
        }
        let is_number = claim.section.starts_with(|c: char| c.is_ascii_digit());
        let section = format!("{}{}", if is_number { "section " } else { "" }, claim.section);
        Article {
            kind: "claim of a paper".to_owned(),
            name: claim.id.clone(),
            source: format!("{}, {section}", Paper::of_claim(&claim.id).title()),
            text,
            ..Article::default()
        }
    }

    fn of_system(name: &str, system: &Description) -> Article {
        let title = system.title().unwrap_or_default();
        Article {
            kind: "simulated system".to_owned(),
            name: name.to_owned(),
            text: format!(
                "{title}\n\nIts file, with the source of each value: \
                 halfpower simulate --show {name}"
            ),
            ..Article::default()
        }
    }

    /// Formats the article as lines of at most `width` characters. Code is not wrapped.
    fn lines(&self, width: usize) -> Vec<String> {
        let mut lines = vec![format!("{} ({})", self.name, self.kind)];
        let mut was_item = false;
        for block in explain::paragraphs(&self.text) {
            let is_item = matches!(block, Block::Item(_));
            if !(was_item && is_item) {
                lines.push(String::new());
            }
            was_item = is_item;
            match block {
                Block::Text(text) => lines.extend(wrapped(width, "", &text)),
                Block::Item(text) => lines.extend(wrapped(width, "- ", &text)),
                Block::Code(code) => lines.extend(code.lines().map(|line| format!("    {line}"))),
            }
        }
        if !self.source.is_empty() || !self.see.is_empty() {
            lines.push(String::new());
        }
        if !self.source.is_empty() {
            lines.extend(wrapped(width, "Source: ", &self.source));
        }
        if !self.see.is_empty() {
            lines.extend(wrapped(width, "See also: ", &self.see.join(", ")));
        }
        lines
    }
}

pub fn execute(args: &ExplainArgs) -> Outcome {
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let articles = match args.words.as_slice() {
        [] if !args.json => {
            list();
            return Ok(Exit::Ok);
        }
        [] => {
            let all = Kind::ALL.into_iter().flat_map(explain::of_kind);
            all.map(Article::of_topic).collect()
        }
        words => match articles(&words.join(" ")) {
            Ok(found) => found,
            // The words together may be one name. If they are not, each word is explained
            // separately.
            Err(failure) if words.len() == 1 => return Err(failure),
            Err(_) => {
                let each = words.iter().map(|word| articles(word));
                each.collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect()
            }
        },
    };
    if args.json {
        console::data(&json::print(&ExplainDocument { halfpower: Program::this(), articles }));
    } else {
        let pages: Vec<String> =
            articles.iter().map(|one| one.lines(terminal::width()).join("\n")).collect();
        console::data(&pages.join("\n\n"));
    }
    Ok(Exit::Ok)
}

/// Returns the articles about one word: topics, a claim, or a simulated system.
fn articles(word: &str) -> Outcome<Vec<Article>> {
    let (similar, mentioned_in) = match explain::find(word) {
        Found::Topics(topics) => return Ok(topics.into_iter().map(Article::of_topic).collect()),
        Found::Other { similar, mentioned_in } => (similar, mentioned_in),
    };
    if let Some(claim) = claims::named(&word.to_uppercase()) {
        return Ok(vec![Article::of_claim(&claim)]);
    }
    let name = word.strip_prefix("sim:").unwrap_or(word);
    match Description::named(name) {
        Ok(system) => Ok(vec![Article::of_system(name, &system)]),
        Err(_) => Err(unknown(word, &similar, &mentioned_in)),
    }
}

fn unknown(word: &str, similar: &[&str], mentioned_in: &[&str]) -> Failure {
    let remedy = match (similar, mentioned_in) {
        ([], []) => "halfpower explain lists all topics".to_owned(),
        ([], topics) => format!("these topics mention the word: {}", topics.join(", ")),
        ([name], _) => format!("did you mean {name}?"),
        (names, _) => format!("did you mean one of {}?", names.join(", ")),
    };
    Failure::usage(format!("no topic is called '{word}'; {remedy}"))
}

/// Prints the names of all topics by kind.
fn list() {
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::StudyFinding) {
        let names: Vec<&str> = explain::of_kind(kind).map(|topic| topic.name.as_str()).collect();
        console::data(kind.plural());
        console::data(&terminal::wrapped("  ", &names.join(", ")).join("\n"));
        console::data("");
    }
    let more = "Findings of studies (such as depth/knee), claims of the papers (such as R077) and \
                simulated systems (such as sata-ssd) are also topics. To print a topic: halfpower \
                explain WORD.";
    console::data(&terminal::wrapped("", more).join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_but_code_is_not() {
        let article = Article {
            kind: "term".to_owned(),
            name: "knee".to_owned(),
            source: "R 6".to_owned(),
            see: vec!["latency".to_owned()],
            text: "One two\nthree.\n\n- first\n- second\n\n```\nfio --bs=4k\n```".to_owned(),
            ..Article::default()
        };
        let expected = [
            "knee (term)",
            "",
            "One two",
            "three.",
            "",
            "- first",
            "- second",
            "",
            "    fio --bs=4k",
            "",
            "Source: R 6",
            "See also: latency",
        ];
        assert_eq!(article.lines(11), expected);
    }
}
