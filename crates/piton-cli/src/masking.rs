//! What this process knows to be secret: what the settings name, and the variables of the environment
//! and of agents that are called like secrets.

use std::env;
use std::fs;

use piton_core::Code;
use piton_core::limits::MASK_VALUE_BYTES_MIN;
use piton_core::mask::{KeyPatterns, Masker, environment_values};

use crate::config::Settings;
use crate::error::{Error, Result};

/// A secret that is named and cannot be looked for is an error: it would be written in the clear.
pub(crate) fn masker(settings: &Settings) -> Result<Masker> {
    let keys = KeyPatterns::new(&settings.mask_keys.value);
    let named = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        // What is not text cannot come up in a text.
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let mut values = environment_values(env::vars_os().filter_map(named), &keys);
    let agents = settings.agents.iter().flat_map(|agent| agent.profile.env.iter().cloned());
    values.extend(environment_values(agents, &keys));
    let servers = settings.agents.iter().flat_map(|agent| &agent.profile.mcp_servers);
    for server in servers {
        values.extend(environment_values(server.env.clone(), &keys));
        // What authorizes is secret under whatever name.
        values.extend(server.headers.values().cloned());
    }
    // A webhook's token, and what names its topic.
    let notify = &settings.notify;
    values.extend([&notify.token, &notify.topic].into_iter().filter_map(|secret| {
        let value = secret.value.as_ref()?.reveal();
        (value.len() >= MASK_VALUE_BYTES_MIN).then(|| value.to_owned())
    }));
    // The data key itself; several are separated by commas.
    let data_keys = env::var("PITON_KEY").unwrap_or_default();
    values.extend(data_keys.split(',').map(str::to_owned));
    for (place, value) in settings.mask_values.value.iter().enumerate() {
        let what = || format!("Value {} of mask.values", place + 1);
        values.push(long_enough(value.reveal(), what)?);
    }
    for name in &settings.mask_env.value {
        // A variable that is not set has no value to hide.
        if let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) {
            let what = || format!("The value of ${name}, which mask.env names,");
            let value = value
                .into_string()
                .map_err(|_| Error::new(Code::ConfigInvalid, format!("{} is not UTF-8", what())))?;
            values.push(long_enough(&value, what)?);
        }
    }
    for path in &settings.mask_files.value {
        let what = || format!("The secret in {}, which mask.files names,", path.display());
        let text = fs::read_to_string(path).map_err(|e| {
            Error::new(Code::ConfigInvalid, format!("{} cannot be read", what())).because(&e)
        })?;
        values.push(long_enough(&text, what)?);
    }
    Masker::new(keys, values).map_err(|e| {
        let message = "What is to be masked cannot be looked for";
        Error::new(Code::ConfigInvalid, message).because(&e)
    })
}

fn long_enough(value: &str, what: impl Fn() -> String) -> Result<String> {
    let value = value.trim();
    if value.len() < MASK_VALUE_BYTES_MIN {
        let message = format!(
            "{} is too short: only {MASK_VALUE_BYTES_MIN} bytes and more can be masked",
            what()
        );
        return Err(Error::new(Code::ConfigInvalid, message));
    }
    Ok(value.to_owned())
}
