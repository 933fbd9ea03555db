//! How are dates shown, and in which order are a date's numbers read? The setting DateStyle.

/// The setting DateStyle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DateStyle {
    pub(crate) form: DateForm,
    pub(crate) order: DateOrder,
}

/// In which form dates are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum DateForm {
    #[default]
    Iso,
    Sql,
    Postgres,
    German,
}

/// What the first of a date's numbers is, where no word or length tells.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum DateOrder {
    #[default]
    Mdy,
    Dmy,
    Ymd,
}

impl DateOrder {
    pub(crate) const ALL: [DateOrder; 3] = [DateOrder::Mdy, DateOrder::Dmy, DateOrder::Ymd];
}

/// Why a setting is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BadDateStyle {
    Unknown(String),
    Conflicting,
}

impl DateStyle {
    pub(crate) const DEFAULT: DateStyle = DateStyle { form: DateForm::Iso, order: DateOrder::Mdy };

    /// The words of a setting; what they do not say stays as in `self`.
    pub(crate) fn with(self, setting: &str) -> Result<DateStyle, BadDateStyle> {
        // What a word implies gives way to what another says.
        let (mut form, mut order, mut implied) = (None, None, self);
        for word in setting.split(',').map(str::trim) {
            let folded = word.to_ascii_lowercase();
            let begins = |with: &str| folded.starts_with(with);
            let agrees = match folded.as_str() {
                "iso" => is_once(&mut form, DateForm::Iso),
                "sql" => is_once(&mut form, DateForm::Sql),
                _ if begins("postgres") => is_once(&mut form, DateForm::Postgres),
                "german" => {
                    implied.order = DateOrder::Dmy;
                    is_once(&mut form, DateForm::German)
                }
                "ymd" => is_once(&mut order, DateOrder::Ymd),
                "dmy" => is_once(&mut order, DateOrder::Dmy),
                _ if begins("euro") => is_once(&mut order, DateOrder::Dmy),
                "mdy" | "us" => is_once(&mut order, DateOrder::Mdy),
                _ if begins("noneuro") => is_once(&mut order, DateOrder::Mdy),
                "default" => {
                    implied = DateStyle::DEFAULT;
                    true
                }
                _ => return Err(BadDateStyle::Unknown(word.to_owned())),
            };
            if !agrees {
                return Err(BadDateStyle::Conflicting);
            }
        }
        Ok(DateStyle { form: form.unwrap_or(implied.form), order: order.unwrap_or(implied.order) })
    }

    /// A setting as SHOW tells it, which no other word joins.
    pub(crate) fn named(shown: &str) -> DateStyle {
        DateStyle::DEFAULT.with(shown).unwrap_or_default()
    }

    pub(crate) fn name(self) -> String {
        let form = match self.form {
            DateForm::Iso => "ISO",
            DateForm::Sql => "SQL",
            DateForm::Postgres => "Postgres",
            DateForm::German => "German",
        };
        let order = match self.order {
            DateOrder::Mdy => "MDY",
            DateOrder::Dmy => "DMY",
            DateOrder::Ymd => "YMD",
        };
        format!("{form}, {order}")
    }
}

/// False: something else was said before.
fn is_once<T: PartialEq + Copy>(known: &mut Option<T>, said: T) -> bool {
    *known.get_or_insert(said) == said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_form_and_order_and_leave_the_rest() {
        let german = DateStyle { form: DateForm::German, order: DateOrder::Dmy };
        for (before, setting, after) in [
            (DateStyle::DEFAULT, "dmy", "ISO, DMY"),
            (DateStyle::DEFAULT, "German", "German, DMY"),
            (DateStyle::DEFAULT, "YMD, German", "German, YMD"),
            (DateStyle::DEFAULT, "German, YMD", "German, YMD"),
            (german, "iso", "ISO, DMY"),
            (german, " sql , US", "SQL, MDY"),
            (german, "postgresql, european", "Postgres, DMY"),
            (german, "default", "ISO, MDY"),
            (german, "ISO, noneuropean", "ISO, MDY"),
        ] {
            assert_eq!(before.with(setting).map(DateStyle::name), Ok(after.to_owned()), "{setting}");
        }
        assert_eq!(german.with("iso, sql"), Err(BadDateStyle::Conflicting));
        assert_eq!(german.with("dmy, us"), Err(BadDateStyle::Conflicting));
        assert_eq!(german.with("iso, french"), Err(BadDateStyle::Unknown("french".to_owned())));
    }
}
