//! Which privileges are there, and what does a list of them give? As PostgreSQL's access control lists, down to their text.

use freshet_engine::catalog::{Grant, NamespaceId, Rights, RoleId, Schema};

/// A set of privileges; the bits are PostgreSQL's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Privileges(pub u16);

/// In the order of their bits, which is that of their letters in a list.
const NAMES: [(&str, char); 12] = [
    ("INSERT", 'a'),
    ("SELECT", 'r'),
    ("UPDATE", 'w'),
    ("DELETE", 'd'),
    ("TRUNCATE", 'D'),
    ("REFERENCES", 'x'),
    ("TRIGGER", 't'),
    ("EXECUTE", 'X'),
    ("USAGE", 'U'),
    ("CREATE", 'C'),
    ("TEMPORARY", 'T'),
    ("CONNECT", 'c'),
];

impl Privileges {
    pub const NONE: Privileges = Privileges(0);
    pub const INSERT: Privileges = Privileges(1);
    pub const SELECT: Privileges = Privileges(1 << 1);
    pub const UPDATE: Privileges = Privileges(1 << 2);
    pub const DELETE: Privileges = Privileges(1 << 3);
    pub const TRUNCATE: Privileges = Privileges(1 << 4);
    pub const REFERENCES: Privileges = Privileges(1 << 5);
    pub const USAGE: Privileges = Privileges(1 << 8);
    pub const CREATE: Privileges = Privileges(1 << 9);
    pub const TEMPORARY: Privileges = Privileges(1 << 10);
    pub const CONNECT: Privileges = Privileges(1 << 11);

    /// In any case.
    pub fn named(name: &str) -> Option<Privileges> {
        let name = name.to_ascii_uppercase();
        let name = if name == "TEMP" { "TEMPORARY" } else { name.as_str() };
        NAMES.iter().position(|(own, _)| *own == name).map(|at| Privileges(1 << at))
    }

    pub const fn with(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }

    pub fn without(self, other: Privileges) -> Privileges {
        Privileges(self.0 & !other.0)
    }

    pub fn of_both(self, other: Privileges) -> Privileges {
        Privileges(self.0 & other.0)
    }

    /// All of the others.
    pub fn has(self, other: Privileges) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn has_any(self, other: Privileges) -> bool {
        self.0 & other.0 != 0
    }

    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The names of those in it.
    pub fn names(self) -> impl Iterator<Item = (&'static str, Privileges)> {
        let each = NAMES.iter().enumerate().map(|(at, (name, _))| (*name, Privileges(1 << at)));
        each.filter(move |(_, one)| self.has(*one))
    }
}

/// What privileges are on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A table or a view.
    Table,
    Sequence,
    Schema,
    Database,
    Type,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Table => "relation",
            Kind::Sequence => "sequence",
            Kind::Schema => "schema",
            Kind::Database => "database",
            Kind::Type => "type",
        }
    }

    /// All that there are on such a thing: what its owner has.
    pub const fn possible(self) -> Privileges {
        match self {
            Kind::Table => Privileges(0x7f),
            Kind::Sequence => Privileges::SELECT.with(Privileges::UPDATE).with(Privileges::USAGE),
            Kind::Schema => Privileges::USAGE.with(Privileges::CREATE),
            Kind::Type => Privileges::USAGE,
            Kind::Database => Privileges::CREATE.with(Privileges::TEMPORARY).with(Privileges::CONNECT),
        }
    }

    /// What everybody has where nothing was granted or revoked.
    fn of_everybody(self, object: u32) -> Privileges {
        match self {
            Kind::Database => Privileges::TEMPORARY.with(Privileges::CONNECT),
            Kind::Type => Privileges::USAGE,
            // As PostgreSQL makes them.
            Kind::Schema
                if [NamespaceId::PUBLIC, NamespaceId::CATALOG, NamespaceId::INFORMATION]
                    .contains(&NamespaceId(object)) =>
            {
                Privileges::USAGE
            }
            _ => Privileges::NONE,
        }
    }
}

/// An object's owner and what is granted on it, what it has by default included.
pub fn effective(schema: &Schema, kind: Kind, object: u32) -> (RoleId, Vec<Grant>) {
    let rights = schema.rights(object).cloned().unwrap_or_else(|| Rights::unsaid(object));
    let owner = rights.owner;
    (owner, rights.grants.unwrap_or_else(|| default_grants(kind, object, owner)))
}

