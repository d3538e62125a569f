// How a value is shown: its text, and what it says about itself.
'use strict'

const util = require('node:util')

const OWN = [
  ['_toHtml', 'text/html', String],
  ['_toSvg', 'image/svg+xml', String],
  ['_toPng', 'image/png', base64],
  ['_toJpeg', 'image/jpeg', base64],
]

function base64(bytes) {
  return typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString('base64')
}

function bundle(value) {
  const data = { 'text/plain': text(value) }
  if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return data
  for (const [method, mime, convert] of OWN) {
    try {
      if (typeof value[method] === 'function') data[mime] = convert(value[method]())
    } catch {
      // A value that cannot show itself one way still has the others.
    }
  }
  try {
    if (typeof value._toMime === 'function') Object.assign(data, value._toMime())
  } catch {}
  return data
}

function text(value) {
  try {
    return util.inspect(value)
  } catch (error) {
    return `[a value that cannot be shown: ${error?.message}]`
  }
}

module.exports = { bundle }
