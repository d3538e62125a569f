use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::Error;

/// What a certificate says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    pub names: Vec<String>,
    pub from: SystemTime,
    pub until: SystemTime,
}

impl Issued {
    /// The first certificate in the text.
    pub(crate) fn read(pem: &str) -> Result<Self, Error> {
        let unreadable = |problem: String| Error::Unreadable(problem);
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| unreadable(error.to_string()))?;
        Self::of_der(&der)
    }

    pub fn of_der(der: &[u8]) -> Result<Self, Error> {
        let unreadable = |problem: String| Error::Unreadable(problem);
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|error| unreadable(error.to_string()))?;
        let names = certificate
            .subject_alternative_name()
            .map_err(|error| unreadable(error.to_string()))?
            .map(|extension| extension.value.general_names.iter())
            .into_iter()
            .flatten()
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            })
            .collect();
        Ok(Self {
            names,
            from: time(certificate.validity().not_before.timestamp()),
            until: time(certificate.validity().not_after.timestamp()),
        })
    }

    pub fn is_for(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }

    pub fn is_valid(&self, now: SystemTime) -> bool {
        self.from <= now && now < self.until
    }

    /// After two thirds of its life.
    pub fn due(&self) -> SystemTime {
        let life = self.until.duration_since(self.from).unwrap_or_default();
        self.from + life / 3 * 2
    }
}

fn time(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_read_and_is_due_after_two_thirds() {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["sbx.test".to_owned(), "*.sbx.test".to_owned()];
        let mut params = rcgen::CertificateParams::new(names.clone()).unwrap();
        params.not_before = rcgen::date_time_ymd(2030, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 31);
        let pem = params.self_signed(&key).unwrap().pem();
        let issued = Issued::read(&format!("{}{pem}", key.serialize_pem())).unwrap();
        assert!(issued.is_for(&names) && !issued.is_for(&["api.sbx.test".to_owned()]));
        let day = Duration::from_hours(24);
        assert_eq!(issued.due(), issued.from + day * 20);
        assert!(issued.is_valid(issued.from + day) && !issued.is_valid(issued.until));
        assert!(Issued::read("no certificate").is_err());
    }
}
