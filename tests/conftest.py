"""Settings for every test, made before JAX is imported."""

import os
import signal
from pathlib import Path

# Two test processes share the machine: one XLA thread each. What one of them or a subprocess compiles, all may use.
# Tests compile more than they compute: with the other two flags a policy optimization compiles in 3 s instead of 12 s.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_multi_thread_eigen=false --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0",
)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))

# `make test &` ignores Ctrl-C, and so would the programs that tests start and interrupt
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import jax
import pytest
from hypothesis import settings

# machines are shared and noisy: no test may depend on seconds
settings.register_profile("purectrl", deadline=None)
settings.load_profile("purectrl")


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    """Drop compiled programs before the kernel's limit of 65,530 memory maps ends the process (about 9 per program)."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > 20_000:
        jax.clear_caches()
