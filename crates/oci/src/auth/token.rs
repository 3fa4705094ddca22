//! Session tokens: JSON web tokens. The client reads when they expire; the service verifies them.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::error::LoginError;

/// A token and its validity.
#[derive(Clone)]
pub(crate) struct Token {
    /// As the service wants it in a key id: with the prefix `ST$`.
    pub(crate) key_id: String,
    pub(crate) expires: SystemTime,
    /// When to fetch the next one.
    pub(crate) renew: SystemTime,
}

/// How long before it expires a token is renewed at the latest.
const EARLY: Duration = Duration::from_mins(5);

#[derive(Deserialize)]
struct Claims {
    exp: u64,
}

impl Token {
    /// Reads a token, with or without its prefix, fetched at `now`. Renewed at half its life, and five minutes before
    /// it expires at the latest, so that a short outage of the service does no harm.
    pub(crate) fn parse(text: &str, now: SystemTime) -> Result<Self, LoginError> {
        let bad = |problem: &str| LoginError::material("the session token", problem);
        let text = text.trim();
        let jwt = text.strip_prefix("ST$").unwrap_or(text);
        if !jwt.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-=".contains(&b)) {
            return Err(bad("it is not a JSON web token"));
        }
        let claims = jwt.split('.').nth(1).ok_or_else(|| bad("it is not a JSON web token"))?;
        let claims =
            URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).map_err(|_| bad("its claims are not base64"))?;
        let Claims { exp } = serde_json::from_slice(&claims).map_err(|_| bad("it has no expiry (exp)"))?;
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(exp.min(1 << 40));
        let life = expires.duration_since(now).map_err(|_| bad("it has expired already; check this host's clock"))?;
        let renew = now + (life / 2).min(life.saturating_sub(EARLY));
        Ok(Self { key_id: format!("ST${jwt}"), expires, renew })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jwt(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn token_is_renewed_at_half_life_and_five_minutes_early() {
        let cases = [(3600, 1800), (600, 300), (500, 200), (60, 0)];
        for (life, renew) in cases {
            let token = Token::parse(&jwt(&format!("{{\"exp\":{}}}", 1000 + life)), at(1000)).unwrap();
            assert_eq!((token.expires, token.renew), (at(1000 + life), at(1000 + renew)), "{life}");
        }
    }

    #[test]
    fn the_prefix_may_be_there_already() {
        let text = jwt(r#"{"exp":2000,"jwk":"{}","more":[1]}"#);
        let bare = Token::parse(&text, at(1000)).unwrap();
        let prefixed = Token::parse(&format!("ST${text}\n"), at(1000)).unwrap();
        assert_eq!((bare.key_id.as_str(), prefixed.key_id), (format!("ST${text}").as_str(), bare.key_id.clone()));
    }

    #[test]
    fn a_malformed_token_is_refused_without_showing_it() {
        let bad = ["", "secret", "a.b.c", "a.!.c", &jwt("{}"), &jwt(r#"{"exp":10}"#), "e30.e30\".x"];
        for text in bad {
            let Err(error) = Token::parse(text, at(1000)) else { panic!("{text:?} is taken") };
            assert!(!error.to_string().contains("secret"));
        }
    }
}
