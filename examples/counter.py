#!/usr/bin/env python3
"""Three processes add to one counter, from Python through declock/c.h. See counter.cc.

usage: counter.py [URI] [--library libdeclock.so]    or DECLOCK_LIBRARY=..., or where the system finds it
"""
import argparse
import contextlib
import ctypes
import ctypes.util
import os
import subprocess
import sys

PROCESSES, TIMES = 3, 1000


class Declock:
    """The functions of declock/c.h; a code other than 0 is an exception."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.declock_error_message.restype = ctypes.c_char_p
        self.library.declock_mutex_free.restype = None
        self.library.declock_mutex_free.argtypes = [ctypes.c_void_p]

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self.library.declock_error_message().decode()}")

    @contextlib.contextmanager
    def cluster(self, uri):
        handle = ctypes.c_void_p()
        self.call("declock_open", uri.encode(), ctypes.byref(handle))
        try:
            yield handle
        finally:
            self.call("declock_close", handle)

    @contextlib.contextmanager
    def mutex(self, cluster, name):
        handle = ctypes.c_void_p()
        self.call("declock_mutex_named", cluster, name.encode(), ctypes.byref(handle))
        try:
            yield handle
        finally:
            self.library.declock_mutex_free(handle)

    @contextlib.contextmanager
    def locked(self, mutex):
        self.call("declock_lock", mutex)
        try:
            yield
        finally:
            self.call("declock_unlock", mutex)  # an exception: the hold was void

    def allocate(self, cluster, name, size):
        offset = ctypes.c_uint64()
        self.call("declock_allocate", cluster, ctypes.c_uint16(0), name.encode(), ctypes.c_uint64(size),
                  ctypes.byref(offset))
        return offset

    def read(self, cluster, offset):
        word = ctypes.c_uint64()
        self.call("declock_read", cluster, ctypes.c_uint16(0), offset, ctypes.byref(word), ctypes.c_size_t(1))
        return word.value

    def write(self, cluster, offset, value):
        word = ctypes.c_uint64(value)
        self.call("declock_write", cluster, ctypes.c_uint16(0), offset, ctypes.byref(word), ctypes.c_size_t(1))


def add(declock, uri):
    with declock.cluster(uri) as cluster, declock.mutex(cluster, "example/counter's lock") as mutex:
        counter = declock.allocate(cluster, "example/counter", 8)
        for _ in range(TIMES):
            with declock.locked(mutex):
                declock.write(cluster, counter, declock.read(cluster, counter) + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uri", nargs="?", default="shm:declock-example-python?remove=yes")
    parser.add_argument("--library", default=os.environ.get("DECLOCK_LIBRARY") or ctypes.util.find_library("declock"))
    parser.add_argument("--add", action="store_true", help="one of the processes")
    arguments = parser.parse_args()
    if not arguments.library:
        sys.exit("libdeclock.so is not installed; name it with --library or DECLOCK_LIBRARY")
    declock = Declock(arguments.library)
    if arguments.add:
        add(declock, arguments.uri)
        return 0

    with declock.cluster(arguments.uri) as cluster:
        counter = declock.allocate(cluster, "example/counter", 8)
        before = declock.read(cluster, counter)
        command = [sys.executable, __file__, arguments.uri, "--library", arguments.library, "--add"]
        processes = [subprocess.Popen(command) for _ in range(PROCESSES)]
        all_fine = not any([process.wait() for process in processes])
        added = declock.read(cluster, counter) - before
    print(f"{PROCESSES} processes added {TIMES} times each: {added}")
    return 0 if all_fine and added == PROCESSES * TIMES else 1


if __name__ == "__main__":
    sys.exit(main())
