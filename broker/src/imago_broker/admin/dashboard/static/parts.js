// What pages are made of: elements that keep what is alike, tables, forms.
import { count, query } from "./words.js";

// Everything from the server is put in as text, never as markup.
export function h(tag, attributes, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value != null && value !== false) el.setAttribute(name, value === true ? "" : value);
  el.append(...children.flat(Infinity).filter(child => child != null && child !== false));
  return el;
}

// Words with names of commands and keys between backticks, as servers write them.
export const marked = text => String(text).split(/`([^`\n]+)`/).map((part, i) => i % 2 ? h("code", {}, part) : part);

// Makes an element like a fresh one and keeps what is alike: focus, selection and scrolling stay.
export function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) {
    old.setAttribute(name, value);
    if (name === "value" && old !== document.activeElement) old.value = value;
  }
  if (old.nodeName.includes("-")) return;  // such an element draws what is in it
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
export const confirmed = (word, then, act, label, ...more) => h("form", { class: "find", "data-act": JSON.stringify(act), "data-word": word, "data-then": then },
  more, h("label", {}, `type ${word} to confirm`, h("input", { name: "word", autocomplete: "off", required: true })), h("button", { class: "danger" }, label));
export const link = (href, text, more) => h("a", { href, ...more }, text);
export const pager = (to, asked, next) => (next || asked.next) && h("nav", { class: "pages", "aria-label": "pages of the list" },
  asked.next && link(`#${to}${query({ ...asked, next: null })}`, "« first"), next && link(`#${to}${query({ ...asked, next })}`, "next »"));
export const facts = (label, of) => table(label, [["what"], ["value", "wrap"]], Object.entries(of).map(([key, value]) => ({ key, cells: [key, { text: value instanceof Array ? value : String(value), cls: "wrap" }] })), "none");
