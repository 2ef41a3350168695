"""Where a client gets its token from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from berth._endpoint import endpoint

TOKEN = "berth_abcdefghij_" + "0" * 43


@pytest.fixture(autouse=True)
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for profiles, and an environment without settings."""
    for name in ("BERTH_ADDRESS", "BERTH_TOKEN", "BERTH_TOKEN_FILE", "BERTH_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "berth").mkdir()
    (tmp_path / "berth" / "token").write_text(f"{TOKEN}\n")
    file = tmp_path / "berth" / "profiles.json"
    file.write_text(
        json.dumps(
            {
                "inline": {"address": "127.0.0.1:1", "token": TOKEN},
                "file": {"address": "127.0.0.1:2", "token-file": "token"},
                "none": {"address": "127.0.0.1:3"},
                "wrong": {"address": "127.0.0.1:4", "tokn": TOKEN},
            }
        )
    )
    return file


def found(**given: str) -> tuple[str, str | None]:
    made = endpoint(
        given.get("address"), given.get("token"), None, None, given.get("token_file"), given.get("profile")
    )
    return made.address, dict(made.metadata).get("authorization")


BEARER = f"Bearer {TOKEN}"


def test_sources(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(profiles.parent / "token")
    assert found() == ("127.0.0.1:7070", None)
    assert found(token=TOKEN) == ("127.0.0.1:7070", BEARER)
    assert found(token_file=file) == ("127.0.0.1:7070", BEARER)
    assert found(profile="inline") == ("127.0.0.1:1", BEARER)
    assert found(profile="file") == ("127.0.0.1:2", BEARER)
    monkeypatch.setenv("BERTH_TOKEN_FILE", file)
    assert found() == ("127.0.0.1:7070", BEARER)
    assert found(token="") == ("127.0.0.1:7070", None)
    monkeypatch.setenv("BERTH_TOKEN", "another")
    assert found() == ("127.0.0.1:7070", "Bearer another")
    assert found(profile="inline") == ("127.0.0.1:1", BEARER)
    assert found(profile="none") == ("127.0.0.1:3", "Bearer another")


def test_files_may_begin_with_a_byte_order_mark(profiles: Path) -> None:
    token = profiles.parent / "token"
    for file in (profiles, token):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert found(profile="inline") == ("127.0.0.1:1", BEARER)
    assert found(profile="file") == ("127.0.0.1:2", BEARER)
    assert found(token_file=str(token)) == ("127.0.0.1:7070", BEARER)


def test_files_are_found_wherever_the_program_works_later(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(profiles.parent)
    ca = Path(os.environ["BERTH_TEST_CA"]).read_bytes()
    Path("ca.pem").write_bytes(ca)
    made = endpoint("127.0.0.1:1", None, "ca.pem", None, token_file="token")
    assert made.credentials is not None
    before = made.credentials()
    monkeypatch.chdir("/")
    (profiles.parent / "token").write_text("renewed")
    (profiles.parent / "ca.pem").write_bytes(ca * 2)
    assert dict(made.metadata)["authorization"] == "Bearer renewed"
    assert made.credentials() is not before


def test_the_token_of_a_profile_goes_to_its_address_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_PROFILE", "inline")
    assert found() == ("127.0.0.1:1", BEARER)
    assert found(address="127.0.0.1:9") == ("127.0.0.1:9", None)
    monkeypatch.setenv("BERTH_ADDRESS", "127.0.0.1:8")
    assert found() == ("127.0.0.1:8", None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"token": "a b"}, "the token is not a token"),
        ({"token_file": "/no/such"}, "token_file: /no/such cannot be read"),
        ({"token_file": "/dev/null"}, "token_file: /dev/null is empty"),
        ({"profile": "nope"}, 'has no profile "nope"; it has: inline, file, none, wrong'),
        ({"profile": "wrong"}, 'there is no key "tokn"'),
        ({"profile": "inline", "address": "127.0.0.1:9"}, "a profile and an address are both given"),
    ],
)
def test_what_cannot_be_used(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        found(**given)
    assert TOKEN not in str(raised.value)
