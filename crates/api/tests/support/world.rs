//! A router over a real control plane and store, with a node in memory.

use std::{path::Path, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;
use soulbox_api::{ApiConfig, router};
use soulbox_control::{
    BuildConfig, BuiltIn, Control, ControlConfig, TemplateInfo, Tenant, WebhookConfig,
    volume::Volumes,
};
use soulbox_store::Store;
use soulbox_types::{Limits, SandboxId, Secret, UnixMillis};
use tempfile::TempDir;
use tower::ServiceExt;

use soulbox_testkit::{MemoryBuilds, MemoryNode};

pub(crate) const BASE_ID: &str = "basebasebasebasebase";
pub(crate) const BASE_BUILD: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

#[allow(dead_code, reason = "each test crate uses a part of it")]
pub(crate) struct World {
    folder: TempDir,
    config: ControlConfig,
    control: Arc<Control>,
    volumes: Arc<Volumes>,
    pub(crate) node: Arc<MemoryNode>,
    pub(crate) builder: Arc<MemoryBuilds>,
    pub(crate) router: Router,
    pub(crate) tenant: Tenant,
    pub(crate) key: String,
}

pub(crate) async fn world() -> World {
    world_with(Vec::new()).await
}

pub(crate) async fn world_with(builtins: Vec<BuiltIn>) -> World {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("soulbox.db"))
        .await
        .unwrap();
    let node = Arc::new(MemoryNode::default());
    let volumes = Volumes::open(folder.path().join("volumes")).unwrap();
    let builder = MemoryBuilds::new(folder.path());
    let config = ControlConfig {
        seed: Secret::new("00ff"),
        max_timeout: Duration::from_hours(24),
        default_tier: soulbox_types::Tier::default(),
        default_limits: Limits::default(),
        max_sandboxes_per_tenant: 5,
        templates: vec![TemplateInfo {
            id: BASE_ID.parse().unwrap(),
            build_id: BASE_BUILD.into(),
            aliases: vec!["base".into()],
            limits: Limits::default(),
            created_at: UnixMillis(1),
            public: true,
        }],
        volumes: Some(volumes.clone()),
        volume_limit_mib: 64,
        webhooks: WebhookConfig {
            allow_private: true,
            retry_after: Duration::from_millis(10),
        },
        builds: Some(build_config(folder.path(), &builder, builtins)),
    };
    let control = Control::open(config.clone(), store, node.clone())
        .await
        .unwrap();
    let key = control.ensure_default_tenant().await.unwrap().unwrap().key;
    let domain = "sbx.localhost:3443".to_owned();
    World {
        folder,
        config,
        router: router(control.clone(), ApiConfig { domain }),
        tenant: control.tenant("default").unwrap(),
        key: key.expose().to_owned(),
        control,
        volumes,
        node,
        builder,
    }
}

fn build_config(folder: &Path, builder: &Arc<MemoryBuilds>, builtins: Vec<BuiltIn>) -> BuildConfig {
    let (templates, logs) = (builder.templates.clone(), folder.join("logs"));
    let mut builds = BuildConfig::new(builder.clone(), templates, logs);
    builds.max_per_tenant = 3;
    builds.patience = Some(Duration::from_millis(1));
    builds.builtins = builtins;
    builds
}

impl Drop for World {
    fn drop(&mut self) {
        self.volumes.close();
    }
}

#[allow(dead_code, reason = "each test crate uses a part of it")]
impl World {
    #[allow(dead_code, reason = "each test crate uses a part of it")]
    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> TestRequest {
        TestRequest {
            method,
            path: path.to_owned(),
            headers: vec![("x-api-key".into(), self.key.clone())],
            body: Body::empty(),
        }
    }

    pub(crate) async fn send(&self, request: TestRequest) -> Answer {
        send(self.router.clone(), request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::POST, path).body(&body.to_string()))
            .await
    }

    pub(crate) async fn create(&self) -> Answer {
        let body = serde_json::json!({"templateID": "base"});
        let answer = self.post("/v2/sandboxes", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer
    }

    /// The same node and data folder, another server.
    pub(crate) async fn restart(&mut self) {
        let file = self.folder.path().join("soulbox.db");
        let store = Store::open(&file).await.unwrap();
        let control = Control::open(self.config.clone(), store, self.node.clone());
        self.control = control.await.unwrap();
        let domain = "sbx.localhost:3443".to_owned();
        self.router = router(self.control.clone(), ApiConfig { domain });
    }

    /// The key of somebody else.
    pub(crate) async fn second_tenant(&self) -> String {
        let (_, key) = self.control.create_tenant("other").await.unwrap();
        key.key.expose().to_owned()
    }
}

pub(crate) struct TestRequest {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Body,
}

#[allow(dead_code, reason = "each test crate uses a part of it")]
impl TestRequest {
    pub(crate) fn anonymous(mut self) -> Self {
        self.headers.retain(|(name, _)| name != "x-api-key");
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.anonymous().header("x-api-key", key)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        self.body = Body::from(body.to_owned());
        self
    }

    /// Of unknown length.
    pub(crate) fn chunks(mut self, chunks: &[&'static str]) -> Self {
        let frames: Vec<_> = chunks
            .iter()
            .map(|chunk| {
                Ok::<_, std::io::Error>(http_body::Frame::data(bytes::Bytes::from(*chunk)))
            })
            .collect();
        self.body = Body::new(StreamBody::new(futures_util::stream::iter(frames)));
        self
    }
}

pub(crate) async fn send(router: Router, request: TestRequest) -> Answer {
    let mut builder = Request::builder().method(request.method).uri(request.path);
    for (name, value) in request.headers {
        builder = builder.header(name, value);
    }
    let response = router
        .oneshot(builder.body(request.body).unwrap())
        .await
        .unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Answer {
        status: parts.status,
        headers: parts.headers,
        json: serde_json::from_str(&text).unwrap_or(Value::Null),
        text,
    }
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Status, headers and body as they go over the wire, without the headers that every answer has.
    #[allow(dead_code, reason = "each test crate uses a part of it")]
    pub(crate) fn on_the_wire(&self) -> String {
        let mut lines = vec![self.status.as_str().to_owned()];
        for (name, value) in &self.headers {
            if !name.as_str().starts_with("access-control-") {
                lines.push(format!("{name}: {}", value.to_str().unwrap()));
            }
        }
        lines[1..].sort();
        lines.push(self.text.clone());
        lines.join("\n")
    }

    /// The whole body of an error without `error_code`.
    #[track_caller]
    pub(crate) fn is_error(&self, code: u16, message: &str) {
        assert_eq!(
            self.json,
            serde_json::json!({"code": code, "message": message})
        );
        assert_eq!(self.status.as_u16(), code);
        assert_eq!(self.header("content-type"), Some("application/json"));
    }

    pub(crate) fn sandbox_id(&self) -> SandboxId {
        self.json["sandboxID"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn sandbox_path(&self) -> String {
        format!("/sandboxes/{}", self.sandbox_id())
    }
}
