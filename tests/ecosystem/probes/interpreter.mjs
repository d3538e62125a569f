// npm `@e2b/code-interpreter` of any version: `runCode`, beside what it has from the SDK.
import { readFileSync } from 'node:fs'
import { ConnectionConfig, Sandbox } from '@e2b/code-interpreter'
import { NotOffered, domainMode, equal, feature, main, openPort } from './features.mjs'

const { version } = JSON.parse(readFileSync(new URL('./node_modules/@e2b/code-interpreter/package.json', import.meta.url)))
const [ours, minorOfOurs] = version.split('.').map(Number)
const isBefore = (major, minor) => ours < major || (ours === major && minorOfOurs < minor)
const config = new ConnectionConfig({})
const hasApiUrl = config.apiUrl === process.env.E2B_API_URL
const hasSandboxUrl = config.sandboxUrl !== undefined && config.sandboxUrl === process.env.E2B_SANDBOX_URL
const OLD_SDK =
  '`E2B_DOMAIN` only: this version asks for an e2b that has no `E2B_API_URL` or `E2B_SANDBOX_URL`, ' +
  'and reaches E2B itself by its domain'
let sandbox

function inside(name, body) {
  feature(name, () => {
    if (!domainMode && !(hasApiUrl && hasSandboxUrl)) throw new NotOffered(OLD_SDK)
    return body()
  })
}

inside('create', async () => {
  sandbox = await Sandbox.create({ timeoutMs: 180_000, metadata: { made: 'by' }, envs: { GIVEN: 'value' } })
})

inside('commands', async () => equal((await sandbox.commands.run('echo $GIVEN')).stdout, 'value\n'))

inside('failing command', async () => {
  const error = await sandbox.commands.run('exit 3').then(() => null, (error) => error)
  equal([error?.name, error?.exitCode], ['CommandExitError', 3])
})

inside('files', async () => {
  await sandbox.files.write('/home/user/a.txt', 'text ü')
  equal(await sandbox.files.read('/home/user/a.txt'), 'text ü')
})

inside('PTY', async () => {
  let screen = ''
  const onData = (data) => (screen += new TextDecoder().decode(data))
  const terminal = await sandbox.pty.create({ rows: 24, cols: 80, timeoutMs: 30_000, onData })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('echo $((6 * 7)); exit\n'))
  await terminal.wait()
  equal(screen.includes('42'), true)
})

inside('ports', async () => {
  await sandbox.commands.run('mkdir -p served && echo from inside > served/index.html')
  const serving = await sandbox.commands.run('python3 -m http.server -d served 8000', { background: true })
  equal(await openPort(sandbox.getHost(8000)), 'from inside\n')
  await serving.kill()
})

inside('run code', async () => {
  if (!domainMode && isBefore(2, 7)) {
    throw new NotOffered('`E2B_DOMAIN` only: before 2.7 the interpreter is always at `https://49999-<id>.<domain>`, with E2B too')
  }
  equal((await sandbox.runCode("x = 6; print('log'); x * 7")).text, '42')
  const execution = await sandbox.runCode("print(x); import sys; print('err', file=sys.stderr); 1 / 0")
  equal([execution.logs.stdout, execution.logs.stderr], [['6\n'], ['err\n']])
  equal(execution.error.name, 'ZeroDivisionError')
  const chart = await sandbox.runCode('import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()')
  equal(typeof chart.results[0]?.png, 'string')
})

inside('connect', async () => {
  const again = await Sandbox.connect(sandbox.sandboxId)
  equal((await again.commands.run('cat a.txt')).stdout, 'text ü')
  if (domainMode || !isBefore(2, 7)) equal((await again.runCode('x')).text, '6')
})

inside('pause', async () => {
  const name = ['pause', 'betaPause'].find((each) => typeof sandbox[each] === 'function')
  if (!name) throw new NotOffered('not in this version: it has no `pause`, with E2B neither')
  await sandbox.commands.run('echo before > kept')
  await sandbox[name]()
  await sandbox.connect({ timeoutMs: 120_000 })
  equal((await sandbox.commands.run('cat kept')).stdout, 'before\n')
  if (domainMode || !isBefore(2, 7)) equal((await sandbox.runCode('x')).text, '6')
})

inside('kill', async () => {
  await sandbox.kill()
  equal(await Sandbox.kill(sandbox.sandboxId), false)
})

await main()
