"""Queries in SQL have the rows of DuckDB and of Spark, value by value; what can't be translated has its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.duck import query
from tests.spark.comparison import interpreting
from tests.sql.rows import TABLES, counted, shown
from volley import (
    ConfigError,
    Environment,
    ExpressionError,
    FileSource,
    IcebergSinkConfig,
    IcebergStorage,
    IcebergTable,
    MaterializedView,
    MemorySink,
    MemorySource,
    PlanError,
    TableRef,
)

QUERIES = [
    # Columns and conditions.
    "select * from orders",
    "select id, price * 2 as twice, item as what from orders where price > 10.5 and item <> 'ink'",
    "select o.id, o.* except (id, at) from orders as o where not paid",
    "select 0.1 + 0.2 = 0.3 as is_exact, 1.5 as d, n * 0.5 as half from orders",
    "select id from orders where item = 'O''Neil'",
    "select id from orders where `item` like 'PROMO%' or item is null",
    "select id from orders where day >= '2026-03-01' and day < date '2026-02-01' + interval '3' month",
    "select cast(day - interval '1' month as date) as a, "
    "cast(day + interval '1' year as date) as b, at + interval '90' seconds as c from orders",
    "select id, case when price > 10 then 'much' when price > 5 then 'some' end as how from orders",
    "select id, case item when 'pen' then price else 0 end as pens from orders",
    "select coalesce(item, 'none') as item, nullif(customer, 1) as c, upper(item) || '!' as shout from orders",
    "select cast(price as double) as a, cast(n as bigint) + 1 as b, cast(id as string) as c from orders",
    "select id from orders where customer in (1, 3) and id not in (3, 4)",
    "select id from orders where customer in (1, null)",
    "select id from orders where price between 5 and 20.25",
    "select id from orders where id % 2 = 1 and -id < -2 or id = 0",
    "select extract(month from day) as m, year(day) as y, substring(item from 2 for 2) as s from orders",
    "select id + 1 as next, next * 2 as twice from orders",
    "select id as n, n as m from orders",
    "select id + 1 id2 from orders",
    "select o.item i from orders o where o.item is not null",
    # Groups.
    "select count(*) as n, count(price) as p, sum(price) as s, min(day) as a, max(item) as b from orders",
    "select customer, count(*) as n, sum(n) as s, avg(id) as m from orders group by customer",
    "select customer as c, sum(price) as s from orders group by c having sum(price) > 20 and count(*) > 1",
    "select customer, count(*) as n from orders group by 1 having n > 2",
    "select upper(item) as what, sum(price * (1 - 0.1)) as s from orders where id > 1 group by upper(item)",
    "select sum(price) / count(*) as mean, sum(price) * 2.5 as more from orders",
    "select id % 3 as k, count(distinct item) as d, count(distinct customer) as c from orders group by id % 3",
    "select paid, count(*) filter (where price > 10) as n, sum(price) filter (where id > 5) as s from "
    "orders group by paid",
    "select heat, count(*) as n from orders group by heat",
    "select count(*) as n, sum(x) as s, max(y) as m from nothing",
    "select x, count(*) as n from nothing group by x",
    "select count(*) as n from nothing having count(*) > 0",
    "select customer, item from orders group by customer, item",
    "select sum(case when item like 'PROMO%' then price else 0 end) as promo from orders",
    "select max(id) - min(id) + count(*) as r from orders where paid is true",
    "select distinct customer, paid from orders",
    "select min(distinct n) as m from orders",
    "select customer as c, sum(n) as n from orders group by customer having n > 10 and max(n) > 2",
    # Groups of groups.
    "select n, count(*) as c from (select customer, count(*) as n from orders group by customer) as g group by n",
    "select max(n) as most, count(*) as groups from (select item, sum(n) as n from orders group by item) as g",
    "select count(*) as c from (select customer from orders group by customer having count(*) > 100) as g",
    "select count(*) as c, max(x) as m from (select distinct x from nothing) as g",
    "select a, count(*) as c from (select id as a from orders group by id union all select id from customers) as u "
    "group by a",
    # Joins.
    "select o.id, c.name from orders o join customers c on o.customer = c.id",
    "select o.id, c.id as cid, c.name from orders o left join customers c on c.id = o.customer",
    "select c.name, o.id from orders o right join customers c on c.id = o.customer",
    "select c.*, l.* from lines l right join customers c on c.id = l.order_id",
    "select a.id as i, b.* from customers a left join (select order_id, quantity from lines) b on a.id = b.order_id",
    "select name, part, title from (select c.name, l.*, t.title from lines l, countries t, customers c "
    "where l.order_id = c.id and c.country = t.country)",
    "select * from (select order_id from lines) l, (select country, title from countries) t, "
    "(select id, country as c from customers) c where l.order_id = c.id and c = t.country",
    "select * from (select part, order_id from lines) l right join (select id, name from customers) c on id = order_id",
    "select o.id, name from orders o left join customers c on c.id = o.customer and c.name <> 'Ada'",
    "select o.id, name, title from orders o, customers c, countries l where c.country = l.country and "
    "o.customer = c.id",
    "select * from customers join countries using (country)",
    "select country, name, title from customers left join countries using (country)",
    "select a.id, b.id as other from customers a join customers b on a.country = b.country where a.id < b.id",
    "select o.id, quantity from orders o join lines l on o.id + 0 = l.order_id and quantity > o.id",
    "select name, sum(price) as s from orders o join customers c on o.customer = c.id group by name "
    "having sum(price) > 1",
    "select o.id, t.total from orders o join (select order_id, sum(quantity) as total from lines group by order_id) t "
    "on t.order_id = o.id",
    "select o.id from orders o left semi join lines l on l.order_id = o.id",
    "select o.id from orders o left anti join lines l on l.order_id = o.id",
    "select id from orders where id in (select order_id from lines where part = 'a')",
    "select id from orders o where exists (select 1 from lines where order_id = o.id and quantity > 2) and price > 1",
    "select id from orders o where not exists (select * from lines l where l.order_id = o.id)",
    "select o.id from orders o, customers c where o.customer = c.id and o.id in (select order_id from lines)",
    "select name from customers c where exists (select 1 from orders o, lines l where o.id = l.order_id "
    "and o.customer = c.id and l.part = 'c')",
    # Queries in expressions.
    "select id from orders where id not in (select order_id from lines)",
    "select id from orders where id not in (select order_id from lines where order_id is not null)",
    "select id from orders where customer not in (select order_id from lines where order_id > 2)",
    "select id from orders where customer not in (select x from nothing)",
    "select id, id in (select order_id from lines where order_id > 0) as f from orders",
    "select id from orders where customer in (select id from customers) or price > 20",
    "select id from orders o where o.n not in (select quantity from lines l where l.order_id = o.id)",
    "select id from orders o where o.n in (select quantity from lines l where l.order_id = o.id)",
    "select id from orders where price > (select avg(price) from orders)",
    "select id, (select max(quantity) from lines l where l.order_id = o.id) as most from orders o",
    "select id, (select count(*) + 1 from lines l where l.order_id = o.id) as n from orders o",
    "select id, (select coalesce(sum(quantity), 0) from lines l where l.order_id = o.id and part = 'a') as s "
    "from orders o",
    "select id from orders o where (select count(*) from lines l where l.order_id = o.id) = 0",
    "select id from orders where coalesce((select max(x) from nothing), 7) = 7",
    "select id, (select max(x) from nothing) as m, (select count(*) from nothing) as c from orders",
    "select id from orders where price > (select 0.5 * max(price) + min(n) from orders where n > 0)",
    "select id, case when exists (select 1 from lines l where l.order_id = o.id) then 'y' else 'n' end as f "
    "from orders o",
    "select id from orders where exists (select 1 from nothing) or id = 3",
    "select id from orders where exists (select 1 from lines where quantity > 8) and id < 5",
    "select id from orders where not exists (select 1 from nothing)",
    "select id from customers c where exists (select 1 from lines l where l.quantity > c.country)",
    "select o.id from orders o where exists (select 1 from orders p where p.customer = o.customer and p.id <> o.id)",
    "select o.id from orders o where not exists (select 1 from orders p where p.customer = o.customer and p.n > o.n)",
    "select o.id from orders o where not exists (select 1 from orders p where p.customer = o.customer and o.n >= p.n "
    "and p.id < 6)",
    "select o.id, not exists (select 1 from orders p where p.customer = o.customer and p.price < o.price) as least "
    "from orders o",
    "select customer, sum(price) as s from orders group by customer "
    "having sum(price) > (select avg(price) from orders)",
    "select customer, count(*) as n, (select max(id) from customers) as m from orders group by customer",
    "select name from customers c where id in (select customer from orders where id in (select order_id from lines))",
    "select name from customers c where country = (select min(country) from countries where title <> 'DE') and "
    "id not in (select customer from orders where customer is not null and paid)",
    "select id from orders o where price > (select avg(price) from orders p where p.customer = o.customer and p.id in "
    "(select order_id from lines))",
    # Equalities in each side of an OR; names that are not given; more than 38 digits.
    "select o.id, part from orders o, lines l where (o.id = l.order_id and part = 'a' and price > 1) or "
    "(o.id = l.order_id and part = 'b' and n > 1)",
    "select id from orders where (price > 3 and paid) or (price > 3)",
    "select customer, sum(n), max(id), count(item) from orders group by customer",
    "select k, c from (select customer, count(id) from orders group by customer) as g (k, c)",
    "select sum(price) * sum(price) / sum(price) as s, sum(price) * 1.0001 as d, sum(price) * 0.00012345 > 0.01 as f "
    "from orders",
    # Joins under any condition, and without one.
    "select o.id, c.id as cid from orders o full join customers c on o.customer = c.id",
    "select o.id, c.id as cid from orders o full outer join customers c on o.customer = c.id and o.n > c.country and "
    "o.paid",
    "select o.id, c.id as cid from orders o full join customers c on o.n < 0 and c.name = 'Bob'",
    "select o.id, c.x from orders o full join nothing c on o.id = c.x",
    "select o.id, c.id as cid from orders o left join customers c on o.customer = c.id and o.paid",
    "select o.id, c.id as cid from orders o left join customers c on o.customer > c.id",
    "select o.id, c.id as cid from orders o right join customers c on o.customer > c.id and o.paid",
    "select o.id, c.id as cid from orders o left join customers c on o.customer = c.id and o.id > c.country",
    "select o.id, c.id as cid from orders o left join customers c on c.name = 'nobody'",
    "select o.*, country from (select id, customer from orders) o cross join countries",
    "select o.id, c.id as cid from orders o, customers c",
    "select o.id, c.id as cid from orders o join customers c on o.id < c.id",
    "select o.id from orders o left semi join customers c on o.customer = c.id and o.n > c.country",
    "select o.id from orders o left anti join customers c on o.customer = c.id and o.paid",
    "select o.id from orders o left anti join lines l on l.quantity > o.id and l.part = 'a'",
    # Queries in expressions under any condition.
    "select id from customers c where exists (select 1 from lines l where l.order_id = c.id and quantity < c.country "
    "and quantity > c.id)",
    "select id from customers c where not exists (select 1 from lines l where l.order_id = c.id and quantity > c.id "
    "and quantity < c.country)",
    "select id from orders o where exists (select 1 from orders p where p.customer = o.customer and p.item = 'pen' or "
    "p.item = o.item and p.id <> o.id)",
    "select id from orders o where not exists (select 1 from orders p, lines l where p.id = l.order_id and "
    "p.customer = o.customer and l.quantity > o.n + p.n)",
    "select id from orders o where exists (select 1 from lines l where o.paid)",
    "select id from customers c where (select count(*) as n from lines l where l.quantity > c.id) > 1",
    "select id, (select max(l.part) from lines l where l.quantity > c.id and l.order_id <> c.id) as m from customers c",
    # Sets of rows, and of keys.
    "select customer, paid from orders intersect select id, true as b from customers",
    "select customer, paid from orders except select id, true as b from customers",
    "select id from customers except select customer from orders union all select country from countries",
    "select customer, paid from orders except all select id, true as b from customers",
    "select customer from orders intersect all select order_id from lines",
    "select day, price, item from orders intersect select day, price, item from orders where id > 3",
    "select customer, item, count(*) as n from orders group by rollup(customer, item)",
    "select customer, paid, sum(price) as s, grouping_id(customer, paid) as i from orders "
    "group by cube(customer, paid)",
    "select customer, item, max(customer) as m, grouping(item) as g from orders "
    "group by grouping sets ((customer, item), customer, ())",
    "select customer as c, item, count(*) as n from orders group by customer, rollup(item) having count(*) > 1",
    "select id % 2 as k, count(distinct item) as n from orders group by cube(id % 2)",
    "select count(*) as n from orders group by rollup(customer)",
    # Queries in queries.
    "with big as (select * from orders where price > 5), few as (select id, item from big) select item from few",
    "with t(a, b) as (select id, name from customers) select b, a from t where a > 1",
    "select s.a from (select id as a, price from orders where price > 2) s where s.a < 9",
    "select name from customers union all select title from countries",
    "select id as k from customers where id > 1 union all select country from countries union all "
    "select id from orders",
    "select customer from orders union select id from customers",
]
_IN_DUCKDB = [
    (r"`(\w+)`", r"\1"),
    (r"left (semi|anti) join", r"\1 join"),
    (r"except \(", "exclude ("),
    ("as string", "as varchar"),
    (r"\bat\b", '"at"'),
]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = interpreting(spark)
    for name, table in TABLES.items():
        session.createDataFrame(table).createOrReplaceTempView(name)
    return session


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_has_the_rows_of_duckdb_and_spark(text: str, session: SparkSession) -> None:
    rows = Environment().sql(text, **_named(text)).to_arrow()
    duckdb = text
    for pattern, other in _IN_DUCKDB:
        duckdb = re.sub(pattern, other, duckdb)
    in_duckdb = query(duckdb, **TABLES).to_arrow_table()
    in_spark = session.sql(text).toArrow()
    assert rows.column_names == in_spark.column_names
    assert counted(rows) == counted(in_duckdb.select(rows.column_names))
    assert counted(rows) == counted(in_spark)


def _named(text: str) -> dict[str, pa.Table]:
    return {name: table for name, table in TABLES.items() if re.search(rf"\b(?:from|join|,) ?{name}\b", text)}


IN_ORDER = [
    "select id, customer from orders order by customer, id desc",
    "select id, customer as c from orders order by c desc nulls first, id",
    "select id, n from orders order by n nulls last, 1 desc limit 7",
    "select item, sum(price) as s from orders group by item order by sum(price) desc, 1 limit 3;",
    "select item from orders group by item order by count(*) desc, max(id)",
    "select id from orders o order by price * 2 desc nulls last, o.id limit 5",
    "select distinct customer from orders order by customer desc",
    "select id as k from customers union select country from countries order by k nulls last limit 4",
    "select id, heat from orders order by heat desc, id",
    "select o.id from orders o join (select order_id, quantity from lines order by quantity desc limit 2) l "
    "on l.order_id = o.id order by o.id",
    "select -id as id from orders order by id limit 2",
    "select id from orders order by (select max(x) from nothing), id desc limit 2",
    "with t as (select id, price from orders order by price limit 4) select count(*) as n from t",
]


@pytest.mark.parametrize("text", IN_ORDER)
def test_sorted_rows_have_the_order_of_spark(text: str, session: SparkSession) -> None:
    rows = Environment().sql(text, **_named(text)).to_arrow()
    in_spark = session.sql(text.rstrip(";")).toArrow()
    assert [list(map(shown, row.values())) for row in rows.to_pylist()] == [
        list(map(shown, row.values())) for row in in_spark.to_pylist()
    ]


def test_many_rows_are_sorted() -> None:
    rows = pa.table({"id": pa.array([number * 7919 % 300_007 for number in range(300_007)], pa.int64())})
    ordered = Environment().sql("select id + 1 as n from t order by id desc", t=rows).to_arrow()["n"]
    assert ordered.to_pylist() == list(range(300_007, 0, -1))


def test_sorted_rows_are_not_for_a_job(tmp_path: Path) -> None:
    stream = Environment(checkpoint_dir=tmp_path).sql("select id from c order by id", c=TABLES["customers"])
    with pytest.raises(PlanError, match="a job can't run order by 'id asc'"):
        stream.to_sink(MemorySink("out")).execute("sorted")


# Spark gives false where the value is null, or one of the query's.
IN_THE_LIST = [
    "select id, customer in (select order_id from lines) as f from orders",
    "select id, customer in (select id from customers where id is not null) as f, id in (select x from nothing) as g "
    "from orders",
    "select id, customer not in (select order_id from lines l where l.quantity = o.n) as f from orders o",
]


@pytest.mark.parametrize("text", IN_THE_LIST)
def test_in_a_query_has_the_nulls_of_sql(text: str) -> None:
    rows = Environment().sql(text, **_named(text)).to_arrow()
    assert counted(rows) == counted(query(text, **_named(text)).to_arrow_table())


# DuckDB loses NaN where it hands a filter down to Arrow.
IN_SPARK = [
    "select customer, count(*) as n from orders where id > 99 group by grouping sets ((), customer)",
    "select id from orders where heat = 0.0 or heat > 1",
    "select window.start as s, window.end as e, count(*) as n, sum(price) as p from orders group by "
    "window(at, '10 seconds')",
    "select item, window.end as e, max(id) as m from orders where id <> 4 group by item, window(at, '1 "
    "minute', '30 seconds')",
    "select window.start as s, count(*) as n from orders group by window(at, '1 minute', '1 minute', '10 seconds')",
    "select session_window.start as s, session_window.end as e, count(*) as n from orders "
    "group by session_window(at, '15 seconds')",
    "select window.start as s, count(*) as n from orders group by window(at + interval '5' seconds, '1 "
    "hour') having n > 1",
]


@pytest.mark.parametrize("text", IN_SPARK)
def test_windows_and_nan_have_the_rows_of_spark(text: str, session: SparkSession) -> None:
    rows = Environment().sql(text, orders=TABLES["orders"]).to_arrow()
    assert counted(rows) == counted(session.sql(text).toArrow())


REFUSED = [
    ("select nme from customers", "no column nme in line 1, column 8", "did you mean 'name'"),
    ("select 1 as x\nfrom custmers", "no table custmers in line 2", "did you mean 'customers'"),
    ('select "name" from customers', '"name" is a text in Spark', "`name` for a name"),
    (r"select id from customers where name like '\\d'", "has a backslash", "[0-9]"),
    ("select id from orders o, customers c where o.customer = c.id", "id is a column of several tables", "c.id"),
    ("select id, ID from customers", "no column ID", "'id'"),
    ("select count(*) from customers", "a computed column has no name", "AS total"),
    ("select id as a, name as a from customers", "two columns are named 'a'", "another name"),
    ("select name, count(*) as n from customers", "name is not a column of the groups", "max(name)"),
    ("select sum(count(*)) as n from customers", "an aggregate of an aggregate", "FROM"),
    ("select id from customers where sum(id) > 1", "no function 'sum'", ""),
    ("select id + 1 as x from customers where x > 1", "no column x", ""),
    ("select id from customers order by nme", "no column nme in line 1", "did you mean 'name'"),
    ("select id from customers order by 2", "the list has no position 2", "1 to 1"),
    ("select distinct id from customers order by name", "ORDER BY of DISTINCT", "of the list"),
    (
        "select id from customers union select country from countries order by 0 - id",
        "ORDER BY of UNION",
        "of the list",
    ),
    ("select id from customers order by id limit 2 offset 1", "OFFSET can't be translated", ""),
    ("select c.id from customers c full join countries l using (country)", "FULL JOIN USING", "coalesce(a.id, b.id)"),
    ("select c.id from customers c right join countries l using (country)", "RIGHT JOIN USING", "b.id"),
    ("select c.id from customers c natural join countries l", "METHOD can't be translated", ""),
    ("select id from customers intersect select id, name from customers", "INTERSECT of 1 and 2 columns", "places"),
    (
        "select id, grouping(name) as g from customers group by rollup(id)",
        "grouping takes keys of the groups",
        "grouping(key)",
    ),
    (
        "select 1 as x from lines group by cube(order_id, part, quantity), cube(order_id, part, quantity), cube(part)",
        "128 sets of keys",
        "at most 64",
    ),
    ("select id from customers where id > (select country from countries)", "several rows or columns", "max(x)"),
    (
        "select id from customers where id > (select max(country), 1 as x from countries)",
        "several rows",
        "one aggregate",
    ),
    (
        "select id, (select max(country) + title as m from countries) as m from customers",
        "title is in no",
        "max(title)",
    ),
    (
        "select country as c from customers group by country having count(*) > "
        "(select max(l.order_id) from lines l where l.quantity = country)",
        "names their columns",
        "in FROM",
    ),
    ("select id from customers where id in (select order_id, part from lines)", "IN of a query with 2 columns", ""),
    ("select id from customers c where exists (select 1 from lines l group by part)", "such a query", "EXISTS"),
    (
        "select id from customers c where c.id not in (select order_id from lines l where l.quantity > c.id)",
        "with another condition",
        "on its own tables",
    ),
    (
        "select country from customers group by country having exists (select 1 from lines l where l.quantity > country"
        " and l.order_id < country)",
        "with another condition",
        "on its own tables",
    ),
    ("with recursive r as (select 1 as x from customers) select x from r", "RECURSIVE can't be translated", ""),
    ("select name || id + 1 as x from customers", "|| stands beside +", "parentheses"),
    ("select to_date(name, 'yyyy') as d from customers", "to_date with a format", ""),
    ("select 7 | 2 & 3 as x from customers", "is not an expression", ""),
    ("select count(distinct id, name) as n from customers", "different values", ""),
    ("select window.start as s from customers group by id", "is not a column of the groups", ""),
    ("select count(*) as n from orders group by window(at, '10 parsecs')", "length of a window", "10 seconds"),
    ("select id from customers lateral view explode(id) t as x", "LATERALS can't be translated", "explode"),
    ("select id from customers for version as of 3", "VERSION can't be translated", ""),
    ("delete from customers", "DELETE is no query", "select"),
    ("select id from customers; select 1 from customers", "several statements", ";"),
    ("select id from", "", ""),
    ("select 1_000 as x from customers", "unexpected", ""),
]


@pytest.mark.parametrize(("text", "message", "hint"), REFUSED)
def test_what_can_not_be_translated_is_refused_by_name(text: str, message: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        Environment().sql(text, **TABLES)
    assert message in str(raised.value)
    assert hint in (raised.value.hint or "")


def test_tables_that_are_wrong_or_not_read_are_refused() -> None:
    with pytest.raises(ConfigError, match="does not name customers, lines"):
        Environment().sql("select x from nothing", **{name: TABLES[name] for name in ("nothing", "lines", "customers")})
    with pytest.raises(ConfigError, match="table 'x' is of type int"):
        Environment().sql("select a from x", x=3)
    other = Environment(checkpoint_dir="/tmp/elsewhere").from_source(MemorySource([{"a": 1}]))
    with pytest.raises(ConfigError, match="another environment"):
        Environment().sql("select a from x", x=other)


def test_types_that_do_not_fit_are_refused_before_anything_runs() -> None:
    with pytest.raises(ExpressionError):
        Environment().sql("select name + 1 as x from customers", customers=TABLES["customers"])
    with pytest.raises(PlanError, match="different columns"):
        Environment().sql("select id from c union all select name from c", c=TABLES["customers"])


def test_a_stream_of_files_is_joined_and_grouped_by_windows_in_a_job(tmp_path: Path, spark: SparkSession) -> None:
    """Rows of a job are those of a batch query over the same files."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("id,customer,at\n1,1,2026-01-01T00:00:01Z\n2,2,2026-01-01T00:00:05Z\n")
    (folder / "2.csv").write_text(
        "id,customer,at\n3,1,2026-01-01T00:00:07Z\n4,7,2026-01-01T00:00:08Z\n5,1,2026-01-01T00:00:31Z\n"
    )
    environment = Environment(spark=spark, checkpoint_dir=tmp_path / "checkpoints")
    orders = FileSource(folder, "csv", "id long, customer long, at timestamp", bounded=True)
    text = """
        select name, window.end as until, count(*) as n, sum(id) as ids
        from orders o join (select id as cid, name from customers where id < 4) c on o.customer = c.cid
        where o.id > 0
        group by name, window(at, '10 seconds')
    """
    sink = MemorySink("out")
    stream = environment.sql(text, orders=environment.from_source(orders), customers=TABLES["customers"])
    stream.to_sink(sink).execute("per_customer")
    rows = sorted((row["name"], row["until"].second, row["n"], row["ids"]) for row in sink.rows())
    assert rows == [("Ada", 10, 2, 4), ("Ada", 40, 1, 5), ("Bob", 10, 1, 2)]


