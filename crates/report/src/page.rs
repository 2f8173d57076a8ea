//! Renders the whole page: the head, the first screen, the sections, and the provenance of the
//! results.
//!
//! The first screen shows, in this order, the target, whether the result can be trusted, the key
//! numbers, the findings, and the advice. The page contains everything it needs, and a content
//! security policy prevents the browser from loading anything else. The markup is also well-formed
//! XML, so an XML parser can check it.

use maud::{Markup, PreEscaped, html};

use explain::Kind;

use crate::chart::chart;
use crate::explanation::{explanation, explanation_of_study};
use crate::frame::{self, Frame};
use crate::links;
use crate::model::{
    Advice, Block, Finding, KeyFigure, POINTS_SECTION, Page, Section, State, Tone, Verdict,
};
use crate::table::table;

const STYLE: &str = include_str!("style.css");
/// The script of a page: several files, wrapped in one function.
const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("script/page.js"),
    include_str!("script/view.js"),
    include_str!("script/table.js"),
    include_str!("script/axis.js"),
    include_str!("script/zoom.js"),
    include_str!("script/picture.js"),
    include_str!("script/chart.js"),
    "})();\n",
);

/// The elements of the page's head. They are written by hand, because `maud` does not close
/// elements such as `meta`, and the page must be well-formed XML.
const HEAD: &str = concat!(
    r#"<meta charset="utf-8"/>"#,
    r#"<meta name="viewport" content="width=device-width, initial-scale=1"/>"#,
    r#"<meta name="color-scheme" content="light dark"/>"#,
    r#"<meta name="generator" content="halfpower"/>"#,
    r#"<meta http-equiv="Content-Security-Policy" content="default-src 'none'; "#,
    r#"style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"/>"#,
    r#"<link rel="icon" href="data:,"/>"#,
);

/// The part of the content security policy that differs between pages: first for a normal page,
/// then for the page of a run in progress, which also sends requests to its server.
const LOADED: [&str; 2] = ["img-src data:", "img-src data:; connect-src 'self'"];

/// Renders the page as one self-contained HTML document.
pub fn render(page: &Page) -> String {
    render_in(&Frame::default(), page)
}

/// Renders a page that is one of several pages, with the additions in `frame`.
pub fn render_in(frame: &Frame, page: &Page) -> String {
    let head = if frame.is_live { HEAD.replacen(LOADED[0], LOADED[1], 1) } else { HEAD.into() };
    let blocks = page.sections.iter().flat_map(|section| &section.blocks);
    let has_links = *frame != Frame::default()
        || blocks.into_iter().any(|block| matches!(block, Block::Links(_)));
    let document = html! {
        (PreEscaped("<!DOCTYPE html>\n"))
        html lang="en" {
            head {
                (PreEscaped(head))
                title { (page.title) " \u{b7} halfpower" }
                style { (character_data(STYLE)) }
                @if has_links { style { (character_data(links::STYLE)) } }
            }
            body {
                a.skip href="#main" { "Skip to the findings" }
                (frame::links(frame))
                (header(page, !frame.is_list))
                main id="main" tabindex="-1" {
                    (first_screen(page))
                    (contents(page))
                    @for one in &page.sections { (section(one)) }
                    (provenance(page))
                }
                (footer(page))
                script { (character_data(&without_comments(SCRIPT))) }
                @if has_links { script { (character_data(links::SCRIPT)) } }
            }
        }
    };
    document.into_string()
}

/// Renders a page that contains only a message, such as the reason why a requested page cannot be
/// shown.
pub fn message(frame: &Frame, title: &str, text: &str) -> String {
    let document = html! {
        (PreEscaped("<!DOCTYPE html>\n"))
        html lang="en" {
            head {
                (PreEscaped(HEAD))
                title { (title) " \u{b7} halfpower" }
                style { (character_data(STYLE)) }
                style { (character_data(links::STYLE)) }
            }
            body {
                (frame::links(frame))
                header { div.title { h1 { (title) } } p.subtitle { (text) } }
            }
        }
    };
    document.into_string()
}

/// Renders the text at the end of the page, with the keyboard shortcuts of charts if the page has
/// any.
fn footer(page: &Page) -> Markup {
    let blocks = page.sections.iter().flat_map(|section| &section.blocks);
    let has_charts = blocks.into_iter().any(|block| matches!(block, Block::Chart(_)));
    html! {
        footer {
            p { "Made by halfpower. KiB, MiB and GiB are powers of 1024; MB/s is decimal." }
            @if has_charts {
                p.keys id="keys" {
                    "Charts: drag to zoom, double-click to show the whole chart. Keys: arrows move \
                     between points and series, + and - zoom, 0 shows the whole chart, Escape \
                     hides the values. The address of the page contains the current view."
                }
            }
        }
    }
}

