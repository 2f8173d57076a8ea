//! Simulates requests over a network: the client (the host of the program), the network link, and a
//! server with the devices.
//!
//! A request costs CPU time on both hosts and makes as many round trips as the protocol needs. The
//! data of a request cross the server's interconnect once for the device and once for the network
//! (paper 2, section 9).

use ioengine::Op;

use super::{Event, Host, Io, Machine, Origin};
use crate::server::Server;
use crate::system::{NetworkModel, System};

/// The client and the network link. The server is the first host of the machine.
pub(crate) struct Remote {
    pub model: NetworkModel,
    pub client: Host,
    pub wire: [Server; 2],
    /// FIFO queue in which writes wait, because the file server accepts one write at a time.
    pub write_turn: Server,
}

impl Remote {
    pub fn new(model: &NetworkModel, system: &System) -> Remote {
        let client = Host::new(system.host.cpus.count());
        Remote {
            model: model.clone(),
            client,
            wire: Default::default(),
            write_turn: Server::default(),
        }
    }
}

/// Stages of a remote request. Each stage ends with the next event of the request.
const CLIENT: u8 = 0;
const THERE: u8 = 1;
const SERVER: u8 = 2;
const BACK: u8 = 3;

impl Machine {
    /// Starts a request with its CPU work on the program's host.
    pub(crate) fn remote_begin(&mut self, io: u32) {
        let Io { op, length, origin, .. } = self.ios[io];
        let Origin::App { engine, .. } = origin else { return };
        let now_ns = self.now_ns();
        let Some(remote) = &mut self.remote else { return };
        let cost =
            if op == Op::Read { remote.model.client_read } else { remote.model.client_write };
        let ns = cost.ns_for(length);
        let thread = &mut self.issuers[engine as usize].thread;
        let end_ns = remote.client.work_for(thread, now_ns, ns);
        remote.client.charged_ns += ns;
        self.ios[io].stage = CLIENT;
        self.events.schedule(end_ns, Event::Remote(io));
    }

    pub(crate) fn remote_step(&mut self, io: u32) {
        let now_ns = self.now_ns();
        let Io { op, length, stage, .. } = self.ios[io];
        let Some(remote) = &mut self.remote else { return };
        let model = &remote.model;
        let (trips, cost) = match op {
            Op::Read => (model.read_round_trips.0, model.server_read),
            Op::Write => (model.write_round_trips.0, model.server_write),
        };
        match stage {
            CLIENT => {
                let payload = if op == Op::Write { model.rate.ns_for(length) } else { 0 };
                let (_, sent_ns) = remote.wire[0].serve(now_ns, payload);
                // All one-way trips except the last one happen before the server starts.
                let travel_ns = (model.latency.0 * (trips * 2.0 - 1.0)) as u64;
                self.ios[io].stage = THERE;
                self.events.schedule(sent_ns + travel_ns, Event::Remote(io));
            }
            THERE => {
                let slow_from = model.slow_write_from.bytes();
                let slow = op == Op::Write && slow_from > 0 && length >= slow_from;
                let slow_ns = if slow { model.slow_write.ns_for(length) } else { 0 };
                let ns = cost.ns_for(length);
                self.hosts[0].charged_ns += ns;
                let end_ns = self.hosts[0].work(now_ns, ns);
                let mut ready_ns = end_ns + slow_ns;
                if op == Op::Write {
                    ready_ns = remote.write_turn.serve(ready_ns, model.write_turn.ns()).1;
                }
                self.ios[io].stage = SERVER;
                self.events.schedule(ready_ns, Event::Remote(io));
            }
            SERVER => self.dispatch(io),
            _ => self.completed(io),
        }
    }

    /// Continues a remote request after the server's devices have finished.
    pub(crate) fn remote_stored(&mut self, io: u32) {
        let now_ns = self.now_ns();
        let Io { op, length, .. } = self.ios[io];
        let Some(remote) = &mut self.remote else { return };
        let model = &remote.model;
        let more = (model.crossings.0 - 1.0).max(0.0);
        let mut ready_ns = now_ns;
        let first = self.links.first_mut().and_then(|copies| copies.first_mut());
        if let (Some(link), Some(model)) = (first, self.system.links.first()) {
            let rate = if op == Op::Read { model.read } else { model.write };
            let ns = (rate.ns_for(length) as f64 * more) as u64;
            ready_ns = link.server.serve(now_ns, ns).1;
            link.bytes[op as usize] += (length as f64 * more) as u64;
        }
        let payload = if op == Op::Read { model.rate.ns_for(length) } else { 0 };
        let (_, sent_ns) = remote.wire[1].serve(ready_ns, payload);
        self.ios[io].stage = BACK;
        self.events.schedule(sent_ns + model.latency.ns(), Event::Remote(io));
    }
}
