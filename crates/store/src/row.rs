//! Between columns and types: what comes back is checked, because the file may be older or edited.

use std::str::FromStr;

use serde::{Serialize, de::DeserializeOwned};
use soulbox_types::{Limits, Tier, UnixMillis};
use sqlx::{Row as _, postgres::PgRow, sqlite::SqliteRow};

use crate::{Error, Result};

#[derive(Debug)]
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl From<SqliteRow> for Row {
    fn from(row: SqliteRow) -> Self {
        Self::Sqlite(row)
    }
}

impl From<PgRow> for Row {
    fn from(row: PgRow) -> Self {
        Self::Postgres(row)
    }
}

pub(crate) fn text(row: &Row, column: &str) -> Result<String> {
    Ok(match row {
        Row::Sqlite(row) => row.try_get(column)?,
        Row::Postgres(row) => row.try_get(column)?,
    })
}

pub(crate) fn optional_text(row: &Row, column: &str) -> Result<Option<String>> {
    Ok(match row {
        Row::Sqlite(row) => row.try_get(column)?,
        Row::Postgres(row) => row.try_get(column)?,
    })
}

pub(crate) fn parsed<T: FromStr>(
    row: &Row,
    table: &'static str,
    column: &'static str,
) -> Result<T> {
    text(row, column)?
        .parse()
        .map_err(|_| Error::Corrupt { table, column })
}

pub(crate) fn optional_tier(row: &Row, table: &'static str) -> Result<Option<Tier>> {
    let column = "tier";
    optional_text(row, column)?
        .map(|text| text.parse())
        .transpose()
        .map_err(|_| Error::Corrupt { table, column })
}

pub(crate) fn json(
    table: &'static str,
    column: &'static str,
    value: &impl Serialize,
) -> Result<String> {
    serde_json::to_string(value).map_err(|_| Error::Corrupt { table, column })
}

pub(crate) fn from_json<T: DeserializeOwned>(
    row: &Row,
    table: &'static str,
    column: &'static str,
) -> Result<T> {
    serde_json::from_str(&text(row, column)?).map_err(|_| Error::Corrupt { table, column })
}

pub(crate) fn number(row: &Row, column: &str) -> Result<i64> {
    Ok(match row {
        Row::Sqlite(row) => row.try_get(column)?,
        Row::Postgres(row) => row.try_get(column)?,
    })
}

fn optional_number(row: &Row, column: &str) -> Result<Option<i64>> {
    Ok(match row {
        Row::Sqlite(row) => row.try_get(column)?,
        Row::Postgres(row) => row.try_get(column)?,
    })
}

/// From the four columns that hold them in every table.
pub(crate) fn limits(row: &Row, table: &'static str) -> Result<Limits> {
    let small = |column: &'static str| {
        u32::try_from(number(row, column)?).map_err(|_| Error::Corrupt { table, column })
    };
    Ok(Limits {
        cpu_millis: small("cpu_millis")?,
        memory_mib: small("memory_mib")?,
        disk_mib: small("disk_mib")?,
        pids: small("pids")?,
    })
}

pub(crate) fn time(row: &Row, column: &str) -> Result<UnixMillis> {
    Ok(from_column(number(row, column)?))
}

pub(crate) fn optional_time(row: &Row, column: &str) -> Result<Option<UnixMillis>> {
    Ok(optional_number(row, column)?.map(from_column))
}

pub(crate) fn column(time: UnixMillis) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn from_column(value: i64) -> UnixMillis {
    UnixMillis(u64::try_from(value).unwrap_or_default())
}
