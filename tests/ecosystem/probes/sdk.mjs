// npm `e2b` of any version.
import * as e2b from 'e2b'
import { NotOffered, domainMode, equal, feature, main, notOffered, openPort } from './features.mjs'

const { Sandbox } = e2b
const config = new e2b.ConnectionConfig({})
const hasApiUrl = config.apiUrl === process.env.E2B_API_URL
const hasSandboxUrl = config.sandboxUrl === process.env.E2B_SANDBOX_URL && config.sandboxUrl !== undefined
let sandbox

/** A mode that this version cannot do. */
function needs(has, variable) {
  const reason = `\`E2B_DOMAIN\` only: this version has no \`${variable}\`, and reaches E2B itself by its domain`
  if (!domainMode && !has) throw new NotOffered(reason)
}

function inside(name, body) {
  feature(name, () => {
    needs(hasApiUrl, 'E2B_API_URL')
    needs(hasSandboxUrl, 'E2B_SANDBOX_URL')
    return body()
  })
}

feature('create', async () => {
  needs(hasApiUrl, 'E2B_API_URL')
  sandbox = await Sandbox.create('base', { timeoutMs: 120_000, metadata: { made: 'by' }, envs: { GIVEN: 'value' } })
  const info = sandbox.getInfo ? await sandbox.getInfo() : { metadata: { made: 'by' } }
  equal(info.metadata, { made: 'by' })
})

inside('commands', async () => {
  let told = ''
  const result = await sandbox.commands.run('echo $GIVEN; pwd; echo err >&2', { onStdout: (data) => (told += data) })
  equal([result.exitCode, result.stdout, result.stderr], [0, 'value\n/home/user\n', 'err\n'])
  equal(told, result.stdout)
  const handle = await sandbox.commands.run('sleep 60', { background: true })
  equal((await sandbox.commands.list()).some((each) => each.pid === handle.pid), true)
  equal(await handle.kill(), true)
})

inside('failing command', async () => {
  const error = await sandbox.commands.run('echo before; exit 3').then(() => null, (error) => error)
  equal(error instanceof e2b.CommandExitError, true)
  equal([error.exitCode, error.stdout], [3, 'before\n'])
})

inside('files', async () => {
  const path = '/home/user/made/a.txt'
  await sandbox.files.write(path, 'text ü')
  equal(await sandbox.files.read(path), 'text ü')
  await sandbox.files.write('/home/user/made/b.bin', new Uint8Array([0, 255]).buffer)
  equal([...(await sandbox.files.read('/home/user/made/b.bin', { format: 'bytes' }))], [0, 255])
  equal((await sandbox.files.list('/home/user/made')).map((each) => each.name).sort(), ['a.txt', 'b.bin'])
  await sandbox.files.rename(path, '/home/user/made/c.txt')
  equal([await sandbox.files.exists(path), await sandbox.files.exists('/home/user/made/c.txt')], [false, true])
  await sandbox.files.remove('/home/user/made')
  const error = await sandbox.files.read(path).then(() => null, (error) => error)
  equal(error instanceof e2b.NotFoundError, true)
})

inside('PTY', async () => {
  let screen = ''
  const onData = (data) => (screen += new TextDecoder().decode(data))
  const terminal = await sandbox.pty.create({ rows: 24, cols: 80, timeoutMs: 30_000, onData })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('echo $((6 * 7)); stty size; exit\n'))
  await terminal.wait()
  equal([screen.includes('42'), screen.includes('24 80')], [true, true], screen)
})

inside('ports', async () => {
  await sandbox.commands.run('mkdir -p served && echo from inside > served/index.html')
  const serving = await sandbox.commands.run('python3 -m http.server -d served 8000', { background: true })
  equal(await openPort(sandbox.getHost(8000)), 'from inside\n')
  await serving.kill()
})

inside('connect', async () => {
  await sandbox.commands.run('echo by the first > left')
  const again = await Sandbox.connect(sandbox.sandboxId)
  equal((await again.commands.run('cat left')).stdout, 'by the first\n')
})

inside('pause', async () => {
  const name = ['pause', 'betaPause'].find((each) => typeof sandbox[each] === 'function')
  if (!name) throw new NotOffered('not in this version: it has no `pause`, with E2B neither')
  await sandbox.commands.run('echo before > kept')
  await sandbox[name]()
  await sandbox.connect({ timeoutMs: 120_000 })
  equal((await sandbox.commands.run('cat kept')).stdout, 'before\n')
})

feature('kill', async () => {
  needs(hasApiUrl, 'E2B_API_URL')
  const killed = await sandbox.kill()
  equal([true, undefined].includes(killed), true) // 1.x answers nothing
  equal(await Sandbox.kill(sandbox.sandboxId), false)
  if (domainMode || hasSandboxUrl) equal(await sandbox.isRunning(), false)
})

notOffered('`runCode` is in @e2b/code-interpreter, which has rows of its own', 'run code')
await main()
