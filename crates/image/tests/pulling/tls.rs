use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use soulbox_image::ImageConfig;
use tokio_rustls::TlsAcceptor;

use crate::{
    image::TestImage,
    server::Server,
    store::{TestStore, config},
};

/// A registry with a certificate of its own making, and the certificate.
async fn secure() -> (Server, String) {
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names)
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let pem = certificate.pem();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    (
        Server::start_with(Arc::new(|_| None), Some(acceptor)).await,
        pem,
    )
}

#[tokio::test]
async fn a_registry_with_an_authority_of_the_operators_is_believed() {
    let (server, pem) = secure().await;
    let image = TestImage::of(&[("a", b"b")]);
    server.push("app", &image);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, pem).unwrap();
    for scheme in ["", "https://"] {
        let port = server.address.port();
        let test = TestStore::with(ImageConfig {
            extra_ca: Some(path.clone()),
            ..config(&[format!("{scheme}localhost:{port}")])
        });
        let reference = format!("localhost:{port}/app");
        let pulled = test.store.pull(&reference, None, false, &()).await.unwrap();
        assert_eq!(pulled.digest, image.digest());
    }
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_not_answered_with_plain_http() {
    let (server, _) = secure().await;
    let test = TestStore::trusting(&[server.host()]);
    let error = test.refused(&server.reference("app")).await;
    assert!(error.contains("no secure connection"), "{error}");
    assert_eq!(server.seen().len(), 0);
}
