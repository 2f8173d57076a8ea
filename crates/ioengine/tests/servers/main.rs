//! Tests the clients of network protocols with real servers. Each test starts its own server on a
//! port of the loopback interface and stops it at the end. A test is skipped if the server's
//! program is not installed.

mod fixture;
mod iscsi;
mod nfs;
mod s3;
mod smb;
