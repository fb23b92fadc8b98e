"""Files: why is it slow, where are the small files? Sizes as a distribution, then partitions or single files."""

import streamlit as st

from app import context, errors, state
from app.components import file_sizes, files
from app.components.frame import table_header

opened = table_header("files")
with errors.boundary():
    found = file_sizes.counted(opened)
    files.key_figures(found)
    bucket = files.chart(found, context.settings().health)
    view = st.segmented_control(
        "Show", files.VIEWS, default="Largest", required=True, key=state.VIEW, bind="query-params"
    )
    if bucket:
        files.of_bucket(opened.snapshot, bucket)
    elif view == "By partition":
        files.partitions(opened.snapshot, found)
    elif view == "Clustering":
        files.clustering(opened)
    elif view == "Deleted rows":
        files.vectors(found)
        files.extremes(opened.snapshot, order="deleted")
    else:
        files.extremes(opened.snapshot, order=view.lower())
