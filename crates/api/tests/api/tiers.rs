//! Whoever names an isolation tier gets that one, or an error.

use serde_json::{Value, json};
use soulbox_runtime::{Error as NodeError, Node};
use soulbox_types::Tier;

use crate::support::world;

const ROUTES: [&str; 2] = ["/sandboxes", "/v2/sandboxes"];

fn body(tier: &Value) -> Value {
    json!({"templateID": "base", "tier": tier})
}

#[tokio::test]
async fn a_create_asks_the_node_for_the_tier_that_it_names() {
    let world = world().await;
    for route in ROUTES {
        for tier in Tier::ALL {
            let answer = world.post(route, &body(&json!(tier.as_str()))).await;
            assert_eq!(answer.status, 201, "{route} {tier}: {}", answer.text);
            let spec = world.node.get(&answer.sandbox_id()).unwrap().spec;
            assert_eq!(spec.tier, tier, "{route}");
            assert_eq!(world.delete(&answer.sandbox_path()).await.status, 204);
        }
    }
}

#[tokio::test]
async fn a_create_that_names_none_gets_the_servers() {
    let world = world().await;
    for tier in [json!({"templateID": "base"}), body(&Value::Null)] {
        let answer = world.post("/v2/sandboxes", &tier).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let spec = world.node.get(&answer.sandbox_id()).unwrap().spec;
        assert_eq!(spec.tier, Tier::Jail);
    }
}

#[tokio::test]
async fn an_unknown_tier_is_refused_with_those_that_there_are() {
    let world = world().await;
    for route in ROUTES {
        for name in ["firecracker", "Jail", "", " jail"] {
            let answer = world.post(route, &body(&json!(name))).await;
            assert_eq!(answer.status, 400, "{name:?}: {}", answer.text);
            for tier in Tier::ALL {
                let named = answer.text.contains(tier.as_str());
                assert!(named, "{tier} is not in {}", answer.text);
            }
        }
        for strange in [json!(1), json!(["jail"]), json!({"name": "jail"})] {
            let answer = world.post(route, &body(&strange)).await;
            assert_eq!(answer.status, 400, "{strange}: {}", answer.text);
        }
    }
    assert!(world.node.requests().is_empty(), "the node was asked");
}

#[tokio::test]
async fn a_tier_that_the_node_does_not_have_is_501_with_the_reason() {
    let world = world().await;
    world.node.fail_next(NodeError::TierUnavailable {
        tier: Tier::Gvisor,
        reason: "no runsc".to_owned(),
    });
    let answer = world.post("/v2/sandboxes", &body(&json!("gvisor"))).await;
    assert_eq!(answer.status, 501, "{}", answer.text);
    assert_eq!(answer.json["error_code"], "tier_unavailable");
    assert!(answer.text.contains("no runsc"), "{}", answer.text);
}
