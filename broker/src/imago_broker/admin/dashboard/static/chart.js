// Figures of the last day as lines over time: one element, which draws anew what it is given anew.
import { h, link, section } from "./parts.js";
import { age, clock, count, day, minute, perSecond, query, size } from "./words.js";

const HEIGHT = 200, POINTS = 360, LATE = 4;
const SPANS = { "1h": ["hour", 3600], "6h": ["6 hours", 6 * 3600], "24h": ["24 hours", 24 * 3600] };
const UNITS = { messages: count, "messages a second": perSecond, "bytes a second": size };
const COLOURS = ["--accent", "--second"];

// The drawing library is asked for with the first chart alone.
let library;
function drawing() {
  library ||= new Promise((done, failed) => {
    const script = h("script", { src: "/dashboard/uplot.js" });
    script.onload = () => done(window.uPlot);
    script.onerror = () => { library = null; failed(new Error("the drawing library does not come")); };
    document.head.append(script);
  });
  return library;
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name);
const dark = matchMedia("(prefers-color-scheme: dark)");

class Chart extends HTMLElement {
  static observedAttributes = ["data-figures"];
  #plot = null; #shape = ""; #turn = 0;
  #sizes = new ResizeObserver(() => this.#plot?.setSize({ width: this.clientWidth, height: HEIGHT }));
  #recolour = () => this.#plot?.redraw();
  connectedCallback() { this.#sizes.observe(this); dark.addEventListener("change", this.#recolour); this.#draw(); }
  disconnectedCallback() {
    this.#sizes.disconnect(); dark.removeEventListener("change", this.#recolour);
    this.#plot?.destroy(); this.#plot = null;
  }
  attributeChangedCallback() { if (this.isConnected) this.#draw(); }
  async #draw() {
    const turn = ++this.#turn, uPlot = await drawing().catch(() => null);
    if (!uPlot || turn !== this.#turn || !this.isConnected) return;
    const { from, step, unit, lines } = JSON.parse(this.dataset.figures);
    const times = lines[0].values.map((_, i) => (from + i * step) / 1000), figures = [times, ...lines.map(line => line.values)];
    const shape = `${unit} ${lines.map(line => line.label)}`;
    if (this.#plot && shape === this.#shape) { this.#plot.setData(figures); latest(this.#plot); return; }
    this.#plot?.destroy();
    this.#shape = shape;
    this.#plot = new uPlot(options(unit, lines, this.clientWidth), figures, this);
    latest(this.#plot);
  }
}
customElements.define("imago-chart", Chart);

// Where nobody points at the chart, its legend says the last figures that are known.
function latest(plot) {
  if (plot.cursor.idx == null) plot.setLegend({ idx: plot.data[1].findLastIndex(value => value != null) });
}

// A line needs two points: one alone is drawn as a point.
const alone = (plot, at) => plot.data[at].flatMap((value, i, all) => value != null && all[i - 1] == null && all[i + 1] == null ? [i] : []);

function options(unit, lines, width) {
  const written = UNITS[unit], soft = () => colour("--soft"), grid = { stroke: () => colour("--line"), width: 1 }, font = "11px system-ui, sans-serif";
  const axis = { stroke: soft, grid, ticks: grid, font, labelFont: font, labelSize: 16 };
  const times = (_, splits, __, ___, apart) => splits.map((s, i) => {
    const ms = s * 1000, first = !i || day(ms) !== day(splits[i - 1] * 1000);
    return `${apart < 60 ? clock(ms) : minute(ms)}${first ? `\n${day(ms)}` : ""}`;
  });
  return {
    width, height: HEIGHT, cursor: { drag: { x: false, y: false } }, hooks: { setCursor: [latest] },
    scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
    axes: [{ ...axis, values: times, space: 70, size: 46 }, { ...axis, label: unit, size: 62, space: 36, values: (_, splits) => splits.map(v => written === perSecond || written === count ? short(v) : written(v)) }],
    series: [{ label: "time", value: (_, s) => s == null ? "–" : clock(s * 1000) },
      ...lines.map(({ label }, i) => ({ label, stroke: () => colour(COLOURS[i]), width: 2, points: { show: true, size: 4, filter: alone }, value: (_, v) => v == null ? "–" : written(v) }))],
  };
}

const short = v => v >= 1e9 ? `${+(v / 1e9).toFixed(1)} G` : v >= 1e6 ? `${+(v / 1e6).toFixed(1)} M` : v >= 1e4 ? `${+(v / 1e3).toFixed(1)} k` : String(+v.toFixed(1));

// What members say of a figure together: nothing only where none of them knows anything. Each notes
// a step when it comes to it: the last ones count once all that are at it have.
function together(items, name) {
  const all = items.map(item => item.series[name]).filter(Boolean), count = all[0]?.length ?? 0;
  const ends = all.map(values => values.findLastIndex(value => value != null)).filter(end => end >= count - LATE);
  return (all[0] || []).map((_, i) => i > Math.min(...ends) ? null : all.reduce((sum, values) => values[i] == null ? sum : (sum || 0) + values[i], null));
}

const last = line => line.values.findLast(value => value != null);

function drawn(found, unit, lines) {
  if (lines.every(line => last(line) == null)) return h("p", { class: "empty" }, "no figures yet: each broker notes them every 10 s from its start on, of the topics and groups that were used last");
  const told = lines.map(line => `${line.label}: ${UNITS[unit](last(line))} now, ${UNITS[unit](Math.max(...line.values.map(v => v ?? 0)))} at most`);
  const figures = JSON.stringify({ from: found.from, step: found.stepMs, unit, lines });
  return h("imago-chart", { "data-key": unit, "data-figures": figures, role: "img", "aria-label": `${unit}, steps of ${age(found.stepMs)}. ${told.join("; ")}` });
}

export const inAndOut = [["in", "messagesIn"], ["out", "messagesOut"]];

// A section with a chart, and links to how far it goes back, which stands in the address; and what
// its lines say now.
export async function history(here, get, title, of, unit, wanted) {
  const span = SPANS[here.asked.span] ? here.asked.span : "1h", place = `#/${here.page}${here.name ? `/${encodeURIComponent(here.name)}` : ""}`;
  const found = await get(`/admin/v1/history${query({ seconds: SPANS[span][1], points: POINTS, ...of })}`).catch(error => { if (error.status === 401) throw error; return { refused: error.message }; });
  const links = Object.entries(SPANS).map(([key, [name]]) => link(`${place}${query({ ...here.asked, span: key })}`, name, { "aria-current": key === span ? "true" : null }));
  const lines = wanted.map(([label, name]) => ({ label, values: together(found.items || [], name) }));
  const part = section([title, " ", h("span", { class: "spans", role: "group", "aria-label": "how far back" }, links)], found.refused ? h("p", { class: "bad" }, found.refused) : drawn(found, unit, lines));
  return { part, now: lines.map(last) };
}
