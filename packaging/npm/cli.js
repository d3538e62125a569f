#!/usr/bin/env node
// Runs the program beside this file, and ends as it ends.
'use strict'

const { spawn } = require('node:child_process')
const { constants } = require('node:os')
const { join } = require('node:path')

const program = spawn(join(__dirname, 'soulbox'), process.argv.slice(2), { stdio: 'inherit' })

// What is sent to us alone is meant for it. Ctrl-C reaches both.
for (const signal of ['SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2']) {
  process.on(signal, () => program.kill(signal))
}
process.on('SIGINT', () => {})

program.on('error', (error) => {
  console.error(`error: could not run ${error.path}: ${error.message}`)
  process.exit(1)
})
program.on('exit', (code, signal) => {
  process.exit(signal === null ? code : 128 + constants.signals[signal])
})
