//! What sandboxes use and say.

use serde_json::{Value, json};
use soulbox_runtime::{LogEntry, LogLevel, MetricSample, Stats};
use soulbox_types::UnixMillis;

use crate::support::world;

fn sample(second: u64) -> MetricSample {
    let stats = Stats {
        memory_bytes: 30,
        memory_cache_bytes: 20,
        memory_peak_bytes: Some(50),
        oom_kills: 3,
        disk_used_bytes: 30,
        disk_total_bytes: 40,
        ..Stats::default()
    };
    MetricSample {
        at: UnixMillis(second * 1000 + 5),
        cpu_used_pct: 12.5,
        stats,
    }
}

#[tokio::test]
async fn metrics_keep_to_the_asked_range() {
    let world = world().await;
    let made = world.create().await;
    let path = format!("{}/metrics", made.sandbox_path());
    assert_eq!(world.get(&path).await.json, json!([]));
    for second in [100, 105, 110] {
        world.node.sample(&made.sandbox_id(), sample(second));
    }
    let metric = json!({
        "timestamp": "1970-01-01T00:01:45.005Z", "timestampUnix": 105, "cpuCount": 2,
        "cpuUsedPct": 12.5, "memUsed": 10, "memTotal": 512 << 20, "memCache": 20, "diskUsed": 30,
        "diskTotal": 40, "memPeak": 50, "oomKills": 3,
    });
    assert_eq!(
        world.get(&format!("{path}?start=101&end=109")).await.json,
        json!([metric])
    );
    assert_eq!(world.get(&path).await.json.as_array().unwrap().len(), 3);
    assert_eq!(
        world.get(&format!("{path}?start=2&end=1")).await.status,
        400
    );
    assert_eq!(world.get(&format!("{path}?start=x")).await.status, 400);

    let id = made.sandbox_id().to_string();
    let many = world
        .get(&format!("/sandboxes/metrics?sandbox_ids={id},inope"))
        .await;
    assert_eq!(
        many.json["sandboxes"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        [&id]
    );
    assert_eq!(many.json["sandboxes"][&id]["timestampUnix"], 110);
    assert_eq!(world.get("/sandboxes/metrics").await.status, 400);
    let too_many = vec!["a"; 101].join(",");
    let too_many = world
        .get(&format!("/sandboxes/metrics?sandbox_ids={too_many}"))
        .await;
    assert_eq!(too_many.status, 400);
}

#[tokio::test]
async fn logs_come_in_both_shapes() {
    let world = world().await;
    let made = world.create().await;
    let now = UnixMillis::now().0;
    for (n, level) in [LogLevel::Info, LogLevel::Error, LogLevel::Debug]
        .into_iter()
        .enumerate()
    {
        let fields = [("level".to_owned(), "spoofed".to_owned())].into();
        let (at, message) = (UnixMillis(now + n as u64), format!("line {n}"));
        let entry = LogEntry {
            at,
            level,
            logger: "envd".into(),
            message,
            fields,
        };
        world.node.log(&made.sandbox_id(), entry);
    }
    let v1 = format!("{}/logs", made.sandbox_path());
    let answer = world.get(&v1).await.json;
    let line = answer["logs"][1]["line"].as_str().unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        line,
        json!({"level": "error", "logger": "envd", "message": "line 1"})
    );
    assert_eq!(answer["logEntries"][1]["message"], "line 1");
    let later = world
        .get(&format!("{v1}?start={}&limit=1", now + 1))
        .await
        .json;
    assert_eq!(later["logs"].as_array().unwrap().len(), 1);

    let messages = async |query: &str| -> Vec<String> {
        let answer = world.get(&format!("/v2{v1}?{query}")).await.json;
        let logs = answer["logs"].as_array().unwrap();
        logs.iter()
            .map(|log| log["message"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(messages("").await, ["line 2", "line 1", "line 0"]);
    assert_eq!(
        messages("direction=forward&limit=2").await,
        ["line 0", "line 1"]
    );
    assert_eq!(messages("level=warn").await, ["line 1"]);
    assert_eq!(messages("search=2").await, ["line 2"]);
    assert_eq!(messages("limit=0").await, Vec::<String>::new());
    assert_eq!(messages(&format!("cursor={}", now + 1)).await, ["line 0"]);
    let forward = format!("direction=forward&cursor={}", now + 1);
    assert_eq!(messages(&forward).await, ["line 1", "line 2"]);
    for bad in ["limit=1001", "direction=up", "level=loud", "cursor=x"] {
        assert_eq!(
            world.get(&format!("/v2{v1}?{bad}")).await.status,
            400,
            "{bad}"
        );
    }
}
