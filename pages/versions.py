"""Versions: which can still be read, restored or followed, until when and why; and any number over them."""

from app.components import versions, versions_numbers
from app.components.frame import table_header
from app.errors import boundary

opened = table_header("versions", versioned=False, otherwise=versions.of_broken)
with boundary():
    found = versions.judged(opened.ref)
    chosen = versions.strip(found)
    versions.problems(found)
    versions.answers(opened.ref, found, chosen)
    versions_numbers.numbers(opened, found)
