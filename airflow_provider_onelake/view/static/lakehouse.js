// The page Lakehouse of Airflow's web UI, and its tabs of a run and of a task (docs/operate/view.md).
//
// Airflow imports this module, and takes the component that it leaves in globalThis. React, the router and the colours
// are the host's, so the module needs no build and no library. It reads, and changes nothing.

const { createElement: h, useEffect, useId, useState } = globalThis.React;
const { Link, useSearchParams } = globalThis.ReactRouterDOM;

const PAGE = "/plugin/lakehouse";
const FRESH = { settled: false, value: null, error: null, trouble: null };

const STYLE = `
.lh { padding: 16px; color: var(--chakra-colors-fg, CanvasText); font-size: 14px; line-height: 1.45; container-type: inline-size;
  --line: color-mix(in srgb, var(--chakra-colors-fg-muted, GrayText) 70%, var(--chakra-colors-bg, Canvas));
  --mark: color-mix(in srgb, var(--chakra-colors-fg, CanvasText) 12%, transparent); }
.lh h1 { font-size: 20px; font-weight: 600; margin: 0 0 12px; overflow-wrap: anywhere; }
.lh h2 { font-size: 16px; font-weight: 600; margin: 20px 0 8px; }
.lh h3 { font-weight: 600; margin: 12px 0 4px; }
.lh p { margin: 8px 0; }
.lh ul { list-style: disc; padding-left: 20px; margin: 0; }
.lh .wide { overflow-x: auto; }
.lh table { border-collapse: collapse; width: 100%; }
.lh th { text-align: left; white-space: nowrap; font-weight: 600; color: var(--chakra-colors-fg-muted, GrayText); }
.lh th, .lh td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--chakra-colors-border, #8884); vertical-align: top; }
.lh td.path { min-width: 15em; }
.lh td.n, .lh th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.lh tr.chosen td { background: var(--mark); }
.lh a { color: var(--chakra-colors-blue-fg, LinkText); }
.lh a:hover { text-decoration: underline; }
.lh .row { display: flex; flex-wrap: wrap; gap: 12px; align-items: end; margin-bottom: 12px; }
.lh label { display: flex; flex-direction: column; gap: 2px; max-width: 100%; color: var(--chakra-colors-fg-muted, GrayText); font-size: 12px; }
.lh select, .lh input, .lh button { font: inherit; font-size: 14px; color: var(--chakra-colors-fg, CanvasText);
  background: var(--chakra-colors-bg, Canvas); border: 1px solid var(--line); border-radius: 4px;
  padding: 4px 8px; min-width: 120px; max-width: 100%; min-height: 31px; }
.lh select { max-width: min(100%, 36em); }
.lh form input { width: 160px; }
.lh label.check { flex-direction: row; align-items: center; gap: 6px; font-size: 14px; padding-bottom: 5px; }
.lh .check input { min-width: 0; width: 16px; height: 16px; min-height: 0; }
.lh button { cursor: pointer; min-width: 0; }
.lh button[aria-selected="true"] { border-color: var(--chakra-colors-blue-fg, LinkText); font-weight: 600;
  box-shadow: inset 0 -2px var(--chakra-colors-blue-fg, LinkText); }
.lh button:disabled { opacity: 0.5; cursor: default; }
.lh :focus-visible { outline: 2px solid var(--chakra-colors-blue-fg, Highlight); outline-offset: 1px; }
.lh .muted { color: var(--chakra-colors-fg-muted, GrayText); }
.lh .error { border-left: 4px solid var(--chakra-colors-red-solid, #c33); padding: 6px 12px; margin: 8px 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.lh .path, .lh .path * { overflow-wrap: anywhere; }
.lh .whole { white-space: nowrap; }
.lh .word { font-weight: 600; }
.lh nav { margin-bottom: 4px; }
.lh summary { cursor: pointer; margin: 12px 0; }
.lh section { border-left: 4px solid var(--chakra-colors-border, #8884); padding-left: 16px; margin: 0 0 20px; }
.lh section h2 { margin: 0; }
.lh svg { display: block; width: 100%; height: 140px; }
.lh svg .added { fill: color-mix(in srgb, var(--chakra-colors-green-solid, #2a8) 75%, var(--chakra-colors-fg, CanvasText)); }
.lh svg .removed { fill: color-mix(in srgb, var(--chakra-colors-orange-solid, #c72) 85%, var(--chakra-colors-fg, CanvasText)); }
.lh svg .rewritten { fill: var(--chakra-colors-fg-muted, GrayText); }
.lh svg .axis { stroke: var(--line); }
.lh svg .settled { fill: color-mix(in srgb, var(--chakra-colors-red-solid, #c33) 80%, var(--chakra-colors-fg, CanvasText)); }
.lh svg g.bar { cursor: pointer; }
.lh svg rect.back { fill: transparent; }
.lh svg g.bar:hover rect.back, .lh svg g.chosen rect.back { fill: var(--mark); }
.lh svg g.bar:focus-visible { outline: none; }
.lh svg g.bar:focus-visible rect.back { fill: var(--mark); stroke: var(--chakra-colors-blue-fg, Highlight);
  stroke-width: 3px; }
.lh dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0 0 8px; }
.lh dt { color: var(--chakra-colors-fg-muted, GrayText); }
.lh dd { margin: 0; overflow-wrap: anywhere; }
@container (max-width: 640px) {
  .lh table, .lh tbody, .lh tr { display: block; }
  .lh thead { display: none; }
  .lh tr { border-bottom: 1px solid var(--line); padding: 6px 0; }
  .lh td, .lh td.n, .lh td .whole, .lh td.whole { text-align: left; white-space: normal; }
  .lh td { display: flex; gap: 12px; min-width: 0; padding: 1px 0; border: 0; }
  .lh td::before { content: attr(data-name); flex: 0 0 8em; color: var(--chakra-colors-fg-muted, GrayText); }
}
`;

// -- asking -----------------------------------------------------------------------------------------------------------

