"""The Python blocks of AgentFlow's page on sessions, word for word, with the page's indentation.

A block is run as a reader of the page would: with `Sandbox` imported, and, if it is only a part, inside an `async with
Sandbox() as sandbox`.
"""

REUSED = """
async with Sandbox() as sandbox:
    # 显式创建 Session
    await sandbox.create_session("vm", {
        "screen_size": [1920, 1080],
        "custom_name": "my_vm"
    })

    # 多次执行,复用同一个 Session
    await sandbox.execute("vm:screenshot", {})  # 复用
    await sandbox.execute("vm:click", {"x": 100})  # 复用
    await sandbox.execute("vm:type", {"text": "hello"})  # 复用

    # 显式销毁
    await sandbox.destroy_session("vm")
"""

TEMPORARY = """
async with Sandbox() as sandbox:
    # 直接执行,自动创建临时 Session
    await sandbox.execute("vm:screenshot", {})
    # Session 已自动销毁

    # 再次执行会创建新的临时 Session
    await sandbox.execute("vm:click", {"x": 100})
    # Session 又销毁了
"""

REFRESH = """
async with Sandbox() as sandbox:
    await sandbox.create_session("vm")

    # 刷新指定 Session
    await sandbox.refresh_sessions("vm")

    # 刷新所有 Session
    await sandbox.refresh_sessions()
"""

REINITIALIZE = """
async with Sandbox() as sandbox:
    await sandbox.create_session("vm", {"screen_size": [1920, 1080]})

    # 需要更换配置时,重新初始化
    result = await sandbox.reinitialize("vm", {"screen_size": [2560, 1440]})
    print(result)
    # {
    #     "status": "success",
    #     "old_session_id": "xxx",
    #     "new_session_id": "yyy",
    #     "config_applied": {"screen_size": [2560, 1440]}
    # }
"""

LIST = """
async with Sandbox() as sandbox:
    await sandbox.create_session(["vm", "bash"])

    # 列出所有 Session
    sessions = await sandbox.list_sessions()
    print(sessions)
    # {
    #     "sessions": [
    #         {"resource_type": "vm", "session_id": "xxx", "status": "active"},
    #         {"resource_type": "bash", "session_id": "yyy", "status": "active"}
    #     ]
    # }
"""

#: A part: the reader supplies the code around it.
MODES = """
# 多次操作同一资源 → 显式创建
await sandbox.create_session("vm")
await sandbox.execute("vm:screenshot", {})
await sandbox.execute("vm:click", {"x": 100})
await sandbox.execute("vm:type", {"text": "hello"})
await sandbox.destroy_session("vm")

# 单次操作 → 临时 Session
await sandbox.execute("vm:screenshot", {})
"""

CLEAN_UP = """
async with Sandbox() as sandbox:
    try:
        await sandbox.create_session("vm")
        # ... 操作 ...
    finally:
        await sandbox.destroy_session("vm")
"""

CONTEXT = """
# 上下文管理器会自动调用 close()
async with Sandbox() as sandbox:
    await sandbox.create_session("vm")
    # ... 操作 ...
# 退出时自动清理
"""

BLOCKS = {
    "reused": REUSED,
    "temporary": TEMPORARY,
    "refresh": REFRESH,
    "reinitialize": REINITIALIZE,
    "list": LIST,
    "modes": MODES,
    "clean up": CLEAN_UP,
    "context": CONTEXT,
}

#: Replacements for a service without desktops: Python stands for "vm", because it also has a config and a tool.
ON_PYTHON = {
    '"vm:screenshot", {}': '"python:run", {"code": "1"}',
    '"vm:click", {"x": 100}': '"python:run", {"code": "x = 100"}',
    '"vm:type", {"text": "hello"}': '"python:run", {"code": "\'hello\'"}',
    '"screen_size": [1920, 1080]': '"cwd": "/"',
    '"screen_size": [2560, 1440]': '"cwd": "/tmp"',
    '"vm"': '"python"',
}
