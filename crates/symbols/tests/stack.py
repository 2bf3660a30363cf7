"""Waits in a method, until its input ends. The marks are lines of the stack."""

import sys
import threading


class Store:
    def wait(self):
        names = {
            "one": 1,
            "two": 2,
        }
        print(threading.get_native_id(), len(names), flush=True)
        return sys.stdin.read()  # wait


def größe(store):
    if store is None:
        return None

    # So far away that the table of lines needs more than one byte for it: 1
    # 2
    # 3
    # 4
    # 5
    # 6
    # 7
    # 8
    with threading.Lock():
        try:
            return [each.wait() for each in [store]]  # größe
        except ValueError:
            pass


def main():
    return sorted([None], key=lambda _: größe(Store()))  # lambda


main()  # module
