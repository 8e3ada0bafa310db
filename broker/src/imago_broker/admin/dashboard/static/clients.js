// Who is connected to any broker, and the end of a client's connections.
import { confirmed, facts, field, find, h, link, pager, section, table } from "./parts.js";
import { at, counted, path, query, some } from "./words.js";

const ROWS = 50, CHOICES = ["topic", "group", "user"];
const links = (page, names) => names.flatMap((name, i) => [i ? ", " : "", link(at(page, name), name)]);

export async function clients(here, get) {
  const { asked } = here, chosen = Object.fromEntries(CHOICES.map(key => [key, asked[key]]));
  const found = await get(`/admin/v1/cluster/clients${query({ ...chosen, next: asked.next, limit: ROWS })}`);
  const rows = found.items.map(client => ({ key: client.name, cells: [
    link(at("clients", client.name), client.name), client.users.join(", ") || "–", client.language || "–", client.version || "–", client.connectionCount,
    [...new Set(client.connections.map(one => one.protocol))].join(", "), { text: client.consumerGroups.join(", "), cls: "wrap" }, { text: client.producerGroups.join(", "), cls: "wrap" }, { text: client.topics.join(", "), cls: "wrap" }] }));
  return { title: "Clients", missing: found.missing, parts: [section(`Connected to any broker${some(found.missing)}`,
    find("/clients", ...CHOICES.map(key => field(key, key, asked[key]))),
    table("clients", [["client"], ["user"], ["language"], ["version"], ["connections", "n"], ["protocol"], ["consumes as", "wrap"], ["produces as", "wrap"], ["topics", "wrap"]], rows, CHOICES.some(key => asked[key]) ? "no such client is connected" : `nobody is connected${some(found.missing)}`),
    pager("/clients", asked, found.next))] };
}

export async function client(here, get) {
  const { name } = here, found = await get(`/admin/v1/cluster/clients${query({ client: name })}`), [item] = found.items;
  const title = `Client ${name}`;
  if (!item) return { title, missing: found.missing, parts: [section("Not connected", h("p", {}, "No broker that answers knows this client now."))] };
  const act = { method: "DELETE", path: `/admin/v1/cluster/clients/${path(name)}`, done: `The connections of ${name} are closed; it may connect again.` };
  return { title, missing: found.missing, parts: [
    section("Client", facts("client", { users: item.users.join(", ") || "–", language: item.language || "–", version: item.version || "–" }),
      h("p", {}, "consumes as ", item.consumerGroups.length ? links("groups", item.consumerGroups) : "no group", " · topics ", item.topics.length ? links("topics", item.topics) : "none")),
    section(counted(item.connectionCount, "connection"), table("connections", [["shard"], ["replica", "n"], ["from"], ["protocol"], ["TLS"], ["shared with", "wrap"]],
      item.connections.map(one => ({ key: `${one.shard} ${one.replica} ${one.peer} ${one.protocol}`, cells: [one.shard, one.replica, one.peer, one.protocol, one.tls ? "yes" : "no", one.sharedWith.join(", ")] })), "none")),
    section("Close its connections", h("p", { class: "note" }, "At once, at all brokers; the client may connect again."), confirmed(name, "#/clients", act, "close")),
  ] };
}
