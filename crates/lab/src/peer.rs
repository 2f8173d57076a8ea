//! A second halfpower, on the server of a network study. It reports what CPU time and I/O the
//! server spends while the client measures, and how fast the server itself reads a file.
//!
//! `halfpower peer` is the [`server`]; a study is its [`client`]. Both have the same [`key`]. The
//! [`channel`] authenticates both sides with it and encrypts everything (Noise NNpsk0), so that an
//! unauthenticated client costs the server one small message and gets no answer. A [`message`] is
//! JSON with a version. The server reads [`counters`] of its machine, and files below one
//! [`folder`] in a [`read_trial`]; it never writes.

pub mod key;
pub mod channel;
pub mod counters;
pub mod folder;
pub mod message;
pub mod read_trial;
pub mod server;
pub mod client;
