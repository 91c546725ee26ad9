"""Checks that the files of examples/alerts name only what is there, and that each alert is tested and explained.

usage: check_alerts.py GIVEN ROOT

GIVEN has a line for each metric that poll_watch.metrics() gave: its name and its labels, separated by blanks. ROOT is the
source tree. Prints "ok TEXT" or "not ok TEXT" a check, and after the latter what is wrong.
"""

import json
import os
import re
import sys

import yaml

SCRAPED = {"instance", "job"}                   # labels that Prometheus adds
ALERT_LABELS = {"alertname", "alertstate", "severity"}
WORDS = {"and", "or", "unless", "offset", "bool", "by", "on", "without", "ignoring", "group_left", "group_right"}
BRACED = re.compile(r"([A-Za-z_:][\w:]*)?\s*\{([^}]*)\}")
GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
NAME = re.compile(r"(?<![\w:.$])[A-Za-z_:][\w:]*(?!\s*\(|[\w:])")


def names_of(expr):
    """(metrics, [(metric, label)], grouping labels) that a PromQL expression names."""
    expr = re.sub(r"\[[^\]]*\]", "", expr)
    pairs = [(metric, label) for metric, inside in BRACED.findall(expr)
             for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', "", inside))]
    grouping = {label for inside in GROUPING.findall(expr) for label in re.findall(r"\w+", inside)}
    bare = GROUPING.sub("", re.sub(r"\{[^}]*\}", "", expr))
    return {name for name in NAME.findall(bare) if name not in WORDS}, pairs, grouping


class Checker:
    def __init__(self, given, root):
        self.root = root
        self.given = given                      # metric -> labels
        self.labels = set().union(*given.values()) | SCRAPED
        self.known = dict(given)                # and those that rules record

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def load(self, name):
        text = self.read(f"examples/alerts/{name}")
        return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)

    def wrong_names(self, exprs):
        """exprs: (where, PromQL, labels of the text beside it). What they name and nobody gives."""
        for where, expr, shown in exprs:
            metrics, pairs, grouping = names_of(expr)
            if not metrics:
                yield f"{where}: no metric"
            for metric in sorted(metrics - set(self.known)):
                yield f"{where}: metric {metric}"
            for metric, label in pairs:
                if label not in self.known.get(metric, set()) | SCRAPED:
                    yield f"{where}: label {label} of {metric}"
            for label in sorted((grouping | set(shown)) - self.labels):
                yield f"{where}: label {label}"

    def rules(self):
        self.rules_read = [rule for group in self.load("rules.yml")["groups"] for rule in group["rules"]]
        for rule in self.rules_read:
            if "record" in rule:
                metrics, _, _ = names_of(rule["expr"])
                self.known[rule["record"]] = set.intersection(*(self.given.get(name, set()) for name in metrics))
        self.alerts = {rule["alert"]: rule for rule in self.rules_read if "alert" in rule}
        self.known["ALERTS"] = self.labels | ALERT_LABELS
        yield from self.wrong_names(
            (rule.get("alert") or rule["record"], rule["expr"],
             re.findall(r"\$labels\.(\w+)", " ".join(rule.get("annotations", {}).values())))
            for rule in self.rules_read)

    def whole_alerts(self):
        for name, rule in self.alerts.items():
            if rule.get("labels", {}).get("severity") not in ("page", "ticket"):
                yield f"{name}: severity"
            for key in ("summary", "description", "runbook"):
                if not rule.get("annotations", {}).get(key):
                    yield f"{name}: {key}"

    def rule_tests(self):
        cases = [(test, case) for test in self.load("rules_test.yml")["tests"] for case in test.get("alert_rule_test", [])]
        for name in self.alerts:
            verdicts = {}
            for test, case in cases:
                if case["alertname"] == name:
                    verdicts.setdefault(test["name"], []).append("fires" if case["exp_alerts"] else "silent")
            if ["silent", "fires", "silent"] not in [spoken[:3] for spoken in verdicts.values()]:
                yield f"{name}: no test in which it is silent, fires and clears"

    def tested_series(self):
        for test in self.load("rules_test.yml")["tests"]:
            yield from self.wrong_names((test["name"], series["series"], ()) for series in test["input_series"])

    def runbooks(self):
        headings = re.findall(r"^### (\w+)$", self.read("docs/alerts.md"), re.MULTILINE)
        for name, rule in self.alerts.items():
            if rule["annotations"]["runbook"] != f"docs/alerts.md#{name.lower()}":
                yield f"{name}: its runbook is {rule['annotations']['runbook']}"
        for name in sorted(set(headings) ^ set(self.alerts)):
            yield f"{name}: {'no such alert' if name in headings else 'not in docs/alerts.md'}"

    def exporters(self):
        """The columns that an exporter takes are those of its query, and they carry every label that there is."""
        columns = [next(iter(column.items())) for column in self.load("postgres_exporter.yml")["poll_tally"]["metrics"]]
        query = self.load("sql_exporter.yml")["jobs"][0]["queries"][0]
        taken = {
            "postgres_exporter.yml": (self.load("postgres_exporter.yml")["poll_tally"]["query"],
                                      [name for name, about in columns if about["usage"] == "LABEL"],
                                      [name for name, about in columns if about["usage"] == "GAUGE"], set()),
            # This one adds the label database by itself.
            "sql_exporter.yml": (query["query"], query["labels"], query["values"], {"database"}),
        }
        for name, (sql, labels, values, added) in taken.items():
            selected = re.match(r"SELECT (.*) FROM poll_watch\.metrics\(\)$", sql)
            if not selected or re.split(r", *", selected[1]) != labels + values or values != ["value"]:
                yield f"{name}: the query's columns are not those that are taken"
            for label in sorted((self.labels - SCRAPED | {"metric"}) - set(labels) - added):
                yield f"{name}: label {label} is not taken"

    def dashboard(self):
        board = self.load("dashboard.json")
        variables = {variable["name"] for variable in board["templating"]["list"]}
        exprs = [(panel["title"], target["expr"], re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                 for panel in board["panels"] for target in panel["targets"]]
        exprs += [(variable["name"], re.match(r"label_values\((.*), (\w+)\)$", variable["query"]["query"])[1],
                   [re.match(r"label_values\((.*), (\w+)\)$", variable["query"]["query"])[2]])
                  for variable in board["templating"]["list"] if variable["type"] == "query"]
        yield from self.wrong_names(exprs)
        used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps([board["panels"], board["templating"]])))
        for name in sorted(used - variables - {"__rate_interval", "__all"}):
            yield f"variable {name}"
        unseen = set(self.given) - set().union(*(names_of(expr)[0] for _, expr, _ in exprs))
        for name in sorted(unseen):
            yield f"metric {name} is in no panel"
        yield from self.layout(board["panels"])

    @staticmethod
    def layout(panels):
        taken = {}
        if len({panel["id"] for panel in panels}) != len(panels):
            yield "two panels of one id"
        for panel in panels:
            place = panel["gridPos"]
            if not panel["description"] or place["x"] + place["w"] > 24:
                yield f"{panel['title']}: no description, or out of the page"
            for cell in ((x, y) for x in range(place["x"], place["x"] + place["w"])
                         for y in range(place["y"], place["y"] + place["h"])):
                if cell in taken:
                    yield f"{panel['title']} lies on {taken[cell]}"
                    break
                taken[cell] = panel["title"]


CHECKS = (
    ("rules name only metrics and labels that are there", Checker.rules),
    ("each alert has a severity, a summary, a description and a runbook", Checker.whole_alerts),
    ("each alert has a unit test in which it is silent, fires and clears", Checker.rule_tests),
    ("the unit tests' series are metrics that are there", Checker.tested_series),
    ("each alert is explained in docs/alerts.md, and nothing else is", Checker.runbooks),
    ("the exporters take every label", Checker.exporters),
    ("the dashboard names only what is there, shows every metric, and its panels do not overlap", Checker.dashboard),
)


def main(given_path, root):
    with open(given_path, encoding="utf-8") as file:
        given = {words[0]: set(words[1:]) for words in map(str.split, file)}
    checker = Checker(given, root)
    for text, check in CHECKS:
        wrong = list(check(checker))
        print(f"{'not ok' if wrong else 'ok'} {text}")
        for line in wrong:
            print(f"# {line}")


if __name__ == "__main__":
    main(*sys.argv[1:])
