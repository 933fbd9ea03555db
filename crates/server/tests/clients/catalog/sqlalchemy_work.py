#!/usr/bin/env python3
"""SQLAlchemy doing real work against a running server: usage: sqlalchemy_work.py URL"""

import datetime as dt
import decimal
import sys
import uuid

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.exc import IntegrityError, ProgrammingError

ENGINE = sa.create_engine(sys.argv[1].replace("postgresql:", "postgresql+psycopg:"))


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "sa_author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(40), unique=True)
    born: orm.Mapped[dt.date | None]
    books: orm.Mapped[list["Book"]] = orm.relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "sa_book"
    __table_args__ = (sa.Index("sa_book_title", "title"), sa.CheckConstraint("pages > 0", name="sa_book_pages"))
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("sa_author.id", ondelete="CASCADE"))
    title: orm.Mapped[str]
    pages: orm.Mapped[int] = orm.mapped_column(server_default="1")
    price: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(9, 2))
    sold: orm.Mapped[dt.datetime | None] = orm.mapped_column(sa.DateTime(timezone=True))
    key: orm.Mapped[uuid.UUID] = orm.mapped_column(default=uuid.uuid4)
    cover: orm.Mapped[bytes | None]
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")


def tables():
    Base.metadata.drop_all(ENGINE)
    Base.metadata.create_all(ENGINE)
    Base.metadata.create_all(ENGINE)
    inspector = sa.inspect(ENGINE)
    assert inspector.has_table("sa_book") and not inspector.has_table("sa_nothing")


def sessions():
    when = dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)
    with orm.Session(ENGINE) as session:
        author = Author(name="Ada", born=dt.date(1815, 12, 10))
        author.books = [
            Book(title=f"Notes {n}", pages=n + 1, price=decimal.Decimal("9.50"), sold=when, cover=b"\x00\xff") for n in range(20)
        ]
        session.add(author)
        session.commit()
        assert author.id == 1 and [b.id for b in author.books] == list(range(1, 21))
    with orm.Session(ENGINE) as session:
        author = session.scalars(sa.select(Author).options(orm.selectinload(Author.books))).one()
        assert len(author.books) == 20 and author.books[3].sold == when and author.books[3].cover == b"\x00\xff"
        statement = sa.select(Author.name, sa.func.count(Book.id), sa.func.sum(Book.price)).join(Book).group_by(Author.name)
        assert session.execute(statement).all() == [("Ada", 20, decimal.Decimal("190.00"))]
        page = sa.select(Book).where(Book.title.like("Notes%")).order_by(Book.pages.desc()).limit(2).offset(1)
        assert [b.pages for b in session.scalars(page)] == [19, 18]
        author.books[0].title = "Changed"
        author.books.pop()
        session.commit()
        assert session.scalar(sa.select(sa.func.count()).select_from(Book)) == 19
        session.add(Author(name="Ada"))
        try:
            session.commit()
            raise AssertionError("a name twice")
        except IntegrityError as error:
            assert error.orig.sqlstate == "23505" and error.orig.diag.constraint_name == "sa_author_name_key"
            session.rollback()
        with session.begin_nested():
            session.add(Author(name="Grace"))
        nested = session.begin_nested()
        session.add(Author(name="Nobody"))
        session.flush()
        nested.rollback()
        session.commit()
        assert session.scalars(sa.select(Author.name).order_by(Author.name)).all() == ["Ada", "Grace"]
        upsert = pg.insert(Author).values(name="Ada", born=None).on_conflict_do_update(
            index_elements=[Author.name], set_={"born": dt.date(1, 1, 1)}
        )
        session.execute(upsert)
        session.commit()
        assert session.scalar(sa.select(Author.born).where(Author.name == "Ada")) == dt.date(1, 1, 1)
        session.delete(session.scalars(sa.select(Author).where(Author.name == "Ada")).one())
        session.commit()
        assert session.scalar(sa.select(sa.func.count()).select_from(Book)) == 0


