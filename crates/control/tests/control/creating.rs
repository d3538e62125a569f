//! Creating a sandbox: limits, reservations, idempotency, what is refused.

use super::*;

#[tokio::test]
async fn a_secured_sandbox_gets_the_token_derived_from_its_id() {
    let world = world().await;
    let access = world.create(request()).await.unwrap();
    let token = access.access_token.unwrap();
    assert_eq!(token.expose().len(), 64);
    let status = world.node.get(&access.id).unwrap();
    assert_eq!(status.spec.access_token, Some(token));
    assert_eq!(
        status.spec.deadline,
        status.spec.created_at.plus(Duration::from_mins(5))
    );
    let open = world
        .create(CreateRequest {
            secure: false,
            ..request()
        })
        .await
        .unwrap();
    assert_eq!(open.access_token, None);
}

#[tokio::test]
async fn a_failed_create_leaves_no_place_taken_and_says_why_in_its_row() {
    let world = world().await;
    for _ in 0..5 {
        let what = "memory".to_owned();
        world.node.fail_next(NodeError::NoCapacity {
            what,
            retry_after: Duration::from_secs(1),
        });
        let failed = world.create(request()).await;
        assert!(matches!(
            failed,
            Err(Error::Node(NodeError::NoCapacity { .. }))
        ));
    }
    assert!(world.control.list(&world.tenant).is_empty());
    world.make().await;
}

#[tokio::test]
async fn the_limit_of_a_tenant_counts_what_is_live() {
    let world = world().await;
    let first = world.make().await;
    world.make().await;
    world.make().await;
    assert!(matches!(
        world.create(request()).await,
        Err(Error::TooManySandboxes(3))
    ));
    world.control.kill(&world.tenant, &first).await.unwrap();
    world.make().await;
}

#[tokio::test]
async fn a_reservation_that_no_create_uses_is_released() {
    let world = world().await;
    let failures = [
        NodeError::SandboxNotFound("nope".parse().unwrap()),
        NodeError::NoCapacity {
            what: "memory".into(),
            retry_after: Duration::from_secs(1),
        },
    ];
    for (failure, request) in failures.into_iter().zip([request(), keyed("k", "x")]) {
        world.node.fail_next(failure);
        assert!(world.create(request).await.is_err());
        assert!(world.node.reserved().is_empty());
    }
    // Only one of them is the first with its key.
    let same = futures_util::future::join_all((0..6).map(|_| world.create(keyed("k", "y")))).await;
    assert!(same.iter().any(Result::is_ok));
    assert!(world.node.reserved().is_empty());
    // Two are served, and the others find that out at different moments.
    let many = futures_util::future::join_all((0..6).map(|_| world.create(request()))).await;
    let refused = |made: &&Result<_, _>| matches!(made, Err(Error::TooManySandboxes(3)));
    assert_eq!(many.iter().filter(refused).count(), 4);
    assert!(world.node.reserved().is_empty());
    // Whoever is refused anyway takes nothing.
    let asked = world.node.requests().len();
    assert!(world.create(request()).await.is_err());
    assert_eq!(world.node.requests().len(), asked);
}

#[tokio::test]
async fn traffic_wakes_within_the_limit_of_the_tenant_too() {
    let world = world().await;
    let paused = world.make().await;
    let (control, tenant) = (&world.control, &world.tenant);
    control
        .pause(tenant, &paused, PauseMode::Memory, false)
        .await
        .unwrap();
    let other = world.make().await;
    world.make().await;
    world.make().await;
    let (waker, later) = (
        control.waker(),
        UnixMillis::now().plus(Duration::from_mins(5)),
    );
    assert!(matches!(
        waker.wake(&paused, later).await,
        Err(NotWoken::TooMany(3))
    ));
    assert!(world.node.paused(&paused).is_some());
    control.kill(tenant, &other).await.unwrap();
    waker.wake(&paused, later).await.unwrap();
    assert!(world.node.paused(&paused).is_none());
    waker.wake(&paused, later).await.unwrap();
    assert!(matches!(
        world.create(request()).await,
        Err(Error::TooManySandboxes(3))
    ));
}

#[tokio::test]
async fn another_tenant_sees_nothing() {
    let world = world().await;
    let id = world.make().await;
    let stranger = Tenant {
        id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        ..world.tenant.clone()
    };
    let (control, missing) = (&world.control, |result: Result<(), Error>| {
        matches!(result, Err(Error::SandboxNotFound { end: None, .. }))
    });
    assert!(control.list(&stranger).is_empty());
    assert!(missing(control.get(&stranger, &id).await.map(drop)));
    assert!(missing(control.kill(&stranger, &id).await));
    assert!(missing(control.set_timeout(&stranger, &id, 0).await));
    assert!(missing(
        control
            .connect(&stranger, &id, 10, PauseMode::Memory)
            .await
            .map(drop)
    ));
    assert!(missing(control.refresh(&stranger, &id, 10).await));
    assert!(missing(control.metrics(&stranger, &id).await.map(drop)));
    assert!(missing(control.logs(&stranger, &id).await.map(drop)));
    world.control.kill(&world.tenant, &id).await.unwrap();
    assert!(
        missing(control.get(&stranger, &id).await.map(drop)),
        "not even its end"
    );
}

