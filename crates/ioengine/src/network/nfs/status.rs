//! The status codes of NFS 4.1 (RFC 8881, section 15.1): their names, what they mean for a user,
//! and the error numbers of Linux that stand for them.

/// NFS4_OK.
pub(super) const OK: u32 = 0;
/// NFS4ERR_DELAY: the server asks to try again later.
pub(super) const DELAY: u32 = 10_008;
/// NFS4ERR_GRACE: only clients from before the restart of the server may open files.
pub(super) const GRACE: u32 = 10_013;
/// NFS4ERR_COMPLETE_ALREADY: RECLAIM_COMPLETE was sent before.
pub(super) const COMPLETE_ALREADY: u32 = 10_054;

/// A status code that a user may meet.
struct Known {
    status: u32,
    /// The name in the specification, without NFS4ERR_.
    name: &'static str,
    /// What is wrong, as the rest of a sentence after a colon.
    what: &'static str,
    remedy: &'static str,
}

const fn known(status: u32, name: &'static str, what: &'static str, remedy: &'static str) -> Known {
    Known { status, name, what, remedy }
}

const PATH: &str = "check the path, which begins at the root of the server's NFS 4 exports";
const RIGHTS: &str = "check the owner and the mode of the file, and the options of the export";
const LOG: &str = "look into the log of the server";
const LATER: &str = "try again later";

#[rustfmt::skip]
const KNOWN: [Known; 24] = [
    known(1, "PERM", "not permitted",
        "check the options of the export: clients on unprivileged ports need `insecure`"),
    known(2, "NOENT", "there is no such file or directory", PATH),
    known(5, "IO", "input/output error on the server", LOG),
    known(13, "ACCESS", "permission denied", RIGHTS),
    known(20, "NOTDIR", "a part of the path is no directory", PATH),
    known(21, "ISDIR", "it is a directory", "name a file"),
    known(28, "NOSPC", "no space left on the server", "free space on the server"),
    known(30, "ROFS", "the export is read-only", "use `rw` read, or another export"),
    known(63, "NAMETOOLONG", "a part of the path is too long", PATH),
    known(70, "STALE", "the file was removed", PATH),
    known(DELAY, "DELAY", "the server is busy", LATER),
    known(10_011, "EXPIRED", "the lease has expired", LATER),
    known(GRACE, "GRACE", "the server was restarted and accepts no new clients yet", LATER),
    known(10_015, "SHARE_DENIED", "another client has opened the file and denies access to it",
        "close the file there"),
    known(10_016, "WRONGSEC", "the export requires another security flavor, such as Kerberos",
        "allow sec=sys for the export"),
    known(10_018, "RESOURCE", "the server is short of resources", LATER),
    known(10_019, "MOVED", "the file system is on another server", "name that server"),
    known(10_021, "MINOR_VERS_MISMATCH", "the server does not support NFS 4.1",
        "enable version 4.1 on the server"),
    known(10_029, "SYMLINK", "it is a symbolic link", "name the file that it points to"),
    known(10_041, "BADNAME", "a part of the path is no valid name", PATH),
    known(10_047, "ADMIN_REVOKED", "an administrator revoked the access", LATER),
    known(10_052, "BADSESSION", "the session has expired", LATER),
    known(10_078, "DEADSESSION", "the session has ended", LATER),
    known(10_083, "WRONG_TYPE", "it is no regular file", "name a regular file"),
];

/// What is wrong, with the name or the number of the status code.
pub(super) fn describe(status: u32) -> String {
    match find(status) {
        Some(known) => format!("{} (NFS4ERR_{})", known.what, known.name),
        None => format!("error {status} of NFS"),
    }
}

/// What a user can do about a failure while a file is opened.
pub(super) fn remedy(status: u32) -> &'static str {
    find(status).map_or(LOG, |known| known.remedy)
}

fn find(status: u32) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.status == status)
}

/// Whether the server has discarded the open file, or the whole client, so that no request on this
/// connection can succeed any more.
pub(super) fn ends_the_connection(status: u32) -> bool {
    // EXPIRED, STALE_CLIENTID, STALE_STATEID, OLD_STATEID, BAD_STATEID, ADMIN_REVOKED.
    matches!(status, 10_011 | 10_022..=10_025 | 10_047)
}

/// The error number of Linux for a status code other than [`OK`].
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
        // STALE, BADHANDLE, FHEXPIRED.
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
        assert_eq!(remedy(30), "use `rw` read, or another export");
        assert_eq!((describe(12_345), errno(12_345)), ("error 12345 of NFS".into(), libc::EIO));
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
