//! Stub.
pub mod document;
