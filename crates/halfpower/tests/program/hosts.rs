//! Tests storage that several hosts share. A server and eight hosts run in network namespaces of
//! this machine. Each host has its own host name and a link of known rate. A system that is
//! calibrated with measurements on one to four hosts must predict the throughput of eight hosts.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::fixture::{MIB, Place, list, or_skip, pause, real, root, text, whole};
use crate::ranks::on_ranks;

/// Number of simulated hosts.
const HOSTS: u32 = 8;
/// Link rates of each host and of the server, with Ethernet headers (Mbit/s).
const HOST_LINK: u32 = 100;
const SERVER_LINK: u32 = 240;
/// Time by which the server delays each read.
const DELAY: &str = "2ms";
/// Maximum mean error and maximum error of a single predicted throughput (fractions).
const MEAN_ERROR: f64 = 0.10;
const WORST_ERROR: f64 = 0.15;

/// A server and hosts, connected by a switch. Each of them is a network namespace. Dropping this
/// value removes the namespaces.
struct Network {
    /// Prefix of the names of the namespaces.
    name: String,
    server: Option<Child>,
}

impl Network {
    fn new(served: &Path) -> Result<Network, String> {
        root()?;
        let mut network = Network { name: format!("hp{}", std::process::id()), server: None };
        network.connect()?;
        let mut command = Command::new("ip");
        let server = network.namespace("server");
        command.args(["netns", "exec", &server, "nbdkit", "--foreground", "--port", "10809"]);
        command.args(["--threads", "64", "--filter=delay", "file"]).arg(served);
        command.arg(format!("rdelay={DELAY}")).stdin(Stdio::null()).stderr(Stdio::null());
        let started = command.spawn().map_err(|error| format!("ip: {error}"))?;
        network.server = Some(started);
        // Gives the server time to start. If it does not listen by then, the hosts report an error,
        // and the test fails.
        pause(1000);
        match network.server.as_mut().unwrap().try_wait().unwrap() {
            None => Ok(network),
            Some(status) => Err(format!("nbdkit ended with {status}")),
        }
    }

    fn namespace(&self, what: &str) -> String {
        format!("{}-{what}", self.name)
    }

    /// Creates the namespaces and their links, with limited rates.
    fn connect(&self) -> Result<(), String> {
        let switch = self.namespace("switch");
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add bridge type bridge"))?;
        ip(&format!("-n {switch} link set bridge up"))?;
        for number in 0..=HOSTS {
            let (name, rate) = match number {
                0 => (self.namespace("server"), SERVER_LINK),
                _ => (self.namespace(&number.to_string()), HOST_LINK),
            };
            let address = Ipv4Addr::new(198, 18, 0, 1 + number as u8);
            ip(&format!("netns add {name}"))?;
            ip(&format!(
                "link add link0 netns {name} type veth peer name port{number} netns {switch}"
            ))?;
            ip(&format!("-n {name} address add {address}/24 dev link0"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set link0 up"))?;
            ip(&format!("-n {switch} link set port{number} master bridge up"))?;
            // The server sends the data of reads to the hosts. Each link is limited at the sending
            // end: the server limits its own link, and the switch limits the links of the hosts.
            let sender = match number {
                0 => format!("-n {name} qdisc add dev link0"),
                _ => format!("-n {switch} qdisc add dev port{number}"),
            };
            let tc = format!("{sender} root tbf rate {rate}mbit burst 6kb limit 16mb");
            command("tc", &tc)?;
        }
        Ok(())
    }

    /// Makes a command run on a host.
    fn enter(&self, host: u32, command: &mut Command) {
        let (namespace, name) = (self.namespace(&host.to_string()), format!("host{host}"));
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &namespace, "unshare", "--uts", "sh", "-c"]);
        inside.arg(format!("echo {name} > /proc/sys/kernel/hostname; exec \"$@\""));
        inside.arg("sh").arg(command.get_program()).args(command.get_args());
        inside.current_dir(command.get_current_dir().unwrap());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(key, value),
                None => inside.env_remove(key),
            };
        }
        *command = inside;
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            // An error means that the server has already ended.
            let _ = server.kill();
            let _ = server.wait();
        }
        let hosts = (1..=HOSTS).map(|number| number.to_string());
        for what in hosts.chain(["server".to_owned(), "switch".to_owned()]) {
            // An error means that the namespace was never created.
            let _ = ip(&format!("netns del {}", self.namespace(&what)));
        }
    }
}

fn ip(words: &str) -> Result<(), String> {
    command("ip", words)
}

fn command(program: &str, words: &str) -> Result<(), String> {
    let output = Command::new(program).args(words.split_whitespace()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let wrong = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program} {words}: {wrong}")) }
}

#[test]
#[ignore = "takes four minutes"]
fn a_system_calibrated_on_one_to_four_hosts_predicts_eight() {
    let place = Place::new();
    let network = or_skip!(Network::new(&place.file("served", 256 * MIB)));
    for hosts in [1, 2, 4, 8] {
        let words = format!(
            "sweep nbd://198.18.0.1:10809/ --mpi --rw randread --bs 4k,64k,256k --iodepth 1,4 \
             --runtime 2 --trials 3 --label hosts{hosts}"
        );
        let enter = |rank: u32, command: &mut Command| network.enter(rank + 1, command);
        let (ended, text) = on_ranks(hosts, &place, &words, enter, || {});
        assert!(ended.all_alive && [0, 5].contains(&ended.code), "{ended:?}: {text}");
    }
    let line = "calibrate hosts1 hosts2 hosts4 --check hosts8 --out shared.toml";
    println!("{}", place.does(&format!("{line} --plan")).stdout);
    let document = place.document(&format!("{line} --json"));
    assert_eq!(list(&document["runs"]).len(), 4);
    println!("{}", text(&document["structure"]));
    for parameter in list(&document["parameters"]) {
        println!("{} = {} {}", text(&parameter["key"]), parameter["value"], parameter["unit"]);
    }
    let points = list(&document["points"]);
    let checked: Vec<_> = points.iter().filter(|point| point["held_out"] == true).collect();
    for point in points {
        let [measured, simulated] =
            ["measured_bytes_per_s", "simulated_bytes_per_s"].map(|name| real(&point[name]) / 1e6);
        let (what, error) = (text(&point["point"]), 100.0 * real(&point["error"]));
        println!("{what}: measured {measured:.3} MB/s, predicted {simulated:.3} ({error:+.1}%)");
    }
    assert_eq!(checked.len(), 6);
    let score = &document["score"]["held_out"];
    assert_eq!(whole(&score["points"]), 6);
    assert!(real(&score["mean"]) <= MEAN_ERROR && real(&score["worst"]) <= WORST_ERROR, "{score}");
    let whatif = "whatif ./shared.toml --rw randread --bs 4k --set hosts=8,disks=8";
    place.does(whatif).prints("held-out point");
}
