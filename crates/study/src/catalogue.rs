//! The built-in studies: the `Study` type and the list of all studies.
//!
//! Each study is one file in `catalogue/`. The file contains the analysis and, if it is not enough
//! to measure the points of the plan, a special measurement. The plan is TOML, in `plans/` or in
//! the file of the study. To add a study, declare its module here and add it to [`ALL`].

use lab::evidence::Evidence;
use lab::failure::{Failure, Outcome};

use crate::conclusion::Conclusion;
use crate::runner::StudyRunner;

mod alignment;
mod allocate;
mod burst;
mod competing;
mod copy_cost;
mod cpu_cost;
mod depth;
mod device_cache;
mod hints;
mod memory;
mod mix;
mod network;
mod objects;
mod out_of_box;
mod engines;
mod phases;
mod price;
mod processors;
mod raid;
mod random;
mod request_size;
mod stripe;
mod write_cache;
mod write_through;
mod zones;

/// The built-in studies, in the order in which they are listed.
pub const ALL: &[&Study] = &[
    &out_of_box::STUDY,
    &request_size::STUDY,
    &depth::STUDY,
    &hints::STUDY,
    &write_cache::STUDY,
    &write_through::STUDY,
    &allocate::STUDY,
    &alignment::STUDY,
    &stripe::STUDY,
    &raid::STUDY,
    &random::STUDY,
    &mix::STUDY,
    &zones::STUDY,
    &device_cache::STUDY,
    &phases::STUDY,
    &memory::STUDY,
    &cpu_cost::STUDY,
    &engines::STUDY,
    &processors::STUDY,
    &competing::STUDY,
    &burst::STUDY,
    &price::STUDY,
    &copy_cost::STUDY,
    &network::STUDY,
    &objects::STUDY,
];

/// Names of the studies that several ranks can measure together. All trials of such a study run on
/// all ranks, and all its choices depend only on the merged results.
const ON_RANKS: &[&str] =
    &["request-size", "depth", "hints", "write-through", "allocate", "mix", "zones", "competing"];

/// Name of the study that reads the counters of a halfpower peer.
pub const NETWORK: &str = network::STUDY.name;
/// Name of the study that creates objects below its target.
pub const OBJECTS: &str = objects::STUDY.name;

/// A built-in study. Most studies repeat an experiment of the papers.
pub struct Study {
    /// Name of the study.
    pub name: &'static str,
    /// Where the papers describe the experiment, and what the papers found.
    pub papers: &'static str,
    /// What the study needs besides a target. Empty if nothing else is needed.
    pub needs: &'static str,
    /// Plan of the study as TOML text: title, question, points and figures.
    pub plan: &'static str,
    /// Ids of the papers' claims that the study tests.
    pub claims: &'static [&'static str],
    /// Ids of the advice rules that the study quantifies.
    pub rules: &'static [&'static str],
    /// The special measurement of the study. None if the study only measures the points of its
    /// plan.
    pub measure: Option<fn(&mut StudyRunner<'_>) -> Outcome<()>>,
    /// Function that draws the conclusion from the evidence.
    pub analyse: fn(&Evidence) -> Conclusion,
}

impl Study {
    /// Checks that several ranks can measure the study together.
    ///
    /// # Errors
    /// A usage error that lists the studies that several ranks can measure together.
    pub fn check_ranks(&self) -> Outcome<()> {
        if ON_RANKS.contains(&self.name) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "study {} measures with one process only; drop --mpi, or use one of these studies: {}",
            self.name,
            ON_RANKS.join(", ")
        )))
    }
}

/// Finds a study by name. `None` if there is no such study.
pub fn named(name: &str) -> Option<&'static Study> {
    ALL.iter().find(|study| study.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::claim_of;
    use crate::figure;
    use crate::plan::Plan;
    use lab::experiment::settings::Settings;
    use survey::advice;

    #[test]
    fn every_plan_is_read_and_every_figure_can_be_drawn() {
        for study in ALL {
            let plan = Plan::parse(study.plan).unwrap_or_else(|e| panic!("{}: {e}", study.name));
            assert_eq!(plan.study.as_deref(), Some(study.name));
            assert!(!plan.title.is_empty() && plan.asks.ends_with('?'), "{}", study.name);
            for quick in [false, true] {
                plan.groups(quick, &Settings::default()).unwrap();
            }
            figure::check(&plan).unwrap_or_else(|e| panic!("{}: {e}", study.name));
        }
    }

    #[test]
    fn names_are_unique_and_every_claim_is_one_of_the_papers() {
        for (index, study) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|other| other.name != study.name), "{}", study.name);
            for id in study.claims {
                assert!(claim_of(id).is_some(), "{}: {id}", study.name);
            }
        }
    }

    #[test]
    fn the_studies_of_several_ranks_exist_and_the_others_are_refused_by_name() {
        for name in ON_RANKS {
            assert!(named(name).unwrap().check_ranks().is_ok(), "{name}");
        }
        let refused = named("burst").unwrap().check_ranks().unwrap_err();
        assert!(refused.message.contains("study burst"), "{refused}");
    }

    #[test]
    fn every_rule_that_waits_for_a_study_is_priced_by_it() {
        for (rule, experiment) in advice::silent() {
            let study = named(&experiment).unwrap_or_else(|| panic!("{}: {experiment}", rule.id));
            assert!(study.rules.contains(&rule.id.as_str()), "{}: {experiment}", rule.id);
        }
        let known: Vec<String> = advice::rules().into_iter().map(|rule| rule.id).collect();
        for study in ALL {
            for rule in study.rules {
                assert!(known.iter().any(|id| id == rule), "{}: {rule}", study.name);
            }
        }
    }

    #[test]
    fn an_analysis_of_nothing_claims_nothing() {
        for study in ALL {
            let conclusion = (study.analyse)(&Evidence::default());
            let tried = conclusion
                .claims
                .iter()
                .filter(|claim| claim.verdict != crate::conclusion::Verdict::CannotBeTried);
            assert_eq!(tried.count(), 0, "{}", study.name);
            assert!(conclusion.claims.iter().all(|c| study.claims.contains(&c.id)));
        }
    }
}
