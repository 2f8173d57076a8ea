//! A stripe over several targets of this host, like RAID 0. Chunks of a fixed size are assigned to
//! the targets in turn.

use std::fs::File;
use std::sync::Arc;

use crate::device::Device;
use crate::engine::{
    Delay, DelayDevice, EngineKind, EngineSpec, Files, HostEngine, Striped, pieces_bits,
};
use crate::error::{Error, ErrorKind};
use crate::host::HostTarget;
use crate::stripe::Layout;
use crate::target::{Alignment, Coverage, Hint, Scrub, Target, TargetKind};

#[derive(Debug)]
pub(super) struct Stripe {
    members: Vec<HostTarget>,
    layout: Layout,
}

impl HostTarget {
    /// Combines several targets into a stripe with chunks of `chunk_bytes`. The smallest target
    /// determines the size of the stripe, and the strictest alignment determines the stripe's
    /// alignment.
    ///
    /// # Errors
    /// `ErrorKind::Usage`, if there are no targets or too many, if their kinds or caching modes
    /// differ, or if the chunk size is not a multiple of their alignment.
    pub fn striped(members: Vec<HostTarget>, chunk_bytes: u64) -> Result<HostTarget, Error> {
        let layout = Layout::new(members.len(), chunk_bytes)?;
        let (kind, caching) = (members[0].kind, members[0].caching);
        let strictest = |of: fn(&Alignment) -> u32| {
            members.iter().map(|member| of(&member.alignment)).max().unwrap_or(1)
        };
        let alignment = Alignment {
            memory_bytes: strictest(|alignment| alignment.memory_bytes),
            offset_bytes: strictest(|alignment| alignment.offset_bytes),
        };
        let usage = |what: String, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, what).with_remedy(remedy))
        };
        if members.iter().any(|member| member.kind != kind || member.caching != caching) {
            return usage(
                format!(
                    "the targets of the stripe that begins with {} differ in kind or caching mode",
                    members[0].name
                ),
                "use only files or only devices, in one caching mode",
            );
        }
        if kind == TargetKind::Network {
            let what = "network targets cannot be striped".to_owned();
            return usage(what, "measure each target separately, or drop `chunk_bytes`");
        }
        let granule = u64::from(alignment.offset_bytes.max(1));
        if !chunk_bytes.is_multiple_of(granule) {
            return usage(
                format!(
                    "`chunk_bytes` {chunk_bytes} is not a multiple of {granule}, the alignment of \
                     the members"
                ),
                &format!("use a multiple of {granule}, or `direct=false`"),
            );
        }
        let names: Vec<&str> = members.iter().map(|member| &*member.name).collect();
        Ok(HostTarget {
            name: format!("stripe of {}", names.join(", ")),
            caching,
            alignment,
            stripe: Some(Stripe { layout, members }),
            ..HostTarget::without_file(kind, 0, None)
        })
    }

    /// Returns the targets of a stripe. Empty if the target is not striped.
    pub fn members(&self) -> &[HostTarget] {
        self.stripe.as_ref().map_or(&[], |stripe| &stripe.members)
    }

    /// Returns the layout of the stripe. None if the target is not striped.
    pub fn layout(&self) -> Option<Layout> {
        self.stripe.as_ref().map(|stripe| stripe.layout)
    }

    /// Returns the underlying devices without duplicates. For a stripe, the list is empty if one of
    /// the devices is unknown.
    pub(super) fn devices(&self) -> Vec<&Device> {
        let Some(Stripe { members, .. }) = &self.stripe else {
            return self.device.iter().collect();
        };
        let mut found: Vec<&Device> = Vec::new();
        for member in members {
            match &member.device {
                Some(device) if !found.contains(&device) => found.push(device),
                Some(_) => {}
                None => return Vec::new(),
            }
        }
        found
    }
}

impl Stripe {
    /// Creates one engine for all targets of the stripe.
    pub(super) fn engine(&self, spec: &EngineSpec) -> Result<HostEngine, Error> {
        let bits = pieces_bits(&self.layout, spec.depth, spec.slot_bytes)?;
        let files: Option<Vec<Arc<File>>> =
            self.members.iter().map(|member| member.file.clone()).collect();
        let delays: Option<Vec<DelayDevice>> =
            self.members.iter().map(|member| member.delay.clone()).collect();
        let inner = match (spec.engine_kind, files, delays) {
            (EngineKind::Delay, _, Some(devices)) => {
                HostEngine::Delay(Delay::over(devices, bits, spec)?)
            }
            (engine_kind, Some(files), _) if engine_kind.does_io() => {
                HostEngine::on_files(Files::of(files, bits), spec, Hint::Normal)?
            }
            (engine_kind, ..) => {
                let what = format!("`engine` {engine_kind} cannot access this stripe");
                return Err(Error::new(ErrorKind::Usage, what)
                    .with_remedy("use another `engine`, or drop `chunk_bytes`"));
            }
        };
        Ok(HostEngine::Striped(Box::new(Striped::new(inner, self.layout, bits))))
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.layout.bytes(self.members.iter().map(Target::size_bytes).min().unwrap_or(0))
    }

