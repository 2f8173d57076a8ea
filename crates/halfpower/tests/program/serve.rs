//! Tests `halfpower serve` and `report --all`, also with hostile clients. After every hostile
//! request, the server must still respond, and its memory use must be bounded. It must not read any
//! file except the database, and must not write anything.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::fixture::{Place, Running, list, or_skip, pause, text, wait_until, whole};

/// A label that tries SQL and HTML injection.
const HOSTILE: &str = "';DROP/**/TABLE/**/run;--<script>alert(1)</script>";
/// Maximum increase of the server's peak memory after its first page (KiB). The limit is more than
/// twice the expected 25 MiB: 24 MiB of cached pages, and 1 MiB of headers of 64 connections.
const MEMORY_KIB_MAX: u64 = 64 << 10;
/// Maximum number of open files of the server, without its connections.
const OPEN_FILES: usize = 24;
/// Maximum number of connections that the server accepts at the same time.
const CONNECTIONS: usize = 64;
/// Maximum time to wait for a response.
const PATIENCE: Duration = Duration::from_secs(600);

struct Site {
    running: Running,
    address: String,
    token: String,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.body.rsplit("</style>").next().unwrap_or_default();
        write!(f, "{}: {}", self.status, text.chars().take(1000).collect::<String>())
    }
}

impl Answer {
    /// Parses the first response in the bytes that a server sent.
    fn of(bytes: &[u8]) -> Option<Answer> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// Creates a working directory with some stored runs, one of which has a hostile label.
fn place() -> Place {
    let place = Place::new();
    for _ in 0..3 {
        place.does("run sim:sata-ssd --rw randread --bs 4k --iodepth 8 --trials 2 --size 1m");
    }
    place.does("sweep sim:sata-ssd --rw read --bs 4k,64k --trials 1 --size 1m");
    place.does(&format!("runs tag 2 {HOSTILE}"));
    place
}

impl Site {
    fn start(place: &Place) -> Site {
        let mut running = place.start("serve --listen 127.0.0.1:0");
        let mut line = String::new();
        running.until_it_prints(|printed| {
            line = printed.to_owned();
            printed.ends_with('\n')
        });
        let (address, token) = line.trim().split_once("/?token=").unwrap();
        let address = address.strip_prefix("http://").unwrap().to_owned();
        Site { running, address, token: token.to_owned() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and reads until the server closes the connection.
    fn send(&self, bytes: &[u8]) -> Vec<u8> {
        exchange(self.connect(), bytes)
    }

    /// Sends a request with the header Host and these headers. Returns the response.
    fn ask(&self, method: &str, path: &str, headers: &str) -> Answer {
        let host = &self.address;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n"
        );
        let bytes = self.send(request.as_bytes());
        let shown = || String::from_utf8_lossy(&bytes).into_owned();
        Answer::of(&bytes).unwrap_or_else(|| panic!("no answer to {request}: {}", shown()))
    }

    /// Returns the authorization header with the access token.
    fn key(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.token)
    }

    /// Requests a page with the access token.
    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &self.key())
    }

    /// Asserts that the server still responds.
    #[track_caller]
    fn answers(&self, after: &str) {
        let answer = self.get("/");
        assert_eq!(answer.status, 200, "after {after}: {answer:?}");
        assert!(answer.body.contains("/run/2"), "after {after}");
    }

    /// Returns a field of the server's /proc/PID/status (KiB). The name is for example `VmRSS`.
    fn memory_kib(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.running.child.id());
        let status = fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().unwrap()
    }

    fn open_files(&self) -> usize {
        let path = format!("/proc/{}/fd", self.running.child.id());
        fs::read_dir(path).unwrap().count()
    }
}

/// Sends bytes and returns the bytes that are received until the connection is closed or reset. A
/// server that refuses a request may reset the connection before it has received the whole request.
fn exchange(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut other = stream.try_clone().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = other.write_all(&bytes).and_then(|()| other.flush());
    });
    let mut read = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut part) {
        read.extend_from_slice(&part[..count]);
    }
    let _ = stream.shutdown(Shutdown::Both);
    writer.join().unwrap();
    read
}

