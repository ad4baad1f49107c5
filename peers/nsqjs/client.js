// A client program over nsqjs for polymq's interoperability tests.
//
// It reads one job, a JSON object, from standard input, does it, and answers with one JSON object on standard output.
// tests/interop/jobs.py describes the jobs; peers/go-nsq/main.go and tests/interop/clients/*.py do the same ones.
'use strict'

const fs = require('fs')
const nsq = require('nsqjs')

const bytes = (text) => Buffer.from(text, 'base64')
const once = (emitter, good, bad) =>
  new Promise((resolve, reject) => {
    emitter.once(good, resolve)
    emitter.once(bad, reject)
  })

function fail(problem) {
  process.stderr.write(`nsqjs client: ${problem && problem.stack ? problem.stack : problem}\n`)
  process.exit(1)
}

function answer(result) {
  process.stdout.write(JSON.stringify(result) + '\n', () => process.exit(0))
}

async function publish(job) {
  const [host, port] = job.address.split(':')
  const writer = new nsq.Writer(host, Number(port))
  writer.connect()
  await once(writer, 'ready', 'error')
  writer.on('error', fail)
  let published = 0
  for (const step of job.steps) {
    const bodies = step.bodies.map(bytes)
    await new Promise((resolve, reject) => {
      const done = (error) => (error ? reject(error) : resolve())
      // deferPublish wants a list although it publishes one message.
      if (step.delay_ms > 0) writer.deferPublish(job.topic, bodies, step.delay_ms, done)
      else writer.publish(job.topic, bodies.length === 1 ? bodies[0] : bodies, done)
    })
    published += bodies.length
  }
  answer({published})
}

function settle(job, message, state) {
  if (job.requeue_first && message.attempts === 1) {
    message.requeue(job.requeue_delay_ms, false)
    return
  }
  const finish = () => {
    message.finish()
    state.finished += 1
    if (state.finished === job.count) state.enough()
  }
  if (!job.hold_ms) return finish()
  const timer = setInterval(() => message.touch(), job.touch_every_ms)
  setTimeout(() => {
    clearInterval(timer)
    finish()
  }, job.hold_ms)
}

async function consume(job) {
  const found = job.directory ? {lookupdHTTPAddresses: [job.directory]} : {nsqdTCPAddresses: [job.address]}
  const options = {...found, maxInFlight: job.max_in_flight}
  if (job.message_timeout_ms) options.messageTimeout = job.message_timeout_ms
  const reader = new nsq.Reader(job.topic, job.channel, options)
  const deliveries = []
  const state = {finished: 0}
  const enough = new Promise((resolve) => { state.enough = resolve })
  reader.on('error', fail)
  reader.on('message', (message) => {
    deliveries.push({
      body: message.body.toString('base64'),
      id: message.id,
      attempts: message.attempts,
      timestamp_ns: Number(message.timestamp),
      finished: !(job.requeue_first && message.attempts === 1),
    })
    settle(job, message, state)
  })
  reader.connect()
  await enough
  // close() says CLS on the connection and leaves it open; what still arrives is settled above.
  await new Promise((resolve) => setTimeout(resolve, 50))
  const closed = once(reader, 'nsqd_closed', 'error')
  reader.close()
  await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, 500))])
  answer({deliveries})
}

const job = JSON.parse(fs.readFileSync(0, 'utf8'))
const actions = {publish, consume}
if (!actions[job.action]) fail(`unknown action ${job.action}`)
actions[job.action](job).catch(fail)
