//! `halfpower characterise`: describes the load in a trace, so that `sweep` or fio can generate it.
//! The crate `watch` does the work.

use lab::console;
use lab::failure::{Exit, Outcome};
use trace::replay::Selection;
use watch::characterise;

use crate::cli::characterise::CharacteriseArgs;

pub fn execute(args: &CharacteriseArgs) -> Outcome {
    if args.plan {
        console::plan_to_print();
        return Ok(Exit::Ok);
    }
    let selection = Selection { level: args.level, files: args.only.clone() };
    let text = characterise::file(&args.file, args.format, &selection, args.output_format)?;
    console::data(text.trim_end());
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use clap::Parser;
    use exchange::fio::host::Host;
    use exchange::fio::job_file;
    use exchange::fio::schedule::{self, Wishes};
    use lab::job::Job;
    use proptest::prelude::*;
    use trace::replay::Level;
    use trace::{Call, FileId, Header, Operation, Request};
    use watch::characterise::{Source, fio, model_of, plan};

    use crate::cli::{Cli, Verb};
    use crate::plan_file::PlanFile;

    fn any_requests() -> impl Strategy<Value = Vec<Request>> {
        let bytes = prop_oneof![Just(4096_u64), Just(65536), 1_u64..2_000_000, any::<u64>()];
        let offset = prop_oneof![(0_u64..64).prop_map(|n| n * 4096), any::<u64>()];
        let names = ["unknown", "pread64", "fdatasync", "libaio", "io_uring"];
        let calls = names.map(|name| Call::named(name).unwrap()).to_vec();
        let operations = vec![Operation::Read, Operation::Write, Operation::Flush];
        let what = (prop::sample::select(calls), prop::sample::select(operations));
        let who = (0_u32..3, 0_u32..3);
        let times = (0_u64..1 << 40, prop::option::of(0_u64..1 << 32));
        let one = (what, who, times, (offset, bytes), any::<(bool, bool)>());
        let request = one.prop_map(|(what, who, times, range, (direct, durable))| Request {
            start_ns: times.0,
            latency_ns: times.1,
            process: 1,
            thread: who.0,
            call: what.0,
            operation: what.1,
            file: FileId(who.1),
            offset: what.1.moves_data().then_some(range.0),
            bytes: range.1,
            result: None,
            direct,
            durable,
            device_bytes: None,
            sleeps: None,
        });
        prop::collection::vec(request, 1..60).prop_map(|mut requests| {
            requests.sort_by_key(|request| request.start_ns);
            requests
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn plans_and_jobs_of_any_requests_are_accepted(requests in any_requests()) {
            let pass = |take: &mut dyn FnMut(&Request)| {
                requests.iter().for_each(take);
                Ok(())
            };
            let found = model_of(&pass, &Header::default(), Level::Calls).unwrap();
            let Some(model) = found else { return Ok(()) };
            let text = plan::text(&model, &Source::default());
            let file = PlanFile::parse(Path::new("plan.toml"), &text);
            prop_assert!(file.is_ok(), "{:?}\n{text}", file.err());
            if model.workloads.len() > 1 {
                let parsed = study::plan::Plan::parse(&text);
                prop_assert!(parsed.is_ok(), "{:?}\n{text}", parsed.err());
                let plan = parsed.unwrap();
                prop_assert_eq!(plan.parts().count(), model.workloads.len(), "{}", text);
            } else {
                let words = file.unwrap().words().into_iter().map(OsString::from);
                let line = ["halfpower", "sweep", "."].map(OsString::from).into_iter();
                let cli = Cli::try_parse_from(line.chain(words)).unwrap();
                let Verb::Sweep(args) = cli.verb else { panic!("not a sweep") };
                let job = args.experiment().and_then(|experiment| Job::resolve(&experiment, true));
                prop_assert!(job.is_ok(), "{:?}\n{text}", job.err());
            }
            let text = fio::text(&model, &Source::default());
            let jobs = job_file::parse(Path::new("job.fio"), &text, &Host);
            prop_assert!(jobs.is_ok(), "{:?}\n{text}", jobs.err());
            let sections = text.lines().filter(|line| line.starts_with('[')).count();
            prop_assert_eq!(sections, model.workloads.len() + 1);
            let wishes = Wishes { serial: true, ..Wishes::default() };
            let runs = schedule::plan(&jobs.unwrap(), &wishes, &Host);
            // The job file may use two features of fio that halfpower does not have. The first is
            // several sequential requests at each random offset. The second is rate limits of
            // reads and writes whose ratio differs from rwmixread, because the job file rounds the
            // rates to whole requests per second.
            let why = runs.err().map(|failure| failure.message).unwrap_or_default();
            let of_fio = ["several sequential requests", "rate limits of reads and writes"];
            let is_of_fio = of_fio.iter().any(|what| why.contains(what));
            prop_assert!(why.is_empty() || is_of_fio, "{why}\n{text}");
        }
    }
}
