// The page Lakehouse of Airflow's web UI, and its tabs of a run and of a task (docs/view.md).
//
// Airflow imports this module, and takes the component that it leaves in globalThis. React, the router and the colours
// are the host's, so the module needs no build and no library. It reads, and changes nothing.

const { createElement: h, useCallback, useEffect, useId, useState } = globalThis.React;
const { Link, useSearchParams } = globalThis.ReactRouterDOM;

const PAGE = "/plugin/lakehouse";
const FRESH = { settled: false, value: null, error: null };

const STYLE = `
.lh { padding: 16px; color: var(--chakra-colors-fg, CanvasText); font-size: 14px; line-height: 1.45; }
.lh h1 { font-size: 20px; font-weight: 600; margin: 0 0 12px; }
.lh h2 { font-size: 16px; font-weight: 600; margin: 20px 0 8px; }
.lh table { border-collapse: collapse; width: 100%; }
.lh th { text-align: left; font-weight: 600; color: var(--chakra-colors-fg-muted, GrayText); }
.lh th, .lh td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--chakra-colors-border, #8884); vertical-align: top; }
.lh td.n, .lh th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.lh tr.chosen td { background: var(--chakra-colors-bg-muted, #8882); }
.lh a { color: var(--chakra-colors-blue-fg, LinkText); }
.lh a:hover { text-decoration: underline; }
.lh .row { display: flex; flex-wrap: wrap; gap: 12px; align-items: end; margin-bottom: 12px; }
.lh label { display: flex; flex-direction: column; gap: 2px; color: var(--chakra-colors-fg-muted, GrayText); font-size: 12px; }
.lh select, .lh input, .lh button { font: inherit; font-size: 14px; color: var(--chakra-colors-fg, CanvasText);
  background: var(--chakra-colors-bg, Canvas); border: 1px solid var(--chakra-colors-border, #8888); border-radius: 4px;
  padding: 4px 8px; min-width: 120px; }
.lh button { cursor: pointer; min-width: 0; }
.lh button[aria-selected="true"] { border-color: var(--chakra-colors-blue-fg, LinkText); font-weight: 600; }
.lh button:disabled { opacity: 0.5; cursor: default; }
.lh :focus-visible { outline: 2px solid var(--chakra-colors-blue-fg, Highlight); outline-offset: 1px; }
.lh .muted { color: var(--chakra-colors-fg-muted, GrayText); }
.lh .error { border-left: 4px solid var(--chakra-colors-red-solid, #c33); padding: 6px 12px; margin: 8px 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.lh .path { overflow-wrap: anywhere; }
.lh .whole { white-space: nowrap; }
.lh section { border-left: 4px solid var(--chakra-colors-border, #8884); padding-left: 16px; margin: 0 0 20px; }
.lh section h2 { margin-top: 0; }
.lh svg { display: block; width: 100%; height: 140px; }
.lh svg .added { fill: var(--chakra-colors-green-solid, #2a8); }
.lh svg .removed { fill: var(--chakra-colors-orange-solid, #c72); }
.lh svg .rewritten { fill: var(--chakra-colors-gray-solid, #888); }
.lh svg .axis { stroke: var(--chakra-colors-border, #8888); }
.lh svg .settled { fill: var(--chakra-colors-red-solid, #c33); }
.lh svg g.bar { cursor: pointer; }
.lh svg g.bar:hover rect.back, .lh svg g.chosen rect.back { fill: var(--chakra-colors-bg-muted, #8883); }
.lh svg rect.back { fill: transparent; }
.lh dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0 0 8px; }
.lh dt { color: var(--chakra-colors-fg-muted, GrayText); }
.lh dd { margin: 0; overflow-wrap: anywhere; }
`;

// -- asking -----------------------------------------------------------------------------------------------------------

async function ask(path, query = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  const answer = await fetch(url, { credentials: "same-origin", headers: { Accept: "application/json" } });
  if (answer.status === 401) throw new Error("You are signed out. Load this page again to sign in.");
  if (answer.status === 403) throw new Error("You may not see this: it needs the permission to read assets.");
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(body?.detail ?? `The server answered ${answer.status}.`);
  return body;
}

// Asks when the key changes; an answer to an older question is dropped.
function useAnswer(key, question) {
  const [state, setState] = useState(FRESH);
  useEffect(() => {
    let current = true;
    setState(FRESH);
    if (key !== null) {
      question().then(
        (value) => current && setState({ settled: true, value, error: null }),
        (error) => current && setState({ settled: true, value: null, error: error.message }),
      );
    }
    return () => {
      current = false;
    };
  }, [key]);
  return state;
}

