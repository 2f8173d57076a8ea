//! Parses topics from Markdown files.
//!
//! Each file starts with a heading of level 1. Each heading of level 2 is the name of a topic, and
//! the text of the topic follows. In the file of studies, each heading of level 3 is the name of a
//! finding of the study above it, and this finding is a topic too.
//!
//! The lines `Also:`, `Source:` and `See:` right below a heading list other names of the topic, its
//! source, and related topics.

/// The kind of thing that a topic explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The topic explains a term, such as half-power point.
    Term,
    /// The topic explains why a result is suspect or invalid.
    Reason,
    /// The topic explains a finding of a survey.
    Finding,
    /// The topic explains a piece of advice.
    Advice,
    /// The topic explains a study.
    Study,
    /// The topic explains a finding of a study.
    StudyFinding,
}

impl Kind {
    /// All kinds, in the order in which they are listed.
    pub const ALL: [Kind; 6] =
        [Kind::Term, Kind::Reason, Kind::Finding, Kind::Advice, Kind::Study, Kind::StudyFinding];

    /// Returns the kind in words, such as "reason of a verdict".
    pub fn name(self) -> &'static str {
        match self {
            Kind::Term => "term",
            Kind::Reason => "reason of a verdict",
            Kind::Finding => "finding of a survey",
            Kind::Advice => "advice",
            Kind::Study => "study",
            Kind::StudyFinding => "finding of a study",
        }
    }

    /// Returns the heading for a list of topics of this kind.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Term => "Terms",
            Kind::Reason => "Reasons of verdicts",
            Kind::Finding => "Findings of a survey",
            Kind::Advice => "Advice",
            Kind::Study => "Studies",
            Kind::StudyFinding => "Findings of studies",
        }
    }

    /// Returns the Markdown file that contains the topics of this kind.
    fn source(self) -> &'static str {
        match self {
            Kind::Term => include_str!("../topics/terms.md"),
            Kind::Reason => include_str!("../topics/reasons.md"),
            Kind::Finding => include_str!("../topics/findings.md"),
            Kind::Advice => include_str!("../topics/advice.md"),
            Kind::Study | Kind::StudyFinding => include_str!("../topics/studies.md"),
        }
    }

    /// Returns the level of the headings that begin a topic of this kind.
    fn level(self) -> usize {
        if self == Kind::StudyFinding { 3 } else { 2 }
    }

    /// Parses all topics of this kind, in the order of the Markdown file.
    pub fn topics(self) -> Vec<Topic> {
        parse(self, self.source())
    }
}

/// A text that explains a term, reason, finding, study or piece of advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// The kind of thing that the topic explains.
    pub kind: Kind,
    /// Name of the topic, such as `half-power point` or `noisy`.
    pub name: String,
    /// Name of the study to which the finding belongs. None unless the kind is
    /// [`Kind::StudyFinding`].
    pub study: Option<String>,
    /// Other names of the topic.
    pub also: Vec<String>,
    /// The source of what the text states: a paper with its section, or a kernel document. Empty if
    /// the text needs no source.
    pub source: String,
    /// Names of related topics.
    pub see: Vec<String>,
    /// The text as Markdown.
    pub text: String,
}

/// Parses the topics of one kind from a Markdown text.
fn parse(kind: Kind, markdown: &str) -> Vec<Topic> {
    let mut topics: Vec<Topic> = Vec::new();
    let (mut study, mut is_inside, mut is_code) = (None, false, false);
    for line in markdown.lines() {
        is_code ^= line.starts_with("```");
        let heading = line
            .split_once("# ")
            .filter(|(marks, _)| !is_code && marks.chars().all(|mark| mark == '#'));
        let Some((marks, name)) = heading else {
            if let Some(topic) = topics.last_mut().filter(|_| is_inside) {
                add(topic, line);
            }
            continue;
        };
        let level = marks.len() + 1;
        is_inside = level == kind.level();
        if level == 2 && kind == Kind::StudyFinding {
            study = Some(name.to_owned());
        }
        if is_inside {
            topics.push(Topic {
                kind,
                name: name.to_owned(),
                study: study.clone(),
                also: Vec::new(),
                source: String::new(),
                see: Vec::new(),
                text: String::new(),
            });
        }
    }
    topics.iter_mut().for_each(|topic| topic.text = topic.text.trim().to_owned());
    topics
}

/// Adds a line of the Markdown text to a topic.
fn add(topic: &mut Topic, line: &str) {
    let list = |text: &str| text.split(", ").map(|name| name.trim().to_owned()).collect();
    match line.split_once(": ").filter(|_| topic.text.trim().is_empty()) {
        Some(("Also", names)) => topic.also = list(names),
        Some(("See", names)) => topic.see = list(names),
        Some(("Source", source)) => topic.source = source.trim().to_owned(),
        _ => {
            topic.text.push_str(line);
            topic.text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# Studies\n\nAll of them.\n\n## depth\nAlso: iodepth, queue\nSource: R 6\n\
                        See: size\n\nHow deep? Deep.\n\n```\n# not a heading\n```\n\n### knee\n\n\
                        The depth.\n\n## size\n\nHow large.\n";

    #[test]
    fn a_topic_has_its_names_source_and_text() {
        let topics = parse(Kind::Study, FILE);
        let [depth, size] = topics.as_slice() else { panic!("{topics:?}") };
        assert_eq!(depth.also, ["iodepth", "queue"]);
        assert_eq!(
            (depth.source.as_str(), depth.see.as_slice()),
            ("R 6", &["size".to_owned()][..])
        );
        assert_eq!(depth.text, "How deep? Deep.\n\n```\n# not a heading\n```");
        assert_eq!((size.name.as_str(), size.text.as_str()), ("size", "How large."));
    }

    #[test]
    fn a_finding_of_a_study_knows_its_study() {
        let findings = parse(Kind::StudyFinding, FILE);
        let [knee] = findings.as_slice() else { panic!("{findings:?}") };
        assert_eq!((knee.name.as_str(), knee.study.as_deref()), ("knee", Some("depth")));
        assert_eq!(knee.text, "The depth.");
    }
}
