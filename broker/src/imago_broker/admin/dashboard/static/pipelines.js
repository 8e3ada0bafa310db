// A pipeline of Spark: which run may write, and how far it is.
import { facts, field, find, h, section } from "./parts.js";
import { count, path, time } from "./words.js";

export async function pipelines(here, get) {
  const name = here.asked.name || here.name, form = section("Look up", find("/pipelines", field("name of the pipeline", "name", name, { required: true })));
  if (!name) return { title: "Pipelines", parts: [form] };
  const found = await get(`/admin/v1/pipelines/${path(name)}`), { progress } = found;
  return { title: "Pipelines", parts: [form, section(name,
    found.epoch ? facts("pipeline", { "run that may write": found.epoch, ...(progress ? { rows: count(progress.rows), "messages behind": count(progress.lag), batch: count(progress.batch), reported: time(progress.at) } : { progress: "nothing was reported yet" }) })
      : h("p", { class: "empty" }, "No run of this pipeline was ever started."))] };
}
