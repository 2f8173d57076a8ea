//! Reads the list of runs from a database, and shows it as a page with tables of the hosts and
//! targets.
//!
//! Only the runs that the list shows are kept in memory, so the memory does not grow with the
//! number of runs in the database. The tables of hosts and targets count all runs.

use std::collections::{BTreeMap, HashMap};

use analysis::units;
use compare::side::RunFacts;
use lab::date;
use lab::failure::Outcome;
use report::model::{
    Block, Cell, Choice, Column, KeyFigure, LinkRow, LinkTable, LinkedCell, Page, Search, Section,
    State, Verdict,
};
use report::units::Unit;
use results::{RunBrief, RunHead, RunState, Store};
use serde::Serialize;

use crate::place::{Place, TargetOfHost};

/// Maximum number of rows in the tables of hosts and of targets.
const GROUPS_MAX: usize = 500;
/// Maximum number of entries in the cache [`Known`].
const REMEMBERED_MAX: usize = 4096;

/// Specifies the part of the list that is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Words that a run must contain in its number, kind, state, verdict, date, host, target,
    /// label, note or command line. An empty text selects all runs.
    pub query: String,
    /// Number of matching runs that are skipped, starting with the newest.
    pub skip: usize,
    /// Maximum number of runs shown.
    pub most: usize,
}

/// A run in the list.
#[derive(Clone, Debug, Serialize)]
pub struct ListedRun {
    /// Number of the run.
    pub id: i64,
    /// Kind of run.
    pub kind: &'static str,
    /// State of the run, for example `finished`.
    pub state: &'static str,
    /// Verdict on the run. None until the run ends, or if nothing was measured.
    pub verdict: Option<&'static str>,
    /// Start time of the run (ns since 1970).
    pub started_unix_ns: i64,
    /// Name of the host.
    pub host: String,
    /// Description of the target: a simulated system, a device, or a file system and its device.
    pub target: String,
    /// The user's label.
    pub label: Option<String>,
    /// The user's note.
    pub note: Option<String>,
    /// The command line.
    pub command_line: String,
}

/// A summary of the runs on a host or on a target.
#[derive(Clone, Debug, Default)]
struct Group {
    runs: usize,
    newest: i64,
    newest_unix_ns: i64,
}

impl Group {
    fn add(&mut self, run: &ListedRun) {
        if self.runs == 0 || run.started_unix_ns > self.newest_unix_ns {
            (self.newest, self.newest_unix_ns) = (run.id, run.started_unix_ns);
        }
        self.runs += 1;
    }
}

/// The list of runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Gallery {
    /// The runs, newest first.
    pub runs: Vec<ListedRun>,
    /// Number of runs that match the search.
    pub found: usize,
    /// Number of runs in the database.
    pub all: usize,
    /// Number of runs that have not ended.
    pub running: usize,
    #[serde(skip)]
    part: Part,
    #[serde(skip)]
    hosts: BTreeMap<String, Group>,
    #[serde(skip)]
    targets: BTreeMap<TargetOfHost, Group>,
}

