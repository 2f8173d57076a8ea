//! Looks up topics by name. If no topic has the given name, suggests topics with similar names and
//! topics whose text contains the given name.

use std::sync::OnceLock;

use crate::topic::{Kind, Topic};

/// Minimum Jaro-Winkler similarity (0 to 1) of a suggested name and the given word.
const SIMILAR_MIN: f64 = 0.9;
/// Maximum number of names in a list of suggestions.
const OFFERS_MAX: usize = 5;

/// Returns all topics. They are parsed at the first call.
fn all() -> &'static [Topic] {
    static ALL: OnceLock<Vec<Topic>> = OnceLock::new();
    ALL.get_or_init(|| Kind::ALL.into_iter().flat_map(Kind::topics).collect())
}

/// Returns the topics of one kind, in the order of the Markdown file.
pub fn of_kind(kind: Kind) -> impl Iterator<Item = &'static Topic> {
    all().iter().filter(move |topic| topic.kind == kind)
}

/// Returns true if there is a topic for the finding `id`.
pub fn is_finding(id: &str) -> bool {
    let mut all = of_kind(Kind::StudyFinding).chain(of_kind(Kind::Finding));
    all.any(|topic| topic.name == id)
}

/// Extracts the name of the check from the reason of a verdict. For example, returns `noisy` for
/// `best reads (direct): noisy: +-19%`.
pub fn check_of(reason: &str) -> Option<&str> {
    let is_check = |part: &&str| of_kind(Kind::Reason).any(|topic| topic.name == *part);
    reason.split(": ").find(is_check)
}

/// The result of looking up a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The topics with this name. There may be several, for example a study and a finding.
    Topics(Vec<&'static Topic>),
    /// No topic has this name.
    Other {
        /// Similar names, the most similar first.
        similar: Vec<&'static str>,
        /// Names of topics whose text mentions the word.
        mentioned_in: Vec<&'static str>,
    },
}

/// Looks up a word. Case is ignored, and spaces, dashes and underscores are treated as equal.
/// `depth/knee` means the finding `knee` of the study `depth`.
pub fn find(word: &str) -> Found {
    let wanted = plain(word);
    let topics: Vec<&Topic> = all().iter().filter(|topic| is_named(topic, &wanted)).collect();
    if topics.is_empty() {
        Found::Other { similar: similar(&wanted), mentioned_in: mentions(&wanted) }
    } else {
        Found::Topics(topics)
    }
}

fn is_named(topic: &Topic, wanted: &str) -> bool {
    let has_name = |name: &str| plain(name) == wanted;
    let full = topic.study.as_ref().map(|study| format!("{study}/{}", topic.name));
    has_name(&topic.name)
        || topic.also.iter().any(|name| has_name(name))
        || full.is_some_and(|full| has_name(&full))
}

/// Strips the punctuation around a name, converts the name to lower case, and puts dashes between
/// the words.
fn plain(name: &str) -> String {
    let name = name.trim().trim_matches(|c: char| matches!(c, '[' | ']' | ':' | '.' | ','));
    name.to_lowercase().replace([' ', '_'], "-")
}

/// Returns the names of topics that are similar to `wanted`, the most similar first.
fn similar(wanted: &str) -> Vec<&'static str> {
    let likeness = |topic: &Topic| {
        let names = std::iter::once(&topic.name).chain(&topic.also);
        names.map(|name| strsim::jaro_winkler(&plain(name), wanted)).fold(0.0, f64::max)
    };
    let mut alike: Vec<(f64, &str)> = all()
        .iter()
        .map(|topic| (likeness(topic), topic.name.as_str()))
        .filter(|(likeness, _)| *likeness >= SIMILAR_MIN)
        .collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0));
    offers(alike.into_iter().map(|(_, name)| name))
}

fn mentions(wanted: &str) -> Vec<&'static str> {
    let spaced = wanted.replace('-', " ");
    let mentions = |topic: &&Topic| {
        let text = topic.text.to_lowercase();
        wanted.len() > 2 && (text.contains(wanted) || text.contains(&spaced))
    };
    offers(all().iter().filter(mentions).map(|topic| topic.name.as_str()))
}

/// Returns the first [`OFFERS_MAX`] distinct names.
fn offers(all: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.truncate(OFFERS_MAX);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(word: &str) -> Vec<&'static str> {
        match find(word) {
            Found::Topics(topics) => topics.into_iter().map(|topic| topic.name.as_str()).collect(),
            other => panic!("{word}: only {other:?}"),
        }
    }

    #[test]
    fn a_topic_is_found_by_any_of_its_names_in_any_spelling() {
        for word in ["half-power point", "Half_Power", "half power", "[half-power]"] {
            assert!(names(word).contains(&"half-power point"), "{word}");
        }
    }

    #[test]
    fn the_check_of_a_reason_is_found_also_behind_the_name_of_its_point() {
        assert_eq!(check_of("noisy: +-19%"), Some("noisy"));
        assert_eq!(check_of("best reads (direct, 1 MiB): noisy: +-19%"), Some("noisy"));
        assert_eq!(check_of("something else"), None);
    }

    #[test]
    fn a_mistyped_word_gets_similar_names() {
        let similar = |word| match find(word) {
            Found::Other { similar, .. } => similar,
            found => panic!("{word}: {found:?}"),
        };
        assert!(similar("nosiy").contains(&"noisy"));
        for word in ["xyzzyplugh", "nothing-like-it", "something-else"] {
            assert_eq!(similar(word), [""; 0], "{word}");
        }
    }

    #[test]
    fn a_word_of_a_text_is_found_there() {
        let Found::Other { mentioned_in, .. } = find("throttle") else { panic!("found") };
        assert!(mentioned_in.contains(&"burst"), "{mentioned_in:?}");
    }

    #[test]
    fn every_topic_has_a_text_and_related_topics_exist() {
        for topic in all() {
            assert!(topic.text.len() > 30, "{topic:?}");
            for name in &topic.see {
                assert!(matches!(find(name), Found::Topics(_)), "{}: {name}", topic.name);
            }
        }
    }

    #[test]
    fn names_of_one_kind_are_unique() {
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::StudyFinding) {
            let mut names: Vec<&str> = of_kind(kind).map(|topic| topic.name.as_str()).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{kind:?}");
        }
    }
}
