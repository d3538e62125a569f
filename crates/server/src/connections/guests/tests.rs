use std::net::Ipv4Addr;

use super::*;

const CALM: u64 = 0;

fn house(most: usize) -> Guests {
    Guests::new(Places {
        most,
        crowded_from: 100,
    })
}

fn from(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

fn is_asked_to_leave(guest: &Guest) -> bool {
    guest.presence.leave().is_cancelled()
}

/// A newcomer, and who of the others was asked to leave for it; those leave.
async fn newcomer(guests: &Guests, address: IpAddr, others: &mut Vec<Guest>) -> Option<Guest> {
    let mut place = pin!(guests.place(address, CALM));
    loop {
        tokio::select! {
            biased;
            place = place.as_mut() => return place,
            () = tokio::time::sleep(Duration::from_millis(1)) => others.retain(|guest| !is_asked_to_leave(guest)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_is_refused_when_all_stay_busy_and_comes_in_when_one_finishes() {
    let guests = house(2);
    let busy = guests.place(from(1), CALM).await.unwrap();
    let request = busy.presence().request();
    let tunnel = guests.place(from(1), CALM).await.unwrap();
    tunnel.presence().request().for_good();
    assert!(guests.place(from(2), CALM).await.is_none());
    assert_eq!(guests.stats().refused, 1);

    drop(request);
    let mut others = vec![busy, tunnel];
    let place = newcomer(&guests, from(2), &mut others).await;
    assert!(place.is_some() && others.len() == 1, "the tunnel stays");
    assert_eq!(guests.stats().gave_way, 1);
}

#[tokio::test(start_paused = true)]
async fn who_is_silent_for_a_second_leaves_before_who_is_idle_and_who_has_just_come() {
    let guests = house(3);
    let idle = guests.place(from(1), CALM).await.unwrap();
    drop(idle.presence().request());
    let mute = guests.place(from(2), CALM).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let fresh = guests.place(from(3), CALM).await.unwrap();
    let mut others = vec![idle, mute, fresh];
    let fourth = newcomer(&guests, from(4), &mut others).await.unwrap();
    assert_eq!(numbers(&others), [1, 4], "the mute one left");
    drop(fourth);
    others.push(guests.place(from(5), CALM).await.unwrap());
    let _sixth = newcomer(&guests, from(6), &mut others).await.unwrap();
    assert_eq!(others.len(), 2);
    assert!(
        numbers(&others).iter().all(|number| *number > 1),
        "then the idle one"
    );
}

fn numbers(guests: &[Guest]) -> Vec<u64> {
    guests.iter().map(|guest| guest.presence.number).collect()
}

#[tokio::test(start_paused = true)]
async fn who_has_more_than_half_of_the_places_makes_the_room() {
    let guests = house(8);
    let mut others = Vec::new();
    others.push(guests.place(from(1), CALM).await.unwrap());
    drop(others[0].presence().request());
    for _ in 0..7 {
        others.push(guests.place(from(2), CALM).await.unwrap());
    }
    let mut newcomers = Vec::new();
    for last in [3, 2] {
        newcomers.push(newcomer(&guests, from(last), &mut others).await.unwrap());
        assert_eq!(others[0].presence.number, 1, "idle longest, but alone");
    }
    // Not even for its own busy ones do others leave.
    let busy: Vec<_> = others[1..]
        .iter()
        .chain(&newcomers)
        .map(|guest| guest.presence().request())
        .collect();
    assert!(newcomer(&guests, from(2), &mut others).await.is_none());
    assert_eq!(others[0].presence.number, 1);
    assert!(newcomer(&guests, from(4), &mut others).await.is_some());
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn a_whole_network_of_ipv6_is_one_neighbourhood() {
    let guests = house(4);
    let mut others = Vec::new();
    others.push(guests.place(from(1), CALM).await.unwrap());
    for last in 1..=3 {
        let address: IpAddr = format!("2001:db8::{last}").parse().unwrap();
        others.push(guests.place(address, CALM).await.unwrap());
    }
    newcomer(&guests, from(2), &mut others).await.unwrap();
    assert_eq!(others.len(), 3);
    assert_eq!(others[0].presence.number, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_while_one_is_asked_to_leave_is_not_cut() {
    let guests = house(1);
    let guest = guests.place(from(1), CALM).await.unwrap();
    let presence = guest.presence();
    guests.make_way();
    assert!(is_asked_to_leave(&guest));
    let request = presence.request();
    assert_eq!(presence.mood().0, Mood::Busy);
    assert_eq!(guests.stats().busy, 1);
    drop(request);
    assert_eq!(presence.mood().0, Mood::Idle);
    drop(guest);
    assert_eq!(guests.stats(), GuestStats::default(), "it left by itself");
}

#[tokio::test(start_paused = true)]
async fn in_a_crowd_one_leaves_for_each_who_comes() {
    let guests = house(1000);
    let mut others = Vec::new();
    for _ in 0..16 {
        others.push(guests.place(from(1), 100).await.unwrap());
    }
    let requests: Vec<_> = others.iter().map(|g| g.presence().request()).collect();
    assert!(guests.place(from(1), 100).await.is_none());
    assert!(guests.place(from(1), 99).await.is_some());
    drop(requests);
}
