// What nobody can read yet: messages that wait for their time, or for the end of their transaction.
import { confirmed, facts, field, find, h, link, marked, section, table } from "./parts.js";
import { age, at, count, counted, path, query, size, some, sum, time } from "./words.js";

const ROWS = 50;

function each(found) {
  return found.items.flatMap(item => item.messages.map(message => ({ shard: item.shard, ...message })));
}

const told = item => [link(at("topics", item.topic), item.topic), item.shard, item.queue, item.keys || "", item.tags || "", item.uniqueId || "–", size(item.size)];
const HEAD = [["topic"], ["shard"], ["queue", "n"], ["keys"], ["tags"], ["unique id"], ["size", "n"]];
const heading = (what, found) => `${counted(sum(found.items, item => item.waiting), ...what)}${some(found.missing)}`;
const cut = found => found.items.some(item => item.cut) && h("p", { class: "note" }, `the first ${ROWS} of each shard; there may be more`);

export async function waiting(here, get) {
  const { asked } = here, wanted = query({ topic: asked.topic, limit: ROWS });
  const [timed, halves, prepared] = await Promise.all([get(`/admin/v1/cluster/scheduled${wanted}`), get(`/admin/v1/cluster/halves${wanted}`),
    get("/admin/v1/metaq/transactions").catch(error => { if (error.status === 401) throw error; return { items: [], refused: error.message }; })]);
  const due = each(timed).sort((a, b) => a.deliverTime - b.deliverTime), open = each(halves).sort((a, b) => b.ageSeconds - a.ageSeconds);
  return { title: "Waiting", missing: timed.missing, parts: [
    section("Of one topic", find("/waiting", field("topic", "topic", asked.topic))),
    section(heading(["waits for its time", "wait for their time"], timed), table("scheduled", [["due"], ["level", "n"], ...HEAD], due.map(item => ({ key: `${item.shard} ${item.uniqueId} ${item.deliverTime}`, cells: [time(item.deliverTime), item.level ?? "–", ...told(item)] })), "none"), cut(timed)),
    section(heading(["waits for the end of its transaction", "wait for the end of their transaction"], halves), table("halves", [["age"], ["producers"], ["asked", "n"], ...HEAD], open.map(item => ({ key: `${item.shard} ${item.uniqueId} ${item.storeTime}`, cells: [age(item.ageSeconds * 1000), item.producerGroup || "–", item.checks, ...told(item)] })), "none"), cut(halves)),
    section("Transactions of MetaQ's clients, on this broker's shard", prepared.refused ? h("p", { class: "bad" }, marked(prepared.refused)) : table("transactions", [["transaction"], ["kind"], ["state"], ["age"], ["messages", "n"]],
      prepared.items.map(item => ({ key: item.key, cells: [link(at("waiting", item.key), item.key), item.kind, item.state, age(item.ageSeconds * 1000), count(item.messages)] })), "none")),
  ] };
}

export async function decision({ name }, get) {
  const item = (await get("/admin/v1/metaq/transactions?limit=1000")).items.find(one => one.key === name);
  const title = `Transaction ${name}`;
  if (!item) return { title, parts: [section("It has ended", h("p", {}, "This broker's shard has no such transaction any more."))] };
  const act = how => ({ method: "POST", path: `/admin/v1/metaq/transactions/${path(name)}/${how}`, body: {}, done: `Noted: ${how} ${name}.` });
  return { title, parts: [
    section("Transaction", facts("transaction", { kind: item.kind, of: item.name, state: item.state, decided: item.decided ?? "no", messages: count(item.messages), bytes: count(item.bytes), begun: time(item.begunMs), connections: item.connections })),
    section("Decide in its producer's place", h("p", { class: "note" }, "Only of a prepared one; its producer is told so when it comes back."), ["commit", "rollback"].map(how => confirmed(`${how} ${name}`, "#/waiting", act(how), how))),
  ] };
}
