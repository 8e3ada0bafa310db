// The pages of the dashboard. Each asks its broker, which asks the others, and says what it found.
import { audit } from "./audit.js";
import { client, clients } from "./clients.js";
import { configuration, setting } from "./configuration.js";
import { doctor } from "./doctor.js";
import { group, groups } from "./groups.js";
import { letter, letters } from "./letters.js";
import { limits } from "./limits.js";
import { message } from "./message.js";
import { messages } from "./messages.js";
import { nodes } from "./nodes.js";
import { overview } from "./overview.js";
import { pipelines } from "./pipelines.js";
import { topic, topics } from "./topics.js";
import { user, users } from "./users.js";
import { decision, waiting } from "./waiting.js";

const either = (list, one) => (here, get) => here.name ? one(here, get) : list(here, get);
export const pages = [
  { path: "", link: "Overview", everyMs: 5000, load: overview },
  { path: "topics", link: "Topics", everyMs: 5000, load: either(topics, topic) },
  { path: "groups", link: "Groups", everyMs: 5000, load: either(groups, group) },
  { path: "messages", link: "Messages", everyMs: 0, load: messages },
  { path: "message", everyMs: 0, load: message },
  { path: "letters", link: "Dead letters", everyMs: 10_000, load: either(letters, letter) },
  { path: "waiting", link: "Waiting", everyMs: 10_000, load: either(waiting, decision) },
  { path: "clients", link: "Clients", everyMs: 10_000, load: either(clients, client) },
  { path: "nodes", link: "Nodes", everyMs: 10_000, load: nodes },
  { path: "pipelines", link: "Pipelines", everyMs: 10_000, load: pipelines },
  { path: "users", link: "Users", everyMs: 10_000, load: either(users, user) },
  { path: "limits", link: "Limits", everyMs: 10_000, load: limits },
  { path: "configuration", link: "Configuration", everyMs: 0, load: either(configuration, setting) },
  { path: "audit", link: "Audit", everyMs: 10_000, load: audit },
  { path: "doctor", link: "Doctor", everyMs: 10_000, load: doctor },
];
