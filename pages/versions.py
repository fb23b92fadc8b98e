"""Versions: which can still be read, restored or followed, until when and why; and any number over them."""

from app.ui.frame import table_header
from app.versions.page import of_broken, versions

versions(table_header("versions", versioned=False, otherwise=of_broken))
