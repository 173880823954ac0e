"""What is wrong with a code folder or a file in it, as errors that say what to write."""

from __future__ import annotations

import re
import shlex

from kit.errors import InputError

_LEAVE_OUT = "list it in .kitignore"


def missing(folder: str) -> InputError:
    return InputError(f"the code folder {folder} does not exist", hint="write code: FOLDER, or code: none")


def no_folder(folder: str) -> InputError:
    return InputError(f"the code folder {folder} is not a folder", hint="write the folder that holds it")


def too_wide(folder: str, what: str) -> InputError:
    """Return the error for a folder that surely holds more than code: `what` is "a home folder", for example."""
    return InputError(
        f"the code folder {folder} is {what}", hint="put the code into a folder below it, and write code: FOLDER"
    )


def special(path: str, what: str) -> InputError:
    """Return the error for what is neither a file nor a folder nor a link: `what` is "a socket", for example."""
    return InputError(f"{path} is {what}, which cannot be part of the code", hint=f"remove it, or {_LEAVE_OUT}")


def unreadable(path: str, why: str) -> InputError:
    return InputError(f"{path} cannot be read: {why}", hint=f"make it readable for you, or {_LEAVE_OUT}")


def no_file(path: str) -> InputError:
    """Return the error for a `.kitignore` that is a folder or a device, or a link to one."""
    return InputError(f"{path} is not a file", hint="remove it, or replace it by a file with patterns")


def changing(path: str) -> InputError:
    return InputError(f"{path} changes while kit reads it", hint=f"wait until nothing writes to it, or {_LEAVE_OUT}")


def leads_out(top: str, path: str, target: str) -> InputError:
    """Return the error for the link at `path` below the folder `top`. It has the line for .kitignore."""
    # A pattern has another meaning for these letters. A backslash is escaped already, in text for a message.
    line = "/" + re.sub(r"[*?\[]", r"\\\g<0>", path)
    return InputError(
        f"the link {top}/{path} leads out of the code folder, to {target}",
        hint=f"write {line} into .kitignore, without a slash at its end because it is a link, and mount what it names "
        "with volumes: in kit.yaml; or replace the link by what it names",
    )


def bad_pattern(path: str, why: str) -> InputError:
    return InputError(f"{path} has a pattern that .gitignore does not allow: {why}", hint="correct it")


def no_git(folder: str) -> InputError:
    return InputError(
        f"{folder} is a git work tree, and git is not installed here",
        hint="install git, which knows the files that belong to the code",
    )


def no_repository(folder: str) -> InputError:
    """Return the error for a submodule or a repository inside whose `.git` leads nowhere."""
    return InputError(
        f"git does not know the files of {folder}: its .git leads to no repository",
        hint="make the repository reachable that its .git names; for a submodule, run git submodule update --init; "
        "or list the folder in .kitignore",
    )


def git_refused(folder: str, why: str) -> InputError:
    return InputError(
        f"git cannot list the files of {folder}: {why}",
        hint=f"run git -C {shlex.quote(folder)} status, and do what it says",
    )


def closed_to_git(folder: str, why: str) -> InputError:
    """Return the error for a folder inside that git cannot open. git looks into it before kit reads .kitignore."""
    return InputError(
        f"git cannot list the files of {folder}: {why}",
        hint="make that folder readable for you, or list it in .gitignore or .git/info/exclude; .kitignore is not "
        "enough here",
    )
