//! A client for the Network Block Device protocol (NBD).
//!
//! Source: "The NBD protocol", doc/proto.md of the NetworkBlockDevice project. The client uses the
//! fixed newstyle negotiation with `NBD_OPT_GO`, and simple replies afterwards. Any number of
//! requests may be outstanding. The handle of a request is the number of its slot.
//!
//! A flush covers the writes of other connections only if the server sets the flag
//! `NBD_FLAG_CAN_MULTI_CONN`. Without this flag, each connection must flush its own writes.

use crate::error::Error;
use crate::network::protocol::{FLUSH_SLOT, Opened, Outbox, Protocol, Step};
use crate::network::wire::{Wire, printable, violated};
use crate::network::{Access, RemoteInfo};
use crate::request::{Completion, Op, Request};

/// "NBDMAGIC", the first bytes that a server sends.
const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT", which precedes each option.
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The magic number at the beginning of each reply to an option.
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The magic number at the beginning of a request.
const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The magic number at the beginning of a simple reply.
const REPLY_MAGIC: u32 = 0x6744_6698;

/// NBD_FLAG_FIXED_NEWSTYLE: the server supports the fixed newstyle negotiation.
const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// Client flags: NBD_FLAG_C_FIXED_NEWSTYLE and NBD_FLAG_C_NO_ZEROES.
const CLIENT_FLAGS: u32 = 0b11;
/// NBD_OPT_GO: the client asks the server to open an export.
const OPTION_GO: u32 = 7;
/// NBD_INFO_EXPORT: size and transmission flags of the export.
const INFO_EXPORT: u16 = 0;
/// NBD_INFO_BLOCK_SIZE: minimum, preferred and maximum size of requests (bytes).
const INFO_BLOCK_SIZE: u16 = 3;
/// NBD_REP_ACK: the server accepts the option. No further reply to this option follows.
const REPLY_ACK: u32 = 1;
/// NBD_REP_INFO: the reply contains information about the export.
const REPLY_INFO: u32 = 3;
/// The bit that is set in the type of each error reply.
const REPLY_ERROR: u32 = 1 << 31;
/// NBD_REP_ERR_UNKNOWN: the export does not exist.
const REPLY_UNKNOWN: u32 = REPLY_ERROR | 6;
/// NBD_REP_ERR_TLS_REQD: the server accepts only encrypted connections.
const REPLY_TLS_REQUIRED: u32 = REPLY_ERROR | 5;

/// Transmission flags of an export (NBD_FLAG_READ_ONLY, NBD_FLAG_SEND_FLUSH, NBD_FLAG_SEND_FUA).
const EXPORT_READ_ONLY: u16 = 1 << 1;
const EXPORT_HAS_FLUSH: u16 = 1 << 2;
const EXPORT_HAS_FUA: u16 = 1 << 3;
/// NBD_FLAG_CAN_MULTI_CONN: a flush covers the writes of all connections.
const EXPORT_CAN_MULTI_CONN: u16 = 1 << 8;

const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;
const COMMAND_FLUSH: u16 = 3;
/// NBD_CMD_FLAG_FUA: the server makes the write durable before it replies.
const COMMAND_FLAG_FUA: u16 = 1;

/// The maximum size of a request (bytes), if the server does not report a smaller maximum.
const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The maximum number of replies to NBD_OPT_GO that the client accepts.
const INFOS_MAX: usize = 32;
/// The handle of a flush. No read or write has this handle, because the handles of reads and writes
/// are 32-bit slot numbers.
const FLUSH_HANDLE: u64 = u64::MAX;
/// The size of a simple reply without its data (bytes).
const REPLY_BYTES: usize = 16;

/// The state of one connection.
#[derive(Debug)]
struct Nbd {
    name: String,
    /// The operation and the length (bytes) of the outstanding request of each slot.
    pending: Vec<Option<(Op, u32)>>,
    /// The slot that receives the data of the current reply.
    filling: u32,
    can_flush: bool,
    flushes_for_all: bool,
    write_flags: u16,
    request_bytes_max: u32,
}

/// The properties of an export, as the server reports them.
#[derive(Debug, Default)]
struct Export {
    size_bytes: Option<u64>,
    flags: u16,
    block_bytes: u32,
    request_bytes_max: u32,
}

