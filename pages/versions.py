"""Versions: which can still be read, restored or followed, until when and why; and any number over them."""

from app.errors import boundary
from app.ui.frame import table_header
from app.versions import widgets as versions
from app.versions.numbers import numbers

opened = table_header("versions", versioned=False, otherwise=versions.of_broken)
with boundary():
    found = versions.judged(opened.ref)
    chosen = versions.strip(found)
    versions.problems(found)
    versions.answers(opened.ref, found, chosen)
    numbers(opened, found)
