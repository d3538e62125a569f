//! Migrations, in the order of their numbers. A released one never changes: add another.

use std::borrow::Cow;

use sqlx::{
    SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

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
