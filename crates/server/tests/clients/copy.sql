\set VERBOSITY default
create table copied(id int primary key, b text, n numeric(8,2), ts timestamp, flag boolean, bytes bytea);
copy copied from stdin;
1	a\tb\\c	1.50	2024-01-02 03:04:05	t	\\x00ff
2	\N	\N	\N	\N	\N
3		0	infinity	f	\\x
\.
copy copied(id, b) from stdin csv header;
id,b
4,"x, ""y""
z"
5,
6,""
\.
copy copied to stdout;
copy copied to stdout (format csv, header, force_quote *);
copy copied(b, id) to stdout with (delimiter '|', null 'nil');
copy (select id, b from copied where id > 3 order by id desc) to stdout with csv;
copy (values (1, '\.')) to stdout csv;
copy (select '\.'::text) to stdout csv;
copy (select 1 where false) to stdout;
-- errors name line and column
copy copied from stdin;
7	x
\.
copy copied from stdin;
7	x	1	2024-01-01	t	\\x
8	x	abc	2024-01-01	t	\\x
\.
copy copied from stdin;
7	x	1	2024-01-01	t	\\x	more
\.
copy copied from stdin csv;
7,y
8,"x
\.
copy copied(id) from stdin;
1
\.
copy copied(b) from stdin;
x
\.
copy copied(id, n) from stdin;
7	1234567.5
\.
select count(*) from copied;
begin;
copy copied(id) from stdin;
20
21
\.
select count(*) from copied;
copy copied(id) from stdin;
x
\.
select 1;
rollback;
select count(*) from copied;
-- what is asked for is checked
copy nothing from stdin;
--\.
copy copied(x) from stdin;
--\.
copy copied(id, id) from stdin;
--\.
copy copied to stdout (format xml);
copy copied to stdout (format csv, format text);
copy copied to stdout (delimiter 'ab');
copy copied to stdout (delimiter 'a');
copy copied to stdout (delimiter E'\n');
copy copied to stdout (quote '"');
copy copied to stdout (format csv, delimiter '"');
copy copied to stdout (format csv, null '"');
copy copied to stdout (format binary, delimiter ',');
copy copied from stdin (format csv, force_quote *);
--\.
copy copied to stdout (format csv, force_null (id));
copy copied to stdout (header maybe);
copy copied to stdout (header match);
copy copied to stdout (nothing);
copy copied to stdout (format csv, force_quote (x));
copy copied from stdin (format csv, header match);
id,x
\.
copy copied(id, b) from stdin (format csv, header match);
id,c
\.
copy copied(id, b) from stdin (format csv, header match, force_not_null (b), null 'n');
id,b
30,n
\.
select id, b from copied where id = 30;
\set VERBOSITY terse
copy copied from '/nothing/here';
copy copied to 'relative';
\set VERBOSITY default
-- binary there and back
\copy (select * from copied order by id) to '/tmp/freshet_clients_copy.bin' binary
truncate copied;
\copy copied from '/tmp/freshet_clients_copy.bin' binary
select * from copied order by id;
\! rm /tmp/freshet_clients_copy.bin
drop table copied;
-- rules of tables
create table copy_ruled(id serial primary key, parent int references copy_ruled, n int check (n > 0), twice int generated always as (n * 2) stored,
    made int generated always as identity);
copy copy_ruled(id, parent, n) from stdin;
1	2	1
2	\N	2
\.
copy copy_ruled(parent, n) from stdin;
2	0
\.
copy copy_ruled(parent, n) from stdin;
77	1
\.
copy copy_ruled(id, twice) from stdin;
--\.
copy copy_ruled from stdin;
10	1	5	100
\.
copy copy_ruled(n) from stdin;
7
\.
copy copy_ruled to stdout;
select id, parent, n, twice, made from copy_ruled order by n;
drop table copy_ruled;
