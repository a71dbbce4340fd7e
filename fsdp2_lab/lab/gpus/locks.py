"""Lock files of GPUs, in one folder for everybody on a machine; the kernel frees a lock when its holder dies."""

import fcntl
import json
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from ...contract.errors import UsageError

FOLDER = Path("/tmp/fsdp2-lab-gpus")  # not TMPDIR: users who differ in that must still meet here
_FOLDER_MODE, _FILE_MODE = 0o1777, 0o666  # all may lock, none may remove what another made
_MOST_BYTES = 4096


@dataclass(frozen=True)
class Holder:
    """Who holds a GPU, in that launch's own words; a pid of 0 and an empty run id where it left none."""

    user: str = "somebody"
    pid: int = 0
    run_id: str = ""
    since_unix_seconds: float = 0.0

    def __str__(self) -> str:
        minutes = int(max(0.0, time.time() - self.since_unix_seconds) / 60)
        known = {f"pid {self.pid}": self.pid, f"run {self.run_id}": self.run_id, f"for {minutes} min": self.pid}
        facts = ", ".join(fact for fact, there in known.items() if there)
        return f"{self.user} ({facts})" if facts else self.user


class Held(Exception):
    """A GPU's lock is another launch's; `holder` says whose."""

    def __init__(self, holder: Holder):
        super().__init__(str(holder))
        self.holder = holder


@contextmanager
def locked(name: str, run_id: str) -> Iterator[None]:
    """Hold the lock of one GPU. Raises `Held` where another launch has it, `UsageError` where there can be no lock."""
    with _open(_folder() / f"{name}.lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(_read(file)) from None
        try:
            _write(file, Holder(_user_name(os.getuid()), os.getpid(), run_id, time.time()))
            yield
        finally:
            file.truncate(0)
            fcntl.flock(file, fcntl.LOCK_UN)  # closing alone would leave it to a child that was forked meanwhile


def _folder() -> Path:
    try:
        FOLDER.mkdir(exist_ok=True)
        found = FOLDER.lstat()
        if found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode):
            FOLDER.chmod(_FOLDER_MODE)  # mkdir's mode went through the umask
            found = FOLDER.lstat()
    except OSError as error:
        raise UsageError(f"{FOLDER}, the folder of GPU locks, cannot be made ({error.strerror}).") from error
    if not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) != _FOLDER_MODE:
        raise UsageError(
            f"{FOLDER} is not the folder of GPU locks that it should be: ask its owner, {_user_name(found.st_uid)}, "
            f"to remove it or to run `chmod 1777 {FOLDER}`."
        )
    return FOLDER


def _open(path: Path):
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    # Linux refuses O_CREAT for another user's file in a folder that all may write, so it comes with O_EXCL only.
    for create in (0, os.O_CREAT | os.O_EXCL, 0):
        try:
            file = FileIO(os.open(path, flags | create, _FILE_MODE), "r+")
            break
        except (FileNotFoundError, FileExistsError):
            continue
        except PermissionError:
            owner = _user_name(path.lstat().st_uid)
            raise Held(Holder(f"{owner}, whose lock {path} cannot be opened")) from None
        except OSError as error:
            raise UsageError(f"The GPU lock {path} cannot be opened ({error.strerror}): remove it.") from error
    else:
        raise Held(Holder())
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:  # a second name could be another's own file
        file.close()
        raise UsageError(f"The GPU lock {path} is no plain file: ask {_user_name(found.st_uid)} to remove it.")
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != _FILE_MODE:
        os.fchmod(file.fileno(), _FILE_MODE)
    return file


def _write(file, holder: Holder) -> None:
    with suppress(OSError):  # on a full disk the lock holds all the same, without a name
        file.truncate(0)
        file.seek(0)
        file.write(json.dumps(asdict(holder)).encode())


def _read(file) -> Holder:
    # Anybody on the machine may have written this.
    try:
        said = json.loads(os.pread(file.fileno(), _MOST_BYTES, 0))
        user, pid, run_id, since = (said[name] for name in ("user", "pid", "run_id", "since_unix_seconds"))
        if type(pid) is int and 0 < pid < 2**31 and isinstance(since, int | float) and 0 <= since < 2**40:
            return Holder(_word(user), pid, _word(run_id), since)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return Holder()


def _word(text) -> str:
    return re.sub(r"[^\w.@-]", "", str(text))[:64]


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user need not have a name
        return f"uid {uid}"
