// The pages of the dashboard. Each asks its broker, which asks the others, and says what it found.
import { Rates, age, at, cards, chart, check, confirmed, count, field, find, h, link, query, section, select, size, table, time } from "./dashboard_parts.js";

const HISTORY_MS = 600_000, ROWS = 50, SHOWN_CHARS = 262_144, HEX_BYTES = 16_384, PLANNED_MAX = 64;
const rates = new Rates(), history = [];
const role = name => name === "slave" ? "follower" : name;
const some = missing => missing.length ? ", on the shards that answer" : "";
const perSecond = n => n == null ? "…" : n && n < 10 ? n.toFixed(1) : count(n);
const number = shard => shard.replace("shard-", "");
const sum = (list, of) => list.reduce((all, each) => all + of(each), 0);
const path = (...names) => names.map(encodeURIComponent).join("/");
const pager = (to, asked, next) => (next || asked.next) && h("nav", { class: "pages", "aria-label": "pages of the list" },
  asked.next && link(`#${to}${query({ ...asked, next: null })}`, "« first"), next && link(`#${to}${query({ ...asked, next })}`, "next »"));

async function overview(here, get) {
  const [cluster, found] = await Promise.all([get("/admin/v1/cluster"), get("/admin/v1/cluster/brokers")]);
  const brokers = new Map(found.items.map(item => [item.uuid, item]));
  const members = cluster.shards.flatMap(shard => shard.members), led = cluster.shards.filter(shard => shard.master);
  let read = null, written = null;
  for (const item of found.items) {
    // Followers copy what their master accepted: it came into the cluster once.
    const put = item.role === "master" ? rates.of(`in ${item.uuid} ${item.pid}`, item.counters.messagesIn) : null;
    const got = rates.of(`out ${item.uuid} ${item.pid}`, item.counters.messagesOut);
    if (put != null) written = (written || 0) + put;
    if (got != null) read = (read || 0) + got;
  }
  const now = Date.now();
  if (written != null && now - (history.at(-1)?.[0] ?? 0) > 900) history.push([now, written, read || 0]);
  while (history.length && history[0][0] < now - HISTORY_MS) history.shift();
  const wanted = led.length * cluster.replicas, inSync = members.filter(member => member.inSync).length;
  const fullest = found.items.reduce((most, item) => item.disk.usedShare > (most?.disk.usedShare ?? -1) ? item : most, null);
  const damaged = sum(found.items, item => item.damaged.length), open = found.items.some(item => item.access.open);
  const warnings = open ? ["There is no access control: anyone who reaches a broker's ports may send, read and administer (acl.enabled)."] : [];
  const rows = cluster.shards.flatMap(shard => [...shard.members.map(member => ofMember(shard, member, brokers.get(member.uuid))), ...gone(shard)]);
  const waiting = cluster.shards.filter(shard => shard.explain.waitsFor);
  const elections = cluster.shards.flatMap(shard => shard.elections.map(one => ({ shard, ...one }))).sort((a, b) => b.at - a.at).slice(0, 10);
  return {
    title: `Cluster ${cluster.cluster}`, missing: found.missing, zooKeeperConnected: cluster.zooKeeperConnected, warnings, parts: [
      cards([
        [`${led.length} of ${cluster.shards.length}`, "shards have a master", led.length < cluster.shards.length ? "bad" : "good"],
        [`${inSync} of ${cluster.shards.length * cluster.replicas}`, `members in sync; ${members.length} are alive`, inSync < cluster.shards.length * cluster.replicas ? "warn" : "good"],
        [perSecond(written), "messages in, a second"], [perSecond(read), "messages out, a second"],
        [count(sum(found.items, item => sum(Object.values(item.connections), n => n))), "connections of clients"],
        [size(sum(found.items.filter(item => item.role === "master"), item => item.logEnd - item.logStart)), "in the masters' logs"],
        [fullest ? `${Math.round(fullest.disk.usedShare * 100)} %` : "–", fullest ? `fullest disk: ${fullest.shard}, replica ${fullest.replica} (${fullest.disk.level})` : "fullest disk", fullest && fullest.disk.level !== "normal" ? "bad" : null],
        [count(damaged), "damaged parts of logs", damaged ? "bad" : null],
      ]),
      waiting.length ? section("What waits", table("what waits", [["shard"], ["why", "wrap"], ["waits for", "wrap"], ["next", "wrap"]],
        waiting.map(shard => ({ key: shard.name, cells: [shard.name, shard.explain.why, shard.explain.waitsFor, shard.explain.next] })), "")) : null,
      section(["Messages a second ", h("span", { class: "note" }, h("i", { class: "key" }), "in", h("i", { class: "key b" }), "out, of all brokers that answer, since this page was opened")], history.length > 1 ? chart(history, HISTORY_MS, 20_000) : h("p", { class: "empty" }, "a moment: rates are known after a second look")),
      section("Members", table("members", [["shard"], ["replica", "n"], ["role"], ["in sync"], ["lag", "n"], ["state"], ["epoch", "n"], ["disk", "n"], ["log", "n"], ["memory", "n"], ["clients", "n"], ["version"], ["MetaQ"], ["RocketMQ"], ["admin"]], rows, "none")),
      section("Last elections", table("elections", [["at"], ["shard"], ["epoch", "n"], ["leader"], ["cause", "wrap"]],
        elections.map(one => ({ key: `${one.shard.name} ${one.epoch} ${one.at}`, cells: [time(one.at), one.shard.name, one.epoch, `replica ${one.shard.known[one.leader] ?? "?"}`, { text: one.cause + (one.unclean ? " (unclean)" : ""), cls: one.unclean ? "wrap bad" : "wrap" }] })), "none yet")),
    ],
  };
}

