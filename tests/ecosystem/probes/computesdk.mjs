// @computesdk/e2b: the provider of ComputeSDK.
import { e2b } from '@computesdk/e2b'
import { Sandbox } from 'e2b'
import { domainMode, equal, feature, main, noCall, openPort } from './features.mjs'

const compute = e2b({ apiKey: process.env.E2B_API_KEY })
let sandbox

feature('create', async () => {
  sandbox = await compute.sandbox.create({ templateId: 'base', timeout: 120_000, envs: { GIVEN: 'value' } })
  const listed = await compute.sandbox.list()
  equal(listed.some((each) => each.sandboxId === sandbox.sandboxId), true)
})

feature('commands', async () => {
  const result = await sandbox.runCommand('echo $GIVEN; pwd; echo err >&2')
  equal([result.exitCode, result.stdout, result.stderr], [0, 'value\n/home/user\n', 'err\n'])
  equal((await sandbox.runCommand('echo $X; pwd', { env: { X: 'y' }, cwd: '/tmp' })).stdout.endsWith('/tmp\n'), true)
})

feature('failing command', async () => {
  const result = await sandbox.runCommand('echo out; exit 3')
  equal([result.exitCode, result.stdout], [3, 'out\n'])
})

feature('files', async () => {
  const files = sandbox.filesystem
  await files.mkdir('/home/user/made')
  await files.writeFile('/home/user/made/a.txt', 'text ü')
  equal(await files.readFile('/home/user/made/a.txt'), 'text ü')
  equal((await files.readdir('/home/user/made')).map((each) => each.name), ['a.txt'])
  await files.remove('/home/user/made/a.txt')
  equal(await files.exists('/home/user/made/a.txt'), false)
})

feature('ports', async () => {
  await sandbox.runCommand('mkdir -p served; echo from inside > served/index.html')
  await sandbox.runCommand('python3 -m http.server -d served 8000', { background: true })
  const url = await sandbox.getUrl({ port: 8000, protocol: domainMode ? 'https' : 'http' })
  equal(await openPort(url), 'from inside\n')
})

feature('connect', async () => {
  const again = await compute.sandbox.getById(sandbox.sandboxId)
  equal((await again.runCommand('cat served/index.html')).stdout, 'from inside\n')
})

feature('kill', async () => {
  await sandbox.destroy()
  equal(await Sandbox.kill(sandbox.sandboxId), false)
})

noCall('PTY', 'pause', 'run code')
await main()
