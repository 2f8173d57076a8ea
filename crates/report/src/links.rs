//! Tables whose rows are links to other pages, such as a gallery of runs. A table may have a search
//! box, and checkboxes to choose rows.
//!
//! On a page from a server, the search box and the checkboxes work without scripts, because they
//! belong to forms that send a GET request. On a page opened from a file, the search box needs the
//! script and is hidden without it. Void elements such as `input` are written by hand, because
//! `maud` does not close them, and the page must be well-formed XML.

use maud::{Markup, PreEscaped, html};

use crate::model::{Cell, LinkTable, LinkedCell, Search};
use crate::table::{cell, csv_button, heads, scroller};

/// The style sheet for these tables and for the additions in `frame`.
pub(crate) const STYLE: &str = include_str!("links.css");
/// The script for the search box, for the choice of rows, and for pages of a run in progress.
pub(crate) const SCRIPT: &str = include_str!("links.js");

/// Renders the table with its search box and the button that sends the chosen rows.
pub(crate) fn link_table(table: &LinkTable) -> Markup {
    html! {
        @if let Some(search) = &table.search { (search_box(search, &table.id)) }
        @match &table.choice {
            Some(choice) => form.choice action=(choice.action) method="get" {
                button.chosen type="submit" { (choice.button) }
                (figure(table, Some(&choice.name)))
            },
            None => (figure(table, None)),
        }
    }
}

fn figure(table: &LinkTable, choice: Option<&str>) -> Markup {
    let rows = html! {
        table.sortable {
            thead { tr { (heads(&table.columns)) } }
            tbody {
                @for row in &table.rows {
                    tr {
                        @for (index, column) in table.columns.iter().enumerate() {
                            @let found = row.cells.get(index);
                            @let checkbox = choice.filter(|_| index == 0).zip(row.value.as_ref());
                            @match (found, checkbox) {
                                (Some(found), Some((name, value))) => td.n data-v=(value) {
                                    (chooser(name, value)) " " (linked(found))
                                },
                                (Some(LinkedCell { href: Some(_), .. }), None) => {
                                    @let found = &row.cells[index];
                                    td { (linked(found)) }
                                }
                                _ => (cell(column, found.map_or(&Cell::Missing, |it| &it.cell))),
                            }
                        }
                    }
                }
            }
        }
    };
    html! {
        figure.table id=(table.id) {
            figcaption {
                p { (table.caption) }
                (csv_button(&table.id))
            }
            (scroller(&table.caption, &rows))
        }
    }
}

/// Renders the text of a cell, as a link if the cell has an address.
fn linked(found: &LinkedCell) -> Markup {
    let text = match &found.cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(number) => number.to_string(),
        Cell::Missing => crate::units::MISSING.to_owned(),
    };
    match &found.href {
        Some(href) => html! { a href=(href) { (text) } },
        None => html! { (text) },
    }
}

fn chooser(name: &str, value: &str) -> Markup {
    let label = format!("Choose {value}");
    input(&[("type", "checkbox"), ("name", name), ("value", value), ("aria-label", &label)])
}

fn search_box(search: &Search, table: &str) -> Markup {
    let field = [
        ("type", "search"),
        ("name", "q"),
        ("value", search.query.as_str()),
        ("placeholder", "Search in host, target, label and command"),
        ("aria-label", "Search"),
        ("data-table", table),
        ("maxlength", "200"),
    ];
    match &search.action {
        Some(action) => html! {
            form.search action=(action) method="get" {
                (input(&field))
                button type="submit" { "Search" }
            }
        },
        None => html! { p.search.scripted { (input(&field)) } },
    }
}

/// Renders an `input` element that is closed, as XML requires.
fn input(attributes: &[(&str, &str)]) -> Markup {
    let mut text = String::from("<input");
    for (name, value) in attributes {
        text.push_str(&format!(" {name}=\"{}\"", html! { (value) }.into_string()));
    }
    text.push_str("/>");
    PreEscaped(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Choice, Column, LinkRow};

    fn table(choice: Option<Choice>, search: Option<Search>) -> String {
        let column = |label: &str| Column { label: label.to_owned(), unit: None };
        let cells = vec![
            LinkedCell { cell: "7".into(), href: Some("run/7?a=1&b=\"2\"".to_owned()) },
            LinkedCell { cell: "<b>name</b>".into(), href: None },
        ];
        let rows = vec![LinkRow { value: Some("7\"><script>".to_owned()), cells }];
        let (id, caption) = ("runs".to_owned(), "Runs".to_owned());
        let columns = vec![column("run"), column("label"), column("missing")];
        let table = LinkTable { id, caption, columns, rows, choice, search };
        format!("<div>{}</div>", link_table(&table).into_string())
    }

    #[test]
    fn rows_lead_to_their_pages_and_hostile_text_stays_text() {
        let choice =
            Choice { action: "compare".into(), name: "run".into(), button: "Compare".into() };
        let search = Search { action: Some("/".into()), query: "\"><i>".into() };
        for html in [table(None, None), table(Some(choice), Some(search))] {
            let document = roxmltree::Document::parse(&html).expect("well-formed");
            let link = document.descendants().find(|node| node.has_tag_name("a")).unwrap();
            assert_eq!(link.attribute("href"), Some("run/7?a=1&b=\"2\""));
            assert!(!document.descendants().any(|node| node.has_tag_name("script")));
            assert!(html.contains("&lt;b&gt;name&lt;/b&gt;"), "{html}");
        }
    }

    #[test]
    fn only_a_table_with_a_choice_has_boxes_to_tick() {
        let choice =
            Choice { action: "compare".into(), name: "run".into(), button: "Compare".into() };
        let html = table(Some(choice), None);
        let document = roxmltree::Document::parse(&html).unwrap();
        let field = document.descendants().find(|node| node.has_tag_name("input")).unwrap();
        assert_eq!(field.attribute("value"), Some("7\"><script>"));
        assert_eq!(field.attribute("name"), Some("run"));
        assert!(!table(None, None).contains("<input"));
    }

    #[test]
    fn a_search_box_of_a_file_is_shown_by_the_script_only() {
        let html = table(None, Some(Search { action: None, query: String::new() }));
        assert!(html.contains("search scripted") && !html.contains("<form"), "{html}");
        assert!(STYLE.contains(".scripted"));
    }
}
