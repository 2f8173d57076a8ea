//! Runs a benchmark command of another tool, such as fio, as one side of a comparison. The command
//! runs once per trial and prints its results as fio's JSON or in another format that halfpower
//! imports.
//!
//! The CPU time of a trial is the CPU time of the command's process, including all child processes
//! that the command waited for.

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;

use analysis::units;
use cpucost::rusage;
use exchange::import;
use lab::failure::{Failure, Outcome};
use lab::machine::TargetFacts;
use lab::point::{Point, State};

/// Maximum size of the command's standard output (bytes).
const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of the command's standard error that is kept for error messages (bytes).
const MESSAGES_BYTES_MAX: u64 = 64 << 10;

/// The result of one execution of a command.
#[derive(Debug)]
pub struct Executed {
    /// The workload that the command measured. The point has exactly one trial.
    pub point: Point,
    /// Name and version of the tool.
    pub tool: String,
    /// Facts about the target that the tool reports.
    pub target: TargetFacts,
}

/// Runs a command until it ends, and parses its output.
///
/// # Errors
/// The command cannot be started or fails, or its output does not have the results of exactly one
/// workload.
pub fn execute(words: &[String]) -> Outcome<Executed> {
    let line = words.join(" ");
    let failed = |why: &str| Failure::failed(format!("--command '{line}': {why}"));
    let [program, arguments @ ..] = words else {
        return Err(Failure::usage("--command is empty; specify a command such as 'fio job.fio'"));
    };
    let started_unix_ns = ioengine::clock::unix_ns();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&ioengine::error::cause(&error)))?;
    let messages = kept(child.stderr.take(), MESSAGES_BYTES_MAX);
    let output = kept(child.stdout.take(), OUTPUT_BYTES_MAX + 1);
    let (status, cpu) = rusage::wait_for(child).map_err(|error| failed(&error.to_string()))?;
    let (output, messages) = (output.join().unwrap_or_default(), messages.join());
    if !status.success() {
        let messages = messages.unwrap_or_default();
        let text = String::from_utf8_lossy(&messages);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(failed(&format!("{status}: {last}")));
    }
    if output.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(failed(&format!(
            "the command prints more than {}; reduce its output",
            units::size(OUTPUT_BYTES_MAX)
        )));
    }
    let text = String::from_utf8_lossy(&output);
    let mut runs = import::read_text(&line, &text)
        .map_err(|failure| failed(&format!("{failure}; with fio, add --output-format=json")))?;
    let points: usize = runs.iter().map(|run| run.points.len()).sum();
    if points != 1 {
        return Err(failed(&format!(
            "the output has results of {points} workloads; measure one workload per command"
        )));
    }
    let mut run = runs.swap_remove(0);
    let mut point = run.points.swap_remove(0);
    for trial in &mut point.trials {
        trial.started_unix_ns = started_unix_ns;
        trial.cpu.process_ns = cpu.total_ns;
        trial.cpu.user_ns = cpu.user_ns;
        trial.cpu.system_ns = cpu.system_ns;
    }
    match point.trials.iter().find(|trial| trial.verdict.state == State::Invalid) {
        Some(invalid) => Err(failed(&invalid.verdict.reasons.join("; "))),
        None => Ok(Executed { point, tool: run.tool, target: run.target }),
    }
}

/// Reads a stream to its end in a separate thread. The thread returns the first `bytes_max` bytes
/// of the stream.
fn kept(stream: Option<impl Read + Send + 'static>, bytes_max: u64) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // A read error is ignored here. The output is then incomplete, and its parser reports
            // an error.
            let _ = stream.by_ref().take(bytes_max).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[test]
    fn the_results_that_a_command_prints_are_a_trial() {
        let script = r#"echo 'a warning'; echo '{"fio version": "fio-3.33", "jobs": [{"jobname":
            "a", "read": {"io_bytes": 4096000, "total_ios": 1000, "runtime": 500}}]}'"#;
        let found = execute(&shell(script)).unwrap();
        assert_eq!(found.point.trials.len(), 1);
        assert_eq!(found.point.trials[0].bytes_per_s(), 8_192_000.0);
    }

    #[test]
    fn a_command_that_fails_or_prints_no_results_is_named() {
        for (script, why) in [
            ("echo no such disk >&2; exit 3", "exit status: 3: no such disk"),
            ("echo hello", "--output-format=json"),
            ("kill -9 $$", "signal"),
        ] {
            let failure = execute(&shell(script)).unwrap_err();
            assert!(failure.message.contains(why), "{failure}");
            assert!(failure.message.contains("--command 'sh -c"), "{failure}");
        }
        let missing = execute(&["/none/such".to_owned()]).unwrap_err();
        assert!(missing.message.contains("/none/such"), "{missing}");
    }
}
