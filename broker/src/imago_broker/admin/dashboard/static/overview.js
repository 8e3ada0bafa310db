// The overview: every shard and member, what waits, and how much comes and goes.
import { history, inAndOut } from "./chart.js";
import { cards, h, link, section, table } from "./parts.js";
import { count, perSecond, role, size, sum, time } from "./words.js";

export async function overview(here, get) {
  const [cluster, found, chart] = await Promise.all([get("/admin/v1/cluster"), get("/admin/v1/cluster/brokers"),
    history(here, get, "Messages of all brokers that answer", {}, "messages a second", inAndOut)]);
  const brokers = new Map(found.items.map(item => [item.uuid, item]));
  const members = cluster.shards.flatMap(shard => shard.members), led = cluster.shards.filter(shard => shard.master);
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
        [`${led.length} of ${cluster.shards.length}`, cluster.shards.length === 1 ? "shard has a master" : "shards have a master", led.length < cluster.shards.length ? "bad" : "good"],
        [`${inSync} of ${cluster.shards.length * cluster.replicas}`, `${cluster.shards.length * cluster.replicas === 1 ? "member" : "members"} in sync; ${members.length} ${members.length === 1 ? "is" : "are"} alive`, inSync < cluster.shards.length * cluster.replicas ? "warn" : "good"],
        [perSecond(chart.now[0]), "messages in, a second"], [perSecond(chart.now[1]), "messages out, a second"],
        [count(sum(found.items, item => sum(Object.values(item.connections), n => n))), "connections of clients"],
        [size(sum(found.items.filter(item => item.role === "master"), item => item.logEnd - item.logStart)), "in the masters' logs"],
        [fullest ? `${Math.round(fullest.disk.usedShare * 100)} %` : "–", fullest ? ["fullest disk: ", h("span", { class: "one" }, fullest.shard), `, replica ${fullest.replica} (${fullest.disk.level})`] : "fullest disk", fullest && fullest.disk.level !== "normal" ? "bad" : null],
        [count(damaged), "damaged parts of logs", damaged ? "bad" : null],
      ]),
      waiting.length ? section("What waits", table("what waits", [["shard"], ["why", "wrap"], ["waits for", "wrap"], ["next", "wrap"]],
        waiting.map(shard => ({ key: shard.name, cells: [shard.name, shard.explain.why, shard.explain.waitsFor, shard.explain.next] })), "")) : null,
      chart.part,
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
