// RocketMQ 5's Node SDK, as its own documentation uses it: without TLS unless told otherwise.
//
//   node main.js STORY ENDPOINTS TOPIC [tls | USER], the password in SDK_PASSWORD
//
// Prints what became of the story as one line of JSON.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const sdk = require("rocketmq-client-nodejs");
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = sdk;
const definitions = require("rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb");

const WAIT_MS = 100_000;
const [, , story, endpoints, topic, how] = process.argv;
const logger = { debug() {}, info() {}, warn: console.error, error: console.error };
const usual = { endpoints, namespace: "", logger, sslEnabled: how === "tls" };
if (how && how !== "tls") {
  usual.sessionCredentials = { accessKey: how, accessSecret: process.env.SDK_PASSWORD };
}

async function started(options = {}) {
  const producer = new Producer({ ...usual, topics: [topic], ...options });
  await producer.startup();
  return producer;
}

function message(body, more = {}) {
  return { topic, body: Buffer.from(body), ...more };
}

/** A reader waits for its topic: of dead letters there is none before the first. */
async function reader(suffix, filter = "*", of = topic) {
  for (const until = Date.now() + WAIT_MS; ; await sleep(500)) {
    const subscriptions = new Map([[of, filter]]);
    const options = { ...usual, consumerGroup: `${topic}-${suffix}`, subscriptions, awaitDuration: 5000 };
    const consumer = new SimpleConsumer(options);
    try {
      await consumer.startup();
      return consumer;
    } catch (error) {
      if (Date.now() > until) throw error;
    }
  }
}

async function read(consumer, count, { invisible = 20_000, ack = true } = {}) {
  const found = [];
  for (const until = Date.now() + WAIT_MS; found.length < count && Date.now() < until; ) {
    for (const view of await consumer.receive(Math.min(32, count), invisible)) {
      if (ack) await consumer.ack(view);
      found.push(view);
    }
  }
  return found;
}

async function readAll(count, ...of) {
  const consumer = await reader(...of);
  const found = await read(consumer, count);
  await consumer.shutdown();
  return found;
}

const bodies = (views) => views.map((view) => view.body.toString());
const sorted = (views) => bodies(views).sort();

/** Consume until so many deliveries were seen. */
async function pushed(suffix, deliveries, fails, besides = async () => ({})) {
  const seen = [];
  let done;
  const whole = new Promise((resolve) => { done = resolve; });
  const consumer = new PushConsumer({
    ...usual, consumerGroup: `${topic}-${suffix}`, subscriptions: new Map([[topic, "*"]]),
    messageListener: {
      async consume(view) {
        seen.push(`${view.body} ${view.deliveryAttempt}`);
        if (seen.length === deliveries) done();
        return fails(view) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      },
    },
  });
  await consumer.startup();
  await Promise.race([whole, sleep(WAIT_MS, null, { ref: false })]);
  const more = await besides();
  await consumer.shutdown();
  return { seen, ...more };
}

function failingOnce(body) {
  let failed = false;
  return (view) => {
    const fails = view.body.toString() === body && !failed;
    failed ||= fails;
    return fails;
  };
}

