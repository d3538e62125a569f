//! https with a certificate authority of one's own, as `soulbox serve` makes one.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint knows only #[test] functions"
)]

use std::{convert::Infallible, io::Write, path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use soulbox_client::{Client, Config, Error, config::Flags};
use soulbox_types::Secret;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

struct Authority {
    config: ServerConfig,
    root: tempfile::NamedTempFile,
}

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["*.sbx.localhost".to_owned()];
    let leaf = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();

    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    let mut root = tempfile::NamedTempFile::new().unwrap();
    root.write_all(issuer.pem().as_bytes()).unwrap();
    Authority { config, root }
}

/// Answers every list with the Host that was asked for.
async fn serve(config: ServerConfig) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let echo = |request: Request<Incoming>| async move {
        let host = request.headers()["host"].to_str().unwrap();
        let body = format!(r#"{{"processes":[{{"pid":1,"tag":"{host}"}}]}}"#);
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(body)))
    };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Clients that do not trust us hang up here.
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            tokio::spawn(async move {
                auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service_fn(echo))
                    .await
                    .ok();
            });
        }
    });
    port
}

fn client(port: u16, roots: Option<PathBuf>) -> Client {
    let flags = Flags {
        api_url: Some(format!("https://api.sbx.localhost:{port}")),
        api_key: Some(Secret::new("e2b_test")),
        data_dir: None,
        context: None,
    };
    Client::new(&Config::resolve(&flags, |_| None).unwrap(), roots)
}

#[tokio::test]
async fn an_extra_root_is_trusted_and_the_sandbox_host_is_named() {
    let authority = authority();
    let port = serve(authority.config).await;
    let client = client(port, Some(authority.root.path().to_owned()));
    let processes = client.envd("iabc", None).processes().await.unwrap();
    assert_eq!(
        processes[0].tag.as_deref(),
        Some(&*format!("sandbox.sbx.localhost:{port}"))
    );
}

#[tokio::test]
async fn an_unknown_authority_is_refused_with_advice() {
    let port = serve(authority().config).await;
    let error = client(port, None).list().await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("SSL_CERT_FILE"));
}

#[tokio::test]
async fn a_missing_file_of_roots_is_named() {
    let missing = PathBuf::from("/nonexistent/roots.pem");
    let port = serve(authority().config).await;
    let Err(Error::Roots(source)) = client(port, Some(missing)).list().await else {
        panic!("roots that cannot be read")
    };
    assert!(source.to_string().contains("/nonexistent/roots.pem"));
}
