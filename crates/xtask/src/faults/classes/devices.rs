//! Fault classes of devices: devices that fail or disappear while they are measured, that have less
//! space than they report, or that two runs write to at the same time.

use super::Class;
use super::transfers::depth;
use crate::faults::device::{LoopDevice, Served, Volume};
use crate::faults::place::{Context, ENGINES, MIB, Place, strays};
use crate::faults::running::pause;
use crate::faults::tally::{Check, Tally, ensure};
use anyhow::Result;
use std::fs::File;

pub const CLASSES: &[Class] = &[
    Class {
        word: "broken",
        fault: "a device whose second half fails while it is measured",
        made: "the image file of a loop device is truncated",
        must: "exit 1; the message states offset and cause; the run is stored as failed",
        run: broken,
    },
    Class {
        word: "server-dies",
        fault: "a device that disappears",
        made: "the FUSE server is killed while its file is measured",
        must: "exit 1; the message states offset and cause; the run is stored as failed",
        run: server_dies,
    },
    Class {
        word: "detached",
        fault: "a device that is detached during the run",
        made: "`losetup -d`; the kernel detaches the device when the run closes it",
        must: "the run completes normally",
        run: detached,
    },
    Class {
        word: "unmounted",
        fault: "a file system that is unmounted during the run",
        made: "`umount -l`; the file system is mounted again later",
        must: "the run completes; `clean` later removes the test file that the run could \
               not remove",
        run: unmounted,
    },
    Class {
        word: "thin",
        fault: "a thin-provisioned device that runs out of space",
        made: "a run writes to a loop device whose sparse image is larger than its file system",
        must: "exit 1; the message states offset and cause; the run is stored as failed",
        run: thin,
    },
    Class {
        word: "two-at-once",
        fault: "two runs that write to the same device",
        made: "a second run with `--destroy-data-on` is started during the first",
        must: "the second run is refused (exit 3); the first run completes",
        run: two_at_once,
    },
];

fn broken(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for rw in ["read", "randread"] {
            let (place, device) = (context.place()?, LoopDevice::new(context, 8 * MIB)?);
            let (path, depth) = (&device.path, depth(engine));
            let line = format!(
                "run {path} --rw {rw} --bs 64k --size 8m --time-based --runtime 20 --iodepth \
                 {depth} --ioengine {engine} --trials 1 --quiet"
            );
            let mut running = place.start(&line)?;
            place.wait_for_trial(&mut running)?;
            pause(100 + context.below(200));
            device.break_half()?;
            let ended = running.ended()?;
            tally.detected(&line, ended.fails(1, &["ing at offset", "error", "; "]));
            tally.also_detected(&line, place.newest_is("failed"));
        }
    }
    Ok(tally)
}

fn thin(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for rw in ["write", "randwrite"] {
            let (place, volume) = (context.place()?, Volume::new(context, 32 * MIB)?);
            let image = volume.folder().join("image");
            File::create(&image)?.set_len(64 * MIB)?;
            let device = LoopDevice::on(image)?;
            let (path, depth) = (&device.path, depth(engine));
            let line = format!(
                "run {path} --destroy-data-on={path} --rw {rw} --bs 64k --size 64m --iodepth \
                 {depth} --ioengine {engine} --trials 1 --quiet"
            );
            tally.detected(&line, place.run(&line)?.fails(1, &["writing at offset", "; "]));
            tally.also_detected(&line, place.newest_is("failed"));
            drop(device);
        }
    }
    Ok(tally)
}

fn server_dies(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for rw in ["randread", "randwrite"] {
            let place = context.place()?;
            let mut device = Served::new(context, "fixed=200us,parallel=4", "--size 4m")?;
            let (file, depth) = (device.file(), depth(engine));
            let line = format!(
                "run {file} --overwrite={file} --rw {rw} --bs 4k --time-based --runtime 20 \
                 --iodepth {depth} --ioengine {engine} --trials 1 --allow-holes --quiet"
            );
            let mut running = place.start(&line)?;
            place.wait_for_trial(&mut running)?;
            pause(100 + context.below(300));
            device.kill_server();
            tally.detected(&line, running.ended()?.fails(1, &["ing at offset", "; "]));
            tally.also_detected(&line, place.newest_is("failed"));
        }
    }
    Ok(tally)
}

fn detached(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        let (place, device) = (context.place()?, LoopDevice::new(context, 8 * MIB)?);
        let line = format!(
            "run {} --rw randread --time-based --runtime 1 --ioengine {engine} --trials 1 -q",
            device.path
        );
        let mut running = place.start(&line)?;
        place.wait_for_trial(&mut running)?;
        device.detach()?;
        tally.detected(&line, running.ended()?.ends_with(0));
        tally.also_detected(&line, place.newest_is("finished"));
    }
    Ok(tally)
}

fn unmounted(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        let (place, volume) = (context.place()?, Volume::new(context, 48 * MIB)?);
        let folder = volume.folder();
        let line = format!(
            "run {} --size 4m --rw randrw --time-based --runtime 1 --ioengine {engine} --trials 1 \
             -q",
            folder.display()
        );
        let mut running = place.start(&line)?;
        place.wait_for_trial(&mut running)?;
        pause(100);
        volume.unmount_lazily()?;
        tally.detected(&line, running.ended()?.ends_with(0));
        // The run could not remove its test file, because the file system was unmounted. `clean`
        // can remove the file only after the file system is mounted again.
        tally.kept(&line, cleans(&place, "absent"));
        volume.mount()?;
        tally.kept(
            &line,
            ensure(!strays(folder).is_empty(), || {
                "the test file of the run is missing".to_string()
            }),
        );
        tally.kept(&line, cleans(&place, "removed").and_then(|()| place.is_tidy()));
        tally.kept(
            &line,
            ensure(strays(folder).is_empty(), || "the leftover test file still exists".to_string()),
        );
    }
    Ok(tally)
}

/// Checks that the output of `halfpower clean` starts with `word`.
fn cleans(place: &Place<'_>, word: &str) -> Check {
    let ended = place.run("clean").map_err(|error| error.to_string())?;
    ended.ends_with(0)?;
    ensure(ended.stdout.starts_with(word), || {
        format!("the output of `clean` does not start with '{word}': {}", ended.stdout)
    })
}

fn two_at_once(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        let (first, second) = (context.place()?, context.place()?);
        let device = LoopDevice::new(context, 8 * MIB)?;
        let path = &device.path;
        let line = format!(
            "run {path} --destroy-data-on={path} --rw randwrite --time-based --runtime 1 \
             --ioengine {engine} --trials 1 --quiet"
        );
        let mut running = first.start(&line)?;
        first.wait_for_trial(&mut running)?;
        tally.detected(&line, second.run(&line)?.fails(3, &["cannot be claimed"]));
        tally.kept(
            &line,
            ensure(!second.path("halfpower.db").exists(), || {
                "the refused run created a database".into()
            }),
        );
        tally.kept(&line, running.ended()?.ends_with(0));
    }
    Ok(tally)
}
