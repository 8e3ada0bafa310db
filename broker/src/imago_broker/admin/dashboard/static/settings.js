// Limits, and the configuration of the broker that is asked.
import { check, field, find, pager, section, table } from "./parts.js";
import { count, query, text } from "./words.js";

const ROWS = 50;

export async function limits(here, get) {
  const found = await get(`/admin/v1/quotas${query({ limit: ROWS, next: here.asked.next })}`);
  return { title: "Limits", parts: [section("Limits, and their use at this broker", table("limits", [["limited"], ["limits, a second or in all", "wrap"], ["connections", "n"], ["throttled", "n"], ["refused", "n"]],
    found.items.map(item => ({ key: item.subject, cells: [item.subject, Object.entries(item.quotas).map(([name, most]) => `${name} ${count(most)}`).join(", "), count(item.usage.connections), `${(item.usage.throttledMs / 1000).toFixed(1)} s`, count(item.usage.refused)] })), "no limit is set: imago user limits"), pager("/limits", here.asked, found.next))] };
}

export async function configuration(here, get) {
  const { asked } = here, found = await get("/admin/v1/config"), part = (asked.contains || "").toLowerCase();
  const own = await get("/admin/v1/status");
  const items = found.items.filter(item => `${item.key} ${item.doc}`.toLowerCase().includes(part) && (asked.set !== "true" || text(item.value) !== text(item.default)));
  return { title: "Configuration", parts: [section(`${own.shard}, replica ${own.replica}: ${items.length} of ${found.items.length} keys`,
    find("/configuration", field("key or meaning contains", "contains", asked.contains), check("only what differs from its default", "set", asked.set)),
    table("configuration", [["key"], ["value", "wrap"], ["default", "wrap"], ["changes"], ["meaning", "wrap"]], items.map(item => ({ key: item.key, cells: [item.key, text(item.value), text(item.default), item.dynamic ? "live" : "at a restart", item.doc] })), "no key has that in it"))] };
}
