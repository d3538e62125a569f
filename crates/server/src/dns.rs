//! `soulbox dns`: answers the wildcard of the domain, for machines whose resolver does not.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Context;

#[derive(Debug, Clone, clap::Args)]
pub struct DnsArgs {
    /// Where questions are answered, over UDP and TCP
    ///
    /// `soulbox serve` answers its own names itself (--dns), and `soulbox trust` points the machine's
    /// resolver to it: this is for machines without the server. dnsmasq:
    /// `server=/sbx.localhost/127.0.0.1#5300`. Without it: listen on 127.0.0.1:53 and put `nameserver 127.0.0.1` first in
    /// /etc/resolv.conf (other names are refused, and the next server is asked).
    #[arg(
        long,
        env = "SOULBOX_DNS_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:5300"
    )]
    pub listen: SocketAddr,
    /// The domain; it and every name below it get the same answer
    #[arg(
        long,
        env = "SOULBOX_DOMAIN",
        value_name = "NAME",
        default_value = "sbx.localhost"
    )]
    pub domain: String,
    /// The answer: where the server is
    #[arg(long, env = "SOULBOX_DNS_ANSWER", value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub answer: IpAddr,
}

/// Runs until `shutdown`.
pub async fn dns(args: DnsArgs, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    let DnsArgs {
        listen,
        domain,
        answer,
    } = args;
    let report = |bound: SocketAddr| {
        println!("Answering *.{domain} with {answer} on {bound} (UDP and TCP).");
        println!("Try: dig @{} -p {} 1.{domain}", bound.ip(), bound.port());
    };
    soulbox_net::wildcard_dns(listen, &domain, answer, report, shutdown)
        .await
        .with_context(|| {
            format!("could not answer names on {listen}; choose another address with --listen")
        })
}
