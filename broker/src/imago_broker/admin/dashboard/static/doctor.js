// What is wrong in the cluster now, the worst first, each with what mends it.
import { toRetry } from "./behind.js";
import { link, section, table } from "./parts.js";
import { age, at, count, counted, query } from "./words.js";

const WORDS = { error: "bad", warning: "warn", note: null };

export async function doctor(here, get) {
  const [cluster, found, groups, retried, dead] = await Promise.all([get("/admin/v1/cluster"), get("/admin/v1/cluster/brokers"),
    get(`/admin/v1/cluster/groups${query({ sort: "-lag", limit: 50 })}`), get(`/admin/v1/cluster/groups${query({ sort: "-retries", limit: 50 })}`),
    get(`/admin/v1/cluster/topics${query({ contains: "%DLQ%", sort: "-messages", counts: true, limit: 20 })}`)]);
  const said = [...cluster.shards.flatMap(shard => [...ofShard(shard, cluster)]), ...found.items.flatMap(item => [...ofBroker(item)]), ...together(cluster, found.items), ...groups.items.flatMap(group => [...ofGroup(group)]), ...retried.items.filter(group => group.retries?.waiting).map(ofRetries),
    ...(retried.items.some(group => group.retries?.cut) ? [finding("note", "retries", "more waits than is looked at: groups may have more to try again", "imago message scheduled", "#/waiting")] : []),
    ...dead.items.filter(topic => topic.messages).map(topic => finding("note", topic.name.slice(5), topic.messages === 1 ? "a message was given up" : `${count(topic.messages)} messages were given up`, `imago dlq show ${topic.name.slice(5)}`, at("letters", topic.name.slice(5))))];
  const order = Object.keys(WORDS), rows = said.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level))
    .map(one => ({ key: `${one.what} ${one.text}`, cells: [{ text: one.level, cls: WORDS[one.level] }, one.href ? link(one.href, one.what) : one.what, { text: one.text, cls: "wrap" }, { text: one.cure, cls: "wrap" }] }));
  return { title: "Doctor", missing: found.missing, zooKeeperConnected: cluster.zooKeeperConnected, parts: [
    section(rows.length ? counted(rows.length, "finding") : "Nothing is wrong that brokers can see", table("findings", [["level"], ["of"], ["what", "wrap"], ["cure", "wrap"]], rows, "shards, members, disks, logs, groups and dead letters were looked at"))] };
}

const finding = (level, what, text, cure, href) => ({ level, what, text, cure, href });

function* ofShard(shard, cluster) {
  if (!shard.master) yield finding("error", shard.name, shard.explain.why, `imago cluster explain; runbook: A shard without master`);
  else if (shard.explain.waitsFor) yield finding("warning", shard.name, `waits for ${shard.explain.waitsFor}`, shard.explain.next);
  const inSync = shard.members.filter(member => member.inSync).length;
  if (inSync < cluster.replicas) yield finding("warning", shard.name, `${inSync} of ${cluster.replicas} members are in sync`, "start the members that are gone; imago cluster status shows the lag of those that copy");
  if (shard.draining && !shard.drained) yield finding("note", shard.name, "is being drained", `imago shard drained ${shard.id}`);
}

function* ofBroker(item) {
  const name = `${item.shard}, replica ${item.replica}`;
  if (item.damaged.length) yield finding("error", name, item.damaged.length === 1 ? "a part of its log is damaged" : `${item.damaged.length} parts of its log are damaged`, "imago log check; runbook: A damaged log", "#/nodes");
  if (item.disk.level !== "normal") yield finding("error", name, `its disk is ${Math.round(item.disk.usedShare * 100)} % full (${item.disk.level})`, "make room; runbook: A disk runs full", "#/nodes");
  if (item.role === "master" && !item.puts.accepted) yield finding("error", name, `takes no messages: ${item.puts.reasons.join("; ")}`, "mend what it names");
  if (!item.gets.accepted) yield finding("error", name, `gives no messages: ${item.gets.reasons.join("; ")}`, "mend what it names");
  if (item.registry !== "connected") yield finding("error", name, `its registry is ${item.registry}`, "runbook: ZooKeeper is gone");
  for (const [node, why] of Object.entries(item.registryRefused)) yield finding("warning", name, `cannot read ${node}: ${why}`, "mend or remove that node of ZooKeeper");
  if (item.notCompiled.length) yield finding("warning", name, "runs plain Python in place of compiled modules: several times slower", "make setup, or install a wheel for its platform");
  if (item.access.open) yield finding("warning", name, "anyone who reaches its ports may send, read and administer", "acl.enabled; docs/secure.md");
}

function* together(cluster, items) {
  const versions = [...new Set(items.map(item => item.version))];
  if (versions.length > 1) yield finding("note", "cluster", `brokers of several versions: ${versions.join(", ")}`, "finish the upgrade");
  for (const [node, why] of Object.entries(cluster.refused)) yield finding("warning", "registry", `${node}: ${why}`, "mend or remove that node of ZooKeeper");
}

function ofRetries(group) {
  const topic = `%RETRY%${group.name}`, alone = !group.members.length;
  return finding(alone ? "warning" : "note", group.name, `${toRetry([group.retries])}${alone ? ", and no member is connected" : ": its handlers have failed"}`,
    `read what its consumers log; imago message scheduled --topic ${topic}`, at("groups", group.name));
}

function* ofGroup(group) {
  const sides = Object.values(group.topics), lag = sides.reduce((all, side) => all + side.lag, 0), oldest = Math.min(...sides.map(side => side.oldest || Infinity));
  if (lag && !group.members.length) yield finding("warning", group.name, `nobody reads, and ${counted(lag, "message")} ${lag === 1 ? "waits" : "wait"}${oldest < Infinity ? `, the oldest for ${age(Date.now() - oldest)}` : ""}`, `start its consumers, or delete it: imago group delete ${group.name}`, at("groups", group.name));
}
