import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FilesystemEventType, FileNotFoundError, InvalidArgumentError } from 'e2b'
import { eventually, modes, withSandbox } from './support.mjs'

for (const mode of Object.keys(modes)) {
  const inside = (name, body, options = {}) => test(`${mode}: ${name}`, () => withSandbox(mode, options, body))

  inside('text, bytes, blobs and streams are read as they were written', async (sandbox) => {
    const bytes = new Uint8Array(300_000).map((_, n) => n % 256)
    const written = await sandbox.files.write('text', 'ünï 漢字')
    assert.deepEqual([written.name, written.path], ['text', '/home/user/text'])
    assert.equal(await sandbox.files.read('text'), 'ünï 漢字')
    await sandbox.files.write('bytes', bytes.buffer)
    assert.deepEqual(await sandbox.files.read('bytes', { format: 'bytes' }), bytes)
    await sandbox.files.write('blob', new Blob([bytes]))
    assert.equal((await sandbox.files.read('blob', { format: 'blob' })).size, bytes.length)
    await sandbox.files.write('stream', new Blob([bytes]).stream())
    let size = 0
    for await (const chunk of await sandbox.files.read('stream', { format: 'stream' })) size += chunk.length
    assert.equal(size, bytes.length)
    await sandbox.files.write('empty', '')
    assert.equal(await sandbox.files.read('empty'), '')
  })

  inside('many files go in one request', async (sandbox) => {
    const made = await sandbox.files.write([
      { path: 'a', data: 'A' },
      { path: 'deep/b', data: new Blob(['B']) },
    ])
    assert.deepEqual(made.map((each) => each.path), ['/home/user/a', '/home/user/deep/b'])
    assert.equal(await sandbox.files.read('deep/b'), 'B')
  })

  inside('compressed transfers give the same file', async (sandbox) => {
    const text = 'line\n'.repeat(50_000)
    await sandbox.files.write('z', text, { gzip: true })
    assert.equal(await sandbox.files.read('z', { gzip: true }), text)
  })

  inside('entries are described, listed, moved and removed', async (sandbox) => {
    await sandbox.files.write('t/a/1', '12345')
    await sandbox.files.write('t/b', '')
    const info = await sandbox.files.getInfo('t/a/1')
    assert.deepEqual(
      [info.type, info.size, info.mode, info.permissions, info.owner, info.group],
      ['file', 5, 0o644, '-rw-r--r--', 'user', 'user']
    )
    const names = async (depth) => (await sandbox.files.list('t', { depth })).map((each) => each.path)
    assert.deepEqual(await names(1), ['/home/user/t/a', '/home/user/t/b'])
    assert.deepEqual(await names(2), ['/home/user/t/a', '/home/user/t/a/1', '/home/user/t/b'])
    assert.equal((await sandbox.files.rename('t/b', 'u/c')).path, '/home/user/u/c')
    assert.equal(await sandbox.files.makeDir('new/dir'), true)
    assert.equal(await sandbox.files.makeDir('new/dir'), false)
    await sandbox.files.remove('t')
    assert.equal(await sandbox.files.exists('t'), false)
    await sandbox.files.remove('t')
  })

  inside('what is missing is not found', async (sandbox) => {
    await assert.rejects(sandbox.files.read('missing'), FileNotFoundError)
    await assert.rejects(sandbox.files.getInfo('missing'), FileNotFoundError)
    await assert.rejects(sandbox.files.list('missing'), FileNotFoundError)
    await assert.rejects(sandbox.files.read('/tmp'), InvalidArgumentError)
  })

  inside('metadata stays with the file', async (sandbox) => {
    await sandbox.files.write('m', 'x', { metadata: { author: 'me' } })
    assert.deepEqual((await sandbox.files.getInfo('m')).metadata, { author: 'me' })
    await sandbox.files.write('m', 'y')
    assert.equal((await sandbox.files.getInfo('m')).metadata, undefined)
  })

  inside('changes are watched, in new directories too', async (sandbox) => {
    await sandbox.files.makeDir('w')
    const events = []
    const watch = await sandbox.files.watchDir('w', (event) => events.push(event), {
      recursive: true,
      includeEntry: true,
    })
    await sandbox.files.write('w/f', 'x')
    await eventually(() => events.find((each) => each.name === 'f' && each.type === FilesystemEventType.WRITE))
    await sandbox.files.write('w/new/dir/g', 'x')
    const event = await eventually(() =>
      events.find((each) => each.name === 'new/dir/g' && each.type === FilesystemEventType.WRITE)
    )
    assert.equal(event.entry.path, '/home/user/w/new/dir/g')
    await sandbox.files.rename('w/f', 'w/h')
    await eventually(() => events.find((each) => each.name === 'f' && each.type === FilesystemEventType.RENAME))
    await sandbox.files.remove('w/h')
    await eventually(() => events.find((each) => each.name === 'h' && each.type === FilesystemEventType.REMOVE))
    await watch.stop()
    await assert.rejects(
      sandbox.files.watchDir('missing', () => {}),
      FileNotFoundError
    )
  })

  inside('signed addresses open what they say, for a while', async (sandbox) => {
    await sandbox.files.write('s', 'signed')
    const url = await sandbox.downloadUrl('s', { useSignatureExpiration: 60_000 })
    assert.equal(await (await fetch(url)).text(), 'signed')
    assert.equal((await fetch(url.replace('path=s', 'path=other'))).status, 401)
    const expired = await sandbox.downloadUrl('s', { useSignatureExpiration: -60_000 })
    const answer = await fetch(expired)
    assert.equal(answer.status, 401)
    assert.deepEqual(await answer.json(), { code: 401, message: 'signature is already expired' })
    const up = await sandbox.uploadUrl('up', { useSignatureExpiration: 60_000 })
    const form = new FormData()
    form.append('file', 'uploaded')
    assert.equal((await fetch(up, { method: 'POST', body: form })).status, 200)
    assert.equal(await sandbox.files.read('up'), 'uploaded')
  })
}
