//! Transactions that got into each other's way.
//!
//! SQLite lets one writer in at a time. PostgreSQL lets them all in, and ends those that cannot all
//! be right; what the others wrote is there when they try again.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use crate::{Error, Result};

/// Of those that meet, one gets through each time.
const TRIES: u32 = 20;
/// Of which keys and rows are told to be wrong.
const REFUSALS: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_millis(2);
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Does `work`, a transaction from its beginning to its commit, until it did not meet another one.
pub(crate) async fn again<T, W>(mut work: impl FnMut() -> W) -> Result<T>
where
    W: Future<Output = Result<T>>,
{
    let mut wait = FIRST_WAIT;
    let (mut tries, mut refused) = (1, 0);
    loop {
        match work().await {
            Err(error) if error.is_collision() && tries < TRIES => {}
            // A key that another writer has just taken, or a row that it has just removed, is told
            // so as well. The next try sees for itself; what is told each time is true.
            Err(error) if error.is_refused_key() && refused < REFUSALS => refused += 1,
            done => return done,
        }
        tries += 1;
        tokio::time::sleep(part_of(wait)).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Whoever locks rows in the same order as all others never waits for somebody who waits for it:
/// PostgreSQL takes a second to see that, each time.
pub(crate) fn in_order<T>(rows: &[T], key: impl Fn(&T) -> &String) -> Vec<&T> {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by(|one, other| key(one).cmp(key(other)));
    rows
}

/// At random, so that those who met do not meet again.
fn part_of(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(());
    let hundredths = u32::try_from(random % 100).unwrap_or_default();
    wait * (50 + hundredths / 2) / 100
}

impl Error {
    /// The database ended this transaction for the sake of another one: nothing was written.
    fn is_collision(&self) -> bool {
        const SERIALIZATION_FAILURE: &str = "40001";
        const DEADLOCK_DETECTED: &str = "40P01";
        self.has_code(&[SERIALIZATION_FAILURE, DEADLOCK_DETECTED])
    }

    fn is_refused_key(&self) -> bool {
        const FOREIGN_KEY_VIOLATION: &str = "23503";
        const UNIQUE_VIOLATION: &str = "23505";
        self.has_code(&[FOREIGN_KEY_VIOLATION, UNIQUE_VIOLATION])
    }
}
