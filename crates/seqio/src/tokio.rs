//! Implements the traits [`AsyncRead`], [`AsyncBufRead`] and [`AsyncWrite`] of tokio for readers
//! and writers.
//!
//! Available data are returned immediately on the task's thread. If no data are available, one of
//! tokio's blocking threads waits for the next block (about 1 MiB). Meanwhile, other requests stay
//! in flight.

use std::future::Future;
use std::io::{self, BufRead, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{Reader, Writer};

/// A value that is available here, in use on a blocking thread, or lost in a panic.
#[derive(Debug)]
enum Place<T, R> {
    Here(Box<T>),
    Away(JoinHandle<(Box<T>, io::Result<R>)>),
    Lost,
}

impl<T: Send + 'static, R: Send + 'static> Place<T, R> {
    /// Starts an operation on a blocking thread.
    fn send(&mut self, what: impl FnOnce(&mut T) -> io::Result<R> + Send + 'static) {
        if let Place::Here(mut there) = std::mem::replace(self, Place::Lost) {
            *self = Place::Away(spawn_blocking(move || {
                let done = what(&mut there);
                (there, done)
            }));
        }
    }

    /// Waits for the operation that [`Place::send`] started, and returns its result. None if no
    /// operation was started.
    fn back(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<R>>> {
        match self {
            Place::Here(_) => Poll::Ready(Ok(None)),
            Place::Lost => Poll::Ready(Err(io::Error::other("an earlier operation panicked"))),
            Place::Away(handle) => {
                let joined = ready!(Pin::new(handle).poll(context));
                *self = Place::Lost;
                let (there, done) = joined.map_err(io::Error::other)?;
                *self = Place::Here(there);
                Poll::Ready(done.map(Some))
            }
        }
    }
}

/// A [`Reader`] for async tasks.
#[derive(Debug)]
pub struct AsyncReader {
    place: Place<Reader, bool>,
}

impl From<Reader> for AsyncReader {
    fn from(reader: Reader) -> AsyncReader {
        AsyncReader { place: Place::Here(Box::new(reader)) }
    }
}

impl AsyncReader {
    /// Waits until data are available. Returns false at the end of the file.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            if let Some(any) = ready!(self.place.back(context))? {
                return Poll::Ready(Ok(any));
            }
            let Place::Here(reader) = &mut self.place else { continue };
            if reader.is_at_hand()? {
                return Poll::Ready(Ok(true));
            }
            self.place.send(|reader| reader.fill_buf().map(|ready| !ready.is_empty()));
        }
    }

    fn reader(&mut self) -> io::Result<&mut Reader> {
        match &mut self.place {
            Place::Here(reader) => Ok(reader),
            _ => Err(io::Error::other("the reader is in use on another thread")),
        }
    }
}

impl AsyncBufRead for AsyncReader {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if ready!(this.poll_ready(context))? {
            Poll::Ready(this.reader()?.fill_buf())
        } else {
            Poll::Ready(Ok(&[]))
        }
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        if let Place::Here(reader) = &mut self.get_mut().place {
            reader.consume(amount);
        }
    }
}

impl AsyncRead for AsyncReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if into.remaining() == 0 || !ready!(this.poll_ready(context))? {
            return Poll::Ready(Ok(()));
        }
        let reader = this.reader()?;
        let ready = reader.fill_buf()?;
        let amount = ready.len().min(into.remaining());
        into.put_slice(&ready[..amount]);
        reader.consume(amount);
        Poll::Ready(Ok(()))
    }
}

/// A [`Writer`] for async tasks. `shutdown` finishes the file. If the writer is dropped without
/// `shutdown`, the drop writes the remaining data, which blocks the thread.
#[derive(Debug)]
pub struct AsyncWriter {
    place: Place<Option<Writer>, ()>,
}

impl From<Writer> for AsyncWriter {
    fn from(writer: Writer) -> AsyncWriter {
        AsyncWriter { place: Place::Here(Box::new(Some(writer))) }
    }
}

fn is_flushed(writer: &Option<Writer>) -> bool {
    writer.as_ref().is_none_or(Writer::is_flushed)
}

/// Runs an operation, unless the writer is already finished.
fn with(
    writer: &mut Option<Writer>,
    what: impl FnOnce(&mut Writer) -> io::Result<()>,
) -> io::Result<()> {
    writer.as_mut().map_or(Ok(()), what)
}

impl AsyncWrite for AsyncWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            ready!(this.place.back(context))?;
            let Place::Here(writer) = &mut this.place else { continue };
            let Some(writer) = writer.as_mut() else {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            };
            if data.is_empty() || writer.has_room()? {
                return Poll::Ready(writer.write(data));
            }
            this.place.send(|writer| with(writer, |writer| writer.space().map(drop)));
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            ready!(this.place.back(context))?;
            if matches!(&this.place, Place::Here(writer) if is_flushed(writer)) {
                return Poll::Ready(Ok(()));
            }
            this.place.send(|writer| with(writer, Writer::flush_all));
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            ready!(this.place.back(context))?;
            if matches!(&this.place, Place::Here(writer) if writer.is_none()) {
                return Poll::Ready(Ok(()));
            }
            this.place.send(|writer| writer.take().map_or(Ok(()), |w| w.finish().map(drop)));
        }
    }
}