def reflection():
    inspector = sa.inspect(ENGINE)
    assert {"sa_author", "sa_book"} <= set(inspector.get_table_names())
    assert "public" in inspector.get_schema_names()
    metadata = sa.MetaData()
    book = sa.Table("sa_book", metadata, autoload_with=ENGINE)
    types = {c.name: type(c.type) for c in book.columns}
    assert types["price"] is sa.NUMERIC and types["title"] is sa.VARCHAR and types["cover"] is pg.BYTEA, types
    assert book.c.price.type.precision == 9 and book.c.price.type.scale == 2
    assert book.c.sold.type.timezone and book.c.sold.nullable and not book.c.title.nullable
    assert "nextval" in book.c.id.server_default.arg.text and book.c.pages.server_default.arg.text == "1"
    assert [c.name for c in book.primary_key] == ["id"] and book.primary_key.name == "sa_book_pkey"
    (key,) = book.foreign_key_constraints
    assert key.referred_table.name == "sa_author" and key.ondelete == "CASCADE" and key.name == "sa_book_author_id_fkey"
    assert [i.name for i in book.indexes] == ["sa_book_title"]
    checks = [c for c in book.constraints if isinstance(c, sa.CheckConstraint)]
    assert [(c.name, str(c.sqltext)) for c in checks] == [("sa_book_pages", "pages > 0")], checks
    unique = inspector.get_unique_constraints("sa_author")
    assert [(u["name"], u["column_names"]) for u in unique] == [("sa_author_name_key", ["name"])], unique
    assert inspector.get_sequence_names() == ["sa_author_id_seq", "sa_book_id_seq"]
    assert inspector.get_view_names() == []


SCHEMA = "sa_other"


def every_kind():
    """A schema with a table of every type and constraint, made, read back, made again elsewhere, and read back the same."""
    metadata = sa.MetaData(schema=SCHEMA)
    counter = sa.Sequence("sa_counter", start=100, increment=10, metadata=metadata, schema=SCHEMA)
    sa.Table(
        "sa_kinds",
        metadata,
        sa.Column("a", sa.Integer, sa.Identity(always=True, start=5, increment=5), primary_key=True),
        sa.Column("b", sa.SmallInteger, nullable=False, server_default="7", comment="a small one"),
        sa.Column("c", sa.BigInteger, counter, server_default=counter.next_value()),
        sa.Column("d", sa.Numeric(20, 4)),
        sa.Column("e", sa.Numeric),
        sa.Column("f", sa.REAL),
        sa.Column("g", sa.Double),
        sa.Column("h", sa.String(17)),
        sa.Column("i", sa.String),
        sa.Column("j", sa.Text),
        sa.Column("k", sa.CHAR(3)),
        sa.Column("l", sa.Boolean, server_default=sa.true()),
        sa.Column("m", sa.Date),
        sa.Column("n", sa.Time),
        sa.Column("o", sa.DateTime),
        sa.Column("p", sa.DateTime(timezone=True), server_default=sa.func.now()),
        sa.Column("q", sa.Interval),
        sa.Column("r", sa.LargeBinary),
        sa.Column("s", sa.Uuid),
        sa.Column("t", sa.JSON),
        sa.Column("u", pg.JSONB),
        sa.Column("v", pg.ARRAY(sa.Integer)),
        sa.Column("w", pg.ARRAY(sa.Text)),
        sa.Column("x", sa.Integer, sa.Computed("b * 2", persisted=True)),
        sa.UniqueConstraint("d", "h", name="sa_kinds_d_h"),
        sa.CheckConstraint("b > 0 AND b < 1000", name="sa_kinds_b"),
        sa.Index("sa_kinds_m", sa.text("m DESC"), "n"),
        sa.Index("sa_kinds_part", "s", unique=True, postgresql_where=sa.text("l")),
        sa.Index("sa_kinds_lower", sa.func.lower(sa.text("h"))),
        comment="all there is",
    )
    sa.Table(
        "sa_child",
        metadata,
        sa.Column("x", sa.Integer),
        sa.Column("y", sa.Integer),
        sa.Column("kind", sa.Integer),
        sa.PrimaryKeyConstraint("x", "y", name="sa_child_key"),
        sa.ForeignKeyConstraint(["kind"], [f"{SCHEMA}.sa_kinds.a"], name="sa_child_kind", onupdate="CASCADE", ondelete="SET NULL",
                                deferrable=True, initially="DEFERRED"),
    )
    with ENGINE.begin() as connection:
        connection.execute(sa.schema.DropSchema(SCHEMA, cascade=True, if_exists=True))
        connection.execute(sa.schema.CreateSchema(SCHEMA))
        metadata.create_all(connection)
        connection.execute(sa.text(f"create view {SCHEMA}.sa_few as select a, b from {SCHEMA}.sa_kinds where b < 10"))
    first = reflected()
    copy = sa.MetaData()
    copy.reflect(ENGINE, schema=SCHEMA)
    assert sorted(copy.tables) == [f"{SCHEMA}.sa_child", f"{SCHEMA}.sa_kinds"]
    with ENGINE.begin() as connection:
        connection.execute(sa.text(f"drop view {SCHEMA}.sa_few"))
        copy.drop_all(connection)
        copy.create_all(connection)
        connection.execute(sa.text(f"create view {SCHEMA}.sa_few as select a, b from {SCHEMA}.sa_kinds where b < 10"))
    assert reflected() == first, (first, reflected())
    kinds = copy.tables[f"{SCHEMA}.sa_kinds"]
    with ENGINE.begin() as connection:
        added = connection.execute(kinds.insert().returning(kinds.c.a, kinds.c.c, kinds.c.x), [{"h": f"n{n}"} for n in range(3)])
        assert [(row.a, row.x) for row in added] == [(5, 14), (10, 14), (15, 14)]
        assert connection.scalar(sa.select(sa.func.count()).select_from(kinds)) == 3
    with ENGINE.begin() as connection:
        connection.execute(sa.schema.DropSchema(SCHEMA, cascade=True))


