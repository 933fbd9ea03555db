//! Who may come in, and how must they prove who they are? Rules in the configuration, as PostgreSQL's `pg_hba.conf` has them: the first that fits counts.
//!
//! ```toml
//! [[rule]]
//! type = "hostssl"            # host: with or without TLS; hostssl; hostnossl; local: through the socket file
//! database = "shop"           # "all", a name, or a list of names
//! user = ["alice", "+staff"]  # "all", a name, +role for its members, or a list
//! address = "10.0.0.0/8"      # "all", an address, or one with the length of its prefix; not for local
//! method = "scram-sha-256"    # or "trust", "reject"
//! ```
//!
//! 1. Without rules clients on the machine itself are trusted, and nobody else is served.
//! 2. Nothing is served beyond the machine without authentication, nor without TLS unless that was agreed to (`allow_plain`).

use freshet_db::SqlError;
use freshet_db::sql::role;
use freshet_engine::catalog::Schema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};

#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    #[serde(rename = "host")]
    Any,
    #[serde(rename = "hostssl")]
    Tls,
    #[serde(rename = "hostnossl")]
    Plain,
    /// Not over TCP.
    #[serde(rename = "local")]
    Local,
}

#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    #[serde(rename = "trust")]
    Trust,
    #[serde(rename = "scram-sha-256")]
    Scram,
    #[serde(rename = "reject")]
    Reject,
}

/// One name or several.
#[derive(Deserialize, Serialize, Clone, PartialEq, Eq, Debug)]
#[serde(untagged)]
pub enum Names {
    One(String),
    Several(Vec<String>),
}

impl Names {
    fn any(&self, fits: impl Fn(&str) -> bool) -> bool {
        match self {
            Names::One(name) => fits(name),
            Names::Several(names) => names.iter().any(|name| fits(name)),
        }
    }
}

/// Addresses that share a prefix.
#[derive(Deserialize, Serialize, Clone, PartialEq, Eq, Debug)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    written: String,
    /// `None`: all.
    of: Option<(IpAddr, u32)>,
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(written: String) -> Result<Network, String> {
        let invalid = || format!("\"{written}\" is no address; write it as in 10.0.0.0/8, ::1 or \"all\"");
        if written == "all" {
            return Ok(Network { written, of: None });
        }
        let (address, bits) = match written.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| invalid())?)),
            None => (written.as_str(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        if bits > width {
            return Err(invalid());
        }
        let of = Some((address, bits));
        Ok(Network { written, of })
    }
}

impl From<Network> for String {
    fn from(network: Network) -> String {
        network.written
    }
}

impl Network {
    fn has(&self, address: IpAddr) -> bool {
        let prefix = |bytes: u128, width: u32, bits: u32| if bits == 0 { 0 } else { bytes >> (width - bits) };
        match (self.of, address.to_canonical()) {
            (None, _) => true,
            (Some((IpAddr::V4(own), bits)), IpAddr::V4(other)) => {
                prefix(own.to_bits().into(), 32, bits) == prefix(other.to_bits().into(), 32, bits)
            }
            (Some((IpAddr::V6(own), bits)), IpAddr::V6(other)) => {
                prefix(own.to_bits(), 128, bits) == prefix(other.to_bits(), 128, bits)
            }
            _ => false,
        }
    }

    /// Whether an address is in both.
    fn meets(&self, other: &Network) -> bool {
        match (self.of, other.of) {
            (None, _) | (_, None) => true,
            (Some((one, _)), Some((two, _))) => self.has(two) || other.has(one),
        }
    }

    /// Whether none of its addresses is another machine's.
    fn is_loopback(&self) -> bool {
        match self.of {
            None => false,
            Some((IpAddr::V4(address), bits)) => address.is_loopback() && bits >= 8,
            Some((IpAddr::V6(address), bits)) => address.is_loopback() && bits == 128,
        }
    }
}

