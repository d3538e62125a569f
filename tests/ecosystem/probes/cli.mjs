// @e2b/cli: the commands that people type.
import { spawn } from 'node:child_process'
import { equal, feature, main, noCall } from './features.mjs'

let id

/** Runs a program and tells how it ended. */
function run(program, words, input = '') {
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, { stdio: 'pipe' })
    let out = ''
    let err = ''
    child.stdout.on('data', (data) => (out += data))
    child.stderr.on('data', (data) => (err += data))
    child.on('error', reject)
    child.on('close', (code) => resolve({ code, out, err }))
    child.stdin.end(input)
  })
}
const sandbox = (...words) => run('e2b', ['sandbox', ...words])

async function state() {
  const { out } = await sandbox('info', '--format', 'json', id)
  return JSON.parse(out).state
}

feature('create', async () => {
  const told = await sandbox('create', '--detach', '--timeout', '120', 'base')
  equal([told.code, told.err], [0, ''])
  ;[id] = told.out.match(/\bi[a-z0-9]{19,}\b/) ?? []
  equal(await state(), 'running')
  const listed = JSON.parse((await sandbox('list', '--format', 'json')).out)
  equal(listed.some((each) => each.sandboxId === id), true)
})

feature('commands', async () => {
  const told = await sandbox('exec', '-e', 'GIVEN=value', '-c', '/tmp', id, 'sh', '-c', 'echo $GIVEN; pwd; echo err >&2')
  equal([told.code, told.out, told.err], [0, 'value\n/tmp\n', 'err\n'])
  equal((await run('e2b', ['sandbox', 'exec', id, 'cat'], 'given')).out, 'given')
})

feature('failing command', async () => {
  const told = await sandbox('exec', id, 'sh', '-c', 'echo out; exit 3')
  equal([told.code, told.out], [3, 'out\n'])
})

feature('PTY', async () => {
  // `script` gives it the terminal that it asks for.
  const told = await run('script', ['-qec', `e2b sandbox connect ${id}`, '/dev/null'], 'echo $((6 * 7)); tty; exit\n')
  equal([told.out.includes('42'), told.out.includes('/dev/pts')], [true, true])
})

feature('pause', async () => {
  await sandbox('exec', id, 'touch', 'kept')
  equal((await sandbox('pause', id)).code, 0)
  equal(await state(), 'paused')
  equal((await sandbox('resume', id)).code, 0)
  equal((await sandbox('exec', id, 'ls', 'kept')).out, 'kept\n')
})

feature('kill', async () => {
  equal((await sandbox('kill', id)).code, 0)
  equal((await sandbox('list', '--format', 'json')).out.includes(id), false)
})

noCall('files', 'ports', 'connect', 'run code')
await main()
