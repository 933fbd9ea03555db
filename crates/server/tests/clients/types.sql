-- Every type, as psql shows it.
create table every_type(
    id int primary key,
    b boolean, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision,
    d numeric(9,4), n numeric, c char(4), v varchar(8), t text, y bytea,
    da date, ti time, ts timestamp, tz timestamptz, u uuid
);
insert into every_type values
    (1, true, -32768, -2147483648, -9223372036854775808, 1.5, 1e300, 12345.6789, 123456789012345678901234567890.5, 'ab', 'v', 'text', '\x00ff',
     '2000-02-29', '23:59:59.999999', '1999-12-31 23:59:59.5', '2026-11-20 12:00:00+00', '00112233-4455-6677-8899-aabbccddeeff'),
    (2, false, 32767, 2147483647, 9223372036854775807, 'NaN', '-Infinity', -0.0001, 0, '', '', '', '',
     '0001-01-01', '00:00:00', '2000-01-01 00:00:00', '1970-01-01 00:00:00+00', 'ffffffff-ffff-ffff-ffff-ffffffffffff');
insert into every_type(id) values (3);
\x on
select * from every_type order by id;
\x off
select id, b, i2 from every_type where i4 = 2147483647;
select id from every_type where n > 1;
select id from every_type where u = '00112233-4455-6677-8899-aabbccddeeff';
select count(*), count(b), sum(i2), min(da), max(ti), avg(i2) from every_type;
drop table every_type;
