// Limits per tenant, and their use.
import { pager, section, table } from "./parts.js";
import { count, query } from "./words.js";

const ROWS = 50;

export async function limits(here, get) {
  const found = await get(`/admin/v1/quotas${query({ limit: ROWS, next: here.asked.next })}`);
  return { title: "Limits", parts: [section("Limits, and their use at this broker", table("limits", [["limited"], ["limits, a second or in all", "wrap"], ["connections", "n"], ["throttled", "n"], ["refused", "n"]],
    found.items.map(item => ({ key: item.subject, cells: [item.subject, Object.entries(item.quotas).map(([name, most]) => `${name} ${count(most)}`).join(", "), count(item.usage.connections), `${(item.usage.throttledMs / 1000).toFixed(1)} s`, count(item.usage.refused)] })), "no limit is set: imago user limits"), pager("/limits", here.asked, found.next))] };
}
