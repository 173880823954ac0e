"""Facts about the models of GPUs, and about drivers.

Names, memory, power limits, clocks and the forms of nvidia-smi come from public captures of nvidia-smi and from
NVIDIA's data sheets: H200 from captures of the drivers 550 and 570 (HGX H200), H100 and A100 from captures of DGX
H100 and DGX A100, P100 from the data sheet of the Tesla P100 PCIe, T4 from captures of cloud VMs.
"""

from typing import NamedTuple, Tuple


class Model(NamedTuple):
    """A model of GPU. Memory is in MiB, power in W, clocks in MHz.

    `link` is how topo shows the way between two GPUs. `slices` are the profiles of two equal MIG devices: name and
    memory; an empty name means that the model has no MIG.
    """

    name: str
    brand: str
    architecture: str
    capability: str
    memory: int
    power: int
    idle: int
    clock: int
    memory_clock: int
    device: str
    generation: int
    link: str
    buses: Tuple[str, ...]
    mig: str
    mig_memory: int
    rows: bool


MODELS = {
    "h200": Model(
        name="NVIDIA H200",
        brand="NVIDIA",
        architecture="Hopper",
        capability="9.0",
        memory=143771,
        power=700,
        idle=74,
        clock=1980,
        memory_clock=3201,
        device="0x233510DE",
        generation=5,
        link="NV18",
        buses=("19", "3B", "4C", "5D", "9B", "BB", "CB", "DB"),
        mig="3g.71gb",
        mig_memory=71424,
        rows=True,
    ),
    "h100": Model(
        name="NVIDIA H100 80GB HBM3",
        brand="NVIDIA",
        architecture="Hopper",
        capability="9.0",
        memory=81559,
        power=700,
        idle=70,
        clock=1980,
        memory_clock=2619,
        device="0x233010DE",
        generation=5,
        link="NV18",
        buses=("1B", "43", "52", "61", "9D", "C3", "D1", "DF"),
        mig="3g.40gb",
        mig_memory=40448,
        rows=True,
    ),
    "a100": Model(
        name="NVIDIA A100-SXM4-80GB",
        brand="NVIDIA",
        architecture="Ampere",
        capability="8.0",
        memory=81920,
        power=400,
        idle=58,
        clock=1410,
        memory_clock=1593,
        device="0x20B210DE",
        generation=4,
        link="NV12",
        buses=("07", "0F", "47", "4E", "87", "90", "B7", "BD"),
        mig="3g.40gb",
        mig_memory=40192,
        rows=True,
    ),
    "p100": Model(
        name="Tesla P100-PCIE-16GB",
        brand="Tesla",
        architecture="Pascal",
        capability="6.0",
        memory=16384,
        power=250,
        idle=26,
        clock=1328,
        memory_clock=715,
        device="0x15F810DE",
        generation=3,
        link="PIX",
        buses=("04", "05", "08", "09", "84", "85", "88", "89"),
        mig="",
        mig_memory=0,
        rows=False,
    ),
    "t4": Model(
        name="Tesla T4",
        brand="Tesla",
        architecture="Turing",
        capability="7.5",
        memory=15360,
        power=70,
        idle=9,
        clock=1590,
        memory_clock=5001,
        device="0x1EB810DE",
        generation=3,
        link="PHB",
        buses=("3B", "5E", "86", "AF", "B1", "D8", "D9", "DA"),
        mig="",
        mig_memory=0,
        rows=False,
    ),
}

DRIVER = "550.54.15"
# A GPU of this lab can be recognized wherever its name is shown.
MARK = "(PRETENDED)"

# The CUDA version that each branch of the driver brings, from NVIDIA's release notes of CUDA.
_CUDA = (
    (580, "13.0"),
    (575, "12.9"),
    (570, "12.8"),
    (565, "12.7"),
    (560, "12.6"),
    (555, "12.5"),
    (550, "12.4"),
    (545, "12.3"),
    (535, "12.2"),
    (530, "12.1"),
    (525, "12.0"),
    (520, "11.8"),
    (515, "11.7"),
    (510, "11.6"),
    (495, "11.5"),
    (470, "11.4"),
    (465, "11.3"),
    (460, "11.2"),
    (455, "11.1"),
    (450, "11.0"),
    (440, "10.2"),
    (418, "10.1"),
    (410, "10.0"),
)


def cuda_of(driver: str) -> str:
    """Return the newest CUDA version that a driver such as 550.54.15 supports."""
    branch = int(driver.split(".", maxsplit=1)[0])
    return next((cuda for first, cuda in _CUDA if branch >= first), "9.2")
