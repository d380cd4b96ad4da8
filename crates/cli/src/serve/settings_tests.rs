use super::*;
use clap::Parser;

#[derive(Parser)]
struct Only {
    #[command(flatten)]
    args: Args,
}

fn args(list: &[&str]) -> Args {
    Only::try_parse_from(std::iter::once("serve").chain(list.iter().copied())).unwrap().args
}

fn file(text: &str) -> anyhow::Result<Args> {
    parse_file(text, Path::new("sample.toml"))
}

fn usage(result: anyhow::Result<impl std::fmt::Debug>) -> String {
    let error = result.expect_err("wrong settings");
    assert!(error.is::<Usage>(), "{error}");
    error.to_string()
}

#[test]
fn without_any_setting_the_defaults_hold() {
    let settings = Settings::merge(Args::default(), Args::default()).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:7071");
    assert_eq!((settings.engine, settings.shards, settings.insecure), (EngineKind::Fjall, 16, false));
    assert_eq!((settings.data, settings.log_level), (PathBuf::from("wayleave-data"), "info".to_owned()));
}

#[test]
fn a_flag_comes_before_the_file_and_the_file_before_the_default() {
    let from_file = file("listen = '127.0.0.1:1'\nshards = 4\ncache_mb = 64\nengine = 'memory'\nlog = 'json'").unwrap();
    let flags = args(&["--listen", "127.0.0.1:2", "--engine", "fjall"]);
    let settings = Settings::merge(flags, from_file).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:2");
    assert_eq!(settings.engine, EngineKind::Fjall);
    assert_eq!((settings.shards, settings.cache_mb, settings.log), (4, 64, LogForm::Json));
    assert_eq!(settings.log_level, "info");
    assert_eq!(settings.server().hold_max, None);
    let flags = args(&["--hold-max-ms", "2000"]);
    let settings = Settings::merge(flags, file("hold_max_ms = 1000").unwrap()).unwrap();
    assert_eq!(settings.server().hold_max, Some(Millis(2_000)));
}

#[test]
fn a_flag_can_take_back_what_the_file_allows() {
    for (flags, want) in [(vec![], true), (vec!["--insecure=false"], false), (vec!["--insecure"], true)] {
        let settings = Settings::merge(args(&flags), file("insecure = true").unwrap()).unwrap();
        assert_eq!(settings.insecure, want, "{flags:?}");
    }
}

#[test]
fn an_unknown_name_in_the_file_is_an_error_that_names_it() {
    let error = usage(file("listen = '127.0.0.1:1'\nlisten_port = 7071\n"));
    assert!(error.contains("sample.toml") && error.contains("listen_port"), "{error}");
    assert!(error.contains("none of listen, data") && error.contains("did you mean 'listen'?"), "{error}");
}

#[test]
fn bounds_hold_for_the_file_as_for_the_flags() {
    for (text, name) in [
        ("shards = 0", "shards"),
        ("shards = 5000", "shards"),
        ("cache_mb = 0", "cache_mb"),
        ("memtable_mb = 0", "memtable_mb"),
        ("hosts_max = 0", "hosts_max"),
        ("hold_max_ms = 999", "hold_max_ms"),
        ("drain_ms = 600001", "drain_ms"),
        ("node_ttl_ms = 999", "node_ttl_ms"),
    ] {
        assert!(usage(Settings::merge(Args::default(), file(text).unwrap())).contains(name), "{text}");
    }
    assert!(Only::try_parse_from(["serve", "--shards", "0"]).is_err());
}

#[test]
fn pools_are_read_from_the_file_and_checked_before_anything_starts() {
    let text = "[pools.render]\ncommand = ['./w']\nslots = 5\nenv = { KEY = 'hunter2' }\n[pools.gpu]\nimage = 'gpu:1'\nport = 80\n";
    let settings = Settings::merge(Args::default(), file(text).unwrap()).unwrap();
    assert_eq!(settings.pools.keys().collect::<Vec<_>>(), ["gpu", "render"]);
    assert_eq!((settings.pools["render"].slots, settings.pools["gpu"].port), (Some(5), Some(80)));
    assert!(!format!("{settings:?}").contains("hunter2"));
    for (text, said) in [
        ("[pools.p]\ncommand = ['w']\nmin = 3\nmax = 2", "[pools.p]: max: is 2, which is below `min` (3)"),
        ("[pools.p]\nslots = 1", "[pools.p]: runtime: is missing"),
        ("[pools.'a b']\ncommand = ['w']", "'a b' is not the name of a pool"),
    ] {
        let error = usage(Settings::merge(Args::default(), file(text).unwrap()));
        assert!(error.contains(said), "{text}: {error}");
    }
    let error = usage(file("[pools.p]\ncommand = ['w']\nslotz = 1"));
    assert!(error.contains("line 3") && error.contains("slotz"), "{error}");
    let error = usage(file("shards = 4\n[pools.p]\ncommand = ['w']\nslots = 'many'"));
    assert!(error.contains("line 4: pools.p.slots: expected "), "{error}");
}

