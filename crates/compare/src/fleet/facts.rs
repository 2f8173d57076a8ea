//! Finds facts that few hosts have, and facts that odd hosts share.
//!
//! A fact has a name and a value. For example, the fact `scheduler` has the value `none`. Facts
//! whose values differ on most hosts, such as serial numbers, explain nothing and are ignored.

use std::collections::{BTreeMap, HashMap, HashSet};

use analysis::comparison::FALSE_DISCOVERIES;
use analysis::fleet::chance_of_association;

use super::contents::Member;
use super::document::{Distinguishing, Oddness, UnusualFact};

/// A fact is unusual if at most this share of the hosts has it.
const UNUSUAL_MAX: f64 = 0.02;
/// Minimum number of odd hosts that must share a fact before the fact is reported.
const SHARED_MIN: usize = 2;
/// Maximum number of shared facts that are reported for all odd hosts with the same verdict.
const FACTS_MAX: usize = 5;

/// The index of the name of a fact and the index of its value, both in `Facts::texts`.
type Fact = (usize, usize);

/// The facts of all hosts of one model.
#[derive(Debug)]
pub struct Facts {
    /// Texts of the names and values. Each text is stored once.
    texts: Vec<String>,
    /// The facts of each host, sorted.
    of_hosts: Vec<Vec<Fact>>,
    /// Number of hosts with each fact. Facts whose values differ on most hosts are left out.
    counts: BTreeMap<Fact, usize>,
    /// For each name, the fact with the most frequent value, and the number of hosts with this
    /// fact. If at least as many hosts have no fact of this name, the pair contains None and the
    /// number of hosts without such a fact.
    usual: HashMap<usize, (Option<Fact>, usize)>,
}

impl Facts {
    /// Collects the facts from the newest run of each host.
    pub fn of(members: &[&Member]) -> Facts {
        let (mut numbers, mut texts) = (HashMap::<String, usize>::new(), Vec::<String>::new());
        let mut number = |text: String| {
            *numbers.entry(text).or_insert_with_key(|text| {
                texts.push(text.clone());
                texts.len() - 1
            })
        };
        let mut of_hosts: Vec<Vec<Fact>> = Vec::with_capacity(members.len());
        for member in members {
            let named = member.newest.named().into_iter();
            let mut facts: Vec<Fact> = named.map(|(n, v)| (number(n), number(v))).collect();
            facts.sort_unstable();
            facts.dedup();
            of_hosts.push(facts);
        }
        let mut counts: BTreeMap<Fact, usize> = BTreeMap::new();
        of_hosts.iter().flatten().for_each(|fact| *counts.entry(*fact).or_default() += 1);
        let mut values: HashMap<usize, usize> = HashMap::new();
        counts.keys().for_each(|(name, _)| *values.entry(*name).or_default() += 1);
        counts.retain(|(name, _), _| 2 * values[name] <= members.len().max(4));
        let mut without: HashMap<usize, usize> = HashMap::new();
        for facts in &of_hosts {
            // A host may have several facts with the same name, because a list of values becomes
            // one fact for each value. The host is counted only once for this name.
            for of_name in facts.chunk_by(|a, b| a.0 == b.0) {
                *without.entry(of_name[0].0).or_insert(members.len()) -= 1;
            }
        }
        let mut usual: HashMap<usize, (Option<Fact>, usize)> = HashMap::new();
        for (fact, count) in &counts {
            let most = usual.entry(fact.0).or_insert((None, without[&fact.0]));
            if *count > most.1 {
                *most = (Some(*fact), *count);
            }
        }
        Facts { texts, of_hosts, counts, usual }
    }

    /// Returns the facts of a host that few other hosts have.
    pub fn unusual(&self, host: usize) -> Vec<UnusualFact> {
        let unusual = self.of_hosts[host].iter().filter(|fact| self.is_unusual(**fact));
        let named = |fact: &Fact| {
            let (usual, hosts_with_usual) = self.usual[&fact.0];
            UnusualFact {
                fact: self.texts[fact.0].clone(),
                value: self.texts[fact.1].clone(),
                hosts_with: self.counts[fact],
                usual: usual.map(|usual| self.texts[usual.1].clone()),
                hosts_with_usual,
                hosts: self.of_hosts.len(),
            }
        };
        unusual.map(named).collect()
    }

    /// Checks whether a host has a fact that few other hosts have.
    pub fn has_unusual(&self, host: usize) -> bool {
        self.of_hosts[host].iter().any(|fact| self.is_unusual(*fact))
    }

