//! The client of SMB 2.1.

use crate::error::Error;
use crate::network::Access;
use crate::network::protocol::Opened;
use crate::network::wire::Wire;

/// Opens the target.
pub(super) fn open(wire: Wire, access: &Access) -> Result<Opened, Error> {
    let what = format!("{}:// is not supported yet", access.address.scheme.name());
    Err(wire.refused(what, "use nbd://"))
}
