//! Reads diskspd's XML results (`-Rxml`, version 2).
//!
//! Each time span becomes a point with one trial. All targets of a time span must have the same
//! load. diskspd reports the latency percentiles of all targets together, and the CPU time of the
//! whole machine instead of the process.

use analysis::histogram::Histogram;
use cpucost::CpuUsage;
use ioengine::{Caching, EngineKind};
use lab::date;
use lab::failure::{Failure, Outcome};
use lab::machine::{Host, TargetFacts};
use lab::point::{Direction, Point, Trial};
use lab::point_key::PointKey;
use roxmltree::{Document, Node, ParsingOptions};
use workload::{Pattern, Workload};

use crate::checked::{self, NUMBER_MAX};
use crate::imported::{self, Imported, UNKNOWN_HOST};

/// Name of the format that is stored with an imported document.
pub const FORMAT: &str = "diskspd-xml";
/// Maximum number of XML nodes in a document.
const NODES_MAX: u32 = 2_000_000;
/// Maximum number of attributes of an element. Parsing time grows with the square of this number.
const ATTRIBUTES_MAX: usize = 1000;

/// Checks whether a text is an XML result of diskspd.
pub fn is_result(text: &str) -> bool {
    let start = text.trim_start();
    let is_utf16 = checked::is_utf16(start) && start.trim_start_matches('\0').starts_with('<');
    is_utf16
        || (start.starts_with("<Results>") || start.starts_with("<?xml"))
            && text.contains("<TimeSpan>")
}

/// Reads an XML result of diskspd.
///
/// # Errors
/// The text is not an XML result of diskspd, is damaged, or has targets with different loads. The
/// message has one line.
pub fn read(text: &str) -> Outcome<Vec<Imported>> {
    check_text(text)?;
    let options =
        ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, entity_resolver: None };
    let document = Document::parse_with_options(text, options);
    let document = document
        .map_err(|error| Failure::failed(format!("{error}; import the output of diskspd -Rxml")))?;
    let root = document.root_element();
    if root.tag_name().name() != "Results" {
        return Err(Failure::failed("no <Results> element; import the output of diskspd -Rxml"));
    }
    let settings = child(root, "Profile").and_then(|profile| child(profile, "TimeSpans"));
    let settings: Vec<Node<'_, '_>> =
        settings.map(|spans| children(spans, "TimeSpan").collect()).unwrap_or_default();
    let mut points = Vec::new();
    let mut target = TargetFacts::default();
    if children(root, "TimeSpan").count() != settings.len() {
        return Err(Failure::failed(
            "the profile and the results have different numbers of time spans; import the \
             complete output of diskspd -Rxml",
        ));
    }
    let mut has_latencies = true;
    for (span, settings) in children(root, "TimeSpan").zip(&settings) {
        let load = Load::of(*settings)?;
        let mut trial = trial_of(span, load.request_bytes)?;
        if trial.requests() > 0 {
            trial.started_unix_ns = started(root).unwrap_or(0);
            has_latencies &= trial.latency().count() > 0;
            target = TargetFacts { name: load.path.clone(), kind: "file".into(), ..target };
            points.push(Point { key: load.key(&trial), trials: vec![trial] });
        }
    }
    if points.is_empty() {
        return Err(Failure::failed("no time span has a request; nothing to import"));
    }
    let system = child(root, "System");
    let version = system.and_then(|system| child(system, "Tool")).and_then(|t| value(t, "Version"));
    let host = system.and_then(|system| value(system, "ComputerName")).unwrap_or(UNKNOWN_HOST);
    let latencies = if has_latencies { "the latency histogram" } else { "latencies (use -L)" };
    let missing = ["the CPU time of the process", latencies, "the rate over time"];
    let start = "the start time (there is no readable date, so 1970 is stored)";
    let start = started(root).is_none().then_some(start);
    Ok(vec![Imported {
        tool: format!("diskspd-{}", version.unwrap_or("unknown")),
        format: FORMAT,
        title: target.name.clone(),
        started_unix_ns: started(root).unwrap_or(0),
        host: Host { name: host.to_owned(), ..Host::default() },
        target,
        points,
        missing: missing.into_iter().chain(start).map(str::to_owned).collect(),
        document: text.to_owned(),
        supplement: String::new(),
    }])
}