/// Negotiates with the server and opens the export.
pub(super) fn open(mut wire: Wire, access: &Access) -> Result<Opened, Error> {
    let export = negotiate(&mut wire, &access.address.path)?;
    let Some(size_bytes) = export.size_bytes else {
        return Err(wire.violated("did not report the size of the export"));
    };
    if access.writable && export.flags & EXPORT_READ_ONLY != 0 {
        return Err(wire.refused("the export is read-only", "use `rw=read`, or use another export"));
    }
    if access.durable && export.flags & EXPORT_HAS_FUA == 0 {
        let what = "the server does not support durable writes (NBD_CMD_FLAG_FUA)";
        return Err(wire.refused(what, "remove `fua` and `write_through`, or use `fsync`"));
    }
    let can_flush = export.flags & EXPORT_HAS_FLUSH != 0;
    let flushes_for_all = export.flags & EXPORT_CAN_MULTI_CONN != 0;
    let protocol = Nbd {
        name: access.address.to_string(),
        pending: Vec::new(),
        filling: 0,
        can_flush,
        flushes_for_all,
        write_flags: if access.durable { COMMAND_FLAG_FUA } else { 0 },
        request_bytes_max: export.request_bytes_max,
    };
    let features = match (can_flush, flushes_for_all) {
        (false, _) => "NBD, flush not supported",
        (true, true) => "NBD, a flush covers all connections",
        (true, false) => "NBD, a flush covers one connection",
    };
    let info = RemoteInfo {
        size_bytes,
        block_bytes: export.block_bytes,
        request_bytes_max: export.request_bytes_max,
        features: features.to_owned(),
    };
    Ok(Opened { wire, protocol: Box::new(protocol), info })
}

fn negotiate(wire: &mut Wire, name: &str) -> Result<Export, Error> {
    let hello = wire.receive(18)?;
    if be64(&hello[..8]) != SERVER_MAGIC || be64(&hello[8..16]) != OPTION_MAGIC {
        return Err(wire.violated("does not speak NBD"));
    }
    if u16::from_be_bytes([hello[16], hello[17]]) & FLAG_FIXED_NEWSTYLE == 0 {
        return Err(wire.violated("supports only the oldstyle negotiation of NBD"));
    }
    let mut message = CLIENT_FLAGS.to_be_bytes().to_vec();
    message.extend(OPTION_MAGIC.to_be_bytes());
    message.extend(OPTION_GO.to_be_bytes());
    message.extend((name.len() as u32 + 8).to_be_bytes());
    message.extend((name.len() as u32).to_be_bytes());
    message.extend(name.as_bytes());
    message.extend(1_u16.to_be_bytes());
    message.extend(INFO_BLOCK_SIZE.to_be_bytes());
    wire.send(&message)?;
    let mut export =
        Export { block_bytes: 1, request_bytes_max: REQUEST_BYTES_MAX, ..Export::default() };
    for _ in 0..INFOS_MAX {
        let head = wire.receive(20)?;
        if be64(&head[..8]) != OPTION_REPLY_MAGIC {
            return Err(wire.violated("sent a reply that is not valid NBD"));
        }
        let (kind, length) = (be32(&head[12..16]), be32(&head[16..20]));
        let data = wire.receive(length as usize)?;
        match kind {
            REPLY_ACK => return Ok(export),
            REPLY_INFO => {
                export
                    .learn(&data)
                    .map_err(|()| wire.violated("sent a reply that is too short"))?;
            }
            REPLY_UNKNOWN => {
                let what = format!("there is no export '{name}'");
                return Err(wire.refused(what, "check the name of the export"));
            }
            REPLY_TLS_REQUIRED => {
                let what = "the server requires TLS, which halfpower does not support";
                return Err(wire.refused(what, "use an export without TLS, or a TLS tunnel"));
            }
            kind if kind & REPLY_ERROR != 0 => {
                let said = printable(&data);
                let what = format!("the server refused to open the export '{name}' ({said})");
                return Err(wire.refused(what, "check the name and the settings of the export"));
            }
            _ => {}
        }
    }
    Err(wire.violated("sent too many replies to NBD_OPT_GO"))
}

