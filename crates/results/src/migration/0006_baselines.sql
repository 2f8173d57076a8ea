-- Runs that later measurements are held against, by name.
CREATE TABLE baseline (
    name TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE
);
