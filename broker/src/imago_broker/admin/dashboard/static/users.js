// Users, what they may do, and their tokens.
import { confirmed, facts, h, link, pager, section, table } from "./parts.js";
import { at, count, counted, path, query, time } from "./words.js";

const ROWS = 50;
const limits = user => Object.entries(user.quotas || {}).map(([name, most]) => `${name} ${count(most)}`).join(", ");

export async function users(here, get) {
  const [found, access] = await Promise.all([get(`/admin/v1/users${query({ limit: ROWS, next: here.asked.next })}`), get("/admin/v1/access")]);
  const rows = found.items.map(user => ({ key: user.name, cells: [link(at("users", user.name), user.name), user.enabled === false ? { text: "no", cls: "bad" } : "yes", user.super ? "everything" : counted(user.rules.length, "rule"),
    [user.password && "password", user.signs && "signs", user.tokens?.length && counted(user.tokens.length, "token")].filter(Boolean).join(", ") || "–", { text: limits(user) || "–", cls: "wrap" }] }));
  return { title: "Users", warnings: access.enabled ? [] : ["Access control is off: users and rules are kept, and nobody is asked who he is (acl.enabled)."], parts: [
    section("Users", table("users", [["user"], ["enabled"], ["may do"], ["proves it by"], ["limits", "wrap"]], rows, "no user yet: imago user create"), pager("/users", here.asked, found.next)),
    section("Addresses that are not checked", access.whiteAddresses.length ? h("p", {}, access.whiteAddresses.join(", ")) : h("p", { class: "empty" }, "none")),
  ] };
}

export async function user({ name }, get) {
  const found = await get(`/admin/v1/users/${path(name)}`), change = { path: `/admin/v1/users/${path(name)}` };
  const rules = found.rules.map((rule, i) => ({ key: String(i), cells: [rule.effect, `${rule.resource.type} ${rule.resource.name || ""}${rule.resource.patternType === "prefix" ? "*" : ""}`, rule.operations.join(", "), (rule.hosts || []).join(", ") || "anywhere"] }));
  const tokens = (found.tokens || []).map(token => ({ key: String(token.number), cells: [token.number, token.note || "–", token.expires ? time(token.expires) : "never",
    confirmed(`${name} ${token.number}`, at("users", name), { ...change, method: "DELETE", path: `${change.path}/tokens/${token.number}`, done: `Token ${token.number} of ${name} has ended.` }, "end it")] }));
  const turned = found.enabled === undefined ? null : section(found.enabled ? "Lock out" : "Let in again", confirmed(name, at("users", name), { ...change, method: "PUT", body: { enabled: !found.enabled }, done: found.enabled ? `${name} is refused from now on.` : `${name} is let in again.` }, found.enabled ? "lock out" : "let in"));
  return { title: `User ${name}`, parts: [
    section("User", facts("user", { enabled: found.enabled ?? "–", "may do everything": found.super ? "yes" : "no", password: found.password ? "yes" : "no", "signs requests": found.signs ? "yes" : "no", "addresses that are not checked": found.whiteAddresses || "none", limits: limits(found) || "none" })),
    section("Rules", table("rules", [["effect"], ["on"], ["operations", "wrap"], ["from", "wrap"]], rules, "none: it may do nothing")),
    section("Tokens", table("tokens", [["number", "n"], ["note"], ["expires"], [""]], tokens, "none")), turned,
  ] };
}
