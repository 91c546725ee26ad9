"""Many that publish one poll at once: the worker, and sessions that call publish() as fast as they can.

usage: publishers.py DSN SESSIONS SECONDS

Voters vote on meanwhile, and a listener writes down what is announced. Revisions must have one author each: announced
once, in order, without a gap, with the content that the table has.
"""

import json
import select
import sys
import threading
import time

import psycopg2


def connect(dsn):
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    return connection, connection.cursor()


def repeat(dsn, sql, until, failed):
    try:
        _, cursor = connect(dsn)
        while time.monotonic() < until:
            cursor.execute(sql)
    except psycopg2.Error as error:
        failed.append(repr(error))


def listen(connection, heard, last):
    """Until the revision that last() knows of is heard, or nothing comes for 10 s."""
    while not heard or heard[-1]["revision"] < last():
        if not any(select.select([connection], [], [], 10)):
            return
        connection.poll()
        while connection.notifies:
            heard.append(json.loads(connection.notifies.pop(0).payload))


def run(dsn, sessions, seconds):
    connection, cursor = connect(dsn)
    cursor.execute("SELECT poll_tally.create_poll('race', '{red,blue}', counting => 'every', publish_every => '1 ms')")
    listener, ears = connect(dsn)
    ears.execute("LISTEN poll_tally")
    until, failed, heard, newest = time.monotonic() + seconds, [], [], [float("inf")]
    hearing = threading.Thread(target=listen, args=(listener, heard, lambda: newest[0]))
    hearing.start()
    vote = "SELECT poll_tally.accept_event('race', gen_random_uuid()::text, 'red')"
    threads = [threading.Thread(target=repeat, args=(dsn, sql, until, failed))
               for sql in [vote] * 2 + ["SELECT poll_tally.publish('race', true)"] * sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cursor.execute("SELECT poll_tally.publish('race', true)")
    cursor.execute("SELECT revision, epoch, included_position, total, counts::jsonb FROM poll_tally.snapshots"
                   " WHERE poll = 'race' ORDER BY revision")
    table = cursor.fetchall()
    newest[0] = table[-1][0]
    # One more, for a listener that waits since before it knew the last.
    cursor.execute("SELECT pg_notify('poll_tally', poll_tally.snapshot_message('race')::text)")
    hearing.join()
    revisions = [message["revision"] for message in heard]
    if revisions[-1:] == revisions[-2:-1]:
        revisions.pop()
    announced = {message["revision"]: message for message in heard}
    cursor.execute("SELECT count(*) FROM poll_tally.events WHERE poll = 'race'")
    print("events=%d" % cursor.fetchone()[0])
    print("newest=%d" % table[-1][0])
    print("newest_position=%d" % table[-1][2])
    print("kept=%d" % len(table))
    print("revision_gaps=%d" % sum(b[0] != a[0] + 1 for a, b in zip(table, table[1:])))
    print("empty_revisions=%d" % sum(b[2] <= a[2] for a, b in zip(table, table[1:])))
    print("heard=%d" % len(revisions))
    print("heard_out_of_order=%d" % sum(b != a + 1 for a, b in zip(revisions, revisions[1:])))
    print("forked=%d" % sum(row[0] > 1 and (announced.get(row[0]) is None or row[1:3] != (
        announced[row[0]]["epoch"], announced[row[0]]["includedPosition"])
        or sum(announced[row[0]]["counts"].values()) != row[3]) for row in table))
    for line in failed[:5]:
        print("# " + " ".join(line.split()))
    print("failed=%d" % len(failed))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
