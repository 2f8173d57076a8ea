//! Writes the comparison as JUnit XML, which CI systems show as a list of tests. Each quantity of
//! each point is a test case, which fails if the change exceeds a limit.

use crate::limit::Limit;
use crate::text;
use crate::verdict::{Change, Comparison};

/// Formats the comparisons as one XML document.
pub fn document(comparisons: &[Comparison], limits: &[Limit]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for comparison in comparisons {
        let changes = || comparison.points.iter().flat_map(|point| &point.changes);
        let failures = changes().filter(|change| is_failure(change, limits)).count();
        let name = format!("{} compared with {}", comparison.after_name, comparison.before_name);
        let (name, tests) = (escaped(&name), changes().count());
        xml += &format!("<testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\">\n");
        for point in &comparison.points {
            for change in &point.changes {
                xml += &case(&point.workload, change, limits);
            }
        }
        xml += "</testsuite>\n";
    }
    xml + "</testsuites>\n"
}

fn is_failure(change: &Change, limits: &[Limit]) -> bool {
    limits.iter().any(|limit| limit.is_exceeded(change))
}

fn case(workload: &str, change: &Change, limits: &[Limit]) -> String {
    let (class, name) = (escaped(workload), change.quantity.name());
    let head = format!("<testcase classname=\"{class}\" name=\"{name}\"");
    if !is_failure(change, limits) {
        return format!("{head}/>\n");
    }
    let quantity = change.quantity;
    let message = escaped(&format!(
        "{} -> {}, {} ({})",
        quantity.shown(change.before),
        quantity.shown(change.after),
        text::percent(change.ratio.value),
        text::interval(change)
    ));
    format!("{head}><failure message=\"{message}\"/></testcase>\n")
}

/// Escapes text for use as the value of an XML attribute. Control characters, which XML does not
/// allow, become spaces.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::Side;
    use crate::verdict::compare;
    use lab::machine::{Host, TargetFacts};
    use lab::point::testing::point;

    #[test]
    fn a_regression_is_a_failed_test_and_names_are_escaped() {
        let side = |name: &str, bytes: &[u64]| {
            Side::of(name, Host::default(), TargetFacts::default(), vec![point(bytes)])
        };
        let before = side("a<b&\"c\"\u{1}", &[450_600_000, 450_700_000, 450_500_000]);
        let after = side("b", &[409_600_000, 409_700_000, 409_500_000]);
        let found = [compare(&before, &after, 0.02)];
        let xml = document(&found, &["5%".parse().unwrap()]);
        assert!(xml.contains("name=\"b compared with a&lt;b&amp;&quot;c&quot; \""), "{xml}");
        assert!(xml.contains("failures=\"1\"") && xml.contains("-9.1%"), "{xml}");
        assert!(!document(&found, &["10%".parse().unwrap()]).contains("<failure"));
    }
}
