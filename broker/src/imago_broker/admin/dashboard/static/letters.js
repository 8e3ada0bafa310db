// Dead letters: what groups gave up.
import { confirmed, field, h, link, pager, section, table } from "./parts.js";
import { at, count, number, path, query, size, some, time } from "./words.js";

const PREFIX = "%DLQ%", ROWS = 50, SHOWN = 200;

export async function letters(here, get) {
  const found = await get(`/admin/v1/cluster/topics${query({ contains: PREFIX, sort: "-messages", counts: true, next: here.asked.next, limit: ROWS })}`);
  const rows = found.items.filter(topic => topic.name.startsWith(PREFIX)).map(topic => {
    const group = topic.name.slice(PREFIX.length);
    return { key: group, cells: [link(at("letters", group), group), count(topic.messages), topic.shards.map(shard => `shard-${shard.id}`).join(", ")] };
  });
  return { title: "Dead letters", missing: found.missing, parts: [section(`Messages that groups gave up${some(found.missing)}`,
    table("dead letters", [["group"], ["messages", "n"], ["on shards"]], rows, "no group gave a message up"), pager("/letters", here.asked, found.next))] };
}

export async function letter(here, get) {
  const { name } = here, topic = PREFIX + name;
  const found = await get(`/admin/v1/messages${query({ topic, newest: true, limit: SHOWN })}`).catch(error => { if (error.status !== 404) throw error; return { items: [] }; });
  const rows = [...found.items].reverse().map(item => {
    const said = item.properties, tries = said.RECONSUME_TIME, body = item.error || (item.text == null ? `${size(item.size)}, not text` : item.text.slice(0, SHOWN));
    return { key: `${item.shard} ${item.logOffset}`, cells: [link(`#/message${query({ topic, shard: number(item.shard), queue: item.queue, offset: item.offset })}`, time(item.storeTime)),
      said.RETRY_TOPIC || said.DLQ_ORIGIN_TOPIC || "–", tries ?? "–", item.tags || "", item.keys || "", item.shard, count(item.offset), body] };
  });
  const command = text => h("pre", { tabindex: "0", "aria-label": "command" }, text);
  return { title: `Dead letters of ${name}`, missing: found.missing, parts: [
    section(`The newest${some(found.missing)}`, table("dead letters", [["given up"], ["topic"], ["tries", "n"], ["tags"], ["keys"], ["shard"], ["offset", "n"], ["body"]], rows, "this group gave no message up"), h("p", {}, link(at("groups", name), "the group"))),
    rows.length ? section("Give them back", h("p", {}, "To this group alone; what went back is remembered, and goes no second time. A shard gives back so many at once:"),
      confirmed(name, at("letters", name), { method: "POST", path: `/admin/v1/groups/${path(name)}/replay`, query: "limit", done: `Given back to ${name}: {sent}; left: {left}.` }, "give back", field("at most", "value", 100, { type: "number", min: 1, max: 1000, required: true })),
      h("p", { class: "note" }, "All of them, at a rate that it can bear:"), command(`imago dlq replay ${quoted(name)} --rate 10`)) : null,
  ] };
}

const quoted = name => /^[\w.%-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
