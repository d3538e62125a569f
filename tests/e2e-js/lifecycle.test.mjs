import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AuthenticationError, Sandbox, SandboxError, SandboxNotFoundError } from 'e2b'
import { eventually, modes, withSandbox } from './support.mjs'

for (const mode of Object.keys(modes)) {
  const connection = modes[mode]
  const inside = (name, body, options = {}) => test(`${mode}: ${name}`, () => withSandbox(mode, options, body))

  inside(
    'info tells what was asked for',
    async (sandbox) => {
      const info = await sandbox.getInfo()
      assert.equal(info.sandboxId, sandbox.sandboxId)
      assert.deepEqual(info.metadata, { 'a b': 'ü&=' })
      assert.equal(info.state, 'running')
      assert.ok(Math.abs(info.endAt - info.startedAt - 120_000) < 2000)
    },
    { metadata: { 'a b': 'ü&=' } }
  )

  inside(
    'the list filters by metadata and state',
    async (sandbox) => {
      const find = async (query) => {
        const pages = Sandbox.list({ ...connection, query })
        const found = []
        while (pages.hasNext) found.push(...(await pages.nextItems()))
        return found.map((each) => each.sandboxId)
      }
      assert.deepEqual(await find({ metadata: { only: `${mode} é&` } }), [sandbox.sandboxId])
      assert.deepEqual(await find({ metadata: { only: `${mode} é&` }, state: ['paused'] }), [])
      assert.ok((await find({ state: ['running'] })).includes(sandbox.sandboxId))
    },
    { metadata: { only: `${mode} é&` } }
  )

  inside('connecting gives a working handle and never shortens', async (sandbox) => {
    const before = (await sandbox.getInfo()).endAt
    const again = await Sandbox.connect(sandbox.sandboxId, { ...connection, timeoutMs: 1000 })
    assert.equal((await again.commands.run('echo hi')).stdout, 'hi\n')
    assert.equal((await sandbox.getInfo()).endAt.getTime(), before.getTime())
  })

  inside('the timeout is moved and kept', async (sandbox) => {
    await sandbox.setTimeout(2000)
    await eventually(async () => !(await sandbox.isRunning()))
  })

  inside('metrics appear', async (sandbox) => {
    const [sample] = await eventually(async () => {
      const samples = await sandbox.getMetrics()
      return samples.length && samples
    }, { within: 30_000 })
    assert.ok(sample.memUsed > 0 && sample.diskTotal > 0 && sample.cpuCount > 0)
  })

  test(`${mode}: killing is true once, and everything about it is gone`, async () => {
    const sandbox = await Sandbox.create({ ...connection, timeoutMs: 60_000 })
    assert.equal(await sandbox.kill(), true)
    assert.equal(await sandbox.kill(), false)
    assert.equal(await sandbox.isRunning(), false)
    await assert.rejects(Sandbox.connect(sandbox.sandboxId, connection), SandboxNotFoundError)
  })

  test(`${mode}: a wrong key and a wrong template are clear errors`, async () => {
    await assert.rejects(Sandbox.create({ ...connection, apiKey: 'e2b_' + '1'.repeat(40) }), AuthenticationError)
    await assert.rejects(Sandbox.create('no-such-template', connection), (error) => {
      assert.ok(error instanceof SandboxError)
      assert.match(error.message, /404.*no-such-template/)
      return true
    })
  })
}

test('tls: a server on 127.0.0.1 inside is reached through getHost', async () => {
  await withSandbox('tls', {}, async (sandbox) => {
    await sandbox.files.write('page.txt', 'hello')
    await sandbox.commands.run('exec python3 -m http.server 8001 --bind 127.0.0.1', { background: true, timeoutMs: 0 })
    const url = `https://${sandbox.getHost(8001)}/page.txt`
    await eventually(async () => (await fetch(url)).status === 200)
    assert.match(await (await fetch(url)).text(), /hello/)
    await sandbox.kill()
    const gone = await fetch(url)
    assert.equal(gone.status, 502)
    assert.equal((await gone.json()).message, 'The sandbox was not found')
  })
})