#[derive(Deserialize, Serialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    #[serde(rename = "type")]
    pub transport: Transport,
    pub database: Names,
    pub user: Names,
    /// Of all but `local` rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Network>,
    pub method: Method,
}

/// Where a client is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    At(IpAddr),
    /// It came through the socket file.
    Local,
}

impl Origin {
    /// Nobody but a process of this machine.
    fn is_this_machine(self) -> bool {
        match self {
            Origin::At(address) => address.to_canonical().is_loopback(),
            Origin::Local => true,
        }
    }

    /// As one address among others: whose wrong passwords are counted together.
    pub fn address(self) -> IpAddr {
        match self {
            Origin::At(address) => address,
            Origin::Local => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::At(address) => write!(f, "{}", address.to_canonical()),
            Origin::Local => f.write_str("[local]"),
        }
    }
}

/// A client, as rules look at it.
pub struct Guest<'a> {
    pub origin: Origin,
    pub is_tls: bool,
    pub user: &'a str,
    pub database: &'a str,
}

impl Rule {
    fn fits(&self, guest: &Guest<'_>, schema: &Schema) -> bool {
        let comes_so = match (self.transport, guest.origin) {
            (Transport::Local, origin) => origin == Origin::Local,
            (_, Origin::Local) => false,
            (Transport::Any, Origin::At(_)) => true,
            (Transport::Tls, Origin::At(_)) => guest.is_tls,
            (Transport::Plain, Origin::At(_)) => !guest.is_tls,
        };
        let is_there = match (&self.address, guest.origin) {
            (Some(network), Origin::At(address)) => network.has(address),
            (_, Origin::Local) => true,
            (None, Origin::At(_)) => false,
        };
        let is_user = |name: &str| match name.strip_prefix('+') {
            Some(of) => {
                let ids = schema.role_named(guest.user).zip(schema.role_named(of));
                ids.is_some_and(|(user, of)| role::is_member_itself(schema, user.id, of.id))
            }
            None => name == "all" || name == guest.user,
        };
        let is_database = |name: &str| {
            name == "all" || name == guest.database || (name == "sameuser" && guest.user == guest.database)
        };
        comes_so && is_there && self.database.any(is_database) && self.user.any(is_user)
    }
}

impl Rule {
    fn is_for_any_database(&self) -> bool {
        self.database.any(|name| name == "all")
    }

    /// Whether a client can come under both by where, how and as whom it comes. Members of a group may be anybody.
    fn shares_guests(&self, other: &Rule) -> bool {
        use Transport::{Any, Local, Plain, Tls};
        let come_alike = match (self.transport, other.transport) {
            (Local, Local) => true,
            (Local, _) | (_, Local) | (Tls, Plain) | (Plain, Tls) => false,
            (Any | Tls | Plain, Any | Tls | Plain) => true,
        };
        let are_there = match (&self.address, &other.address) {
            (Some(one), Some(two)) => one.meets(two),
            _ => true,
        };
        let anybody = |name: &str| name == "all" || name.starts_with('+');
        let is_same = self.user.any(anybody)
            || other.user.any(anybody)
            || self.user.any(|name| other.user.any(|other| other == name));
        come_alike && are_there && is_same
    }
}

