"""Scenarios of one event a transaction: 1 to 6 and 16."""

from lib.measure import Pgbench, Reader, in_turn
from lib.place import FIRST_ID
from lib.rows import bound_row, of_clients, row

USUAL = "the usual SQL"


def ours(database, clients, polls):
    return Pgbench(database, "ours", "ours/single.sql", clients, polls=polls)


def usual(database, clients, polls):
    return Pgbench(database, "usual", "peers/usual_single.sql", clients, polls=polls)


def spread(place, chosen):
    """1 and 2: 1,000 polls, against the usual SQL and against a bare INSERT."""
    polls = place.form.pick(20, 1000, 1000)
    rows = []
    for clients in place.form.pick([2], [8], [1, 8, 32]):
        with place.database("1, 2") as database:
            database.make_polls(polls)
            contenders = {"ours": ours(database, clients, polls)}
            if 1 in chosen:
                contenders["usual"] = usual(database, clients, polls)
            if 2 in chosen:
                contenders["bare"] = Pgbench(database, "bare", "peers/bare_single.sql", clients, polls=polls)
            found = in_turn(place.form, contenders)
        what = "single calls, %d polls, %s" % (polls, of_clients(clients))
        if 1 in chosen:
            rows.append(row(1, what, "events/s", found["ours"], found["usual"], 1.1, peer_name=USUAL))
        if 2 in chosen:
            rows.append(row(2, what, "events/s", found["ours"], found["bare"], 0.85, peer_name="a bare INSERT (the limit)"))
    return rows


def hot(place, scenario, disk_us, targets, disk):
    rows = []
    for clients, target in targets.items():
        with place.database(str(scenario), disk_us) as database:
            database.make_polls(1)
            found = in_turn(place.form, {"ours": ours(database, clients, 1), "usual": usual(database, clients, 1)})
        rows.append(row(scenario, "one poll, two choices, %s, %s" % (disk, of_clients(clients)), "events/s",
                        found["ours"], found["usual"], target, peer_name=USUAL))
    return rows


def hot_fast(place, _):
    """3: all events for one poll, on a fast disk; and once on the disk that is there."""
    rows = hot(place, 3, 80, place.form.pick({4: 4}, {32: 5}, {8: 4, 32: 5, 64: 7}), "80 us")
    return rows + hot(place, 3, None, place.form.pick({4: None}, {}, {32: None}), "real disk")


def hot_slow(place, _):
    """4: the same on a slow disk."""
    return hot(place, 4, 1000, place.form.pick({4: 3}, {32: 10}, {8: 3, 32: 10, 64: 15}), "1 ms")


def hot_against_spread(place, _):
    """5: a hot poll is no slower than many."""
    clients, polls = place.form.pick((4, 20), (32, 1000), (32, 1000))
    with place.database("5") as database:
        database.make_polls(polls)
        found = in_turn(place.form, {"hot": ours(database, clients, 1), "spread": ours(database, clients, polls)})
    return [row(5, "one poll against %d, %s" % (polls, of_clients(clients)), "events/s", found["hot"], found["spread"], 0.9,
                peer_name="ourselves, spread")]


def cost_of_retries(database, count):
    """WAL bytes and transaction ids that these many retries in one transaction take."""
    database.run("BEGIN")
    database.run("EXPLAIN (ANALYZE, WAL, FORMAT JSON) SELECT count(*) FROM generate_series(1, %s) AS g,"
                 " poll_tally.accept_event('1', (%s + g)::text, '0') AS a WHERE a.outcome = 'duplicate'", count, FIRST_ID)
    plan = database.cursor.fetchone()[0][0]["Plan"]
    ids = database.value("SELECT count(pg_current_xact_id_if_assigned())")
    database.run("COMMIT")
    if plan["Plans"][0]["Actual Rows"] != count:
        raise ValueError("not all were duplicates: %s" % plan)
    return plan["WAL Bytes"] / count, ids


def retries(place, _):
    """6: the repeat of an event that is there, against looking such a row up."""
    known, rows = place.form.pick(100, 10000, 100000), []
    with place.database("6") as database:
        database.make_polls(1)
        database.run("SELECT count(*) FROM generate_series(1, %s) AS g,"
                     " poll_tally.accept_event('1', (%s + g)::text, '0')", known, FIRST_ID)
        database.run("INSERT INTO bare.ledger SELECT * FROM poll_tally.ledger AS l"
                     .replace("*", columns_of_ledger(database)))
        database.sent.update(ours=known, bare=known)
        database.run("VACUUM ANALYZE")
        for clients in place.form.pick([2], [1], [1, 8]):
            found = in_turn(place.form, {
                "ours": Reader(database, "ours", "ours/retry.sql", clients, rows=known),
                "select": Reader(database, "bare", "peers/bare_select.sql", clients, rows=known)})
            rows.append(row(6, "identical retries, %s" % of_clients(clients), "events/s", found["ours"], found["select"], 0.8,
                            peer_name="a prepared SELECT by id (the limit)"))
        wal, ids = cost_of_retries(database, known)
    rows.append(bound_row(6, "WAL of a retry", "bytes", [wal], 0))
    rows.append(bound_row(6, "transaction ids of %s retries" % format(known, ","), "ids", [ids], 0))
    return rows


def columns_of_ledger(database):
    """As bare.ledger has them: positions are plain numbers there."""
    database.run("SELECT quote_ident(attname) FROM pg_attribute"
                 " WHERE attrelid = 'poll_tally.ledger'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum")
    names = [name for name, in database.cursor.fetchall()]
    return ", ".join("poll_tally.seq(l.%s)" % name if name == '"position"' else "l." + name for name in names)


def seats(place, _):
    """16: a poll with a limit has one lane."""
    clients, seats_left = place.form.pick(4, 32, 32), 10 ** 12
    with place.database("16") as database:
        database.make_polls(1, max_count=seats_left)
        found = in_turn(place.form, {
            "ours": ours(database, clients, 1),
            "usual": Pgbench(database, "usual", "peers/usual_seat.sql", clients, polls=1)})
    return [row(16, "one poll with a seat limit, one lane, %s" % of_clients(clients), "events/s",
                found["ours"], found["usual"], 1.0, peer_name="the usual SQL with the same check")]
