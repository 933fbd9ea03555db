//! What did it look like, beside 2002 to 2013? One HTML page that needs nothing else: plots as SVG, the published figures of REFERENCE.md
//! beside today's, what was due, and every figure in a table.
//!
//! | plot | of |
//! |---|---|
//! | bars on a logarithmic scale | a case: every system, the bare loop that is the limit, and what the source published |
//! | lines | a sweep: the rate over sessions, log devices or the feed's speed, response times beside those published, and the server's processors |
//! | rate over time | the answers in each 100 ms: stalls show |

use crate::error::{BenchError, on};
use crate::figure::{Figure, Setting, append_json, micros, short, verdict};
use std::fmt::Write;
use std::path::Path;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 90.0;
const BAR: f64 = 18.0;
const GAP: f64 = 6.0;
const PLOT_HEIGHT: f64 = 220.0;
const TIME_HEIGHT: f64 = 90.0;

const STYLE: &str = "
body{font:15px/1.45 system-ui,sans-serif;max-width:860px;margin:2em auto;padding:0 1em;color:#1c2733;background:#fff}
h1{margin-bottom:.1em}h2{margin-top:2em;border-bottom:1px solid #d5dbe1;padding-bottom:.15em}h3{margin:1.2em 0 .2em;font-size:1em}
p.meta,p.about{color:#5a6875;margin:.2em 0}table{border-collapse:collapse;font-size:13px;margin:.6em 0;display:block;overflow-x:auto}
th,td{padding:.22em .6em;text-align:right;border-bottom:1px solid #e6eaee;white-space:nowrap}
th:first-child,td:first-child,td.l,th.l{text-align:left}
.met{color:#1a7f37;font-weight:600}.missed{color:#b42318;font-weight:600}
svg{display:block;margin:.4em 0;max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#1c2733}
svg .dim{fill:#5a6875}svg .grid{stroke:#e3e8ec;stroke-width:1}
";

/// Writes the figures as JSON lines and the page, whichever was asked for; where one cannot be written, the other one all the same.
pub fn write(
    (json, html): (Option<&Path>, Option<&Path>),
    workload: &str,
    cases: &[(&str, &str)],
    figures: &[Figure],
    setting: &Setting,
) -> Result<(), BenchError> {
    let lines = json.map_or(Ok(()), |path| append_json(path, figures, setting));
    let page = |path: &Path| std::fs::write(path, page(workload, cases, figures, setting)).map_err(on(path));
    lines.and(html.map_or(Ok(()), page))
}

/// The page of a run. `cases` are names with what each of them measures.
pub fn page(workload: &str, cases: &[(&str, &str)], figures: &[Figure], setting: &Setting) -> String {
    let mut html = String::new();
    let title = format!("freshet bench {workload}");
    put(
        &mut html,
        format_args!("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>"),
    );
    put(&mut html, format_args!("<style>{STYLE}</style></head><body><h1>{title}</h1>"));
    head(&mut html, setting);
    dues(&mut html, figures);
    for (case, about) in cases {
        let own: Vec<&Figure> = figures.iter().filter(|f| f.case == *case).collect();
        if !own.is_empty() {
            put(&mut html, format_args!("<h2>{}</h2><p class=\"about\">{}</p>", escape(case), escape(about)));
            case_plots(&mut html, &own);
        }
    }
    all_figures(&mut html, figures);
    html.push_str("</body></html>\n");
    html
}

fn put(html: &mut String, text: std::fmt::Arguments<'_>) {
    html.write_fmt(text).expect("a string grows");
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn head(html: &mut String, setting: &Setting) {
    for line in setting.machine.lines() {
        put(html, format_args!("<p class=\"meta\">{}</p>", escape(&line)));
    }
    let config: Vec<String> = setting.config.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let (commit, config) = (escape(&setting.commit), escape(&config.join(", ")));
    put(html, format_args!("<p class=\"meta\">commit {commit}; {config}</p>"));
}

fn dues(html: &mut String, figures: &[Figure]) {
    let due: Vec<&Figure> = figures.iter().filter(|f| f.due.is_some()).collect();
    put(html, format_args!("<h2>What was due</h2><p>{}</p>", escape(&verdict(figures))));
    if due.is_empty() {
        return;
    }
    html.push_str("<table><tr><th>case</th><th class=l>figure</th><th class=l>adapter</th><th>measured</th><th class=l>due</th></tr>");
    for f in due {
        let class = if f.met == Some(true) { "met" } else { "missed" };
        let (case, figure) = (escape(&f.case), escape(&f.figure));
        put(
            html,
            format_args!(
                "<tr><td>{case}</td><td class=l>{figure}</td><td class=l>{}</td><td>{}</td><td class=\"l {class}\">{}</td></tr>",
                f.adapter,
                escape(&measured(f)),
                escape(&f.verdict())
            ),
        );
    }
    html.push_str("</table>");
}

/// A figure in one cell: the rate, or whatever it has.
fn measured(f: &Figure) -> String {
    let rate = (f.rate_per_s > 0.0).then(|| format!("{} /s", short(f.rate_per_s)));
    let ratio = f.ratio_to_limit.map(|r| format!("{r:.2} x"));
    let parts: Vec<String> = [rate, ratio].into_iter().flatten().collect();
    if !parts.is_empty() {
        return parts.join(", ");
    }
    let log = f.log_bytes_per_op.map(|b| format!("{b:.0} B"));
    [f.p99_us.map(|us| format!("p99 {}", micros(us))), log].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn case_plots(html: &mut String, figures: &[&Figure]) {
    let mut groups: Vec<(String, Vec<&Figure>)> = Vec::new();
    for &f in figures.iter().filter(|f| f.at.is_none() && f.rate_per_s > 0.0) {
        let sessions = if f.sessions > 0 { format!(", {} sessions", f.sessions) } else { String::new() };
        let threads = if f.threads == 1 { "thread" } else { "threads" };
        let sessions = if f.sessions == 1 { ", 1 session".into() } else { sessions };
        let name = format!("{}, {} {threads}{sessions}", f.figure, f.threads);
        match groups.iter_mut().find(|(group, _)| *group == name) {
            Some((_, members)) => members.push(f),
            None => groups.push((name, vec![f])),
        }
    }
    for (name, members) in groups {
        put(html, format_args!("<h3>{}, per second</h3>", escape(&name)));
        bars(html, &members);
    }
    sweeps(html, figures);
    let over_time: Vec<&Figure> = figures.iter().copied().filter(|f| f.at.is_none() && f.slices.len() > 4).collect();
    over_time.iter().for_each(|f| rate_over_time(html, f));
}

struct Bar {
    name: String,
    value: f64,
    colour: &'static str,
    note: String,
}

fn colour(adapter: &str) -> &'static str {
    match adapter {
        "freshet" => "#0b6e99",
        "freshet-native" => "#3fa3c9",
        "freshet-wire" => "#7cc4de",
        "postgres" => "#5b6b8c",
        "sqlite" => "#7a8f5a",
        "redb" => "#a6855b",
        _ => "#8a8f98",
    }
}

fn bars(html: &mut String, members: &[&Figure]) {
    let mut all = Vec::new();
    if let Some(limit) = members.iter().filter_map(|f| f.limit_per_s).reduce(f64::max) {
        all.push(Bar { name: "limit here".into(), value: limit, colour: "#c9d1d9", note: String::new() });
    }
    for f in members {
        let note = f.ratio_to_limit.map_or(String::new(), |r| format!(" ({r:.2})"));
        all.push(Bar { name: f.adapter.to_owned(), value: f.rate_per_s, colour: colour(f.adapter), note });
    }
    if let Some(f) = members.iter().find(|f| f.published_per_s.is_some()) {
        let name = format!("published, {}", f.source);
        all.push(Bar { name, value: f.published_per_s.unwrap_or(1.0), colour: "#d9892b", note: String::new() });
    }
    let values = all.iter().map(|bar| bar.value.max(1.0).log10());
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = (low.floor().min(high.ceil() - 1.0), high.ceil());
    let x = |value: f64| LEFT + (value.max(1.0).log10() - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let height = all.len() as f64 * (BAR + GAP) + 24.0;
    put(html, format_args!("<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" role=\"img\">"));
    for decade in low as i32..=high as i32 {
        let (at, end) = (x(10f64.powi(decade)), height - 20.0);
        let label = short(10f64.powi(decade));
        put(html, format_args!("<line class=grid x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{end}\"/>"));
        put(
            html,
            format_args!("<text class=dim x=\"{at:.1}\" y=\"{}\" text-anchor=middle>{label}</text>", height - 6.0),
        );
    }
    for (n, bar) in all.iter().enumerate() {
        let (y, width) = (n as f64 * (BAR + GAP), (x(bar.value) - LEFT).max(1.0));
        let text = y + BAR - 4.5;
        put(html, format_args!("<text x=\"{}\" y=\"{text}\" text-anchor=end>{}</text>", LEFT - 8.0, escape(&bar.name)));
        let colour = bar.colour;
        put(
            html,
            format_args!("<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" rx=2 fill=\"{colour}\"/>"),
        );
        let value = format!("{}{}", short(bar.value), bar.note);
        put(html, format_args!("<text x=\"{:.1}\" y=\"{text}\">{value}</text>", LEFT + width + 6.0));
    }
    html.push_str("</svg>");
}

/// Lines for each system of each figure with an `at`: its rate, and how long it took.
fn sweeps(html: &mut String, figures: &[&Figure]) {
    let mut names: Vec<&str> = figures.iter().filter(|f| f.at.is_some()).map(|f| f.figure.as_str()).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let own = figures.iter().copied().filter(|f| f.at.is_some() && f.figure == name && f.rate_per_s > 0.0);
        let own: Vec<&Figure> = own.collect();
        if own.is_empty() {
            continue;
        }
        put(html, format_args!("<h3>{}, per second</h3>", escape(name)));
        plot(html, &rates(&own));
        if own.iter().any(|f| f.p50_us.is_some()) {
            put(
                html,
                format_args!("<h3>{}, median and 99th percentile (dashed) of the time of one</h3>", escape(name)),
            );
            plot(html, &latencies(&own));
        }
        if own.iter().any(|f| f.cpu_share.is_some()) {
            put(html, format_args!("<h3>{}, processors that the server took, of all</h3>", escape(name)));
            plot(html, &processors(&own));
        }
    }
}

/// A system's way through a sweep.
struct Line<'a> {
    adapter: &'a str,
    dash: &'static str,
    /// Places and values, in the order of places.
    points: Vec<(f64, f64)>,
}

struct Plot<'a> {
    lines: Vec<Line<'a>>,
    /// What the source published, from and to.
    band: Option<(f64, f64, &'a str)>,
    is_logarithmic: bool,
    say: fn(f64) -> String,
}

fn lines_of<'a>(figures: &[&'a Figure], dash: &'static str, value: fn(&Figure) -> Option<f64>) -> Vec<Line<'a>> {
    let mut adapters: Vec<&str> = figures.iter().map(|f| f.adapter).collect();
    adapters.sort_unstable();
    adapters.dedup();
    let line = |adapter| {
        let own = figures.iter().filter(|f| f.adapter == adapter);
        let mut points: Vec<(f64, f64)> = own.filter_map(|f| Some((f.at?, value(f)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { adapter, dash, points }
    };
    adapters.into_iter().map(line).collect()
}

fn rates<'a>(figures: &[&'a Figure]) -> Plot<'a> {
    Plot { lines: lines_of(figures, "", |f| Some(f.rate_per_s)), band: None, is_logarithmic: false, say: short }
}

fn processors<'a>(figures: &[&'a Figure]) -> Plot<'a> {
    let say = |share: f64| format!("{:.0} %", share * 100.0);
    Plot { lines: lines_of(figures, "", |f| f.cpu_share), band: None, is_logarithmic: false, say }
}

fn latencies<'a>(figures: &[&'a Figure]) -> Plot<'a> {
    let mut lines = lines_of(figures, "", |f| f.p50_us);
    lines.extend(lines_of(figures, "5 4", |f| f.p99_us));
    let band = figures.iter().find_map(|f| f.published_us.map(|(from, to)| (from, to, f.source)));
    Plot { lines, band, is_logarithmic: true, say: micros }
}

