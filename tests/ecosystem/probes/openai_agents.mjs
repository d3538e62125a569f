// @openai/agents-extensions: its sandbox client for E2B.
import { E2BSandboxClient } from '@openai/agents-extensions/sandbox/e2b'
import { Sandbox } from 'e2b'
import { equal, feature, main, noCall, openPort } from './features.mjs'

const client = new E2BSandboxClient({ timeout: 120, pauseOnExit: true, exposedPorts: [8000], env: { GIVEN: 'value' } })
let session

/** It answers a text for the model: exit code, time and output. */
const run = (cmd, more = {}) => session.execCommand({ cmd, ...more })
const includes = (text, ...parts) => parts.forEach((part) => equal([part, text.includes(part) || text], [part, true]))

feature('create', async () => {
  session = await client.create({ options: { template: 'base' } })
  equal(await session.running(), true)
})

feature('commands', async () => {
  includes(await run('pwd; echo $GIVEN; echo err >&2'), 'exited with code 0', '/workspace\n', 'value\n', 'err')
})

feature('failing command', async () => includes(await run('echo out; exit 3'), 'exited with code 3', 'out'))

feature('files', async () => {
  await session.materializeEntry({ path: 'a/b.txt', entry: { type: 'file', content: 'hello' } })
  equal(new TextDecoder().decode(await session.readFile({ path: 'a/b.txt' })), 'hello')
  equal([await session.pathExists('a/b.txt'), await session.pathExists('a/none')], [true, false])
})

feature('PTY', async () => {
  const told = await run('read line; echo got $line; tty', { tty: true, yieldTimeMs: 500 })
  const [, id] = told.match(/session ID (\d+)/i) ?? []
  includes(await session.writeStdin({ sessionId: Number(id), chars: 'it\n', yieldTimeMs: 2000 }), 'got it', '/dev/pts')
})

feature('ports', async () => {
  await session.materializeEntry({ path: 'served/index.html', entry: { type: 'file', content: 'from inside' } })
  await run('setsid python3 -m http.server -d /workspace/served 8000 > /dev/null 2>&1 < /dev/null &')
  const { host, port, tls } = await session.resolveExposedPort(8000)
  equal(await openPort(`${tls ? 'https' : 'http'}://${host}:${port}/`), 'from inside')
})

feature('connect', async () => {
  const state = await client.deserializeSessionState(await client.serializeSessionState(session.state))
  const again = await client.resume(state)
  includes(await again.execCommand({ cmd: 'cat a/b.txt' }), 'hello')
})

feature('pause', async () => {
  await session.close() // with pauseOnExit
  equal((await Sandbox.getInfo(session.state.sandboxId)).state, 'paused')
  const { sandboxId } = session.state
  session = await client.resume(session.state)
  equal(session.state.sandboxId, sandboxId)
  includes(await run('cat a/b.txt'), 'hello')
})

feature('kill', async () => {
  await session.delete()
  equal(await Sandbox.kill(session.state.sandboxId), false)
})

noCall('run code')
await main()