// What may pass by itself: it is said, and the question is asked again.
class Trouble extends Error {}

async function ask(path, query = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") [value].flat().forEach((one) => url.searchParams.append(name, one));
  }
  const answer = await fetch(url, { credentials: "same-origin", headers: { Accept: "application/json" } }).catch((error) => {
    throw new Trouble(`Airflow's API server gives no answer (${error.message}).`);
  });
  if (answer.status === 401) throw new Error("You are signed out. Load this page again to sign in.");
  const body = await answer.json().catch(() => null);
  // Airflow's own refusals say no more than this word.
  if (answer.status === 403 && (body?.detail ?? "Forbidden") === "Forbidden") {
    const needed = path.startsWith("onelake/") ? "assets" : "the XComs of this DAG";
    throw new Error(`You may not see this: it needs the permission to read ${needed}. Ask your administrator.`);
  }
  if (answer.ok && body === null) throw new Trouble("The answer of Airflow's API server broke off.");
  if (answer.ok) return body;
  const Kind = [502, 503, 504].includes(answer.status) ? Trouble : Error;
  throw Object.assign(new Kind(body?.detail ?? `The server answered ${answer.status}.`), { status: answer.status });
}

// At every change of its address, the host draws the page anew, from nothing. So what was answered lately is kept here,
// and what is to have the focus as soon as it is drawn.
const KEPT_FOR = 60_000;
// In milliseconds, before a question is asked again that was not answered.
const [FIRST_PAUSE, LONGEST_PAUSE] = [1_000, 30_000];
const MOST_KEPT = 50;
const answers = new Map();
let wanted = null;

function keep(key, value) {
  answers.delete(key);
  answers.set(key, { value, at: Date.now() });
  if (answers.size > MOST_KEPT) answers.delete(answers.keys().next().value);
}

function kept(key) {
  const found = answers.get(key);
  return found && Date.now() - found.at < KEPT_FOR ? { ...FRESH, settled: true, value: found.value } : FRESH;
}

// Asks when the key changes; an answer to an older question is dropped.
function useAnswer(key, question) {
  const [state, setState] = useState(() => kept(key));
  useEffect(() => {
    let current = true;
    let waiting = null;
    const put = (pause) =>
      question().then(
        (value) => (keep(key, value), current && setState({ ...FRESH, settled: true, value })),
        (error) => {
          if (!current) return;
          if (!(error instanceof Trouble)) return setState({ ...FRESH, settled: true, error: error.message });
          setState({ ...FRESH, trouble: error.message });
          waiting = setTimeout(() => put(Math.min(2 * pause, LONGEST_PAUSE)), pause);
        },
      );
    const known = kept(key);
    setState(known);
    if (key !== null && !known.settled) put(FIRST_PAUSE);
    return () => {
      current = false;
      clearTimeout(waiting);
    };
  }, [key]);
  return state;
}

function useFocus() {
  useEffect(() => {
    const found = wanted && document.querySelector(`.lh ${wanted}`);
    if (!found) return;
    wanted = null;
    found.focus();
  });
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

// How many rows more a table has.
const changed = ({ rows }) => (rows > 0 ? `+${count(rows)}` : rows < 0 ? `−${count(-rows)}` : count(rows));

// What the difference does not say: that rows were put in the place of others, or updated.
const besides = (commit) =>
  [commit.rows_new && commit.rows_gone && `${count(commit.rows_new)} new, ${count(commit.rows_gone)} gone`, commit.rows_updated && `${count(commit.rows_updated)} updated`]
    .filter(Boolean)
    .join("; ");

const inRows = (commit) => `${changed(commit)} rows${besides(commit) && ` (${besides(commit)})`}`;
const noted = (text, note, whole) => block(text, note ? h("div", { className: whole ? "muted whole" : "muted" }, note) : null);
// The time in most runs' names is not broken into two lines.
const ofRun = (text, run) => noted(text, run && `run ${run}`, run?.length < 48);
const by = ({ by: who, run }) => ofRun(who ?? "not known", run);

// What became of a writer, and how its task is, in words in place of identifiers.
const WORDS = {
  already_done: "done by an earlier try",
  already_published: "published by an earlier try",
  deleted: "rows were deleted or changed since",
  held_back: "held back: a writer of its load is missing",
  missing: "missing: it left no complete buffer",
  refused: "refused: not published",
  restored_away: "taken back by a RESTORE",
  set_aside: "left out: another write was first",
  skipped: "skipped: its rows were in the table",
  staged: "staged: its reconcile publishes it",
  superseded: "replaced by other writers",
  up_for_retry: "waits for its next try",
  waiting: "staged: its task has not merged it",
  warned: "published, with a warning",
};
const inWords = (word) => WORDS[word] ?? String(word ?? "").replaceAll("_", " ");

// -- parts ------------------------------------------------------------------------------------------------------------

const block = (...children) => h("div", null, ...children);
const sheet = (...children) => h("div", { className: "lh" }, h("style", null, STYLE), ...children);
const Problem = ({ text }) => (text ? h("div", { className: "error", role: "alert" }, text) : null);
const Waiting = ({ trouble }) =>
  h("p", { className: "muted", role: "status" }, trouble ? `${trouble} The page asks again.` : "Loading …");

function Answer({ state, children }) {
  useFocus();
  if (!state.settled) return h(Waiting, { trouble: state.trouble });
  return state.error ? h(Problem, { text: state.error }) : children(state.value);
}

function Search({ label, names, values, onSearch, children }) {
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    onSearch(Object.fromEntries(names.map((name) => [name, String(given.get(name) ?? "").trim() || null])));
  };
  const text = (name, words, more) => h("label", { key: name }, words, h("input", { name, defaultValue: values[name] ?? "", ...more }));
  const all = () => onSearch(Object.fromEntries(names.map((name) => [name, null])));
  return h(
    "form",
    // What stands in the fields is what the address says, also after a step back.
    { className: "row", role: "search", "aria-label": label, key: JSON.stringify(values), onSubmit: submit },
    children(text),
    h("button", { type: "submit" }, "Filter"),
    Object.keys(values).length ? h("button", { type: "button", onClick: all }, "Show all") : null,
  );
}

