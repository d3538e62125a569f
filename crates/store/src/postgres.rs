//! PostgreSQL: who, where, and how long anything may take.
//!
//! How a commit gets onto the disk is the server's own affair: nothing here touches its settings for
//! that, and its commits are waited for as it was told to.

use std::{pin::Pin, str::FromStr, time::Duration};

use sqlx::{
    ConnectOptions, Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::{Error, Result, migrate};

const CONNECTIONS: u32 = 16;
/// For a connection from the pool, with its making.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// For the first connection. A server that is just starting is asked again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// What the server is told; whoever knows better says so in the URL, `?options[lock_timeout]=5s`.
const BOUNDS: [(&str, &str); 3] = [
    ("statement_timeout", "30s"),
    ("lock_timeout", "10s"),
    ("idle_in_transaction_session_timeout", "60s"),
];
/// A table that is rewritten takes its time, and other servers wait for it.
const BOUNDS_OF_MIGRATIONS: [(&str, &str); 2] =
    [("statement_timeout", "10min"), ("lock_timeout", "60s")];
const LONGEST_MIGRATION: Duration = Duration::from_mins(15);
/// More than the server gives itself. After that nobody is there.
const LONGEST_ANSWER: Duration = Duration::from_secs(45);
/// Whether a connection is alive is asked when it was not used for so long, and shortly.
const FRESH: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Brings the tables up to date, and leaves the rest of the connections for when they are needed.
pub(crate) async fn connect(url: &str) -> Result<PgPool> {
    let options = options(url)?;
    let mut first = first_connection(&with_bounds(&options, &BOUNDS_OF_MIGRATIONS)).await?;
    // Under an advisory lock, which ends with the connection.
    timeout(LONGEST_MIGRATION, migrate::migrator().run(&mut first))
        .await
        .map_err(|_| Error::NoAnswer(LONGEST_MIGRATION))?
        .map_err(migrate::explained)?;
    drop(first);
    Ok(PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // The question costs as much as a statement: see `FRESH`.
        .test_before_acquire(false)
        .before_acquire(|connection, usage| {
            Box::pin(async move {
                if usage.idle_for < FRESH {
                    return Ok(true);
                }
                alive(connection).await
            })
        })
        .after_release(|connection, _| Box::pin(alive(connection)))
        .connect_lazy_with(with_bounds(&options, &BOUNDS)))
}

/// Waits for an answer as long as there may be one. A connection that is given up in the middle of
/// one is asked whether it is [`alive`] before anybody else has it.
///
/// In a box: otherwise whoever uses SQLite would carry the room that PostgreSQL needs along.
pub(crate) fn bounded<'a, T: 'a>(
    asked: impl Future<Output = Result<T>> + Send + 'a,
) -> Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>> {
    Box::pin(async {
        timeout(LONGEST_ANSWER, asked)
            .await
            .unwrap_or(Err(Error::NoAnswer(LONGEST_ANSWER)))
    })
}

async fn alive(connection: &mut PgConnection) -> sqlx::Result<bool> {
    match timeout(PING_TIMEOUT, connection.ping()).await {
        Ok(Ok(())) => Ok(true),
        Ok(Err(error)) => Err(error),
        // An error, unlike a `false`, ends it without a farewell.
        Err(_) => Err(sqlx::Error::PoolTimedOut),
    }
}

fn options(url: &str) -> Result<PgConnectOptions> {
    let known = ["postgres://", "postgresql://"];
    if !known.iter().any(|scheme| url.starts_with(scheme)) {
        return Err(Error::NoSuchDatabaseKind);
    }
    let options = PgConnectOptions::from_str(url).map_err(Error::BadUrl)?;
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("soulbox"),
    };
    Ok(options.disable_statement_logging())
}

fn with_bounds(options: &PgConnectOptions, bounds: &[(&str, &str)]) -> PgConnectOptions {
    let given = options.get_options().unwrap_or_default().to_owned();
    let missing = bounds.iter().filter(|(name, _)| !given.contains(name));
    options.clone().options(missing.copied())
}

async fn first_connection(options: &PgConnectOptions) -> Result<PgConnection> {
    const CANNOT_CONNECT_NOW: &str = "57P03";
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    loop {
        let error = match timeout_at(deadline, PgConnection::connect_with(options)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(elapsed) => sqlx::Error::Io(elapsed.into()),
        };
        let starting = Error::code_of(&error).is_some_and(|code| code == CANNOT_CONNECT_NOW);
        if !starting || Instant::now() + ASK_AGAIN > deadline {
            return Err(explained(error, options));
        }
        sleep(ASK_AGAIN).await;
    }
}

fn explained(source: sqlx::Error, options: &PgConnectOptions) -> Error {
    const INVALID_AUTHORIZATION: &str = "28000";
    const INVALID_PASSWORD: &str = "28P01";
    const INVALID_CATALOG_NAME: &str = "3D000";
    let address = address(options);
    let user = options.get_username().to_owned();
    match Error::code_of(&source).as_deref() {
        Some(INVALID_AUTHORIZATION | INVALID_PASSWORD) => Error::NotAdmitted {
            address,
            user,
            source,
        },
        Some(INVALID_CATALOG_NAME) => Error::NoDatabase {
            // The server takes the user's name for the database's when none is given.
            name: options.get_database().map_or(user, str::to_owned),
            address,
        },
        _ => Error::Unreachable { address, source },
    }
}

fn address(options: &PgConnectOptions) -> String {
    let port = options.get_port();
    match options.get_socket() {
        Some(folder) => folder
            .join(format!(".s.PGSQL.{port}"))
            .display()
            .to_string(),
        None => format!("{}:{port}", options.get_host()),
    }
}
