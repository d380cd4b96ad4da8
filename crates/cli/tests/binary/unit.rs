//! The systemd unit in `deploy/`, and the drop-in for servers that start workers of pools.

use crate::prelude::*;

/// What the unit forbids and workers of pools can live with: they write to the state folder and to /tmp.
const KEPT: &[&str] = &["ProtectSystem", "ProtectHome", "PrivateTmp", "ProtectKernelTunables", "ProtectControlGroups"];

/// The settings of a section, the last of a name.
fn settings(name: &str, section: &str) -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().skip_while(|line| *line != format!("[{section}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A restriction that is added to the unit breaks workers unless somebody has thought of them.
#[test]
fn each_restriction_of_the_unit_is_lifted_for_workers_or_known_to_do_no_harm() {
    let (unit, lifted) = (settings("wayleave.service", "Service"), settings("wayleave-pools.conf", "Service"));
    let restricts = |name: &&String| {
        ["Protect", "Private", "Restrict", "NoNew", "Memory", "Lock", "SystemCall", "DynamicUser", "Capability"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    for name in unit.keys().filter(restricts) {
        let (kept, lifted) = (KEPT.contains(&name.as_str()), lifted.contains_key(name));
        assert!(kept != lifted, "{name}: lift it in wayleave-pools.conf, or say here why workers can live with it");
    }
    for name in ["DynamicUser", "NoNewPrivileges", "MemoryDenyWriteExecute", "PrivateDevices"] {
        assert_eq!((unit[name].as_str(), lifted[name].as_str()), ("yes", "no"), "{name}");
    }
    assert_eq!(unit["KillMode"], "process", "workers outlive the server");
    let (soft, hard) = unit["LimitNOFILE"].split_once(':').expect("workers get the first number");
    assert!(soft.parse::<u64>().unwrap() <= 1_024 && hard.parse::<u64>().unwrap() >= 65_536);
}
