// pgjdbc and HikariCP doing real work against a running server: java -cp ... Work jdbc:postgresql://HOST:PORT/DATABASE USER

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.StringReader;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PSQLException;
import org.postgresql.util.ServerErrorMessage;

public final class Work {
    private static String url;
    private static String user;

    private interface Part {
        void run() throws Exception;
    }

    private interface Doing {
        void run() throws SQLException;
    }

    public static void main(String[] arguments) throws Exception {
        url = arguments[0];
        user = arguments[1];
        String only = arguments.length > 2 ? arguments[2] : "";
        boolean failed = false;
        TreeMap<String, Part> parts = new TreeMap<>();
        parts.put("types", Work::types);
        parts.put("batches", Work::batches);
        parts.put("generated keys", Work::generatedKeys);
        parts.put("cursors", Work::cursors);
        parts.put("large values", Work::largeValues);
        parts.put("errors", Work::errors);
        parts.put("transactions", Work::transactions);
        parts.put("metadata", Work::metadata);
        parts.put("keys and indexes", Work::keysAndIndexes);
        parts.put("columns", Work::columns);
        parts.put("result metadata", Work::resultMetadata);
        parts.put("pool", Work::pool);
        parts.put("copy", Work::copy);
        parts.put("updatable results", Work::updatableResults);
        for (var part : parts.entrySet()) {
            if (!part.getKey().startsWith(only)) {
                continue;
            }
            try {
                part.getValue().run();
                System.out.println("ok jdbc " + part.getKey());
            } catch (Exception | AssertionError e) {
                failed = true;
                System.out.println("not ok jdbc " + part.getKey());
                e.printStackTrace(System.out);
            }
        }
        System.exit(failed ? 1 : 0);
    }