#[test]
fn runs_targets_and_comparisons_of_the_live_database_are_shown() {
    let place = place();
    let site = Site::start(&place);
    let index = site.get("/");
    assert!(index.body.contains("&lt;script&gt;") && !index.body.contains("<script>alert"));
    let document: Value = serde_json::from_str(&site.get("/api/runs").body).unwrap();
    assert_eq!((whole(&document["all"]), list(&document["runs"]).len()), (4, 4));
    assert_eq!(text(&list(&document["runs"])[2]["label"]), HOSTILE);
    let run = site.get("/run/4");
    assert!(run.status == 200 && run.body.contains("64 KiB"), "{}", run.body);
    let uuid = place.stored_run().uuid;
    assert_eq!(site.get(&format!("/run/{uuid}")).body, run.body);
    let compared = site.get("/compare?run=3&run=1");
    assert!(compared.body.contains("run 3 compared with run 1"), "{}", compared.body);
    let target = index.body.split("href=\"/target?").nth(1).unwrap().split('"').next().unwrap();
    let target = site.get(&format!("/target?{}", target.replace("&amp;", "&")));
    assert!(target.status == 200 && target.body.contains("trend-0"), "{}", target.body);
    assert!(site.get("/?q=sweep").body.contains("1 run with"));
    place.does("run sim:sata-ssd --bs 8k --trials 1 --size 1m");
    wait_until("a new run is shown", || site.get("/").body.contains("/run/5"));
    site.running.signal("INT");
    site.running.ended().with_code(0);
}

