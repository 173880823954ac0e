"""Does one operation.

survey FOLDER RUNS [STACK]   a line for each run of a cluster: its size, and whether it lives; before them, a line that
                        says whether FOLDER has the file STACK
ids FOLDER RUNS         a line for each run: only whether it lives, and when it started
list TOP BELOW NAME...  a line for each file in TOP/BELOW (without names: all of it)
find PATH               the same for one path that a person named, with its links followed
shared PATH FROM TO     the same for what is in a folder and changed between two times (ns); other files are counted
now                     a line with this machine's time
send TOP BELOW          frames with the content of files; standard input: [[PATH, AT, TIME, MOST], ...]
write PATH NAME KIND    writes frames from standard input to PATH; KIND is f or d
remove FOLDER RUNS      removes runs of a cluster; standard input: [ID, ...]
"""

import os
import sys
from typing import Any, Dict, List

from .lists import find, list_files, now, shared
from .runs import ids, remove, survey
from .send import send
from .write import write


def main(argv: List[str]) -> None:
    operations: Dict[str, Any] = {
        "survey": survey,
        "ids": ids,
        "list": list_files,
        "find": find,
        "shared": shared,
        "now": now,
        "send": send,
        "write": write,
        "remove": remove,
    }
    try:
        operations[argv[0]](*argv[1:])
    except OSError as error:
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        sys.exit("%s%s" % (error.strerror, ": %s" % (name,) if name else ""))
