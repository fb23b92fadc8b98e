"""Files: why is it slow, where are the small files? Sizes as a distribution, then partitions or single files."""

from app.errors import boundary
from app.files import widgets as files
from app.ui.frame import table_header

opened = table_header("files")
with boundary():
    found = files.counted(opened)
    files.key_figures(found)
    if found.num_files:
        files.explore(opened, found)
    else:
        files.nothing(opened)
