"""A second tenant, written into the server's database: there is no operator's command for it yet."""

import base64
import hashlib
import os
import sqlite3
import time
import uuid
from contextlib import closing

from support.server import Server


def new_tenant(server: Server, slug: str) -> str:
    """Makes a tenant and returns its API key."""
    raw = os.urandom(20)
    digest = base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
    tenant, now = str(uuid.uuid4()), time.time_ns() // 1_000_000
    with closing(sqlite3.connect(server.data / "soulbox.db", timeout=10)) as database, database:
        database.execute(
            "INSERT INTO tenants (id, slug, name, created_at) VALUES (?, ?, ?, ?)",
            (tenant, slug, slug, now),
        )
        database.execute(
            "INSERT INTO api_keys (id, tenant_id, name, hash, mask_prefix, mask_suffix, value_length, created_at)"
            " VALUES (?, ?, 'test', ?, ?, ?, 40, ?)",
            (str(uuid.uuid4()), tenant, f"$sha256${digest}", raw.hex()[:2], raw.hex()[-4:], now),
        )
    return f"e2b_{raw.hex()}"
