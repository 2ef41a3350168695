"""Finds the address of a service and the token: from arguments, the environment, and profiles."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Union, cast

_KEYS = ("address", "tls-ca", "client-cert", "client-key", "token", "token-file")
_FILES = {"tls-ca", "client-cert", "client-key", "token-file"}

_Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Access:
    """The address of a service, and the token to send."""

    #: None: not set anywhere.
    address: str | None
    #: Returns the token to send with a call. Reads it again if it is in a file, which may be replaced at any time.
    token: Callable[[], str | None]
    #: PEM file with the authorities that the profile in use trusts.
    tls_ca: str | None
    #: PEM files with the certificate that the profile in use presents, and its key. Both are set, or neither.
    client_cert: str | None
    client_key: str | None


def find_access(address: str | None, token: str | None, token_file: _Path | None, profile: str | None) -> Access:
    """Finds out where to call, and with which token.

    A given address, or BERTH_ADDRESS, overrides BERTH_PROFILE completely: a profile's token is only for its own
    address. Order of tokens: the given one or its file, the profile's, BERTH_TOKEN, BERTH_TOKEN_FILE. Raises ValueError
    for a profile or a file that cannot be used.
    """
    env = os.environ
    found = _profile_of(address, profile)
    if token is not None:
        current = _fixed(token)
    elif token_file is not None:
        current = _from_file("token_file", token_file)
    elif "token" in found:
        current = _fixed(found["token"])
    elif "token-file" in found:
        current = _from_file("token-file of the profile", found["token-file"])
    elif env.get("BERTH_TOKEN"):
        current = _fixed(env["BERTH_TOKEN"])
    elif env.get("BERTH_TOKEN_FILE"):
        current = _from_file("BERTH_TOKEN_FILE", env["BERTH_TOKEN_FILE"])
    else:
        current = _fixed("")
    return Access(
        address=address or found.get("address") or env.get("BERTH_ADDRESS") or None,
        token=current,
        tls_ca=found.get("tls-ca"),
        client_cert=found.get("client-cert"),
        client_key=found.get("client-key"),
    )


def profiles_file() -> Path:
    """The file with the profiles: `$XDG_CONFIG_HOME/berth/profiles.json`, by default below `~/.config`."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "berth" / "profiles.json"


def _profile_of(address: str | None, profile: str | None) -> Dict[str, str]:
    if profile and address:
        raise ValueError("a profile and an address are both given: name one of them, since a profile has an address")
    if profile:
        return _read_profile(profile)
    named = os.environ.get("BERTH_PROFILE")
    return _read_profile(named) if named and not address and not os.environ.get("BERTH_ADDRESS") else {}


def _read_profile(name: str) -> Dict[str, str]:
    file = profiles_file()
    try:
        profiles = json.loads(_read_text(f'profile "{name}"', file))
    except json.JSONDecodeError:
        # The parser's error would contain the file, and so its tokens.
        raise ValueError(f"{file} is not JSON") from None
    if not isinstance(profiles, dict):
        raise ValueError(f'{file} must contain an object of profiles, such as {{"work": {{"address": "https://berth.example.com"}}}}')
    known = cast("Dict[str, Any]", profiles)
    if name not in known:
        raise ValueError(f'{file} has no profile "{name}"; it has: {", ".join(known) or "none"}')
    return _checked_profile(f'profile "{name}" in {file}', known[name], file)


def _checked_profile(what: str, profile: object, file: Path) -> Dict[str, str]:
    if not isinstance(profile, dict):
        raise ValueError(f'{what}: it must be an object, as {{"address": "https://berth.example.com"}}')
    checked: Dict[str, str] = {}
    for key, value in cast("Dict[str, Any]", profile).items():
        if key not in _KEYS:
            raise ValueError(f'{what}: there is no key "{key}"; there are: {", ".join(_KEYS)}')
        if not isinstance(value, str) or not value:
            raise ValueError(f"{what}: {key} must be a text")
        checked[key] = str(file.parent / value) if key in _FILES else value
    if "address" not in checked:
        raise ValueError(f"{what}: it has no address")
    if "token" in checked and "token-file" in checked:
        raise ValueError(f"{what}: it has both token and token-file; leave one of them out")
    if ("client-cert" in checked) != ("client-key" in checked):
        raise ValueError(f"{what}: client-cert and client-key belong together; it has only one of them")
    return checked


def _fixed(token: str) -> Callable[[], str | None]:
    text = _checked(token, "the token") if token else None
    return lambda: text


def _from_file(what: str, file: _Path) -> Callable[[], str | None]:
    """The first time, the file must hold a token. Later, what cannot be used leaves the previous token in force."""
    token = _read_token(what, file)
    # Wherever the program works later.
    place = os.path.abspath(file)

    def current() -> str:
        nonlocal token
        # What the shell pipes in can be read only once.
        if os.path.isfile(place):
            with contextlib.suppress(ValueError):
                token = _read_token(what, place)
        return token

    return current


def _read_token(what: str, file: _Path) -> str:
    token = _read_text(what, file).strip()
    if not token:
        raise ValueError(f"{what}: {os.fspath(file)} is empty")
    return _checked(token, f"{what}: {os.fspath(file)}")


def _read_text(what: str, file: _Path) -> str:
    try:
        # Without the byte order mark that some editors of Windows write.
        return Path(file).read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ValueError(f"{what}: {os.fspath(file)} cannot be read ({error.strerror})") from error


def _checked(token: str, what: str) -> str:
    """Checks that a header can contain the token. The error does not show it."""
    text = token.strip()
    if not re.fullmatch(r"[\x21-\x7e]{1,4096}", text):
        raise ValueError(f"{what} is not a token: one word of printable ASCII, as berth token create prints it")
    return text
