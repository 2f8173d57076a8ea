//! The iSCSI client: accesses the disks of an iSCSI target (a server) with SCSI commands over TCP.
//!
//! Source: RFC 7143 for the protocol, SPC-4 and SBC-3 for the commands. Each connection is a
//! separate session: login (`login`), queries about the disk (this file), then reads and writes
//! (`session`). `pdu` contains the headers of iSCSI messages, and `scsi` the commands of disks. The
//! client does not use digests, recovery of lost messages, or sessions with several connections. If
//! a connection breaks, its requests fail.

mod pdu;
mod scsi;
mod session;
mod login;
#[cfg(test)]
mod test_target;

use std::ops::ControlFlow;

use crate::error::Error;
use crate::network::iscsi::scsi::{Capacity, CommandBlock, Failure, Mode, Unit};
use crate::network::iscsi::session::{Disk, Session};
use crate::network::protocol::{Opened, Outbox, Part, Protocol, Step};
use crate::network::wire::Wire;
use crate::network::{Access, RemoteInfo};

/// The maximum size of a request to a disk that reports no maximum (bytes).
const REQUEST_BYTES_MAX: u32 = 16 << 20;
/// The maximum number of times that a set-up command is sent. A disk may answer with a "unit
/// attention" instead of executing the command, to report a change such as a power-on. The disk
/// reports each change once to each session.
const ATTEMPTS_MAX: u32 = 10;

/// Logs in to the target and opens the disk.
pub(super) fn open(mut wire: Wire, access: &Access) -> Result<Opened, Error> {
    let (target, lun) = access.address.path.rsplit_once('/').unwrap_or((&access.address.path, ""));
    let Some(lun_bytes) = lun.parse().ok().and_then(scsi::lun_bytes) else {
        let what = format!("'{lun}' is not a logical unit number (0 to 16383)");
        return Err(wire.refused(what, "use the form iscsi://HOST/TARGET-NAME/LUN"));
    };
    let (limits, numbers) = login::log_in(&mut wire, access, target)?;
    let name = access.address.to_string();
    let mut session = Session::new(name, lun_bytes, limits, numbers);
    let mut setup = Setup { wire: &mut wire, session: &mut session, lun };
    let unit = setup.unit()?;
    let (size_bytes, block_bytes) = setup.capacity()?;
    let mode = setup.mode()?;
    let fua = setup.fua(access, mode)?;
    let request_bytes_max = setup.request_bytes_max(block_bytes)?;
    let is_write_through = mode.write_cache == Some(false);
    session.begin(Disk { block_bytes, request_bytes_max, fua, is_write_through });
    let cache = match mode.write_cache {
        Some(true) => "write cache on",
        Some(false) => "write cache off",
        None => "write cache unknown",
    };
    let commands = session.outstanding_max();
    let features = format!("iSCSI, {}, {commands} outstanding commands, {cache}", unit.name);
    let info = RemoteInfo { size_bytes, block_bytes, request_bytes_max, features };
    Ok(Opened { wire, protocol: Box::new(session), info })
}

/// Examines the disk before the first request. Sends one command at a time.
struct Setup<'a> {
    wire: &'a mut Wire,
    session: &'a mut Session,
    /// The logical unit number as it is written in the address.
    lun: &'a str,
}

