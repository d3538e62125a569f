//! A statement that both databases understand, with its values.

use crate::{
    Result,
    pool::{Pool, Transaction},
    postgres,
    row::Row,
};

/// The only types of columns there are.
#[derive(Debug)]
pub(crate) enum Value {
    Text(Option<String>),
    Number(Option<i64>),
}

#[derive(Debug)]
#[must_use]
pub(crate) struct Query {
    sql: &'static str,
    values: Vec<Value>,
}

/// Where a statement runs: by itself, or as part of a transaction.
pub(crate) enum On<'a> {
    Pool(&'a Pool),
    Transaction(&'a mut Transaction),
}

/// Values are `$1`, `$2`, … in both.
pub(crate) fn query(sql: &'static str) -> Query {
    Query {
        sql,
        values: Vec::new(),
    }
}

/// One text for both, since the types of the two databases have nothing in common.
macro_rules! run {
    ($query:expr, $on:expr, $method:ident) => {{
        let Query { sql, values } = $query;
        macro_rules! bound {
            () => {{
                let mut bound = sqlx::query(sql);
                for value in values {
                    bound = match value {
                        Value::Text(text) => bound.bind(text),
                        Value::Number(number) => bound.bind(number),
                    };
                }
                bound
            }};
        }
        match $on {
            // By hand: through the pool, sqlx puts a stream in between.
            On::Pool(Pool::Sqlite(pool)) => {
                let mut connection = pool.acquire().await?;
                bound!().$method(&mut *connection).await?.into()
            }
            On::Transaction(Transaction::Sqlite(transaction)) => {
                bound!().$method(&mut **transaction).await?.into()
            }
            On::Pool(Pool::Postgres(pool)) => {
                postgres::bounded(async { Ok(bound!().$method(pool).await?) })
                    .await?
                    .into()
            }
            On::Transaction(Transaction::Postgres(transaction)) => {
                postgres::bounded(async { Ok(bound!().$method(&mut **transaction).await?) })
                    .await?
                    .into()
            }
        }
    }};
}

impl Query {
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// How many rows it wrote.
    pub(crate) async fn execute<'a>(self, on: impl Into<On<'a>>) -> Result<u64> {
        let on = on.into();
        let Affected(rows) = run!(self, on, execute);
        Ok(rows)
    }

    pub(crate) async fn fetch_all<'a>(self, on: impl Into<On<'a>>) -> Result<Vec<Row>> {
        let on = on.into();
        let Rows(rows) = run!(self, on, fetch_all);
        Ok(rows)
    }

    /// By a key.
    pub(crate) async fn fetch_optional<'a>(self, on: impl Into<On<'a>>) -> Result<Option<Row>> {
        let on = on.into();
        if self.holds_nul() {
            return Ok(None);
        }
        let Found(row) = run!(self, on, fetch_optional);
        Ok(row)
    }

    /// PostgreSQL has no such texts, and refuses even to look for one. Control lets none in.
    fn holds_nul(&self) -> bool {
        let mut texts = self.values.iter().filter_map(|value| match value {
            Value::Text(text) => text.as_ref(),
            Value::Number(_) => None,
        });
        texts.any(|text| text.contains('\0'))
    }
}

struct Affected(u64);
struct Rows(Vec<Row>);
struct Found(Option<Row>);

macro_rules! both {
    ($($result:ty, $row:ty;)*) => {$(
        impl From<$result> for Affected {
            fn from(result: $result) -> Self {
                Self(result.rows_affected())
            }
        }

        impl From<Vec<$row>> for Rows {
            fn from(rows: Vec<$row>) -> Self {
                Self(rows.into_iter().map(Row::from).collect())
            }
        }

        impl From<Option<$row>> for Found {
            fn from(row: Option<$row>) -> Self {
                Self(row.map(Row::from))
            }
        }
    )*};
}

both! {
    sqlx::sqlite::SqliteQueryResult, sqlx::sqlite::SqliteRow;
    sqlx::postgres::PgQueryResult, sqlx::postgres::PgRow;
}

impl<'a> From<&'a Pool> for On<'a> {
    fn from(pool: &'a Pool) -> Self {
        Self::Pool(pool)
    }
}

impl<'a> From<&'a mut Transaction> for On<'a> {
    fn from(transaction: &'a mut Transaction) -> Self {
        Self::Transaction(transaction)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(Some(text.clone()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<&Option<String>> for Value {
    fn from(text: &Option<String>) -> Self {
        Self::Text(text.clone())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        Self::Number(number)
    }
}
