//! The headers of iSCSI messages (PDUs), and the sequence numbers of commands and replies.
//!
//! Source: RFC 7143, section 11. A PDU consists of a header of 48 bytes, additional header
//! segments, and a data segment that is padded to a multiple of four bytes. This client skips
//! additional header segments and never sends them. All numbers are big-endian. PDUs contain no
//! digests, because the client never negotiates them.

/// The size of the basic header segment of every PDU (section 11.2.1; bytes).
pub(super) const HEADER_BYTES: usize = 48;

// The operation codes of PDUs that the initiator sends (section 11.2.1.2).
pub(super) const NOP_OUT: u8 = 0x00;
pub(super) const SCSI_COMMAND: u8 = 0x01;
pub(super) const LOGIN_REQUEST: u8 = 0x03;
pub(super) const DATA_OUT: u8 = 0x05;
// The operation codes of PDUs that the target sends.
pub(super) const NOP_IN: u8 = 0x20;
pub(super) const SCSI_RESPONSE: u8 = 0x21;
pub(super) const LOGIN_RESPONSE: u8 = 0x23;
pub(super) const DATA_IN: u8 = 0x25;
pub(super) const READY_TO_TRANSFER: u8 = 0x31;
pub(super) const ASYNC_MESSAGE: u8 = 0x32;
pub(super) const REJECT: u8 = 0x3f;

/// The bit in the first byte of a PDU that requests immediate delivery. Such a PDU uses up no
/// command number (section 11.2.1.1).
pub(super) const IMMEDIATE: u8 = 0x40;
/// The flag that marks the last PDU of a sequence (section 11.2.1.3).
pub(super) const FINAL: u8 = 0x80;

/// The flags of a SCSI Command (section 11.3.1): the command reads, the command writes, and the
/// target may reorder the command (task attribute Simple).
pub(super) const COMMAND_READS: u8 = 0x40;
pub(super) const COMMAND_WRITES: u8 = 0x20;
pub(super) const COMMAND_SIMPLE: u8 = 0x01;

/// The flag of a Data-In that also contains the status of the command (section 11.7.1).
pub(super) const HAS_STATUS: u8 = 0x01;
/// Bits in the flags of Data-In and SCSI Response (section 11.4.1). UNDERFLOW: less data was
/// transferred than the command expected. OVERFLOW: the command had more data than expected.
pub(super) const UNDERFLOW: u8 = 0x02;
pub(super) const OVERFLOW: u8 = 0x04;

/// The reserved value that means "no tag" (section 11.2.1.8).
pub(super) const NO_TAG: u32 = u32::MAX;

// The offsets of fields in the header (sections 11.3 to 11.19; bytes).
pub(super) const LUN: usize = 8;
pub(super) const TASK_TAG: usize = 16;
/// The expected data transfer length in a SCSI Command. Other PDUs have the target transfer tag at
/// this offset.
pub(super) const EXPECTED_BYTES: usize = 20;
pub(super) const TRANSFER_TAG: usize = 20;
pub(super) const COMMAND_NUMBER: usize = 24;
pub(super) const EXPECTED_STATUS_NUMBER: usize = 28;
const STATUS_NUMBER: usize = 24;
const EXPECTED_COMMAND_NUMBER: usize = 28;
const MAX_COMMAND_NUMBER: usize = 32;
pub(super) const COMMAND_BLOCK: usize = 32;
pub(super) const DATA_NUMBER: usize = 36;
pub(super) const BUFFER_OFFSET: usize = 40;
/// The number of bytes that the target requests in Ready To Transfer. A SCSI Response has the
/// residual count at this offset.
pub(super) const DESIRED_BYTES: usize = 44;
pub(super) const RESIDUAL_BYTES: usize = 44;

/// The basic header segment of a PDU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header([u8; HEADER_BYTES]);

impl Header {
    /// Creates a header from its first byte and its flags. All other fields are zero. The first
    /// byte is the operation code, optionally with [`IMMEDIATE`].
    pub(super) fn new(first: u8, flags: u8) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        (bytes[0], bytes[1]) = (first, flags);
        Header(bytes)
    }

    /// Parses a received header. None if `bytes` does not have exactly 48 bytes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Header> {
        bytes.try_into().ok().map(Header)
    }

    pub(super) fn with(mut self, at: usize, value: u32) -> Header {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn with_bytes(mut self, at: usize, bytes: &[u8]) -> Header {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Sets the length of the data segment (bytes, less than 2^24).
    pub(super) fn with_data(self, bytes: u32) -> Header {
        let [_, length @ ..] = bytes.to_be_bytes();
        self.with_bytes(5, &length)
    }

    pub(super) fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn flags(&self) -> u8 {
        self.0[1]
    }

    pub(super) fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub(super) fn lun(&self) -> &[u8] {
        &self.0[LUN..LUN + 8]
    }

    /// Returns the length of the data segment without padding (bytes).
    pub(super) fn data_bytes(&self) -> u32 {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]])
    }

    /// Returns the length of the additional header segments (bytes). The field in the header counts
    /// words of four bytes.
    pub(super) fn extra_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    pub(super) fn to_vec(self) -> Vec<u8> {
        self.0.to_vec()
    }
}