function ofMember(shard, member, state) {
  const lag = member.lagBytes == null ? "–" : member.lagBytes ? `${size(member.lagBytes)}, ${(member.lagMs / 1000).toFixed(1)} s` : "none";
  const problems = [member.stalled, member.problem, member.damaged && "damaged", member.full && "disk full", member.crowded && "disk crowded",
    state ? state.waitsFor : "does not answer", ...(state?.puts.reasons || [])].filter(Boolean);
  const sync = shard.inSync ? (member.inSync ? "yes" : "no") : "–";
  return { key: member.uuid, cells: [shard.name, member.replica, role(member.role), { text: sync, cls: sync === "no" ? "bad" : null }, lag,
    problems.length ? { text: [...new Set(problems)].join("; "), cls: "wrap bad" } : "well", shard.epoch ?? "–",
    state ? `${Math.round(state.disk.usedShare * 100)} %` : "–", state ? size(state.logEnd - state.logStart) : "–", state ? size(state.rssBytes) : "–",
    state ? count(sum(Object.values(state.connections), n => n)) : "–", state ? state.version : "–", member.metaq, member.rocketmq, link(member.admin, member.admin.replace("http://", ""), { rel: "noreferrer" })] };
}

function gone(shard) {
  const known = Object.keys({ ...shard.known, ...Object.fromEntries((shard.inSync || []).map(uuid => [uuid, null])) });
  return known.filter(uuid => !shard.members.some(member => member.uuid === uuid)).map(uuid => ({ key: uuid, cells: [
    shard.name, shard.known[uuid] ?? "?", { text: "gone", cls: "bad" }, shard.inSync?.includes(uuid) ? "yes" : "no", "–",
    { text: "not alive", cls: "bad" }, shard.epoch ?? "–", ...Array(8).fill("–")] }));
}