#[test]
fn the_token_stands_in_the_address_once_and_then_in_a_cookie() {
    let place = place();
    let site = Site::start(&place);
    let welcome = site.ask("GET", &format!("/run/1?a=b&token={}", site.token), "");
    assert_eq!((welcome.status, welcome.header("location")), (303, Some("/run/1?a=b")));
    let cookie = welcome.header("set-cookie").unwrap();
    assert!(cookie.contains("; httponly; samesite=strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(site.ask("GET", "/run/1", &format!("Cookie: {cookie}\r\n")).status, 200);
    let elsewhere = site.ask("GET", &format!("//evil.example/?token={}", site.token), "");
    assert_eq!(elsewhere.header("location"), Some("/"), "{elsewhere:?}");
    let length = site.token.len();
    for wrong in ["", "x", &site.token[1..], &"a".repeat(length), &"a".repeat(2000)] {
        let bearer = format!("Authorization: Bearer {wrong}\r\n");
        assert_eq!(site.ask("GET", "/", &bearer).status, 401, "{wrong}");
        assert_eq!(site.ask("GET", &format!("/?token={wrong}"), "").status, 401, "{wrong}");
        let right_as_well = site.ask("GET", &format!("/?token={wrong}"), &site.key());
        assert_eq!(right_as_well.status, 401, "{wrong}");
    }
    assert_eq!(site.ask("GET", "/", "").status, 401);
    assert!(!site.ask("GET", "/nothing", "").body.contains("no such page"), "shown without token");
    site.running.signal("TERM");
    let ended = site.running.ended().with_code(0);
    assert!(ended.stderr.contains("the token is missing or wrong"), "{ended}");
    assert!(!ended.stderr.contains(&site.token), "{ended}");
}

#[test]
fn every_answer_forbids_the_browser_what_a_page_does_not_need() {
    let place = place();
    let site = Site::start(&place);
    for answer in [site.get("/"), site.get("/nothing"), site.ask("GET", "/", "")] {
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("script-src 'unsafe-inline'"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
}

/// Returns requests that must be refused, each with the expected status of the response.
fn refused(site: &Site) -> Vec<(String, u16)> {
    let (key, host) = (site.key(), &site.address);
    let get = |path: &str, host: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{key}Connection: close\r\n\r\n")
    };
    let mut all = Vec::new();
    for path in [
        "/../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/run/../../../../etc/passwd",
        "/run//etc/passwd",
        "/run/1%00.html",
        "/run/1;ls",
        "/halfpower.db",
        "/run/'%20OR%201=1--",
        "/run/99",
        "/compare?runs=/etc/passwd,/etc/passwd",
        "/compare?runs=other.db:1,1",
        "/target?host=x'%20OR%201=1--&target=y",
    ] {
        all.push((get(path, host), 404));
    }
    for path in ["/run/1\0", "/run/ 1", "run/1", "http:/", "\u{1}"] {
        all.push((get(path, host), 400));
    }
    let port = host.split(':').nth(1).unwrap();
    for wrong in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1:1", "", "localhost"] {
        all.push((get("/", wrong), 421));
    }
    let twice = format!("GET / HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n{key}\r\n");
    all.push((twice, 421));
    all.push((format!("GET / HTTP/1.1\r\n{key}\r\n"), 421));
    all.push((format!("GET / HTTP/1.0\r\n{key}\r\n"), 421));
    all.push((get(&format!("http://{host}/"), host), 400));
    all.push((get("http://evil.example/", host), 400));
    all.push((format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{key}\r\n"), 400));
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        let end = "Content-Length: 0\r\nConnection: close\r\n\r\n";
        all.push((format!("{method} / HTTP/1.1\r\nHost: {host}\r\n{key}{end}"), 405));
    }
    let body = "Content-Length: 4\r\n\r\nGET ";
    all.push((format!("GET / HTTP/1.1\r\nHost: {host}\r\n{key}{body}"), 400));
    let chunked = "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    all.push((format!("GET / HTTP/1.1\r\nHost: {host}\r\n{key}{chunked}"), 400));
    all.push((get(&format!("/?q={}", "x".repeat(5000)), host), 414));
    all
}

#[test]
fn hostile_requests_get_no_page_and_leave_the_server_answering() {
    let place = place();
    fs::write(place.path("secret.txt"), "root:x:0:0").unwrap();
    let before = place.snapshot();
    let site = Site::start(&place);
    site.answers("its start");
    let memory = site.memory_kib("VmRSS");
    for (request, status) in refused(&site) {
        let bytes = site.send(request.as_bytes());
        let answer = Answer::of(&bytes).unwrap_or_else(|| panic!("no answer to {request:?}"));
        assert_eq!(answer.status, status, "{request:?}: {answer:?}");
        assert!(!answer.body.contains("root:"), "{request:?}: {answer:?}");
    }
    site.answers("requests that are refused");
    let host = &site.address;
    let huge = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let many: String = (0..10_000).map(|number| format!("X{number}: y\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{many}\r\n");
    let long = format!("GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "x".repeat(1 << 20));
    for (what, request) in [("huge headers", huge), ("many headers", many), ("a long line", long)] {
        for _ in 0..20 {
            // The server may reset the connection before its response is read.
            if let Some(answer) = Answer::of(&site.send(request.as_bytes())) {
                assert!(matches!(answer.status, 400 | 414 | 431), "{what}: {answer:?}");
            }
        }
        site.answers(what);
    }
    let garbage: [&[u8]; 5] = [
        b"GET /\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\n\r\n\r\n\xff\xfe\r\n\r\n",
    ];
    for bytes in garbage {
        let answer = Answer::of(&site.send(bytes));
        assert!(answer.is_none_or(|answer| answer.status >= 400), "{bytes:?}");
    }
    site.answers("garbage");
    let rise = site.memory_kib("VmHWM").saturating_sub(memory);
    assert!(rise < MEMORY_KIB_MAX, "the memory rose by {rise} KiB");
    assert!(place.snapshot() == before, "files were changed: {:?}", place.listing());
    site.running.signal("INT");
    site.running.ended().with_code(0);
}

#[test]
fn requests_in_one_packet_are_answered_in_order_and_only_so_many_on_a_connection() {
    let place = place();
    let site = Site::start(&place);
    let (host, key) = (&site.address, site.key());
    let one = |path: &str| format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\n{key}\r\n");
    let all = format!("{}{}{}", one("/run/1"), one("/nothing"), one("/run/2")).repeat(400);
    let bytes = site.send(all.as_bytes());
    let text = String::from_utf8_lossy(&bytes);
    let statuses: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 ")).collect();
    assert_eq!(&statuses[..3], ["200 OK", "404 Not Found", "200 OK"]);
    assert!((3..=200).contains(&statuses.len()), "{}", statuses.len());
    site.answers("many requests in one packet");
}

#[test]
fn slow_and_silent_clients_are_cut_off_and_keep_nobody_out() {
    let place = place();
    let site = Site::start(&place);
    site.answers("its start");
    let memory = site.memory_kib("VmRSS");
    // There are more silent clients than the server accepts at the same time.
    let silent: Vec<TcpStream> = (0..400).map(|_| site.connect()).collect();
    site.answers("silent clients");
    // This client sends requests with the right token and reads no response.
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n{}\r\n", site.address, site.key());
    let mut deaf = site.connect();
    let _ = deaf.write_all(request.repeat(50).as_bytes());
    site.answers("a client that does not read");
    let files = site.open_files();
    assert!(files <= CONNECTIONS + OPEN_FILES, "{files} open files");
    // A client that sends only a byte from time to time must be disconnected.
    let mut slow = site.connect();
    slow.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut rest = format!("GET / HTTP/1.1\r\nHost: {}\r\nX: ", site.address).into_bytes();
    rest.extend([b'x'; 100_000]);
    let mut rest = rest.into_iter();
    wait_until("a slow client is cut off", || {
        pause(100);
        let wrote = slow.write_all(&[rest.next().unwrap()]);
        let mut byte = [0];
        let closed = matches!(slow.read(&mut byte), Ok(0)) || wrote.is_err();
        closed || slow.take_error().unwrap().is_some()
    });
    drop(silent);
    site.answers("slow clients");
    let rise = site.memory_kib("VmHWM").saturating_sub(memory);
    assert!(rise < MEMORY_KIB_MAX, "the memory rose by {rise} KiB");
    // The server must end at once, although clients are connected.
    site.running.signal("INT");
    site.running.ended().with_code(0);
    drop(deaf);
}

#[test]
fn the_page_of_a_run_in_progress_has_a_new_version_after_each_trial() {
    let place = Place::new();
    place.does("run sim:sata-ssd --bs 8k --trials 1 --size 1m");
    let site = Site::start(&place);
    let trials = "--trials 100000 --runtime 20ms --time_based --ioengine null";
    let mut run = place.start(&format!("run . --rw read --bs 4k --size 1m {trials}"));
    run.until("a trial is shown", || site.get("/run/2").status == 200);
    let page = site.get("/run/2");
    let version = page.header("etag").unwrap().to_owned();
    let embedded = format!("data-etag={version}");
    assert!(page.body.contains(&embedded), "{embedded} {}", page.body);
    assert!(page.body.contains("has not ended"));
    let newer = || {
        let headers = format!("{}If-None-Match: {version}\r\n", site.key());
        let answer = site.ask("HEAD", "/run/2", &headers);
        assert!(matches!(answer.status, 200 | 304) && answer.body.is_empty(), "{answer:?}");
        answer.status == 200
    };
    run.until("the page has a new version", newer);
    run.signal("INT");
    run.ended().was_interrupted();
    wait_until("the page shows the end", || {
        let page = site.get("/run/2").body;
        !page.contains("data-etag=") && page.contains("was interrupted")
    });
    let page = site.get("/run/2");
    let headers = format!("{}If-None-Match: {}\r\n", site.key(), page.header("etag").unwrap());
    assert_eq!(site.ask("GET", "/run/2", &headers).status, 304);
    assert_eq!(place.listing(), ["halfpower.db"], "the database was not closed");
}

#[test]
fn a_database_that_goes_away_changes_or_is_damaged_is_a_page_and_no_crash() {
    let place = place();
    let site = Site::start(&place);
    site.answers("its start");
    let db = place.path("halfpower.db");
    let bytes = fs::read(&db).unwrap();
    fs::rename(&db, place.path("moved.db")).unwrap();
    // The server may show the previous page for a moment.
    let says = |status: u16, words: &str| {
        wait_until(words, || {
            let answer = site.get("/");
            answer.status == status && answer.body.contains(words)
        });
    };
    says(503, "there is no database");
    place.does("run sim:sata-ssd --bs 8k --trials 1 --size 1m");
    says(200, ">1 run<");
    let mut overwritten = bytes.clone();
    overwritten[4096..].fill(0xa5);
    for (damaged, words) in [
        (bytes[..bytes.len() / 2 + 100].to_vec(), "is damaged"),
        (b"text".to_vec(), "is not a halfpower database"),
        (overwritten, "halfpower.db"),
    ] {
        fs::write(&db, damaged).unwrap();
        says(500, words);
        assert_eq!(site.get("/run/4").status, 500, "{words}");
    }
    fs::write(&db, bytes).unwrap();
    says(200, "/run/4");
}

#[test]
fn a_locked_database_is_a_page_that_says_so() {
    let place = place();
    let site = Site::start(&place);
    let mut shell = place.command_of("sqlite3");
    shell.arg("halfpower.db").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = or_skip!(shell.spawn());
    let mut input = shell.stdin.take().unwrap();
    input.write_all(b"BEGIN EXCLUSIVE;\nSELECT 'locked';\n").unwrap();
    let mut said = [0; 6];
    shell.stdout.take().unwrap().read_exact(&mut said).unwrap();
    let locked = site.get("/?q=sweep");
    assert!(locked.status == 503 && locked.body.contains("is locked"), "{locked:?}");
    let locked = site.get("/target?host=x&target=y");
    assert!(locked.status == 503 && locked.body.contains("is locked"), "{locked:?}");
    drop(input);
    shell.wait().unwrap();
    site.answers("the lock is gone");
}

#[test]
fn a_unix_socket_is_for_its_owner_and_goes_when_the_server_ends() {
    let place = place();
    let mut running = place.start("serve --unix here.socket");
    let mut line = String::new();
    running.until_it_prints(|printed| {
        line = printed.to_owned();
        printed.ends_with('\n')
    });
    let token = line.trim().strip_prefix("http://localhost/?token=").unwrap();
    let path = place.path("here.socket");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert!(fs::metadata(&path).unwrap().file_type().is_socket() && mode & 0o077 == 0, "{mode:o}");
    let ask = |host: &str, token: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        let bearer = format!("Authorization: Bearer {token}\r\nConnection: close");
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n{bearer}\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Answer::of(&bytes).unwrap().status
    };
    assert_eq!(
        (ask("localhost", token), ask("localhost", "x"), ask("evil.example", token)),
        (200, 401, 421)
    );
    place.halfpower("serve --unix here.socket").with_code(3).says("exists", "specify another");
    running.signal("TERM");
    running.ended().with_code(0);
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_served_is_refused_with_the_remedy() {
    let place = place();
    let refused = |line: &str, code, cause: &str, remedy: &str| {
        place.cannot(line).with_code(code).says(cause, remedy);
    };
    refused("serve --listen 0.0.0.0:0", 2, "other machines could connect", "--allow-remote");
    refused("serve --listen 192.0.2.1:1", 2, "not encrypted", "ssh -N -L");
    refused("serve --db missing.db", 1, "there is no database", "specify the path");
    refused("serve --unix halfpower.db", 3, "exists", "specify another path with --unix");
    refused("serve --unix /dev/halfpower.socket", 3, "under /dev", "--unix");
    refused("report --all --html halfpower.db", 3, "is not a folder", "--html");
    place.halfpower("serve --listen nowhere").with_code(2);
    let planned = place.does("serve --plan");
    assert!(planned.stdout.contains("127.0.0.1:7752 (read-only)"), "{planned}");
    let site = Site::start(&place);
    let taken = format!("serve --listen {}", site.address);
    place.cannot(&taken).with_code(1).says("listening on", "--listen");
    assert_eq!(place.listing(), ["halfpower.db"]);
}

#[test]
fn a_gallery_is_a_folder_whose_links_stay_in_it_and_replaces_no_other_file() {
    let place = place();
    let planned = place.does("report --all --plan");
    assert!(planned.stdout.contains("write 6 pages to halfpower-pages"), "{planned}");
    assert_eq!(place.listing(), ["halfpower.db"]);
    let made = place.does("report --all --newest 2");
    assert!(made.stderr.contains("no page for 2 older runs"), "{made}");
    assert_eq!(made.stdout.trim(), "halfpower-pages/index.html");
    let folder = place.path("halfpower-pages");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["index.html", "run-3.html", "run-4.html", "target-1.html"]);
    for name in &names {
        let html = fs::read_to_string(folder.join(name)).unwrap();
        let links = html.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        for link in links.filter(|link| !link.starts_with('#') && *link != "data:,") {
            assert!(names.iter().any(|name| name == link), "{name} leads to {link}");
        }
        assert!(!html.contains("<script>alert"), "{name}");
    }
    place.does("report --all");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 6);
    fs::write(folder.join("run-1.html"), "mine").unwrap();
    let before = place.snapshot();
    place.halfpower("report --all").with_code(3).says("run-1.html", "not a page of halfpower");
    assert!(place.snapshot() == before, "files were changed");
    // Without `--all`, `report` still writes the page of one survey.
    place.halfpower("report 1").with_code(2);
}
