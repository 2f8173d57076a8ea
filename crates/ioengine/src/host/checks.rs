//! Checks whether a target supports polled requests, uncached requests and the engine `nvme`.

use std::fs::File;
use std::sync::Arc;

use crate::device::Device;
use crate::engine::{EngineSpec, POLL_REMEDY, character_device, probe_polled_read};
use crate::error::{Error, ErrorKind};
use crate::host::HostTarget;
use crate::sys;

impl HostTarget {
    /// Returns an error if the device does not support polled requests. sysfs is checked first,
    /// because without poll queues some kernels silently use interrupts. Then a polled read is
    /// tried.
    pub(super) fn check_polled(&self, file: &Arc<File>) -> Result<(), Error> {
        let refuse = |what: String| {
            Err(Error::new(ErrorKind::Unsupported, what)
                .with_remedy(format!("{POLL_REMEDY}, or drop `hipri`")))
        };
        let polled = |device: &Device| {
            std::fs::read_to_string(device.disk().join("queue/io_poll"))
                .map_or(true, |text| text.trim() != "0")
        };
        if let Some(device) = self.device.as_ref().filter(|device| !polled(device)) {
            let (disk, name) = (device.info().name, &self.name);
            return refuse(format!("`hipri`: {disk}, which stores {name}, has no poll queues"));
        }
        let bytes = self.alignment.offset_bytes.max(512);
        match probe_polled_read(Arc::clone(file), bytes)?.outcome() {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                refuse(format!("`hipri`: {} does not complete polled requests", self.name))
            }
            Err(error) => Err(Error::io(format!("trying a polled read of {}", self.name), error)),
        }
    }

    /// Returns an error if the engine `nvme` cannot use the target. The target must be a whole NVMe
    /// namespace. Requests must not be longer than the drive accepts: the engine bypasses the block
    /// layer, so nothing splits them.
    pub(super) fn check_commands(&self, spec: &EngineSpec) -> Result<(), Error> {
        let usage = |what: String, remedy: String| {
            Err(Error::new(ErrorKind::Usage, what).with_remedy(remedy))
        };
        let device = self.block_device().filter(|device| device.whole().is_none());
        let Some(device) = device.filter(|device| character_device(&device.name()).is_some())
        else {
            let what = format!("`engine` nvme needs a whole NVMe namespace, not {}", self.name);
            return usage(what, "use a target such as /dev/nvme0n1, or `engine` io_uring".into());
        };
        let number = |path: &str| device.text(path).and_then(|text| text.parse::<u64>().ok());
        let most = number("queue/max_hw_sectors_kb").map_or(u64::MAX, |kib| kib * 1024);
        if u64::from(spec.slot_bytes) > most {
            let what = format!("{} accepts commands of at most {most} bytes", self.name);
            return usage(what, format!("use a `request_bytes` of at most {most}"));
        }
        if spec.options.zone_append {
            let most = number("queue/zone_append_max_bytes").unwrap_or(0);
            if self.zones.is_none() || most == 0 {
                let what = format!("`zone_append`: {} has no zones to append to", self.name);
                return usage(what, "drop `zone_append`".to_owned());
            }
            if u64::from(spec.slot_bytes) > most {
                let what = format!("{} appends at most {most} bytes per command", self.name);
                return usage(what, format!("use a `request_bytes` of at most {most}"));
            }
        }
        if spec.options.io_poll && number("queue/io_poll") != Some(1) {
            let what = format!("`hipri`: {} has no poll queues", self.name);
            return usage(what, format!("{POLL_REMEDY}, or drop `hipri`"));
        }
        Ok(())
    }

    /// Returns an error if the kernel or the file system does not support uncached requests.
    pub(super) fn check_uncached(&self, file: &File) -> Result<(), Error> {
        match sys::reads_uncached(file) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                let of = self.mount.as_ref().map_or("this device", |mount| &mount.file_system);
                let what =
                    format!("`uncached`: this kernel does not support RWF_DONTCACHE on {of}");
                Err(Error::new(ErrorKind::Unsupported, what).with_remedy(
                    "use `hint` noreuse, or Linux 6.14 or later with a file system that supports \
                     RWF_DONTCACHE (see halfpower engines)",
                ))
            }
            Err(error) => Err(Error::io(format!("trying uncached reads of {}", self.name), error)),
        }
    }
}