const about = (connection, what, table, more = {}) =>
  ask(`onelake/lakehouses/${encodeURIComponent(connection)}/${what}`, { table, ...more });

// -- words ------------------------------------------------------------------------------------------------------------

const count = (number) => (number === null || number === undefined ? "?" : Number(number).toLocaleString("en"));

function size(bytes) {
  let [value, unit] = [bytes, "bytes"];
  for (const next of ["KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1024) break;
    [value, unit] = [value / 1024, next];
  }
  return unit === "bytes" ? `${value} bytes` : `${value.toFixed(1)} ${unit}`;
}

const time = (instant) => (instant ? new Date(instant).toISOString().replace("T", " ").slice(0, 19) : "");

function age(seconds) {
  for (const [unit, length] of [["days", 86400], ["hours", 3600], ["minutes", 60]]) {
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return `${seconds} seconds`;
}

const changed = (commit) =>
  [commit.rows_added !== 0 && `+${count(commit.rows_added)}`, commit.rows_removed !== 0 && `−${count(commit.rows_removed)}`]
    .filter(Boolean)
    .join(" ") || "0";

const by = (commit) => (commit.writers ? `${commit.load}: ${commit.writers}` : commit.engine ?? "");

// -- parts ------------------------------------------------------------------------------------------------------------

const Problem = ({ text }) => (text ? h("div", { className: "error", role: "alert" }, text) : null);
const Waiting = () => h("p", { className: "muted", role: "status" }, "Loading …");

function Answer({ state, children }) {
  if (!state.settled) return h(Waiting);
  return state.error ? h(Problem, { text: state.error }) : children(state.value);
}

function Choice({ label, value, options, onChange }) {
  return h(
    "label",
    null,
    label,
    h(
      "select",
      { value: value ?? "", onChange: (event) => onChange(event.target.value) },
      value ? null : h("option", { value: "" }, "choose …"),
      options.map((option) => h("option", { key: option, value: option }, option)),
    ),
  );
}

function Grid({ columns, rows, chosen }) {
  return h(
    "table",
    null,
    h("thead", null, h("tr", null, columns.map(({ name, numbers }) => h("th", { key: name, className: numbers ? "n" : "" }, name)))),
    h(
      "tbody",
      null,
      rows.map((row, index) =>
        h(
          "tr",
          { key: index, className: chosen?.(row) ? "chosen" : "" },
          columns.map(({ name, numbers, whole, cell }) =>
            h("td", { key: name, className: numbers ? "n" : whole ? "whole" : "path" }, cell(row)),
          ),
        ),
      ),
    ),
  );
}

// A bar a version, the oldest on the left: added rows go up, removed rows down, by the square root, so that a small
// commit beside a large one is still seen. A red dot marks settled conflicts.
function Timeline({ commits, chosen, onChoose }) {
  const title = useId();
  const shown = [...commits].reverse();
  const most = Math.max(1, ...shown.flatMap((commit) => [commit.rows_added ?? 0, commit.rows_removed ?? 0]));
  const tall = (rows) => (rows ? Math.max(3, 58 * Math.sqrt(rows / most)) : 0);
  const wide = 1000 / Math.max(shown.length, 12);
  const bar = (commit, index) => {
    const [x, up, down] = [index * wide, tall(commit.rows_added), tall(commit.rows_removed)];
    const rewritten = !up && !down && commit.files_added > 0;
    const words = `Version ${commit.version}, ${commit.operation ?? "unknown"}, ${changed(commit)} rows, ${time(commit.time)} UTC`;
    const act = () => onChoose(commit.version);
    return h(
      "g",
      {
        key: commit.version,
        className: `bar ${commit.version === chosen ? "chosen" : ""}`,
        role: "button",
        tabIndex: 0,
        "aria-label": words,
        "data-version": commit.version,
        onClick: act,
        onKeyDown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), act()),
      },
      h("title", null, words),
      h("rect", { className: "back", x, y: 0, width: wide, height: 140 }),
      h("rect", { className: "added", x: x + wide * 0.15, y: 70 - up, width: wide * 0.7, height: up }),
      h("rect", { className: "removed", x: x + wide * 0.15, y: 70, width: wide * 0.7, height: down }),
      rewritten ? h("rect", { className: "rewritten", x: x + wide * 0.15, y: 66, width: wide * 0.7, height: 8 }) : null,
      commit.settled ? h("ellipse", { className: "settled", cx: x + wide / 2, cy: 6, rx: Math.min(wide * 0.2, 5), ry: 4 }) : null,
    );
  };
  return h(
    "div",
    null,
    h("p", { className: "muted", id: title }, "Rows added (up) and removed (down) by each version; grey: only files changed; red dot: conflicts were settled."),
    h(
      "svg",
      { viewBox: "0 0 1000 140", preserveAspectRatio: "none", role: "group", "aria-labelledby": title },
      h("line", { className: "axis", x1: 0, x2: 1000, y1: 70, y2: 70 }),
      shown.map(bar),
    ),
  );
}