/// What an object has before anything is granted.
pub fn default_grants(kind: Kind, object: u32, owner: RoleId) -> Vec<Grant> {
    let grant =
        |grantee, privileges: Privileges| Grant { grantee, grantor: owner, privileges: privileges.0, grantable: 0 };
    let everybody = kind.of_everybody(object);
    let mut grants = Vec::new();
    if !everybody.is_none() {
        grants.push(grant(RoleId::PUBLIC, everybody));
    }
    grants.push(grant(owner, kind.possible()));
    grants
}

/// What roles have by the grants to them and to everybody, and what of it they may give on.
pub fn held(grants: &[Grant], is_one: impl Fn(RoleId) -> bool) -> (Privileges, Privileges) {
    let mine = grants.iter().filter(|grant| grant.grantee == RoleId::PUBLIC || is_one(grant.grantee));
    mine.fold((Privileges::NONE, Privileges::NONE), |(has, may_give), grant| {
        (has.with(Privileges(grant.privileges)), may_give.with(Privileges(grant.grantable)))
    })
}

/// An entry as PostgreSQL writes it: `grantee=letters/grantor`, a star behind what may be given on.
pub fn item_text(grant: &Grant, name: impl Fn(RoleId) -> String) -> String {
    let mut text = if grant.grantee == RoleId::PUBLIC { String::new() } else { quoted(&name(grant.grantee)) };
    text.push('=');
    for (at, (_, letter)) in NAMES.iter().enumerate() {
        if grant.privileges >> at & 1 == 1 {
            text.push(*letter);
            if grant.grantable >> at & 1 == 1 {
                text.push('*');
            }
        }
    }
    text.push('/');
    text.push_str(&quoted(&name(grant.grantor)));
    text
}

/// A name in an entry: quoted unless letters, digits and underscores.
fn quoted(name: &str) -> String {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// What an entry's text says. Those that stand there are in the order of their bits.
pub struct Item {
    /// `None`: everybody.
    pub grantee: Option<String>,
    pub grantor: String,
    /// Each with whether it may be given on.
    pub privileges: Vec<(&'static str, bool)>,
}

impl Item {
    pub fn of_text(text: &str) -> Option<Item> {
        let (grantee, rest) = name_in(text)?;
        let (letters, grantor) = rest.strip_prefix('=')?.split_once('/')?;
        let (grantor, "") = name_in(grantor)? else { return None };
        // Of settings, which have no rights here.
        let more = [("SET", 's'), ("ALTER SYSTEM", 'A')];
        let mut privileges = Vec::new();
        for (name, letter) in NAMES.into_iter().chain(more) {
            if let Some((_, behind)) = letters.split_once(letter) {
                privileges.push((name, behind.starts_with('*')));
            }
        }
        Some(Item { grantee: Some(grantee).filter(|name| !name.is_empty()), grantor, privileges })
    }
}

/// The name that an entry's text begins with, and what comes after it.
fn name_in(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find(['=', '/']).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut name = String::new();
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        match behind.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None => return Some((name, behind)),
        }
    }
}

/// Adds to what `grantee` has from `grantor`.
pub fn add(grants: &mut Vec<Grant>, grantee: RoleId, grantor: RoleId, privileges: Privileges, option: bool) {
    let grantable = if option { privileges.0 } else { 0 };
    merge(grants, Grant { grantee, grantor, privileges: privileges.0, grantable });
}

/// What one role has from another stands in one entry.
fn merge(grants: &mut Vec<Grant>, more: Grant) {
    match grants.iter_mut().find(|g| g.grantee == more.grantee && g.grantor == more.grantor) {
        Some(grant) => {
            grant.privileges |= more.privileges;
            grant.grantable |= more.grantable;
        }
        None => grants.push(more),
    }
}

/// Takes from what `grantee` has from `grantor`, the option only or all of it, and from whom it gave it on. `Err`: somebody has it from the
/// grantee, and `cascade` was not said.
pub fn take(
    grants: &mut Vec<Grant>,
    owner: RoleId,
    (grantee, grantor): (RoleId, RoleId),
    privileges: Privileges,
    option_only: bool,
    cascade: bool,
) -> Result<(), Dependent> {
    let Some(grant) = grants.iter_mut().find(|g| g.grantee == grantee && g.grantor == grantor) else { return Ok(()) };
    let lost = Privileges(grant.grantable).of_both(privileges);
    grant.grantable &= !privileges.0;
    if !option_only {
        grant.privileges &= !privileges.0;
    }
    grants.retain(|g| g.privileges != 0);
    if lost.is_none() || grantee == owner {
        return Ok(());
    }
    // What it still may give by another grant stays given.
    let still = held(grants, |role| role == grantee && role != RoleId::PUBLIC).1;
    let gone = lost.without(still);
    let dependents: Vec<RoleId> = grants
        .iter()
        .filter(|g| g.grantor == grantee && Privileges(g.privileges).has_any(gone))
        .map(|g| g.grantee)
        .collect();
    if !dependents.is_empty() && !cascade {
        return Err(Dependent);
    }
    dependents.into_iter().try_for_each(|to| take(grants, owner, (to, grantee), gone, false, cascade))
}