/// Removes the indentation and the comment lines of a script, which makes it a sixth smaller. The
/// script must not contain multi-line strings.
fn without_comments(script: &str) -> String {
    let lines = script.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Wraps the text of a style or a script in CDATA for XML parsers and in comments for HTML parsers.
fn character_data(text: &str) -> Markup {
    PreEscaped(wrapped(text))
}

fn wrapped(text: &str) -> String {
    format!("/*<![CDATA[*/\n{text}/*]]>*/")
}

/// Returns the contents of all script elements that a page may have, so that a server can allow the
/// browser to run only these scripts.
pub fn scripts() -> [String; 2] {
    [wrapped(&without_comments(SCRIPT)), wrapped(links::SCRIPT)]
}

fn header(page: &Page, has_verdict: bool) -> Markup {
    html! {
        header {
            div.bar {
                p.brand { "halfpower" }
                div.bar-tools {
                    button.quiet.reset-view type="button" hidden="" { "Reset view" }
                    button.quiet.theme type="button" { "Dark" }
                }
            }
            div.title {
                h1 { (page.title) }
                @if has_verdict { (badge(&page.verdict)) }
                @if let Some(in_doubt) = &page.verdict.in_doubt {
                    p.in-doubt { a href={ "#" (POINTS_SECTION) } { (in_doubt) } }
                }
            }
            @if !page.subtitle.is_empty() { p.subtitle { (page.subtitle) } }
            @if !page.verdict.reasons.is_empty() {
                ul class={ "reasons " (page.verdict.state.word()) } {
                    @for reason in &page.verdict.reasons {
                        li {
                            (reason)
                            @if let Some(check) = explain::check_of(reason) {
                                (explanation(check, &[Kind::Reason]))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn badge(verdict: &Verdict) -> Markup {
    let meaning = match verdict.state {
        State::Valid if verdict.in_doubt.is_some() => "the results shown here passed every check",
        State::Valid => "every check passed",
        State::Suspect => "use with care",
        State::Invalid => "do not use",
    };
    let word = verdict.state.word();
    html! { p class={ "badge " (word) } { strong { (word) } span { (meaning) } } }
}

fn first_screen(page: &Page) -> Markup {
    html! {
        @if !page.key_figures.is_empty() {
            section.figures aria-label="Key figures" {
                dl { @for figure in &page.key_figures { (key_figure(figure)) } }
            }
        }
        @if !page.findings.is_empty() || !page.advice.is_empty() { (answers(page)) }
    }
}

fn answers(page: &Page) -> Markup {
    html! {
        div.answers {
            @if !page.findings.is_empty() {
                section id="findings" {
                    h2 { "Findings" }
                    ul.findings { @for one in &page.findings { (finding(one)) } }
                }
            }
            @if !page.advice.is_empty() {
                section id="advice" {
                    h2 { "Advice" }
                    ol.advice { @for one in &page.advice { (advice(one)) } }
                }
            }
        }
    }
}

fn key_figure(figure: &KeyFigure) -> Markup {
    html! {
        div {
            dt { (figure.label) }
            dd.value { (figure.value) }
            @if !figure.note.is_empty() { dd { (figure.note) } }
        }
    }
}

fn finding(finding: &Finding) -> Markup {
    let (class, word) = match finding.tone {
        Tone::Good => ("good", "Good: "),
        Tone::Note => ("note", "Note: "),
        Tone::Warn => ("warn", "Problem: "),
    };
    html! {
        li class=(class) {
            p.headline { span.unseen { (word) } (finding.headline) }
            @if !finding.detail.is_empty() { p { (finding.detail) } }
            (explanation(&finding.id, &[Kind::Finding]))
        }
    }
}

fn advice(advice: &Advice) -> Markup {
    html! {
        li data-id=(advice.id) {
            p.headline {
                (advice.text)
                @if !advice.gain.is_empty() { " " span.gain { (advice.gain) } }
            }
            @if !advice.how.is_empty() { p { code { (advice.how) } } }
            @if !advice.evidence.is_empty() { p { (advice.evidence) } }
            (explanation(&advice.id, &[Kind::Advice]))
        }
    }
}

fn contents(page: &Page) -> Markup {
    html! {
        @if !page.sections.is_empty() {
            nav aria-label="Contents" {
                ul {
                    @for one in &page.sections { li { a href={ "#" (one.id) } { (one.title) } } }
                    @if !page.provenance.is_empty() {
                        li { a href="#provenance" { "Provenance" } }
                    }
                }
            }
        }
    }
}

fn section(section: &Section) -> Markup {
    let side_by_side = |a: &Block, b: &Block| matches!((a, b), (Block::Chart(_), Block::Chart(_)));
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            @if !section.lead.is_empty() { p.lead { (section.lead) } }
            @for group in section.blocks.chunk_by(side_by_side) {
                @if let [Block::Chart(_), ..] = group {
                    div.charts { @for one in group { (block(one)) } }
                } @else {
                    @for one in group { (block(one)) }
                }
            }
        }
    }
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Text(text) => html! { p { (text) } },
        Block::List(items) => html! { ul.items { @for item in items { li { (item) } } } },
        Block::Chart(one) => chart(one),
        Block::Table(one) => table(one),
        Block::Links(one) => links::link_table(one),
        Block::Study(name) => explanation_of_study(name),
    }
}

fn provenance(page: &Page) -> Markup {
    html! {
        @if !page.provenance.is_empty() {
            section id="provenance" {
                h2 { "Provenance" }
                div.facts {
                    @for (heading, facts) in &page.provenance {
                        div {
                            h3 { (heading) }
                            dl {
                                @for (name, value) in facts {
                                    div { dt { (name) } dd { (value) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Axis, Chart, Kind, Point, Scale, Series};
    use crate::units::Unit;

    const HOSTILE: &str = "<script>alert(\"1\")</script>&amp;' onload='x";

    fn hostile_page() -> Page {
        let text = || HOSTILE.to_string();
        let axis = || Axis { label: text(), unit: Unit::Count, scale: Scale::Linear };
        let chart = Chart {
            id: "chart".to_string(),
            title: text(),
            summary: text(),
            x: axis(),
            y: axis(),
            series: vec![Series {
                name: text(),
                points: vec![Point { x: 1.0, y: 2.0, note: Some(text()), ..Point::default() }],
                dashed: false,
                hue: None,
            }],
            guides: Vec::new(),
            kind: Kind::Lines,
        };
        Page {
            title: text(),
            subtitle: text(),
            verdict: Verdict {
                state: State::Invalid,
                reasons: vec![text()],
                in_doubt: Some(text()),
            },
            key_figures: vec![KeyFigure { label: text(), value: text(), note: text() }],
            findings: vec![Finding {
                id: text(),
                headline: text(),
                detail: text(),
                tone: Tone::Good,
            }],
            advice: vec![Advice {
                id: text(),
                text: text(),
                gain: text(),
                how: text(),
                evidence: text(),
            }],
            sections: vec![Section {
                id: "section".to_string(),
                title: text(),
                lead: text(),
                blocks: vec![Block::Text(text()), Block::Chart(chart)],
            }],
            provenance: vec![(text(), vec![(text(), text())])],
        }
    }

    fn parsed(html: &str) -> roxmltree::Document<'_> {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        roxmltree::Document::parse_with_options(html, options).unwrap()
    }

    #[test]
    fn hostile_text_stays_text() {
        let html = render(&hostile_page());
        assert_eq!(html.matches("<script>").count(), 1, "the page has no other script");
        let document = parsed(&html);
        let own_attributes = document.descendants().flat_map(|node| node.attributes());
        assert!(own_attributes.clone().count() > 50);
        assert!(!own_attributes.clone().any(|attribute| attribute.name() == "onload"));
        let heading = document.descendants().find(|node| node.has_tag_name("h1")).unwrap();
        assert_eq!(heading.text(), Some(HOSTILE));
    }

    #[test]
    fn the_page_is_well_formed() {
        let html = render(&crate::survey::survey_page(&crate::view::tests::full(HOSTILE)));
        let document = parsed(&html);
        let svgs = document.descendants().filter(|node| node.attribute("role") == Some("img"));
        for svg in svgs {
            assert!(svg.attribute("aria-label").is_some_and(|label| !label.is_empty()));
        }
    }

    #[test]
    fn nothing_outside_the_page_is_referred_to() {
        let html = render(&hostile_page());
        for scheme in ["http://", "https://", "@import", "url(", " src="] {
            assert!(!html.contains(scheme), "{scheme}");
        }
        let document = parsed(&html);
        let links = document.descendants().filter_map(|node| node.attribute("href"));
        for link in links {
            assert!(link.starts_with('#') || link == "data:,", "{link}");
        }
    }

    #[test]
    fn every_link_within_the_page_has_its_target() {
        let html = render(&crate::survey::survey_page(&crate::view::tests::full("read")));
        let document = parsed(&html);
        let has = |id: &str| document.descendants().any(|node| node.attribute("id") == Some(id));
        let links = document.descendants().filter_map(|node| node.attribute("href"));
        let inside: Vec<_> = links.filter_map(|link| link.strip_prefix('#')).collect();
        assert!(inside.len() > 5);
        assert!(inside.iter().all(|id| has(id)), "{inside:?}");
    }

    #[test]
    fn a_page_of_a_run_in_progress_carries_its_version_and_may_ask_its_server_only() {
        let links = vec![("/".to_string(), HOSTILE.to_string())];
        let frame = Frame { links, is_live: true, is_list: false };
        let html = render_in(&frame, &hostile_page());
        assert!(
            html.contains("connect-src 'self'") && !render(&hostile_page()).contains("connect-src")
        );
        let html = frame::version(&html, "abc");
        let document = parsed(&html);
        let live = document.descendants().find(|node| node.has_attribute("data-etag")).unwrap();
        assert_eq!(live.attribute("data-etag"), Some("abc"));
        let link = document.descendants().find(|node| node.text() == Some(HOSTILE)).unwrap();
        assert_eq!(link.attribute("href"), Some("/"));
        let found = document.descendants().filter(|node| node.has_tag_name("script"));
        let found: Vec<&str> = found.filter_map(|node| node.text()).collect();
        let allowed = scripts().map(|text| text.replace("<![CDATA[", "").replace("]]>", ""));
        assert_eq!(found, allowed, "no other script");
    }

    #[test]
    fn a_message_is_a_whole_page_without_a_verdict() {
        let html = message(&Frame::default(), HOSTILE, HOSTILE);
        let document = parsed(&html);
        assert!(document.descendants().any(|node| node.has_tag_name("h1")));
        assert!(!html.contains("<script>") && !html.contains("badge\""));
    }

    #[test]
    fn points_in_doubt_are_counted_beside_the_badge_with_a_link_to_all_points() {
        let mut view = crate::view::tests::full("read");
        let doubt = "40 of 61 points are suspect";
        view.verdict =
            Verdict { state: State::Valid, reasons: Vec::new(), in_doubt: Some(doubt.to_owned()) };
        let html = render(&crate::survey::survey_page(&view));
        let document = parsed(&html);
        let link = document.descendants().find(|node| node.text() == Some(doubt)).unwrap();
        let link = link.ancestors().find(|node| node.has_attribute("href")).unwrap();
        assert_eq!(link.attribute("href"), Some("#all-points"));
        assert!(!html.contains("every check passed"));
        view.verdict.in_doubt = None;
        assert!(render(&crate::survey::survey_page(&view)).contains("every check passed"));
    }

    #[test]
    fn the_style_serves_dark_print_and_phone() {
        for part in ["color-scheme: light dark", "@media print", "@media (max-width: 620px)"] {
            assert!(STYLE.contains(part), "{part}");
        }
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("]]>") && !text.contains("</"), "would end its element");
        }
        // The limit keeps the script small compared with a page with charts, which is ten times as
        // large as the script. Zooming, saving pictures, and the view in the URL take 18 KiB of the
        // source.
        let shipped = without_comments(SCRIPT);
        assert!(shipped.len() < 28 * 1024, "{} bytes", shipped.len());
        assert!(!shipped.contains("\n//") && shipped.contains("register("));
    }

    /// Returns the relative luminance of a colour `#rrggbb`, as WCAG 2 defines it.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
            let share = f64::from(value) / 255.0;
            if share <= 0.040_45 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    /// Returns the luminance of a colour of the style sheet in the light and in the dark theme.
    fn colours(name: &str) -> [f64; 2] {
        let start = format!("--{name}: light-dark(");
        let rest = STYLE.split_once(&start).expect(name).1;
        let (light, dark) = rest.split_once(')').unwrap().0.split_once(", ").unwrap();
        [luminance(light), luminance(dark)]
    }

    fn contrast(a: f64, b: f64) -> f64 {
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn colours_stand_out_in_both_themes() {
        let backgrounds = colours("bg");
        let series = (0..crate::svg::HUES).map(|hue| (format!("c{hue}"), 3.0));
        let texts = ["ink", "soft", "link", "good", "warn", "bad"];
        let texts = texts.into_iter().map(|name| (name.to_string(), 4.5));
        for (name, wanted) in series.chain(texts) {
            for (theme, colour) in colours(&name).into_iter().enumerate() {
                let got = contrast(colour, backgrounds[theme]);
                assert!(got >= wanted, "--{name} in theme {theme}: {got:.2}");
            }
        }
    }
}
