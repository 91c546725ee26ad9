"""Checks an archive for the PostgreSQL Extension Network against its Meta Spec 1.0.0.

    check_pgxn.py ARCHIVE

One folder NAME-VERSION with META.json, whose keys, types and values are those of the spec; each file it names is
there; control file, script and Makefile agree with it on the version; a chain of step scripts leads from each released
version to this one; nothing that a build leaves behind. Prints a line a check, then "N passed, N failed".
"""

import json
import re
import sys
import zipfile

REQUIRED = ("abstract", "license", "maintainer", "meta-spec", "name", "provides", "version")
OPTIONAL = ("description", "generated_by", "no_index", "prereqs", "release_status", "resources", "tags")
LICENSES = ("agpl_3", "apache_1_1", "apache_2_0", "artistic_1", "artistic_2", "bsd", "freebsd", "gfdl_1_2", "gfdl_1_3",
            "gpl_1", "gpl_2", "gpl_3", "lgpl_2_1", "lgpl_3_0", "mit", "mozilla_1_0", "mozilla_1_1", "openssl", "perl_5",
            "postgresql", "qpl_1_0", "ssleay", "sun", "zlib", "open_source", "restricted", "unrestricted", "unknown")
SEMVER = re.compile(r"\d+\.\d+\.\d+(-[A-Za-z][0-9A-Za-z-]*)?")
PHASES = ("configure", "build", "test", "runtime", "develop")
RELATIONS = ("requires", "recommends", "suggests", "conflicts")
LEFT_BEHIND = re.compile(r"\.(o|so|bc|pyc|gcda|gcno)$|(^|/)(tmp_check|\.git)/|^[^/]+/results/")


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, holds, name):
        print(f"{'ok' if holds else 'not ok'} - {name}")
        if holds:
            self.passed += 1
        else:
            self.failed += 1


def is_text(value):
    return isinstance(value, str) and value.strip() != ""


def is_version(value):
    return isinstance(value, str) and SEMVER.fullmatch(value) is not None


def check_keys(checks, meta):
    for key in REQUIRED:
        checks.check(key in meta, f"META.json has {key}")
    unknown = [key for key in meta if key not in REQUIRED + OPTIONAL and not key.lower().startswith("x_")]
    checks.check(unknown == [], f"META.json has no key unknown to the spec {unknown or ''}")


def check_values(checks, meta):
    checks.check(is_text(meta.get("name")) and len(meta["name"]) >= 2 and not re.search(r"[\s/\\\x00-\x1f]", meta["name"]),
                 "name is one word of at least two characters")
    checks.check(is_version(meta.get("version")), "version is a semantic version")
    checks.check(is_text(meta.get("abstract")), "abstract is text")
    maintainers = meta.get("maintainer")
    maintainers = [maintainers] if isinstance(maintainers, str) else maintainers
    checks.check(bool(maintainers) and all(map(is_text, maintainers)), "maintainer is text, or a list of it")
    licenses = meta.get("license")
    if isinstance(licenses, dict):
        good = bool(licenses) and all(is_text(url) and "://" in url for url in licenses.values())
    else:
        good = set([licenses] if isinstance(licenses, str) else licenses or [None]) <= set(LICENSES)
    checks.check(good, "license is known to the spec, or a map of addresses")
    spec = meta.get("meta-spec", {})
    checks.check(is_version(spec.get("version")) and spec["version"].startswith("1.0."), "meta-spec is 1.0")
    checks.check(meta.get("release_status", "stable") in ("stable", "testing", "unstable"), "release_status")
    checks.check(all(is_text(tag) and len(tag) < 256 for tag in meta.get("tags", [])), "tags are text")
    checks.check(isinstance(meta.get("resources", {}), dict), "resources is a map")


def check_prereqs(checks, meta):
    prereqs = meta.get("prereqs", {})
    checks.check(all(phase in PHASES for phase in prereqs), "prereqs speak of phases that there are")
    for phase, relations in prereqs.items():
        checks.check(all(relation in RELATIONS for relation in relations), f"prereqs of {phase} are relations")
        for relation, versions in relations.items():
            checks.check(all(version == 0 or is_version(re.sub(r"^(>=|<=|==|!=|<|>)\s*", "", str(version)))
                             for version in versions.values()), f"prereqs: versions that {phase} {relation}")


def check_provides(checks, meta, names, top):
    provides = meta.get("provides", {})
    checks.check(bool(provides), "provides at least one extension")
    for extension, of in provides.items():
        checks.check(is_version(of.get("version")), f"{extension} has a semantic version")
        for key in ("file", "docfile"):
            if key == "file" or key in of:
                checks.check(f"{top}/{of.get(key)}" in names, f"{extension}: {key} {of.get(key)} is in the archive")


def check_versions(checks, archive, meta, top):
    version = meta["version"]
    text = {name: archive.read(f"{top}/{name}").decode() for name in ("poll_tally.control", "Makefile", "CHANGELOG.md")}
    control = re.search(r"^default_version\s*=\s*'([^']*)'", text["poll_tally.control"], re.M)
    makefile = re.search(r"^EXTVERSION\s*=\s*(\S+)", text["Makefile"], re.M)
    checks.check(control is not None and control[1] == version, "the control file has the same version")
    checks.check(makefile is not None and makefile[1] == version, "the Makefile has the same version")
    checks.check(all(of["version"] == version for of in meta["provides"].values()), "what it provides has that version")
    steps = dict(re.fullmatch(r".*/sql/poll_tally--([\d.]+)--([\d.]+)\.sql", name).groups()
                 for name in archive.namelist() if re.fullmatch(r".*/sql/poll_tally--[\d.]+--[\d.]+\.sql", name))
    for released in re.findall(r"^## (\d+\.\d+\.\d+)(?! \(unreleased\))", text["CHANGELOG.md"], re.M):
        reached, seen = released, set()
        while reached in steps and reached not in seen:
            seen.add(reached)
            reached = steps[reached]
        checks.check(reached == version, f"step scripts lead from {released} to {version}")


def main():
    checks = Checks()
    with zipfile.ZipFile(sys.argv[1]) as archive:
        names = archive.namelist()
        tops = {name.split("/")[0] for name in names}
        checks.check(archive.testzip() is None, "the archive can be read")
        checks.check(len(tops) == 1, "everything is in one folder")
        top = tops.pop()
        meta = json.loads(archive.read(f"{top}/META.json"))
        checks.check(top == f"{meta.get('name')}-{meta.get('version')}", "the folder is NAME-VERSION")
        check_keys(checks, meta)
        check_values(checks, meta)
        check_prereqs(checks, meta)
        check_provides(checks, meta, names, top)
        check_versions(checks, archive, meta, top)
        for name in ("README.md", "LICENSE", "CHANGELOG.md", "Makefile", "poll_tally.control", "sql/poll_tally.sql"):
            checks.check(f"{top}/{name}" in names, f"{name} is in the archive")
        left = [name for name in names if LEFT_BEHIND.search(name)]
        checks.check(left == [], f"nothing that a build leaves behind {left[:3] or ''}")
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed or not checks.passed else 0)


main()
