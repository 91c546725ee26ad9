import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.concurrent.ThreadLocalRandom;
import org.postgresql.PGConnection;

/**
 * Watches a poll with JDBC: prints each state that it sees, and ends with the final one.
 *
 * <p>usage: java -cp postgresql.jar:. Watch POLL. The server is that of PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE.
 *
 * <p>Any role can send on a channel and any message can be lost, so a notification only says that it is worth asking;
 * snapshot() tells what is true, after a notification as after a lost connection.
 */
public class Watch {
    static final int ASK_MS = 10_000; // ask at least so often, should the connection be dead and not know it
    static final long FIRST_PAUSE_MS = 50;
    static final long LONGEST_PAUSE_MS = 2000;
    static final String SNAPSHOT = "SELECT * FROM poll_tally.snapshot(poll => ?, epoch => ?, after_revision => ?)";

    private final String poll;
    private String epoch;
    private Long revision;
    private long gaps;
    private boolean isFinal;
    private int failures;

    Watch(String poll) {
        this.poll = poll;
    }

    /** The client rule. True when there is another state to show. */
    boolean apply(ResultSet snapshot) throws SQLException {
        long theirs = snapshot.getLong("revision");
        if (snapshot.getString("epoch").equals(epoch)) {
            if (theirs <= revision) {
                return false; // lower: late; equal: known
            }
            if (theirs > revision + 1) {
                gaps++; // counts are complete each time, so a gap is no loss
            }
        }
        epoch = snapshot.getString("epoch");
        revision = theirs;
        isFinal = snapshot.getBoolean("final");
        return true;
    }

    void ask(Connection connection) throws SQLException {
        try (PreparedStatement call = connection.prepareStatement(SNAPSHOT)) {
            call.setString(1, poll);
            call.setString(2, epoch);
            call.setObject(3, revision, java.sql.Types.BIGINT);
            ResultSet row = call.executeQuery();
            failures = 0;
            if (row.next() && apply(row)) { // no row: we have the newest
                System.out.println("revision " + revision + ", position " + row.getLong("included_position") + ": "
                    + row.getString("counts") + ", total " + row.getString("total") + (isFinal ? ", final" : "")
                    + ", gaps " + gaps);
            }
        }
    }

    static String channel(Connection connection, String poll) throws SQLException {
        try (PreparedStatement call = connection.prepareStatement("SELECT poll_tally.channel(?)")) {
            call.setString(1, poll);
            ResultSet row = call.executeQuery();
            row.next();
            return row.getString(1);
        }
    }

    /** Until the final snapshot; throws when the connection is lost. */
    void follow(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("LISTEN " + channel(connection, poll)); // a name that needs no quoting
        }
        // Listen first, then ask: what is published in between is heard.
        ask(connection);
        while (!isFinal) {
            // Waits for the socket, outside of a transaction; one question answers all that came.
            connection.unwrap(PGConnection.class).getNotifications(ASK_MS);
            ask(connection);
        }
    }

    void run() throws SQLException, InterruptedException {
        while (!isFinal) {
            Connection connection = null;
            try {
                connection = Send.connect();
                follow(connection);
            } catch (SQLException e) {
                if (connection != null && connection.isValid(1)) {
                    throw e; // not of the connection
                }
                System.err.println("watch: " + e.getMessage());
                failures = Math.min(failures + 1, 10);
                Thread.sleep(ThreadLocalRandom.current().nextLong(Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << (failures - 1))));
            } finally {
                if (connection != null) {
                    connection.close();
                }
            }
        }
    }

    public static void main(String[] arguments) throws SQLException, InterruptedException {
        new Watch(arguments[0]).run();
    }
}
