import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;

/**
 * Binds every argument of every function in the view calls with JDBC, and reads every column in reads as text. Prints how
 * many calls were found and how many values were read. The casts are those of the reference, or none with
 * stringtype=unspecified in the URL.
 *
 * <p>usage: Bind URL
 */
public class Bind {
    static String written(String type, boolean casts) {
        switch (type) {
            case "jsonb": case "interval": case "regrole": case "poll_tally.tally": case "poll_tally.event_position":
                return casts ? "?::" + type : "?";
            default:
                return "?";
        }
    }

    static void bind(PreparedStatement call, int place, String type) throws SQLException {
        Connection connection = call.getConnection();
        OffsetDateTime now = OffsetDateTime.now();
        switch (type) {
            case "text": call.setString(place, "x'"); break;
            case "integer": call.setInt(place, 1); break;
            case "bigint": call.setLong(place, 1L << 40); break;
            case "boolean": call.setBoolean(place, true); break;
            case "interval": call.setString(place, "1 day"); break;
            case "jsonb": call.setString(place, "{\"a\": \"\\\"\\\\\"}"); break;
            case "timestamp with time zone": call.setObject(place, now); break;
            case "text[]": call.setArray(place, connection.createArrayOf("text", new String[] {"x'", "{,}"})); break;
            case "bigint[]": call.setArray(place, connection.createArrayOf("bigint", new Long[] {1L, 2L})); break;
            case "jsonb[]":
                call.setArray(place, connection.createArrayOf("jsonb", new String[] {"{\"a\": \"\\\"\\\\\"}", null})); break;
            case "timestamp with time zone[]":
                call.setArray(place, connection.createArrayOf("timestamptz", new OffsetDateTime[] {now, null})); break;
            case "regrole": call.setString(place, "postgres"); break;
            case "poll_tally.tally": call.setString(place, "{\"a\": 1}"); break;
            case "poll_tally.event_position": call.setString(place, "0/1"); break;
            default: throw new IllegalArgumentException(type);
        }
    }

    static int bindAll(Connection connection, boolean casts) throws SQLException {
        int bound = 0;
        try (Statement statement = connection.createStatement();
             ResultSet calls = statement.executeQuery("SELECT name, names, types FROM calls")) {
            while (calls.next()) {
                String[] names = (String[]) calls.getArray("names").getArray();
                String[] types = (String[]) calls.getArray("types").getArray();
                List<String> list = new ArrayList<>();
                for (int i = 0; i < names.length; i++) {
                    list.add(names[i] + " => " + written(types[i], casts));
                }
                String sql = "EXPLAIN SELECT poll_tally." + calls.getString("name") + "(" + String.join(", ", list) + ")";
                try (PreparedStatement call = connection.prepareStatement(sql)) {
                    for (int i = 0; i < types.length; i++) {
                        bind(call, i + 1, types[i]);
                    }
                    call.executeQuery();
                    bound++;
                }
            }
        }
        return bound;
    }

    static int readAll(Connection connection) throws SQLException {
        int read = 0;
        try (Statement statement = connection.createStatement(); Statement other = connection.createStatement();
             ResultSet sources = statement.executeQuery("SELECT source FROM reads")) {
            while (sources.next()) {
                ResultSet rows = other.executeQuery("SELECT * FROM poll_tally." + sources.getString("source"));
                while (rows.next()) {
                    for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) {
                        read += rows.getString(i) == null ? 0 : 1;
                    }
                }
            }
        }
        return read;
    }

    public static void main(String[] arguments) throws SQLException {
        try (Connection connection = DriverManager.getConnection(arguments[0])) {
            System.out.println("bound=" + bindAll(connection, !arguments[0].contains("stringtype=unspecified")));
            System.out.println("read=" + readAll(connection));
        }
    }
}
