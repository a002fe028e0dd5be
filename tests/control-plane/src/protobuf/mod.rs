//! Protobuf bodies, as `kubectl create` sends them: decoded by small tables of the few messages
//! that come this way. A field that no table knows is refused rather than lost.

mod schema;

use serde_json::{Map, Value, json};

use self::schema::{Field, Message, Type};

/// Before every protobuf body of the API.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the body is no Kubernetes protobuf message")]
    Malformed,
    #[error("protobuf bodies of kind {0:?} are not understood here; send JSON")]
    Kind(String),
    #[error("field {number} of protobuf message {message} is not understood here; send JSON")]
    Field { message: &'static str, number: u64 },
}

/// The object in a body, with its kind and version.
pub(crate) fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(DecodeError::Malformed)?;
    let envelope = message(envelope, &schema::ENVELOPE)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&envelope["typeMeta"]["kind"]);
    let schema = schema::of(&kind).ok_or_else(|| DecodeError::Kind(kind.clone()))?;
    let raw = raw_field(body.strip_prefix(MAGIC).unwrap_or_default())?;
    let mut object = message(raw, schema)?;
    object["kind"] = json!(kind);
    object["apiVersion"] = envelope["typeMeta"]["apiVersion"].clone();
    Ok(object)
}

/// Field 2 of the envelope: the bytes of the object itself.
fn raw_field(mut envelope: &[u8]) -> Result<&[u8], DecodeError> {
    while !envelope.is_empty() {
        if let (2, Wire::Bytes(raw)) = next(&mut envelope)? {
            return Ok(raw);
        }
    }
    Ok(&[])
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn message(mut bytes: &[u8], schema: &Message) -> Result<Value, DecodeError> {
    let mut object = Map::new();
    while !bytes.is_empty() {
        let (number, wire) = next(&mut bytes)?;
        let field = schema.fields.iter().find(|f| f.number == number);
        let field = field.ok_or(DecodeError::Field {
            message: schema.name,
            number,
        })?;
        add(&mut object, field, &wire)?;
    }
    Ok(Value::Object(object))
}

fn add(object: &mut Map<String, Value>, field: &Field, wire: &Wire<'_>) -> Result<(), DecodeError> {
    let value = match (&field.kind, wire) {
        (Type::Ignored, _) => return Ok(()),
        (Type::Map(kind), Wire::Bytes(bytes)) => {
            let (key, value) = map_entry(bytes, kind)?;
            let map = object.entry(field.name).or_insert_with(|| json!({}));
            map[key] = value;
            return Ok(());
        }
        (Type::List(kind), wire) => {
            let item = scalar(kind, wire)?.unwrap_or_else(|| json!(""));
            if let Value::Array(items) = object.entry(field.name).or_insert_with(|| json!([])) {
                items.push(item);
            }
            return Ok(());
        }
        (kind, wire) => scalar(kind, wire)?,
    };
    if let Some(value) = value {
        object.insert(field.name.to_owned(), value);
    }
    Ok(())
}

/// Go writes plain fields even when they are zero; only pointers (`Optional…`) mean it.
fn scalar(kind: &Type, wire: &Wire<'_>) -> Result<Option<Value>, DecodeError> {
    Ok(match (kind, wire) {
        (Type::Text, Wire::Bytes(bytes)) => Some(text(bytes)?)
            .filter(|t| !t.is_empty())
            .map(Value::from),
        (Type::Bytes, Wire::Bytes(bytes)) => Some(json!(base64(bytes))),
        (Type::Nested(schema), Wire::Bytes(bytes)) => {
            Some(message(bytes, schema)?).filter(|m| m.as_object().is_none_or(|m| !m.is_empty()))
        }
        (Type::NumberOrText, Wire::Bytes(bytes)) => {
            let mut parts = message(bytes, &schema::NUMBER_OR_TEXT)?;
            let kind = if parts["type"] == 1 { "text" } else { "number" };
            Some(parts[kind].take()).filter(|part| !part.is_null())
        }
        (Type::OptionalNumber, Wire::Number(number)) => Some(json!(number.cast_signed())),
        (Type::OptionalFlag, Wire::Number(number)) => Some(json!(*number != 0)),
        (Type::Number, Wire::Number(number)) => (*number != 0).then(|| json!(number.cast_signed())),
        (Type::Flag, Wire::Number(number)) => (*number != 0).then_some(Value::Bool(true)),
        _ => return Err(DecodeError::Malformed),
    })
}

fn map_entry(mut bytes: &[u8], kind: &Type) -> Result<(String, Value), DecodeError> {
    let (mut key, mut value) = (String::new(), json!(""));
    while !bytes.is_empty() {
        match next(&mut bytes)? {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, wire) => value = scalar(kind, &wire)?.unwrap_or_else(|| json!("")),
            _ => return Err(DecodeError::Malformed),
        }
    }
    Ok((key, value))
}