    /// Applies a hint to a range of the stripe, after extending the range to whole rows of chunks.
    pub(super) fn advise(&self, hint: Hint, offset: u64, bytes: u64) -> Result<(), Error> {
        let (from, bytes) = match bytes {
            0 => (self.rows(offset, 1).0, 0),
            bytes => self.rows(offset, bytes),
        };
        self.members.iter().try_for_each(|member| member.advise(hint, from, bytes))
    }

    pub(super) fn reserve(&self, offset: u64, length: u64) -> Result<(), Error> {
        let (from, bytes) = self.rows(offset, length);
        self.members.iter().try_for_each(|member| member.reserve(from, bytes))
    }

    pub(super) fn truncate(&self, size_bytes: u64) -> Result<(), Error> {
        let bytes = self.layout.member_bytes(size_bytes);
        self.members.iter().try_for_each(|member| member.truncate(bytes))
    }

    pub(super) fn scrub(&self) -> Result<Scrub, Error> {
        let each = self.members.iter().map(Target::scrub).collect::<Result<Vec<Scrub>, Error>>()?;
        Ok(Scrub {
            resident_before_bytes: each.iter().map(|scrub| scrub.resident_before_bytes).sum(),
            resident_after_bytes: each.iter().map(|scrub| scrub.resident_after_bytes).sum(),
            dropped_all_caches: each.iter().any(|scrub| scrub.dropped_all_caches),
        })
    }

    pub(super) fn resident_bytes(&self) -> Option<u64> {
        self.members.iter().map(Target::resident_bytes).sum()
    }

    pub(super) fn coverage(&self, offset: u64, length: u64) -> Option<Coverage> {
        let (from, bytes) = self.rows(offset, length);
        self.members.iter().map(|member| member.coverage(from, bytes)).sum()
    }

    /// Converts a range of the stripe to the range that each member stores (offset and length,
    /// bytes). The result is extended to whole chunks, so it is the same on all members.
    fn rows(&self, offset: u64, length: u64) -> (u64, u64) {
        let row = self.layout.chunk_bytes().saturating_mul(self.members.len() as u64);
        let from = offset / row * self.layout.chunk_bytes();
        (from, self.layout.member_bytes(offset.saturating_add(length)).saturating_sub(from))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::host::offers_direct;
    use crate::target::{Caching, TargetKind};

    fn written_file(bytes: usize) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![0xA5; bytes]).unwrap();
        file.as_file().sync_all().unwrap();
        file
    }

    #[test]
    fn a_stripe_uses_whole_rows_of_its_smallest_member() {
        let open = |file: &tempfile::NamedTempFile| {
            HostTarget::open(file.path(), true, Caching::Buffered).unwrap()
        };
        let files = [written_file(1 << 20), written_file((1 << 20) + 5000)];
        let stripe = HostTarget::striped(files.iter().map(open).collect(), 64 << 10).unwrap();
        assert_eq!((stripe.size_bytes(), stripe.kind()), (2 << 20, TargetKind::File));
        assert!(stripe.coverage(0, u64::MAX).is_none_or(|c| c == Coverage::default()));
        if let Some(resident) = stripe.resident_bytes() {
            let scrub = stripe.scrub().unwrap();
            assert_eq!(scrub.resident_before_bytes, Some(resident));
        }
        stripe.truncate(3 * (64 << 10)).unwrap();
        let sizes = files.each_ref().map(|file| file.as_file().metadata().unwrap().len());
        assert_eq!(sizes, [128 << 10; 2], "sizes are rounded up to whole rows");
        stripe.reserve(128 << 10, 128 << 10).unwrap();
        assert_eq!(stripe.size_bytes(), 256 << 10);
        assert_eq!(stripe.device_number(), open(&files[0]).device_number());
    }

    #[test]
    fn members_of_different_kinds_are_refused() {
        let file = written_file(8192);
        let open = || HostTarget::open(file.path(), false, Caching::Buffered).unwrap();
        let error = HostTarget::striped(vec![open(), HostTarget::null(8192)], 4096).unwrap_err();
        assert!(error.to_string().contains("; use only files or only devices"), "{error}");
        if offers_direct(file.path()) {
            let direct = HostTarget::open(file.path(), false, Caching::Direct).unwrap();
            let error = HostTarget::striped(vec![direct], 1000).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("`chunk_bytes` 1000 is not a multiple"), "{error}");
            assert!(error.contains("; use a multiple of ") && !error.contains('{'), "{error}");
        }
    }
}