/// Refuses texts that the XML parser cannot handle: UTF-16, and elements with too many attributes.
fn check_text(text: &str) -> Outcome<()> {
    if checked::is_utf16(text) {
        return Err(Failure::failed("the text is in UTF-16; save it as UTF-8"));
    }
    // Each attribute contains a '=' and no '<'. The number of '=' before the next '<' is therefore
    // an upper bound of the number of attributes.
    let mut line = 1;
    for part in text.split('<') {
        if part.bytes().filter(|byte| *byte == b'=').count() > ATTRIBUTES_MAX {
            return Err(Failure::failed(format!(
                "line {line}: an element has more than {ATTRIBUTES_MAX} attributes; import the \
                 output of diskspd -Rxml"
            )));
        }
        line += part.bytes().filter(|byte| *byte == b'\n').count();
    }
    Ok(())
}

fn children<'a, 'i>(
    node: Node<'a, 'i>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> + use<'a, 'i> {
    node.children().filter(move |child| child.has_tag_name(name))
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &'static str) -> Option<Node<'a, 'i>> {
    children(node, name).next()
}

fn value<'a>(node: Node<'a, '_>, name: &'static str) -> Option<&'a str> {
    Some(child(node, name)?.text()?.trim())
}

/// Creates a failure that contains the line number of an element.
fn failed(node: Node<'_, '_>, what: &str) -> Failure {
    let line = node.document().text_pos_at(node.range().start).row;
    Failure::failed(format!("line {line}: {what}; create the file again"))
}

/// Returns the number in the child element `name`. None if there is no such element.
fn number(node: Node<'_, '_>, name: &'static str) -> Outcome<Option<f64>> {
    let mut all = children(node, name);
    let Some(element) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err(failed(node, &format!("{name} occurs twice")));
    }
    let text = element.text().unwrap_or_default().trim();
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.map(Some).ok_or_else(|| {
        let text: String = text.escape_debug().take(40).collect();
        failed(element, &format!("{name} '{text}' is not a number"))
    })
}

/// Returns the whole number (0 to `most`) in the child element `name`. 0 if there is no such
/// element.
fn count(node: Node<'_, '_>, name: &'static str, most: u64) -> Outcome<u64> {
    let Some(number) = number(node, name)? else { return Ok(0) };
    checked::whole(number, most).ok_or_else(|| {
        let (node, number) = (child(node, name).unwrap_or(node), checked::short(number));
        failed(node, &format!("{name} {number} is not a whole number from 0 to {most}"))
    })
}

/// Returns the time in the child element `name`, converted from seconds to ns. 0 if there is no
/// such element.
fn time_ns(node: Node<'_, '_>, name: &'static str) -> Outcome<u64> {
    let seconds = number(node, name)?.unwrap_or(0.0);
    let time = imported::time_ns(name, seconds);
    time.map_err(|_| failed(node, &format!("{name} {} s is too long", checked::short(seconds))))
}

/// Returns the start of the test (ns since 1970), which diskspd prints as `2026/11/24 10:43:16
/// UTC`. None if there is no readable date.
fn started(root: Node<'_, '_>) -> Option<i64> {
    let text = child(root, "System").and_then(|system| value(system, "RunTime"))?;
    date::parse_utc(&text.trim_end_matches("UTC").trim().replace('/', "-"))
}

