"""Turns the output of ctest -V (standard input) into lines for tests/run.sh: what, name, why.

A test program is passed, FAILED or skipped (exit 77; its last line says why); a test that a program
skips inside (cmocka's [  SKIPPED ]) is one more skip. What a failed program said last goes to standard error.
"""
import collections
import re
import sys

last, inner = {}, {}
tail = collections.defaultdict(lambda: collections.deque(maxlen=30))
for line in sys.stdin:
    line = line.rstrip("\n")
    said = re.match(r"^(\d+): (.*\S)", line)
    if said:
        number, text = said.groups()
        tail[number].append(text)
        if text.startswith("[  SKIPPED ] ") and not re.search(r"\d+ test\(s\)", text):
            inner.setdefault(number, {})[text[13:]] = last.get(number, "no reason said")
        elif not text.startswith("["):
            last[number] = text
        continue
    ended = re.match(r"^ *\d+/\d+ Test +#(\d+): (\S+) [. ]*(Passed|\*\*\*[A-Za-z ]*[A-Za-z])", line)
    if not ended:
        continue
    number, name, result = ended.groups()
    if result == "Passed":
        print(f"passed\t{name}\t")
    elif result == "***Skipped":
        print(f"skipped\t{name}\t{last.get(number, 'no reason said')}")
    else:
        print(f"FAILED\t{name}\t{result.strip('* ')}: {last.get(number, '')}")
        print(f"{name} said last:", *tail[number], sep="\n    ", file=sys.stderr)
    for test, why in inner.get(number, {}).items():
        print(f"skipped\t{name}/{test}\t{why}")
