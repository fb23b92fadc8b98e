export { EditorState, Prec } from "@codemirror/state";
export { EditorView, keymap, lineNumbers, placeholder } from "@codemirror/view";
export { HighlightStyle, bracketMatching, syntaxHighlighting, syntaxTree } from "@codemirror/language";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, pickedCompletion } from "@codemirror/autocomplete";
export { SQLDialect } from "@codemirror/lang-sql";
export { tags } from "@lezer/highlight";