// -- a table ----------------------------------------------------------------------------------------------------------

function Commits({ connection, table, version, choose }) {
  const [before, setBefore] = useState([]);
  const [word, setWord] = useState("");
  const at = before.at(-1) ?? null;
  const state = useAnswer(`${connection} ${table} ${at}`, () => about(connection, "commits", table, { before: at, limit: 100 }));
  return h(Answer, { state }, (page) => {
    const wanted = word.toLowerCase();
    const shown = page.commits.filter((commit) => `${commit.operation} ${by(commit)}`.toLowerCase().includes(wanted));
    return h(
      "div",
      null,
      h(Timeline, { commits: shown, chosen: version, onChoose: choose }),
      h(
        "div",
        { className: "row" },
        h("label", null, "Filter by operation, load or writer", h("input", { value: word, onChange: (event) => setWord(event.target.value) })),
        h("button", { disabled: !before.length, onClick: () => setBefore(before.slice(0, -1)) }, "Newer"),
        h("button", { disabled: page.before === null, onClick: () => setBefore([...before, page.before]) }, "Older"),
        h("span", { className: "muted" }, `${shown.length} of ${page.newest + 1} versions${page.cleaned_up ? "; older entries of the log were cleaned up" : ""}`),
      ),
      version === null ? null : h(Commit, { key: version, connection, table, version }),
      h(Grid, {
        rows: shown,
        chosen: (commit) => commit.version === version,
        columns: [
          { name: "Version", numbers: true, cell: (commit) => h("button", { onClick: () => choose(commit.version) }, commit.version) },
          { name: "When (UTC)", cell: (commit) => time(commit.time) },
          { name: "Operation", cell: (commit) => commit.operation },
          { name: "By", cell: by },
          { name: "Rows", numbers: true, cell: changed },
          { name: "Files", numbers: true, cell: (commit) => `+${commit.files_added} −${commit.files_removed}` },
          { name: "Size", numbers: true, cell: (commit) => size(commit.bytes_added) },
          { name: "Settled", numbers: true, cell: (commit) => commit.settled },
        ],
      }),
    );
  });
}

const toTask = ({ dag, run, task, map_index }) =>
  `/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}/tasks/${encodeURIComponent(task)}${map_index < 0 ? "" : `/mapped/${map_index}`}`;

function Commit({ connection, table, version }) {
  const state = useAnswer(`${connection} ${table} ${version}`, () => about(connection, `commits/${version}`, table));
  return h(
    "section",
    { "aria-label": `Version ${version}` },
    h("h2", null, `Version ${version}`),
    h(Answer, { state }, (commit) =>
      h(
        "div",
        null,
        h(
          "dl",
          null,
          [
            ["Operation", commit.operation],
            ["Load", commit.load],
            ["Engine", commit.engine],
            ["Into", commit.partitions_added.join(", ")],
            ["Out of", commit.partitions_removed.join(", ")],
            ["Counts before", commit.counts_before === null ? "" : `version ${commit.counts_before}`],
            ["Definition", commit.changes_definition ? "changed" : ""],
          ]
            .filter(([, value]) => value)
            .flatMap(([name, value]) => [h("dt", { key: name }, name), h("dd", { key: `${name} is` }, value)]),
        ),
        commit.published.length
          ? h(Grid, {
              rows: commit.published.map((writer, index) => ({ ...writer, at: commit.tasks[index] })),
              columns: [
                { name: "Writer", cell: (writer) => (writer.at ? h(Link, { to: toTask(writer.at) }, writer.writer) : writer.writer) },
                { name: "Rows", numbers: true, cell: (writer) => (writer.set_aside ? "set aside" : count(writer.rows)) },
                { name: "Finished (UTC)", cell: (writer) => time(writer.finished) },
                { name: "Buffer", cell: (writer) => writer.buffer },
              ],
            })
          : null,
        commit.settled_in_words.length
          ? h("ul", null, commit.settled_in_words.map((sentence) => h("li", { key: sentence }, sentence)))
          : null,
      ),
    ),
  );
}

