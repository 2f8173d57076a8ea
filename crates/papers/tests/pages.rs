//! Checks that README.md and docs/predict.md show the scores of the current simulator.
//!
//! `cargo xtask papers` writes the scores to these pages.

use papers::reproduce::score_table::{both_papers, long, short};

fn section(page: &str) -> String {
    let path = format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let (_, rest) = text.split_once("<!-- papers -->").expect("the page has a start marker");
    let (table, _) = rest.split_once("<!-- end of papers -->").expect("the page has an end marker");
    table.trim().to_owned()
}

#[test]
fn the_scores_in_the_pages_are_current() {
    let papers = both_papers();
    for (page, table) in [("README.md", short(&papers)), ("docs/predict.md", long(&papers))] {
        assert!(section(page) == table.trim(), "{page} is not current: run cargo xtask papers");
    }
}

#[test]
fn the_papers_are_met_as_far_as_is_promised() {
    let papers = both_papers();
    // At least 85% of the measured claims of the first paper must pass, and 87% of the second.
    for (paper, least) in papers.iter().zip([85.0, 87.0]) {
        let claims = paper.claims.as_ref().expect("claims were requested");
        let measured = claims.measured();
        assert!(measured.percent() >= least, "{}: {measured:?}", paper.paper.name());
        for scored in &claims.scored {
            let unexplained = scored.reason.as_deref() == Some("unexplained");
            let counts = scored.counted_as.is_none();
            assert!(!(unexplained && counts), "{} fails without a reason", scored.claim.id);
        }
    }
}
