// @mastra/e2b: a sandbox by name, stopped and found again.
import { E2BSandbox } from '@mastra/e2b'
import { Sandbox } from 'e2b'
import { equal, feature, main, noCall, openPort } from './features.mjs'

const options = { id: 'matrix', template: 'base', timeout: 120_000, env: { GIVEN: 'value' } }
let sandbox = new E2BSandbox(options)
const shell = (line) => sandbox.executeCommand('sh', ['-c', line])

feature('create', () => sandbox.start())

feature('commands', async () => {
  const result = await shell('echo $GIVEN; pwd; echo err >&2')
  equal([result.exitCode, result.stdout, result.stderr], [0, 'value\n/home/user\n', 'err\n'])
  const process = await sandbox.processes.spawn('read line; echo got $line')
  await process.sendStdin('it\n')
  equal((await process.wait()).stdout, 'got it\n')
})

// It tells a failing command's output twice: by the callback and by the result. That is its own doing.
feature('failing command', async () => equal((await shell('exit 7')).exitCode, 7))

feature('files', async () => {
  await sandbox.writeFiles([{ path: '/home/user/made/a.txt', content: 'text ü' }])
  equal((await shell('cat made/a.txt')).stdout, 'text ü')
})

feature('ports', async () => {
  await shell('mkdir -p served; echo from inside > served/index.html')
  await sandbox.processes.spawn('exec python3 -m http.server -d served 8000')
  const url = await sandbox.networking.getPortUrl(8000)
  equal(await openPort(String(url?.url ?? url)), 'from inside\n')
})

feature('connect', async () => {
  await shell('touch kept')
  const again = new E2BSandbox(options)
  await again.start()
  equal(again.e2b.sandboxId, sandbox.e2b.sandboxId)
  equal((await again.executeCommand('ls', ['kept'])).stdout, 'kept\n')
})

feature('pause', async () => {
  const { sandboxId } = sandbox.e2b
  await sandbox.stop()
  equal((await Sandbox.getInfo(sandboxId)).state, 'paused')
  sandbox = new E2BSandbox(options)
  await sandbox.start()
  equal(sandbox.e2b.sandboxId, sandboxId)
  equal((await shell('ls kept')).stdout, 'kept\n')
})

feature('kill', async () => {
  const { sandboxId } = sandbox.e2b
  await sandbox.destroy()
  equal(await Sandbox.kill(sandboxId), false)
})

noCall('PTY', 'run code')
await main()