impl Plot<'_> {
    /// The lowest and the highest value that has a place.
    fn span(&self) -> (f64, f64) {
        let points = self.lines.iter().flat_map(|line| line.points.iter().map(|&(_, value)| value));
        let values = points.chain(self.band.iter().flat_map(|&(from, to, _)| [from, to]));
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        if self.is_logarithmic {
            let low = 10f64.powf(low.max(0.01).log10().floor());
            (low, 10f64.powf(high.max(low * 10.0).log10().ceil()))
        } else {
            // Shares are small.
            (0.0, if high > 0.0 { high } else { 1.0 })
        }
    }

    /// How far up a value lies, of one.
    fn share(&self, (low, high): (f64, f64), value: f64) -> f64 {
        if self.is_logarithmic { (value.max(low) / low).ln() / (high / low).ln() } else { value / high }
    }

    fn grid(&self, (low, high): (f64, f64)) -> Vec<f64> {
        if self.is_logarithmic {
            let decades = low.log10().round() as i32..=high.log10().round() as i32;
            return decades.map(|decade| 10f64.powi(decade)).collect();
        }
        (0..=4).map(|part| high * f64::from(part) / 4.0).collect()
    }
}

/// How far to the right a place lies, of one: by its logarithm, or one place as far as the other where one has none.
fn across(ats: &[f64], at: f64) -> f64 {
    let (first, last) = (ats[0], ats[ats.len() - 1]);
    if first > 0.0 && last.is_finite() {
        return (at / first).ln() / (last / first).ln().max(1e-9);
    }
    let place = ats.iter().position(|other| *other == at).unwrap_or(0);
    place as f64 / (ats.len() - 1).max(1) as f64
}

