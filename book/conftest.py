"""Chapters run by nbval: their kernels need no ports."""

import nbval.kernel
from kernels import own_sockets

KernelManager = nbval.kernel.KernelManager
nbval.kernel.KernelManager = lambda **names: KernelManager(**names, **own_sockets())
