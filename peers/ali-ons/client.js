// The jobs of tests/interop/rocketmq_jobs.py, done by ali-ons.
'use strict';

const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const silent = { debug() {}, info() {}, warn() {}, error() {} };
// It wants one, and does not use it where it is told of a nameserver.
const httpclient = { request() { throw new Error('there is no HTTP here'); } };
const members = new Map();
let instances = 0;

function say(what) {
  process.stdout.write(JSON.stringify(what) + '\n');
}

function common(job) {
  // Two of one process are the same client to it, and share a socket, unless they say that they come from somewhere else.
  const clientIP = job.instance || `interop-${process.pid}-${instances++}`;
  return { nameSrv: job.server, httpclient, logger: silent, clientIP };
}

function remember(job, member) {
  // What it says of the background is in the log.
  member.on('error', error => console.error(job.name, error.message));
  members.set(job.name, member);
}

async function startProducer(job) {
  const producer = new Producer({ ...common(job), producerGroup: job.group });
  remember(job, producer);
  await producer.ready();
  return 'started';
}

function message(topic, given) {
  const body = Buffer.alloc(Math.max(given.size || 0, Buffer.byteLength(given.body)), '.');
  body.write(given.body);
  const made = new Message(topic, given.tags || '', body);
  if (given.keys) made.keys = given.keys.split(' ');
  if (given.delay) made.delayTimeLevel = given.delay;
  if (given.shard) made.shardingKey = given.shard;
  if (given.flag) made.flag = given.flag;
  return made;
}

async function send(job) {
  const producer = members.get(job.name);
  const results = [];
  for (const given of job.messages) {
    const result = await producer.send(message(job.topic, given));
    results.push({
      status: result.sendStatus,
      id: result.msgId,
      offset_id: result.msgId,
      queue: Number(result.messageQueue.queueId),
      offset: Number(result.queueOffset),
    });
  }
  return results;
}

async function startPush(job) {
  const consumer = new Consumer({
    ...common(job),
    consumerGroup: job.group,
    consumeFromWhere: job.from === 'last' ? 'CONSUME_FROM_LAST_OFFSET' : 'CONSUME_FROM_FIRST_OFFSET',
    isBroadcast: job.model === 'broadcasting',
    maxReconsumeTimes: job.reconsume_max,
    persistConsumerOffsetInterval: 1000,
    rebalanceInterval: 1000,
  });
  remember(job, consumer);
  consumer.subscribe(job.topic, job.expression, async got => {
    say({
      event: 'message',
      name: job.name,
      size: got.body.length,
      body: got.body.toString('utf8', 0, 200),
      topic: got.topic,
      tags: got.tags,
      keys: got.keys,
      flag: got.flag,
      message_id: got.msgId,
      queue: got.queueId,
      offset: Number(got.queueOffset),
      reconsumed: got.reconsumeTimes,
      properties: got.properties,
      at: Date.now(),
    });
    if (got.reconsumeTimes < job.failures) throw new Error('as it was told to');
  });
  await consumer.ready();
  return 'started';
}

async function close(job) {
  const member = members.get(job.name);
  members.delete(job.name);
  if (!member) return 'nobody';
  await member.close();
  return 'closed';
}

const JOBS = { producer: startProducer, send, push: startPush, close };

readline.createInterface({ input: process.stdin })
  .on('line', async line => {
    const job = JSON.parse(line);
    try {
      if (!JOBS[job.do]) throw new Error('no such job');
      say({ id: job.id, result: await JOBS[job.do](job) });
    } catch (error) {
      say({ id: job.id, error: `${error.name}: ${error.message}` });
    }
  })
  .on('close', () => process.exit(0));
// Its background loops throw where nobody can catch.
process.on('unhandledRejection', error => console.error(error));
