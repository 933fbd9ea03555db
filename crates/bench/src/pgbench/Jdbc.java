// A program in Java as they are: pgjdbc with its defaults, prepared statements, a connection a thread.
// usage: java -cp DRIVER Jdbc.java URL USER KIND CLIENTS TOGETHER ACCOUNTS SECONDS
// Says how many statements were answered in that time, after a warm-up, and how many in all.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;

public class Jdbc {
    /// Before that the compiler, which shares the cores with all that is measured, is not done.
    static final long WARM_UP_MS = 8000;
    static final LongAdder answered = new LongAdder();
    static volatile boolean stopped = false;

    public static void main(String[] words) throws Exception {
        String url = words[0], user = words[1], kind = words[2];
        int clients = Integer.parseInt(words[3]), together = Integer.parseInt(words[4]);
        int accounts = Integer.parseInt(words[5]);
        long measuredMs = Long.parseLong(words[6]) * 1000;
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int client = 0; client < clients; client++) {
            Thread thread = new Thread(() -> {
                try (Connection connection = DriverManager.getConnection(url, user, "")) {
                    if (kind.equals("select")) {
                        search(connection, accounts, together);
                    } else {
                        update(connection, accounts, together);
                    }
                } catch (Throwable error) {
                    failure.compareAndSet(null, error);
                }
            });
            threads.add(thread);
            thread.start();
        }
        Thread.sleep(WARM_UP_MS);
        long before = answered.sum(), began = System.nanoTime();
        Thread.sleep(measuredMs);
        long counted = answered.sum() - before;
        double seconds = (System.nanoTime() - began) / 1e9;
        stopped = true;
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            failure.get().printStackTrace();
            System.exit(1);
        }
        System.out.printf(java.util.Locale.ROOT, "%d %.6f %d%n", counted, seconds, answered.sum());
    }

    static int someAccount(int accounts) {
        return ThreadLocalRandom.current().nextInt(accounts) + 1;
    }

    /// executeBatch is for changes. What the driver has for queries is several of them in one statement: it sends them together, each with its own
    /// Bind and Execute, and gives a result for each.
    static void search(Connection connection, int accounts, int together) throws SQLException {
        String query = "SELECT abalance FROM pgbench_accounts WHERE aid = ?";
        String queries = String.join(";", Collections.nCopies(together, query));
        try (PreparedStatement statement = connection.prepareStatement(queries)) {
            while (!stopped) {
                for (int at = 1; at <= together; at++) {
                    statement.setInt(at, someAccount(accounts));
                }
                int given = 0;
                for (boolean isThere = statement.execute(); isThere; isThere = statement.getMoreResults()) {
                    try (ResultSet rows = statement.getResultSet()) {
                        if (!rows.next()) {
                            throw new SQLException("an account is not there");
                        }
                        rows.getInt(1);
                    }
                    given++;
                }
                if (given != together) {
                    throw new SQLException(given + " queries were answered");
                }
                answered.add(together);
            }
        }
    }

    static void update(Connection connection, int accounts, int together) throws SQLException {
        try (PreparedStatement statement =
                connection.prepareStatement("UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = ?")) {
            int[] keys = new int[together];
            while (!stopped) {
                for (int at = 0; at < together; at++) {
                    keys[at] = someAccount(accounts);
                }
                // In one order, so that two batches do not wait for each other.
                Arrays.sort(keys);
                if (together == 1) {
                    statement.setInt(1, keys[0]);
                    expectOne(statement.executeUpdate());
                } else {
                    for (int key : keys) {
                        statement.setInt(1, key);
                        statement.addBatch();
                    }
                    for (int changed : statement.executeBatch()) {
                        expectOne(changed);
                    }
                }
                answered.add(together);
            }
        }
    }

    static void expectOne(int changed) throws SQLException {
        if (changed != 1) {
            throw new SQLException(changed + " accounts were changed");
        }
    }
}
