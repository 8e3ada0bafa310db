// What pages are made of: elements, tables, charts, and how numbers and times are written.

// Everything from the server is put in as text, never as markup.
export function h(tag, attributes, ...children) {
  const svg = ["svg", "polyline", "line", "text"].includes(tag);
  const el = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value != null && value !== false) el.setAttribute(name, value === true ? "" : value);
  el.append(...children.flat(Infinity).filter(child => child != null && child !== false));
  return el;
}

// Makes an element like a fresh one and keeps what is alike: focus, selection and scrolling stay.
export function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) {
    old.setAttribute(name, value);
    if (name === "value" && old !== document.activeElement) old.value = value;
  }
  const keyed = new Map([...old.children].filter(el => el.dataset.key).map(el => [el.dataset.key, el]));
  let at = old.firstChild;
  for (const want of [...fresh.childNodes]) {
    const known = want.dataset?.key ? keyed.get(want.dataset.key) : at;
    if (!known || known.nodeName !== want.nodeName || (known.dataset?.key !== want.dataset?.key)) { old.insertBefore(want, at); continue; }
    if (known !== at) old.insertBefore(known, at); else at = at.nextSibling;
    morph(known, want);
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

export function query(values) {
  const kept = Object.entries(values).filter(([, value]) => value != null && value !== "" && value !== false);
  return kept.length ? "?" + new URLSearchParams(kept) : "";
}

export const count = n => n == null ? "–" : Math.round(n).toLocaleString("en");
export const size = n => { if (n == null) return "–"; const u = ["B", "KiB", "MiB", "GiB", "TiB"]; let i = 0; while (n >= 1024 && i < 4) { n /= 1024; i++; } return `${n.toFixed(n < 10 && i ? 1 : 0)} ${u[i]}`; };
const two = n => String(n).padStart(2, "0");
export const clock = ms => { const d = new Date(ms); return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`; };
export function time(ms) {
  if (!ms) return "–";
  const d = new Date(ms), off = -d.getTimezoneOffset(), zone = off ? `${off < 0 ? "-" : "+"}${two(Math.trunc(Math.abs(off) / 60))}:${two(Math.abs(off) % 60)}` : "Z";
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(ms)}${zone}`;
}
export function age(ms) {
  const s = Math.max(0, ms / 1000);
  return s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}


const ROWS_MAX = 500;  // a topic may have 65,536 queues

// head: [name, class] or [name, class, key to sort by]; a cell is a text, an element, or {text, cls}.
export function table(label, head, rows, empty, sorted) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const names = head.map(([name, cls, key]) => {
    if (!key) return h("th", { class: cls, scope: "col" }, name);
    const down = sorted.now === `-${key}`, up = sorted.now === key;
    return h("th", { class: cls, scope: "col", "aria-sort": up ? "ascending" : down ? "descending" : null }, h("a", { href: sorted.link(up ? `-${key}` : key) }, name + (up ? " ▲" : down ? " ▼" : "")));
  });
  const body = rows.slice(0, ROWS_MAX).map(({ key, cells }) => h("tr", { "data-key": key }, cells.map((cell, i) => h("td", { class: cell?.cls ?? head[i][1] }, cell?.cls !== undefined ? cell.text : cell))));
  return [h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, h("thead", {}, h("tr", {}, names)), h("tbody", {}, body))),
    rows.length > ROWS_MAX && h("p", { class: "note" }, `the first ${ROWS_MAX} of ${count(rows.length)}`)];
}
export const section = (title, ...parts) => h("section", {}, h("h2", {}, title), parts);
export const cards = list => h("div", { class: "cards" }, list.map(([big, small, cls]) => h("div", { class: "card" }, h("b", { class: cls }, big), h("span", {}, small))));
export const field = (label, name, value, more) => h("label", {}, label, h("input", { name, value: value ?? "", ...more }));
export const check = (label, name, on) => h("label", { class: "check" }, h("input", { type: "checkbox", name, value: "true", checked: on === "true" }), label);
export const select = (label, name, options, value) => h("label", {}, label, h("select", { name }, options.map(([key, text]) => h("option", { value: key, selected: key === value }, text))));
export const find = (to, ...parts) => h("form", { class: "find", "data-to": to, role: "search" }, parts, h("button", {}, "show"));
export const confirmed = (word, then, act, label) => h("form", { class: "find", "data-act": JSON.stringify(act), "data-word": word, "data-then": then },
  h("label", {}, `type ${word} to confirm`, h("input", { name: "word", autocomplete: "off", required: true })), h("button", { class: "danger" }, label));
export const at = (page, name, asked) => `#/${page}/${encodeURIComponent(name)}${query(asked || {})}`;
export const link = (href, text, more) => h("a", { href, ...more }, text);

// points: [time, in, out]; a pause in which nothing was asked is a gap, not a line.
export function chart(points, spanMs, gapMs) {
  const wide = Math.max(300, document.getElementById("main").clientWidth - 80), low = 125, end = points.at(-1)?.[0] ?? 0, left = 52;
  const peak = Math.max(2, ...points.flatMap(([, ...values]) => values));
  const x = t => left + (wide - left) * (1 - (end - t) / spanMs), y = v => low - (low - 12) * v / peak;
  const lines = [1, 2].flatMap(which => {
    const runs = [];
    points.forEach((point, i) => { if (!i || point[0] - points[i - 1][0] > gapMs) runs.push([]); runs.at(-1).push(`${x(point[0]).toFixed(1)},${y(point[which]).toFixed(1)}`); });
    return runs.map(run => h("polyline", { points: run.join(" "), class: which === 2 ? "b" : null, "vector-effect": "non-scaling-stroke" }));
  });
  const axis = [0, .5, 1].flatMap(part => [h("line", { class: "axis", x1: left, x2: wide, y1: y(peak * part), y2: y(peak * part) }), h("text", { x: left - 6, y: y(peak * part) + 4, "text-anchor": "end" }, count(peak * part))]);
  const times = (wide < 600 ? [0, .5, 1] : [0, .25, .5, .75, 1]).map(part => h("text", { x: left + (wide - left) * part, y: 145, "text-anchor": part === 1 ? "end" : part ? "middle" : "start" }, end ? clock(end - spanMs * (1 - part)) : ""));
  return h("svg", { viewBox: `0 0 ${wide} 150`, role: "img", "aria-label": `messages a second, at most ${count(peak)}` }, axis, times, lines);
}

// How fast counters grew since they were looked at before; what was not looked at lately is forgotten.
export class Rates {
  #known = new Map();
  #last = new Map();
  of(key, value, now = performance.now()) {
    if (this.#known.size > 20_000) this.clear();
    const old = this.#known.get(key);
    if (!old || now - old.now > 60_000 || value < old.value) this.#last.delete(key);
    else if (now - old.now < 900) return this.#last.get(key) ?? null;
    else this.#last.set(key, (value - old.value) * 1000 / (now - old.now));
    this.#known.set(key, { value, now });
    return this.#last.get(key) ?? null;
  }
  clear() { this.#known.clear(); this.#last.clear(); }
}
