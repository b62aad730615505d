//! One byte form per JSON value: keys sorted, no white space. Sorting is done here because the
//! map's own order depends on a feature that any dependency may switch on.

use serde_json::Value;

pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// BLAKE3 of the canonical form, in hex.
pub fn digest(value: &Value) -> String {
    blake3::hash(to_string(value).as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_order_and_space_do_not_matter_and_values_do() {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let one = value(r#"{"b":[1,{"y":null,"x":"ü\n"}],"a":true}"#);
        let other = value(r#"{ "a":true, "b":[1,{"x":"ü\n","y":null}] }"#);
        assert_eq!(to_string(&one), r#"{"a":true,"b":[1,{"x":"ü\n","y":null}]}"#);
        assert_eq!(digest(&one), digest(&other));
        assert_ne!(digest(&one), digest(&value(r#"{"a":true,"b":[{"x":"ü\n","y":null},1]}"#)));
    }
}
