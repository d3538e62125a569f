//! A certificate authority on this machine, limited by its own certificate to our domain, and the
//! wildcard certificate that it issues. They are two: clients refuse an authority as a server.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use fs_err as fs;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType,
    date_time_ymd,
};
use serde::{Deserialize, Serialize};

use super::bundle;
use crate::private_file::{self, PUBLIC, SECRET};

pub(super) const CA: &str = "ca.pem";
pub(super) const LEAF: &str = "leaf.pem";
pub(super) const LEAF_KEY: &str = "leaf.key";
pub(super) const BUNDLE: &str = "bundle.pem";
const CA_KEY: &str = "ca.key";
/// What the certificates were issued for, so that they need not be parsed.
const ISSUED: &str = "issued.json";

const DAY: Duration = Duration::from_hours(24);
const CA_LIFE: Duration = Duration::from_hours(24 * 3650);
/// Some clients refuse certificates that live longer.
const LEAF_LIFE: Duration = Duration::from_hours(24 * 397);
const RENEW_BEFORE: Duration = Duration::from_hours(24 * 30);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Issued {
    domain: String,
    addresses: Vec<IpAddr>,
    ca: Validity,
    leaf: Validity,
}

/// In seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Validity {
    from: u64,
    until: u64,
}

impl Validity {
    /// From a day ago: the clocks of clients differ.
    fn starting(now: SystemTime, lifetime: Duration) -> Self {
        Self {
            from: seconds(now - DAY),
            until: seconds(now + lifetime),
        }
    }

    /// False also when it was made by a clock that was ahead.
    fn holds(self, now: SystemTime) -> bool {
        self.from <= seconds(now) && seconds(now + RENEW_BEFORE) < self.until
    }

    fn params(self) -> CertificateParams {
        let epoch = date_time_ymd(1970, 1, 1);
        let mut params = CertificateParams::default();
        params.not_before = epoch + Duration::from_secs(self.from);
        params.not_after = epoch + Duration::from_secs(self.until);
        params
    }
}

/// Makes what is missing or due. The authority stays as long as the domain does, because people
/// have installed it as trusted.
pub(super) fn ensure(
    dir: &Path,
    domain: &str,
    addresses: &[IpAddr],
    now: SystemTime,
) -> anyhow::Result<()> {
    fs::create_dir_all(dir)?;
    let issued = read_issued(dir)?;
    let files = |names: &[&str]| names.iter().all(|name| dir.join(name).is_file());

    let authority =
        issued.filter(|i| i.domain == domain && i.ca.holds(now) && files(&[CA, CA_KEY]));
    let leaf_holds = authority
        .as_ref()
        .is_some_and(|i| i.addresses == addresses && i.leaf.holds(now) && files(&[LEAF, LEAF_KEY]));
    if !leaf_holds {
        let ca = match authority {
            Some(issued) => issued.ca,
            None => make_authority(dir, domain, now)?,
        };
        let leaf = make_leaf(dir, domain, addresses, now)?;
        let issued = Issued {
            domain: domain.to_owned(),
            addresses: addresses.to_vec(),
            ca,
            leaf,
        };
        private_file::write(
            &dir.join(ISSUED),
            PUBLIC,
            &serde_json::to_vec_pretty(&issued)?,
        )?;
        tracing::info!(domain, "issued a TLS certificate");
    }
    // The system's roots change with its updates.
    bundle::write(&dir.join(BUNDLE), &fs::read_to_string(dir.join(CA))?)?;
    Ok(())
}

fn read_issued(dir: &Path) -> anyhow::Result<Option<Issued>> {
    let text = private_file::read(&dir.join(ISSUED))?;
    // An unreadable note counts as missing: everything is created again.
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

fn make_authority(dir: &Path, domain: &str, now: SystemTime) -> anyhow::Result<Validity> {
    let key = KeyPair::generate()?;
    let validity = Validity::starting(now, CA_LIFE);
    let mut params = validity.params();
    params.distinguished_name = named(&format!("SoulBox local CA for {domain}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // With a stolen key, certificates of other names are still refused.
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![
            GeneralSubtree::DnsName(domain.to_owned()),
            GeneralSubtree::DnsName("localhost".to_owned()),
        ],
        excluded_subtrees: Vec::new(),
    });
    let certificate = params.self_signed(&key)?;
    private_file::write(&dir.join(CA_KEY), SECRET, key.serialize_pem().as_bytes())?;
    private_file::write(&dir.join(CA), PUBLIC, certificate.pem().as_bytes())?;
    Ok(validity)
}

fn make_leaf(
    dir: &Path,
    domain: &str,
    addresses: &[IpAddr],
    now: SystemTime,
) -> anyhow::Result<Validity> {
    let ca = fs::read_to_string(dir.join(CA))?;
    let ca_key = KeyPair::from_pem(&fs::read_to_string(dir.join(CA_KEY))?)
        .with_context(|| format!("{CA_KEY} is damaged; remove it to make a new one"))?;
    let issuer = Issuer::from_ca_cert_pem(&ca, ca_key)?;

    let validity = Validity::starting(now, LEAF_LIFE);
    let mut params = validity.params();
    params.distinguished_name = named(domain);
    for name in [domain, &format!("*.{domain}"), "localhost"] {
        params
            .subject_alt_names
            .push(SanType::DnsName(name.try_into()?));
    }
    let loopback = [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::from(Ipv6Addr::LOCALHOST),
    ];
    for address in loopback
        .iter()
        .chain(addresses.iter().filter(|a| !loopback.contains(a)))
    {
        params.subject_alt_names.push(SanType::IpAddress(*address));
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    private_file::write(&dir.join(LEAF_KEY), SECRET, key.serialize_pem().as_bytes())?;
    private_file::write(&dir.join(LEAF), PUBLIC, certificate.pem().as_bytes())?;
    Ok(validity)
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "SoulBox");
    // A common name holds at most 64 characters.
    name.push(
        DnType::CommonName,
        common_name.chars().take(64).collect::<String>(),
    );
    name
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
