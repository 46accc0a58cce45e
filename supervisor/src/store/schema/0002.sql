-- What a person said where an auditor left it to them, as JSON; and what an attempt's agents used.

ALTER TABLE attempts ADD COLUMN answer TEXT;
ALTER TABLE attempts ADD COLUMN time_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN cost_micros BIGINT NOT NULL DEFAULT 0;
