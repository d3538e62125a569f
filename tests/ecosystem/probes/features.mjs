// What a JavaScript probe is made of: features in order, each told as one line of JSON.
// Those after a failed `create` are not tried.
import assert from 'node:assert/strict'

/** Each feature's own bound; the runner has one for the whole probe. */
const LIMIT = Number(process.env.ECOSYSTEM_FEATURE_SECONDS ?? 60)
export const domainMode = process.env.ECOSYSTEM_MODE === 'domain'
export const equal = assert.deepStrictEqual
const features = []

/** This package or version has no such thing; the text says why. */
export class NotOffered extends Error {}

export function feature(name, body) {
  features.push({ name, body })
}

export function notOffered(reason, ...names) {
  for (const name of names) {
    feature(name, () => {
      throw new NotOffered(reason)
    })
  }
}

export function noCall(...names) {
  notOffered('the package itself has no call for this, with E2B neither', ...names)
}

function tell(feature, state, reason = '', seconds = 0) {
  process.stdout.write(JSON.stringify({ feature, state, reason, seconds: Number(seconds.toFixed(2)) }) + '\n')
}

async function bounded(body) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end within ${LIMIT} s`)), LIMIT * 1000)
  })
  try {
    await Promise.race([body(), late])
  } finally {
    clearTimeout(timer)
  }
}

function reasonOf(error) {
  const cause = error?.cause?.message ? ` (${error.cause.message})` : ''
  return `${error?.name}: ${error?.message ?? error}${cause}`.replace(/\s+/g, ' ').slice(0, 300)
}

export async function main() {
  let created = true
  for (const { name, body } of features) {
    if (!created) {
      tell(name, 'failed', 'not tried: create failed')
      continue
    }
    const begin = performance.now()
    const seconds = () => (performance.now() - begin) / 1000
    try {
      await bounded(async () => body())
      tell(name, 'ok', '', seconds())
    } catch (error) {
      if (error instanceof NotOffered) tell(name, 'not offered', error.message)
      else {
        tell(name, 'failed', reasonOf(error), seconds())
        console.error(error)
        created &&= name !== 'create'
      }
    }
  }
  // What libraries keep open is of no interest any more.
  process.stdout.write('', () => process.exit(0))
}

/** What a server in a sandbox answers: over TLS in domain mode, else as plain HTTP of the same name. */
export async function openPort(host, within = 20_000) {
  const url = /^https?:/.test(host) ? host : `${domainMode ? 'https' : 'http'}://${host}/`
  const end = Date.now() + within
  for (;;) {
    const answer = await fetch(url).catch((error) => error)
    if (answer.ok) return answer.text()
    const isCertificate = /certificate/.test(answer.cause?.message) // which becomes no better by waiting
    if (isCertificate || Date.now() > end) throw new Error(`${url}: ${answer.status ?? answer.cause ?? answer}`)
    await new Promise((resolve) => setTimeout(resolve, 100)) // until the server inside listens
  }
}