fn place_name(at: f64) -> String {
    if at.is_finite() { short(at) } else { "max".to_owned() }
}

fn plot(html: &mut String, plot: &Plot<'_>) {
    let mut ats: Vec<f64> = plot.lines.iter().flat_map(|line| line.points.iter().map(|&(at, _)| at)).collect();
    ats.sort_by(f64::total_cmp);
    ats.dedup();
    if ats.is_empty() {
        return;
    }
    let span = plot.span();
    let x = |at: f64| LEFT + across(&ats, at) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| 10.0 + (1.0 - plot.share(span, value)) * (PLOT_HEIGHT - 40.0);
    put(html, format_args!("<svg viewBox=\"0 0 {WIDTH} {PLOT_HEIGHT}\" width=\"{WIDTH}\" role=\"img\">"));
    if let Some((from, to, source)) = plot.band {
        let (top, foot, width) = (y(to), y(from), WIDTH - LEFT - RIGHT);
        let height = foot - top;
        put(
            html,
            format_args!(
                "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width}\" height=\"{height:.1}\" fill=\"#d9892b\" opacity=\".25\"/>"
            ),
        );
        let at = LEFT + 6.0;
        put(html, format_args!("<text class=dim x=\"{at}\" y=\"{:.1}\">published, {source}</text>", top + 14.0));
    }
    for value in plot.grid(span) {
        let (at, end, said) = (y(value), WIDTH - RIGHT, (plot.say)(value));
        put(html, format_args!("<line class=grid x1=\"{LEFT}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"));
        let (left, at) = (LEFT - 8.0, at + 4.0);
        put(html, format_args!("<text class=dim x=\"{left}\" y=\"{at:.1}\" text-anchor=end>{said}</text>"));
    }
    for &at in &ats {
        let (place, foot) = (x(at), PLOT_HEIGHT - 8.0);
        let said = place_name(at);
        put(html, format_args!("<text class=dim x=\"{place:.1}\" y=\"{foot}\" text-anchor=middle>{said}</text>"));
    }
    plot.lines.iter().for_each(|line| draw(html, line, x, y));
    html.push_str("</svg>");
}