/// Somebody else has a privilege because of the one that is to go.
#[derive(Debug)]
pub struct Dependent;

/// The rights after another role has become the owner: what the old one had and gave is the new one's.
pub fn with_owner(rights: &Rights, new: RoleId) -> Rights {
    let old = rights.owner;
    let moved = |role: RoleId| if role == old { new } else { role };
    let grants = rights.grants.as_ref().map(|grants| {
        let mut merged: Vec<Grant> = Vec::new();
        for grant in grants {
            merge(&mut merged, Grant { grantee: moved(grant.grantee), grantor: moved(grant.grantor), ..*grant });
        }
        merged
    });
    Rights { owner: new, grants }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: RoleId = RoleId(10);
    const A: RoleId = RoleId(16384);
    const B: RoleId = RoleId(16385);

    fn text(grants: &[Grant]) -> String {
        let name = |role: RoleId| if role == OWNER { "boss".to_owned() } else { format!("r{}", role.0) };
        grants.iter().map(|g| item_text(g, name)).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn lists_are_written_as_postgresql_does() {
        let mut grants = default_grants(Kind::Table, 1, OWNER);
        assert_eq!(text(&grants), "boss=arwdDxt/boss");
        add(&mut grants, A, OWNER, Privileges::SELECT.with(Privileges::INSERT), false);
        add(&mut grants, A, OWNER, Privileges::SELECT, true);
        add(&mut grants, RoleId::PUBLIC, OWNER, Privileges::DELETE, false);
        assert_eq!(text(&grants), "boss=arwdDxt/boss,r16384=ar*/boss,=d/boss");
        assert_eq!(text(&default_grants(Kind::Schema, 2200, OWNER)), "=U/boss,boss=UC/boss");
        assert_eq!(text(&default_grants(Kind::Database, 5, OWNER)), "=Tc/boss,boss=CTc/boss");
        assert_eq!(text(&default_grants(Kind::Sequence, 7, OWNER)), "boss=rwU/boss");
    }

    #[test]
    fn entries_are_read_as_they_are_written() {
        let read = |text: &str| Item::of_text(text).map(|item| (item.grantee, item.privileges, item.grantor));
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(read("=r/boss"), Some((None, vec![("SELECT", false)], "boss".to_owned())));
        let (privileges, grantor) = (vec![("INSERT", true), ("SELECT", false)], "b=/\"".to_owned());
        assert_eq!(read("\"a \"\"=\"=a*r/\"b=/\"\"\""), Some((some("a \"="), privileges, grantor)));
        assert_eq!((read("a"), read("a=r"), read("\"a=r/b")), (None, None, None));
    }

    #[test]
    fn what_was_given_on_goes_with_what_it_was_given_from() {
        let mut grants = default_grants(Kind::Table, 1, OWNER);
        add(&mut grants, A, OWNER, Privileges::SELECT, true);
        add(&mut grants, B, A, Privileges::SELECT, false);
        let before = grants.clone();
        assert!(take(&mut grants, OWNER, (A, OWNER), Privileges::SELECT, false, false).is_err());
        grants = before;
        take(&mut grants, OWNER, (A, OWNER), Privileges::SELECT, true, true).unwrap();
        assert_eq!(text(&grants), "boss=arwdDxt/boss,r16384=r/boss");
        assert_eq!(held(&grants, |role| role == B), (Privileges::NONE, Privileges::NONE));
        assert_eq!(held(&grants, |role| role == A).0, Privileges::SELECT);
    }

    #[test]
    fn a_new_owner_has_what_the_old_one_had() {
        let mut grants = default_grants(Kind::Table, 1, OWNER);
        add(&mut grants, A, OWNER, Privileges::SELECT, false);
        let moved = with_owner(&Rights { owner: OWNER, grants: Some(grants) }, A);
        assert_eq!(text(&moved.grants.unwrap()), "r16384=arwdDxt/r16384");
    }
}
