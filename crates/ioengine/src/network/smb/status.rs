//! The status codes of a server, and the corresponding error numbers of Linux.
//!
//! Source: MS-ERREF, section 2.3.1. The table contains only codes that this client may receive.

pub(super) const SUCCESS: u32 = 0;
pub(super) const PENDING: u32 = 0x0000_0103;
pub(super) const MORE_PROCESSING_REQUIRED: u32 = 0xc000_0016;
pub(super) const INVALID_PARAMETER: u32 = 0xc000_000d;
pub(super) const END_OF_FILE: u32 = 0xc000_0011;
pub(super) const ACCESS_DENIED: u32 = 0xc000_0022;
pub(super) const OBJECT_NAME_INVALID: u32 = 0xc000_0033;
pub(super) const OBJECT_NAME_NOT_FOUND: u32 = 0xc000_0034;
pub(super) const OBJECT_PATH_INVALID: u32 = 0xc000_0039;
pub(super) const OBJECT_PATH_NOT_FOUND: u32 = 0xc000_003a;
pub(super) const SHARING_VIOLATION: u32 = 0xc000_0043;
pub(super) const NO_SUCH_USER: u32 = 0xc000_0064;
pub(super) const WRONG_PASSWORD: u32 = 0xc000_006a;
pub(super) const LOGON_FAILURE: u32 = 0xc000_006d;
pub(super) const ACCOUNT_RESTRICTION: u32 = 0xc000_006e;
pub(super) const PASSWORD_EXPIRED: u32 = 0xc000_0071;
pub(super) const ACCOUNT_DISABLED: u32 = 0xc000_0072;
pub(super) const MEDIA_WRITE_PROTECTED: u32 = 0xc000_00a2;
pub(super) const FILE_IS_A_DIRECTORY: u32 = 0xc000_00ba;
pub(super) const NOT_SUPPORTED: u32 = 0xc000_00bb;
pub(super) const BAD_NETWORK_NAME: u32 = 0xc000_00cc;
pub(super) const ACCOUNT_LOCKED_OUT: u32 = 0xc000_0234;
pub(super) const PATH_NOT_COVERED: u32 = 0xc000_0257;

/// The known status codes with their names and error numbers.
const KNOWN: &[(u32, &str, i32)] = &[
    (0xc000_0008, "INVALID_HANDLE", libc::ESTALE),
    (INVALID_PARAMETER, "INVALID_PARAMETER", libc::EINVAL),
    (END_OF_FILE, "END_OF_FILE", libc::EIO),
    (ACCESS_DENIED, "ACCESS_DENIED", libc::EACCES),
    (OBJECT_NAME_INVALID, "OBJECT_NAME_INVALID", libc::EINVAL),
    (OBJECT_NAME_NOT_FOUND, "OBJECT_NAME_NOT_FOUND", libc::ENOENT),
    (OBJECT_PATH_INVALID, "OBJECT_PATH_INVALID", libc::EINVAL),
    (OBJECT_PATH_NOT_FOUND, "OBJECT_PATH_NOT_FOUND", libc::ENOENT),
    (SHARING_VIOLATION, "SHARING_VIOLATION", libc::EBUSY),
    (0xc000_0044, "QUOTA_EXCEEDED", libc::EDQUOT),
    (0xc000_0054, "FILE_LOCK_CONFLICT", libc::EACCES),
    (NO_SUCH_USER, "NO_SUCH_USER", libc::EACCES),
    (WRONG_PASSWORD, "WRONG_PASSWORD", libc::EACCES),
    (LOGON_FAILURE, "LOGON_FAILURE", libc::EACCES),
    (ACCOUNT_RESTRICTION, "ACCOUNT_RESTRICTION", libc::EACCES),
    (PASSWORD_EXPIRED, "PASSWORD_EXPIRED", libc::EACCES),
    (ACCOUNT_DISABLED, "ACCOUNT_DISABLED", libc::EACCES),
    (0xc000_007f, "DISK_FULL", libc::ENOSPC),
    (0xc000_009a, "INSUFFICIENT_RESOURCES", libc::ENOMEM),
    (MEDIA_WRITE_PROTECTED, "MEDIA_WRITE_PROTECTED", libc::EROFS),
    (0xc000_00b5, "IO_TIMEOUT", libc::ETIMEDOUT),
    (FILE_IS_A_DIRECTORY, "FILE_IS_A_DIRECTORY", libc::EISDIR),
    (NOT_SUPPORTED, "NOT_SUPPORTED", libc::EOPNOTSUPP),
    (0xc000_00c9, "NETWORK_NAME_DELETED", libc::ESTALE),
    (BAD_NETWORK_NAME, "BAD_NETWORK_NAME", libc::ENOENT),
    (0xc000_00e9, "UNEXPECTED_IO_ERROR", libc::EIO),
    (0xc000_0120, "CANCELLED", libc::ECANCELED),
    (0xc000_0128, "FILE_CLOSED", libc::ESTALE),
    (0xc000_0185, "IO_DEVICE_ERROR", libc::EIO),
    (0xc000_0203, "USER_SESSION_DELETED", libc::ESTALE),
    (0xc000_0205, "INSUFF_SERVER_RESOURCES", libc::ENOMEM),
    (ACCOUNT_LOCKED_OUT, "ACCOUNT_LOCKED_OUT", libc::EACCES),
    (PATH_NOT_COVERED, "PATH_NOT_COVERED", libc::EREMOTE),
    (0xc000_035c, "NETWORK_SESSION_EXPIRED", libc::ESTALE),
];

/// Returns the Linux error number for the status of a failed request. EIO if the status is unknown.
pub(super) fn errno(status: u32) -> i32 {
    KNOWN.iter().find(|known| known.0 == status).map_or(libc::EIO, |known| known.2)
}

/// Returns the name of a status. If the status is unknown, returns its number.
pub(super) fn name(status: u32) -> String {
    let known = KNOWN.iter().find(|known| known.0 == status);
    known.map_or(format!("status {status:#010x}"), |known| format!("STATUS_{}", known.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_failures_have_their_error_numbers() {
        assert_eq!(errno(0xc000_007f), libc::ENOSPC);
        assert_eq!(errno(ACCESS_DENIED), libc::EACCES);
        assert_eq!(errno(0xc000_0128), libc::ESTALE);
        assert_eq!(errno(0xc0de_c0de), libc::EIO);
        assert_eq!(name(ACCESS_DENIED), "STATUS_ACCESS_DENIED");
        assert_eq!(name(0xc0de_c0de), "status 0xc0dec0de");
    }
}
