"""The figures as a table of text, as Markdown and as a picture."""

from lib.rows import AT_MOST

COLUMNS = ("#", "scenario", "peer", "ours", "theirs", "ratio", "spread", "target", "")


def number(value):
    if value is None:
        return ""
    if value >= 1000:
        return "{:,.0f}".format(value)
    return "%.3g" % value if value else "0"


def cells(row):
    sign = "<=" if row["sense"] == AT_MOST else ">="
    ratio = "%.2f" % row["ratio"] if row["ratio"] is not None else number(row["ours"])
    return (str(row["scenario"]), row["what"], row["peer"], "%s %s" % (number(row["ours"]), row["unit"]),
            number(row["theirs"]), ratio, "%.2f-%.2f" % (row["lowest"], row["highest"]) if row["rounds"] > 1 else "",
            "" if row["target"] is None else "%s %s" % (sign, number(row["target"])),
            "" if row["met"] is None else "met" if row["met"] else "MISSED")


def line(row):
    return "  ".join(cell for cell in cells(row) if cell)


def summary(results):
    machine, verified = results["machine"], results["verified"]
    flush = machine["emulated_flush_us"]
    return [
        "%s, %d GB, Linux %s, PostgreSQL %s" % (machine["cpu"], machine["memory_gb"], machine["kernel"], machine["server"]),
        "revision %s, %s, form %s" % (machine["revision"], machine["date"], machine["form"]),
        "a flush takes: emulated %s and %s us (80 and 1000 asked for), on the real disk %d us (median)"
        % (flush["80"], flush["1000"], machine["real_disk_flush_us"]),
        "settings: " + ", ".join("%s = %s" % item for item in machine["settings"].items()),
        "verify_poll: %s checks of %s polls with %s events in %d databases, 0 violations"
        % (number(sum(v["checks"] for v in verified)), number(sum(v["polls"] for v in verified)),
           number(sum(v["events"] for v in verified)), len(verified)),
    ]


def text(results):
    table = [COLUMNS] + [cells(row) for row in results["rows"]]
    widths = [max(len(line[column]) for line in table) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in table]
    lines.insert(1, "  ".join("-" * width for width in widths).rstrip())
    return "\n".join(lines + [""] + summary(results))


# --- the runs that are recorded ------------------------------------------------------------------------------------

def merged(recorded, run):
    """The recorded runs with this one added, and their rows of the scenarios that it measured anew taken out."""
    anew = {row["scenario"] for row in run["rows"]}
    kept = [dict(old, rows=[row for row in old["rows"] if row["scenario"] not in anew]) for old in recorded]
    return [old for old in kept if old["rows"]] + [run]


def all_rows(runs):
    return sorted((row for run in runs for row in run["rows"]), key=lambda row: row["scenario"])


def markdown(runs):
    """A table of all rows, and below it what was measured where."""
    lines = ["| # | scenario | against | ours | theirs | ratio (rounds) | target | |", "| --- " * 8 + "|"]
    for row in all_rows(runs):
        place, what, peer, ours, theirs, ratio, spread, target, met = cells(row)
        shown = "**%s**%s" % (ratio, " (%s)" % spread.replace("-", "–") if spread else "") if row["ratio"] else ""
        lines.append("| %s |" % " | ".join((place, what, peer, ours, theirs, shown,
                                            target.replace("<=", "≤").replace(">=", "≥"), met.lower())))
    for run in runs:
        scenarios = ", ".join(map(str, sorted({row["scenario"] for row in run["rows"]})))
        lines += ["", "Scenarios %s: %s." % (scenarios, "; ".join(summary(run)))]
    return "\n".join(lines) + "\n"
