//! The clients of network protocols against real servers, which each test starts for itself on a
//! port of the loopback interface and stops again. Without the server's program a test is skipped.

mod fixture;
mod iscsi;
mod nfs;
mod s3;
mod smb;
