-- The metrics of poll_tally as text, for the textfile collector of node_exporter or whatever reads Prometheus' format:
--
--     psql -XAtq -v ON_ERROR_STOP=1 -d DATABASE -U poll_watch -f textfile.sql >poll_tally.prom.new && mv poll_tally.prom.new poll_tally.prom
--
-- The metrics have their own names here, so no relabelling is needed. Moving the file into place shows it whole or not at
-- all; run it about as often as Prometheus scrapes.
WITH sample AS (
    SELECT m.metric, m.value,
           (SELECT string_agg(format('%s="%s"', l.name, l.value), ',' ORDER BY l.name)
              FROM (VALUES ('database', replace(replace(replace(m.database, '\', '\\'), '"', '\"'), E'\n', '\n')),
                           ('poll', m.poll), ('outcome', m.outcome), ('kind', m.kind), ('lane', m.lane)) AS l (name, value)
             WHERE l.value <> '') AS labels
      FROM poll_watch.metrics() AS m
), line AS (
    SELECT DISTINCT s.metric, 1 AS ord,
           format(E'# HELP %s See docs/alerts.md of poll_tally.\n# TYPE %s %s', s.metric, s.metric,
                  CASE WHEN s.metric LIKE '%\_total' THEN 'counter' ELSE 'gauge' END) AS text
      FROM sample AS s
    UNION ALL
    SELECT s.metric, 2, format('%s{%s} %s', s.metric, s.labels, s.value) FROM sample AS s
)
SELECT l.text FROM line AS l ORDER BY l.metric, l.ord, l.text;
