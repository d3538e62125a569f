use std::{
    net::{IpAddr, Ipv4Addr},
    pin::pin,
    time::Duration,
};

use soulbox_proxy::WayLimits;

use super::*;

const CALM: u64 = 0;

fn house(most: usize) -> Guests {
    Guests::new(Places {
        most,
        crowded_from: 100,
        waiting: 4,
        ways: WayLimits::default(),
    })
}

async fn place(guests: &Guests, address: IpAddr, descriptor: u64) -> Option<Guest> {
    match guests.arrive(address, descriptor).await {
        Arrival::Placed(guest) => Some(guest),
        Arrival::Waits(newcomer) => newcomer.place().await,
        Arrival::Refused => None,
    }
}

fn from(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

fn is_asked_to_leave(guest: &Guest) -> bool {
    guest.presence.leave().is_cancelled()
}

/// A newcomer, and who of the others was asked to leave for it; those leave.
async fn newcomer(guests: &Guests, address: IpAddr, others: &mut Vec<Guest>) -> Option<Guest> {
    let mut place = pin!(place(guests, address, CALM));
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
    let busy = place(&guests, from(1), CALM).await.unwrap();
    let request = busy.presence().request();
    let tunnel = place(&guests, from(1), CALM).await.unwrap();
    tunnel.presence().request().for_good();
    assert!(place(&guests, from(2), CALM).await.is_none());
    assert_eq!(guests.stats().refused, 1);

    drop(request);
    let mut others = vec![busy, tunnel];
    let place = newcomer(&guests, from(2), &mut others).await;
    assert!(place.is_some() && others.len() == 1, "the tunnel stays");
    assert_eq!(guests.stats().gave_way, 1);
}

#[tokio::test(start_paused = true)]
async fn who_is_silent_for_a_second_leaves_before_who_is_idle_and_who_has_just_come() {
    let guests = house(8);
    let mut others = Vec::new();
    for last in 1..=6 {
        others.push(place(&guests, from(last), CALM).await.unwrap());
        drop(others[usize::from(last) - 1].presence().request());
    }
    let mute = place(&guests, from(7), CALM).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    others.extend([mute, place(&guests, from(8), CALM).await.unwrap()]);
    let second = numbers(&others)[1];
    let ninth = newcomer(&guests, from(9), &mut others).await.unwrap();
    assert_eq!(numbers(&others).len(), 7, "the mute one left");
    assert!(others[..6].iter().all(|guest| mood(guest) == Mood::Idle));
    let _tenth = newcomer(&guests, from(10), &mut others).await.unwrap();
    assert_eq!(others.len(), 6);
    assert_eq!(numbers(&others)[0], second, "then the one idle longest");
    assert_eq!(mood(&others[5]), Mood::Silent);
    drop(ninth);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_silent_clients_pushes_out_itself_and_not_those_who_ask_now_and_then() {
    let guests = house(16);
    let mut idle = Vec::new();
    for last in 1..=8 {
        idle.push(place(&guests, from(last), CALM).await.unwrap());
        drop(idle.last().unwrap().presence().request());
    }
    let mut flood = Vec::new();
    for last in 10..=250 {
        let one = newcomer(&guests, from(last), &mut flood).await.unwrap();
        flood.push(one);
    }
    assert!(!idle.iter().any(is_asked_to_leave));
    assert_eq!(flood.len(), 8);
    // Nor do newcomers of a calm hour push out each other.
    let mut fresh = flood.split_off(4);
    drop(flood);
    for _ in &fresh {
        idle.push(place(&guests, from(1), CALM).await.unwrap());
        drop(idle.last().unwrap().presence().request());
    }
    let _last = newcomer(&guests, from(9), &mut idle).await.unwrap();
    assert_eq!(idle.len(), 11, "a quarter of the places is for the silent");
    fresh.retain(|guest| !is_asked_to_leave(guest));
    assert_eq!(fresh.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn who_reads_nothing_for_half_a_minute_is_cut_for_a_newcomer_and_only_then() {
    let guests = house(2);
    let deaf = place(&guests, from(1), CALM).await.unwrap();
    let (_answer, mut stall) = (deaf.presence().request(), deaf.presence().stalls());
    let quiet = place(&guests, from(2), CALM).await.unwrap();
    let _stream = quiet.presence().request();
    assert_eq!((guests.stats().stalled, guests.stats().busy), (1, 1));

    assert!(place(&guests, from(3), CALM).await.is_none());
    assert!(!is_cut(&mut stall).await, "it may read again");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(!is_cut(&mut stall).await, "nobody needs its place");
    let mut place = pin!(place(&guests, from(3), CALM));
    tokio::select! {
        biased;
        place = place.as_mut() => panic!("{place:?}"),
        cut = is_cut(&mut stall) => assert!(cut),
    }
    drop(stall);
    drop(deaf);
    assert!(place.await.is_some());
    assert!(!is_asked_to_leave(&quiet), "there is nothing to read");
    assert_eq!(guests.stats().gave_way, 1);
}

#[tokio::test(start_paused = true)]
async fn who_takes_a_byte_now_and_then_is_not_cut() {
    let guests = house(2);
    let slow = place(&guests, from(1), CALM).await.unwrap();
    let _tunnel = tunnel(&guests, from(3)).await;
    let _answer = slow.presence().request();
    for _ in 0..10 {
        let mut stall = slow.presence().stalls();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(place(&guests, from(2), CALM).await.is_none());
        assert!(!is_cut(&mut stall).await);
    }
}

async fn tunnel(guests: &Guests, address: IpAddr) -> Guest {
    let tunnel = place(guests, address, CALM).await.unwrap();
    tunnel.presence().request().for_good();
    tunnel
}

async fn is_cut(stall: &mut Stall) -> bool {
    let cut = std::future::poll_fn(|cx| stall.poll_cut(cx));
    tokio::time::timeout(Duration::from_millis(1), cut)
        .await
        .is_ok()
}

fn mood(guest: &Guest) -> Mood {
    guest.presence().mood().0
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_waits_for_its_own_does_not_hold_up_others() {
    let guests = house(8);
    let mut crowd = Vec::new();
    for _ in 0..7 {
        crowd.push(place(&guests, from(1), CALM).await.unwrap());
    }
    let busy: Vec<_> = crowd.iter().map(|one| one.presence().request()).collect();
    let idle = place(&guests, from(2), CALM).await.unwrap();
    drop(idle.presence().request());

    let started = Instant::now();
    let mut waiting = Vec::new();
    for _ in 0..2 {
        match guests.arrive(from(1), CALM).await {
            Arrival::Waits(newcomer) => waiting.push(newcomer),
            other => panic!("{other:?}"),
        }
    }
    for _ in 0..100 {
        let one_more = guests.arrive(from(1), CALM).await;
        assert!(matches!(one_more, Arrival::Refused), "enough wait");
    }
    assert!(started.elapsed().is_zero());
    assert_eq!(guests.stats().refused, 100);
    let mut others = vec![idle];
    let _other = newcomer(&guests, from(3), &mut others).await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(100));

    drop(waiting);
    let again = guests.arrive(from(1), CALM).await;
    assert!(matches!(again, Arrival::Waits(_)), "others may wait now");
    drop(busy);
}

fn numbers(guests: &[Guest]) -> Vec<u64> {
    guests.iter().map(|guest| guest.presence.number).collect()
}

#[tokio::test(start_paused = true)]
async fn who_has_more_than_half_of_the_places_makes_the_room() {
    let guests = house(8);
    let mut others = Vec::new();
    others.push(place(&guests, from(1), CALM).await.unwrap());
    drop(others[0].presence().request());
    for _ in 0..7 {
        others.push(place(&guests, from(2), CALM).await.unwrap());
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
    others.push(place(&guests, from(1), CALM).await.unwrap());
    for last in 1..=3 {
        let address: IpAddr = format!("2001:db8::{last}").parse().unwrap();
        others.push(place(&guests, address, CALM).await.unwrap());
    }
    newcomer(&guests, from(2), &mut others).await.unwrap();
    assert_eq!(others.len(), 3);
    assert_eq!(others[0].presence.number, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_while_one_is_asked_to_leave_is_not_cut() {
    let guests = house(1);
    let guest = place(&guests, from(1), CALM).await.unwrap();
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
        others.push(place(&guests, from(1), 100).await.unwrap());
    }
    let requests: Vec<_> = others.iter().map(|g| g.presence().request()).collect();
    assert!(place(&guests, from(1), 100).await.is_none());
    assert!(place(&guests, from(1), 99).await.is_some());
    drop(requests);
}

#[tokio::test(start_paused = true)]
async fn in_a_crowd_the_descriptor_of_one_who_left_is_for_one_who_comes() {
    let guests = house(1000);
    let mut busy = Vec::new();
    for _ in 0..20 {
        busy.push(place(&guests, from(1), CALM).await.unwrap());
    }
    let _requests: Vec<_> = busy.iter().map(|g| g.presence().request()).collect();
    let mut newcomers = Vec::new();
    for last in 2..=3 {
        match guests.arrive(from(last), 100).await {
            Arrival::Waits(newcomer) => newcomers.push(newcomer),
            other => panic!("{other:?}"),
        }
    }
    busy.pop();
    let (first, second) = tokio::join!(newcomers[0].place(), newcomers[1].place());
    assert_eq!([first, second].iter().flatten().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_held_up_by_its_client_when_all_of_its_answers_are() {
    let guests = house(2);
    let tunnel = tunnel(&guests, from(3)).await;
    let guest = place(&guests, from(1), CALM).await.unwrap();
    let cut = guest.presence().cut().clone();
    let (mut held, quiet) = (guest.presence().request(), guest.presence().request());
    held.is_up_to_the_client();
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(place(&guests, from(2), CALM).await.is_none());
    assert!(!cut.is_cancelled(), "the other one has nothing to read");

    guest.presence().takes();
    drop(quiet);
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(place(&guests, from(2), CALM).await.is_none());
        assert!(!cut.is_cancelled(), "it takes something now and then");
        guest.presence().takes();
    }
    held.is_up_to_us();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(place(&guests, from(2), CALM).await.is_none());
    assert!(!cut.is_cancelled(), "there is nothing to take");

    held.is_up_to_the_client();
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(place(&guests, from(2), CALM).await.is_none());
    assert!(cut.is_cancelled());
    drop(held);
    drop((guest, tunnel));
    assert_eq!(guests.stats().gave_way, 1);
    assert_eq!(guests.stats().busy, 0);
}

#[tokio::test(start_paused = true)]
async fn asking_for_more_of_what_it_does_not_take_keeps_nobody_its_place() {
    let guests = house(2);
    let (greedy, reader) = (
        place(&guests, from(1), CALM).await.unwrap(),
        place(&guests, from(2), CALM).await.unwrap(),
    );
    let is_cut = |guest: &Guest| guest.presence().cut().is_cancelled();
    let mut answers = Vec::new();
    for _ in 0..3 {
        assert!(!is_cut(&greedy));
        for guest in [&greedy, &reader] {
            let mut answer = guest.presence().request();
            answer.is_up_to_the_client();
            answers.push(answer);
        }
        // A whole answer is as good as a piece of one, but not one that is given up.
        let mut whole = reader.presence().request();
        whole.gives();
        reader.presence().takes();
        drop(whole);
        greedy.presence().request().gives();
        tokio::time::sleep(Duration::from_secs(14)).await;
    }
    assert_eq!(guests.stats().stalled, 2);
    assert!(place(&guests, from(3), CALM).await.is_none());
    assert!(is_cut(&greedy) && !is_cut(&reader));
}

#[tokio::test(start_paused = true)]
async fn who_has_more_than_half_of_the_places_makes_room_for_others_sooner_when_it_does_not_read() {
    let guests = house(4);
    let alone = place(&guests, from(1), CALM).await.unwrap();
    let mut crowd = Vec::new();
    for _ in 0..3 {
        crowd.push(place(&guests, from(2), CALM).await.unwrap());
    }
    let mut answers: Vec<_> = [&alone]
        .into_iter()
        .chain(&crowd)
        .map(|guest| guest.presence().request())
        .collect();
    // The last one of the crowd has nothing to take.
    answers[..3].iter_mut().for_each(Underway::gives);
    let is_cut = |guest: &Guest| guest.presence().cut().is_cancelled();

    for _ in 0..2 {
        assert!(place(&guests, from(2), CALM).await.is_none());
        assert!(
            !crowd.iter().any(is_cut),
            "not for its own, after so little"
        );
        for guest in &crowd {
            guest.presence().takes();
        }
    }
    let mut newcomer = pin!(place(&guests, from(3), CALM));
    for _ in 0..2 {
        let waited = tokio::time::timeout(Duration::from_secs(2), newcomer.as_mut()).await;
        assert!(waited.is_err());
        crowd[1].presence().takes();
    }
    let waited = tokio::time::timeout(Duration::from_secs(2), newcomer.as_mut()).await;
    assert!(waited.is_ok_and(|place| place.is_none()), "nobody left yet");
    assert!(is_cut(&crowd[0]), "it has taken nothing for five seconds");
    assert!(!is_cut(&crowd[1]), "it takes something now and then");
    assert!(!is_cut(&crowd[2]) && !is_cut(&alone));

    drop(answers.remove(1));
    drop(crowd.remove(0));
    let _fourth = tunnel(&guests, from(3)).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(place(&guests, from(4), CALM).await.is_none());
    assert!(!crowd.iter().any(is_cut), "it is no crowd any more");
}
