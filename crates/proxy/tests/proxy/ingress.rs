//! The owner's settings for traffic to a sandbox's ports: a token, another host, TLS inside.

use std::sync::Arc;

use soulbox_runtime::Node;
use soulbox_types::{PauseMode, SandboxState, Secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

use crate::support::{ID, World, id, read_head, world};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn ask(world: &World, port: u16, extra: &str) -> String {
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {port}-{ID}.sbx.localhost\r\nConnection: close\r\n{extra}\r\n"
    );
    world.raw(&request).await
}

/// A server inside that answers with the head that it got.
async fn mirror(world: &World, port: u16) {
    world
        .server(port, |mut socket| async move {
            let head = read_head(&mut socket).await;
            let length = head.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{head}");
            drop(socket.write_all(answer.as_bytes()).await);
        })
        .await;
}

fn make_private(world: &World) {
    world.node.change(&id(), |spec| {
        spec.network.allow_public_traffic = Some(false);
        spec.traffic_token = Some(Secret::new("traffic"));
    });
}

#[tokio::test]
async fn ports_of_a_sandbox_that_is_not_public_ask_for_its_token() {
    let world = world().await;
    mirror(&world, 8080).await;
    world.canned(49983, OK).await;
    make_private(&world);
    for wrong in ["", "e2b-traffic-access-token: guess\r\n"] {
        let answer = ask(&world, 8080, wrong).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(answer.contains(r#""sandboxId":"itest""#), "{answer}");
        assert!(answer.contains(r#""code":403"#), "{answer}");
    }
    let answer = ask(&world, 8080, "E2B-Traffic-Access-Token: traffic\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("traffic\r\n"), "it is passed on: {answer}");
    assert!(ask(&world, 49983, "").await.ends_with("ok"), "envd's port");

    world.node.change(&id(), |spec| spec.traffic_token = None);
    let answer = ask(&world, 8080, "").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "no token, no entry");
}

#[tokio::test]
async fn only_the_traffic_token_wakes_a_sandbox_that_is_not_public() {
    let world = world().await;
    world.canned(8080, OK).await;
    make_private(&world);
    world.node.pause(&id(), PauseMode::Memory).await.unwrap();
    let answer = ask(&world, 8080, "").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert_eq!(world.node.get(&id()).unwrap().state, SandboxState::Paused);
    let answer = ask(&world, 8080, "e2b-traffic-access-token: traffic\r\n").await;
    assert!(answer.ends_with("ok"), "{answer}");
}

#[tokio::test]
async fn a_masked_host_is_what_the_server_sees() {
    let world = world().await;
    mirror(&world, 8080).await;
    mirror(&world, 49983).await;
    let mask = "custom.example.com:${PORT}".to_owned();
    world
        .node
        .change(&id(), |spec| spec.network.mask_request_host = Some(mask));
    let answer = ask(&world, 8080, "X-Forwarded-Host: forged\r\n").await;
    let seen = answer.to_ascii_lowercase();
    assert!(
        seen.contains("\r\nhost: custom.example.com:8080\r\n"),
        "{seen}"
    );
    let named = format!("\r\nx-forwarded-host: 8080-{ID}.sbx.localhost\r\n");
    assert!(seen.contains(&named) && !seen.contains("forged"), "{seen}");
    let lower =
        format!("GET / HTTP/1.1\r\nhost: 8080-{ID}.sbx.localhost\r\nconnection: close\r\n\r\n");
    let seen = world.raw(&lower).await;
    assert!(
        seen.contains("\r\nHost: custom"),
        "as E2B spells it: {seen}"
    );
    let seen = ask(&world, 49983, "").await;
    assert!(!seen.contains("custom.example.com"), "not envd: {seen}");
}

#[tokio::test]
async fn https_ports_are_spoken_to_with_tls_whatever_their_certificate() {
    let world = world().await;
    let made = rcgen::generate_simple_self_signed(vec!["elsewhere.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    world
        .server(8443, move |socket| {
            let acceptor = acceptor.clone();
            async move {
                let mut socket = acceptor.accept(socket).await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(socket.read_u8().await.unwrap());
                }
                drop(socket.write_all(OK.as_bytes()).await);
            }
        })
        .await;
    world
        .server(8080, |mut socket| async move {
            drop(socket.write_all(OK.as_bytes()).await);
        })
        .await;
    world
        .node
        .change(&id(), |spec| spec.network.https_ports = vec![8443, 8080]);
    assert!(ask(&world, 8443, "").await.ends_with("ok"));
    let answer = ask(&world, 8080, "").await;
    assert!(answer.starts_with("HTTP/1.1 502"), "no TLS: {answer}");
}
