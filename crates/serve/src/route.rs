//! Finds the page that an address specifies. Paths are compared without decoding them. An address
//! can specify runs (by number or uuid), targets and parts of the list of runs, but not files or
//! labels.

use crate::gallery::Part;

/// Maximum length of an address (bytes).
pub const ADDRESS_BYTES_MAX: usize = 4096;
/// Maximum number of runs in a comparison.
pub const SIDES_MAX: usize = 8;
/// Default number of runs in a part of the list. This is also the maximum number on an HTML page.
pub const LISTED: usize = 500;
/// Maximum number of runs that the JSON document lists.
const LISTED_MAX: usize = 5000;
/// Maximum length of a parameter's value, such as the words of a search (bytes).
const WORDS_BYTES_MAX: usize = 512;
/// Maximum number of parameters that are examined.
const PARAMETERS_MAX: usize = 64;
/// Length of a uuid's text (bytes).
const UUID_BYTES: usize = 36;

/// A page that an address specifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A part of the list of runs.
    List(Part),
    /// A part of the list of runs, as JSON.
    Json(Part),
    /// The page of a run.
    Run(RunName),
    /// The page of a target on a host, which shows the rates over time.
    Target {
        /// Name of the host.
        host: String,
        /// Name of the target.
        target: String,
    },
    /// A comparison of the first run with each other run.
    Compare(Vec<RunName>),
}

/// The number or uuid by which an address specifies a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunName {
    /// The run's number.
    Number(i64),
    /// The run's uuid.
    Uuid(String),
}

/// The parsed form of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The specified page. None if there is no such page.
    pub route: Option<Route>,
    /// The token in the address. None if the address contains no token.
    pub token: Option<String>,
}

impl Address {
    /// Parses the path and the query of an address.
    pub fn of(path: &str, query: &str) -> Address {
        let query: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
            .take(PARAMETERS_MAX)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        let value = |wanted: &str| {
            let found = query.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        let is_short = query.iter().all(|(_, value)| value.len() <= WORDS_BYTES_MAX);
        let route = is_short.then(|| route(path, &query)).flatten();
        Address { route, token: value("token") }
    }
}

fn route(path: &str, query: &[(String, String)]) -> Option<Route> {
    let value = |wanted: &str| {
        let found = query.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    let part = |most_max: usize| {
        let number = |wanted: &str| value(wanted).map(|text| text.parse::<usize>()).transpose();
        let query = value("q").unwrap_or_default().to_owned();
        let (skip, most) = (number("skip").ok()?, number("most").ok()?);
        Some(Part {
            query,
            skip: skip.unwrap_or(0),
            most: most.unwrap_or(LISTED).clamp(1, most_max),
        })
    };
    match path {
        "/" => Some(Route::List(part(LISTED)?)),
        "/api/runs" => Some(Route::Json(part(LISTED_MAX)?)),
        "/target" => {
            let (host, target) = (value("host")?.to_owned(), value("target")?.to_owned());
            Some(Route::Target { host, target })
        }
        "/compare" => sides(query).map(Route::Compare),
        _ => path.strip_prefix("/run/").and_then(RunName::of).map(Route::Run),
    }
}

/// Returns the runs of a comparison. The first run is the baseline. The result begins with the
/// comma-separated runs of the parameter `runs`, in the given order. The runs that were chosen in
/// the list (parameters `run`) follow, sorted by number.
fn sides(query: &[(String, String)]) -> Option<Vec<RunName>> {
    let mut sides: Vec<RunName> = Vec::new();
    for (_, text) in query.iter().filter(|(name, _)| name == "runs") {
        for word in text.split(',') {
            sides.push(RunName::of(word)?);
        }
    }
    let chosen = query.iter().filter(|(name, _)| name == "run");
    let mut chosen = chosen.map(|(_, text)| RunName::of(text)).collect::<Option<Vec<_>>>()?;
    chosen.sort_by_key(|name| match name {
        RunName::Number(number) => *number,
        RunName::Uuid(_) => i64::MAX,
    });
    sides.extend(chosen);
    Some(sides)
}

impl RunName {
    /// Parses a number or a lower-case uuid.
    pub fn of(text: &str) -> Option<RunName> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().map(RunName::Number);
        }
        let is_of_uuid = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
        let is_uuid = text.len() == UUID_BYTES && text.bytes().all(is_of_uuid);
        is_uuid.then(|| RunName::Uuid(text.to_owned()))
    }

    /// Returns the text that specifies the run in an address.
    pub fn text(&self) -> String {
        match self {
            RunName::Number(number) => number.to_string(),
            RunName::Uuid(uuid) => uuid.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path: &str, query: &str) -> Option<Route> {
        Address::of(path, query).route
    }

    #[test]
    fn every_page_has_one_address() {
        let part = |query: &str, skip| Part { query: query.to_owned(), skip, most: LISTED };
        assert_eq!(route("/", ""), Some(Route::List(part("", 0))));
        assert_eq!(route("/", "q=a+b%3D&skip=500"), Some(Route::List(part("a b=", 500))));
        assert_eq!(route("/run/12", ""), Some(Route::Run(RunName::Number(12))));
        let uuid = "0f8fad5b-d9cb-469f-a165-70867728950e";
        assert_eq!(
            route(&format!("/run/{uuid}"), ""),
            Some(Route::Run(RunName::Uuid(uuid.into())))
        );
        let target = Route::Target { host: "h".into(), target: "a b".into() };
        assert_eq!(route("/target", "host=h&target=a+b"), Some(target));
        let [Some(Route::Json(json))] = [route("/api/runs", "most=999999")] else { panic!() };
        assert_eq!(json.most, LISTED_MAX);
    }

    #[test]
    fn chosen_runs_are_compared_with_the_oldest_and_named_ones_with_the_first() {
        let numbers = |query: &str| match route("/compare", query) {
            Some(Route::Compare(sides)) => {
                sides.iter().map(RunName::text).collect::<Vec<_>>().join(" ")
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(numbers("run=12&run=3&run=100"), "3 12 100");
        assert_eq!(numbers("runs=12,3"), "12 3");
        assert_eq!(numbers(""), "");
    }

    #[test]
    fn what_is_no_page_of_a_run_is_no_page() {
        for path in [
            "",
            "/run/",
            "/run/latest",
            "/run/../../etc/passwd",
            "/../../etc/passwd",
            "/%2e%2e/%2e%2e/etc/passwd",
            "/run/12%00",
            "/run/12/",
            "//run/12",
            "/run/label:x",
            "/run/99999999999999999999",
            "/run/-1",
            "/RUN/12",
            "/index.html",
            "*",
        ] {
            assert_eq!(route(path, ""), None, "{path}");
        }
        for query in ["runs=/etc/passwd", "runs=a.db:1", "runs=1,,2", "run=1&run=x", "runs=1;2"] {
            assert_eq!(route("/compare", query), None, "{query}");
        }
        assert_eq!(route("/", "skip=-1"), None);
        assert_eq!(route("/", &format!("q={}", "x".repeat(WORDS_BYTES_MAX + 1))), None);
        assert_eq!(route("/target", "host=h"), None);
    }

    #[test]
    fn a_token_is_found_in_any_address() {
        let token = |path, query| Address::of(path, query).token;
        assert_eq!(token("/", "token=abc").as_deref(), Some("abc"));
        assert_eq!(token("/nothing", "a=b&token=").as_deref(), Some(""));
        assert_eq!(token("/", "").as_deref(), None);
    }
}
