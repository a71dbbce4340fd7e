"""Whether a fork of the server of warm ranks would be as good as a new Python: why not, in one line."""

import os
import sys
from pathlib import Path


def stale_since(began_unix_seconds: float) -> str | None:
    """Why a fork of this process would not be what a new Python is now; `None` where it would.

    `began_unix_seconds` is when this process began its imports.
    """
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        return f"{threads} threads run in the server of warm ranks, and a fork would lose them"
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and os.path.isabs(file) and _changed_since(file, began_unix_seconds):
            return f"{module.__name__} has changed on disk"
    if any(_changed_since(folder, began_unix_seconds) for folder in sys.path if folder.endswith("-packages")):
        return "installed packages have changed"
    return None


def hidden_beside(script: Path) -> str | None:
    """Which file beside a script a new Python would import in place of what a fork has already, if any."""
    for path in sorted(script.parent.glob("*")):
        name = path.name.partition(".")[0]
        module = sys.modules.get(name)
        if module is None or name in sys.builtin_module_names or name == "fsdp2_lab":
            continue
        file = path / "__init__.py" if path.is_dir() else path
        if file.suffix in (".py", ".so") and file.is_file() and not _is_of(module, file):
            return f"{path.name} beside the script hides a module that warm ranks have imported"
    return None


def _is_of(module, file: Path) -> bool:
    own = getattr(module, "__file__", None)
    return bool(own) and os.path.exists(own) and os.path.samefile(own, file)


def _changed_since(path: str, unix_seconds: float) -> bool:
    try:
        return Path(path).stat().st_mtime > unix_seconds
    except OSError:
        return True  # it is gone
