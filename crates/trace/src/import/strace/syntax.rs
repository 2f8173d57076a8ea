//! Parses a line of strace output into the thread, the time, and the call with its arguments and
//! result.

use crate::import::lines::seconds_ns;

/// The event that a line reports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    /// A complete call: its name, and the text after the opening parenthesis.
    Call(&'a str, &'a str),
    /// The first part of a call that strace interrupted to print another event: the name, and the
    /// text after the opening parenthesis.
    Unfinished(&'a str, &'a str),
    /// The second part of an interrupted call: the name, and the text of this part.
    Resumed(&'a str, &'a str),
    /// The thread ended.
    Exited,
    /// The thread received a signal.
    Signal,
}

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Thread id, or 0 if strace traced a single thread.
    pub thread: u32,
    pub at_ns: u64,
    pub said: Said<'a>,
}

const UNFINISHED: &str = "<unfinished ...>";

/// Parses a line. None if the text is not a line of `strace -ttt`.
pub(crate) fn line(text: &str) -> Option<Line<'_>> {
    let text = text.trim();
    let (thread, rest) = match text.strip_prefix("[pid") {
        Some(rest) => {
            let (thread, rest) = rest.split_once(']')?;
            (thread.trim().parse().ok()?, rest)
        }
        None => match text.split_once(char::is_whitespace)? {
            (first, rest) if !first.contains('.') => (first.parse().ok()?, rest),
            _ => (0, text),
        },
    };
    let (time, rest) = rest.trim_start().split_once(char::is_whitespace)?;
    let at_ns = time.contains('.').then(|| seconds_ns(time))??;
    Some(Line { thread, at_ns, said: said(rest.trim_start())? })
}

fn said(text: &str) -> Option<Said<'_>> {
    if text.starts_with("+++") {
        return Some(Said::Exited);
    }
    if text.starts_with("---") {
        return Some(Said::Signal);
    }
    if let Some(resumed) = text.strip_prefix("<... ") {
        let (name, rest) = resumed.split_once(" resumed>")?;
        return Some(Said::Resumed(name, rest));
    }
    let (name, rest) = text.split_once('(')?;
    let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '?');
    if name.is_empty() || !name.chars().all(of_name) {
        return None;
    }
    // Without `-o`, strace can print "strace: Process N attached" in the middle of the line of a
    // call. The call is then unfinished.
    let attached = rest.find("strace: Process ").filter(|_| rest.ends_with(" attached"));
    match rest.strip_suffix(UNFINISHED).or_else(|| attached.map(|at| &rest[..at])) {
        Some(begun) => Some(Said::Unfinished(name, begun)),
        None => Some(Said::Call(name, rest)),
    }
}

/// The arguments and the result of a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    pub arguments: Vec<&'a str>,
    /// None if the call did not return.
    pub result: Option<i64>,
    /// What `-y` prints for the returned descriptor, such as a path. None without `-y`.
    pub returned: Option<&'a str>,
    pub latency_ns: Option<u64>,
}

/// Splits the text after the opening parenthesis of a call into arguments, result and latency.
pub(crate) fn parts(text: &str) -> Option<Parts<'_>> {
    let mut arguments = Vec::new();
    let bytes = text.as_bytes();
    let (mut depth, mut from, mut at) = (0_u32, 0, 0);
    loop {
        match *bytes.get(at)? {
            b'"' => {
                at += 1;
                while *bytes.get(at)? != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'<' if text[..at].ends_with(|c: char| c.is_ascii_digit())
                || text[..at].ends_with("AT_FDCWD") =>
            {
                at += name_end(&bytes[at..])?;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => break,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                arguments.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    let last = text[from..at].trim();
    if !last.is_empty() || !arguments.is_empty() {
        arguments.push(last);
    }
    let rest = text[at + 1..].trim_start().strip_prefix('=')?.trim();
    let (rest, latency_ns) = match rest.strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
        Some((rest, time)) if seconds_ns(time).is_some() => (rest.trim_end(), seconds_ns(time)),
        _ => (rest, None),
    };
    let (result, returned) = result(rest)?;
    Some(Parts { arguments, result, returned, latency_ns })
}

/// Finds the `>` after the name of a descriptor. In the name of a socket, such as
/// `TCP:[::1:80->::1:90]`, the `>` in brackets does not count.
fn name_end(bytes: &[u8]) -> Option<usize> {
    let mut brackets = 0_u32;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'[' => brackets += 1,
            b']' => brackets = brackets.saturating_sub(1),
            b'>' if brackets == 0 => return Some(at),
            _ => {}
        }
    }
    // A path may contain a bracket that is never closed. Then the first `>` ends the name.
    bytes.iter().position(|byte| *byte == b'>')
}

fn result(text: &str) -> Option<(Option<i64>, Option<&str>)> {
    if text.starts_with('?') {
        return Some((None, None));
    }
    let end = text.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if let Some(digits) = number.strip_prefix("0x") {
        return Some((u64::from_str_radix(digits, 16).ok().map(u64::cast_signed), None));
    }
    let number: i64 = number.parse().ok()?;
    if number == -1 {
        let name = rest.split_whitespace().next().unwrap_or_default();
        return Some((Some(-error_number(name)), None));
    }
    let returned = rest.strip_prefix('<').and_then(|rest| Some(&rest[..rest.rfind('>')?]));
    Some((Some(number), returned))
}

/// Parses the descriptor at the beginning of an argument, and its name if strace ran with `-y`.
pub(crate) fn descriptor(argument: &str) -> Option<(i32, Option<&str>)> {
    let (number, name) = match argument.split_once('<') {
        Some((number, name)) => (number, name.rfind('>').map(|end| &name[..end])),
        None => (argument, None),
    };
    Some((number.trim().parse().ok()?, name))
}

/// Parses a quoted string, such as a path, and resolves its escape sequences.
pub(crate) fn quoted(argument: &str) -> Option<String> {
    let inner = argument.trim().trim_end_matches('.').strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next()? {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'v' => bytes.push(0x0b),
            b'f' => bytes.push(0x0c),
            digit @ b'0'..=b'7' => {
                let mut number = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(digit) = rest.next_if(|byte| (b'0'..=b'7').contains(byte)) else {
                        break;
                    };
                    number = number * 8 + u32::from(digit - b'0');
                }
                bytes.push(number as u8);
            }
            other => bytes.push(other),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the error number for a name such as `ENOENT` (errno(3)). The numbers are those of Linux
/// on most architectures. Unknown names count as EIO.
fn error_number(name: &str) -> i64 {
    const UNKNOWN: i64 = 5;
    let name = if name == "EWOULDBLOCK" { "EAGAIN" } else { name };
    let at = ERRORS.split_whitespace().position(|known| known == name);
    at.map_or(UNKNOWN, |at| at as i64 + 1)
}

/// Error names in the order of their numbers, which start at 1. `-` marks an unused number.
const ERRORS: &str = "\
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT \
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG \
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY \
    ELOOP - ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR \
    EXFULL ENOANO EBADRQC EBADSLT - EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE \
    ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG \
    ELIBACC ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK \
    EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP \
    EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET \
    ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT \
    ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL \
    EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED \
    EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON";
