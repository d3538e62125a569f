//! Which tier a sandbox gets.

use super::*;

#[tokio::test]
async fn the_tier_is_the_requests_then_the_snapshots_the_tenants_and_the_servers() {
    let world = world().await;
    let with = |tier, template: &str| CreateRequest {
        tier,
        template: template.to_owned(),
        ..request()
    };
    let tier_of = |made: &Access| world.node.get(&made.id).unwrap().spec.tier;

    let made = world.create(with(None, "base")).await.unwrap();
    assert_eq!(tier_of(&made), Tier::Jail, "the server's");

    let strict = Tenant {
        tier: Some(Tier::Gvisor),
        ..world.tenant.clone()
    };
    let create = |request| world.control.create_sandbox(&strict, request);
    let made = create(with(None, "base")).await.unwrap();
    assert_eq!(tier_of(&made), Tier::Gvisor, "the tenant's");
    let snapshot = world
        .control
        .create_snapshot(&strict, &made.id, Some("walled"))
        .await
        .unwrap();
    world.control.kill(&strict, &made.id).await.unwrap();

    let made = world
        .create(with(None, snapshot.template.as_str()))
        .await
        .unwrap();
    assert_eq!(tier_of(&made), Tier::Gvisor, "its copies are not weaker");
    world.control.kill(&world.tenant, &made.id).await.unwrap();

    let asked = with(Some(Tier::Microvm), snapshot.template.as_str());
    assert_eq!(tier_of(&create(asked).await.unwrap()), Tier::Microvm);
}

#[tokio::test]
async fn a_tier_that_the_node_does_not_have_is_refused_with_its_reason() {
    let world = world().await;
    world.node.fail_next(NodeError::TierUnavailable {
        tier: Tier::Gvisor,
        reason: "runsc is not installed".to_owned(),
    });
    let asked = CreateRequest {
        tier: Some(Tier::Gvisor),
        ..request()
    };
    let error = world.create(asked).await.unwrap_err();
    let problem = error.problem();
    assert_eq!(problem.code.as_str(), "tier_unavailable");
    assert!(problem.to_string().contains("runsc is not installed"));
    assert!(world.node.list().is_empty());
}
