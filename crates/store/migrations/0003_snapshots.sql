-- Snapshots are used like templates: a name means builds, a tag one of them.
CREATE TABLE snapshots (
    template_id TEXT   NOT NULL PRIMARY KEY,
    tenant_id   TEXT   NOT NULL REFERENCES tenants (id),
    -- Without the namespace, which is the tenant's slug. NULL: it has only its id.
    name        TEXT,
    created_at  BIGINT NOT NULL,
    UNIQUE (tenant_id, name)
);

CREATE TABLE snapshot_builds (
    id           TEXT   NOT NULL PRIMARY KEY,
    template_id  TEXT   NOT NULL REFERENCES snapshots (template_id),
    -- The node's name for the files.
    image        TEXT   NOT NULL UNIQUE,
    source       TEXT   NOT NULL,
    -- The template at the bottom.
    base         TEXT   NOT NULL,
    cpu_millis   BIGINT NOT NULL,
    memory_mib   BIGINT NOT NULL,
    disk_mib     BIGINT NOT NULL,
    pids         BIGINT NOT NULL,
    created_at   BIGINT NOT NULL
);

CREATE INDEX snapshot_builds_by_template ON snapshot_builds (template_id);

CREATE TABLE snapshot_tags (
    template_id TEXT   NOT NULL REFERENCES snapshots (template_id),
    tag         TEXT   NOT NULL,
    build_id    TEXT   NOT NULL REFERENCES snapshot_builds (id),
    assigned_at BIGINT NOT NULL,
    PRIMARY KEY (template_id, tag)
);

-- Images that go as soon as nothing stands on them: of forks, of deleted snapshots, and of
-- snapshots whose making was cut short.
CREATE TABLE doomed_images (
    image TEXT NOT NULL PRIMARY KEY
);
