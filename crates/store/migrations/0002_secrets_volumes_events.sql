-- Values are sealed with a key derived from the server's seed: the file alone tells none of them.
CREATE TABLE secrets (
    id         TEXT   NOT NULL PRIMARY KEY,
    tenant_id  TEXT   NOT NULL REFERENCES tenants (id),
    name       TEXT   NOT NULL,
    version    BIGINT NOT NULL,
    metadata   TEXT   NOT NULL,
    -- Base64 of nonce and ciphertext. Only the current version is kept.
    sealed     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (tenant_id, name)
);

CREATE TABLE volumes (
    id         TEXT   NOT NULL PRIMARY KEY,
    tenant_id  TEXT   NOT NULL REFERENCES tenants (id),
    name       TEXT   NOT NULL,
    limit_mib  BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (tenant_id, name)
);

-- What happened to sandboxes. `number` orders those of the same millisecond.
CREATE TABLE events (
    id           TEXT   NOT NULL PRIMARY KEY,
    tenant_id    TEXT   NOT NULL REFERENCES tenants (id),
    sandbox_id   TEXT   NOT NULL,
    execution_id TEXT   NOT NULL,
    template_id  TEXT   NOT NULL,
    build_id     TEXT   NOT NULL,
    kind         TEXT   NOT NULL,
    data         TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    number       BIGINT NOT NULL
);

CREATE INDEX events_by_tenant ON events (tenant_id, at, number);
CREATE INDEX events_by_sandbox ON events (sandbox_id, at, number);
CREATE INDEX events_by_age ON events (at);

CREATE TABLE webhooks (
    id         TEXT   NOT NULL PRIMARY KEY,
    tenant_id  TEXT   NOT NULL REFERENCES tenants (id),
    name       TEXT   NOT NULL,
    url        TEXT   NOT NULL,
    -- JSON list of event types.
    events     TEXT   NOT NULL,
    enabled    BIGINT NOT NULL,
    sealed     TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX sandboxes_by_tenant ON sandboxes (tenant_id, created_at);