impl Gallery {
    /// Reads the list from a database.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn read(store: &Store, part: &Part) -> Result<Gallery, results::Error> {
        let mut gallery = Gallery { part: part.clone(), ..Gallery::default() };
        let mut known = HashMap::new();
        store.each_run_brief(|brief| gallery.add(listed(brief, &mut known)))?;
        Ok(gallery)
    }

    fn add(&mut self, run: ListedRun) {
        self.all += 1;
        self.running += usize::from(run.state == RunState::Running.as_str());
        self.hosts.entry(run.host.clone()).or_default().add(&run);
        self.targets.entry((run.host.clone(), run.target.clone())).or_default().add(&run);
        if has_words(&run, &self.part.query) {
            if self.found >= self.part.skip && self.runs.len() < self.part.most {
                self.runs.push(run);
            }
            self.found += 1;
        }
    }

    /// Returns the targets, sorted by the start of their newest run. The newest is first.
    pub fn targets(&self) -> Vec<TargetOfHost> {
        newest_first(&self.targets).into_iter().map(|(target, _)| target.clone()).collect()
    }

    /// Returns the list as a page with the title `title`.
    pub fn page(&self, title: &str, place: &Place) -> Page {
        let mut sections = vec![self.list(place)];
        sections.push(self.targets_section(place));
        sections.push(self.hosts_section());
        let figure = |label: &str, value: usize| KeyFigure {
            label: label.to_owned(),
            value: value.to_string(),
            note: String::new(),
        };
        Page {
            title: title.to_owned(),
            subtitle: match self.running {
                0 => String::new(),
                running => format!("not yet ended: {}", units::counted(running as u64, "run")),
            },
            verdict: Verdict { state: State::Valid, reasons: Vec::new(), in_doubt: None },
            key_figures: vec![
                figure("Runs", self.all),
                figure("Hosts", self.hosts.len()),
                figure("Targets", self.targets.len()),
            ],
            findings: Vec::new(),
            advice: Vec::new(),
            sections,
            provenance: Vec::new(),
        }
    }

    fn list(&self, place: &Place) -> Section {
        let labels = ["run", "started (UTC)", "kind", "state", "verdict", "host", "target"];
        let columns = labels.into_iter().chain(["label", "command"]).map(text_column).collect();
        let served = matches!(place, Place::Server);
        let table = LinkTable {
            id: "runs".to_owned(),
            caption: self.caption(),
            columns,
            rows: self.runs.iter().map(|run| row(run, place)).collect(),
            choice: served.then(|| Choice {
                action: "/compare".to_owned(),
                name: "run".to_owned(),
                button: "Compare the chosen runs".to_owned(),
            }),
            search: Some(Search {
                action: served.then(|| "/".to_owned()),
                query: self.part.query.clone(),
            }),
        };
        Section {
            id: report::model::POINTS_SECTION.to_owned(),
            title: "Runs".to_owned(),
            lead: match place {
                Place::Server => "The newest run is first. Choose two or more runs to compare \
                                  them. The oldest chosen run is the baseline."
                    .to_owned(),
                Place::Folder { .. } => "The newest run is first.".to_owned(),
            },
            blocks: vec![Block::Links(table)],
        }
    }

    fn caption(&self) -> String {
        let (first, last) = (self.part.skip + 1, self.part.skip + self.runs.len());
        let of = match self.part.query.as_str() {
            "" => String::new(),
            query => format!(" with '{query}'"),
        };
        match (self.runs.len(), self.found) {
            (0, _) => format!("No runs{of}"),
            (shown, found) if shown == found => {
                format!("{}{of}", units::counted(found as u64, "run"))
            }
            (_, found) => format!("Runs {first} to {last} of {found}{of}, newest first"),
        }
    }

    /// Returns the addresses and the texts of the links to newer and older runs.
    pub fn neighbours(&self, place: &Place) -> Vec<(String, String)> {
        let Part { query, skip, most } = &self.part;
        let mut all = Vec::new();
        if *skip > 0 {
            let newer = place.list(query, skip.saturating_sub(*most));
            all.extend(newer.map(|href| (href, "Newer runs".to_owned())));
        }
        if skip + self.runs.len() < self.found {
            let older = place.list(query, skip + self.runs.len());
            all.extend(older.map(|href| (href, "Older runs".to_owned())));
        }
        all
    }

    fn targets_section(&self, place: &Place) -> Section {
        let rows = newest_first(&self.targets).into_iter().map(|((host, target), group)| {
            let name =
                LinkedCell { cell: Cell::Text(target.clone()), href: place.target(host, target) };
            let cells = vec![name, Cell::Text(host.clone()).into()];
            LinkRow { value: None, cells: cells.into_iter().chain(group.cells(place)).collect() }
        });
        let rows = rows.take(GROUPS_MAX).collect();
        let of = self.targets.len();
        groups(
            "targets",
            "Targets",
            &["target", "host"],
            rows,
            of,
            "Each name links to a page with the target's rates over time.",
        )
    }

    fn hosts_section(&self) -> Section {
        let place = Place::Folder { runs: std::collections::BTreeSet::new(), targets: Vec::new() };
        let rows = newest_first(&self.hosts).into_iter().map(|(host, group)| {
            let cells = std::iter::once(Cell::Text(host.clone()).into()).chain(group.cells(&place));
            LinkRow { value: None, cells: cells.collect() }
        });
        let rows = rows.take(GROUPS_MAX).collect();
        groups("hosts", "Hosts", &["host"], rows, self.hosts.len(), "")
    }
}