fn draw(html: &mut String, line: &Line<'_>, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) {
    let (colour, dash, adapter) = (colour(line.adapter), line.dash, line.adapter);
    let places: Vec<(f64, f64)> = line.points.iter().map(|&(at, value)| (x(at), y(value))).collect();
    let path: Vec<String> = places.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
    let path = path.join(" ");
    put(
        html,
        format_args!(
            "<polyline points=\"{path}\" fill=none stroke=\"{colour}\" stroke-width=2 stroke-dasharray=\"{dash}\"/>"
        ),
    );
    for (px, py) in &places {
        put(html, format_args!("<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=3 fill=\"{colour}\"/>"));
    }
    // A dashed line goes with another one of the same system, which has the name.
    if let Some((px, py)) = places.last().filter(|_| dash.is_empty()) {
        let (px, py) = (px + 6.0, py + 4.0);
        put(html, format_args!("<text x=\"{px:.1}\" y=\"{py:.1}\" style=\"fill:{colour}\">{adapter}</text>"));
    }
}

fn rate_over_time(html: &mut String, f: &Figure) {
    let rates: Vec<f64> = f.slices.iter().map(|&count| count as f64 * 10.0).collect();
    let top = rates.iter().copied().fold(1.0, f64::max);
    let step = (WIDTH - LEFT - RIGHT) / (rates.len() - 1).max(1) as f64;
    let y = |rate: f64| 6.0 + (1.0 - rate / top) * (TIME_HEIGHT - 24.0);
    let points: Vec<String> =
        rates.iter().enumerate().map(|(n, &rate)| format!("{:.1},{:.1}", LEFT + n as f64 * step, y(rate))).collect();
    let seconds = rates.len() as f64 / 10.0;
    let (foot, end, colour) = (TIME_HEIGHT - 4.0, WIDTH - RIGHT, colour(f.adapter));
    put(html, format_args!("<svg viewBox=\"0 0 {WIDTH} {TIME_HEIGHT}\" width=\"{WIDTH}\" role=\"img\">"));
    put(
        html,
        format_args!("<text x=\"{}\" y=\"16\" text-anchor=end>{}, {} thr</text>", LEFT - 8.0, f.adapter, f.threads),
    );
    put(html, format_args!("<text class=dim x=\"{}\" y=\"{}\" text-anchor=end>0</text>", LEFT - 8.0, y(0.0) + 4.0));
    put(html, format_args!("<text class=dim x=\"{}\" y=\"14\">{}</text>", end + 6.0, short(top)));
    put(html, format_args!("<line class=grid x1=\"{LEFT}\" x2=\"{end}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>", y(0.0)));
    put(
        html,
        format_args!("<polyline points=\"{}\" fill=none stroke=\"{colour}\" stroke-width=1.5 />", points.join(" ")),
    );
    put(html, format_args!("<text class=dim x=\"{end}\" y=\"{foot}\" text-anchor=end>{seconds:.1} s</text></svg>"));
}