/// All rules. Without any, the machine itself is trusted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// How the client must prove who it is; 28000 if it may not come in at all.
    pub fn method(&self, guest: &Guest<'_>, schema: &Schema) -> Result<Method, SqlError> {
        let refused = |what: &str| {
            let encryption = if guest.is_tls { "SSL encryption" } else { "no encryption" };
            let (host, user, database) = (guest.origin, guest.user, guest.database);
            SqlError::new(
                "28000",
                format!("{what} for host \"{host}\", user \"{user}\", database \"{database}\", {encryption}"),
            )
        };
        if self.0.is_empty() && guest.origin.is_this_machine() {
            return Ok(Method::Trust);
        }
        match self.0.iter().find(|rule| rule.fits(guest, schema)) {
            None => Err(refused("no pg_hba.conf entry")),
            Some(Rule { method: Method::Reject, .. }) => Err(refused("pg_hba.conf rejects connection")),
            Some(rule) => Ok(rule.method),
        }
    }

    /// There is one database, which answers to whatever name a client says: a rule for some names that trusts, beside one for the same clients that does not, leaves
    /// the choice to them.
    fn check_databases(&self, whose: impl Fn(&Rule) -> String) -> Result<(), String> {
        let trusting = self.0.iter().enumerate().filter(|(_, rule)| rule.method == Method::Trust);
        for (at, lax) in trusting {
            let is_dodged = |other: usize, strict: &Rule| {
                let is_chosen = match (lax.is_for_any_database(), strict.is_for_any_database()) {
                    (true, true) => false,
                    // The one for any name comes into play where the other one was not named.
                    (false, true) => at < other,
                    (true, false) => other < at,
                    (false, false) => lax.database != strict.database,
                };
                strict.method != Method::Trust && is_chosen && lax.shares_guests(strict)
            };
            if let Some((_, strict)) = self.0.iter().enumerate().find(|&(other, rule)| is_dodged(other, rule)) {
                let (lax, strict) = (whose(lax), whose(strict));
                return Err(format!(
                    "the rule for {lax} trusts clients that the one for {strict} does not, and only the database's name tells them apart, \
                     which is the client's to choose: give both database = \"all\", or the same method"
                ));
            }
        }
        Ok(())
    }

    /// Whether this address may be listened on; the reason why not says what to do.
    pub fn check_listen(&self, listen: SocketAddr, has_tls: bool, allow_plain: bool) -> Result<(), String> {
        let whose = |rule: &Rule| rule.address.clone().map_or_else(|| "[local]".to_owned(), String::from);
        for rule in &self.0 {
            match (rule.transport, &rule.address) {
                (Transport::Local, Some(_)) => {
                    return Err("a rule for local clients has no address".to_owned());
                }
                (Transport::Local, None) | (_, Some(_)) => {}
                (_, None) => {
                    return Err("a rule lacks its address; only rules with type = \"local\" have none".to_owned());
                }
            }
        }
        if let (false, Some(rule)) =
            (has_tls, self.0.iter().find(|rule| rule.transport == Transport::Tls && rule.method != Method::Reject))
        {
            return Err(format!(
                "a rule for {} asks for TLS, and there is no certificate: give --tls-cert and --tls-key",
                whose(rule)
            ));
        }
        self.check_databases(whose)?;
        if listen.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        if self.0.is_empty() {
            return Err("without authentication only loopback addresses are served (127.0.0.1, [::1]): \
                        write [[rule]] sections with method = \"scram-sha-256\" into the configuration file"
                .to_owned());
        }
        let is_from_afar = |rule: &&Rule| rule.address.as_ref().is_some_and(|network| !network.is_loopback());
        let reachable = self.0.iter().filter(|rule| rule.method != Method::Reject).filter(is_from_afar);
        for rule in reachable {
            let address = whose(rule);
            if rule.method == Method::Trust {
                return Err(format!(
                    "the rule for {address} trusts clients of other machines: give it method = \"scram-sha-256\""
                ));
            }
            if rule.transport != Transport::Tls && !allow_plain {
                return Err(format!(
                    "the rule for {address} lets clients of other machines in without TLS: give it type = \"hostssl\" and \
                     the server --tls-cert and --tls-key, or agree to it with --allow-plain true"
                ));
            }
        }
        Ok(())
    }
}

/// The rules that count for whoever comes now.
#[derive(Debug)]
pub struct RulesInForce(RwLock<Arc<Rules>>);

impl RulesInForce {
    pub fn new(rules: Rules) -> RulesInForce {
        RulesInForce(RwLock::new(Arc::new(rules)))
    }

