// The pages of the dashboard. Each asks its broker, which asks the others, and says what it found.
import { group, groups } from "./groups.js";
import { message } from "./message.js";
import { messages } from "./messages.js";
import { overview } from "./overview.js";
import { configuration, limits } from "./settings.js";
import { topic, topics } from "./topics.js";

const either = (list, one) => (here, get) => here.name ? one(here, get) : list(here, get);
export const pages = [
  { path: "", link: "Overview", everyMs: 5000, load: overview },
  { path: "topics", link: "Topics", everyMs: 5000, load: either(topics, topic) },
  { path: "groups", link: "Groups", everyMs: 5000, load: either(groups, group) },
  { path: "messages", link: "Messages", everyMs: 0, load: messages },
  { path: "message", everyMs: 0, load: message },
  { path: "limits", link: "Limits", everyMs: 10_000, load: limits },
  { path: "configuration", link: "Configuration", everyMs: 0, load: configuration },
];