impl Setup<'_> {
    /// Checks that the logical unit exists, is a disk and is ready.
    fn unit(&mut self) -> Result<Unit, Error> {
        let block = scsi::inquiry(None, scsi::INQUIRY_BYTES);
        let data = self.answer("INQUIRY", &block, scsi::INQUIRY_BYTES)?;
        let unit = Unit::parse(&data);
        let unit = unit.ok_or_else(|| self.wire.violated("sent short INQUIRY data"))?;
        if !unit.is_present {
            return Err(self.no_unit());
        }
        if !unit.is_disk() {
            let (lun, name, kind) = (self.lun, &unit.name, unit.device_type);
            let what =
                format!("unit {lun} is not a disk but '{name}' (SCSI device type 0x{kind:02x})");
            return Err(self.wire.refused(what, "use the number of another unit of this target"));
        }
        self.answer("TEST UNIT READY", &scsi::test_unit_ready(), 0)?;
        Ok(unit)
    }

    /// Returns the size of the disk and its block size (bytes).
    fn capacity(&mut self) -> Result<(u64, u32), Error> {
        let data = self.answer("READ CAPACITY", &scsi::read_capacity(), scsi::CAPACITY_BYTES)?;
        let capacity = Capacity::parse(&data);
        let capacity = capacity.ok_or_else(|| self.wire.violated("sent an incomplete capacity"))?;
        let block_bytes = capacity.block_bytes;
        if !block_bytes.is_power_of_two() || !(512..=64 << 10).contains(&block_bytes) {
            let what = format!("the disk has blocks of {block_bytes} bytes");
            return Err(self.wire.refused(what, "use a disk with blocks of 512 B to 64 KiB"));
        }
        match capacity.bytes() {
            Some(size_bytes) => Ok((size_bytes, block_bytes)),
            None => Err(self.wire.violated("sent an impossible capacity")),
        }
    }

    /// Returns whether the disk is write-protected and whether its write cache is on. Requests the
    /// caching page or, if this fails, all mode pages. If this also fails, the disk counts as
    /// writable.
    fn mode(&mut self) -> Result<Mode, Error> {
        for page in [scsi::CACHING_PAGE, scsi::ALL_PAGES] {
            let sense = self.execute(&scsi::mode_sense(page), scsi::MODE_BYTES)?;
            if let Some(mode) = sense.ok().and_then(|data| Mode::parse(&data)) {
                return Ok(mode);
            }
        }
        Ok(Mode::default())
    }

    /// Returns whether writes are sent with the FUA bit, which makes each write durable. Without a
    /// write cache, every write is durable anyway.
    fn fua(&mut self, access: &Access, mode: Mode) -> Result<bool, Error> {
        if access.writable && mode.is_read_only {
            let what = "the disk is write-protected";
            return Err(self.wire.refused(what, "use `rw=read`, or use another disk"));
        }
        if access.writable && access.durable && !mode.has_fua && mode.write_cache != Some(false) {
            let what = "the disk does not support durable writes (FUA)";
            return Err(self.wire.refused(what, "drop `fua` and `write_through`, or use `fsync`"));
        }
        Ok(access.durable && mode.has_fua)
    }

    /// Returns the maximum transfer size of one command, rounded down to whole blocks (bytes).
    fn request_bytes_max(&mut self, block_bytes: u32) -> Result<u32, Error> {
        let block = scsi::inquiry(Some(scsi::LIMITS_PAGE), scsi::LIMITS_BYTES);
        let page = self.execute(&block, scsi::LIMITS_BYTES)?.unwrap_or_default();
        let blocks_max = scsi::blocks_max(&page).unwrap_or(u32::MAX);
        Ok(blocks_max.min(REQUEST_BYTES_MAX / block_bytes) * block_bytes)
    }

    fn no_unit(&self) -> Error {
        let what = format!("the target has no unit {}", self.lun);
        self.wire.refused(what, "check the LUN at the end of the address")
    }

    /// Executes a command and returns the data of the answer, or an error if the command failed.
    fn answer(&mut self, name: &str, block: &CommandBlock, bytes: u8) -> Result<Vec<u8>, Error> {
        self.execute(block, bytes)?.map_err(|failure| {
            if failure.is_unknown_unit() {
                return self.no_unit();
            }
            let what = format!("the disk refused {name}: {failure}");
            self.wire.refused(what, "check the state of the disk on the target")
        })
    }

    /// Executes a command. Repeats the command while the disk answers with a unit attention.
    fn execute(
        &mut self,
        block: &CommandBlock,
        bytes: u8,
    ) -> Result<Result<Vec<u8>, Failure>, Error> {
        let mut attempt = 1;
        loop {
            let outcome = self.execute_once(block, bytes)?;
            let is_news = outcome.as_ref().is_err_and(Failure::is_unit_attention);
            if !is_news || attempt == ATTEMPTS_MAX {
                return Ok(outcome);
            }
            attempt += 1;
        }
    }

    fn execute_once(
        &mut self,
        block: &CommandBlock,
        bytes: u8,
    ) -> Result<Result<Vec<u8>, Failure>, Error> {
        if !self.session.has_room() {
            return Err(self.wire.refused("the target accepts no commands", "try again later"));
        }
        let (mut out, mut data) = (Outbox::default(), vec![0; usize::from(bytes)]);
        self.session.query(block, bytes.into(), &mut out);
        let mut step = Step::Next;
        let result = loop {
            self.send(&mut out)?;
            step = match self.proceed(step, &mut data, &mut out)? {
                ControlFlow::Continue(step) => step,
                ControlFlow::Break(result) => break result,
            };
        };
        Ok(match self.session.take_failure() {
            Some(failure) => Err(failure),
            None => {
                data.truncate(usize::try_from(result).unwrap_or(0));
                Ok(data)
            }
        })
    }

    /// Performs one step of a command. Returns the next step, or the result of the command.
    fn proceed(
        &mut self,
        step: Step,
        data: &mut [u8],
        out: &mut Outbox,
    ) -> Result<ControlFlow<i32, Step>, Error> {
        Ok(ControlFlow::Continue(match step {
            Step::Next => Step::Take(self.session.header_bytes()),
            Step::Take(count) => self.session.took(&self.wire.receive(count)?, out)?,
            Step::Fill { within, length, .. } => {
                let received = self.wire.receive(length as usize)?;
                let part =
                    data.get_mut(within as usize..).and_then(|d| d.get_mut(..received.len()));
                let part = part.ok_or_else(|| self.wire.violated("sent too much data"))?;
                part.copy_from_slice(&received);
                self.session.filled(part, out)?
            }
            Step::Complete(completion) => return Ok(ControlFlow::Break(completion.result)),
            Step::Until { .. } => unreachable!("the lengths of all parts are known"),
        }))
    }

    fn send(&mut self, out: &mut Outbox) -> Result<(), Error> {
        while let Some(part) = out.parts.pop_front() {
            // Set-up commands and answers to pings contain no data from slots, so every part is a
            // `Part::Bytes`.
            if let Part::Bytes { bytes, .. } = part {
                self.wire.send(&bytes)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::pdu::{DESIRED_BYTES, FINAL, READY_TO_TRANSFER, SCSI_RESPONSE, TASK_TAG};
    use super::test_target::{login_response, pdu, recorded_setup, setup};
    use super::*;
    use crate::clock::{Clock, Monotonic};
    use crate::error::ErrorKind;
    use crate::fuzz::network_server;
    use crate::network::wire::TICK;
    use crate::network::{Credentials, Link, Slots, connect_over};
    use crate::request::{Completion, Op, Request};

    const NAME: &str = "iscsi://fuzz/iqn.2026-01.test:disk/1?timeout=5";

    fn access() -> Access {
        let address = NAME.parse().unwrap();
        Access { address, credentials: None, writable: true, durable: false }
    }

    fn wire(access: &Access) -> (Wire, UnixStream) {
        let (client, server) = UnixStream::pair().unwrap();
        // With a time limit, the test fails instead of hanging if the client sends nothing.
        server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        (Wire::over(TcpStream::from(OwnedFd::from(client)), &access.address).unwrap(), server)
    }

    /// Opens the disk of a simulated target that sends these bytes.
    fn open_with(bytes: &[u8], access: &Access) -> Result<(Link, RemoteInfo, UnixStream), Error> {
        let (wire, mut server) = wire(access);
        server.write_all(bytes).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        connect_over(wire, access).map(|(link, info)| (link, info, server))
    }

    #[track_caller]
    fn refusal(bytes: &[u8], access: &Access) -> String {
        open_with(bytes, access).map(drop).expect_err("an error").to_string()
    }

    fn with(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
        bytes[at] = value;
        bytes
    }

    #[track_caller]
    fn find(bytes: &[u8], part: &[u8]) -> usize {
        bytes.windows(part.len()).position(|window| window == part).unwrap()
    }

    #[test]
    fn the_setup_of_a_real_target_is_understood() {
        let (link, info, _server) = open_with(&recorded_setup(), &access()).unwrap();
        assert_eq!((info.size_bytes, info.block_bytes), (64 << 20, 512));
        assert_eq!(info.request_bytes_max, 16 << 20);
        assert_eq!(
            info.features,
            "iSCSI, IET VIRTUAL-DISK, 129 outstanding commands, write cache on"
        );
        assert!(link.has_room());
    }

    #[test]
    fn a_disk_that_does_not_fit_is_refused() {
        let good = recorded_setup();
        let inquiry = find(&good, b"IET  ") - 8;
        let wrong = refusal(&with(good.clone(), inquiry, 0x0c), &access());
        assert!(wrong.contains("unit 1 is not a disk but 'IET VIRTUAL-DISK'"), "{wrong}");
        let wrong = refusal(&with(good.clone(), inquiry, 0x7f), &access());
        assert!(wrong.contains("has no unit 1"), "{wrong}");
        let capacity = find(&good, &[0, 1, 0xff, 0xff, 0, 0, 2, 0]) - 4;
        let wrong = refusal(&with(good.clone(), capacity + 11, 8), &access());
        assert!(wrong.contains("blocks of 520 bytes"), "{wrong}");
        let wrong = refusal(&with(good.clone(), capacity, 0xff), &access());
        assert!(wrong.contains("impossible capacity"), "{wrong}");
        let mode = find(&good, &[0x1f, 0, 0x10, 8]);
        let protected = with(good.clone(), mode + 2, 0x90);
        assert!(refusal(&protected, &access()).contains("write-protected"));
        let read_only = Access { writable: false, ..access() };
        assert!(open_with(&protected, &read_only).is_ok());
        let durable = Access { durable: true, ..access() };
        assert!(open_with(&good, &durable).is_ok());
        let no_fua = with(good.clone(), mode + 2, 0);
        assert!(refusal(&no_fua, &durable).contains("support durable writes"));
        let caching = find(&good, &[8, 18, 20]);
        assert!(open_with(&with(no_fua, caching + 2, 0), &durable).is_ok(), "no write cache");
        for length in [0, 47, 100, 200, 500, good.len() - 1] {
            let wrong = refusal(&good[..length], &access());
            assert!(wrong.contains("closed the connection"), "{length}: {wrong}");
        }
    }

    #[test]
    fn a_wrong_unit_number_is_refused_before_the_login() {
        for path in ["iqn.2026-01.test:disk", "iqn.2026-01.test:disk/a", "t/16384", "t/-1", "t/"] {
            let address = format!("iscsi://host/{path}").parse().unwrap();
            let wrong = refusal(&[], &Access { address, ..access() });
            assert!(wrong.contains("is not a logical unit number"), "{path}: {wrong}");
        }
    }

    /// Sends and receives until `count` requests have completed.
    fn finish(link: &mut Link, slots: &mut Slots, count: usize) -> Result<Vec<Completion>, Error> {
        let mut done = Vec::new();
        while done.len() < count {
            link.send(slots)?;
            link.wait(slots, &mut done)?;
        }
        Ok(done)
    }

    /// Reads the next PDU that the client sends. Returns its header, and its data with padding.
    fn next_pdu(server: &mut UnixStream) -> ([u8; 48], Vec<u8>) {
        let mut header = [0; 48];
        server.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        let mut data = vec![0; length.next_multiple_of(4) as usize];
        server.read_exact(&mut data).unwrap();
        (header, data)
    }

    /// Waits for a SCSI write command, and then requests its data.
    fn ask_for_data(server: &mut UnixStream, bytes: u32) {
        while next_pdu(server).0[..2] != [0x01, 0xa1] {}
        let ask = [(TASK_TAG, 0), (DESIRED_BYTES, bytes)];
        server.write_all(&pdu(READY_TO_TRANSFER, FINAL, &ask, &[])).unwrap();
    }

    fn write(link: &mut Link, memory: &mut [u8]) -> Completion {
        let mut slots = Slots::new(1);
        let length = memory.len() as u32;
        let request = Request { offset: 0, length, within: 0, slot: 0, file: 0, op: Op::Write };
        // SAFETY: the memory outlives the slots, and no other code uses the memory.
        unsafe { slots.begin(0, memory.as_mut_ptr(), length) };
        link.add(&request, &slots);
        finish(link, &mut slots, 1).unwrap()[0]
    }

    const ONLY_ASKED: &str = "InitialR2T=Yes\0ImmediateData=No\0MaxBurstLength=8388608\0\
                              MaxRecvDataSegmentLength=8388608\0";

    #[test]
    fn a_write_that_the_target_gives_up_early_is_sent_to_the_end() {
        const BYTES: u32 = 4 << 20;
        let (wire, mut server) = wire(&access());
        let target = std::thread::spawn(move || {
            server.write_all(&setup(ONLY_ASKED, 1 << 20)).unwrap();
            ask_for_data(&mut server, BYTES);
            let failed = [(0, 0x2180_0002), (TASK_TAG, 0)];
            let sense = [0, 4, 0x72, 3, 0x0c, 0];
            server.write_all(&pdu(SCSI_RESPONSE, FINAL, &failed, &sense)).unwrap();
            next_pdu(&mut server)
        });
        let (mut link, _) = connect_over(wire, &access()).unwrap();
        let done = write(&mut link, &mut vec![0x5a; BYTES as usize]);
        assert_eq!(done, Completion { slot: 0, result: -libc::EIO });
        let (header, data) = target.join().unwrap();
        assert_eq!((header[0], data.len()), (5, BYTES as usize));
        assert!(data.iter().all(|byte| *byte == 0x5a));
    }

    #[test]
    fn data_is_sent_as_soon_as_the_target_asks() {
        const WRITES: u32 = 20;
        let (wire, mut server) = wire(&access());
        let target = std::thread::spawn(move || {
            server.write_all(&setup(ONLY_ASKED, 1 << 20)).unwrap();
            for _ in 0..WRITES {
                ask_for_data(&mut server, 512);
                assert_eq!(next_pdu(&mut server).1.len(), 512);
                server.write_all(&pdu(SCSI_RESPONSE, FINAL, &[(TASK_TAG, 0)], &[])).unwrap();
            }
        });
        let (mut link, _) = connect_over(wire, &access()).unwrap();
        let clock = Monotonic::new();
        let fastest_ns = (0..WRITES).map(|_| {
            let start_ns = clock.now_ns();
            assert_eq!(write(&mut link, &mut [0x5a; 512]).result, 512);
            clock.now_ns() - start_ns
        });
        // A client that answers data requests only at the next tick needs at least one tick per
        // write.
        let tick_ns = TICK.as_nanos() as u64;
        assert!(fastest_ns.min().unwrap() < tick_ns / 2, "each write waited for a tick");
        target.join().unwrap();
    }

    /// Opens the disk of a simulated target that accepts no further command after the set-up.
    fn open_without_room() -> (Link, UnixStream) {
        let mut bytes = setup("", 1 << 20);
        // The set-up uses five commands, so the window is closed after command 5.
        while let Some(at) = bytes.windows(8).position(|b| *b == [0, 0, 0, 1, 0, 0, 0, 64]) {
            bytes[at + 7] = 5;
        }
        let access = Access { address: NAME.replace("=5", "=1").parse().unwrap(), ..access() };
        let (wire, mut server) = wire(&access);
        server.write_all(&bytes).unwrap();
        let (link, _) = connect_over(wire, &access).unwrap();
        (link, server)
    }

    #[test]
    fn a_closed_window_is_waited_for() {
        let (mut link, mut server) = open_without_room();
        let (mut slots, mut done) = (Slots::new(1), Vec::new());
        assert!(!link.has_room());
        let opens = [(TASK_TAG, u32::MAX), (20, u32::MAX), (32, 6)];
        server.write_all(&pdu(pdu::NOP_IN, FINAL, &opens, &[])).unwrap();
        link.wait(&mut slots, &mut done).unwrap();
        assert!(link.has_room());
    }

    #[test]
    fn a_window_that_stays_closed_is_an_error() {
        let (mut link, _server) = open_without_room();
        let mut waits = (0..1000).map(|_| link.wait(&mut Slots::new(1), &mut Vec::new()));
        let error = waits.find_map(Result::err).expect("an error");
        assert!(error.to_string().contains("did not answer"), "{error}");
    }

    /// Returns the bytes that a simulated target sends. The target requires a password, completes a
    /// read in two PDUs, and then completes a write.
    fn conversation() -> Vec<u8> {
        let mut bytes = login_response(0, [0, 0], "TargetPortalGroupTag=1\0AuthMethod=CHAP\0");
        let challenge = "CHAP_A=5\0CHAP_I=39\0CHAP_C=0x000102030405060708090a0b0c0d0e0f\0";
        bytes.extend(login_response(0, [0, 0], challenge));
        bytes.extend(login_response(0x81, [0, 0], ""));
        // The first 88 bytes are skipped, because they answer a login without a password.
        bytes.extend(&recorded_setup()[88..]);
        let whole = [(TASK_TAG, 0), (32, 0x90)];
        bytes.extend(pdu(pdu::DATA_IN, 0, &whole, &[7; 1024]));
        bytes.extend(pdu(pdu::DATA_IN, 0x81, &[(TASK_TAG, 0), (40, 1024)], &[7; 3072]));
        bytes.extend(pdu(pdu::NOP_IN, FINAL, &[(TASK_TAG, u32::MAX), (20, 5)], &[]));
        bytes.extend(pdu(SCSI_RESPONSE, FINAL, &[(TASK_TAG, 1)], &[]));
        bytes
    }

    /// Opens the disk of a simulated target that sends these bytes, and reads and writes 4 KiB.
    fn converse(bytes: &[u8]) -> Result<Vec<Completion>, Error> {
        let credentials = Credentials { user: "anna".to_owned(), password: "secret".to_owned() };
        let access = Access { credentials: Some(credentials), ..access() };
        let (mut link, _, _server) = open_with(bytes, &access)?;
        let mut memory = [[0_u8; 4096]; 2];
        let mut slots = Slots::new(2);
        for (slot, op) in [(0, Op::Read), (1, Op::Write)] {
            let request = Request { offset: 0, length: 4096, within: 0, slot, file: 0, op };
            // SAFETY: the memory outlives the slots, and no other code uses the memory.
            unsafe { slots.begin(slot, memory[slot as usize].as_mut_ptr(), 4096) };
            link.add(&request, &slots);
        }
        finish(&mut link, &mut slots, 2)
    }

    #[test]
    fn a_conversation_completes_and_its_truncations_are_errors() {
        let bytes = conversation();
        let done = converse(&bytes).unwrap();
        assert_eq!(network_server(&[&[2], &bytes[..]].concat()), 2);
        let whole = |slot| Completion { slot, result: 4096 };
        assert_eq!(done, [whole(0), whole(1)]);
        for length in (0..bytes.len() - 1).step_by(31) {
            assert_eq!(converse(&bytes[..length]).unwrap_err().kind(), ErrorKind::Io, "{length}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn no_target_makes_the_client_panic_or_hang(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            repeated in 1..3_usize,
        ) {
            // The first byte makes `network_server` select iSCSI.
            let mut bytes = vec![2];
            bytes.extend(conversation().repeat(repeated));
            for (at, value) in changes {
                // The first 1100 bytes contain headers and texts. Most changes are made there, and
                // few in the data.
                let range = if value % 4 == 0 { bytes.len() } else { bytes.len().min(1100) };
                let at = at.index(range).max(1);
                bytes[at] = if value % 3 == 0 { bytes[at] ^ (1 << (value % 8)) } else { value };
            }
            if cut.index(4) == 0 {
                bytes.truncate(cut.index(bytes.len()));
            }
            prop_assert!(network_server(&bytes) <= 2);
        }

        #[test]
        fn random_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(converse(&bytes).is_err());
        }
    }
}
