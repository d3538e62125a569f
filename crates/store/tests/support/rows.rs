//! Rows as tests need them.

use std::collections::BTreeMap;

use soulbox_store::{
    BuildRow, BuildStatus, EndRow, EventRow, IdempotencyRecord, KeyRow, SandboxRow, SecretRow,
    SnapshotBuildRow, SnapshotRow, SnapshotTagRow, TemplateRow, TemplateTagRow, TenantRow,
    VolumeRow,
};
use soulbox_types::{EndReason, Limits, SandboxId, TemplateId, TenantId, Tier, UnixMillis};

const TENANTS: [&str; 2] = [
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "01890a5d-ac96-774b-bcce-b302099a8058",
];

pub(crate) fn tenant_id(number: usize) -> TenantId {
    TENANTS[number].parse().unwrap()
}

pub(crate) fn tenant(number: usize, slug: &str) -> TenantRow {
    TenantRow {
        id: tenant_id(number),
        slug: slug.into(),
        name: slug.into(),
        tier: (number == 1).then_some(Tier::Gvisor),
        created_at: UnixMillis(1),
    }
}

pub(crate) fn key(owner: usize, id: &str) -> KeyRow {
    KeyRow {
        id: id.into(),
        tenant: tenant_id(owner),
        name: "first".into(),
        hash: format!("$sha256${id}"),
        mask_prefix: "ab".into(),
        mask_suffix: "cdef".into(),
        value_length: 40,
        created_at: UnixMillis(2),
        last_used_at: None,
    }
}

pub(crate) fn sandbox(id: &str, created_at: u64) -> SandboxRow {
    SandboxRow {
        id: id.parse().unwrap(),
        tenant: tenant_id(0),
        template: "base".parse().unwrap(),
        metadata: BTreeMap::from([("ключ 🗝".to_owned(), "v\0".to_owned())]),
        created_at: UnixMillis(created_at),
        end: None,
    }
}

pub(crate) fn end(at: u64, reason: EndReason) -> EndRow {
    EndRow {
        at: UnixMillis(at),
        reason,
        detail: String::new(),
    }
}

pub(crate) fn id(text: &str) -> SandboxId {
    text.parse().unwrap()
}

pub(crate) fn record() -> IdempotencyRecord {
    IdempotencyRecord {
        tenant: tenant_id(0),
        key: "k".into(),
        fingerprint: "f".into(),
    }
}

pub(crate) fn secret(id: &str, owner: usize, name: &str) -> SecretRow {
    SecretRow {
        id: id.into(),
        tenant: tenant_id(owner),
        name: name.into(),
        version: 1,
        metadata: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        sealed: "sealed".into(),
        created_at: UnixMillis(1),
        updated_at: UnixMillis(1),
    }
}

pub(crate) fn volume(id: &str, name: &str) -> VolumeRow {
    VolumeRow {
        id: id.into(),
        tenant: tenant_id(0),
        name: name.into(),
        limit_mib: 7,
        created_at: UnixMillis(3),
    }
}

pub(crate) fn event(number: i64, kind: &str, sandbox: &str, at: u64) -> EventRow {
    EventRow {
        id: format!("event-{number}"),
        tenant: tenant_id(0),
        sandbox: sandbox.parse().unwrap(),
        execution: "x".into(),
        template: "base".into(),
        build: "b".into(),
        kind: kind.into(),
        data: serde_json::json!({"n": number}),
        at: UnixMillis(at),
        number,
    }
}

pub(crate) fn snapshot(template: &TemplateId, name: &str) -> SnapshotRow {
    SnapshotRow {
        template: template.clone(),
        tenant: tenant_id(0),
        name: Some(name.into()),
        created_at: UnixMillis(5),
    }
}

pub(crate) fn snapshot_build(
    id: &str,
    template: &TemplateId,
    image: &TemplateId,
) -> SnapshotBuildRow {
    SnapshotBuildRow {
        id: id.into(),
        template: template.clone(),
        image: image.clone(),
        source: SandboxId::random(),
        base: TemplateId::random(),
        base_build: None,
        limits: Limits::default(),
        tier: Some(Tier::Jail),
        created_at: UnixMillis(5),
    }
}

pub(crate) fn snapshot_tag(template: &TemplateId, tag: &str, build: &str) -> SnapshotTagRow {
    SnapshotTagRow {
        template: template.clone(),
        tag: tag.into(),
        build: build.into(),
        assigned_at: UnixMillis(5),
    }
}

pub(crate) fn template() -> TemplateRow {
    TemplateRow {
        id: "mytemplate".parse().unwrap(),
        tenant: tenant_id(0),
        name: Some("mine".into()),
        global_name: None,
        public: false,
        created_at: UnixMillis(3),
        deleted_at: None,
    }
}

pub(crate) fn build(id: &str, created_at: u64) -> BuildRow {
    BuildRow {
        id: id.into(),
        template: "mytemplate".parse().unwrap(),
        status: BuildStatus::Waiting,
        tags: vec!["default".into(), "v1".into()],
        limits: Limits::default(),
        tier: Some(Tier::Microvm),
        version: Some("7".into()),
        reason: None,
        created_at: UnixMillis(created_at),
        started_at: None,
        finished_at: None,
        removed: false,
    }
}

pub(crate) fn template_tag(tag: &str, build: &str, at: u64) -> TemplateTagRow {
    TemplateTagRow {
        template: "mytemplate".parse().unwrap(),
        tag: tag.into(),
        build: build.into(),
        assigned_at: UnixMillis(at),
    }
}
