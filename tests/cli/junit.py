"""A JUnit report, parsed and held against what its readers need.

    junit.py REPORT CERT      exit 0 where it holds; prints "TESTS FAILURES SKIPPED"
    junit.py REPORT case NAME CLASS   prints passed, skipped or failure, and the text

The rules: the elements and attributes of the xUnit schema of Jenkins (junit-10.xsd: which element may stand where, which
attributes it has and needs, what `time` looks like), GitLab's unique names (classname and name together), counts that are
right on every level, and a case for each row of the certificate in the suite of its geometry.
"""
import collections
import json
import re
import sys
import xml.etree.ElementTree as ElementTree

CHILDREN = {"testsuites": {"testsuite"}, "testsuite": {"testcase", "properties"}, "testcase": {"failure", "error", "skipped"},
            "failure": set(), "error": set(), "skipped": set()}
NEEDED = {"testsuites": set(), "testsuite": {"name", "tests", "failures", "errors"}, "testcase": {"name"}}
ALLOWED = {"testsuites": {"name", "time", "tests", "failures", "errors"},
           "testsuite": {"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp", "hostname", "id", "package"},
           "testcase": {"name", "time", "classname", "group"}, "failure": {"type", "message"}, "error": {"type", "message"},
           "skipped": {"type", "message"}}
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")
STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")


def need(condition, what):
    if not condition:
        sys.exit(f"JUnit: {what}")


def walk(element, parent=None):
    tag = element.tag
    need(parent is None and tag == "testsuites" or parent is not None and tag in CHILDREN[parent], f"<{tag}> in <{parent}>")
    attributes = set(element.attrib)
    need(NEEDED.get(tag, set()) <= attributes <= ALLOWED[tag], f"<{tag}> has {sorted(attributes)}")
    need("time" not in attributes or TIME.fullmatch(element.get("time")), f"time {element.get('time')}")
    need("timestamp" not in attributes or STAMP.fullmatch(element.get("timestamp")), f"timestamp {element.get('timestamp')}")
    for child in element:
        walk(child, tag)


def geometry_text(g):
    wide = f",Dv={g['head_dim_v']}" if "head_dim_v" in g else ""
    return f"L={g['layers']},T={g['tokens']},H={g['kv_heads']},D={g['head_dim']}{wide},e={g['element']}"


def count(suite):
    cases = suite.findall("testcase")
    got = {"tests": len(cases), "failures": len(suite.findall("testcase/failure")), "errors": 0,
           "skipped": len(suite.findall("testcase/skipped"))}
    for key, n in got.items():
        need(suite.get(key) == str(n), f"suite {suite.get('name')}: {key} is {suite.get(key)}, there are {n}")
    for case in cases:
        need(len(case) <= 1, f"{case.get('name')} has two outcomes")
        for outcome in case:
            need(outcome.get("message"), f"{case.get('name')} fails without a message")
    return got


def check(report, cert):
    root = ElementTree.parse(report).getroot()
    doc = json.load(open(cert, encoding="utf-8"))
    walk(root)
    total = collections.Counter()
    for suite in root:
        total.update(count(suite))
    for key in ("tests", "failures", "errors"):
        need(root.get(key) == str(total[key]), f"{key} of all is {root.get(key)}, there are {total[key]}")
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    need(len(set(names)) == len(names), "two cases have one name")
    need(all(name.count(".") == 1 or "." in doc["campaign"]["name"] for name, _ in names), "a class that Jenkins would split elsewhere")
    want = []
    for row in doc["rows"]:
        params = "".join(f",{k}={v}" for k, v in sorted(row["params"].items()))
        geometry = geometry_text(doc["geometries"][row["geometry"]])
        want.append((f"{doc['campaign']['name']}.{geometry}", row["pair_id"] + params))
        suite = [s for s in root if s.get("name") == geometry]
        need(len(suite) == 1, f"not one suite for {geometry}")
    rules = len(doc["campaign"]["spec"].get("expect", []))
    need(names[:len(want)] == want and len(names) == len(want) + rules, "the cases are not the rows, then the rules")
    print(total["tests"], total["failures"], total["skipped"])


def outcome(report, name, class_end):
    found = [case for case in ElementTree.parse(report).getroot().iter("testcase")
             if case.get("name") == name and case.get("classname").endswith(class_end)]
    need(len(found) == 1, f"{len(found)} cases {name} in {class_end}")
    if len(found[0]) == 0:
        print("passed")
    else:
        print(found[0][0].tag, found[0][0].get("type"), found[0][0].get("message"), found[0][0].text or "")


if __name__ == "__main__":
    if len(sys.argv) == 5:
        outcome(sys.argv[1], sys.argv[3], sys.argv[4])
    else:
        check(sys.argv[1], sys.argv[2])
