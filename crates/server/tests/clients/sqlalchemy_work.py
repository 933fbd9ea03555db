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


for part in (tables, sessions, reflection, errors):
    part()
    print(f"ok {part.__name__}")
Base.metadata.drop_all(ENGINE)
