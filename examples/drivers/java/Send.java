import java.sql.Array;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;

/**
 * Sends events to a poll with JDBC, and gets each counted once, whatever is lost on the way.
 *
 * <p>usage: java -cp postgresql.jar:. Send POLL. The server is that of PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE.
 *
 * <p>An event is made once, id and time included, and sent with the same content until there is an answer. When the
 * answer to a COMMIT is lost, nobody knows whether it happened; the retry knows: it gets "duplicate", and the same receipt.
 */
public class Send implements AutoCloseable {
    static final int TRIES = 8;
    static final long FIRST_PAUSE_MS = 50;
    static final long LONGEST_PAUSE_MS = 2000;
    static final Set<String> TRANSACTION_LOST = Set.of("40001", "40P01"); // serialization failure, deadlock

    // setString binds varchar, which the server turns into text by itself, but not into jsonb: hence the casts.
    static final String ACCEPT_EVENT = "SELECT * FROM poll_tally.accept_event(poll => ?, event_id => ?, choice => ?,"
        + " principal => ?, votes => ?::jsonb, payload => ?::jsonb, occurred_at => ?)";
    static final String ACCEPT_EVENTS = "SELECT * FROM poll_tally.accept_events(poll => ?, event_ids => ?,"
        + " principals => ?, votes => ?, payloads => ?, occurred_ats => ?)";

    /** choice, or votes: counts per choice, as JSON. In a real system, the sender stores this before it sends it. */
    record Event(String poll, String id, String principal, String choice, String votes, String payload, OffsetDateTime occurredAt) {
        static Event of(String poll, String principal, String choice, String votes, String payload) {
            // The server keeps microseconds.
            OffsetDateTime now = OffsetDateTime.now(ZoneOffset.UTC).truncatedTo(ChronoUnit.MICROS);
            return new Event(poll, UUID.randomUUID().toString(), principal, choice, votes, payload, now);
        }
    }

    /** The answer to one event. Every column reads as text; ord is that of a batch. */
    record Receipt(String outcome, String position, String attempt, boolean retryable, String differs, String detail, int ord) {
        static Receipt of(ResultSet row, boolean inBatch) throws SQLException {
            return new Receipt(row.getString("outcome"), row.getString("position"), row.getString("attempt"),
                row.getBoolean("retryable"), row.getString("differs"), row.getString("detail"), inBatch ? row.getInt("ord") : 1);
        }

        /** Now, or by an earlier try; whatever else the outcome is, it is not. */
        boolean isCounted() {
            return outcome.equals("accepted") || outcome.equals("duplicate");
        }

        String countedText() {
            return outcome + " at " + position + ", attempt " + attempt;
        }

        String refusedText() {
            return "refused, " + (retryable ? "try later: " : "for good: ") + outcome
                + (differs == null ? "" : " of " + differs.substring(1, differs.length() - 1)) // {votes,payload}
                + (detail == null ? "" : " (" + detail + ")");
        }
    }

    /** An event is not counted. */
    static class Refused extends RuntimeException {
        private static final long serialVersionUID = 1;
        final transient Receipt receipt;

        Refused(Receipt receipt) {
            super(receipt.refusedText());
            this.receipt = receipt;
        }
    }

    interface Work<T> {
        T run(Connection connection) throws SQLException;
    }

    private Connection connection; // made when it is needed, and made anew when it was lost