#[tokio::test]
async fn a_create_whose_client_went_away_is_finished() {
    let world = world().await;
    let held = world.node.creating.write().await;
    let (control, tenant) = (world.control.clone(), world.tenant.clone());
    let client =
        tokio::spawn(async move { control.create_sandbox(&tenant, keyed("k", "x")).await });
    eventually("the node is asked", async || {
        world.node.creates.load(Ordering::Relaxed) == 1
    })
    .await;
    client.abort();
    let early = world.create(keyed("k", "x")).await;
    assert!(matches!(early, Err(Error::IdempotencyInProgress)));
    drop(held);
    eventually("it runs", async || {
        world.control.list(&world.tenant).len() == 1
    })
    .await;
    let access = world.create(keyed("k", "x")).await.unwrap();
    assert_eq!(access.id, world.control.list(&world.tenant)[0].spec.id);
    assert_eq!(world.node.creates.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn one_idempotency_key_makes_one_sandbox_even_at_the_limit() {
    let world = world().await;
    let first = world.create(keyed("k", "x")).await.unwrap();
    world.make().await;
    world.make().await;
    let again = world.create(keyed("k", "x")).await.unwrap();
    assert_eq!(
        (again.id, again.access_token),
        (first.id, first.access_token)
    );
    let other = world.create(keyed("k", "y")).await;
    assert!(matches!(other, Err(Error::IdempotencyMismatch)));
}

#[tokio::test]
async fn the_key_of_a_failed_create_can_be_used_again() {
    let world = world().await;
    world.node.fail_next(NodeError::Start {
        step: "mount".into(),
        message: "no".into(),
    });
    assert!(world.create(keyed("k", "x")).await.is_err());
    world.create(keyed("k", "x")).await.unwrap();
}

#[test]
fn idempotency_keys_have_a_shape() {
    for bad in ["", "A", "a_b", "é", &"a".repeat(256)] {
        assert!(IdempotencyKey::new(bad, b"").is_err(), "{bad}");
    }
}

#[tokio::test]
async fn names_that_mean_no_template_are_told_apart() {
    let world = world().await;
    let with = |template: &str| CreateRequest {
        template: template.into(),
        tier: None,
        ..request()
    };
    for (name, message) in [
        ("nope", "template 'nope' not found"),
        ("default/base", "template 'default/base' not found"),
        ("base:v2", "tag 'v2' does not exist for template 'base'"),
        (
            "a b",
            "Invalid template reference: names consist of a-z, 0-9, - and _",
        ),
    ] {
        assert_eq!(
            world.create(with(name)).await.unwrap_err().to_string(),
            message
        );
    }
    for name in ["Base", "base:default", "basebasebasebasebase"] {
        world.create(with(name)).await.unwrap();
    }
    assert_eq!(world.control.templates(&world.tenant)[0].spawn_count, 3);
}

#[tokio::test]
async fn absurd_maps_are_refused_before_anything_is_made() {
    let world = world().await;
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let huge = "x".repeat(65 * 1024);
    for bad in [
        CreateRequest {
            metadata: map("k", &huge),
            ..request()
        },
        CreateRequest {
            env: map("k", &huge),
            ..request()
        },
        CreateRequest {
            env: map("", "v"),
            ..request()
        },
        CreateRequest {
            env: map("a=b", "v"),
            ..request()
        },
        CreateRequest {
            env: map("a\0", "v"),
            ..request()
        },
        CreateRequest {
            env: map("a", "v\0"),
            ..request()
        },
    ] {
        assert!(matches!(world.create(bad).await, Err(Error::Invalid(_))));
    }
    assert_eq!(world.node.creates.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_create_that_took_too_long_says_so_although_its_remains_cannot_be_ended() {
    let world = world().await;
    let _node_hangs = world.node.creating.write().await;
    let _kernel_hangs = world.node.destroying.write().await;
    let (control, tenant) = (world.control.clone(), world.tenant.clone());
    // With a key: its row is written before the node is asked, so only the node is waited for.
    let create =
        tokio::spawn(async move { control.create_sandbox(&tenant, keyed("k", "x")).await });
    eventually("the node is asked", async || {
        world.node.creates.load(Ordering::Relaxed) == 1
    })
    .await;
    // First the limit of the create itself, then that of its end.
    for seconds in [55, 4] {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    let answered = tokio::time::timeout(Duration::from_secs(20), create);
    let error = answered.await.unwrap().unwrap().unwrap_err();
    let Error::Timeout { what, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(what, "making the sandbox");
    assert!(world.control.list(&world.tenant).is_empty());
}
