// Sends and reads back with the Node client: node main.js NAMESRV TOPIC, the topic exists.
// Prints one JSON line: how many messages were sent, and what was wrong.
"use strict";

const { Consumer, Message, Producer } = require("ali-ons");

const READ_SECONDS = 100;
const [, , nameSrv, topic] = process.argv;
const quiet = { debug() {}, info() {}, warn() {}, error() {} };
const usual = { nameSrv, httpclient: {}, accessKeyId: "any", accessKeySecret: "any", logger: quiet };

async function send() {
  const producer = new Producer({ ...usual, producerGroup: "node-producer" });
  await producer.ready();
  const sent = [];
  for (let number = 0; number < 50; number++) {
    const message = new Message(topic, number % 2 ? "odd" : "even", `single ${number}`);
    message.keys = [`key-${number}`];
    sent.push(message);
  }
  sent.push(new Message(topic, "even", "compressible ".repeat(30000)));
  const late = new Message(topic, "even", "delayed");
  late.delayTimeLevel = 1;
  sent.push(late);
  const bodies = sent.map((message) => message.body.toString()); // before one is compressed
  const faults = [];
  for (const message of sent) {
    const answer = await producer.send(message);
    if (answer.sendStatus !== "SEND_OK") faults.push(`status ${answer.sendStatus}`);
  }
  await producer.close();
  return [bodies, faults];
}

async function read(count) {
  const consumer = new Consumer({
    ...usual, consumerGroup: "node-push", consumeFromWhere: "CONSUME_FROM_FIRST_OFFSET",
  });
  const seen = new Map();
  consumer.subscribe(topic, "*", async (message) => {
    const body = message.body.toString();
    seen.set(body, (seen.get(body) || 0) + 1);
  });
  await consumer.ready();
  for (let second = 0; second < READ_SECONDS && seen.size < count; second++) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  await consumer.close();
  return seen;
}

async function main() {
  const [sent, faults] = await send();
  const seen = await read(sent.length);
  for (const body of sent) {
    if (seen.get(body) !== 1) faults.push(`saw ${body.slice(0, 30)} ${seen.get(body) || 0} times`);
  }
  console.log(JSON.stringify({ sent: sent.length, faults }));
  process.exit(0); // its connections keep the process
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
