//! The peer: a second halfpower process, on the server of a network study. The peer reports the CPU
//! time and I/O of the server while the client measures, and how fast the server itself reads a
//! file.
//!
//! `halfpower peer` runs the [`server`], and a study is the [`client`]. Both sides have the same
//! [`key`]. The [`channel`] authenticates both sides with this key and encrypts everything (Noise
//! NNpsk0). An unauthenticated client costs the server only one small message and gets no answer. A
//! [`message`] is JSON with a version. The server reads the [`counters`] of its machine, and files
//! below one [`folder`] in a [`read_trial`]. It never writes.

pub mod key;
pub mod channel;
pub mod counters;
pub mod folder;
pub mod message;
pub mod read_trial;
pub mod server;
pub mod client;
