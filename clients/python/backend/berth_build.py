"""Builds the wheel (PEP 517): the client and the generated stubs, put together under one name."""

import base64
import csv
import hashlib
import io
import tomllib
import zipfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent.parent
_SOURCES = {"berth": _HERE / "src/berth", "berth/v1": _HERE.parent.parent / "gen/python/berth/v1"}
_SUFFIXES = {".py", ".pyi", ".typed"}
_WHEEL = "Wheel-Version: 1.0\nGenerator: berth_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel and returns its name."""
    project = tomllib.loads((_HERE / "pyproject.toml").read_text())["project"]
    stem = f"{project['name']}-{project['version']}"
    info = f"{stem}.dist-info"
    files = dict(_sources())
    files[f"{info}/METADATA"] = _metadata(project).encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    files[f"{info}/RECORD"] = _record(files, info).encode()
    name = f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            # The same sources give the same bytes.
            wheel.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content)
    return name


def _sources():
    for package, directory in _SOURCES.items():
        if not directory.is_dir():
            raise FileNotFoundError(f"{directory} is missing: build from a whole checkout of Berth")
        for file in sorted(directory.iterdir()):
            if file.suffix in _SUFFIXES:
                yield f"{package}/{file.name}", file.read_bytes()


def _metadata(project):
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License: {project['license']['text']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {dependency}" for dependency in project["dependencies"]),
        "Description-Content-Type: text/markdown",
        "",
        (_HERE / project["readme"]).read_text(),
    ]
    return "\n".join(lines)


def _record(files, info):
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(content)])
    rows.writerow([f"{info}/RECORD", "", ""])
    return text.getvalue()
