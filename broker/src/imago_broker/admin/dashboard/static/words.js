// How numbers, sizes, times and names are written.
export const count = n => n == null ? "–" : Math.round(n).toLocaleString("en");
export const counted = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
export const perSecond = n => n == null ? "…" : n && n < 10 ? n.toFixed(1) : count(n);
export function size(n) {
  if (n == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < 4) { n /= 1024; i++; }
  return `${n.toFixed(n < 10 && i ? 1 : 0)} ${units[i]}`;
}

const two = n => String(n).padStart(2, "0");
export const minute = ms => { const d = new Date(ms); return `${two(d.getHours())}:${two(d.getMinutes())}`; };
export const clock = ms => `${minute(ms)}:${two(new Date(ms).getSeconds())}`;
export const day = ms => { const d = new Date(ms); return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`; };
export function time(ms) {
  if (!ms) return "–";
  const off = -new Date(ms).getTimezoneOffset(), hours = two(Math.trunc(Math.abs(off) / 60)), minutes = two(Math.abs(off) % 60);
  return `${day(ms)} ${clock(ms)}${off ? `${off < 0 ? "-" : "+"}${hours}:${minutes}` : "Z"}`;
}
export function age(ms) {
  const s = Math.max(0, ms / 1000);
  return s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

export const role = name => name === "slave" ? "follower" : name;
export const number = shard => shard.replace("shard-", "");
export const some = missing => missing?.length ? ", on the shards that answer" : "";
export const sum = (list, of) => list.reduce((all, each) => all + of(each), 0);
export const text = value => typeof value === "string" ? value : JSON.stringify(value);
// The nearest name that there is, which an error about another one proposes.
export const nearest = text => text.match(/Did you mean '([^']+)'\?/)?.[1];
export const path = (...names) => names.map(encodeURIComponent).join("/");
export function query(values) {
  const kept = Object.entries(values).filter(([, value]) => value != null && value !== "" && value !== false);
  return kept.length ? "?" + new URLSearchParams(kept) : "";
}
export const at = (page, name, asked) => `#/${page}/${encodeURIComponent(name)}${query(asked || {})}`;
