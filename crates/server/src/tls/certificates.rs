//! Which certificate a connection gets: that of an ACME server for the names that it is for, and ours, or the
//! operator's, for all others.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::RwLock;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use soulbox_acme::Issued;

use super::reloading::Reloading;

/// With the time until which it is valid, by the certificate's own words.
#[derive(Debug)]
struct Acme {
    key: Arc<CertifiedKey>,
    issued: Issued,
}

#[derive(Debug)]
pub(crate) struct Certificates {
    pub(super) usual: Reloading,
    acme: RwLock<Option<Acme>>,
    counts: RwLock<AcmeCounts>,
}

/// For the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AcmeCounts {
    pub(crate) issued: u64,
    pub(crate) failed: u64,
}

impl Certificates {
    pub(super) fn new(usual: Reloading) -> Self {
        Self {
            usual,
            acme: RwLock::new(None),
            counts: RwLock::default(),
        }
    }

    /// Connections that are open keep the one that they have.
    pub(super) fn use_acme(&self, key: CertifiedKey, issued: Issued) {
        *self.acme.write() = Some(Acme {
            key: Arc::new(key),
            issued,
        });
    }

    pub(super) fn count(&self, succeeded: bool) {
        let mut counts = self.counts.write();
        if succeeded {
            counts.issued += 1;
        } else {
            counts.failed += 1;
        }
    }

    pub(crate) fn counts(&self) -> AcmeCounts {
        *self.counts.read()
    }

    /// When the certificates end, in seconds since 1970, with where they are from.
    pub(crate) fn ends(&self) -> Vec<(&'static str, i64)> {
        let mut ends = Vec::new();
        if let Some(until) = self.usual.until() {
            ends.push(("usual", seconds(until)));
        }
        if let Some(acme) = &*self.acme.read() {
            ends.push(("acme", seconds(acme.issued.until)));
        }
        ends
    }

    fn for_name(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let acme = self.acme.read();
        let fits = |acme: &&Acme| {
            name.is_some_and(|name| covers(&acme.issued.names, name))
                && acme.issued.is_valid(SystemTime::now())
        };
        acme.as_ref()
            .filter(fits)
            .map_or_else(|| self.usual.current(), |acme| Arc::clone(&acme.key))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.for_name(hello.server_name()))
    }
}

/// A wildcard is for one label.
fn covers(names: &[String], name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let above = name.split_once('.').map(|(_, above)| above);
    names.iter().any(|known| {
        *known == name
            || known
                .strip_prefix("*.")
                .is_some_and(|known| Some(known) == above)
    })
}

fn seconds(time: SystemTime) -> i64 {
    let since: Duration = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_one_label() {
        let names = ["sbx.test".to_owned(), "*.sbx.test".to_owned()];
        for name in ["sbx.test", "api.SBX.test", "8000-i1.sbx.test."] {
            assert!(covers(&names, name), "{name}");
        }
        for name in ["test", "a.b.sbx.test", "xsbx.test", "localhost"] {
            assert!(!covers(&names, name), "{name}");
        }
    }
}
