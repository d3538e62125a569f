-- Templates that tenants build, and those that the server brings along, whose tenant is all zeros.
CREATE TABLE templates (
    id          TEXT   NOT NULL PRIMARY KEY,
    tenant_id   TEXT   NOT NULL,
    -- Without the namespace, which is the tenant's slug. NULL: deleted.
    name        TEXT,
    -- Under which everybody finds it, without a namespace.
    global_name TEXT   UNIQUE,
    public      BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    -- Its builds go as soon as nothing stands on them, and it goes with the last.
    deleted_at  BIGINT,
    UNIQUE (tenant_id, name)
);

CREATE TABLE template_builds (
    id             TEXT   NOT NULL PRIMARY KEY,
    template_id    TEXT   NOT NULL REFERENCES templates (id),
    -- waiting, building, ready or error
    status         TEXT   NOT NULL,
    -- JSON list: the tags that mean this build once it is ready.
    tags           TEXT   NOT NULL,
    cpu_millis     BIGINT NOT NULL,
    memory_mib     BIGINT NOT NULL,
    disk_mib       BIGINT NOT NULL,
    pids           BIGINT NOT NULL,
    -- Of which definition, for a template of the server's own.
    version        TEXT,
    -- What is to be built, sealed, only while it is being built: a restart goes on with it.
    request        TEXT,
    -- Why there is no template, and at which step that was found.
    reason_step    TEXT,
    reason_message TEXT,
    created_at     BIGINT NOT NULL,
    started_at     BIGINT,
    finished_at    BIGINT,
    -- 1: a ready build whose files were removed, because no tag meant it any more.
    removed        BIGINT NOT NULL
);

CREATE INDEX template_builds_by_template ON template_builds (template_id);

CREATE TABLE template_tags (
    template_id TEXT   NOT NULL REFERENCES templates (id),
    tag         TEXT   NOT NULL,
    build_id    TEXT   NOT NULL REFERENCES template_builds (id),
    assigned_at BIGINT NOT NULL,
    PRIMARY KEY (template_id, tag)
);

-- The build of the template at the bottom. NULL: the template has only one, the server's own.
ALTER TABLE snapshot_builds ADD COLUMN base_build TEXT;