/// Takes the next field off the front.
fn next<'a>(bytes: &mut &'a [u8]) -> Result<(u64, Wire<'a>), DecodeError> {
    let tag = varint(bytes)?;
    let wire = match tag & 7 {
        0 => Wire::Number(varint(bytes)?),
        2 => {
            let length = usize::try_from(varint(bytes)?).map_err(|_| DecodeError::Malformed)?;
            let (content, rest) = bytes
                .split_at_checked(length)
                .ok_or(DecodeError::Malformed)?;
            *bytes = rest;
            Wire::Bytes(content)
        }
        _ => return Err(DecodeError::Malformed),
    };
    Ok((tag >> 3, wire))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(DecodeError::Malformed)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(DecodeError::Malformed)
}

fn text(bytes: &[u8]) -> Result<String, DecodeError> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| DecodeError::Malformed)
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let sextet = (group >> (18 - 6 * i)) as usize & 63;
            encoded.push(if i <= chunk.len() {
                ALPHABET[sextet].into()
            } else {
                '='
            });
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of length-delimited content.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        [&[number << 3 | 2, length], content].concat()
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [
            MAGIC,
            &field(1, &meta),
            &field(2, raw),
            &field(3, b""),
            &field(4, b""),
        ]
        .concat()
    }

    #[test]
    fn a_secret() {
        let labels = field(11, &[field(1, b"k"), field(2, b"v")].concat());
        let metadata = field(
            1,
            &[field(1, b"s"), field(2, b""), field(8, b""), labels].concat(),
        );
        let data = field(2, &[field(1, b"key"), field(2, b"value!!")].concat());
        let decoded = decode(&body(
            "Secret",
            &[metadata, data, field(3, b"Opaque")].concat(),
        ));
        assert_eq!(
            decoded,
            Ok(json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "s", "labels": {"k": "v"}},
                "data": {"key": "dmFsdWUhIQ=="},
                "type": "Opaque",
            }))
        );
    }

    #[test]
    fn a_service() {
        let by_number = field(4, &[1 << 3, 0, 2 << 3, 80, 3 << 3 | 2, 0]);
        let by_name = field(
            4,
            &[&[1 << 3, 1, 2 << 3, 0][..], &field(3, b"web")].concat(),
        );
        let port = |target: &[u8]| field(1, &[&[3 << 3, 80], target].concat());
        let spec = [port(&by_number), port(&by_name), field(4, b"ClusterIP")].concat();
        let decoded = decode(&body("Service", &field(2, &spec))).unwrap();
        assert_eq!(
            decoded["spec"],
            json!({
                "ports": [{"port": 80, "targetPort": 80}, {"port": 80, "targetPort": "web"}],
                "type": "ClusterIP",
            })
        );
    }

    #[test]
    fn delete_options_keep_a_zero() {
        let decoded = decode(&body("DeleteOptions", &[1 << 3, 0])).unwrap();
        assert_eq!(decoded["gracePeriodSeconds"], 0);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert_eq!(decode(b"{}"), Err(DecodeError::Malformed));
        assert_eq!(
            decode(&body("Widget", b"")),
            Err(DecodeError::Kind("Widget".into()))
        );
        let unknown = DecodeError::Field {
            message: "ConfigMap",
            number: 9,
        };
        assert_eq!(decode(&body("ConfigMap", &field(9, b"x"))), Err(unknown));
        assert_eq!(
            decode(&body("ConfigMap", &[10, 200])),
            Err(DecodeError::Malformed)
        );
    }

    #[test]
    fn base64_pads() {
        for (given, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(given.as_bytes()), expected);
        }
    }
}