impl Group {
    /// Returns three cells of a table row: the number of runs, the date of the newest run, and the
    /// number of the newest run.
    fn cells(&self, place: &Place) -> Vec<LinkedCell> {
        let newest =
            LinkedCell { cell: Cell::Text(self.newest.to_string()), href: place.run(self.newest) };
        let date = Cell::Text(date::utc(self.newest_unix_ns));
        vec![Cell::Number(self.runs as f64).into(), date.into(), newest]
    }
}

fn newest_first<K: Ord>(groups: &BTreeMap<K, Group>) -> Vec<(&K, &Group)> {
    let mut all: Vec<(&K, &Group)> = groups.iter().collect();
    all.sort_by_key(|(_, group)| std::cmp::Reverse(group.newest_unix_ns));
    all
}

fn text_column(label: &str) -> Column {
    Column { label: label.to_owned(), unit: None }
}

fn groups(
    id: &str,
    title: &str,
    names: &[&str],
    rows: Vec<LinkRow>,
    of: usize,
    lead: &str,
) -> Section {
    let mut columns: Vec<Column> = names.iter().map(|name| text_column(name)).collect();
    columns.push(Column { label: "runs".to_owned(), unit: Some(Unit::Count) });
    columns.extend(["newest run started (UTC)", "newest run"].map(text_column));
    let caption = match of - rows.len() {
        0 => title.to_owned(),
        left_out => format!("{title} (newest runs first; {left_out} more are not shown)"),
    };
    let id = id.to_owned();
    let table =
        LinkTable { id: format!("{id}-table"), caption, columns, rows, choice: None, search: None };
    let (title, lead) = (title.to_owned(), lead.to_owned());
    Section { id, title, lead, blocks: vec![Block::Links(table)] }
}

fn row(run: &ListedRun, place: &Place) -> LinkRow {
    let text = |text: &str| LinkedCell::from(Cell::Text(text.to_owned()));
    let optional = |of: Option<&str>| LinkedCell::from(of.map_or(Cell::Missing, Cell::from));
    let label = match (&run.label, &run.note) {
        (Some(label), Some(note)) => Some(format!("{label}: {note}")),
        (label, note) => label.clone().or_else(|| note.clone()),
    };
    LinkRow {
        value: Some(run.id.to_string()),
        cells: vec![
            LinkedCell { cell: Cell::Text(run.id.to_string()), href: place.run(run.id) },
            text(&date::utc(run.started_unix_ns)),
            text(run.kind),
            text(run.state),
            optional(run.verdict),
            text(&run.host),
            LinkedCell {
                cell: Cell::Text(run.target.clone()),
                href: place.target(&run.host, &run.target),
            },
            optional(label.as_deref()),
            text(&run.command_line),
        ],
    }
}

/// Cache of the names of a host and a target, by their JSON descriptions. Most runs have the same
/// descriptions.
type Known = HashMap<(String, String), TargetOfHost>;

fn listed(brief: RunBrief, known: &mut Known) -> ListedRun {
    let RunBrief { id, kind, command_line, label, note, started_unix_ns, .. } = brief;
    if known.len() >= REMEMBERED_MAX {
        known.clear();
    }
    let described = (brief.host_json, brief.target_json);
    let (host, target) = match known.get(&described) {
        Some(found) => found.clone(),
        None => {
            let (host_json, target_json) = described.clone();
            let (uuid, version) = (String::new(), String::new());
            let head = RunHead { id, uuid, started_unix_ns, version, host_json, target_json };
            let facts = RunFacts::of_head(head);
            let found = (facts.host.name.clone(), facts.target_identity());
            known.insert(described, found.clone());
            found
        }
    };
    ListedRun {
        id: id.0,
        kind: kind.as_str(),
        state: brief.state.as_str(),
        verdict: brief.verdict.map(results::Verdict::as_str),
        started_unix_ns,
        host,
        target,
        label,
        note,
        command_line,
    }
}