#[test]
fn commands_by_the_api_must_be_allowed_where_others_can_reach_the_server() {
    let open = ["--listen", "0.0.0.0:1", "--insecure"];
    let takes = |more: &[&str]| {
        let settings = Settings::merge(args(&[&open[..], more].concat()), Args::default()).unwrap();
        settings.server().takes_pool_commands()
    };
    assert!(!takes(&[]) && takes(&["--allow-pool-commands"]) && !takes(&["--allow-pool-commands=false"]));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let missing = Args { config: Some("/nonexistent/wayleave.toml".into()), ..Args::default() };
    let error = format!("{:#}", Settings::from_args(missing).expect_err("missing"));
    assert!(error.contains("/nonexistent/wayleave.toml"), "{error}");
}

#[test]
fn a_mistyped_engine_is_refused_without_its_password() {
    let from_flag = usage(Settings::merge(args(&["--engine", "posgres://u:hunter2@h/d"]), Args::default()));
    let from_file = usage(file("listen = '127.0.0.1:1'\nengine = 'mysql://u:hunter2@h/d'\n"));
    let torn = usage(file("engine = 'postgres://u:hunter2@h/d\n"));
    for error in [&from_flag, &from_file, &torn] {
        assert!(!error.contains("hunter2"), "{error}");
    }
    assert!(from_flag.contains("WAYLEAVE_ENGINE") && from_flag.contains("postgres://"), "{from_flag}");
    assert!(from_file.contains("sample.toml, line 2") && from_file.contains("engine"), "{from_file}");
    let right = Settings::merge(args(&["--engine", "postgres://u:hunter2@h/d"]), Args::default()).unwrap();
    assert!(!format!("{right:?}").contains("hunter2"));
    assert_eq!(right.shards, 256);
}

#[test]
fn names_and_origins_that_could_never_match_are_refused() {
    let right = args(&["--allow-host", "a.example,.b.example", "--allow-origin", "https://board.example:1"]);
    let settings = Settings::merge(right, file("allow_host = ['c.example']").unwrap()).unwrap();
    assert_eq!(settings.server().allow_hosts, ["a.example", ".b.example"]);
    assert_eq!(settings.server().allow_origins, ["https://board.example:1"]);
    for wrong in
        [["--allow-host", "http://a.example"], ["--allow-host", "a.example:80"], ["--allow-origin", "board.example"]]
    {
        let error = usage(Settings::merge(args(&wrong), Args::default()));
        assert!(error.contains(wrong[1]), "{error}");
    }
}

#[test]
fn ranges_for_probes_are_read_and_a_wrong_one_is_named() {
    let right = args(&["--allow-net", "10.0.0.0/8,fd00::/8"]);
    let settings = Settings::merge(right, file("allow_net = ['192.168.0.0/16']").unwrap()).unwrap();
    let told: Vec<String> = settings.allow_net.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["10.0.0.0/8", "fd00::/8"]);
    let error = usage(Settings::merge(args(&["--allow-net", "10.0.0.0/40"]), Args::default()));
    assert!(error.contains("'10.0.0.0/40'"), "{error}");
    let error = usage(Settings::merge(Args::default(), file("allow_net = ['everything']").unwrap()));
    assert!(error.contains("'everything'"), "{error}");
}

#[test]
fn flags_of_the_fleet_come_before_the_file_and_the_file_before_the_defaults() {
    let flags = args(&["--report-interval-ms", "1000"]);
    let from_file = file("report_interval_ms = 2000\nreplace_after_ms = 0\nmoves_per_minute = 7").unwrap();
    let times = Settings::merge(flags, from_file).unwrap().frontier(1);
    assert_eq!((times.fleet.report_interval, times.fleet.failed_after()), (Millis(1_000), Millis(6_000)));
    assert_eq!(times.fleet.probe_interval, limits::PROBE_INTERVAL);
    assert_eq!((times.placement.replace_after, times.placement.moves_per_minute), (Millis(0), 7));
    let usual = Settings::merge(Args::default(), Args::default()).unwrap().frontier(1);
    assert_eq!((usual.fleet, usual.placement), (fleet::Config::default(), placement::Config::default()));
}

#[test]
fn times_of_the_fleet_that_are_out_of_bounds_are_named() {
    let refuse = |text: &str| usage(Settings::merge(Args::default(), file(text).unwrap()));
    let told = refuse("report_interval_ms = 499");
    let wanted = "--report-interval-ms, or report_interval_ms in the file, is 499 and not between 500 and 86400000";
    assert!(told.contains(wanted) && told.ends_with("or leave it out for 5000"), "{told}");
    let told = refuse("replace_after_ms = 86400001");
    assert!(told.contains("--replace-after-ms, or replace_after_ms in the file, is 86400001"), "{told}");
}