const stories = {
  async normal() {
    const producer = await started();
    for (let number = 0; number < 10; number++) {
      const properties = new Map([["colour", "red"]]);
      const tag = number % 2 ? "odd" : "even";
      await producer.send(message(`n${number}`, { tag, keys: [`k${number}`], properties }));
    }
    await producer.shutdown();
    const found = await readAll(10, "all");
    const odd = await readAll(5, "odd", "odd");
    const filter = new FilterExpression("colour = 'red' AND TAGS = 'odd'", definitions.FilterType.SQL);
    const sql = await readAll(5, "sql", filter);
    const first = found.find((view) => view.body.equals(Buffer.from("n1")));
    return {
      bodies: sorted(found), odd: sorted(odd), sql: sorted(sql), tag: first.tag, keys: first.keys,
      properties: Object.fromEntries(first.properties), attempt: first.deliveryAttempt,
    };
  },

  async fifo() {
    const producer = await started();
    for (let number = 0; number < 12; number++) {
      await producer.send(message(`f${number}`, { messageGroup: `g${number % 3}` }));
    }
    await producer.shutdown();
    const groups = { 0: [], 1: [], 2: [] };
    for (const body of bodies(await readAll(12, "ordered"))) groups[body.slice(1) % 3].push(body);
    return groups;
  },

  async delay() {
    const producer = await started();
    const late = await reader("late");
    const due = Date.now() + 8000;
    const deliveryTimestamp = new Date(due);
    await producer.send(message("late", { deliveryTimestamp }));
    const taken = await producer.send(message("recalled", { deliveryTimestamp }));
    await producer.recallMessage(topic, taken.recallHandle);
    const found = await read(late, 1);
    const early = Date.now() < due - 2000;
    const more = await late.receive(1, 20_000);
    await late.shutdown();
    await producer.shutdown();
    return { bodies: bodies(found), early, more: bodies(more) };
  },

  async transaction() {
    const checker = { check: async () => definitions.TransactionResolution.COMMIT };
    const producer = await started({ checker });
    for (const end of ["commit", "rollback", "orphan"]) {
      const begun = producer.beginTransaction();
      await producer.send(message(end), begun);
      if (end !== "orphan") await begun[end]();
    }
    const found = await readAll(2, "done");
    await producer.shutdown();
    return { bodies: sorted(found) };
  },

  /** A push consumer that fails once with one message. */
  async push() {
    const producer = await started();
    for (let number = 0; number < 5; number++) await producer.send(message(`p${number}`));
    await producer.shutdown();
    const { seen } = await pushed("push", 6, failingOnce("p0"));
    return { seen: seen.sort() };
  },

  /** A push consumer of an ordered group that fails once with the first message. */
  async stubborn() {
    const producer = await started();
    for (let number = 0; number < 3; number++) {
      await producer.send(message(`s${number}`, { messageGroup: "one" }));
    }
    await producer.shutdown();
    return pushed("stubborn", 4, failingOnce("s0"));
  },

  /** What is not acknowledged comes again. */
  async again() {
    const producer = await started();
    await producer.send(message("twice"));
    await producer.shutdown();
    const consumer = await reader("again");
    const [first] = await read(consumer, 1, { invisible: 10_000, ack: false });
    await consumer.changeInvisibleDuration(first, 10_000);
    const [second] = await read(consumer, 1);
    await consumer.shutdown();
    return { attempts: [first.deliveryAttempt, second.deliveryAttempt] };
  },

  /** A push consumer that always fails: its group gives the message up. */
  async letters() {
    const producer = await started();
    await producer.send(message("dead"));
    await producer.shutdown();
    const dead = async () => ({ dead: bodies(await readAll(1, "dead", "*", `%DLQ%${topic}-letters`)) });
    return pushed("letters", 2, () => true, dead);
  },

  /** Messages of priorities, the lowest one sent first; with priority 0 this SDK sends nothing. */
  async urgent() {
    const producer = await started();
    for (let priority = 1; priority < 4; priority++) {
      await producer.send(message(`u${priority}`, { priority }));
    }
    await producer.shutdown();
    return { bodies: bodies(await readAll(3, "urgent")) };
  },

  /** A push consumer of two lite topics, which gives one of them up. */
  async chats() {
    const producer = await started();
    const seen = [];
    const consumer = await new sdk.LitePushConsumerBuilder()
      .setClientConfiguration({ ...usual })
      .setConsumerGroup(`${topic}-chats`)
      .bindTopic(topic)
      .setMessageListener({
        async consume(view) {
          seen.push([view.liteTopic, view.body.toString()]);
          return ConsumeResult.SUCCESS;
        },
      })
      .build();
    const say = async (...words) => {
      for (const [liteTopic, body] of words.map((each) => each.split(" "))) {
        await producer.send(message(body, { liteTopic }));
      }
    };
    const until = async (count) => {
      for (const end = Date.now() + WAIT_MS; seen.length < count && Date.now() < end; ) await sleep(50);
    };
    for (const name of ["ann", "bob"]) await consumer.subscribeLite(name);
    await say("ann a0", "ann a1", "bob b0", "eve e0");
    await until(3);
    await consumer.unsubscribeLite("bob");
    await say("bob b1", "ann a2");
    await until(4);
    await consumer.close();
    await producer.shutdown();
    const found = {};
    for (const [name, body] of seen) found[name] = [...(found[name] ?? []), body].sort();
    return found;
  },

  /** Send and receive until standard input ends, whatever becomes of brokers meanwhile. */
  async steady() {
    const [sent, seen, done, again, faults] = [[], new Set(), new Set(), [], {}];
    let stopped = false;
    // The SDK listens no more to a telemetry stream that it was told to leave: its error is nobody's.
    process.on("uncaughtException", (error) => {
      if (error.details === undefined) throw error;
      faults.stream = (faults.stream ?? 0) + 1;
    });
    process.stdin.on("end", () => { stopped = true; }).resume();
    const tried = async (what, call) => {
      try {
        return { well: true, found: await call() };
      } catch {
        faults[what] = (faults[what] ?? 0) + 1;
        await sleep(100);
        return { well: false, found: [] };
      }
    };
    const sending = (async () => {
      const producer = await started();
      for (let number = 0; !stopped; number++) {
        const { well } = await tried("send", () => producer.send(message(`t${number}`)));
        if (!well) continue;
        sent.push(`t${number}`);
        if (sent.length % 20 === 0) console.log(sent.length);
        await sleep(10);
      }
    })();
    const consumer = await reader("readers");
    for (let end = Infinity; Date.now() < end; ) {
      if (stopped && end === Infinity) {
        await sending;
        end = Date.now() + WAIT_MS;
      }
      const { well, found } = await tried("receive", () => consumer.receive(32, 20_000));
      if (well && !found.length && end < Infinity && sent.every((body) => seen.has(body))) break;
      for (const view of found) {
        const body = view.body.toString();
        const record = view.receiptHandle.slice(view.receiptHandle.lastIndexOf(" ") + 1);
        seen.add(body);
        if (done.has(record)) again.push(body); // what was sent twice has two
        if ((await tried("ack", () => consumer.ack(view))).well) done.add(record);
      }
    }
    return { sent: sent.length, lost: sent.filter((body) => !seen.has(body)), again, faults };
  },

  /** Send one message, or say why not. */
  async send() {
    try {
      const producer = await started();
      await producer.send(message("sent"));
      await producer.shutdown();
    } catch (error) {
      let cause = error;
      while (cause.cause) cause = cause.cause;
      return { refused: String(cause) };
    }
    return { sent: 1 };
  },

  /** Read what others have sent. */
  async read() {
    return { bodies: sorted(await readAll(4, "others")) };
  },
};

stories[story]().then((found) => {
  process.stdout.write(`${JSON.stringify(found)}\n`, () => process.exit(0));
}, (error) => {
  console.error(error);
  process.exit(1);
});
