// npm `@e2b/desktop`: a screen, a mouse, a keyboard, and the picture of it in a browser.
import { Sandbox } from '@e2b/desktop'
import { domainMode, equal, feature, main, noCall, openPort } from './features.mjs'

let desktop

// It starts X and the window manager itself.
feature('create', async () => {
  desktop = await Sandbox.create({ timeoutMs: 180_000 })
  equal(await desktop.getScreenSize(), { width: 1024, height: 768 })
})

feature('commands', async () => {
  await desktop.moveMouse(200, 150)
  equal(await desktop.getCursorPosition(), { x: 200, y: 150 })
  await desktop.leftClick()
  await desktop.write('hello')
  await desktop.press('enter')
  const picture = await desktop.screenshot()
  equal(Buffer.from(picture).subarray(1, 4).toString(), 'PNG')
  await desktop.launch('xfce4-terminal')
  await desktop.wait(2000)
  equal((await desktop.getApplicationWindows('xfce4-terminal')).length > 0, true)
})

feature('failing command', async () => {
  const error = await desktop.commands.run('exit 3').then(() => null, (error) => error)
  equal(error?.exitCode, 3)
})

feature('files', async () => {
  await desktop.files.write('/home/user/a.txt', 'text ü')
  equal(await desktop.files.read('/home/user/a.txt'), 'text ü')
})

feature('PTY', async () => {
  let screen = ''
  const onData = (data) => (screen += new TextDecoder().decode(data))
  const terminal = await desktop.pty.create({ rows: 24, cols: 80, timeoutMs: 30_000, onData })
  await desktop.pty.sendInput(terminal.pid, new TextEncoder().encode('echo $((6 * 7)); exit\n'))
  await terminal.wait()
  equal(screen.includes('42'), true)
})

feature('ports', async () => {
  await desktop.stream.start({ requireAuth: true })
  const url = desktop.stream.getUrl({ authKey: desktop.stream.getAuthKey() })
  equal(url.startsWith('https://'), true)
  equal((await openPort(domainMode ? url : url.replace('https:', 'http:'))).includes('noVNC'), true)
})

feature('connect', async () => {
  const again = await Sandbox.connect(desktop.sandboxId)
  equal(await again.getScreenSize(), { width: 1024, height: 768 })
})

feature('pause', async () => {
  await desktop.pause()
  await desktop.connect({ timeoutMs: 120_000 })
  equal(await desktop.getScreenSize(), { width: 1024, height: 768 })
})

feature('kill', async () => {
  await desktop.kill()
  equal(await Sandbox.kill(desktop.sandboxId), false)
})

noCall('run code')
await main()