async function topics(here, get) {
  const { asked } = here, sort = asked.sort || "name";
  const found = await get(`/admin/v1/cluster/topics${query({ contains: asked.contains || "", sort, next: asked.next, system: asked.system, limit: ROWS, counts: true })}`);
  const rows = found.items.map(topic => {
    const away = topic.shards.filter(shard => !shard.online).length, queues = sum(topic.shards, shard => shard.writeQueues);
    return { key: topic.name, cells: [link(at("topics", topic.name), topic.name), queues, topic.shards.map(shard => shard.id).join(", "),
      away ? { text: `${count(topic.messages)} and those of ${away} away`, cls: "n bad" } : count(topic.messages), topic.attributes.acknowledgement || "default", topic.dialects] };
  });
  const order = { now: sort, link: key => `#/topics${query({ ...asked, sort: key, next: null })}` };
  return { title: "Topics", missing: found.missing, zooKeeperConnected: found.zooKeeperConnected, parts: [section(
    `${count(found.total)} ${asked.contains ? "found" : "topics"}`,
    find("/topics", field("name contains", "contains", asked.contains), check("the brokers' own, too", "system", asked.system), asked.sort && h("input", { type: "hidden", name: "sort", value: sort })),
    table("topics", [["topic", null, "name"], ["queues", "n", "queues"], ["on shards"], ["messages", "n"], ["acknowledgement"], ["clients"]], rows, asked.contains ? "no topic has that in its name" : "no topic yet: imago topic create NAME", order),
    pager("/topics", asked, found.next))] };
}

async function topic(here, get) {
  const { name } = here;
  try { return await ofTopic(name, get); }
  catch (error) {
    if (error.status !== 404 || !name.startsWith("%DLQ%")) throw error;
    return { title: name, parts: [section("No dead letters", h("p", {}, "No message of this group was given up: there would be a topic of this name."))] };
  }
}

async function ofTopic(name, get) {
  const [found, messages] = await Promise.all([get(`/admin/v1/cluster/topics/${path(name)}`),
    get(`/admin/v1/messages${query({ topic: name, newest: true, limit: 20 })}`).catch(error => ({ items: [], refused: error.message }))]);
  const groups = [...new Set(found.items.flatMap(item => item.groups))].sort().slice(0, 50);
  const lags = groups.length ? await get(`/admin/v1/cluster/groups?${groups.map(group => `group=${encodeURIComponent(group)}`).join("&")}&limit=100`).catch(() => ({ items: [] })) : { items: [] };
  const queues = found.items.flatMap(item => item.queues.map(queue => ({ shard: item.shard, ...queue, rate: rates.of(`${name} ${item.shard} ${queue.queue}`, queue.maxOffset) })));
  const known = queues.filter(queue => queue.rate != null), settings = found.items[0];
  const last = Math.max(0, ...queues.map(queue => queue.lastStoreTime || 0));
  return { title: name, missing: found.missing, parts: [
    cards([[count(sum(queues, queue => queue.maxOffset - queue.minOffset)), `messages${some(found.missing)}`], [known.length ? perSecond(sum(known, queue => queue.rate)) : "…", "messages in, a second"],
      [queues.length, `queues on ${found.items.length} shards`], [last ? age(Date.now() - last) : "–", `since the last message${some(found.missing)}`], [groups.length, "groups read it"]]),
    section("Newest messages", messages.refused ? h("p", { class: "bad" }, messages.refused) : listed([...messages.items].reverse(), `no message${some(found.missing)}`), h("p", { class: "note" }, link(`#/messages${query({ topic: name, by: "key" })}`, "look one up by key, id, offset or time"))),
    h("div", { class: "two" },
      section("Queues", table("queues", [["shard"], ["queue", "n"], ["first", "n"], ["end", "n"], ["messages", "n"], ["in/s", "n"], ["MetaQ end", "n"], ["last message"]], queues.map(queue => ({ key: `${queue.shard}/${queue.queue}`, cells: [
        queue.shard, link(`#/messages${query({ topic: name, by: "offset", shard: number(queue.shard), queue: queue.queue, offset: Math.max(queue.minOffset, queue.maxOffset - 20) })}`, queue.queue, { "aria-label": `messages of queue ${queue.queue} of ${queue.shard}` }), count(queue.minOffset), count(queue.maxOffset), count(queue.maxOffset - queue.minOffset),
        perSecond(queue.rate), queue.maxPosition < 0 ? "–" : count(queue.maxPosition), time(queue.lastStoreTime)] })), "no queue that can be seen now")),
      section("Groups that read it", table("groups", [["group"], ["members", "n"], ["lag here", "n"], ["oldest unread"]], groups.map(group => {
        const item = lags.items.find(each => each.name === group), lag = item?.topics[name];
        return { key: group, cells: [link(at("groups", group), group), item ? item.members.length : "–", lag ? count(lag.lag) : "–", lag?.oldest ? age(Date.now() - lag.oldest) : "–"] };
      }), "no group is known to read it"))),
    settings && section("Settings", table("settings", [["setting"], ["value", "wrap"]], Object.entries({ acknowledgement: settings.acknowledgement, clients: settings.dialects, permission: settings.perm, order: settings.order, retentionMs: settings.retentionMs, ...settings.attributes })
      .map(([key, value]) => ({ key, cells: [key, String(value ?? "default")] })), "")),
  ] };
}

