// SPDX-License-Identifier: Apache-2.0
// What programs for Node may need: each feature has a time limit and a line, NAME ok, NAME fail:WHY or NAME hang.
'use strict';
const assert = require('assert');
const child = require('child_process');
const crypto = require('crypto');
const dgram = require('dgram');
const dns = require('dns');
const events = require('events');
const fs = require('fs');
const http = require('http');
const net = require('net');
const os = require('os');
const path = require('path');
const { promisify } = require('util');
const { Worker } = require('worker_threads');

const LIMIT_MS = 20000;
const sleep = promisify(setTimeout);
const folder = () => fs.mkdtempSync('/tmp/probe-');

async function talk(where) {
  const server = net.createServer((one) => one.pipe(one));
  server.listen(where);
  await events.once(server, 'listening');
  const address = server.address();
  const client = net.connect(typeof address === 'string' ? address : { host: where.host, port: address.port });
  client.setNoDelay(true);
  client.setKeepAlive(true, 1000);
  client.write('hello');
  const [got] = await events.once(client, 'data');
  client.destroy();
  server.close();
  assert.equal(String(got), 'hello');
}

async function datagrams(type, address) {
  const one = dgram.createSocket(type);
  one.bind(0, address);
  await events.once(one, 'listening');
  one.send('x', one.address().port, address);
  const [got] = await events.once(one, 'message');
  one.close();
  assert.equal(String(got), 'x');
}