def test_a_view_of_a_query_follows_changes(tmp_path: Path) -> None:
    storage = IcebergStorage.Local(str(tmp_path))
    refs = {name: TableRef("shop", name, storage) for name in ("orders", "customers")}
    catalog = refs["orders"].load_catalog()
    catalog.create_namespace("shop")
    tables = {name: catalog.create_table(f"shop.{name}", TABLES[name].schema) for name in refs}
    for name, table in tables.items():
        table.append(TABLES[name])
    text = """
        select name, count(*) as n, sum(price) as total from orders o, customers c
        where o.customer = c.id and price > 1.5 group by name having count(*) > 1
    """
    sources: dict[str, Any] = {name: IcebergTable(ref) for name, ref in refs.items()}
    stream = Environment().sql(text, **sources)
    view = MaterializedView("totals", stream, into=IcebergSinkConfig.from_table(refs["orders"].beside("totals")))
    view.refresh()
    tables["orders"].delete("id = 3")
    tables["customers"].append(TABLES["customers"].slice(2, 1))
    view.refresh("incremental")
    now = {name: table.refresh().scan().to_arrow() for name, table in tables.items()}
    rows = Environment().from_source(view.to_source()).to_arrow()
    assert rows.num_rows > 0
    assert counted(rows) == counted(query(text, **now).to_arrow_table())