    private static Connection connect(String... options) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", user);
        for (int i = 0; i < options.length; i += 2) {
            properties.setProperty(options[i], options[i + 1]);
        }
        return DriverManager.getConnection(url, properties);
    }

    private static void execute(Connection connection, String... statements) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String sql : statements) {
                statement.execute(sql);
            }
        }
    }

    private static void equal(Object expected, Object found, String what) {
        if (!Objects.deepEquals(expected, found)) {
            throw new AssertionError(what + ": expected " + shown(expected) + ", found " + shown(found));
        }
    }

    private static String shown(Object value) {
        return value instanceof Object[] array ? Arrays.deepToString(array) : String.valueOf(value);
    }

    private static PSQLException expectError(String state, Doing doing) {
        try {
            doing.run();
        } catch (SQLException e) {
            SQLException found = e;
            while (!(found instanceof PSQLException) && found.getNextException() != null) {
                found = found.getNextException();
            }
            equal(state, found.getSQLState(), "SQLSTATE of " + e.getMessage());
            return found instanceof PSQLException error ? error : null;
        }
        throw new AssertionError("no error " + state);
    }

    // ---- values

    private record Case(String type, Object... values) {}

    private static final List<Case> CASES = List.of(
        new Case("boolean", true, false),
        new Case("smallint", -32768, 32767),
        new Case("integer", Integer.MIN_VALUE, Integer.MAX_VALUE),
        new Case("bigint", Long.MIN_VALUE, Long.MAX_VALUE),
        new Case("real", 1.5f, -0.25f, Float.POSITIVE_INFINITY),
        new Case("double precision", 0.1, 1e300, Double.NEGATIVE_INFINITY),
        new Case("numeric(9,4)", new BigDecimal("12345.6789"), new BigDecimal("-0.0001")),
        new Case("numeric", new BigDecimal("1" + "0".repeat(60)), new BigDecimal("0.000000001"), new BigDecimal("0")),
        new Case("char(4)", "ab  "),
        new Case("varchar(8)", "", "h\u00e9llo \u20ac"),
        new Case("text", "", "x".repeat(100_000)),
        new Case("bytea", new byte[0], new byte[] {0, 1, -1, 92, 39}),
        new Case("date", LocalDate.of(1, 1, 1), LocalDate.of(2026, 11, 20)),
        new Case("time", LocalTime.MIDNIGHT, LocalTime.of(23, 59, 59, 999_999_000)),
        new Case("timestamp", LocalDateTime.of(1999, 12, 31, 23, 59, 59, 5000)),
        new Case("timestamptz", OffsetDateTime.of(2026, 11, 20, 12, 0, 0, 0, ZoneOffset.UTC)),
        new Case("uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddeeff")));

    private static void types() throws Exception {
        for (String threshold : new String[] {"-1", "1", "5"}) {
            for (String binary : new String[] {"true", "false"}) {
                for (String mode : new String[] {"extended", "simple"}) {
                    try (Connection connection =
                            connect("prepareThreshold", threshold, "binaryTransfer", binary, "preferQueryMode", mode)) {
                        roundTrips(connection, threshold + " " + binary + " " + mode);
                    }
                }
            }
        }
    }

    private static void roundTrips(Connection connection, String how) throws SQLException {
        int at = 0;
        for (Case values : CASES) {
            String table = "jdbc_type_" + at++;
            execute(connection, "drop table if exists " + table, "create table " + table + "(id int primary key, v " + values.type + ")");
            try (PreparedStatement insert = connection.prepareStatement("insert into " + table + " values (?, ?)")) {
                for (int round = 0; round < 3; round++) {
                    int id = round * 100;
                    for (Object value : values.values) {
                        insert.setInt(1, id++);
                        insert.setObject(2, value);
                        equal(1, insert.executeUpdate(), values.type);
                    }
                    insert.setInt(1, id);
                    insert.setNull(2, Types.NULL);
                    insert.executeUpdate();
                }
            }
            String sql = "select id, v from " + table + " order by id";
            try (PreparedStatement select = connection.prepareStatement(sql)) {
                for (int round = 0; round < 3; round++) {
                    try (ResultSet rows = select.executeQuery()) {
                        for (int i = 0; i < 3; i++) {
                            for (Object value : values.values) {
                                rows.next();
                                Object found = value instanceof Integer ? (Object) rows.getInt(2)
                                    : value instanceof byte[] ? rows.getBytes(2) : rows.getObject(2, value.getClass());
                                if (value instanceof BigDecimal number) {
                                    equal(0, number.compareTo((BigDecimal) found), values.type + " " + how);
                                } else {
                                    equal(value, found, values.type + " " + how);
                                }
                            }
                            rows.next();
                            rows.getObject(2);
                            equal(true, rows.wasNull(), values.type + " null");
                        }
                    }
                }
            }
            execute(connection, "drop table " + table);
        }
        otherTypes(connection, how);
    }

    /** Types that have no class of Java's own. */
    private static void otherTypes(Connection connection, String how) throws SQLException {
        execute(connection, "drop table if exists jdbc_other",
            "create table jdbc_other(id int primary key, i interval, j json, b jsonb, n int[], t text[], m numeric[], bs bool[])");
        String sql = "insert into jdbc_other values (?, ?, ?::json, ?::jsonb, ?, ?, ?, ?)";
        try (PreparedStatement insert = connection.prepareStatement(sql)) {
            for (int id = 0; id < 3; id++) {
                insert.setInt(1, id);
                insert.setObject(2, new PGInterval(1, 2, 3, 4, 5, 6.5));
                insert.setString(3, "{\"a\":  1}");
                insert.setString(4, "{\"b\":  [1, 2]}");
                insert.setArray(5, connection.createArrayOf("int4", new Integer[] {1, null, 3}));
                insert.setArray(6, connection.createArrayOf("text", new String[] {"a", "b \"c\", {d}", null, ""}));
                insert.setArray(7, connection.createArrayOf("numeric", new BigDecimal[] {new BigDecimal("1.50")}));
                insert.setArray(8, connection.createArrayOf("bool", new Boolean[] {true, false}));
                insert.executeUpdate();
            }
        }
        try (PreparedStatement select = connection.prepareStatement("select i, j, b, n, t, m, bs from jdbc_other order by id");
                ResultSet rows = select.executeQuery()) {
            while (rows.next()) {
                equal(new PGInterval(1, 2, 3, 4, 5, 6.5), rows.getObject(1), "interval " + how);
                equal("{\"a\":  1}", rows.getString(2), "json");
                equal("{\"b\": [1, 2]}", rows.getString(3), "jsonb");
                equal(new Integer[] {1, null, 3}, rows.getArray(4).getArray(), "int[] " + how);
                equal(new String[] {"a", "b \"c\", {d}", null, ""}, rows.getArray(5).getArray(), "text[] " + how);
                equal(new BigDecimal[] {new BigDecimal("1.50")}, rows.getArray(6).getArray(), "numeric[] " + how);
                equal(new Boolean[] {true, false}, rows.getArray(7).getArray(), "bool[] " + how);
            }
        }
        try (PreparedStatement select = connection.prepareStatement("select count(*) from jdbc_other where id = any(?)")) {
            Array ids = connection.createArrayOf("int4", new Integer[] {0, 2, 9});
            select.setArray(1, ids);
            try (ResultSet rows = select.executeQuery()) {
                rows.next();
                equal(2L, rows.getLong(1), "= any(?)");
            }
        }
        execute(connection, "drop table jdbc_other");
    }

    // ---- changes

    private static void batches() throws Exception {
        for (String rewrite : new String[] {"false", "true"}) {
            try (Connection connection = connect("reWriteBatchedInserts", rewrite)) {
                execute(connection, "drop table if exists jdbc_batch", "create table jdbc_batch(id int primary key, v text, w numeric)");
                connection.setAutoCommit(false);
                try (PreparedStatement insert = connection.prepareStatement("insert into jdbc_batch values (?, ?, ?)")) {
                    for (int id = 0; id < 1000; id++) {
                        insert.setInt(1, id);
                        insert.setString(2, "v" + id);
                        insert.setBigDecimal(3, BigDecimal.valueOf(id, 2));
                        insert.addBatch();
                    }
                    int[] counts = insert.executeBatch();
                    equal(1000, counts.length, "counts");
                    for (int count : counts) {
                        equal(true, count == 1 || count == Statement.SUCCESS_NO_INFO, "a count");
                    }
                }
                connection.commit();
                try (PreparedStatement update = connection.prepareStatement("update jdbc_batch set v = ? where id between ? and ?")) {
                    for (int id = 0; id < 1000; id += 100) {
                        update.setString(1, "new");
                        update.setInt(2, id);
                        update.setInt(3, id + 49);
                        update.addBatch();
                    }
                    for (int count : update.executeBatch()) {
                        equal(50, count, "rows of an update");
                    }
                }
                connection.commit();
                equal(500L, number(connection, "select count(*) from jdbc_batch where v = 'new'"), "changed");
                try (Statement mixed = connection.createStatement()) {
                    mixed.addBatch("insert into jdbc_batch values (2000, 'a', 1)");
                    mixed.addBatch("update jdbc_batch set w = 0 where id < 10");
                    mixed.addBatch("delete from jdbc_batch where id = 2000");
                    equal(new int[] {1, 10, 1}, mixed.executeBatch(), "a batch of texts");
                }
                connection.commit();
                try (PreparedStatement insert = connection.prepareStatement("insert into jdbc_batch values (?, ?, ?)")) {
                    for (int id : new int[] {3000, 3001, 5, 3002}) {
                        insert.setInt(1, id);
                        insert.setString(2, null);
                        insert.setBigDecimal(3, null);
                        insert.addBatch();
                    }
                    expectError("23505", insert::executeBatch);
                }
                connection.rollback();
                equal(0L, number(connection, "select count(*) from jdbc_batch where id >= 3000"), "undone");
                connection.commit();
                execute(connection, "drop table jdbc_batch");
                connection.commit();
            }
        }
    }

    private static long number(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getLong(1);
        }
    }

    private static void generatedKeys() throws Exception {
        try (Connection connection = connect()) {
            execute(connection, "drop table if exists jdbc_key", "create table jdbc_key(id serial primary key, v text, w int default 7)");
            String sql = "insert into jdbc_key(v) values (?)";
            try (PreparedStatement insert = connection.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
                for (int n = 1; n <= 10; n++) {
                    insert.setString(1, "v" + n);
                    equal(1, insert.executeUpdate(), "inserted");
                    try (ResultSet keys = insert.getGeneratedKeys()) {
                        equal(true, keys.next(), "a key");
                        equal(n, keys.getInt("id"), "id");
                        equal(7, keys.getInt("w"), "default");
                    }
                }
            }
            try (PreparedStatement insert = connection.prepareStatement(sql, new String[] {"id"})) {
                for (int n = 0; n < 5; n++) {
                    insert.setString(1, "b" + n);
                    insert.addBatch();
                }
                insert.executeBatch();
                List<Integer> found = new ArrayList<>();
                try (ResultSet keys = insert.getGeneratedKeys()) {
                    while (keys.next()) {
                        found.add(keys.getInt(1));
                    }
                }
                equal(List.of(11, 12, 13, 14, 15), found, "keys of a batch");
            }
            try (Statement update = connection.createStatement()) {
                update.executeUpdate("update jdbc_key set w = 8 where id < 3", new String[] {"id", "w"});
                try (ResultSet rows = update.getGeneratedKeys()) {
                    int count = 0;
                    while (rows.next()) {
                        equal(8, rows.getInt(2), "returned");
                        count++;
                    }
                    equal(2, count, "returned rows");
                }
            }
            execute(connection, "drop table jdbc_key");
        }
    }

    // ---- reading

    private static void cursors() throws Exception {
        try (Connection connection = connect()) {
            execute(connection, "drop table if exists jdbc_cursor", "create table jdbc_cursor(id int primary key, v text)",
                "insert into jdbc_cursor select n, 'v' || n from generate_series(1, 10000) n");
            connection.setAutoCommit(false);
            try (PreparedStatement select = connection.prepareStatement("select id, v from jdbc_cursor where id > ? order by id")) {
                select.setFetchSize(100);
                select.setInt(1, 10);
                for (int round = 0; round < 7; round++) {
                    try (ResultSet rows = select.executeQuery()) {
                        int id = 10;
                        while (rows.next()) {
                            equal(++id, rows.getInt(1), "id");
                            equal("v" + id, rows.getString(2), "v");
                        }
                        equal(10000, id, "the last");
                    }
                }
                select.setMaxRows(17);
                try (ResultSet rows = select.executeQuery()) {
                    int count = 0;
                    while (rows.next()) {
                        count++;
                    }
                    equal(17, count, "with a limit");
                }
            }
            // Two open at a time, one left in the middle.
            try (Statement first = connection.createStatement(); Statement second = connection.createStatement()) {
                first.setFetchSize(3);
                second.setFetchSize(5);
                ResultSet one = first.executeQuery("select id from jdbc_cursor order by id");
                ResultSet two = second.executeQuery("select id from jdbc_cursor order by id desc");
                for (int n = 0; n < 50; n++) {
                    one.next();
                    two.next();
                    equal(10001, one.getInt(1) + two.getInt(1), "side by side");
                }
            }
            connection.commit();
            try (Statement scroll = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY);
                    ResultSet rows = scroll.executeQuery("select id from jdbc_cursor order by id limit 100")) {
                equal(true, rows.last(), "last");
                equal(100, rows.getInt(1), "the last");
                equal(true, rows.absolute(7), "absolute");
                equal(7, rows.getInt(1), "the seventh");
                equal(true, rows.previous(), "previous");
                equal(6, rows.getInt(1), "the sixth");
            }
            execute(connection, "declare c cursor for select id from jdbc_cursor order by id");
            try (Statement fetch = connection.createStatement(); ResultSet rows = fetch.executeQuery("fetch 5 from c")) {
                int count = 0;
                while (rows.next()) {
                    equal(++count, rows.getInt(1), "fetched");
                }
                equal(5, count, "fetched rows");
            }
            connection.commit();
            execute(connection, "drop table jdbc_cursor");
            connection.commit();
        }
    }

    private static void largeValues() throws Exception {
        try (Connection connection = connect("prepareThreshold", "1")) {
            execute(connection, "drop table if exists jdbc_large", "create table jdbc_large(id int primary key, t text, b bytea)");
            String text = "a long line \u20ac ".repeat(150_000);
            byte[] bytes = new byte[4 << 20];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = (byte) (i * 31);
            }
            try (PreparedStatement insert = connection.prepareStatement("insert into jdbc_large values (?, ?, ?)")) {
                for (int id = 0; id < 2; id++) {
                    insert.setInt(1, id);
                    insert.setCharacterStream(2, new StringReader(text), text.length());
                    insert.setBytes(3, bytes);
                    insert.executeUpdate();
                }
            }
            try (PreparedStatement select = connection.prepareStatement("select t, b, length(t), length(b) from jdbc_large where id = ?")) {
                for (int id = 0; id < 2; id++) {
                    select.setInt(1, id);
                    try (ResultSet rows = select.executeQuery()) {
                        rows.next();
                        equal(text, rows.getString(1), "text");
                        equal(bytes, rows.getBytes(2), "bytes");
                        equal(text.length(), rows.getInt(3), "length");
                        equal(bytes.length, rows.getInt(4), "length of bytes");
                        equal(true, Arrays.equals(bytes, rows.getBinaryStream(2).readAllBytes()), "stream");
                    }
                }
            }
            StringBuilder list = new StringBuilder("select count(*) from jdbc_large where id in (0");
            for (int i = 1; i < 10_000; i++) {
                list.append(", ").append(i);
            }
            equal(2L, number(connection, list.append(")").toString()), "a long list");
            execute(connection, "drop table jdbc_large");
        }
    }

    // ---- errors and transactions

    private static void errors() throws Exception {
        try (Connection connection = connect()) {
            execute(connection, "drop table if exists jdbc_child", "drop table if exists jdbc_error",
                "create table jdbc_error(id int primary key, v varchar(3) not null, w int, constraint jdbc_w check (w > 0))",
                "create table jdbc_child(id int constraint jdbc_child_of references jdbc_error)",
                "insert into jdbc_error values (1, 'a', 1)");
            ServerErrorMessage message = expectError("23505", () -> execute(connection, "insert into jdbc_error values (1, 'b', 1)")).getServerErrorMessage();
            equal("jdbc_error_pkey", message.getConstraint(), "constraint");
            equal("jdbc_error", message.getTable(), "table");
            equal("public", message.getSchema(), "schema");
            equal("Key (id)=(1) already exists.", message.getDetail(), "detail");
            equal("ERROR", message.getSeverity(), "severity");
            message = expectError("23502", () -> execute(connection, "insert into jdbc_error values (2, null, 1)")).getServerErrorMessage();
            equal("v", message.getColumn(), "column");
            message = expectError("23514", () -> execute(connection, "insert into jdbc_error values (2, 'b', 0)")).getServerErrorMessage();
            equal("jdbc_w", message.getConstraint(), "check");
            message = expectError("23503", () -> execute(connection, "insert into jdbc_child values (7)")).getServerErrorMessage();
            equal("jdbc_child_of", message.getConstraint(), "foreign key");
            equal("Key (id)=(7) is not present in table \"jdbc_error\".", message.getDetail(), "detail of the foreign key");
            message = expectError("42703", () -> execute(connection, "select nothing from jdbc_error")).getServerErrorMessage();
            equal(8, message.getPosition(), "position");
            expectError("42P01", () -> execute(connection, "select * from jdbc_nothing"));
            expectError("42601", () -> execute(connection, "selec 1"));
            expectError("22012", () -> execute(connection, "select 1 / 0"));
            expectError("22P02", () -> execute(connection, "select 'x'::int"));
            expectError("22001", () -> execute(connection, "insert into jdbc_error values (3, 'abcd', 1)"));
            expectError("42883", () -> execute(connection, "select nothing(1)"));
            try (PreparedStatement prepared = connection.prepareStatement("select ? / ?")) {
                for (int round = 0; round < 7; round++) {
                    prepared.setInt(1, 1);
                    prepared.setInt(2, round % 2);
                    if (round % 2 == 0) {
                        expectError("22012", prepared::executeQuery);
                    } else {
                        prepared.executeQuery().close();
                    }
                }
            }
            execute(connection, "set statement_timeout = '200ms'");
            expectError("57014", () -> execute(connection, "select count(*) from generate_series(1, 4000000) a, generate_series(1, 1000) b"));
            execute(connection, "reset statement_timeout");
            try (Statement statement = connection.createStatement()) {
                ExecutorService canceller = Executors.newSingleThreadExecutor();
                canceller.submit(() -> {
                    TimeUnit.MILLISECONDS.sleep(300);
                    statement.cancel();
                    return null;
                });
                expectError("57014", () -> statement.execute("select count(*) from generate_series(1, 4000000) a, generate_series(1, 1000) b"));
                canceller.shutdown();
            }
            try (Statement statement = connection.createStatement()) {
                statement.execute("drop table if exists jdbc_nothing");
                equal("00000", statement.getWarnings().getSQLState(), "a notice");
            }
            execute(connection, "drop table jdbc_child", "drop table jdbc_error");
        }
    }

    private static void transactions() throws Exception {
        try (Connection connection = connect(); Connection other = connect()) {
            execute(connection, "drop table if exists jdbc_transaction", "create table jdbc_transaction(id int primary key, v int)");
            connection.setAutoCommit(false);
            execute(connection, "insert into jdbc_transaction values (1, 1)");
            equal(0L, number(other, "select count(*) from jdbc_transaction"), "not yet committed");
            Savepoint named = connection.setSavepoint("a name");
            execute(connection, "insert into jdbc_transaction values (2, 2)");
            Savepoint unnamed = connection.setSavepoint();
            expectError("23505", () -> execute(connection, "insert into jdbc_transaction values (2, 2)"));
            expectError("25P02", () -> execute(connection, "select 1"));
            connection.rollback(unnamed);
            equal(2L, number(connection, "select count(*) from jdbc_transaction"), "after a rollback to the second");
            connection.rollback(named);
            connection.releaseSavepoint(named);
            equal(1L, number(connection, "select count(*) from jdbc_transaction"), "after a rollback to the first");
            connection.commit();
            equal(1L, number(other, "select count(*) from jdbc_transaction"), "committed");
            execute(connection, "insert into jdbc_transaction values (3, 3)");
            connection.rollback();
            equal(1L, number(connection, "select count(*) from jdbc_transaction"), "rolled back");
            connection.commit();

            equal(Connection.TRANSACTION_READ_COMMITTED, connection.getTransactionIsolation(), "the usual level");
            connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
            equal(Connection.TRANSACTION_REPEATABLE_READ, connection.getTransactionIsolation(), "the level set");
            equal(1L, number(connection, "select v from jdbc_transaction where id = 1"), "before");
            execute(other, "update jdbc_transaction set v = 2 where id = 1");
            equal(1L, number(connection, "select v from jdbc_transaction where id = 1"), "the same snapshot");
            expectError("40001", () -> execute(connection, "update jdbc_transaction set v = 3 where id = 1"));
            connection.rollback();
            connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);

            connection.setReadOnly(true);
            expectError("25006", () -> execute(connection, "update jdbc_transaction set v = 3 where id = 1"));
            connection.rollback();
            connection.setReadOnly(false);
            execute(connection, "update jdbc_transaction set v = 4 where id = 1");
            connection.commit();
            connection.setAutoCommit(true);
            equal(4L, number(connection, "select v from jdbc_transaction"), "at the end");
            try (Connection saving = connect("autosave", "always")) {
                saving.setAutoCommit(false);
                execute(saving, "insert into jdbc_transaction values (5, 5)");
                expectError("23505", () -> execute(saving, "insert into jdbc_transaction values (5, 5)"));
                execute(saving, "insert into jdbc_transaction values (6, 6)");
                saving.commit();
            }
            equal(3L, number(connection, "select count(*) from jdbc_transaction"), "with autosave");
            equal("jdbc_schema", inSchema(connection), "setSchema");
            equal(true, connection.isValid(5), "valid");
            connection.setClientInfo("ApplicationName", "work");
            execute(connection, "drop table jdbc_transaction");
        }
    }

    private static String inSchema(Connection connection) throws SQLException {
        execute(connection, "drop schema if exists jdbc_schema cascade", "create schema jdbc_schema");
        connection.setSchema("jdbc_schema");
        execute(connection, "create table in_it(a int)");
        String found = connection.getSchema();
        connection.setSchema("public");
        execute(connection, "drop schema jdbc_schema cascade");
        return found;
    }

    // ---- metadata

    private static final String[] SHOP = {
        "drop schema if exists jdbc_shop cascade",
        "create schema jdbc_shop",
        "create table jdbc_shop.customer(id serial primary key, name varchar(40) not null, email text unique, balance numeric(12,2) default 0,"
            + " born date, seen timestamptz default now(), tags text[], flag boolean default true, note char(5), raw bytea, code uuid)",
        "comment on table jdbc_shop.customer is 'who buys'",
        "comment on column jdbc_shop.customer.name is 'called so'",
        "create table jdbc_shop.purchase(no bigint generated always as identity, day date, customer int not null references jdbc_shop.customer"
            + " on delete cascade on update restrict, twice int generated always as (customer * 2) stored, primary key (day, no))",
        "create table jdbc_shop.line(day date, no bigint, at smallint, price numeric, constraint line_pk primary key (no, day, at),"
            + " constraint line_of foreign key (day, no) references jdbc_shop.purchase(day, no) deferrable initially deferred)",
        "create index line_price on jdbc_shop.line (price desc, at)",
        "create unique index customer_lower on jdbc_shop.customer (lower(name)) where flag",
        "create view jdbc_shop.rich as select id, name from jdbc_shop.customer where balance > 1000",
        "create sequence jdbc_shop.tickets",
    };

    private static Connection shop() throws SQLException {
        Connection connection = connect();
        execute(connection, SHOP);
        return connection;
    }

    /** The rows as texts of these columns. */
    private static List<String> list(ResultSet rows, String... columns) throws SQLException {
        List<String> found = new ArrayList<>();
        try (rows) {
            while (rows.next()) {
                List<String> cells = new ArrayList<>();
                for (String column : columns) {
                    cells.add(rows.getString(column));
                }
                found.add(String.join(" ", cells.stream().map(String::valueOf).toList()));
            }
        }
        return found;
    }

    private static void metadata() throws Exception {
        try (Connection connection = shop()) {
            DatabaseMetaData meta = connection.getMetaData();
            equal("PostgreSQL", meta.getDatabaseProductName(), "product");
            equal(15, meta.getDatabaseMajorVersion(), "version");
            equal(true, list(meta.getSchemas(), "TABLE_SCHEM").containsAll(List.of("information_schema", "jdbc_shop", "pg_catalog", "public")), "schemas");
            equal(List.of("jdbc_shop"), list(meta.getSchemas(null, "jdbc\\_s%"), "TABLE_SCHEM"), "schemas of a name");
            equal(true, list(meta.getCatalogs(), "TABLE_CAT").contains(connection.getCatalog()), "catalogs");
            equal(List.of("jdbc_shop customer TABLE who buys", "jdbc_shop line TABLE null", "jdbc_shop purchase TABLE null"),
                list(meta.getTables(null, "jdbc_shop", "%", new String[] {"TABLE"}), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS"), "tables");
            equal(List.of("rich VIEW"), list(meta.getTables(null, "jdbc_shop", "%", new String[] {"VIEW"}), "TABLE_NAME", "TABLE_TYPE"), "views");
            equal(List.of("customer_id_seq", "purchase_no_seq", "tickets"),
                list(meta.getTables(null, "jdbc_shop", "%", new String[] {"SEQUENCE"}), "TABLE_NAME"), "sequences");
            equal(List.of("customer_email_key", "customer_lower", "customer_pkey", "line_pk", "line_price", "purchase_pkey"),
                list(meta.getTables(null, "jdbc_shop", null, new String[] {"INDEX"}), "TABLE_NAME"), "indexes");
            equal(List.of("purchase"), list(meta.getTables(null, null, "purchase", null), "TABLE_NAME"), "a table anywhere");
            equal(true, list(meta.getTables(null, "pg_catalog", "pg_cl%", null), "TABLE_NAME", "TABLE_TYPE").contains("pg_class SYSTEM TABLE"), "system tables");
            equal(true, list(meta.getTables(null, "information_schema", "col%", null), "TABLE_NAME", "TABLE_TYPE").contains("columns SYSTEM VIEW"), "system views");
            equal(true, list(meta.getTableTypes(), "TABLE_TYPE").containsAll(List.of("TABLE", "VIEW", "INDEX", "SEQUENCE")), "types of tables");
            List<String> types = list(meta.getTypeInfo(), "TYPE_NAME", "DATA_TYPE");
            for (String type : List.of("int4 4", "int8 -5", "text 12", "bool -7", "numeric 2", "timestamptz 93", "uuid 1111", "_int4 2003")) {
                equal(true, types.contains(type), "type " + type + " of " + types);
            }
            equal(true, list(meta.getFunctions(null, "pg_catalog", "lower"), "FUNCTION_NAME").contains("lower"), "functions");
            equal(List.of(), list(meta.getProcedures(null, "jdbc_shop", "%"), "PROCEDURE_NAME"), "procedures");
            equal(List.of("customer", "line", "purchase", "rich"), list(meta.getUDTs(null, "jdbc_shop", "%", null), "TYPE_NAME"), "row types");
            equal(true, list(meta.getClientInfoProperties(), "NAME").contains("ApplicationName"), "properties of clients");
        } finally {
            cleanUp();
        }
    }

    private static void cleanUp() throws SQLException {
        try (Connection connection = connect()) {
            execute(connection, "drop schema if exists jdbc_shop cascade");
        }
    }

    private static void keysAndIndexes() throws Exception {
        try (Connection connection = shop()) {
            DatabaseMetaData meta = connection.getMetaData();
            equal(List.of("id 1 customer_pkey"), list(meta.getPrimaryKeys(null, "jdbc_shop", "customer"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME"), "primary key");
            equal(List.of("no 1 line_pk", "day 2 line_pk", "at 3 line_pk"),
                list(meta.getPrimaryKeys(null, "jdbc_shop", "line"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME"), "primary key of three");
            equal(List.of("jdbc_shop purchase day jdbc_shop line day 1 3 3 line_of purchase_pkey 5",
                    "jdbc_shop purchase no jdbc_shop line no 2 3 3 line_of purchase_pkey 5"),
                list(meta.getImportedKeys(null, "jdbc_shop", "line"), "PKTABLE_SCHEM", "PKTABLE_NAME", "PKCOLUMN_NAME", "FKTABLE_SCHEM", "FKTABLE_NAME",
                    "FKCOLUMN_NAME", "KEY_SEQ", "UPDATE_RULE", "DELETE_RULE", "FK_NAME", "PK_NAME", "DEFERRABILITY"), "imported keys");
            equal(List.of("purchase customer id 1 0 purchase_customer_fkey 7"),
                list(meta.getExportedKeys(null, "jdbc_shop", "customer"), "FKTABLE_NAME", "FKCOLUMN_NAME", "PKCOLUMN_NAME", "UPDATE_RULE", "DELETE_RULE",
                    "FK_NAME", "DEFERRABILITY"), "exported keys");
            equal(List.of("purchase day line day", "purchase no line no"),
                list(meta.getCrossReference(null, "jdbc_shop", "purchase", null, "jdbc_shop", "line"), "PKTABLE_NAME", "PKCOLUMN_NAME", "FKTABLE_NAME",
                    "FKCOLUMN_NAME"), "cross reference");
            equal(List.of("false line_pk 1 no A null", "false line_pk 2 day A null", "false line_pk 3 at A null", "true line_price 1 price D null",
                    "true line_price 2 at A null"),
                list(meta.getIndexInfo(null, "jdbc_shop", "line", false, false), "NON_UNIQUE", "INDEX_NAME", "ORDINAL_POSITION", "COLUMN_NAME", "ASC_OR_DESC",
                    "FILTER_CONDITION").stream().map(row -> row.replaceFirst("^f ", "false ").replaceFirst("^t ", "true ")).toList(), "indexes");
            equal(List.of("customer_email_key email null", "customer_lower lower(name::text) flag", "customer_pkey id null"),
                new ArrayList<>(new TreeSet<>(list(meta.getIndexInfo(null, "jdbc_shop", "customer", true, false), "INDEX_NAME", "COLUMN_NAME", "FILTER_CONDITION")
                    .stream().map(row -> row.replace("(flag)", "flag").replace("lower((name)::text)", "lower(name::text)")).toList())), "unique indexes");
            equal(List.of("id"), list(meta.getBestRowIdentifier(null, "jdbc_shop", "customer", DatabaseMetaData.bestRowSession, false), "COLUMN_NAME"), "row identifier");
            meta.getTablePrivileges(null, "jdbc_shop", "customer").close();
            meta.getColumnPrivileges(null, "jdbc_shop", "customer", "id").close();
            meta.getVersionColumns(null, "jdbc_shop", "customer").close();
        } finally {
            cleanUp();
        }
    }

    private static void columns() throws Exception {
        try (Connection connection = shop()) {
            DatabaseMetaData meta = connection.getMetaData();
            String[] wanted = {"COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "NULLABLE", "COLUMN_DEF", "REMARKS", "ORDINAL_POSITION",
                "IS_NULLABLE", "IS_AUTOINCREMENT", "IS_GENERATEDCOLUMN"};
            equal(List.of(
                    "id 4 serial 10 0 0 nextval('jdbc_shop.customer_id_seq'::regclass) null 1 NO YES NO",
                    "name 12 varchar 40 0 0 null called so 2 NO NO NO",
                    "email 12 text 2147483647 0 1 null null 3 YES NO NO",
                    "balance 2 numeric 12 2 1 0 null 4 YES NO NO",
                    "born 91 date 13 0 1 null null 5 YES NO NO",
                    "seen 93 timestamptz 35 6 1 now() null 6 YES NO NO",
                    "tags 2003 _text 2147483647 0 1 null null 7 YES NO NO",
                    "flag -7 bool 1 0 1 true null 8 YES NO NO",
                    "note 1 bpchar 5 0 1 null null 9 YES NO NO",
                    "raw -2 bytea 2147483647 0 1 null null 10 YES NO NO",
                    "code 1111 uuid 2147483647 0 1 null null 11 YES NO NO"),
                list(meta.getColumns(null, "jdbc_shop", "customer", "%"), wanted), "columns");
            equal(List.of("no -5 int8 19 0 0 null null 1 NO YES NO", "day 91 date 13 0 0 null null 2 NO NO NO", "customer 4 int4 10 0 0 null null 3 NO NO NO",
                    "twice 4 int4 10 0 1 (customer * 2) null 4 YES NO YES"),
                list(meta.getColumns(null, "jdbc_shop", "purchase", "%"), wanted), "columns of purchase");
            equal(List.of("rich id", "rich name"), list(meta.getColumns(null, "jdbc_shop", "rich", null), "TABLE_NAME", "COLUMN_NAME"), "columns of a view");
            equal(List.of("customer note", "line no"),
                list(meta.getColumns(null, "jdbc_shop", null, "no%"), "TABLE_NAME", "COLUMN_NAME").stream().filter(c -> !c.startsWith("purchase")).toList(), "columns of a name");
            equal(true, list(meta.getColumns(null, "pg_catalog", "pg_class", "rel%"), "COLUMN_NAME").contains("relkind"), "system columns");
        } finally {
            cleanUp();
        }
    }

    private static void resultMetadata() throws Exception {
        try (Connection connection = shop()) {
            try (PreparedStatement select = connection.prepareStatement("select id, name as called, balance * 2 as twice from jdbc_shop.customer where id = ?")) {
                ResultSetMetaData meta = select.getMetaData();
                equal(3, meta.getColumnCount(), "columns");
                equal("id", meta.getColumnName(1), "name");
                equal("called", meta.getColumnLabel(2), "label");
                equal("varchar", meta.getColumnTypeName(2), "type");
                equal(40, meta.getPrecision(2), "precision");
                equal("customer", meta.getTableName(1), "table");
                equal(true, meta.isAutoIncrement(1), "auto increment");
                equal(ResultSetMetaData.columnNoNulls, meta.isNullable(2), "nullable");
                equal(Types.NUMERIC, meta.getColumnType(3), "computed");
                equal("java.math.BigDecimal", meta.getColumnClassName(3), "class");
                ParameterMetaData parameters = select.getParameterMetaData();
                equal(1, parameters.getParameterCount(), "parameters");
                equal(Types.INTEGER, parameters.getParameterType(1), "type of the parameter");
            }
        } finally {
            cleanUp();
        }
    }

    // ---- HikariCP and the rest

    private static void pool() throws Exception {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url);
        config.setUsername(user);
        config.setMaximumPoolSize(8);
        config.setMinimumIdle(2);
        config.setConnectionTimeout(10_000);
        config.setTransactionIsolation("TRANSACTION_READ_COMMITTED");
        config.setConnectionInitSql("set application_name = 'pool'");
        config.addDataSourceProperty("reWriteBatchedInserts", "true");
        try (HikariDataSource source = new HikariDataSource(config)) {
            try (Connection connection = source.getConnection()) {
                execute(connection, "drop table if exists jdbc_pool", "create table jdbc_pool(id int primary key, v int)",
                    "insert into jdbc_pool select n, 0 from generate_series(1, 10) n");
            }
            ExecutorService threads = Executors.newFixedThreadPool(16);
            List<Callable<Integer>> tasks = new ArrayList<>();
            for (int task = 0; task < 200; task++) {
                int id = task % 10 + 1;
                tasks.add(() -> {
                    try (Connection connection = source.getConnection()) {
                        connection.setAutoCommit(false);
                        try (PreparedStatement update = connection.prepareStatement("update jdbc_pool set v = v + 1 where id = ?")) {
                            update.setInt(1, id);
                            int changed = update.executeUpdate();
                            connection.commit();
                            return changed;
                        }
                    }
                });
            }
            for (Future<Integer> done : threads.invokeAll(tasks)) {
                equal(1, done.get(), "a change");
            }
            threads.shutdown();
            try (Connection connection = source.getConnection()) {
                equal(200L, number(connection, "select sum(v) from jdbc_pool"), "all changes");
                // A connection goes back with its settings changed and a transaction open, and comes as new.
                connection.setAutoCommit(false);
                connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
                execute(connection, "update jdbc_pool set v = 0");
            }
            try (Connection connection = source.getConnection()) {
                equal(true, connection.getAutoCommit(), "autocommit");
                equal(Connection.TRANSACTION_READ_COMMITTED, connection.getTransactionIsolation(), "isolation");
                equal(200L, number(connection, "select sum(v) from jdbc_pool"), "rolled back");
                execute(connection, "drop table jdbc_pool");
            }
        }
    }

    private static void copy() throws Exception {
        try (Connection connection = connect()) {
            execute(connection, "drop table if exists jdbc_copy", "create table jdbc_copy(id int primary key, v text)");
            CopyManager manager = connection.unwrap(PGConnection.class).getCopyAPI();
            StringBuilder text = new StringBuilder();
            for (int id = 0; id < 5000; id++) {
                text.append(id).append(",\"value, ").append(id).append("\"\n");
            }
            equal(5000L, manager.copyIn("copy jdbc_copy from stdin (format csv)", new StringReader(text.toString())), "copied in");
            java.io.ByteArrayOutputStream out = new java.io.ByteArrayOutputStream();
            equal(5000L, manager.copyOut("copy (select * from jdbc_copy order by id) to stdout (format csv)", out), "copied out");
            equal(text.toString(), out.toString(StandardCharsets.UTF_8), "the text");
            execute(connection, "drop table jdbc_copy");
        }
    }

    private static void updatableResults() throws Exception {
        try (Connection connection = connect()) {
            execute(connection, "drop table if exists jdbc_updatable", "create table jdbc_updatable(id int primary key, v text)",
                "insert into jdbc_updatable values (1, 'a'), (2, 'b'), (3, 'c')");
            try (Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE);
                    ResultSet rows = statement.executeQuery("select id, v from jdbc_updatable order by id")) {
                rows.next();
                rows.updateString("v", "changed");
                rows.updateRow();
                rows.next();
                rows.deleteRow();
                rows.moveToInsertRow();
                rows.updateInt("id", 4);
                rows.updateString("v", "d");
                rows.insertRow();
            }
            try (Statement statement = connection.createStatement()) {
                equal(List.of("1 changed", "3 c", "4 d"), list(statement.executeQuery("select id, v from jdbc_updatable order by id"), "id", "v"), "rows");
            }
            execute(connection, "drop table jdbc_updatable");
        }
    }
}