function Grid({ label, columns, rows, chosen }) {
  const table = h(
    "table",
    { "aria-label": label },
    h("thead", null, h("tr", null, columns.map(({ name, numbers }) => h("th", { key: name, scope: "col", className: numbers ? "n" : "" }, name)))),
    h(
      "tbody",
      null,
      rows.map((row, index) =>
        h(
          "tr",
          { key: index, className: chosen?.(row) ? "chosen" : "" },
          columns.map(({ name, numbers, whole, cell }) =>
            h("td", { key: name, "data-name": name, className: numbers ? "n" : whole ? "whole" : "path" }, cell(row)),
          ),
        ),
      ),
    ),
  );
  // A table may be wider than the page, so it can be scrolled, also by keyboard. In a narrow page, cells stand below each other.
  return h("div", { className: "wide", role: "region", "aria-label": label, tabIndex: 0 }, table);
}

// A bar a version, the oldest on the left: added rows go up, removed rows down, by the square root, so that a small
// commit beside a large one is still seen. A red dot marks settled conflicts. By keyboard, the bars are one stop: arrows
// lead from one to the next. What is across is a share of the width, so nothing is stretched, and a dot is round.
function Timeline({ commits, chosen, onChoose }) {
  const title = useId();
  const [at, setAt] = useState(null);
  const shown = [...commits].reverse();
  const most = Math.max(1, ...shown.flatMap((commit) => [commit.rows_new ?? 0, commit.rows_gone ?? 0]));
  const tall = (rows) => (rows ? Math.max(3, 58 * Math.sqrt(rows / most)) : 0);
  const wide = 100 / Math.max(shown.length, 12);
  // Of many versions the bars are narrow, and dots beside each other must not touch.
  const radius = Math.min(4, Math.max(2, 250 / shown.length));
  const has = (version) => shown.some((commit) => commit.version === version);
  const stop = [at, chosen].find((version) => version !== null && has(version)) ?? shown.at(-1)?.version;
  const bar = (commit, index) => {
    const [x, up, down] = [index * wide, tall(commit.rows_new), tall(commit.rows_gone)];
    const inner = { x: `${x + wide * 0.15}%`, width: `${wide * 0.7}%` };
    const flat = up || down ? 0 : commit.files_added > 0 ? 8 : 3;
    const settled = commit.settled ? `, ${commit.settled} conflicts settled` : "";
    const words = `Version ${commit.version}, ${commit.operation ?? "unknown"}, ${inRows(commit)}, ${time(commit.time)} UTC${settled}`;
    const act = () => onChoose(commit.version);
    const onKeyDown = (event) => {
      const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: shown.length - 1 }[event.key];
      if (to !== undefined) {
        event.preventDefault();
        event.currentTarget.parentNode.querySelectorAll("g.bar")[to]?.focus();
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        act();
      }
    };
    return h(
      "g",
      {
        key: commit.version,
        className: `bar ${commit.version === chosen ? "chosen" : ""}`,
        role: "button",
        tabIndex: commit.version === stop ? 0 : -1,
        "aria-label": words,
        "aria-expanded": commit.version === chosen,
        "data-version": commit.version,
        onClick: act,
        onFocus: () => setAt(commit.version),
        onKeyDown,
      },
      h("title", null, words),
      h("rect", { className: "back", x: `${x}%`, y: 0, width: `${wide}%`, height: 140 }),
      h("rect", { className: "added", ...inner, y: 70 - up, height: up }),
      h("rect", { className: "removed", ...inner, y: 70, height: down }),
      flat ? h("rect", { className: "rewritten", ...inner, y: 70 - flat / 2, height: flat }) : null,
      commit.settled ? h("circle", { className: "settled", cx: `${x + wide / 2}%`, cy: 6, r: radius }) : null,
    );
  };
  return block(
    h("p", { className: "muted", id: title }, "Rows that came (up) and went (down) with each version; grey: as many as before; red dot: conflicts were settled. Arrow keys move, Enter opens, Escape closes."),
    h(
      "svg",
      { role: "group", "aria-labelledby": title },
      h("line", { className: "axis", x1: 0, x2: "100%", y1: 70, y2: 70 }),
      shown.map(bar),
    ),
  );
}

// -- a table ----------------------------------------------------------------------------------------------------------

const FILTERS = ["dag", "writer", "operation", "since", "until", "conflicts"];
const OPERATIONS = ["WRITE", "MERGE", "DELETE", "UPDATE", "OPTIMIZE", "TRUNCATE", "ALTER TABLE", "CREATE TABLE", "RESTORE"];

// Of 100 versions all are drawn. With a filter, up to 1,000 are looked at, until there is something to see.
async function versions(connection, table, filters, before, around) {
  if (!Object.keys(filters).length) {
    const page = await about(connection, "commits", table, { before, limit: 100 });
    const isOlder = before === null && around !== null && around < (page.looked_at?.[0] ?? 0);
    return isOlder ? about(connection, "commits", table, { before: around + 51, limit: 100 }) : page;
  }
  const found = await about(connection, "commits", table, { ...filters, before, limit: 200 });
  for (let more = 0; more < 4 && found.commits.length < 50 && found.before !== null; more += 1) {
    const next = await about(connection, "commits", table, { ...filters, before: found.before, limit: 200 });
    found.commits.push(...next.commits);
    if (next.looked_at) found.looked_at[0] = next.looked_at[0];
    [found.before, found.cleaned_up] = [next.before, next.cleaned_up];
  }
  return found;
}