/// The load of a time span.
#[derive(Clone, Debug, PartialEq)]
struct Load {
    path: String,
    request_bytes: u32,
    is_random: bool,
    write_percent: u8,
    depth: u32,
    /// Total number of threads of all targets.
    threads: u32,
    targets: u32,
    file_bytes: u64,
    is_direct: bool,
    is_through: bool,
    warm_up_ns: u64,
    duration_ns: u64,
}

impl Load {
    fn of(span: Node<'_, '_>) -> Outcome<Load> {
        let targets: Vec<Node<'_, '_>> =
            child(span, "Targets").map(|all| children(all, "Target").collect()).unwrap_or_default();
        let of_target = |target: Node<'_, '_>| -> Outcome<Load> {
            let is_on = |name| value(target, name) == Some("true");
            let disables_all = is_on("DisableAllCache");
            let narrow = |name| count(target, name, u64::from(u32::MAX)).map(|count| count as u32);
            let random = count(target, "RandomRatio", 100)?;
            Ok(Load {
                path: value(target, "Path").unwrap_or_default().to_owned(),
                request_bytes: narrow("BlockSize")?,
                is_random: child(target, "Random").is_some() || random >= 50,
                write_percent: count(target, "WriteRatio", 100)? as u8,
                depth: narrow("RequestCount")?.max(1),
                threads: narrow("ThreadsPerFile")?.max(1),
                targets: 1,
                file_bytes: count(target, "FileSize", NUMBER_MAX)?,
                is_direct: disables_all || is_on("DisableOSCache"),
                is_through: disables_all || is_on("WriteThrough"),
                warm_up_ns: time_ns(span, "Warmup")?,
                duration_ns: time_ns(span, "Duration")?,
            })
        };
        let loads: Outcome<Vec<Load>> = targets.into_iter().map(of_target).collect();
        let mut loads = loads?.into_iter();
        let Some(mut first) = loads.next() else {
            return Err(Failure::failed("a time span has no target; create the file again"));
        };
        if first.request_bytes == 0 {
            return Err(Failure::failed(
                "a target has no BlockSize; import the complete output of diskspd -Rxml",
            ));
        }
        // With -F, diskspd reports the total number of threads of all targets.
        let total = count(span, "ThreadCount", u64::from(u32::MAX / 2))? as u32;
        let single = first.threads;
        for other in loads {
            let same = Load { path: first.path.clone(), threads: single, ..other.clone() };
            if same != (Load { threads: single, targets: 1, ..first.clone() }) {
                return Err(Failure::failed(
                    "targets with different loads ran at the same time, but halfpower stores one \
                     load for all targets; measure the targets one by one",
                ));
            }
            let threads = first.threads.checked_add(other.threads);
            first.threads = threads.ok_or_else(|| failed(span, "too many threads"))?;
            first.targets += 1;
        }
        if total > 0 {
            let threads = total.div_ceil(first.targets).checked_mul(first.targets);
            first.threads = threads.ok_or_else(|| failed(span, "too many threads"))?;
        }
        Ok(first)
    }

    fn key(&self, trial: &Trial) -> PointKey {
        let workload = Workload {
            // With a depth above 1, a thread of diskspd has several outstanding requests
            // (overlapped I/O), as with libaio.
            engine_kind: if self.depth > 1 { EngineKind::Libaio } else { EngineKind::Sync },
            pattern: if self.is_random { Pattern::Random } else { Pattern::Sequential },
            read_percent: 100 - self.write_percent,
            request_bytes: self.request_bytes,
            depth: self.depth,
            threads: self.threads / self.targets,
            region_bytes: if self.file_bytes > 0 { self.file_bytes } else { trial.bytes() },
            limit_ns: Some(self.duration_ns).filter(|ns| *ns > 0),
            warm_up_ns: self.warm_up_ns,
            ..Workload::default()
        };
        let caching = Caching::of(self.is_direct, self.is_through);
        PointKey { caching, targets: self.targets, ..PointKey::of(&workload) }
    }
}

