// How fast counters grew since they were looked at before; what was not looked at lately is forgotten.
class Rates {
  #known = new Map();
  #last = new Map();
  of(key, value, now = performance.now()) {
    if (this.#known.size > 20_000) { this.#known.clear(); this.#last.clear(); }
    const old = this.#known.get(key);
    if (!old || now - old.now > 60_000 || value < old.value) this.#last.delete(key);
    else if (now - old.now < 900) return this.#last.get(key) ?? null;
    else this.#last.set(key, (value - old.value) * 1000 / (now - old.now));
    this.#known.set(key, { value, now });
    return this.#last.get(key) ?? null;
  }
}
export const rates = new Rates();
