//! Which tables does TPC-H have? Section 1.4 of its specification, with every primary and foreign key, and an index where a foreign key is no
//! prefix of a primary one (its clause 1.5 allows such). The data of a table as COPY takes it, made by the `tpchgen` crate.

use std::fmt::{Display, Write};
use std::io::Read;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};

pub struct Table {
    pub name: &'static str,
    columns: &'static str,
    /// What is made once the rows are there: what it refers to, and indexes on that.
    after: &'static [&'static str],
    lines: fn(f64) -> Box<dyn Iterator<Item = Line>>,
}

/// A row in the form of dbgen: fields that end with `|`.
struct Line(String);

macro_rules! lines {
    ($generator:ident) => {
        |scale| Box::new($generator::new(scale, 1, 1).iter().map(|row| line(&row)))
    };
}

fn line(row: &impl Display) -> Line {
    let mut text = String::with_capacity(160);
    write!(text, "{row}").expect("a string grows");
    Line(text)
}

/// Those first that others refer to.
pub const TABLES: [Table; 8] = [
    Table {
        name: "region",
        columns: "r_regionkey integer PRIMARY KEY, r_name char(25) NOT NULL, r_comment varchar(152)",
        after: &[],
        lines: lines!(RegionGenerator),
    },
    Table {
        name: "nation",
        columns: "n_nationkey integer PRIMARY KEY, n_name char(25) NOT NULL, n_regionkey integer NOT NULL, n_comment varchar(152)",
        after: &["ALTER TABLE nation ADD FOREIGN KEY (n_regionkey) REFERENCES region"],
        lines: lines!(NationGenerator),
    },
    Table {
        name: "part",
        columns: "p_partkey integer PRIMARY KEY, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL, p_brand char(10) NOT NULL, \
                  p_type varchar(25) NOT NULL, p_size integer NOT NULL, p_container char(10) NOT NULL, \
                  p_retailprice numeric(15,2) NOT NULL, p_comment varchar(23) NOT NULL",
        after: &[],
        lines: lines!(PartGenerator),
    },
    Table {
        name: "supplier",
        columns: "s_suppkey integer PRIMARY KEY, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL, \
                  s_nationkey integer NOT NULL, s_phone char(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL, \
                  s_comment varchar(101) NOT NULL",
        after: &[
            "CREATE INDEX ON supplier (s_nationkey)",
            "ALTER TABLE supplier ADD FOREIGN KEY (s_nationkey) REFERENCES nation",
        ],
        lines: lines!(SupplierGenerator),
    },
    Table {
        name: "partsupp",
        columns: "ps_partkey integer NOT NULL, ps_suppkey integer NOT NULL, ps_availqty integer NOT NULL, \
                  ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey)",
        after: &[
            "CREATE INDEX ON partsupp (ps_suppkey)",
            "ALTER TABLE partsupp ADD FOREIGN KEY (ps_partkey) REFERENCES part",
            "ALTER TABLE partsupp ADD FOREIGN KEY (ps_suppkey) REFERENCES supplier",
        ],
        lines: lines!(PartSuppGenerator),
    },
    Table {
        name: "customer",
        columns: "c_custkey integer PRIMARY KEY, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, \
                  c_nationkey integer NOT NULL, c_phone char(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL, \
                  c_mktsegment char(10) NOT NULL, c_comment varchar(117) NOT NULL",
        after: &[
            "CREATE INDEX ON customer (c_nationkey)",
            "ALTER TABLE customer ADD FOREIGN KEY (c_nationkey) REFERENCES nation",
        ],
        lines: lines!(CustomerGenerator),
    },
    Table {
        name: "orders",
        columns: "o_orderkey integer PRIMARY KEY, o_custkey integer NOT NULL, o_orderstatus char(1) NOT NULL, \
                  o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority char(15) NOT NULL, \
                  o_clerk char(15) NOT NULL, o_shippriority integer NOT NULL, o_comment varchar(79) NOT NULL",
        after: &[
            "CREATE INDEX ON orders (o_custkey)",
            "ALTER TABLE orders ADD FOREIGN KEY (o_custkey) REFERENCES customer",
        ],
        lines: lines!(OrderGenerator),
    },
    Table {
        name: "lineitem",
        columns: "l_orderkey integer NOT NULL, l_partkey integer NOT NULL, l_suppkey integer NOT NULL, \
                  l_linenumber integer NOT NULL, l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, \
                  l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, \
                  l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, \
                  l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, \
                  l_comment varchar(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)",
        after: &[
            "CREATE INDEX ON lineitem (l_partkey, l_suppkey)",
            "CREATE INDEX ON lineitem (l_suppkey)",
            "ALTER TABLE lineitem ADD FOREIGN KEY (l_orderkey) REFERENCES orders",
            "ALTER TABLE lineitem ADD FOREIGN KEY (l_partkey, l_suppkey) REFERENCES partsupp",
        ],
        lines: lines!(LineItemGenerator),
    },
];

impl Table {
    pub fn definition(&self) -> String {
        format!("CREATE TABLE {} ({})", self.name, self.columns)
    }

    pub fn after(&self) -> &'static [&'static str] {
        self.after
    }

    /// The rows in the text form of COPY.
    pub fn rows(&self, scale: f64) -> Rows {
        Rows { lines: (self.lines)(scale), text: Vec::new(), at: 0 }
    }
}

/// Rows as bytes to read: fields with tabs between, a row on each line. The data has neither tabs nor backslashes.
pub struct Rows {
    lines: Box<dyn Iterator<Item = Line>>,
    text: Vec<u8>,
    at: usize,
}

impl Rows {
    /// Appends the next row; false after the last.
    pub fn next_row(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(Line(line)) = self.lines.next() else {
            return false;
        };
        let fields = line.strip_suffix('|').unwrap_or(&line);
        out.extend(fields.bytes().map(|byte| if byte == b'|' { b'\t' } else { byte }));
        out.push(b'\n');
        true
    }
}

impl Read for Rows {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.text.len() {
            self.at = 0;
            self.text.clear();
            let mut text = std::mem::take(&mut self.text);
            while text.len() < out.len() && self.next_row(&mut text) {}
            self.text = text;
        }
        let count = out.len().min(self.text.len() - self.at);
        out[..count].copy_from_slice(&self.text[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_row_by_row_with_tabs() {
        let mut text = String::new();
        TABLES[1].rows(0.01).read_to_string(&mut text).expect("rows are text");
        assert_eq!(text.lines().count(), 25);
        assert!(text.starts_with("0\tALGERIA\t0\t"), "{text}");
        assert!(text.lines().all(|line| line.split('\t').count() == 4));
    }
}
