//! A sandbox gets the tier that it asks for, or a refusal.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use soulbox_node::LocalNode;
use soulbox_runtime::{Error, Node, Remedy, ReservationSource, ReserveRequest, Runtimes};
use soulbox_types::{SandboxSpec, Tier};

#[path = "support/machine.rs"]
mod machine;
#[path = "support/world.rs"]
mod world;

use machine::{LONG, config, runtime, spec};
use world::{World, broken};

const WHY: &str = "runsc is not installed";

fn walled(tier: Tier) -> SandboxSpec {
    SandboxSpec { tier, ..spec(LONG) }
}

fn only_jail(world: &World) -> Runtimes {
    Runtimes::from(runtime(&world.machine)).without(Tier::Gvisor, WHY)
}

async fn server(world: &World, runtimes: Runtimes) -> Arc<LocalNode> {
    let config = config(&world.sandboxes());
    config
        .sandboxes_dir
        .clone_into(&mut world.machine.folder.lock());
    LocalNode::open(config, runtimes).await.unwrap()
}

#[tokio::test]
async fn a_tier_that_is_not_there_is_refused_with_its_reason_and_nothing_is_left() {
    let world = World::new();
    let server = server(&world, only_jail(&world)).await;
    for (tier, why) in [
        (Tier::Gvisor, WHY),
        (Tier::Microvm, "this version of the server does not have it"),
        (Tier::Docker, "this version of the server does not have it"),
    ] {
        let asked = walled(tier);
        let error = server.create(asked.clone()).await.unwrap_err();
        let Error::TierUnavailable { tier: told, reason } = &error else {
            panic!("{error}");
        };
        assert_eq!((*told, reason.as_str()), (tier, why));
        assert!(error.to_string().contains(tier.as_str()), "{error}");
        assert!(server.get(&asked.id).is_none());
        assert!(!world.place(&asked.id).exists());
        assert!(!world.runs(&asked.id), "no other tier took its place");
    }
}

#[tokio::test]
async fn nothing_is_reserved_of_another_tier() {
    let world = World::new();
    let server = server(&world, only_jail(&world)).await;
    world.machine.slots.lock().ready = vec![spec(LONG).id];
    let reserve = async |tier| {
        let request = ReserveRequest {
            tier,
            pool_key: None,
        };
        server.reserve(request).await.unwrap().source()
    };
    assert_eq!(reserve(Tier::Gvisor).await, ReservationSource::Fresh);
    assert_eq!(reserve(Tier::Jail).await, ReservationSource::Prepared);
}

#[tokio::test]
async fn a_sandbox_whose_tier_is_gone_is_left_alone_until_it_is_there_again() {
    let world = World::new();
    let jailed = world.left(None).await;
    // What runs says which tier it is of.
    let running = world.place(&jailed.id).join("running.json");
    let text = std::fs::read_to_string(&running).unwrap();
    let written = world.place(&jailed.id).join("spec.json");
    let spec = std::fs::read_to_string(&written).unwrap();
    let gvisor = spec.replace(r#""tier":"jail""#, r#""tier":"gvisor""#);
    assert_ne!(gvisor, spec);
    std::fs::write(&written, gvisor).unwrap();
    std::fs::write(&running, text.replace("jail", "gvisor")).unwrap();

    let without = server(&world, only_jail(&world)).await;
    let found = broken(&without, &jailed.id);
    assert_eq!(found.remedy, Remedy::Retry);
    assert!(found.reason.contains(WHY), "{}", found.reason);
    assert!(world.runs(&jailed.id), "it goes on");
    assert!(world.place(&jailed.id).join("disk.img").exists());
    drop(without);

    std::fs::write(&written, &spec).unwrap();
    std::fs::write(&running, &text).unwrap();
    let with = server(&world, only_jail(&world)).await;
    assert_eq!(with.get(&jailed.id).unwrap().spec.tier, Tier::Jail);
}
