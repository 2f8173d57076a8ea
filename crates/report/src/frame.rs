//! Additions to a page that belongs to a set of pages: links to the other pages and, for a run in
//! progress, automatic updates.

use maud::{Markup, html};

/// The additions to a page. The default adds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Address and name of each other page.
    pub links: Vec<(String, String)>,
    /// Whether the page shows a run in progress. The script of such a page reloads the page when
    /// the server has a newer version (see [`version`]).
    pub is_live: bool,
    /// Whether the page shows no verdict, for example because it is a list of runs.
    pub is_list: bool,
}

/// The attribute that [`version`] replaces. Only the page of a run in progress has this attribute.
const NO_VERSION: &str = "data-etag=\"\"";

/// Writes `version` into a page, whose script then asks the server for newer versions. A page
/// without a run in progress is returned unchanged. The version must not contain characters that
/// HTML escapes.
pub fn version(page: &str, version: &str) -> String {
    page.replacen(NO_VERSION, &format!("data-etag=\"{version}\""), 1)
}

pub(crate) fn links(frame: &Frame) -> Markup {
    html! {
        @if !frame.links.is_empty() {
            nav.pages aria-label="Other pages" {
                @for (href, name) in &frame.links { a href=(href) { (name) } }
            }
        }
        @if frame.is_live {
            p.live data-etag="" role="status" {
                "A run is in progress. This page updates itself if scripts are allowed; otherwise "
                a href="" { "reload it" } ". " span.state {}
            }
        }
    }
}
