//! Migrations, in the order of their numbers. A released one never changes: add another.

use std::borrow::Cow;

use sqlx::{
    SqlSafeStr,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};

use crate::Error;

const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "start", include_str!("../migrations/0001_start.sql")),
    (
        2,
        "secrets, volumes, events",
        include_str!("../migrations/0002_secrets_volumes_events.sql"),
    ),
    (
        3,
        "snapshots",
        include_str!("../migrations/0003_snapshots.sql"),
    ),
    (
        4,
        "templates",
        include_str!("../migrations/0004_templates.sql"),
    ),
    (5, "tiers", include_str!("../migrations/0005_tiers.sql")),
];

pub(crate) fn migrator() -> Migrator {
    let migrations = MIGRATIONS.iter().map(|&(version, name, sql)| {
        let kind = MigrationType::Simple;
        Migration::new(
            version,
            Cow::Borrowed(name),
            kind,
            sql.into_sql_str(),
            false,
        )
    });
    Migrator::with_migrations(migrations.collect())
}

pub(crate) fn explained(error: MigrateError) -> Error {
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    let known = MIGRATIONS.last().map_or(0, |&(version, ..)| version);
    match error {
        MigrateError::VersionMissing(found) if found > known => Error::Newer { found, known },
        MigrateError::Execute(source)
            if Error::code_of(&source).is_some_and(|code| code == LOCK_NOT_AVAILABLE) =>
        {
            Error::MigrationUnderWay
        }
        error => Error::Migrate(error),
    }
}
