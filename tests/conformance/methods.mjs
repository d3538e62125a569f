// Calls every public method of npm `e2b` against a server and writes what each one did.
//
//   node methods.mjs OUT.json     (in a folder where e2b is installed; the E2B_* variables set)
//
// Methods are found by looking at the classes, so one that is new appears as "not covered".
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import * as e2b from 'e2b'

const { Sandbox, Volume, Secret, Template } = e2b
const sandbox = await Sandbox.create({ timeoutMs: 900_000, envs: { A: 'b' } })
const unique = `js-${process.pid}`
const fresh = (...options) => Sandbox.create(...options.slice(0, -1), { timeoutMs: 120_000, ...options.at(-1) })

// They only build a description in the client; nothing is asked of a server.
const LOCAL = new Set(['Secret.fill', 'Secret.iamToken', 'Template.toJSON', 'Template.toDockerfile'])
const checks = new Map()
const covers = (names, check) => names.forEach((name) => checks.set(name, check))

/** Own and inherited functions, up to the classes that the package does not show. */
function functions(object, hidden = []) {
  const found = new Set()
  for (let at = object; at && at !== Object.prototype && at !== Function.prototype; at = Object.getPrototypeOf(at))
    for (const [name, entry] of Object.entries(Object.getOwnPropertyDescriptors(at)))
      if (typeof entry.value === 'function' && name !== 'constructor' && !hidden.includes(name)) found.add(name)
  return [...found].filter((name) => !/^[_#]/.test(name)).sort()
}

async function methods() {
  const found = new Set()
  const secret = hiddenByDeclarations()
  const parents = { Sandbox: 'SandboxApi', SecretPaginator: 'Paginator' }
  const add = (prefix, names, type = prefix) =>
    names
      .filter((name) => !secret.has(`${type}.${name}`) && !secret.has(`${parents[type]}.${name}`))
      .forEach((name) => found.add(`${prefix}.${name}`))
  const hidden = functions(Object.getPrototypeOf(Volume)).filter((name) => !['list'].includes(name))
  for (const [name, type] of Object.entries({ Sandbox, Volume, Secret })) {
    add(name, functions(type, hidden))
    add(name, functions(type.prototype, functions(Object.getPrototypeOf(Volume.prototype))))
  }
  add('Template', functions(e2b.TemplateBase, hidden))
  const parts = { commands: 'Commands', pty: 'Pty', files: 'Filesystem', git: 'Git' }
  for (const [part, type] of Object.entries(parts))
    add(`Sandbox.${part}`, functions(Object.getPrototypeOf(sandbox[part])), type)
  const handle = await sandbox.commands.run('exec true', { background: true })
  add('CommandHandle', functions(Object.getPrototypeOf(handle)))
  add('SandboxPaginator', ['nextItems'])
  add('SnapshotPaginator', ['nextItems'])
  add('SecretPaginator', functions(e2b.SecretPaginator.prototype))
  await handle.wait()
  const watch = await sandbox.files.watchDir('/tmp', () => {})
  add('WatchHandle', functions(Object.getPrototypeOf(watch)))
  await watch.stop()
  return [...found]
}

/** `Class.method` of what the type declarations mark as private: at run time it is a method like any other. */
function hiddenByDeclarations() {
  const require = createRequire(import.meta.url)
  const text = readFileSync(require.resolve('e2b').replace(/index\.\w+$/, 'index.d.ts'), 'utf8')
  const found = new Set()
  let type = ''
  for (const line of text.split('\n')) {
    type = line.match(/^(?:export )?declare (?:abstract )?class (\w+)/)?.[1] ?? type
    const name = line.match(/^\s+(?:private|protected)\s+(?:static\s+)?(?:readonly\s+)?(?:async\s+)?(\w+)/)?.[1]
    if (name) found.add(`${type}.${name}`)
  }
  return found
}

async function eventually(probe, within = 20_000) {
  for (const end = Date.now() + within; ; ) {
    const answer = await probe()
    if (answer) return answer
    assert.ok(Date.now() < end, `not within ${within} ms: ${probe}`)
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

async function pages(pager) {
  const items = []
  while (pager.hasNext) items.push(...(await pager.nextItems()))
  return items
}

covers(['Sandbox.create', 'Sandbox.kill', 'Sandbox.isRunning'], async () => {
  const one = await fresh({ metadata: { a: 'b' }, envs: { X: 'y' } })
  assert.equal(await one.isRunning(), true)
  assert.equal((await one.commands.run('echo $X')).stdout, 'y\n')
  await one.kill()
  assert.equal(await one.isRunning(), false)
  assert.equal(await Sandbox.kill(one.sandboxId), false)
})

covers(['Sandbox.connect', 'Sandbox.pause', 'Sandbox.betaPause'], async () => {
  const one = await fresh({})
  assert.equal(await one.pause(), true)
  const again = await Sandbox.connect(one.sandboxId, { timeoutMs: 60_000 })
  assert.equal((await again.commands.run('echo back')).stdout, 'back\n')
  assert.equal(await again.betaPause(), true)
  await one.connect({ timeoutMs: 60_000 })
  assert.equal(await one.isRunning(), true)
  await one.kill()
})

covers(['Sandbox.getInfo', 'Sandbox.getFullInfo', 'Sandbox.setTimeout'], async () => {
  const before = await sandbox.getInfo()
  await sandbox.setTimeout(1_500_000)
  const after = await Sandbox.getInfo(sandbox.sandboxId)
  assert.ok(after.endAt > before.endAt)
  if (Sandbox.getFullInfo) assert.equal((await Sandbox.getFullInfo(sandbox.sandboxId)).sandboxId, sandbox.sandboxId)
})

covers(['Sandbox.list', 'SandboxPaginator.nextItems'], async () => {
  assert.ok((await pages(Sandbox.list({ limit: 1 }))).some((each) => each.sandboxId === sandbox.sandboxId))
})

covers(['Sandbox.getMetrics'], async () => {
  const found = await eventually(async () => (await sandbox.getMetrics())[0], 30_000)
  assert.ok(found.cpuCount >= 1 && found.memTotal > 0)
})

covers(['Sandbox.createSnapshot', 'Sandbox.listSnapshots', 'Sandbox.deleteSnapshot', 'SnapshotPaginator.nextItems'], async () => {
  await sandbox.files.write('in-snapshot', 'yes')
  const taken = await sandbox.createSnapshot({ name: `conformance-${unique}` })
  assert.ok((await pages(sandbox.listSnapshots())).some((each) => each.snapshotId === taken.snapshotId))
  const copy = await fresh(taken.snapshotId, {})
  assert.equal(await copy.files.read('in-snapshot'), 'yes')
  await copy.kill()
  assert.equal(await Sandbox.deleteSnapshot(taken.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(taken.snapshotId), false)
})

covers(['Sandbox.fork'], async () => {
  await sandbox.files.write('before-fork', 'yes')
  for (const result of await sandbox.fork({ count: 2, timeoutMs: 60_000 })) {
    const child = result.sandbox ?? result.value ?? result
    if (child instanceof Error || result.error) throw result.error ?? child
    assert.equal(await child.files.read('before-fork'), 'yes')
    await child.kill()
  }
})

covers(['Sandbox.updateNetwork'], async () => {
  await sandbox.updateNetwork({ denyOut: ['203.0.113.0/24'] })
  assert.match(JSON.stringify((await sandbox.getInfo()).network), /203\.0\.113\.0/)
  await sandbox.updateNetwork({})
})

covers(['Sandbox.getHost', 'Sandbox.getMcpUrl', 'Sandbox.getMcpToken'], async () => {
  assert.ok(sandbox.getHost(3000).includes(sandbox.sandboxId))
  assert.ok(sandbox.getMcpUrl().includes(sandbox.sandboxId))
  // Reads the gateway's file inside: without a gateway there is no token, which is an answer.
  await sandbox.getMcpToken().catch((error) => assert.match(String(error), /not found|does not exist|no such/i))
})

covers(['Sandbox.uploadUrl', 'Sandbox.downloadUrl'], async () => {
  const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' }
  const body = new FormData()
  body.append('file', new Blob(['signed']), 'by-url')
  const up = await sandbox.uploadUrl('/home/user/by-url', { useSignatureExpiration: 60 })
  assert.ok((await fetch(up, { method: 'POST', body, headers })).ok)
  const down = await sandbox.downloadUrl('/home/user/by-url', { useSignatureExpiration: 60 })
  assert.equal(await (await fetch(down, { headers })).text(), 'signed')
})

covers(['Sandbox.commands.run', 'CommandHandle.wait'], async () => {
  assert.equal((await sandbox.commands.run('echo out; echo err >&2')).stderr, 'err\n')
  const handle = await sandbox.commands.run('exec echo done', { background: true })
  assert.equal((await handle.wait()).stdout, 'done\n')
})

covers(['Sandbox.commands.list', 'Sandbox.commands.connect', 'Sandbox.commands.kill', 'CommandHandle.kill', 'CommandHandle.disconnect'], async () => {
  const handle = await sandbox.commands.run('exec sleep 60', { background: true })
  assert.ok((await sandbox.commands.list()).some((each) => each.pid === handle.pid))
  const again = await sandbox.commands.connect(handle.pid)
  await handle.disconnect()
  assert.equal(await again.kill(), true)
  const other = await sandbox.commands.run('exec sleep 60', { background: true })
  other.wait().catch(() => {})
  assert.equal(await sandbox.commands.kill(other.pid), true)
  again.wait().catch(() => {})
})

covers(['Sandbox.commands.sendStdin', 'Sandbox.commands.closeStdin', 'CommandHandle.sendStdin', 'CommandHandle.closeStdin'], async () => {
  const handle = await sandbox.commands.run('exec cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(handle.pid, 'one\n')
  await handle.sendStdin('two\n')
  await sandbox.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout, 'one\ntwo\n')
  const other = await sandbox.commands.run('exec cat', { background: true, stdin: true })
  await other.sendStdin('x')
  await other.closeStdin()
  assert.equal((await other.wait()).stdout, 'x')
})

covers(['create', 'sendInput', 'resize', 'connect', 'kill'].map((each) => `Sandbox.pty.${each}`), async () => {
  const handle = await sandbox.pty.create({ rows: 24, cols: 80, onData: () => {} })
  await sandbox.pty.resize(handle.pid, { rows: 10, cols: 111 })
  await sandbox.pty.sendInput(handle.pid, new TextEncoder().encode('stty size > size\n'))
  await eventually(async () => (await sandbox.files.exists('size')) && (await sandbox.files.read('size')) === '10 111\n')
  const again = await sandbox.pty.connect(handle.pid, { onData: () => {} })
  await again.disconnect()
  handle.wait().catch(() => {})
  assert.equal(await sandbox.pty.kill(handle.pid), true)
})

covers(['write', 'read', 'exists', 'getInfo', 'list', 'makeDir', 'rename', 'remove', 'writeFiles'].map((each) => `Sandbox.files.${each}`), async () => {
  const area = sandbox.files
  assert.equal(await area.makeDir('tree'), true)
  await area.write('tree/a', new Uint8Array([0, 1, 2]).buffer)
  await area.writeFiles([{ path: 'tree/b', data: 'b' }, { path: 'tree/c', data: 'c' }])
  assert.deepEqual([...(await area.read('tree/a', { format: 'bytes' }))], [0, 1, 2])
  assert.deepEqual((await area.list('tree')).map((each) => each.name).sort(), ['a', 'b', 'c'])
  assert.equal((await area.getInfo('tree/a')).size, 3)
  assert.equal((await area.rename('tree/a', 'tree/z')).path, '/home/user/tree/z')
  await area.remove('tree')
  assert.equal(await area.exists('tree'), false)
})

covers(['Sandbox.files.watchDir', 'WatchHandle.stop'], async () => {
  await sandbox.files.makeDir('watched')
  const seen = []
  const handle = await sandbox.files.watchDir('watched', (event) => seen.push(event.name))
  await sandbox.files.write('watched/x', 'x')
  await eventually(() => seen.includes('x'))
  await handle.stop()
})

covers(['init', 'configureUser', 'setConfig', 'getConfig', 'add', 'commit', 'status', 'branches', 'createBranch', 'checkoutBranch',
  'deleteBranch', 'reset', 'restore', 'remoteAdd', 'remoteGet', 'push', 'pull', 'clone', 'dangerouslyAuthenticate'].map((each) => `Sandbox.git.${each}`), async () => {
  const { git, files } = sandbox
  await git.configureUser('Some One', 'one@example.com')
  await git.setConfig('pull.rebase', 'false')
  assert.equal(await git.getConfig('user.name'), 'Some One')
  await git.init('origin.git', { bare: true, initialBranch: 'main' })
  await git.init('work', { initialBranch: 'main' })
  await files.write('work/file', '1\n')
  await git.add('work')
  await git.commit('work', 'First')
  await git.remoteAdd('work', 'origin', '/home/user/origin.git')
  assert.equal(await git.remoteGet('work', 'origin'), '/home/user/origin.git')
  await git.push('work', { remote: 'origin', branch: 'main' })
  await git.pull('work', { remote: 'origin', branch: 'main' })
  await git.clone('/home/user/origin.git', { path: 'copy', branch: 'main' })
  assert.equal(await files.read('copy/file'), '1\n')
  await git.createBranch('work', 'other')
  await git.checkoutBranch('work', 'main')
  assert.ok((await git.branches('work')).branches.includes('other'))
  await git.deleteBranch('work', 'other', { force: true })
  await files.write('work/file', '2\n')
  assert.ok((await git.status('work')).fileStatus.length)
  await git.restore('work', { paths: ['file'] })
  await files.write('work/file', '3\n')
  await git.reset('work', { mode: 'hard' })
  assert.equal(await files.read('work/file'), '1\n')
  await git.dangerouslyAuthenticate({ username: 'someone', password: 'a-token' })
})

covers(['create', 'connect', 'getInfo', 'list', 'destroy'].map((each) => `Volume.${each}`), async () => {
  const volume = await Volume.create(`vol-${unique}`)
  try {
    assert.ok((await Volume.list()).some((each) => each.volumeId === volume.volumeId))
    assert.equal((await Volume.getInfo(volume.volumeId)).name, volume.name)
    assert.equal((await Volume.connect(volume.volumeId)).name, volume.name)
  } finally {
    assert.equal(await Volume.destroy(volume.volumeId), true)
  }
  assert.equal(await Volume.destroy(volume.volumeId), false)
})

covers(['writeFile', 'readFile', 'makeDir', 'exists', 'updateMetadata', 'remove'].map((each) => `Volume.${each}`), async () => {
  const volume = await Volume.create(`content-${unique}`)
  try {
    await volume.makeDir('/folder')
    await volume.writeFile('/folder/file', 'text')
    assert.equal(await volume.readFile('/folder/file'), 'text')
    assert.equal(await volume.exists('/folder/file'), true)
    assert.deepEqual((await volume.list('/folder')).map((each) => each.name), ['file'])
    await volume.updateMetadata('/folder/file', { mode: 0o600 })
    const one = await fresh({ volumeMounts: { '/mnt/shared': volume.name } })
    assert.equal(await one.files.read('/mnt/shared/folder/file'), 'text')
    await one.kill()
    await volume.remove('/folder/file')
    assert.equal(await volume.exists('/folder/file'), false)
  } finally {
    await Volume.destroy(volume.volumeId)
  }
})

covers([...['create', 'getInfo', 'exists', 'list', 'update', 'destroy'].map((each) => `Secret.${each}`), 'SecretPaginator.nextItems'], async () => {
  const name = `secret-${unique}`
  const made = await Secret.create(name, 's3cret', { metadata: { a: 'b' } })
  const key = made.secretId ?? name
  try {
    assert.equal(await Secret.exists(key), true)
    assert.equal((await Secret.getInfo(key)).name, name)
    assert.ok((await pages(Secret.list())).some((each) => each.name === name))
    await Secret.update(key, 'changed')
  } finally {
    assert.equal(await Secret.destroy(key), true)
  }
  assert.equal(await Secret.exists(key), false)
})

covers(['Template.exists', 'Template.aliasExists'], async () => {
  assert.equal(await Template.exists('base'), true)
  assert.equal(await Template.exists('no-such-template'), false)
  assert.equal(await Template.aliasExists('base'), true)
})

covers(['Template.getTags', 'Template.assignTags', 'Template.removeTags'], async () => {
  const name = `tagged-${unique}`
  const taken = await sandbox.createSnapshot({ name })
  try {
    await Template.assignTags(`${name}:default`, ['stable'])
    assert.ok((await Template.getTags(name)).some((each) => each.tag === 'stable'))
    await Template.removeTags(name, ['stable'])
    assert.ok(!(await Template.getTags(name)).some((each) => each.tag === 'stable'))
  } finally {
    await Sandbox.deleteSnapshot(taken.snapshotId)
  }
})

covers(['Template.getBuildStatus'], async () => {
  const answer = await fetch(`${process.env.E2B_API_URL}/templates`, { headers: { 'X-API-Key': process.env.E2B_API_KEY } })
  const [base] = await answer.json()
  assert.equal((await Template.getBuildStatus({ templateId: base.templateID, buildId: base.buildID })).status, 'ready')
})

covers(['Template.build'], async () => {
  await Template.build(Template().fromImage('debian:12').runCmd('true'), `built-${unique}`)
})

covers(['Template.buildInBackground'], async () => {
  await Template.buildInBackground(Template().fromImage('debian:12').runCmd('true'), `built-later-${unique}`)
})

const memo = new Map()
async function verdict(name) {
  if (LOCAL.has(name)) return ['local', 'no server is asked']
  const check = checks.get(name)
  if (!check) return ['not covered', '']
  if (!memo.has(check)) {
    let timer
    const limit = new Promise((_, no) => { timer = setTimeout(() => no(new Error('took longer than 60 s')), 60_000) })
    try {
      await Promise.race([check(), limit])
      memo.set(check, ['works', ''])
    } catch (error) {
      const text = String(error?.message ?? error).replace(/\s+/g, ' ')
      const kind = text.includes('not supported yet') ? 'not supported yet' : 'fails'
      memo.set(check, [kind, (kind === 'fails' ? `${error?.name}: ` : '').concat(text).slice(0, 300)])
    } finally {
      clearTimeout(timer)
    }
  }
  return memo.get(check)
}

const found = {}
for (const name of (await methods()).sort()) found[name] = await verdict(name)
await sandbox.kill()
const { version } = createRequire(import.meta.url)('e2b/package.json')
writeFileSync(process.argv[2], JSON.stringify({ package: 'npm e2b', version, sdks: { js: found } }, null, 1))
process.exit(0)