fn all_figures(html: &mut String, figures: &[Figure]) {
    html.push_str("<h2>All figures</h2><table><tr><th>case</th><th class=l>figure</th><th class=l>adapter</th><th>threads</th><th>sessions</th>");
    html.push_str("<th>rate /s</th><th>of limit</th><th>p50</th><th>p99</th><th>log B</th><th>published</th><th class=l>against peers, notes</th></tr>");
    for f in figures {
        let peers = f.peers.iter().map(|(peer, ratio)| format!("{ratio:.1} x {peer}"));
        let notes: Vec<String> = peers.chain([f.note.clone()]).filter(|s| !s.is_empty()).collect();
        let figure = f.at.map_or(f.figure.clone(), |at| format!("{} at {}", f.figure, place_name(at)));
        let some = |value: Option<f64>, text: fn(f64) -> String| value.map_or(String::new(), text);
        let cells = [
            if f.sessions > 0 { f.sessions.to_string() } else { String::new() },
            if f.rate_per_s > 0.0 { short(f.rate_per_s) } else { String::new() },
            some(f.ratio_to_limit, |r| format!("{r:.2}")),
            some(f.p50_us, micros),
            some(f.p99_us, micros),
            some(f.log_bytes_per_op, |b| format!("{b:.0}")),
            published(f),
        ];
        let (case, figure, notes) = (escape(&f.case), escape(&figure), escape(&notes.join("; ")));
        put(
            html,
            format_args!(
                "<tr><td>{case}</td><td class=l>{figure}</td><td class=l>{}</td><td>{}</td>",
                f.adapter, f.threads
            ),
        );
        cells.iter().for_each(|cell| put(html, format_args!("<td>{}</td>", escape(cell))));
        put(html, format_args!("<td class=l>{notes}</td></tr>"));
    }
    html.push_str("</table>");
}

fn published(f: &Figure) -> String {
    match (f.published_per_s, f.published_us) {
        (Some(rate), _) => format!("{} ({})", short(rate), f.source),
        (None, Some((from, to))) => format!("{} to {} ({})", micros(from), micros(to), f.source),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_draws_rates_and_response_times_beside_those_published() {
        let at = |sessions: f64, p50_us: f64| Figure {
            adapter: "freshet",
            at: Some(sessions),
            p50_us: Some(p50_us),
            p99_us: Some(p50_us * 2.0),
            published_us: Some((9e3, 16e3)),
            source: "F2",
            ..Figure::new("cache-off", "operations", 1000.0 * sessions, "operations", 1.0)
        };
        let figures = [at(1.0, 8e3), at(100.0, 12e3)];
        let mut html = String::new();
        sweeps(&mut html, &figures.iter().collect::<Vec<_>>());
        assert_eq!(html.matches("<svg").count(), 2, "{html}");
        // A line of rates, two of response times.
        assert_eq!(html.matches("<polyline").count(), 3, "{html}");
        assert!(html.contains("published, F2") && html.contains(">10.00 ms<"), "{html}");
        assert_eq!(published(&figures[0]), "9.00 ms to 16.00 ms (F2)");
        let plot = latencies(&[&figures[0]]);
        let span = plot.span();
        assert_eq!((plot.share(span, span.0), plot.share(span, span.1)), (0.0, 1.0));
    }

    #[test]
    fn what_is_told_is_escaped() {
        assert_eq!(escape("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
    }
}