const features = {
  tcp_ipv4: () => talk({ host: '127.0.0.1', port: 0 }),
  tcp_ipv6: () => talk({ host: '::1', port: 0 }),
  unix_stream: () => talk({ path: path.join(folder(), 'socket') }),
  unix_abstract: () => talk({ path: '\0probe-of-node' }),
  udp_ipv4: () => datagrams('udp4', '127.0.0.1'),
  udp_ipv6: () => datagrams('udp6', '::1'),
  udp_options: async () => {
    const one = dgram.createSocket({ type: 'udp4', reuseAddr: true });
    one.bind(0);
    await events.once(one, 'listening');
    one.setBroadcast(true);
    one.setTTL(5);
    one.setMulticastTTL(5);
    one.addMembership('224.0.0.251', '127.0.0.1');
    one.setRecvBufferSize(65536);
    one.close();
  },
  http: async () => {
    const server = http.createServer((request, response) => response.end('hello')).listen(0);
    await events.once(server, 'listening');
    const response = await new Promise((right, wrong) => {
      http.get({ port: server.address().port, host: '127.0.0.1' }, right).on('error', wrong);
    });
    assert.equal(response.statusCode, 200);
    response.resume();
    server.close();
  },
  resolve_localhost: async () => assert((await dns.promises.lookup('localhost')).address),
  interfaces: () => assert(os.networkInterfaces().lo),
  exec: async () => assert.equal((await promisify(child.exec)('echo hello')).stdout, 'hello\n'),
  spawn: async () => {
    const one = child.spawn('cat', { stdio: ['pipe', 'pipe', 'inherit'] });
    one.stdin.end('hello');
    const [got] = await events.once(one.stdout, 'data');
    assert.equal(String(got), 'hello');
  },
  spawn_sync: () => assert.equal(child.spawnSync('sh', ['-c', 'exit 3']).status, 3),
  spawn_detached: async () => {
    const one = child.spawn('true', { detached: true, stdio: 'ignore' });
    assert.equal((await events.once(one, 'exit'))[0], 0);
  },
  spawn_with_timeout: async () => {
    const one = child.spawn('sleep', ['100'], { timeout: 50 });
    assert.equal((await events.once(one, 'exit'))[1], 'SIGTERM');
  },
  spawn_script: () => {
    const name = path.join(folder(), 'script');
    fs.writeFileSync(name, '#!/bin/sh\necho ran\n', { mode: 0o755 });
    assert.equal(String(child.execFileSync(name)), 'ran\n');
  },
  fork: async () => {
    const name = path.join(folder(), 'child.js');
    fs.writeFileSync(name, "process.on('message', (m) => { process.send(m + 1); process.disconnect(); });");
    const one = child.fork(name);
    one.send(41);
    assert.equal((await events.once(one, 'message'))[0], 42);
  },
  fork_passes_a_server: async () => {
    const name = path.join(folder(), 'child.js');
    fs.writeFileSync(name, "process.on('message', (m, s) => { s.close(); process.send(!!s); process.disconnect(); });");
    const server = net.createServer().listen(0);
    await events.once(server, 'listening');
    const one = child.fork(name);
    one.send('server', server);
    assert((await events.once(one, 'message'))[0]);
    server.close();
  },
  cluster: async () => {
    const name = path.join(folder(), 'cluster.js');
    fs.writeFileSync(name, `
      const cluster = require('cluster'), http = require('http');
      if (cluster.isPrimary) {
        cluster.fork().on('listening', (a) => http.get({ port: a.port, host: '127.0.0.1' }, (r) => process.exit(r.statusCode === 200 ? 7 : 1)));
      } else http.createServer((q, r) => r.end('x')).listen(0, '127.0.0.1');`);
    assert.equal((await events.once(child.fork(name), 'exit'))[0], 7);
  },
  worker: async () => {
    const one = new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true });
    assert.equal((await events.once(one, 'message'))[0], 42);
  },
  worker_shared: async () => {
    const shared = new SharedArrayBuffer(4);
    const one = new Worker("const { workerData: d } = require('worker_threads'); Atomics.store(new Int32Array(d), 0, 5);", { eval: true, workerData: shared });
    await events.once(one, 'exit');
    assert.equal(new Int32Array(shared)[0], 5);
  },
  atomics_wait: () => assert.equal(Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20), 'timed-out'),
  timers: async () => { await sleep(20); await promisify(setImmediate)(); },
  interval: () => new Promise((right) => { let n = 0; const t = setInterval(() => { if (++n === 3) { clearInterval(t); right(); } }, 5); }),
  high_resolution_time: () => assert(process.hrtime.bigint() > 0n && performance.now() > 0),
  signal: () => new Promise((right) => { process.once('SIGUSR2', right); process.kill(process.pid, 'SIGUSR2'); }),
  watch: async () => {
    const where = folder();
    const watcher = fs.watch(where);
    const heard = events.once(watcher, 'change');
    await sleep(5);
    fs.writeFileSync(path.join(where, 'new'), 'x');
    await heard;
    watcher.close();
  },
  watch_file: async () => {
    const name = path.join(folder(), 'file');
    fs.writeFileSync(name, 'x');
    const heard = new Promise((right) => fs.watchFile(name, { interval: 20 }, right));
    await sleep(50);
    fs.writeFileSync(name, 'xyz');
    await heard;
    fs.unwatchFile(name);
  },
  files: async () => {
    const name = path.join(folder(), 'file');
    await fs.promises.writeFile(name, 'hello');
    await fs.promises.appendFile(name, 'more');
    await fs.promises.chmod(name, 0o600);
    await fs.promises.utimes(name, 1, 2);
    await fs.promises.symlink(name, `${name}-link`);
    await fs.promises.link(name, `${name}-hard`);
    await fs.promises.rename(name, `${name}-new`);
    await fs.promises.truncate(`${name}-new`, 3);
    assert.equal(await fs.promises.readFile(`${name}-new`, 'utf8'), 'hel');
  },
  file_synced: () => {
    const handle = fs.openSync(path.join(folder(), 'file'), 'w');
    fs.writeSync(handle, 'x');
    fs.fsyncSync(handle);
    fs.fdatasyncSync(handle);
    fs.closeSync(handle);
  },
  file_copied: () => {
    const name = path.join(folder(), 'copy');
    fs.copyFileSync('/etc/passwd', name, fs.constants.COPYFILE_EXCL);
    assert(fs.statSync(name).size > 0);
  },
  folder_copied_and_removed: () => {
    const one = folder();
    fs.mkdirSync(`${one}/a/b/c`, { recursive: true });
    fs.cpSync(one, `${one}-copy`, { recursive: true });
    fs.rmSync(`${one}-copy`, { recursive: true });
  },
  streams: async () => {
    const name = path.join(folder(), 'file');
    await promisify(require('stream').pipeline)(fs.createReadStream('/etc/passwd'), require('zlib').createGzip(), fs.createWriteStream(name));
    assert(fs.statSync(name).size > 0);
  },
  statfs: () => assert(!fs.statfsSync || fs.statfsSync('/').bsize),
  temporary_folder: () => assert(fs.existsSync(os.tmpdir())),
  random: () => assert.equal(crypto.randomBytes(16).length, 16),
  random_asynchronous: async () => assert.equal((await promisify(crypto.randomBytes)(16)).length, 16),
  key_derivation: async () => assert((await promisify(crypto.scrypt)('a', 'b', 16)).length === 16),
  key_pair: async () => assert(await promisify(crypto.generateKeyPair)('ec', { namedCurve: 'P-256' })),
  hash: () => assert(crypto.createHash('sha256').update('abc').digest('hex').startsWith('ba7816bf')),
  memory_and_load: () => assert(os.totalmem() > 0 && os.freemem() > 0 && os.loadavg().length === 3),
  cpus: () => assert(os.cpus().length > 0),
  uptime: () => assert(os.uptime() > 0),
  host: () => assert(os.hostname() && os.release() && os.version()),
  user: () => assert.equal(os.userInfo().username, 'www-data'),
  priority: () => { os.setPriority(0, 5); assert.equal(os.getPriority(0), 5); },
  usage: () => assert(process.resourceUsage().maxRSS > 0 && process.cpuUsage().user >= 0),
  memory_usage: () => assert(process.memoryUsage().rss > 0),
  report: () => assert(process.report.getReport().header),
  title: () => { process.title = 'probe'; assert.equal(process.title, 'probe'); },
  executable: () => assert(process.execPath.endsWith('node')),
  umask_and_ids: () => { process.umask(0o22); assert(process.getuid() === 33 && process.getgroups()); },
  terminal: () => assert.equal(require('tty').isatty(0), false),
  web_assembly: () => assert(new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))),
  large_memory: () => assert(Buffer.alloc(32 << 20, 1)[1000] === 1),
  inspector: async () => {
    const inspector = require('inspector');
    inspector.open(0, '127.0.0.1');
    assert(inspector.url());
    inspector.close();
  },
};
for (const name of ['/proc/self/status', '/proc/self/cgroup', '/proc/meminfo', '/proc/cpuinfo', '/proc/stat', '/proc/self/limits',
  '/proc/net/tcp', '/proc/sys/net/core/somaxconn', '/sys/devices/system/cpu/online', '/sys/class/net/lo/mtu', '/dev/urandom']) {
  features[`read${name}`] = () => {
    const handle = fs.openSync(name, 'r');
    assert(fs.readSync(handle, Buffer.alloc(64)) > 0);
    fs.closeSync(handle);
  };
}

(async () => {
  for (const [name, work] of Object.entries(features)) {
    let timer;
    const late = new Promise((right) => { timer = setTimeout(() => right('hang'), LIMIT_MS); });
    const what = Promise.resolve().then(work).then(() => 'ok', (error) => `fail:${error.code || String(error.message).split('\n')[0].slice(0, 100)}`);
    const said = await Promise.race([what, late]);
    clearTimeout(timer);
    fs.writeSync(1, `${name} ${said}\n`);
  }
  fs.writeSync(1, 'probe ended\n');
  process.exit(0);
})();
