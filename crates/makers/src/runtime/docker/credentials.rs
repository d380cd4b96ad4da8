//! Credentials of registries, as `docker login` stores them in its settings file. Those that it leaves to a helper program
//! are not read.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde_json::Value;

/// The names under which Docker's own registry is kept.
const HUB: &[&str] = &["docker.io", "index.docker.io", "registry-1.docker.io"];

/// The settings file of this user.
pub fn file() -> Option<PathBuf> {
    let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")))?;
    Some(folder.join("config.json"))
}

/// Those for the registry of an image; none if the file has none.
pub fn of(file: &Path, image: &str) -> Option<DockerCredentials> {
    let settings: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let registry = registry(image);
    let entries = settings.get("auths")?.as_object()?;
    let (name, entry) = entries.iter().find(|(name, _)| is_same(host(name), registry))?;
    let text = |key: &str| entry.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let decoded = text("auth").and_then(|auth| String::from_utf8(STANDARD.decode(auth.trim()).ok()?).ok());
    let (username, password) = match decoded.as_ref().and_then(|pair| pair.split_once(':')) {
        Some((username, password)) => (Some(username.to_owned()), Some(password.to_owned())),
        None => (text("username"), text("password")),
    };
    let identitytoken = text("identitytoken");
    if password.is_none() && identitytoken.is_none() {
        return None;
    }
    let serveraddress = Some(name.clone());
    Some(DockerCredentials { username, password, identitytoken, serveraddress, ..DockerCredentials::default() })
}

/// The registry that an image's name begins with: a first part with a dot or a port, or `localhost`.
fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
        _ => "docker.io",
    }
}

/// The host in a key of the file, which may be a URL.
fn host(key: &str) -> &str {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

fn is_same(one: &str, other: &str) -> bool {
    one == other || (HUB.contains(&one) && HUB.contains(&other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_an_images_registry_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        let encode = |text: &str| STANDARD.encode(text);
        let settings = serde_json::json!({"auths": {
            "https://index.docker.io/v1/": {"auth": encode("hub:a:b")},
            "registry.example:5000": {"auth": encode("me:secret")},
            "localhost": {"username": "l", "password": "p"},
            "token.example": {"auth": encode("t:"), "identitytoken": "it"},
            "empty.example": {},
        }});
        std::fs::write(&file, settings.to_string()).unwrap();
        let found = |image| of(&file, image).map(|found| (found.username, found.password, found.identitytoken));
        let pair = |user: &str, password: &str| Some((Some(user.to_owned()), Some(password.to_owned()), None));
        assert_eq!(found("browser:3"), pair("hub", "a:b"));
        assert_eq!(found("team/browser"), pair("hub", "a:b"));
        assert_eq!(found("docker.io/team/browser"), pair("hub", "a:b"));
        assert_eq!(found("registry.example:5000/browser:3"), pair("me", "secret"));
        assert_eq!(found("localhost/browser"), pair("l", "p"));
        assert_eq!(found("token.example/x").unwrap().2, Some("it".to_owned()));
        for image in ["registry.example/browser", "empty.example/x", "other.example/x"] {
            assert_eq!(found(image), None, "{image}");
        }
        assert_eq!(of(&folder.path().join("none.json"), "browser").map(|_| ()), None);
    }
}
