// Every broker as it describes itself: disk, log, memory, and whether it takes messages.
import { h, section, table } from "./parts.js";
import { count, role, size, sum, time } from "./words.js";

export async function nodes(here, get) {
  const found = await get("/admin/v1/cluster/brokers");
  const rows = found.items.map(item => {
    const { disk } = item, refused = [...item.puts.reasons, ...item.gets.reasons];
    return { key: item.uuid, cells: [item.shard, item.replica, role(item.role), { text: `${Math.round(disk.usedShare * 100)} % of ${size(disk.totalBytes)}`, cls: disk.level === "normal" ? "n" : "n bad" }, disk.level,
      size(item.logEnd - item.logStart), size(item.logEnd - item.durable), size(item.rssBytes), count(sum(Object.values(item.connections), n => n)), item.registry,
      refused.length ? { text: [...new Set(refused)].join("; "), cls: "wrap bad" } : "messages and readers", item.version, item.pid] };
  });
  const damaged = found.items.flatMap(item => item.damaged.map(part => ({ item, part })));
  return { title: "Nodes and disks", missing: found.missing, parts: [
    section(found.items.length === 1 ? "1 broker answers" : `${count(found.items.length)} brokers answer`, table("nodes", [["shard"], ["replica", "n"], ["role"], ["disk used", "n"], ["level"], ["log", "n"], ["not synced", "n"], ["memory", "n"], ["connections", "n"], ["registry"], ["takes", "wrap"], ["version"], ["process", "n"]], rows, "none")),
    section("Damaged parts of logs", table("damage", [["shard"], ["replica", "n"], ["since"], ["bytes", "n"], ["file", "wrap"], ["why", "wrap"]],
      damaged.map(({ item, part }) => ({ key: `${item.uuid} ${part.from}`, cells: [item.shard, item.replica, time(part.since), count(part.to - part.from), part.file, part.reason] })), "none: every record that was read has its checksum")),
    damaged.length ? h("p", { class: "note" }, "Other members of the shard restore what they have; what is left: imago log check, and the page Damage of the documentation.") : null,
  ] };
}