/// Checks whether a run contains all words of a search, ignoring case.
fn has_words(run: &ListedRun, query: &str) -> bool {
    if query.trim().is_empty() {
        return true;
    }
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let (label, note) = (optional(&run.label), optional(&run.note));
    let date = date::utc(run.started_unix_ns);
    let verdict = run.verdict.unwrap_or_default();
    let text = format!(
        "{} {} {} {verdict} {date} {} {} {label} {note} {}",
        run.id, run.kind, run.state, run.host, run.target, run.command_line
    );
    let text = text.to_lowercase();
    query.to_lowercase().split_whitespace().all(|word| text.contains(word))
}

/// Reads a list of the newest runs, with at most `most` runs.
///
/// # Errors
/// If the database cannot be read.
pub fn of_database(store: &Store, most: usize) -> Outcome<Gallery> {
    Ok(Gallery::read(store, &Part { query: String::new(), skip: 0, most })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: i64, host: &str, label: Option<&str>) -> ListedRun {
        ListedRun {
            id,
            kind: "run",
            state: if id == 9 { "running" } else { "finished" },
            verdict: Some("suspect"),
            started_unix_ns: id * 1_000_000_000,
            host: host.to_owned(),
            target: "ext4 on <sda>".to_owned(),
            label: label.map(str::to_owned),
            note: None,
            command_line: "halfpower run . --bs 4k".to_owned(),
        }
    }

    fn gallery(part: Part) -> Gallery {
        let mut gallery = Gallery { part, ..Gallery::default() };
        for id in (1..=9).rev() {
            let host = if id % 2 == 0 { "even" } else { "odd" };
            gallery.add(run(id, host, (id == 3).then_some("before'; DROP TABLE run; --")));
        }
        gallery
    }

    fn ids(gallery: &Gallery) -> Vec<i64> {
        gallery.runs.iter().map(|run| run.id).collect()
    }

    #[test]
    fn words_are_searched_in_any_case_and_all_must_be_found() {
        let found =
            |query: &str| ids(&gallery(Part { query: query.to_owned(), skip: 0, most: 100 }));
        assert_eq!(found("EVEN run"), [8, 6, 4, 2]);
        assert_eq!(found("drop table"), [3]);
        assert_eq!(found("even odd"), [0; 0]);
        assert_eq!(found("  ").len(), 9);
    }

    #[test]
    fn a_part_of_the_list_leads_to_the_parts_before_and_after_it() {
        let part = gallery(Part { query: String::new(), skip: 3, most: 3 });
        assert_eq!(ids(&part), [6, 5, 4]);
        assert_eq!((part.all, part.found, part.running), (9, 9, 1));
        let links = part.neighbours(&Place::Server);
        let hrefs: Vec<&str> = links.iter().map(|(href, _)| href.as_str()).collect();
        assert_eq!(hrefs, ["/", "/?skip=6"]);
        let last = gallery(Part { query: "odd".into(), skip: 3, most: 3 });
        assert_eq!((ids(&last), last.neighbours(&Place::Server).len()), (vec![3, 1], 1));
    }

    #[test]
    fn hosts_and_targets_are_those_of_all_runs_whatever_is_searched() {
        let part = gallery(Part { query: "nothing".into(), skip: 0, most: 3 });
        assert!(part.runs.is_empty());
        assert_eq!(part.targets()[0], ("odd".to_owned(), "ext4 on <sda>".to_owned()));
        let html = report::render(&part.page("halfpower.db", &Place::Server));
        assert!(html.contains("No runs with &#39;nothing&#39;") || html.contains("No runs with"));
        assert!(html.contains("/target?host=even&amp;target=ext4+on+%3Csda%3E"), "{html}");
        assert!(html.contains("ext4 on &lt;sda&gt;") && !html.contains("<sda>"));
    }

    #[test]
    fn only_a_server_compares() {
        let all = gallery(Part { query: String::new(), skip: 0, most: 100 });
        let served = report::render(&all.page("db", &Place::Server));
        assert!(served.contains("action=\"/compare\"") && served.contains("type=\"checkbox\""));
        let place = Place::Folder { runs: [1, 2].into(), targets: all.targets() };
        let filed = report::render(&all.page("db", &place));
        assert!(!filed.contains("/compare") && !filed.contains("type=\"checkbox\""));
        assert_eq!(filed.matches("href=\"run-").count(), 2, "no links to missing pages");
    }
}
