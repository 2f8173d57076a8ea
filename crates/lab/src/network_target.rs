//! Network targets: files, disks and objects of a server, specified by an address such as
//! `nbd://host/export`.
//!
//! A network target must exist on the server. Writing to it needs `--overwrite` with the same
//! address, because its content is lost. Only `study objects` creates objects. It creates them in a
//! new folder below the prefix that the user specified, and removes them at the end.

use std::env;
use std::path::{Path, PathBuf};

use ioengine::network::object::{ObjectClient, PayloadSignature};
use ioengine::network::{Access, Address, Credentials, Scheme};
use ioengine::{EngineKind, HostTarget};

use crate::experiment::{Allocation, Experiment, HostParameters};
use crate::failure::{Failure, Outcome};
use crate::guard::Consent;

/// Names of the environment variables with the user and the password, for all protocols.
const VARIABLES: (&str, &str) = ("HALFPOWER_USER", "HALFPOWER_PASSWORD");
/// Names of the environment variables with the S3 access key, as the AWS tools use them.
const S3_VARIABLES: (&str, &str) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");

/// Returns true if a target's name is the address of a network target.
pub fn is_network(name: &Path) -> bool {
    Address::is_network(name)
}

/// Parses the address of a network target.
///
/// # Errors
/// The address is invalid. The usage error shows the correct form.
pub fn parse(name: &Path) -> Outcome<Address> {
    Ok(name.to_string_lossy().parse::<Address>()?)
}

/// Connects to the server and opens the target.
///
/// # Errors
/// The server cannot be reached, or refuses the request. If the user did not allow overwriting a
/// target that is opened for writing, the exit code is `Refused`.
pub fn open(
    address: &Address,
    writable: bool,
    durable: bool,
    consent: &Consent,
) -> Outcome<HostTarget> {
    if writable {
        check_consent(address, consent)?;
    }
    let credentials = credentials(address);
    Ok(HostTarget::connect(Access { address: address.clone(), credentials, writable, durable })?)
}

/// Connects to the bucket of an S3 address, to read and write whole objects. The user's consent is
/// not needed, because the caller writes only objects that it creates.
///
/// # Errors
/// The address contains no bucket, or the server cannot be reached.
pub fn object_client(address: &Address, payload: PayloadSignature) -> Outcome<ObjectClient> {
    let (address, credentials) = (address.clone(), credentials(address));
    let access = Access { address, credentials, writable: true, durable: false };
    Ok(ObjectClient::connect(&access, payload)?)
}

/// Checks that the user allowed overwriting a target.
///
/// # Errors
/// The user did not allow overwriting the target. The error contains the flag that allows it.
pub fn check_consent(address: &Address, consent: &Consent) -> Outcome<()> {
    let text = address.to_string();
    if consent.overwrite.iter().any(|allowed| allowed.to_string_lossy() == text) {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{text} exists and would be overwritten; use --overwrite={text} to allow this"
    )))
}

/// Returns user and password from the address and the environment, or None for anonymous access.
fn credentials(address: &Address) -> Option<Credentials> {
    credentials_of(address, |name| env::var(name).ok())
}

/// Returns user and password from one pair of environment variables. The user of one pair is never
/// combined with the password of another pair. For S3, the variables of the AWS tools are
/// preferred.
fn credentials_of(
    address: &Address,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Credentials> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let pairs = match address.scheme {
        Scheme::S3 => &[S3_VARIABLES, VARIABLES][..],
        _ => &[VARIABLES],
    };
    let pair = pairs.iter().map(|(user, password)| (set(user), set(password)));
    let mut found = pair.into_iter().filter(|(user, password)| match &address.user {
        // The address contains a user. The pair of variables must then contain a password, and
        // either the same user or no user.
        Some(named) => password.is_some() && user.as_ref().is_none_or(|user| user == named),
        None => user.is_some(),
    });
    let (user, password) = found.next().unwrap_or_default();
    let user = address.user.clone().or(user)?;
    Some(Credentials { user, password: password.unwrap_or_default() })
}

