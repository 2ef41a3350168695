"""Carries out requests with llm-sandbox: lines of JSON on stdin, any number concurrently, answered with lines of JSON.
"""

import base64
import json
import shlex
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import docker
from llm_sandbox.docker import SandboxDockerSession

sessions: dict[str, SandboxDockerSession] = {}
answering = threading.Lock()
client = docker.from_env(max_pool_size=32)


def create(request: dict[str, Any]) -> dict[str, Any]:
    session = SandboxDockerSession(
        client=client,
        image=request["image"],
        lang="python",
        keep_template=True,
        # It would install packages from the network.
        skip_environment_setup=True,
        workdir="/tmp",
        runtime_configs={
            "network_mode": "none",
            "labels": request["labels"],
            "mem_limit": request["memoryBytes"],
            "pids_limit": request["pids"],
        },
    )
    session.open()
    sessions[session.container.id] = session
    return {"container": session.container.id}


def run(request: dict[str, Any]) -> dict[str, Any]:
    session = sessions[request["container"]]
    line = request["line"]
    if "timeoutSeconds" in request:
        # Only code has a timeout, commands have none; and code runs in a Python of this name.
        session.execute_command("ln -sf /usr/bin/python3 /usr/bin/python")
        code = f"import subprocess, sys\nsys.exit(subprocess.run({line!r}, shell=True).returncode)"
        result = session.run(code, timeout=request["timeoutSeconds"])
    else:
        result = session.execute_command(f"sh -c {shlex.quote(line)}")
    return {
        "stdout": encoded(result.stdout),
        "stderr": encoded(result.stderr),
        "exitCode": result.exit_code,
    }


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def upload(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"Z" * request["bytes"])
        file.flush()
        sessions[request["container"]].copy_to_runtime(file.name, request["path"])
    return {}


def download(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile() as file:
        sessions[request["container"]].copy_from_runtime(request["path"], file.name)
        return {"bytes": file.seek(0, 2)}


def remove(request: dict[str, Any]) -> dict[str, Any]:
    sessions.pop(request["container"]).close()
    return {}


ACTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "create": create,
    "run": run,
    "upload": upload,
    "download": download,
    "remove": remove,
}


def answer(request: dict[str, Any]) -> None:
    try:
        result = ACTS[request["act"]](request)
    except Exception as error:  # noqa: BLE001 - the benchmark reports any failure
        result = {"error": f"{type(error).__name__}: {error}"}
    with answering:
        print(json.dumps({"id": request["id"], **result}), flush=True)


for received in sys.stdin:
    threading.Thread(target=answer, args=[json.loads(received)], daemon=True).start()
