// `strip.js SOURCE TARGET`: writes a TypeScript file as JavaScript.
'use strict'

const fs = require('node:fs')
const { withoutTypes } = require('./transform.js')

const [source, target] = process.argv.slice(2)
try {
  fs.writeFileSync(target, withoutTypes(fs.readFileSync(source, 'utf8')))
} catch (error) {
  console.error(`${error.name}: ${error.message}`)
  process.exit(1)
}