fn trial_of(span: Node<'_, '_>, request_bytes: u32) -> Outcome<Trial> {
    if number(span, "TestTimeSeconds")?.is_none_or(|seconds| seconds == 0.0) {
        return Err(Failure::failed(
            "a time span has no TestTimeSeconds; import the complete output of diskspd",
        ));
    }
    let elapsed_ns = time_ns(span, "TestTimeSeconds")?;
    if elapsed_ns == 0 {
        return Err(failed(span, "TestTimeSeconds is less than 1 ns"));
    }
    let mut directions = [Direction::default(), Direction::default()];
    for target in children(span, "Thread").flat_map(|thread| children(thread, "Target")) {
        let names = [("ReadBytes", "ReadCount"), ("WriteBytes", "WriteCount")];
        for (direction, (bytes_name, requests_name)) in directions.iter_mut().zip(names) {
            let bytes = count(target, bytes_name, NUMBER_MAX)?;
            let requests = count(target, requests_name, NUMBER_MAX)?;
            if requests > 0 && (bytes == 0 || bytes / requests > u64::from(request_bytes)) {
                return Err(failed(
                    target,
                    &format!("{bytes_name} {bytes} contradicts {requests_name} {requests}"),
                ));
            }
            direction.bytes = direction.bytes.saturating_add(bytes);
            direction.requests = direction.requests.saturating_add(requests);
        }
    }
    let trial = Trial { directions: directions.clone(), ..Trial::default() };
    if !checked::is_storable(&trial) {
        return Err(failed(span, "the threads transferred more bytes than the database can store"));
    }
    if let Some(latency) = child(span, "Latency") {
        let names = [
            ("AverageReadMilliseconds", "ReadMilliseconds"),
            ("AverageWriteMilliseconds", "WriteMilliseconds"),
        ];
        for (direction, (mean, bucket)) in directions.iter_mut().zip(names) {
            direction.latency = histogram(latency, direction.requests, mean, bucket)?;
        }
    }
    Ok(Trial {
        directions,
        elapsed_ns,
        cpu: CpuUsage {
            elapsed_ns,
            machine_ns: machine_ns(span, elapsed_ns)?,
            ..Default::default()
        },
        ..Trial::default()
    })
}

fn histogram(
    latency: Node<'_, '_>,
    requests: u64,
    mean: &'static str,
    bucket: &'static str,
) -> Outcome<Histogram> {
    let mut shares = Vec::new();
    for node in children(latency, "Bucket") {
        if let (Some(percent), Some(ms)) = (number(node, "Percentile")?, number(node, bucket)?) {
            shares.push((percent / 100.0, imported::time_ns(bucket, ms / 1e3)?));
        }
    }
    let end = |wanted: f64| shares.iter().find(|(share, _)| *share == wanted).map(|(_, ns)| *ns);
    let (Some(min_ns), Some(max_ns)) = (end(0.0), end(1.0)) else {
        return Ok(Histogram::default());
    };
    let mean_ns = number(latency, mean)?.map_or(0.0, |ms| ms * 1e6);
    Ok(imported::histogram(requests, (min_ns, max_ns), mean_ns, &shares))
}

