//! Addresses of the pages, which are either on a server or in a folder. A [`Place`] supplies the
//! addresses of all links, so that the same code generates the pages for both.

use std::collections::BTreeSet;

use form_urlencoded::Serializer;

/// The name of a host, and the name of a target on that host.
pub type TargetOfHost = (String, String);

/// The location of the pages, which determines their addresses.
#[derive(Clone, Debug)]
pub enum Place {
    /// On a server, which generates any page on request.
    Server,
    /// In a folder that contains only the pages of these runs and targets, and the list of runs.
    Folder {
        /// The numbers of the runs.
        runs: BTreeSet<i64>,
        /// The targets. The page of the first target is `target-1.html`.
        targets: Vec<TargetOfHost>,
    },
}

impl Place {
    /// Returns the address of the list of runs.
    pub fn index(&self) -> &'static str {
        match self {
            Place::Server => "/",
            Place::Folder { .. } => "index.html",
        }
    }

    /// Returns the address of the page of a run. None if the folder does not contain that page.
    pub fn run(&self, id: i64) -> Option<String> {
        match self {
            Place::Server => Some(format!("/run/{id}")),
            Place::Folder { runs, .. } => runs.contains(&id).then(|| format!("run-{id}.html")),
        }
    }

    /// Returns the address of the page of a target on a host. None if the folder does not contain
    /// that page.
    pub fn target(&self, host: &str, target: &str) -> Option<String> {
        match self {
            Place::Server => {
                let words = [("host", host), ("target", target)];
                let query = Serializer::new(String::new()).extend_pairs(words).finish();
                Some(format!("/target?{query}"))
            }
            Place::Folder { targets, .. } => {
                let is_it = |(known, name): &TargetOfHost| known == host && name == target;
                let number = targets.iter().position(is_it)?;
                Some(format!("target-{}.html", number + 1))
            }
        }
    }

    /// Returns the address of the list of runs that match the search `query`, without the first
    /// `skip` runs. None in a folder, because only a server can search.
    pub fn list(&self, query: &str, skip: usize) -> Option<String> {
        let Place::Server = self else { return None };
        let mut words = Serializer::new(String::new());
        if !query.is_empty() {
            words.append_pair("q", query);
        }
        if skip > 0 {
            words.append_pair("skip", &skip.to_string());
        }
        Some(match words.finish() {
            query if query.is_empty() => "/".to_owned(),
            query => format!("/?{query}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_addresses_are_encoded_so_that_they_stay_one_word() {
        let address = Place::Server.target("a&b=c", "ext4 on <sda>?#/..").unwrap();
        assert_eq!(address, "/target?host=a%26b%3Dc&target=ext4+on+%3Csda%3E%3F%23%2F..");
        assert_eq!(Place::Server.list("", 0).unwrap(), "/");
        assert_eq!(Place::Server.list("a b", 500).unwrap(), "/?q=a+b&skip=500");
    }

    #[test]
    fn a_folder_leads_only_to_pages_that_it_has() {
        let targets = vec![("h".to_owned(), "one".to_owned()), ("h".to_owned(), "two".to_owned())];
        let folder = Place::Folder { runs: BTreeSet::from([3]), targets };
        assert_eq!(folder.run(3).as_deref(), Some("run-3.html"));
        assert_eq!(folder.run(4), None);
        assert_eq!(folder.target("h", "two").as_deref(), Some("target-2.html"));
        assert_eq!(folder.target("g", "two"), None);
        assert_eq!(folder.list("word", 0), None);
    }
}