impl Export {
    /// Stores the information of one NBD_REP_INFO reply.
    fn learn(&mut self, data: &[u8]) -> Result<(), ()> {
        let kind = u16::from_be_bytes(data.get(..2).and_then(|d| d.try_into().ok()).ok_or(())?);
        match kind {
            INFO_EXPORT => {
                let rest = data.get(2..12).ok_or(())?;
                self.size_bytes = Some(be64(&rest[..8]));
                self.flags = u16::from_be_bytes([rest[8], rest[9]]);
            }
            INFO_BLOCK_SIZE => {
                let rest = data.get(2..14).ok_or(())?;
                self.block_bytes = be32(&rest[..4]).clamp(1, 1 << 16);
                self.request_bytes_max =
                    be32(&rest[8..12]).clamp(self.block_bytes, REQUEST_BYTES_MAX);
            }
            _ => {}
        }
        Ok(())
    }
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

impl Nbd {
    fn message(&self, command: u16, flags: u16, handle: u64, offset: u64, length: u32) -> Vec<u8> {
        let mut message = Vec::with_capacity(28);
        message.extend(REQUEST_MAGIC.to_be_bytes());
        message.extend(flags.to_be_bytes());
        message.extend(command.to_be_bytes());
        message.extend(handle.to_be_bytes());
        message.extend(offset.to_be_bytes());
        message.extend(length.to_be_bytes());
        message
    }

    fn unknown(&self) -> Error {
        violated(&self.name, "sent a reply to a request that is not outstanding")
    }
}

/// Returns the Linux error number for an NBD error. NBD uses the numbers of Linux. EAGAIN (11) is
/// accepted too, although NBD does not define it. All unknown numbers become EIO.
fn errno(error: u32) -> i32 {
    match error {
        1 | 5 | 11 | 12 | 22 | 28 | 75 | 95 => error as i32,
        108 => libc::ESHUTDOWN,
        _ => libc::EIO,
    }
}

impl Protocol for Nbd {
    fn request(&mut self, request: &Request, _payload: &[u8], out: &mut Outbox) {
        let slot = request.slot as usize;
        if self.pending.len() <= slot {
            self.pending.resize(slot + 1, None);
        }
        let length = request.length.min(self.request_bytes_max);
        self.pending[slot] = Some((request.op, length));
        let handle = u64::from(request.slot);
        let (command, flags) = match request.op {
            Op::Read => (COMMAND_READ, 0),
            Op::Write => (COMMAND_WRITE, self.write_flags),
        };
        out.bytes(self.message(command, flags, handle, request.offset, length));
        if request.op == Op::Write {
            out.slot(request.slot, 0, length);
        }
    }

    fn flushes_for_all(&self) -> bool {
        self.flushes_for_all
    }

    fn flush(&mut self, out: &mut Outbox) -> bool {
        if self.can_flush {
            out.bytes(self.message(COMMAND_FLUSH, 0, FLUSH_HANDLE, 0, 0));
        }
        self.can_flush
    }

    fn header_bytes(&self) -> usize {
        REPLY_BYTES
    }

    fn took(&mut self, bytes: &[u8], _out: &mut Outbox) -> Result<Step, Error> {
        if be32(&bytes[..4]) != REPLY_MAGIC {
            return Err(violated(&self.name, "sent a reply without its magic number"));
        }
        let (error, handle) = (be32(&bytes[4..8]), be64(&bytes[8..16]));
        if handle == FLUSH_HANDLE {
            let result = if error == 0 { 0 } else { -errno(error) };
            return Ok(Step::Complete(Completion { slot: FLUSH_SLOT, result }));
        }
        let pending = usize::try_from(handle).ok().and_then(|slot| self.pending.get_mut(slot));
        let Some((op, length)) = pending.and_then(Option::take) else {
            return Err(self.unknown());
        };
        let slot = handle as u32;
        if error != 0 {
            return Ok(Step::Complete(Completion { slot, result: -errno(error) }));
        }
        self.filling = slot;
        Ok(match op {
            Op::Read => Step::Fill { slot, within: 0, length },
            Op::Write => Step::Complete(Completion { slot, result: length as i32 }),
        })
    }

    fn filled(&mut self, payload: &[u8], _out: &mut Outbox) -> Result<Step, Error> {
        let result = payload.len() as i32;
        Ok(Step::Complete(Completion { slot: self.filling, result }))
    }
}
