// Messages: looked up by key, id, place or time.
import { field, find, h, link, marked, section, select, table } from "./parts.js";
import { count, nearest, number, query, size, some, time } from "./words.js";

const ROWS = 50, TITLES = { newest: `The newest ${ROWS}`, time: `The newest ${ROWS} up to then` };

export function listed(items, empty) {
  return table("messages", [["stored"], ["topic"], ["shard"], ["queue", "n"], ["offset", "n"], ["tags"], ["keys"], ["body"]], items.map(item => ({ key: `${item.shard} ${item.logOffset}`, cells: [
    link(`#/message${query({ topic: item.topic, shard: number(item.shard), queue: item.queue, offset: item.offset })}`, time(item.storeTime)), item.topic, item.shard, item.queue, count(item.offset), item.tags || "", item.keys || "",
    item.error || (item.text == null ? `${size(item.size)}, not text` : item.text.slice(0, 200))] })), empty);
}

export async function messages(here, get) {
  const { asked } = here, by = asked.by || "newest";
  const form = find("/messages",
    select("look by", "by", [["newest", "newest"], ["key", "key"], ["id", "id"], ["offset", "queue and offset"], ["time", "time"]], by),
    by !== "id" && field("topic", "topic", asked.topic, { required: true }),
    by === "key" && field("key", "key", asked.key, { required: true }),
    by === "id" && field("id: unique or stored", "id", asked.id, { required: true, size: 44 }),
    by === "offset" && [field("shard", "shard", asked.shard || 0, { type: "number", min: 0 }), field("queue", "queue", asked.queue || 0, { type: "number", min: 0 }), field("offset", "offset", asked.offset || 0, { type: "number", min: 0 })],
    by === "time" && [field("up to (your clock)", "until", asked.until, { type: "datetime-local", step: 1, required: true })]);
  const asks = { newest: { topic: asked.topic, newest: true }, key: { topic: asked.topic, key: asked.key }, id: { id: asked.id },
    offset: { topic: asked.topic, shard: asked.shard || 0, queue: asked.queue || 0, offset: asked.offset || 0 }, time: { topic: asked.topic, newest: true, to: asked.until && new Date(asked.until).getTime() } }[by];
  const ready = by === "id" ? asked.id : asked.topic && (by !== "key" || asked.key) && (by !== "time" || asked.until);
  const page = { title: "Messages", parts: [section("Look up", form)] };
  if (!ready) return page;
  try {
    const found = await get(`/admin/v1/messages${query({ ...asks, limit: ROWS })}`), items = by === "offset" ? found.items : [...found.items].reverse();
    const further = by === "offset" && items.length === ROWS && link(`#/messages${query({ ...asked, offset: items.at(-1).offset + 1 })}`, "next »");
    page.missing = found.missing;
    const most = by in TITLES && items.length === ROWS;
    page.parts.push(section(most ? TITLES[by] : `${items.length} found`, listed(items, `none${some(page.missing || [])}`), further && h("nav", { class: "pages", "aria-label": "further messages" }, further)));
  } catch (error) {
    if (!error.status || error.status === 401) throw error;
    const near = nearest(error.message);
    page.parts.push(h("p", { class: "bad", role: "alert" }, marked(error.message)), error.status === 404 && h("p", {}, near && [link(`#/messages${query({ ...asked, topic: near })}`, near), " · "], link("#/topics", "all topics")));
  }
  return page;
}
