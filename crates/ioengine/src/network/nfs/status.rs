//! The status codes of NFS 4.1 (RFC 8881, section 15.1), with their names, explanations for users,
//! and the corresponding error numbers of Linux.

/// NFS4_OK: the operation succeeded.
pub(super) const OK: u32 = 0;
/// NFS4ERR_DELAY: the server is busy, and the client should try again later.
pub(super) const DELAY: u32 = 10_008;
/// NFS4ERR_GRACE: the server was restarted, and for now only its earlier clients may open files.
pub(super) const GRACE: u32 = 10_013;
/// NFS4ERR_COMPLETE_ALREADY: the client has already sent RECLAIM_COMPLETE.
pub(super) const COMPLETE_ALREADY: u32 = 10_054;

/// The explanation of a status code for users.
struct Known {
    status: u32,
    /// The name in the specification, without the prefix `NFS4ERR_`.
    name: &'static str,
    /// A description of the error, for example "permission denied".
    what: &'static str,
    remedy: &'static str,
}

const fn known(status: u32, name: &'static str, what: &'static str, remedy: &'static str) -> Known {
    Known { status, name, what, remedy }
}

const PATH: &str = "check the path, which begins at the root of the server's NFS 4 exports";
const RIGHTS: &str = "check the owner and the mode of the file, and the options of the export";
const LOG: &str = "check the log of the server";
const LATER: &str = "try again later";

#[rustfmt::skip]
const KNOWN: [Known; 24] = [
    known(1, "PERM", "not permitted",
        "check the options of the export: clients on unprivileged ports need `insecure`"),
    known(2, "NOENT", "there is no such file or directory", PATH),
    known(5, "IO", "input/output error on the server", LOG),
    known(13, "ACCESS", "permission denied", RIGHTS),
    known(20, "NOTDIR", "a part of the path is not a directory", PATH),
    known(21, "ISDIR", "this is a directory", "specify a file"),
    known(28, "NOSPC", "no space left on the server", "free space on the server"),
    known(30, "ROFS", "the export is read-only", "use `rw=read`, or use another export"),
    known(63, "NAMETOOLONG", "a part of the path is too long", PATH),
    known(70, "STALE", "the file was removed", PATH),
    known(DELAY, "DELAY", "the server is busy", LATER),
    known(10_011, "EXPIRED", "the lease has expired", LATER),
    known(GRACE, "GRACE", "the server was restarted and accepts no new clients yet", LATER),
    known(10_015, "SHARE_DENIED", "another client has opened the file and denies access to it",
        "close the file in that client"),
    known(10_016, "WRONGSEC", "the export requires another security flavor, such as Kerberos",
        "allow sec=sys for the export"),
    known(10_018, "RESOURCE", "the server is short of resources", LATER),
    known(10_019, "MOVED", "the file system is on another server", "specify that server"),
    known(10_021, "MINOR_VERS_MISMATCH", "the server does not support NFS 4.1",
        "enable version 4.1 on the server"),
    known(10_029, "SYMLINK", "this is a symbolic link", "specify its target instead"),
    known(10_041, "BADNAME", "a part of the path is not a valid name", PATH),
    known(10_047, "ADMIN_REVOKED", "an administrator revoked the access", LATER),
    known(10_052, "BADSESSION", "the session has expired", LATER),
    known(10_078, "DEADSESSION", "the session has ended", LATER),
    known(10_083, "WRONG_TYPE", "this is not a regular file", "specify a regular file"),
];

/// Describes an error, with the name or the number of its status code.
pub(super) fn describe(status: u32) -> String {
    match find(status) {
        Some(known) => format!("{} (NFS4ERR_{})", known.what, known.name),
        None => format!("NFS error {status}"),
    }
}

/// Returns what a user can do if a file cannot be opened because of an error.
pub(super) fn remedy(status: u32) -> &'static str {
    find(status).map_or(LOG, |known| known.remedy)
}

fn find(status: u32) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.status == status)
}

/// Returns true if the status means that the server has discarded the open file, or that it has
/// discarded the state of the whole client. No further request on this connection can then succeed.
pub(super) fn ends_the_connection(status: u32) -> bool {
    // The codes are EXPIRED, STALE_CLIENTID, STALE_STATEID, OLD_STATEID, BAD_STATEID and
    // ADMIN_REVOKED.
    matches!(status, 10_011 | 10_022..=10_025 | 10_047)
}

/// Returns the Linux error number for a status code other than [`OK`].
pub(super) fn errno(status: u32) -> i32 {
    match status {
        1 => libc::EPERM,
        2 => libc::ENOENT,
        6 => libc::ENXIO,
        13 | 10_015 => libc::EACCES,
        21 => libc::EISDIR,
        22 => libc::EINVAL,
        27 => libc::EFBIG,
        28 => libc::ENOSPC,
        30 => libc::EROFS,
        69 => libc::EDQUOT,
        // The codes are STALE, BADHANDLE and FHEXPIRED.
        70 | 10_001 | 10_014 => libc::ESTALE,
        10_004 => libc::EOPNOTSUPP,
        DELAY | GRACE => libc::EAGAIN,
        // LOCKED: another client holds a mandatory lock.
        10_012 => libc::EBUSY,
        // OPENMODE: the file is not open for this operation.
        10_038 => libc::EBADF,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_a_name_a_remedy_and_an_error_number() {
        assert_eq!(describe(30), "the export is read-only (NFS4ERR_ROFS)");
        assert_eq!(remedy(30), "use `rw=read`, or use another export");
        assert_eq!((describe(12_345), errno(12_345)), ("NFS error 12345".into(), libc::EIO));
        assert_eq!(
            [28, 13, 5, 70].map(errno),
            [libc::ENOSPC, libc::EACCES, libc::EIO, libc::ESTALE]
        );
        assert!(ends_the_connection(10_025) && !ends_the_connection(70));
    }

    #[test]
    fn the_table_is_sorted_so_that_no_status_is_in_it_twice() {
        assert!(KNOWN.is_sorted_by(|a, b| a.status < b.status));
    }
}
