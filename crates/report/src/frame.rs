//! What is added to a page that is one of several: links to the other pages and, for a run in
//! progress, a way to follow its state.

use maud::{Markup, html};

/// What is added to a page; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Addresses and names of other pages.
    pub links: Vec<(String, String)>,
    /// The page shows a run in progress. Its script asks the server for a newer state, with the
    /// version that [`version`] filled in.
    pub is_live: bool,
    /// The page is a list without a verdict of its own.
    pub is_list: bool,
}

/// The attribute in the page of a run in progress into which [`version`] puts the version.
const NO_VERSION: &str = "data-etag=\"\"";

/// Puts the version of a page into it; a page without a run in progress stays as it is. The version
/// must not contain characters that HTML escapes.
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
                "A run has not ended. This page follows it if scripts are allowed; otherwise "
                a href="" { "load it again" } ". " span.state {}
            }
        }
    }
}
