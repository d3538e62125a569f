// Commands whose output comes while they run, with input, and one that is killed.
//
//     npm install e2b
//     eval "$(sudo cat /var/lib/soulbox/env)"
//     node examples/streaming.mjs

import { CommandExitError, Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
try {
  // Each piece arrives when it is written, not at the end.
  await sandbox.commands.run('for i in 1 2 3; do echo line $i; sleep 0.2; done; echo warning >&2', {
    onStdout: (text) => process.stdout.write(`out: ${text}`),
    onStderr: (text) => process.stdout.write(`err: ${text}`),
  })

  // A failure is an error that has everything that was said.
  try {
    await sandbox.commands.run('echo partial; exit 7')
  } catch (error) {
    if (!(error instanceof CommandExitError)) throw error
    console.log(`exit code ${error.exitCode} after: ${error.stdout.trim()}`)
  }

  // A program that reads: written to while it runs, until its input is closed.
  const sorting = await sandbox.commands.run('sort', { background: true, stdin: true })
  for (const word of ['pear', 'apple', 'fig']) await sandbox.commands.sendStdin(sorting.pid, `${word}\n`)
  await sandbox.commands.closeStdin(sorting.pid)
  console.log(`sorted: ${(await sorting.wait()).stdout.trim().split('\n').join(' ')}`)

  // One that never ends by itself.
  const endless = await sandbox.commands.run('while :; do sleep 1; done', { background: true })
  console.log(`killed: ${await endless.kill()}`)
} finally {
  await sandbox.kill()
}
