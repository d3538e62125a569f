-- Portable between SQLite and PostgreSQL: TEXT and BIGINT only, times in milliseconds since 1970.

CREATE TABLE tenants (
    id         TEXT   NOT NULL PRIMARY KEY,
    -- Namespace of the tenant's templates, and how operators name it.
    slug       TEXT   NOT NULL UNIQUE,
    name       TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id           TEXT   NOT NULL PRIMARY KEY,
    tenant_id    TEXT   NOT NULL REFERENCES tenants (id),
    name         TEXT   NOT NULL,
    -- `$sha256$` and the base64 digest; the key itself is nowhere.
    hash         TEXT   NOT NULL UNIQUE,
    mask_prefix  TEXT   NOT NULL,
    mask_suffix  TEXT   NOT NULL,
    value_length BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT
);

CREATE INDEX api_keys_by_tenant ON api_keys (tenant_id);

-- What should run, and what ran. The node knows what does run.
CREATE TABLE sandboxes (
    id          TEXT   NOT NULL PRIMARY KEY,
    tenant_id   TEXT   NOT NULL REFERENCES tenants (id),
    template_id TEXT   NOT NULL,
    metadata    TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    ended_at    BIGINT,
    end_reason  TEXT,
    end_detail  TEXT
);

CREATE INDEX sandboxes_by_end ON sandboxes (ended_at);

-- Sandboxes whose rows were pruned still count.
CREATE TABLE template_use (
    template_id     TEXT   NOT NULL PRIMARY KEY,
    spawned         BIGINT NOT NULL,
    last_spawned_at BIGINT NOT NULL
);

CREATE TABLE idempotency (
    tenant_id   TEXT   NOT NULL REFERENCES tenants (id),
    key         TEXT   NOT NULL,
    -- Digest of the request: the same key with another request is refused.
    fingerprint TEXT   NOT NULL,
    sandbox_id  TEXT   NOT NULL,
    -- NULL until the outcome is known.
    response    TEXT,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, key)
);

CREATE INDEX idempotency_by_age ON idempotency (created_at);
CREATE INDEX idempotency_by_sandbox ON idempotency (sandbox_id);
