"""Files: why is it slow, where are the small files? Sizes as a distribution, then partitions or single files."""

from app import errors
from app.components import file_sizes, files
from app.components.frame import table_header

opened = table_header("files")
with errors.boundary():
    found = file_sizes.counted(opened)
    files.key_figures(found)
    if found.num_files:
        files.explore(opened, found)
    else:
        files.nothing(opened)
