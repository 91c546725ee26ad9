"""Statements with bound parameters, as the server sees them from most drivers; psycopg2 puts its values into the text.

A few functions of libpq by ctypes: one connection, results as bytes, errors as values, notices and notifications kept.
"""

import ctypes
import ctypes.util

COMMAND_OK, TUPLES_OK = 1, 2
SQLSTATE, MESSAGE = ord("C"), ord("M")
FIELDS = {"state": SQLSTATE, "message": MESSAGE, "detail": ord("D"), "hint": ord("H"), "context": ord("W"),
          "constraint": ord("n"), "table": ord("t"), "column": ord("c")}

NOTICE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)


class Notify(ctypes.Structure):
    _fields_ = [("channel", ctypes.c_char_p), ("pid", ctypes.c_int), ("payload", ctypes.c_char_p), ("next", ctypes.c_void_p)]


def load():
    library = ctypes.CDLL(ctypes.util.find_library("pq"))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
            ("PQconnectdb", pointer, [text]), ("PQstatus", number, [pointer]), ("PQerrorMessage", text, [pointer]),
            ("PQfinish", None, [pointer]), ("PQresultStatus", number, [pointer]), ("PQclear", None, [pointer]),
            ("PQexecParams", pointer, [pointer, text, number, pointer, ctypes.POINTER(text), pointer, pointer, number]),
            ("PQresultErrorField", text, [pointer, number]), ("PQntuples", number, [pointer]), ("PQnfields", number, [pointer]),
            ("PQgetvalue", text, [pointer, number, number]), ("PQgetisnull", number, [pointer, number, number]),
            ("PQsetNoticeProcessor", pointer, [pointer, NOTICE, pointer]), ("PQconsumeInput", number, [pointer]),
            ("PQnotifies", ctypes.POINTER(Notify), [pointer]), ("PQfreemem", None, [pointer]),
            ("PQbackendPID", number, [pointer]), ("PQexec", pointer, [pointer, text])):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


PQ = load()


class Result:
    """state is the SQLSTATE, '00000' for success, 'lost' when the connection was; fields holds what else an error says."""

    def __init__(self, result):
        self.fields, self.rows = {}, []
        if PQ.PQresultStatus(result) in (COMMAND_OK, TUPLES_OK):
            self.state = "00000"
            for row in range(PQ.PQntuples(result)):
                self.rows.append(tuple(None if PQ.PQgetisnull(result, row, column) else PQ.PQgetvalue(result, row, column)
                                       for column in range(PQ.PQnfields(result))))
        else:
            for name, code in FIELDS.items():
                value = PQ.PQresultErrorField(result, code)
                if value is not None:
                    self.fields[name] = value.decode(errors="replace")
            self.state = self.fields.get("state", "lost")
        PQ.PQclear(result)


class Connection:
    def __init__(self, dsn):
        self.pointer = PQ.PQconnectdb(dsn.encode())
        if PQ.PQstatus(self.pointer) != 0:
            raise RuntimeError(PQ.PQerrorMessage(self.pointer).decode())
        self.notices = []
        self.keep = NOTICE(lambda _, text: self.notices.append(text.decode(errors="replace")))
        PQ.PQsetNoticeProcessor(self.pointer, self.keep, None)

    def run(self, sql, values=()):
        """One statement; values are bytes, text or None."""
        values = [value.encode() if isinstance(value, str) else value for value in values]
        array = (ctypes.c_char_p * len(values))(*values)
        return Result(PQ.PQexecParams(self.pointer, sql.encode(), len(values), None, array, None, None, 0))

    def must(self, sql, values=()):
        result = self.run(sql, values)
        if result.state != "00000":
            raise RuntimeError("%s: %s" % (sql, result.fields))
        return result.rows

    def notifications(self):
        PQ.PQconsumeInput(self.pointer)
        found = []
        while True:
            notify = PQ.PQnotifies(self.pointer)
            if not notify:
                return found
            found.append((notify.contents.channel.decode(), notify.contents.payload.decode()))
            PQ.PQfreemem(notify)

    def close(self):
        PQ.PQfinish(self.pointer)