async function groups(here, get) {
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

async function group(here, get) {
  const { name } = here;
  const metaq = get(`/admin/v1/cluster/groups${query({ group: name, metaq: true })}`).then(found => found.items[0]?.metaq, () => null);
  let found;
  try { found = await get(`/admin/v1/cluster/groups/${path(name)}`); }
  catch (error) { if (error.status !== 404 || !await metaq) throw error; found = { items: [], missing: [] }; }
  const side = await metaq, members = new Map(found.items.flatMap(item => item.members).map(member => [member.client_id, member]));
  for (const id of side?.members || []) if (!members.has(id)) members.set(id, { client_id: id, address: "–", language: "MetaQ", version: "–" });
  const queues = found.items.flatMap(item => Object.entries(item.topics).flatMap(([topic, list]) => list.map(queue => {
    const key = `${name} ${topic} ${item.shard} ${queue.queue}`;
    return { topic, shard: item.shard, ...queue, read: rates.of(`read ${key}`, queue.offset), came: rates.of(`came ${key}`, queue.end) };
  })));
  const subscribed = new Set(found.items.flatMap(item => item.subscribed)), lag = sum(queues, queue => queue.lag), settings = Object.assign({}, ...found.items.map(({ shard, topics, members, subscribed, name, ...rest }) => rest));
  const looked = queues.filter(queue => queue.read != null), sides = Object.entries(side?.topics || {});
  queues.sort((a, b) => b.lag - a.lag);
  const everyMs = here.asked.reset ? 0 : undefined;  // a plan stands still while it is read
  return { title: name, missing: found.missing, everyMs, parts: [
    h("p", { class: lag && !members.size ? "why bad" : "why" }, (found.missing.length ? "On the shards that answer: " : "") + whyBehind(queues, members.size, subscribed)),
    cards([[count(lag + sum(sides, ([, of]) => of.lag)), `messages behind${some(found.missing)}`, lag && !members.size ? "bad" : null], [members.size, "members"],
      [looked.length ? perSecond(sum(looked, queue => queue.read)) : "…", "read, a second"], [looked.length ? perSecond(sum(looked, queue => queue.came)) : "…", "came, a second"]]),
    h("div", { class: "two" },
      section("Progress", table("progress", [["topic"], ["shard"], ["queue", "n"], ["read up to", "n"], ["end", "n"], ["lag", "n"], ["read/s", "n"], ["in/s", "n"]], queues.map(queue => ({ key: `${queue.topic}/${queue.shard}/${queue.queue}`, cells: [
        link(at("topics", queue.topic), queue.topic), queue.shard, link(`#/messages${query({ topic: queue.topic, by: "offset", shard: number(queue.shard), queue: queue.queue, offset: queue.offset })}`, queue.queue, { "aria-label": `messages from where queue ${queue.queue} of ${queue.shard} is read up to` }), count(queue.offset), count(queue.end), count(queue.lag), perSecond(queue.read), perSecond(queue.came)] })), "it has committed nothing"),
        sides.length ? table("progress of MetaQ's consumers", [["topic"], ["lag of MetaQ's consumers", "n"], ["oldest unread"]], sides.map(([topic, of]) => ({ key: `metaq ${topic}`, cells: [link(at("topics", topic), topic), count(of.lag), of.oldest ? age(Date.now() - of.oldest) : "–"] })), "") : null),
      section("Members", table("members", [["client"], ["address"], ["language"], ["version", "n"]], [...members.values()].map(member => ({ key: member.client_id, cells: [member.client_id, member.address, member.language, member.version] })), "no member is connected"),
        h("p", { class: "note" }, subscribed.size ? ["they read ", [...subscribed].flatMap((topic, i) => [i ? ", " : "", link(at("topics", topic), topic)])] : null))),
    await reset(here, get, queues, subscribed, members.size, found.missing),
    section("Dead letters and settings", h("p", {}, link(at("topics", `%DLQ%${name}`), "dead letters"), " · ", link(at("topics", `%RETRY%${name}`), "what is retried")),
      table("settings", [["setting"], ["value", "wrap"]], Object.entries(settings).map(([key, value]) => ({ key, cells: [key, typeof value === "object" ? JSON.stringify(value) : String(value)] })), "those that each group begins with")),
  ] };
}

// Where a group goes on in a topic: first what that means for each queue, then a name to type.
async function reset({ name, asked }, get, progress, subscribed, members, missing) {
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
    return { key: `${queue.shard}/${queue.queue}`, cells: [queue.shard, queue.queue, now === null ? "none" : count(now), count(then), change < 0 ? `${count(-change)} are read again` : change ? { text: `${count(change)} are left out`, cls: "bad" } : "nothing changes"] };
  }));
  const act = { method: "POST", path: `/admin/v1/groups/${path(name)}/reset`, body: { topic, to: ms ?? to }, done: `${name} goes on elsewhere in ${topic}.` };
  return section(title, form, table("what changes", [["shard"], ["queue", "n"], ["now", "n"], ["then", "n"], ["messages"]], rows, "the topic has no queue"),
    h("p", { class: "note" }, members ? `Nothing is changed yet. ${members} members are connected: they go on there at once.` : "Nothing is changed yet."), confirmed(name, at("groups", name), act, "go on there"));
}

