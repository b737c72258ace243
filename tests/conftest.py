import os

# Two test processes share the machine: one XLA thread each, and compilations kept between tests of one session.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
