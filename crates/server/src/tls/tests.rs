use std::net::Ipv4Addr;

use fs_err as fs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

fn local(dir: &Path, domain: &str) -> Source {
    Source::Local {
        dir: dir.to_owned(),
        domain: domain.to_owned(),
        addresses: Vec::new(),
    }
}

/// A real handshake in memory with a client that trusts `roots`; the protocol that was agreed.
async fn handshake(tls: &Tls, roots: &Path, name: &'static str) -> Result<Option<Vec<u8>>, String> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(roots).unwrap() {
        store.add(certificate.unwrap()).unwrap();
    }
    let mut client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(store)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let (near, far) = tokio::io::duplex(1 << 16);
    let accept = TlsAcceptor::from(Arc::clone(&tls.config)).accept(far);
    let connect =
        TlsConnector::from(Arc::new(client)).connect(ServerName::try_from(name).unwrap(), near);
    let (accepted, connected) = tokio::join!(accept, connect);
    connected.map_err(|error| error.to_string())?;
    Ok(accepted
        .unwrap()
        .get_ref()
        .1
        .alpn_protocol()
        .map(<[u8]>::to_vec))
}

#[tokio::test]
async fn clients_that_trust_the_local_authority_reach_every_name_of_the_domain() {
    let dir = tempfile::tempdir().unwrap();
    let tls = Tls::load(local(dir.path(), "sbx.localhost")).unwrap();
    let ca = dir.path().join("ca.pem");
    for name in [
        "api.sbx.localhost",
        "49983-iabc.sbx.localhost",
        "sbx.localhost",
        "localhost",
        "127.0.0.1",
        "::1",
    ] {
        assert_eq!(
            handshake(&tls, &ca, name).await,
            Ok(Some(b"h2".to_vec())),
            "{name}"
        );
    }
    for name in ["example.org", "a.b.sbx.localhost", "other.localhost"] {
        assert!(handshake(&tls, &ca, name).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn the_bundle_serves_clients_whose_roots_it_replaces() {
    let dir = tempfile::tempdir().unwrap();
    let tls = Tls::load(local(dir.path(), "sbx.example.org")).unwrap();
    let bundle = dir.path().join("bundle.pem");
    assert!(
        handshake(&tls, &bundle, "api.sbx.example.org")
            .await
            .is_ok()
    );
    let ca = fs::read_to_string(dir.path().join("ca.pem")).unwrap();
    assert!(fs::read_to_string(bundle).unwrap().ends_with(&ca));
}

#[test]
fn the_authority_may_speak_for_our_names_only() {
    let dir = tempfile::tempdir().unwrap();
    authority::ensure(dir.path(), "sbx.localhost", &[], SystemTime::now()).unwrap();
    // A certificate for a foreign name, signed with the stolen key of the authority.
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let issuer_key = rcgen::KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("ca.pem"), issuer_key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let stolen = rcgen::CertificateParams::new(vec!["bank.example".to_owned()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    fs::write(dir.path().join("stolen.pem"), stolen.pem()).unwrap();
    fs::write(dir.path().join("stolen.key"), key.serialize_pem()).unwrap();
    let source = Source::Own {
        certificate: dir.path().join("stolen.pem"),
        key: dir.path().join("stolen.key"),
    };
    let tls = Tls::load(source).unwrap();
    let result = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(handshake(&tls, &dir.path().join("ca.pem"), "bank.example"));
    assert!(result.unwrap_err().contains("NameConstraint"));
}

#[test]
fn certificates_stay_until_they_are_due() {
    let dir = tempfile::tempdir().unwrap();
    let read =
        || ["ca.pem", "leaf.pem"].map(|name| fs::read_to_string(dir.path().join(name)).unwrap());
    let start = SystemTime::now();
    let after = |days: u64| start + Duration::from_hours(24 * days);
    let ensure = |domain: &str, addresses: &[IpAddr], now| {
        authority::ensure(dir.path(), domain, addresses, now).unwrap();
        read()
    };
    let [ca, leaf] = ensure("sbx.localhost", &[], start);
    assert_eq!(
        ensure("sbx.localhost", &[], after(300)),
        [ca.clone(), leaf.clone()]
    );

    let [same_ca, renewed] = ensure("sbx.localhost", &[], after(380));
    assert_eq!(same_ca, ca);
    assert_ne!(renewed, leaf);

    let [same_ca, with_address] = ensure(
        "sbx.localhost",
        &[Ipv4Addr::new(192, 0, 2, 1).into()],
        after(380),
    );
    assert_eq!(same_ca, ca);
    assert_ne!(with_address, renewed);

    let [other_ca, _] = ensure("other.example", &[], after(380));
    assert_ne!(other_ca, ca);

    fs::remove_file(dir.path().join("leaf.key")).unwrap();
    let [kept, _] = ensure("other.example", &[], after(380));
    assert_eq!(kept, other_ca);
    assert!(dir.path().join("leaf.key").is_file());
}

#[test]
fn certificates_of_a_clock_that_was_ahead_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let leaf = || fs::read_to_string(dir.path().join("leaf.pem")).unwrap();
    let now = SystemTime::now();
    let ahead = now + Duration::from_hours(24 * 100);
    authority::ensure(dir.path(), "sbx.localhost", &[], ahead).unwrap();
    let early = leaf();
    authority::ensure(dir.path(), "sbx.localhost", &[], now).unwrap();
    assert_ne!(leaf(), early);
}

#[test]
fn keys_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    authority::ensure(dir.path(), "sbx.localhost", &[], SystemTime::now()).unwrap();
    for name in ["ca.key", "leaf.key"] {
        let mode = fs::metadata(dir.path().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_key_that_does_not_fit_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    authority::ensure(dir.path(), "sbx.localhost", &[], SystemTime::now()).unwrap();
    let source = Source::Own {
        certificate: dir.path().join("leaf.pem"),
        key: dir.path().join("ca.key"),
    };
    let error = Tls::load(source).unwrap_err().to_string();
    assert!(
        error.contains("ca.key") && error.contains("does not fit"),
        "{error}"
    );
}