def reflected():
    """What the inspector tells of the schema, in plain values."""
    inspector = sa.inspect(ENGINE)
    table = inspector.get_columns("sa_kinds", schema=SCHEMA)
    types = {c["name"]: str(c["type"].compile(ENGINE.dialect)) for c in table}
    assert types == {
        "a": "INTEGER", "b": "SMALLINT", "c": "BIGINT", "d": "NUMERIC(20, 4)", "e": "NUMERIC", "f": "REAL", "g": "DOUBLE PRECISION",
        "h": "VARCHAR(17)", "i": "VARCHAR", "j": "TEXT", "k": "CHAR(3)", "l": "BOOLEAN", "m": "DATE", "n": "TIME WITHOUT TIME ZONE",
        "o": "TIMESTAMP WITHOUT TIME ZONE", "p": "TIMESTAMP WITH TIME ZONE", "q": "INTERVAL", "r": "BYTEA", "s": "UUID", "t": "JSON",
        "u": "JSONB", "v": "INTEGER[]", "w": "TEXT[]", "x": "INTEGER",
    }, types
    columns = {c["name"]: c for c in table}
    assert columns["a"]["identity"]["always"] and columns["a"]["identity"]["start"] == 5 and columns["a"]["identity"]["increment"] == 5
    assert columns["b"]["default"] == "7" or "7" in columns["b"]["default"], columns["b"]
    assert columns["b"]["comment"] == "a small one" and not columns["b"]["nullable"] and columns["d"]["nullable"]
    assert columns["c"]["default"] == f"nextval('{SCHEMA}.sa_counter'::regclass)", columns["c"]
    assert columns["p"]["default"] == "now()" and columns["l"]["default"] == "true"
    assert columns["x"]["computed"] == {"sqltext": "(b * 2)", "persisted": True}, columns["x"]
    assert inspector.get_table_comment("sa_kinds", schema=SCHEMA) == {"text": "all there is"}
    assert inspector.get_pk_constraint("sa_kinds", schema=SCHEMA)["constrained_columns"] == ["a"]
    child = inspector.get_pk_constraint("sa_child", schema=SCHEMA)
    assert (child["constrained_columns"], child["name"]) == (["x", "y"], "sa_child_key")
    (key,) = inspector.get_foreign_keys("sa_child", schema=SCHEMA)
    assert key == {
        "name": "sa_child_kind", "constrained_columns": ["kind"], "referred_schema": SCHEMA, "referred_table": "sa_kinds",
        "referred_columns": ["a"], "comment": None,
        "options": {"onupdate": "CASCADE", "ondelete": "SET NULL", "deferrable": True, "initially": "DEFERRED"},
    }, key
    unique = inspector.get_unique_constraints("sa_kinds", schema=SCHEMA)
    assert [(u["name"], u["column_names"]) for u in unique] == [("sa_kinds_d_h", ["d", "h"])]
    checks = inspector.get_check_constraints("sa_kinds", schema=SCHEMA)
    assert [(c["name"], c["sqltext"]) for c in checks] == [("sa_kinds_b", "b > 0 AND b < 1000")], checks
    indexes = {i["name"]: i for i in inspector.get_indexes("sa_kinds", schema=SCHEMA)}
    assert sorted(indexes) == ["sa_kinds_d_h", "sa_kinds_lower", "sa_kinds_m", "sa_kinds_part"], indexes
    assert indexes["sa_kinds_m"]["column_names"] == ["m", "n"] and indexes["sa_kinds_m"]["column_sorting"] == {"m": ("desc",)}
    assert indexes["sa_kinds_part"]["unique"] and indexes["sa_kinds_part"]["dialect_options"]["postgresql_where"] == "l"
    assert indexes["sa_kinds_lower"]["column_names"] == [None]
    assert indexes["sa_kinds_d_h"]["duplicates_constraint"] == "sa_kinds_d_h"
    assert inspector.get_view_names(schema=SCHEMA) == ["sa_few"] and "sa_kinds" in inspector.get_view_definition("sa_few", schema=SCHEMA)
    assert inspector.get_sequence_names(schema=SCHEMA) == ["sa_counter", "sa_kinds_a_seq"]
    assert inspector.has_sequence("sa_counter", schema=SCHEMA) and inspector.has_schema(SCHEMA)
    assert inspector.get_materialized_view_names(schema=SCHEMA) == [] and inspector.get_temp_table_names() == []
    assert inspector.get_enums(schema=SCHEMA) == [] and inspector.get_domains(schema=SCHEMA) == []
    assert sorted(inspector.get_table_names(schema=SCHEMA)) == ["sa_child", "sa_kinds"]
    many = inspector.get_multi_columns(schema=SCHEMA)
    assert sorted(name for _, name in many) == ["sa_child", "sa_kinds"] and [c["name"] for c in many[(SCHEMA, "sa_child")]] == ["x", "y", "kind"]
    assert inspector.get_table_oid("sa_kinds", schema=SCHEMA) > 16000
    return {
        name: [
            [{k: str(v) for k, v in c.items()} for c in inspector.get_columns(name, schema=SCHEMA)],
            sorted(map(str, inspector.get_indexes(name, schema=SCHEMA))),
            str(inspector.get_foreign_keys(name, schema=SCHEMA)),
            str(inspector.get_check_constraints(name, schema=SCHEMA)),
        ]
        for name in ("sa_kinds", "sa_child")
    }


