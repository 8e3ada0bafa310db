import { confirmed, field, find, h, section, select, table } from "./parts.js";
import { at, count, counted, number, path, query } from "./words.js";

const PLANNED_MAX = 64;

// Where a group goes on in a topic: first what that means for each queue, then a name to type.
export async function reset({ name, asked }, get, progress, subscribed, members, missing) {
  const own = [...new Set([...progress.map(queue => queue.topic), ...subscribed])].filter(topic => !topic.startsWith("%RETRY%")).sort();
  if (!own.length) return null;
  const to = asked.to || "latest", form = find(`/groups/${encodeURIComponent(name)}`, select("topic", "reset", [["", "–"], ...own.map(topic => [topic, topic])], asked.reset || ""),
    select("go on at", "to", [["earliest", "the first message"], ["latest", "the end"], ["time", "a time"]], to), to === "time" && field("your clock", "time", asked.time, { type: "datetime-local", step: 1, required: true }));
  const title = "Go on elsewhere", topic = asked.reset, ms = to === "time" ? new Date(asked.time || "").getTime() : null;
  if (!topic || Number.isNaN(ms)) return section(title, form);
  if (missing.length) return section(title, form, h("p", { class: "bad" }, "A shard is away, and would not learn of it: try again when it is back."));
  const shards = (await get(`/admin/v1/cluster/topics/${path(topic)}`)).items, queues = shards.flatMap(item => item.queues.map(queue => ({ shard: item.shard, ...queue })));
  if (ms !== null && queues.length > PLANNED_MAX) return section(title, form, h("p", {}, `With more than ${PLANNED_MAX} queues: imago group reset ${name} ${topic} --to … --dry-run`));
  const rows = await Promise.all(queues.map(async queue => {
    const known = progress.find(each => each.topic === topic && each.shard === queue.shard && each.queue === queue.queue), now = known?.offset ?? null;
    const first = ms !== null && queue.maxOffset > queue.minOffset ? (await get(`/admin/v1/messages${query({ topic, shard: number(queue.shard), queue: queue.queue, from: ms, limit: 1 })}`)).items[0] : null;
    const then = to === "earliest" ? queue.minOffset : first ? first.offset : queue.maxOffset, change = then - (now ?? then);
    return { key: `${queue.shard}/${queue.queue}`, cells: [queue.shard, queue.queue, now === null ? "none" : count(now), count(then), change < 0 ? `${count(-change)} ${change === -1 ? "is" : "are"} read again` : change ? { text: `${count(change)} ${change === 1 ? "is" : "are"} left out`, cls: "bad" } : "nothing changes"] };
  }));
  const act = { method: "POST", path: `/admin/v1/groups/${path(name)}/reset`, body: { topic, to: ms ?? to }, done: `${name} goes on elsewhere in ${topic}.` };
  return section(title, form, table("what changes", [["shard"], ["queue", "n"], ["now", "n"], ["then", "n"], ["messages"]], rows, "the topic has no queue"),
    h("p", { class: "note" }, members ? `Nothing is changed yet. ${counted(members, "member")} connected: ${members === 1 ? "it goes" : "they go"} on there at once.` : "Nothing is changed yet."), confirmed(name, at("groups", name), act, "go on there"));
}
