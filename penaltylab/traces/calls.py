"""What a runtime call does to the host, told from its name: CUDA's and ROCm's runtime and driver calls."""

import re
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from penaltylab.traces.trace import Trace

_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds|_spt)+$")
_QUERY = re.compile(r"(?:Query|Get[A-Z]\w*|IsCapturing|PeekAtLastError|MaxActiveBlocks\w*|PointerGetAttributes?)$")
_COPY = re.compile(r"(?:cuda|hip|cu)Memcpy(?:2D|3D|HtoD|DtoH|WithStream|ToSymbol|FromSymbol)?$")


class Role(IntEnum):
    """What matters about a call here. QUERY calls neither wait nor enqueue anything."""

    OTHER = 0
    COPY_ASYNC = 1
    COPY_BLOCKING = 2
    STREAM_SYNC = 3
    DEVICE_SYNC = 4
    EVENT_SYNC = 5
    MEMSET_BLOCKING = 6
    GRAPH_LAUNCH = 7
    QUERY = 8


_EXACT = {
    "cudaStreamSynchronize": Role.STREAM_SYNC,
    "hipStreamSynchronize": Role.STREAM_SYNC,
    "cuStreamSynchronize": Role.STREAM_SYNC,
    "cudaDeviceSynchronize": Role.DEVICE_SYNC,
    "hipDeviceSynchronize": Role.DEVICE_SYNC,
    "cuCtxSynchronize": Role.DEVICE_SYNC,
    "cudaEventSynchronize": Role.EVENT_SYNC,
    "hipEventSynchronize": Role.EVENT_SYNC,
    "cuEventSynchronize": Role.EVENT_SYNC,
    "cudaMemset": Role.MEMSET_BLOCKING,
    "hipMemset": Role.MEMSET_BLOCKING,
    "cudaGraphLaunch": Role.GRAPH_LAUNCH,
    "hipGraphLaunch": Role.GRAPH_LAUNCH,
    "cuGraphLaunch": Role.GRAPH_LAUNCH,
}


def role_of(name: str) -> Role:
    """The role of a call of this name, whatever version suffix CUDA puts behind it."""
    name = _SUFFIX.sub("", name)
    if name in _EXACT:
        return _EXACT[name]
    if name.endswith("Async") and "Memcpy" in name:
        return Role.COPY_ASYNC
    if _COPY.match(name):
        return Role.COPY_BLOCKING
    return Role.QUERY if _QUERY.search(name) else Role.OTHER


def roles(trace: Trace) -> NDArray[np.int8]:
    """The role of every runtime call of a trace."""
    by_name = np.zeros(len(trace.names), np.int8)
    for code in np.unique(trace.runtime.name).tolist():
        by_name[code] = role_of(trace.names[code])
    return by_name[trace.runtime.name]
