// The listening half of ZMTP 3.0 (ZeroMQ's wire protocol) for one trusted client: just enough for a
// Jupyter kernel, and nothing to compile.
'use strict'

const fs = require('node:fs')
const net = require('node:net')

const MORE = 1
const LONG = 2
const COMMAND = 4

function greeting() {
  const bytes = Buffer.alloc(64)
  bytes[0] = 0xff
  bytes[9] = 0x7f
  bytes[10] = 3
  bytes.write('NULL', 12, 'ascii')
  return bytes
}

function frame(flags, body) {
  if (body.length < 256) return Buffer.concat([Buffer.from([flags, body.length]), body])
  const head = Buffer.alloc(9)
  head[0] = flags | LONG
  head.writeBigUInt64BE(BigInt(body.length), 1)
  return Buffer.concat([head, body])
}

function ready(type) {
  const property = (name, value) => {
    const size = Buffer.alloc(4)
    size.writeUInt32BE(value.length)
    return Buffer.concat([Buffer.from([name.length]), Buffer.from(name), size, Buffer.from(value)])
  }
  return frame(
    COMMAND,
    Buffer.concat([Buffer.from('\x05READY'), property('Socket-Type', type), property('Identity', '')])
  )
}

// Cuts a stream into frames, however it arrives.
class Frames {
  constructor() {
    this.chunks = []
    this.length = 0
    this.greeted = false
  }

  push(chunk) {
    this.chunks.push(chunk)
    this.length += chunk.length
  }

  peek(length) {
    if (this.length < length) return null
    while (this.chunks[0].length < length) {
      this.chunks.splice(0, 2, Buffer.concat(this.chunks.slice(0, 2)))
    }
    return this.chunks[0]
  }

  take(length) {
    if (length === 0) return Buffer.alloc(0)
    if (this.length < length) return null
    if (this.chunks.length > 1 && this.chunks[0].length < length) {
      this.chunks = [Buffer.concat(this.chunks)]
    }
    const first = this.chunks[0]
    this.length -= length
    if (first.length === length) this.chunks.shift()
    else this.chunks[0] = first.subarray(length)
    return first.subarray(0, length)
  }

  next() {
    if (!this.greeted) {
      if (this.take(64) === null) return null
      this.greeted = true
    }
    const head = this.peek(2)
    if (head === null) return null
    const flags = head[0]
    let size = head[1]
    let header = 2
    if (flags & LONG) {
      const long = this.peek(9)
      if (long === null) return null
      size = Number(long.readBigUInt64BE(1))
      header = 9
    }
    if (this.length < header + size) return null
    this.take(header)
    return { flags, body: this.take(size) }
  }
}

const sleeper = new Int32Array(new SharedArrayBuffer(4))

// Writes before it returns, and waits for the reader: a program that prints faster than its client
// reads is slowed down and does not fill the memory. Past the stream's own buffers, because a cell
// may be interrupted at any point, and would leave those in the middle of something. What an
// interrupted call had not written yet is kept for the next one.
function writeNow(peer, wire) {
  peer.rest.push(wire)
  while (peer.rest.length > 0) {
    const descriptor = peer.socket._handle?.fd
    if (descriptor === undefined || descriptor < 0) {
      peer.rest = []
      return
    }
    try {
      const written = fs.writeSync(descriptor, peer.rest[0])
      if (written === peer.rest[0].length) peer.rest.shift()
      else peer.rest[0] = peer.rest[0].subarray(written)
    } catch (error) {
      if (error.code !== 'EAGAIN') {
        peer.rest = []
        return
      }
      Atomics.wait(sleeper, 0, 0, 1)
    }
  }
}

// Listens as a socket of `type`; calls `onMessage(parts)` for each message of whoever connected.
function listen(endpoint, type, onMessage = () => {}) {
  const peers = new Set()
  let left = () => {}
  const server = net.createServer((socket) => {
    const frames = new Frames()
    let parts = []
    const peer = { socket, ready: false, rest: [] }
    socket.setNoDelay?.(true)
    socket.write(greeting())
    socket.write(ready(type))
    socket.on('data', (chunk) => {
      frames.push(chunk)
      for (let next = frames.next(); next !== null; next = frames.next()) {
        if (next.flags & COMMAND) {
          if (!peer.ready) {
            peer.ready = true
            peers.add(peer)
          }
          continue
        }
        parts.push(Buffer.from(next.body))
        if (next.flags & MORE) continue
        const message = parts
        parts = []
        onMessage(message)
      }
    })
    const gone = () => {
      if (peers.delete(peer) && peers.size === 0) left()
    }
    socket.on('error', gone)
    socket.on('close', gone)
  })
  server.listen(endpoint)
  return {
    // Called when the last peer has gone.
    onLeft(then) {
      left = then
    },
    send(parts) {
      const wire = Buffer.concat(
        parts.map((part, index) => frame(index + 1 < parts.length ? MORE : 0, Buffer.from(part)))
      )
      for (const peer of peers) {
        if (type === 'PUB') writeNow(peer, wire)
        else peer.socket.write(wire)
      }
    },
  }
}

module.exports = { listen }
