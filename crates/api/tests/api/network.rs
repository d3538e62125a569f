//! What sandboxes may reach, and who may reach them.

use http::Method;
use serde_json::{Value, json};

use crate::support::world;

#[tokio::test]
async fn network_rules_are_told_back_and_replaced_as_a_whole() {
    let world = world().await;
    let rules = json!({"templateID": "base", "allow_internet_access": false, "network": {
        "allowOut": ["1.1.1.1", "10.0.0.0/8", "2606:4700::/32"], "denyOut": ["0.0.0.0/0"],
        "allowPublicTraffic": false, "maskRequestHost": "a.example:${PORT}", "httpsPorts": [8443],
    }});
    let made = world.post("/v2/sandboxes", &rules).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let token = made.json["trafficAccessToken"].as_str().unwrap();
    assert!(token.len() == 64 && made.json["envdAccessToken"] != token);
    let path = made.sandbox_path();
    let seen = world.get(&path).await.json;
    assert_eq!(seen["network"], rules["network"]);
    assert_eq!(seen["allowInternetAccess"], false);

    let put = |body: Value| {
        let path = format!("{path}/network");
        world.send(world.request(Method::PUT, &path).body(&body.to_string()))
    };
    let ingress = json!({
        "allowPublicTraffic": false, "maskRequestHost": "a.example:${PORT}", "httpsPorts": [8443],
    });
    for (body, allowed) in [
        (json!({"denyOut": ["8.8.8.8"]}), Value::Null),
        (json!({"allow_internet_access": false}), json!(false)),
        (json!({}), Value::Null),
    ] {
        assert_eq!(put(body.clone()).await.status, 204, "{body}");
        let mut expected = ingress.clone();
        if let Some(list) = body.get("denyOut") {
            expected["denyOut"] = list.clone();
        }
        let seen = world.get(&path).await.json;
        assert_eq!(seen["network"], expected);
        assert_eq!(seen["allowInternetAccess"], allowed);
    }

    let connected = format!("/v2{path}/connect");
    let connected = world.post(&connected, &json!({"timeout": 60})).await;
    assert_eq!(connected.json["trafficAccessToken"], token);
    let paused = world.post(&format!("{path}/pause"), &json!({})).await;
    assert_eq!(paused.status, 204, "{}", paused.text);
    assert_eq!(put(json!({})).await.status, 409);
    assert_eq!(world.delete(&path).await.status, 204);
    assert_eq!(put(json!({})).await.status, 404);
}

#[tokio::test]
async fn a_sandbox_without_network_wishes_has_no_traffic_token_and_tells_none() {
    let world = world().await;
    let made = world.create().await;
    assert!(made.json.get("trafficAccessToken").is_none());
    let seen = world.get(&made.sandbox_path()).await.json;
    assert!(seen.get("network").is_none() && seen["allowInternetAccess"].is_null());
}

#[tokio::test]
async fn network_rules_that_cannot_be_meant_are_refused() {
    let world = world().await;
    let made = world.create().await;
    for (network, word) in [
        (json!({"denyOut": ["example.com"]}), "denyOut"),
        (json!({"denyOut": ["0.0.0.0"]}), "denyOut"),
        (json!({"denyOut": [1]}), "invalid"),
        (json!({"denyOut": vec!["1.1.1.1"; 129]}), "at most"),
        (json!({"allowOut": ["example.com"]}), "ALL_TRAFFIC"),
        (json!({"allowOut": ["not a domain"]}), "allowOut"),
        (json!({"allowOut": ["1.1.1.1.1"]}), "allowOut"),
    ] {
        let create = json!({"templateID": "base", "network": network});
        let created = world.post("/v2/sandboxes", &create).await;
        let path = format!("{}/network", made.sandbox_path());
        let put = world.request(Method::PUT, &path).body(&network.to_string());
        for answer in [created, world.send(put).await] {
            assert_eq!(answer.status, 400, "{network} {}", answer.text);
            let message = answer.json["message"].as_str().unwrap();
            assert!(message.contains(word), "{network}: {message}");
        }
    }
    for network in [
        json!({"maskRequestHost": "a b"}),
        json!({"httpsPorts": [49983]}),
        json!({"httpsPorts": [70000]}),
    ] {
        let create = json!({"templateID": "base", "network": network});
        assert_eq!(world.post("/v2/sandboxes", &create).await.status, 400);
    }
    let unsecured = json!({"templateID": "base", "network": {"allowPublicTraffic": false}});
    assert_eq!(world.post("/sandboxes", &unsecured).await.status, 400);
}

#[tokio::test]
async fn names_in_allow_out_are_kept_as_they_were_written() {
    let world = world().await;
    let network =
        json!({"allowOut": ["Example.com", "*.example.org", "1.1.1.1"], "denyOut": ["0.0.0.0/0"]});
    let made = world
        .post(
            "/v2/sandboxes",
            &json!({"templateID": "base", "network": network}),
        )
        .await;
    assert_eq!(made.status, 201, "{}", made.text);
    let seen = world.get(&made.sandbox_path()).await.json;
    assert_eq!(seen["network"], network);
    let path = format!("{}/network", made.sandbox_path());
    let narrower = json!({"allowOut": ["example.net"], "denyOut": ["0.0.0.0/0"]});
    let put = world
        .request(Method::PUT, &path)
        .body(&narrower.to_string());
    assert_eq!(world.send(put).await.status, 204);
    let seen = world.get(&made.sandbox_path()).await.json;
    assert_eq!(seen["network"], narrower);
}
