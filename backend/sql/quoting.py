"""Names and texts as SQL writes them.

Rule: pure; whatever a name or a text holds, it stays one.
"""


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
