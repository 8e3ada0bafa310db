// Who changed what: the last lines of every broker's audit log.
import { section, table } from "./parts.js";
import { query, some, time } from "./words.js";

const ROWS = 200;

export async function audit(here, get) {
  const found = await get(`/admin/v1/audit${query({ limit: ROWS })}`);
  const rows = found.items.map((line, i) => ({ key: `${line.shard} ${line.replica} ${line.at} ${line.text} ${i}`, cells: [time(line.at), line.shard, line.replica, line.text] }));
  return { title: "Audit", missing: found.missing, parts: [section(`The last changes, since brokers started${some(found.missing)}`,
    table("audit", [["at"], ["shard"], ["replica", "n"], ["what, by whom, from where", "wrap"]], rows, "nothing was changed since"))] };
}
