"""Versions: which can still be read, restored or followed, until when and why; and any number over them."""

from app.errors import boundary
from app.ui.frame import table_header
from app.versions import widgets as versions
from app.versions.numbers import numbers
from app.versions.pins import pin_dialog

opened = table_header("versions", versioned=False, otherwise=versions.of_broken)
with boundary():
    retention = versions.judged(opened.ref)
    chosen = versions.strip(opened.ref, retention)
    versions.problems(retention)
    versions.answers(opened.ref, retention, chosen)
    numbers(opened, retention)
pin_dialog()