    static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    static Connection connect() throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", setting("PGUSER", System.getProperty("user.name")));
        properties.setProperty("password", setting("PGPASSWORD", ""));
        properties.setProperty("tcpKeepAlive", "true");
        return DriverManager.getConnection("jdbc:postgresql://" + setting("PGHOST", "localhost") + ":"
            + setting("PGPORT", "5432") + "/" + setting("PGDATABASE", setting("PGUSER", "postgres")), properties);
    }

    /** Rolls back; true when the connection is lost. */
    private boolean isLost() {
        try {
            connection.rollback();
            return false;
        } catch (SQLException e) {
            connection = null;
            return true;
        }
    }

    /** Commits the work and returns what it returned; after a lost transaction, all of it is done again. */
    <T> T transaction(Work<T> work) throws SQLException, InterruptedException {
        for (int failures = 1; ; failures++) {
            try {
                if (connection == null) {
                    connection = connect();
                    connection.setAutoCommit(false);
                }
                T result = work.run(connection);
                connection.commit();
                return result;
            } catch (Refused refused) {
                isLost(); // what else the transaction did is rolled back
                throw refused;
            } catch (SQLException e) {
                boolean lost = connection == null || isLost();
                if (failures == TRIES || !(lost || TRANSACTION_LOST.contains(e.getSQLState()))) {
                    throw e;
                }
            }
            // Full jitter: those who failed together do not come back together.
            Thread.sleep(ThreadLocalRandom.current().nextLong(Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << (failures - 1))));
        }
    }

    /** The receipt of an event that is counted, now or by an earlier try; otherwise throws Refused. */
    Receipt accept(Event event) throws SQLException, InterruptedException {
        return transaction(connection -> {
            try (PreparedStatement call = connection.prepareStatement(ACCEPT_EVENT)) {
                call.setString(1, event.poll());
                call.setString(2, event.id());
                call.setString(3, event.choice());
                call.setString(4, event.principal());
                call.setString(5, event.votes());
                call.setString(6, event.payload());
                call.setObject(7, event.occurredAt());
                ResultSet row = call.executeQuery();
                row.next();
                Receipt receipt = Receipt.of(row, false);
                if (!receipt.isCounted()) {
                    throw new Refused(receipt);
                }
                return receipt;
            }
        });
    }

    private static Array array(Connection connection, String type, List<Event> events, Function<Event, Object> column)
            throws SQLException {
        return connection.createArrayOf(type, events.stream().map(column).toArray());
    }

    /** One receipt an event, in their order. Each has its own outcome: look at every one. */
    List<Receipt> acceptAll(String poll, List<Event> events) throws SQLException, InterruptedException {
        return transaction(connection -> {
            try (PreparedStatement call = connection.prepareStatement(ACCEPT_EVENTS)) {
                call.setString(1, poll);
                call.setArray(2, array(connection, "text", events, Event::id));
                call.setArray(3, array(connection, "text", events, Event::principal));
                call.setArray(4, array(connection, "jsonb", events, Event::votes));
                call.setArray(5, array(connection, "jsonb", events, Event::payload));
                call.setArray(6, array(connection, "timestamptz", events, Event::occurredAt));
                List<Receipt> receipts = new ArrayList<>();
                for (ResultSet rows = call.executeQuery(); rows.next(); ) {
                    receipts.add(Receipt.of(rows, true));
                }
                return receipts;
            }
        });
    }

    void send(String name, Event event) throws SQLException, InterruptedException {
        try {
            System.out.println(name + ": " + accept(event).countedText());
        } catch (Refused refused) {
            System.out.println(name + ": " + refused.receipt.refusedText());
        }
    }

    void sendAll(String poll) throws SQLException, InterruptedException {
        Event ann = Event.of(poll, "ann", "soup", null, null);
        Event bob = Event.of(poll, "bob", null, "{\"soup\": 2, \"pasta\": 1}",
            "{\"table\": 7, \"note\": \"no \\\"salt\\\" \\\\ tr\u00e8s chaud\"}");
        send("one choice", ann);
        send("the same again", ann);
        send("votes and payload", bob);
        send("other votes, same id",
            new Event(poll, bob.id(), bob.principal(), null, "{\"pasta\": 3}", bob.payload(), bob.occurredAt()));
        send("unknown choice", Event.of(poll, "cyd", "stew", null, null));
        send("unknown poll", Event.of("no-" + poll, "cyd", "soup", null, null));
        Event dan = Event.of(poll, "dan", null, "{\"salad\": 1}", "[]");
        Event eve = Event.of(poll, "eve", null, "{\"salad\": 4}", "[\"a \\\"list\\\"\", null]");
        for (Receipt receipt : acceptAll(poll, List.of(dan, eve, dan, Event.of(poll, "eve", null, "{\"salad\": 11}", null)))) {
            System.out.println("batch " + receipt.ord() + ": "
                + (receipt.isCounted() ? receipt.countedText() : receipt.refusedText()));
        }
    }

    @Override
    public void close() throws SQLException {
        if (connection != null) {
            connection.close();
        }
    }

    public static void main(String[] arguments) throws SQLException, InterruptedException {
        try (Send sender = new Send()) {
            sender.sendAll(arguments[0]);
        }
    }
}
