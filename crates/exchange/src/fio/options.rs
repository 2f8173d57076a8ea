//! Parses the options of one job. Records which options were used, approximated and ignored.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use lab::failure::{Failure, Outcome};

use crate::fio::expression::{Quantity, evaluate};
use crate::fio::job_file::{Given, Jobs, Section, Surroundings};
use crate::fio::keys;

/// Values that turn an option off.
const OFF: [&str; 5] = ["0", "none", "off", "false", "no"];

/// The options of one job, and a record of how each option was handled.
pub struct Options<'a> {
    /// The last occurrence of each option, and its value with all variables replaced.
    given: BTreeMap<String, (&'a Given, String)>,
    /// Names of the options that the translation has read.
    used: RefCell<BTreeSet<String>>,
    /// Messages about approximated options, one line each.
    notes: RefCell<Vec<String>>,
    /// The error for the first variable that is not set. None if all variables are set.
    unset: Option<String>,
    /// Number of bytes that the suffixes `k` and `kb` mean: 1024 or 1000 (fio's `kb_base`).
    kb_base: Cell<u64>,
}

impl<'a> Options<'a> {
    /// Collects the options of a section and replaces variables.
    ///
    /// # Errors
    /// The value of `kb_base` is neither 1024 nor 1000.
    pub fn of(
        jobs: &'a Jobs,
        section: &'a Section,
        surroundings: &dyn Surroundings,
    ) -> Outcome<Options<'a>> {
        let mut last: BTreeMap<String, &Given> = BTreeMap::new();
        for given in jobs.options(section) {
            last.insert(keys::main_name(&given.key).to_owned(), given);
        }
        let mut options = Options {
            given: BTreeMap::new(),
            used: RefCell::default(),
            notes: RefCell::default(),
            unset: None,
            kb_base: Cell::new(1024),
        };
        for (key, given) in last {
            let text = given.text(surroundings).unwrap_or_else(|failure| {
                options.unset.get_or_insert(failure.message);
                String::new()
            });
            options.given.insert(key, (given, text));
        }
        match options.text("kb_base") {
            None | Some("1024") => {}
            Some("1000") => options.kb_base.set(1000),
            Some(_) => return Err(options.refuse("kb_base", "use 1024 or 1000")),
        }
        Ok(options)
    }

    /// Checks that all variables in the options are set.
    ///
    /// # Errors
    /// A variable is not set.
    pub fn check_variables(&self) -> Outcome<()> {
        self.unset.as_ref().map_or(Ok(()), |why| Err(Failure::usage(why.clone())))
    }

    /// Returns the text of an option. None if the job does not have the option.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.used.borrow_mut().insert(key.to_owned());
        self.given.get(key).map(|(_, text)| text.as_str())
    }

    /// Returns the location of an option, such as `a.fio:4`. Empty if the job does not have the
    /// option.
    pub fn place(&self, key: &str) -> &str {
        self.given.get(key).map_or("", |(given, _)| &given.place)
    }

    /// Returns a usage error about an option. `why` is the remedy, or ends with the remedy.
    pub fn refuse(&self, key: &str, why: &str) -> Failure {
        let place = Some(self.place(key)).filter(|place| !place.is_empty());
        let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
        match self.given.get(key) {
            Some((given, text)) if given.value.is_some() => {
                let text: String = text.escape_debug().take(80).collect();
                Failure::usage(format!("{place}{}={text}: {why}", given.key))
            }
            _ => Failure::usage(format!("{place}{key}: {why}")),
        }
    }

    /// Returns a usage error about an option that needs a feature that halfpower lacks.
    pub fn refuse_lacking(&self, key: &str, lacking: &str) -> Failure {
        self.refuse(
            key,
            &format!("halfpower does not support {lacking}; remove the option or the job"),
        )
    }

    /// Records that an option is approximated. `how` says what halfpower does instead.
    pub fn approximate(&self, key: &str, how: &str) {
        let place = self.place(key);
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        self.notes.borrow_mut().push(format!("{place}{key} is approximated: {how}"));
    }

    /// Parses an option as a count.
    ///
    /// # Errors
    /// The value is not a number.
    pub fn count(&self, key: &str) -> Outcome<Option<u64>> {
        self.number(key, Quantity::Bytes { kb_base: self.kb_base.get() })
    }

    /// Parses an option as a size (bytes).
    ///
    /// # Errors
    /// The value is not a size.
    pub fn bytes(&self, key: &str) -> Outcome<Option<u64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        if text.ends_with(['%', 'z']) {
            return Err(self.refuse(key, "percentages and zones are not supported; specify bytes"));
        }
        self.bytes_of(key, text).map(Some)
    }

    /// Parses a part of an option's text as a size (bytes).
    ///
    /// # Errors
    /// The text is not a size.
    pub fn bytes_of(&self, key: &str, text: &str) -> Outcome<u64> {
        evaluate(text, Quantity::Bytes { kb_base: self.kb_base.get() })
            .map_err(|why| self.refuse(key, &why))
    }

    /// Parses an option as a time (us). `bare_us` is the unit of a bare number (us), for example
    /// 1000000 for seconds.
    ///
    /// # Errors
    /// The value is not a time.
    pub fn time_us(&self, key: &str, bare_us: u64) -> Outcome<Option<u64>> {
        self.number(key, Quantity::Time { bare_us })
    }

    fn number(&self, key: &str, quantity: Quantity) -> Outcome<Option<u64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        evaluate(text, quantity).map(Some).map_err(|why| self.refuse(key, &why))
    }

    /// Parses an option as a switch. An option without a value is on.
    ///
    /// # Errors
    /// The value is not 0, 1, true or false.
    pub fn is_on(&self, key: &str) -> Outcome<Option<bool>> {
        match self.text(key) {
            None => Ok(None),
            Some("" | "1" | "true") => Ok(Some(true)),
            Some("0" | "false") => Ok(Some(false)),
            Some(_) => Err(self.refuse(key, "write 0 or 1")),
        }
    }

    /// Returns the values of an option for reads and for writes. For example, `8k,4k` is 8k for
    /// reads and 4k for writes, and `8k` is for both. None if a direction has no value.
    pub fn by_direction(&self, key: &str) -> (Option<&str>, Option<&str>) {
        let Some((_, text)) = self.given.get(key) else { return (None, None) };
        self.used.borrow_mut().insert(key.to_owned());
        let mut parts = text.split(',').map(|part| Some(part.trim()).filter(|p| !p.is_empty()));
        let read = parts.next().flatten();
        (read, parts.next().map_or(read, |write| write))
    }

    /// Checks the options that the translation has not read. Returns the names of the ignored
    /// options and the messages about approximated options.
    ///
    /// # Errors
    /// An option is unknown or has no equivalent.
    pub fn settle(self) -> Outcome<(Vec<String>, Vec<String>)> {
        let mut ignored = Vec::new();
        for (key, (_, text)) in &self.given {
            let is_off = OFF.contains(&text.as_str());
            if self.used.borrow().contains(key) {
                continue;
            }
            if let Some(lacking) = keys::of(keys::REFUSED, key) {
                if !is_off {
                    return Err(self.refuse_lacking(key, lacking));
                }
            } else if let Some(how) = keys::of(keys::APPROXIMATED, key) {
                // The value 0 turns most options off, but for these options 0 is a NUMA node.
                if !is_off || key.starts_with("numa") {
                    self.approximate(key, how);
                }
            } else if keys::IGNORED.contains(&key.as_str()) {
                ignored.push(key.clone());
            } else {
                let why = "halfpower does not know this option; remove the option or the job";
                return Err(self.refuse(key, why));
            }
        }
        Ok((ignored, self.notes.into_inner()))
    }
}