    fn is_unusual(&self, fact: Fact) -> bool {
        let most = ((UNUSUAL_MAX * self.of_hosts.len() as f64) as usize).max(1);
        let is_usual = || self.usual[&fact.0].0 == Some(fact);
        self.counts.get(&fact).is_some_and(|count| *count <= most && !is_usual())
    }

    /// Returns the facts that several odd hosts share and few other hosts have. `verdicts` has one
    /// verdict for each host. The facts are sorted by verdict, and then by probability.
    pub fn distinguishing(&self, verdicts: &[Oddness]) -> Vec<Distinguishing> {
        let hosts = self.of_hosts.len();
        let kinds: HashSet<Oddness> = verdicts.iter().copied().filter(|v| v.is_odd()).collect();
        let mut kinds: Vec<Oddness> = kinds.into_iter().collect();
        kinds.sort_unstable();
        let tried = self.counts.len() as f64;
        let mut found = Vec::new();
        for kind in kinds {
            let odd = verdicts.iter().filter(|verdict| **verdict == kind).count();
            let mut with: BTreeMap<Fact, usize> = BTreeMap::new();
            let of_kind = self.of_hosts.iter().zip(verdicts).filter(|(_, v)| **v == kind);
            for fact in of_kind.flat_map(|(facts, _)| facts) {
                *with.entry(*fact).or_default() += 1;
            }
            let known = with.into_iter().filter(|(fact, _)| self.counts.contains_key(fact));
            let mut of_kind: Vec<Distinguishing> = known
                .map(|(fact, odd_with)| {
                    let all_with = self.counts[&fact];
                    let counts = [odd_with, odd, all_with, hosts].map(|count| count as u64);
                    let [odd_with_, odd_, with_, all_] = counts;
                    Distinguishing {
                        hosts: kind,
                        fact: self.texts[fact.0].clone(),
                        value: self.texts[fact.1].clone(),
                        odd_with,
                        odd,
                        others_with: all_with - odd_with,
                        others: hosts - odd,
                        probability: chance_of_association(odd_with_, odd_, with_, all_),
                    }
                })
                .filter(|it| {
                    let is_no_chance = it.probability * tried <= FALSE_DISCOVERIES;
                    let is_theirs = it.odd_with == odd && it.others_with == 0;
                    it.odd_with >= SHARED_MIN && (is_no_chance || is_theirs)
                })
                .collect();
            of_kind.sort_by(|a, b| a.probability.total_cmp(&b.probability));
            of_kind.truncate(FACTS_MAX);
            found.extend(of_kind);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::tests::ran_on;

    /// Returns the facts of hosts with these kernels. Each host has a different serial number.
    fn facts(kernels: &[&str]) -> Facts {
        let member = |(number, kernel): (usize, &&str)| Member {
            host: format!("host{number}"),
            target: "xfs".to_owned(),
            model: "X".to_owned(),
            newest: ran_on(kernel, "1.0", &format!("S{number}")),
        };
        let members: Vec<Member> = kernels.iter().enumerate().map(member).collect();
        Facts::of(&members.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_fact_of_one_host_in_twenty_is_unusual_and_a_serial_number_is_not() {
        let mut kernels = ["6.1"; 20];
        kernels[7] = "6.6";
        let facts = facts(&kernels);
        let [only] = &facts.unusual(7)[..] else { panic!("{:?}", facts.unusual(7)) };
        assert_eq!((only.fact.as_str(), only.value.as_str()), ("host kernel", "6.6"));
        assert_eq!((only.hosts_with, only.hosts_with_usual, only.hosts), (1, 19, 20));
        assert_eq!(only.usual.as_deref(), Some("6.1"));
        assert!(facts.has_unusual(7) && !facts.has_unusual(0));
        assert!(facts.unusual(0).is_empty());
    }

    #[test]
    fn a_fact_that_all_other_hosts_lack_is_unusual() {
        let mut kernels = [""; 20];
        kernels[7] = "6.6";
        let [only] = &facts(&kernels).unusual(7)[..] else { panic!("not one fact") };
        assert_eq!((only.usual.as_deref(), only.hosts_with_usual), (None, 19));
    }

    #[test]
    fn a_fact_of_two_odd_hosts_distinguishes_them_and_one_of_many_others_does_not() {
        let mut kernels = ["6.1"; 20];
        let mut verdicts = [Oddness::Alike; 20];
        for odd in [3, 11] {
            (kernels[odd], verdicts[odd]) = ("6.6", Oddness::Slower);
        }
        let found = facts(&kernels).distinguishing(&verdicts);
        let [fact] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((fact.odd_with, fact.odd, fact.others_with, fact.others), (2, 2, 0, 18));
        kernels[..12].fill("6.6");
        assert!(facts(&kernels).distinguishing(&verdicts).is_empty());
    }
}
