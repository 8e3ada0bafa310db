// How fast counters grow, over the last 20 seconds: of two looks close together one commit, which comes every 5 s, would
// be far too much, or nothing. What was not looked at lately is forgotten.
const SPAN = 20_000, LATELY = 60_000;
class Rates {
  #known = new Map();
  // `least`: milliseconds that must lie between two looks before anything is said.
  of(key, value, least = 900, now = performance.now()) {
    if (this.#known.size > 20_000) this.#known.clear();
    let looks = this.#known.get(key);
    if (!looks || now - looks.at(-1).now > LATELY || value < looks.at(-1).value) this.#known.set(key, looks = []);
    if (!looks.length || now - looks.at(-1).now >= 900) looks.push({ value, now });
    while (looks.length > 2 && now - looks[1].now >= SPAN) looks.shift();
    const first = looks[0], last = looks.at(-1);
    return last.now - first.now < least || last === first ? null : (last.value - first.value) * 1000 / (last.now - first.now);
  }
}
export const rates = new Rates();
