"""Builds the wheel, the source archive and the editable install (PEP 517 and 660). Needs only Python."""

import base64
import csv
import gzip
import hashlib
import io
import os
import tarfile
import tomllib
import zipfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent.parent
_SOURCE = _HERE / "src"
_SUFFIXES = {".py", ".pyi", ".typed"}
#: What a source archive contains besides the package.
_BESIDE = ("pyproject.toml", "README.md", "LICENSE", "backend/berth_build.py")
_WHEEL = "Wheel-Version: 1.0\nGenerator: berth_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel and returns its name."""
    return _write_wheel(wheel_directory, dict(_package()))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes a wheel that refers to the sources of this checkout, and returns its name."""
    return _write_wheel(wheel_directory, {"berth.pth": f"{_SOURCE}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    """Writes the source archive and returns its name. It includes the stubs, so that it can be built on its own."""
    project = _project()
    stem = _stem(project)
    files = {"PKG-INFO": _metadata(project).encode()}
    files |= {f"src/{path}": content for path, content in _package()}
    for name in _BESIDE:
        # In a checkout, the license is that of the repository.
        file = next((place / name for place in (_HERE, _HERE.parent.parent) if (place / name).is_file()), None)
        if file is None:
            raise FileNotFoundError(f"{name} is missing: build from a whole checkout of Berth")
        files[name] = file.read_bytes()
    with open(Path(sdist_directory) / f"{stem}.tar.gz", "wb") as target:
        # The same sources give the same bytes.
        with gzip.GzipFile("", "wb", fileobj=target, mtime=0) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for path, content in files.items():
                    entry = tarfile.TarInfo(f"{stem}/{path}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
    return f"{stem}.tar.gz"


def _write_wheel(directory, files):
    project = _project()
    stem = _stem(project)
    info = f"{stem}.dist-info"
    files[f"{info}/METADATA"] = _metadata(project).encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    files[f"{info}/RECORD"] = _record(files, info).encode()
    name = f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            # The same sources give the same bytes.
            wheel.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content)
    return name


def _package():
    """Every file of the package: its path and its content. src/berth/v1 may be a link."""
    if not (_SOURCE / "berth/v1/error_pb2.py").is_file():
        raise FileNotFoundError(
            f"{_SOURCE}/berth/v1 does not lead to the generated stubs: build from a whole checkout of Berth, on a "
            "file system with symbolic links, or from the source archive"
        )
    for directory, names, files in os.walk(_SOURCE, followlinks=True):
        names[:] = sorted(name for name in names if name != "__pycache__" and not name.endswith(".egg-info"))
        for name in sorted(files):
            file = Path(directory) / name
            if file.suffix in _SUFFIXES:
                yield file.relative_to(_SOURCE).as_posix(), file.read_bytes()


def _project():
    return tomllib.loads((_HERE / "pyproject.toml").read_text())["project"]


def _stem(project):
    return f"{project['name']}-{project['version']}"


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
