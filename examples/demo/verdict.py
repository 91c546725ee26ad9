"""What came out: is each answer the one that it had to be, and do ledger, file and snapshot agree?"""

from collections import Counter, defaultdict

BAR_WIDTH = 40
BLOCKS = " ▏▎▍▌▋▊▉█"


def judge_answers(plan, answers):
    """Compares the answers, (delivery, outcome, differs), with the plan. Returns what is wrong, as texts.

    An accepted id is answered `accepted` once and `duplicate` ever after; only the one whose answer was lost may get
    `duplicate` alone. Every other id gets its refusal each time, since a refusal binds nothing.
    """
    problems = []
    outcomes = defaultdict(Counter)
    for delivery, outcome, differs in answers:
        if not delivery.reuse:
            outcomes[delivery.response.response_id][outcome] += 1
        elif (outcome, differs) != ("conflict", ["votes"]):
            problems.append(f"{delivery.response.response_id} reused: {outcome} {differs}, not conflict ['votes']")
    lost = plan.lost()
    for event_id, expected in plan.outcome_of.items():
        found = outcomes[event_id]
        wanted = Counter({expected: found.total()})
        if expected == "accepted":
            first = 0 if lost and event_id == lost.response_id else 1
            wanted = Counter(accepted=first, duplicate=found.total() - first)
        if found != wanted or found.total() < 2:
            problems.append(f"{event_id}: {dict(found)}, not {dict(+wanted)}")
    return problems


def judge_poll(ledger, file_counts, seen, heard):
    """What does not agree in one poll, {part: text}; the parts are those of print_poll.

    `ledger` and `seen` are what auditor and viewer read, `heard` is the last message that the viewer got.
    """
    counts = {choice: count for choice, count, _ in ledger["results"]}
    failed = [f"{name} expected {expected}, found {actual}"
              for name, ok, expected, actual in ledger["verify"] if not ok]
    problems = {}
    if failed or not ledger["verify"]:
        problems["verify_poll"] = ", ".join(failed) or "returned no row"
    if counts != dict(file_counts):
        problems["file"] = f"{dict(file_counts)} in the file, but the tally is {counts}"
    if ledger["recount"] != counts:
        problems["ledger"] = f"{ledger['recount']} in the ledger, but the tally is {counts}"
    if seen["counts"] != counts or seen["position"] != sum(counts.values()):
        problems["snapshot"] = f"{seen['counts']} at position {seen['position']}, but the tally is {counts}"
    if (heard["revision"], heard["counts"]) != (seen["revision"], counts):
        problems["heard"] = f"revision {heard['revision']} with {heard['counts']}, but stored is {seen['revision']}"
    return problems


def print_poll(poll, ledger, outcomes, lost, seen, problems):
    """The table of one poll; `lost`: the killed client got an answer that was never passed on."""
    word = defaultdict(lambda: "ok", dict.fromkeys(problems, "WRONG"))
    print(f"\n{poll}")
    width = max(len(choice) for choice, _, _ in ledger["results"])
    for choice, count, share in ledger["results"]:
        print(f"  {choice:{width}}  {count:6}  {float(share or 0):7.2%}  {_bar(float(share or 0))}")
    print("  answers      " + ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items())))
    if lost:
        print("  lost         the first answer of one more that was accepted; its retry got duplicate")
    print(f"  published    revision {seen['revision']}, position {seen['position']}, lanes {ledger['lanes']}")
    print(f"  verify_poll  {word['verify_poll']}: {', '.join(name for name, *_ in ledger['verify'])}")
    print(f"  recount      of the file {word['file']}, of the ledger {word['ledger']}")
    print(f"  snapshot     the newest equals the tally {word['snapshot']}, and was heard {word['heard']}")


def _bar(share):
    eighths = round(share * BAR_WIDTH * 8)
    return BLOCKS[8] * (eighths // 8) + BLOCKS[eighths % 8].strip()
