//! How are nodes written? As PostgreSQL lays them out: text with arrows, or JSON, XML or YAML with its names.

use super::{Actual, Format, Node, Options, Property, Times, Told};
use crate::value::write_json_string;
use std::fmt::Write;

/// The lines of an answer; what is not text is one value.
pub fn lines(node: &Node, road: &str, options: &Options, times: Times) -> Vec<String> {
    match options.format {
        Format::Text => {}
        Format::Json => return vec![json(node, road, options, times)],
        Format::Xml => return vec![xml(node, road, options, times)],
        Format::Yaml => return vec![yaml(node, road, options, times)],
    }
    let mut out = Vec::new();
    text(node, 0, options, &mut out);
    out.push(format!("Road: {road}"));
    if options.summary {
        out.push(format!("Planning Time: {:.3} ms", times.planning_ms));
        if options.analyze {
            out.push(format!("Execution Time: {:.3} ms", times.execution_ms));
        }
    }
    out
}

/// `indent` in steps of two blanks.
fn text(node: &Node, indent: usize, options: &Options, out: &mut Vec<String>) {
    let mut indent = indent;
    if let Some(subplan) = &node.subplan {
        out.push(format!("{}{subplan}", "  ".repeat(indent)));
        indent += 1;
    }
    let arrow = if indent == 0 { String::new() } else { format!("{}->  ", "  ".repeat(indent)) };
    let title = node.title.as_ref().unwrap_or(&node.kind);
    out.push(format!("{arrow}{title}{}{}", node.about, figures(node, options)));
    indent += if indent == 0 { 1 } else { 3 };
    for property in node.properties.iter().filter(|property| !property.is_about) {
        let value = match &property.value {
            Told::Text(text) => text.clone(),
            Told::List(list) => list.join(", "),
            Told::Count(count) => count.to_string(),
        };
        out.push(format!("{}{}: {value}", "  ".repeat(indent), property.name));
    }
    node.children.iter().for_each(|child| text(child, indent, options, out));
}

fn figures(node: &Node, options: &Options) -> String {
    let mut out = String::new();
    let estimate = node.estimate;
    if options.costs {
        let (rows, width) = (estimate.rows.max(0.0).round(), estimate.width.round());
        let _ = write!(out, "  (cost={:.2}..{:.2} rows={rows} width={width})", estimate.startup, estimate.total);
    }
    if let Some(Actual { startup_ms, total_ms, rows, loops }) = node.actual {
        let _ = match (loops, options.timing) {
            (0, _) => write!(out, " (never executed)"),
            (_, true) => {
                write!(out, " (actual time={startup_ms:.3}..{total_ms:.3} rows={rows:.0} loops={loops})")
            }
            (_, false) => write!(out, " (actual rows={rows:.0} loops={loops})"),
        };
    }
    out
}

fn json(node: &Node, road: &str, options: &Options, times: Times) -> String {
    let mut out = String::from("[\n  {\n    \"Plan\": ");
    json_node(node, None, 2, options, &mut out);
    for (name, value) in members_of_all(road, options, times) {
        let value = if name == "Triggers" { "[\n    ]".to_owned() } else { value.as_json() };
        let _ = write!(out, ",\n    {}: {value}", quoted(name));
    }
    out.push_str("\n  }\n]");
    out
}

/// How a child stands to its parent.
fn relationship(parent: &Node, place: usize, child: &Node) -> &'static str {
    match parent.kind.as_str() {
        _ if child.subplan.is_some() => "InitPlan",
        "Subquery Scan" => "Subquery",
        "Append" => "Member",
        _ => {
            let before = parent.children[..place].iter().filter(|other| other.subplan.is_none()).count();
            if before == 0 { "Outer" } else { "Inner" }
        }
    }
}

/// A member's value where it has a name of its own.
enum Shown {
    Text(String),
    /// A number or a truth.
    Plain(String),
    List(Vec<String>),
}

