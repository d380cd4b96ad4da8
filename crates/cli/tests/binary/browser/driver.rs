//! A real browser, driven over WebDriver: Debian's headless Chromium and its driver.

use std::os::unix::process::CommandExt;

use rustix::process::kill_process_group;

use crate::prelude::*;

/// Pages load within a second; a busy machine takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
const HOW: &str = "install Debian's chromium and chromium-driver, or run `cargo xtask verify`, which does";

/// The key of an element reference in WebDriver responses.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// One window; the browser ends with it.
pub struct Browser {
    driver: Child,
    http: reqwest::Client,
    session: String,
    profile: tempfile::TempDir,
}

impl Browser {
    pub async fn start() -> Self {
        let mut command = Command::new("chromedriver");
        let mut driver = command
            .arg("--port=0")
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("chromedriver: {e}; {HOW}"));
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port =
            lines.find_map(|line| Some(line.split_once(" successfully on port ")?.1.trim_end_matches('.').to_owned()));
        let driver_at = format!("http://127.0.0.1:{}", port.expect("chromedriver names its port"));
        // The driver must not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let args = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--window-size=1200,1400",
            // The browser's own requests must not look like those of a page.
            "--disable-background-networking",
            "--no-first-run",
            "--no-proxy-server",
            format!("--user-data-dir={}", profile.path().display()),
        ]);
        let options = json!({
            "browserName": "chrome",
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        });
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut browser = Self { driver, http, session: driver_at, profile };
        let made = browser.post("/session", json!({"capabilities": {"alwaysMatch": options}})).await;
        browser.session += &format!("/session/{}", made["sessionId"].as_str().unwrap());
        browser
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.try_post(path, body).await.unwrap_or_else(|why| panic!("{path}: {why}"))
    }

    async fn try_post(&self, path: &str, body: Value) -> Result<Value, Value> {
        let answer = self.http.post(format!("{}{path}", self.session)).json(&body).send().await.unwrap();
        let well = answer.status().is_success();
        let value = answer.json::<Value>().await.unwrap()["value"].take();
        if well { Ok(value) } else { Err(value) }
    }

    pub async fn open(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    /// Runs a script in the page.
    pub async fn script(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []})).await
    }

    /// Polls the page until a script returns something truthy.
    pub async fn until(&self, script: &str) -> Value {
        let since = Instant::now();
        loop {
            let value = self.script(script).await;
            if !matches!(value, Value::Null | Value::Bool(false)) {
                return value;
            }
            assert!(since.elapsed() < PATIENCE, "waited in vain for: {script}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Clicks on the element of a selector, as a person would: it must exist and not be covered.
    pub async fn click(&self, selector: &str) {
        self.until(&format!("return document.querySelector({selector:?}) != null")).await;
        let found = self.post("/element", json!({"using": "css selector", "value": selector})).await;
        self.post(&format!("/element/{}/click", found[ELEMENT].as_str().unwrap()), json!({})).await;
    }

    /// A command of the Chrome DevTools protocol.
    pub async fn devtools(&self, command: &str, params: Value) -> Value {
        self.post("/goog/cdp/execute", json!({"cmd": command, "params": params})).await
    }

    /// What was logged since the last call, by kind.
    pub async fn log(&self, kind: &str) -> Vec<Value> {
        self.post("/se/log", json!({ "type": kind })).await.as_array().unwrap().clone()
    }

    /// The URLs of all requests since the last call.
    pub async fn requests(&self) -> Vec<String> {
        let events = self.log("performance").await.into_iter();
        let events = events.map(|entry| serde_json::from_str::<Value>(entry["message"].as_str().unwrap()).unwrap());
        let sent = events.filter(|event| event["message"]["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["message"]["params"]["request"]["url"].as_str().unwrap().to_owned()).collect()
    }

    /// Saves a screenshot in the folder that `WAYLEAVE_SCREENSHOTS` names, if it is set.
    pub async fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("WAYLEAVE_SCREENSHOTS") else { return };
        let whole = self.devtools("Page.captureScreenshot", json!({"captureBeyondViewport": false})).await;
        let path = std::path::Path::new(&folder).join(format!("{name}.png.base64"));
        std::fs::write(path, whole["data"].as_str().unwrap()).unwrap();
    }
}

impl Browser {
    /// The processes of the browser: all name its profile, also those that have left their parent and their group.
    fn processes(&self) -> Vec<Pid> {
        let profile = self.profile.path().as_os_str().as_encoded_bytes();
        let names_it = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(profile.len()).any(|part| part == profile)
        };
        let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(names_it).filter_map(Pid::from_raw).collect()
    }
}

/// The driver does not end its browser when it ends. The browser's crash handlers end with it.
impl Drop for Browser {
    fn drop(&mut self) {
        _ = kill_process_group(Pid::from_child(&self.driver), Signal::KILL);
        _ = self.driver.wait();
        let begun = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() || begun.elapsed() > PATIENCE {
                break;
            }
            left.into_iter().for_each(|pid| _ = kill_process(pid, Signal::KILL));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
