//! What every database here is opened with: it may be a stranger's, and others may be at work on it.

use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

/// How long a process waits for another that writes to the same database.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Prepares a connection to a file that may be anyone's: it waits for others, trusts no code of the file's own, and
/// looks at each cell before it reads it.
pub(crate) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    // Functions of ours could else be called from a view or an index in a stranger's file.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)
}

/// Tries again where another process is in the way: `SQLite` itself does not wait for the lock under which a database
/// changes its journal.
pub(crate) fn patiently<T>(attempt: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let begun = Instant::now();
    loop {
        match attempt() {
            // Several runs that begin together on one cache meet here.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// The version of the tables; 0 where there are none.
pub(crate) fn format(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Whether the tables of that database are as the schema makes them, with nothing that acts on them. What stands in
/// their place in a file of a stranger (a view without end, a trigger) would be run by our questions.
pub(crate) fn has_tables(connection: &Connection, database: &str, schema: &str) -> rusqlite::Result<bool> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(schema)?;
    Ok(objects(connection, database)? == objects(&ours, "main")?)
}

/// Tables, indexes, views and triggers of a database: what kind, what name, and how it was made.
pub(crate) fn objects(connection: &Connection, database: &str) -> rusqlite::Result<Vec<[String; 3]>> {
    // Indexes that SQLite makes for a primary key have no text.
    let mut find = connection
        .prepare(&format!("SELECT type, name, coalesce(sql, '') FROM {database}.sqlite_master ORDER BY type, name"))?;
    find.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))?.collect()
}
