// Makes *.localhost mean 127.0.0.1 in this process; users have a wildcard record or `soulbox dns`.
const dns = require('node:dns')

const lookup = dns.lookup
dns.lookup = (name, options, callback) => {
  const done = typeof options === 'function' ? options : callback
  if (!String(name).endsWith('.localhost')) return lookup(name, options, callback)
  const all = typeof options === 'object' && options !== null && options.all
  process.nextTick(() =>
    all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4)
  )
}