/// Returns the number of bytes that pad a data segment to a multiple of four (section 11.2.3).
pub(super) fn padding(bytes: u32) -> usize {
    (bytes.wrapping_neg() % 4) as usize
}

/// The sequence numbers of a session with one connection (section 4.2.2). The numbers wrap around,
/// so they are compared by the sign of their difference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// The CmdSN of the next command.
    command: u32,
    /// MaxCmdSN: the number of the last command that the target currently accepts.
    command_max: u32,
    /// ExpStatSN: the number of the next status.
    status: u32,
}

impl Numbers {
    /// Returns the numbers before the login. The command window is closed, and the first command
    /// has number 1.
    pub(super) fn new() -> Numbers {
        Numbers { command: 1, command_max: 0, status: 0 }
    }

    /// Returns the number of commands that the target currently accepts.
    pub(super) fn window(&self) -> u32 {
        let last = self.command_max.wrapping_sub(self.command).cast_signed();
        if last < 0 { 0 } else { last.unsigned_abs() + 1 }
    }

    /// Reads the command window from a PDU. Every PDU of the target contains the window. The window
    /// is ignored if MaxCmdSN is less than ExpCmdSN - 1, or if MaxCmdSN is not greater than that of
    /// the current window (section 4.2.2.1).
    pub(super) fn learn_window(&mut self, header: &Header) {
        let first = header.number(EXPECTED_COMMAND_NUMBER);
        let last = header.number(MAX_COMMAND_NUMBER);
        let is_window = last.wrapping_sub(first.wrapping_sub(1)).cast_signed() >= 0;
        if is_window && last.wrapping_sub(self.command_max).cast_signed() > 0 {
            self.command_max = last;
        }
    }

    /// Stores the status number of a PDU, so that the next message acknowledges it.
    pub(super) fn learn_status(&mut self, header: &Header) {
        self.status = header.number(STATUS_NUMBER).wrapping_add(1);
    }

    /// Sets the sequence numbers in a header that is sent.
    pub(super) fn stamp(&self, header: Header) -> Header {
        header.with(COMMAND_NUMBER, self.command).with(EXPECTED_STATUS_NUMBER, self.status)
    }

    /// Sets the status number in the header of a Data-Out. A Data-Out has no command number.
    pub(super) fn stamp_data(&self, header: Header) -> Header {
        header.with(EXPECTED_STATUS_NUMBER, self.status)
    }

    pub(super) fn next_command(&mut self) {
        self.command = self.command.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_specification_has_them() {
        let header = Header::new(DATA_OUT, FINAL)
            .with_bytes(LUN, &[0, 1])
            .with_data(0x01_0203)
            .with(TASK_TAG, 0x1011_1213)
            .with(BUFFER_OFFSET, 0x2000);
        let bytes = header.to_vec();
        assert_eq!(bytes[..12], [5, 0x80, 0, 0, 0, 1, 2, 3, 0, 1, 0, 0]);
        assert_eq!((&bytes[16..20], &bytes[40..44]), (&[16, 17, 18, 19][..], &[0, 0, 32, 0][..]));
        assert_eq!((header.data_bytes(), header.opcode()), (0x01_0203, DATA_OUT));
        assert!(Header::parse(&bytes[..47]).is_none());
        assert_eq!([0, 1, 2, 3, 4, 5].map(padding), [0, 3, 2, 1, 0, 3]);
    }

    fn window_after(numbers: &mut Numbers, expected: u32, max: u32) -> u32 {
        let header = Header::new(NOP_IN, FINAL);
        let header = header.with(EXPECTED_COMMAND_NUMBER, expected);
        numbers.learn_window(&header.with(MAX_COMMAND_NUMBER, max));
        numbers.window()
    }

    #[test]
    fn the_window_only_grows_and_wraps() {
        let mut numbers = Numbers::new();
        assert_eq!(numbers.window(), 0);
        assert_eq!(window_after(&mut numbers, 1, 32), 32);
        numbers.next_command();
        assert_eq!(numbers.window(), 31);
        assert_eq!(window_after(&mut numbers, 1, 16), 31, "an old window");
        assert_eq!(window_after(&mut numbers, 100, 40), 31, "a window that ends before it begins");
        let mut numbers = Numbers { command: u32::MAX, command_max: u32::MAX, status: 0 };
        assert_eq!(numbers.window(), 1);
        numbers.next_command();
        assert_eq!(numbers.window(), 0);
        assert_eq!(window_after(&mut numbers, 0, 1), 2);
    }
}
