// A Jupyter kernel for JavaScript and TypeScript: `kernel.js CONNECTION_FILE`.
'use strict'

const crypto = require('node:crypto')
const fs = require('node:fs')
const { Console } = require('node:console')
const { createRequire } = require('node:module')
const path = require('node:path')
const util = require('node:util')
const vm = require('node:vm')

const { bundle } = require('./display.js')
const { IMPORT, transform } = require('./transform.js')
const { listen } = require('./zmtp.js')

const connection = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'))
const isOurs = process.env.SOULBOX_KERNEL_LANGUAGE !== undefined
const typescript = process.env.SOULBOX_KERNEL_LANGUAGE === 'typescript'
delete process.env.SOULBOX_KERNEL_LANGUAGE
const session = crypto.randomUUID()
const DELIMITER = '<IDS|MSG>'
// Output is sent in pieces of this size, and what is smaller when the cell pauses.
const PIECE = 64 * 1024

let parent = {}
let count = 0
let running = null
const queue = []

const endpoint = (port) =>
  connection.transport === 'ipc'
    ? { path: `${connection.ip}-${port}` }
    : { host: connection.ip, port }

const iopub = listen(endpoint(connection.iopub_port), 'PUB', () => {})
const shell = listen(endpoint(connection.shell_port), 'ROUTER', (parts) => receive(shell, parts))
const control = listen(endpoint(connection.control_port), 'ROUTER', (parts) => receive(control, parts))
listen(endpoint(connection.stdin_port), 'ROUTER')
// A kernel of a server that is gone can be reached by nobody.
shell.onLeft(() => isOurs && process.reallyExit(0))

function sign(parts) {
  const mac = crypto.createHmac('sha256', connection.key)
  for (const part of parts) mac.update(part)
  return mac.digest('hex')
}

function message(type, content, parentHeader) {
  const header = {
    msg_id: crypto.randomUUID(),
    session,
    username: 'kernel',
    date: new Date().toISOString(),
    msg_type: type,
    version: '5.3',
  }
  const parts = [header, parentHeader, {}, content].map((part) => JSON.stringify(part))
  return [DELIMITER, sign(parts), ...parts]
}

const publish = (type, content, header = parent) => iopub.send([type, ...message(type, content, header)])
const reply = (channel, type, content, header) => channel.send(message(type, content, header))

function receive(channel, parts) {
  const start = parts.findIndex((part) => part.toString() === DELIMITER)
  if (start < 0) return
  const [signature, header, parentHeader, metadata, content] = parts.slice(start + 1)
  if (content === undefined) return
  const expected = Buffer.from(sign([header, parentHeader, metadata, content]))
  if (expected.length !== signature.length || !crypto.timingSafeEqual(expected, signature)) return
  const request = { channel, header: JSON.parse(header), content: JSON.parse(content) }
  if (request.header.msg_type === 'interrupt_request') {
    interrupt()
    reply(channel, 'interrupt_reply', { status: 'ok' }, request.header)
  } else if (request.header.msg_type === 'shutdown_request') {
    reply(channel, 'shutdown_reply', { status: 'ok', restart: false }, request.header)
    setImmediate(() => process.reallyExit(0))
  } else {
    queue.push(request)
    if (running === null) work()
  }
}

async function work() {
  while (queue.length > 0) {
    const request = queue.shift()
    const { channel, header, content } = request
    parent = header
    running = request
    publish('status', { execution_state: 'busy' })
    if (header.msg_type === 'execute_request') {
      reply(channel, 'execute_reply', await execute(content), header)
    } else if (header.msg_type === 'kernel_info_request') {
      reply(channel, 'kernel_info_reply', information(), header)
    }
    output.flush()
    output.planned = false
    publish('status', { execution_state: 'idle' }, header)
    running = null
  }
}

function information() {
  return {
    status: 'ok',
    protocol_version: '5.3',
    implementation: 'soulbox-javascript',
    implementation_version: '1',
    language_info: {
      name: 'javascript',
      version: process.versions.node,
      mimetype: 'application/javascript',
      file_extension: '.js',
    },
    banner: `Node.js ${process.version}`,
  }
}

