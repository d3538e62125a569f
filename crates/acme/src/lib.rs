//! A certificate for a real domain, from an ACME server (RFC 8555) such as Let's Encrypt.
//!
//! # Layout
//! - [`Acme`]: one server, one account, one set of names; [`Acme::obtain`] is the whole exchange
//! - [`Challenge`]: how the names are shown to be ours; [`Tokens`]: what HTTP-01's questions are answered with;
//!   [`Hook`]: the operator's program that changes the DNS
//! - [`Issued`]: what a certificate says of itself, and when it is due
//! - `files`: the account and the certificate, on the disk before they are used
//! - `http`: requests to the server, bounded

mod error;
mod files;
mod hook;
mod http;
mod issued;
mod tokens;

use std::{path::PathBuf, time::Duration};

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tokio::time::timeout;

pub use error::Error;
pub use files::certificate_file;
pub use hook::Hook;
pub use issued::Issued;
pub use tokens::Tokens;

use files::KeptAccount;

pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Name servers take their time; one that takes longer is asked again at the next try.
const WHOLE_LIMIT: Duration = Duration::from_mins(10);
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_mins(3));
const UNKNOWN_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// How the server finds out that a name is ours.
#[derive(Debug, Clone)]
pub enum Challenge {
    /// It asks `http://<name>/.well-known/acme-challenge/<token>`: never for a wildcard.
    Http01(Tokens),
    /// It looks for a TXT record.
    Dns01(Hook),
}

impl Challenge {
    fn kind(&self) -> ChallengeType {
        match self {
            Self::Http01(_) => ChallengeType::Http01,
            Self::Dns01(_) => ChallengeType::Dns01,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Acme {
    pub directory: String,
    /// Told to the server, which may warn of an expiry.
    pub email: Option<String>,
    pub names: Vec<String>,
    pub challenge: Challenge,
    /// Private to us.
    pub folder: PathBuf,
    /// Authorities for the connection to the server itself, besides the system's: a private one.
    pub extra_roots: Option<PathBuf>,
}

/// What was shown to the server and has to be taken back.
enum Shown {
    Token(String),
    Record { name: String, value: String },
}

impl Acme {
    /// What there is from earlier, if it is for these names.
    pub fn kept(&self) -> Result<Option<Issued>, Error> {
        let kept = files::read_certificate(&self.folder)?;
        Ok(kept.filter(|issued| issued.is_for(&self.names)))
    }

    /// Gets a new certificate and keeps it in the folder.
    pub async fn obtain(&self) -> Result<Issued, Error> {
        match timeout(WHOLE_LIMIT, self.exchange()).await {
            Ok(done) => done,
            Err(_) => Err(Error::Late(WHOLE_LIMIT)),
        }
    }

    async fn exchange(&self) -> Result<Issued, Error> {
        let account = self.account().await?;
        match self.order(&account).await {
            Err(Error::Acme(instant_acme::Error::Api(problem)))
                if problem.r#type.as_deref() == Some(UNKNOWN_ACCOUNT) =>
            {
                // Test servers forget everything.
                tracing::warn!(
                    directory = self.directory,
                    "the ACME account is gone there: making a new one"
                );
                files::forget_account(&self.folder)?;
                let account = self.account().await?;
                self.order(&account).await
            }
            other => other,
        }
    }

    async fn account(&self) -> Result<Account, Error> {
        let client =
            || Account::builder_with_http(Box::new(http::Client::new(self.extra_roots.clone())));
        if let Some(kept) = files::read_account(&self.folder)?
            && kept.directory == self.directory
        {
            return Ok(client().from_credentials(kept.credentials).await?);
        }
        let contact = self.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let (account, credentials) = client().create(&new, self.directory.clone(), None).await?;
        let kept = KeptAccount {
            directory: self.directory.clone(),
            credentials,
        };
        files::write_account(&self.folder, &kept)?;
        tracing::info!(directory = self.directory, "made an ACME account");
        Ok(account)
    }

    async fn order(&self, account: &Account) -> Result<Issued, Error> {
        let names: Vec<Identifier> = self.names.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&names)).await?;
        let mut shown = Vec::new();
        let proven = self.prove(&mut order, &mut shown).await;
        // Also after a failure: what was shown is of no use to anybody any more.
        for each in shown {
            self.take_back(each).await;
        }
        proven?;

        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(self.names.clone())?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key)?;
        order.finalize_csr(request.der()).await?;
        let chain = order.poll_certificate(&POLL).await?;
        let issued = files::write_certificate(&self.folder, &key.serialize_pem(), &chain)?;
        if !issued.is_for(&self.names) {
            return Err(Error::OtherNames {
                names: issued.names.join(", "),
            });
        }
        Ok(issued)
    }

    async fn prove(
        &self,
        order: &mut instant_acme::Order,
        shown: &mut Vec<Shown>,
    ) -> Result<(), Error> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let name = authorization.identifier().to_string();
            let Some(mut challenge) = authorization.challenge(self.challenge.kind()) else {
                return Err(Error::NoChallenge {
                    name,
                    kind: format!("{:?}", self.challenge.kind()),
                });
            };
            let answer = challenge.key_authorization();
            match &self.challenge {
                Challenge::Http01(tokens) => {
                    tokens.add(&challenge.token, answer.as_str());
                    shown.push(Shown::Token(challenge.token.clone()));
                }
                Challenge::Dns01(hook) => {
                    let name = format!("_acme-challenge.{}", name.trim_start_matches("*."));
                    let value = answer.dns_value();
                    let record = Shown::Record {
                        name: name.clone(),
                        value: value.clone(),
                    };
                    // One that failed may have done half of it.
                    shown.push(record);
                    hook.call("present", &name, &value).await?;
                }
            }
            challenge.set_ready().await?;
        }
        match order.poll_ready(&POLL).await? {
            OrderStatus::Ready => Ok(()),
            _ => Err(Error::Refused(refusals(order).await)),
        }
    }

    async fn take_back(&self, shown: Shown) {
        match (shown, &self.challenge) {
            (Shown::Token(token), Challenge::Http01(tokens)) => tokens.remove(&token),
            (Shown::Record { name, value }, Challenge::Dns01(hook)) => {
                if let Err(error) = hook.call("cleanup", &name, &value).await {
                    tracing::warn!(%error, name, "the record of an ACME challenge may still be there");
                }
            }
            _ => {}
        }
    }
}

/// What the server found when it looked.
async fn refusals(order: &mut instant_acme::Order) -> String {
    let mut told = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        if authorization.refresh().await.is_err() {
            continue;
        }
        for challenge in &authorization.challenges {
            if let Some(problem) = &challenge.error {
                let detail = problem
                    .detail
                    .clone()
                    .unwrap_or_else(|| problem.to_string());
                told.push(format!("{name}: {detail}"));
            }
        }
    }
    if told.is_empty() {
        "it did not say why".to_owned()
    } else {
        told.join("; ")
    }
}
