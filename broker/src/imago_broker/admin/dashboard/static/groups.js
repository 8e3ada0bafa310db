// Consumer groups: the list, and one of them.
import { whyBehind } from "./behind.js";
import { history } from "./chart.js";
import { cards, check, field, find, h, link, pager, section, table } from "./parts.js";
import { rates } from "./rates.js";
import { reset } from "./reset.js";
import { age, at, count, number, path, perSecond, query, some, sum } from "./words.js";

const ROWS = 50;

export async function groups(here, get) {
  const { asked } = here;
  const found = await get(`/admin/v1/cluster/groups${query({ contains: asked.contains, next: asked.next, metaq: asked.metaq, limit: ROWS })}`);
  const rows = found.items.map(group => {
    const sides = [...Object.values(group.topics), ...Object.values(group.metaq?.topics || {})], lag = sum(sides, side => side.lag);
    const oldest = Math.min(...sides.map(side => side.oldest || Infinity)), members = new Set([...group.members, ...(group.metaq?.members || [])]).size;
    return { lag, key: group.name, cells: [link(at("groups", group.name), group.name), members, new Set([...Object.keys(group.topics), ...Object.keys(group.metaq?.topics || {})]).size,
      { text: count(lag), cls: lag && !members ? "n bad" : "n" }, oldest < Infinity ? age(Date.now() - oldest) : "–", lag && !members ? { text: "nobody reads", cls: "bad" } : members ? "connected" : found.missing.length ? "not known" : "idle"] };
  });
  if (asked.sort === "lag") rows.sort((a, b) => a.lag - b.lag);
  if (asked.sort === "-lag") rows.sort((a, b) => b.lag - a.lag);
  const order = { now: asked.sort || "name", link: key => `#/groups${query({ ...asked, sort: key === "name" || key === "-name" ? null : key })}` };
  const partial = found.next || asked.next;
  return { title: "Consumer groups", missing: found.missing, parts: [section("Groups of all shards",
    find("/groups", field("name contains", "contains", asked.contains), check("MetaQ's in ZooKeeper, too", "metaq", asked.metaq), asked.sort && h("input", { type: "hidden", name: "sort", value: asked.sort })),
    table("groups", [["group", null, "name"], ["members", "n"], ["topics", "n"], [`lag${some(found.missing)}${partial ? " (order of this page)" : ""}`, "n", "lag"], ["oldest unread"], ["state"]], rows, asked.contains ? "no group has that in its name" : "no consumer group yet", order),
    pager("/groups", asked, found.next))] };
}

const LOOKED_MS = 9000;  // members commit every 5 s
export async function group(here, get) {
  const { name } = here;
  const metaq = get(`/admin/v1/cluster/groups${query({ group: name, metaq: true })}`).then(found => found.items[0]?.metaq, () => null);
  const drawn = history(here, get, "Lag", { group: name }, "messages", [["behind", "lag"]]);
  let found;
  try { found = await get(`/admin/v1/cluster/groups/${path(name)}`); }
  catch (error) { if (error.status !== 404 || !await metaq) throw error; found = { items: [], missing: [] }; }
  const side = await metaq, members = new Map(found.items.flatMap(item => item.members).map(member => [member.client_id, member]));
  for (const id of side?.members || []) if (!members.has(id)) members.set(id, { client_id: id, address: "–", language: "MetaQ", versionName: "–" });
  const queues = found.items.flatMap(item => Object.entries(item.topics).flatMap(([topic, list]) => list.map(queue => {
    const key = `${name} ${topic} ${item.shard} ${queue.queue}`;
    return { topic, shard: item.shard, ...queue, read: rates.of(`read ${key}`, queue.offset, LOOKED_MS), came: rates.of(`came ${key}`, queue.end, LOOKED_MS) };
  })));
  const subscribed = new Set(found.items.flatMap(item => item.subscribed)), lag = sum(queues, queue => queue.lag), settings = Object.assign({}, ...found.items.map(({ shard, topics, members, subscribed, retries, readers_told, name, ...rest }) => rest));
  const looked = queues.filter(queue => queue.read != null), sides = Object.entries(side?.topics || {});
  const retries = found.items.map(item => item.retries || { waiting: 0, cut: true }), again = sum(retries, one => one.waiting), more = retries.some(one => one.cut);
  const told = found.items.some(item => item.members.length) && found.items.every(item => item.readers_told || !sum(Object.values(item.topics).flat(), queue => queue.lag));
  queues.sort((a, b) => b.lag - a.lag);
  const everyMs = here.asked.reset ? 0 : undefined;  // a plan stands still while it is read
  return { title: name, missing: found.missing, everyMs, parts: [
    h("p", { class: lag && !members.size ? "why bad" : "why" }, (found.missing.length ? "On the shards that answer: " : "") + whyBehind(queues, members.size, subscribed, retries, told)),
    cards([[count(lag + sum(sides, ([, of]) => of.lag)), `messages behind${some(found.missing)}`, lag && !members.size ? "bad" : null], [members.size, members.size === 1 ? "member" : "members"],
      ...(again || more ? [[more ? again ? `${count(again)}+` : "?" : count(again), link(`#/waiting${query({ topic: `%RETRY%${name}` })}`, "wait to be tried again"), "warn"]] : []),
      [looked.length ? perSecond(sum(looked, queue => queue.read)) : "…", "read, a second"], [looked.length ? perSecond(sum(looked, queue => queue.came)) : "…", "came, a second"]]),
    (await drawn).part,
    h("div", { class: "two" },
      section("Progress", table("progress", [["topic"], ["shard"], ["queue", "n"], ["read up to", "n"], ["end", "n"], ["lag", "n"], ["read/s", "n"], ["in/s", "n"], ["reader"]], queues.map(queue => ({ key: `${queue.topic}/${queue.shard}/${queue.queue}`, cells: [
        link(at("topics", queue.topic), queue.topic), queue.shard, queue.gone ? `${queue.queue} (gone)` : link(`#/messages${query({ topic: queue.topic, by: "offset", shard: number(queue.shard), queue: queue.queue, offset: queue.offset })}`, queue.queue, { "aria-label": `messages from where queue ${queue.queue} of ${queue.shard} is read up to` }), count(queue.offset), count(queue.end), count(queue.lag), perSecond(queue.read), perSecond(queue.came), queue.reader ?? ""] })), "it has committed nothing"),
        sides.length ? table("progress of MetaQ's consumers", [["topic"], ["lag of MetaQ's consumers", "n"], ["oldest unread"]], sides.map(([topic, of]) => ({ key: `metaq ${topic}`, cells: [link(at("topics", topic), topic), count(of.lag), of.oldest ? age(Date.now() - of.oldest) : "–"] })), "") : null),
      section("Members", table("members", [["client"], ["address"], ["language"], ["version"]], [...members.values()].map(member => ({ key: member.client_id, cells: [member.client_id, member.address, member.language, member.versionName] })), "no member is connected"),
        h("p", { class: "note" }, subscribed.size ? ["they read ", [...subscribed].flatMap((topic, i) => [i ? ", " : "", link(at("topics", topic), topic)])] : null))),
    await reset(here, get, queues, subscribed, members.size, found.missing),
    section("Dead letters and settings", h("p", {}, link(at("topics", `%DLQ%${name}`), "dead letters"), " · ", link(at("topics", `%RETRY%${name}`), "what is retried")),
      table("settings", [["setting"], ["value", "wrap"]], Object.entries(settings).map(([key, value]) => ({ key, cells: [key, typeof value === "object" ? JSON.stringify(value) : String(value)] })), "those that each group begins with")),
  ] };
}
