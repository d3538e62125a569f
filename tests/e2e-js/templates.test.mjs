import assert from 'node:assert/strict'
import { mkdtemp, mkdir, rm, symlink, writeFile, chmod } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { randomUUID } from 'node:crypto'
import { BuildError, Sandbox, Template, waitForFile, waitForPort } from 'e2b'
import { eventually, modes } from './support.mjs'

const LIMIT = { timeout: 120_000 }
let context

before(async () => {
  context = await mkdtemp(path.join(tmpdir(), 'soulbox-js-templates-'))
  await mkdir(path.join(context, 'folder'))
  await writeFile(path.join(context, 'folder', 'a.txt'), 'a')
  await symlink('a.txt', path.join(context, 'folder', 'link'))
  await writeFile(path.join(context, 'tool'), '#!/bin/sh\necho tool\n')
  await chmod(path.join(context, 'tool'), 0o755)
})

after(() => rm(context, { recursive: true, force: true }))

const newName = () => `js-${randomUUID().slice(0, 8)}`

/** Builds under a new name and returns what was built, with the lines of the log. */
async function build(mode, template, options = {}, name = newName()) {
  const lines = []
  const info = await Template.build(template, name, {
    ...modes[mode],
    cpuCount: 1,
    memoryMB: 512,
    onBuildLogs: (entry) => lines.push(entry.message),
    ...options,
  })
  return { ...info, name, lines }
}

/** Runs one command in a new sandbox of the template. */
async function runIn(mode, template, command) {
  const sandbox = await Sandbox.create(template, { ...modes[mode], timeoutMs: 60_000 })
  try {
    return (await sandbox.commands.run(command)).stdout
  } finally {
    await sandbox.kill()
  }
}

for (const mode of Object.keys(modes)) {
  test(`${mode}: a template with all kinds of steps serves its port at once`, LIMIT, async () => {
    const template = Template({ fileContextPath: context })
      .fromImage('python:3.11')
      .setEnvs({ GREETING: 'hello' })
      .setWorkdir('/srv/app')
      .copy('folder', '/srv/app/pages')
      .copy('tool', '/opt/tool', { user: 'root', mode: 0o700 })
      .runCmd('echo $GREETING > pages/greeting')
      .setStartCmd('python3 -m http.server 8000 --directory pages', waitForPort(8000))
    const info = await build(mode, template)
    assert.ok(info.templateId && info.buildId)
    const sandbox = await Sandbox.create(info.name, { ...modes[mode], timeoutMs: 60_000 })
    try {
      const out = await sandbox.commands.run('curl -s localhost:8000/greeting localhost:8000/link; stat -c "%U %a" /opt/tool')
      assert.equal(out.stdout, 'hello\naroot 700\n')
      if (mode === 'tls') {
        const answer = await fetch(`https://${sandbox.getHost(8000)}/greeting`)
        assert.equal(await answer.text(), 'hello\n')
      }
    } finally {
      await sandbox.kill()
    }
  })

  test(`${mode}: a failed step is told at its line`, LIMIT, async () => {
    const template = Template().fromImage('ubuntu:22.04').runCmd('true').runCmd('exit 7')
    await assert.rejects(build(mode, template), (error) => {
      assert.ok(error instanceof BuildError)
      assert.match(error.message, /failed to run command 'exit 7': exit status 7/)
      assert.match(error.stack, /templates\.test\.mjs/)
      return true
    })
  })
}

test('a build in the background is building at once, and then ready', LIMIT, async () => {
  const template = Template().fromImage('ubuntu:22.04').skipCache().runCmd('sleep 2')
  const info = await Template.buildInBackground(template, newName(), { ...modes.plain, cpuCount: 1, memoryMB: 512 })
  const status = () => Template.getBuildStatus(info, modes.plain)
  assert.equal((await status()).status, 'building')
  const ended = await eventually(
    async () => {
      const now = await status()
      return ['ready', 'error'].includes(now.status) && now
    },
    { within: 60_000, every: 200 }
  )
  assert.equal(ended.status, 'ready')
})

test('a second build takes everything from the cache', LIMIT, async () => {
  const template = () => Template().fromImage('ubuntu:22.04').setEnvs({ ONLY: context }).runCmd('echo once > /tmp/once')
  await build('plain', template())
  const again = await build('plain', template())
  assert.ok(again.lines.some((line) => line.startsWith('CACHED') && line.includes('RUN')), again.lines.join('\n'))
})

test('names and tags', LIMIT, async () => {
  const name = newName()
  assert.equal(await Template.exists('base', modes.plain), true)
  assert.equal(await Template.exists(name, modes.plain), false)
  await build('plain', Template().fromImage('ubuntu:22.04').setEnvs({ MARK: 'one' }), {}, `${name}:v1`)
  await build('plain', Template().fromImage('ubuntu:22.04').setEnvs({ MARK: 'two' }), {}, `${name}:v2`)
  assert.equal(await Template.exists(name, modes.plain), true)
  await Template.assignTags(`${name}:v1`, ['stable'], modes.plain)
  assert.equal(await runIn('plain', `${name}:stable`, 'echo $MARK'), 'one\n')
  assert.equal(await runIn('plain', `${name}:v2`, 'echo $MARK'), 'two\n')
  await Template.removeTags(name, ['stable'], modes.plain)
  await assert.rejects(Sandbox.create(`${name}:stable`, modes.plain))
})

test('a template on a template inherits its start command', LIMIT, async () => {
  const first = await build(
    'plain',
    Template().fromImage('ubuntu:22.04').setEnvs({ A: 'a' }).setStartCmd('touch /tmp/started; sleep 300', waitForFile('/tmp/started'))
  )
  const second = await build('plain', Template().fromTemplate(first.name).runCmd('echo $A > /tmp/a'))
  assert.equal(await runIn('plain', second.name, 'ls /tmp/started; cat /tmp/a'), '/tmp/started\na\n')
})

test('a Dockerfile read by the client', LIMIT, async () => {
  const text = 'FROM ubuntu:22.04\nENV A=b\nWORKDIR /app\nCOPY folder/a.txt .\nRUN echo $A >> a.txt\n'
  const info = await build('plain', Template({ fileContextPath: context }).fromDockerfile(text))
  assert.equal(await runIn('plain', info.name, 'cat /app/a.txt'), 'ab\n')
})
