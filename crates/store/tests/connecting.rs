//! Coming to a database: together, after it was away, and when it cannot be used.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::time::Instant;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use soulbox_store::{Error, Store};
use support::{
    Database,
    postgres::{PASSWORD, Server, USER},
    rows::sandbox,
};

support::on_both![
    servers_that_start_together_all_come_up,
    a_database_of_a_newer_version_is_refused_and_left_as_it_is,
];

async fn servers_that_start_together_all_come_up(database: Database) {
    let starts = (0..6).map(|_| database.try_connect());
    let stores = futures_util::future::join_all(starts).await;
    for store in stores {
        assert_eq!(store.unwrap().tenants().await.unwrap(), []);
    }
}

async fn a_database_of_a_newer_version_is_refused_and_left_as_it_is(database: Database) {
    database.open().await.close().await;
    database
        .run(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
             VALUES (9000, 'of the future', TRUE, '', 0)",
        )
        .await;
    let error = database.try_connect().await.unwrap_err();
    assert!(matches!(error, Error::Newer { found: 9000, .. }), "{error}");
    assert!(error.to_string().contains("use the newer program"));
    database
        .run("DELETE FROM _sqlx_migrations WHERE version = 9000")
        .await;
    assert_eq!(database.connect().await.tenants().await.unwrap().len(), 2);
}

/// Of a connection that was not to be.
async fn refusal(url: &str) -> Error {
    Store::connect(url).await.unwrap_err()
}

#[tokio::test]
async fn a_url_that_is_none_is_refused_without_a_word_of_it() {
    for url in ["mysql://me:hush@host/db", "/some/soulbox.db", ""] {
        let error = refusal(url).await;
        assert!(matches!(error, Error::NoSuchDatabaseKind), "{error:?}");
    }
    let error = refusal("postgres://me:hush@host:port/db").await;
    assert!(matches!(error, Error::BadUrl(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_at_once_with_its_address() {
    let begun = Instant::now();
    let error = refusal("postgres://me:hush@127.0.0.1:1/db").await;
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:1 "), "{error}");
    assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
    let error = refusal("postgres://me@%2Fnowhere:7000/db").await;
    assert!(
        error.to_string().contains("/nowhere/.s.PGSQL.7000"),
        "{error}"
    );
    assert!(begun.elapsed().as_secs() < 5);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let begun = Instant::now();
    let error = refusal(&format!("postgres://me:hush@{address}/db")).await;
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!((9..20).contains(&begun.elapsed().as_secs()));
}

#[tokio::test]
async fn who_is_not_let_in_learns_who_and_where_and_a_missing_database_its_name() {
    let Some(server) = Server::start_with_port() else {
        return;
    };
    for (user, password) in [(USER, "wrong"), ("nobody", PASSWORD)] {
        let error = refusal(&server.url_at_port(user, password, "postgres")).await;
        assert!(matches!(error, Error::NotAdmitted { .. }), "{error:?}");
        assert!(error.to_string().contains(user), "{error}");
        assert!(!format!("{error} {error:?}").contains(PASSWORD));
    }
    let error = refusal(&server.url_at_port(USER, PASSWORD, "absent")).await;
    assert!(matches!(error, Error::NoDatabase { .. }), "{error:?}");
    assert!(error.to_string().contains("createdb absent"), "{error}");
}

#[tokio::test]
async fn nobody_waits_for_ever_for_a_migration_of_another() {
    let Some(server) = Server::start() else {
        return;
    };
    let pool = server.pool().await;
    let mut other = pool.acquire().await.unwrap();
    sqlx::migrate::Migrate::lock(&mut *other).await.unwrap();
    let url = format!("{}?options[lock_timeout]=50ms", server.url());
    let error = refusal(&url).await;
    assert!(matches!(error, Error::MigrationUnderWay), "{error:?}");
    sqlx::migrate::Migrate::unlock(&mut *other).await.unwrap();
    Store::connect(&url).await.unwrap();
}

/// Each setting as the session that writes has it.
#[tokio::test]
async fn how_postgres_puts_commits_on_the_disk_is_left_to_it() {
    let Some(server) = Server::start_with(&[]) else {
        return;
    };
    let pool = server.pool().await;
    let database = Database::Postgres(server);
    let store = database.open().await;
    database
        .run(
            "CREATE TABLE seen (setting TEXT, value TEXT);
             CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO seen SELECT name, setting FROM pg_settings; RETURN NEW;
             END $$;
             CREATE TRIGGER look BEFORE INSERT ON sandboxes FOR EACH ROW EXECUTE FUNCTION look()",
        )
        .await;
    store.insert_sandbox(&sandbox("i1", 10)).await.unwrap();
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        let seen: String = sqlx::query_scalar("SELECT value FROM seen WHERE setting = $1")
            .bind(setting)
            .fetch_one(&pool)
            .await
            .unwrap();
        assert_eq!(seen, "on", "{setting}");
    }
    // So what was answered is there after a crash.
    for number in 0..20 {
        store
            .insert_sandbox(&sandbox(&format!("j{number}"), 20))
            .await
            .unwrap();
    }
    let Database::Postgres(mut crashed) = database else {
        unreachable!()
    };
    crashed.crash();
    crashed.start_again();
    let store = Store::connect(&crashed.url()).await.unwrap();
    assert_eq!(store.live_sandboxes().await.unwrap().len(), 21);
}

#[tokio::test]
async fn a_server_that_was_away_for_a_moment_is_found_again() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let store = Store::connect(&server.url()).await.unwrap();
    assert_eq!(store.tenants().await.unwrap(), []);
    server.crash();
    let error = store.tenants().await.unwrap_err();
    assert!(!error.is_committed() && !error.is_disk_full(), "{error:?}");
    server.start_again();
    assert_eq!(store.tenants().await.unwrap(), []);
}

#[tokio::test]
async fn a_connection_is_encrypted_and_the_server_is_who_it_should_be() {
    let Some(mut server) = Server::start_with_port() else {
        return;
    };
    let data = server.folder().join("data");
    let (certificate, key, ca) = certificate();
    let files = [
        ("server.crt", certificate),
        ("server.key", key),
        ("ca.crt", ca),
    ];
    for (name, text) in files {
        std::fs::write(data.join(name), text).unwrap();
    }
    let (_, _, another) = self::certificate();
    std::fs::write(data.join("another.crt"), another).unwrap();
    server.own("data/server.key");
    server.crash();
    server.set("ssl=on");
    server.start_again();
    let address = server.url_at_port(USER, PASSWORD, "postgres");
    let url = |mode: &str, ca: &str| {
        let ca = data.join(ca);
        format!("{address}?sslmode={mode}&sslrootcert={}", ca.display())
    };
    let store = Store::connect(&url("verify-full", "ca.crt")).await.unwrap();
    assert_eq!(store.tenants().await.unwrap(), []);
    let pool = server.pool().await;
    let encrypted: Vec<bool> = sqlx::query_scalar(
        "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE application_name = 'soulbox'",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert!(
        !encrypted.is_empty() && encrypted.iter().all(|each| *each),
        "{encrypted:?}"
    );
    let error = refusal(&url("verify-full", "another.crt")).await;
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
}

/// For 127.0.0.1, with its key, and the authority that vouches for it.
fn certificate() -> (String, String, String) {
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let ca = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    (certificate, key.serialize_pem(), ca)
}
