"""The host: complete over all operators that have kernels, always on, last in priority."""

from relaybuild.contrib.host.codegen import generate
from relaybuild.partition.backend import Backend

BACKEND = Backend("host", "host", "", generate, priority=-1)