impl Shown {
    fn as_json(&self) -> String {
        match self {
            Shown::Text(text) => quoted(text),
            Shown::Plain(text) => text.clone(),
            Shown::List(list) => format!("[{}]", list.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// What is told of a node, under the names that it has in every format but text.
fn members(node: &Node, relationship_to: Option<&'static str>, options: &Options) -> Vec<(&'static str, Shown)> {
    let told = |property: &Property| {
        let value = match &property.value {
            Told::Text(text) => Shown::Text(text.clone()),
            Told::List(list) => Shown::List(list.clone()),
            Told::Count(count) => Shown::Plain(count.to_string()),
        };
        (property.name, value)
    };
    let mut members = vec![("Node Type", Shown::Text(node.kind.clone()))];
    members.extend(relationship_to.map(|relationship| ("Parent Relationship", Shown::Text(relationship.to_owned()))));
    members.extend(node.subplan.iter().map(|name| ("Subplan Name", Shown::Text(name.clone()))));
    members.extend(["Parallel Aware", "Async Capable"].map(|name| (name, Shown::Plain("false".to_owned()))));
    members.extend(node.properties.iter().filter(|property| property.is_about).map(told));
    if options.costs {
        let estimate = node.estimate;
        members.push(("Startup Cost", Shown::Plain(format!("{:.2}", estimate.startup))));
        members.push(("Total Cost", Shown::Plain(format!("{:.2}", estimate.total))));
        members.push(("Plan Rows", Shown::Plain(format!("{}", estimate.rows.max(0.0).round()))));
        members.push(("Plan Width", Shown::Plain(format!("{}", estimate.width.round()))));
    }
    if let Some(actual) = node.actual {
        if options.timing {
            members.push(("Actual Startup Time", Shown::Plain(format!("{:.3}", actual.startup_ms))));
            members.push(("Actual Total Time", Shown::Plain(format!("{:.3}", actual.total_ms))));
        }
        members.push(("Actual Rows", Shown::Plain(format!("{:.0}", actual.rows))));
        members.push(("Actual Loops", Shown::Plain(actual.loops.to_string())));
    }
    members.extend(node.properties.iter().filter(|property| !property.is_about).map(told));
    members
}

/// What is told of the whole.
fn members_of_all(road: &str, options: &Options, times: Times) -> Vec<(&'static str, Shown)> {
    let mut members = vec![("Road", Shown::Text(road.to_owned()))];
    if options.summary {
        members.push(("Planning Time", Shown::Plain(format!("{:.3}", times.planning_ms))));
    }
    if options.analyze {
        members.push(("Triggers", Shown::List(Vec::new())));
    }
    if options.summary && options.analyze {
        members.push(("Execution Time", Shown::Plain(format!("{:.3}", times.execution_ms))));
    }
    members
}

fn json_node(node: &Node, relationship_to: Option<&'static str>, depth: usize, options: &Options, out: &mut String) {
    let indent = "  ".repeat(depth + 1);
    out.push('{');
    for (i, (name, value)) in members(node, relationship_to, options).iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(out, "{comma}\n{indent}  {}: {}", quoted(name), value.as_json());
    }
    if !node.children.is_empty() {
        let _ = write!(out, ",\n{indent}  \"Plans\": [");
        for (i, child) in node.children.iter().enumerate() {
            let _ = write!(out, "{}\n{indent}    ", if i == 0 { "" } else { "," });
            json_node(child, Some(relationship(node, i, child)), depth + 2, options, out);
        }
        let _ = write!(out, "\n{indent}  ]");
    }
    let _ = write!(out, "\n{indent}}}");
}

// ---- XML

fn xml(node: &Node, road: &str, options: &Options, times: Times) -> String {
    let mut out = String::from("<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n  <Query>\n");
    xml_node(node, None, 2, options, &mut out);
    for (name, value) in members_of_all(road, options, times) {
        xml_member(name, &value, 2, &mut out);
    }
    out.push_str("  </Query>\n</explain>");
    out
}

fn xml_node(node: &Node, relationship_to: Option<&'static str>, depth: usize, options: &Options, out: &mut String) {
    let indent = "  ".repeat(depth);
    let _ = writeln!(out, "{indent}<Plan>");
    for (name, value) in members(node, relationship_to, options) {
        xml_member(name, &value, depth + 1, out);
    }
    if !node.children.is_empty() {
        let _ = writeln!(out, "{indent}  <Plans>");
        for (i, child) in node.children.iter().enumerate() {
            xml_node(child, Some(relationship(node, i, child)), depth + 2, options, out);
        }
        let _ = writeln!(out, "{indent}  </Plans>");
    }
    let _ = writeln!(out, "{indent}</Plan>");
}

fn xml_member(name: &str, value: &Shown, depth: usize, out: &mut String) {
    let (indent, tag) = ("  ".repeat(depth), name.replace(' ', "-"));
    let _ = match value {
        Shown::Text(text) => writeln!(out, "{indent}<{tag}>{}</{tag}>", escaped(text)),
        Shown::Plain(text) => writeln!(out, "{indent}<{tag}>{text}</{tag}>"),
        Shown::List(list) => {
            let items: String = list.iter().map(|item| format!("{indent}  <Item>{}</Item>\n", escaped(item))).collect();
            writeln!(out, "{indent}<{tag}>\n{items}{indent}</{tag}>")
        }
    };
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\r', "&#x0d;")
}

// ---- YAML

fn yaml(node: &Node, road: &str, options: &Options, times: Times) -> String {
    let mut out = String::from("- Plan: ");
    yaml_node(node, None, 2, options, &mut out);
    for (name, value) in members_of_all(road, options, times) {
        yaml_member(name, &value, 1, &mut out);
    }
    out
}

fn yaml_node(node: &Node, relationship_to: Option<&'static str>, depth: usize, options: &Options, out: &mut String) {
    let own = members(node, relationship_to, options);
    for (i, (name, value)) in own.iter().enumerate() {
        // The first member of one of several stands behind its dash.
        match i == 0 && relationship_to.is_some() {
            true => {
                let _ = write!(out, "{name}: {}", value.as_json());
            }
            false => yaml_member(name, value, depth, out),
        }
    }
    if node.children.is_empty() {
        return;
    }
    let indent = "  ".repeat(depth);
    let _ = write!(out, "\n{indent}Plans: ");
    for (i, child) in node.children.iter().enumerate() {
        let _ = write!(out, "\n{indent}  - ");
        yaml_node(child, Some(relationship(node, i, child)), depth + 2, options, out);
    }
}

fn yaml_member(name: &str, value: &Shown, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let _ = write!(out, "\n{indent}{name}: ");
    match value {
        Shown::List(list) => list.iter().for_each(|item| {
            let _ = write!(out, "\n{indent}  - {}", quoted(item));
        }),
        one => out.push_str(&one.as_json()),
    }
}

fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    write_json_string(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Estimate;
    use super::*;

    const OPTIONS: Options =
        Options { analyze: false, verbose: false, costs: true, timing: false, summary: false, format: Format::Text };

    fn plan() -> Node {
        let estimate = Estimate { startup: 0.0, total: 22.7, rows: 1270.4, width: 36.0 };
        let scan = Node::new("Seq Scan", estimate).on("t", "u").with("Filter", "(\"a\" > 1)");
        Node::new("Sort", estimate).listing("Sort Key", vec!["a".to_owned()]).over(vec![scan])
    }

    #[test]
    fn text_is_laid_out_as_postgresql_does() {
        let expected = [
            "Sort  (cost=0.00..22.70 rows=1270 width=36)",
            "  Sort Key: a",
            "  ->  Seq Scan on t u  (cost=0.00..22.70 rows=1270 width=36)",
            "        Filter: (\"a\" > 1)",
            "Road: compiled",
        ];
        assert_eq!(lines(&plan(), "compiled", &OPTIONS, Times::default()), expected);
        let mut run = plan();
        run.actual = Some(Actual { startup_ms: 0.5, total_ms: 1.25, rows: 3.0, loops: 1 });
        let options = Options { costs: false, analyze: true, timing: true, summary: true, ..OPTIONS };
        let told = lines(&run, "compiled", &options, Times { planning_ms: 1.0, execution_ms: 2.0 });
        assert_eq!(told[0], "Sort (actual time=0.500..1.250 rows=3 loops=1)");
        assert_eq!(told[5], "Planning Time: 1.000 ms");
        assert_eq!(told[6], "Execution Time: 2.000 ms");
    }

    #[test]
    fn a_plan_for_a_value_stands_before_the_plan_that_uses_it() {
        let first = Node { subplan: Some("InitPlan 1 (returns $0)".to_owned()), ..plan() };
        let scan = Node::new("Seq Scan", Estimate::default()).on("t", "t").over(vec![first]);
        let told = lines(&scan, "compiled", &Options { costs: false, ..OPTIONS }, Times::default());
        let expected = [
            "Seq Scan on t",
            "  InitPlan 1 (returns $0)",
            "    ->  Sort",
            "          Sort Key: a",
            "          ->  Seq Scan on t u",
            "                Filter: (\"a\" > 1)",
            "Road: compiled",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn json_is_one_value_that_a_parser_of_postgresqls_reads() {
        let told =
            lines(&plan(), "compiled", &Options { format: Format::Json, analyze: true, ..OPTIONS }, Times::default());
        assert_eq!(told.len(), 1);
        for part in [
            "\"Node Type\": \"Seq Scan\"",
            "\"Parent Relationship\": \"Outer\"",
            "\"Relation Name\": \"t\"",
            "\"Alias\": \"u\"",
            "\"Filter\": \"(\\\"a\\\" > 1)\"",
            "\"Sort Key\": [\"a\"]",
            "\"Plan Rows\": 1270",
        ] {
            assert!(told[0].contains(part), "{part}: {}", told[0]);
        }
        assert!(crate::value::from_text(freshet_engine::schema::Type::Json, told[0].as_bytes()).is_ok(), "{}", told[0]);
    }

    #[test]
    fn xml_and_yaml_are_laid_out_as_postgresql_does() {
        let options = Options { costs: false, ..OPTIONS };
        let told = |format| lines(&plan(), "compiled", &Options { format, ..options }, Times::default()).remove(0);
        let xml = "<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n  <Query>\n    <Plan>\n      <Node-Type>Sort</Node-Type>\n      <Parallel-Aware>false</Parallel-Aware>\n      <Async-Capable>false</Async-Capable>\n      <Sort-Key>\n        <Item>a</Item>\n      </Sort-Key>\n      <Plans>\n        <Plan>\n          <Node-Type>Seq Scan</Node-Type>\n          <Parent-Relationship>Outer</Parent-Relationship>\n          <Parallel-Aware>false</Parallel-Aware>\n          <Async-Capable>false</Async-Capable>\n          <Relation-Name>t</Relation-Name>\n          <Alias>u</Alias>\n          <Filter>(\"a\" &gt; 1)</Filter>\n        </Plan>\n      </Plans>\n    </Plan>\n    <Road>compiled</Road>\n  </Query>\n</explain>";
        assert_eq!(told(Format::Xml), xml);
        let yaml = "- Plan: \n    Node Type: \"Sort\"\n    Parallel Aware: false\n    Async Capable: false\n    Sort Key: \n      - \"a\"\n    Plans: \n      - Node Type: \"Seq Scan\"\n        Parent Relationship: \"Outer\"\n        Parallel Aware: false\n        Async Capable: false\n        Relation Name: \"t\"\n        Alias: \"u\"\n        Filter: \"(\\\"a\\\" > 1)\"\n  Road: \"compiled\"";
        assert_eq!(told(Format::Yaml), yaml);
    }
}
