//! Addresses of names that the node itself connects to for a sandbox: by the same name servers that
//! answer the sandbox, and at the sandbox's cost.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};

use super::query_limiter::QueryLimiter;
use super::upstream::Upstream;

/// Of one answer.
const MOST: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct Resolver {
    pub(super) upstream: Arc<Upstream>,
    pub(super) limiter: Arc<QueryLimiter>,
}

impl Resolver {
    /// Of IPv4, which is all that sandboxes have; in the order of the answer. None is cached.
    pub(crate) async fn addresses(
        &self,
        sandbox: Ipv4Addr,
        name: &str,
    ) -> io::Result<Vec<Ipv4Addr>> {
        let query = query(name)?;
        self.limiter.throttle(sandbox).await;
        let answer = self.upstream.ask_udp(&query).await;
        let answer = answer.ok_or(io::ErrorKind::TimedOut)?;
        let mut answer = Message::from_vec(&answer).map_err(io::Error::other)?;
        if answer.metadata.truncation {
            let whole = self.upstream.ask_tcp(&query).await;
            let whole = whole.ok_or(io::ErrorKind::TimedOut)?;
            answer = Message::from_vec(&whole).map_err(io::Error::other)?;
        }
        if answer.metadata.response_code != ResponseCode::NoError {
            return Err(io::Error::other(answer.metadata.response_code.to_string()));
        }
        let addresses = answer
            .answers
            .iter()
            .filter_map(|record| match record.data {
                RData::A(address) => Some(address.0),
                _ => None,
            });
        Ok(addresses.take(MOST).collect())
    }
}

fn query(name: &str) -> io::Result<Vec<u8>> {
    let mut name = Name::from_ascii(name).map_err(io::Error::other)?;
    name.set_fqdn(true);
    // The number is replaced by a random one before it is sent.
    let mut message = Message::new(0, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name, RecordType::A));
    message.to_vec().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::super::message;
    use super::*;

    #[test]
    fn a_query_is_one_that_the_forwarder_would_pass_on() {
        let query = query("www.example.com").unwrap();
        assert!(message::is_query(&query));
        let asked = message::asked(&query).unwrap();
        assert_eq!(asked, (Some("www.example.com".to_owned()), 1));
    }
}
