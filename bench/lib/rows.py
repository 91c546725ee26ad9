"""Rows of the table: two figures, their ratio, and its target."""

import statistics

AT_LEAST, AT_MOST = "at least", "at most"


def of_clients(count):
    return "%d client%s" % (count, "" if count == 1 else "s")


def row(scenario, what, unit, ours, peer, target, sense=AT_LEAST, peer_name="", note=""):
    """ours and peer: a figure a round. The ratio is the median of the rounds' ratios."""
    if len(ours) != len(peer) or not ours:
        raise ValueError("rounds of %s: %s, %s" % (what, ours, peer))
    ratios = [left / right for left, right in zip(ours, peer)]
    ratio = statistics.median(ratios)
    return {
        "scenario": scenario, "what": what, "unit": unit, "peer": peer_name, "note": note,
        "ours": statistics.median(ours), "theirs": statistics.median(peer),
        "ratio": ratio, "lowest": min(ratios), "highest": max(ratios), "rounds": len(ratios),
        "each_round": [ours, peer], "target": target, "sense": sense,
        "met": None if target is None else ratio >= target if sense == AT_LEAST else ratio <= target,
    }


def bound_row(scenario, what, unit, figures, bound, note=""):
    """A figure that has to stay at or below a bound, without a peer."""
    figure = max(figures)
    return {
        "scenario": scenario, "what": what, "unit": unit, "peer": "", "note": note,
        "ours": figure, "theirs": None, "ratio": None, "lowest": min(figures), "highest": figure, "rounds": len(figures),
        "each_round": [figures], "target": bound, "sense": AT_MOST, "met": figure <= bound,
    }
