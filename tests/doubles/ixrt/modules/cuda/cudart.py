"""A stand-in for cuda-python's runtime: memory of a card that is a dictionary."""

import itertools
from enum import Enum

MEMORY = {}
_NEXT = itertools.count(1)


class cudaError_t(Enum):  # noqa: N801
    cudaSuccess = 0  # noqa: N815
    cudaErrorMemoryAllocation = 2  # noqa: N815


class cudaMemcpyKind(Enum):  # noqa: N801
    cudaMemcpyHostToDevice = 1  # noqa: N815
    cudaMemcpyDeviceToHost = 2  # noqa: N815


OK = cudaError_t.cudaSuccess


def cudaMalloc(size):  # noqa: N802
    place = next(_NEXT)
    MEMORY[place] = bytes(size)
    return OK, place


def cudaFree(place):  # noqa: N802
    del MEMORY[place]
    return (OK,)


def cudaMemcpy(destination, source, size, kind):  # noqa: N802
    if kind is cudaMemcpyKind.cudaMemcpyHostToDevice:
        MEMORY[destination] = source.tobytes()[:size]
    else:
        destination.reshape(-1).view("u1")[:] = memoryview(MEMORY[source])[:size]
    return (OK,)


def cudaStreamCreate():  # noqa: N802
    return OK, 7


def cudaStreamSynchronize(stream):  # noqa: N802
    return (OK,) if stream == 7 else (cudaError_t.cudaErrorMemoryAllocation,)


def cudaStreamDestroy(stream):  # noqa: N802
    return (OK,)
