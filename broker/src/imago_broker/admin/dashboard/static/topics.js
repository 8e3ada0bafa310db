// Topics: the list, and one of them.
import { history } from "./chart.js";
import { listed } from "./messages.js";
import { cards, check, confirmed, field, find, h, link, marked, pager, section, table } from "./parts.js";
import { rates } from "./rates.js";
import { age, at, count, counted, number, path, perSecond, query, size, some, sum, time } from "./words.js";

const ROWS = 50;

export async function topics(here, get) {
  const { asked } = here, sort = asked.sort || "name";
  const found = await get(`/admin/v1/cluster/topics${query({ contains: asked.contains || "", sort, next: asked.next, system: asked.system && "only", limit: ROWS, counts: true })}`);
  const rows = found.items.map(topic => {
    const away = topic.shards.filter(shard => !shard.online).length, queues = sum(topic.shards, shard => shard.writeQueues);
    return { key: topic.name, cells: [link(at("topics", topic.name), topic.name), queues, topic.shards.map(shard => `shard-${shard.id}`).join(", "),
      away ? { text: `${count(topic.messages)} and those of ${away} away`, cls: "n bad" } : count(topic.messages), topic.attributes.acknowledgement || "default", topic.dialects] };
  });
  const order = { now: sort, link: key => `#/topics${query({ ...asked, sort: key, next: null })}` };
  return { title: "Topics", missing: found.missing, zooKeeperConnected: found.zooKeeperConnected, parts: [section(
    asked.contains ? `${count(found.total)} found` : counted(found.total, ...(asked.system ? ["topic of the brokers' own", "topics of the brokers' own"] : ["topic"])),
    find("/topics", field("name contains", "contains", asked.contains), check("only the brokers' own", "system", asked.system), asked.sort && h("input", { type: "hidden", name: "sort", value: sort })),
    table("topics", [["topic", null, "name"], ["queues", "n", "queues"], ["on shards"], ["messages", "n"], ["acknowledgement"], ["clients"]], rows, asked.contains ? "no topic has that in its name" : "no topic yet: imago topic create NAME", order),
    pager("/topics", asked, found.next))] };
}

export async function topic(here, get) {
  const { name } = here;
  try { return await ofTopic(here, get); }
  catch (error) {
    if (error.status !== 404 || !name.startsWith("%DLQ%")) throw error;
    return { title: name, parts: [section("No dead letters", h("p", {}, "No message of this group was given up: there would be a topic of this name."))] };
  }
}

async function ofTopic(here, get) {
  const { name } = here;
  const [found, messages, chart] = await Promise.all([get(`/admin/v1/cluster/topics/${path(name)}`),
    get(`/admin/v1/messages${query({ topic: name, newest: true, limit: 20 })}`).catch(error => ({ items: [], refused: error.message })),
    history(here, get, "Messages in", { topic: name }, "messages a second", [["in", "messagesIn"]])]);
  const groups = [...new Set(found.items.flatMap(item => item.groups))].sort().slice(0, 50);
  const lags = groups.length ? await get(`/admin/v1/cluster/groups?${groups.map(group => `group=${encodeURIComponent(group)}`).join("&")}&limit=100`).catch(() => ({ items: [] })) : { items: [] };
  const queues = found.items.flatMap(item => item.queues.map(queue => ({ shard: item.shard, ...queue, rate: rates.of(`${name} ${item.shard} ${queue.queue}`, queue.maxOffset) })));
  const known = queues.filter(queue => queue.rate != null), settings = found.items[0];
  const last = Math.max(0, ...queues.map(queue => queue.lastStoreTime || 0));
  return { title: name, missing: found.missing, parts: [
    cards([[count(sum(queues, queue => queue.maxOffset - queue.minOffset)), `messages${some(found.missing)}`], [size(sum(queues, queue => queue.sizeBytes ?? 0)), "on disk, about"], [known.length ? perSecond(sum(known, queue => queue.rate)) : "…", "messages in, a second"],
      [queues.length, `${queues.length === 1 ? "queue" : "queues"} on ${counted(found.items.length, "shard")}`], [last ? age(Date.now() - last) : "–", `since the last message${some(found.missing)}`], [groups.length, groups.length === 1 ? "group reads it" : "groups read it"]]),
    chart.part,
    section("Newest messages", messages.refused ? h("p", { class: "bad" }, marked(messages.refused)) : listed([...messages.items].reverse(), `no message${some(found.missing)}`), h("p", { class: "note" }, link(`#/messages${query({ topic: name, by: "key" })}`, "look one up by key, id, offset or time"))),
    h("div", { class: "two" },
      section("Queues", table("queues", [["shard"], ["queue", "n"], ["first", "n"], ["end", "n"], ["messages", "n"], ["size", "n"], ["in/s", "n"], ["MetaQ end", "n"], ["last message"]], queues.map(queue => ({ key: `${queue.shard}/${queue.queue}`, cells: [
        queue.shard, link(`#/messages${query({ topic: name, by: "offset", shard: number(queue.shard), queue: queue.queue, offset: Math.max(queue.minOffset, queue.maxOffset - 20) })}`, queue.queue, { "aria-label": `messages of queue ${queue.queue} of ${queue.shard}` }), count(queue.minOffset), count(queue.maxOffset), count(queue.maxOffset - queue.minOffset), size(queue.sizeBytes),
        perSecond(queue.rate), queue.maxPosition < 0 ? "–" : count(queue.maxPosition), time(queue.lastStoreTime)] })), "no queue that can be seen now")),
      section("Groups that read it", table("groups", [["group"], ["members", "n"], ["lag here", "n"], ["oldest unread"]], groups.map(group => {
        const item = lags.items.find(each => each.name === group), lag = item?.topics[name];
        return { key: group, cells: [link(at("groups", group), group), item ? item.members.length : "–", lag ? count(lag.lag) : "–", lag?.oldest ? age(Date.now() - lag.oldest) : "–"] };
      }), "no group is known to read it"))),
    name.startsWith("%") ? null : section("Send a message", confirmed(name, at("topics", name), { method: "POST", path: `/admin/v1/messages${query({ topic: name })}`, value: "body", fields: ["tags", "keys"], done: "Stored: {shard}, queue {queue}, offset {offset}." }, "send",
      h("label", { class: "wide" }, "body", h("textarea", { name: "value", rows: 3 })), field("tag", "tags"), field("keys, with blanks between", "keys"))),
    settings && section("Settings", table("settings", [["setting"], ["value", "wrap"]], Object.entries({ acknowledgement: settings.acknowledgement, clients: settings.dialects, permission: settings.perm, order: settings.order, retentionMs: settings.retentionMs, ...settings.attributes })
      .map(([key, value]) => ({ key, cells: [key, String(value ?? "default")] })), "")),
  ] };
}
