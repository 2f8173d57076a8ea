//! Builds the messages that an iSCSI target sends, for tests: single PDUs, and the answers to a
//! whole login.

use crate::network::iscsi::pdu::{
    DATA_IN, FINAL, HAS_STATUS, Header, LOGIN_RESPONSE, SCSI_RESPONSE, padding,
};

/// Recorded bytes in hexadecimal: everything that `tgtd` 1.0.85 sends during the set-up of a
/// read-write connection to a 64 MiB disk.
const RECORDED: &str = "\
    238100000000002780c55f52f6470000000000000000000000000000000000010000000200000000\
    0000000000000000546172676574506f7274616c47726f75705461673d3100417574684d6574686f\
    643d4e6f6e65000023870000000000fd80c55f52f647020000000000000000000000000100000001\
    000000020000000000000000000000004865616465724469676573743d4e6f6e6500446174614469\
    676573743d4e6f6e65004d6178436f6e6e656374696f6e733d31004d61784f75747374616e64696e\
    675232543d310044617461504455496e4f726465723d596573004461746153657175656e6365496e\
    4f726465723d596573004572726f725265636f766572794c6576656c3d3000496e697469616c5232\
    543d59657300496d6d656469617465446174613d596573004d617842757273744c656e6774683d32\
    363231343400466972737442757273744c656e6774683d36353533360044656661756c7454696d65\
    32576169743d320044656661756c7454696d653252657461696e3d30000000002581000000000024\
    000000000000000000000000ffffffff000000020000000200000082000000000000000000000000\
    000005123d00000249455420202020205649525455414c2d4449534b202020203030303121800002\
    00000014000000000000000000000000000000000000000300000003000000830000000000000000\
    000000000012700006000000000a0000000029000000000021800000000000000000000000000000\
    00000000000000000000000400000004000000840000000000000000000000002581000000000020\
    000000000000000000000000ffffffff000000050000000500000085000000000000000000000000\
    000000000001ffff0000020000030000000000000000000000000000000000002583000000000020\
    000000000000000000000000ffffffff000000060000000600000086000000000000000000000020\
    1f001008000000000000020008121400ffff0000ffffffff80140000000000002581000000000040\
    000000000000000000000000ffffffff000000070000000700000087000000000000000000000000\
    00b0003c008000000000000000000000000000000000000000000000000000000000000000000000\
    000000000000000000000000000000000000000000000000";

pub(super) fn recorded_setup() -> Vec<u8> {
    let digits = RECORDED.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

/// Builds a PDU. `numbers` contains pairs of a header offset and the number at this offset. The PDU
/// allows the client to send commands 1 to 64.
pub(super) fn pdu(opcode: u8, flags: u8, numbers: &[(usize, u32)], data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    let header = Header::new(opcode, flags).with_data(length).with(28, 1).with(32, 64);
    let header = numbers.iter().fold(header, |header, (at, value)| header.with(*at, *value));
    let mut bytes = header.to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len() + padding(length), 0);
    bytes
}

pub(super) fn login_response(flags: u8, status: [u8; 2], text: &str) -> Vec<u8> {
    let status = u32::from_be_bytes([status[0], status[1], 0, 0]);
    pdu(LOGIN_RESPONSE, flags, &[(36, status)], text.as_bytes())
}

/// Returns all answers during a set-up. The disk has `blocks` blocks of 512 bytes, supports FUA,
/// and has a write cache. `keys` is the text of the second login response.
pub(super) fn setup(keys: &str, blocks: u64) -> Vec<u8> {
    let answer = |data: &[u8]| pdu(DATA_IN, FINAL | HAS_STATUS, &[(20, u32::MAX)], data);
    let mut inquiry = [b' '; 36];
    inquiry[..8].fill(0);
    inquiry[8..].copy_from_slice(b"VENDOR  A DISK          0001");
    let mut capacity = [0; 32];
    capacity[..8].copy_from_slice(&(blocks - 1).to_be_bytes());
    capacity[10] = 2;
    let mut mode = [0; 24];
    (mode[2], mode[4], mode[5], mode[6]) = (0x10, 8, 18, 4);
    [
        login_response(0x81, [0, 0], "AuthMethod=None\0"),
        login_response(0x87, [0, 0], keys),
        answer(&inquiry),
        pdu(SCSI_RESPONSE, FINAL, &[], &[]),
        answer(&capacity),
        answer(&mode),
        // The disk does not support the block limits page.
        pdu(SCSI_RESPONSE, FINAL, &[(0, 0x2180_0002)], &[0, 4, 0x72, 5, 0x24, 0]),
    ]
    .concat()
}
