// The shell of the dashboard: what is shown is what the address says, asked anew in turns.
import { h, link, marked, morph, section } from "./parts.js";
import { pages } from "./pages.js";
import { age, at, clock, nearest, query, time } from "./words.js";

const $ = id => document.getElementById(id);
const TIMEOUT_MS = 15_000, PAUSE_MS_MAX = 60_000;

class Refused extends Error {
  constructor(path, status, body) { super(`${body.message || `${path} answers ${status}`}${body.cure ? ` – ${body.cure}` : ""}`); this.status = status; this.told = body; }
}

// "#/topics/a%2Fb?contains=x" is page "topics", name "a/b", and what is asked of it.
function place() {
  const [path, asked] = (location.hash.slice(1) || "/").split(/\?(.*)/s);
  const [page, ...rest] = path.split("/").filter(Boolean);
  let name = rest.join("/");
  try { name = decodeURIComponent(name); } catch { /* it is taken as it is */ }
  return { page: page || "", name, asked: Object.fromEntries(new URLSearchParams(asked || "")) };
}

let timer, running = new AbortController(), turn = 0, pause = 0, shown = null, since = 0;
let told = false;  // what was done is still to be seen on the page that comes next

async function call(path, options, signal) {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
  const answer = await fetch(path, { headers: { Accept: "application/json" }, ...options, signal: limited });
  const body = await answer.json().catch(() => ({}));
  loggedOut(answer.status === 401);
  if (!answer.ok) throw new Refused(path, answer.status, body);
  return body;
}

// What the page asked for and what was answered, kept up to date by the broker for as long as the page is seen.
let stream = null, kept = new Map();

function listen(paths, everyMs, mine) {
  hush();
  const asked = new URLSearchParams([...paths].map(path => ["path", path]));
  asked.set("every", everyMs);
  stream = new EventSource(`/admin/v1/live?${asked}`);
  let heard = false;
  stream.onmessage = event => {
    if (mine !== turn) return;
    for (const [path, answer] of Object.entries(JSON.parse(event.data))) kept.set(path, answer);
    heard = true;
    if ([...kept.values()].some(({ status }) => status === 401)) { refresh(); return; }
    again();
  };
  stream.onerror = () => {  // refused, or the broker is gone: ask as long as it is so
    if (mine !== turn) return;
    hush();
    timer = setTimeout(refresh, heard ? 500 : pause);
  };
}

function hush() { stream?.close(); stream = null; }

async function recalled(path, signal) {
  if (!kept.has(path)) await call(path, {}, signal).then(body => kept.set(path, { status: 200, body }), error => { if (!(error instanceof Refused) || error.status === 401) throw error; kept.set(path, { status: error.status, body: error.told }); });
  const { status, body } = kept.get(path);
  if (status !== 200) throw new Refused(path, status, body || {});
  return body;
}

async function change(method, path, body) {
  const whole = new AbortController().signal;  // it is not broken off by the page's next turn
  const { csrf } = await call("/admin/v1/session", {}, whole);
  const headers = { "Content-Type": "application/json", Accept: "application/json", "X-Imago-CSRF": csrf };
  return call(path, { method, headers, body: JSON.stringify(body) }, whole);
}

function loggedOut(out) {
  $("login").hidden = !out;
  document.body.classList.toggle("out", out);
}

// Shards that are away stand on top of each page, and brokers that the page lacks an answer of.
function alerts(found) {
  const lines = (found.missing || []).map(({ shard, since: from, why }) => {
    const text = why.startsWith(shard) ? why : `${shard}: ${why}`;
    return `${text}${from ? `; away since ${time(from)} (${age(Date.now() - from)})` : ""}. What it has is not in the figures.`;
  });
  const warnings = [...(found.warnings || [])];
  if (found.zooKeeperConnected === false) warnings.unshift("This broker has lost ZooKeeper: topics, shards and members are shown as it knew them last.");
  morph($("alerts"), h("div", { id: "alerts", role: "alert" }, [...new Set(lines)].map(line => h("p", {}, line)), warnings.map(line => h("p", { class: "warn" }, line))));
}

function state(text, stale) {
  $("state").textContent = text;
  $("state").className = stale ? "stale" : "";
}

function notice(text, bad) {
  $("notice").replaceChildren(...marked(text));
  $("notice").className = bad ? "bad" : "";
  $("notice").hidden = !text;
}

// A form that changes something: its `data-word` has to be typed, and the caller needs the right.
async function act(form) {
  const { method, path, body, done, value, written, fields, query: asked } = JSON.parse(form.dataset.act), typed = form.elements.word;
  if (typed.value !== form.dataset.word) { notice(`Nothing was changed: type ${form.dataset.word} to confirm.`, true); typed.focus(); return; }
  let sent = body;
  if (value) {  // what is sent stands in a field of the form: as it is, or as JSON
    const given = form.elements.value.value;
    try { sent = { [value]: written ? JSON.parse(given) : given }; } catch { notice(`Nothing was changed: ${given} is no number, true, false or list as JSON has them.`, true); return; }
  }
  for (const name of fields || []) if (form.elements[name].value) sent[name] = name === "keys" ? form.elements[name].value.trim().split(/\s+/) : form.elements[name].value;
  let answer;
  try { answer = await change(method, path + (asked ? query({ [asked]: form.elements.value.value }) : ""), sent || {}); } catch (error) { notice(`${error.message}`, true); return; }
  typed.value = "";
  const result = name => answer.items ? answer.items.reduce((all, item) => all + item[name], 0) : answer[name];
  notice(done.replace(/\{(\w+)\}/g, (_, name) => result(name)) + (answer.missing?.length ? ` Not asked: ${answer.missing.map(one => one.shard).join(", ")}.` : ""), answer.missing?.length);
  if (location.hash === form.dataset.then) refresh();
  else { told = true; location.hash = form.dataset.then; }
}

