"""A standing adversary: generated attacks on run directories and on the command line.

Every attack is a class with trials. A trial is a function of the attack's name and a number: the same number is the same
case. `make test` runs a short selection, `make test-all` thousands, `python benchmarks/reliability.py` the counts that
docs/reliability.md shows.
"""

import importlib

ATTACKS = {
    "calls": "hostile.calls:WrongCalls",
    "accepted": "hostile.calls:RightCalls",
    "directories": "hostile.directories:HostileDirectories",
    "flips": "hostile.flips:Flips",
    "states": "hostile.states:CrashStates",
    "faults": "hostile.faults:Faults",
    "kills": "hostile.kills:Kills",
    "quick-kills": "hostile.kills:QuickKills",
}
"""The attacks by name. A new attack is a file and a line here."""


def make(name: str):
    """The attack called `name`."""
    module, _, kind = ATTACKS[name].partition(":")
    return getattr(importlib.import_module(module), kind)()
