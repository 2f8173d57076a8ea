//! The peer: a second halfpower process, on the server of a network study. While the client
//! measures, the peer reports the CPU time and I/O of the server. It can also measure how fast the
//! server itself reads a file.
//!
//! `halfpower peer` runs the [`server`], and a study is the [`client`]. Both have the same [`key`].
//! The [`channel`] authenticates both sides with this key and encrypts everything (Noise NNpsk0).
//! An unauthenticated client costs the server only one small message and gets no answer. A
//! [`message`] is JSON with a version. Clients can only ask the server to read the [`counters`] of
//! its machine, and to read a file below one [`folder`] (a [`read_trial`]). They cannot make the
//! server write.

pub mod key;
pub mod channel;
pub mod counters;
pub mod folder;
pub mod message;
pub mod read_trial;
pub mod server;
pub mod client;
