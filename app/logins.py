"""Logins by OpenID Connect: whom a token names, in which groups, and whether that login still counts.

Rule: Streamlit asks the provider and signs the cookie. What that holds counts through `read_login` and `require` alone:
until it is too old, or ended in the audit trail. One that cannot be written there does not begin.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256

from app import services
from backend.errors import LoginRefusedError
from backend.format import duration_text
from backend.settings import AuthSettings
from backend.stream_model.stream import AuditEntry

_CLOCKS_DIFFER = timedelta(minutes=2)
_LONGEST = 200  # characters of a name
_MOST = 100  # logins and logouts of one person that are looked at: of a few days


@dataclass(frozen=True, slots=True)
class Login:
    """Of a person; `key` tells it from every other."""

    key: str
    name: str
    provider: str
    groups: frozenset[str]

    def entry(self, action: str) -> AuditEntry:
        """Of the audit trail, in which each person's logins have one subject."""
        subject, groups = f"login of {self.name} by {self.provider}", f"groups: {json.dumps(sorted(self.groups))}"
        return AuditEntry(services.now(), self.name, action, subject, groups, self.key)


def read_login(claims: Mapping[str, object], auth: AuthSettings, now: datetime) -> Login:
    """The login that a token's claims tell of, with its `provider`; raises `LoginRefusedError`."""
    name, audience, issued = str(claims.get("provider")), claims.get("aud"), claims.get("iat")
    if (provider := auth.providers.get(name)) is None:
        raise LoginRefusedError("your login is by a provider that is not configured")
    # A library that goes by the specification lets another audience pass where `azp` names this application.
    if provider.client_id not in (audience if isinstance(audience, list) else [audience]):
        raise LoginRefusedError("the provider's token is for another application")
    if not isinstance(issued, int | float) or not 0 < issued <= (now + _CLOCKS_DIFFER).timestamp():
        raise LoginRefusedError("the provider's token does not say when it was made, or its clock is wrong")
    if now >= datetime.fromtimestamp(issued, UTC) + timedelta(hours=auth.session_hours):
        raise LoginRefusedError(f"your login has ended: it counted for {duration_text(auth.session_hours * 3600)}")
    person = claims.get(auth.name_claim)
    if not isinstance(person, str) or not clean_text(person):
        raise LoginRefusedError(f"the provider's token names nobody in `{auth.name_claim}`")
    if auth.name_claim == "email" and str(claims.get("email_verified", True)).lower() == "false":
        raise LoginRefusedError("the provider has not verified your mail address")
    parts = json.dumps([name, *(str(claims.get(part)) for part in ("iss", "sub", "iat", "nonce"))])
    groups = frozenset(filter(None, map(clean_text, _texts(_claim(claims, auth.groups_claim)))))
    return Login(sha256(parts.encode()).hexdigest(), clean_text(person), name, groups)


@lru_cache(1_000)
def require(login: Login, _second: int) -> None:
    """Raises `LoginRefusedError` where the trail has its logout or, after it began, a login of the same person with
    other groups; `StoreError`. Writes it there first. Asked once in a `second`, unless refused."""
    own, store = login.entry("login"), services.store()
    entries = store.audit_entries(subject=own.subject, limit=_MOST)  # newest first
    of_login = [number for number, entry in enumerate(entries) if entry.detail == login.key]
    later = [entry.reason for entry in entries[: max(of_login, default=0)] if entry.action == "login"]
    if any(entries[number].action == "logout" for number in of_login) or set(later) - {own.reason}:
        raise LoginRefusedError("you are logged out, or your groups have changed")
    if not of_login:
        store.note_of_viewer(own)


def end(login: Login) -> None:
    """Logs out every page and browser that has this login; raises `StoreError`."""
    services.store().note_of_viewer(login.entry("logout"))
    require.cache_clear()


def clean_text(text: str) -> str:
    """A name without spaces around it; empty for what is none: too long, or with what a screen does not show."""
    name = text.strip()
    return name if name.isprintable() and len(name) <= _LONGEST else ""


def _claim(claims: Mapping[str, object], path: str) -> object:
    """The claim of this name, which may hold dots; else the one inside others."""
    value: object = claims
    for part in [path] if path in claims else path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _texts(value: object) -> list[str]:
    parts = value if isinstance(value, list) else []
    return [value] if isinstance(value, str) else [text for part in parts for text in _texts(part)]
