//! How kinds are declared. `records!` makes the type of each kind; `events!` lists them all once, as
//! the variants of [`Event`](super::Event).

/// Declares kinds: the type of each, its spelling, and which of its fields are content.
macro_rules! records {
    ($(
        $(#[$doc:meta])*
        $name:ident = $kind:literal {
            $($(#[$fmeta:meta])* $field:ident : $type:ty,)*
        } content [$($content:literal),*];
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            pub struct $name {
                $($(#[$fmeta])* pub $field: $type,)*
            }

            impl $name {
                pub(super) const KIND: &'static str = $kind;
                pub(super) const CONTENT: &'static [&'static str] = &[$($content),*];
            }
        )*
    };
}

macro_rules! events {
    ($($name:ident,)*) => {
        $(
            impl From<$name> for Event {
                fn from(event: $name) -> Self {
                    Self::$name(event)
                }
            }
        )*

        /// The typed view of a record's header.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Event {
            $($name($name),)*
            Unknown(Unknown),
        }

        /// Every kind this program knows, with its content fields.
        pub const KINDS: &[(&str, &[&str])] = &[$(($name::KIND, $name::CONTENT),)*];

        impl Event {
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$name(_) => $name::KIND,)*
                    Self::Unknown(unknown) => &unknown.kind,
                }
            }

            pub fn parse(kind: &str, header: &str) -> Result<Self, ParseError> {
                let parsed = match kind {
                    $($name::KIND => serde_json::from_str(header).map(Self::$name),)*
                    _ => serde_json::from_str::<UnknownHeader>(header).map(|header| {
                        Self::Unknown(Unknown { kind: kind.to_owned(), critical: header.critical })
                    }),
                };
                parsed.map_err(|source| ParseError { kind: kind.to_owned(), source })
            }

            /// The header as it is written. An unknown event has none of its own to write.
            pub fn header_json(&self) -> Option<String> {
                match self {
                    $(Self::$name(event) => serde_json::to_string(event).ok(),)*
                    Self::Unknown(_) => None,
                }
            }
        }
    };
}
