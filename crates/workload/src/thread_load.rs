//! The common interface of workers, which generate a load, and replayers, which replay a recorded
//! load. [`crate::runner`] and [`crate::stepper`] run the threads of a trial through this
//! interface.

use ioengine::{Clock, Engine, Error as EngineError, Target};

use crate::error::Error;
use crate::plan::WorkerPlan;
use crate::replayer::Replayer;
use crate::sample::Sample;
use crate::spec::Workload;
use crate::worker::{State, Worker};

/// The state machine of one thread of a trial.
pub(crate) trait ThreadLoad<C>: Sized {
    /// The I/O engine of the thread.
    type Engine: Engine;

    /// Creates the state machine and its engine on `target`.
    fn build<T: Target<Engine = Self::Engine>>(
        target: &T,
        clock: C,
        workload: &Workload,
        plan: &WorkerPlan,
    ) -> Result<Self, Error>;
    /// Starts the load at `start_ns`. Requests that complete before `measure_from_ns` belong to the
    /// warm-up and are not measured.
    fn start(
        &mut self,
        start_ns: u64,
        measure_from_ns: u64,
        workload: &Workload,
        plan: &WorkerPlan,
    );
    /// Sets the end of the warm-up.
    fn measure_from(&mut self, measure_from_ns: u64);
    /// Makes one call into the engine. If `stop` is true, issues no new requests.
    fn step(&mut self, stop: bool) -> Result<State, EngineError>;
    /// Returns the time by which the next step must run (ns).
    fn wake_up_ns(&mut self, now_ns: u64) -> u64;
    /// Returns true if a request exceeds the hang limit.
    fn is_hung(&self) -> bool;
    /// Flushes with the engine and returns true. Returns false if the engine cannot flush. The
    /// caller must then flush the target.
    fn flush(&mut self) -> Result<bool, EngineError>;
    /// Records that the call that was due on the target has been made. The call began at
    /// `begun_ns`.
    fn called(&mut self, begun_ns: u64);
    /// Returns the measurements so far.
    fn sample(&self) -> &Sample;
    /// Ends the load and returns its sample and its engine.
    fn finish(self) -> (Sample, Self::Engine);
}

impl<E: Engine, C: Clock> ThreadLoad<C> for Worker<E, C> {
    type Engine = E;

    fn build<T: Target<Engine = E>>(
        target: &T,
        clock: C,
        workload: &Workload,
        plan: &WorkerPlan,
    ) -> Result<Self, Error> {
        Ok(Worker::new(target.engine(&workload.engine_spec())?, clock, workload, plan))
    }

    fn start(
        &mut self,
        start_ns: u64,
        measure_from_ns: u64,
        workload: &Workload,
        plan: &WorkerPlan,
    ) {
        Worker::start(self, start_ns, measure_from_ns, workload, plan);
    }

    #[inline]
    fn measure_from(&mut self, measure_from_ns: u64) {
        Worker::measure_from(self, measure_from_ns);
    }

    #[inline]
    fn step(&mut self, stop: bool) -> Result<State, EngineError> {
        Worker::step(self, stop)
    }

    #[inline]
    fn wake_up_ns(&mut self, now_ns: u64) -> u64 {
        Worker::wake_up_ns(self, now_ns)
    }

    fn is_hung(&self) -> bool {
        Worker::is_hung(self)
    }

    fn flush(&mut self) -> Result<bool, EngineError> {
        Worker::flush(self)
    }

    fn called(&mut self, begun_ns: u64) {
        Worker::called(self, begun_ns);
    }

    #[inline]
    fn sample(&self) -> &Sample {
        Worker::sample(self)
    }

    fn finish(self) -> (Sample, E) {
        Worker::finish(self)
    }
}

impl<E: Engine, C: Clock> ThreadLoad<C> for Replayer<E, C> {
    type Engine = E;

    fn build<T: Target<Engine = E>>(
        target: &T,
        clock: C,
        workload: &Workload,
        plan: &WorkerPlan,
    ) -> Result<Self, Error> {
        let engine = target.engine(&workload.engine_spec())?;
        let granule_bytes = target.alignment().offset_bytes;
        Ok(Replayer::new(engine, clock, workload, plan, granule_bytes)?)
    }

    fn start(&mut self, start_ns: u64, _: u64, _: &Workload, _: &WorkerPlan) {
        Replayer::start(self, start_ns);
    }

    /// Does nothing, because a replay has no warm-up.
    fn measure_from(&mut self, _: u64) {}

    #[inline]
    fn step(&mut self, stop: bool) -> Result<State, EngineError> {
        Replayer::step(self, stop)
    }

    #[inline]
    fn wake_up_ns(&mut self, now_ns: u64) -> u64 {
        Replayer::wake_up_ns(self, now_ns)
    }

    fn is_hung(&self) -> bool {
        Replayer::is_hung(self)
    }

    fn flush(&mut self) -> Result<bool, EngineError> {
        Replayer::flush(self)
    }

    fn called(&mut self, begun_ns: u64) {
        Replayer::called(self, begun_ns);
    }

    #[inline]
    fn sample(&self) -> &Sample {
        Replayer::sample(self)
    }

    fn finish(self) -> (Sample, E) {
        Replayer::finish(self)
    }
}
