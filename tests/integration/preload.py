"""Lab hosts that begin with an image on their engines, for tests that do not test how it gets there.

One host, the template, receives the image over kit's own way and stops. The disk of each new host then begins as a copy
of the template's disk. The files of the layers are hard links, because an engine never changes a layer's files: a copy
takes a second, and the image exists once on this machine's disk.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kit.events import Silent
from kit.flows.image.content import locked_bases
from kit.model.lab import LABEL, network_name
from kit.plan.bases import pin_bases
from kit.remote.lab import image as lab_image
from kit.remote.ship.broadcast import ship
from tests.integration.rig import engine, kit, taken_down
from tests.integration.shipper import OWNER, targets

# Hard links do not cross mounts, so the container gets all volumes by one mount, that of their folder. A copy has the
# engine's images and layers, and nothing that belongs to one engine: its ID, networks, containers, build cache.
_COPY = """
set -eu
template=/volumes/$1/_data; shift
for volume do
  disk=/volumes/$volume/_data
  mkdir -m 710 "$disk/overlay2"
  cp -a "$template/image" "$disk/"
  cp -a "$template/overlay2/l" "$disk/overlay2/"
  for layer in "$template"/overlay2/*/; do
    layer=${layer%/} copy=$disk/overlay2/${layer##*/}
    [ "${layer##*/}" != l ] || continue
    mkdir "$copy"
    for part in "$layer"/*; do
      case $part in
        */diff) cp -al "$part" "$copy/" ;;
        *) cp -a "$part" "$copy/" ;;
      esac
    done
    chmod --reference="$layer" "$copy"
  done
done
"""


@dataclass(frozen=True, kw_only=True)
class Template:
    """A stopped lab host with the image. `volume` is its disk, on this machine's engine."""

    volume: str

    def copy_to(self, client: Any, lab: str, hosts: Sequence[str]) -> None:
        """Create the disks of these hosts of a lab that does not exist yet. `kit lab up` then uses them."""
        volumes = [disk(lab, host) for host in hosts]
        for volume in volumes:
            client.volumes.create(volume, labels={LABEL: lab})
        folder = PurePosixPath(client.volumes.get(self.volume).attrs["Mountpoint"]).parents[1]
        words = ["run", "--rm", "--network", "none", "--volume", f"{folder}:/volumes"]
        words += [pin_bases(lab_image.content(), locked_bases()).tag, "sh", "-c", _COPY, "copy", self.volume, *volumes]
        engine(*words)


def disk(lab: str, host: str) -> str:
    """Return the volume of a lab host."""
    return f"{network_name(lab)}-{host}"


@contextlib.contextmanager
def template(client: Any, image: str, lab: str) -> Iterator[Template]:
    """Make a template with this image in a separate lab, and take that down at the end of the block."""
    with tempfile.TemporaryDirectory(prefix=f"kit-{lab}-") as name, taken_down(Path(name), lab):
        folder = Path(name)
        up = kit(folder, "lab", "up", "--name", lab, "--hosts", "1")
        assert up.returncode == 0, up.stderr
        shipped = ship(image, owner=OWNER, targets=targets(folder, ["gpu1"]), reporter=Silent())
        assert not shipped.failures, shipped.failures
        client.containers.get(disk(lab, "gpu1")).stop(timeout=60)
        yield Template(volume=disk(lab, "gpu1"))