/// Returns the busy time, summed over all CPUs (ns). None if diskspd does not report it.
fn machine_ns(span: Node<'_, '_>, elapsed_ns: u64) -> Outcome<Option<u64>> {
    let Some(usage) = child(span, "CpuUtilization") else { return Ok(None) };
    let cpus = children(usage, "CPU").count() as f64;
    let Some(average) = child(usage, "Average") else { return Ok(None) };
    let Some(percent) = number(average, "UsagePercent")? else { return Ok(None) };
    let busy_ns = percent / 100.0 * cpus * elapsed_ns as f64;
    let busy_ns = checked::whole(busy_ns.floor(), NUMBER_MAX).filter(|_| percent < 101.0);
    busy_ns
        .map(Some)
        .ok_or_else(|| failed(average, &format!("UsagePercent {} > 100", checked::short(percent))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = "<Results>
      <System><ComputerName>SERVER1</ComputerName><Tool><Version>2.1</Version></Tool>
        <RunTime>2026/11/24 10:43:16 UTC</RunTime></System>
      <Profile><TimeSpans><TimeSpan><Warmup>5</Warmup><Duration>10</Duration><Targets><Target>
        <Path>C:\\data</Path><BlockSize>4096</BlockSize><DisableOSCache>true</DisableOSCache>
        <Random>4096</Random><WriteRatio>0</WriteRatio><FileSize>1073741824</FileSize>
        <RequestCount>8</RequestCount><ThreadsPerFile>2</ThreadsPerFile></Target></Targets>
      </TimeSpan></TimeSpans></Profile>
      <TimeSpan><TestTimeSeconds>10.0</TestTimeSeconds>
        <CpuUtilization><CPU><Id>0</Id></CPU><CPU><Id>1</Id></CPU><Average>
          <UsagePercent>25.0</UsagePercent></Average></CpuUtilization>
        <Latency><AverageReadMilliseconds>0.2</AverageReadMilliseconds>
          <Bucket><Percentile>0</Percentile><ReadMilliseconds>0.05</ReadMilliseconds></Bucket>
          <Bucket><Percentile>50</Percentile><ReadMilliseconds>0.18</ReadMilliseconds></Bucket>
          <Bucket><Percentile>99</Percentile><ReadMilliseconds>0.9</ReadMilliseconds></Bucket>
          <Bucket><Percentile>100</Percentile><ReadMilliseconds>4.5</ReadMilliseconds></Bucket>
        </Latency>
        <Thread><Target><ReadBytes>409600000</ReadBytes><ReadCount>100000</ReadCount></Target>
        </Thread>
        <Thread><Target><ReadBytes>409600000</ReadBytes><ReadCount>100000</ReadCount></Target>
        </Thread>
      </TimeSpan></Results>";

    #[test]
    fn a_time_span_is_a_point() {
        assert!(is_result(RESULT));
        let run = read(RESULT).unwrap().remove(0);
        assert_eq!((run.tool.as_str(), run.host.name.as_str()), ("diskspd-2.1", "SERVER1"));
        assert_eq!(date::utc(run.started_unix_ns), "2026-11-24 10:43");
        let (key, trial) = (&run.points[0].key, &run.points[0].trials[0]);
        assert_eq!((key.rw(), key.request_bytes(), key.depth()), ("randread", 4096, 8));
        assert_eq!((key.threads(), key.caching), (2, Caching::Direct));
        assert_eq!((trial.requests(), trial.bytes_per_s()), (200_000, 81_920_000.0));
        let p99 = trial.latency().quantile(0.99).unwrap() as f64;
        assert!((p99 / 900_000.0 - 1.0).abs() < 0.005, "{p99}");
        assert_eq!(trial.cpu.machine_ns, Some(5_000_000_000));
    }

    #[test]
    fn equal_targets_are_one_point_of_several_targets() {
        let target = RESULT.split("<Targets>").nth(1).unwrap().split("</Targets>").next().unwrap();
        let text = RESULT.replacen("</Targets>", &format!("{target}</Targets>"), 1);
        let key = &read(&text).unwrap()[0].points[0].key;
        assert_eq!((key.targets, key.threads(), key.size_bytes()), (2, 4, 1 << 30));
    }

    #[test]
    fn settings_and_results_that_do_not_fit_are_refused() {
        for (from, to) in [
            ("<BlockSize>4096</BlockSize>", ""),
            ("<TestTimeSeconds>10.0</TestTimeSeconds>", ""),
            ("</Results>", "<TimeSpan/></Results>"),
        ] {
            let failure = read(&RESULT.replacen(from, to, 1)).unwrap_err();
            assert!(failure.message.contains("complete output"), "{failure}");
        }
    }

    #[test]
    fn targets_with_different_loads_are_refused() {
        let other =
            "</Target><Target><Path>D:\\x</Path><BlockSize>65536</BlockSize></Target></Targets>";
        let text = RESULT.replacen("</Target></Targets>", other, 1);
        assert!(read(&text).unwrap_err().message.contains("one by one"));
    }

    #[test]
    fn damaged_and_hostile_texts_give_one_line() {
        let bomb = format!("<!DOCTYPE a [<!ENTITY b \"{}\">]>{RESULT}", "c".repeat(1000));
        let deep = "<TimeSpan>".repeat(100_000);
        let negative = RESULT.replace("<TestTimeSeconds>10.0", "<TestTimeSeconds>-1");
        let text = RESULT.replace("<BlockSize>4096", "<BlockSize>four");
        let idle = RESULT.replace("<ReadCount>100000", "<ReadCount>0");
        for text in ["", "<Results>", "<a/>", &bomb, &deep, &negative, &text, &idle, &RESULT[..900]]
        {
            let failure = read(text).unwrap_err();
            assert_eq!(failure.message.lines().count(), 1, "{failure}");
        }
    }
    #[test]
    fn numbers_that_no_test_has_are_refused_with_the_line() {
        for (from, to, cause) in [
            ("<BlockSize>4096", "<BlockSize>99999999999", "line 5: BlockSize"),
            ("<BlockSize>4096", "<BlockSize>0.5", "line 5: BlockSize"),
            ("<BlockSize>", "<BlockSize>1</BlockSize><BlockSize>", "BlockSize occurs twice"),
            ("<RequestCount>8", "<RequestCount>1e12", "line 7: RequestCount"),
            ("<WriteRatio>0", "<WriteRatio>200", "line 6: WriteRatio"),
            ("<Duration>10", "<Duration>1e300", "line 4: Duration"),
            ("<FileSize>1073741824", "<FileSize>1e19", "line 6: FileSize"),
            ("Seconds>10.0", "Seconds>1e-10", "line 9: TestTimeSeconds is less than 1 ns"),
            ("<ReadBytes>409600000</ReadBytes>", "", "line 18: ReadBytes 0 contradicts"),
            ("<ReadBytes>409600000", "<ReadBytes>0", "line 18: ReadBytes 0 contradicts"),
            ("<ReadBytes>409600000", "<ReadBytes>1e300", "line 18: ReadBytes"),
            ("<ReadBytes>409600000", "<ReadBytes>4e18", "line 18: ReadBytes"),
            ("<UsagePercent>25.0", "<UsagePercent>1e300", "UsagePercent"),
        ] {
            let failure = read(&RESULT.replacen(from, to, 1)).unwrap_err();
            assert!(failure.message.contains(cause), "{to}: {failure}");
            assert_eq!(failure.message.lines().count(), 1);
        }
    }

    #[test]
    fn an_element_with_many_attributes_is_refused_before_it_is_parsed() {
        let attributes: String = (0..100_000).map(|at| format!(" a{at}=\"\"")).collect();
        let text = RESULT.replacen("<System>", &format!("<System{attributes}>"), 1);
        let failure = read(&text).unwrap_err();
        assert!(failure.message.starts_with("line 2: an element has more than"), "{failure}");
    }

    #[test]
    fn text_in_utf_16_is_named_with_the_remedy() {
        let text: String = RESULT.chars().flat_map(|c| [c, '\0']).collect();
        assert!(is_result(&text));
        assert!(read(&text).unwrap_err().message.contains("save it as UTF-8"));
    }

    #[test]
    fn a_start_that_cannot_be_read_is_said() {
        let run = read(&RESULT.replace("2026/11/24", "yesterday")).unwrap().remove(0);
        assert!(run.missing.iter().any(|text| text.contains("the start")));
    }
}