function Partitions({ connection, table }) {
  const state = useAnswer(`${connection} ${table}`, () => about(connection, "partitions", table));
  return h(Answer, { state }, (found) =>
    h(
      "div",
      null,
      h("p", null, `${count(found.rows)} rows in ${count(found.files)} files of ${size(found.bytes)}, ${count(found.partitions)} partitions, version ${found.version}`),
      h(Grid, {
        rows: found.largest,
        columns: [
          { name: "Partition", cell: (row) => row.name },
          { name: "Rows", numbers: true, cell: (row) => count(row.rows) },
          { name: "Files", numbers: true, cell: (row) => count(row.files) },
          { name: "Size", numbers: true, cell: (row) => size(row.bytes) },
          { name: "A compaction would rewrite", numbers: true, cell: (row) => (row.to_compact ? `${row.to_compact} files` : "–") },
        ],
      }),
      found.partitions > found.largest.length ? h("p", { className: "muted" }, `The largest ${found.largest.length} of ${found.partitions}.`) : null,
    ),
  );
}

function Staged({ connection, table }) {
  const staged = useAnswer(`${connection} ${table} staged`, () => about(connection, "staged", table));
  const kept = useAnswer(`${connection} ${table} kept`, () => about(connection, "kept", table));
  return h(
    "div",
    null,
    h(Answer, { state: staged }, (rows) =>
      rows.length
        ? h(Grid, {
            rows,
            columns: [
              { name: "State", cell: (row) => row.state },
              { name: "Owner", cell: (row) => row.owner },
              { name: "Complete", cell: (row) => (row.complete ? "yes" : "no") },
              { name: "Last written", numbers: true, cell: (row) => `${age(row.age_seconds)} ago` },
              { name: "Path", cell: (row) => row.path },
            ],
          })
        : h("p", null, "Nothing is staged below this table."),
    ),
    h("h2", null, "Kept versions"),
    h(Answer, { state: kept }, (rows) =>
      rows.length
        ? h(Grid, {
            rows,
            columns: [
              { name: "Version", numbers: true, cell: (row) => row.version },
              { name: "Kept by", cell: (row) => row.by },
              { name: "Since (UTC)", cell: (row) => time(row.since) },
              { name: "Until (UTC)", cell: (row) => time(row.until) || "it is released" },
            ],
          })
        : h("p", null, "No version is kept: a vacuum goes by the table's retention alone."),
    ),
  );
}

function Health({ connection, table }) {
  const [asked, setAsked] = useState(false);
  const state = useAnswer(asked ? `${connection} ${table}` : null, () => about(connection, "health", table));
  if (!asked) {
    return h(
      "p",
      null,
      h("button", { onClick: () => setAsked(true) }, "Examine the table"),
      h("span", { className: "muted" }, " lists every object of the table, which takes a while for a large one."),
    );
  }
  return h(Answer, { state }, (found) =>
    found.findings.length
      ? h(Grid, {
          rows: found.findings,
          columns: [
            { name: "How bad", cell: (finding) => finding.severity },
            { name: "What", cell: (finding) => finding.what },
            { name: "What to do", cell: (finding) => finding.todo },
          ],
        })
      : h("p", null, "Nothing to do."),
  );
}

const TABS = { Versions: Commits, Partitions, Staged, Health };

// -- the page ---------------------------------------------------------------------------------------------------------

