-- The attempts at tasks, who holds them, and what happened.

-- One row. Numbers are taken from it inside the transaction that uses them: none is given out twice, none is
-- skipped, and a smaller one is never committed after a larger one.
CREATE TABLE charge (
    one SMALLINT NOT NULL PRIMARY KEY CHECK (one = 1),
    mode TEXT NOT NULL,
    last_term BIGINT NOT NULL,
    last_event BIGINT NOT NULL
);

INSERT INTO charge (one, mode, last_term, last_event) VALUES (1, 'running', 0, 0);

CREATE TABLE owners (
    term BIGINT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    pid BIGINT NOT NULL,
    left_at BIGINT
);

CREATE TABLE attempts (
    protocol TEXT NOT NULL,
    task TEXT NOT NULL,
    epoch BIGINT NOT NULL CHECK (epoch > 0),
    title TEXT NOT NULL,
    agent TEXT NOT NULL,
    phase TEXT NOT NULL,
    -- The phase with all that is certain, as JSON.
    facts TEXT NOT NULL,
    cancel BOOLEAN NOT NULL,
    -- The number of its first event: what is older, whatever the clocks say.
    began BIGINT NOT NULL,
    claimed_at BIGINT NOT NULL,
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (protocol, task, epoch)
);

-- An attempt that is not over has one, and a task has one at most.
CREATE TABLE leases (
    protocol TEXT NOT NULL,
    task TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    term BIGINT NOT NULL REFERENCES owners (term),
    until BIGINT NOT NULL,
    PRIMARY KEY (protocol, task),
    FOREIGN KEY (protocol, task, epoch) REFERENCES attempts (protocol, task, epoch)
);

CREATE INDEX leases_of_a_term ON leases (term);

CREATE TABLE events (
    number BIGINT NOT NULL PRIMARY KEY,
    protocol TEXT NOT NULL,
    task TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    term BIGINT NOT NULL,
    at BIGINT NOT NULL,
    what TEXT NOT NULL,
    detail TEXT NOT NULL,
    FOREIGN KEY (protocol, task, epoch) REFERENCES attempts (protocol, task, epoch) ON DELETE CASCADE
);

CREATE INDEX events_of_an_attempt ON events (protocol, task, epoch);

-- Kept apart from the attempts, so that it is still known when those are forgotten.
CREATE TABLE failures (
    protocol TEXT NOT NULL,
    task TEXT NOT NULL,
    counted BIGINT NOT NULL,
    -- Attempts up to this epoch do not count.
    forgiven BIGINT NOT NULL,
    PRIMARY KEY (protocol, task)
);
