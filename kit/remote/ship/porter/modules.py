"""The submodules of a commit: where they are, which commit each one is at, and what git fetches them from."""

from typing import Dict, List, NamedTuple, Optional

# git writes `mode object stage TAB path` for each file of an index.
_GITLINK = "160000"
_PREFIX = "submodule."


class Module(NamedTuple):
    """A submodule. `url` is None if .gitmodules has no address for it, or says that it is not to be fetched."""

    path: str
    commit: str
    url: Optional[str]


def modules(listed: str, settings: str, base: str) -> List[Module]:
    """Return the submodules of a commit, by path.

    `listed` is what `git ls-files --stage -z` prints, `settings` what `git config --null --list` prints of .gitmodules,
    and `base` the URL of the repository, from which relative URLs go.
    """
    links = {}
    for item in listed.split("\0"):
        numbers, _, path = item.partition("\t")
        mode, _, rest = numbers.partition(" ")
        if mode == _GITLINK:
            links[path] = rest.partition(" ")[0]
    urls = _urls(settings)
    return [
        Module(path, commit, resolved(base, urls[path]) if path in urls else None)
        for path, commit in sorted(links.items())
    ]


def _urls(settings: str) -> Dict[str, str]:
    """Return the URL of each path that .gitmodules names and does not exclude from updates."""
    named: Dict[str, Dict[str, str]] = {}
    for item in settings.split("\0"):
        key, _, value = item.partition("\n")
        if key.startswith(_PREFIX):
            name, dot, field = key[len(_PREFIX) :].rpartition(".")
            if dot:
                named.setdefault(name, {})[field] = value
    complete = [fields for fields in named.values() if fields.get("path") and fields.get("url")]
    return {fields["path"]: fields["url"] for fields in complete if fields.get("update") != "none"}


def resolved(base: str, url: str) -> str:
    """Return a submodule's URL. `./` and `../` go from the URL of the repository, as git has it."""
    if not url.startswith(("./", "../")):
        return url
    above, separator = base.rstrip("/"), "/"
    while url.startswith(("./", "../")):
        step, _, url = url.partition("/")
        if step == "..":
            # `host:path` has one step that no slash marks.
            separator = "/" if "/" in above else ":"
            above = above.rpartition(separator)[0]
    return above + separator + url
