#!/usr/bin/env python3
"""certs/verify.py over a folder of certificates: a line "NAME EXIT CODES" for each, as test_kv_verify.c says it.

    judge.py FOLDER        (its trusted.pub is the trust)
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "certs"))
sys.dont_write_bytecode = True
import verify  # noqa: E402


def main():
    folder = sys.argv[1]
    trusted = verify.read_trust(os.path.join(folder, "trusted.pub"))
    for name in sorted(n[:-5] for n in os.listdir(folder) if n.endswith(".json")):
        path = os.path.join(folder, name + ".json")
        with open(path, "rb") as f:
            v = verify.Verifier(trusted).verify(f.read(), path)
        codes = sorted({c for c, _, _, _ in v.faults})
        print(name, v.exit_code(), ",".join("H%d" % c for c in codes) or "-")


if __name__ == "__main__":
    sys.exit(main())
