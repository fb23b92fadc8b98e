"""A provider of logins (oidc-provider-mock) beside a Weir that asks it, and people who log in without a browser."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
from joserfc import jwt
from joserfc.jwk import OctKey
from oidc_provider_mock import run_server_in_thread

CLIENT, COOKIE_SECRET = "weir", "a secret of tests, 32 characters and more"


@contextmanager
def provider() -> Iterator[str]:
    """Its address while it runs. Whoever names themselves is logged in there."""
    with run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


def login_settings(**addresses: str) -> dict[str, str]:
    """What Weir is told of providers by name, at these addresses."""
    providers = {
        name: {
            "metadata_url": f"{address}/.well-known/openid-configuration",
            "client_id": CLIENT,
            "client_secret": "secret-of-the-client",
            "label": name.title(),
        }
        for name, address in addresses.items()
    }
    return {
        "WEIR_AUTH__PROVIDERS": json.dumps(providers),
        "WEIR_AUTH__COOKIE_SECRET": COOKIE_SECRET,
        "WEIR_AUTH__REDIRECT_URL": "http://127.0.0.1:{port}/oauth2callback",
    }


def set_user(provider_url: str, name: str, **claims: object) -> None:
    """What the provider says of this person from now on."""
    httpx.put(f"{provider_url}/users/{name}", json={"email": name, **claims}).raise_for_status()


@dataclass
class Person:
    """Somebody with cookies of their own, before a Weir at `url`."""

    url: str
    name: str = "ann@example.com"
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    def leave(self, *, here: str = "/", provider_name: str = "main", token_for_s: int = 60) -> httpx.Response:
        """The way to the provider, from the page `here`."""
        key = OctKey.import_key(COOKIE_SECRET)
        claims = {"provider": provider_name, "exp": int(time.time()) + token_for_s}
        token = jwt.encode({"alg": "HS256"}, claims, key)
        headers = {"Referer": here if here.startswith("http") else f"{self.url}{here}"}
        return self.client.get(f"{self.url}/auth/login", params={"provider": token}, headers=headers)

    def consent(self, answer: httpx.Response) -> str:
        """Where the provider sends them, once they said who they are."""
        return self.client.post(answer.headers["location"], data={"sub": self.name}).headers["location"]

    def log_in(self, *, here: str = "/") -> httpx.Response:
        return self.client.get(self.consent(self.leave(here=here)))

    def cookie(self, name: str) -> str:
        return next((cookie.value or "" for cookie in self.client.cookies.jar if cookie.name == name), "")

    @property
    def token(self) -> str:
        """Streamlit's against foreign pages; a cookie holds it too."""
        if not self.cookie("_streamlit_xsrf"):
            self.client.get(f"{self.url}/_stcore/health")
        return self.cookie("_streamlit_xsrf") or "none"

    @property
    def headers(self) -> dict[str, str]:
        """Of a page's websocket: the cookies that a browser sends there."""
        sent = [cookie for cookie in self.client.cookies.jar if cookie.path == "/" and cookie.domain == "127.0.0.1"]
        return {"Cookie": "; ".join(f"{cookie.name}={cookie.value}" for cookie in sent)}
