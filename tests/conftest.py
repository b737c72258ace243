"""Settings for every test, made before JAX is imported."""

import os
from pathlib import Path

# Two test processes share the machine: one XLA thread each. What one of them or a subprocess compiles, all may use.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))

from hypothesis import settings

# machines are shared and noisy: no test may depend on seconds
settings.register_profile("purectrl", deadline=None)
settings.load_profile("purectrl")
