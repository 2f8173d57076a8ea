//! Targets on a server. Their caching mode is always direct, because nothing is cached on this
//! host. Each engine opens its own connections, and flushes its writes over these connections.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::engine::{EngineKind, EngineSpec, HostEngine, Network};
use crate::error::{Error, ErrorKind};
use crate::host::HostTarget;
use crate::mode::Caching;
use crate::network::{Access, Remote, RemoteInfo};
use crate::target::{Alignment, TargetKind};

impl HostTarget {
    /// Connects to a server and opens a file, disk or object on it. The caching mode is always
    /// direct, because nothing is cached on this host.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses to open the target.
    pub fn connect(access: Access) -> Result<HostTarget, Error> {
        let caching = Caching::of(true, access.durable);
        let mut hasher = DefaultHasher::new();
        access.address.place().hash(&mut hasher);
        let (name, identity) = (access.address.to_string(), (u64::MAX, hasher.finish()));
        let remote = Remote::open(access)?;
        let offset_bytes = remote.info().block_bytes;
        let mut target = HostTarget::without_file(TargetKind::Network, 0, None).called(name);
        target.virtual_bytes = remote.info().size_bytes;
        target.alignment = Alignment { memory_bytes: 1, offset_bytes };
        (target.caching, target.identity) = (caching, identity);
        target.remote = Some(remote);
        Ok(target)
    }

    /// Returns true if this is a network target that was opened for writing.
    pub fn writes_to_server(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.access().writable)
    }

    /// Returns what the server reported about a network target. None for other targets.
    pub fn remote_info(&self) -> Option<&RemoteInfo> {
        self.remote.as_ref().map(Remote::info)
    }
}

impl Remote {
    /// Creates the engine of one worker. The engine opens its own connections.
    pub(super) fn engine(&self, spec: &EngineSpec) -> Result<HostEngine, Error> {
        if spec.engine_kind != EngineKind::Network {
            let what = format!("`engine` {} cannot use a network target", spec.engine_kind);
            return Err(Error::new(ErrorKind::Usage, what).with_remedy("use `engine` network"));
        }
        let mut access = self.access().clone();
        access.durable |= spec.options.fua;
        Ok(HostEngine::Network(Box::new(Network::new(&access, spec)?)))
    }
}