function draw(content, here) {
  const id = `${here.page}/${here.name}`;
  const fresh = h("main", { id: "main", tabindex: "-1" }, h("h1", { tabindex: "-1" }, content.title), content.parts);
  if (shown === id) morph($("main"), fresh);
  else {
    $("main").replaceChildren(...fresh.childNodes);
    if (shown !== null && document.activeElement !== $("login-password")) $("main").querySelector("h1").focus();
  }
  if (shown !== id && shown !== null && !told) notice("");
  if (shown !== id) told = false;
  shown = id;
  document.title = `${content.title} · Imago`;
}

const linked = more => pages.filter(page => page.link).map(page => link(`#/${page.path}`, page.link, more(page)));

function nowhere(here) {
  return { title: `There is no page ${here.page}`, parts: [section("The pages", h("p", { class: "pages" }, linked(() => ({}))))] };
}

function nav(here) {
  const links = linked(page => ({ "aria-current": page.path === here.page ? "page" : null }));
  morph($("nav"), h("nav", { id: "nav", "aria-label": "pages" }, links));
}

async function refresh() {
  clearTimeout(timer);
  running.abort();
  running = new AbortController();
  hush();
  kept = new Map();
  turn++;
  await again();
}

// Draws the page out of what is known, and asks for what is not.
async function again() {
  const mine = turn, here = place(), { signal } = running, before = kept.size;
  const page = pages.find(each => each.path === here.page) || { everyMs: 0, load: nowhere };
  nav(here);
  if (shown !== `${here.page}/${here.name}`) { since = 0; state("asking…"); }
  const used = new Set(), get = path => { used.add(path); return recalled(path, signal); };
  try {
    const content = await page.load(here, get);
    // It costs no other broker anything; who may not see the cluster does without.
    const overall = content.missing ? content : await get("/admin/v1/cluster/topics?limit=1").catch(() => ({}));
    if (mine !== turn) return;
    alerts({ ...overall, warnings: content.warnings });
    draw(content, here);
    since = Date.now(); pause = content.everyMs ?? page.everyMs;
    state(pause ? `as of ${clock(since)}, live` : `as of ${clock(since)}`);
    if (pause && !document.hidden && (!stream || kept.size !== before)) listen(used, pause, mine);
  } catch (error) {
    if (mine !== turn) return;
    const refused = error instanceof Refused;
    const text = refused ? error.message : `This broker does not answer: ${error.message}. Any other broker of the cluster has the same page.`;
    hush();
    if (error.status === 401) { state(""); return; }  // who has not logged in sees the form
    if (since && !refused) state(`stale since ${clock(since)}: ${text}`, true);
    else { state(""); draw({ title: here.name || page.link || "Imago", parts: [h("p", { class: "bad", role: "alert" }, marked(text)), error.status === 404 && page.link && h("p", {}, nearest(text) && [link(at(page.path, nearest(text)), nearest(text)), " · "], link(`#/${page.path}`, `all ${page.link.toLowerCase()}`))] }, here); }
    pause = page.everyMs && Math.min(PAUSE_MS_MAX, Math.max(pause, page.everyMs) * 2);
    if (pause && !document.hidden) timer = setTimeout(refresh, pause);
  } finally {
    if (mine === turn) document.body.dataset.shown = location.hash;  // what is to be seen is of this address
  }
}

async function session() {
  const known = await call("/admin/v1/session", {}, new AbortController().signal).catch(() => ({}));
  $("logout").hidden = !known.csrf;
  $("user").textContent = known.csrf ? known.user : "";
}

$("login").onsubmit = async event => {
  event.preventDefault();
  const user = $("login-user").value, secret = $("login-password").value;
  const told = JSON.stringify(user ? { user, password: secret } : { token: secret });
  const answer = await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: told });
  $("login-password").value = "";
  $("denied").textContent = answer.ok ? "" : (await answer.json()).message;
  $("denied").hidden = answer.ok;
  if (answer.ok) { await session(); refresh(); }
};
$("logout").onclick = async () => {
  await fetch("/logout", { method: "POST" });
  $("main").replaceChildren(); $("alerts").replaceChildren(); shown = null;
  $("logout").hidden = true; $("user").textContent = "";
  refresh();
};
// A form changes the address, and that the page: what is searched can be sent as a link.
document.addEventListener("submit", event => {
  const form = event.target, to = form.dataset.to;
  if (form.dataset.act) { event.preventDefault(); notice(""); act(form); }
  if (!to) return;
  event.preventDefault();
  const wanted = `#${to}${query(Object.fromEntries(new FormData(form)))}`;
  if (wanted === location.hash) refresh(); else location.hash = wanted;
});
document.addEventListener("change", event => { if (event.target.matches("select, [type=checkbox]")) event.target.form?.dataset.to && event.target.form.requestSubmit(); });
document.addEventListener("keydown", event => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("input, select, textarea")) return;
  const first = document.querySelector("main input");
  if (first) { event.preventDefault(); first.focus(); first.select(); }
});
document.addEventListener("visibilitychange", () => { if (document.hidden) { clearTimeout(timer); hush(); } else refresh(); });
addEventListener("hashchange", refresh);

$("cluster").textContent = `at ${location.host}`;
session();
refresh();
