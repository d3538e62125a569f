//! No connection goes from one user to the next with a transaction open.
//!
//! When the disk is full SQLite ends a transaction by itself, and sqlx, whose own end of it then
//! fails, goes on counting it as open. What the next user of that connection writes would be part of
//! it: answered, never committed, and with the lock that keeps all others from writing.

use sqlx::{Connection, SqliteConnection};

/// One that is not is closed, which ends whatever is open.
pub(crate) async fn is_clean(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    if connection.is_in_transaction() {
        // The end of a transaction that was dropped may still be on its way: this comes after it.
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}
