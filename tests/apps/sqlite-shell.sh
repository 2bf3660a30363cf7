# SQLite's shell, with worker threads for sorting and building indexes.
set -euo pipefail
sqlite3 shell.db <<'SQL'
PRAGMA threads = 4;
PRAGMA cache_size = 200;
PRAGMA journal_mode = WAL;
CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, v TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
  INSERT INTO t SELECT i, (i * 7919) % 100003, hex(i * 31) || '-' || i FROM n;
CREATE INDEX by_k ON t (k, v);
SELECT count(*), sum(k), min(v), max(v) FROM t;
SELECT k, count(*), group_concat(id) FROM t GROUP BY k HAVING count(*) > 1 ORDER BY k DESC LIMIT 20;
SELECT v FROM t ORDER BY v LIMIT 5 OFFSET 70000;
DELETE FROM t WHERE k % 3 = 0;
PRAGMA integrity_check;
SELECT count(*), sum(id) FROM t;
SQL
sqlite3 shell.db .dump | sha256sum
