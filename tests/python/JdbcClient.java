// A client of Flight SQL by Arrow's driver for JDBC, as database tools are. Each line of its standard input is a
// question, whose answer it prints: a line for each row, and a dot.
//
//   java -cp DRIVER JdbcClient.java URL TOKEN
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;

class JdbcClient {
  public static void main(String[] arguments) throws Exception {
    Properties how = new Properties();
    how.setProperty("useEncryption", "false");
    how.setProperty("token", arguments[1]);
    try (Connection connection = DriverManager.getConnection(arguments[0], how);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in))) {
      for (String line; (line = questions.readLine()) != null; ) {
        try {
          String[] words = line.split(" ", 2);
          answer(connection, words[0], words.length > 1 ? words[1] : null);
        } catch (SQLException error) {
          System.out.println("error: " + error.getMessage().replace('\n', ' '));
        }
        System.out.println(".");
      }
    } catch (SQLException error) {
      System.out.println("no connection: " + error.getMessage().replace('\n', ' '));
    }
  }

  static void answer(Connection connection, String question, String about) throws SQLException {
    DatabaseMetaData known = connection.getMetaData();
    switch (question) {
      case "query":
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(about)) {
          print(rows);
        }
        break;
      case "prepared": // twice, as tools do that page through a table
        try (PreparedStatement statement = connection.prepareStatement(about)) {
          for (int i = 0; i < 2; ++i)
            try (ResultSet rows = statement.executeQuery()) {
              print(rows);
            }
        }
        break;
      case "server":
        System.out.println(known.getDatabaseProductName() + "|" + known.isReadOnly() + "|"
            + known.getIdentifierQuoteString() + "|" + known.supportsTransactions());
        break;
      case "unknown": // what the driver cannot tell of the server
        for (Method each : DatabaseMetaData.class.getMethods())
          if (each.getParameterCount() == 0 && each.getReturnType() != ResultSet.class) tell(known, each);
        break;
      case "catalogs":
        print(known.getCatalogs());
        break;
      case "schemas":
        print(known.getSchemas());
        break;
      case "types":
        print(known.getTableTypes());
        break;
      case "tables":
        print(known.getTables(null, null, about, null), "TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE");
        break;
      case "columns":
        print(known.getColumns(null, null, about, null), "TABLE_NAME", "COLUMN_NAME", "ORDINAL_POSITION");
        break;
      case "keys":
        print(known.getPrimaryKeys(null, null, about));
        print(known.getImportedKeys(null, null, about));
        print(known.getExportedKeys(null, null, about));
        break;
      default:
        throw new IllegalArgumentException(question);
    }
  }

  static void tell(DatabaseMetaData known, Method question) throws SQLException {
    try {
      question.invoke(known);
    } catch (ReflectiveOperationException error) {
      System.out.println(question.getName() + "|" + error.getCause());
    }
  }

  static void print(ResultSet rows, String... columns) throws SQLException {
    int count = columns.length == 0 ? rows.getMetaData().getColumnCount() : columns.length;
    while (rows.next()) {
      StringBuilder line = new StringBuilder();
      for (int i = 0; i < count; ++i) {
        if (i > 0) line.append('|');
        line.append(columns.length == 0 ? rows.getObject(i + 1) : rows.getObject(columns[i]));
      }
      System.out.println(line);
    }
  }
}
