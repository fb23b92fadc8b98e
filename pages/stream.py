"""One stream: how does it flow, since when, why, and what now."""

from app.errors import boundary
from app.streams.page import stream

with boundary():
    stream()
