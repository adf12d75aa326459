//! Common settings of `SQLite` connections: files may be untrusted and shared with other processes.

use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

/// Maximum wait for another process that writes to the same database.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Prepares a connection to an untrusted file: waits for locks, runs no code of the schema, and checks cells before
/// reading.
pub(crate) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    // Otherwise a view or an index in an untrusted file could call our functions.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)
}

/// Retries while the database is locked: `SQLite` itself does not wait for the lock that changes the journal mode.
pub(crate) fn patiently<T>(attempt: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let begun = Instant::now();
    loop {
        match attempt() {
            // Happens when several runs start together on one cache.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// The version of the tables; 0 if there are none.
pub(crate) fn format(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Whether the tables of the database match the schema exactly. Other objects in an untrusted file (an endless view, a
/// trigger) would run during our queries.
pub(crate) fn has_tables(connection: &Connection, database: &str, schema: &str) -> rusqlite::Result<bool> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(schema)?;
    Ok(objects(connection, database)? == objects(&ours, "main")?)
}

/// Tables, indexes, views and triggers of a database: type, name and definition.
pub(crate) fn objects(connection: &Connection, database: &str) -> rusqlite::Result<Vec<[String; 3]>> {
    // Automatic indexes of primary keys have no definition.
    let mut find = connection
        .prepare(&format!("SELECT type, name, coalesce(sql, '') FROM {database}.sqlite_master ORDER BY type, name"))?;
    find.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))?.collect()
}
