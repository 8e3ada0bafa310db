// The configuration of the broker that is asked, and its live settings.
import { check, confirmed, facts, field, find, h, link, marked, section, table } from "./parts.js";
import { at, text } from "./words.js";

export async function configuration(here, get) {
  const { asked } = here, part = (asked.contains || "").toLowerCase();
  const [found, own] = await Promise.all([get("/admin/v1/config"), get("/admin/v1/status")]);
  const items = found.items.filter(item => `${item.key} ${item.doc}`.toLowerCase().includes(part) && (asked.set !== "true" || text(item.value) !== text(item.default)) && (asked.live !== "true" || item.dynamic));
  return { title: "Configuration", parts: [section(`${own.shard}, replica ${own.replica}: ${items.length} of ${found.items.length} keys`,
    find("/configuration", field("key or meaning contains", "contains", asked.contains), check("only what differs from its default", "set", asked.set), check("only what changes live", "live", asked.live)),
    table("configuration", [["key"], ["value", "wrap"], ["default", "wrap"], ["changes"], ["meaning", "wrap"]], items.map(item => ({ key: item.key, cells: [
      link(at("configuration", item.key), item.key), { text: text(item.value), cls: text(item.value) === text(item.default) ? "wrap" : "wrap set" }, text(item.default), item.dynamic ? "live" : "at a restart", marked(item.doc)] })), "no key has that in it"))] };
}

export async function setting({ name }, get) {
  const [found, own] = await Promise.all([get("/admin/v1/config"), get("/admin/v1/status")]), item = found.items.find(one => one.key === name);
  if (!item) return { title: name, parts: [section("No such key", h("p", {}, "The configuration has no key of this name: ", link("#/configuration", "all keys")))] };
  const act = { method: "PATCH", path: "/admin/v1/config", done: `${name} is set on this broker, until it starts again.`, value: name, written: typeof item.value !== "string" };
  return { title: name, parts: [
    section("Setting", facts("setting", { meaning: marked(item.doc), value: text(item.value), default: text(item.default), changes: item.dynamic ? "live" : "at a restart" })),
    item.dynamic ? section("Change it now", h("p", { class: "note" }, `On ${own.shard}, replica ${own.replica}, alone, and until it starts again: imago config set --live reaches all brokers, and its file keeps it.`),
      confirmed(name, at("configuration", name), act, "set", field("value", "value", text(item.value), { autocomplete: "off" }))) : section("Change it", h("p", {}, "In the broker's TOML file, or its environment; then restart the broker.")),
  ] };
}
