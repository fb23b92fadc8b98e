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
_NAMES_PLACE = re.compile(
    r"(?:url|uri|id|class|type|location|path|file|dir|directory|folder|application[._]credentials|provider"
    r"|algorithm|expir\w*|seconds|ms)$",
    re.I,
)
# Where a word begins, also after an escape or in a URL; so that a long word is tried once.
_BEGINS = r"(?:(?<![\w-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_ISSUED = (  # as their issuers write them: the prefix and no fewer characters than theirs
    r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\w{22,255}|glpat-[\w-]{20,255}"
    r"|xox[a-z]-(?=[\w-]*\d)[\w-]{10,255}|xapp-\d-[\w-]{10,255}|[srp]k_(?:live|test)_[A-Za-z0-9]{16,255}"
    r"|whsec_[\w/+]{20,255}|sk-(?:ant|proj|svcacct)-[\w-]{20,255}|AIza[\w-]{35}|ya29\.[\w-]{20,2000}"
    r"|dapi[0-9a-f]{32}(?:-\d)?|hf_[A-Za-z]{34}|npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{50,1000}|SG\.[\w-]{22}\.[\w-]{43}|hvs\.[\w-]{24,255}"
    r"|eyJ[\w-]{10,4000}\.[\w-]{4,9000}\.[\w-]{10,4000}(?:\.[\w-]{10,4000}){0,2}"  # a JWT, signed or encrypted
)
_FORMS = (  # every repeat has an end: a text of a megabyte takes a second, whatever is in it
    # All up to the last "@": an "@" or "/" in a password may stand there as it is.
    (r"(?P<head>(?<![a-z0-9])[a-z][a-z0-9+.-]{1,40}://[^\s/@:]{0,200}:)\S{0,1000}@", rf"\g<head>{MASK}@"),
    (r"(?P<head>https?://)[^\s/@]{1,1000}@", rf"\g<head>{MASK}@"),
    (r"(?P<head>jdbc:oracle:\w+:[^\s/@]{0,200}/)\S{0,1000}@", rf"\g<head>{MASK}@"),
    # The address of a webhook is its key.
    (r"(?P<head>https?://(?:hooks\.[^\s/]{1,200}|[^\s?]{1,200}?/webhook\w{0,9})/)[^\s\"'<>]+", rf"\g<head>{MASK}"),
    (r"(?P<head>-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----).*?(?:(?=-----END)|\Z)", rf"\g<head>{MASK}"),
    (rf"(?-i:{_BEGINS}(?:{_ISSUED}))", MASK),
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
