"""The ratios as a picture (SVG): a bar a row from 1, where both sides are equal, and a mark at its target."""

import math
from xml.sax.saxutils import escape

from lib.rows import AT_LEAST, AT_MOST

WIDTH, ROW, LABEL, RIGHT = 1000, 20, 540, 115
LOWEST, HIGHEST = 0.1, 40.0
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40)
COLOURS = {True: "#2a7f4f", False: "#b8432f", None: "#7a7f87"}
GROUPS = ((AT_LEAST, "rates: to the right is better"), (AT_MOST, "costs (time, bytes, memory): to the left is better"))


def across(ratio):
    """Where a ratio lies; the scale is logarithmic."""
    inside = min(max(ratio, LOWEST), HIGHEST)
    return LABEL + (WIDTH - LABEL - RIGHT) * math.log(inside / LOWEST) / math.log(HIGHEST / LOWEST)


def words(x, y, text, anchor="start", colour="#222", size=12, weight="normal"):
    return ('<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" font-size="%d" font-weight="%s">%s</text>'
            % (x, y, anchor, colour, size, weight, escape(text)))


def line(x, top, bottom, colour, width=1.0, dash=""):
    return ('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"%s/>'
            % (x, top, x, bottom, colour, width, ' stroke-dasharray="%s"' % dash if dash else ""))


def axis(top, bottom):
    drawn = []
    for tick in TICKS:
        drawn.append(line(across(tick), top, bottom, "#222" if tick == 1 else "#dddddd"))
        drawn.append(words(across(tick), top - 5, "%g" % tick, "middle", "#555", 11))
    return drawn


def bar(row, top):
    colour = COLOURS[row["met"]]
    left, right = sorted((across(1), across(row["ratio"])))
    middle = top + ROW / 2
    drawn = [
        words(8, middle + 4, str(row["scenario"]), weight="bold"),
        words(32, middle + 4, "%s · %s" % (row["what"], row["peer"]), size=11),
        '<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"/>' % (left, top + 4, max(1.5, right - left), ROW - 8, colour),
        words(WIDTH - RIGHT + 10, middle + 4, "%.2f" % row["ratio"], weight="bold", colour=colour)]
    if row["rounds"] > 1:
        drawn.append('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#222" stroke-width="1"/>'
                     % (across(row["lowest"]), middle, across(row["highest"]), middle))
    if row["target"] is not None:
        drawn.append(line(across(row["target"]), top + 1, top + ROW - 1, "#1b4fa0", 3.0))
        drawn.append(words(WIDTH - RIGHT + 56, middle + 4, "met" if row["met"] else "missed", colour=colour, size=11))
    return drawn


def svg(rows):
    drawn, y = [], 46
    for sense, title in GROUPS:
        group = [row for row in rows if row["sense"] == sense and row["ratio"] is not None]
        if not group:
            continue
        drawn.append(words(8, y + 10, title, size=13, weight="bold"))
        top = y + 34
        drawn += axis(top, top + ROW * len(group))
        for number, row in enumerate(group):
            drawn += bar(row, top + ROW * number)
        y = top + ROW * len(group) + 16
    head = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img"'
        ' font-family="Helvetica, Arial, sans-serif">' % (WIDTH, y, WIDTH, y),
        "<title>poll_tally against what people would use instead: ratio of ours to theirs</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        words(8, 20, "Ratio of ours to theirs", size=15, weight="bold"),
        words(8, 38, "bar: median of the rounds · thin line: lowest to highest round · blue mark: target · logarithmic scale",
              colour="#555", size=11)]
    return "\n".join(head + drawn + ["</svg>"]) + "\n"
