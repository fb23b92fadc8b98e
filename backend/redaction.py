"""Texts, addresses and options without their secrets: the one place that knows what a secret looks like.

Rule: a secret is hidden by its form (a URL's login, `password=…`, a key, a token), and by its value where a process has
it (`remember`), whatever text it stands in. To hide too much is right, to hide too little is not.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MASK = "***"
_LEAST = 6  # a shorter value is a part of many words, and is hidden by its form alone

_WORDS = (
    r"passw(?:or)?d|passphrase|pwd|secret|token|signature|jaas[._]config|(?<![a-z])(?:sig|sas)(?![a-z])"
    r"|(?:access|account|api|private|shared|ssl|storage|encryption)[._-]?key"
)
_NAMES_SECRET = re.compile(rf"{_WORDS}|passw|credential|authorization|cookie|(?<![a-z])(?:sas|sig|key)s?$", re.I)
_NAMES_PLACE = re.compile(r"(?:url|uri|id|class|type|location|path|file|provider|algorithm|expir\w*|seconds|ms)$", re.I)
_FORMS = (  # every repeat has an end: a text of a megabyte takes a second, whatever is in it
    # All up to the last "@": an "@" or "/" in a password may stand there as it is.
    (r"(?P<head>(?<![a-z0-9])[a-z][a-z0-9+.-]{1,40}://[^\s/@:]{0,200}:)\S{0,1000}@", rf"\g<head>{MASK}@"),
    (r"(?P<head>https?://)[^\s/@]{1,1000}@", rf"\g<head>{MASK}@"),
    (r"(?P<head>jdbc:oracle:\w+:[^\s/@]{0,200}/)\S{0,1000}@", rf"\g<head>{MASK}@"),
    # The address of a webhook is its key.
    (r"(?P<head>https?://(?:hooks\.[^\s/]{1,200}|[^\s?]{1,200}?/webhook\w{0,9})/)[^\s\"'<>]+", rf"\g<head>{MASK}"),
    (r"(?P<head>-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:(?=-----END)|\Z)", rf"\g<head>{MASK}"),
    (
        r"(?P<head>\bbearer\s+|\bauthorization\\*[\"']?\s?[:=]\s?\\*[\"']?(?:\w{1,20}\s)?)[^\s\"',;\\]+",
        rf"\g<head>{MASK}",
    ),
    # A value in quotes ends with the same quotes, or where the text was cut off.
    (
        rf"(?P<head>(?:{_WORDS})[\w.-]{{0,100}}\\{{0,9}}[\"']?\s{{0,9}}[=:]\s{{0,9}})"
        r"(?:(?P<quote>\\*[\"'])(?:.*?(?<!\\)(?P=quote)|.*)|[^\s&;,\"']+)",
        rf"\g<head>\g<quote>{MASK}\g<quote>",
    ),
)
_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE | re.DOTALL), shown) for pattern, shown in _FORMS)

_values: frozenset[str] = frozenset()
_any_value: re.Pattern[str] | None = None


def is_secret(name: str) -> bool:
    """Whether the value of an option, a variable or a field of this name is one: `fs.s3a.secret.key`, `PGPASSWORD`."""
    return bool(_NAMES_SECRET.search(name)) and not _NAMES_PLACE.search(name)


def holds_secret(text: str) -> bool:
    """Whether something in it looks like one."""
    return any(pattern.search(text) for pattern, _ in _PATTERNS)


def remember(values: Iterable[str]) -> None:
    """Hide these from now on in every text of this process, as they are and as a URL writes them."""
    global _values, _any_value
    known = _values.union(form for value in values if len(value) >= _LEAST for form in (value, quote(value, safe="")))
    if known != _values:
        longest_first = sorted(known, key=len, reverse=True)
        _values, _any_value = known, re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")


def remember_options(options: Mapping[str, str]) -> None:
    """Hide the values of those whose names say that they are secret."""
    remember(value for name, value in options.items() if is_secret(name))


def without_secrets(text: str) -> str:
    """The text with `***` in place of each secret. Cut it after this, not before."""
    for pattern, shown in _PATTERNS:
        text = pattern.sub(shown, text)
    return _any_value.sub(MASK, text) if _any_value else text