/// Returns the addresses of an experiment's network targets, or an empty list if the targets are
/// not network targets.
///
/// # Errors
/// A usage error: network targets are combined with other targets, with another I/O engine, or with
/// parameters that apply only to files or devices of this host.
pub fn addresses(
    experiment: &Experiment,
    targets: &[PathBuf],
    engine_kinds: &[Option<EngineKind>],
) -> Outcome<Vec<Address>> {
    let named = targets.iter().filter(|target| is_network(target)).count();
    let is_engine = |kind: &Option<EngineKind>| *kind == Some(EngineKind::Network);
    if named == 0 {
        if engine_kinds.iter().any(is_engine) {
            return Err(Failure::usage(
                "--ioengine network needs a network target, such as nbd://HOST/EXPORT; specify \
                 one, or use another --ioengine",
            ));
        }
        return Ok(Vec::new());
    }
    let usage = |what: &str| Err(Failure::usage(what));
    if named < targets.len() {
        return usage(
            "network targets cannot be measured together with other targets; measure them one by \
             one",
        );
    }
    if let Some(other) = engine_kinds.iter().flatten().find(|kind| **kind != EngineKind::Network) {
        return Err(Failure::usage(format!(
            "--ioengine {other} cannot use a network target; drop --ioengine, or mount the share \
             and use a file on it"
        )));
    }
    let cannot = [
        (
            experiment.direct == Some(false) || experiment.page_cache.is_some(),
            "a network target is not cached on this host; drop --direct=0 and --page-cache",
        ),
        (
            experiment.allocation != Allocation::default(),
            "--allocation does not work with a network target; drop it",
        ),
        (experiment.hint.is_some(), "--hint is for files of this host; drop it"),
        (
            experiment.host != HostParameters::default(),
            "a network target is not on a device of this host; drop the flags listed under 'Host' \
             in halfpower run --help",
        ),
    ];
    if let Some((_, why)) = cannot.iter().find(|(is_asked, _)| *is_asked) {
        return usage(why);
    }
    targets.iter().map(|target| parse(target)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    fn experiment(targets: &[&str]) -> Experiment {
        let targets = targets.iter().map(PathBuf::from).collect();
        Experiment { targets, ..Experiment::default() }
    }

    fn refused(experiment: &Experiment, engine_kind: Option<EngineKind>) -> String {
        addresses(experiment, &experiment.targets, &[engine_kind]).unwrap_err().message
    }

    #[test]
    fn network_targets_stand_alone_and_have_their_own_engine() {
        let one = experiment(&["nbd://h/x"]);
        assert_eq!(addresses(&one, &one.targets, &[None]).unwrap().len(), 1);
        let mixed = experiment(&["nbd://h/x", "/tmp"]);
        assert!(refused(&mixed, None).contains("together with other targets"));
        assert!(refused(&one, Some(EngineKind::Libaio)).contains("--ioengine libaio"));
        let local = experiment(&["/tmp"]);
        assert!(refused(&local, Some(EngineKind::Network)).contains("nbd://HOST/EXPORT"));
        assert!(addresses(&local, &local.targets, &[None]).unwrap().is_empty());
    }

    #[test]
    fn parameters_of_local_files_are_refused() {
        let one = experiment(&["nbd://h/x"]);
        assert!(
            refused(&Experiment { direct: Some(false), ..one.clone() }, None).contains("cached")
        );
        let grows = Experiment { allocation: Allocation::Extend, ..one };
        assert!(refused(&grows, None).contains("--allocation"));
    }

    #[test]
    fn user_and_password_come_from_one_pair_of_variables() {
        let with = |address: &str, set: &[(&str, &str)]| {
            let value = |name: &str| {
                let found = set.iter().find(|(one, _)| *one == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            credentials_of(&address.parse().unwrap(), value)
                .map(|both| format!("{}:{}", both.user, both.password))
        };
        let ours = [("HALFPOWER_USER", "anna"), ("HALFPOWER_PASSWORD", "a")];
        let aws = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "k")];
        let (s3, smb) = ("s3://h/b/k", "smb://h/s/f");
        assert_eq!(with(s3, &[ours, aws].concat()).as_deref(), Some("key:k"));
        assert_eq!(with(smb, &[ours, aws].concat()).as_deref(), Some("anna:a"));
        assert_eq!(with(s3, &ours).as_deref(), Some("anna:a"));
        assert_eq!(with(s3, &[ours[0], aws[1]]).as_deref(), Some("anna:"));
        assert_eq!(with(s3, &[aws[1]]), None);
        // If the address contains a user, the password of another user is not sent.
        assert_eq!(with("smb://bob@h/s/f", &ours).as_deref(), Some("bob:"));
        assert_eq!(with("smb://bob@h/s/f", &ours[1..]).as_deref(), Some("bob:a"));
    }

    #[test]
    fn only_the_same_address_allows_overwriting() {
        let address: Address = "nbd://h/x".parse().unwrap();
        let consent = |name: &str| Consent { overwrite: vec![name.into()], ..Consent::default() };
        assert!(check_consent(&address, &consent("nbd://h/x")).is_ok());
        let failure = check_consent(&address, &consent("nbd://h/y")).unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        assert!(failure.message.contains("--overwrite=nbd://h/x"), "{failure}");
    }
}