async function execute({ code, silent }) {
  if (!silent) {
    if (code.trim() !== '') count += 1
    publish('execute_input', { code, execution_count: Math.max(count, 1) })
  }
  try {
    const value = await evaluate(code)
    output.flush()
    if (!silent && value !== undefined) {
      publish('execute_result', { execution_count: count, data: bundle(value), metadata: {} })
    }
    return { status: 'ok', execution_count: count, payload: [], user_expressions: {} }
  } catch (error) {
    output.flush()
    const failure = describe(error)
    if (!silent) publish('error', failure)
    return { status: 'error', execution_count: count, ...failure }
  }
}

async function evaluate(code) {
  const script = transform(code, { typescript })
  const compiled = new vm.Script(script.code, { filename: 'evalmachine.<cell>' })
  const value = compiled.runInThisContext({ breakOnSigint: true, displayErrors: false })
  const last = script.isAsync ? (await interruptible(value))?.value : value
  // The last expression's promise is waited for, as a notebook's reader expects.
  return util.types.isPromise(last) ? interruptible(last) : last
}

// What a cell imports is looked for from the folder in which it runs.
function load(name) {
  name = String(name)
  if (/^\.{0,2}\//.test(name)) return import(new URL(name, `file://${process.cwd()}/`).href)
  try {
    const found = here().resolve(name)
    return import(path.isAbsolute(found) ? `file://${found}` : found)
  } catch {
    return import(name)
  }
}

const here = () => createRequire(path.join(process.cwd(), 'cell.js'))

class Interrupted extends Error {
  constructor() {
    super('the cell was interrupted')
    this.name = 'KeyboardInterrupt'
    this.stack = `${this.name}: ${this.message}`
  }
}

let onInterrupt = null

function interruptible(promise) {
  return Promise.race([
    promise,
    new Promise((_, reject) => {
      onInterrupt = () => reject(new Interrupted())
    }),
  ]).finally(() => {
    onInterrupt = null
  })
}

function interrupt() {
  onInterrupt?.()
}

function describe(error) {
  if (error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') error = new Interrupted()
  if (util.types.isNativeError(error) || error instanceof Error) {
    const stack = String(error.stack ?? error)
    // Our own frames say nothing to whoever wrote the cell.
    const lines = stack.split('\n').filter((line) => !line.includes(__dirname) && !/node:(vm|events|net|internal)/.test(line))
    return { ename: String(error.name), evalue: String(error.message), traceback: [lines.join('\n')] }
  }
  const text = util.inspect(error)
  return { ename: 'Error', evalue: text, traceback: [`Uncaught ${text}`] }
}

// Pieces of output, sent together.
const output = {
  name: null,
  pieces: [],
  size: 0,
  planned: false,
  write(name, text) {
    if (this.name !== name) this.flush()
    this.name = name
    for (let start = 0; start < text.length; start += PIECE) {
      const piece = text.slice(start, start + PIECE)
      this.pieces.push(piece)
      this.size += piece.length
      if (this.size >= PIECE) {
        this.flush()
        this.name = name
      }
    }
    if (this.size > 0 && !this.planned) {
      this.planned = true
      setImmediate(() => {
        this.planned = false
        this.flush()
      })
    }
  },
  flush() {
    if (this.size === 0) return
    const text = this.pieces.join('')
    this.pieces = []
    this.size = 0
    publish('stream', { name: this.name, text })
  },
}

// Not a stream of Node's: a cell may be interrupted at any point, and would leave one unusable.
function stream(name) {
  return {
    write(chunk, encoding, done) {
      output.write(name, typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8'))
      const then = typeof encoding === 'function' ? encoding : done
      if (typeof then === 'function') process.nextTick(then)
      return true
    },
  }
}

const stdout = stream('stdout')
const stderr = stream('stderr')
process.stdout.write = stdout.write
process.stderr.write = stderr.write
Object.defineProperty(globalThis, 'console', {
  value: new Console({ stdout, stderr, ignoreErrors: false }),
  writable: true,
  configurable: true,
})

const show = (data) => publish('display_data', { data, metadata: {}, transient: {} })
Object.defineProperty(globalThis, IMPORT, { value: load })
Object.assign(globalThis, {
  require: (name) => here()(name),
  module: { exports: {} },
  exports: {},
  display: (value) => {
    output.flush()
    show(bundle(value))
  },
})
globalThis.require.resolve = (name) => here().resolve(name)

process.on('SIGINT', interrupt)
// A mistake in a callback is the cell's, not the end of the kernel.
const complain = (error) => {
  output.write('stderr', `${describe(error).traceback[0]}\n`)
  output.flush()
}
process.on('uncaughtException', complain)
process.on('unhandledRejection', complain)