    pub fn get(&self) -> Arc<Rules> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, rules: Rules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        #[derive(Deserialize)]
        struct File {
            rule: Vec<Rule>,
        }
        Rules(toml::from_str::<File>(text).expect("rules").rule)
    }

    fn guest<'a>(address: &str, is_tls: bool, user: &'a str, database: &'a str) -> Guest<'a> {
        let origin = if address == "local" { Origin::Local } else { Origin::At(address.parse().unwrap()) };
        Guest { origin, is_tls, user, database }
    }

    fn rule(transport: &str, user: &str, address: &str, method: &str) -> String {
        format!("[[rule]]\ntype='{transport}'\ndatabase='all'\nuser={user}\naddress='{address}'\nmethod='{method}'\n")
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let text = [
            rule("host", "'eve'", "all", "reject"),
            rule("hostssl", "['a', 'b']", "10.1.0.0/16", "scram-sha-256"),
            rule("hostnossl", "'all'", "127.0.0.1/32", "trust"),
            rule("host", "'all'", "::1", "trust"),
        ];
        let rules = rules(&text.concat());
        let schema = Schema::default();
        let asked = |guest: Guest<'_>| rules.method(&guest, &schema);
        assert_eq!(asked(guest("10.1.2.3", true, "b", "d")), Ok(Method::Scram));
        assert_eq!(asked(guest("127.0.0.1", false, "x", "d")), Ok(Method::Trust));
        assert_eq!(asked(guest("::ffff:127.0.0.1", false, "x", "d")), Ok(Method::Trust), "mapped");
        assert_eq!(asked(guest("::1", true, "x", "d")), Ok(Method::Trust));
        for (other, message) in [
            (
                guest("127.0.0.1", false, "eve", "d"),
                "pg_hba.conf rejects connection for host \"127.0.0.1\", user \"eve\", database \"d\", no encryption",
            ),
            (
                guest("10.1.2.3", false, "b", "d"),
                "no pg_hba.conf entry for host \"10.1.2.3\", user \"b\", database \"d\", no encryption",
            ),
            (
                guest("10.2.2.3", true, "b", "d"),
                "no pg_hba.conf entry for host \"10.2.2.3\", user \"b\", database \"d\", SSL encryption",
            ),
        ] {
            let error = asked(other).unwrap_err();
            assert_eq!((error.sqlstate, error.message.as_str()), ("28000", message));
        }
    }

    #[test]
    fn local_rules_are_for_the_socket_file_alone() {
        let local = "[[rule]]\ntype='local'\ndatabase='all'\nuser='all'\nmethod='scram-sha-256'\n".to_owned();
        let everybody = rule("host", "'all'", "all", "trust");
        let schema = Schema::default();
        let both = rules(&(local.clone() + &everybody));
        assert_eq!(both.method(&guest("local", false, "a", "d"), &schema), Ok(Method::Scram));
        assert_eq!(both.method(&guest("127.0.0.1", false, "a", "d"), &schema), Ok(Method::Trust));
        let error = rules(&everybody).method(&guest("local", false, "a", "d"), &schema).unwrap_err();
        assert_eq!(
            error.message,
            "no pg_hba.conf entry for host \"[local]\", user \"a\", database \"d\", no encryption"
        );
        assert_eq!(Rules::default().method(&guest("local", false, "a", "d"), &schema), Ok(Method::Trust));
        let here = "127.0.0.1:5433".parse().unwrap();
        assert_eq!(rules(&local).check_listen(here, false, false), Ok(()));
        let lacking = rules(&local.replace("local", "host"));
        assert!(lacking.check_listen(here, false, false).unwrap_err().contains("lacks its address"));
        let more = rules(&rule("local", "'all'", "all", "trust"));
        assert!(more.check_listen(here, false, false).unwrap_err().contains("no address"));
    }

    #[test]
    fn without_rules_the_machine_itself_is_trusted() {
        let schema = Schema::default();
        let none = Rules::default();
        assert_eq!(none.method(&guest("127.0.0.1", false, "x", "d"), &schema), Ok(Method::Trust));
        assert_eq!(none.method(&guest("10.0.0.1", true, "x", "d"), &schema).unwrap_err().sqlstate, "28000");
    }

    #[test]
    fn nothing_is_served_to_others_without_authentication_and_tls() {
        let everywhere: SocketAddr = "0.0.0.0:5433".parse().unwrap();
        let here: SocketAddr = "127.0.0.1:5433".parse().unwrap();
        let local = rule("host", "'all'", "127.0.0.0/8", "trust");
        let check = |text: &str, at, tls, plain| {
            let rules = if text.is_empty() { Rules::default() } else { rules(text) };
            rules.check_listen(at, tls, plain).map_err(|why| why.split(':').next().unwrap_or_default().to_owned())
        };
        assert_eq!(check("", here, false, false), Ok(()));
        assert!(check("", everywhere, true, true).unwrap_err().contains("without authentication"));
        let trust = local.clone() + &rule("hostssl", "'all'", "10.0.0.0/8", "trust");
        assert!(check(&trust, everywhere, true, true).unwrap_err().contains("trusts clients"));
        let plain = local.clone() + &rule("host", "'all'", "all", "scram-sha-256");
        assert!(check(&plain, everywhere, true, false).unwrap_err().contains("without TLS"));
        assert_eq!(check(&plain, everywhere, false, true), Ok(()));
        let whole = local + &rule("hostssl", "'all'", "all", "scram-sha-256");
        assert_eq!(check(&whole, everywhere, true, false), Ok(()));
        assert!(check(&whole, everywhere, false, true).unwrap_err().contains("asks for TLS"));
        // The machine's own addresses, all of them and some more.
        let wide = rule("host", "'all'", "127.0.0.0/7", "trust");
        assert!(check(&wide, everywhere, true, true).is_err());
    }

    /// The name of the database is the client's to choose.
    #[test]
    fn no_rule_is_dodged_by_naming_another_database() {
        let here: SocketAddr = "127.0.0.1:5433".parse().unwrap();
        let rule = |database: &str, user: &str, address: &str, method: &str| {
            format!("[[rule]]\ntype='host'\ndatabase={database}\nuser={user}\naddress='{address}'\nmethod='{method}'\n")
        };
        let trust = |database: &str| rule(database, "'all'", "127.0.0.1/32", "trust");
        let scram = |database: &str| rule(database, "'all'", "127.0.0.0/8", "scram-sha-256");
        let check = |text: &str| rules(text).check_listen(here, false, false);
        for dodged in [
            trust("'test'") + &scram("'all'"),
            trust("['test', 'demo']") + &scram("'all'"),
            trust("'sameuser'") + &scram("'all'"),
            scram("'shop'") + &trust("'all'"),
            scram("'shop'") + &trust("'test'"),
            trust("'test'") + &rule("'all'", "'+staff'", "all", "reject"),
        ] {
            assert!(check(&dodged).is_err_and(|why| why.contains("client's to choose")), "{dodged}");
        }
        for clear in [
            trust("'all'") + &scram("'all'"),
            trust("'test'") + &trust("'all'"),
            scram("'all'") + &trust("'test'"),
            trust("'all'") + &scram("'shop'"),
            scram("'shop'") + &rule("'all'", "'all'", "all", "reject"),
            rule("'test'", "'a'", "127.0.0.1", "trust") + &rule("'all'", "'b'", "127.0.0.1", "scram-sha-256"),
            rule("'test'", "'a'", "127.0.0.1", "trust") + &rule("'all'", "'a'", "127.0.0.2", "scram-sha-256"),
        ] {
            assert_eq!(check(&clear), Ok(()), "{clear}");
        }
    }

    #[test]
    fn rules_that_say_nothing_clear_are_refused() {
        for text in ["10.0.0.0/33", "10.0.0", "::1/129", "host", "10.0.0.0/x"] {
            assert!(Network::try_from(text.to_owned()).is_err(), "{text}");
        }
        let bad = rule("host", "'all'", "all", "md5");
        assert!(toml::from_str::<Rule>(bad.trim_start_matches("[[rule]]\n")).is_err());
    }
}
