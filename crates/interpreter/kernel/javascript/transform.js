// Makes a script out of a cell: types go, imports become calls, `await` may stand anywhere, and what
// is declared at the top can be declared again in a later cell.
'use strict'

const { createRequire } = require('node:module')
const nodeModule = require('node:module')
const acorn = require('acorn')

// A script may not import by itself without a flag of Node's: the kernel has a function for it.
const IMPORT = '__import__'

let sucrase

// Without types. Plain JavaScript goes through unchanged when it can be parsed as it is.
function withoutTypes(code) {
  if (typeof nodeModule.stripTypeScriptTypes === 'function') {
    const emit = process.emitWarning
    process.emitWarning = () => {}
    try {
      return nodeModule.stripTypeScriptTypes(code, { mode: 'strip' })
    } catch (error) {
      if (error.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw error
    } finally {
      process.emitWarning = emit
    }
  }
  sucrase ??= createRequire(__filename)('sucrase')
  return sucrase.transform(code, {
    transforms: ['typescript'],
    disableESTransforms: true,
    keepUnusedImports: true,
  }).code
}

function parse(code) {
  const options = {
    ecmaVersion: 'latest',
    allowAwaitOutsideFunction: true,
    allowHashBang: true,
    locations: true,
  }
  try {
    return acorn.parse(code, { ...options, sourceType: 'module' })
  } catch (error) {
    // Old code that no module may contain.
    try {
      return acorn.parse(code, { ...options, sourceType: 'script' })
    } catch {
      throw error
    }
  }
}

// The same text with pieces of it replaced.
class Edits {
  constructor(code) {
    this.code = code
    this.list = []
  }

  replace(start, end, text) {
    this.list.push({ start, end, text })
  }

  source(node) {
    return this.code.slice(node.start, node.end)
  }

  apply() {
    let result = ''
    let position = 0
    for (const { start, end, text } of this.list.sort((a, b) => a.start - b.start)) {
      result += this.code.slice(position, start) + text
      position = end
    }
    return result + this.code.slice(position)
  }
}

const FUNCTIONS = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression'])

const isNode = (value) => value !== null && typeof value === 'object' && typeof value.type === 'string'

// Calls `visit` for every node below.
function walk(node, visit) {
  if (Array.isArray(node)) return node.forEach((item) => walk(item, visit))
  if (!isNode(node)) return
  visit(node)
  for (const key in node) {
    if (key !== 'loc') walk(node[key], visit)
  }
}

// Whether the code waits outside of any function.
function waits(node) {
  if (Array.isArray(node)) return node.some(waits)
  if (!isNode(node)) return false
  if (node.type === 'AwaitExpression' || (node.type === 'ForOfStatement' && node.await)) return true
  if (FUNCTIONS.has(node.type)) return false
  if (node.type === 'PropertyDefinition' || node.type === 'StaticBlock') return false
  for (const key in node) {
    if (key !== 'loc' && waits(node[key])) return true
  }
  return false
}

function namesIn(pattern, names = []) {
  switch (pattern?.type) {
    case 'Identifier':
      names.push(pattern.name)
      break
    case 'ObjectPattern':
      for (const property of pattern.properties) namesIn(property.value ?? property.argument, names)
      break
    case 'ArrayPattern':
      for (const element of pattern.elements) namesIn(element, names)
      break
    case 'AssignmentPattern':
      namesIn(pattern.left, names)
      break
    case 'RestElement':
      namesIn(pattern.argument, names)
  }
  return names
}

// `import` as a declaration of variables.
function imported(node) {
  const load = `await ${IMPORT}(${JSON.stringify(node.source.value)})`
  const whole = node.specifiers.find((item) => item.type === 'ImportNamespaceSpecifier')
  const parts = node.specifiers
    .filter((item) => item !== whole)
    .map((item) => {
      const name = item.type === 'ImportDefaultSpecifier' ? 'default' : item.imported.name ?? item.imported.value
      return { name: JSON.stringify(name), local: item.local.name }
    })
  const names = [...parts.map((part) => part.local), ...(whole ? [whole.local.name] : [])]
  if (names.length === 0) return { text: `;${load};`, names }
  const assigned = parts.map((part) => `${part.name}: ${part.local}`).join(', ')
  if (!whole) return { text: `;({${assigned}} = ${load});`, names }
  const rest = parts.length === 0 ? '' : ` ({${assigned}} = ${whole.local.name});`
  return { text: `;${whole.local.name} = ${load};${rest}`, names }
}

// The declaration inside an `export`, and how to write the rest away.
function unexported(statement, edits) {
  if (statement.type === 'ExportNamedDeclaration') {
    if (statement.declaration) {
      edits.replace(statement.start, statement.declaration.start, '')
      return statement.declaration
    }
    edits.replace(statement.start, statement.end, ';')
    return null
  }
  if (statement.type === 'ExportDefaultDeclaration') {
    const { declaration } = statement
    if (declaration.id) {
      edits.replace(statement.start, declaration.start, '')
      return declaration
    }
    edits.replace(statement.start, declaration.start, ';(')
    edits.replace(declaration.end, statement.end, ')')
    return null
  }
  if (statement.type === 'ExportAllDeclaration') {
    edits.replace(statement.start, statement.end, ';')
    return null
  }
  return statement
}

/** `{code, isAsync}`: a script, and whether its value is a promise of the cell's value. */
function transform(code, { typescript = false } = {}) {
  let source = code
  let program
  if (typescript) source = withoutTypes(code)
  try {
    program = parse(source)
  } catch (error) {
    if (typescript) throw syntaxError(error, source)
    // Clients send TypeScript to either context.
    try {
      source = withoutTypes(code)
      program = parse(source)
    } catch {
      throw syntaxError(error, code)
    }
  }
  const edits = new Edits(source)
  const imports = program.body.some((statement) => statement.type === 'ImportDeclaration')
  const isAsync = imports || waits(program.body)
  const names = []
  const functions = []
  const last = program.body.at(-1)

  for (const statement of program.body) {
    if (statement.type === 'ImportDeclaration') {
      const { text, names: added } = imported(statement)
      edits.replace(statement.start, statement.end, text)
      names.push(...added)
      continue
    }
    const declaration = unexported(statement, edits)
    if (declaration === null) continue
    if (declaration.type === 'VariableDeclaration') {
      declare(declaration, edits, isAsync, names)
    } else if (declaration.type === 'ClassDeclaration') {
      names.push(declaration.id.name)
      edits.replace(declaration.start, declaration.start, `;void (${declaration.id.name} = `)
      edits.replace(declaration.end, declaration.end, ');')
    } else if (declaration.type === 'FunctionDeclaration' && isAsync) {
      functions.push(declaration.id.name)
    } else if (isAsync && declaration === last && declaration.type === 'ExpressionStatement') {
      edits.replace(declaration.start, declaration.expression.start, `return { value: (`)
      edits.replace(declaration.expression.end, declaration.end, ') };')
    }
  }
  walk(program.body, (node) => {
    if (node.type === 'ImportExpression') {
      edits.replace(node.start, node.start + 'import'.length, IMPORT)
    }
  })
  const declared = names.length > 0 ? `var ${[...new Set(names)].join(', ')};` : ''
  const body = edits.apply()
  if (!isAsync) return { code: declared + body, isAsync }
  const hoisted = functions.map((name) => `globalThis.${name} = ${name};`).join('')
  return { code: `${declared}(async () => {${hoisted}${body}\n})()`, isAsync }
}

// At the top everything is `var`: a cell can be run again. In an async cell the variables are declared
// outside of its function and only assigned inside.
function declare(declaration, edits, isAsync, names) {
  if (!isAsync) {
    if (declaration.kind !== 'var') {
      edits.replace(declaration.start, declaration.start + declaration.kind.length, 'var')
    }
    return
  }
  const first = declaration.declarations[0]
  edits.replace(declaration.start, first.start, ';(')
  for (const item of declaration.declarations) {
    names.push(...namesIn(item.id))
    if (item.init === null) edits.replace(item.end, item.end, ' = undefined')
  }
  const end = declaration.declarations.at(-1).end
  edits.replace(end, declaration.end, ');')
}

function syntaxError(error, code) {
  const problem = new SyntaxError(error.message)
  if (error.loc) {
    const line = code.split('\n')[error.loc.line - 1] ?? ''
    problem.stack = `evalmachine.<cell>:${error.loc.line}\n${line}\n${' '.repeat(error.loc.column)}^\n\nSyntaxError: ${error.message}`
  }
  return problem
}

module.exports = { IMPORT, transform, withoutTypes }
