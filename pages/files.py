"""Files: why is it slow, where are the small files? Sizes as a distribution, then partitions or single files."""

from app.errors import boundary
from app.files.page import files
from app.ui.frame import table_header

opened = table_header("files")
with boundary():
    files(opened)
