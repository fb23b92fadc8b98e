"""An editor of SQL in place of a text area: colours, undo, completion, and Ctrl+Enter that presses the run button; and
beside it the tables and columns to search and insert.

Rule: the text area stays the truth. What is typed goes into it at once, and what the server puts there is taken over;
where the script is not served it is all there is. Names are inserted as text, and shown as text.
"""

from functools import lru_cache
from pathlib import Path

import streamlit as st

from app.query import view
from app.ui.lake import LakeReading
from app.ui.scripts import Script, packed

_LIBRARY = Path(__file__).parents[1] / "ui" / "vendor" / "codemirror-6.43.15.js"
_LINES = r"""
const { EditorState, EditorView, HighlightStyle, Prec, SQLDialect, acceptCompletion, autocompletion, bracketMatching,
  closeBrackets, closeBracketsKeymap, closeCompletion, defaultKeymap, history, historyKeymap, keymap, lineNumbers,
  pickedCompletion, placeholder, syntaxHighlighting, syntaxTree, tags } = CodeMirror;

// what is offered ----------------------------------------------------------------------------------------------------
const PART = String.raw`(?:"(?:[^"]|"")*"|[\p{L}_][\p{L}\p{N}_$]*)`, PATH = `${PART}(?:\\.${PART})*`;
const VERSION = String.raw`(?:\s*\([^()]*\))?(?:\s+(?:version|timestamp)\s+as\s+of\s+(?:'[^']*'|-?\d+))?`;
const SOURCE = new RegExp(`(?:\\b(?:from|join)|,)\\s*(${PATH})(?=${VERSION}(?:\\s+(?:as\\s+)?(${PART}))?)`, "giu");
const partsOf = (path) => path.match(new RegExp(PART, "gu")).map((part) =>
  part.startsWith('"') ? part.slice(1, -1).replaceAll('""', '"') : part);
const keyOf = (path) => partsOf(path).join("/").toLowerCase();
const option = (text, type, more) => ({ label: partsOf(text).join("."), text, type, ...more });
const offered = ({ keywords, types, functions, views, tables }) => {
  const byKey = new Map(), byLast = new Map();
  for (const [text, columns] of Object.entries(tables)) {
    const key = keyOf(text), last = key.split("/").at(-1);
    const table = { text, key, option: option(text, "table", { boost: 1 }),
      columns: columns.map(([name, detail, info]) => option(name, "column", { detail, info, boost: 2 })) };
    byKey.set(key, table);
    byLast.set(last, byLast.has(last) ? undefined : table);
  }
  const words = (text, type) => text.split(" ").map((word) =>
    type === "function" ? option(word, type, { text: `${word}()`, back: 1 }) : option(word.toUpperCase(), type));
  const viewOf = (table, name) => option(`${table.text.slice(0, -1)}$${name}"`, "table", name === "changes" ?
    { text: `${table.text.slice(0, -1)}$changes"(0, 'latest')` } : {});
  return { byKey, words: [...words(keywords, "keyword"), ...words(types, "type"), ...words(functions, "function")],
    table: (key) => byKey.get(key) ?? byLast.get(key),
    viewsOf: (table) => table.text.startsWith('"') ? Object.keys(views).map((name) => viewOf(table, name)) : [],
    columnsOf(key) {
      const [, own, view] = /^(.*)\$(\w+)$/s.exec(key) ?? [], table = this.table(key) ?? this.table(own);
      const more = (view && !this.table(key) && views[view] || []).map((name) => option(name, "column", { boost: 2 }));
      return table && (more.length && view !== "changes" ? more : [...table.columns, ...more]);
    } };
};
// The columns that a statement's tables have, by what it calls the tables.
const inScope = (text, names) => {
  const scope = new Map();
  for (const [, path, alias] of text.matchAll(SOURCE)) {
    const key = keyOf(path), columns = names.columnsOf(key);
    if (!columns) continue;
    for (const name of [key, key.split("/").at(-1), ...alias ? [keyOf(alias)] : []]) scope.set(name, columns);
  }
  return scope;
};
const complete = (names) => ({ state, pos, explicit }) => {
  const text = state.doc.toString(), node = syntaxTree(state).resolveInner(pos, -1);
  if (/String|Comment|Number/.test(node.name)) return null;
  const isClosed = node.to - node.from > 1 && text[node.to - 1] === '"';
  const isQuoted = node.name === "QuotedIdentifier" && pos > node.from && !(isClosed && pos === node.to);
  let from = isQuoted ? node.from + 1 : pos - /[\p{L}\p{N}_$]*$/u.exec(text.slice(0, pos))[0].length;
  const slashed = isQuoted ? "" : /[\p{L}\p{N}_$]+(?:\/[\p{L}\p{N}_$]*)+$/u.exec(text.slice(0, pos))?.[0] ?? "";
  if (slashed && [...names.byKey.keys()].some((key) => key.startsWith(slashed.toLowerCase()))) {
    from = pos - slashed.length;
  }
  const head = text.slice(0, isQuoted ? from - 1 : from), typed = text.slice(from, pos);
  const above = new RegExp(`(${PATH})\\.$`, "u").exec(head)?.[1], ofTables = /\b(?:from|join)\s*$/i.test(head);
  if (!explicit && !typed && !isQuoted && !above && !ofTables) return null;
  const scope = inScope(text, names), tables = [...names.byKey.values()];
  let options;
  if (above) {
    const layer = keyOf(above), depth = layer.split("/").length;
    const below = ({ text }) => partsOf(text).join("/").split("/").slice(depth).join("/").replaceAll('"', '""');
    options = [...scope.get(layer) ?? [], ...tables.filter(({ key }) => key.startsWith(`${layer}/`)).map((table) =>
      option(table.text.startsWith('"') ? `"${below(table)}"` : below(table), "table"))];
  } else {
    const viewed = typed.includes("$") ? tables : [...scope.keys()].map((key) => names.table(key)).filter(Boolean);
    options = [...tables.map(({ option }) => option), ...[...new Set(viewed)].flatMap(names.viewsOf)];
    if (!ofTables) options.push(...new Set([...scope.values()].flat()), ...isQuoted ? [] : names.words);
  }
  // What is picked takes the place of the whole name, its quotes included.
  const before = isQuoted ? 1 : 0, after = isQuoted && isClosed ? node.to - pos : 0;
  const apply = (editor, picked, start, end) => editor.dispatch({
    changes: { from: start - before, to: end + after, insert: picked.text }, userEvent: "input.complete",
    selection: { anchor: start - before + picked.text.length - (picked.back ?? 0) },
    annotations: pickedCompletion.of(picked), scrollIntoView: true });
  return { from, options: options.map((one) => ({ ...one, apply })) };
};

// tables and columns beside it ---------------------------------------------------------------------------------------
const MOST_SHOWN = 100;
const element = (tag, properties, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};
const button = (properties, ...children) => element("button", { type: "button", ...properties }, ...children);
const insertButton = (node, { label, text, detail = "", info = "" }) => button({ onclick() {
  const { state } = node.editor, before = state.sliceDoc(0, state.selection.main.from);
  node.editor.dispatch(state.replaceSelection(/[\w"]$/.test(before) ? `, ${text}` : text));
  node.editor.focus();
} }, label, ` `, element("small", {}, detail), element("small", { className: "comment" }, info));
const drawNames = (node) => {
  const words = node.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const holds = (...texts) => words.every((word) => texts.some((text) => text?.toLowerCase().includes(word)));
  const lines = [...node.offered.byKey.values()].map(({ option, columns }) => ({ option, columns: holds(option.label) ?
    columns : columns.filter(({ label, detail, info }) => holds(option.label, label, detail, info)), all: columns }));
  const shown = lines.filter(({ option, columns }) => columns.length || holds(option.label));
  node.list.replaceChildren(...shown.slice(0, MOST_SHOWN).map(({ option, columns, all }) => {
    const below = element("div"), toggle = button({ ariaLabel: `Columns of ${option.label}`, onclick() {
      toggle.ariaExpanded = `${!below.hasChildNodes()}`;
      below.replaceChildren(...below.hasChildNodes() ? [] : columns.map((column) => insertButton(node, column)));
    } });
    if (columns.length < all.length) toggle.click(); else toggle.ariaExpanded = "false";
    return element("div", {}, toggle, insertButton(node, option), below);
  }), shown.length > MOST_SHOWN ? `and ${shown.length - MOST_SHOWN} more` : shown.length ? "" : "No name holds this.");
};

// how it looks -------------------------------------------------------------------------------------------------------
const colour = (name) => `var(--st-${name}-text-color)`;
const COLOURS = syntaxHighlighting(HighlightStyle.define([
  { tag: [tags.keyword, tags.typeName, tags.bool, tags.null], color: colour("blue"), fontWeight: "600" },
  { tag: tags.string, color: colour("green") }, { tag: tags.number, color: colour("orange") },
  { tag: tags.standard(tags.name), color: colour("violet") },
  { tag: tags.comment, color: colour("gray"), fontStyle: "italic" },
]));
const LOOK = EditorView.theme({
  "&": { border: "1px solid var(--st-border-color)", borderRadius: "var(--st-base-radius)", minHeight: "236px",
    flex: "3 1 24rem", minWidth: "0", maxHeight: "55vh", color: "var(--st-text-color)",
    backgroundColor: "var(--st-secondary-background-color)" },
  "&.cm-focused": { outline: "none", borderColor: "var(--st-primary-color)" },
  ".cm-scroller": { fontFamily: "var(--st-code-font)", fontSize: "0.875rem", lineHeight: "1.5", overflow: "auto" },
  ".cm-content": { padding: "0.6rem 0", caretColor: "var(--st-text-color)", minHeight: "234px" },
  ".cm-line": { color: "inherit !important", fontWeight: "inherit !important" },  // Chromium keeps what was replaced
  ".cm-gutters": { backgroundColor: "transparent", border: "none", color: colour("gray") },
  ".cm-placeholder": { color: colour("gray") },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--st-border-color)" },
  ".cm-tooltip.cm-tooltip-autocomplete": { backgroundColor: "var(--st-background-color)", zIndex: 1000,
    border: "1px solid var(--st-border-color)", borderRadius: "var(--st-base-radius)", overflow: "hidden" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--st-code-font)", fontSize: "0.8125rem",
    minWidth: "12rem", maxHeight: "16rem", maxWidth: "min(36rem, 90vw)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "0.2rem 0.6rem" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { color: "var(--st-text-color)",
    backgroundColor: "var(--st-secondary-background-color)", boxShadow: "inset 3px 0 var(--st-primary-color)" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
  ".cm-completionDetail": { color: colour("gray"), fontStyle: "normal", marginLeft: "1rem" },
});

// the text area ------------------------------------------------------------------------------------------------------
const setText = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set;
const areaOf = () => document.querySelector(".st-key-query_text textarea");
const push = (text) => {
  const area = areaOf();
  if (!area || area.value === text) return;
  setText.call(area, text);
  area.dispatchEvent(new Event("input", { bubbles: true }));
  area.dispatchEvent(new FocusEvent("focusout", { bubbles: true }));  // while it is being typed in, no link changes it
};
const opened = (node, area) => {
  const { names, most } = node, { keywords, types, functions: builtin } = names;
  const dialect = SQLDialect.define({ keywords, types, builtin, caseInsensitiveIdentifiers: true });
  return new EditorView({ doc: area.value, extensions: [
    Prec.highest(keymap.of([{ key: "Mod-Enter", run: (editor) => closeCompletion(editor) || true }])),
    keymap.of([{ key: "Tab", run: acceptCompletion }, ...closeBracketsKeymap, ...historyKeymap, ...defaultKeymap]),
    dialect.extension, COLOURS, LOOK, lineNumbers(), history(), bracketMatching(), closeBrackets(),
    EditorView.lineWrapping, placeholder(area.placeholder), EditorView.contentAttributes.of({ "aria-label": "SQL" }),
    autocompletion({ override: [(context) => complete(node.offered)(context)], icons: false }),
    EditorState.changeFilter.of(({ newDoc }) => newDoc.length <= most),
    EditorView.updateListener.of(({ docChanged, state }) => docChanged && push(state.doc.toString())),
  ] });
};
const pull = (node) => {
  const area = areaOf();
  if (!area) return;
  if (!node.editor) node.prepend((node.editor = opened(node, area)).dom);
  if (document.activeElement === area) node.editor.focus();
  const { state } = node.editor;
  if (state.doc.toString() === area.value) return;
  node.editor.dispatch({ changes: { from: 0, to: state.doc.length, insert: area.value },
    selection: { anchor: Math.min(state.selection.main.head, area.value.length) } });
};
const made = (parent) => {
  const node = document.createElement("div");
  node.className = "weir-sql";
  node.search = element("input", { type: "search", placeholder: "Search tables and columns",
    ariaLabel: "Search tables and columns", oninput: () => drawNames(node) });
  node.list = element("div");
  node.append(element("div", { className: "weir-names" }, node.search, node.list));
  parent.append(node);
  // Streamlit draws the text area when it comes to it, and React writes what it sets into its content, too.
  node.watch = new MutationObserver(() => pull(node));
  return node;
};
export default async ({ data, parentElement }) => {
  const node = parentElement.querySelector(".weir-sql") ?? made(parentElement);
  node.newest = data;
  const text = await unpacked(data);
  if (node.newest !== data) return;
  if (node.text !== text) {
    Object.assign(node, { text, ...JSON.parse(text) });
    node.offered = offered(node.names);
    drawNames(node);
  }
  const area = document.querySelector(".st-key-query_text");
  node.watch.observe(area, { childList: true, characterData: true, subtree: true });
  pull(node);
  return () => {
    if (node.isConnected) return;
    node.watch.disconnect();
    node.editor?.destroy();
  };
};
"""
# The text area is not seen before the editor is there, unless that takes so long that it may never come.
_LOOK = """<style>
@keyframes weir-sql { from { visibility: hidden } }
.st-key-query_text [data-testid=stTextAreaRootElement] { animation: weir-sql 10s step-end }
body:has(.weir-sql .cm-editor) .st-key-query_text [data-testid=stTextAreaRootElement] { display: none }
.st-key-query_run kbd { color: inherit !important; opacity: 1 !important }
.weir-sql { margin-top: -0.7rem; display: flex; flex-wrap: wrap; gap: 0.75rem }
.weir-names { flex: 1 1 15rem; display: flex; flex-direction: column; height: 236px; font-size: 0.8125rem }
.weir-names > div { overflow: auto; flex: 1 }
.weir-names input, .weir-names button { font: inherit; color: inherit; background: none; border: 0; text-align: left }
.weir-names input { padding: 0.4rem 0.6rem; border: 1px solid var(--st-border-color); margin-bottom: 0.25rem;
  border-radius: var(--st-base-radius) }
.weir-names button { padding: 0.15rem 0.4rem; min-height: 1.6rem; cursor: pointer; overflow-wrap: anywhere }
.weir-names button:hover { background: var(--st-secondary-background-color) }
.weir-names button[aria-expanded]::before { content: "+ " }
.weir-names button[aria-expanded=true]::before { content: "– " }
.weir-names div div div { display: flex; flex-direction: column; padding-left: 1.4rem }
.weir-names small { color: var(--st-gray-text-color) }
.weir-names .comment { display: block }
</style>"""
SCRIPT = Script("sql", "6.43.15", _LIBRARY, _LINES)
_component = st.components.v2.component("weir.sql_editor", js=SCRIPT.importer, isolate_styles=False)


def sql_editor(reading: LakeReading, text: str, *, most: int) -> None:
    """Draws it over the text area `query_text`, of which `text` is what the server has; `most`: characters."""
    if SCRIPT.is_served:
        st.html(_LOOK)
        _component(key="query_editor", data=_data(reading, view.named(reading, text), most))


@lru_cache(2)
def _data(reading: LakeReading, first: frozenset[str], most: int) -> bytes:
    """For all viewers of a reading, whatever they write while it offers all columns."""
    return packed({"names": view.completions(reading, first), "most": most})
