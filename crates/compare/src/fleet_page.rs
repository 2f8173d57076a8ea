//! Makes the HTML page of a fleet. The page shows the odd hosts, the facts that distinguish them, a
//! table of all hosts, and one small chart for each workload, with the hosts sorted by rate.

use analysis::units::counted;
use report::model::{
    Axis, Block, Cell, Chart, Column, Direction, Finding, Guide, KeyFigure, Kind, POINTS_SECTION,
    Page, Point as Mark, Scale, Section, Series, State, Table, Tone, Verdict as Trust,
};
use report::units::Unit;

use crate::fleet::{
    self, FleetDocument, FleetModel, FleetQuantity, FleetResult, FleetValue, FleetWorkload,
};

/// Maximum number of charts of a model. The workloads with the most odd hosts are shown.
const CHARTS_MAX: usize = 24;

/// Renders the page as HTML.
pub fn html(found: &FleetDocument) -> String {
    report::render(&page(found))
}

fn page(found: &FleetDocument) -> Page {
    let hosts: usize = found.models.iter().map(|model| model.hosts.len()).sum();
    let mut sections = Vec::new();
    for (number, model) in found.models.iter().enumerate() {
        sections.push(table(model, number));
        sections.extend(charts(model, number));
    }
    let (hosts, models) =
        (counted(hosts as u64, "host"), counted(found.models.len() as u64, "model"));
    Page {
        title: format!("Fleet: {hosts}, {models}"),
        subtitle: format!("{}; halfpower {}", found.databases.join(", "), found.halfpower.version),
        verdict: Trust {
            state: if found.suspect > 0 { State::Suspect } else { State::Valid },
            reasons: fleet::doubts(found),
            in_doubt: None,
        },
        key_figures: found.models.iter().take(6).map(key_figure).collect(),
        findings: found.models.iter().flat_map(findings).collect(),
        advice: Vec::new(),
        sections,
        provenance: Vec::new(),
    }
}

fn odd_hosts(model: &FleetModel) -> usize {
    model.hosts.iter().filter(|host| host.verdict.is_odd()).count()
}

fn key_figure(model: &FleetModel) -> KeyFigure {
    KeyFigure {
        label: model.model.clone(),
        value: format!("{} of {}", odd_hosts(model), model.hosts.len()),
        note: "hosts are odd".to_owned(),
    }
}

fn findings(model: &FleetModel) -> Vec<Finding> {
    let of_host = |host: &fleet::FleetHost| Finding {
        id: "odd-host".to_owned(),
        headline: fleet::headline(host),
        detail: fleet::findings(host, model).join("; "),
        tone: Tone::Warn,
    };
    let of_fact = |it: &fleet::Distinguishing| Finding {
        id: "distinguishing".to_owned(),
        headline: fleet::fact_line(it),
        detail: String::new(),
        tone: Tone::Note,
    };
    let odd = model.hosts.iter().filter(|host| host.verdict.is_odd());
    odd.map(of_host).chain(model.distinguishing.iter().map(of_fact)).collect()
}

fn table(model: &FleetModel, number: usize) -> Section {
    let column = |label: &str, unit| Column { label: label.to_owned(), unit };
    let row = |host: &fleet::FleetHost| {
        let since = host.since_unix_ns.map(lab::date::utc);
        vec![
            Cell::Text(host.host.clone()),
            Cell::Text(host.target.clone()),
            Cell::Text(host.verdict.words().to_owned()),
            Cell::Number(host.odd as f64),
            Cell::Number(host.workloads as f64),
            Cell::from(host.ratio),
            since.map_or(Cell::Missing, Cell::Text),
        ]
    };
    let table = Table {
        id: format!("hosts-{number}"),
        caption: format!("Hosts with {}", model.model),
        columns: vec![
            column("host", None),
            column("target", None),
            column("verdict", None),
            column("workloads with odd values", Some(Unit::Count)),
            column("compared workloads", Some(Unit::Count)),
            column("mean rate relative to the median", Some(Unit::Count)),
            column("odd since (UTC)", None),
        ],
        rows: model.hosts.iter().map(row).collect(),
    };
    Section {
        id: if number == 0 { POINTS_SECTION.to_owned() } else { format!("all-points-{number}") },
        title: format!("Hosts with {}", model.model),
        lead: "Verdicts are corrected for the number of hosts and workloads \
               (false-discovery rate 5%)."
            .to_owned(),
        blocks: vec![Block::Table(table)],
    }
}

fn charts(model: &FleetModel, number: usize) -> Option<Section> {
    let odd = |workload: &FleetWorkload| workload.hosts.iter().filter(|host| host.is_odd()).count();
    let mut workloads: Vec<&FleetWorkload> = model.workloads.iter().collect();
    workloads.sort_by_key(|workload| std::cmp::Reverse(odd(workload)));
    let left_out = workloads.len().saturating_sub(CHARTS_MAX);
    workloads.truncate(CHARTS_MAX);
    let chart = |(index, workload): (usize, &&FleetWorkload)| {
        Block::Chart(chart(workload, &format!("fleet-{number}-{index}")))
    };
    let mut blocks: Vec<Block> = workloads.iter().enumerate().map(chart).collect();
    if left_out > 0 {
        let left_out = counted(left_out as u64, "workload");
        blocks.push(Block::Text(format!(
            "Not shown: {left_out} with the fewest odd hosts. --json lists all workloads."
        )));
    }
    (!workloads.is_empty()).then(|| Section {
        id: format!("workloads-{number}"),
        title: format!("Workloads on {}", model.model),
        lead: "Rate of each host divided by the median of all hosts, the slowest host first. \
               Error bars show 95% intervals."
            .to_owned(),
        blocks,
    })
}

fn chart(workload: &FleetWorkload, id: &str) -> Chart {
    let rate = |host| FleetResult::value(host, FleetQuantity::Rate);
    let mut hosts: Vec<(&FleetResult, &FleetValue)> =
        workload.hosts.iter().filter_map(|host| Some((host, rate(host)?))).collect();
    hosts.sort_by(|(_, a), (_, b)| a.ratio.total_cmp(&b.ratio));
    let series = |name: &str, is_odd: bool, hue: usize| {
        let of_kind = hosts.iter().enumerate().filter(|(_, (host, _))| host.is_odd() == is_odd);
        let mark = |(place, (host, rate)): (usize, &(&FleetResult, &FleetValue))| Mark {
            x: (place + 1) as f64,
            y: rate.ratio,
            low: Some(rate.ratio_low),
            high: Some(rate.ratio_high),
            note: Some(format!("{}, {}", host.host, host.target)),
        };
        let points: Vec<Mark> = of_kind.map(mark).collect();
        Series { name: name.to_owned(), points, dashed: false, hue: Some(hue) }
    };
    let mut all = vec![series("like the others", false, 0), series("odd", true, 1)];
    all.retain(|series| !series.points.is_empty());
    let axis =
        |label: &str| Axis { label: label.to_owned(), unit: Unit::Count, scale: Scale::Linear };
    Chart {
        id: id.to_owned(),
        title: workload.workload.clone(),
        summary: "Rate of each host divided by the median of all hosts.".to_owned(),
        x: axis("Hosts, sorted by rate"),
        y: axis("Rate relative to the median"),
        series: all,
        guides: vec![Guide { label: "1".to_owned(), at: 1.0, direction: Direction::Horizontal }],
        kind: Kind::Scatter,
    }
}