def bulk():
    with orm.Session(ENGINE) as session:
        names = session.scalars(
            sa.insert(Author).returning(Author.id, sort_by_parameter_order=True), [{"name": f"bulk {n}"} for n in range(2500)]
        ).all()
        assert len(set(names)) == 2500 and names == sorted(names)
        session.execute(sa.insert(Book), [{"author_id": a, "title": "t", "price": 1, "key": uuid.uuid4()} for a in names[:1000]])
        session.execute(sa.update(Author).where(Author.name.like("bulk 1%")).values(born=dt.date(2000, 1, 1)))
        changed = session.execute(sa.delete(Book).where(Book.author_id.in_(sa.select(Author.id).where(Author.born.is_not(None)))))
        assert changed.rowcount == 111
        streamed = session.execute(sa.select(Author).order_by(Author.id).execution_options(yield_per=100)).scalars()
        assert sum(1 for _ in streamed) >= 2500
        session.rollback()


def errors():
    with ENGINE.connect() as connection:
        try:
            connection.execute(sa.text("select * from sa_nothing"))
            raise AssertionError("no such table")
        except ProgrammingError as error:
            assert error.orig.sqlstate == "42P01"
        connection.rollback()
        isolation = connection.execution_options(isolation_level="REPEATABLE READ").scalar(sa.text("show transaction isolation level"))
        assert isolation == "repeatable read"


for part in (tables, sessions, reflection, every_kind, bulk, errors):
    part()
    print(f"ok {part.__name__}")
Base.metadata.drop_all(ENGINE)
