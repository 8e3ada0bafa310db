import { age, count, counted, perSecond, sum } from "./words.js";

// What waits to be tried again is in no queue, and in no lag. "": nothing does.
export function toRetry(all) {
  const waiting = sum(all, one => one.waiting), more = all.some(one => one.cut);
  if (!waiting) return more ? "messages may wait to be tried again: see Waiting" : "";
  return `${more ? "at least " : ""}${count(waiting)} ${waiting === 1 ? "waits" : "wait"} to be tried again`;
}

// Why a group is behind: the same sentences as `imago group describe` says. `told`: whether all members say what they
// read, which is then each queue's `reader`.
export function whyBehind(queues, members, subscribed, retries, told = false) {
  const behind = queues.filter(queue => queue.lag > 0), again = toRetry(retries);
  if (!behind.length) return again ? `All is read, but ${again}${members ? "" : ", and no member is connected"}.` : "It is not behind.";
  if (!members) return "Nobody reads: no member is connected.";
  const topics = new Set(behind.map(queue => queue.topic)), unread = [...topics].filter(topic => !subscribed.has(topic));
  if (unread.length === topics.size) return `No member that is connected reads ${unread.sort().join(", ")}.`;
  const lag = sum(behind, queue => queue.lag), most = behind.reduce((a, b) => b.lag > a.lag ? b : a), looked = behind.filter(queue => queue.read != null);
  const where = behind.length > 1 && most.lag >= .9 * lag ? `, most of it in ${most.topic}/${most.shard}/${most.queue}` : "";
  if (!looked.length) return `It is ${count(lag)} messages behind${where}; a moment, rates are known after ten seconds.`;
  const read = sum(looked, queue => queue.read), came = sum(looked, queue => queue.came);
  const unowned = told ? behind.filter(queue => !queue.reader) : [];
  if (!read && unowned.length) {
    const first = unowned.reduce((a, b) => b.lag > a.lag ? b : a), more = unowned.length - 1;
    return `${counted(members, "member")} connected, but none reads ${first.topic}/${first.shard}/${first.queue}${more ? ` and ${counted(more, "other queue")}` : ""}${unowned.length < behind.length ? "; of the others nothing was committed, either" : ""}.`;
  }
  if (!read) return `${counted(members, "member")} connected, but nothing was committed${where}: handlers hang or fail, or wait to commit.`;
  if (read <= came) return `More comes (${perSecond(came)}/s) than it reads (${perSecond(read)}/s)${where}.`;
  return `It catches up in ${age(1000 * lag / (read - came))} at ${perSecond(read)}/s${where}.`;
}
