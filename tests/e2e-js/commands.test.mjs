import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CommandExitError, InvalidArgumentError, NotFoundError, TimeoutError, AuthenticationError } from 'e2b'
import { eventually, modes, withSandbox } from './support.mjs'

for (const mode of Object.keys(modes)) {
  const inside = (name, body, options = {}) => test(`${mode}: ${name}`, () => withSandbox(mode, options, body))

  inside('output comes back exactly and through callbacks', async (sandbox) => {
    const out = []
    const err = []
    const result = await sandbox.commands.run('echo "a  ü"; echo b >&2', {
      onStdout: (data) => out.push(data),
      onStderr: (data) => err.push(data),
    })
    assert.equal(result.stdout, 'a  ü\n')
    assert.equal(out.join(''), result.stdout)
    assert.equal(err.join(''), 'b\n')
    assert.equal(result.exitCode, 0)
  })

  inside('an exit code becomes an error that holds everything', async (sandbox) => {
    await assert.rejects(sandbox.commands.run('echo o; echo e >&2; exit 7'), (error) => {
      assert.ok(error instanceof CommandExitError)
      assert.deepEqual([error.exitCode, error.stdout, error.stderr], [7, 'o\n', 'e\n'])
      return true
    })
  })

  inside('a background command is listed, connected to and killed', async (sandbox) => {
    const handle = await sandbox.commands.run('exec sleep 300', { background: true })
    const listed = await sandbox.commands.list()
    assert.ok(listed.some((each) => each.pid === handle.pid))
    const again = await sandbox.commands.connect(handle.pid)
    assert.equal(again.pid, handle.pid)
    assert.equal(await handle.kill(), true)
    assert.equal(await sandbox.commands.kill(handle.pid), false)
    await assert.rejects(sandbox.commands.run(`kill -0 ${handle.pid}`), CommandExitError)
  })

  inside('stdin is delivered and closed', async (sandbox) => {
    const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
    await sandbox.commands.sendStdin(handle.pid, 'one\n')
    await sandbox.commands.sendStdin(handle.pid, 'two\n')
    await sandbox.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'one\ntwo\n')
  })

  inside(
    'variables, directory and user are those asked for',
    async (sandbox) => {
      const run = async (cmd, options) => (await sandbox.commands.run(cmd, options)).stdout.trim()
      assert.equal(await run('echo $A $B', { envs: { B: 'command' } }), 'sandbox command')
      assert.equal(await run('pwd', { cwd: '/tmp' }), '/tmp')
      assert.equal(await run('whoami'), 'user')
      assert.equal(await run('whoami', { user: 'root' }), 'root')
      assert.equal(await run('sudo whoami'), 'root')
      await assert.rejects(sandbox.commands.run('pwd', { cwd: '/missing' }), InvalidArgumentError)
      await assert.rejects(sandbox.commands.run('pwd', { user: 'unknown-one' }), AuthenticationError)
    },
    { envs: { A: 'sandbox', B: 'sandbox' } }
  )

  inside('a command past its time ends with a timeout error', async (sandbox) => {
    await assert.rejects(sandbox.commands.run('sleep 300', { timeoutMs: 1000 }), TimeoutError)
  })

  inside('an unknown process is not found', async (sandbox) => {
    await assert.rejects(sandbox.commands.connect(999999), NotFoundError)
    assert.equal(await sandbox.commands.kill(999999), false)
  })

  inside('large output arrives whole', async (sandbox) => {
    const result = await sandbox.commands.run("head -c 5000000 /dev/zero | tr '\\0' x")
    assert.equal(result.stdout.length, 5_000_000)
  })

  inside('killing the sandbox ends a running command with the reason', async (sandbox) => {
    const handle = await sandbox.commands.run('sleep 300', { background: true, timeoutMs: 0 })
    await sandbox.kill()
    await assert.rejects(handle.wait(), /killed or reached its end of life/)
  })

  inside('a terminal has a size, follows a resize and passes its exit code', async (sandbox) => {
    let screen = ''
    const terminal = await sandbox.pty.create({
      cols: 80,
      rows: 24,
      onData: (data) => (screen += new TextDecoder().decode(data)),
    })
    const type = (text) => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(text))
    await type('echo size:$(tput cols)\n')
    await eventually(() => screen.includes('size:80'))
    await sandbox.pty.resize(terminal.pid, { cols: 101, rows: 30 })
    await type('echo size:$(tput cols)\n')
    await eventually(() => screen.includes('size:101'))
    await type('exit 0\n')
    assert.equal((await terminal.wait()).exitCode, 0)
  })

  inside('a terminal is connected to again and killed', async (sandbox) => {
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
    let second = ''
    await sandbox.pty.connect(terminal.pid, { onData: (data) => (second += new TextDecoder().decode(data)) })
    await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('echo again:$((6*7))\n'))
    await eventually(() => second.includes('again:42'))
    assert.equal(await sandbox.pty.kill(terminal.pid), true)
    assert.equal(await sandbox.pty.kill(terminal.pid), false)
  })

  inside('the git helpers of the client work', async (sandbox) => {
    await sandbox.git.init('/home/user/repo', { initialBranch: 'main' })
    await sandbox.files.write('/home/user/repo/a', 'x')
    await sandbox.git.configureUser('A', 'a@example.com')
    await sandbox.git.add('/home/user/repo')
    await sandbox.git.commit('/home/user/repo', 'first')
    assert.equal((await sandbox.git.status('/home/user/repo')).currentBranch, 'main')
  })
}
