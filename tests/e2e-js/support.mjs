import './localhost.cjs'
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

/** Plain HTTP with routing by header, and HTTPS with names: both must give the same answers. */
export const modes = {
  plain: {
    apiKey: process.env.PLAIN_E2B_API_KEY,
    apiUrl: process.env.PLAIN_E2B_API_URL,
    sandboxUrl: process.env.PLAIN_E2B_SANDBOX_URL,
  },
  tls: { apiKey: process.env.E2B_API_KEY, domain: process.env.E2B_DOMAIN },
}

/** Runs `body` with a new sandbox and kills it whatever happens. */
export async function withSandbox(mode, options, body) {
  const sandbox = await Sandbox.create('base', { timeoutMs: 120_000, ...modes[mode], ...options })
  try {
    return await body(sandbox)
  } finally {
    await sandbox.kill()
  }
}

/** Asks `probe` until it answers something true. */
export async function eventually(probe, { within = 15_000, every = 50, what = String(probe) } = {}) {
  const end = Date.now() + within
  for (;;) {
    const answer = await probe()
    if (answer) return answer
    assert.ok(Date.now() < end, `not within ${within} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, every))
  }
}