function Filters({ filters, onFilter }) {
  const list = useId();
  return h(Search, { label: "Versions", names: FILTERS, values: filters, onSearch: onFilter }, (text) => [
    text("dag", "DAG"),
    text("writer", "Writer"),
    text("operation", "Operation", { list }),
    h("datalist", { key: list, id: list }, OPERATIONS.map((name) => h("option", { key: name, value: name }))),
    text("since", "Since (version or UTC time)", { placeholder: "42 or 2019-01-31" }),
    text("until", "Until (version or UTC time)", { placeholder: "50 or 2019-01-31" }),
    h("label", { key: "conflicts", className: "check" }, h("input", { type: "checkbox", name: "conflicts", value: "true", defaultChecked: Boolean(filters.conflicts) }), "Only with conflicts"),
  ]);
}

function Commits({ connection, table, query, go, to }) {
  const version = numberIn(query, "version");
  const before = numberIn(query, "before");
  const filters = Object.fromEntries(FILTERS.flatMap((name) => (query.get(name) ? [[name, query.get(name)]] : [])));
  // A link to an old version shows it among its neighbours, unless it says which page it is on.
  const around = before === null ? version : null;
  const keyOf = (behind, near) => JSON.stringify(["versions", connection, table, filters, behind, near]);
  const state = useAnswer(keyOf(before, around), () => versions(connection, table, filters, before, around));
  // A version that is chosen is seen among the same ones, also by whoever gets the link, and when there are newer ones.
  const behind = state.value?.looked_at ? state.value.looked_at[1] + 1 : before;
  const open = () => {
    if (state.value) keep(keyOf(behind, null), state.value);
    wanted = "section h2";
  };
  const choose = (chosen) => {
    open();
    go({ version: chosen, before: behind });
  };
  const close = () => {
    open();
    wanted = `g.bar[data-version="${version}"]`;
    go({ version: null, before: behind });
  };
  const turn = (focused, changes) => {
    wanted = focused;
    go({ version: null, ...changes });
  };
  const onKeyDown = (event) => {
    if (event.key === "Escape" && version !== null && !event.target.matches("input")) close();
  };
  return h(
    "div",
    { onKeyDown },
    h(Filters, { filters, onFilter: (given) => turn("button[type=submit]", { ...given, before: null }) }),
    h(Answer, { state }, (page) =>
      block(
        page.commits.length ? h(Timeline, { commits: page.commits, chosen: version, onChoose: choose }) : null,
        h(
          "div",
          { className: "row" },
          h("button", { disabled: before === null && around === null, onClick: () => turn("button[data-turn=older]", { before: null }) }, "Newest"),
          h("button", { "data-turn": "older", disabled: page.before === null, onClick: () => turn("button[data-turn=older]", { before: page.before }) }, "Older"),
          h("span", { className: "muted", role: "status" }, looked(page, filters)),
        ),
      ),
    ),
    version === null ? null : h(Commit, { key: version, connection, table, version, onClose: close }),
    state.value?.commits.length
      ? h(Grid, {
          label: "Versions",
          rows: state.value.commits,
          chosen: (commit) => commit.version === version,
          columns: [
            { name: "Version", numbers: true, cell: (commit) => h(Link, { to: to({ version: commit.version, before: behind }), onClick: open }, commit.version) },
            { name: "When (UTC)", whole: true, cell: (commit) => time(commit.time) },
            { name: "Operation", whole: true, cell: (commit) => commit.operation },
            { name: "By", cell: by },
            { name: "Rows", numbers: true, cell: (commit) => noted(changed(commit), besides(commit)) },
            { name: "Files", numbers: true, cell: (commit) => `+${count(commit.files_added)} −${count(commit.files_removed)}` },
            { name: "Size", numbers: true, cell: (commit) => size(commit.bytes_added) },
            { name: "Conflicts", numbers: true, cell: (commit) => commit.settled },
          ],
        })
      : null,
  );
}

function looked(page, filters) {
  const gone = page.cleaned_up ? " Older entries of the log were cleaned up." : "";
  if (!page.looked_at) return `No version lies there: the newest is ${page.newest}.${gone}`;
  const [lowest, highest] = page.looked_at.map(count);
  const which = lowest === highest ? `Version ${lowest}` : `Versions ${lowest} to ${highest}`;
  if (!Object.keys(filters).length) return `${which}; the newest is ${count(page.newest)}.${gone}`;
  return `${which} searched: ${page.commits.length ? count(page.commits.length) : "none"} found.${page.before === null ? "" : " Older goes on."}${gone}`;
}

const toRun = ({ dag, run }) => `/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}`;

const toTask = ({ task, map_index, ...of }) =>
  `${toRun(of)}/tasks/${encodeURIComponent(task)}${map_index < 0 ? "" : `/mapped/${map_index}`}`;

// Where the page shows a table, by its address, and the link there; as far as it shows the table's lakehouse.
function useTables() {
  const lakehouses = useAnswer("lakehouses", () => ask("onelake/lakehouses").catch(() => []));
  const known = (lakehouses.value ?? [])
    .filter((each) => each.lakehouse)
    .map((each) => ({ connection: each.connection, root: `${each.lakehouse.replace(/\/+$/, "")}/` }));
  const at = (address) => {
    const found = known.find(({ root }) => address.startsWith(root));
    return found ? { connection: found.connection, table: address.slice(found.root.length) } : null;
  };
  const link = (address, version) => {
    const found = at(address);
    if (!found) return address;
    const query = new URLSearchParams(found);
    if (Number.isInteger(version)) query.set("version", version);
    return h(Link, { to: `${PAGE}?${query}`, title: address }, found.table);
  };
  return { at, link, settled: lakehouses.settled };
}