function Page() {
  const [query, setQuery] = useSearchParams();
  const [connection, table, tab] = [query.get("connection"), query.get("table"), query.get("tab") ?? "Versions"];
  const version = /^\d+$/.test(query.get("version") ?? "") ? Number(query.get("version")) : null;
  const go = useCallback((to) => setQuery(Object.fromEntries(Object.entries(to).filter(([, value]) => value !== null))), [setQuery]);
  const lakehouses = useAnswer("lakehouses", () => ask("onelake/lakehouses"));
  const known = lakehouses.value ?? [];
  const only = known.length === 1 ? known[0].connection : null;
  const current = connection ?? only;
  const tables = useAnswer(current, () => about(current, "tables"));
  const Shown = TABS[tab] ?? Commits;
  return h(
    "main",
    { className: "lh" },
    h("style", null, STYLE),
    h("h1", null, table ?? "Lakehouse"),
    h(Problem, { text: lakehouses.error }),
    h(
      "div",
      { className: "row" },
      h(Choice, {
        label: "Connection",
        value: current,
        options: known.map((each) => each.connection),
        onChange: (value) => go({ connection: value }),
      }),
      h(Choice, {
        label: "Table",
        value: table,
        options: [...new Set([...(tables.value ?? []), ...(table ? [table] : [])])],
        onChange: (value) => go({ connection: current, table: value }),
      }),
    ),
    known.filter((each) => each.error).map((each) => h(Problem, { key: each.connection, text: `${each.connection}: ${each.error}` })),
    current ? h(Problem, { text: tables.error }) : null,
    current && table
      ? h(
          "div",
          null,
          h(
            "div",
            { className: "row", role: "tablist" },
            Object.keys(TABS).map((name) =>
              h("button", { key: name, role: "tab", "aria-selected": name === tab, onClick: () => go({ connection: current, table, tab: name }) }, name),
            ),
          ),
          h(Shown, {
            key: `${current} ${table}`,
            connection: current,
            table,
            version,
            choose: (chosen) => go({ connection: current, table, version: String(chosen) }),
          }),
        )
      : h("p", { className: "muted" }, "Choose a connection and a table to see its versions, partitions and buffers."),
  );
}

// -- the tabs of a run and of a task ------------------------------------------------------------------------------------

// What tasks of this provider return names a table; Airflow itself decides who may read it.
async function results({ dagId, runId, taskId, mapIndex }) {
  const run = `api/v2/dags/${encodeURIComponent(dagId)}/dagRuns/${encodeURIComponent(runId)}`;
  const entries = [];
  for (let offset = 0; ; offset += 100) {
    const page = await ask(`${run}/taskInstances/${encodeURIComponent(taskId ?? "~")}/xcomEntries`, { xcom_key: "return_value", limit: 100, offset });
    entries.push(...page.xcom_entries);
    if (entries.length >= page.total_entries || !page.xcom_entries.length) break;
  }
  const index = mapIndex === undefined || mapIndex === null ? null : Number(mapIndex);
  const wanted = entries.filter((entry) => index === null || entry.map_index === index);
  const values = await Promise.all(
    wanted.map(async (entry) => {
      const path = `${run}/taskInstances/${encodeURIComponent(entry.task_id)}/xcomEntries/return_value`;
      const { value } = await ask(path, { map_index: entry.map_index, deserialize: false });
      return { task: entry.task_id, map_index: entry.map_index, value: typeof value === "string" ? parsed(value) : value };
    }),
  );
  return values.filter(({ value }) => value && typeof value === "object" && typeof value.table === "string");
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function Loads(where) {
  const state = useAnswer(JSON.stringify(where), () => results(where));
  const lakehouses = useAnswer("lakehouses", () => ask("onelake/lakehouses").catch(() => []));
  const known = (lakehouses.value ?? [])
    .filter((each) => each.lakehouse)
    .map((each) => ({ connection: each.connection, root: `${each.lakehouse.replace(/\/+$/, "")}/` }));
  const toTable = (address, version) => {
    const found = known.find(({ root }) => address.startsWith(root));
    if (!found) return address;
    const table = address.slice(found.root.length);
    const query = new URLSearchParams({ connection: found.connection, table });
    if (Number.isInteger(version)) query.set("version", version);
    return h(Link, { to: `${PAGE}?${query}`, title: address }, table);
  };
  return h(
    "main",
    { className: "lh" },
    h("style", null, STYLE),
    h(Answer, { state }, (rows) =>
      rows.length
        ? h(Grid, {
            rows,
            columns: [
              { name: "Task", whole: true, cell: (row) => `${row.task}${row.map_index < 0 ? "" : `[${row.map_index}]`}` },
              { name: "Writer", whole: true, cell: ({ value }) => value.writer },
              { name: "Outcome", whole: true, cell: ({ value }) => value.status ?? value.summary },
              { name: "Rows", numbers: true, cell: ({ value }) => (value.rows === undefined ? "" : count(value.rows)) },
              { name: "Version", numbers: true, cell: ({ value }) => value.version },
              { name: "Table", cell: ({ value }) => toTable(value.table, value.version) },
            ],
          })
        : h("p", null, "No task here has written a Delta table, or none has ended yet."),
    ),
  );
}

globalThis.Lakehouse = (props) => (props?.dagId && props?.runId ? h(Loads, props) : h(Page));
