use std::{
    net::{IpAddr, Ipv4Addr},
    pin::pin,
    time::Duration,
};

use soulbox_proxy::StreamLimits;

use super::*;

/// A descriptor while few are in use.
const LOW: u64 = 0;

fn limiter(max_open: usize, max_per_client: usize) -> ConnectionLimiter {
    ConnectionLimiter::new(ConnectionLimits {
        max_open,
        max_per_client,
        max_descriptors: 100,
        max_pending: 4,
        streams: StreamLimits::default(),
    })
}

async fn connect(
    limiter: &ConnectionLimiter,
    address: IpAddr,
    descriptor: u64,
) -> Option<ConnectionPermit> {
    limiter.enqueue(address, descriptor).await.admitted().await
}

fn from(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

fn is_to_close(permit: &ConnectionPermit) -> bool {
    permit.handle().close().is_cancelled()
}

/// Connects, and closes those of the others that are to be closed.
async fn replace(
    limiter: &ConnectionLimiter,
    address: IpAddr,
    others: &mut Vec<ConnectionPermit>,
) -> Option<ConnectionPermit> {
    let mut permit = pin!(connect(limiter, address, LOW));
    loop {
        tokio::select! {
            biased;
            permit = permit.as_mut() => return permit,
            () = tokio::time::sleep(Duration::from_millis(1)) => others.retain(|other| !is_to_close(other)),
        }
    }
}

async fn tunnel(limiter: &ConnectionLimiter, address: IpAddr) -> ConnectionPermit {
    let tunnel = connect(limiter, address, LOW).await.unwrap();
    tunnel.handle().request().keep_until_close();
    tunnel
}

fn state(permit: &ConnectionPermit) -> State {
    permit.handle().state().0
}

fn ids(permits: &[ConnectionPermit]) -> Vec<u64> {
    permits.iter().map(|permit| permit.handle.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_is_refused_while_all_are_busy_and_admitted_when_one_becomes_idle() {
    let limiter = limiter(2, 2);
    let busy = connect(&limiter, from(1), LOW).await.unwrap();
    let request = busy.handle().request();
    let tunnel = tunnel(&limiter, from(1)).await;
    let started = Instant::now();
    assert!(connect(&limiter, from(2), LOW).await.is_none());
    assert_eq!(started.elapsed().as_secs(), 5, "it waited");
    assert_eq!(limiter.stats().refused, 1);

    drop(request);
    let mut others = vec![busy, tunnel];
    let permit = replace(&limiter, from(2), &mut others).await;
    assert!(permit.is_some() && others.len() == 1, "the tunnel stays");
    assert_eq!(limiter.stats().evicted, 1);
}

#[tokio::test(start_paused = true)]
async fn no_request_for_a_second_is_closed_before_idle_and_idle_before_just_connected() {
    let limiter = limiter(8, 8);
    let mut others = Vec::new();
    for last in 1..=6 {
        others.push(connect(&limiter, from(last), LOW).await.unwrap());
        drop(others[usize::from(last) - 1].handle().request());
    }
    let silent = connect(&limiter, from(7), LOW).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    others.extend([silent, connect(&limiter, from(8), LOW).await.unwrap()]);
    let second = ids(&others)[1];
    let ninth = replace(&limiter, from(9), &mut others).await.unwrap();
    assert_eq!(ids(&others).len(), 7, "the silent one was closed");
    assert!(others[..6].iter().all(|other| state(other) == State::Idle));
    let _tenth = replace(&limiter, from(10), &mut others).await.unwrap();
    assert_eq!(others.len(), 6);
    assert_eq!(
        ids(&others)[0],
        second,
        "then the least recently used idle one"
    );
    assert_eq!(state(&others[5]), State::New);
    drop(ninth);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_connections_without_requests_replaces_itself_and_no_idle_ones() {
    let limiter = limiter(16, 16);
    let mut idle = Vec::new();
    for last in 1..=8 {
        idle.push(connect(&limiter, from(last), LOW).await.unwrap());
        drop(idle.last().unwrap().handle().request());
    }
    let mut flood = Vec::new();
    for last in 10..=250 {
        let one = replace(&limiter, from(last), &mut flood).await.unwrap();
        flood.push(one);
    }
    assert!(!idle.iter().any(is_to_close));
    assert_eq!(flood.len(), 8);
    // Without a flood, new connections do not replace each other either.
    let mut fresh = flood.split_off(4);
    drop(flood);
    for _ in &fresh {
        idle.push(connect(&limiter, from(1), LOW).await.unwrap());
        drop(idle.last().unwrap().handle().request());
    }
    let _last = replace(&limiter, from(9), &mut idle).await.unwrap();
    assert_eq!(idle.len(), 11, "a quarter is for those without a request");
    fresh.retain(|permit| !is_to_close(permit));
    assert_eq!(fresh.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_client_at_its_limit_does_not_delay_others_and_is_refused_at_once() {
    let limiter = limiter(8, 7);
    let mut open = Vec::new();
    for _ in 0..7 {
        open.push(connect(&limiter, from(1), LOW).await.unwrap());
    }
    let busy: Vec<_> = open.iter().map(|one| one.handle().request()).collect();
    let idle = connect(&limiter, from(2), LOW).await.unwrap();
    drop(idle.handle().request());

    let started = Instant::now();
    for _ in 0..100 {
        assert!(connect(&limiter, from(1), LOW).await.is_none());
    }
    assert!(started.elapsed().is_zero());
    assert_eq!(limiter.stats().refused, 100);
    assert!(!is_to_close(&idle), "it belongs to another client");
    let mut others = vec![idle];
    let _other = replace(&limiter, from(3), &mut others).await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(100));
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn a_client_at_its_limit_replaces_its_own_and_leaves_the_others_theirs() {
    let limiter = limiter(8, 4);
    let mut others = vec![connect(&limiter, from(1), LOW).await.unwrap()];
    let first = ids(&others)[0];
    drop(others[0].handle().request());
    for _ in 0..20 {
        let one = replace(&limiter, from(2), &mut others).await.unwrap();
        others.push(one);
    }
    assert_eq!(others.len(), 5);
    assert_eq!(ids(&others)[0], first, "least recently used, but another's");
    // However many it has busy, or reads nothing of: others find their part free.
    let busy: Vec<_> = others[1..]
        .iter()
        .map(|permit| permit.handle().request())
        .collect();
    let started = Instant::now();
    assert!(connect(&limiter, from(2), LOW).await.is_none());
    for last in 3..=5 {
        others.push(connect(&limiter, from(last), LOW).await.unwrap());
    }
    assert!(started.elapsed().is_zero());
    assert!(!others.iter().any(is_to_close));
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_close_that_a_request_prevents_is_refused_at_once() {
    let limiter = limiter(8, 1);
    let own = connect(&limiter, from(1), LOW).await.unwrap();
    let started = Instant::now();
    let second = tokio::spawn(limiter.enqueue(from(1), LOW).await.admitted());
    own.handle().close().cancelled().await;
    let request = own.handle().request();
    assert!(second.await.unwrap().is_none());
    assert!(started.elapsed().is_zero());
    drop(request);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_its_own_to_be_closed_leaves_others_half_of_the_queue() {
    let limiter = limiter(8, 4);
    let mut own = Vec::new();
    for _ in 0..4 {
        own.push(connect(&limiter, from(1), LOW).await.unwrap());
    }
    // They close as slowly as they can.
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(tokio::spawn(limiter.enqueue(from(1), LOW).await.admitted()));
    }
    let started = Instant::now();
    assert!(connect(&limiter, from(2), LOW).await.is_some());
    assert!(started.elapsed().is_zero());
    assert_eq!(limiter.stats().refused, 18);
    own.retain(|permit| !is_to_close(permit));
    let mut admitted = 0;
    for waiting in waiting {
        admitted += usize::from(waiting.await.unwrap().is_some());
    }
    assert_eq!((own.len(), admitted), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_64_of_ipv6_is_one_client() {
    let limiter = limiter(4, 2);
    let mut others = vec![connect(&limiter, from(1), LOW).await.unwrap()];
    let first = ids(&others)[0];
    for last in 1..=3 {
        let address: IpAddr = format!("2001:db8::{last}").parse().unwrap();
        let one = replace(&limiter, address, &mut others).await.unwrap();
        others.push(one);
    }
    assert_eq!(others.len(), 3);
    assert_eq!(ids(&others)[0], first);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_crosses_with_the_close_is_served() {
    let limiter = limiter(1, 1);
    let permit = connect(&limiter, from(1), LOW).await.unwrap();
    let handle = permit.handle().clone();
    limiter.close_some();
    assert!(is_to_close(&permit));
    let request = handle.request();
    assert_eq!(handle.state().0, State::Busy);
    assert_eq!(limiter.stats().busy, 1);
    drop(request);
    assert_eq!(handle.state().0, State::Idle);
    drop(permit);
    assert_eq!(limiter.stats(), ConnectionStats::default());
}

#[tokio::test(start_paused = true)]
async fn while_descriptors_are_scarce_there_are_a_few_connections_only() {
    let limiter = limiter(1000, 1000);
    let mut others = Vec::new();
    for _ in 0..16 {
        others.push(connect(&limiter, from(1), 100).await.unwrap());
    }
    let requests: Vec<_> = others.iter().map(|o| o.handle().request()).collect();
    assert!(connect(&limiter, from(1), 100).await.is_none());
    assert!(connect(&limiter, from(1), 99).await.is_some());
    drop(requests);
}

#[tokio::test(start_paused = true)]
async fn while_descriptors_are_scarce_one_is_admitted_for_each_that_closes() {
    let limiter = limiter(1000, 1000);
    let mut busy = Vec::new();
    for _ in 0..20 {
        busy.push(connect(&limiter, from(1), LOW).await.unwrap());
    }
    let _requests: Vec<_> = busy.iter().map(|b| b.handle().request()).collect();
    let first = limiter.enqueue(from(2), 100).await;
    let second = limiter.enqueue(from(3), 100).await;
    busy.pop();
    let (first, second) = tokio::join!(first.admitted(), second.admitted());
    assert_eq!([first, second].iter().flatten().count(), 1);
    // What closed while none was pending is not there any more.
    busy.truncate(17);
    assert!(connect(&limiter, from(4), 100).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn only_what_waits_for_the_client_is_reset() {
    let limiter = limiter(2, 2);
    let permit = connect(&limiter, from(1), LOW).await.unwrap();
    let (blocked, quiet) = (permit.handle().request(), permit.handle().request());
    let (reset, other_reset) = (CancellationToken::new(), CancellationToken::new());
    blocked.block(reset.clone());
    quiet.block(other_reset.clone());
    quiet.unblock();
    assert_eq!(limiter.stats().stalled, 1);
    permit.handle().reset_blocked();
    assert!(reset.is_cancelled() && !other_reset.is_cancelled());
    drop(blocked);
    assert_eq!((limiter.stats().stalled, limiter.stats().busy), (0, 1));
    drop(quiet);
    assert_eq!(limiter.stats().idle, 1);
}

#[tokio::test(start_paused = true)]
async fn only_taking_bytes_is_progress() {
    let limiter = limiter(2, 2);
    let permit = connect(&limiter, from(1), LOW).await.unwrap();
    let handle = permit.handle();
    let seconds = || handle.state().1.elapsed().as_secs();
    let mut responses = Vec::new();
    for _ in 0..3 {
        let response = handle.request();
        response.block(CancellationToken::new());
        responses.push(response);
        // Asked for and given up.
        handle.request().block(CancellationToken::new());
        tokio::time::sleep(Duration::from_secs(14)).await;
    }
    assert_eq!((seconds(), limiter.stats().stalled), (42, 1));

    responses[0].unblock();
    assert_eq!(seconds(), 0, "the others wait, but the client reads");
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(seconds(), 14);
    for response in &responses {
        response.unblock();
    }
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(seconds(), 0, "there is nothing to take");
}