// The same sentences as `imago group describe` says.
function whyBehind(queues, members, subscribed) {
  const behind = queues.filter(queue => queue.lag > 0);
  if (!behind.length) return "It is not behind.";
  if (!members) return "Nobody reads: no member is connected.";
  const topics = new Set(behind.map(queue => queue.topic)), unread = [...topics].filter(topic => !subscribed.has(topic));
  if (unread.length === topics.size) return `No member that is connected reads ${unread.sort().join(", ")}.`;
  const lag = sum(behind, queue => queue.lag), most = behind.reduce((a, b) => b.lag > a.lag ? b : a), looked = behind.filter(queue => queue.read != null);
  const where = behind.length > 1 && most.lag >= .9 * lag ? `, most of it in ${most.topic}/${most.shard}/${most.queue}` : "";
  if (!looked.length) return `It is ${count(lag)} messages behind${where}; a moment, rates are known after a second look.`;
  const read = sum(looked, queue => queue.read), came = sum(looked, queue => queue.came);
  if (!read) return `${members} connected, but nothing was committed since the last look${where}: handlers hang or fail, or wait to commit.`;
  if (read <= came) return `More comes (${perSecond(came)}/s) than it reads (${perSecond(read)}/s)${where}.`;
  return `It catches up in ${age(1000 * lag / (read - came))} at ${perSecond(read)}/s${where}.`;
}

