//! Adds the texts of `halfpower explain` to a page. Each text is collapsed below the element that
//! it explains.
//!
//! A name that `halfpower explain` does not know is skipped, so that pages of old results can still
//! be rendered.

use explain::{Block, Kind, Topic};
use maud::{Markup, html};

/// Renders the explanation of `name` as a collapsed element. Only topics of the given kinds are
/// searched.
pub(crate) fn explanation(name: &str, kinds: &[Kind]) -> Markup {
    let all = kinds.iter().flat_map(|kind| explain::of_kind(*kind));
    let topics: Vec<&Topic> = all.filter(|topic| topic.name == name).collect();
    html! {
        @if let Some(topic) = topics.first() {
            details.explain {
                summary { "Explain" span.unseen { " " (name) } }
                (text(topic))
            }
        }
    }
}

/// Renders the explanation of a study and of all its findings, collapsed.
pub(crate) fn explanation_of_study(name: &str) -> Markup {
    let study = explain::of_kind(Kind::Study).find(|topic| topic.name == name);
    let findings =
        explain::of_kind(Kind::StudyFinding).filter(|topic| topic.study.as_deref() == Some(name));
    html! {
        @if let Some(study) = study {
            details.explain {
                summary { "Explain" span.unseen { " the study " (name) } }
                (text(study))
                dl {
                    @for finding in findings {
                        dt { (finding.name) }
                        dd { (text(finding)) }
                    }
                }
            }
        }
    }
}

fn text(topic: &Topic) -> Markup {
    let blocks = explain::paragraphs(&topic.text);
    let is_same = |a: &Block, b: &Block| matches!((a, b), (Block::Item(_), Block::Item(_)));
    html! {
        @for group in blocks.chunk_by(is_same) {
            @match group {
                [Block::Item(_), ..] => ul { @for item in group { (item_of(item)) } },
                [Block::Code(code), ..] => pre { code { (code) } },
                [Block::Text(words), ..] => p { (words) },
                [] => {}
            }
        }
        @if !topic.source.is_empty() { p.source { "Source: " (topic.source) } }
    }
}

fn item_of(block: &Block) -> Markup {
    html! { @if let Block::Item(words) = block { li { (words) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_folded_away_and_an_unknown_word_gives_nothing() {
        let found = explanation("noisy", &[Kind::Reason]).into_string();
        assert!(found.starts_with("<details") && found.contains("trials of a point"), "{found}");
        assert_eq!(explanation("nothing-like-it", &[Kind::Reason]).into_string(), "");
        assert_eq!(explanation("noisy", &[Kind::Advice]).into_string(), "");
    }

    #[test]
    fn a_study_comes_with_its_findings() {
        let found = explanation_of_study("depth").into_string();
        assert!(found.contains("<dt>knee</dt>"), "{found}");
        assert_eq!(explanation_of_study("mine").into_string(), "");
    }
}
