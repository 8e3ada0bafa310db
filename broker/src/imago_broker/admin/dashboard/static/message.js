// One message, whole: its body as JSON, text or hex, and its properties.
import { facts, h, link, section } from "./parts.js";
import { at, count, query, size, time } from "./words.js";

const SHOWN_CHARS = 262_144, HEX_BYTES = 16_384;

export async function message(here, get) {
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
  const told = { topic: item.topic, shard: item.shard, queue: item.queue, offset: item.offset, "MetaQ position": item.position < 0 ? "–" : item.position, "stored id": item.id, "unique id": item.uniqueId ?? "–", stored: time(item.storeTime), born: time(item.bornTime), tags: item.tags ?? "–", keys: item.keys ?? "–", size: `${size(item.size)} (${count(item.size)} bytes)`, "place in the log": item.logOffset };
  const views = h("nav", { class: "pages", "aria-label": "ways to show the body" }, [["json", json], ["text", text], ["hex", ""]].map(([name, there]) => there === null ? h("span", {}, `no ${name}`) : link(`#/message${query({ ...asked, view: name })}`, name, { "aria-current": name === view ? "true" : null })));
  const cut = body !== null && body.length > SHOWN_CHARS ? `the first ${count(SHOWN_CHARS)} of ${count(body.length)} characters` : view === "hex" && bytes.length > HEX_BYTES ? `the first ${count(HEX_BYTES)} of ${count(bytes.length)} bytes` : null;
  return { title, parts: [
    section("Body", item.error ? h("p", { class: "bad" }, item.error) : null, h("pre", { class: view, tabindex: "0", "aria-label": "body" }, body === null ? `it is no ${view}` : body.slice(0, SHOWN_CHARS)), cut && h("p", { class: "note" }, cut), views, steps),
    h("div", { class: "two" }, section("Facts", facts("facts", told)), section("Properties", facts("properties", item.properties))),
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