function listed(items, empty) {
  return table("messages", [["stored"], ["topic"], ["shard"], ["queue", "n"], ["offset", "n"], ["tags"], ["keys"], ["body"]], items.map(item => ({ key: `${item.shard} ${item.logOffset}`, cells: [
    link(`#/message${query({ topic: item.topic, shard: number(item.shard), queue: item.queue, offset: item.offset })}`, time(item.storeTime)), item.topic, item.shard, item.queue, count(item.offset), item.tags || "", item.keys || "",
    item.error || (item.text == null ? `${size(item.size)}, not text` : item.text.slice(0, 200))] })), empty);
}

async function messages(here, get) {
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
    page.parts.push(section(`${items.length} found`, listed(items, `none${some(page.missing || [])}`), further && h("nav", { class: "pages", "aria-label": "further messages" }, further)));
  } catch (error) {
    if (!error.status || error.status === 401) throw error;
    page.parts.push(h("p", { class: "bad", role: "alert" }, error.message));
  }
  return page;
}

async function message(here, get) {
  const { asked } = here, { topic, shard, queue } = asked, offset = Number(asked.offset) || 0;
  const found = await get(`/admin/v1/messages${query({ topic, shard, queue, offset, limit: 1, body: "base64" })}`);
  const item = found.items[0], to = n => `#/message${query({ ...asked, offset: n })}`;
  const steps = h("nav", { class: "pages", "aria-label": "neighbours" }, offset > 0 && link(to(offset - 1), "« before"), link(to(offset + 1), "after »"), link(at("topics", topic || ""), "the topic"));
  const title = `${topic} / shard-${shard} / queue ${queue} / offset ${offset}`;
  if (!item) return { title, parts: [section("Nothing is here", h("p", {}, "The queue ends before this offset."), steps)] };
  if (item.offset !== offset) return { title, parts: [section("It is gone", h("p", {}, "This offset is deleted or damaged. The next message that can be read: ", link(to(item.offset), `offset ${item.offset}`)), steps)] };
  const bytes = Uint8Array.from(atob(item.body), char => char.charCodeAt(0));
  let text = null, json = null;
  try { text = new TextDecoder("utf-8", { fatal: true }).decode(bytes); } catch { /* it is no text */ }
  if (text !== null && /^\s*[[{]/.test(text)) try { JSON.parse(text); json = indented(text); } catch { /* it is no JSON */ }
  const view = asked.view || (json !== null ? "json" : text !== null ? "text" : "hex");
  const body = { json, text, hex: hex(bytes.subarray(0, HEX_BYTES)) }[view] ?? null;
  const facts = { topic: item.topic, shard: item.shard, queue: item.queue, offset: item.offset, "MetaQ position": item.position < 0 ? "–" : item.position, "stored id": item.id, "unique id": item.uniqueId ?? "–", stored: time(item.storeTime), born: time(item.bornTime), tags: item.tags ?? "–", keys: item.keys ?? "–", size: `${size(item.size)} (${count(item.size)} bytes)`, "place in the log": item.logOffset };
  const rows = of => Object.entries(of).map(([key, value]) => ({ key, cells: [key, { text: String(value), cls: "wrap" }] }));
  const views = h("nav", { class: "pages", "aria-label": "ways to show the body" }, [["json", json], ["text", text], ["hex", ""]].map(([name, there]) => there === null ? h("span", {}, `no ${name}`) : link(`#/message${query({ ...asked, view: name })}`, name, { "aria-current": name === view ? "true" : null })));
  const cut = body !== null && body.length > SHOWN_CHARS ? `the first ${count(SHOWN_CHARS)} of ${count(body.length)} characters` : view === "hex" && bytes.length > HEX_BYTES ? `the first ${count(HEX_BYTES)} of ${count(bytes.length)} bytes` : null;
  return { title, parts: [
    section("Body", item.error ? h("p", { class: "bad" }, item.error) : null, h("pre", { class: view, tabindex: "0", "aria-label": "body" }, body === null ? `it is no ${view}` : body.slice(0, SHOWN_CHARS)), cut && h("p", { class: "note" }, cut), views, steps),
    h("div", { class: "two" }, section("Facts", table("facts", [["what"], ["value", "wrap"]], rows(facts), "")), section("Properties", table("properties", [["name"], ["value", "wrap"]], rows(item.properties), "none"))),
  ] };
}

// JSON with line breaks, its numbers and texts as they were sent: reading it would round them.
function indented(text) {
  let depth = 0, out = "";
  const line = () => `\n${"  ".repeat(depth)}`, tokens = text.match(/"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g) || [];
  tokens.forEach((token, i) => {
    if ("{[".includes(token)) { out += token; if ("}]".includes(tokens[i + 1])) return; depth++; out += line(); }
    else if ("}]".includes(token)) { if (!"{[".includes(tokens[i - 1])) { depth--; out += line(); } out += token; }
    else out += token === "," ? `,${line()}` : token === ":" ? ": " : token;
  });
  return out;
}

function hex(bytes) {
  const lines = [];
  for (let i = 0; i < bytes.length; i += 16) {
    const part = [...bytes.subarray(i, i + 16)];
    lines.push(`${i.toString(16).padStart(6, "0")}  ${part.map(b => b.toString(16).padStart(2, "0")).join(" ").padEnd(47)}  ${part.map(b => b > 31 && b < 127 ? String.fromCharCode(b) : ".").join("")}`);
  }
  return lines.join("\n") || "(empty)";
}

async function limits(here, get) {
  const found = await get(`/admin/v1/quotas${query({ limit: ROWS, next: here.asked.next })}`);
  return { title: "Limits", parts: [section("Limits, and their use at this broker", table("limits", [["limited"], ["limits, a second or in all", "wrap"], ["connections", "n"], ["throttled", "n"], ["refused", "n"]],
    found.items.map(item => ({ key: item.subject, cells: [item.subject, Object.entries(item.quotas).map(([name, most]) => `${name} ${count(most)}`).join(", "), count(item.usage.connections), `${(item.usage.throttledMs / 1000).toFixed(1)} s`, count(item.usage.refused)] })), "no limit is set: imago user limits"), pager("/limits", here.asked, found.next))] };
}

async function configuration(here, get) {
  const { asked } = here, found = await get("/admin/v1/config"), part = (asked.contains || "").toLowerCase();
  const own = await get("/admin/v1/status"), text = value => typeof value === "string" ? value : JSON.stringify(value);
  const items = found.items.filter(item => `${item.key} ${item.doc}`.toLowerCase().includes(part) && (asked.set !== "true" || text(item.value) !== text(item.default)));
  return { title: "Configuration", parts: [section(`${own.shard}, replica ${own.replica}: ${items.length} of ${found.items.length} keys`,
    find("/configuration", field("key or meaning contains", "contains", asked.contains), check("only what differs from its default", "set", asked.set)),
    table("configuration", [["key"], ["value", "wrap"], ["default", "wrap"], ["changes"], ["meaning", "wrap"]], items.map(item => ({ key: item.key, cells: [item.key, text(item.value), text(item.default), item.dynamic ? "live" : "at a restart", item.doc] })), "no key has that in it"))] };
}

const either = (list, one) => (here, get) => here.name ? one(here, get) : list(here, get);
export const pages = [
  { path: "", link: "Overview", everyMs: 5000, load: overview },
  { path: "topics", link: "Topics", everyMs: 5000, load: either(topics, topic) },
  { path: "groups", link: "Groups", everyMs: 5000, load: either(groups, group) },
  { path: "messages", link: "Messages", everyMs: 0, load: messages },
  { path: "message", everyMs: 0, load: message },
  { path: "limits", link: "Limits", everyMs: 10_000, load: limits },
  { path: "configuration", link: "Configuration", everyMs: 0, load: configuration },
];
