"""Text that no spreadsheet takes for a formula.

Rule: such text gets an apostrophe in front; a number kept as text (a decimal) stays one.
"""

import pyarrow as pa
import pyarrow.compute as pc

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_FORMULA = f"^[{''.join(_FORMULA_STARTS).replace('-', chr(92) + '-')}]"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$"


def safe_text(text: str) -> str:
    """One text."""
    if not text.startswith(_FORMULA_STARTS):
        return text
    return text if _is_number(text) else f"'{text}"


def safe_column(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts; null stays null."""
    if not pc.any(odd := pc.match_substring_regex(texts, _FORMULA)).as_py():
        return texts
    odd = pc.and_(odd, pc.invert(pc.match_substring_regex(texts, _NUMBER)))
    return pc.if_else(odd, pc.binary_join_element_wise("'", texts, ""), texts)


def _is_number(text: str) -> bool:
    digits = text[1:] if text[:1] in "+-" else text
    return digits.isascii() and digits.replace(".", "", 1).isdigit()