const some = (names) => names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${count(names.length - 3)} more` : "");

// What checks said, a line for each check and outcome, what failed first. An earlier release left checks of some writers
// without an outcome.
function Checks({ found }) {
  const lines = new Map();
  for (const { writer, checks } of found) {
    for (const check of Array.isArray(checks) ? checks : []) {
      if (typeof check?.passed !== "boolean") continue;
      const key = JSON.stringify([check.name, check.sql, check.passed, check.done]);
      if (!lines.has(key)) lines.set(key, { ...check, failed: null, said: [], of: [] });
      const line = lines.get(key);
      if (Number.isInteger(check.failed)) line.failed = (line.failed ?? 0) + check.failed;
      if (check.found) line.said.push(check.found);
      line.of.push(...(writer ? [writer] : check.writers ?? []));
    }
  }
  const rows = [...lines.values()].sort((one, other) => Number(one.passed) - Number(other.passed));
  if (!rows.length) return null;
  return block(
    h("h3", null, "Checks"),
    h(Grid, {
      label: "Checks",
      rows,
      columns: [
        { name: "Check", cell: (row) => block(row.name, h("div", { className: "muted" }, row.sql)) },
        { name: "Result", whole: true, cell: (row) => (row.passed ? "passed" : "failed") },
        { name: "Rows failed", numbers: true, cell: (row) => (row.failed === null ? "–" : count(row.failed)) },
        { name: "What was done", cell: (row) => (row.passed ? "" : String(row.done ?? "").split(", ").map(inWords).join("; ")) },
        { name: "Writers", cell: (row) => block(some(row.of), h("div", { className: "muted" }, some(row.said))) },
      ],
    }),
  );
}

function Commit({ connection, table, version, onClose }) {
  const state = useAnswer(`${connection} ${table} ${version}`, () => about(connection, `commits/${version}`, table));
  useFocus();
  return h(
    "section",
    { "aria-label": `Version ${version}` },
    h("div", { className: "row" }, h("h2", { tabIndex: -1 }, `Version ${version}`), h("button", { onClick: onClose, "aria-label": `Close version ${version}` }, "Close")),
    h(Answer, { state }, (commit) =>
      block(
        h(
          "dl",
          null,
          [
            ["When", `${time(commit.time)} UTC`],
            ["Operation", commit.operation],
            ["By", commit.task ? h(Link, { to: toTask(commit.task) }, commit.by) : commit.by],
            ["Run", commit.task ? h(Link, { to: toRun(commit.task) }, commit.run) : commit.run],
            ["Rows", inRows(commit)],
            ["Message", commit.user_metadata],
            ["Into", commit.partitions_added.join(", ")],
            ["Out of", commit.partitions_removed.join(", ")],
            ["Definition", commit.changes_definition ? "changed" : ""],
          ]
            .filter(([, value]) => value)
            .flatMap(([name, value]) => [h("dt", { key: name }, name), h("dd", { key: `${name} is` }, value)]),
        ),
        commit.published.length
          ? h(Grid, {
              label: `Writers of version ${version}`,
              rows: commit.published.map((writer, index) => ({ ...writer, at: commit.tasks[index] })),
              columns: [
                { name: "Writer, run", cell: ({ writer, at }) => (at ? block(h(Link, { to: toTask(at) }, writer), block(h(Link, { to: toRun(at) }, at.run))) : writer) },
                // Below, it is said how conflicts were settled.
                { name: "Outcome now", cell: (writer) => said(inWords(writer.status), writer.set_aside ? [] : writer.said) },
                { name: "Rows staged", numbers: true, cell: (writer) => count(writer.rows_staged) },
                { name: "In the table", numbers: true, cell: (writer) => count(writer.rows_in_table) },
                { name: "Finished (UTC)", whole: true, cell: (writer) => time(writer.finished) },
              ],
            })
          : null,
        h(Checks, {
          found: commit.published.map(({ writer }, index) => ({ writer, checks: commit.checks[index] })),
        }),
        commit.settled_in_words.length
          ? block(h("h3", null, "Conflicts"), h("ul", null, commit.settled_in_words.map((sentence) => h("li", { key: sentence }, sentence))))
          : null,
      ),
    ),
  );
}

function Partitions({ connection, table }) {
  const state = useAnswer(`${connection} ${table} partitions`, () => about(connection, "partitions", table));
  return h(Answer, { state }, (found) =>
    block(
      h("p", null, `${count(found.rows)} rows in ${count(found.files)} files of ${size(found.bytes)}, ${count(found.partitions)} partitions, version ${found.version}`),
      h(Grid, {
        label: "Partitions",
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

const AT_WORK = [null, "scheduled", "queued", "running", "restarting", "deferred", "up_for_retry", "up_for_reschedule"];

// The state of each buffer's task, of 50 at most, as Airflow tells it to the reader: "gone" where there is no such task any more.
async function statesOf(rows) {
  const look = async ({ path, task: { dag, run, task, map_index } }) => {
    const of = [dag, "dagRuns", run, "taskInstances", task, ...(map_index < 0 ? [] : [map_index])].map(encodeURIComponent);
    const found = await ask(`api/v2/dags/${of.join("/")}`).catch(({ status }) => ({ state: status === 404 ? "gone" : undefined }));
    return [path, found.state];
  };
  return Object.fromEntries(await Promise.all(rows.slice(0, 50).map(look)));
}

function advice(row, state, command) {
  if (row.state === "not ours") return "Nothing: this package leaves it alone.";
  if (AT_WORK.includes(state)) return "Nothing: its task is at work.";
  const isWriter = row.owner?.startsWith("writer ");
  if (state === "success") return isWriter && row.complete ? "Look at its load's reconcile, which publishes it." : "Nothing: its task has ended well.";
  const first = state === undefined ? "Look at its task. If that is not at work, clear it" : state === "gone" ? "Its run is gone: trigger it again" : "Clear its task";
  if (isWriter && row.complete) return block(`${first}; or publish its rows: `, h("code", null, command));
  return `${first}. If it is not wanted, leave it: a vacuum takes its files.`;
}

function Staged({ connection, table }) {
  const state = useAnswer(`${connection} ${table} staged`, () => about(connection, "staged", table));
  const tasks = (state.value?.staged ?? []).filter((row) => row.task);
  const states = useAnswer(tasks.length ? `${connection} ${table} states` : null, () => statesOf(tasks));
  const command = `onelake reconcile ${table} --connection ${connection}`;
  const isAsked = (row) => row.task && !states.settled;
  const ofTask = (row) => {
    const said = isAsked(row) ? "…" : inWords(states.value?.[row.path] ?? "not known");
    return row.task && said !== "gone" ? h(Link, { to: toTask(row.task) }, said) : said;
  };
  return h(Answer, { state }, (page) =>
    block(
      page.whole ? null : h("p", { className: "muted" }, "There is more below this table than was looked at, so buffers may be missing here."),
      page.staged.length
        ? h(Grid, {
            label: "Staged",
            rows: page.staged,
            columns: [
              { name: "Owner", cell: (row) => ofRun([row.owner ?? row.path, row.by].filter(Boolean).join(" of "), row.run) },
              { name: "State", whole: true, cell: (row) => noted(row.state, row.complete ? "complete" : "not complete") },
              { name: "Its task", whole: true, cell: ofTask },
              { name: "Last written", numbers: true, cell: (row) => `${age(row.age_seconds)} ago` },
              { name: "What to do", cell: (row) => (isAsked(row) ? "…" : advice(row, states.value?.[row.path], command)) },
            ],
          })
        : h("p", null, "No buffer waits below this table: there is nothing to do."),
      page.found > page.staged.length ? h("p", { className: "muted" }, `The oldest ${count(page.staged.length)} of ${count(page.found)}.`) : null,
      page.closed ? h("p", { className: "muted" }, `${count(page.closed)} more ended well: what they staged is in the table, or was left out.`) : null,
      h("h2", null, "Kept versions"),
      page.kept.length
        ? h(Grid, {
            label: "Kept versions",
            rows: page.kept,
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

// Numbers that cost a reader's look at the table; and if it was examined, those that cost a listing of all its objects.
function numbersOf(found, staged) {
  const NOTHING = "Nothing.";
  const many = (number, todo) => (number ? todo : NOTHING);
  const numbers = [
    ["Rows", count(found.rows), found.rows === null ? "Have engines write statistics: without them, nobody can count rows." : NOTHING],
    ["Files", count(found.files), NOTHING],
    ["Size", size(found.bytes), NOTHING],
    ["Partitions", count(found.partitions), NOTHING],
    ["Small or half-deleted files", count(found.to_compact), many(found.to_compact, "Compact the table by OneLakeOptimizeOperator: readers open fewer files.")],
  ];
  if (!found.findings) return numbers;
  const waste = found.to_vacuum === null ? "a vacuum would be refused" : `${count(found.to_vacuum)} (${size(found.bytes_to_vacuum)})`;
  return [
    ...numbers,
    ["Log entries since the newest checkpoint", count(found.log_entries), many(found.log_entries > 100, "Have an engine write a checkpoint: readers fetch every entry.")],
    ["Objects that a vacuum would delete", waste, many(found.to_vacuum, "Vacuum the table by OneLakeVacuumOperator when the space is worth it.")],
    ["Buffers in flight", count(found.waiting.length), many(found.waiting.length, staged)],
    ["Abandoned buffers", count(found.abandoned.length), many(found.abandoned.length, staged)],
  ];
}

function Health({ connection, table, to }) {
  const [asked, setAsked] = useState(false);
  const state = useAnswer(asked ? `${connection} ${table} health` : `${connection} ${table} partitions`, () => about(connection, asked ? "health" : "partitions", table));
  const staged = h("span", null, h(Link, { to: to({ tab: "Staged" }) }, "Staged"), " says whose they are, how their tasks are, and what to do.");
  return h(Answer, { state }, (found) =>
    block(
      found.health ? h("p", null, "Health: ", h("span", { className: "word" }, found.health), found.why && `: ${found.why}`) : null,
      found.findings?.length
        ? h(Grid, {
            label: "What is wrong",
            rows: found.findings,
            columns: [
              { name: "How bad", whole: true, cell: (finding) => h("span", { className: "word" }, finding.severity) },
              { name: "What", cell: (finding) => `${finding.what}.` },
              { name: "What to do", cell: (finding) => `${finding.todo}.` },
            ],
          })
        : null,
      h(Grid, {
        label: "Numbers",
        rows: numbersOf(found, staged),
        columns: [
          { name: "What there is", whole: true, cell: ([name]) => name },
          { name: "Number", numbers: true, cell: ([, number]) => number },
          { name: "What to do", cell: ([, , todo]) => todo },
        ],
      }),
      found.findings
        ? h("p", null, "Every object of the table was looked at.", found.findings.length || found.waiting.length ? "" : " Nothing is wrong.")
        : h(
            "p",
            null,
            h("button", { onClick: () => setAsked(true) }, "Examine the table"),
            h("span", { className: "muted" }, " looks for lost files, waste and abandoned buffers. It lists every object of the table, which takes a while for a large one."),
          ),
    ),
  );
}

// What is told by reading alone. A click asks for it, as Fabric is asked too.
function Access({ connection, table }) {
  const [asked, setAsked] = useState(false);
  const state = useAnswer(asked ? `${connection} ${table} access` : null, () => about(connection, "access", table));
  if (!asked) {
    return h(
      "p",
      null,
      h("button", { onClick: () => setAsked(true) }, "Look up the access"),
      h("span", { className: "muted" }, " asks OneLake and Fabric what the connection's identity may do with this table. Nothing is written."),
    );
  }
  const may = (right) => ({ true: "yes", false: "no" })[right.allowed] ?? "unknown";
  return h(Answer, { state }, (found) =>
    block(
      h("p", null, `What the identity of the connection ${connection} may do:`),
      h(Grid, {
        label: "Access",
        rows: found.rights,
        columns: [
          { name: "Right", whole: true, cell: (right) => right.right },
          { name: "Allowed", whole: true, cell: may },
          { name: "Decided by", cell: (right) => [right.step, right.name].filter(Boolean).join(" ") },
          { name: "Why", cell: (right) => right.why },
          { name: "Ask for", cell: (right) => right.ask_for ?? "" },
        ],
      }),
      found.notes.map((note) => h("p", { key: note, className: "muted" }, note)),
      found.command
        ? h("p", null, "What is unknown here, a probe tells: run ", h("code", null, found.command), ". It writes a scratch object beside the table, and deletes it.")
        : null,
    ),
  );
}

const TABS = { Versions: Commits, Partitions, Staged, Health, Access };

// As people expect of tabs: one stop by keyboard, and arrows lead from one to the next.
function Tabs({ names, shown, panel, onChoose }) {
  useFocus();
  const onKeyDown = (event) => {
    const index = names.indexOf(shown);
    const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const name = names.at(to % names.length);
    wanted = `[data-tab="${name}"]`;
    onChoose(name);
  };
  const tab = (name) =>
    h(
      "button",
      {
        key: name,
        role: "tab",
        id: `${panel}-${name}`,
        "data-tab": name,
        "aria-selected": name === shown,
        "aria-controls": panel,
        tabIndex: name === shown ? 0 : -1,
        onClick: () => {
          wanted = `[data-tab="${name}"]`;
          onChoose(name);
        },
      },
      name,
    );
  return h("div", { className: "row", role: "tablist", "aria-label": "The table's", onKeyDown }, names.map(tab));
}

// -- the page ---------------------------------------------------------------------------------------------------------

const numberIn = (query, name) => (/^\d+$/.test(query.get(name) ?? "") ? Number(query.get(name)) : null);

function Page() {
  const [query, setQuery] = useSearchParams();
  const panel = useId();
  const [connection, table] = [query.get("connection"), query.get("table")];
  const lakehouses = useAnswer("lakehouses", () => ask("onelake/lakehouses"));
  const known = lakehouses.value ?? [];
  const current = connection ?? known.find((each) => !each.error)?.connection ?? null;
  // Roles and permissions are Fabric's, so other stores have no such tab. Until it is known, the address is believed.
  const inOneLake = lakehouses.settled ? known.some((each) => each.connection === current && each.in_onelake) : query.get("tab") === "Access";
  const names = Object.keys(TABS).filter((name) => name !== "Access" || inOneLake);
  const tab = names.includes(query.get("tab")) ? query.get("tab") : "Versions";
  // All that is shown is in the address, so that it can be sent to somebody.
  const having = (changes) => {
    const found = new URLSearchParams(query);
    for (const [name, value] of Object.entries({ connection: current, ...changes })) {
      if (value === null) found.delete(name);
      else found.set(name, value);
    }
    return found;
  };
  const go = (changes) => setQuery(having(changes));
  const to = (changes) => `${PAGE}?${having(changes)}`;
  // A table's own answers say what is wrong with it, so it is shown whatever became of the connections.
  if (current && table) {
    return sheet(
      h("nav", { "aria-label": "Lakehouse" }, h(Link, { to: `${PAGE}?${new URLSearchParams({ connection: current })}` }, `All tables of ${current}`)),
      h("h1", null, table),
      h(Tabs, { names, shown: tab, panel, onChoose: (name) => go({ tab: name }) }),
      h(
        "div",
        { role: "tabpanel", id: panel, "aria-labelledby": `${panel}-${tab}` },
        h(TABS[tab], { key: `${current} ${table}`, connection: current, table, query, go, to }),
      ),
    );
  }
  const refused = known.filter((each) => each.error && (connection === null || each.connection === connection));
  const isRefused = refused.some((each) => each.connection === current);
  const options = [...new Set([...known.map((each) => each.connection), ...(connection ? [connection] : [])])];
  const option = (name) => h("option", { key: name, value: name }, name || "choose …");
  const onChange = (event) => setQuery({ connection: event.target.value });
  const chooser = h("label", { key: "connection" }, "Connection", h("select", { value: current ?? "", onChange }, (current ? options : ["", ...options]).map(option)));
  return sheet(
    h("h1", null, "Lakehouse"),
    current && !isRefused
      ? h(Tables, { key: current, connection: current, chooser: options.length > 1 && chooser, query, go, to })
      : h(Answer, { state: lakehouses }, () => chooser),
    refused.map((each) => h(Problem, { key: each.connection, text: `${each.connection}: ${each.error}` })),
  );
}

// -- the tables of a lakehouse ----------------------------------------------------------------------------------------

function Tables({ connection, chooser, query, go, to }) {
  const [find, page] = [query.get("find") ?? "", numberIn(query, "page") ?? 0];
  const address = `onelake/lakehouses/${encodeURIComponent(connection)}/tables`;
  const state = useAnswer(JSON.stringify(["tables", connection, find, page]), () => ask(address, { find, page }));
  const turn = (focused, changes) => {
    wanted = focused;
    go({ page: null, ...changes });
  };
  const open = (row, tab) => to({ table: row.table, tab, find: null, page: null });
  return block(
    h(Search, { label: "Tables", names: ["find"], values: find ? { find } : {}, onSearch: (given) => turn("button[type=submit]", given) }, (text) => [
      chooser,
      text("find", "Table", { placeholder: "part of its path" }),
    ]),
    h(Answer, { state }, (found) =>
      block(
        h("p", { className: "muted", role: "status" }, listed(found, find, page)),
        found.tables.length
          ? h(Grid, {
              label: "Tables",
              rows: found.tables,
              columns: [
                { name: "Table", cell: (row) => h(Link, { to: open(row, null) }, row.table) },
                { name: "Rows", numbers: true, cell: (row) => count(row.rows) },
                { name: "Files", numbers: true, cell: (row) => count(row.files) },
                { name: "Size", numbers: true, cell: (row) => (row.bytes === null ? "?" : size(row.bytes)) },
                { name: "Last commit (UTC)", whole: true, cell: (row) => noted(time(row.time), row.operation && `${row.operation}, version ${row.version}`) },
                { name: "By", cell: by },
                { name: "Health", cell: (row) => noted(h(Link, { to: open(row, "Health"), className: "word" }, row.health), row.why) },
              ],
            })
          : null,
        found.pages > 1
          ? h(
              "div",
              { className: "row" },
              h("button", { "data-turn": "newer", disabled: page === 0, onClick: () => turn("button[data-turn=newer]", { page: page - 1 || null }) }, "Newer"),
              h("button", { "data-turn": "older", disabled: page + 1 >= found.pages, onClick: () => turn("button[data-turn=older]", { page: page + 1 }) }, "Older"),
            )
          : null,
      ),
    ),
  );
}

function listed(found, find, page) {
  const more = found.whole ? "" : " There are more tables: only the first by their paths were looked at, and a filter finds the others.";
  if (!found.found) return find ? `No table that you may see has ${find} in its path.${more}` : `There is no table yet that you may see. A load makes one; tables are looked for in Tables/, three levels deep.${more}`;
  const of = found.pages > 1 ? `, page ${page + 1} of ${found.pages}` : "";
  return `${count(found.found)} ${found.found === 1 ? "table" : "tables"}${of}. What cannot be read comes first, and then what was changed last.${more}`;
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

// What is in the tables now of the rows that tasks wrote, by table, version and writer. Of a table that is not shown to
// the reader, nothing is known.
async function standing(rows, at) {
  const versions = new Map();
  for (const { value } of rows) {
    const known = [value, ...writersOf(value)].map((each) => each.version).filter(Number.isInteger);
    versions.set(value.table, [...new Set([...(versions.get(value.table) ?? []), ...known])]);
  }
  const found = {};
  const look = async ([table, version]) => {
    const place = at(table);
    if (!place || !version.length) return;
    const told = await about(place.connection, "now", place.table, { version }).catch((error) => {
      if (error instanceof Trouble) throw error;
      return {};
    });
    for (const [one, writers] of Object.entries(told)) {
      for (const writer of writers) found[JSON.stringify([table, Number(one), writer.writer])] = writer;
    }
  };
  await Promise.all([...versions].map(look));
  return found;
}

const writersOf = (value) => (Array.isArray(value.writers) ? value.writers : []).filter((each) => each?.status);

// Of each writer of a task, what the table's log says now; or else what its load's reconciliation said, or the task.
function writersNow(rows, found) {
  const keyOf = (value, writer) => JSON.stringify([value.table, value.group ?? decodeURIComponent(String(value.load).split("/")[2]), writer]);
  const look = (value, writer, sentences) => ({
    ...writer,
    rows_in_table: writer.rows_in_table ?? (Number.isInteger(writer.version) ? null : 0),
    said: sentences ?? [],
    ...found[JSON.stringify([value.table, writer.version, writer.writer])],
  });
  const reconciled = {};
  for (const { value } of rows) {
    for (const each of writersOf(value)) {
      const why = [each.aftermath, each.decisions, each.error ? [each.error] : []].find((sentences) => sentences?.length);
      reconciled[keyOf(value, each.writer)] = look(value, each, why);
    }
  }
  return ({ value }) => {
    if (!value.writer) return writersOf(value).map((each) => reconciled[keyOf(value, each.writer)]);
    return [reconciled[keyOf(value, value.writer)] ?? look(value, { ...value, rows_staged: value.rows }, value.decisions)];
  };
}

const said = (status, sentences) => block(status, sentences.map((sentence) => h("div", { key: sentence, className: "muted" }, sentence)));

const whose = ({ dag, group, load }) => (dag && group ? [dag, group] : String(load ?? "").split("/").slice(1, 3).map(decodeURIComponent)).join(".");

// A line for each writer, by its own task, or else by its load's reconciliation; and one for each other task.
function linesOf(rows, writers) {
  const told = new Set(rows.filter(({ value }) => value.writer).map(({ value }) => JSON.stringify([value.table, whose(value), value.writer])));
  return rows.flatMap((row) => {
    const { value } = row;
    const now = writers(row).filter((writer) => value.writer || !told.has(JSON.stringify([value.table, whose(value), writer.writer])));
    if (!writers(row).length) return [{ ...row, said: value.summary ?? inWords(value.status), version: value.version }];
    return now.map((writer) => ({ ...row, writer, whose: whose(value), said: said(inWords(writer.status), writer.said), version: writer.version }));
  });
}

// What checks said, as tasks have left it. A reconciliation repeats what the writers said, so it is shown only alone.
function checked(rows) {
  const values = rows.map(({ value }) => value).filter((value) => Array.isArray(value.checks));
  const ofWriters = values.filter((value) => value.writer);
  return ofWriters.length ? ofWriters : values;
}

function Loads(where) {
  const state = useAnswer(JSON.stringify(where), () => results(where));
  const { at, link, settled } = useTables();
  const now = useAnswer(state.value && settled ? JSON.stringify(["now", where]) : null, () => standing(state.value, at));
  return sheet(
    h(Answer, { state }, (rows) => {
      if (!rows.length) return h("p", null, "No task here has written a Delta table, or none has ended yet.");
      const number = ({ writer }, name) => (writer ? count(writer[name]) : "");
      return block(
        now.settled ? null : h(Waiting, { trouble: now.trouble }),
        h(Grid, {
          label: "What was written",
          rows: linesOf(rows, writersNow(rows, now.value ?? {})),
          columns: [
            { name: "Task", whole: true, cell: (row) => `${row.task}${row.map_index < 0 ? "" : `[${row.map_index}]`}` },
            { name: "Writer", whole: true, cell: (row) => (row.writer ? noted(row.writer.writer, row.whose) : "") },
            { name: "Outcome now", cell: (row) => row.said },
            { name: "Rows staged", numbers: true, cell: (row) => number(row, "rows_staged") },
            { name: "In the table", numbers: true, cell: (row) => number(row, "rows_in_table") },
            { name: "Version", numbers: true, cell: (row) => row.version },
            { name: "Table", cell: (row) => link(row.value.table, row.version) },
          ],
        }),
        h(Checks, { found: checked(rows) }),
      );
    }),
  );
}

globalThis.Lakehouse = (props) => (props?.dagId && props?.runId ? h(Loads, props) : h(Page));
