//! How do rows come from a reader and go to a writer? COPY in a program: the bytes that psql's `\copy` would send and get.

use crate::Session;
use freshet_sql::{CopyDirection, CopyShape, Outcome, SqlError, Step};
use std::io::{ErrorKind, Read, Write};

/// What is read in one go.
const PIECE_BYTES: usize = 256 << 10;

impl Session {
    /// Runs a `COPY ... FROM STDIN` with what the reader gives, and waits until the rows are durable; all of them come in or none. Gives their
    /// number.
    ///
    /// ```
    /// # use freshet_db::{Database, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Database::open(Options::small(dir.path()))?;
    /// let mut session = db.session()?;
    /// session.run("CREATE TABLE call (id int PRIMARY KEY, note text)")?;
    /// let csv = "id,note\n1,\"late, but heard\"\n2,\n";
    /// assert_eq!(session.copy_in("COPY call FROM STDIN (FORMAT csv, HEADER)", csv.as_bytes())?, 2);
    ///
    /// let mut out = Vec::new();
    /// session.copy_out("COPY (SELECT * FROM call ORDER BY id) TO STDOUT", &mut out)?;
    /// assert_eq!(out, b"1\tlate, but heard\n2\t\\N\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copy_in(&mut self, copy: &str, mut reader: impl Read) -> Result<u64, SqlError> {
        self.begin_copy(copy, CopyDirection::In)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                // A signal came: it wants to be asked again.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.inner().copy_fail(&error.to_string())),
            };
            let mut wait = self.inner().copy_data(&piece[..count]).map_err(|error| self.told(error))?;
            while let Some(mut waiting) = wait {
                waiting.block(None);
                wait = self.inner().copy_ready().map_err(|error| self.told(error))?;
            }
        }
        let step = self.inner().copy_done();
        let outcome = self.follow(step, None)?;
        self.settle(&outcome)?;
        Ok(outcome.tag.rows.unwrap_or(0))
    }

    /// Runs a `COPY ... TO STDOUT` into the writer. Gives the number of rows.
    pub fn copy_out(&mut self, copy: &str, mut writer: impl Write) -> Result<u64, SqlError> {
        self.begin_copy(copy, CopyDirection::Out)?;
        let outcome = self.drain(&mut writer)?;
        self.settle(&outcome)?;
        Ok(outcome.tag.rows.unwrap_or(0))
    }

    fn begin_copy(&mut self, copy: &str, direction: CopyDirection) -> Result<(), SqlError> {
        let statement = self.prepare(copy)?;
        self.inner().set_waits_inline(true);
        let outcome = self.run_to_copy(&statement)?;
        self.settle(&outcome)?;
        match self.inner().copying() {
            Some(CopyShape { direction: found, .. }) if found == direction => Ok(()),
            _ => {
                let wanted = if direction == CopyDirection::In { "COPY ... FROM STDIN" } else { "COPY ... TO STDOUT" };
                let error = SqlError::new("42601", format!("this is no {wanted}"));
                Err(self.inner().cancel(error))
            }
        }
    }

    fn drain(&mut self, writer: &mut dyn Write) -> Result<Outcome, SqlError> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let (inner, rows) = self.inner_and_rows();
            let piece = inner.copy_out(rows, &mut bytes).map_err(|error| self.told(error))?;
            if let Some(mut wait) = piece.wait {
                wait.block(None);
            }
            if let Some(cts) = piece.durable {
                self.inner().engine().wait_durable(cts).wait()?;
            }
            if let Err(error) = writer.write_all(&bytes) {
                let error = SqlError::new("58030", format!("could not write what is copied: {error}"));
                return Err(self.inner().cancel(error));
            }
            if let Some(outcome) = piece.outcome {
                return Ok(outcome);
            }
        }
    }

    /// A statement that was run copies from or to a client, and there is none.
    pub(crate) fn refuse_copy(&mut self) -> SqlError {
        let error = SqlError::new("0A000", "COPY with STDIN or STDOUT is not supported by execute")
            .with_hint("Use Session::copy_in and Session::copy_out.");
        self.inner().cancel(error)
    }

    fn run_to_copy(&mut self, statement: &crate::Statement) -> Result<Outcome, SqlError> {
        let (inner, rows) = self.inner_and_rows_mut();
        let step: Result<Step, SqlError> = inner.execute(&statement.prepared, &[], rows);
        self.follow(step, None)
    }
}
